/* Running random programs: see program.h. A new operation is a case here, a name in program.h, and a way to draw it in program_make.c. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"

/* ---- tables ---- */

static double one(double b) {
    (void)b;
    return 1;
}

static double same(double b) {
    return b;
}

static double squared(double b) {
    return b * b;
}

static double plus_one(double b) {
    return b + 1;
}

static double sum(double a, double b) {
    return a + b;
}

static double product(double a, double b) {
    return a * b;
}

static double larger(double a, double b) {
    return a > b ? a : b;
}

/* The first one makes large results small. */
const unary_function unary_functions[] = {
    {"sin", aj_sin, one},
    {"cos", aj_cos, one},
    {"tanh", aj_tanh, one},
    {"sigmoid", aj_sigmoid, one},
    {"neg", aj_neg, same},
    {"square", aj_square, squared},
    {"softplus", aj_softplus, plus_one},
    {"erf", aj_erf, one},
};
const int n_unary_functions = sizeof unary_functions / sizeof *unary_functions;

const binary_function binary_functions[] = {
    {"add", aj_add, sum},
    {"sub", aj_sub, sum},
    {"mul", aj_mul, product},
};
const int n_binary_functions = sizeof binary_functions / sizeof *binary_functions;

static double of_lse(double a, double b) {
    return larger(a, b) + 0.7;
}

static double of_first(double a, double b) {
    (void)b;
    return a;
}

enum { LSE = 4, FIRST = 5 };
reduction reductions[] = {
    {"MPI_SUM", MPI_SUM, IN_REDUCTIONS | IN_SCANS, false, sum},
    {"MPI_MAX", MPI_MAX, IN_REDUCTIONS | IN_SCANS, true, larger},
    {"MPI_MIN", MPI_MIN, IN_REDUCTIONS | IN_SCANS, true, larger},
    {"MPI_PROD", MPI_PROD, IN_REDUCTIONS | IN_SCANS, false, product},
    {"log(exp a + exp b)", MPI_OP_NULL, IN_REDUCTIONS | IN_SCANS, false, of_lse}, /* registered as commuting */
    {"the first", MPI_OP_NULL, IN_REDUCTIONS | IN_SCANS, false, of_first},        /* registered as not commuting */
};
const int n_reductions = sizeof reductions / sizeof *reductions;

/* ---- registered reductions ---- */

static void lse(void *in, void *inout, int *n, MPI_Datatype *type) {
    for (int i = 0; i < *n; i++) {
        bool single = *type == MPI_FLOAT;
        double a = single ? ((float *)in)[i] : ((double *)in)[i], b = single ? ((float *)inout)[i] : ((double *)inout)[i];
        double y = (a > b ? a : b) + log1p(exp(a > b ? b - a : a - b));
        if (single)
            ((float *)inout)[i] = (float)y;
        else
            ((double *)inout)[i] = y;
    }
}

static aj_tensor *lse_vjp(aj_ctx *ctx, aj_tensor *prefix, aj_tensor *x, aj_tensor *suffix, aj_tensor *y, aj_tensor *g,
                          void *user) {
    (void)ctx, (void)prefix, (void)suffix, (void)user;
    return aj_mul(g, aj_exp(aj_sub(x, y)));
}

static void first(void *in, void *inout, int *n, MPI_Datatype *type) {
    memcpy(inout, in, (size_t)*n * (*type == MPI_FLOAT ? sizeof(float) : sizeof(double)));
}

static aj_tensor *first_vjp(aj_ctx *ctx, aj_tensor *prefix, aj_tensor *x, aj_tensor *suffix, aj_tensor *y, aj_tensor *g,
                            void *user) {
    (void)ctx, (void)x, (void)suffix, (void)y, (void)user;
    return prefix ? aj_scale(g, 0) : g;
}

void open_reductions(void) {
    MPI_Op_create(lse, 1, &reductions[LSE].op);
    MPI_Op_create(first, 0, &reductions[FIRST].op);
}

void register_reductions(aj_ctx *ctx) {
    aj_op_register(ctx, reductions[LSE].op, "lse", true, lse_vjp, NULL);
    aj_op_register(ctx, reductions[FIRST].op, "first", false, first_vjp, NULL);
}

