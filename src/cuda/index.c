/*
 * The `take` and `scatter_add` slots. The host reads the index and checks it, as for the CPU, so that a bad one is an error of the call and leaves nothing half
 * done: the price is a wait for the index. What the threads of scatter_add add to one row they find together, in order of the index, so that each
 * entry has one thread, and sums are the CPU's to the last bit.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/cuda_private.h"

/* Of both kernels. Entry i of the space: y's shape, but along `axis` the rows that there are. */
typedef struct arguments {
    uint64_t y, x;
    uint64_t rows;         /* take: x's row for each; scatter_add: y's */
    uint64_t begin, order; /* scatter_add: x's rows order[begin[g]] ... order[begin[g + 1] - 1] are for row g */
    int64_t n, ndim, axis;
    int64_t shape[AJ_MAX_NDIM], y_stride[AJ_MAX_NDIM], x_stride[AJ_MAX_NDIM];
} arguments;

#define BEGINNING                                                                                                                \
    "struct arguments {\n"                                                                                                       \
    "    T *y;\n    const T *x;\n    const long long *rows, *begin, *order;\n    long long n, ndim, axis;\n"                     \
    "    long long shape[8], y_stride[8], x_stride[8];\n};\n"                                                                    \
    "extern \"C\" __global__ void run(const arguments p) {\n"                                                                    \
    "  const long long threads = gridDim.x * (long long)blockDim.x, first = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n" \
    "  for (long long i = first; i < p.n; i += threads) {\n"                                                                     \
    "    long long rest = i, at = 0, from = 0, row = 0;\n"                                                                       \
    "    for (int d = (int)p.ndim - 1; d >= 0; d--) {\n"                                                                         \
    "      const long long c = rest % p.shape[d];\n"                                                                             \
    "      rest /= p.shape[d];\n"                                                                                                \
    "      if (d == p.axis) {\n"                                                                                                 \
    "        row = c;\n"                                                                                                         \
    "        continue;\n"                                                                                                        \
    "      }\n"                                                                                                                  \
    "      at += c * p.y_stride[d];\n"                                                                                           \
    "      from += c * p.x_stride[d];\n"                                                                                         \
    "    }\n"
#define TAKE "    p.y[at + row * p.y_stride[p.axis]] = p.x[from + p.rows[row] * p.x_stride[p.axis]];\n  }\n}\n"
#define SCATTER_ADD                                                                                                              \
    "    at += p.rows[row] * p.y_stride[p.axis];\n"                                                                              \
    "    T sum = p.y[at];\n"                                                                                                     \
    "    for (long long k = p.begin[row]; k < p.begin[row + 1]; k++)\n"                                                          \
    "      sum = (T)((W)sum + (W)p.x[from + p.order[k] * p.x_stride[p.axis]]);\n"                                                \
    "    p.y[at] = sum;\n  }\n}\n"
_Static_assert(AJ_MAX_NDIM == 8, "as the sources say");

/* W: integers wrap */
#define SOURCES(END)                                                                                                             \
    {                                                                                                                            \
        "typedef double T, W;\n" BEGINNING END, "typedef float T, W;\n" BEGINNING END,                                           \
            "typedef long long T;\ntypedef unsigned long long W;\n" BEGINNING END,                                               \
            "typedef int T;\ntypedef unsigned W;\n" BEGINNING END,                                                               \
            "typedef unsigned char T;\ntypedef unsigned W;\n" BEGINNING END                                                      \
    }
static const char *const take_source[] = SOURCES(TAKE), *const scatter_add_source[] = SOURCES(SCATTER_ADD);

/* Numbers for the device, in one piece: n_rows, and for scatter_add begin and order behind them. */
typedef struct tables {
    int64_t *numbers;
    int64_t n, n_rows; /* all; of the first table */
    bool grouped;
} tables;

static void tables_free(aj_ctx *ctx, tables *t) {
    aji_free(ctx, t->numbers, (size_t)t->n * sizeof(int64_t));
    t->numbers = NULL;
}

