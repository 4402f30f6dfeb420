/* y = x of rank 0, and its adjoint: on rank 0 the sum over ranks of the seeds, zeros elsewhere. */
#include <string.h>

#include "bench.h"

static const char *setup(bench *b) {
    return bench_arrays(b, AJ_SHAPE(b->n), AJ_SHAPE(b->n), 0);
}

static void raw(bench *b) {
    double *y = b->rank == 0 ? (double *)b->x : b->y; /* x is y already on rank 0 */
    MPI_Bcast(y, b->n, MPI_DOUBLE, 0, b->mpi);
    MPI_Reduce(b->seed, b->gx, b->n, MPI_DOUBLE, MPI_SUM, 0, b->mpi);
    if (b->rank != 0)
        memset(b->gx, 0, (size_t)b->n * sizeof *b->gx);
    bench_result(b, "y", y, b->n);
    bench_result(b, "gx", b->gx, b->n);
}

static void adjoin(bench *b) {
    aj_scope *scope = aj_scope_begin(b->ctx);
    aj_record_begin(b->ctx);
    bench_backward(b, aj_bcast(b->param, 0, b->comm));
    bench_scope_end(scope);
}

const bench_case bcast_case = {"bcast", "bcast, and its adjoint, a reduce", 1000, setup, NULL, raw, adjoin};
