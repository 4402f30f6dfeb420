/*
 * One table of all communication calls, a row each, and one driver. For every row, every reduction that it may have, every root and every axis, counted from
 * either end, in f64, and for a third of those in f32:
 *  - <J v, w> = <v, J' w>, of the driver's own and by aj_dot_test;
 *  - the derivative along a direction against central differences, and entry by entry by aj_gradcheck; its order by aj_taylor_test;
 *  - second derivatives, entry by entry, against central differences of the gradient;
 *  - and in all dtypes, in a recording and outside, the values against a model in plain C.
 * Shapes are drawn, with uneven parts, parts and axes of length 0, and so are memory layouts and the order of the ranks; numbers differ by rank and entry. What is
 * drawn follows from ADJOIN_TEST_SEED, which every failure tells. An operation of src/mpi/ops.def that no row calls is a failure, and a row that calls none.
 */
#include "autograd/autograd_private.h"
#include "mpi/comm_internal.h"

#include "mpi_rows.h"

static uint64_t table_seed(void) {
    const char *text = getenv("ADJOIN_TEST_SEED");
    return text ? strtoull(text, NULL, 10) : 1;
}

/* ---- reductions ---- */

typedef struct reduction {
    const char *name;
    MPI_Op op;
    double (*combine)(double a, double b); /* MPI's, on whole numbers */
    bool floats;                           /* there for floating dtypes, too */
    bool apart;                            /* smooth only where the ranks' entries differ */
    bool zeros;                            /* of interest with operands that are zero */
    double size;                           /* of operands at which its derivatives are moderate */
} reduction;

#define COMBINE(name, result)                                                                                                    \
    static double combine_##name(double a, double b) {                                                                           \
        return result;                                                                                                           \
    }
COMBINE(sum, a + b)
COMBINE(prod, a *b)
COMBINE(min, b < a ? b : a)
COMBINE(max, b > a ? b : a)
COMBINE(land, a != 0 && b != 0)
COMBINE(lor, a != 0 || b != 0)
COMBINE(lxor, (a != 0) != (b != 0))
COMBINE(band, (double)((int64_t)a &(int64_t)b))
COMBINE(bor, (double)((int64_t)a | (int64_t)b))
COMBINE(bxor, (double)((int64_t)a ^ (int64_t)b))
COMBINE(circle, a + b + a * b)
COMBINE(signed, a *fabs(b))
#undef COMBINE

/* Two operations of our own. One commutes: a + b + a b. The other does not: a |b|. */
#define OPERATE(type, wide, result)                                                                                              \
    for (int i = 0; i < *n; i++) {                                                                                               \
        wide a = ((type *)in)[i], b = ((type *)inout)[i];                                                                        \
        ((type *)inout)[i] = (type)(result);                                                                                     \
    }
#define OPERATE_ALL(result)                                                                                                      \
    if (*datatype == MPI_DOUBLE)                                                                                                 \
        OPERATE(double, double, result)                                                                                          \
    else if (*datatype == MPI_FLOAT)                                                                                             \
        OPERATE(float, float, result)                                                                                            \
    else if (*datatype == MPI_INT64_T)                                                                                           \
        OPERATE(int64_t, int64_t, result)                                                                                        \
    else if (*datatype == MPI_INT32_T)                                                                                           \
        OPERATE(int32_t, int64_t, result)                                                                                        \
    else                                                                                                                         \
        OPERATE(uint8_t, int64_t, result)

static void circle(void *in, void *inout, int *n, MPI_Datatype *datatype) {
    OPERATE_ALL(a + b + a * b)
}

static void signed_product(void *in, void *inout, int *n, MPI_Datatype *datatype) {
    OPERATE_ALL(a * (b < 0 ? -b : b))
}

static aj_tensor *circle_vjp(aj_ctx *c, aj_tensor *prefix, aj_tensor *x, aj_tensor *suffix, aj_tensor *y, aj_tensor *g,
                             void *user) {
    (void)c, (void)prefix, (void)suffix, (void)user;
    return aj_mul(g, aj_div(aj_add_scalar(y, 1), aj_add_scalar(x, 1))); /* 1 + y = (1 + a)(1 + b) */
}

static aj_tensor *signed_vjp(aj_ctx *c, aj_tensor *prefix, aj_tensor *x, aj_tensor *suffix, aj_tensor *y, aj_tensor *g,
                             void *user) {
    (void)c, (void)y, (void)user;
    aj_tensor *gx = prefix ? aj_mul(aj_mul(g, prefix), aj_sign(x)) : g;
    return suffix ? aj_mul(gx, aj_abs(suffix)) : gx;
}

enum { SUM, MAX = 3, CIRCLE = 4, SIGNED = 5, FLOATING = 6 };
static reduction reductions[] = {{"MPI_SUM", MPI_SUM, combine_sum, true, false, false, 1},
                                 {"MPI_PROD", MPI_PROD, combine_prod, true, false, true, 1},
                                 {"MPI_MIN", MPI_MIN, combine_min, true, true, false, 1},
                                 {"MPI_MAX", MPI_MAX, combine_max, true, true, false, 1},
                                 {"a + b + a b", MPI_OP_NULL, combine_circle, true, false, false, 0.25},
                                 {"a |b|", MPI_OP_NULL, combine_signed, true, false, false, 1},
                                 {"MPI_LAND", MPI_LAND, combine_land, false, false, false, 1},
                                 {"MPI_LOR", MPI_LOR, combine_lor, false, false, false, 1},
                                 {"MPI_LXOR", MPI_LXOR, combine_lxor, false, false, false, 1},
                                 {"MPI_BAND", MPI_BAND, combine_band, false, false, false, 1},
                                 {"MPI_BOR", MPI_BOR, combine_bor, false, false, false, 1},
                                 {"MPI_BXOR", MPI_BXOR, combine_bxor, false, false, false, 1}};
