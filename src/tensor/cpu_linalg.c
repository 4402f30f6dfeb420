/*
 * The linear algebra slots of the CPU, on BLAS and LAPACK. All work matrix by matrix along the batch axes, those before the last two.
 *
 * LAPACK sees columns first: to it, the memory of a row-major matrix is the transposed matrix. What it factorises here is a copy in any case, so
 * that each copy is made in the order that LAPACK wants.
 */
#include <cblas.h>
#include <math.h>
#include <string.h>

#include "tensor/cpu.h"

#define BLAS_MAX INT32_MAX /* extents and strides in BLAS are int */

/* LAPACK (Fortran: everything by reference; info > 0 is the number, from 1, of the pivot or minor that failed) */
void dgesv_(const int *n, const int *n_rhs, double *a, const int *lda, int *pivots, double *b, const int *ldb, int *info);
void sgesv_(const int *n, const int *n_rhs, float *a, const int *lda, int *pivots, float *b, const int *ldb, int *info);
void dgetrf_(const int *m, const int *n, double *a, const int *lda, int *pivots, int *info);
void sgetrf_(const int *m, const int *n, float *a, const int *lda, int *pivots, int *info);
void dpotrf_(const char *uplo, const int *n, double *a, const int *lda, int *info, size_t uplo_length);
void spotrf_(const char *uplo, const int *n, float *a, const int *lda, int *info, size_t uplo_length);

/* ---- batches of matrices ---- */

static int64_t n_rows(const aji_value *v) {
    return v->meta.shape[v->meta.ndim - 2];
}

static int64_t n_columns(const aji_value *v) {
    return v->meta.shape[v->meta.ndim - 1];
}

/* The batch axes of a and b, NULL or with the same batch extents, in row-major order. */
static void walk_batch(aji_walk *walk, const aji_value *a, const aji_value *b) {
    aji_walk_axes(walk, a, b, (1u << (a->meta.ndim - 2)) - 1);
    aji_walk_coalesce(walk);
}

/* to[i row + j column] = element (i, j) of v's matrix at an offset of the batch */
static void load_matrix(char *to, int64_t row, int64_t column, const aji_value *v, int64_t offset) {
    size_t size = aj_dtype_size(v->meta.dtype);
    aji_walk walk = {.ndim = 2,
                     .shape = {n_rows(v), n_columns(v)},
                     .strides = {{row, column}, {v->strides[v->meta.ndim - 2], v->strides[v->meta.ndim - 1]}}};
    aji_copy_region(to, (const char *)aji_value_data(v) + offset * (int64_t)size, &walk, size);
}

static aj_status check_lapack(aj_ctx *ctx, const char *op, const aji_value *a, int64_t n, int64_t k) {
    if (!aji_dtype_is_float(a->meta.dtype))
        return aj_raise(ctx, AJ_ERR_UNSUPPORTED, "%s: not available for %s on the CPU; only for f64 and f32; use aj_cast", op,
                        aj_dtype_name(a->meta.dtype));
    if (n > BLAS_MAX || k > BLAS_MAX)
        return aj_raise(ctx, AJ_ERR_UNSUPPORTED, "%s: extents %lld and %lld; LAPACK counts no further than %d", op, (long long)n,
                        (long long)k, BLAS_MAX);
    return AJ_OK;
}

/* ---- matmul ---- */

/* A matrix operand as BLAS takes it: row-major with leading dimension ld, or the transpose of one, or a packed copy. */
typedef struct operand {
    const aji_value *v;
    enum CBLAS_TRANSPOSE trans;
    int ld;
    void *packed; /* NULL: in place */
    size_t packed_bytes;
    int64_t packed_offset; /* the matrix that packed holds; -1: none yet */
} operand;

static bool is_leading(int64_t stride, int64_t extent) {
    return stride >= extent && stride <= BLAS_MAX;
}

static aj_status prepare_operand(aj_ctx *ctx, operand *x, const aji_value *v) {
    int64_t rows = n_rows(v), columns = n_columns(v);
    int64_t row = v->strides[v->meta.ndim - 2], column = v->strides[v->meta.ndim - 1];
    if (rows == 1) /* the stride between rows has no meaning, and any will do */
        row = column == 1 ? columns : 1;
    if (columns == 1)
        column = row == 1 ? rows : 1;
    *x = (operand){.v = v, .packed_offset = -1};
    if (column == 1 && is_leading(row, columns)) {
        x->trans = CblasNoTrans;
        x->ld = (int)row;
        return AJ_OK;
    }
    if (row == 1 && is_leading(column, rows)) {
        x->trans = CblasTrans;
        x->ld = (int)column;
        return AJ_OK;
    }
    x->trans = CblasNoTrans;
    x->ld = (int)columns;
    x->packed_bytes = (size_t)(rows * columns) * aj_dtype_size(v->meta.dtype);
    x->packed = aji_alloc(ctx, x->packed_bytes);
    return x->packed ? AJ_OK : AJ_ERR_MEMORY;
}

