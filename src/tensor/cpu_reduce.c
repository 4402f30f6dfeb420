/*
 * The `reduce` and `cumsum` slots of the CPU.
 *
 * A reduction has kept axes and reduced axes. Each kept entry has accumulators of 8 bytes (double for floats, int64_t for integers), and there
 * are two ways to go through memory:
 *
 *   columns   where the inner kept axis lies closer in memory than the inner reduced one: a block of kept entries with one accumulator each,
 *             to which the rows of x are added one after the other
 *   lines     where the inner reduced axis lies closer: one kept entry at a time, with LANES accumulators, to which the line is added LANES
 *             elements at a time: the same loop, on rows of LANES columns. Lanes do not pay on short lines; there, columns again
 *
 * Sums are pairwise: the reduced range is halved until LEAF rows are left, which bounds the rounding error by LEAF + log2(n / LEAF)
 * units instead of n (Higham, "The accuracy of floating point summation", SIAM J. Sci. Comput. 14 (1993)). The other reductions take
 * the same way.
 *
 * Prefix sums, and the search for the place of an extremum, follow one axis in order.
 */
#include <math.h>
#include <stdlib.h>

#include "tensor/cpu.h"

#define LANES 16
#define COLUMNS 1024  /* kept entries in one block of columns */
#define LEAF 64       /* rows that are added up one after the other */
#define SHORT_LINE 64 /* elements to reduce */

/* ---- one step of an accumulator ---- */

/* Integers add and multiply as unsigned numbers, which wrap. */
#define SUM_FLOAT(acc, v) ((acc) + (v))
#define SUM_INTEGER(acc, v) ((int64_t)((uint64_t)(acc) + (uint64_t)(v)))
#define PROD_FLOAT(acc, v) ((acc) * (v))
#define PROD_INTEGER(acc, v) ((int64_t)((uint64_t)(acc) * (uint64_t)(v)))
#define MAX_FLOAT(acc, v) (((v) > (acc)) | ((v) != (v)) ? (v) : (acc)) /* a NaN comes in, and nothing is greater than it */
#define MIN_FLOAT(acc, v) (((v) < (acc)) | ((v) != (v)) ? (v) : (acc))
#define MAX_INTEGER(acc, v) ((v) > (acc) ? (v) : (acc))
#define MIN_INTEGER(acc, v) ((v) < (acc) ? (v) : (acc))

/* acc[j] = step(acc[j], x[r row_stride + j column_stride]) for all rows r, one after the other, and n columns j */
typedef void rows_kernel(void *acc, const void *x, int64_t n_rows, int64_t row_stride, int n, int64_t column_stride);

/* FIRST: a pragma for the loop over columns. GCC makes vectors of the additions of LANES columns after unrolling them, but of comparisons only if the
 * loop is still one. */
#define ROWS(name, T, A, STEP, FIRST)                                                                                            \
    static inline __attribute__((always_inline)) void name##_loop(A *restrict acc, const T *restrict x, int64_t n_rows,          \
                                                                  int64_t row_stride, int n, int64_t column_stride) {            \
        for (int64_t r = 0; r < n_rows; r++) {                                                                                   \
            _Pragma(FIRST) for (int j = 0; j < n; j++) {                                                                         \
                const A v = (A)x[r * row_stride + j * column_stride];                                                            \
                acc[j] = STEP(acc[j], v);                                                                                        \
            }                                                                                                                    \
        }                                                                                                                        \
    }                                                                                                                            \
    static void name(void *acc, const void *x, int64_t n_rows, int64_t row_stride, int n, int64_t column_stride) {               \
        if (n == LANES && column_stride == 1)                                                                                    \
            name##_loop(acc, x, n_rows, row_stride, LANES, 1);                                                                   \
        else if (n == LANES)                                                                                                     \
            name##_loop(acc, x, n_rows, row_stride, LANES, column_stride);                                                       \
        else if (column_stride == 1)                                                                                             \
            name##_loop(acc, x, n_rows, row_stride, n, 1);                                                                       \
        else                                                                                                                     \
            name##_loop(acc, x, n_rows, row_stride, n, column_stride);                                                           \
    }

