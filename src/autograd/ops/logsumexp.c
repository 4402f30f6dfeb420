/* Logarithm of a sum of exponentials. */
#include <math.h>

#include "autograd/reduction.h"

static aj_tensor *logsumexp(aj_tensor *const *in, const void *attr) {
    const aji_axes *a = attr;
    aj_tensor *x = in[0];
    aj_tensor *shift = aji_exp_shift(x, a);
    aj_tensor *y = aj_add(shift, aj_log(aj_sum_axes(aj_exp(aj_sub(x, shift)), 1, a->axis, true)));
    return aj_squeeze(y, a->axis[0]);
}

static aj_status forward(aji_call *c) {
    return aji_forward_formula(c, logsumexp);
}

static aj_status vjp(aji_call *c) {
    /* where y is -inf so is x: exp(x) = 0 is the answer then, not exp(-inf + inf) */
    aj_tensor *y = aji_with_axes(c, c->out[0]);
    aj_tensor *finite = aj_where(aj_eq(y, aji_full_like(y, -INFINITY)), aji_zeros_like(y), y);
    c->g_in[0] = aj_mul(aji_with_axes(c, c->g_out[0]), aj_exp(aj_sub(c->in[0], finite)));
    return AJ_OK;
}

static aj_tensor *of_last(aj_tensor *const *x) {
    return aj_logsumexp(x[0], -1);
}

static aj_tensor *of_first(aj_tensor *const *x) {
    return aj_logsumexp(x[0], 0);
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{1, {4}, -2, 2}}, .call = of_last},    {.n_in = 1, .in = {{2, {2, 3}, -2, 2}}, .call = of_last},
    {.n_in = 1, .in = {{2, {3, 1}, -2, 2}}, .call = of_last}, {.n_in = 1, .in = {{3, {3, 2, 2}, -2, 2}}, .call = of_first},
    {.n_in = 1, .in = {{2, {0, 3}, -2, 2}}, .call = of_last}, {0},
};

const aji_op aji_op_logsumexp = {
    .name = "aj_logsumexp",
    .maths = "y = log(sum exp(x)); gx = g exp(x - y)",
    .flags = AJI_OP_LAZY,
    .need = AJI_NEED_IN(0) | AJI_NEED_OUT,
    .attr_size = sizeof(aji_axes),
    .infer = aji_infer_float_reduction,
    .forward = forward,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_logsumexp(aj_tensor *x, int axis) {
    return aji_reduce_axes(&aji_op_logsumexp, "aj_logsumexp", x, 1, &axis, false);
}
