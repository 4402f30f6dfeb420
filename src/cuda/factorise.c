/*
 * The `solve`, `cholesky` and `logdet` slots. cuSOLVER sees columns first: to it, the memory of a row-major matrix is the transposed matrix. What it factorises is
 * a copy in any case, so that each copy is made in the order that it wants, which is the CPU's: pivots, and with them errors, are the same.
 *
 * Whether a matrix was singular or not positive definite is an error of the call, so the host waits for that, once for a stack. logdet has no such error, and
 * does not wait.
 */
#include "cuda/linalg.h"

static aj_status check(aj_ctx *ctx, const char *op, const aji_value *a) {
    if (!aji_dtype_is_float(a->meta.dtype))
        return aj_raise(ctx, AJ_ERR_UNSUPPORTED,
                        "%s: not available for %s on device %s, only for f64 and f32; use aj_cast, or move the operands with "
                        "aj_to_device, for instance to aj_cpu(ctx)",
                        op, aj_dtype_name(a->meta.dtype), a->device->name);
    if (aji_n_rows(a) > INT32_MAX)
        return aj_raise(ctx, AJ_ERR_UNSUPPORTED, "%s: %lld rows; cuSOLVER counts no further than %d", op,
                        (long long)aji_n_rows(a), INT32_MAX);
    return AJ_OK;
}

/* Of n x n numbers each */
static aji_factors factors_of(aji_cuda *d, const aji_value *matrices) {
    int64_t n = aji_n_rows(matrices);
    return (aji_factors){.d = d,
                         .dtype = matrices->meta.dtype,
                         .n = n,
                         .count = aji_meta_numel(&matrices->meta) / (n * n),
                         .matrices = aji_value_data(matrices)};
}

/* ---- solve ---- */

/* x = a^-1 x for a stack, columns first. Neighbours with one a are solved together. */
static aj_status solve_stack(const aji_factors *f, const aji_meta *packed, const aji_value *x, int64_t n_batch) {
    int64_t k = aji_n_columns(x), bytes = f->n * k * (int64_t)aj_dtype_size(f->dtype);
    char *at = aji_value_data(x);
    aj_status status = AJ_OK;
    for (int64_t p = 0, end; p < n_batch && status == AJ_OK; p = end) {
        int64_t matrix = aji_cuda_matrix_of(packed, &x->meta, p);
        for (end = p + 1; end < n_batch && aji_cuda_matrix_of(packed, &x->meta, end) == matrix;)
            end++;
        status = aji_factors_solve(f, matrix, at + p * bytes, k * (end - p));
    }
    return status;
}

/* Waits. The first matrix of the stack that is singular, as on the CPU. */
static aj_status check_pivots(const aji_factors *f, const aji_meta *packed, const aji_meta *stack, int64_t n_batch) {
    aj_ctx *ctx = f->d->device.ctx;
    int *info = aji_factors_info(f);
    if (!info)
        return aj_ctx_status(ctx);
    aj_status status = AJ_OK;
    for (int64_t p = 0; p < n_batch && status == AJ_OK; p++) {
        int pivot = info[aji_cuda_matrix_of(packed, stack, p)];
        if (pivot > 0)
            status = aj_raise(ctx, AJ_ERR_NUMERIC, "aj_solve: matrix %lld of %lld is singular: pivot %d of %lld is zero",
                              (long long)p + 1, (long long)n_batch, pivot, (long long)f->n);
    }
    aji_free(ctx, info, (size_t)f->count * sizeof(int));
    return status;
}

/* x holds b, with the columns first; lu a copy of a's matrices. */
static aj_status solve_in(aji_cuda *d, const aji_value *lu, const aji_value *x, const aji_value *out) {
    int64_t n_batch = aji_meta_numel(&x->meta) / (aji_n_rows(x) * aji_n_columns(x));
    aji_factors f = factors_of(d, lu);
    aj_status status = aji_factors_lu(&f);
    if (status == AJ_OK)
        status = solve_stack(&f, &lu->meta, x, n_batch);
    if (status == AJ_OK && x != out)
        status = aji_cuda_copy(d->device.ctx, x, out);
    if (status == AJ_OK)
        status = check_pivots(&f, &lu->meta, &x->meta, n_batch);
    aji_factors_release(&f);
    return status;
}

