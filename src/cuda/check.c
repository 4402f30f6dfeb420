/* The codes that NVIDIA's libraries return, as errors of the context. */
#include <string.h>

#include "cuda/cuda_private.h"

/* cuGetErrorString says that it is out of memory; what the caller can do about it, it does not. */
static const char *advice(CUresult code) {
    switch (code) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
        return "; it may come from earlier work on the device, and the device does nothing more in this process";
    case CUDA_ERROR_INVALID_CONTEXT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
        return "; the program may have reset the device while tensors lived on it";
    default:
        return "";
    }
}

aj_status aji_cuda_check(aji_cuda *d, const char *call, CUresult code) {
    if (code == CUDA_SUCCESS)
        return AJ_OK;
    const char *name = NULL, *text = NULL;
    (void)d->api.cuGetErrorName(code, &name); /* they leave NULL for a code that they do not know */
    (void)d->api.cuGetErrorString(code, &text);
    aj_status status = code == CUDA_ERROR_OUT_OF_MEMORY ? AJ_ERR_MEMORY : AJ_ERR_DEVICE;
    return aj_raise(d->device.ctx, status, "%s: %s failed on device %s%s%s%s: %s, code %d (%s)%s",
                    aji_ctx_operation(d->device.ctx), call, d->device.name, d->model[0] ? " (" : "", d->model,
                    d->model[0] ? ")" : "", name ? name : "an unknown error", (int)code, text ? text : "no text", advice(code));
}

aj_status aji_cuda_check_nvrtc(aji_cuda *d, const char *call, nvrtcResult code) {
    if (code == NVRTC_SUCCESS)
        return AJ_OK;
    return aj_raise(d->device.ctx, code == NVRTC_ERROR_OUT_OF_MEMORY ? AJ_ERR_MEMORY : AJ_ERR_DEVICE,
                    "%s: %s failed for device %s (%s): %s, code %d", aji_ctx_operation(d->device.ctx), call, d->device.name,
                    d->model, d->api.nvrtcGetErrorString(code), (int)code);
}

aj_status aji_cuda_check_cublas(aji_cuda *d, const char *call, cublasStatus_t code) {
    if (code == CUBLAS_STATUS_SUCCESS)
        return AJ_OK;
    return aj_raise(d->device.ctx, code == CUBLAS_STATUS_ALLOC_FAILED ? AJ_ERR_MEMORY : AJ_ERR_DEVICE,
                    "%s: %s failed on device %s (%s): %s, code %d", aji_ctx_operation(d->device.ctx), call, d->device.name,
                    d->model, d->api.cublasGetStatusString(code), (int)code);
}

/* cuSOLVER has no texts of its own. */
static const char *cusolver_name(cusolverStatus_t code) {
    switch (code) {
    case CUSOLVER_STATUS_NOT_INITIALIZED:
        return "CUSOLVER_STATUS_NOT_INITIALIZED";
    case CUSOLVER_STATUS_ALLOC_FAILED:
        return "CUSOLVER_STATUS_ALLOC_FAILED";
    case CUSOLVER_STATUS_INVALID_VALUE:
        return "CUSOLVER_STATUS_INVALID_VALUE";
    case CUSOLVER_STATUS_ARCH_MISMATCH:
        return "CUSOLVER_STATUS_ARCH_MISMATCH";
    case CUSOLVER_STATUS_EXECUTION_FAILED:
        return "CUSOLVER_STATUS_EXECUTION_FAILED";
    case CUSOLVER_STATUS_INTERNAL_ERROR:
        return "CUSOLVER_STATUS_INTERNAL_ERROR";
    default:
        return "an error of cuSOLVER";
    }
}

aj_status aji_cuda_check_cusolver(aji_cuda *d, const char *call, cusolverStatus_t code) {
    if (code == CUSOLVER_STATUS_SUCCESS)
        return AJ_OK;
    return aj_raise(d->device.ctx, code == CUSOLVER_STATUS_ALLOC_FAILED ? AJ_ERR_MEMORY : AJ_ERR_DEVICE,
                    "%s: %s failed on device %s (%s): %s, code %d", aji_ctx_operation(d->device.ctx), call, d->device.name,
                    d->model, cusolver_name(code), (int)code);
}