/* Where x's matrix at an offset of the batch is for BLAS. One packed copy serves while the offset stays, so broadcasting costs no copies. */
static const void *matrix_at(operand *x, int64_t offset) {
    if (!x->packed)
        return (const char *)aji_value_data(x->v) + offset * (int64_t)aj_dtype_size(x->v->meta.dtype);
    if (x->packed_offset != offset)
        load_matrix(x->packed, x->ld, 1, x->v, offset);
    x->packed_offset = offset;
    return x->packed;
}

/* y = matrix x, or x^T matrix if from_left; stride is that of x. rows, columns: of the matrix. */
static void multiply_vector(const operand *matrix, const void *data, bool from_left, int rows, int columns, const void *x,
                            int stride, void *y) {
    bool as_stored = matrix->trans == CblasNoTrans;
    int m = as_stored ? rows : columns, n = as_stored ? columns : rows;
    enum CBLAS_TRANSPOSE trans = as_stored != from_left ? CblasNoTrans : CblasTrans;
    aj_dtype dtype = matrix->v->meta.dtype;
    /* Added to zeros: some BLAS keep a NaN that is in y by chance if they are told to multiply it by zero. */
    memset(y, 0, (size_t)(from_left ? columns : rows) * aj_dtype_size(dtype));
    if (dtype == AJ_F64)
        cblas_dgemv(CblasRowMajor, trans, m, n, 1, data, matrix->ld, x, stride, 1, y, 1);
    else
        cblas_sgemv(CblasRowMajor, trans, m, n, 1, data, matrix->ld, x, stride, 1, y, 1);
}

/* One product of the batch: (m, k) times (k, n). */
static void multiply(operand *a, operand *b, int64_t a_offset, int64_t b_offset, int m, int k, int n, void *out) {
    const void *a_data = matrix_at(a, a_offset), *b_data = matrix_at(b, b_offset);
    if (n == 1)
        multiply_vector(a, a_data, false, m, k, b_data, b->trans == CblasNoTrans ? b->ld : 1, out);
    else if (m == 1)
        multiply_vector(b, b_data, true, k, n, a_data, a->trans == CblasNoTrans ? 1 : a->ld, out);
    else if (a->v->meta.dtype == AJ_F64)
        cblas_dgemm(CblasRowMajor, a->trans, b->trans, m, n, k, 1, a_data, a->ld, b_data, b->ld, 0, out, n);
    else
        cblas_sgemm(CblasRowMajor, a->trans, b->trans, m, n, k, 1, a_data, a->ld, b_data, b->ld, 0, out, n);
}

static aj_status matmul_blas(aj_ctx *ctx, const aji_value *a, const aji_value *b, const aji_value *out) {
    int64_t m = n_rows(a), k = n_columns(a), n = n_columns(b);
    operand left, right = {.packed = NULL};
    aji_walk batch;
    walk_batch(&batch, a, b);
    int64_t n_batch = aji_walk_numel(&batch);
    aj_status status = prepare_operand(ctx, &left, a);
    if (status == AJ_OK)
        status = prepare_operand(ctx, &right, b);
    /* One b for a stack of a that continue each other: the stack is one tall matrix. */
    bool tall = batch.ndim == 1 && batch.strides[1][0] == 0 && batch.strides[0][0] == m * left.ld && left.trans == CblasNoTrans;
    if (tall && !left.packed && n_batch * m <= BLAS_MAX) {
        m *= n_batch;
        n_batch = 1;
    }
    char *to = aji_value_data(out);
    size_t step = (size_t)(m * n) * aj_dtype_size(out->meta.dtype);
    for (int64_t p = 0; p < n_batch && status == AJ_OK; p++, aji_walk_advance(&batch, 1))
        multiply(&left, &right, batch.offset[0], batch.offset[1], (int)m, (int)k, (int)n, to + (size_t)p * step);
    aji_free(ctx, left.packed, left.packed_bytes);
    aji_free(ctx, right.packed, right.packed_bytes);
    return status;
}

