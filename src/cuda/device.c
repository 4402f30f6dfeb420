/* Opening and closing a CUDA device, and its table. */
#include <stdio.h>
#include <string.h>

#include "cuda/cuda_private.h"

const aji_device_table aji_cuda_table = {
    .alloc = aji_cuda_alloc_slot,
    .free = aji_cuda_free_slot,
    .upload = aji_cuda_upload,
    .download = aji_cuda_download,
    .staging = aji_cuda_staging,
    .copy = aji_cuda_copy,
    .run = aji_cuda_run,
    .reduce = aji_cuda_reduce,
    .argument = aji_cuda_argument,
    .cumsum = aji_cuda_cumsum,
    .take = aji_cuda_take,
    .scatter_add = aji_cuda_scatter_add,
    .matmul = aji_cuda_matmul,
    .solve = aji_cuda_solve,
    .cholesky = aji_cuda_cholesky,
    .logdet = aji_cuda_logdet,
    .wait = aji_cuda_wait,
    .ready_for_mpi = aji_cuda_ready_for_mpi,
    .destroy = aji_cuda_destroy,
};

aj_status aji_cuda_enter(aji_cuda *d) {
    return AJI_CU(d, cuCtxPushCurrent, d->context);
}

aj_status aji_cuda_enter_to_release(aji_cuda *d) {
    aj_status status = aji_cuda_enter(d);
    return status == AJ_OK ? status : aji_cuda_enter(d);
}

aj_status aji_cuda_leave(aji_cuda *d, aj_status status) {
    CUcontext popped;
    aj_status left = AJI_CU(d, cuCtxPopCurrent, &popped);
    return status == AJ_OK ? left : status;
}

/* ---- what the device is ---- */

static aj_status find(aji_cuda *d) {
    aj_ctx *ctx = d->device.ctx;
    int n = 0;
    const char *call = "cuInit";
    CUresult code = d->api.cuInit(0);
    if (code == CUDA_SUCCESS) {
        call = "cuDeviceGetCount";
        code = d->api.cuDeviceGetCount(&n);
    }
    if (code == CUDA_ERROR_NO_DEVICE || (code == CUDA_SUCCESS && n == 0))
        return aj_raise(
            ctx, AJ_ERR_DEVICE,
            "aj_cuda: the driver finds no CUDA device for \"%s\"; look at nvidia-smi and CUDA_VISIBLE_DEVICES, or stay on "
            "aj_cpu(ctx)",
            d->device.name);
    if (code != CUDA_SUCCESS)
        return aji_cuda_check(d, call, code);
    if (d->index < 0 || d->index >= n)
        return aj_raise(ctx, AJ_ERR_DEVICE, "aj_cuda: there is no device %d: the driver has %d, numbered from 0", d->index, n);
    return AJI_CU(d, cuDeviceGet, &d->number, d->index);
}

static aj_status describe(aji_cuda *d) {
    int pools = 0;
    aj_status status = AJI_CU(d, cuDeviceGetName, d->model, (int)sizeof(d->model), d->number);
    if (status == AJ_OK)
        status = AJI_CU(d, cuDeviceGetAttribute, &d->major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, d->number);
    if (status == AJ_OK)
        status = AJI_CU(d, cuDeviceGetAttribute, &d->minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, d->number);
    if (status == AJ_OK)
        status = AJI_CU(d, cuDeviceGetAttribute, &d->processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, d->number);
    if (status == AJ_OK)
        status = AJI_CU(d, cuDeviceGetAttribute, &pools, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, d->number);
    if (status == AJ_OK && !pools)
        status =
            aj_raise(d->device.ctx, AJ_ERR_UNSUPPORTED,
                     "aj_cuda: device %d (%s) has no memory pools in this driver; expected a newer driver", d->index, d->model);
    return status;
}

/* ---- opening and closing ---- */

