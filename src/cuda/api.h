/*
 * NVIDIA's libraries, found at run time: libadjoin itself needs none of them, so that one build works on machines with and without a GPU. Each list
 * names the functions that are used; a struct holds their addresses. Tests fill it with functions of their own.
 */
#ifndef AJI_CUDA_API_H
#define AJI_CUDA_API_H

#include <cublas_v2.h>
#include <cuda.h>
#include <cusolverDn.h>
#include <nvrtc.h>

#include "tensor/tensor_internal.h"

/* The driver: libcuda.so.1. cuda.h makes macros of some names, which lead to the form that it declares. */
#define AJI_CUDA_DRIVER(X)                                                                                                       \
    X(cuInit)                                                                                                                    \
    X(cuGetErrorName)                                                                                                            \
    X(cuGetErrorString)                                                                                                          \
    X(cuDriverGetVersion)                                                                                                        \
    X(cuDeviceGetCount)                                                                                                          \
    X(cuDeviceGet)                                                                                                               \
    X(cuDeviceGetName)                                                                                                           \
    X(cuDeviceGetAttribute)                                                                                                      \
    X(cuDevicePrimaryCtxRetain)                                                                                                  \
    X(cuDevicePrimaryCtxRelease)                                                                                                 \
    X(cuCtxPushCurrent)                                                                                                          \
    X(cuCtxPopCurrent)                                                                                                           \
    X(cuCtxGetCurrent)                                                                                                           \
    X(cuCtxSetCurrent)                                                                                                           \
    X(cuStreamCreate)                                                                                                            \
    X(cuStreamDestroy)                                                                                                           \
    X(cuStreamSynchronize)                                                                                                       \
    X(cuEventCreate)                                                                                                             \
    X(cuEventDestroy)                                                                                                            \
    X(cuEventRecord)                                                                                                             \
    X(cuEventQuery)                                                                                                              \
    X(cuEventSynchronize)                                                                                                        \
    X(cuMemPoolCreate)                                                                                                           \
    X(cuMemPoolDestroy)                                                                                                          \
    X(cuMemPoolSetAttribute)                                                                                                     \
    X(cuMemPoolTrimTo)                                                                                                           \
    X(cuMemAllocFromPoolAsync)                                                                                                   \
    X(cuMemFreeAsync)                                                                                                            \
    X(cuMemHostAlloc)                                                                                                            \
    X(cuMemFreeHost)                                                                                                             \
    X(cuMemcpyHtoDAsync)                                                                                                         \
    X(cuMemcpyDtoHAsync)                                                                                                         \
    X(cuMemcpyDtoDAsync)                                                                                                         \
    X(cuMemsetD8Async)                                                                                                           \
    X(cuModuleLoadData)                                                                                                          \
    X(cuModuleUnload)                                                                                                            \
    X(cuModuleGetFunction)                                                                                                       \
    X(cuLaunchKernel)

/* The compiler: libnvrtc */
#define AJI_CUDA_NVRTC(X)                                                                                                        \
    X(nvrtcVersion)                                                                                                              \
    X(nvrtcGetErrorString)                                                                                                       \
    X(nvrtcCreateProgram)                                                                                                        \
    X(nvrtcDestroyProgram)                                                                                                       \
    X(nvrtcCompileProgram)                                                                                                       \
    X(nvrtcGetCUBINSize)                                                                                                         \
    X(nvrtcGetCUBIN)                                                                                                             \
    X(nvrtcGetNumSupportedArchs)                                                                                                 \
    X(nvrtcGetSupportedArchs)                                                                                                    \
    X(nvrtcGetPTXSize)                                                                                                           \
    X(nvrtcGetPTX)                                                                                                               \
    X(nvrtcGetProgramLogSize)                                                                                                    \
    X(nvrtcGetProgramLog)

/* libcublas */
#define AJI_CUDA_CUBLAS(X)                                                                                                       \
    X(cublasGetStatusString)                                                                                                     \
    X(cublasCreate)                                                                                                              \
    X(cublasDestroy)                                                                                                             \
    X(cublasSetStream)                                                                                                           \
    X(cublasDgemmStridedBatched)                                                                                                 \
    X(cublasSgemmStridedBatched)

/* libcusolver */
#define AJI_CUDA_CUSOLVER(X)                                                                                                     \
    X(cusolverDnCreate)                                                                                                          \
    X(cusolverDnDestroy)                                                                                                         \
    X(cusolverDnSetStream)                                                                                                       \
    X(cusolverDnCreateParams)                                                                                                    \
    X(cusolverDnDestroyParams)                                                                                                   \
    X(cusolverDnXgetrf_bufferSize)                                                                                               \
    X(cusolverDnXgetrf)                                                                                                          \
    X(cusolverDnXgetrs)                                                                                                          \
    X(cusolverDnXpotrf_bufferSize)                                                                                               \
    X(cusolverDnXpotrf)

typedef enum aji_cuda_library { AJI_LIB_DRIVER, AJI_LIB_NVRTC, AJI_LIB_CUBLAS, AJI_LIB_CUSOLVER, AJI_N_LIBS } aji_cuda_library;

typedef struct aji_cuda_api {
    bool loaded[AJI_N_LIBS];
    void *handle[AJI_N_LIBS]; /* of dlopen; NULL: not ours to close */
#define AJI_CUDA_MEMBER(function) __typeof__(&function) function;
    AJI_CUDA_DRIVER(AJI_CUDA_MEMBER)
    AJI_CUDA_NVRTC(AJI_CUDA_MEMBER)
    AJI_CUDA_CUBLAS(AJI_CUDA_MEMBER)
    AJI_CUDA_CUSOLVER(AJI_CUDA_MEMBER)
#undef AJI_CUDA_MEMBER
} aji_cuda_api;

/* Find a library and its functions, unless they are there. Raises AJ_ERR_DEVICE (driver) or AJ_ERR_UNSUPPORTED: which library, what the loader says,
 * what to install. */
aj_status aji_cuda_api_load(aj_ctx *ctx, aji_cuda_api *api, aji_cuda_library library);
void aji_cuda_api_close(aji_cuda_api *api);

#endif
