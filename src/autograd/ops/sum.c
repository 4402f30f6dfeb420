/* Sum. */
#include "autograd/reduction.h"

static aj_status forward(aji_call *c) {
    return aji_forward_reduction(c, AJI_SUM);
}

static aj_status vjp(aji_call *c) {
    c->g_in[0] = aji_spread(c, c->g_out[0]);
    return AJ_OK;
}

static aj_tensor *of_all(aj_tensor *const *x) {
    return aj_sum(x[0]);
}

static aj_tensor *of_last(aj_tensor *const *x) {
    return aj_sum_axes(x[0], 1, (int[]){-1}, false);
}

static aj_tensor *of_outer(aj_tensor *const *x) {
    return aj_sum_axes(x[0], 2, (int[]){2, 0}, true);
}

static aj_tensor *of_none(aj_tensor *const *x) {
    return aj_sum_axes(x[0], 0, NULL, false);
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{2, {3, 4}, -2, 2}}, .call = of_all},
    {.n_in = 1, .in = {{0, {0}, -2, 2}}, .call = of_all},
    {.n_in = 1, .in = {{1, {1}, -2, 2}}, .call = of_all},
    {.n_in = 1, .in = {{1, {5}, -2, 2}}, .call = of_last},
    {.n_in = 1, .in = {{2, {2, 3}, -2, 2}}, .call = of_last},
    {.n_in = 1, .in = {{2, {3, 1}, -2, 2}}, .call = of_last},
    {.n_in = 1, .in = {{2, {0, 3}, -2, 2}}, .call = of_last},
    {.n_in = 1, .in = {{3, {2, 3, 4}, -2, 2}}, .call = of_outer},
    {.n_in = 1, .in = {{3, {1, 3, 1}, -2, 2}}, .call = of_outer},
    {.n_in = 1, .in = {{3, {2, 0, 3}, -2, 2}}, .call = of_outer},
    {.n_in = 1, .in = {{2, {2, 3}, -2, 2}}, .call = of_none},
    {.n_in = 1, .in = {{1, {0}, -2, 2}}, .call = of_all},
    {.n_in = 1, .in = {{2, {3, 0}, -2, 2}}, .call = of_last},
    {.n_in = 1, .in = {{3, {0, 2, 3}, -2, 2}}, .call = of_outer},
    {0},
};

const aji_op aji_op_sum = {
    .name = "aj_sum",
    .maths = "y = sum of x; gx = g, repeated",

    .flags = AJI_OP_LAZY,
    .attr_size = sizeof(aji_axes),
    .infer = aji_infer_accumulation,
    .forward = forward,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_sum(aj_tensor *x) {
    return aji_reduce_all(&aji_op_sum, "aj_sum", x);
}

aj_tensor *aj_sum_axes(aj_tensor *x, int n, const int *axes, bool keepdims) {
    return aji_reduce_axes(&aji_op_sum, "aj_sum_axes", x, n, axes, keepdims);
}
