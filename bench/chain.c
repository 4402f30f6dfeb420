/*
 * A thousand operations, one after the other, on n numbers: 200 times y <- sin(1 / (x (y/2 + 1))), which are a scale, an add_scalar, a mul, a reciprocal
 * and a sin. It begins with y = x, in [1, 2), and stays between 0.3 and 1. By hand the five are one loop, which keeps y and the reciprocal for the way back.
 */
#include <math.h>

#include "bench.h"

enum { ROUNDS = 200 };

static const char *setup(bench *b) {
    return bench_arrays(b, AJ_SHAPE(b->n), AJ_SHAPE(b->n), (int64_t)b->n * 2 * ROUNDS);
}

BENCH_VECTORISED static void forward(const double *restrict x, const double *restrict y, double *restrict reciprocal,
                                     double *restrict next, int n) {
    for (int i = 0; i < n; i++) {
        reciprocal[i] = 1 / (x[i] * (0.5 * y[i] + 1));
        next[i] = sin(reciprocal[i]);
    }
}

/* g: the gradient of what the round made on entry, of what it began with on return. */
BENCH_VECTORISED static void backward(const double *restrict x, const double *restrict y, const double *restrict reciprocal,
                                      double *restrict g, double *restrict gx, int n) {
    for (int i = 0; i < n; i++) {
        double g_product = -g[i] * cos(reciprocal[i]) * reciprocal[i] * reciprocal[i];
        gx[i] += g_product * (0.5 * y[i] + 1);
        g[i] = 0.5 * g_product * x[i];
    }
}

static void raw(bench *b) {
    int n = b->n;
    const double *y = b->x;
    double *values = b->work, *reciprocals = values + (int64_t)n * ROUNDS, *g = b->y;
    for (int k = 0; k < ROUNDS; k++) {
        double *next = values + (int64_t)k * n;
        forward(b->x, y, reciprocals + (int64_t)k * n, next, n);
        y = next;
    }
    bench_result(b, "y", y, n);
    for (int i = 0; i < n; i++) {
        g[i] = b->seed[i];
        b->gx[i] = 0;
    }
    for (int k = ROUNDS - 1; k >= 0; k--)
        backward(b->x, k ? values + (int64_t)(k - 1) * n : b->x, reciprocals + (int64_t)k * n, g, b->gx, n);
    for (int i = 0; i < n; i++)
        b->gx[i] += g[i]; /* the y of the beginning */
    bench_result(b, "gx", b->gx, n);
}

static void adjoin(bench *b) {
    aj_scope *scope = aj_scope_begin(b->ctx);
    aj_record_begin(b->ctx);
    aj_tensor *x = b->param, *y = x;
    for (int k = 0; k < ROUNDS; k++)
        y = aj_sin(aj_reciprocal(aj_mul(aj_add_scalar(aj_scale(y, 0.5), 1), x)));
    bench_backward(b, y);
    bench_scope_end(scope);
}

const bench_case chain_case = {"chain", "1000 local operations on n numbers, forward and backward", 1, setup, NULL, raw, adjoin};
