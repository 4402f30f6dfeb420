/*
 * Parts of tensors: normalisation of what callers pass, views, and filling.
 */
#include <string.h>

#include "autograd/region.h"

/* Where start or stop leads on an axis of extent n, clipped to `low` ... low + n: Python's slice.indices. */
static int64_t clip(int64_t at, int64_t n, int64_t low) {
    if (at < 0)
        at += n;
    return at < low ? low : at > low + n ? low + n : at;
}

aj_status aji_normalize_range(aj_ctx *ctx, const char *op, const aji_meta *x, aji_range *r) {
    aj_status status = aji_normalize_axis(ctx, op, x->ndim, &r->axis);
    if (status != AJ_OK)
        return status;
    if (r->step == 0)
        return aj_raise(ctx, AJ_ERR_ARG, "%s: step is 0; expected a step forwards (> 0) or backwards (< 0)", op);
    int64_t n = x->shape[r->axis], low = r->step < 0 ? -1 : 0;
    int64_t start = clip(r->start, n, low), stop = clip(r->stop, n, low);
    int64_t distance = r->step > 0 ? stop - start : start - stop;
    uint64_t stride = r->step > 0 ? (uint64_t)r->step : -(uint64_t)r->step;
    r->count = distance > 0 ? (int64_t)((uint64_t)(distance - 1) / stride) + 1 : 0;
    if (r->count <= 1) { /* the step has no meaning, and may be huge */
        r->start = r->count ? start : 0;
        r->stop = r->start + r->count;
        r->step = 1;
    } else {
        r->start = start;
        r->stop = stop < 0 ? INT64_MIN : stop; /* -1 would count from the end */
    }
    return AJ_OK;
}

aji_value *aji_range_view(aji_value *v, const aji_range *r) {
    if (!v)
        return NULL;
    aji_meta meta = v->meta;
    int64_t strides[AJ_MAX_NDIM];
    memcpy(strides, v->strides, sizeof(strides));
    meta.shape[r->axis] = r->count;
    strides[r->axis] *= r->step;
    bool empty = aji_meta_numel(&meta) == 0; /* its offset might lie outside the storage */
    return aji_value_view(v, &meta, strides, empty ? v->offset : v->offset + r->start * v->strides[r->axis]);
}

aji_value *aji_part_view(aji_value *v, int axis, int64_t start, int64_t count) {
    return aji_range_view(v, &(aji_range){.axis = axis, .start = start, .step = 1, .count = count});
}

aji_value *aji_window_view(aji_value *v, const int64_t *lo, const int64_t *extents) {
    if (!v)
        return NULL;
    aji_meta meta = v->meta;
    int64_t offset = v->offset;
    for (int i = 0; i < meta.ndim; i++) {
        meta.shape[i] = extents[i];
        offset += lo[i] * v->strides[i];
    }
    bool empty = aji_meta_numel(&meta) == 0;
    return aji_value_view(v, &meta, v->strides, empty ? v->offset : offset);
}

bool aji_is_zero(const aji_value *v) {
    double number;
    return aji_value_is_full(v, &number) && number == 0;
}

aj_status aji_fill(const char *op, aji_value *part, aji_value *from) {
    if (!part)
        return aj_ctx_status(from->ctx);
    aj_status status = aji_value_evaluate_into(op, from, part);
    aji_value_release(part);
    return status;
}

aj_status aji_finish(aji_call *c, aji_value *y, aj_status status) {
    if (!y)
        return aj_ctx_status(c->ctx);
    if (status == AJ_OK)
        c->y[0] = y;
    else
        aji_value_release(y);
    return status;
}

aj_status aji_copy_numbers(aj_ctx *ctx, const char *op, const char *what, int n, const int64_t *from, int64_t *to) {
    if (n < 0 || n > AJ_MAX_NDIM)
        return aj_raise(ctx, AJ_ERR_ARG, "%s: ndim is %d; expected 0 ... %d", op, n, AJ_MAX_NDIM);
    if (n > 0 && !from)
        return aj_raise(ctx, AJ_ERR_ARG, "%s: %s is NULL; expected %d numbers, one for each axis", op, what, n);
    if (n > 0)
        memcpy(to, from, (size_t)n * sizeof(*to));
    return AJ_OK;
}

aj_status aji_check_broadcasts(aj_ctx *ctx, const char *op, const char *what, const aji_meta *from, const aji_meta *to) {
    int extra = to->ndim - from->ndim;
    bool fits = extra >= 0;
    for (int i = 0; fits && i < from->ndim; i++)
        fits = from->shape[i] == 1 || from->shape[i] == to->shape[extra + i];
    char a[160], b[160];
    return fits ? AJ_OK
                : aj_raise(ctx, AJ_ERR_SHAPE,
                           "%s: %s has shape %s, which does not broadcast to %s; expected the same last extents, or 1", op, what,
                           aji_shape_text(from->ndim, from->shape, a), aji_shape_text(to->ndim, to->shape, b));
}

aj_status aji_infer_taken(aji_call *c, const char *op, int *axis, aji_meta *taken) {
    const aji_meta *x = &c->in_meta[0], *index = &c->in_meta[1];
    aj_status status = aji_normalize_axis(c->ctx, op, x->ndim, axis);
    if (status != AJ_OK)
        return status;
    if (index->dtype != AJ_I64 && index->dtype != AJ_I32)
        return aj_raise(c->ctx, AJ_ERR_DTYPE, "%s: the index is %s; expected i64 or i32 (see aj_cast)", op,
                        aj_dtype_name(index->dtype));
    int64_t shape[2 * AJ_MAX_NDIM];
    int n = 0;
    for (int i = 0; i < *axis; i++)
        shape[n++] = x->shape[i];
    for (int i = 0; i < index->ndim; i++)
        shape[n++] = index->shape[i];
    for (int i = *axis + 1; i < x->ndim; i++)
        shape[n++] = x->shape[i];
    return aji_meta_set(c->ctx, op, taken, x->dtype, n, shape);
}

aji_value *aji_flat_index(const aji_call *c) {
    aji_meta flat = {.dtype = c->in_meta[1].dtype, .ndim = 1, .shape = {aji_meta_numel(&c->in_meta[1])}};
    return aji_value_reshape(c->x[1], &flat);
}

aji_value *aji_flat_rows(const aji_call *c, int axis, aji_value *taken) {
    if (!taken)
        return NULL;
    aji_meta flat = c->in_meta[0];
    flat.shape[axis] = aji_meta_numel(&c->in_meta[1]);
    return aji_value_reshape(taken, &flat);
}

aj_tensor *aji_sample_index(aj_tensor *x, int ndim, const int64_t *shape, const int64_t *numbers) {
    return aj_to_device(aj_from_data(aj_tensor_ctx(x), AJ_I64, ndim, shape, numbers), aj_tensor_device(x));
}