enum { N_REDUCTIONS = sizeof reductions / sizeof *reductions };

/* ---- rows: collectives of one shape ---- */

static extents same(const plan *p, int rank) {
    (void)rank;
    return p->other;
}

static int everyone(const plan *p, int rank, const int64_t *at, source *from) {
    (void)rank;
    for (int k = 0; k < rank_count; k++)
        from[k] = source_at(k, at, p->other.ndim);
    return rank_count;
}

static int everyone_on_root(const plan *p, int rank, const int64_t *at, source *from) {
    return rank == p->root ? everyone(p, rank, at, from) : 0;
}

static int those_up_to(const plan *p, int rank, const int64_t *at, source *from) {
    everyone(p, rank, at, from);
    return rank + 1;
}

static int those_before(const plan *p, int rank, const int64_t *at, source *from) {
    everyone(p, rank, at, from);
    return rank;
}

static int the_root(const plan *p, int rank, const int64_t *at, source *from) {
    (void)rank;
    from[0] = source_at(p->root, at, p->other.ndim);
    return 1;
}

static int itself(const plan *p, int rank, const int64_t *at, source *from) {
    from[0] = source_at(rank, at, p->other.ndim);
    return 1;
}

static aj_tensor *run_shared(const plan *p, aj_tensor *const *x) {
    (void)p;
    return aj_shared(x[0], on);
}

static aj_tensor *run_allreduce(const plan *p, aj_tensor *const *x) {
    return aj_allreduce(x[0], p->op, on);
}

static aj_tensor *run_reduce(const plan *p, aj_tensor *const *x) {
    return aj_reduce(x[0], p->op, p->root, on);
}

static aj_tensor *run_reduce_inplace(const plan *p, aj_tensor *const *x) {
    return aj_reduce_inplace(x[0], p->op, p->root, on);
}

static aj_tensor *run_bcast(const plan *p, aj_tensor *const *x) {
    return aj_bcast(x[0], p->root, on);
}

static aj_tensor *run_bcast_inplace(const plan *p, aj_tensor *const *x) {
    return aj_bcast_inplace(x[0], p->root, on);
}

static aj_tensor *run_scan(const plan *p, aj_tensor *const *x) {
    return aj_scan(x[0], p->op, on);
}

static aj_tensor *run_exscan(const plan *p, aj_tensor *const *x) {
    return aj_exscan(x[0], p->op, on);
}

static aj_tensor *run_maxloc(const plan *p, aj_tensor *const *x) {
    aj_tensor *value = NULL, *rank = NULL;
    (void)p;
    CHECK_INT(aj_maxloc(x[0], on, &value, &rank), AJ_OK);
    return value;
}

/* The largest number is the smallest one of the negated ones; u8 has none. */
static aj_tensor *run_minloc(const plan *p, aj_tensor *const *x) {
    aj_tensor *value = NULL, *rank = NULL, *top = placed(aj_full(ctx, p->dtype, AJ_SHAPE0, 100));
    CHECK_INT(aj_minloc(aj_sub(top, x[0]), on, &value, &rank), AJ_OK);
    return aj_sub(top, value);
}

/* ---- rows: messages, each rank to the one that is `root` ranks further, to itself, too; shapes differ by rank, and buffers are as long or longer ---- */

static int64_t dice(const plan *p, int rank, int what, int64_t sides) {
    uint64_t state = mix((uint64_t)p->turn * 64 + (uint64_t)rank) + (uint64_t)what;
    return (int64_t)draw_below(&state, (uint64_t)sides);
}

static int dest_of(const plan *p, int rank) {
    return (rank + p->root) % rank_count;
}

static int source_of(const plan *p, int rank) {
    return (rank + rank_count - p->root) % rank_count;
}

static extents message(const plan *p, int rank) {
    extents e = {.ndim = (int)dice(p, rank, 0, 3)};
    for (int i = 0; i < e.ndim; i++)
        e.n[i] = dice(p, rank, 1 + i, 8) ? 1 + dice(p, rank, 3 + i, 2) : 0;
    return e;
}

static extents buffer_for(const plan *p, int rank, int sender) {
    extents e = message(p, sender);
    int64_t n = entries(&e) + dice(p, rank, 5, 3);
    return dice(p, rank, 6, 2) ? (extents){1, {n}} : (extents){2, {n, 1}};
}

static extents buffer(const plan *p, int rank) {
    return buffer_for(p, rank, source_of(p, rank));
}

/* First what has come, then what was in the buffer. */
static int message_sources(const plan *p, int rank, const int64_t *at, source *from) {
    int sender = source_of(p, rank);
    extents sent = message(p, sender), room = buffer(p, rank);
    int64_t i = flat(&room, at);
    from[0] = source_at(rank, at, room.ndim);
    from[0].input = 1;
    if (i < entries(&sent)) {
        from[0] = (source){.rank = sender};
        unflat(&sent, i, from[0].at);
    }
    return 1;
}

