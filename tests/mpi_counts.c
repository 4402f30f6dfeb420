/*
 * How much is communicated: each call makes one collective or one message, and its adjoint makes one of the kind that its formula names. Counted by
 * MPI's profiling interface: the calls that the library makes pass through here.
 */
#include "mpi_common.h"

typedef enum sort { ALLREDUCE, BCAST, REDUCE, BARRIER, SEND, RECEIVE, OTHER, N_SORTS } sort;
static const char *const sort_names[] = {"allreduce", "bcast", "reduce", "barrier", "send", "receive", "other collective"};
static int made[N_SORTS];

#define COUNT(sort, name, parameters, arguments)                                                                                 \
    int MPI_##name parameters {                                                                                                  \
        made[sort]++;                                                                                                            \
        return PMPI_##name arguments;                                                                                            \
    }

COUNT(ALLREDUCE, Allreduce, (const void *s, void *r, int n, MPI_Datatype t, MPI_Op op, MPI_Comm c), (s, r, n, t, op, c))
COUNT(ALLREDUCE, Allreduce_c, (const void *s, void *r, MPI_Count n, MPI_Datatype t, MPI_Op op, MPI_Comm c), (s, r, n, t, op, c))
COUNT(ALLREDUCE, Iallreduce, (const void *s, void *r, int n, MPI_Datatype t, MPI_Op op, MPI_Comm c, MPI_Request *q),
      (s, r, n, t, op, c, q))
COUNT(ALLREDUCE, Iallreduce_c, (const void *s, void *r, MPI_Count n, MPI_Datatype t, MPI_Op op, MPI_Comm c, MPI_Request *q),
      (s, r, n, t, op, c, q))
COUNT(BCAST, Bcast, (void *b, int n, MPI_Datatype t, int root, MPI_Comm c), (b, n, t, root, c))
COUNT(BCAST, Bcast_c, (void *b, MPI_Count n, MPI_Datatype t, int root, MPI_Comm c), (b, n, t, root, c))
COUNT(BCAST, Ibcast, (void *b, int n, MPI_Datatype t, int root, MPI_Comm c, MPI_Request *q), (b, n, t, root, c, q))
COUNT(BCAST, Ibcast_c, (void *b, MPI_Count n, MPI_Datatype t, int root, MPI_Comm c, MPI_Request *q), (b, n, t, root, c, q))
COUNT(REDUCE, Reduce, (const void *s, void *r, int n, MPI_Datatype t, MPI_Op op, int root, MPI_Comm c), (s, r, n, t, op, root, c))
COUNT(REDUCE, Reduce_c, (const void *s, void *r, MPI_Count n, MPI_Datatype t, MPI_Op op, int root, MPI_Comm c),
      (s, r, n, t, op, root, c))
COUNT(REDUCE, Ireduce, (const void *s, void *r, int n, MPI_Datatype t, MPI_Op op, int root, MPI_Comm c, MPI_Request *q),
      (s, r, n, t, op, root, c, q))
COUNT(REDUCE, Ireduce_c, (const void *s, void *r, MPI_Count n, MPI_Datatype t, MPI_Op op, int root, MPI_Comm c, MPI_Request *q),
      (s, r, n, t, op, root, c, q))
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
COUNT(OTHER, Allgather, (const void *s, int n, MPI_Datatype t, void *r, int k, MPI_Datatype u, MPI_Comm c), (s, n, t, r, k, u, c))
COUNT(OTHER, Iallgather, (const void *s, int n, MPI_Datatype t, void *r, int k, MPI_Datatype u, MPI_Comm c, MPI_Request *q),
      (s, n, t, r, k, u, c, q))

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
    return aj_recv(aj_zeros(ctx, AJ_F64, AJ_SHAPE(4)), left_of(rank_id, rank_count), 0, world);
}

static aj_tensor *run_isend_irecv(aj_tensor *x) {
    aj_request *in = aj_irecv(aj_zeros(ctx, AJ_F64, AJ_SHAPE(4)), left_of(rank_id, rank_count), 0, world);
    aj_request *out = aj_isend(x, right_of(rank_id, rank_count), 0, world);
    aj_tensor *dummy = aj_request_dummy(in), *got = aj_wait(aj_request_join_dummies(in, 1, &dummy));
    return aj_add(got, aj_wait(out));
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
    {"isend and irecv", run_isend_irecv, {[SEND] = 1, [RECEIVE] = 1}, {[SEND] = 1, [RECEIVE] = 1}}};

static void check_counts(const char *name, const char *phase, const int *wanted) {
    for (int k = 0; k < N_SORTS; k++)
        CHECK_MSG(made[k] == wanted[k], "%s %s: %d times %s, expected %d", name, phase, made[k], sort_names[k], wanted[k]);
}

/* The first time, and once all is set up; with the gradient wanted and without. One rank alone may do without MPI. */
static void counts(void) {
    open_world();
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
}

/* Without a recording, and for integers inside one, the adjoint has nothing to do. */
static void unrecorded(void) {
    static const int nothing[N_SORTS] = {0};
    open_world();
    aj_tensor *whole = aj_ones(ctx, AJ_I64, AJ_SHAPE(4)), *a = vector_param(ctx, 4, 1);
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    aj_allreduce(whole, MPI_SUM, world);
    aj_send(whole, right_of(rank_id, rank_count), 0, world);
    aj_recv(whole, left_of(rank_id, rank_count), 0, world);
    CHECK_INT(aj_no_grad_begin(ctx), AJ_OK);
    aj_allreduce(a, MPI_SUM, world);
    CHECK_INT(aj_no_grad_end(ctx), AJ_OK);
    memset(made, 0, sizeof made);
    CHECK_INT(aj_backward(ctx, aj_sum(aj_square(a)), NULL), AJ_OK);
    check_counts("integers and no-grad", "backward", nothing);
    aj_release(&a);
    close_world();
}

RANK_MAIN({"counts", counts}, {"unrecorded", unrecorded})
