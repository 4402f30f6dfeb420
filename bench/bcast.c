/* y = x of rank 0, and its adjoint: on rank 0 the sum over ranks of the seeds, zeros elsewhere. */
#include <string.h>

#include "bench.h"

static void raw(bench *b, double *sum) {
    memcpy(b->y, b->x, (size_t)b->n * sizeof *b->y);
    MPI_Bcast(b->y, b->n, MPI_DOUBLE, 0, b->mpi);
    MPI_Reduce(b->seed, b->gx, b->n, MPI_DOUBLE, MPI_SUM, 0, b->mpi);
    if (b->rank != 0)
        memset(b->gx, 0, (size_t)b->n * sizeof *b->gx);
    if (sum)
        *sum = bench_sum(b->y, b->n) + bench_sum(b->gx, b->n);
}

static void adjoin(bench *b, double *sum) {
    aj_scope *scope = aj_scope_begin(b->ctx);
    aj_record_begin(b->ctx);
    bench_backward(b, aj_bcast(b->param, 0, b->comm), sum);
    bench_scope_end(scope);
}

const bench_case bcast_case = {"bcast", "bcast, and its adjoint, a reduce", 1000, 0, raw, adjoin};