/* out = a b for one matrix of integers, wrapping; strides of a and b: row, column. out is zero at first. */
#define MATMUL_INTEGER(T, TAG)                                                                                                   \
    static void matmul_##TAG(const void *a_data, const int64_t *a_stride, const void *b_data, const int64_t *b_stride,           \
                             int64_t m, int64_t k, int64_t n, void *out_data) {                                                  \
        const T *restrict a = a_data, *restrict b = b_data;                                                                      \
        T *restrict out = out_data;                                                                                              \
        for (int64_t i = 0; i < m; i++)                                                                                          \
            for (int64_t l = 0; l < k; l++) {                                                                                    \
                const uint64_t factor = (uint64_t)a[i * a_stride[0] + l * a_stride[1]];                                          \
                for (int64_t j = 0; j < n; j++)                                                                                  \
                    out[i * n + j] = (T)((uint64_t)out[i * n + j] + factor * (uint64_t)b[l * b_stride[0] + j * b_stride[1]]);    \
            }                                                                                                                    \
    }
MATMUL_INTEGER(int64_t, i64)
MATMUL_INTEGER(int32_t, i32)
MATMUL_INTEGER(uint8_t, u8)

static void matmul_integers(const aji_value *a, const aji_value *b, const aji_value *out) {
    int64_t m = n_rows(a), k = n_columns(a), n = n_columns(b), size = (int64_t)aj_dtype_size(out->meta.dtype);
    const char *a_data = aji_value_data(a), *b_data = aji_value_data(b);
    char *to = aji_value_data(out);
    const int64_t *a_stride = a->strides + a->meta.ndim - 2, *b_stride = b->strides + b->meta.ndim - 2;
    aj_dtype dtype = out->meta.dtype;
    aji_walk batch;
    walk_batch(&batch, a, b);
    memset(to, 0, (size_t)(aji_meta_numel(&out->meta) * size));
    for (int64_t left = aji_walk_numel(&batch); left > 0; left--, to += m * n * size) {
        (dtype == AJ_I64 ? matmul_i64
         : dtype == AJ_I32
             ? matmul_i32
             : matmul_u8)(a_data + batch.offset[0] * size, a_stride, b_data + batch.offset[1] * size, b_stride, m, k, n, to);
        aji_walk_advance(&batch, 1);
    }
}

aj_status aji_cpu_matmul(aj_ctx *ctx, const aji_value *a, const aji_value *b, const aji_value *out) {
    int64_t m = n_rows(a), k = n_columns(a), n = n_columns(b), numel = aji_meta_numel(&out->meta);
    if (numel == 0)
        return AJ_OK;
    if (k == 0)
        memset(aji_value_data(out), 0, (size_t)numel * aj_dtype_size(out->meta.dtype));
    else if (!aji_dtype_is_float(out->meta.dtype))
        matmul_integers(a, b, out);
    else if (m > BLAS_MAX || k > BLAS_MAX || n > BLAS_MAX)
        return aj_raise(ctx, AJ_ERR_UNSUPPORTED, "aj_matmul: (%lld, %lld) times (%lld, %lld); BLAS counts no further than %d",
                        (long long)m, (long long)k, (long long)k, (long long)n, BLAS_MAX);
    else
        return matmul_blas(ctx, a, b, out);
    return AJ_OK;
}

/* ---- solve ---- */

/* One system, all in LAPACK's order of memory. Returns the number of the pivot that is zero, 0 if there is none. */
static int solve_one(aj_dtype dtype, int n, int n_rhs, void *a, int *pivots, void *b) {
    int info;
    if (dtype == AJ_F64)
        dgesv_(&n, &n_rhs, a, &n, pivots, b, &n, &info);
    else
        sgesv_(&n, &n_rhs, a, &n, pivots, b, &n, &info);
    return info;
}

aj_status aji_cpu_solve(aj_ctx *ctx, const aji_value *a, const aji_value *b, const aji_value *out) {
    int64_t n = n_rows(a), k = n_columns(b);
    aj_status status = check_lapack(ctx, "aj_solve", a, n, k);
    if (status != AJ_OK || aji_meta_numel(&out->meta) == 0)
        return status;
    size_t size = aj_dtype_size(a->meta.dtype), a_bytes = (size_t)(n * n) * size, b_bytes = (size_t)(n * k) * size;
    size_t bytes = a_bytes + b_bytes + (size_t)n * sizeof(int);
    char *memory = aji_alloc(ctx, bytes), *to = aji_value_data(out);
    if (!memory)
        return AJ_ERR_MEMORY;
    aji_walk batch;
    walk_batch(&batch, a, b);
    int64_t n_batch = aji_walk_numel(&batch);
    for (int64_t p = 0; p < n_batch && status == AJ_OK; p++, aji_walk_advance(&batch, 1)) {
        load_matrix(memory, 1, n, a, batch.offset[0]);
        load_matrix(memory + a_bytes, 1, n, b, batch.offset[1]);
        int pivot = solve_one(a->meta.dtype, (int)n, (int)k, memory, (int *)(memory + a_bytes + b_bytes), memory + a_bytes);
        if (pivot != 0)
            status = aj_raise(ctx, AJ_ERR_NUMERIC, "aj_solve: matrix %lld of %lld is singular: pivot %d of %lld is zero",
                              (long long)p + 1, (long long)n_batch, pivot, (long long)n);
        aji_walk back = {.ndim = 2, .shape = {n, k}, .strides = {{k, 1}, {1, n}}};
        aji_copy_region(to + (size_t)p * b_bytes, memory + a_bytes, &back, size);
    }
    aji_free(ctx, memory, bytes);
    return status;
}

