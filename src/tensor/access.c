/*
 * Numbers in and out: copies, user memory, read-out.
 */
#include <math.h>
#include <string.h>

#include "tensor/tensor_private.h"

aj_tensor *aj_from_data(aj_ctx *ctx, aj_dtype dtype, int ndim, const int64_t *shape, const void *data) {
    static const char op[] = "aj_from_data";
    aji_meta meta;
    if (!ctx || aji_meta_set(ctx, op, &meta, dtype, ndim, shape) != AJ_OK)
        return NULL;
    int64_t numel = aji_meta_numel(&meta);
    if (!data && numel > 0) {
        aj_raise(ctx, AJ_ERR_ARG, "%s: data is NULL; expected %lld elements", op, (long long)numel);
        return NULL;
    }
    aji_value *v = aji_value_new(ctx, aj_cpu(ctx), &meta);
    if (!v)
        return NULL;
    if (numel > 0)
        memcpy(aji_value_data(v), data, (size_t)numel * aj_dtype_size(dtype));
    return aji_tensor_wrap(v, "aj_from_data");
}

aj_tensor *aj_from_memory(aj_ctx *ctx, aj_dtype dtype, int ndim, const int64_t *shape, void *data,
                          void (*deleter)(void *data, void *user), void *user) {
    static const char op[] = "aj_from_memory";
    aji_meta meta;
    bool valid = ctx && aji_meta_set(ctx, op, &meta, dtype, ndim, shape) == AJ_OK;
    if (valid && !data && aji_meta_numel(&meta) > 0) {
        aj_raise(ctx, AJ_ERR_ARG, "%s: data is NULL; expected %lld elements", op, (long long)aji_meta_numel(&meta));
        valid = false;
    }
    if (!valid) { /* adopted memory is freed exactly once, whatever happens, so that the caller need not look */
        if (deleter)
            deleter(data, user);
        return NULL;
    }
    size_t bytes = (size_t)aji_meta_numel(&meta) * aj_dtype_size(dtype);
    aji_value *v = aji_value_over(aji_storage_user(ctx, data, bytes, deleter, user), &meta);
    return v ? aji_tensor_wrap(v, "aj_from_memory") : NULL;
}

aj_status aj_unborrow(aj_tensor *t) {
    static const char op[] = "aj_unborrow";
    if (!t)
        return AJ_ERR_ARG;
    aji_value *v = aji_tensor_value(t, "aj_unborrow");
    if (!v)
        return aj_ctx_status(t->ctx);
    if (v->storage->owner != AJI_BORROWED)
        return aj_raise(
            t->ctx, AJ_ERR_ARG,
            "%s: the memory of this tensor, made by %s, was not borrowed with aj_from_memory, or was given back before", op,
            t->made_by);
    return aji_storage_own(v->storage);
}

/* The numbers, contiguous, in host memory: a reference of its own. */
static aji_value *to_host(aj_tensor *t, const char *user) {
    aji_value *v = aji_tensor_value(t, user);
    return v ? aji_value_on(v, aj_cpu(t->ctx)) : NULL;
}

aj_status aj_read(aj_tensor *t, void *out, size_t bytes) {
    static const char op[] = "aj_read";
    if (!t)
        return AJ_ERR_ARG;
    size_t size = aj_dtype_size(t->meta.dtype);
    int64_t numel = aji_meta_numel(&t->meta);
    if (bytes != (size_t)numel * size)
        return aj_raise(t->ctx, AJ_ERR_ARG, "%s: room for %zu bytes; expected %lld elements of %zu bytes (%s)", op, bytes,
                        (long long)numel, size, aj_dtype_name(t->meta.dtype));
    if (!out && bytes > 0)
        return aj_raise(t->ctx, AJ_ERR_ARG, "%s: out is NULL; expected room for %zu bytes", op, bytes);
    aji_value *v = to_host(t, "read");
    if (!v)
        return aj_ctx_status(t->ctx);
    if (bytes > 0)
        memcpy(out, aji_value_data(v), bytes);
    aji_value_release(v);
    return AJ_OK;
}

double aj_item(aj_tensor *t) {
    static const char op[] = "aj_item";
    if (!t)
        return NAN;
    char text[160];
    if (aji_meta_numel(&t->meta) != 1) {
        aj_raise(t->ctx, AJ_ERR_SHAPE, "%s: shape %s; expected exactly one element (see aj_read, aj_sum)", op,
                 aji_shape_text(t->meta.ndim, t->meta.shape, text));
        return NAN;
    }
    aji_value *v = to_host(t, "item");
    if (!v)
        return NAN;
    double item = aji_decode(t->meta.dtype, aji_value_data(v));
    aji_value_release(v);
    return item;
}

const void *aj_data(aj_tensor *t) {
    static const char op[] = "aj_data";
    if (!t)
        return NULL;
    if (!aji_is_host(t->device)) {
        aj_raise(t->ctx, AJ_ERR_DEVICE, "%s: the tensor is on device %s; expected the CPU (see aj_to_device, aj_read)", op,
                 aj_device_name(t->device));
        return NULL;
    }
    aji_value *v = to_host(t, "data");
    if (!v)
        return NULL;
    aji_tensor_set_value(t, v); /* the contiguous form stays, so that the pointer does */
    const void *data = aji_value_data(v);
    return data ? data : "";
}

aj_status aj_eval(aj_tensor *t) {
    if (!t)
        return AJ_ERR_ARG;
    return aji_tensor_value(t, "aj_eval") ? AJ_OK : aj_ctx_status(t->ctx);
}
