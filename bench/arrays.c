/* The arrays of the cases y = f(x), and what else the library's sides of the cases share. */
#include <stdlib.h>

#include "bench.h"

const char *const bench_no_memory = "not enough memory: give a smaller --n";

static int64_t product(int n, const int64_t *factors) {
    int64_t p = 1;
    for (int i = 0; i < n; i++)
        p *= factors[i];
    return p;
}

const char *bench_arrays(bench *b, int x_ndim, const int64_t *x_shape, int y_ndim, const int64_t *y_shape, int64_t n_work) {
    b->n_x = product(x_ndim, x_shape);
    b->n_y = product(y_ndim, y_shape);
    double *next = b->memory = calloc((size_t)(2 * b->n_x + 2 * b->n_y + n_work), sizeof *next);
    if (!next)
        return bench_no_memory;
    double *x = next, *seed = next += b->n_x;
    b->y = next += b->n_y;
    b->gx = next += b->n_y;
    b->work = next + b->n_x;
    b->x = x;
    b->seed = seed;
    double shift = 0.5 * b->rank / b->size;
    for (int64_t i = 0; i < b->n_x; i++)
        x[i] = 1 + ((double)(i % 7) + shift) / 8;
    for (int64_t i = 0; i < b->n_y; i++)
        seed[i] = 2 + ((double)(i % 5) + shift) / 8;
    b->param = aj_param(aj_from_data(b->ctx, AJ_F64, x_ndim, x_shape, x));
    b->seeds = aj_from_data(b->ctx, AJ_F64, y_ndim, y_shape, seed);
    return NULL;
}

void bench_free_arrays(bench *b) {
    aj_release(&b->seeds);
    aj_release(&b->param);
    free(b->memory);
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