/* And all entries that were sent: the value of a send passes gradients on. */
static int exchange_sources(const plan *p, int rank, const int64_t *at, source *from) {
    extents sent = message(p, rank);
    int n = message_sources(p, rank, at, from);
    for (int64_t i = 0; i < entries(&sent); i++) {
        from[n] = (source){.rank = rank};
        unflat(&sent, i, from[n++].at);
    }
    return n;
}

static aj_tensor *with_sent(const plan *p, aj_tensor *received, aj_tensor *sent) {
    return aj_add(received, aj_cast(aj_sum(sent), p->dtype));
}

static aj_tensor *run_send_recv(const plan *p, aj_tensor *const *x) {
    aj_tensor *sent = aj_send(x[0], dest_of(p, me), 3 + me, on);
    return with_sent(p, aj_recv(x[1], source_of(p, me), 3 + source_of(p, me), on), sent);
}

static aj_tensor *run_isend_irecv(const plan *p, aj_tensor *const *x) {
    aj_request *out = aj_isend(x[0], dest_of(p, me), 0, on), *in = aj_irecv(x[1], source_of(p, me), 0, on);
    bool first = dice(p, me, 7, 2);
    aj_tensor *sent = first ? aj_wait(out) : NULL, *received = aj_wait(in);
    return with_sent(p, received, first ? sent : aj_wait(out));
}

static aj_tensor *run_wildcards(const plan *p, aj_tensor *const *x) {
    aj_request *in = dice(p, me, 7, 2) ? aj_irecv(x[1], MPI_ANY_SOURCE, MPI_ANY_TAG, on) : NULL;
    aj_tensor *sent = aj_send(x[0], dest_of(p, me), 7 + me, on);
    return with_sent(p, in ? aj_wait(in) : aj_recv(x[1], MPI_ANY_SOURCE, MPI_ANY_TAG, on), sent);
}

static aj_tensor *run_exchange(const plan *p, aj_tensor *const *x) {
    return aj_sendrecv(x[0], dest_of(p, me), 20 + me, x[1], source_of(p, me), 20 + source_of(p, me), on);
}

static aj_tensor *run_barrier(const plan *p, aj_tensor *const *x) {
    aj_request *in = aj_irecv(x[1], source_of(p, me), 1, on);
    aj_tensor *sent = aj_send(x[0], dest_of(p, me), 1, on);
    CHECK_INT(aj_barrier(on), AJ_OK);
    return with_sent(p, aj_wait(in), sent);
}

/* An open chain: nobody before the first ranks and after the last ones. */
static aj_tensor *run_chain(const plan *p, aj_tensor *const *x) {
    aj_request *out = aj_isend(x[0], me + p->root < rank_count ? me + p->root : MPI_PROC_NULL, 2, on);
    aj_tensor *received = aj_recv(x[1], me >= p->root ? me - p->root : MPI_PROC_NULL, 2, on);
    return with_sent(p, received, aj_wait(out));
}

static int chain_sources(const plan *p, int rank, const int64_t *at, source *from) {
    int n = exchange_sources(p, rank, at, from);
    if (rank < p->root) {
        extents room = buffer(p, rank);
        from[0] = source_at(rank, at, room.ndim);
        from[0].input = 1;
    }
    return n;
}

/* Explicit dependencies wherever they can be: they change nothing and get nothing. */
static aj_tensor *run_dummies(const plan *p, aj_tensor *const *x) {
    aj_request *out = aj_isend(x[0], dest_of(p, me), 3, on);
    aj_tensor *handle = aj_request_dummy(out);
    aj_request *in = aj_irecv(aj_join_dummies(x[1], 1, &handle), source_of(p, me), 3, on);
    aj_tensor *dummies[] = {handle, x[0], x[1], aj_request_dummy(in)};
    aj_tensor *received = aj_wait(aj_request_join_dummies(in, 4, dummies));
    aj_tensor *sent = aj_wait(aj_request_join_dummies(aj_request_join_dummies(out, 0, NULL), 1, &received));
    return aj_join_dummies(with_sent(p, received, sent), 4, dummies);
}

/* ---- rows: the halo exchange, on a line along `axis`, or on a grid along `axis` and `second` ---- */

typedef struct grid {
    int d, dims[2], periods[2];
    aj_comm *comm;
} grid;
enum { N_GRIDS = 6 };
static grid grids[N_GRIDS]; /* lines and grids, periodic and not */

static void open_grids(void) {
    for (int i = 0; i < N_GRIDS; i++) {
        grid *g = &grids[i];
        *g = (grid){.d = i < 2 ? 1 : 2, .periods = {i % 2, i / 2 - 1}};
        MPI_Dims_create(rank_count, g->d, g->dims);
        MPI_Comm cart;
        MPI_Cart_create(MPI_COMM_WORLD, g->d, g->dims, g->periods, 0, &cart);
        g->comm = aj_comm_create(ctx, cart);
        MPI_Comm_free(&cart);
    }
}

static void close_grids(void) {
    for (int i = 0; i < N_GRIDS; i++)
        aj_comm_destroy(&grids[i].comm);
}

static const grid *grid_of(const plan *p) {
    return &grids[p->second == p->axis ? p->turn % 2 : 2 + p->turn % 4];
}

static int axis_of(const plan *p, int dim) {
    return dim == 0 ? p->axis : p->second;
}

static int64_t width_of(const plan *p, int dim) {
    return dice(p, 0, 8 + dim, 3);
}

static int64_t inner(const plan *p, int dim, int coordinate) {
    return width_of(p, dim) + dice(p, coordinate, 10 + dim, 2);
}