/* ---- cholesky ---- */

/* The lower triangle, row-major, is the upper one to LAPACK. Returns the order of the minor that is not positive, 0 if all are. */
static int cholesky_one(aj_dtype dtype, int n, void *a) {
    int info;
    if (dtype == AJ_F64)
        dpotrf_("U", &n, a, &n, &info, 1);
    else
        spotrf_("U", &n, a, &n, &info, 1);
    return info;
}

aj_status aji_cpu_cholesky(aj_ctx *ctx, const aji_value *a, const aji_value *out) {
    int64_t n = n_rows(a);
    aj_status status = check_lapack(ctx, "aj_cholesky", a, n, n);
    if (status != AJ_OK || aji_meta_numel(&out->meta) == 0)
        return status;
    size_t size = aj_dtype_size(a->meta.dtype);
    char *to = aji_value_data(out);
    aji_walk batch;
    walk_batch(&batch, a, NULL);
    int64_t n_batch = aji_walk_numel(&batch);
    for (int64_t p = 0; p < n_batch; p++, aji_walk_advance(&batch, 1), to += (size_t)(n * n) * size) {
        load_matrix(to, n, 1, a, batch.offset[0]);
        int minor = cholesky_one(a->meta.dtype, (int)n, to);
        if (minor != 0)
            return aj_raise(ctx, AJ_ERR_NUMERIC,
                            "aj_cholesky: matrix %lld of %lld is not positive definite: its leading minor of order %d of %lld is "
                            "not positive",
                            (long long)p + 1, (long long)n_batch, minor, (long long)n);
        for (int64_t i = 0; i < n; i++)
            memset(to + (size_t)(i * n + i + 1) * size, 0, (size_t)(n - i - 1) * size);
    }
    return AJ_OK;
}

/* ---- logdet ---- */

/* log |det a| of n x n numbers, which are overwritten. det a = det of its transpose, so the order of memory does not matter. */
static double logdet_one(aj_dtype dtype, int n, void *a, int *pivots) {
    int info;
    if (dtype == AJ_F64)
        dgetrf_(&n, &n, a, &n, pivots, &info);
    else
        sgetrf_(&n, &n, a, &n, pivots, &info);
    if (info > 0)
        return -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += log(fabs(dtype == AJ_F64 ? ((const double *)a)[i * n + i] : ((const float *)a)[i * n + i]));
    return sum;
}

aj_status aji_cpu_logdet(aj_ctx *ctx, const aji_value *a, const aji_value *out) {
    int64_t n = n_rows(a), size = (int64_t)aj_dtype_size(a->meta.dtype);
    aj_status status = check_lapack(ctx, "aj_logdet", a, n, n);
    if (status != AJ_OK)
        return status;
    size_t a_bytes = (size_t)(n * n * size), bytes = a_bytes + (size_t)n * sizeof(int);
    char *memory = aji_alloc(ctx, bytes);
    if (!memory)
        return AJ_ERR_MEMORY;
    aji_walk batch;
    walk_batch(&batch, a, NULL);
    int64_t n_batch = aji_walk_numel(&batch);
    char *to = aji_value_data(out);
    for (int64_t p = 0; p < n_batch; p++, aji_walk_advance(&batch, 1)) {
        load_matrix(memory, n, 1, a, batch.offset[0]);
        double value = n > 0 ? logdet_one(a->meta.dtype, (int)n, memory, (int *)(memory + a_bytes)) : 0;
        if (a->meta.dtype == AJ_F64)
            ((double *)to)[p] = value;
        else
            ((float *)to)[p] = (float)value;
    }
    aji_free(ctx, memory, bytes);
    return AJ_OK;
}
