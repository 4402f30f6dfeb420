#include "gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "results.h"

/* ---- finding libraries ---- */

#define TEXT_OF(name) #name /* of what the headers' macros make of it */
#define FIND(function)                                                                                                           \
    address = library ? dlsym(library, TEXT_OF(function)) : NULL;                                                                \
    if (library && !address && !d->wrong[0])                                                                                     \
        snprintf(d->wrong, sizeof d->wrong, "there is no function %s", TEXT_OF(function));                                       \
    memcpy(&d->function, &address, sizeof address);

static void *load(const char *folder, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s%s%s", folder, *folder ? "/" : "", name);
    return dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

static void *load_cublas(void) {
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12"};
    const char *roots[] = {getenv("CUDA_HOME"), getenv("CUDA_PATH")};
    void *library = NULL;
    for (int i = 0; i < 2 && !library; i++) {
        library = load("", names[i]);
        for (int k = 0; k < 2 && !library; k++) {
            char folder[4000];
            snprintf(folder, sizeof folder, "%s/lib64", roots[k] ? roots[k] : AJI_CUDA_LIBDIR "/..");
            library = load(folder, names[i]);
        }
        if (!library)
            library = load(AJI_CUDA_LIBDIR, names[i]);
    }
    return library;
}

static void find_driver(bench_cuda *d) {
    void *address, *library = load("", "libcuda.so.1");
    if (!library)
        snprintf(d->wrong, sizeof d->wrong, "libcuda.so.1 cannot be loaded");
    BENCH_DRIVER(FIND)
}

static void find_cublas(bench_cuda *d) {
    void *address, *library = load_cublas();
    if (!library && !d->wrong[0])
        snprintf(d->wrong, sizeof d->wrong, "cuBLAS cannot be loaded: set LD_LIBRARY_PATH or CUDA_HOME");
    BENCH_CUBLAS(FIND)
}

/* ---- calls; after a failure none ---- */

static void check(bench_cuda *d, const char *call, CUresult code) {
    const char *name = NULL;
    if (code == CUDA_SUCCESS || d->wrong[0])
        return;
    d->cuGetErrorName(code, &name);
    snprintf(d->wrong, sizeof d->wrong, "%s failed: %s, code %d", call, name ? name : "an unknown error", (int)code);
}

static void check_cublas(bench_cuda *d, const char *call, cublasStatus_t code) {
    if (code != CUBLAS_STATUS_SUCCESS && !d->wrong[0])
        snprintf(d->wrong, sizeof d->wrong, "%s failed: code %d", call, (int)code);
}

#define CALL(d, function, ...)                                                                                                   \
    do {                                                                                                                         \
        if (!(d)->wrong[0])                                                                                                      \
            check((d), #function, (d)->function(__VA_ARGS__));                                                                   \
    } while (0)
#define CALL_CUBLAS(d, function, ...)                                                                                            \
    do {                                                                                                                         \
        if (!(d)->wrong[0])                                                                                                      \
            check_cublas((d), #function, (d)->function(__VA_ARGS__));                                                            \
    } while (0)

/* Until all work in the context is done, the library's and ours. */
static void wait_for_device(bench *b) {
    bench_cuda *d = b->state;
    CALL(d, cuCtxSynchronize, );
    if (d->wrong[0] && !b->results->wrong[0])
        snprintf(b->results->wrong, sizeof b->results->wrong, "by hand: %s", d->wrong);
}

void bench_cuda_put(bench_cuda *d, int block, const double *values, int64_t n) {
    CALL(d, cuMemcpyHtoD, d->block[block], values, (size_t)n * sizeof *values);
}

/* The stream does not wait for copies of the default stream, nor they for it. */
void bench_cuda_get(bench_cuda *d, double *values, int block, int64_t n) {
    CALL(d, cuCtxSynchronize, );
    CALL(d, cuMemcpyDtoH, values, d->block[block], (size_t)n * sizeof *values);
}

void bench_cuda_copy(bench_cuda *d, int to, int from, int64_t n) {
    CALL(d, cuMemcpyDtoDAsync, d->block[to], d->block[from], (size_t)n * sizeof(double), d->stream);
}

/* cuBLAS has matrices by columns, which are ours transposed: c' = op(b)' a'. */
void bench_cuda_multiply(bench_cuda *d, int c, int a, int b, bool b_transposed, int n) {
    static const double one = 1, zero = 0;
    CALL_CUBLAS(d, cublasDgemm, d->cublas, b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one,
                (const double *)(uintptr_t)d->block[b], n, (const double *)(uintptr_t)d->block[a], n, &zero,
                (double *)(uintptr_t)d->block[c], n);
}

/* ---- opening and closing ---- */

static void open_context(bench_cuda *d, int rank, bool cublas) {
    int count = 0;
    find_driver(d);
    if (cublas)
        find_cublas(d);
    CALL(d, cuInit, 0);
    CALL(d, cuDeviceGetCount, &count);
    if (!d->wrong[0] && count < 1)
        snprintf(d->wrong, sizeof d->wrong, "the driver has no device");
    CALL(d, cuDeviceGet, &d->number, rank % (count > 0 ? count : 1));
    CALL(d, cuDevicePrimaryCtxRetain, &d->context, d->number);
    CALL(d, cuCtxPushCurrent, d->context);
    CALL(d, cuStreamCreate, &d->stream, CU_STREAM_NON_BLOCKING);
    if (!cublas)
        return;
    CALL_CUBLAS(d, cublasCreate, &d->cublas);
    CALL_CUBLAS(d, cublasSetStream, d->cublas, d->stream);
}

static void move(aj_tensor **t, aj_device device, bool param) {
    aj_tensor *there = aj_to_device(*t, device);
    aj_release(t);
    *t = param ? aj_param(there) : there;
}

const char *bench_cuda_open(bench *b, int n_blocks, int64_t n, bool cublas) {
    bench_cuda *d = b->state = calloc(1, sizeof *d);
    if (!d)
        return bench_no_memory;
    open_context(d, b->rank, cublas);
    for (int i = 0; i < n_blocks; i++)
        CALL(d, cuMemAlloc, &d->block[i], (size_t)n * sizeof(double));
    if (d->wrong[0])
        return d->wrong;
    b->wait = wait_for_device;
    d->device = aj_cuda(b->ctx, (int)d->number);
    if (!d->device)
        return aj_ctx_error(b->ctx);
    move(&b->param, d->device, true);
    move(&b->seeds, d->device, false);
    return NULL;
}

void bench_cuda_close(bench *b) {
    bench_cuda *d = b->state;
    if (!d)
        return;
    aj_release(&d->other);
    d->wrong[0] = 0; /* give back what there is */
    if (d->cublas)
        (void)d->cublasDestroy(d->cublas);
    for (int i = 0; i < BENCH_BLOCKS; i++)
        if (d->block[i])
            (void)d->cuMemFree(d->block[i]);
    if (d->stream)
        (void)d->cuStreamDestroy(d->stream);
    if (d->context) {
        CUcontext popped;
        (void)d->cuCtxPopCurrent(&popped);
        (void)d->cuDevicePrimaryCtxRelease(d->number);
    }
    free(d);
    b->state = NULL;
}

bool bench_cuda_missing(char *why, size_t room) {
    aj_ctx *ctx;
    if (aj_ctx_create(&ctx, NULL) != AJ_OK) {
        snprintf(why, room, "no context");
        return true;
    }
    bool missing = !aj_cuda(ctx, 0);
    snprintf(why, room, "%.*s", (int)strcspn(aj_ctx_error(ctx), "\n"), aj_ctx_error(ctx));
    aj_ctx_clear_error(ctx);
    return aj_ctx_destroy(&ctx) != AJ_OK || missing;
}