static aj_status solve_values(aji_cuda *d, const aji_value *a, const aji_value *b, const aji_value *out) {
    aj_ctx *ctx = d->device.ctx;
    bool in_place = aji_n_rows(out) == 1 || aji_n_columns(out) == 1; /* a vector lies as cuSOLVER wants it */
    aji_value *lu = aji_cuda_packed(a, true);
    aji_value *made = lu && !in_place ? aji_cuda_matrices(ctx, &d->device, &out->meta, true) : NULL;
    const aji_value *x = in_place ? out : made;
    aj_status status = lu && x ? aji_cuda_copy(ctx, b, x) : aj_ctx_status(ctx);
    if (status == AJ_OK)
        status = solve_in(d, lu, x, out);
    aji_value_release(made);
    aji_value_release(lu);
    return status;
}

aj_status aji_cuda_solve(aj_ctx *ctx, const aji_value *a, const aji_value *b, const aji_value *out) {
    aji_cuda *d = aji_cuda_of(out->device);
    aj_status status = check(ctx, "aj_solve", a);
    if (status != AJ_OK || aji_meta_numel(&out->meta) == 0)
        return status;
    status = aji_cuda_enter(d);
    return status == AJ_OK ? aji_cuda_leave(d, solve_values(d, a, b, out)) : status;
}

/* ---- kernels on the factors ---- */

typedef struct arguments {
    uint64_t matrices, out;
    int64_t n, count;
} arguments;

#define BEGINNING "struct arguments {\n    T *matrices, *out;\n    long long n, count;\n};\n"
/* Zeros above the diagonal, row-major. */
#define CLEAR                                                                                                                    \
    BEGINNING "extern \"C\" __global__ void run(const arguments p) {\n"                                                          \
              "  const long long threads = gridDim.x * (long long)blockDim.x;\n"                                                 \
              "  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < p.count * p.n * p.n; i += threads)\n"  \
              "    if (i % p.n > i / p.n % p.n)\n"                                                                               \
              "      p.matrices[i] = 0;\n"                                                                                       \
              "}\n"
/* log |det| of LU factors, a block for each. One zero makes it -inf whatever the other pivots are: they mean nothing behind it. */
#define LOGDET                                                                                                                   \
    BEGINNING "extern \"C\" __global__ void run(const arguments p) {\n"                                                          \
              "  __shared__ double sums[256];\n"                                                                                 \
              "  for (long long k = blockIdx.x; k < p.count; k += gridDim.x) {\n"                                                \
              "    const T *u = p.matrices + k * p.n * p.n;\n"                                                                   \
              "    double sum = 0;\n"                                                                                            \
              "    int zero = 0;\n"                                                                                              \
              "    for (long long i = threadIdx.x; i < p.n; i += 256) {\n"                                                       \
              "      const double pivot = u[i * (p.n + 1)];\n"                                                                   \
              "      zero |= pivot == 0;\n"                                                                                      \
              "      sum += log(fabs(pivot));\n"                                                                                 \
              "    }\n"                                                                                                          \
              "    sums[threadIdx.x] = sum;\n"                                                                                   \
              "    zero = __syncthreads_or(zero);\n"                                                                             \
              "    for (int half = 128; half > 0; half /= 2) {\n"                                                                \
              "      if (threadIdx.x < half)\n"                                                                                  \
              "        sums[threadIdx.x] += sums[threadIdx.x + half];\n"                                                         \
              "      __syncthreads();\n"                                                                                         \
              "    }\n"                                                                                                          \
              "    if (threadIdx.x == 0)\n"                                                                                      \
              "      p.out[k] = (T)(zero ? log(0.0) : sums[0]);\n"                                                               \
              "    __syncthreads();\n"                                                                                           \
              "  }\n"                                                                                                            \
              "}\n"
_Static_assert(AJI_CUDA_THREADS == 256, "as the sources say");

#define SOURCES(SOURCE)                                                                                                          \
    { [AJ_F64] = "typedef double T;\n" SOURCE, [AJ_F32] = "typedef float T;\n" SOURCE }
