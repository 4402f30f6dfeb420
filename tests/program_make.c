/* Drawing random programs: see program.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "program.h"

static const double LIMIT = 2; /* operands are bounded by it, so that programs of any length have moderate derivatives */
enum { MOST_ENTRIES = 64, FEW_ROOTS = 16, NOBODY = -1 };

/* A message between world ranks, NOBODY being MPI_PROC_NULL. Its ends are the send, 0, and the receive, 1; source and dest are also what the calls say. */
typedef enum end_state { WAITING, STARTED, DONE } end_state;
typedef struct message {
    int comm, rank[2], peer[2], tag;
    bool any_source, any_tag, blocking[2];
    extents shape[2];
    double bound[2];
    end_state state[2];
} message;

typedef struct maker {
    program *p;
    uint64_t state;
    int n_messages;
    message messages[MAX_MESSAGES];
} maker;

/* ---- drawing ---- */

static int draw(maker *g, int below) {
    return (int)draw_below(&g->state, (uint64_t)below);
}

static bool chance(maker *g, int percent) {
    return draw(g, 100) < percent;
}

static extents draw_extents(maker *g, int least_axes) {
    extents e = {.ndim = least_axes + draw(g, 4 - least_axes)};
    for (int i = 0; i < e.ndim; i++)
        e.n[i] = chance(g, 5) ? 0 : 1 + draw(g, 3);
    return e;
}

/* Lengths along an axis, 0 too, and their sum. */
static int64_t draw_lengths(maker *g, int n, int64_t *lengths) {
    int64_t sum = 0;
    for (int i = 0; i < n; i++)
        sum += lengths[i] = draw(g, 4);
    return sum;
}

/* An axis as the call gets it: negative ones count from the end. */
static int spell_axis(maker *g, int axis, int ndim) {
    return chance(g, 30) ? axis - ndim : axis;
}

static bool same_extents(const extents *a, const extents *b) {
    bool same = a->ndim == b->ndim;
    for (int i = 0; i < a->ndim && same; i++)
        same = a->n[i] == b->n[i];
    return same;
}

static extents with_extent(extents e, int axis, int64_t n) {
    e.n[axis] = n;
    return e;
}

/* ---- steps and slots ---- */

static slot *slot_of(maker *g, int rank, int i) {
    return &g->p->tracks[rank].slots[i];
}

static extents shape_of(maker *g, int rank, int i) {
    return slot_of(g, rank, i)->shape;
}

static double bound_of(maker *g, int rank, int i) {
    return slot_of(g, rank, i)->bound;
}

/* A step without a result. */
static void add_effect(maker *g, int rank, step s) {
    track *t = &g->p->tracks[rank];
    if (t->n_steps == MAX_STEPS)
        abort();
    t->steps[t->n_steps++] = s;
    t->slots[s.x].used = t->slots[s.y].used = true;
}

static int add_step(maker *g, int rank, step s, extents e, double bound) {
    track *t = &g->p->tracks[rank];
    if (t->n_slots == MAX_SLOTS)
        abort();
    s.out = t->n_slots;
    t->slots[t->n_slots] = (slot){.shape = e, .bound = bound};
    add_effect(g, rank, s);
    return t->n_slots++;
}

/* The same; a result that may be too large is made smaller. */
static void emit(maker *g, int rank, step s, extents e, double bound) {
    int out = add_step(g, rank, s, e, bound);
    if (bound <= LIMIT)
        return;
    if (chance(g, 50))
        add_step(g, rank, (step){.kind = STEP_scale, .x = out, .factor = 1 / bound}, e, 1);
    else
        add_step(g, rank, (step){.kind = STEP_unary, .x = out, .function = 0}, e, unary_functions[0].bound(bound));
}

static bool may_be_operand(const slot *s) {
    return !s->consumed && s->bound <= LIMIT && entries(&s->shape) <= MOST_ENTRIES;
}

/* Some slot; rather one that nobody used yet. The first input is always there. */
static int pick(maker *g, int rank) {
    track *t = &g->p->tracks[rank];
    for (int tries = 0; tries < 20; tries++) {
        int i = 1 + draw(g, t->n_slots - 1);
        if (may_be_operand(&t->slots[i]) && (!t->slots[i].used || chance(g, 30)))
            return i;
    }
    return 1;
}

static int fit(maker *g, int rank, int x, extents e) {
    int layout = layout_for(&e, draw(g, N_LAYOUTS));
    double bound = fmax(bound_of(g, rank, x), 1) * (layout == EXPRESSION ? 2 : 1);
    int y = add_step(g, rank, (step){.kind = STEP_fit, .x = x, .layout = layout}, e, bound);
    if (bound <= LIMIT)
        return y;
    return add_step(g, rank, (step){.kind = STEP_scale, .x = y, .factor = 1 / bound}, e, 1);
}

