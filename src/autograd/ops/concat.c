/* Concat: tensors one after the other along an axis of theirs. gx_i = i's part of g. */
#include "autograd/region.h"

typedef struct attr {
    int axis;
} attr;

static aj_status check_fits(const aji_call *c, int i, int axis) {
    const aji_meta *first = &c->in_meta[0], *x = &c->in_meta[i];
    bool fits = x->ndim == first->ndim;
    for (int k = 0; fits && k < x->ndim; k++)
        fits = k == axis || x->shape[k] == first->shape[k];
    char a[160], b[160];
    return fits ? AJ_OK
                : aj_raise(c->ctx, AJ_ERR_SHAPE,
                           "aj_concat: operands 0 and %d have shapes %s and %s; expected equal extents off axis %d", i,
                           aji_shape_text(first->ndim, first->shape, a), aji_shape_text(x->ndim, x->shape, b), axis);
}

static aj_status infer(aji_call *c) {
    attr *a = c->attr;
    aji_meta all = c->in_meta[0];
    aj_status status = aji_normalize_axis(c->ctx, "aj_concat", all.ndim, &a->axis);
    for (int i = 1; i < c->n_in && status == AJ_OK; i++) {
        status = check_fits(c, i, a->axis);
        if (status == AJ_OK && __builtin_add_overflow(all.shape[a->axis], c->in_meta[i].shape[a->axis], &all.shape[a->axis]))
            all.shape[a->axis] = INT64_MAX; /* too much for aji_meta_set */
    }
    return status == AJ_OK ? aji_meta_set(c->ctx, "aj_concat", c->out_meta, all.dtype, all.ndim, all.shape) : status;
}

static aj_status forward(aji_call *c) {
    const attr *a = c->attr;
    aji_value *y = aji_value_new(c->ctx, c->device, c->out_meta);
    aj_status status = AJ_OK;
    for (int64_t i = 0, at = 0, n; y && i < c->n_in && status == AJ_OK; i++, at += n) {
        n = c->in_meta[i].shape[a->axis];
        status = aji_fill("aj_concat", aji_part_view(y, a->axis, at, n), c->x[i]);
    }
    return aji_finish(c, y, status);
}

static aj_status vjp(aji_call *c) {
    const attr *a = c->attr;
    for (int64_t i = 0, at = 0, n; i < c->n_in; i++, at += n) {
        n = c->in_meta[i].shape[a->axis];
        if (c->want[i])
            c->g_in[i] = aj_slice(c->g_out[0], a->axis, at, at + n, 1);
    }
    return AJ_OK;
}

static aj_tensor *rows(aj_tensor *const *x) {
    return aj_concat(3, x, 0);
}

static aj_tensor *columns(aj_tensor *const *x) {
    return aj_concat(2, x, -1);
}

static aj_tensor *twice(aj_tensor *const *x) {
    return aj_concat(2, (aj_tensor *const[]){x[0], x[0]}, 0);
}

static const aji_sample samples[] = {
    {.n_in = 3, .in = {{2, {2, 3}, -1, 1}, {2, {0, 3}, -1, 1}, {2, {1, 3}, -1, 1}}, .call = rows},
    {.n_in = 2, .in = {{3, {2, 1, 3}, -1, 1}, {3, {2, 1, 2}, -1, 1}}, .call = columns},
    {.n_in = 2, .in = {{2, {0, 3}, -1, 1}, {2, {0, 2}, -1, 1}}, .call = columns},
    {.n_in = 1, .in = {{2, {2, 2}, -1, 1}}, .call = twice},
    {0},
};

const aji_op aji_op_concat = {
    .name = "aj_concat",
    .maths = "y = x_0, x_1, ... along an axis; gx_i = i's part of g",
    .flags = AJI_OP_LAZY,
    .attr_size = sizeof(attr),
    .infer = infer,
    .forward = forward,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_concat(int n, aj_tensor *const *xs, int axis) {
    attr a = {axis};
    return xs && n > 0 ? aji_apply_n(&aji_op_concat, &a, n, xs) : NULL; /* without operands there is no context to raise in */
}
