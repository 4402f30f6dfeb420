/* Mean: the sum divided by how many there are. */
#include "autograd/reduction.h"

static aj_tensor *mean(aj_tensor *const *x, const void *attr) {
    const aji_axes *a = attr;
    aj_tensor *sum = aj_sum_axes(x[0], a->n, a->axis, a->keepdims);
    return aj_div(sum, aji_full_like(sum, aji_reduced_count(aji_tensor_meta(x[0]), a)));
}

static aj_status forward(aji_call *c) {
    return aji_forward_formula(c, mean);
}

static aj_status vjp(aji_call *c) {
    aj_tensor *n = aji_full_like(c->g_out[0], aji_reduced_count(&c->in_meta[0], c->attr));
    c->g_in[0] = aji_spread(c, aj_div(c->g_out[0], n));
    return AJ_OK;
}

static aj_tensor *of_all(aj_tensor *const *x) {
    return aj_mean(x[0]);
}

static aj_tensor *of_last(aj_tensor *const *x) {
    return aj_mean_axes(x[0], 1, (int[]){-1}, false);
}

static aj_tensor *of_outer(aj_tensor *const *x) {
    return aj_mean_axes(x[0], 2, (int[]){2, 0}, true);
}

static aj_tensor *of_none(aj_tensor *const *x) {
    return aj_mean_axes(x[0], 0, NULL, false);
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{2, {3, 4}, -2, 2}}, .call = of_all},      {.n_in = 1, .in = {{0, {0}, -2, 2}}, .call = of_all},
    {.n_in = 1, .in = {{1, {1}, -2, 2}}, .call = of_all},         {.n_in = 1, .in = {{1, {5}, -2, 2}}, .call = of_last},
    {.n_in = 1, .in = {{2, {2, 3}, -2, 2}}, .call = of_last},     {.n_in = 1, .in = {{2, {3, 1}, -2, 2}}, .call = of_last},
    {.n_in = 1, .in = {{2, {0, 3}, -2, 2}}, .call = of_last},     {.n_in = 1, .in = {{3, {2, 3, 4}, -2, 2}}, .call = of_outer},
    {.n_in = 1, .in = {{3, {1, 3, 1}, -2, 2}}, .call = of_outer}, {.n_in = 1, .in = {{3, {2, 0, 3}, -2, 2}}, .call = of_outer},
    {.n_in = 1, .in = {{2, {2, 3}, -2, 2}}, .call = of_none},     {0},
};

const aji_op aji_op_mean = {
    .name = "aj_mean",
    .maths = "y = sum of x / n; gx = g / n, repeated",
    .flags = AJI_OP_LAZY,
    .attr_size = sizeof(aji_axes),
    .infer = aji_infer_float_reduction,
    .forward = forward,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_mean(aj_tensor *x) {
    return aji_reduce_all(&aji_op_mean, "aj_mean", x);
}

aj_tensor *aj_mean_axes(aj_tensor *x, int n, const int *axes, bool keepdims) {
    return aji_reduce_axes(&aji_op_mean, "aj_mean_axes", x, n, axes, keepdims);
}
