/*
 * The collectives along an axis, where shapes differ by rank. Each operation is described by where each entry of its results comes from; values,
 * gradients and second derivatives follow from that, in plain C, and are compared entry by entry. Beside them the dot product: <g, F(x)> = <gx, x> summed
 * over the ranks. Axes, roots, lengths (none on some ranks, none on all), memory layouts and the order of the ranks vary.
 */
#include "mpi_axis.def"
#include "mpi_layouts.h"

enum { MOST_RANKS = 16, INPUT_SEED = 11, GRADIENT_SEED = 23, TANGENT_SEED = 37 };

static aj_comm *reversed; /* all ranks, the other way round */
static aj_comm *on;       /* the communicator in use: world or reversed */
static int me;            /* this rank in it */

/* One call of an operation. Ranks are those of `on`. */
typedef struct plan {
    const struct axis_op *op;
    aj_dtype dtype;
    extents other;               /* the shape; what the extent along the axes is depends on the operation */
    int axis, second;            /* second: alltoall's scatter axis */
    bool negative;               /* axes are given counted from the end */
    int root, turn;              /* turn: what varies besides */
    int64_t lengths[MOST_RANKS]; /* the parts of the axis; of alltoall's gather axis */
    int64_t numelem[MOST_RANKS]; /* the parts of alltoall's scatter axis */
} plan;

/* An entry of one rank's input. */
typedef struct source {
    int rank;
    int64_t at[4];
} source;

typedef struct axis_op {
    const char *name;
    bool rooted, two_axes;
    extents (*input)(const plan *p, int rank);
    extents (*output)(const plan *p, int rank);
    /* Which entries of the inputs make up entry `at` of a rank's result: their number. */
    int (*sources)(const plan *p, int rank, const int64_t *at, source *from);
    aj_tensor *(*run)(const plan *p, aj_tensor *x);
} axis_op;

/* ---- shapes ---- */

static int64_t sum_of(const int64_t *lengths, int n) {
    int64_t sum = 0;
    for (int k = 0; k < n; k++)
        sum += lengths[k];
    return sum;
}

static extents with_length(const plan *p, int axis, int64_t length) {
    extents e = p->other;
    e.n[axis] = length;
    return e;
}

static extents part(const plan *p, int rank) {
    return with_length(p, p->axis, p->lengths[rank]);
}

static extents whole(const plan *p, int rank) {
    (void)rank;
    return with_length(p, p->axis, sum_of(p->lengths, rank_count));
}

static int given(const plan *p, int axis) {
    return p->negative ? axis - p->other.ndim : axis;
}

/* ---- the operations ---- */

static source source_at(int rank, const int64_t *at, int ndim) {
    source s = {.rank = rank};
    memcpy(s.at, at, (size_t)ndim * sizeof *at);
    return s;
}

/* Entry `at` of parts that follow each other along an axis. */
static source in_parts(const int64_t *lengths, int axis, const int64_t *at, int ndim) {
    source s = source_at(0, at, ndim);
    while (s.at[axis] >= lengths[s.rank])
        s.at[axis] -= lengths[s.rank++];
    return s;
}

static int concatenation(const plan *p, int rank, const int64_t *at, source *from) {
    (void)rank;
    from[0] = in_parts(p->lengths, p->axis, at, p->other.ndim);
    return 1;
}

static extents gather_output(const plan *p, int rank) {
    return rank == p->root ? whole(p, rank) : with_length(p, p->axis, 0);
}

static aj_tensor *run_gather(const plan *p, aj_tensor *x) {
    return aj_gather(x, given(p, p->axis), p->root, on);
}

static aj_tensor *run_allgather(const plan *p, aj_tensor *x) {
    return aj_allgather(x, given(p, p->axis), on);
}

/* Placeholders of any shape: a scalar, one entry, none, more axes than the root's, a shape like the root's. */
static extents scatter_input(const plan *p, int rank) {
    static const extents placeholders[] = {{0, {0}}, {1, {1}}, {2, {3, 0}}, {4, {1, 2, 1, 3}}};
    int kind = (p->turn + rank) % 5;
    return rank == p->root || kind == 4 ? whole(p, rank) : placeholders[kind];
}

