/*
 * loss = sum of tanh(x/2 + 0.1) x - x^2/4 + 1, and its gradient. By hand two passes over memory: the forward keeps t = tanh(x/2 + 0.1), which takes less
 * time than to compute it once more, and the gradient is s (t + x (1 - t^2)/2 - x/2) for the seed s of the loss.
 */
#include <math.h>

#include "bench.h"

static const char *setup(bench *b) {
    return bench_arrays(b, AJ_SHAPE(b->n), AJ_SHAPE0, b->n);
}

BENCH_VECTORISED static double forward(const double *restrict x, double *restrict t, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) {
        t[i] = tanh(0.5 * x[i] + 0.1);
        sum += t[i] * x[i] - 0.25 * x[i] * x[i] + 1;
    }
    return sum;
}

BENCH_VECTORISED static void backward(const double *restrict x, const double *restrict t, double seed, double *restrict gx,
                                      int n) {
    for (int i = 0; i < n; i++)
        gx[i] = seed * (t[i] + 0.5 * x[i] * (1 - t[i] * t[i]) - 0.5 * x[i]);
}

static void raw(bench *b) {
    double loss = forward(b->x, b->work, b->n);
    backward(b->x, b->work, b->seed[0], b->gx, b->n);
    bench_result(b, "y", &loss, 1);
    bench_result(b, "gx", b->gx, b->n);
}

static aj_tensor *formula(aj_tensor *x) {
    aj_tensor *t = aj_tanh(aj_add_scalar(aj_scale(x, 0.5), 0.1));
    aj_tensor *y = aj_add_scalar(aj_sub(aj_mul(t, x), aj_scale(aj_square(x), 0.25)), 1);
    return aj_sum(y);
}

static void adjoin(bench *b) {
    aj_scope *scope = aj_scope_begin(b->ctx);
    aj_record_begin(b->ctx);
    bench_backward(b, formula(b->param));
    bench_scope_end(scope);
}

const bench_case elementwise_case = {
    "elementwise", "sum of tanh(x/2 + 0.1) x - x^2/4 + 1 over n numbers, and its gradient", 1 << 20, setup, NULL, raw, adjoin};
