/* Unsqueeze: x with a new axis of extent 1, which is `axis` in y. A view. */
#include "autograd/autograd_internal.h"

typedef struct attr {
    int axis;
} attr;

static aj_status infer(aji_call *c) {
    attr *a = c->attr;
    const aji_meta *x = &c->in_meta[0];
    aj_status status = aji_normalize_axis(c->ctx, "aj_unsqueeze", x->ndim + 1, &a->axis);
    if (status != AJ_OK)
        return status;
    int64_t shape[AJ_MAX_NDIM + 1];
    for (int i = 0; i <= x->ndim; i++)
        shape[i] = i < a->axis ? x->shape[i] : i == a->axis ? 1 : x->shape[i - 1];
    return aji_meta_set(c->ctx, "aj_unsqueeze", c->out_meta, x->dtype, x->ndim + 1, shape);
}

static aj_status forward(aji_call *c) {
    c->y[0] = aji_value_reshape(c->x[0], c->out_meta);
    return c->y[0] ? AJ_OK : aj_ctx_status(c->ctx);
}

static aj_status vjp(aji_call *c) {
    const attr *a = c->attr;
    c->g_in[0] = aj_squeeze(c->g_out[0], a->axis);
    return AJ_OK;
}

static aj_tensor *first(aj_tensor *const *x) {
    return aj_unsqueeze(x[0], 0);
}

static aj_tensor *last_of_transposed(aj_tensor *const *x) {
    return aj_unsqueeze(aj_transpose(x[0], 0, 1), -1);
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{0, {0}, -1, 1}}, .call = first},
    {.n_in = 1, .in = {{2, {2, 0}, -1, 1}}, .call = first},
    {.n_in = 1, .in = {{2, {2, 3}, -1, 1}}, .call = last_of_transposed},
    {0},
};

const aji_op aji_op_unsqueeze = {
    .name = "aj_unsqueeze",
    .maths = "y = x with a new axis of extent 1; gx = g without it",
    .flags = AJI_OP_LAZY,
    .attr_size = sizeof(attr),
    .infer = infer,
    .forward = forward,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_unsqueeze(aj_tensor *x, int axis) {
    attr a = {axis};
    return aji_apply1(&aji_op_unsqueeze, &a, x);
}