static aj_status launch(aji_cuda *d, const char *source, const aji_value *y, const aji_value *x, int axis, const tables *t) {
    arguments p = {
        .y = (uintptr_t)aji_value_data(y), .x = (uintptr_t)aji_value_data(x), .n = 1, .ndim = y->meta.ndim, .axis = axis};
    for (int k = 0; k < y->meta.ndim; k++) {
        p.shape[k] = k == axis ? t->n_rows : y->meta.shape[k];
        p.y_stride[k] = y->strides[k];
        p.x_stride[k] = x->strides[k];
        p.n *= p.shape[k];
    }
    if (p.n == 0)
        return AJ_OK;
    size_t bytes = (size_t)t->n * sizeof(int64_t);
    char *memory = aji_cuda_alloc(d, bytes);
    if (!memory)
        return AJ_ERR_MEMORY;
    p.rows = (uintptr_t)memory;
    if (t->grouped) {
        p.begin = p.rows + (uint64_t)t->n_rows * sizeof(int64_t);
        p.order = p.begin + (uint64_t)(t->n_rows + 1) * sizeof(int64_t);
    }
    aj_status status = aji_cuda_put(d, memory, t->numbers, bytes);
    if (status == AJ_OK)
        status = aji_cuda_launch(d, "run", source, aji_cuda_blocks(d, p.n), &p, sizeof(p));
    aji_cuda_free(d, memory, bytes);
    return status;
}

static aj_status launch_entered(const char *source, const aji_value *y, const aji_value *x, int axis, const tables *t) {
    aji_cuda *d = aji_cuda_of(y->device);
    aj_status status = aji_cuda_enter(d);
    return status == AJ_OK ? aji_cuda_leave(d, launch(d, source, y, x, axis, t)) : status;
}

/* rows: the caller frees them */
static aj_status read_rows(aj_ctx *ctx, const char *op, const aji_value *index, int axis, int64_t extent, int64_t **rows) {
    aji_value *host = aji_value_on((aji_value *)(uintptr_t)index, aj_cpu(ctx)); /* it is counted up, nothing else */
    if (!host)
        return aj_ctx_status(ctx);
    aj_status status = aji_index_rows(ctx, op, host, axis, extent, rows);
    aji_value_release(host);
    return status;
}

aj_status aji_cuda_take(aj_ctx *ctx, const char *op, const aji_value *x, int axis, const aji_value *index, const aji_value *out) {
    tables t = {.n = aji_meta_numel(&index->meta)};
    t.n_rows = t.n;
    aj_status status = read_rows(ctx, op, index, axis, x->meta.shape[axis], &t.numbers);
    if (status != AJ_OK)
        return status;
    status = launch_entered(take_source[out->meta.dtype], out, x, axis, &t);
    tables_free(ctx, &t);
    return status;
}

/* ---- scatter_add ---- */

typedef struct target {
    int64_t row, j;
} target;

static int compare(const void *a, const void *b) {
    const target *x = a, *y = b;
    if (x->row != y->row)
        return x->row < y->row ? -1 : 1;
    return x->j < y->j ? -1 : x->j > y->j;
}

/* t = the rows that get something, each once; where their part of the order begins, and the end of it; the order */
static void fill(tables *t, const target *sorted, int64_t n) {
    int64_t *row = t->numbers, *begin = row + t->n_rows, *order = begin + t->n_rows + 1, g = -1;
    for (int64_t k = 0; k < n; k++) {
        order[k] = sorted[k].j;
        if (k > 0 && sorted[k].row == sorted[k - 1].row)
            continue;
        row[++g] = sorted[k].row;
        begin[g] = k;
    }
    begin[t->n_rows] = n;
}

static aj_status group(aj_ctx *ctx, tables *t, const int64_t *rows, int64_t n) {
    target *sorted = aji_alloc(ctx, (size_t)n * sizeof(*sorted));
    if (!sorted)
        return AJ_ERR_MEMORY;
    for (int64_t j = 0; j < n; j++)
        sorted[j] = (target){rows[j], j};
    qsort(sorted, (size_t)n, sizeof(*sorted), compare);
    *t = (tables){.grouped = true};
    for (int64_t k = 0; k < n; k++)
        t->n_rows += k == 0 || sorted[k].row != sorted[k - 1].row;
    t->n = 2 * t->n_rows + 1 + n;
    t->numbers = aji_alloc(ctx, (size_t)t->n * sizeof(int64_t));
    if (t->numbers)
        fill(t, sorted, n);
    aji_free(ctx, sorted, (size_t)n * sizeof(*sorted));
    return t->numbers ? AJ_OK : AJ_ERR_MEMORY;
}

aj_status aji_cuda_scatter_add(aj_ctx *ctx, const char *op, const aji_value *value, int axis, const aji_value *index,
                               const aji_value *out) {
    int64_t *rows, n = aji_meta_numel(&index->meta);
    aj_status status = read_rows(ctx, op, index, axis, out->meta.shape[axis], &rows);
    if (status != AJ_OK)
        return status;
    tables t = {.n = 0};
    if (n > 0) {
        status = group(ctx, &t, rows, n);
        if (status == AJ_OK)
            status = launch_entered(scatter_add_source[out->meta.dtype], out, value, axis, &t);
        tables_free(ctx, &t);
    }
    aji_free(ctx, rows, (size_t)n * sizeof(int64_t));
    return status;
}
