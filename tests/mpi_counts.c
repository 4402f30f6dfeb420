/*
 * How much is communicated: each call makes one collective or one message (those along an axis exchange the lengths before,
 * by an allgather), and its adjoint makes one of the kind that its formula names. Counted by
 * MPI's profiling interface: the calls that the library makes pass through here.
 */
#include "mpi_common.h"

typedef enum sort {
    ALLREDUCE,
    BCAST,
    REDUCE,
    BARRIER,
    SEND,
    RECEIVE,
    ALLGATHER,
    GATHERV,
    SCATTERV,
    ALLGATHERV,
    ALLTOALL,
    ALLTOALLV,
    REDUCE_SCATTER,
    SCAN,
    EXSCAN,
    OTHER,
    N_SORTS
} sort;
static const char *const sort_names[] = {"allreduce",      "bcast",   "reduce",   "barrier",         "send",     "receive",
                                         "allgather",      "gatherv", "scatterv", "allgatherv",      "alltoall", "alltoallv",
                                         "reduce_scatter", "scan",    "exscan",   "other collective"};
static int made[N_SORTS];

#define COUNT(sort, name, parameters, arguments)                                                                                 \
    int MPI_##name parameters {                                                                                                  \
        made[sort]++;                                                                                                            \
        return PMPI_##name arguments;                                                                                            \
    }
