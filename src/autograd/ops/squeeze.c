/* Squeeze: x without an axis of extent 1. A view. */
#include "autograd/autograd_internal.h"

typedef struct attr {
    int axis;
} attr;

static aj_status infer(aji_call *c) {
    attr *a = c->attr;
    const aji_meta *x = &c->in_meta[0];
    aj_status status = aji_normalize_axis(c->ctx, "aj_squeeze", x->ndim, &a->axis);
    if (status != AJ_OK)
        return status;
    if (x->shape[a->axis] != 1)
        return aj_raise(c->ctx, AJ_ERR_SHAPE, "aj_squeeze: axis %d has extent %lld; expected 1 (see aj_reshape)", a->axis,
                        (long long)x->shape[a->axis]);
    *c->out_meta = *x;
    c->out_meta->ndim--;
    for (int i = a->axis; i < c->out_meta->ndim; i++)
        c->out_meta->shape[i] = x->shape[i + 1];
    return AJ_OK;
}

static aj_status forward(aji_call *c) {
    c->y[0] = aji_value_reshape(c->x[0], c->out_meta);
    return c->y[0] ? AJ_OK : aj_ctx_status(c->ctx);
}

static aj_status vjp(aji_call *c) {
    const attr *a = c->attr;
    c->g_in[0] = aj_unsqueeze(c->g_out[0], a->axis);
    return AJ_OK;
}

static aj_tensor *first(aj_tensor *const *x) {
    return aj_squeeze(x[0], 0);
}

static aj_tensor *middle_of_flipped(aj_tensor *const *x) {
    return aj_squeeze(aj_flip(x[0], -1), -2);
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{1, {1}, -1, 1}}, .call = first},
    {.n_in = 1, .in = {{2, {1, 0}, -1, 1}}, .call = first},
    {.n_in = 1, .in = {{3, {2, 1, 3}, -1, 1}}, .call = middle_of_flipped},
    {0},
};

const aji_op aji_op_squeeze = {
    .name = "aj_squeeze",
    .maths = "y = x without an axis of extent 1; gx = g with it",
    .flags = AJI_OP_LAZY,
    .attr_size = sizeof(attr),
    .infer = infer,
    .forward = forward,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_squeeze(aj_tensor *x, int axis) {
    attr a = {axis};
    return aji_apply1(&aji_op_squeeze, &a, x);
}
