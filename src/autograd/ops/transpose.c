/* Transpose: two axes exchanged. A view. */
#include "autograd/autograd_internal.h"

typedef struct attr {
    int axis0, axis1;
} attr;

static aj_status infer(aji_call *c) {
    attr *a = c->attr;
    const aji_meta *x = &c->in_meta[0];
    aj_status status = aji_normalize_axis(c->ctx, "aj_transpose", x->ndim, &a->axis0);
    if (status == AJ_OK)
        status = aji_normalize_axis(c->ctx, "aj_transpose", x->ndim, &a->axis1);
    if (status != AJ_OK)
        return status;
    *c->out_meta = *x;
    c->out_meta->shape[a->axis0] = x->shape[a->axis1];
    c->out_meta->shape[a->axis1] = x->shape[a->axis0];
    return AJ_OK;
}

static aj_status forward(aji_call *c) {
    const attr *a = c->attr;
    aji_value *x = c->x[0];
    int64_t strides[AJ_MAX_NDIM];
    for (int i = 0; i < x->meta.ndim; i++)
        strides[i] = x->strides[i == a->axis0 ? a->axis1 : i == a->axis1 ? a->axis0 : i];
    c->y[0] = aji_value_view(x, c->out_meta, strides, x->offset);
    return c->y[0] ? AJ_OK : aj_ctx_status(c->ctx);
}

static aj_status vjp(aji_call *c) {
    const attr *a = c->attr;
    c->g_in[0] = aj_transpose(c->g_out[0], a->axis0, a->axis1);
    return AJ_OK;
}

static aj_tensor *ends(aj_tensor *const *x) {
    return aj_transpose(x[0], 0, -1);
}

static aj_tensor *last(aj_tensor *const *x) {
    return aj_transpose(x[0], -2, -1);
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{3, {2, 3, 4}, -1, 1}}, .call = ends},
    {.n_in = 1, .in = {{1, {3}, -1, 1}}, .call = ends},
    {.n_in = 1, .in = {{4, {2, 1, 3, 2}, -1, 1}}, .call = last},
    {.n_in = 1, .in = {{2, {0, 3}, -1, 1}}, .call = last},
    {0},
};

const aji_op aji_op_transpose = {
    .name = "aj_transpose",
    .maths = "y = x with two axes exchanged; gx = g with them exchanged",
    .attr_size = sizeof(attr),
    .infer = infer,
    .forward = forward,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_transpose(aj_tensor *x, int axis0, int axis1) {
    attr a = {axis0, axis1};
    return aji_apply1(&aji_op_transpose, &a, x);
}
