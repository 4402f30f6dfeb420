/* Of BLAS and LAPACK what the library and its tests call, in plain loops (blas.c), for machines that have none. Not fast. */
#ifndef PLAIN_CBLAS_H
#define PLAIN_CBLAS_H

typedef enum CBLAS_ORDER { CblasRowMajor = 101, CblasColMajor = 102 } CBLAS_ORDER;
typedef enum CBLAS_TRANSPOSE { CblasNoTrans = 111, CblasTrans = 112 } CBLAS_TRANSPOSE;

#define PLAIN_CBLAS(T, k)                                                                                                        \
    void cblas_##k##gemm(CBLAS_ORDER order, CBLAS_TRANSPOSE trans_a, CBLAS_TRANSPOSE trans_b, int m, int n, int depth, T alpha,  \
                         const T *a, int lda, const T *b, int ldb, T beta, T *c, int ldc);                                       \
    void cblas_##k##gemv(CBLAS_ORDER order, CBLAS_TRANSPOSE trans, int m, int n, T alpha, const T *a, int lda, const T *x,       \
                         int x_step, T beta, T *y, int y_step);
PLAIN_CBLAS(double, d)
PLAIN_CBLAS(float, s)

#endif
