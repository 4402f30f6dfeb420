/* x is replaced by 1 / x a thousand times; y is the result. Against a loop that keeps every value for the way back. */
#include "bench.h"

enum { LENGTH = 1000 };

/* One operation after the other over all entries. */
static void raw(bench *b, double *sum) {
    const double *x = b->x;
    for (int k = 0; k < LENGTH; k++) {
        double *y = b->work + (size_t)k * (size_t)b->n;
        for (int i = 0; i < b->n; i++)
            y[i] = 1 / x[i];
        x = y;
    }
    for (int i = 0; i < b->n; i++)
        b->gx[i] = b->seed[i];
    for (int k = LENGTH - 1; k >= 0; k--) {
        const double *y = b->work + (size_t)k * (size_t)b->n;
        for (int i = 0; i < b->n; i++)
            b->gx[i] *= -y[i] * y[i];
    }
    if (sum)
        *sum = bench_sum(x, b->n) + bench_sum(b->gx, b->n);
}

static void adjoin(bench *b, double *sum) {
    aj_scope *scope = aj_scope_begin(b->ctx);
    aj_record_begin(b->ctx);
    aj_tensor *y = b->param;
    for (int k = 0; k < LENGTH; k++)
        y = aj_reciprocal(y);
    bench_backward(b, y, sum);
    bench_scope_end(scope);
}

const bench_case chain_case = {
    "chain", "1000 operations on a tensor of n numbers, forward and backward, no communication", 1, LENGTH, raw, adjoin};
