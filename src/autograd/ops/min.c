/* Smallest entry. */
#include "autograd/reduction.h"

static aj_status forward(aji_call *c) {
    return aji_forward_reduction(c, AJI_MIN);
}

static aj_status vjp(aji_call *c) {
    return aji_extremum_vjp(c, aj_argmin);
}

static aj_tensor *of_all(aj_tensor *const *x) {
    return aj_min(x[0]);
}

static aj_tensor *of_last(aj_tensor *const *x) {
    return aj_min_axes(x[0], 1, (int[]){-1}, false);
}

static aj_tensor *of_outer(aj_tensor *const *x) {
    return aj_min_axes(x[0], 2, (int[]){2, 0}, true);
}

static aj_tensor *of_none(aj_tensor *const *x) {
    return aj_min_axes(x[0], 0, NULL, false);
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{2, {3, 4}, -2, 2}}, .call = of_all},      {.n_in = 1, .in = {{0, {0}, -2, 2}}, .call = of_all},
    {.n_in = 1, .in = {{1, {1}, -2, 2}}, .call = of_all},         {.n_in = 1, .in = {{1, {5}, -2, 2}}, .call = of_last},
    {.n_in = 1, .in = {{2, {2, 3}, -2, 2}}, .call = of_last},     {.n_in = 1, .in = {{2, {3, 1}, -2, 2}}, .call = of_last},
    {.n_in = 1, .in = {{2, {0, 3}, -2, 2}}, .call = of_last},     {.n_in = 1, .in = {{3, {2, 3, 4}, -2, 2}}, .call = of_outer},
    {.n_in = 1, .in = {{3, {1, 3, 1}, -2, 2}}, .call = of_outer}, {.n_in = 1, .in = {{3, {2, 0, 3}, -2, 2}}, .call = of_outer},
    {.n_in = 1, .in = {{2, {2, 3}, -2, 2}}, .call = of_none},     {0},
};

const aji_op aji_op_min = {
    .name = "aj_min",
    .maths = "y = smallest entry of x; gx = g at its first place, 0 elsewhere",
    .flags = AJI_OP_LAZY,
    .need = AJI_NEED_IN(0),
    .attr_size = sizeof(aji_axes),
    .infer = aji_infer_extremum,
    .forward = forward,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_min(aj_tensor *x) {
    return aji_reduce_all(&aji_op_min, "aj_min", x);
}

aj_tensor *aj_min_axes(aj_tensor *x, int n, const int *axes, bool keepdims) {
    return aji_reduce_axes(&aji_op_min, "aj_min_axes", x, n, axes, keepdims);
}
