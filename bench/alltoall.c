/*
 * x has a row for each rank; y is what the ranks have in this rank's row, one after the other: MPI_Alltoall. Its adjoint is another. n numbers in all,
 * rounded up to a multiple of the ranks.
 */
#include "bench.h"

static int per_rank(const bench *b) {
    return (b->n + b->size - 1) / b->size;
}

static const char *setup(bench *b) {
    int64_t m = per_rank(b);
    return bench_arrays(b, AJ_SHAPE(b->size, m), AJ_SHAPE(1, m * b->size), 0);
}

static void raw(bench *b) {
    int m = per_rank(b);
    MPI_Alltoall(b->x, m, MPI_DOUBLE, b->y, m, MPI_DOUBLE, b->mpi);
    MPI_Alltoall(b->seed, m, MPI_DOUBLE, b->gx, m, MPI_DOUBLE, b->mpi);
    bench_result(b, "y", b->y, b->n_y);
    bench_result(b, "gx", b->gx, b->n_x);
}

static void adjoin(bench *b) {
    aj_scope *scope = aj_scope_begin(b->ctx);
    aj_record_begin(b->ctx);
    bench_backward(b, aj_alltoall(b->param, 1, 0, 1, b->comm));
    bench_scope_end(scope);
}

const bench_case alltoall_case = {"alltoall", "alltoall, forward and backward", 1000, setup, NULL, raw, adjoin};
