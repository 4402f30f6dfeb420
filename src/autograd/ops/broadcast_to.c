/* Broadcast to: x repeated to a shape, by NumPy's rule. A view with stride 0 along what is repeated; the gradient is
 * summed over that. */
#include "autograd/region.h"

static aj_status infer(aji_call *c) {
    const aji_meta *shape = c->attr;
    *c->out_meta = *shape;
    return aji_check_broadcasts(c->ctx, "aj_broadcast_to", "x", &c->in_meta[0], shape);
}

static aj_status forward(aji_call *c) {
    c->y[0] = aji_value_broadcast(c->x[0], c->out_meta);
    return c->y[0] ? AJ_OK : aj_ctx_status(c->ctx);
}

static aj_status vjp(aji_call *c) {
    c->g_in[0] = aji_sum_to(c->g_out[0], &c->in_meta[0]);
    return AJ_OK;
}

static aj_tensor *to_2_3_4(aj_tensor *const *x) {
    return aj_broadcast_to(x[0], AJ_SHAPE(2, 3, 4));
}

static aj_tensor *to_2_0(aj_tensor *const *x) {
    return aj_broadcast_to(x[0], AJ_SHAPE(2, 0));
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{2, {3, 1}, -1, 1}}, .call = to_2_3_4},
    {.n_in = 1, .in = {{3, {2, 1, 4}, -1, 1}}, .call = to_2_3_4},
    {.n_in = 1, .in = {{0, {0}, -1, 1}}, .call = to_2_3_4},
    {.n_in = 1, .in = {{2, {2, 1}, -1, 1}}, .call = to_2_0},
    {0},
};

const aji_op aji_op_broadcast_to = {
    .name = "aj_broadcast_to",
    .maths = "y = x repeated; gx = g summed over what was repeated",
    .flags = AJI_OP_LAZY,
    .attr_size = sizeof(aji_meta),
    .infer = infer,
    .forward = forward,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_broadcast_to(aj_tensor *x, int ndim, const int64_t *shape) {
    aji_meta a;
    if (!x || aji_meta_set(aj_tensor_ctx(x), "aj_broadcast_to", &a, aj_tensor_dtype(x), ndim, shape) != AJ_OK)
        return NULL;
    return aji_apply1(&aji_op_broadcast_to, &a, x);
}
