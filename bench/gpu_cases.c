/*
 * The library on a GPU, beside the fastest that the GPU can do: elementwise work and sums beside copies on the device of as many bytes as they must read and
 * write, products beside cuBLAS. What copies cannot compute, the loops here do on the host, before anything is timed.
 */
#include <math.h>

#include "device.h"
#include "gpu.h"

enum { NUMBERS = 1 << 26, MATRIX = 4096 };
enum { FROM, TO };                       /* blocks of the copies */
enum { OPERAND, SEEDS, OTHER, PRODUCT }; /* and of the products */

/* ---- y = tanh(x/2 + 0.1) x - x^2/4 + 1 ---- */

BENCH_VECTORISED static void compute(const double *restrict x, double seed, double *restrict y, double *restrict gx, int n) {
    for (int i = 0; i < n; i++) {
        double t = tanh(0.5 * x[i] + 0.1);
        y[i] = t * x[i] - 0.25 * x[i] * x[i] + 1;
        gx[i] = seed * (t + 0.5 * x[i] * (1 - t * t) - 0.5 * x[i]);
    }
}

static aj_tensor *formula(aj_tensor *x) {
    aj_tensor *t = aj_tanh(aj_add_scalar(aj_scale(x, 0.5), 0.1));
    return aj_add_scalar(aj_sub(aj_mul(t, x), aj_scale(aj_square(x), 0.25)), 1);
}

static const char *set_up_elementwise(bench *b) {
    const char *wrong = bench_arrays(b, AJ_SHAPE(b->n), AJ_SHAPE0, b->n);
    if (wrong)
        return wrong;
    compute(b->x, b->seed[0], b->work, b->gx, b->n);
    long double sum = 0; /* of so many numbers that doubles would lose digits */
    for (int i = 0; i < b->n; i++)
        sum += b->work[i];
    b->y[0] = (double)sum;
    return bench_cuda_open(b, 2, b->n, false);
}

static void raw_elementwise(bench *b) {
    bench_cuda_copy(b->state, TO, FROM, b->n);
    bench_result(b, "y", b->work, b->n);
}

static void adjoin_elementwise(bench *b) {
    aj_scope *scope = aj_scope_begin(b->ctx);
    bench_result_tensor(b, "y", formula(b->param));
    bench_scope_end(scope);
}

/* A sum reads n numbers: as much as a copy of half of them reads and writes. */
static void raw_sum(bench *b) {
    bench_cuda_copy(b->state, TO, FROM, (b->n + 1) / 2);
    bench_result(b, "y", b->y, 1);
}

static void adjoin_sum(bench *b) {
    aj_scope *scope = aj_scope_begin(b->ctx);
    bench_result_tensor(b, "y", aj_sum(formula(b->param)));
    bench_scope_end(scope);
}

/* The sum's read, then one more and a write for the gradient. */
static void raw_gradient(bench *b) {
    bench_cuda_copy(b->state, TO, FROM, (b->n + 1) / 2);
    bench_cuda_copy(b->state, TO, FROM, b->n);
    bench_result(b, "y", b->y, 1);
    bench_result(b, "gx", b->gx, b->n);
}

static void adjoin_gradient(bench *b) {
    aj_scope *scope = aj_scope_begin(b->ctx);
    aj_record_begin(b->ctx);
    bench_backward(b, aj_sum(formula(b->param)));
    bench_scope_end(scope);
}

/* ---- y = x b ---- */

static const char *set_up_matmul(bench *b) {
    int64_t n = b->n, numel = n * n;
    const char *wrong = bench_arrays(b, AJ_SHAPE(n, n), AJ_SHAPE(n, n), numel);
    if (wrong)
        return wrong;
    for (int64_t i = 0; i < numel; i++)
        b->work[i] = (double)(i % 11) / 8 - 0.5;
    wrong = bench_cuda_open(b, BENCH_BLOCKS, numel, true);
    if (wrong)
        return wrong;
    bench_cuda *d = b->state;
    bench_cuda_put(d, OPERAND, b->x, numel);
    bench_cuda_put(d, SEEDS, b->seed, numel);
    bench_cuda_put(d, OTHER, b->work, numel);
    d->other = aj_keep(aj_to_device(aj_from_data(b->ctx, AJ_F64, AJ_SHAPE(n, n), b->work), d->device));
    return d->wrong[0] ? d->wrong : NULL;
}

static void result_of_block(bench *b, const char *name, double *to) {
    int64_t numel = (int64_t)b->n * b->n;
    if (bench_compares(b))
        bench_cuda_get(b->state, to, PRODUCT, numel);
    bench_result(b, name, to, numel);
}

static void raw_matmul(bench *b) {
    bench_cuda_multiply(b->state, PRODUCT, OPERAND, OTHER, false, b->n);
    result_of_block(b, "y", b->y);
}

static void adjoin_matmul(bench *b) {
    bench_cuda *d = b->state;
    aj_scope *scope = aj_scope_begin(b->ctx);
    bench_result_tensor(b, "y", aj_matmul(b->param, d->other));
    bench_scope_end(scope);
}

static void raw_matmul_gradient(bench *b) {
    raw_matmul(b);
    bench_cuda_multiply(b->state, PRODUCT, SEEDS, OTHER, true, b->n);
    result_of_block(b, "gx", b->gx);
}

static void adjoin_matmul_gradient(bench *b) {
    bench_cuda *d = b->state;
    aj_scope *scope = aj_scope_begin(b->ctx);
    aj_record_begin(b->ctx);
    bench_backward(b, aj_matmul(b->param, d->other));
    bench_scope_end(scope);
}

static const bench_case elementwise = {"cuda_elementwise",
                                       "y = tanh(x/2 + 0.1) x - x^2/4 + 1 of n numbers; by hand: they are copied on the device",
                                       NUMBERS,
                                       set_up_elementwise,
                                       bench_cuda_close,
                                       raw_elementwise,
                                       adjoin_elementwise};
static const bench_case sum = {
    "cuda_sum",       "the sum of that; by hand: half of the numbers are copied, which is as many bytes",
    NUMBERS,          set_up_elementwise,
    bench_cuda_close, raw_sum,
    adjoin_sum};
static const bench_case gradient = {"cuda_sum-gradient",
                                    "the sum and its gradient; by hand: copies of n/2 and of n numbers",
                                    NUMBERS,
                                    set_up_elementwise,
                                    bench_cuda_close,
                                    raw_gradient,
                                    adjoin_gradient};
static const bench_case matmul = {
    "cuda_matmul", "y = x b, all n x n; by hand: cuBLAS", MATRIX, set_up_matmul, bench_cuda_close, raw_matmul, adjoin_matmul};
static const bench_case matmul_gradient = {"cuda_matmul-gradient",
                                           "y = x b and the gradient of x: two products; by hand: cuBLAS",
                                           MATRIX,
                                           set_up_matmul,
                                           bench_cuda_close,
                                           raw_matmul_gradient,
                                           adjoin_matmul_gradient};

const bench_case *const bench_cuda_cases[] = {&elementwise, &sum, &gradient, &matmul, &matmul_gradient, NULL};