/* A slot of this shape: one that is there, or some slot brought to it. */
static int operand(maker *g, int rank, extents e) {
    track *t = &g->p->tracks[rank];
    for (int i = t->n_slots - 1; i > 0 && chance(g, 90); i--)
        if (may_be_operand(&t->slots[i]) && same_extents(&t->slots[i].shape, &e))
            return i;
    return fit(g, rank, pick(g, rank), e);
}

/* One that may be consumed: not an input. */
static int owned_operand(maker *g, int rank, extents e) {
    int x = operand(g, rank, e);
    return x <= g->p->tracks[rank].n_inputs ? fit(g, rank, x, e) : x;
}

static int operand_for(maker *g, int rank, extents e, bool consumed) {
    return consumed ? owned_operand(g, rank, e) : operand(g, rank, e);
}

/* One with an axis at least, and one of its axes. */
static int operand_with_axis(maker *g, int rank, int *axis) {
    int x = pick(g, rank);
    if (shape_of(g, rank, x).ndim == 0)
        x = fit(g, rank, x, draw_extents(g, 1));
    *axis = draw(g, shape_of(g, rank, x).ndim);
    return x;
}

/* ---- local steps ---- */

static void make_unary(maker *g, int rank) {
    int x = pick(g, rank), f = draw(g, n_unary_functions);
    emit(g, rank, (step){.kind = STEP_unary, .x = x, .function = f}, shape_of(g, rank, x),
         unary_functions[f].bound(bound_of(g, rank, x)));
}

static void make_scale(maker *g, int rank) {
    int x = pick(g, rank);
    double factor = 0.25 * (draw(g, 17) - 8);
    emit(g, rank, (step){.kind = STEP_scale, .x = x, .factor = factor}, shape_of(g, rank, x),
         fabs(factor) * bound_of(g, rank, x));
}

/* An operand that broadcasts to e: extents 1, and fewer axes. */
static int broadcast_operand(maker *g, int rank, extents e) {
    extents b = {.ndim = e.ndim - (e.ndim ? draw(g, e.ndim) : 0)};
    for (int i = 0; i < b.ndim; i++)
        b.n[i] = chance(g, 30) ? 1 : e.n[e.ndim - b.ndim + i];
    return operand(g, rank, b);
}

static void make_binary(maker *g, int rank) {
    int x = pick(g, rank), y = broadcast_operand(g, rank, shape_of(g, rank, x)), f = draw(g, n_binary_functions);
    bool swapped = chance(g, 50);
    emit(g, rank, (step){.kind = STEP_binary, .x = swapped ? y : x, .y = swapped ? x : y, .function = f}, shape_of(g, rank, x),
         binary_functions[f].bound(bound_of(g, rank, x), bound_of(g, rank, y)));
}

/* Where not y, exact zeros: products of ranks' entries meet them. */
static void make_where(maker *g, int rank) {
    int x = pick(g, rank), y = chance(g, 40) ? NONE : broadcast_operand(g, rank, shape_of(g, rank, x));
    emit(g, rank, (step){.kind = STEP_where, .x = x, .y = y, .salt = mix(g->state)}, shape_of(g, rank, x),
         fmax(bound_of(g, rank, x), y ? bound_of(g, rank, y) : 0));
}

/* Entries lo ... hi of an axis, forwards with a stride, or from the last one back; *n of them. */
static step draw_slice(maker *g, step_kind kind, int64_t extent, int64_t *n) {
    step s = {.kind = kind, .start = INT64_MAX, .stop = INT64_MIN, .stride = -1 - draw(g, 2)};
    *n = (extent - s.stride - 1) / -s.stride;
    if (chance(g, 30))
        return s;
    s.start = draw(g, (int)extent + 1);
    s.stop = s.start + draw(g, (int)(extent - s.start) + 1);
    s.stride = 1 + draw(g, 2);
    *n = (s.stop - s.start + s.stride - 1) / s.stride;
    return s;
}

static void make_slice(maker *g, int rank) {
    int axis, x = operand_with_axis(g, rank, &axis);
    extents e = shape_of(g, rank, x);
    int64_t n;
    step s = draw_slice(g, STEP_slice, e.n[axis], &n);
    s.x = x;
    s.axis = spell_axis(g, axis, e.ndim);
    emit(g, rank, s, with_extent(e, axis, n), bound_of(g, rank, x));
}

static void make_set_slice(maker *g, int rank) {
    int axis, x = operand_with_axis(g, rank, &axis);
    extents e = shape_of(g, rank, x);
    int64_t n;
    step s = draw_slice(g, STEP_set_slice, e.n[axis], &n);
    s.x = x;
    s.axis = spell_axis(g, axis, e.ndim);
    s.y = broadcast_operand(g, rank, with_extent(e, axis, n));
    emit(g, rank, s, e, fmax(bound_of(g, rank, x), bound_of(g, rank, s.y)));
}

