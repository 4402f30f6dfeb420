/* y = sum over ranks of x, and its adjoint: the sum over ranks of the seeds. */
#include "bench.h"

static void raw(bench *b, double *sum) {
    MPI_Allreduce(b->x, b->y, b->n, MPI_DOUBLE, MPI_SUM, b->mpi);
    MPI_Allreduce(b->seed, b->gx, b->n, MPI_DOUBLE, MPI_SUM, b->mpi);
    if (sum)
        *sum = bench_sum(b->y, b->n) + bench_sum(b->gx, b->n);
}

static void adjoin(bench *b, double *sum) {
    aj_scope *scope = aj_scope_begin(b->ctx);
    aj_record_begin(b->ctx);
    bench_backward(b, aj_allreduce(b->param, MPI_SUM, b->comm), sum);
    bench_scope_end(scope);
}

const bench_case allreduce_case = {"allreduce", "allreduce, forward and backward", 1000, 0, raw, adjoin};
