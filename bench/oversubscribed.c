/*
 * Eight bytes summed over the ranks. With more ranks than cores MPI's blocking call spins on the core that the others need; the library yields.
 */
#include "bench.h"

static void raw(bench *b, double *sum) {
    MPI_Allreduce(b->x, b->y, b->n, MPI_DOUBLE, MPI_SUM, b->mpi);
    if (sum)
        *sum = bench_sum(b->y, b->n);
}

static void outside(bench *b, double *sum) {
    aj_scope *scope = aj_scope_begin(b->ctx);
    aj_tensor *y = aj_allreduce(b->param, MPI_SUM, b->comm);
    if (sum)
        *sum = bench_sum_tensor(y);
    bench_scope_end(scope);
}

static void recorded(bench *b, double *sum) {
    aj_scope *scope = aj_scope_begin(b->ctx);
    aj_record_begin(b->ctx);
    aj_tensor *y = aj_allreduce(b->param, MPI_SUM, b->comm);
    if (sum)
        *sum = bench_sum_tensor(y);
    aj_record_end(b->ctx);
    bench_scope_end(scope);
}

const bench_case oversubscribed_case = {"oversubscribed", "aj_allreduce of a number against MPI_Allreduce, forward", 1, 0, raw,
                                        outside};
const bench_case oversubscribed_recorded_case = {
    "oversubscribed-recorded", "the same, each call in a recording that is dropped", 1, 0, raw, recorded};