/* With the context current. */
static aj_status create(aji_cuda *d) {
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .handleTypes = CU_MEM_HANDLE_TYPE_NONE,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = d->number}};
    cuuint64_t all = UINT64_MAX; /* bytes that the pool keeps for reuse when the device is waited for */
    aj_status status = AJI_CU(d, cuStreamCreate, &d->stream, CU_STREAM_NON_BLOCKING);
    if (status == AJ_OK)
        status = AJI_CU(d, cuEventCreate, &d->done, CU_EVENT_DISABLE_TIMING);
    if (status == AJ_OK)
        status = AJI_CU(d, cuMemPoolCreate, &d->pool, &properties);
    if (status == AJ_OK)
        status = AJI_CU(d, cuMemPoolSetAttribute, d->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all);
    return status;
}

/* Everything is tried, also after an error; the first one is kept. */
static void destroy_all(aji_cuda *d) {
    if (d->stream)
        (void)AJI_CU(d, cuStreamSynchronize, d->stream);
    aji_cuda_linalg_destroy(d);
    aji_cuda_kernels_destroy(d);
    aji_cuda_pinned_destroy(d);
    if (d->done)
        (void)AJI_CU(d, cuEventDestroy, d->done);
    if (d->pool)
        (void)AJI_CU(d, cuMemPoolDestroy, d->pool);
    if (d->stream)
        (void)AJI_CU(d, cuStreamDestroy, d->stream);
}

static void close_device(aji_cuda *d) {
    if (d->context) {
        aj_status status = aji_cuda_enter_to_release(d);
        destroy_all(d);
        if (status == AJ_OK)
            (void)aji_cuda_leave(d, AJ_OK);
        aji_cuda_take_from_mpi(d);
        (void)AJI_CU(d, cuDevicePrimaryCtxRelease, d->number);
    }
    aji_cuda_api_close(&d->api);
    aji_free(d->device.ctx, d, sizeof(*d));
}

void aji_cuda_destroy(aj_device device) {
    aj_ctx *ctx = device->ctx;
    bool good = aj_ctx_status(ctx) == AJ_OK;
    close_device(aji_cuda_of(device));
    if (good && aj_ctx_status(ctx) != AJ_OK) /* nobody can ask the context any more */
        aji_ctx_log(ctx, "%s", aj_ctx_error(ctx));
}

static aj_status open_device(aji_cuda *d) {
    aj_status status = aji_cuda_api_load(d->device.ctx, &d->api, AJI_LIB_DRIVER);
    if (status == AJ_OK)
        status = find(d);
    if (status == AJ_OK)
        status = describe(d);
    if (status == AJ_OK)
        status = AJI_CU(d, cuDevicePrimaryCtxRetain, &d->context, d->number);
    if (status == AJ_OK)
        status = aji_cuda_enter(d);
    return status == AJ_OK ? aji_cuda_leave(d, create(d)) : status;
}

aj_device aji_cuda_open(aj_ctx *ctx, const aji_cuda_api *api, int index) {
    aji_cuda *d = aji_calloc(ctx, sizeof(*d));
    if (!d)
        return NULL;
    d->device = (struct aji_device){.table = &aji_cuda_table, .ctx = ctx};
    snprintf(d->device.name, sizeof(d->device.name), "cuda:%d", index);
    d->index = index;
    if (api)
        d->api = *api;
    const char *before = aji_ctx_enter(ctx, "aj_cuda");
    aj_status status = open_device(d);
    if (status != AJ_OK)
        close_device(d);
    aji_ctx_enter(ctx, before);
    if (status != AJ_OK)
        return NULL;
    aji_ctx_add_device(ctx, &d->device);
    return &d->device;
}

aj_device aj_cuda(aj_ctx *ctx, int index) {
    if (!ctx)
        return NULL;
    char name[AJI_DEVICE_NAME];
    snprintf(name, sizeof(name), "cuda:%d", index);
    aj_device device = aji_ctx_device(ctx, name);
    return device ? device : aji_cuda_open(ctx, NULL, index);
}
