/* The functions of blas.c for numbers of type T: included once for each. */

void NAME(cblas_, gemm)(CBLAS_ORDER order, CBLAS_TRANSPOSE trans_a, CBLAS_TRANSPOSE trans_b, int m, int n, int depth, T alpha,
                        const T *a, int lda, const T *b, int ldb, T beta, T *c, int ldc) {
    strides sa = strides_of(order, trans_a, lda), sb = strides_of(order, trans_b, ldb), sc = strides_of(order, CblasNoTrans, ldc);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int l = 0; l < depth; l++)
                sum += (double)a[i * sa.row + l * sa.column] * b[l * sb.row + j * sb.column];
            T *to = &c[i * sc.row + j * sc.column];
            *to = (T)(alpha * sum + (beta == 0 ? 0 : beta * *to)); /* what is in c at first may be NaN */
        }
}

void NAME(cblas_, gemv)(CBLAS_ORDER order, CBLAS_TRANSPOSE trans, int m, int n, T alpha, const T *a, int lda, const T *x,
                        int x_step, T beta, T *y, int y_step) {
    strides s = strides_of(order, trans, lda);
    int rows = trans == CblasNoTrans ? m : n, columns = trans == CblasNoTrans ? n : m;
    for (int i = 0; i < rows; i++) {
        double sum = 0;
        for (int j = 0; j < columns; j++)
            sum += (double)a[i * s.row + j * s.column] * x[(ptrdiff_t)j * x_step];
        T *to = &y[(ptrdiff_t)i * y_step];
        *to = (T)(alpha * sum + (beta == 0 ? 0 : beta * *to));
    }
}

static void NAME(swap_rows_, )(T *a, int ld, int n, int i, int k) {
    for (int j = 0; j < n && i != k; j++) {
        T *column = a + (ptrdiff_t)j * ld, kept = column[i];
        column[i] = column[k];
        column[k] = kept;
    }
}

void NAME(, getrf_)(const int *m, const int *n, T *a, const int *lda, int *pivots, int *info);
void NAME(, getrf_)(const int *m, const int *n, T *a, const int *lda, int *pivots, int *info) {
    ptrdiff_t ld = *lda;
    *info = 0;
    for (int k = 0; k < *m && k < *n; k++) {
        int best = k;
        for (int i = k + 1; i < *m; i++)
            best = fabs((double)a[i + k * ld]) > fabs((double)a[best + k * ld]) ? i : best;
        pivots[k] = best + 1;
        NAME(swap_rows_, )(a, *lda, *n, k, best);
        if (a[k + k * ld] == 0) {
            *info = *info ? *info : k + 1;
            continue;
        }
        for (int i = k + 1; i < *m; i++) {
            T factor = a[i + k * ld] /= a[k + k * ld];
            for (int j = k + 1; j < *n; j++)
                a[i + j * ld] -= factor * a[k + j * ld];
        }
    }
}

/* One of the four substitutions: with the lower (unit) or upper triangle of a, or with its transpose. */
static void NAME(substitute_, )(bool lower, bool transpose, int n, int n_rhs, const T *a, ptrdiff_t ld, T *b, ptrdiff_t ldb) {
    strides s = transpose ? (strides){ld, 1} : (strides){1, ld};
    bool down = lower != transpose;
    for (int r = 0; r < n_rhs; r++) {
        T *x = b + r * ldb;
        for (int k = 0; k < n; k++) {
            int i = down ? k : n - 1 - k;
            double sum = x[i];
            for (int j = down ? 0 : i + 1; j < (down ? i : n); j++)
                sum -= (double)a[i * s.row + j * s.column] * x[j];
            x[i] = (T)(lower ? sum : sum / a[i + i * ld]);
        }
    }
}

void NAME(, getrs_)(const char *trans, const int *n, const int *n_rhs, const T *a, const int *lda, const int *pivots, T *b,
                    const int *ldb, int *info, size_t length);
void NAME(, getrs_)(const char *trans, const int *n, const int *n_rhs, const T *a, const int *lda, const int *pivots, T *b,
                    const int *ldb, int *info, size_t length) {
    bool transpose = *trans != 'N' && *trans != 'n';
    (void)length;
    *info = 0;
    for (int k = 0; k < *n && !transpose; k++)
        NAME(swap_rows_, )(b, *ldb, *n_rhs, k, pivots[k] - 1);
    NAME(substitute_, )(!transpose, transpose, *n, *n_rhs, a, *lda, b, *ldb);
    NAME(substitute_, )(transpose, transpose, *n, *n_rhs, a, *lda, b, *ldb);
    for (int k = *n - 1; k >= 0 && transpose; k--)
        NAME(swap_rows_, )(b, *ldb, *n_rhs, k, pivots[k] - 1);
}

void NAME(, gesv_)(const int *n, const int *n_rhs, T *a, const int *lda, int *pivots, T *b, const int *ldb, int *info);
void NAME(, gesv_)(const int *n, const int *n_rhs, T *a, const int *lda, int *pivots, T *b, const int *ldb, int *info) {
    NAME(, getrf_)(n, n, a, lda, pivots, info);
    if (*info == 0)
        NAME(, getrs_)("N", n, n_rhs, a, lda, pivots, b, ldb, info, 1);
}

/* The triangle of a that uplo names: a = l l' or u' u. */
void NAME(, potrf_)(const char *uplo, const int *n, T *a, const int *lda, int *info, size_t length);
void NAME(, potrf_)(const char *uplo, const int *n, T *a, const int *lda, int *info, size_t length) {
    strides s = *uplo == 'L' || *uplo == 'l' ? (strides){1, *lda} : (strides){*lda, 1};
    (void)length;
    *info = 0;
    for (int j = 0; j < *n && *info == 0; j++)
        for (int i = j; i < *n; i++) {
            double sum = a[i * s.row + j * s.column];
            for (int l = 0; l < j; l++)
                sum -= (double)a[i * s.row + l * s.column] * a[j * s.row + l * s.column];
            if (i == j && !(sum > 0)) {
                *info = j + 1;
                break;
            }
            a[i * s.row + j * s.column] = (T)(i == j ? sqrt(sum) : sum / a[j * s.row + j * s.column]);
        }
}