static void make_set_window_inplace(maker *g, int rank) {
    int x = owned_operand(g, rank, shape_of(g, rank, pick(g, rank)));
    extents e = shape_of(g, rank, x), window = e;
    for (int i = 0; i < e.ndim; i++)
        window.n[i] = draw(g, (int)e.n[i] + 1);
    step s = {.kind = STEP_set_window_inplace, .x = x, .start = draw(g, 3)};
    slot_of(g, rank, x)->consumed = true; /* so that it is not the value, too */
    s.y = operand(g, rank, window);
    emit(g, rank, s, e, fmax(bound_of(g, rank, x), bound_of(g, rank, s.y)));
}

static void make_transpose(maker *g, int rank) {
    int axis, x = operand_with_axis(g, rank, &axis);
    extents e = shape_of(g, rank, x);
    int other = draw(g, e.ndim);
    extents swapped = with_extent(with_extent(e, axis, e.n[other]), other, e.n[axis]);
    emit(g, rank, (step){.kind = STEP_transpose, .x = x, .axis = spell_axis(g, axis, e.ndim), .other_axis = other}, swapped,
         bound_of(g, rank, x));
}

static void make_broadcast_to(maker *g, int rank) {
    extents e = draw_extents(g, 1);
    int x = broadcast_operand(g, rank, e);
    emit(g, rank, (step){.kind = STEP_broadcast_to, .x = x}, e, bound_of(g, rank, x));
}

static void make_concat(maker *g, int rank) {
    int axis, x = operand_with_axis(g, rank, &axis);
    extents e = shape_of(g, rank, x);
    int64_t more = draw(g, 3);
    int y = operand(g, rank, with_extent(e, axis, more));
    emit(g, rank, (step){.kind = STEP_concat, .x = x, .y = y, .axis = spell_axis(g, axis, e.ndim)},
         with_extent(e, axis, e.n[axis] + more), fmax(bound_of(g, rank, x), bound_of(g, rank, y)));
}

static void make_matmul(maker *g, int rank) {
    int64_t m = draw(g, 4), k = draw(g, 4), n = draw(g, 4);
    int x = operand(g, rank, (extents){2, {m, k}}), y = operand(g, rank, (extents){2, {k, n}});
    emit(g, rank, (step){.kind = STEP_matmul, .x = x, .y = y}, (extents){2, {m, n}},
         (double)k * bound_of(g, rank, x) * bound_of(g, rank, y));
}

static void make_sum_axes(maker *g, int rank) {
    int axis, x = operand_with_axis(g, rank, &axis);
    extents e = shape_of(g, rank, x);
    emit(g, rank, (step){.kind = STEP_sum_axes, .x = x, .axis = spell_axis(g, axis, e.ndim)}, with_extent(e, axis, 1),
         (double)e.n[axis] * bound_of(g, rank, x));
}

static void make_cumsum(maker *g, int rank) {
    int axis, x = operand_with_axis(g, rank, &axis);
    extents e = shape_of(g, rank, x);
    emit(g, rank, (step){.kind = STEP_cumsum, .x = x, .axis = spell_axis(g, axis, e.ndim)}, e,
         (double)e.n[axis] * bound_of(g, rank, x));
}

static void make_flip(maker *g, int rank) {
    int axis, x = operand_with_axis(g, rank, &axis);
    extents e = shape_of(g, rank, x);
    emit(g, rank, (step){.kind = STEP_flip, .x = x, .axis = spell_axis(g, axis, e.ndim)}, e, bound_of(g, rank, x));
}

static void make_roll(maker *g, int rank) {
    int axis, x = operand_with_axis(g, rank, &axis);
    extents e = shape_of(g, rank, x);
    emit(g, rank, (step){.kind = STEP_roll, .x = x, .axis = spell_axis(g, axis, e.ndim), .length = draw(g, 7) - 3}, e,
         bound_of(g, rank, x));
}

static void make_pad(maker *g, int rank) {
    int axis, x = operand_with_axis(g, rank, &axis);
    extents e = shape_of(g, rank, x);
    int64_t before = draw(g, 3), after = draw(g, 2);
    emit(g, rank,
         (step){.kind = STEP_pad, .x = x, .axis = spell_axis(g, axis, e.ndim), .start = before, .stop = after, .factor = 0.5},
         with_extent(e, axis, e.n[axis] + before + after), fmax(bound_of(g, rank, x), 0.5));
}

/* An open request of this rank; NONE: there is none. The k-th message's are 2k + 1 and 2k + 2. */
static int request_of(int m, int end) {
    return 2 * m + end + 1;
}

static int open_request(maker *g, int rank) {
    for (int m = g->n_messages - 1; m >= 0; m--)
        for (int end = 0; end < 2; end++)
            if (g->messages[m].state[end] == STARTED && g->messages[m].rank[end] == rank && chance(g, 60))
                return request_of(m, end);
    return NONE;
}

