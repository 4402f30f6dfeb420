/* Where the smallest entry is. */
#include "autograd/reduction.h"

static aj_status infer(aji_call *c) {
    aj_status status = aji_infer_extremum(c);
    c->out_meta[0].dtype = AJ_I64;
    return status;
}

static aj_status forward(aji_call *c) {
    return aji_forward_argument(c, false);
}

static aj_tensor *of_last(aj_tensor *const *x) {
    return aj_argmin(x[0], -1);
}

static aj_tensor *of_first(aj_tensor *const *x) {
    return aj_argmin(x[0], 0);
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{1, {4}, -2, 2}}, .call = of_last},     {.n_in = 1, .in = {{2, {2, 3}, -2, 2}}, .call = of_last},
    {.n_in = 1, .in = {{2, {3, 2}, -2, 2}}, .call = of_first}, {.n_in = 1, .in = {{2, {1, 3}, -2, 2}}, .call = of_first},
    {.n_in = 1, .in = {{2, {0, 3}, -2, 2}}, .call = of_last},  {0},
};

const aji_op aji_op_argmin = {
    .name = "aj_argmin",
    .maths = "y = first index of the smallest entry of x",
    .flags = AJI_OP_CONSTANT,
    .attr_size = sizeof(aji_axes),
    .infer = infer,
    .forward = forward,
    .samples = samples,
};

aj_tensor *aj_argmin(aj_tensor *x, int axis) {
    return aji_reduce_axes(&aji_op_argmin, "aj_argmin", x, 1, &axis, false);
}