static int scatter_sources(const plan *p, int rank, const int64_t *at, source *from) {
    from[0] = source_at(p->root, at, p->other.ndim);
    from[0].at[p->axis] += sum_of(p->lengths, rank);
    return 1;
}

static aj_tensor *run_scatter(const plan *p, aj_tensor *x) {
    return aj_scatter(x, given(p, p->axis), p->lengths[me], p->root, on);
}

static extents alltoall_input(const plan *p, int rank) {
    extents e = part(p, rank);
    if (p->second != p->axis)
        e.n[p->second] = sum_of(p->numelem, rank_count);
    return e;
}

static extents alltoall_output(const plan *p, int rank) {
    extents e = whole(p, rank);
    e.n[p->second] = p->numelem[rank];
    return e;
}

static int alltoall_sources(const plan *p, int rank, const int64_t *at, source *from) {
    source s = source_at(0, at, p->other.ndim);
    s.at[p->second] += sum_of(p->numelem, rank);
    from[0] = in_parts(p->lengths, p->axis, s.at, p->other.ndim);
    return 1;
}

static aj_tensor *run_alltoall(const plan *p, aj_tensor *x) {
    return aj_alltoall(x, given(p, p->axis), given(p, p->second), p->numelem[me], on);
}

static int reduce_scatter_sources(const plan *p, int rank, const int64_t *at, source *from) {
    for (int k = 0; k < rank_count; k++) {
        from[k] = source_at(k, at, p->other.ndim);
        from[k].at[p->axis] += sum_of(p->lengths, rank);
    }
    return rank_count;
}

static aj_tensor *run_reduce_scatter(const plan *p, aj_tensor *x) {
    return aj_reduce_scatter(x, given(p, p->axis), p->lengths[me], MPI_SUM, on);
}

static extents sendrecv_output(const plan *p, int rank) {
    return part(p, left_of(rank, rank_count));
}

static int sendrecv_sources(const plan *p, int rank, const int64_t *at, source *from) {
    from[0] = source_at(left_of(rank, rank_count), at, p->other.ndim);
    return 1;
}

/* The tag depends on the sender. */
static aj_tensor *run_sendrecv(const plan *p, aj_tensor *x) {
    int left = left_of(me, rank_count);
    extents e = sendrecv_output(p, me);
    return aj_sendrecv(x, right_of(me, rank_count), 40 + me, aj_zeros(ctx, p->dtype, e.ndim, e.n), left, 40 + left, on);
}

static const axis_op op_gather = {"gather", true, false, part, gather_output, concatenation, run_gather};
static const axis_op op_allgather = {"allgather", false, false, part, whole, concatenation, run_allgather};
static const axis_op op_scatter = {"scatter", true, false, scatter_input, part, scatter_sources, run_scatter};
static const axis_op op_alltoall = {"alltoall", false, true, alltoall_input, alltoall_output, alltoall_sources, run_alltoall};
static const axis_op op_reduce_scatter = {"reduce_scatter",  false, false, whole, part, reduce_scatter_sources,
                                          run_reduce_scatter};
static const axis_op op_sendrecv = {"sendrecv", false, false, part, sendrecv_output, sendrecv_sources, run_sendrecv};

/* ---- the model: F and its transpose, on the arrays of all ranks ---- */

typedef struct arrays {
    double *of[MOST_RANKS];
} arrays;

static arrays arrays_new(const plan *p, extents (*shape)(const plan *, int)) {
    arrays a;
    for (int k = 0; k < rank_count; k++) {
        extents e = shape(p, k);
        a.of[k] = calloc((size_t)entries(&e) + 1, sizeof(double));
    }
    return a;
}

static void arrays_free(arrays *a) {
    for (int k = 0; k < rank_count; k++)
        free(a->of[k]);
}

static int64_t flat(const extents *e, const int64_t *at) {
    int64_t i = 0;
    for (int k = 0; k < e->ndim; k++)
        i = i * e->n[k] + at[k];
    return i;
}

