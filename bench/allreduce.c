/* y = sum over ranks of x, and its adjoint: the sum over ranks of the seeds. */
#include "bench.h"

static const char *setup(bench *b) {
    return bench_arrays(b, AJ_SHAPE(b->n), AJ_SHAPE(b->n), 0);
}

static void raw(bench *b) {
    MPI_Allreduce(b->x, b->y, b->n, MPI_DOUBLE, MPI_SUM, b->mpi);
    MPI_Allreduce(b->seed, b->gx, b->n, MPI_DOUBLE, MPI_SUM, b->mpi);
    bench_result(b, "y", b->y, b->n);
    bench_result(b, "gx", b->gx, b->n);
}

static void adjoin(bench *b) {
    aj_scope *scope = aj_scope_begin(b->ctx);
    aj_record_begin(b->ctx);
    bench_backward(b, aj_allreduce(b->param, MPI_SUM, b->comm));
    bench_scope_end(scope);
}

const bench_case allreduce_case = {"allreduce", "allreduce, forward and backward", 1000, setup, NULL, raw, adjoin};
