/* 2-norm: the root of the sum of squares. */
#include <math.h>

#include "autograd/reduction.h"

/* The squares are those of x divided by its largest entry, so that they neither over- nor underflow. */
static aj_tensor *norm(aj_tensor *const *in, const void *attr) {
    const aji_axes *a = attr;
    aj_tensor *x = in[0];
    if (aj_numel(x) == 0)
        return aj_sum_axes(x, a->n, a->axis, a->keepdims);
    aj_tensor *largest = aj_max_axes(aj_abs(x), a->n, a->axis, true);
    aj_tensor *usable = aj_mul(aj_gt(largest, aji_zeros_like(largest)), aj_lt(largest, aji_full_like(largest, INFINITY)));
    aj_tensor *scale = aj_where(usable, largest, aji_full_like(largest, 1));
    aj_tensor *y = aj_sqrt(aj_sum_axes(aj_square(aj_div(x, scale)), a->n, a->axis, a->keepdims));
    return y ? aj_mul(y, aj_reshape(scale, aj_ndim(y), aji_tensor_meta(y)->shape)) : NULL;
}

static aj_status forward(aji_call *c) {
    return aji_forward_formula(c, norm);
}

static aj_status vjp(aji_call *c) {
    /* No division by y = 0, not even where its result is not chosen: its own derivative would be 0 / 0. */
    aj_tensor *x = c->in[0], *y = aji_with_axes(c, c->out[0]), *zero = aji_zeros_like(y), *is_zero = aj_eq(y, zero);
    aj_tensor *direction = aj_where(is_zero, zero, aj_div(x, aj_where(is_zero, aji_full_like(y, 1), y)));
    c->g_in[0] = aj_mul(aji_with_axes(c, c->g_out[0]), direction);
    return AJ_OK;
}

static aj_tensor *of_all(aj_tensor *const *x) {
    return aj_norm(x[0]);
}

static aj_tensor *of_last(aj_tensor *const *x) {
    return aj_norm_axes(x[0], 1, (int[]){-1}, false);
}

static aj_tensor *of_outer(aj_tensor *const *x) {
    return aj_norm_axes(x[0], 2, (int[]){2, 0}, true);
}

static aj_tensor *of_none(aj_tensor *const *x) {
    return aj_norm_axes(x[0], 0, NULL, false);
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{2, {3, 4}, 0.3, 2}}, .call = of_all},
    {.n_in = 1, .in = {{0, {0}, 0.3, 2}}, .call = of_all},
    {.n_in = 1, .in = {{1, {1}, 0.3, 2}}, .call = of_all},
    {.n_in = 1, .in = {{1, {5}, 0.3, 2}}, .call = of_last},
    {.n_in = 1, .in = {{2, {2, 3}, 0.3, 2}}, .call = of_last},
    {.n_in = 1, .in = {{2, {3, 1}, 0.3, 2}}, .call = of_last},
    {.n_in = 1, .in = {{2, {0, 3}, 0.3, 2}}, .call = of_last},
    {.n_in = 1, .in = {{3, {2, 3, 4}, 0.3, 2}}, .call = of_outer},
    {.n_in = 1, .in = {{3, {1, 3, 1}, 0.3, 2}}, .call = of_outer},
    {.n_in = 1, .in = {{3, {2, 0, 3}, 0.3, 2}}, .call = of_outer},
    {.n_in = 1, .in = {{2, {2, 3}, 0.3, 2}}, .call = of_none},
    {.n_in = 1, .in = {{1, {0}, 0.3, 2}}, .call = of_all},
    {.n_in = 1, .in = {{2, {3, 0}, 0.3, 2}}, .call = of_last},
    {.n_in = 1, .in = {{3, {0, 2, 3}, 0.3, 2}}, .call = of_outer},
    {0},
};

const aji_op aji_op_norm = {
    .name = "aj_norm",
    .maths = "y = sqrt(sum of x^2); gx = g x / y, 0 where y = 0",
    .flags = AJI_OP_LAZY,
    .need = AJI_NEED_IN(0) | AJI_NEED_OUT,
    .attr_size = sizeof(aji_axes),
    .infer = aji_infer_float_reduction,
    .forward = forward,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_norm(aj_tensor *x) {
    return aji_reduce_all(&aji_op_norm, "aj_norm", x);
}

aj_tensor *aj_norm_axes(aj_tensor *x, int n, const int *axes, bool keepdims) {
    return aji_reduce_axes(&aji_op_norm, "aj_norm_axes", x, n, axes, keepdims);
}
