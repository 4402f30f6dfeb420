/*
 * Device memory and copies. Memory comes from a pool of the driver's that works in the order of the stream, as all the device's work does: what is freed can
 * be given out again at once, since whoever gets it uses it later in the stream.
 */
#include <stdint.h>
#include <string.h>

#include "cuda/cuda_private.h"

enum {
    CHUNK = 4 << 20
}; /* bytes that an upload copies and enqueues at a time: the device reads one while the host writes the next */
enum { LITTLE = 32 << 10 }; /* up to this size pinned memory brings nothing */

/* ---- allocation ---- */

static void count_live(aji_cuda *d, int64_t bytes) {
    aj_ctx *ctx = d->device.ctx;
    d->live += bytes;
    d->peak = d->live > d->peak ? d->live : d->peak;
    aji_ctx_count(ctx, AJ_STAT_DEVICE_LIVE_BYTES, bytes);
    int64_t above = aj_ctx_stat(ctx, AJ_STAT_DEVICE_LIVE_BYTES) - aj_ctx_stat(ctx, AJ_STAT_DEVICE_PEAK_BYTES);
    if (above > 0)
        aji_ctx_count(ctx, AJ_STAT_DEVICE_PEAK_BYTES, above);
}

/* Let the pool give back what it holds for reuse: other pools, of this process and of others, may have it. */
static aj_status give_back_unused(aji_cuda *d) {
    aj_status status = AJI_CU(d, cuStreamSynchronize, d->stream); /* what was freed in the stream is free then */
    if (status == AJ_OK)
        status = AJI_CU(d, cuMemPoolTrimTo, d->pool, 0);
    if (status == AJ_OK)
        aji_cuda_pinned_flush(d);
    return status;
}

void *aji_cuda_alloc(aji_cuda *d, size_t bytes) {
    if (bytes > SIZE_MAX / 4) {
        aj_raise(d->device.ctx, AJ_ERR_MEMORY, "%s: %zu bytes are more than a device can address",
                 aji_ctx_operation(d->device.ctx), bytes);
        return NULL;
    }
    size_t wanted = bytes ? bytes : 1;
    CUdeviceptr memory = 0;
    CUresult code = d->api.cuMemAllocFromPoolAsync(&memory, wanted, d->pool, d->stream);
    if (code == CUDA_ERROR_OUT_OF_MEMORY) {
        if (give_back_unused(d) != AJ_OK)
            return NULL;
        code = d->api.cuMemAllocFromPoolAsync(&memory, wanted, d->pool, d->stream);
    }
    if (code == CUDA_ERROR_OUT_OF_MEMORY)
        aj_raise(d->device.ctx, AJ_ERR_MEMORY,
                 "%s: out of memory: cuMemAllocFromPoolAsync refused %zu bytes on device %s (%s), where this context has %lld "
                 "bytes in use; release tensors, make the problem smaller, or use more devices",
                 aji_ctx_operation(d->device.ctx), wanted, d->device.name, d->model, (long long)d->live);
    else
        (void)aji_cuda_check(d, "cuMemAllocFromPoolAsync", code);
    if (code != CUDA_SUCCESS)
        return NULL;
    count_live(d, (int64_t)wanted);
    return (void *)(uintptr_t)memory;
}

void aji_cuda_free(aji_cuda *d, void *memory, size_t bytes) {
    if (!memory)
        return;
    (void)AJI_CU(d, cuMemFreeAsync, (CUdeviceptr)(uintptr_t)memory, d->stream); /* raised */
    count_live(d, -(int64_t)(bytes ? bytes : 1));
}

void aji_cuda_free_slot(aj_device device, void *memory, size_t bytes) {
    aji_cuda *d = aji_cuda_of(device);
    aj_status status = aji_cuda_enter_to_release(d); /* if that fails, the device is gone, and the memory with it */
    aji_cuda_free(d, memory, bytes);
    if (status == AJ_OK)
        (void)aji_cuda_leave(d, AJ_OK);
}

void *aji_cuda_alloc_slot(aj_device device, size_t bytes) {
    aji_cuda *d = aji_cuda_of(device);
    aj_status status = aji_cuda_enter(d);
    void *memory = status == AJ_OK ? aji_cuda_alloc(d, bytes) : NULL;
    if (status == AJ_OK && aji_cuda_leave(d, AJ_OK) != AJ_OK) {
        aji_cuda_free_slot(device, memory, bytes); /* pushes the context again: nobody knows whether it is still there */
        memory = NULL;
    }
    return memory;
}

/* ---- copies ---- */

aj_status aji_cuda_put(aji_cuda *d, void *device_memory, const void *host, size_t bytes) {
    for (size_t at = 0; at < bytes; at += CHUNK) {
        size_t n = bytes - at < CHUNK ? bytes - at : CHUNK;
        void *pinned = aji_cuda_pinned_take(d, n);
        if (!pinned)
            return AJ_ERR_MEMORY;
        memcpy(pinned, (const char *)host + at, n);
        aj_status status = AJI_CU(d, cuMemcpyHtoDAsync, (CUdeviceptr)(uintptr_t)device_memory + at, pinned, n, d->stream);
        aji_cuda_pinned_give(d, pinned, n);
        if (status != AJ_OK)
            return status;
    }
    return AJ_OK;
}

