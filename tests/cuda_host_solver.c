/*
 * The stand-in cuSOLVER: what it is given is checked as cuSOLVER would, and computed by OpenBLAS's LAPACK when the stream is waited for, the outcomes included.
 * What cuSOLVER does not promise is not a number here: the other triangle of a Cholesky factor, and all behind a pivot that is zero.
 */
#include "cuda_standin_private.h"

#include <math.h>
#include <string.h>

void dgetrf_(const int *m, const int *n, double *a, const int *lda, int *pivots, int *info);
void sgetrf_(const int *m, const int *n, float *a, const int *lda, int *pivots, int *info);
void dgetrs_(const char *trans, const int *n, const int *n_rhs, const double *a, const int *lda, const int *pivots, double *b,
             const int *ldb, int *info, size_t trans_length);
void sgetrs_(const char *trans, const int *n, const int *n_rhs, const float *a, const int *lda, const int *pivots, float *b,
             const int *ldb, int *info, size_t trans_length);
void dpotrf_(const char *uplo, const int *n, double *a, const int *lda, int *info, size_t uplo_length);
void spotrf_(const char *uplo, const int *n, float *a, const int *lda, int *info, size_t uplo_length);

struct cusolverDnContext {
    CUstream stream;
};

struct cusolverDnParams {
    int unused;
};

/* What waits in a stream: a factorisation, or a solution with factors. */
typedef struct task {
    CUstream stream;
    bool f64;
    int n, columns;
    void *a, *b;
    int64_t *pivots;
    void *work, *host;
    size_t work_bytes, host_bytes;
    int *info;
} task;

#define BEGIN_SOLVER(function)                                                                                                   \
    do {                                                                                                                         \
        int standin_code = standin_failure(#function);                                                                           \
        if (standin_code)                                                                                                        \
            return (cusolverStatus_t)standin_code;                                                                               \
        if (standin_current() < 0)                                                                                               \
            return CUSOLVER_STATUS_NOT_INITIALIZED;                                                                              \
    } while (0)

/* ---- the work ---- */

static size_t size_of(const task *t) {
    return t->f64 ? sizeof(double) : sizeof(float);
}

/* The matrix and the workspaces; what was in these is gone. */
static void open_factors(const task *t, const char *function) {
    standin_check_device(t->stream, function, t->a, (size_t)t->n * (size_t)t->n * size_of(t));
    standin_check_device(t->stream, function, t->work, t->work_bytes);
    standin_check_device(t->stream, function, t->info, sizeof(int));
    memset(t->work, 0xff, t->work_bytes);
    if (t->host_bytes > 0)
        memset(t->host, 0xff, t->host_bytes);
}

static void spoil(const task *t, int row, int column) {
    if (t->f64)
        ((double *)t->a)[column * t->n + row] = NAN;
    else
        ((float *)t->a)[column * t->n + row] = NAN;
}

static void run_getrf(void *data) {
    const task *t = data;
    open_factors(t, "cusolverDnXgetrf");
    standin_check_device(t->stream, "cusolverDnXgetrf", t->pivots, (size_t)t->n * sizeof(int64_t));
    int *pivots = malloc((size_t)t->n * sizeof(int));
    if (t->f64)
        dgetrf_(&t->n, &t->n, t->a, &t->n, pivots, t->info);
    else
        sgetrf_(&t->n, &t->n, t->a, &t->n, pivots, t->info);
    for (int i = 0; i < t->n; i++)
        t->pivots[i] = pivots[i];
    free(pivots);
    for (int i = *t->info; i > 0 && i < t->n; i++)
        for (int j = *t->info; j < t->n; j++)
            spoil(t, i, j);
}

static void run_getrs(void *data) {
    const task *t = data;
    const char *function = "cusolverDnXgetrs";
    standin_check_device(t->stream, function, t->a, (size_t)t->n * (size_t)t->n * size_of(t));
    standin_check_device(t->stream, function, t->b, (size_t)t->n * (size_t)t->columns * size_of(t));
    standin_check_device(t->stream, function, t->pivots, (size_t)t->n * sizeof(int64_t));
    standin_check_device(t->stream, function, t->info, sizeof(int));
    int *pivots = malloc((size_t)t->n * sizeof(int));
    for (int i = 0; i < t->n; i++)
        pivots[i] = (int)t->pivots[i];
    if (t->f64)
        dgetrs_("N", &t->n, &t->columns, t->a, &t->n, pivots, t->b, &t->n, t->info, 1);
    else
        sgetrs_("N", &t->n, &t->columns, t->a, &t->n, pivots, t->b, &t->n, t->info, 1);
    free(pivots);
}

static void run_potrf(void *data) {
    const task *t = data;
    open_factors(t, "cusolverDnXpotrf");
    if (t->f64)
        dpotrf_("U", &t->n, t->a, &t->n, t->info, 1);
    else
        spotrf_("U", &t->n, t->a, &t->n, t->info, 1);
    for (int j = 0; j < t->n; j++)
        for (int i = j + 1; i < t->n; i++)
            spoil(t, i, j);
}

static void enqueue(task t, void (*run)(void *data)) {
    task *kept = malloc(sizeof(*kept));
    *kept = t;
    standin_enqueue(t.stream, run, kept);
}

/* ---- the functions ---- */

static bool is_square(int64_t n, int64_t lda, cudaDataType type, cudaDataType compute) {
    return n >= 0 && n <= INT32_MAX && lda == (n > 1 ? n : 1) && type == compute && (type == CUDA_R_64F || type == CUDA_R_32F);
}

static CUstream stream_of(cusolverDnHandle_t handle) {
    if (!handle || !handle->stream)
        STANDIN_DIE("a factorisation without a stream of its own");
    if (standin_stream_device(handle->stream) != standin_current())
        STANDIN_DIE("a factorisation in a stream of another device");
    return handle->stream;
}

/* Some of the host's only for an odd number of rows, so that both cases come up. */
static size_t work_bytes(int64_t n) {
    return (size_t)n * 24 + 8;
}
static size_t host_bytes(int64_t n) {
    return n % 2 ? 40 : 0;
}

static bool has_room(const task *t) {
    return t->work && t->work_bytes >= work_bytes(t->n) && t->host_bytes >= host_bytes(t->n) && (t->host || t->host_bytes == 0) &&
           (uintptr_t)t->work % 16 == 0;
}

static cusolverStatus_t in_cusolverDnXgetrf_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t params, int64_t m, int64_t n,
                                                       cudaDataType type, const void *a, int64_t lda, cudaDataType compute,
                                                       size_t *device, size_t *host) {
    BEGIN_SOLVER(cusolverDnXgetrf_bufferSize);
    (void)stream_of(handle);
    if (!params || !a || m != n || !is_square(n, lda, type, compute))
        return CUSOLVER_STATUS_INVALID_VALUE;
    *device = work_bytes(n);
    *host = host_bytes(n);
    return CUSOLVER_STATUS_SUCCESS;
}