static void unflat(const extents *e, int64_t i, int64_t *at) {
    for (int k = e->ndim - 1; k >= 0; k--) {
        at[k] = i % e->n[k];
        i /= e->n[k];
    }
}

/* to += F(from), or with `transpose` to += F'(from). */
static void apply_model(const plan *p, bool transpose, const arrays *from, arrays *to) {
    source sources[MOST_RANKS];
    for (int r = 0; r < rank_count; r++) {
        extents out = p->op->output(p, r);
        for (int64_t i = 0; i < entries(&out); i++) {
            int64_t at[4];
            unflat(&out, i, at);
            int n = p->op->sources(p, r, at, sources);
            for (int k = 0; k < n; k++) {
                extents in = p->op->input(p, sources[k].rank);
                int64_t j = flat(&in, sources[k].at);
                if (transpose)
                    to->of[sources[k].rank][j] += from->of[r][i];
                else
                    to->of[r][i] += from->of[sources[k].rank][j];
            }
        }
    }
}

/* ---- inputs: in layouts that differ by rank and turn ---- */

static int layout_of(const plan *p, int rank) {
    extents e = p->op->input(p, rank);
    return layout_for(&e, p->turn + 2 * rank);
}

static aj_tensor *input_base(const plan *p, uint64_t seed, int rank) {
    extents e = p->op->input(p, rank);
    return base_of(p->dtype, &e, layout_of(p, rank), seed, rank);
}

static aj_tensor *input_arranged(const plan *p, aj_tensor *base, int rank) {
    extents e = p->op->input(p, rank);
    return arrange(base, &e, layout_of(p, rank));
}

/* The inputs of all ranks: worked out here, with local operations alone. */
static arrays all_inputs(const plan *p, uint64_t seed) {
    arrays x;
    for (int k = 0; k < rank_count; k++) {
        extents e = p->op->input(p, k);
        x.of[k] = values_of(input_arranged(p, input_base(p, seed, k), k), entries(&e));
    }
    return x;
}

static arrays all_numbers(const plan *p, uint64_t seed) {
    arrays g = arrays_new(p, p->op->output);
    for (int k = 0; k < rank_count; k++) {
        extents e = p->op->output(p, k);
        for (int64_t i = 0; i < entries(&e); i++)
            g.of[k][i] = number(seed, k, i);
    }
    return g;
}

/* ---- first derivatives ---- */

static void check_shape(const plan *p, aj_tensor *t, const extents *e) {
    CHECK_INT(aj_tensor_dtype(t), p->dtype);
    CHECK_INT(aj_ndim(t), e->ndim);
    for (int i = 0; i < e->ndim && aj_ndim(t) == e->ndim; i++)
        CHECK_INT(aj_extent(t, i), e->n[i]);
}

static double dot(int64_t n, const double *a, const double *b, double *magnitude) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += a[i] * b[i];
        *magnitude += fabs(a[i] * b[i]);
    }
    return sum;
}

/* <g, y> against <gx, x>, summed over the ranks, of what the library made. */
static void check_identity(const plan *p, aj_tensor *g, aj_tensor *y, aj_tensor *leaf) {
    int64_t n = aj_numel(g), m = aj_numel(leaf);
    double *values[] = {values_of(g, n), values_of(y, n), values_of(aj_grad(leaf), m), values_of(leaf, m)}, sums[3] = {0};
    sums[0] = dot(n, values[0], values[1], &sums[2]);
    sums[1] = dot(m, values[2], values[3], &sums[2]);
    for (int i = 0; i < 4; i++)
        free(values[i]);
    world_sums(3, sums);
    CHECK_MSG(fabs(sums[0] - sums[1]) <= 1e-14 * sums[2], "%s: <g, F(x)> is %.17g, <gx, x> is %.17g", p->op->name, sums[0],
              sums[1]);
}

/* A seed that is not contiguous. */
static aj_tensor *seed_of(const plan *p, const extents *e, const double *g) {
    aj_tensor *t = tensor_of(ctx, p->dtype, e->ndim, e->n, g);
    return aj_slice(aj_pad(t, -1, 1, 2, 7), -1, 1, 1 + e->n[e->ndim - 1], 1);
}