void close_reductions(void) {
    MPI_Op_free(&reductions[LSE].op);
    MPI_Op_free(&reductions[FIRST].op);
}

/* ---- printing ---- */

static void print_field(const char *name, int64_t value) {
    if (value != 0)
        printf(" %s %lld", name, (long long)value);
}

static void print_shape(const extents *e) {
    printf(" (");
    for (int i = 0; i < e->ndim; i++)
        printf("%s%lld", i ? "," : "", (long long)e->n[i]);
    printf(")");
}

static const char *function_name(const step *s) {
    switch (s->kind) {
    case STEP_unary:
        return unary_functions[s->function].name;
    case STEP_binary:
        return binary_functions[s->function].name;
    case STEP_allreduce:
    case STEP_reduce:
    case STEP_reduce_inplace:
    case STEP_reduce_scatter:
    case STEP_scan:
    case STEP_exscan:
        return reductions[s->function].name;
    default:
        return "";
    }
}

/* Fields that are zero, as most are, are left out. */
static void print_step(const track *t, const step *s) {
#define STEP_NAME(name) #name,
    static const char *const names[] = {LOCAL_STEPS(STEP_NAME) COLLECTIVE_STEPS(STEP_NAME) MESSAGE_STEPS(STEP_NAME)};
#undef STEP_NAME
    static const char *const comms[] = {"everyone", "parity", "reversed", "some", "grid", "wild"};
    printf("    %s %s", names[s->kind], function_name(s));
    print_field("v", s->x);
    print_field("v", s->y);
    if (s->kind >= STEP_allreduce && s->kind != STEP_wait)
        printf(" on %s", comms[s->comm]);
    print_field("root", s->root);
    print_field("to", s->dest);
    print_field("tag", s->tag);
    print_field("from", s->source);
    print_field("tag", s->tag_in);
    print_field("request", s->request);
    print_field("axis", s->axis);
    print_field("axis", s->other_axis);
    print_field("start", s->start);
    print_field("stop", s->stop);
    print_field("stride", s->stride);
    print_field("length", s->length);
    print_field("layout", s->layout);
    if (s->factor != 0)
        printf(" factor %g", s->factor);
    if (s->out) {
        printf(" -> v %d", s->out);
        print_shape(&t->slots[s->out].shape);
    }
    printf("\n");
}

static void print_track(const track *t) {
    for (int i = 1; i <= t->n_inputs; i++) {
        printf("    %s v %d", t->is_param[i - 1] ? "parameter" : "constant", i);
        print_shape(&t->slots[i].shape);
        printf("\n");
    }
    for (int i = 0; i < t->n_steps; i++)
        print_step(t, &t->steps[i]);
    static const char *const kinds[] = {"no root", "a constant root", "one root, of", "roots"};
    printf("    %s", kinds[t->root_kind]);
    for (int k = 0; k < t->n_roots; k++)
        printf(" v %d", t->roots[k]);
    printf("\n");
}

void print_program(const program *p) {
    printf("program %llu on %d ranks%s\n", (unsigned long long)p->seed, p->ranks,
           p->splits    ? ", which makes its communicator \"some\" itself"
           : p->reaches ? ", whose roots reach everything"
                        : "");
    for (int i = 0; i < p->teams.n; i++) {
        printf("  communicator %d:", p->teams.team[i].comm);
        for (int k = 0; k < p->teams.team[i].n; k++)
            printf(" %d", p->teams.team[i].rank[k]);
        printf("\n");
    }
    printf("  grid %d x %d, periodic %d %d\n", p->teams.dims[0], p->teams.dims[1], p->teams.periods[0], p->teams.periods[1]);
    for (int r = 0; r < p->ranks; r++) {
        printf("  rank %d\n", r);
        print_track(&p->tracks[r]);
    }
}

/* ---- communicators ---- */

static aj_comm *split(const teams *t, int comm, aj_comm *world) {
    int rank = aj_comm_rank(world);
    return aj_comm_split(world, t->color[comm][rank], t->key[comm][rank]);
}

static aj_comm *open_grid(const teams *t, aj_comm *world) {
    MPI_Comm cart;
    MPI_Cart_create(aj_comm_mpi(world), t->n_dims, t->dims, t->periods, 0, &cart);
    aj_comm *comm = aj_comm_create(aj_comm_ctx(world), cart);
    MPI_Comm_free(&cart);
    return comm;
}

