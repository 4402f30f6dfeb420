/* Packed copies of stacks of matrices. */
#include <string.h>

#include "cuda/linalg.h"

aji_value *aji_cuda_matrices(aj_ctx *ctx, aj_device device, const aji_meta *meta, bool columns_first) {
    aji_value *v = aji_value_new(ctx, device, meta);
    if (!v || !columns_first)
        return v;
    int64_t strides[AJ_MAX_NDIM];
    memcpy(strides, v->strides, sizeof(strides));
    strides[meta->ndim - 2] = 1;
    strides[meta->ndim - 1] = meta->shape[meta->ndim - 2];
    aji_value *seen = aji_value_view(v, meta, strides, v->offset);
    aji_value_release(v);
    return seen;
}

aji_value *aji_cuda_packed(const aji_value *v, bool columns_first) {
    aji_value distinct = *v;
    distinct.numel = 1;
    for (int i = 0; i < v->meta.ndim; i++) {
        if (i < v->meta.ndim - 2 && v->strides[i] == 0)
            distinct.meta.shape[i] = 1;
        distinct.numel *= distinct.meta.shape[i];
    }
    aji_value *copy = aji_cuda_matrices(v->ctx, v->device, &distinct.meta, columns_first);
    if (copy && aji_cuda_copy(v->ctx, &distinct, copy) != AJ_OK) {
        aji_value_release(copy);
        return NULL;
    }
    return copy;
}

int64_t aji_cuda_matrix_of(const aji_meta *packed, const aji_meta *stack, int64_t p) {
    int64_t number = 0, step = 1;
    for (int i = stack->ndim - 3; i >= 0; i--) {
        if (packed->shape[i] > 1)
            number += p % stack->shape[i] * step;
        p /= stack->shape[i];
        step *= packed->shape[i];
    }
    return number;
}