static void coordinates(const plan *p, int rank, int *at) {
    const grid *g = grid_of(p);
    at[0] = g->d == 2 ? rank / g->dims[1] : rank;
    at[1] = g->d == 2 ? rank % g->dims[1] : 0;
}

static extents block(const plan *p, int rank) {
    extents e = p->other;
    int at[2];
    coordinates(p, rank, at);
    for (int dim = 0; dim < grid_of(p)->d; dim++)
        e.n[axis_of(p, dim)] = inner(p, dim, at[dim]) + 2 * width_of(p, dim);
    return e;
}

/* Along each dimension by itself, an index is the rank's own or lies in the inner part of a neighbour's. */
static int halo_sources(const plan *p, int rank, const int64_t *at, source *from) {
    const grid *g = grid_of(p);
    int home[2];
    coordinates(p, rank, home);
    from[0] = source_at(rank, at, p->other.ndim);
    for (int dim = 0; dim < g->d; dim++) {
        int64_t w = width_of(p, dim), *index = &from[0].at[axis_of(p, dim)], high = inner(p, dim, home[dim]) + w;
        int step = *index < w ? -1 : *index >= high ? 1 : 0, there = home[dim] + step;
        if (step == 0 || (!g->periods[dim] && (there < 0 || there >= g->dims[dim])))
            continue;
        home[dim] = (there + g->dims[dim]) % g->dims[dim];
        *index = step < 0 ? inner(p, dim, home[dim]) + *index : w + *index - high;
    }
    from[0].rank = g->d == 2 ? home[0] * g->dims[1] + home[1] : home[0];
    return 1;
}

static aj_tensor *call_halo(const plan *p, aj_tensor *x, bool inplace) {
    const grid *g = grid_of(p);
    int axes[] = {given(p, p->axis), given(p, p->second)};
    int64_t width[] = {width_of(p, 0), width_of(p, 1)};
    return (inplace ? aj_halo_inplace : aj_halo)(x, g->d, axes, width, g->comm);
}

static aj_tensor *run_halo(const plan *p, aj_tensor *const *x) {
    return call_halo(p, x[0], false);
}

static aj_tensor *run_halo_inplace(const plan *p, aj_tensor *const *x) {
    return call_halo(p, x[0], true);
}

/* ---- the table ---- */

/* Rows of mpi_rows.h, and those of this file: their name, and what describes them. */
#define ROWS(X)                                                                                                                  \
    X(shared, ONCE, same, NULL, same, itself, run_shared)                                                                        \
    X(allreduce, REDUCES, same, NULL, same, everyone, run_allreduce)                                                             \
    X(bcast, ROOTED, same, NULL, same, the_root, run_bcast)                                                                      \
    X(bcast_inplace, ROOTED, same, NULL, same, the_root, run_bcast_inplace)                                                      \
    X(reduce, ROOTED | REDUCES, same, NULL, same, everyone_on_root, run_reduce)                                                  \
    X(reduce_inplace, ROOTED | REDUCES, same, NULL, same, everyone_on_root, run_reduce_inplace)                                  \
    X(scan, REDUCES, same, NULL, same, those_up_to, run_scan)                                                                    \
    X(exscan, REDUCES, same, NULL, same, those_before, run_exscan)                                                               \
    X(maxloc, LOCATES, same, NULL, same, everyone, run_maxloc)                                                                   \
    X(minloc, LOCATES, same, NULL, same, everyone, run_minloc)                                                                   \
    X(send_recv, ROOTED, message, buffer, buffer, exchange_sources, run_send_recv)                                               \
    X(isend_irecv, ROOTED, message, buffer, buffer, exchange_sources, run_isend_irecv)                                           \
    X(wildcards, ROOTED, message, buffer, buffer, exchange_sources, run_wildcards)                                               \
    X(sendrecv_buffer, ROOTED, message, buffer, buffer, message_sources, run_exchange)                                           \
    X(barrier, ROOTED, message, buffer, buffer, exchange_sources, run_barrier)                                                   \
    X(chain, ROOTED, message, buffer, buffer, chain_sources, run_chain)                                                          \
    X(dummies, ROOTED, message, buffer, buffer, exchange_sources, run_dummies)                                                   \
    X(halo, TWO_AXES | ALONG_AXIS | ON_GRID, block, NULL, block, halo_sources, run_halo)                                         \
    X(halo_inplace, TWO_AXES | ALONG_AXIS | ON_GRID, block, NULL, block, halo_sources, run_halo_inplace)

enum { LOCATES = 64 }; /* its reduction is MPI_MAX */

#define DEFINE(name, kind, input, buffer, output, sources, run)                                                                  \
    static const row row_##name = {#name, kind, input, buffer, output, sources, run};
ROWS(DEFINE)
#undef DEFINE

#define NAME_OF(name, ...) &row_##name,
static const row *const table[] = {ROWS(NAME_OF) AXIS_ROWS(NAME_OF)};
#undef NAME_OF
enum { N_ROWS = sizeof table / sizeof *table };

/* ---- plans ---- */

static void draw_lengths(uint64_t *state, int64_t most, int64_t *lengths) {
    int kind = (int)draw_below(state, 8), one = (int)draw_below(state, (uint64_t)rank_count);
    for (int k = 0; k < rank_count; k++) {
        int64_t n = (int64_t)draw_below(state, (uint64_t)most + 1);
        lengths[k] = kind == 0 && k != one ? 0 : kind == 1 ? most : n;
    }
}