/* inside: the layout is made in the recording, from a plain parameter; else the parameter itself has it. */
static void check_first(const plan *p, bool inside) {
    extents in = p->op->input(p, me), out = p->op->output(p, me);
    arrays x = all_inputs(p, INPUT_SEED), g = all_numbers(p, GRADIENT_SEED);
    arrays y = arrays_new(p, p->op->output), gx = arrays_new(p, p->op->input);
    apply_model(p, false, &x, &y);
    apply_model(p, true, &g, &gx);
    aj_tensor *seed = seed_of(p, &out, g.of[me]), *base = input_base(p, INPUT_SEED, me);
    aj_tensor *leaf = aj_param(inside ? base : input_arranged(p, base, me));
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    aj_tensor *got = p->op->run(p, inside ? input_arranged(p, leaf, me) : leaf);
    check_shape(p, got, &out);
    CHECK_INT(aj_backward(ctx, got, seed), AJ_OK);
    CHECK_VALUES(got, entries(&out), y.of[me], 0);
    CHECK_VALUES(seed, entries(&out), g.of[me], 0); /* nobody wrote into the seed */
    if (!inside) {
        CHECK_VALUES(aj_grad(leaf), entries(&in), gx.of[me], 0);
        CHECK_VALUES(leaf, entries(&in), x.of[me], 0); /* nor into the parameter */
    }
    check_identity(p, seed, got, leaf);
    check_clean(ctx, p->op->name);
    aj_release(&leaf);
    arrays_free(&x), arrays_free(&g), arrays_free(&y), arrays_free(&gx);
}

/* ---- integers: forward only ---- */

static void check_integers(const plan *p) {
    extents out = p->op->output(p, me);
    arrays x = all_inputs(p, INPUT_SEED), y = arrays_new(p, p->op->output);
    apply_model(p, false, &x, &y);
    aj_tensor *mine = input_arranged(p, input_base(p, INPUT_SEED, me), me), *got = p->op->run(p, mine);
    check_shape(p, got, &out);
    CHECK_VALUES(got, entries(&out), y.of[me], 0);
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    CHECK_VALUES(p->op->run(p, mine), entries(&out), y.of[me], 0);
    CHECK_INT(aj_record_end(ctx), AJ_OK);
    check_clean(ctx, p->op->name);
    arrays_free(&x), arrays_free(&y);
}

/* ---- second derivatives: L = sum over ranks of <w, y^3>, y = F(x): gradient F'(3 w y^2), Hessian times v: F'(6 w y F(v)) ---- */

typedef struct expectation {
    arrays tangent, gradient, product;
} expectation;

static expectation expect_second(const plan *p) {
    expectation e = {arrays_new(p, p->op->output), arrays_new(p, p->op->input), arrays_new(p, p->op->input)};
    arrays x = all_inputs(p, INPUT_SEED), v = all_inputs(p, TANGENT_SEED), w = all_numbers(p, GRADIENT_SEED);
    arrays y = arrays_new(p, p->op->output), first = arrays_new(p, p->op->output), second = arrays_new(p, p->op->output);
    apply_model(p, false, &x, &y);
    apply_model(p, false, &v, &e.tangent);
    for (int k = 0; k < rank_count; k++) {
        extents out = p->op->output(p, k);
        for (int64_t i = 0; i < entries(&out); i++) {
            first.of[k][i] = 3 * w.of[k][i] * y.of[k][i] * y.of[k][i];
            second.of[k][i] = 6 * w.of[k][i] * y.of[k][i] * e.tangent.of[k][i];
        }
    }
    apply_model(p, true, &first, &e.gradient);
    apply_model(p, true, &second, &e.product);
    arrays_free(&x), arrays_free(&v), arrays_free(&w), arrays_free(&y), arrays_free(&first), arrays_free(&second);
    return e;
}

