/* The arrays of the cases y = f(x), and what else the library's sides of the cases share. */
#include <stdlib.h>
#include <string.h>

#include "bench.h"

const char *const bench_no_memory = "not enough memory: give a smaller --n";

enum { ALIGNMENT = 64 };

double *bench_zeros(int64_t n) {
    size_t bytes = ((size_t)n * sizeof(double) / ALIGNMENT + 1) * ALIGNMENT;
    double *zeros = aligned_alloc(ALIGNMENT, bytes);
    return zeros ? memset(zeros, 0, bytes) : NULL;
}

static int64_t product(int n, const int64_t *factors) {
    int64_t p = 1;
    for (int i = 0; i < n; i++)
        p *= factors[i];
    return p;
}

/* shift, shift + 1/8, and so on, `period` of them again and again. */
static double *pattern(int64_t n, double shift, int period) {
    double *values = bench_zeros(n);
    for (int64_t i = 0; values && i < n; i++)
        values[i] = shift + (double)(i % period) / 8;
    return values;
}

const char *bench_arrays(bench *b, int x_ndim, const int64_t *x_shape, int y_ndim, const int64_t *y_shape, int64_t n_work) {
    double shift = 0.0625 * b->rank / b->size;
    b->n_x = product(x_ndim, x_shape);
    b->n_y = product(y_ndim, y_shape);
    b->x = b->given[0] = pattern(b->n_x, 1 + shift, 7);
    b->seed = b->given[1] = pattern(b->n_y, 2 + shift, 5);
    b->y = bench_zeros(b->n_y);
    b->gx = bench_zeros(b->n_x);
    b->work = bench_zeros(n_work);
    if (!b->x || !b->seed || !b->y || !b->gx || !b->work)
        return bench_no_memory;
    b->param = aj_param(aj_from_data(b->ctx, AJ_F64, x_ndim, x_shape, b->x));
    b->seeds = aj_from_data(b->ctx, AJ_F64, y_ndim, y_shape, b->seed);
    return NULL;
}

void bench_free_arrays(bench *b) {
    aj_release(&b->seeds);
    aj_release(&b->param);
    free(b->work);
    free(b->gx);
    free(b->y);
    free(b->given[1]);
    free(b->given[0]);
}

void bench_scope_end(aj_scope *scope) {
    aj_status status = aj_scope_end(scope);
    (void)status;
}

void bench_backward(bench *b, aj_tensor *y) {
    aj_zero_grad(b->param);
    aj_backward(b->ctx, y, b->seeds);
    bench_result_tensor(b, "y", y);
    bench_result_tensor(b, "gx", aj_grad(b->param));
}
