/* y = the x of all ranks one after the other, n numbers of each; its adjoint is a reduce_scatter. */
#include "bench.h"

static const char *setup(bench *b) {
    return bench_arrays(b, AJ_SHAPE(b->n), AJ_SHAPE((int64_t)b->n * b->size), 0);
}

static void raw(bench *b) {
    MPI_Allgather(b->x, b->n, MPI_DOUBLE, b->y, b->n, MPI_DOUBLE, b->mpi);
    MPI_Reduce_scatter_block(b->seed, b->gx, b->n, MPI_DOUBLE, MPI_SUM, b->mpi);
    bench_result(b, "y", b->y, b->n_y);
    bench_result(b, "gx", b->gx, b->n_x);
}

static void adjoin(bench *b) {
    aj_scope *scope = aj_scope_begin(b->ctx);
    aj_record_begin(b->ctx);
    bench_backward(b, aj_allgather(b->param, 0, b->comm));
    bench_scope_end(scope);
}

const bench_case allgather_case = {"allgather", "allgather, and its adjoint, a reduce_scatter", 1000, setup, NULL, raw, adjoin};
