/* The stand-in cuBLAS: what it is given is checked as cuBLAS would, and computed by OpenBLAS when the stream is waited for. */
#include "cuda_standin_private.h"

#include <cblas.h>

struct cublasContext {
    CUstream stream;
};

/* A product that waits in a stream. */
typedef struct product {
    bool f64;
    CBLAS_TRANSPOSE a_op, b_op;
    int m, n, k, lda, ldb, ldc, count;
    long long a_stride, b_stride, c_stride;
    const char *a, *b;
    char *c;
} product;

static void multiply(void *data) {
    const product *p = data;
    long long size = p->f64 ? 8 : 4;
    for (int i = 0; i < p->count; i++) {
        const void *a = p->a + i * p->a_stride * size, *b = p->b + i * p->b_stride * size;
        void *c = p->c + i * p->c_stride * size;
        if (p->f64)
            cblas_dgemm(CblasColMajor, p->a_op, p->b_op, p->m, p->n, p->k, 1, a, p->lda, b, p->ldb, 0, c, p->ldc);
        else
            cblas_sgemm(CblasColMajor, p->a_op, p->b_op, p->m, p->n, p->k, 1, a, p->lda, b, p->ldb, 0, c, p->ldc);
    }
}

static bool is_leading(int ld, int rows) {
    return ld >= 1 && ld >= rows;
}

static cublasStatus_t enqueue(cublasHandle_t handle, product p) {
    if (!handle->stream)
        STANDIN_DIE("a product without a stream of its own");
    bool leading = is_leading(p.lda, p.a_op == CblasNoTrans ? p.m : p.k) &&
                   is_leading(p.ldb, p.b_op == CblasNoTrans ? p.k : p.n) && is_leading(p.ldc, p.m);
    if (p.m < 0 || p.n < 0 || p.k < 0 || p.count < 0 || !leading)
        return CUBLAS_STATUS_INVALID_VALUE;
    product *kept = malloc(sizeof(*kept));
    *kept = p;
    standin_enqueue(handle->stream, multiply, kept);
    return CUBLAS_STATUS_SUCCESS;
}

static CBLAS_TRANSPOSE transposed(cublasOperation_t op) {
    return op == CUBLAS_OP_N ? CblasNoTrans : CblasTrans;
}

#define GEMM(name, type, is_f64)                                                                                                 \
    static cublasStatus_t in_##name(cublasHandle_t handle, cublasOperation_t a_op, cublasOperation_t b_op, int m, int n, int k,  \
                                    const type *alpha, const type *a, int lda, long long a_stride, const type *b, int ldb,       \
                                    long long b_stride, const type *beta, type *c, int ldc, long long c_stride, int count) {     \
        int code = standin_failure(#name);                                                                                       \
        if (code)                                                                                                                \
            return (cublasStatus_t)code;                                                                                         \
        if (*alpha != 1 || *beta != 0)                                                                                           \
            STANDIN_DIE("a product that is scaled or added");                                                                    \
        return enqueue(handle, (product){.f64 = (is_f64),                                                                        \
                                         .a_op = transposed(a_op),                                                               \
                                         .b_op = transposed(b_op),                                                               \
                                         .m = m,                                                                                 \
                                         .n = n,                                                                                 \
                                         .k = k,                                                                                 \
                                         .lda = lda,                                                                             \
                                         .ldb = ldb,                                                                             \
                                         .ldc = ldc,                                                                             \
                                         .count = count,                                                                         \
                                         .a_stride = a_stride,                                                                   \
                                         .b_stride = b_stride,                                                                   \
                                         .c_stride = c_stride,                                                                   \
                                         .a = (const char *)a,                                                                   \
                                         .b = (const char *)b,                                                                   \
                                         .c = (char *)c});                                                                       \
    }

GEMM(cublasDgemmStridedBatched, double, true)
GEMM(cublasSgemmStridedBatched, float, false)

static const char *in_cublasGetStatusString(cublasStatus_t status) {
    (void)status;
    return "an error of the stand-in cuBLAS";
}

static cublasStatus_t in_cublasCreate(cublasHandle_t *handle) {
    int code = standin_failure("cublasCreate");
    if (code)
        return (cublasStatus_t)code;
    if (standin_current() < 0)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = calloc(1, sizeof(**handle));
    standin_hold(1);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t in_cublasDestroy(cublasHandle_t handle) {
    free(handle);
    standin_hold(-1);
    return (cublasStatus_t)standin_failure("cublasDestroy");
}

static cublasStatus_t in_cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
    int code = standin_failure("cublasSetStream");
    if (code)
        return (cublasStatus_t)code;
    (void)standin_stream_device(stream);
    handle->stream = stream;
    return CUBLAS_STATUS_SUCCESS;
}

void standin_libraries(aji_cuda_api *api) {
    api->cublasGetStatusString = in_cublasGetStatusString;
    api->cublasCreate = in_cublasCreate;
    api->cublasDestroy = in_cublasDestroy;
    api->cublasSetStream = in_cublasSetStream;
    api->cublasDgemmStridedBatched = in_cublasDgemmStridedBatched;
    api->cublasSgemmStridedBatched = in_cublasSgemmStridedBatched;
    api->loaded[AJI_LIB_CUBLAS] = true;
    standin_solver(api);
}
