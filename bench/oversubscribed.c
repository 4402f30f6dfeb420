/*
 * Eight bytes summed over the ranks. With more ranks than cores MPI's blocking call spins on the core that the others need; the library yields.
 */
#include "bench.h"

static const char *setup(bench *b) {
    return bench_arrays(b, AJ_SHAPE(b->n), AJ_SHAPE(b->n), 0);
}

static void raw(bench *b) {
    MPI_Allreduce(b->x, b->y, b->n, MPI_DOUBLE, MPI_SUM, b->mpi);
    bench_result(b, "y", b->y, b->n);
}

static void outside(bench *b) {
    aj_scope *scope = aj_scope_begin(b->ctx);
    bench_result_tensor(b, "y", aj_allreduce(b->param, MPI_SUM, b->comm));
    bench_scope_end(scope);
}

static void recorded(bench *b) {
    aj_scope *scope = aj_scope_begin(b->ctx);
    aj_record_begin(b->ctx);
    bench_result_tensor(b, "y", aj_allreduce(b->param, MPI_SUM, b->comm));
    aj_record_end(b->ctx);
    bench_scope_end(scope);
}

const bench_case oversubscribed_case = {
    "oversubscribed", "aj_allreduce of a number against MPI_Allreduce, forward", 1, setup, NULL, raw, outside};
const bench_case oversubscribed_recorded_case = {
    "oversubscribed-recorded", "the same, each call in a recording that is dropped", 1, setup, NULL, raw, recorded};