#define ROWS_OF_ALL_DTYPES(kind, FIRST)                                                                                          \
    ROWS(kind##_f64, double, double, kind##_FLOAT, FIRST)                                                                        \
    ROWS(kind##_f32, float, double, kind##_FLOAT, FIRST)                                                                         \
    ROWS(kind##_i64, int64_t, int64_t, kind##_INTEGER, FIRST)                                                                    \
    ROWS(kind##_i32, int32_t, int64_t, kind##_INTEGER, FIRST)                                                                    \
    ROWS(kind##_u8, uint8_t, int64_t, kind##_INTEGER, FIRST)
ROWS_OF_ALL_DTYPES(SUM, "GCC ivdep")
ROWS_OF_ALL_DTYPES(PROD, "GCC ivdep")
ROWS_OF_ALL_DTYPES(MAX, "GCC unroll 1")
ROWS_OF_ALL_DTYPES(MIN, "GCC unroll 1")

#define ALL_DTYPES(kind)                                                                                                         \
    { kind##_f64, kind##_f32, kind##_i64, kind##_i32, kind##_u8 }
static rows_kernel *const rows_kernels[][AJ_U8 + 1] = {
    [AJI_SUM] = ALL_DTYPES(SUM),
    [AJI_PROD] = ALL_DTYPES(PROD),
    [AJI_MAX] = ALL_DTYPES(MAX),
    [AJI_MIN] = ALL_DTYPES(MIN),
};

/* ---- reductions to a number ---- */

typedef union accumulators {
    double f[COLUMNS];
    int64_t i[COLUMNS];
} accumulators;

typedef struct reduction {
    aji_reduction kind;
    rows_kernel *add, *merge; /* rows of elements; a row of accumulators */
    bool is_float;
    size_t size;
    aji_walk kept;    /* operand 0: x, operand 1: out */
    aji_walk reduced; /* operand 0: x */
    int64_t numel;    /* elements reduced to one */
    bool lines;
} reduction;

static void start(const reduction *r, accumulators *acc, int n) {
    /* -0.0 + x is x for every x; nothing but no elements at all is +0.0 */
    const double of_floats[] = {
        [AJI_SUM] = r->numel > 0 ? -0.0 : 0.0, [AJI_PROD] = 1, [AJI_MAX] = -INFINITY, [AJI_MIN] = INFINITY};
    const int64_t of_integers[] = {[AJI_SUM] = 0, [AJI_PROD] = 1, [AJI_MAX] = INT64_MIN, [AJI_MIN] = INT64_MAX};
    for (int j = 0; j < n; j++) {
        if (r->is_float)
            acc->f[j] = of_floats[r->kind];
        else
            acc->i[j] = of_integers[r->kind];
    }
}

/* Add elements from ... to-1 of the reduced space, in order, to n accumulators. x: where the first kept entry's elements begin. */
static void add_in_order(const reduction *r, const char *x, int64_t from, int64_t to, int n, accumulators *acc) {
    aji_walk at = r->reduced;
    aji_walk_seek(&at, from);
    int64_t stride = at.strides[0][at.ndim - 1], column = r->kept.strides[0][r->kept.ndim - 1];
    for (int64_t left = to - from, m; left > 0; left -= m, aji_walk_advance(&at, m)) {
        m = aji_walk_room(&at) < left ? aji_walk_room(&at) : left;
        const char *run = x + at.offset[0] * (int64_t)r->size;
        if (r->lines) {
            int64_t whole = m / LANES;
            r->add(acc, run, whole, LANES * stride, LANES, stride);
            r->add(acc, run + whole * LANES * stride * (int64_t)r->size, 1, 0, (int)(m % LANES), stride);
        } else {
            r->add(acc, run, m, stride, n, column);
        }
    }
}

/* acc = elements from ... to-1 of the reduced space, pairwise */
static void add_pairwise(const reduction *r, const char *x, int64_t from, int64_t to, int n, accumulators *acc) {
    int64_t leaf = r->lines ? LEAF * LANES : LEAF, leaves = (to - from + leaf - 1) / leaf;
    if (leaves <= 1) {
        start(r, acc, n);
        add_in_order(r, x, from, to, n, acc);
        return;
    }
    int64_t middle = from + leaves / 2 * leaf;
    accumulators right;
    add_pairwise(r, x, from, middle, n, acc);
    add_pairwise(r, x, middle, to, n, &right);
    r->merge(acc, &right, 1, 0, n, 1);
}

#define STORE(T, member)                                                                                                         \
    for (int j = 0; j < n; j++)                                                                                                  \
    ((T *)out)[j * stride] = (T)acc->member[j]

static void store(aj_dtype dtype, void *out, int64_t stride, const accumulators *acc, int n) {
    switch (dtype) {
    case AJ_F64:
        STORE(double, f);
        break;
    case AJ_F32:
        STORE(float, f);
        break;
    case AJ_I64:
        STORE(int64_t, i);
        break;
    case AJ_I32:
        STORE(int32_t, i);
        break;
    case AJ_U8:
        STORE(uint8_t, i);
        break;
    }
}

/* In the order of memory: for sums, an order of additions that depends on the strides of x alone. */
static void walk_along_memory(aji_walk *walk, const aji_value *x, const aji_value *out, unsigned axes) {
    aji_walk_axes(walk, x, out, axes);
    aji_walk_sort(walk);
    aji_walk_coalesce(walk);
}

static aj_status reduce_to_number(aji_reduction kind, const aji_value *x, unsigned axes, const aji_value *out) {
    bool is_float = aji_dtype_is_float(x->meta.dtype);
    reduction r = {.kind = kind, .is_float = is_float, .size = aj_dtype_size(x->meta.dtype)};
    r.add = rows_kernels[kind][x->meta.dtype];
    r.merge = rows_kernels[kind][is_float ? AJ_F64 : AJ_I64];
    walk_along_memory(&r.kept, x, out, ~axes);
    walk_along_memory(&r.reduced, x, NULL, axes);
    r.numel = aji_walk_numel(&r.reduced);
    int64_t column = llabs(r.kept.strides[0][r.kept.ndim - 1]), row = llabs(r.reduced.strides[0][r.reduced.ndim - 1]);
    bool close_rows = aji_walk_numel(&r.kept) == 1 || row <= column;
    r.lines = close_rows && r.numel > SHORT_LINE;
    int most = r.lines ? 1 : close_rows ? LANES : COLUMNS;
    char *to = aji_value_data(out);
    const char *from = aji_value_data(x);
    accumulators acc;
    aji_walk *at = &r.kept;
    for (int64_t left = aji_walk_numel(at); left > 0;) {
        int n = aji_walk_room(at) < most ? (int)aji_walk_room(at) : most;
        add_pairwise(&r, from + at->offset[0] * (int64_t)r.size, 0, r.numel, r.lines ? LANES : n, &acc);
        for (int lanes = LANES / 2; r.lines && lanes > 0; lanes /= 2)
            r.merge(&acc, (char *)&acc + (size_t)lanes * sizeof(double), 1, 0, lanes, 1);
        store(out->meta.dtype, to + at->offset[1] * (int64_t)aj_dtype_size(out->meta.dtype), at->strides[1][at->ndim - 1], &acc,
              n);
        aji_walk_advance(at, n);
        left -= n;
    }
    return AJ_OK;
}

/* ---- along one axis, in order ---- */

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
static scan_kernel *const argmax_kernels[] = ALL_DTYPES(ARGMAX), *const argmin_kernels[] = ALL_DTYPES(ARGMIN);

static aj_status scan(scan_kernel *kernel, const aji_value *x, int axis, const aji_value *out) {
    aji_walk at; /* over the other axes */
    walk_along_memory(&at, x, out, ~(1u << axis));
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

/* ---- slots ---- */

aj_status aji_cpu_reduce(aj_ctx *ctx, aji_reduction kind, const aji_value *x, unsigned axes, const aji_value *out) {
    (void)ctx;
    if (kind == AJI_ARGMAX || kind == AJI_ARGMIN)
        return scan((kind == AJI_ARGMAX ? argmax_kernels : argmin_kernels)[x->meta.dtype], x, __builtin_ctz(axes), out);
    return reduce_to_number(kind, x, axes, out);
}

aj_status aji_cpu_cumsum(aj_ctx *ctx, const aji_value *x, int axis, const aji_value *out) {
    (void)ctx;
    return scan(cumsum_kernels[x->meta.dtype], x, axis, out);
}