void open_teams(const teams *t, aj_comm *world, aj_comm *comms[N_COMMS]) {
    for (int i = 0; i < N_COMMS; i++)
        comms[i] = i == GRID ? open_grid(t, world) : split(t, i, world);
}

void close_teams(aj_comm *comms[N_COMMS]) {
    for (int i = 0; i < N_COMMS; i++)
        aj_comm_destroy(&comms[i]);
}

/* ---- one track at work ---- */

typedef struct machine {
    aj_ctx *ctx;
    const program *p;
    const track *track;
    aj_comm *comms[N_COMMS];
    aj_tensor *v[MAX_SLOTS];
    aj_request *requests[2 * MAX_MESSAGES + 1];
} machine;

/* The entries of x, repeated or cut, in the layout. */
static aj_tensor *fit(machine *m, aj_tensor *x, const extents *e, int layout) {
    extents base = base_extents(e, layout);
    int64_t have = aj_numel(x), want = entries(&base);
    aj_tensor *flat = aj_reshape(x, 1, &have);
    if (have == 0) {
        flat = aj_pad(flat, 0, want, 0, 0.3);
    } else if (have < want) {
        int64_t *index = malloc((size_t)want * sizeof *index);
        for (int64_t i = 0; i < want; i++)
            index[i] = (7 * i + 3) % have;
        flat = aj_take(flat, 0, aj_from_data(m->ctx, AJ_I64, 1, &want, index));
        free(index);
    } else {
        flat = aj_slice(flat, 0, have - want, have, 1);
    }
    return arrange(aj_reshape(flat, base.ndim, base.n), e, layout);
}

/* For each entry the members get the places 0 ... n - 1, in an order that salt and entry give. */
static aj_tensor *separate(machine *m, const step *s, aj_tensor *x, const extents *e) {
    int64_t n = entries(e);
    int me = aj_comm_rank(m->comms[s->comm]);
    double *places = calloc((size_t)n + 1, sizeof *places);
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < s->length; k++)
            places[i] += 3 * (mix(mix(s->salt + (uint64_t)i) + (uint64_t)k) < mix(mix(s->salt + (uint64_t)i) + (uint64_t)me));
    aj_tensor *y = aj_add(aj_sin(x), aj_cast(aj_from_data(m->ctx, AJ_F64, e->ndim, e->n, places), m->p->dtype));
    free(places);
    return y;
}

static aj_tensor *where(machine *m, const step *s, aj_tensor *x, aj_tensor *y, const extents *e) {
    int64_t n = entries(e);
    uint8_t *mask = calloc((size_t)n + 1, sizeof *mask);
    for (int64_t i = 0; i < n; i++)
        mask[i] = mix(s->salt + (uint64_t)i) % 3 != 0;
    aj_tensor *other = y ? y : aj_zeros(m->ctx, m->p->dtype, 0, NULL);
    aj_tensor *chosen = aj_where(aj_from_data(m->ctx, AJ_U8, e->ndim, e->n, mask), x, other);
    free(mask);
    return chosen;
}

static aj_tensor *set_window_inplace(const step *s, aj_tensor *x, aj_tensor *value) {
    int64_t lo[AJ_MAX_NDIM] = {0};
    for (int i = 0; i < aj_ndim(x); i++) {
        int64_t room = aj_extent(x, i) - aj_extent(value, i);
        lo[i] = s->start < room ? s->start : room;
    }
    return aj_set_window_inplace(x, lo, value);
}

static aj_tensor *join_dummies(machine *m, const step *s, aj_tensor *x, aj_tensor *y) {
    aj_tensor *dummies[] = {y, s->request ? aj_request_dummy(m->requests[s->request]) : NULL};
    return aj_join_dummies(x, s->request ? 2 : 1, dummies);
}