static void make_join_dummies(maker *g, int rank) {
    int x = pick(g, rank), y = pick(g, rank), request = open_request(g, rank);
    if (request && chance(g, 50))
        add_effect(g, rank, (step){.kind = STEP_request_join_dummies, .x = x, .y = y, .request = request});
    else
        emit(g, rank, (step){.kind = STEP_join_dummies, .x = x, .y = y, .request = request}, shape_of(g, rank, x),
             bound_of(g, rank, x));
}

static void make_local(maker *g, int rank) {
    static void (*const kinds[])(maker *, int) = {
        make_unary,
        make_unary,
        make_scale,
        make_binary,
        make_binary,
        make_where,
        make_slice,
        make_concat,
        make_transpose,
        make_sum_axes,
        make_matmul,
        make_matmul,
        make_cumsum,
        make_broadcast_to,
        make_flip,
        make_roll,
        make_pad,
        make_set_slice,
        make_set_window_inplace,
        make_join_dummies,
    };
    kinds[draw(g, (int)(sizeof kinds / sizeof *kinds))](g, rank);
}

/* ---- collectives ---- */

static bool is_inplace(step_kind kind) {
    return kind == STEP_bcast_inplace || kind == STEP_reduce_inplace || kind == STEP_halo_inplace;
}

/* One member's part of a collective, with the result's shape and bound. */
static void emit_collective(maker *g, int rank, step s, extents e, double bound) {
    if (is_inplace(s.kind))
        slot_of(g, rank, s.x)->consumed = true;
    emit(g, rank, s, e, bound);
}

/* sin(x) + 3 place, with a place among the members for each entry: the extremum is on one rank for all nearby x. */
static int separate(maker *g, int rank, const team *t, int x, uint64_t salt) {
    return add_step(g, rank, (step){.kind = STEP_separate, .x = x, .comm = t->comm, .length = t->n, .salt = salt},
                    shape_of(g, rank, x), 3.0 * t->n);
}

/* Ranks that are not in SOME call it on their communicator of size 0, which gives the operand back. */
static void emit_outside(maker *g, const team *t, step s) {
    const teams *all = &g->p->teams;
    for (int r = 0; r < g->p->ranks && t->comm == SOME; r++) {
        if (all->color[SOME][r] != MPI_UNDEFINED || chance(g, 30))
            continue;
        s.x = pick(g, r);
        s.comm = SOME;
        emit(g, r, s, shape_of(g, r, s.x), bound_of(g, r, s.x));
    }
}

static int draw_reduction(maker *g, int where) {
    for (;;) {
        int f = draw(g, n_reductions);
        if (reductions[f].where & where)
            return f;
    }
}

/* Operands of one shape for a reduction, and the bound of what it makes of them. */
static double reduction_operands(maker *g, const team *t, const reduction *f, extents e, bool consumed, int x[MAX_RANKS]) {
    uint64_t salt = mix(g->state);
    double bound = 0, largest = 0;
    for (int k = 0; k < t->n; k++) {
        x[k] = operand_for(g, t->rank[k], e, consumed);
        if (f->separated)
            x[k] = separate(g, t->rank[k], t, x[k], salt);
        double b = bound_of(g, t->rank[k], x[k]);
        bound = k ? f->bound(bound, b) : b;
        largest = fmax(largest, bound);
    }
    return largest;
}

static void make_reduction(maker *g, const team *t, step_kind kind) {
    extents e = draw_extents(g, 0);
    int f = draw_reduction(g, kind == STEP_scan || kind == STEP_exscan ? IN_SCANS : IN_REDUCTIONS), root = draw(g, t->n);
    int x[MAX_RANKS];
    double bound = reduction_operands(g, t, &reductions[f], e, is_inplace(kind), x);
    for (int k = 0; k < t->n; k++)
        emit_collective(g, t->rank[k], (step){.kind = kind, .x = x[k], .function = f, .comm = t->comm, .root = root}, e, bound);
    if (kind == STEP_allreduce)
        emit_outside(g, t, (step){.kind = kind, .function = f});
}

static void make_location(maker *g, const team *t, step_kind kind) {
    extents e = draw_extents(g, 0);
    uint64_t salt = mix(g->state);
    for (int k = 0; k < t->n; k++) {
        int x = separate(g, t->rank[k], t, operand(g, t->rank[k], e), salt);
        emit_collective(g, t->rank[k], (step){.kind = kind, .x = x, .comm = t->comm}, e, 4.0 * t->n);
    }
}

static void make_bcast(maker *g, const team *t, step_kind kind) {
    extents e = draw_extents(g, 0);
    int x[MAX_RANKS], root = draw(g, t->n);
    for (int k = 0; k < t->n; k++)
        x[k] = operand_for(g, t->rank[k], e, is_inplace(kind));
    double bound = bound_of(g, t->rank[root], x[root]);
    for (int k = 0; k < t->n; k++)
        emit_collective(g, t->rank[k], (step){.kind = kind, .x = x[k], .comm = t->comm, .root = root}, e, bound);
}