/* Everything but dtype, reduction, root and axes. small: for what is called for every entry of every rank. */
static void draw_plan(plan *p, uint64_t state, bool small) {
    p->turn = (int)draw_below(&state, 100000);
    for (int i = 0; i < 4; i++)
        p->other.n[i] = small ? 1 : draw_below(&state, 10) == 0 ? 0 : 1 + (int64_t)draw_below(&state, 2);
    if (!(p->row->kind & ALONG_AXIS))
        p->other.ndim = small ? 1 : (int)draw_below(&state, 4);
    draw_lengths(&state, small ? 1 : 2, p->lengths);
    draw_lengths(&state, small ? 1 : 2, p->numelem);
    if (p->second == p->axis)
        for (int k = 0; k < rank_count; k++)
            p->numelem[k] = p->lengths[(k + 1) % rank_count];
}

/* Choice number i of axes: their number, one, and for rows with two a second one, or the same; and from which end they are counted. */
enum { MOST_AXES = 3, ONE_AXIS = 2 * (1 + 2 + 3), AXIS_PAIRS = 2 * (1 + 4 + 9) };
static void choose_axes(plan *p, int i) {
    int pairs = p->row->kind & TWO_AXES ? 1 : 0;
    p->negative = i % 2;
    i /= 2;
    for (p->other.ndim = 1;; p->other.ndim++) {
        int n = p->other.ndim, here = pairs ? n * n : n;
        if (i < here) {
            p->axis = i % n;
            p->second = pairs ? i / n : p->axis;
            return;
        }
        i -= here;
    }
}

static int n_axis_choices(const row *r) {
    return !(r->kind & ALONG_AXIS) ? 1 : r->kind & TWO_AXES ? AXIS_PAIRS : ONE_AXIS;
}

/* So many plans have every choice of axes, and every root. */
static int n_plans(const row *r, int least) {
    int n = r->kind & ROOTED && rank_count > n_axis_choices(r) ? rank_count : n_axis_choices(r);
    return n > least ? n : least;
}

static plan make_plan(const row *r, const reduction *by, int i, bool small) {
    plan p = {.row = r, .by = by, .op = by->op};
    uint64_t which = mix(mix(mix(table_seed()) + (uint64_t)(by - reductions)) + (uint64_t)i);
    for (const char *c = r->name; *c; c++)
        which = mix(which + (uint64_t)*c);
    if (r->kind & ALONG_AXIS)
        choose_axes(&p, i % n_axis_choices(r));
    draw_plan(&p, which, small);
    p.root = r->kind & ROOTED ? (i + p.turn % 3 * n_plans(r, 1)) % rank_count : 0;
    use(!(r->kind & ON_GRID) && p.turn % 3 == 2);
    return p;
}

static void describe(const plan *p, char *text, size_t size) {
    snprintf(text, size, "%s of %s: %s, %d axes, axis %d, %d, negative %d, root %d, turn %d, ADJOIN_TEST_SEED=%llu", p->row->name,
             p->by->name, aj_dtype_name(p->dtype), p->other.ndim, p->axis, p->second, p->negative, p->root, p->turn,
             (unsigned long long)table_seed());
}

static void with_plan(const plan *p, void (*check)(const plan *p)) {
    char text[256];
    int failures = rank_failures;
    describe(p, text, sizeof text);
    aj_scope *scope = aj_scope_begin(ctx);
    aj_scope_name(scope, "%s", text);
    watch((uint64_t)p->turn);
    check(p);
    world_sum(0); /* no receive that takes anything gets a message of the next plan's */
    watch_no_more();
    check_clean(ctx, text);
    CHECK_INT(aj_scope_end(scope), AJ_OK);
    if (rank_failures > failures)
        rank_append("      in %s\n", text);
}

/* ---- inputs ---- */

static int n_inputs(const plan *p) {
    return p->row->buffer ? 2 : 1;
}

static extents input_extents(const plan *p, int input, int rank) {
    return (input ? p->row->buffer : p->row->input)(p, rank);
}

/* One variable has its numbers and layout on all ranks alike; ranks whose entries are compared have the same layout. */
static int data_rank(const plan *p, int rank) {
    return p->row->kind & ONCE ? 0 : rank;
}

static int layout_of(const plan *p, int input, int rank) {
    extents e = input_extents(p, input, rank);
    return layout_for(&e, p->turn + 3 * input + (p->by->apart ? 0 : 2 * data_rank(p, rank)));
}

static aj_tensor *arranged(const plan *p, int input, int rank, aj_tensor *base) {
    extents e = input_extents(p, input, rank);
    return arrange(base, &e, layout_of(p, input, rank));
}

/* Of either sign, of sizes between 0.4 and 1.4, which differ by rank; some zeros where they matter. */
static double smooth_number(const plan *p, int input, int rank, int64_t entry) {
    uint64_t salt = mix((uint64_t)p->turn + (uint64_t)input) + (uint64_t)entry, own = mix(mix(salt) + (uint64_t)rank);
    int place = 0;
    for (int k = 0; k < rank_count; k++)
        place += mix(mix(salt) + (uint64_t)k) < own;
    double within = (double)(mix(own) >> 11) / (double)(UINT64_C(1) << 53);
    if (p->by->zeros && own % 5 == 0)
        return 0;
    return (own & 64 ? 1 : -1) * (0.4 + (place + 0.5 * within) / rank_count);
}