static aj_tensor *run_local(machine *m, const step *s, aj_tensor *x, aj_tensor *y, const extents *e) {
    switch ((int)s->kind) {
    case STEP_fit:
        return fit(m, x, e, s->layout);
    case STEP_separate:
        return separate(m, s, x, e);
    case STEP_scale:
        return aj_scale(x, s->factor);
    case STEP_unary:
        return unary_functions[s->function].apply(x);
    case STEP_binary:
        return binary_functions[s->function].apply(x, y);
    case STEP_where:
        return where(m, s, x, y, e);
    case STEP_slice:
        return aj_slice(x, s->axis, s->start, s->stop, s->stride);
    case STEP_transpose:
        return aj_transpose(x, s->axis, s->other_axis);
    case STEP_broadcast_to:
        return aj_broadcast_to(x, e->ndim, e->n);
    case STEP_concat:
        return aj_concat(2, (aj_tensor *[]){x, y}, s->axis);
    case STEP_matmul:
        return aj_matmul(x, y);
    case STEP_sum_axes:
        return aj_sum_axes(x, 1, &s->axis, true);
    case STEP_cumsum:
        return aj_cumsum(x, s->axis);
    case STEP_flip:
        return aj_flip(x, s->axis);
    case STEP_roll:
        return aj_roll(x, s->axis, s->length);
    case STEP_pad:
        return aj_pad(x, s->axis, s->start, s->stop, s->factor);
    case STEP_set_slice:
        return aj_set_slice(x, s->axis, s->start, s->stop, s->stride, y);
    case STEP_set_window_inplace:
        return set_window_inplace(s, x, y);
    default:
        return join_dummies(m, s, x, y);
    }
}

/* The value, times a number that the rank decides. */
static aj_tensor *location(aj_status (*call)(aj_tensor *, aj_comm *, aj_tensor **, aj_tensor **), aj_tensor *x, aj_comm *comm) {
    aj_tensor *value = NULL, *rank = NULL;
    call(x, comm, &value, &rank);
    return aj_mul(value, aj_add_scalar(aj_scale(aj_cast(rank, aj_tensor_dtype(x)), 0.1), 0.5));
}

static aj_tensor *barrier(aj_comm *comm) {
    aj_barrier(comm);
    return NULL;
}

static aj_tensor *run_collective(machine *m, const step *s, aj_tensor *x) {
    aj_comm *comm = m->comms[s->comm];
    MPI_Op op = reductions[s->function].op;
    int axes[] = {s->axis, s->other_axis};
    int64_t width[] = {s->start, s->stop};
    switch ((int)s->kind) {
    case STEP_allreduce:
        return aj_allreduce(x, op, comm);
    case STEP_bcast:
        return aj_bcast(x, s->root, comm);
    case STEP_bcast_inplace:
        return aj_bcast_inplace(x, s->root, comm);
    case STEP_reduce:
        return aj_reduce(x, op, s->root, comm);
    case STEP_reduce_inplace:
        return aj_reduce_inplace(x, op, s->root, comm);
    case STEP_gather:
        return aj_gather(x, s->axis, s->root, comm);
    case STEP_allgather:
        return aj_allgather(x, s->axis, comm);
    case STEP_scatter:
        return aj_scatter(x, s->axis, s->length, s->root, comm);
    case STEP_alltoall:
        return aj_alltoall(x, s->axis, s->other_axis, s->length, comm);
    case STEP_reduce_scatter:
        return aj_reduce_scatter(x, s->axis, s->length, op, comm);
    case STEP_scan:
        return aj_scan(x, op, comm);
    case STEP_exscan:
        return aj_exscan(x, op, comm);
    case STEP_maxloc:
        return location(aj_maxloc, x, comm);
    case STEP_minloc:
        return location(aj_minloc, x, comm);
    case STEP_halo:
        return aj_halo(x, m->p->teams.n_dims, axes, width, comm);
    case STEP_halo_inplace:
        return aj_halo_inplace(x, m->p->teams.n_dims, axes, width, comm);
    default:
        return barrier(comm);
    }
}

static aj_tensor *run_message(machine *m, const step *s, aj_tensor *x, aj_tensor *y) {
    aj_comm *comm = m->comms[s->comm];
    aj_request **request = &m->requests[s->request];
    switch ((int)s->kind) {
    case STEP_send:
        return aj_send(x, s->dest, s->tag, comm);
    case STEP_recv:
        return aj_recv(x, s->source, s->tag_in, comm);
    case STEP_isend:
        *request = aj_isend(x, s->dest, s->tag, comm);
        return NULL;
    case STEP_irecv:
        *request = aj_irecv(x, s->source, s->tag_in, comm);
        return NULL;
    case STEP_wait:
        return aj_wait(*request);
    case STEP_sendrecv:
        return aj_sendrecv(x, s->dest, s->tag, y, s->source, s->tag_in, comm);
    default:
        *request = aj_request_join_dummies(*request, 2, (aj_tensor *[]){x, y});
        return NULL;
    }
}

