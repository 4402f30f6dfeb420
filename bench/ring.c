/*
 * Every rank sends x to the right and receives r from the left, with nonblocking messages; y = x + r. The adjoint sends the seed to the left, and
 * gx = seed + what comes from the right.
 */
#include "bench.h"

enum { TAG = 7 };

static const char *setup(bench *b) {
    b->state = aj_keep(aj_zeros(b->ctx, AJ_F64, AJ_SHAPE(b->n))); /* what the receive starts from */
    return bench_arrays(b, AJ_SHAPE(b->n), AJ_SHAPE(b->n), b->n);
}

static void teardown(bench *b) {
    aj_tensor *zeros = b->state;
    aj_release(&zeros);
}

static void exchange(bench *b, const double *out, double *in, int dest, int source) {
    MPI_Request requests[2];
    MPI_Status statuses[2];
    MPI_Irecv(in, b->n, MPI_DOUBLE, source, TAG, b->mpi, &requests[0]);
    MPI_Isend(out, b->n, MPI_DOUBLE, dest, TAG, b->mpi, &requests[1]);
    MPI_Waitall(2, requests, statuses);
}

BENCH_VECTORISED static void add(const double *restrict a, const double *restrict b, double *restrict sum, int n) {
    for (int i = 0; i < n; i++)
        sum[i] = a[i] + b[i];
}

static void raw(bench *b) {
    int right = (b->rank + 1) % b->size, left = (b->rank + b->size - 1) % b->size;
    exchange(b, b->x, b->work, right, left);
    add(b->x, b->work, b->y, b->n);
    exchange(b, b->seed, b->work, left, right);
    add(b->seed, b->work, b->gx, b->n);
    bench_result(b, "y", b->y, b->n);
    bench_result(b, "gx", b->gx, b->n);
}

static void adjoin(bench *b) {
    int right = (b->rank + 1) % b->size, left = (b->rank + b->size - 1) % b->size;
    aj_scope *scope = aj_scope_begin(b->ctx);
    aj_record_begin(b->ctx);
    aj_request *receive = aj_irecv(b->state, left, TAG, b->comm);
    aj_request *send = aj_isend(b->param, right, TAG, b->comm);
    aj_tensor *received = aj_wait(receive);
    aj_tensor *sent = aj_wait(send);
    bench_backward(b, aj_add(sent, received));
    bench_scope_end(scope);
}

const bench_case ring_case = {"ring", "isend and irecv around a ring, forward and backward", 1000, setup, teardown, raw, adjoin};