static const char *const clear_source[] = SOURCES(CLEAR), *const logdet_source[] = SOURCES(LOGDET);

static aj_status launch(const aji_factors *f, const char *const *source, int64_t threads, void *out) {
    arguments p = {.matrices = (uintptr_t)f->matrices, .out = (uintptr_t)out, .n = f->n, .count = f->count};
    return aji_cuda_launch(f->d, "run", source[f->dtype], aji_cuda_blocks(f->d, threads), &p, sizeof(p));
}

/* ---- cholesky ---- */

/* Waits. The first matrix that is not positive definite. */
static aj_status check_minors(const aji_factors *f) {
    aj_ctx *ctx = f->d->device.ctx;
    int *info = aji_factors_info(f);
    if (!info)
        return aj_ctx_status(ctx);
    aj_status status = AJ_OK;
    for (int64_t p = 0; p < f->count && status == AJ_OK; p++)
        if (info[p] > 0)
            status = aj_raise(ctx, AJ_ERR_NUMERIC,
                              "aj_cholesky: matrix %lld of %lld is not positive definite: its leading minor of order %d of %lld "
                              "is not positive",
                              (long long)p + 1, (long long)f->count, info[p], (long long)f->n);
    aji_free(ctx, info, (size_t)f->count * sizeof(int));
    return status;
}

/* The lower triangle, row-major, is the upper one to cuSOLVER. */
static aj_status cholesky_values(aji_cuda *d, const aji_value *a, const aji_value *out) {
    aji_factors f = factors_of(d, out);
    aj_status status = aji_cuda_copy(d->device.ctx, a, out);
    if (status == AJ_OK)
        status = aji_factors_cholesky(&f);
    if (status == AJ_OK)
        status = launch(&f, clear_source, f.count * f.n * f.n, NULL);
    if (status == AJ_OK)
        status = check_minors(&f);
    aji_factors_release(&f);
    return status;
}

aj_status aji_cuda_cholesky(aj_ctx *ctx, const aji_value *a, const aji_value *out) {
    aji_cuda *d = aji_cuda_of(out->device);
    aj_status status = check(ctx, "aj_cholesky", a);
    if (status != AJ_OK || aji_meta_numel(&out->meta) == 0)
        return status;
    status = aji_cuda_enter(d);
    return status == AJ_OK ? aji_cuda_leave(d, cholesky_values(d, a, out)) : status;
}

/* ---- logdet ---- */

/* det a = det of its transpose, so the order of memory does not matter. */
static aj_status logdet_values(aji_cuda *d, const aji_value *a, const aji_value *out) {
    aj_ctx *ctx = d->device.ctx;
    aji_value *lu = aji_cuda_matrices(ctx, &d->device, &a->meta, false);
    aj_status status = lu ? aji_cuda_copy(ctx, a, lu) : aj_ctx_status(ctx);
    if (status == AJ_OK) {
        aji_factors f = factors_of(d, lu);
        status = aji_factors_lu(&f);
        if (status == AJ_OK)
            status = launch(&f, logdet_source, f.count * AJI_CUDA_THREADS, aji_value_data(out));
        aji_factors_release(&f);
    }
    aji_value_release(lu);
    return status;
}

aj_status aji_cuda_logdet(aj_ctx *ctx, const aji_value *a, const aji_value *out) {
    aji_cuda *d = aji_cuda_of(out->device);
    int64_t numel = aji_meta_numel(&out->meta);
    aj_status status = check(ctx, "aj_logdet", a);
    if (status != AJ_OK || numel == 0)
        return status;
    status = aji_cuda_enter(d);
    if (status != AJ_OK)
        return status;
    if (aji_n_rows(a) == 0) { /* det = 1 */
        CUdeviceptr to = (CUdeviceptr)(uintptr_t)aji_value_data(out);
        status = AJI_CU(d, cuMemsetD8Async, to, 0, (size_t)numel * aj_dtype_size(out->meta.dtype), d->stream);
    } else {
        status = logdet_values(d, a, out);
    }
    return aji_cuda_leave(d, status);
}