static cusolverStatus_t in_cusolverDnXgetrf(cusolverDnHandle_t handle, cusolverDnParams_t params, int64_t m, int64_t n,
                                            cudaDataType type, void *a, int64_t lda, int64_t *pivots, cudaDataType compute,
                                            void *device, size_t device_bytes, void *host, size_t host_bytes_given, int *info) {
    BEGIN_SOLVER(cusolverDnXgetrf);
    if (!params || !a || !pivots || !info || m != n || !is_square(n, lda, type, compute))
        return CUSOLVER_STATUS_INVALID_VALUE;
    task t = {.stream = stream_of(handle), .f64 = type == CUDA_R_64F, .n = (int)n, .a = a, .pivots = pivots, .info = info};
    t.work = device;
    t.work_bytes = device_bytes;
    t.host = host;
    t.host_bytes = host_bytes_given;
    if (!has_room(&t))
        return CUSOLVER_STATUS_INVALID_VALUE;
    enqueue(t, run_getrf);
    return CUSOLVER_STATUS_SUCCESS;
}

static cusolverStatus_t in_cusolverDnXgetrs(cusolverDnHandle_t handle, cusolverDnParams_t params, cublasOperation_t trans,
                                            int64_t n, int64_t columns, cudaDataType type, const void *a, int64_t lda,
                                            const int64_t *pivots, cudaDataType type_b, void *b, int64_t ldb, int *info) {
    BEGIN_SOLVER(cusolverDnXgetrs);
    if (!params || !a || !b || !pivots || !info || columns < 0 || columns > INT32_MAX || ldb != lda ||
        !is_square(n, lda, type, type_b))
        return CUSOLVER_STATUS_INVALID_VALUE;
    if (trans != CUBLAS_OP_N)
        STANDIN_DIE("a solution with the transposed matrix");
    enqueue((task){.stream = stream_of(handle),
                   .f64 = type == CUDA_R_64F,
                   .n = (int)n,
                   .columns = (int)columns,
                   .a = (void *)(uintptr_t)a,
                   .b = b,
                   .pivots = (int64_t *)(uintptr_t)pivots,
                   .info = info},
            run_getrs);
    return CUSOLVER_STATUS_SUCCESS;
}

