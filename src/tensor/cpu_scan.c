/*
 * The `cumsum` and `argument` slots of the CPU: prefix sums, and the search for the place of an extremum, follow one axis in order.
 */
#include <stdlib.h>

#include "tensor/cpu.h"

#define COLUMNS 1024 /* lines that one call of a kernel follows side by side */

/* n <= COLUMNS columns j: out[r out_row + j out_column] from x[r row + j column], in order of r. Places of extrema: out[j out_column]. */
typedef void scan_kernel(const void *x, int64_t n_rows, int64_t row, int n, int64_t column, void *out, int64_t out_row,
                         int64_t out_column);

#define SCAN_KERNEL(name)                                                                                                        \
    static void name(const void *from, int64_t n_rows, int64_t row, int n, int64_t column, void *to, int64_t out_row,            \
                     int64_t out_column)

/* Along memory: column by column, if their elements lie closer together than those of the rows. */
#define FOR_ROWS_AND_COLUMNS(body)                                                                                               \
    if (llabs(row) <= llabs(column)) {                                                                                           \
        for (int j = 0; j < n; j++)                                                                                              \
            for (int64_t r = 0; r < n_rows; r++)                                                                                 \
                body;                                                                                                            \
    } else {                                                                                                                     \
        for (int64_t r = 0; r < n_rows; r++)                                                                                     \
            for (int j = 0; j < n; j++)                                                                                          \
                body;                                                                                                            \
    }

#define CUMSUM(T, TAG, A, ZERO, STEP)                                                                                            \
    SCAN_KERNEL(cumsum_##TAG) {                                                                                                  \
        const T *restrict x = from;                                                                                              \
        T *restrict y = to;                                                                                                      \
        A acc[COLUMNS];                                                                                                          \
        for (int j = 0; j < n; j++)                                                                                              \
            acc[j] = (ZERO);                                                                                                     \
        FOR_ROWS_AND_COLUMNS({                                                                                                   \
            acc[j] = STEP(acc[j], x[r * row + j * column]);                                                                      \
            y[r * out_row + j * out_column] = (T)acc[j];                                                                         \
        })                                                                                                                       \
    }
/* Integers add as unsigned numbers, which wrap. -0.0 + x is x for every x. */
#define SUM_FLOAT(acc, v) ((acc) + (v))
#define SUM_INTEGER(acc, v) ((int64_t)((uint64_t)(acc) + (uint64_t)(v)))
CUMSUM(double, f64, double, -0.0, SUM_FLOAT)
CUMSUM(float, f32, double, -0.0, SUM_FLOAT)
CUMSUM(int64_t, i64, int64_t, 0, SUM_INTEGER)
CUMSUM(int32_t, i32, int64_t, 0, SUM_INTEGER)
CUMSUM(uint8_t, u8, int64_t, 0, SUM_INTEGER)
static scan_kernel *const cumsum_kernels[] = {cumsum_f64, cumsum_f32, cumsum_i64, cumsum_i32, cumsum_u8};

/* A number takes the place of the best one so far if it is better, or the first NaN. */
#define ARG(name, T, TAG, BETTER)                                                                                                \
    SCAN_KERNEL(name##_##TAG) {                                                                                                  \
        const T *restrict x = from;                                                                                              \
        int64_t place[COLUMNS], *restrict y = to;                                                                                \
        T best[COLUMNS];                                                                                                         \
        (void)out_row;                                                                                                           \
        for (int j = 0; j < n; j++) {                                                                                            \
            best[j] = x[j * column];                                                                                             \
            place[j] = 0;                                                                                                        \
        }                                                                                                                        \
        FOR_ROWS_AND_COLUMNS({                                                                                                   \
            const T v = x[r * row + j * column];                                                                                 \
            if (v BETTER best[j] || (v != v && best[j] == best[j])) {                                                            \
                best[j] = v;                                                                                                     \
                place[j] = r;                                                                                                    \
            }                                                                                                                    \
        })                                                                                                                       \
        for (int j = 0; j < n; j++)                                                                                              \
            y[j * out_column] = place[j];                                                                                        \
    }
#define ARG_OF_ALL_DTYPES(name, BETTER)                                                                                          \
    ARG(name, double, f64, BETTER)                                                                                               \
    ARG(name, float, f32, BETTER)                                                                                                \
    ARG(name, int64_t, i64, BETTER)                                                                                              \
    ARG(name, int32_t, i32, BETTER)                                                                                              \
    ARG(name, uint8_t, u8, BETTER)
ARG_OF_ALL_DTYPES(ARGMAX, >)
ARG_OF_ALL_DTYPES(ARGMIN, <)
#define ALL_DTYPES(kind)                                                                                                         \
    { kind##_f64, kind##_f32, kind##_i64, kind##_i32, kind##_u8 }
static scan_kernel *const argmax_kernels[] = ALL_DTYPES(ARGMAX), *const argmin_kernels[] = ALL_DTYPES(ARGMIN);

static aj_status scan(scan_kernel *kernel, const aji_value *x, int axis, const aji_value *out) {
    aji_walk at; /* over the other axes */
    aji_walk_axes(&at, x, out, ~(1u << axis));
    aji_walk_sort(&at);
    aji_walk_coalesce(&at);
    const char *from = aji_value_data(x);
    char *to = aji_value_data(out);
    int64_t size = (int64_t)aj_dtype_size(x->meta.dtype), out_size = (int64_t)aj_dtype_size(out->meta.dtype);
    for (int64_t left = aji_walk_numel(&at); left > 0;) {
        int n = aji_walk_room(&at) < COLUMNS ? (int)aji_walk_room(&at) : COLUMNS;
        kernel(from + at.offset[0] * size, x->meta.shape[axis], x->strides[axis], n, at.strides[0][at.ndim - 1],
               to + at.offset[1] * out_size, out->strides[axis], at.strides[1][at.ndim - 1]);
        aji_walk_advance(&at, n);
        left -= n;
    }
    return AJ_OK;
}

aj_status aji_cpu_argument(aj_ctx *ctx, bool largest, const aji_value *x, int axis, const aji_value *out) {
    (void)ctx;
    return scan((largest ? argmax_kernels : argmin_kernels)[x->meta.dtype], x, axis, out);
}

aj_status aji_cpu_cumsum(aj_ctx *ctx, const aji_value *x, int axis, const aji_value *out) {
    (void)ctx;
    return scan(cumsum_kernels[x->meta.dtype], x, axis, out);
}