static void make_gather(maker *g, const team *t, step_kind kind) {
    extents e = draw_extents(g, 1);
    int axis = draw(g, e.ndim), spelt = spell_axis(g, axis, e.ndim), x[MAX_RANKS], root = draw(g, t->n);
    int64_t lengths[MAX_RANKS], sum = draw_lengths(g, t->n, lengths);
    double bound = 0;
    for (int k = 0; k < t->n; k++) {
        x[k] = operand(g, t->rank[k], with_extent(e, axis, lengths[k]));
        bound = fmax(bound, bound_of(g, t->rank[k], x[k]));
    }
    for (int k = 0; k < t->n; k++)
        emit_collective(g, t->rank[k], (step){.kind = kind, .x = x[k], .comm = t->comm, .axis = spelt, .root = root},
                        with_extent(e, axis, kind == STEP_gather && k != root ? 0 : sum), bound);
    if (kind == STEP_allgather)
        emit_outside(g, t, (step){.kind = kind, .axis = spelt});
}

static void make_scatter(maker *g, const team *t, step_kind kind) {
    extents e = draw_extents(g, 1);
    int axis = draw(g, e.ndim), spelt = spell_axis(g, axis, e.ndim), x[MAX_RANKS], root = draw(g, t->n);
    int64_t lengths[MAX_RANKS], sum = draw_lengths(g, t->n, lengths);
    for (int k = 0; k < t->n; k++) /* elsewhere placeholders of any shape */
        x[k] = k == root ? operand(g, t->rank[k], with_extent(e, axis, sum)) : pick(g, t->rank[k]);
    double bound = bound_of(g, t->rank[root], x[root]);
    for (int k = 0; k < t->n; k++)
        emit_collective(g, t->rank[k],
                        (step){.kind = kind, .x = x[k], .comm = t->comm, .axis = spelt, .length = lengths[k], .root = root},
                        with_extent(e, axis, lengths[k]), bound);
}

static void make_reduce_scatter(maker *g, const team *t, step_kind kind) {
    extents e = draw_extents(g, 1);
    int axis = draw(g, e.ndim), spelt = spell_axis(g, axis, e.ndim), f = draw_reduction(g, IN_REDUCTIONS), x[MAX_RANKS];
    int64_t lengths[MAX_RANKS], sum = draw_lengths(g, t->n, lengths);
    double bound = reduction_operands(g, t, &reductions[f], with_extent(e, axis, sum), false, x);
    for (int k = 0; k < t->n; k++)
        emit_collective(g, t->rank[k],
                        (step){.kind = kind, .x = x[k], .function = f, .comm = t->comm, .axis = spelt, .length = lengths[k]},
                        with_extent(e, axis, lengths[k]), bound);
}

/* From lengths[k] along `gathered` to parts[k] along `scattered`, everywhere else alike. */
static void make_alltoall(maker *g, const team *t, step_kind kind) {
    extents e = draw_extents(g, 2);
    int gathered = draw(g, e.ndim), scattered = (gathered + 1 + draw(g, e.ndim - 1)) % e.ndim, x[MAX_RANKS];
    int axis = spell_axis(g, gathered, e.ndim), other_axis = spell_axis(g, scattered, e.ndim);
    int64_t lengths[MAX_RANKS], parts[MAX_RANKS];
    int64_t long_one = draw_lengths(g, t->n, lengths), whole = draw_lengths(g, t->n, parts);
    double bound = 0;
    for (int k = 0; k < t->n; k++) {
        x[k] = operand(g, t->rank[k], with_extent(with_extent(e, scattered, whole), gathered, lengths[k]));
        bound = fmax(bound, bound_of(g, t->rank[k], x[k]));
    }
    for (int k = 0; k < t->n; k++)
        emit_collective(
            g, t->rank[k],
            (step){.kind = kind, .x = x[k], .comm = t->comm, .axis = axis, .other_axis = other_axis, .length = parts[k]},
            with_extent(with_extent(e, scattered, parts[k]), gathered, long_one), bound);
}

/* With equal axes: the axis divided anew. */
static void make_partition(maker *g, const team *t, step_kind kind) {
    extents e = draw_extents(g, 1);
    int axis = draw(g, e.ndim), spelt = spell_axis(g, axis, e.ndim), x[MAX_RANKS];
    int64_t old[MAX_RANKS], left = draw_lengths(g, t->n, old);
    double bound = 0;
    for (int k = 0; k < t->n; k++) {
        x[k] = operand(g, t->rank[k], with_extent(e, axis, old[k]));
        bound = fmax(bound, bound_of(g, t->rank[k], x[k]));
    }
    for (int k = 0; k < t->n; k++) {
        int64_t length = k == t->n - 1 ? left : draw(g, (int)left + 1);
        left -= length;
        emit_collective(g, t->rank[k],
                        (step){.kind = kind, .x = x[k], .comm = t->comm, .axis = spelt, .other_axis = spelt, .length = length},
                        with_extent(e, axis, length), bound);
    }
}