static cusolverStatus_t in_cusolverDnXpotrf_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t params,
                                                       cublasFillMode_t triangle, int64_t n, cudaDataType type, const void *a,
                                                       int64_t lda, cudaDataType compute, size_t *device, size_t *host) {
    BEGIN_SOLVER(cusolverDnXpotrf_bufferSize);
    (void)stream_of(handle);
    if (!params || !a || triangle != CUBLAS_FILL_MODE_UPPER || !is_square(n, lda, type, compute))
        return CUSOLVER_STATUS_INVALID_VALUE;
    *device = work_bytes(n);
    *host = host_bytes(n);
    return CUSOLVER_STATUS_SUCCESS;
}

static cusolverStatus_t in_cusolverDnXpotrf(cusolverDnHandle_t handle, cusolverDnParams_t params, cublasFillMode_t triangle,
                                            int64_t n, cudaDataType type, void *a, int64_t lda, cudaDataType compute,
                                            void *device, size_t device_bytes, void *host, size_t host_bytes_given, int *info) {
    BEGIN_SOLVER(cusolverDnXpotrf);
    if (!params || !a || !info || triangle != CUBLAS_FILL_MODE_UPPER || !is_square(n, lda, type, compute))
        return CUSOLVER_STATUS_INVALID_VALUE;
    task t = {.stream = stream_of(handle), .f64 = type == CUDA_R_64F, .n = (int)n, .a = a, .info = info};
    t.work = device;
    t.work_bytes = device_bytes;
    t.host = host;
    t.host_bytes = host_bytes_given;
    if (!has_room(&t))
        return CUSOLVER_STATUS_INVALID_VALUE;
    enqueue(t, run_potrf);
    return CUSOLVER_STATUS_SUCCESS;
}

/* ---- handles ---- */

static cusolverStatus_t in_cusolverDnCreate(cusolverDnHandle_t *handle) {
    BEGIN_SOLVER(cusolverDnCreate);
    *handle = calloc(1, sizeof(**handle));
    standin_hold(1);
    return CUSOLVER_STATUS_SUCCESS;
}

static cusolverStatus_t in_cusolverDnDestroy(cusolverDnHandle_t handle) {
    free(handle);
    standin_hold(-1);
    return (cusolverStatus_t)standin_failure("cusolverDnDestroy");
}

static cusolverStatus_t in_cusolverDnSetStream(cusolverDnHandle_t handle, cudaStream_t stream) {
    BEGIN_SOLVER(cusolverDnSetStream);
    (void)standin_stream_device(stream);
    handle->stream = stream;
    return CUSOLVER_STATUS_SUCCESS;
}

static cusolverStatus_t in_cusolverDnCreateParams(cusolverDnParams_t *params) {
    BEGIN_SOLVER(cusolverDnCreateParams);
    *params = calloc(1, sizeof(**params));
    standin_hold(1);
    return CUSOLVER_STATUS_SUCCESS;
}

static cusolverStatus_t in_cusolverDnDestroyParams(cusolverDnParams_t params) {
    free(params);
    standin_hold(-1);
    return (cusolverStatus_t)standin_failure("cusolverDnDestroyParams");
}

void standin_solver(aji_cuda_api *api) {
    api->cusolverDnCreate = in_cusolverDnCreate;
    api->cusolverDnDestroy = in_cusolverDnDestroy;
    api->cusolverDnSetStream = in_cusolverDnSetStream;
    api->cusolverDnCreateParams = in_cusolverDnCreateParams;
    api->cusolverDnDestroyParams = in_cusolverDnDestroyParams;
    api->cusolverDnXgetrf_bufferSize = in_cusolverDnXgetrf_bufferSize;
    api->cusolverDnXgetrf = in_cusolverDnXgetrf;
    api->cusolverDnXgetrs = in_cusolverDnXgetrs;
    api->cusolverDnXpotrf_bufferSize = in_cusolverDnXpotrf_bufferSize;
    api->cusolverDnXpotrf = in_cusolverDnXpotrf;
    api->loaded[AJI_LIB_CUSOLVER] = true;
}
