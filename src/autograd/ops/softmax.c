/* Exponentials divided by their sum. */
#include "autograd/reduction.h"

static aj_status infer(aji_call *c) {
    aj_status status = aji_infer_float_reduction(c);
    c->out_meta[0] = c->in_meta[0];
    return status;
}

static aj_tensor *softmax(aj_tensor *const *in, const void *attr) {
    const aji_axes *a = attr;
    aj_tensor *x = in[0];
    aj_tensor *e = aj_exp(aj_sub(x, aji_exp_shift(x, a)));
    return aj_div(e, aj_sum_axes(e, 1, a->axis, true));
}

static aj_status forward(aji_call *c) {
    return aji_forward_formula(c, softmax);
}

static aj_status vjp(aji_call *c) {
    const aji_axes *a = c->attr;
    aj_tensor *g = c->g_out[0], *y = c->out[0];
    c->g_in[0] = aj_mul(y, aj_sub(g, aj_sum_axes(aj_mul(g, y), 1, a->axis, true)));
    return AJ_OK;
}

static aj_tensor *of_last(aj_tensor *const *x) {
    return aj_softmax(x[0], -1);
}

static aj_tensor *of_first(aj_tensor *const *x) {
    return aj_softmax(x[0], 0);
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{1, {4}, -2, 2}}, .call = of_last},
    {.n_in = 1, .in = {{2, {2, 3}, -2, 2}}, .call = of_last},
    {.n_in = 1, .in = {{2, {3, 1}, -2, 2}}, .call = of_last},
    {.n_in = 1, .in = {{3, {3, 2, 2}, -2, 2}}, .call = of_first},
    {.n_in = 1, .in = {{2, {0, 3}, -2, 2}}, .call = of_last},
    {.n_in = 1, .in = {{2, {3, 0}, -2, 2}}, .call = of_last},
    {0},
};

const aji_op aji_op_softmax = {
    .name = "aj_softmax",
    .maths = "y = exp(x) / sum exp(x); gx = y (g - sum g y)",
    .flags = AJI_OP_LAZY,
    .need = AJI_NEED_OUT,
    .attr_size = sizeof(aji_axes),
    .infer = infer,
    .forward = forward,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_softmax(aj_tensor *x, int axis) {
    return aji_reduce_axes(&aji_op_softmax, "aj_softmax", x, 1, &axis, false);
}