/* The blocking and the nonblocking form, with small and large counts (n) and displacements (d). */
#define COUNT_ALL(sort, name, nonblocking, parameters, ...)                                                                      \
    COUNT(sort, name, (parameters(int, int)), (__VA_ARGS__))                                                                     \
    COUNT(sort, name##_c, (parameters(MPI_Count, MPI_Aint)), (__VA_ARGS__))                                                      \
    COUNT(sort, nonblocking, (parameters(int, int), MPI_Request * q), (__VA_ARGS__, q))                                          \
    COUNT(sort, nonblocking##_c, (parameters(MPI_Count, MPI_Aint), MPI_Request * q), (__VA_ARGS__, q))

#define REDUCTION(n, d) const void *s, void *r, n k, MPI_Datatype t, MPI_Op op, MPI_Comm c
#define ROOTED_REDUCTION(n, d) const void *s, void *r, n k, MPI_Datatype t, MPI_Op op, int root, MPI_Comm c
#define DIVIDED_REDUCTION(n, d) const void *s, void *r, const n *ks, MPI_Datatype t, MPI_Op op, MPI_Comm c
#define BROADCAST(n, d) void *b, n k, MPI_Datatype t, int root, MPI_Comm c
#define EQUAL_PARTS(n, d) const void *s, n k, MPI_Datatype t, void *r, n j, MPI_Datatype u, MPI_Comm c
#define EQUAL_PARTS_ROOTED(n, d) const void *s, n k, MPI_Datatype t, void *r, n j, MPI_Datatype u, int root, MPI_Comm c
#define PARTS(n, d) const void *s, n k, MPI_Datatype t, void *r, const n *js, const d *at, MPI_Datatype u, MPI_Comm c
#define PARTS_TO_ROOT(n, d)                                                                                                      \
    const void *s, n k, MPI_Datatype t, void *r, const n *js, const d *at, MPI_Datatype u, int root, MPI_Comm c
#define PARTS_FROM_ROOT(n, d)                                                                                                    \
    const void *s, const n *ks, const d *at, MPI_Datatype t, void *r, n j, MPI_Datatype u, int root, MPI_Comm c
#define PARTS_TO_ALL(n, d)                                                                                                       \
    const void *s, const n *ks, const d *at, MPI_Datatype t, void *r, const n *js, const d *to, MPI_Datatype u, MPI_Comm c

COUNT_ALL(ALLREDUCE, Allreduce, Iallreduce, REDUCTION, s, r, k, t, op, c)
COUNT_ALL(SCAN, Scan, Iscan, REDUCTION, s, r, k, t, op, c)
COUNT_ALL(EXSCAN, Exscan, Iexscan, REDUCTION, s, r, k, t, op, c)
COUNT_ALL(OTHER, Reduce_scatter_block, Ireduce_scatter_block, REDUCTION, s, r, k, t, op, c)
COUNT_ALL(REDUCE_SCATTER, Reduce_scatter, Ireduce_scatter, DIVIDED_REDUCTION, s, r, ks, t, op, c)
COUNT_ALL(REDUCE, Reduce, Ireduce, ROOTED_REDUCTION, s, r, k, t, op, root, c)
COUNT_ALL(BCAST, Bcast, Ibcast, BROADCAST, b, k, t, root, c)
COUNT_ALL(ALLGATHER, Allgather, Iallgather, EQUAL_PARTS, s, k, t, r, j, u, c)
COUNT_ALL(ALLTOALL, Alltoall, Ialltoall, EQUAL_PARTS, s, k, t, r, j, u, c)
COUNT_ALL(OTHER, Gather, Igather, EQUAL_PARTS_ROOTED, s, k, t, r, j, u, root, c)
COUNT_ALL(OTHER, Scatter, Iscatter, EQUAL_PARTS_ROOTED, s, k, t, r, j, u, root, c)
COUNT_ALL(ALLGATHERV, Allgatherv, Iallgatherv, PARTS, s, k, t, r, js, at, u, c)
COUNT_ALL(GATHERV, Gatherv, Igatherv, PARTS_TO_ROOT, s, k, t, r, js, at, u, root, c)
COUNT_ALL(SCATTERV, Scatterv, Iscatterv, PARTS_FROM_ROOT, s, ks, at, t, r, j, u, root, c)
COUNT_ALL(ALLTOALLV, Alltoallv, Ialltoallv, PARTS_TO_ALL, s, ks, at, t, r, js, to, u, c)
COUNT(BARRIER, Barrier, (MPI_Comm c), (c))
COUNT(BARRIER, Ibarrier, (MPI_Comm c, MPI_Request *q), (c, q))
COUNT(SEND, Send, (const void *b, int n, MPI_Datatype t, int to, int tag, MPI_Comm c), (b, n, t, to, tag, c))
COUNT(SEND, Send_c, (const void *b, MPI_Count n, MPI_Datatype t, int to, int tag, MPI_Comm c), (b, n, t, to, tag, c))
COUNT(SEND, Isend, (const void *b, int n, MPI_Datatype t, int to, int tag, MPI_Comm c, MPI_Request *q), (b, n, t, to, tag, c, q))
COUNT(SEND, Isend_c, (const void *b, MPI_Count n, MPI_Datatype t, int to, int tag, MPI_Comm c, MPI_Request *q),
      (b, n, t, to, tag, c, q))
COUNT(SEND, Issend, (const void *b, int n, MPI_Datatype t, int to, int tag, MPI_Comm c, MPI_Request *q), (b, n, t, to, tag, c, q))
COUNT(RECEIVE, Recv, (void *b, int n, MPI_Datatype t, int from, int tag, MPI_Comm c, MPI_Status *s), (b, n, t, from, tag, c, s))
COUNT(RECEIVE, Recv_c, (void *b, MPI_Count n, MPI_Datatype t, int from, int tag, MPI_Comm c, MPI_Status *s),
      (b, n, t, from, tag, c, s))
COUNT(RECEIVE, Irecv, (void *b, int n, MPI_Datatype t, int from, int tag, MPI_Comm c, MPI_Request *q), (b, n, t, from, tag, c, q))
COUNT(RECEIVE, Irecv_c, (void *b, MPI_Count n, MPI_Datatype t, int from, int tag, MPI_Comm c, MPI_Request *q),
      (b, n, t, from, tag, c, q))
COUNT(RECEIVE, Mrecv, (void *b, int n, MPI_Datatype t, MPI_Message *m, MPI_Status *s), (b, n, t, m, s))
COUNT(RECEIVE, Imrecv, (void *b, int n, MPI_Datatype t, MPI_Message *m, MPI_Request *q), (b, n, t, m, q))

/* ---- */

static aj_tensor *run_allreduce(aj_tensor *x) {
    return aj_allreduce(x, MPI_SUM, world);
}

static aj_tensor *run_bcast(aj_tensor *x) {
    return aj_bcast(x, rank_count - 1, world);
}

static aj_tensor *run_bcast_inplace(aj_tensor *x) {
    return aj_bcast_inplace(x, 0, world);
}

static aj_tensor *run_reduce(aj_tensor *x) {
    return aj_reduce(x, MPI_SUM, rank_count - 1, world);
}

static aj_tensor *run_reduce_inplace(aj_tensor *x) {
    return aj_reduce_inplace(x, MPI_SUM, 0, world);
}

static aj_tensor *run_shared(aj_tensor *x) {
    return aj_shared(x, world);
}

static aj_tensor *run_barrier(aj_tensor *x) {
    return aj_barrier(world) == AJ_OK ? x : NULL;
}

static aj_tensor *run_send_recv(aj_tensor *x) {
    aj_send(x, right_of(rank_id, rank_count), 0, world);
    return aj_recv(aj_zeros(ctx, AJ_F64, AJ_SHAPE(aj_numel(x))), left_of(rank_id, rank_count), 0, world);
}

static aj_tensor *run_isend_irecv(aj_tensor *x) {
    aj_request *in = aj_irecv(aj_zeros(ctx, AJ_F64, AJ_SHAPE(aj_numel(x))), left_of(rank_id, rank_count), 0, world);
    aj_request *out = aj_isend(x, right_of(rank_id, rank_count), 0, world);
    aj_tensor *dummy = aj_request_dummy(in), *got = aj_wait(aj_request_join_dummies(in, 1, &dummy));
    return aj_add(got, aj_wait(out));
}

/* Parts of unequal lengths, of which some are empty: rank r has r % 3 entries. */
static int64_t length(void) {
    return rank_id % 3;
}

static int64_t whole_length(void) {
    int64_t n = 0;
    for (int r = 0; r < rank_count; r++)
        n += r % 3;
    return n;
}

/* x repeated to a given number of rows. */
static aj_tensor *rows(aj_tensor *x, int64_t n) {
    return aj_broadcast_to(x, AJ_SHAPE(n, 4));
}

static aj_tensor *run_gather(aj_tensor *x) {
    return aj_gather(rows(x, length()), 0, rank_count - 1, world);
}

static aj_tensor *run_allgather(aj_tensor *x) {
    return aj_allgather(rows(x, length()), 0, world);
}

static aj_tensor *run_scatter(aj_tensor *x) {
    return aj_scatter(rank_id == 0 ? rows(x, whole_length()) : x, 0, length(), 0, world);
}

static aj_tensor *run_alltoall(aj_tensor *x) {
    return aj_alltoall(aj_reshape(rows(x, whole_length()), AJ_SHAPE(whole_length(), 2, 2)), 1, 0, length(), world);
}

static aj_tensor *run_alltoall_equal_axes(aj_tensor *x) {
    return aj_alltoall(rows(x, length()), 0, 0, (rank_count - 1 - rank_id) % 3, world);
}

static aj_tensor *run_reduce_scatter(aj_tensor *x) {
    return aj_reduce_scatter(rows(x, whole_length()), 0, length(), MPI_SUM, world);
}

static aj_tensor *run_equal_allgather(aj_tensor *x) {
    return aj_allgather(rows(x, 2), 0, world);
}

static aj_tensor *run_equal_alltoall(aj_tensor *x) {
    return aj_alltoall(rows(x, 3 * rank_count), 1, 0, 3, world);
}

static aj_tensor *run_equal_reduce_scatter(aj_tensor *x) {
    return aj_reduce_scatter(rows(x, 2 * rank_count), 0, 2, MPI_SUM, world);
}

static aj_tensor *run_scan(aj_tensor *x) {
    return aj_scan(x, MPI_SUM, world);
}

static aj_tensor *run_exscan(aj_tensor *x) {
    return aj_exscan(x, MPI_SUM, world);
}

static aj_tensor *run_allreduce_prod(aj_tensor *x) {
    return aj_allreduce(x, MPI_PROD, world);
}

static aj_tensor *run_allreduce_max(aj_tensor *x) {
    return aj_allreduce(x, MPI_MAX, world);
}

static aj_tensor *run_reduce_prod(aj_tensor *x) {
    return aj_reduce(x, MPI_PROD, rank_count - 1, world);
}

static aj_tensor *run_reduce_inplace_min(aj_tensor *x) {
    return aj_reduce_inplace(x, MPI_MIN, 0, world);
}

static aj_tensor *run_reduce_scatter_prod(aj_tensor *x) {
    return aj_reduce_scatter(rows(x, whole_length()), 0, length(), MPI_PROD, world);
}

static aj_tensor *run_scan_prod(aj_tensor *x) {
    return aj_scan(x, MPI_PROD, world);
}

static aj_tensor *run_exscan_max(aj_tensor *x) {
    return aj_exscan(x, MPI_MAX, world);
}

/* Operations of this program. */
static MPI_Op commuting, ordered;

static void take_last(void *in, void *inout, int *n, MPI_Datatype *type) {
    (void)in, (void)inout, (void)n, (void)type;
}

static aj_tensor *take_last_vjp(aj_ctx *c, aj_tensor *prefix, aj_tensor *x, aj_tensor *suffix, aj_tensor *y, aj_tensor *g,
                                void *user) {
    (void)c, (void)prefix, (void)x, (void)y, (void)user;
    return suffix ? aj_scale(g, 0) : g;
}

static aj_tensor *run_allreduce_commuting(aj_tensor *x) {
    return aj_allreduce(x, commuting, world);
}

static aj_tensor *run_reduce_commuting(aj_tensor *x) {
    return aj_reduce(x, commuting, 0, world);
}

static aj_tensor *run_scan_ordered(aj_tensor *x) {
    return aj_scan(x, ordered, world);
}

static aj_tensor *run_allreduce_ordered(aj_tensor *x) {
    return aj_allreduce(x, ordered, world);
}

static aj_tensor *run_sendrecv(aj_tensor *x) {
    int left = left_of(rank_id, rank_count), right = right_of(rank_id, rank_count);
    return aj_sendrecv(x, right, 0, aj_zeros(ctx, AJ_F64, AJ_SHAPE(4)), left, 0, world);
}

typedef struct expectation {
    const char *name;
    aj_tensor *(*run)(aj_tensor *x);
    int forward[N_SORTS], backward[N_SORTS];
} expectation;

static const expectation expectations[] = {
    {"allreduce", run_allreduce, {[ALLREDUCE] = 1}, {[ALLREDUCE] = 1}},
    {"bcast", run_bcast, {[BCAST] = 1}, {[REDUCE] = 1}},
    {"bcast_inplace", run_bcast_inplace, {[BCAST] = 1}, {[REDUCE] = 1}},
    {"reduce", run_reduce, {[REDUCE] = 1}, {[BCAST] = 1}},
    {"reduce_inplace", run_reduce_inplace, {[REDUCE] = 1}, {[BCAST] = 1}},
    {"shared", run_shared, {0}, {[ALLREDUCE] = 1}},
    {"barrier", run_barrier, {[BARRIER] = 1}, {[BARRIER] = 1}},
    {"send and recv", run_send_recv, {[SEND] = 1, [RECEIVE] = 1}, {[SEND] = 1, [RECEIVE] = 1}},
    {"gather", run_gather, {[ALLGATHER] = 1, [GATHERV] = 1}, {[SCATTERV] = 1}},
    {"allgather", run_allgather, {[ALLGATHER] = 1, [ALLGATHERV] = 1}, {[REDUCE_SCATTER] = 1}},
    {"scatter", run_scatter, {[ALLGATHER] = 1, [SCATTERV] = 1}, {[GATHERV] = 1}},
    {"alltoall", run_alltoall, {[ALLGATHER] = 1, [ALLTOALLV] = 1}, {[ALLTOALLV] = 1}},
    {"alltoall with equal axes", run_alltoall_equal_axes, {[ALLGATHER] = 1, [ALLTOALLV] = 1}, {[ALLTOALLV] = 1}},
    {"reduce_scatter", run_reduce_scatter, {[ALLGATHER] = 1, [REDUCE_SCATTER] = 1}, {[ALLGATHERV] = 1}},
    {"allgather of equal parts", run_equal_allgather, {[ALLGATHER] = 2}, {[REDUCE_SCATTER] = 1}},
    {"alltoall of equal parts", run_equal_alltoall, {[ALLGATHER] = 1, [ALLTOALL] = 1}, {[ALLTOALL] = 1}},
    {"reduce_scatter of equal parts", run_equal_reduce_scatter, {[ALLGATHER] = 1, [REDUCE_SCATTER] = 1}, {[ALLGATHER] = 1}},
    {"scan", run_scan, {[SCAN] = 1}, {[SCAN] = 1}},
    {"exscan", run_exscan, {[EXSCAN] = 1}, {[EXSCAN] = 1}},
    {"allreduce of products", run_allreduce_prod, {[ALLREDUCE] = 1}, {[ALLREDUCE] = 1}},
    {"allreduce of maxima", run_allreduce_max, {[ALLREDUCE] = 1}, {[ALLREDUCE] = 1}},
    {"reduce of products", run_reduce_prod, {[REDUCE] = 1}, {[BCAST] = 1}},
    {"reduce_inplace of minima", run_reduce_inplace_min, {[REDUCE] = 1}, {[BCAST] = 1}},
    {"reduce_scatter of products", run_reduce_scatter_prod, {[ALLGATHER] = 1, [REDUCE_SCATTER] = 1}, {[ALLGATHERV] = 1}},
    {"scan of products", run_scan_prod, {[EXSCAN] = 1}, {[EXSCAN] = 1}},
    {"exscan of maxima", run_exscan_max, {[EXSCAN] = 1}, {[EXSCAN] = 1}},
    {"allreduce by a registered operation", run_allreduce_commuting, {[ALLREDUCE] = 1}, {[ALLREDUCE] = 1}},
    {"reduce by a registered operation", run_reduce_commuting, {[REDUCE] = 1}, {[BCAST] = 1}},
    {"scan by one that does not commute", run_scan_ordered, {[EXSCAN] = 1}, {[EXSCAN] = 1}},
    {"allreduce by one that does not commute", run_allreduce_ordered, {[ALLREDUCE] = 1}, {[ALLREDUCE] = 1, [EXSCAN] = 2}},
    {"sendrecv", run_sendrecv, {[SEND] = 1, [RECEIVE] = 1}, {[SEND] = 1, [RECEIVE] = 1}},
    {"isend and irecv", run_isend_irecv, {[SEND] = 1, [RECEIVE] = 1}, {[SEND] = 1, [RECEIVE] = 1}}};

static void check_counts(const char *name, const char *phase, const int *wanted) {
    for (int k = 0; k < N_SORTS; k++)
        CHECK_MSG(made[k] == wanted[k], "%s %s: %d times %s, expected %d", name, phase, made[k], sort_names[k], wanted[k]);
}

/* Comparing what the ranks call takes messages of its own. */
static void open_unchecked(void) {
    setenv("ADJOIN_CHECK", "0", 1);
    open_world();
}

/* The first time, and once all is set up; with the gradient wanted and without. One rank alone may do without MPI. */
static void counts(void) {
    open_unchecked();
    MPI_Op_create(take_last, 1, &commuting);
    MPI_Op_create(take_last, 0, &ordered);
    CHECK_INT(aj_op_register(ctx, commuting, "commuting", true, take_last_vjp, NULL), AJ_OK);
    CHECK_INT(aj_op_register(ctx, ordered, "ordered", false, take_last_vjp, NULL), AJ_OK);
    aj_tensor *a = vector_param(ctx, 4, 1), *constant = vector(ctx, 4, 2, rank_id);
    for (int k = 0; rank_count > 1 && k < (int)(sizeof expectations / sizeof expectations[0]); k++)
        for (int pass = 0; pass < 3; pass++) {
            const expectation *e = &expectations[k];
            CHECK_INT(aj_record_begin(ctx), AJ_OK);
            aj_tensor *x = aj_scale(pass == 2 ? constant : a, 1);
            memset(made, 0, sizeof made);
            aj_tensor *y = e->run(x);
            check_counts(e->name, "forward", e->forward);
            memset(made, 0, sizeof made);
            CHECK_INT(aj_backward(ctx, y, NULL), AJ_OK);
            check_counts(e->name, "backward", e->backward);
        }
    aj_release(&a);
    close_world();
    MPI_Op_free(&commuting);
    MPI_Op_free(&ordered);
}

/* Without a recording, and for integers inside one, the adjoint has nothing to do. */
static void unrecorded(void) {
    static const int nothing[N_SORTS] = {0};
    open_unchecked();
    aj_tensor *whole = aj_ones(ctx, AJ_I64, AJ_SHAPE(4)), *a = vector_param(ctx, 4, 1);
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    aj_allreduce(whole, MPI_SUM, world);
    aj_send(whole, right_of(rank_id, rank_count), 0, world);
    aj_recv(whole, left_of(rank_id, rank_count), 0, world);
    aj_allgather(whole, 0, world);
    aj_scan(whole, MPI_SUM, world);
    CHECK_INT(aj_no_grad_begin(ctx), AJ_OK);
    aj_allreduce(a, MPI_SUM, world);
    CHECK_INT(aj_no_grad_end(ctx), AJ_OK);
    memset(made, 0, sizeof made);
    CHECK_INT(aj_backward(ctx, aj_sum(aj_square(a)), NULL), AJ_OK);
    check_counts("integers and no-grad", "backward", nothing);
    aj_release(&a);
    close_world();
}

/* A halo exchange makes one message to and one from each neighbour on each axis with ghosts; its adjoint, and that one's, as many. */
static void check_halo(int d, int periods, bool inplace) {
    int dims[3] = {0}, periodic[3], axes[] = {-1, 0, 1}, messages = 0;
    int64_t width[] = {1, 0, 2}, shape[] = {3, 6, 4};
    for (int i = 0; i < 3; i++)
        periodic[i] = periods >> i & 1;
    if (d == 1)
        axes[0] = 1;
    MPI_Dims_create(rank_count, d, dims);
    MPI_Comm cart;
    MPI_Cart_create(MPI_COMM_WORLD, d, dims, periodic, 0, &cart);
    for (int i = 0; i < d; i++) {
        int low, high;
        MPI_Cart_shift(cart, i, 1, &low, &high);
        messages += width[i] > 0 ? (low != MPI_PROC_NULL) + (high != MPI_PROC_NULL) : 0;
    }
    aj_comm *comm = aj_comm_create(ctx, cart);
    MPI_Comm_free(&cart);
    const int wanted[N_SORTS] = {[SEND] = messages, [RECEIVE] = messages},
              twice[N_SORTS] = {[SEND] = 2 * messages, [RECEIVE] = 2 * messages};
    aj_tensor *a = aj_param(random_tensor(ctx, AJ_F64, 3, shape, 3, rank_id));
    for (int pass = 0; pass < 2; pass++) {
        CHECK_INT(aj_record_begin(ctx), AJ_OK);
        memset(made, 0, sizeof made);
        aj_tensor *y = inplace ? aj_halo_inplace(aj_scale(a, 1), d, axes, width, comm) : aj_halo(a, d, axes, width, comm), *g;
        check_counts("halo", "forward", wanted);
        memset(made, 0, sizeof made);
        CHECK_INT(aj_grad_of(ctx, 1, &y, NULL, 1, &a, &g, AJ_CREATE_GRAPH), AJ_OK);
        check_counts("halo", "adjoint", wanted);
        memset(made, 0, sizeof made);
        CHECK_INT(aj_backward(ctx, g, NULL), AJ_OK);
        check_counts("halo and its adjoint", "backward", twice);
    }
    aj_release(&a);
    aj_comm_destroy(&comm);
}

static void halo(void) {
    open_unchecked();
    for (int d = 1; d <= 3; d++)
        for (int periods = 0; periods < 1 << d; periods++)
            check_halo(d, periods, periods % 2);
    close_world();
}

/* As if MPI could not say more than three elements: ten go in four calls, messages as one of a datatype that is made for them. */
static void pieces(void) {
    static const struct {
        aj_tensor *(*run)(aj_tensor *);
        sort forward, backward;
        int calls;
    } programs[] = {{run_allreduce, ALLREDUCE, ALLREDUCE, 4}, {run_bcast, BCAST, REDUCE, 4},
                    {run_reduce, REDUCE, BCAST, 4},           {run_scan, SCAN, SCAN, 4},
                    {run_send_recv, SEND, RECEIVE, 1},        {run_isend_irecv, RECEIVE, SEND, 1}};
    setenv("ADJOIN_MAX_COUNT", "3", 1);
    open_unchecked();
    aj_tensor *a = vector_param(ctx, 10, 1);
    for (int k = 0; rank_count > 1 && k < (int)(sizeof programs / sizeof *programs); k++) {
        CHECK_INT(aj_record_begin(ctx), AJ_OK);
        memset(made, 0, sizeof made);
        aj_tensor *y = programs[k].run(a);
        CHECK_INT(made[programs[k].forward], programs[k].calls);
        memset(made, 0, sizeof made);
        CHECK_INT(aj_backward(ctx, y, NULL), AJ_OK);
        CHECK_INT(made[programs[k].backward], programs[k].calls);
    }
    aj_release(&a);
    close_world();
    unsetenv("ADJOIN_MAX_COUNT");
}

RANK_MAIN({"counts", counts}, {"pieces", pieces}, {"unrecorded", unrecorded}, {"halo", halo})