/* On the grid, whatever team was drawn. Extents along a divided axis differ by coordinate; on a grid of one dimension another axis may be there. */
static void make_halo(maker *g, const team *t, step_kind kind) {
    const teams *all = &g->p->teams;
    for (int i = 0; t->comm != GRID; i++)
        t = &all->team[i];
    bool swapped = chance(g, 50);
    int ndim = all->n_dims == 2 || chance(g, 50) ? 2 : 1, first = ndim == 2 && swapped, x[MAX_RANKS];
    int64_t width[2] = {draw(g, 3), draw(g, 2)}, extent[2][MAX_RANKS], across = 1 + draw(g, 3);
    for (int d = 0; d < 2; d++)
        for (int k = 0; k < MAX_RANKS; k++)
            extent[d][k] = 3 * width[d] + draw(g, 2);
    double bound = 0;
    for (int k = 0; k < t->n; k++) {
        extents e = {.ndim = ndim};
        e.n[1 - first] = all->n_dims == 2 ? extent[1][k % all->dims[1]] : across;
        e.n[first] = extent[0][k / all->dims[1]];
        e.n[1] = ndim == 2 ? e.n[1] : 0;
        x[k] = operand_for(g, t->rank[k], e, is_inplace(kind));
        bound = fmax(bound, bound_of(g, t->rank[k], x[k]));
    }
    step s = {.kind = kind, .comm = t->comm, .start = width[0], .stop = width[1]};
    s.axis = spell_axis(g, first, ndim);
    s.other_axis = 1 - first;
    for (int k = 0; k < t->n; k++) {
        s.x = x[k];
        emit_collective(g, t->rank[k], s, shape_of(g, t->rank[k], x[k]), bound);
    }
}

static void make_barrier(maker *g, const team *t, step_kind kind) {
    for (int k = 0; k < t->n; k++)
        add_effect(g, t->rank[k], (step){.kind = kind, .comm = t->comm});
}

/* ---- messages ---- */

/* Whether MPI orders two messages: in WILD each rank hears of one other only, and takes what comes. */
static bool same_stream(const message *a, const message *b) {
    return a->comm == b->comm && a->rank[0] == b->rank[0] && a->rank[1] == b->rank[1] && (a->comm == WILD || a->tag == b->tag);
}

static bool all_started(maker *g, const message *m, int before, int end) {
    for (int k = 0; k < before; k++)
        if (g->messages[k].state[end] == WAITING && same_stream(&g->messages[k], m))
            return false;
    return true;
}

static void set_end(message *m, const team *t, int end, int member) {
    m->rank[end] = member == NOBODY ? NOBODY : t->rank[member];
    m->peer[end] = member == NOBODY ? MPI_PROC_NULL : member;
    if (member == NOBODY)
        m->state[end] = DONE;
}

/* What is sent is as long as its buffer, or shorter. */
static void draw_message_shapes(maker *g, message *m) {
    m->shape[0] = m->shape[1] = draw_extents(g, 0);
    if (m->rank[0] == NOBODY || chance(g, 50))
        return;
    int64_t n = entries(&m->shape[0]) + draw(g, 4);
    m->shape[1] = chance(g, 50) ? (extents){1, {n}} : (extents){2, {2, (n + 1) / 2}};
}

/* A tag of its own for a message: then it may come from anywhere. */
static int own_tag(const maker *g) {
    return 100 + g->n_messages;
}

static int member_of(const team *t, int rank) {
    for (int k = 0; k < t->n; k++)
        if (t->rank[k] == rank)
            return k;
    return NOBODY;
}

static void new_message(maker *g) {
    const team *t = &g->p->teams.team[draw(g, g->p->teams.n)];
    message m = {.comm = t->comm, .tag = draw(g, 2), .blocking = {chance(g, 30), chance(g, 30)}};
    int source = draw(g, t->n), dest = draw(g, t->n);
    if (t->comm == WILD) {
        source = member_of(t, (int)(mix(g->p->seed + (uint64_t)dest) % (uint64_t)g->p->ranks));
        m.any_tag = true;
        m.any_source = chance(g, 70);
    } else if (chance(g, 25)) {
        m.tag = own_tag(g);
        m.any_source = chance(g, 70);
    } else if (chance(g, 10)) {
        *(chance(g, 50) ? &source : &dest) = NOBODY;
    }
    set_end(&m, t, 0, source);
    set_end(&m, t, 1, dest);
    draw_message_shapes(g, &m);
    g->messages[g->n_messages++] = m;
}