static void check_second(const plan *p) {
    extents in = p->op->input(p, me), out = p->op->output(p, me);
    int64_t n = entries(&in);
    expectation wanted = expect_second(p);
    aj_tensor *leaf = aj_param(input_arranged(p, input_base(p, INPUT_SEED, me), me)), *g = NULL, *product = NULL, *moved = NULL;
    aj_tensor *v = input_arranged(p, input_base(p, TANGENT_SEED, me), me);
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    aj_tensor *y = p->op->run(p, leaf), *w = random_tensor(ctx, p->dtype, out.ndim, out.n, GRADIENT_SEED, me);
    aj_tensor *loss = aj_sum(aj_mul(w, aj_mul(aj_square(y), y)));
    CHECK_INT(aj_jvp(ctx, 1, &y, 1, &leaf, &v, &moved, 0), AJ_OK);
    CHECK_VALUES(moved, entries(&out), wanted.tangent.of[me], 1e-13);
    CHECK_INT(aj_grad_of(ctx, 1, &loss, NULL, 1, &leaf, &g, AJ_CREATE_GRAPH), AJ_OK);
    CHECK_VALUES(g, n, wanted.gradient.of[me], 1e-13);
    CHECK_INT(aj_grad_of(ctx, 1, &g, &v, 1, &leaf, &product, 0), AJ_OK);
    CHECK_VALUES(product, n, wanted.product.of[me], 1e-13);
    CHECK_INT(aj_jvp(ctx, 1, &g, 1, &leaf, &v, &product, 0), AJ_OK);
    CHECK_VALUES(product, n, wanted.product.of[me], 1e-13);
    CHECK_INT(aj_backward(ctx, aj_sum(aj_mul(g, v)), NULL), AJ_OK);
    CHECK_VALUES(aj_grad(leaf), n, wanted.product.of[me], 1e-13);
    check_clean(ctx, p->op->name);
    aj_release(&leaf);
    arrays_free(&wanted.tangent), arrays_free(&wanted.gradient), arrays_free(&wanted.product);
}

/* ---- the library's own checks ---- */

static aj_tensor *run_plan(aj_ctx *c, int n, aj_tensor *const *x, void *user) {
    (void)c, (void)n;
    const plan *p = user;
    return p->op->run(p, x[0]);
}

/* Not linear, so that what the adjoint carries depends on the point. */
static aj_tensor *run_curved(aj_ctx *c, int n, aj_tensor *const *x, void *user) {
    return aj_sin(aj_scale(run_plan(c, n, x, user), 0.0625));
}

static void check_with_library(plan *p) {
    aj_tensor *x = aj_scale(input_arranged(p, input_base(p, INPUT_SEED, me), me), 0.125);
    aj_check check = {.size = sizeof check};
    CHECK_INT(aj_dot_test(ctx, run_plan, p, 1, &x, on, &check), AJ_OK);
    CHECK_MSG(check.passed, "%s: aj_dot_test: %.17g, expected %.17g", p->op->name, check.got, check.expected);
    check = (aj_check){.size = sizeof check};
    CHECK_INT(aj_gradcheck(ctx, run_curved, p, 1, &x, on, &check), AJ_OK);
    CHECK_MSG(check.passed, "%s: aj_gradcheck: entry %d rank %d: %.17g, expected %.17g", p->op->name, (int)check.entry,
              check.rank, check.got, check.expected);
    check_clean(ctx, p->op->name);
}

/* ---- all of it ---- */

/* Lengths of parts: equal, uneven with some zeros, all on one rank, all zero. */
enum { EQUAL, UNEVEN, ONE, NONE, N_KINDS };

static int64_t length_of(int kind, int rank) {
    switch (kind) {
    case EQUAL:
        return 2;
    case UNEVEN:
        return (3 * rank + 1) % 4;
    case ONE:
        return rank == rank_count / 2 ? 3 : 0;
    default:
        return 0;
    }
}

/* With equal axes the new lengths are the old ones in another order: ranks that had nothing get some. */
static void set_lengths(plan *p, int kind) {
    for (int k = 0; k < rank_count; k++) {
        p->lengths[k] = length_of(kind, k);
        p->numelem[k] = p->second == p->axis ? length_of(kind, (k + 1) % rank_count)
                                             : length_of((kind + p->turn) % N_KINDS, rank_count - 1 - k);
    }
}

