/*
 * Every rank sends x to the right and receives r from the left, with nonblocking messages; y = x + r. The adjoint sends the seed to the left, and
 * gx = seed + what comes from the right.
 */
#include "bench.h"

enum { TAG = 7 };

static void exchange(bench *b, const double *out, double *in, int dest, int source) {
    MPI_Request requests[2];
    MPI_Status statuses[2];
    MPI_Irecv(in, b->n, MPI_DOUBLE, source, TAG, b->mpi, &requests[0]);
    MPI_Isend(out, b->n, MPI_DOUBLE, dest, TAG, b->mpi, &requests[1]);
    MPI_Waitall(2, requests, statuses);
}

static void raw(bench *b, double *sum) {
    int right = (b->rank + 1) % b->size, left = (b->rank + b->size - 1) % b->size;
    exchange(b, b->x, b->work, right, left);
    for (int i = 0; i < b->n; i++)
        b->y[i] = b->x[i] + b->work[i];
    exchange(b, b->seed, b->work, left, right);
    for (int i = 0; i < b->n; i++)
        b->gx[i] = b->seed[i] + b->work[i];
    if (sum)
        *sum = bench_sum(b->y, b->n) + bench_sum(b->gx, b->n);
}

static void adjoin(bench *b, double *sum) {
    int right = (b->rank + 1) % b->size, left = (b->rank + b->size - 1) % b->size;
    aj_scope *scope = aj_scope_begin(b->ctx);
    aj_record_begin(b->ctx);
    aj_request *receive = aj_irecv(b->zeros, left, TAG, b->comm);
    aj_request *send = aj_isend(b->param, right, TAG, b->comm);
    aj_tensor *received = aj_wait(receive);
    aj_tensor *sent = aj_wait(send);
    bench_backward(b, aj_add(sent, received), sum);
    bench_scope_end(scope);
}

const bench_case ring_case = {"ring", "isend and irecv around a ring, forward and backward", 1000, 1, raw, adjoin};
