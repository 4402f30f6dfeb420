/* Stack: tensors of one shape along a new axis. gx_i = g at i of that axis. */
#include "autograd/region.h"

typedef struct attr {
    int axis;
} attr;

static aj_status infer(aji_call *c) {
    attr *a = c->attr;
    const aji_meta *first = &c->in_meta[0];
    char text0[160], text[160];
    for (int i = 1; i < c->n_in; i++)
        if (!aji_same_shape(first, &c->in_meta[i]))
            return aj_raise(c->ctx, AJ_ERR_SHAPE, "aj_stack: operands 0 and %d have shapes %s and %s; expected one shape", i,
                            aji_shape_text(first->ndim, first->shape, text0),
                            aji_shape_text(c->in_meta[i].ndim, c->in_meta[i].shape, text));
    aj_status status = aji_normalize_axis(c->ctx, "aj_stack", first->ndim + 1, &a->axis);
    if (status != AJ_OK)
        return status;
    int64_t shape[AJ_MAX_NDIM + 1];
    for (int i = 0; i <= first->ndim; i++)
        shape[i] = i < a->axis ? first->shape[i] : i == a->axis ? c->n_in : first->shape[i - 1];
    return aji_meta_set(c->ctx, "aj_stack", c->out_meta, first->dtype, first->ndim + 1, shape);
}

static aj_status forward(aji_call *c) {
    const attr *a = c->attr;
    aji_value *y = aji_value_new(c->ctx, c->device, c->out_meta);
    aji_meta layer = *c->out_meta;
    layer.shape[a->axis] = 1;
    aj_status status = AJ_OK;
    for (int i = 0; y && i < c->n_in && status == AJ_OK; i++) {
        aji_value *x = aji_value_reshape(c->x[i], &layer);
        status = x ? aji_fill("aj_stack", aji_part_view(y, a->axis, i, 1), x) : aj_ctx_status(c->ctx);
        aji_value_release(x);
    }
    return aji_finish(c, y, status);
}

static aj_status vjp(aji_call *c) {
    const attr *a = c->attr;
    for (int i = 0; i < c->n_in; i++)
        if (c->want[i])
            c->g_in[i] = aj_squeeze(aj_slice(c->g_out[0], a->axis, i, i + 1, 1), a->axis);
    return AJ_OK;
}

static aj_tensor *first(aj_tensor *const *x) {
    return aj_stack(2, x, 0);
}

static aj_tensor *last(aj_tensor *const *x) {
    return aj_stack(3, x, -1);
}

static const aji_sample samples[] = {
    {.n_in = 2, .in = {{2, {2, 3}, -1, 1}, {2, {2, 3}, -1, 1}}, .call = first},
    {.n_in = 2, .in = {{2, {2, 0}, -1, 1}, {2, {2, 0}, -1, 1}}, .call = first},
    {.n_in = 3, .in = {{0, {0}, -1, 1}, {0, {0}, -1, 1}, {0, {0}, -1, 1}}, .call = last},
    {.n_in = 3, .in = {{2, {2, 1}, -1, 1}, {2, {2, 1}, -1, 1}, {2, {2, 1}, -1, 1}}, .call = last},
    {0},
};

const aji_op aji_op_stack = {
    .name = "aj_stack",
    .maths = "y = x_0, x_1, ... along a new axis; gx_i = g at i",
    .flags = AJI_OP_LAZY,
    .attr_size = sizeof(attr),
    .infer = infer,
    .forward = forward,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_stack(int n, aj_tensor *const *xs, int axis) {
    attr a = {axis};
    return xs && n > 0 ? aji_apply_n(&aji_op_stack, &a, n, xs) : NULL; /* without operands there is no context to raise in */
}
