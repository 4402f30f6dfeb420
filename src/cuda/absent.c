/* The CUDA device of a library that was built without the toolkit's headers. */
#include "tensor/tensor_internal.h"

aj_device aj_cuda(aj_ctx *ctx, int index) {
    if (ctx)
        aj_raise(
            ctx, AJ_ERR_UNSUPPORTED,
            "aj_cuda: device %d was asked for, but this libadjoin was built without CUDA; build it where the headers of the CUDA "
            "toolkit are (meson setup -Dcuda=enabled), or stay on aj_cpu(ctx)",
            index);
    return NULL;
}