static void use(bool backwards) {
    on = backwards ? reversed : world;
    me = backwards ? rank_count - 1 - rank_id : rank_id;
}

static void with_plan(plan *p, void (*check)(plan *p)) {
    aj_scope *scope = aj_scope_begin(ctx);
    use(p->turn % 3 == 2);
    aj_scope_name(scope, "%s: %s, ndim %d, axis %d, second %d, root %d, turn %d", p->op->name, aj_dtype_name(p->dtype),
                  p->other.ndim, p->axis, p->second, p->root, p->turn);
    int failures = rank_failures;
    watch((uint64_t)p->turn);
    check(p);
    watch_no_more();
    if (rank_failures > failures)
        rank_append("      in %s: %s, ndim %d, axis %d, second %d, root %d, turn %d\n", p->op->name, aj_dtype_name(p->dtype),
                    p->other.ndim, p->axis, p->second, p->root, p->turn);
    CHECK_INT(aj_scope_end(scope), AJ_OK);
}

/* Every axis (of alltoall: every pair), root and kind of lengths, for the given numbers of axes. */
static void for_all_plans(const axis_op *op, int from_ndim, int to_ndim, aj_dtype dtype, void (*check)(plan *p)) {
    static const extents other = {4, {2, 3, 1, 2}};
    plan p = {.op = op, .dtype = dtype, .other = other};
    open_world();
    CHECK(rank_count <= MOST_RANKS);
    reversed = aj_comm_split(world, 7, -rank_id);
    for (p.other.ndim = from_ndim; p.other.ndim <= to_ndim; p.other.ndim++)
        for (p.axis = 0; p.axis < p.other.ndim; p.axis++)
            for (p.second = 0; p.second < (op->two_axes ? p.other.ndim : 1); p.second++)
                for (p.root = 0; p.root < (op->rooted ? rank_count : 1); p.root++)
                    for (int kind = 0; kind < N_KINDS; kind++, p.turn++) {
                        if (op->rooted && rank_count > 3 && (p.axis + p.root + kind) % 2) /* there are roots enough */
                            continue;
                        p.negative = (p.turn + p.turn / N_KINDS) % 2;
                        set_lengths(&p, kind);
                        with_plan(&p, check);
                    }
    aj_comm_destroy(&reversed);
    close_world();
}

/* Both precisions, layouts inside and outside of the recording. */
static void both_precisions(plan *p) {
    bool swap = p->turn / N_KINDS % 2;
    p->dtype = AJ_F64;
    check_first(p, swap);
    p->dtype = AJ_F32;
    check_first(p, !swap);
}

static void all_integers(plan *p) {
    static const aj_dtype dtypes[] = {AJ_I64, AJ_I32, AJ_U8};
    p->dtype = dtypes[p->turn % 3];
    check_integers(p);
}

static void second_order(plan *p) {
    check_second(p);
}

#define DEFINE(name)                                                                                                             \
    static void first_##name(void) {                                                                                             \
        for_all_plans(&op_##name, 1, 4, AJ_F64, both_precisions);                                                                \
    }                                                                                                                            \
    static void integers_##name(void) {                                                                                          \
        for_all_plans(&op_##name, 1, 3, AJ_I64, all_integers);                                                                   \
    }                                                                                                                            \
    static void second_##name(void) {                                                                                            \
        for_all_plans(&op_##name, 2, 2, AJ_F64, second_order);                                                                   \
    }                                                                                                                            \
    static void checks_##name(void) {                                                                                            \
        for_all_plans(&op_##name, 1, 1, AJ_F64, check_with_library);                                                             \
    }
AXIS_OPS(DEFINE)
#undef DEFINE

#define CASES(name)                                                                                                              \
    {#name, first_##name}, {#name "_integers", integers_##name}, {#name "_second", second_##name},                               \
        {#name "_checks", checks_##name},

RANK_MAIN(AXIS_OPS(CASES))
