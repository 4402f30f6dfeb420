/*
 * A stand-in for NVIDIA's driver and libraries, for machines without a GPU. "Device" memory is unreadable outside the stand-in's own calls, and work in a
 * stream is done only when somebody waits for it (a synchronisation of the stream or of an event recorded in it), as late as a slow GPU would: a host access to device
 * memory faults, and a missing wait reads old numbers.
 */
#ifndef CUDA_STANDIN_H
#define CUDA_STANDIN_H

#include "cuda/cuda_private.h"

/* All of it: what aji_cuda_open is given. Filled by the parts below, each of which sets its functions and loaded[]. */
aji_cuda_api standin_api(void);
void standin_driver(aji_cuda_api *api); /* cuda_standin.c: devices, streams, events, memory, modules */
void standin_compiler(
    aji_cuda_api *api); /* cuda_host_kernels.c: NVRTC by way of the C++ compiler, so that kernels run on the host */
void standin_libraries(aji_cuda_api *api); /* cuda_host_blas.c, cuda_host_solver.c: cuBLAS and cuSOLVER by way of OpenBLAS */

/* ---- between the parts ---- */

/* Enqueue work in a stream: do(data) runs when the stream is waited for, with device memory open; data is freed with free() then. */
void standin_enqueue(CUstream stream, void (*work)(void *data), void *data);
/* A module is what standin_compiler made of a source, as "cubin". A kernel that was looked up in it: run it for a grid of blocks with its argument's bytes. */
typedef struct standin_kernel standin_kernel;
standin_kernel *standin_module_kernel(const void *cubin, const char *name); /* NULL: no such function. cuda_host_kernels.c */
size_t standin_kernel_argument(const standin_kernel *kernel);               /* bytes of its argument, which the launch copies */
void standin_kernel_run(standin_kernel *kernel, unsigned blocks, unsigned threads, const void *argument);

/* ---- for tests ---- */

/* The real NVRTC (cuda_real_nvrtc.c): is it there? What it says about a source for an architecture ("--gpu-architecture=sm_80"), to be freed; NULL: it takes it. */
bool standin_has_nvrtc(void);
char *standin_nvrtc_log(const char *source, int n, const char *const *options, const char *architecture);
/* Does it take what the stand-in took, for 8.0 and 9.0? Else the program ends, with what it says. folder: remembers those that it took. */
void standin_ask_nvrtc(const char *folder, const char *source, int n, const char *const *options);

/* The next call but n of a function, by its name, fails with this code. */
void standin_fail(const char *function, int n, int code);
/* To be asked at the begin of each of the stand-in's functions: 0, or the code to return. */
int standin_failure(const char *function);
/* Numbers of calls of a function, by its name, so far. */
long standin_calls(const char *function);
/* Does an address lie in a live allocation of a device, or of pinned memory? Is there no work in any stream? */
bool standin_is_device_memory(const void *at);
bool standin_is_pinned(const void *at);
bool standin_is_idle(void);
/* What is still allocated: device bytes, pinned bytes, streams, events, modules. All 0 when a context is gone. */
long standin_left(void);

#endif
