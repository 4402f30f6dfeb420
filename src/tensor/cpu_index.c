/*
 * The `take` and `scatter_add` slots of the CPU. All indices are validated and made offsets first, so that a bad one leaves nothing half done. The
 * axes other than `axis` are walked in the order of memory; along the innermost of them, the columns, and along the index, the rows,
 * a kernel runs the two loops.
 */
#include <stdlib.h>
#include <string.h>

#include "tensor/cpu.h"

static int64_t element(const aji_value *index, const void *data, int64_t offset) {
    return index->meta.dtype == AJ_I64 ? ((const int64_t *)data)[offset] : ((const int32_t *)data)[offset];
}

aj_status aji_index_rows(aj_ctx *ctx, const char *op, const aji_value *index, int axis, int64_t extent, int64_t **rows) {
    int64_t n = aji_meta_numel(&index->meta);
    if (index->meta.dtype != AJ_I64 && index->meta.dtype != AJ_I32)
        return aj_raise(ctx, AJ_ERR_DTYPE, "%s: the index is %s; expected i64 or i32; use aj_cast", op,
                        aj_dtype_name(index->meta.dtype));
    int64_t *to = *rows = aji_alloc(ctx, (size_t)n * sizeof(int64_t));
    if (!to)
        return AJ_ERR_MEMORY;
    const void *data = aji_value_data(index);
    aji_walk at;
    aji_walk_axes(&at, index, NULL, AJI_ALL_AXES);
    aji_walk_coalesce(&at);
    for (int64_t j = 0; j < n; aji_walk_advance(&at, at.shape[at.ndim - 1]))
        for (int64_t offset = at.offset[0], end = j + aji_walk_room(&at); j < end; j++, offset += at.strides[0][at.ndim - 1]) {
            int64_t given = element(index, data, offset);
            to[j] = given < 0 ? given + extent : given;
            if (given >= -extent && given < extent)
                continue;
            aji_free(ctx, to, (size_t)n * sizeof(int64_t));
            return aj_raise(ctx, AJ_ERR_ARG,
                            "%s: index %lld at position %lld; axis %d has extent %lld, so expected %lld ... %lld", op,
                            (long long)given, (long long)j, axis, (long long)extent, -(long long)extent, (long long)extent - 1);
        }
    return AJ_OK;
}

/* For n_rows rows j and n columns i: y[j y_row + i y_column] = x[rows[j] x_row + i x_column] for take, and
 * y[rows[j] y_row + i y_column] += x[j x_row + i x_column], for each i in order of j, for scatter_add */
typedef void index_kernel(const int64_t *rows, int64_t n_rows, int64_t n, void *y, int64_t y_row, int64_t y_column, const void *x,
                          int64_t x_row, int64_t x_column);

#define INDEX_KERNEL(name, T, y_index, x_index, ASSIGN)                                                                          \
    static void name(const int64_t *rows, int64_t n_rows, int64_t n, void *to, int64_t y_row, int64_t y_column,                  \
                     const void *from, int64_t x_row, int64_t x_column) {                                                        \
        T *restrict y = to;                                                                                                      \
        const T *restrict x = from;                                                                                              \
        if (n > 1 && llabs(y_column) <= llabs(y_row)) {                                                                          \
            for (int64_t j = 0; j < n_rows; j++)                                                                                 \
                for (int64_t i = 0; i < n; i++)                                                                                  \
                    ASSIGN(T, y[y_index * y_row + i * y_column], x[x_index * x_row + i * x_column]);                             \
        } else {                                                                                                                 \
            for (int64_t i = 0; i < n; i++)                                                                                      \
                for (int64_t j = 0; j < n_rows; j++)                                                                             \
                    ASSIGN(T, y[y_index * y_row + i * y_column], x[x_index * x_row + i * x_column]);                             \
        }                                                                                                                        \
    }
#define SET(T, y, x) y = x
#define ADD(T, y, x) y += x
#define ADD_WRAPPING(T, y, x) y = (T)((uint64_t)y + (uint64_t)x)

#define BOTH_KERNELS(TAG, T, ADDITION)                                                                                           \
    INDEX_KERNEL(take_##TAG, T, j, rows[j], SET)                                                                                 \
    INDEX_KERNEL(scatter_add_##TAG, T, rows[j], j, ADDITION)
BOTH_KERNELS(f64, double, ADD)
BOTH_KERNELS(f32, float, ADD)
BOTH_KERNELS(i64, int64_t, ADD_WRAPPING)
BOTH_KERNELS(i32, int32_t, ADD_WRAPPING)
BOTH_KERNELS(u8, uint8_t, ADD_WRAPPING)
static index_kernel *const take_kernels[] = {take_f64, take_f32, take_i64, take_i32, take_u8};
static index_kernel *const scatter_add_kernels[] = {scatter_add_f64, scatter_add_f32, scatter_add_i64, scatter_add_i32,
                                                    scatter_add_u8};

/* indexed: the operand whose extent along axis the indices count in, y or x */
static aj_status run_kernel(aj_ctx *ctx, const char *op, index_kernel *kernel, const aji_value *y, const aji_value *x, int axis,
                            const aji_value *index, const aji_value *indexed) {
    int64_t *rows = NULL, n_rows = aji_meta_numel(&index->meta);
    aj_status status = aji_index_rows(ctx, op, index, axis, indexed->meta.shape[axis], &rows);
    if (status != AJ_OK)
        return status;
    aji_walk at; /* over the other axes */
    aji_walk_axes(&at, y, x, ~(1u << axis));
    aji_walk_sort(&at);
    aji_walk_coalesce(&at);
    char *to = aji_value_data(y);
    const char *from = aji_value_data(x);
    int64_t size = (int64_t)aj_dtype_size(y->meta.dtype);
    for (int64_t left = aji_walk_numel(&at), n; left > 0 && n_rows > 0; left -= n, aji_walk_advance(&at, n)) {
        n = aji_walk_room(&at);
        kernel(rows, n_rows, n, to + at.offset[0] * size, y->strides[axis], at.strides[0][at.ndim - 1],
               from + at.offset[1] * size, x->strides[axis], at.strides[1][at.ndim - 1]);
    }
    aji_free(ctx, rows, (size_t)n_rows * sizeof(int64_t));
    return AJ_OK;
}

aj_status aji_cpu_take(aj_ctx *ctx, const char *op, const aji_value *x, int axis, const aji_value *index, const aji_value *out) {
    return run_kernel(ctx, op, take_kernels[out->meta.dtype], out, x, axis, index, x);
}

aj_status aji_cpu_scatter_add(aj_ctx *ctx, const char *op, const aji_value *value, int axis, const aji_value *index,
                              const aji_value *out) {
    return run_kernel(ctx, op, scatter_add_kernels[out->meta.dtype], out, value, axis, index, out);
}