/* To memory that is not pinned, the driver copies by way of its own. */
aj_status aji_cuda_get(aji_cuda *d, void *host, const void *device_memory, size_t bytes) {
    if (bytes == 0)
        return AJ_OK;
    aj_status status = AJI_CU(d, cuMemcpyDtoHAsync, host, (CUdeviceptr)(uintptr_t)device_memory, bytes, d->stream);
    if (status != AJ_OK)
        return status;
    status = AJI_CU(d, cuEventRecord, d->done, d->stream);
    if (status == AJ_OK)
        status = AJI_CU(d, cuEventSynchronize, d->done);
    if (status != AJ_OK)
        (void)d->api.cuStreamSynchronize(d->stream); /* nobody may free the host's memory before the copy is done */
    return status;
}

/* A host storage on pinned memory. */
struct aji_cuda_staged {
    aji_cuda_staged *next; /* of the device's live ones: few */
    aji_cuda *d;
    char *memory;
    size_t bytes;
};

/* Does it lie in one of this device? Then the device reads it by itself, and the memory is used again only behind that in the stream (pinned.c). */
static bool is_staged(const aji_cuda *d, const void *host, size_t bytes) {
    uintptr_t at = (uintptr_t)host;
    for (const aji_cuda_staged *s = d->staged; s; s = s->next)
        if (at >= (uintptr_t)s->memory && at - (uintptr_t)s->memory + bytes <= s->bytes)
            return true;
    return false;
}

aj_status aji_cuda_upload(aj_device device, void *device_memory, const void *host, size_t bytes) {
    aji_cuda *d = aji_cuda_of(device);
    aj_status status = aji_cuda_enter(d);
    if (status != AJ_OK)
        return status;
    if (bytes > 0 && is_staged(d, host, bytes))
        return aji_cuda_leave(d, AJI_CU(d, cuMemcpyHtoDAsync, (CUdeviceptr)(uintptr_t)device_memory, host, bytes, d->stream));
    return aji_cuda_leave(d, aji_cuda_put(d, device_memory, host, bytes));
}

aj_status aji_cuda_download(aj_device device, void *host, const void *device_memory, size_t bytes) {
    aji_cuda *d = aji_cuda_of(device);
    aj_status status = aji_cuda_enter(d);
    return status == AJ_OK ? aji_cuda_leave(d, aji_cuda_get(d, host, device_memory, bytes)) : status;
}

aj_status aji_cuda_wait(aj_device device) {
    aji_cuda *d = aji_cuda_of(device);
    aj_status status = aji_cuda_enter(d);
    return status == AJ_OK ? aji_cuda_leave(d, AJI_CU(d, cuStreamSynchronize, d->stream)) : status;
}

/* MPI libraries copy device memory in any call that makes progress, and want a current context there, also in calls of the user's own. A thread that has none is
 * lent the device's; one that has its own keeps it. */
static aj_status lend_context(aji_cuda *d) {
    CUcontext current = NULL;
    aj_status status = AJI_CU(d, cuCtxGetCurrent, &current);
    if (status != AJ_OK || current)
        return status;
    status = AJI_CU(d, cuCtxSetCurrent, d->context);
    d->lent = d->lent || status == AJ_OK;
    return status;
}

aj_status aji_cuda_ready_for_mpi(aj_device device) {
    aj_status status = aji_cuda_wait(device);
    return status == AJ_OK ? lend_context(aji_cuda_of(device)) : status;
}

void aji_cuda_take_from_mpi(aji_cuda *d) {
    CUcontext current = NULL;
    if (d->lent && AJI_CU(d, cuCtxGetCurrent, &current) == AJ_OK && current == d->context)
        (void)AJI_CU(d, cuCtxSetCurrent, NULL);
}

/* ---- host storage on pinned memory ---- */

static void release_staged(void *data, void *user) {
    aji_cuda_staged *s = user, **at;
    aji_cuda *d = s->d;
    for (at = &d->staged; *at != s; at = &(*at)->next)
        continue;
    *at = s->next;
    aj_status status = aji_cuda_enter_to_release(d);
    aji_cuda_pinned_give(d, data, s->bytes);
    if (status == AJ_OK)
        (void)aji_cuda_leave(d, AJ_OK);
    aji_free(d->device.ctx, s, sizeof(*s));
}

aji_storage *aji_cuda_staging(aj_device device, size_t bytes) {
    aji_cuda *d = aji_cuda_of(device);
    aj_ctx *ctx = device->ctx;
    if (bytes <= LITTLE)
        return aji_storage_new(ctx, aj_cpu(ctx), bytes);
    aji_cuda_staged *s = aji_alloc(ctx, sizeof(*s));
    if (!s)
        return NULL;
    aj_status status = aji_cuda_enter(d);
    void *memory = status == AJ_OK ? aji_cuda_pinned_take(d, bytes) : NULL;
    if (status == AJ_OK)
        status = aji_cuda_leave(d, AJ_OK);
    if (!memory) {
        aji_free(ctx, s, sizeof(*s));
        return NULL;
    }
    *s = (aji_cuda_staged){d->staged, d, memory, bytes};
    d->staged = s;
    if (status != AJ_OK) {
        release_staged(memory, s);
        return NULL;
    }
    return aji_storage_user(ctx, memory, bytes, release_staged, s);
}