static void start_end(maker *g, int i, int end) {
    message *m = &g->messages[i];
    int rank = m->rank[end], x = operand(g, rank, m->shape[end]);
    m->bound[end] = bound_of(g, rank, x);
    step s = {.x = x, .comm = m->comm};
    if (end == 0) {
        s.kind = m->blocking[0] ? STEP_send : STEP_isend;
        s.dest = m->peer[1];
        s.tag = m->tag;
    } else {
        s.kind = m->blocking[1] ? STEP_recv : STEP_irecv;
        s.source = m->any_source ? MPI_ANY_SOURCE : m->peer[0];
        s.tag_in = m->any_tag ? MPI_ANY_TAG : m->tag;
    }
    if (m->blocking[end]) {
        emit(g, rank, s, m->shape[end], end == 0 ? m->bound[0] : fmax(m->bound[0], m->bound[1]));
    } else {
        s.request = request_of(i, end);
        add_effect(g, rank, s);
    }
    m->state[end] = m->blocking[end] ? DONE : STARTED;
}

/* Start or complete one end, if it is its turn. */
static void advance(maker *g, int i, int end) {
    message *m = &g->messages[i];
    bool completes = m->state[end] == STARTED || m->blocking[end], is_sent = m->state[0] != WAITING;
    if (m->state[end] == DONE || !all_started(g, m, i, end) || (end == 1 && completes && !is_sent))
        return;
    if (m->state[end] == WAITING) {
        start_end(g, i, end);
        return;
    }
    emit(g, m->rank[end], (step){.kind = STEP_wait, .request = request_of(i, end)}, m->shape[end],
         end == 0 ? m->bound[0] : fmax(m->bound[0], m->bound[1]));
    m->state[end] = DONE;
}

static bool messages_open(const maker *g) {
    for (int m = 0; m < g->n_messages; m++)
        if (g->messages[m].state[0] != DONE || g->messages[m].state[1] != DONE)
            return true;
    return false;
}

static void move_messages(maker *g, int count) {
    for (int k = 0; k < count && g->n_messages > 0; k++)
        advance(g, draw(g, g->n_messages), draw(g, 2));
}

/* Each member sends to one and receives from one, or the other end is MPI_PROC_NULL. */
static void make_sendrecv(maker *g, const team *t, step_kind kind) {
    if (t->comm == WILD || g->n_messages + t->n > MAX_MESSAGES)
        return;
    int dest[MAX_RANKS] = {0}, to[MAX_RANKS], from[MAX_RANKS], x[MAX_RANKS], y[MAX_RANKS]; /* to, from: messages; NOBODY: none */
    for (int k = 0; k < t->n; k++) {
        int other = draw(g, k + 1);
        dest[k] = dest[other];
        dest[other] = k;
        to[k] = from[k] = NOBODY;
    }
    for (int k = 0; k < t->n; k++) {
        if (chance(g, 20))
            continue;
        message m = {.comm = t->comm, .tag = draw(g, 2)};
        set_end(&m, t, 0, k);
        set_end(&m, t, 1, dest[k]);
        if (!all_started(g, &m, g->n_messages, 0) || !all_started(g, &m, g->n_messages, 1))
            m.tag = own_tag(g);
        draw_message_shapes(g, &m);
        m.state[0] = m.state[1] = DONE;
        to[k] = from[dest[k]] = g->n_messages;
        g->messages[g->n_messages++] = m;
    }
    for (int k = 0; k < t->n; k++) {
        x[k] = to[k] == NOBODY ? pick(g, t->rank[k]) : operand(g, t->rank[k], g->messages[to[k]].shape[0]);
        y[k] = from[k] == NOBODY ? pick(g, t->rank[k]) : operand(g, t->rank[k], g->messages[from[k]].shape[1]);
    }
    for (int k = 0; k < t->n; k++) {
        step s = {.kind = kind, .x = x[k], .y = y[k], .comm = t->comm, .dest = MPI_PROC_NULL, .source = MPI_PROC_NULL};
        double bound = bound_of(g, t->rank[k], y[k]);
        if (to[k] != NOBODY) {
            s.dest = g->messages[to[k]].peer[1];
            s.tag = g->messages[to[k]].tag;
        }
        if (from[k] != NOBODY) {
            s.source = g->messages[from[k]].peer[0];
            s.tag_in = g->messages[from[k]].tag;
            bound = fmax(bound, bound_of(g, t->rank[s.source], x[s.source]));
        }
        emit(g, t->rank[k], s, shape_of(g, t->rank[k], y[k]), bound);
    }
}

static void make_collective(maker *g) {
    static const struct {
        step_kind kind;
        void (*make)(maker *, const team *, step_kind);
    } kinds[] = {
        {STEP_allreduce, make_reduction},
        {STEP_reduce, make_reduction},
        {STEP_reduce_inplace, make_reduction},
        {STEP_scan, make_reduction},
        {STEP_exscan, make_reduction},
        {STEP_maxloc, make_location},
        {STEP_minloc, make_location},
        {STEP_bcast, make_bcast},
        {STEP_bcast_inplace, make_bcast},
        {STEP_gather, make_gather},
        {STEP_allgather, make_gather},
        {STEP_scatter, make_scatter},
        {STEP_reduce_scatter, make_reduce_scatter},
        {STEP_alltoall, make_alltoall},
        {STEP_alltoall, make_partition},
        {STEP_halo, make_halo},
        {STEP_halo_inplace, make_halo},
        {STEP_sendrecv, make_sendrecv},
        {STEP_barrier, make_barrier},
    };
    int k = draw(g, (int)(sizeof kinds / sizeof *kinds));
    const teams *all = &g->p->teams;
    kinds[k].make(g, &all->team[draw(g, all->n)], kinds[k].kind);
}