static void check_shape(machine *m, const step *s, aj_tensor *y) {
    const extents *e = &m->track->slots[s->out].shape;
    bool right = y && aj_ndim(y) == e->ndim;
    for (int i = 0; i < e->ndim && right; i++)
        right = aj_extent(y, i) == e->n[i];
    if (!right && aj_ctx_status(m->ctx) == AJ_OK)
        aj_raise(m->ctx, AJ_ERR_SHAPE, "program %llu: v %d has another shape than expected", (unsigned long long)m->p->seed,
                 s->out);
}

static void run_step(machine *m, const step *s, aj_tensor *x) {
    aj_tensor *y = m->v[s->y], *result;
    if (s->kind < STEP_allreduce)
        result = run_local(m, s, x, y, &m->track->slots[s->out].shape);
    else if (s->kind < STEP_send)
        result = run_collective(m, s, x);
    else
        result = run_message(m, s, x, y);
    m->v[s->out] = result;
    if (s->out)
        check_shape(m, s, result);
}

static void skip_step(machine *m, const step *s) {
    const extents *e = &m->track->slots[s->out].shape;
    if (s->out)
        m->v[s->out] = aj_zeros(m->ctx, AJ_F64, e->ndim, e->n);
}

static void run_steps(machine *m, const hook *h) {
    for (int i = 0; i < m->track->n_steps; i++) {
        step s = m->track->steps[i];
        aj_tensor *x = m->v[s.x];
        verdict v = h ? h->before(h->user, i, &s, &x) : RUN_STEP;
        if (v == LEAVE_TRACK)
            break;
        if (v == SKIP_STEP)
            skip_step(m, &s);
        else
            run_step(m, &s, x);
    }
}

/* ---- what it leaves ---- */

static aj_tensor *weights(machine *m, int rank, int k) {
    const extents *e = &m->track->slots[m->track->roots[k]].shape;
    aj_tensor *w = aj_normal(m->ctx, AJ_F64, e->ndim, e->n, mix(mix(m->p->seed + 1) + (uint64_t)(MAX_RANKS * k + rank)));
    return m->p->dtype == AJ_F64 ? w : aj_cast(w, m->p->dtype);
}

static void collect_roots(machine *m, int rank, outcome *result) {
    const track *t = m->track;
    aj_tensor *sum_of_roots = aj_scalar(m->ctx, m->p->dtype, 3);
    *result = (outcome){.n = t->root_kind == MANY_ROOTS ? t->n_roots : t->root_kind != NO_ROOT};
    for (int k = 0; k < t->n_roots; k++) {
        result->roots[k] = m->v[t->roots[k]];
        result->seeds[k] = weights(m, rank, k);
        if (t->root_kind == ONE_ROOT)
            sum_of_roots = aj_add(sum_of_roots, aj_sum(aj_mul(result->seeds[k], result->roots[k])));
    }
    if (t->root_kind != MANY_ROOTS)
        result->roots[0] = sum_of_roots, result->seeds[0] = NULL;
}

void run_track(const program *p, int rank, aj_comm *const comms[N_COMMS], aj_tensor *const *inputs, outcome *result) {
    run_track_with(p, rank, comms, inputs, NULL, result);
}

void run_track_with(const program *p, int rank, aj_comm *const comms[N_COMMS], aj_tensor *const *inputs, const hook *h,
                    outcome *result) {
    machine m = {.ctx = aj_comm_ctx(comms[EVERYONE]), .p = p, .track = &p->tracks[rank]};
    memcpy(m.comms, comms, sizeof m.comms);
    memcpy(m.v + 1, inputs, (size_t)m.track->n_inputs * sizeof *inputs);
    if (p->splits)
        m.comms[SOME] = split(&p->teams, SOME, comms[EVERYONE]);
    run_steps(&m, h);
    collect_roots(&m, rank, result);
    if (p->splits)
        aj_comm_destroy(&m.comms[SOME]);
}
