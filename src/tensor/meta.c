/*
 * Dtypes and shapes: validation and NumPy's broadcasting rule.
 */
#include <string.h>

#include "tensor/tensor_internal.h"

size_t aj_dtype_size(aj_dtype dtype) {
    static const size_t sizes[] = {8, 4, 8, 4, 1};
    return aji_dtype_valid(dtype) ? sizes[dtype] : 0;
}

const char *aj_dtype_name(aj_dtype dtype) {
    static const char *const names[] = {"f64", "f32", "i64", "i32", "u8"};
    return aji_dtype_valid(dtype) ? names[dtype] : "?";
}

bool aji_dtype_valid(aj_dtype dtype) {
    return (unsigned)dtype <= AJ_U8;
}

/* Products of the extents that are not 0 must stay far from overflow: strides and counts of bytes are made of them. */
static aj_status check_addressable(aj_ctx *ctx, const char *op, int ndim, const int64_t *shape) {
    int64_t n = 1;
    char text[160];
    for (int i = 0; i < ndim; i++)
        if (shape[i] > 0 && __builtin_mul_overflow(n, shape[i], &n))
            n = INT64_MAX;
    if (n > INT64_MAX / 16)
        return aj_raise(ctx, AJ_ERR_SHAPE, "%s: shape %s has more elements than can be addressed", op,
                        aji_shape_text(ndim, shape, text));
    return AJ_OK;
}

aj_status aji_meta_set(aj_ctx *ctx, const char *op, aji_meta *meta, aj_dtype dtype, int ndim, const int64_t *shape) {
    if (!aji_dtype_valid(dtype))
        return aj_raise(ctx, AJ_ERR_ARG, "%s: %d is not a dtype; expected AJ_F64, AJ_F32, AJ_I64, AJ_I32 or AJ_U8", op,
                        (int)dtype);
    if (ndim < 0 || ndim > AJ_MAX_NDIM)
        return aj_raise(ctx, AJ_ERR_ARG, "%s: ndim is %d; expected 0 ... %d", op, ndim, AJ_MAX_NDIM);
    if (ndim > 0 && !shape)
        return aj_raise(ctx, AJ_ERR_ARG, "%s: shape is NULL; expected %d extents", op, ndim);
    *meta = (aji_meta){.dtype = dtype, .ndim = ndim};
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 0)
            return aj_raise(ctx, AJ_ERR_ARG, "%s: extent %lld on axis %d; extents must be >= 0", op, (long long)shape[i], i);
        meta->shape[i] = shape[i];
    }
    return check_addressable(ctx, op, ndim, shape);
}

aj_status aji_normalize_axis(aj_ctx *ctx, const char *op, int ndim, int *axis) {
    if (*axis < -ndim || *axis >= ndim)
        return ndim ? aj_raise(ctx, AJ_ERR_ARG, "%s: axis %d is out of range for %d dimension%s; expected %d ... %d", op, *axis,
                               ndim, ndim == 1 ? "" : "s", -ndim, ndim - 1)
                    : aj_raise(ctx, AJ_ERR_ARG, "%s: axis %d given, but a scalar has no axes", op, *axis);
    if (*axis < 0)
        *axis += ndim;
    return AJ_OK;
}

aj_status aji_broadcast_shape(aj_ctx *ctx, const char *op, int n, const aji_meta *const *in, aji_meta *out) {
    int ndim = 0;
    for (int i = 0; i < n; i++)
        ndim = in[i]->ndim > ndim ? in[i]->ndim : ndim;
    aj_dtype dtype = out->dtype;
    *out = (aji_meta){.dtype = dtype, .ndim = ndim};
    for (int axis = 0; axis < ndim; axis++)
        out->shape[axis] = 1;
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < in[i]->ndim; k++) {
            int64_t extent = in[i]->shape[k], *to = &out->shape[ndim - in[i]->ndim + k];
            if (extent == *to || extent == 1)
                continue;
            char a[160], b[160];
            if (*to != 1)
                return aj_raise(
                    ctx, AJ_ERR_SHAPE,
                    "%s: shapes %s and %s do not broadcast: extents %lld and %lld; expected equal ones, or 1 (see aj_reshape, "
                    "aj_unsqueeze)",
                    op, aji_shape_text(in[0]->ndim, in[0]->shape, a), aji_shape_text(in[i]->ndim, in[i]->shape, b),
                    (long long)*to, (long long)extent);
            *to = extent;
        }
    }
    return check_addressable(ctx, op, ndim, out->shape);
}