/* ---- communicators ---- */

/* A grid of all ranks in one dimension or two. */
static void make_grid(uint64_t *state, int ranks, teams *t) {
    int rows = 1 + (int)draw_below(state, (uint64_t)ranks);
    bool divides = ranks % rows == 0;
    t->n_dims = divides && draw_below(state, 3) ? 2 : 1;
    t->dims[0] = t->n_dims == 2 ? rows : ranks;
    t->dims[1] = ranks / t->dims[0];
    t->periods[0] = (int)draw_below(state, 2);
    t->periods[1] = (int)draw_below(state, 2);
}

/* The ranks of one color in the order of their keys. */
static void add_team(teams *t, int comm, int color, int ranks) {
    team *new = &t->team[t->n];
    *new = (team){.comm = comm};
    for (int r = 0; r < ranks; r++) {
        if (t->color[comm][r] != color)
            continue;
        int at = new->n++;
        for (; at > 0 && t->key[comm][new->rank[at - 1]] > t->key[comm][r]; at--)
            new->rank[at] = new->rank[at - 1];
        new->rank[at] = r;
    }
    t->n += new->n > 0;
}

void make_teams(uint64_t family, int ranks, teams *t) {
    *t = (teams){.n = 0};
    uint64_t state = mix(family);
    for (int r = 0; r < ranks; r++) {
        t->key[EVERYONE][r] = t->key[PARITY][r] = t->key[GRID][r] = r;
        t->color[PARITY][r] = r % 2;
        t->key[REVERSED][r] = -r;
        t->color[SOME][r] = draw_below(&state, 10) < 6 ? 0 : MPI_UNDEFINED;
        t->key[SOME][r] = (int)draw_below(&state, 4);
        t->key[WILD][r] = (int)draw_below(&state, 4);
    }
    make_grid(&state, ranks, t);
    for (int comm = 0; comm < N_COMMS; comm++)
        for (int color = 0; color < 2; color++)
            add_team(t, comm, color, ranks);
}

/* ---- programs ---- */

static void make_inputs(maker *g, track *t) {
    t->n_inputs = 1 + draw(g, MAX_INPUTS);
    bool constant = chance(g, 12); /* all of them */
    for (int i = 0; i < t->n_inputs; i++) {
        t->slots[i + 1] = (slot){.shape = draw_extents(g, 0), .bound = 1};
        t->is_param[i] = !constant && chance(g, 85);
    }
    t->n_slots = t->n_inputs + 1;
}

/* All that can be one. */
static void make_all_roots(track *t) {
    t->root_kind = MANY_ROOTS;
    for (int i = 1; i < t->n_slots; i++)
        if (!t->slots[i].consumed)
            t->roots[t->n_roots++] = i;
}

/* Mostly what nobody used; some ranks have no root, and most leave some results aside. */
static void make_roots(maker *g, track *t) {
    int kind = draw(g, 100);
    t->root_kind = kind < 8 ? NO_ROOT : kind < 15 ? CONSTANT_ROOT : kind < 60 ? ONE_ROOT : MANY_ROOTS;
    if (t->root_kind < ONE_ROOT)
        return;
    for (int i = t->n_slots - 1; i > 0 && t->n_roots < FEW_ROOTS; i--)
        if (!t->slots[i].consumed && chance(g, t->slots[i].used ? 10 : 80))
            t->roots[t->n_roots++] = i;
    if (t->n_roots == 0)
        t->root_kind = NO_ROOT;
}

void make_program(uint64_t seed, const teams *t, int ranks, program *p) {
    *p = (program){.seed = seed, .ranks = ranks, .dtype = AJ_F64, .teams = *t};
    maker g = {.p = p, .state = mix(seed)};
    p->splits = chance(&g, 4);
    for (int r = 0; r < ranks; r++)
        make_inputs(&g, &p->tracks[r]);
    for (int left = 6 + draw(&g, 20); left > 0; left--) {
        make_collective(&g);
        for (int r = 0; r < ranks; r++)
            if (chance(&g, 60))
                make_local(&g, r);
        for (int k = draw(&g, 3); k > 0 && g.n_messages < MAX_MESSAGES; k--)
            new_message(&g);
        move_messages(&g, draw(&g, 8));
    }
    while (messages_open(&g))
        move_messages(&g, 1);
    p->reaches = chance(&g, 30);
    for (int r = 0; r < ranks; r++)
        if (p->reaches)
            make_all_roots(&p->tracks[r]);
        else
            make_roots(&g, &p->tracks[r]);
}