static double whole_number(const plan *p, int input, int rank, int64_t entry) {
    uint64_t h = mix(mix(mix((uint64_t)(p->turn + 7 * input)) + (uint64_t)rank) + (uint64_t)entry);
    return p->dtype == AJ_U8 ? (double)(h % 10) : (double)(h % 9) - 4;
}

static double direction(const plan *p, int input, int rank, int64_t entry) {
    return number(77 + (uint64_t)p->turn + (uint64_t)input, rank, entry) / 8;
}

typedef double (*numbers)(const plan *p, int input, int rank, int64_t entry);

static aj_tensor *base_tensor(const plan *p, int input, int rank, numbers number_of) {
    extents e = input_extents(p, input, rank), base = base_extents(&e, layout_of(p, input, rank));
    int64_t n = entries(&base);
    double *x = malloc(((size_t)n + 1) * sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = number_of(p, input, data_rank(p, rank), i);
    aj_tensor *t = tensor_of(ctx, p->dtype, base.ndim, base.n, x);
    free(x);
    return t;
}

/* ---- values: against the sources, folded in the order of the ranks ---- */

/* The inputs of all ranks: worked out here, with local operations alone. */
static void all_inputs(const plan *p, double *x[2][MOST_RANKS]) {
    for (int i = 0; i < n_inputs(p); i++)
        for (int r = 0; r < rank_count; r++) {
            extents e = input_extents(p, i, r);
            x[i][r] = values_of(arranged(p, i, r, base_tensor(p, i, r, whole_number)), entries(&e));
        }
}

static double model(const plan *p, double *x[2][MOST_RANKS], int64_t entry) {
    extents out = p->row->output(p, me);
    source from[MOST_RANKS];
    int64_t at[4];
    unflat(&out, entry, at);
    int n = p->row->sources(p, me, at, from);
    double y = 0;
    for (int k = 0; k < n; k++) {
        extents in = input_extents(p, from[k].input, from[k].rank);
        double term = x[from[k].input][from[k].rank][flat(&in, from[k].at)];
        y = k == 0 ? term : p->by->combine(y, term);
    }
    return p->dtype == AJ_U8 ? (double)(uint8_t)(int64_t)y : y;
}

static void check_values_of(const plan *p, aj_tensor *y, double *x[2][MOST_RANKS]) {
    extents e = p->row->output(p, me);
    int64_t n = entries(&e);
    double *wanted = malloc(((size_t)n + 1) * sizeof *wanted);
    for (int64_t i = 0; i < n; i++)
        wanted[i] = model(p, x, i);
    if (CHECK_MSG(y != NULL, "%s", aj_ctx_error(ctx))) {
        CHECK_INT(aj_tensor_dtype(y), p->dtype);
        CHECK_INT(aj_ndim(y), e.ndim);
        for (int i = 0; i < e.ndim && aj_ndim(y) == e.ndim; i++)
            CHECK_INT(aj_extent(y, i), e.n[i]);
        CHECK_VALUES(y, n, wanted, p->dtype == AJ_F32 ? 1e-5 : 0);
    }
    free(wanted);
}

static void check_forward(const plan *p) {
    double *x[2][MOST_RANKS];
    all_inputs(p, x);
    for (int recorded = 0; recorded < 2; recorded++) {
        aj_tensor *mine[2] = {NULL, NULL};
        if (recorded)
            CHECK_INT(aj_record_begin(ctx), AJ_OK);
        for (int i = 0; i < n_inputs(p); i++)
            mine[i] = arranged(p, i, me, base_tensor(p, i, me, whole_number));
        check_values_of(p, p->row->run(p, mine), x);
        if (recorded)
            CHECK_INT(aj_record_end(ctx), AJ_OK);
    }
    for (int i = 0; i < n_inputs(p); i++)
        for (int r = 0; r < rank_count; r++)
            free(x[i][r]);
}

/* ---- derivatives ---- */

/* The row between functions that are not linear, so that adjoints depend on the point. One variable that all ranks hold is that only if nothing comes before. */
static aj_tensor *bent(const plan *p, aj_tensor *const *x) {
    aj_tensor *operands[2] = {NULL, NULL};
    for (int i = 0; i < n_inputs(p); i++)
        operands[i] = arranged(p, i, me, p->row->kind & ONCE ? x[i] : aj_scale(aj_tanh(x[i]), p->by->size));
    return aj_sin(aj_scale(p->row->run(p, operands), 0.5));
}

static aj_tensor *seed_like(const plan *p, aj_tensor *y) {
    int64_t shape[4] = {0};
    int ndim = aj_ndim(y);
    for (int i = 0; i < ndim; i++)
        shape[i] = aj_extent(y, i);
    return y ? random_tensor(ctx, p->dtype, ndim, shape, 9 + (uint64_t)p->turn, rank_id) : NULL;
}

/* f at x + h v: <w, f>, and the gradient of the sum of that over ranks. */
static double gradient_at(const plan *p, double h, aj_tensor **g) {
    aj_tensor *leaf[2] = {NULL, NULL};
    for (int i = 0; i < n_inputs(p); i++) {
        aj_tensor *v = base_tensor(p, i, me, direction);
        leaf[i] = aj_param(aj_add(base_tensor(p, i, me, smooth_number), aj_scale(v, h)));
    }
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    aj_tensor *y = bent(p, leaf), *w = seed_like(p, y);
    CHECK_INT(aj_grad_of(ctx, 1, &y, &w, n_inputs(p), leaf, g, 0), AJ_OK);
    double value = aj_item(aj_cast(aj_sum(aj_mul(w, y)), AJ_F64));
    CHECK_INT(aj_record_end(ctx), AJ_OK);
    for (int i = 0; i < n_inputs(p); i++)
        aj_release(&leaf[i]);
    return value;
}

static double inner_product(aj_tensor *a, aj_tensor *b, double *magnitude) {
    aj_tensor *terms = aj_mul(aj_cast(a, AJ_F64), aj_cast(b, AJ_F64));
    *magnitude += aj_item(aj_sum(aj_abs(terms)));
    return aj_item(aj_sum(terms));
}

/* Second derivatives along v, entry by entry, against the gradients at x + h v and x - h v. */
static void check_differences(const plan *p, aj_tensor *hv, aj_tensor *up, aj_tensor *down, double h) {
    int64_t n = aj_numel(hv);
    double *values[] = {values_of(hv, n), values_of(up, n), values_of(down, n)}, tolerance = p->dtype == AJ_F64 ? 1e-7 : 1e-2;
    for (int64_t i = 0; i < n; i++) {
        double wanted = (values[1][i] - values[2][i]) / (2 * h), scale = 1 + fabs(wanted) + fabs(values[1][i]);
        if (!CHECK_MSG(fabs(values[0][i] - wanted) <= tolerance * scale,
                       "second derivative: entry %d is %.17g, by differences %.17g", (int)i, values[0][i], wanted))
            break;
    }
    for (int i = 0; i < 3; i++)
        free(values[i]);
}

static void check_derivatives(const plan *p) {
    const double h = p->dtype == AJ_F64 ? 1e-5 : 1e-2;
    bool counts = !(p->row->kind & ONCE) || me == 0; /* of one variable the copies count once */
    int n = n_inputs(p);
    aj_tensor *leaf[2] = {NULL, NULL}, *v[2], *seed[2], *g[2], *hv[2], *up[2], *down[2], *jv = NULL;
    for (int i = 0; i < n; i++) {
        leaf[i] = aj_param(base_tensor(p, i, me, smooth_number));
        v[i] = base_tensor(p, i, me, direction);
        seed[i] = counts ? v[i] : aj_scale(v[i], 0);
    }
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    aj_tensor *y = bent(p, leaf), *w = seed_like(p, y);
    CHECK_INT(aj_jvp(ctx, 1, &y, n, leaf, v, &jv, 0), AJ_OK);
    CHECK_INT(aj_grad_of(ctx, 1, &y, &w, n, leaf, g, AJ_CREATE_GRAPH), AJ_OK);
    CHECK_INT(aj_grad_of(ctx, n, g, seed, n, leaf, hv, 0), AJ_OK);
    CHECK_INT(aj_record_end(ctx), AJ_OK);
    double sums[] = {0, 0, 0, 0}; /* <w, J v>; <J' w, v>; the same by differences; the size of the terms */
    sums[0] = inner_product(w, jv, &sums[3]);
    sums[2] = (gradient_at(p, h, up) - gradient_at(p, -h, down)) / (2 * h);
    for (int i = 0; i < n; i++) {
        sums[1] += inner_product(g[i], seed[i], &sums[3]);
        check_differences(p, hv[i], up[i], down[i], h);
        aj_release(&leaf[i]);
    }
    world_sums(4, sums);
    CHECK_MSG(fabs(sums[0] - sums[1]) <= (p->dtype == AJ_F64 ? 1e-12 : 1e-4) * sums[3], "<w, J v> is %.17g, <J' w, v> is %.17g",
              sums[0], sums[1]);
    CHECK_MSG(fabs(sums[2] - sums[1]) <= (p->dtype == AJ_F64 ? 1e-7 : 1e-2) * (1 + sums[3]),
              "the derivative along v is %.17g, by differences %.17g", sums[1], sums[2]);
}

/* ---- the library's checks ---- */

static aj_tensor *run_bent(aj_ctx *c, int n, aj_tensor *const *x, void *user) {
    (void)c, (void)n;
    return bent(user, x);
}

typedef aj_status (*library_check)(aj_ctx *, aj_fn, void *, int, aj_tensor *const *, aj_comm *, aj_check *);

static void run_library_check(const plan *p, const char *name, library_check check) {
    aj_tensor *x[2] = {NULL, NULL};
    plan copy = *p;
    for (int i = 0; i < n_inputs(p); i++)
        x[i] = base_tensor(p, i, me, smooth_number);
    aj_check result = {.size = sizeof result};
    CHECK_INT(check(ctx, run_bent, &copy, n_inputs(p), x, on, &result), AJ_OK);
    CHECK_MSG(result.passed, "%s: %.17g, expected %.17g (input %d, entry %d, rank %d)", name, result.got, result.expected,
              result.input, (int)result.entry, result.rank);
}

static void check_dot(const plan *p) {
    run_library_check(p, "aj_dot_test", aj_dot_test);
}

static void check_by_entries(const plan *p) {
    run_library_check(p, "aj_gradcheck", aj_gradcheck);
    run_library_check(p, "aj_taylor_test", aj_taylor_test);
}

/* ---- the driver ---- */

static void open_table(void) {
    open_world();
    CHECK(rank_count <= MOST_RANKS);
    reversed = aj_comm_split(world, 7, -rank_id);
    MPI_Op_create(circle, 1, &reductions[CIRCLE].op);
    MPI_Op_create(signed_product, 0, &reductions[SIGNED].op);
    CHECK_INT(aj_op_register(ctx, reductions[CIRCLE].op, "circle", true, circle_vjp, NULL), AJ_OK);
    CHECK_INT(aj_op_register(ctx, reductions[SIGNED].op, "signed", false, signed_vjp, NULL), AJ_OK);
}

static void close_table(void) {
    aj_comm_destroy(&reversed);
    close_world();
    MPI_Op_free(&reductions[CIRCLE].op);
    MPI_Op_free(&reductions[SIGNED].op);
}

static bool has_reduction(const row *r, int k) {
    return r->kind & REDUCES ? true : k == (r->kind & LOCATES ? MAX : SUM);
}

/* On another device each plan has kernels of its own, and each kernel takes its time to compile: one plan of ADJOIN_TEST_EVERY there. */
static int step(void) {
#ifdef RANKS_ELSEWHERE
    const char *text = getenv("ADJOIN_TEST_EVERY");
    int every = text ? atoi(text) : 0;
    return every > 0 ? every : 12;
#else
    return 1;
#endif
}

/* Values: the dtypes take turns; where there are few plans floating ones come first. */
static void test_values(const row *r, const reduction *by) {
    static const aj_dtype dtypes[] = {AJ_I64, AJ_I32, AJ_U8, AJ_F64, AJ_F32};
    int kinds = by->floats ? 5 : 3;
    for (int i = 0; i < n_plans(r, kinds); i += step()) {
        plan p = make_plan(r, by, i, false);
        p.dtype = dtypes[(i / step() + (step() > 1 ? 3 : 0) + p.turn % 2) % kinds];
        with_plan(&p, check_forward);
    }
}

static void test_derivatives(const row *r, const reduction *by) {
    for (int single = 0; single < 2; single++) {
        for (int i = 0; i < n_plans(r, 4);
             i += single ? 3 * step() : step()) { /* f64 tells more: it has every root and every axis */
            plan p = make_plan(r, by, i, false);
            p.dtype = single ? AJ_F32 : AJ_F64;
            with_plan(&p, check_derivatives);
            if (i % 3 == 0 && !(r->kind & ONCE)) /* the library's checks move each rank's copy by itself */
                with_plan(&p, check_dot);
        }
        plan p = make_plan(r, by, single + 1, true);
        p.dtype = single ? AJ_F32 : AJ_F64;
        if (!(r->kind & ONCE))
            with_plan(&p, check_by_entries);
    }
}

static void test_row(const row *r) {
    open_table();
    if (r->kind & ON_GRID)
        open_grids();
    for (int k = 0; k < N_REDUCTIONS; k++) {
        if (!has_reduction(r, k))
            continue;
        test_values(r, &reductions[k]);
        if (reductions[k].floats)
            test_derivatives(r, &reductions[k]);
    }
    if (r->kind & ON_GRID)
        close_grids();
    close_table();
}

/* ---- what is tested at all ---- */

static const struct {
    const char *name;
    const aji_op *op;
} operations[] = {
#define AJI_OP(name) {#name, &aji_op_##name},
#include "mpi/ops.def"
#undef AJI_OP
};
enum { N_OPERATIONS = sizeof operations / sizeof *operations };

/* Which operations have nodes in the recording. */
static int look_for_nodes(bool *seen) {
    const aji_recording *recording = aji_autograd_of(ctx)->recording;
    int found = 0;
    for (int64_t i = 0; i < recording->n; i++)
        for (int k = 0; k < N_OPERATIONS; k++)
            if (recording->nodes[i]->op == operations[k].op) {
                seen[k] = true;
                found++;
            }
    return found;
}

/* Each row makes nodes, and each operation is a node of some row, or of its gradient. */
static void covered(void) {
    bool seen[N_OPERATIONS] = {false};
    open_table();
    open_grids();
    for (int k = 0; k < N_ROWS; k++) {
        plan p = make_plan(table[k], &reductions[table[k]->kind & LOCATES ? MAX : SUM], 1, false);
        aj_tensor *leaf[2] = {NULL, NULL}, *g[2];
        for (int i = 0; i < n_inputs(&p); i++)
            leaf[i] = aj_param(base_tensor(&p, i, me, smooth_number));
        CHECK_INT(aj_record_begin(ctx), AJ_OK);
        aj_tensor *y = bent(&p, leaf);
        CHECK_INT(aj_grad_of(ctx, 1, &y, NULL, n_inputs(&p), leaf, g, AJ_CREATE_GRAPH), AJ_OK);
        CHECK_MSG(look_for_nodes(seen) > 0, "the row %s communicates by no operation of ops.def", table[k]->name);
        CHECK_INT(aj_record_end(ctx), AJ_OK);
        for (int i = 0; i < n_inputs(&p); i++)
            aj_release(&leaf[i]);
    }
    for (int k = 0; k < N_OPERATIONS; k++)
        CHECK_MSG(seen[k], "no row of the table calls %s", operations[k].name);
    close_grids();
    close_table();
}

#define DEFINE(name, ...)                                                                                                        \
    static void test_##name(void) {                                                                                              \
        test_row(&row_##name);                                                                                                   \
    }
ROWS(DEFINE)
AXIS_ROWS(DEFINE)
#undef DEFINE

#define CASE(name, ...) {#name, test_##name},

RANK_MAIN(ROWS(CASE) AXIS_ROWS(CASE){"covered", covered})
