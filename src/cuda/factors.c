/*
 * LU and Cholesky factors by cuSOLVER, one matrix after the other in the device's stream. Its 64-bit functions: the others count a matrix's numbers in 32
 * bits. It shares one workspace out to all matrices of a stack, since their work is in the order of the stream.
 */
#include "cuda/linalg.h"

enum {
    MAX_COLUMNS = 1 << 20, /* of one call of getrs, which counts in 32 bits all the same */
    ALIGN = 256            /* of what lies in one block of device memory */
};

/* ---- the libraries' handles ---- */

static void destroy_cusolver(aji_cuda *d) {
    if (d->cusolver_params)
        (void)AJI_CUSOLVER(d, cusolverDnDestroyParams, d->cusolver_params);
    if (d->cusolver)
        (void)AJI_CUSOLVER(d, cusolverDnDestroy, d->cusolver);
    d->cusolver_params = NULL;
    d->cusolver = NULL;
}

void aji_cuda_linalg_destroy(aji_cuda *d) {
    destroy_cusolver(d);
    if (d->cublas)
        (void)AJI_CUBLAS(d, cublasDestroy, d->cublas);
    d->cublas = NULL;
}

static aj_status open_cusolver(aji_cuda *d) {
    if (d->cusolver)
        return AJ_OK;
    cusolverDnHandle_t handle = NULL;
    cusolverDnParams_t params = NULL;
    aj_status status = aji_cuda_api_load(d->device.ctx, &d->api, AJI_LIB_CUSOLVER);
    if (status == AJ_OK)
        status = AJI_CUSOLVER(d, cusolverDnCreate, &handle);
    if (status != AJ_OK)
        return status;
    d->cusolver = handle;
    status = AJI_CUSOLVER(d, cusolverDnSetStream, handle, d->stream);
    if (status == AJ_OK)
        status = AJI_CUSOLVER(d, cusolverDnCreateParams, &params);
    if (status == AJ_OK)
        d->cusolver_params = params;
    else
        destroy_cusolver(d);
    return status;
}

/* ---- factorising ---- */

static cudaDataType type_of(const aji_factors *f) {
    return f->dtype == AJ_F64 ? CUDA_R_64F : CUDA_R_32F;
}

static char *matrix_at(const aji_factors *f, int64_t i) {
    return f->matrices + i * f->n * f->n * (int64_t)aj_dtype_size(f->dtype);
}

static size_t aligned(size_t bytes) {
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* f->room and f->host_bytes are what cuSOLVER has asked for. */
static aj_status make_room(aji_factors *f, bool pivots) {
    size_t pivots_at = aligned(f->room), info_at = pivots_at;
    if (pivots)
        info_at += aligned((size_t)(f->count * f->n) * sizeof(int64_t));
    f->work_bytes = info_at + (size_t)(f->count + 1) * sizeof(int);
    f->work = aji_cuda_alloc(f->d, f->work_bytes);
    if (!f->work)
        return AJ_ERR_MEMORY;
    f->pivots = pivots ? (int64_t *)(void *)(f->work + pivots_at) : NULL;
    f->info = (int *)(void *)(f->work + info_at);
    if (f->host_bytes > 0)
        f->host = aji_alloc(f->d->device.ctx, f->host_bytes);
    return f->host || f->host_bytes == 0 ? AJ_OK : AJ_ERR_MEMORY;
}

aj_status aji_factors_lu(aji_factors *f) {
    aji_cuda *d = f->d;
    cudaDataType type = type_of(f);
    int64_t n = f->n;
    aj_status status = open_cusolver(d);
    if (status == AJ_OK)
        status = AJI_CUSOLVER(d, cusolverDnXgetrf_bufferSize, d->cusolver, d->cusolver_params, n, n, type, f->matrices, n, type,
                              &f->room, &f->host_bytes);
    if (status == AJ_OK)
        status = make_room(f, true);
    for (int64_t i = 0; i < f->count && status == AJ_OK; i++)
        status = AJI_CUSOLVER(d, cusolverDnXgetrf, d->cusolver, d->cusolver_params, n, n, type, matrix_at(f, i), n,
                              f->pivots + i * n, type, f->work, f->room, f->host, f->host_bytes, f->info + i);
    return status;
}

aj_status aji_factors_cholesky(aji_factors *f) {
    aji_cuda *d = f->d;
    cudaDataType type = type_of(f);
    int64_t n = f->n;
    aj_status status = open_cusolver(d);
    if (status == AJ_OK)
        status = AJI_CUSOLVER(d, cusolverDnXpotrf_bufferSize, d->cusolver, d->cusolver_params, CUBLAS_FILL_MODE_UPPER, n, type,
                              f->matrices, n, type, &f->room, &f->host_bytes);
    if (status == AJ_OK)
        status = make_room(f, false);
    for (int64_t i = 0; i < f->count && status == AJ_OK; i++)
        status = AJI_CUSOLVER(d, cusolverDnXpotrf, d->cusolver, d->cusolver_params, CUBLAS_FILL_MODE_UPPER, n, type,
                              matrix_at(f, i), n, type, f->work, f->room, f->host, f->host_bytes, f->info + i);
    return status;
}

/* ---- using the factors ---- */

aj_status aji_factors_solve(const aji_factors *f, int64_t matrix, void *b, int64_t columns) {
    aji_cuda *d = f->d;
    cudaDataType type = type_of(f);
    char *at = b;
    aj_status status = AJ_OK;
    for (int64_t i = 0; i < columns && status == AJ_OK; i += MAX_COLUMNS) {
        int64_t some = columns - i < MAX_COLUMNS ? columns - i : MAX_COLUMNS;
        status = AJI_CUSOLVER(d, cusolverDnXgetrs, d->cusolver, d->cusolver_params, CUBLAS_OP_N, f->n, some, type,
                              matrix_at(f, matrix), f->n, f->pivots + matrix * f->n, type, at, f->n, f->info + f->count);
        at += some * f->n * (int64_t)aj_dtype_size(f->dtype);
    }
    return status;
}

int *aji_factors_info(const aji_factors *f) {
    aj_ctx *ctx = f->d->device.ctx;
    size_t bytes = (size_t)f->count * sizeof(int);
    int *info = aji_alloc(ctx, bytes);
    aj_status status = info ? aji_cuda_get(f->d, info, f->info, bytes) : AJ_ERR_MEMORY;
    for (int64_t i = 0; i < f->count && status == AJ_OK; i++)
        if (info[i] < 0)
            status = aj_raise(ctx, AJ_ERR_DEVICE, "%s: cuSOLVER refused argument %d of matrix %lld on device %s (%s)",
                              aji_ctx_operation(ctx), -info[i], (long long)i + 1, f->d->device.name, f->d->model);
    if (status == AJ_OK)
        return info;
    aji_free(ctx, info, bytes);
    return NULL;
}

void aji_factors_release(aji_factors *f) {
    if (f->host) { /* what is enqueued may still use it */
        (void)AJI_CU(f->d, cuStreamSynchronize, f->d->stream);
        aji_free(f->d->device.ctx, f->host, f->host_bytes);
    }
    aji_cuda_free(f->d, f->work, f->work_bytes);
    f->host = f->work = NULL;
}
