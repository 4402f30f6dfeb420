/*
 * What the hand-written side of the cases on a GPU has: the driver and cuBLAS, found at run time as libadjoin finds them, a stream of its own in the primary
 * context, and memory. With the first thing that went wrong all further calls do nothing; measure.c tells it.
 */
#ifndef BENCH_GPU_H
#define BENCH_GPU_H

#include <cublas_v2.h>
#include <cuda.h>

#include "bench.h"

#define BENCH_DRIVER(X)                                                                                                          \
    X(cuInit)                                                                                                                    \
    X(cuGetErrorName)                                                                                                            \
    X(cuDeviceGetCount)                                                                                                          \
    X(cuDeviceGet)                                                                                                               \
    X(cuDevicePrimaryCtxRetain)                                                                                                  \
    X(cuDevicePrimaryCtxRelease)                                                                                                 \
    X(cuCtxPushCurrent)                                                                                                          \
    X(cuCtxPopCurrent)                                                                                                           \
    X(cuCtxSynchronize)                                                                                                          \
    X(cuStreamCreate)                                                                                                            \
    X(cuStreamDestroy)                                                                                                           \
    X(cuMemAlloc)                                                                                                                \
    X(cuMemFree)                                                                                                                 \
    X(cuMemcpyHtoD)                                                                                                              \
    X(cuMemcpyDtoH)                                                                                                              \
    X(cuMemcpyDtoDAsync)
#define BENCH_CUBLAS(X)                                                                                                          \
    X(cublasCreate)                                                                                                              \
    X(cublasDestroy)                                                                                                             \
    X(cublasSetStream)                                                                                                           \
    X(cublasDgemm)

enum { BENCH_BLOCKS = 4 };

typedef struct bench_cuda {
#define BENCH_MEMBER(function) __typeof__(&function) function;
    BENCH_DRIVER(BENCH_MEMBER)
    BENCH_CUBLAS(BENCH_MEMBER)
#undef BENCH_MEMBER
    CUdevice number;
    CUcontext context; /* current from setup to teardown; the library puts its own on top, which is the same */
    CUstream stream;
    cublasHandle_t cublas;
    CUdeviceptr block[BENCH_BLOCKS];
    aj_device device; /* the library's */
    aj_tensor *other; /* matmul's second operand, for the library */
    char wrong[256];
} bench_cuda;

/* Open the GPU that is this rank's turn, with n_blocks blocks of n doubles; param and seeds of bench_arrays move there. cublas: with a handle. Sets b->state
 * and b->wait. What is wrong, or NULL. */
const char *bench_cuda_open(bench *b, int n_blocks, int64_t n, bool cublas);
void bench_cuda_close(bench *b); /* a teardown */

void bench_cuda_put(bench_cuda *d, int block, const double *values, int64_t n); /* waits */
void bench_cuda_get(bench_cuda *d, double *values, int block, int64_t n);       /* waits */
/* Enqueue n doubles from one block to another; c = op(a) op(b) of n x n matrices by rows. */
void bench_cuda_copy(bench_cuda *d, int to, int from, int64_t n);
void bench_cuda_multiply(bench_cuda *d, int c, int a, int b, bool b_transposed, int n);

#endif
