/* Where numbers live. */
#ifndef ADJOIN_DEVICE_H
#define ADJOIN_DEVICE_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef const struct aji_device *aj_device; /* owned by the context */

/* The host. NULL for a NULL context. Collective: no. Since: 0.1. */
AJ_API aj_device aj_cpu(aj_ctx *ctx);
/* A device for tests: it computes on the host, in memory that is unreadable outside the device's own calls, so that code which touches
 * device memory from the host faults at once. NULL with AJ_ERR_MEMORY. Collective: no. Since: 0.1. */
AJ_API aj_device aj_test_device(aj_ctx *ctx);
/*
 * The NVIDIA GPU with a number of the driver's, from 0 (CUDA_VISIBLE_DEVICES is respected): its name is "cuda:0". The same device for the same number.
 * Work on it is enqueued, in order, in a stream of its own, and calls return before it is done: an error of the device may show up in a later call. The
 * device's primary context is current during the library's calls only.
 * Returns a device that the context owns; NULL for a NULL context, and on error: AJ_ERR_DEVICE (no driver, no device with this number, the driver
 * refuses), AJ_ERR_UNSUPPORTED (libadjoin was built without CUDA, the device has no memory pools), AJ_ERR_MEMORY.
 * Collective: no. Differentiable: -. Threads: one per context. Since: 0.1.
 */
AJ_API aj_device aj_cuda(aj_ctx *ctx, int index);
/*
 * From now on communication of this context's tensors on GPUs goes through pinned host memory (staged). Without this, MPI is given the addresses of
 * device memory (direct) if the MPI library says that it is CUDA-aware, or ADJOIN_CUDA_AWARE does, when the context's first communicator is created; what
 * is computed on the host between messages, such as user-defined reductions, is staged always. Messages under way end as they began. Ranks may differ in
 * it. Without a GPU, or without CUDA, it changes nothing.
 * Errors: AJ_ERR_ARG (NULL). Collective: no. Differentiable: -. Threads: one per context. Since: 0.1.
 */
AJ_API aj_status aj_cuda_deactivate_aware_mpi(aj_ctx *ctx);
/*
 * y = x on another device; gx = g on x's own device. Of a tensor that is there already: a new handle on the same value.
 * Errors: AJ_ERR_ARG (NULL device), AJ_ERR_CONTEXT (a device of another context), AJ_ERR_MEMORY.
 * Collective: no. Differentiable: x. Threads: one per context. Since: 0.1.
 */
AJ_API aj_tensor *aj_to_device(aj_tensor *x, aj_device device);
/* The device a tensor lives on; NULL for NULL. Collective: no. Since: 0.1. */
AJ_API aj_device aj_tensor_device(const aj_tensor *t);
/* "cpu", "test", "cuda:0". Collective: no. Since: 0.1. */
AJ_API const char *aj_device_name(aj_device device);

#ifdef __cplusplus
}
#endif
#endif
