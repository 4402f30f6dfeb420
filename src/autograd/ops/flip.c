/* Flip: the reverse order along an axis. A view with a negative stride. gx = g in reverse order. */
#include "autograd/region.h"

typedef struct attr {
    int axis;
} attr;

static aj_status infer(aji_call *c) {
    attr *a = c->attr;
    *c->out_meta = c->in_meta[0];
    return aji_normalize_axis(c->ctx, "aj_flip", c->in_meta[0].ndim, &a->axis);
}

static aj_status forward(aji_call *c) {
    const attr *a = c->attr;
    int64_t n = c->in_meta[0].shape[a->axis];
    c->y[0] = aji_range_view(c->x[0], &(aji_range){.axis = a->axis, .start = n - 1, .step = -1, .count = n});
    return c->y[0] ? AJ_OK : aj_ctx_status(c->ctx);
}

static aj_status vjp(aji_call *c) {
    const attr *a = c->attr;
    c->g_in[0] = aj_flip(c->g_out[0], a->axis);
    return AJ_OK;
}

static aj_tensor *rows(aj_tensor *const *x) {
    return aj_flip(x[0], 0);
}

static aj_tensor *columns(aj_tensor *const *x) {
    return aj_flip(x[0], -1);
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{2, {3, 2}, -1, 1}}, .call = rows},
    {.n_in = 1, .in = {{2, {0, 2}, -1, 1}}, .call = rows},
    {.n_in = 1, .in = {{3, {2, 1, 3}, -1, 1}}, .call = columns},
    {.n_in = 1, .in = {{2, {2, 1}, -1, 1}}, .call = columns},
    {0},
};

const aji_op aji_op_flip = {
    .name = "aj_flip",
    .maths = "y_i = x_{n-1-i}; gx = g in reverse order",
    .attr_size = sizeof(attr),
    .infer = infer,
    .forward = forward,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_flip(aj_tensor *x, int axis) {
    attr a = {axis};
    return aji_apply1(&aji_op_flip, &a, x);
}
