/* Mean: the sum divided by how many there are. */
#include "autograd/ops/helpers.h"

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
    .name = "mean",
    .maths = "y = sum of x / n; gx = g / n, repeated",
    .flags = AJI_OP_COMPOSITE,
    .samples = samples,
};

static aj_tensor *mean(aj_tensor *x, aji_axes a) {
    aj_ctx *ctx = aji_check_composite(&aji_op_mean, 1, &x);
    if (!ctx)
        return NULL;
    const aji_meta *meta = aji_tensor_meta(x);
    if (!aji_dtype_is_float(meta->dtype)) {
        aj_raise(ctx, AJ_ERR_DTYPE, "%s: the operand is %s; expected f64 or f32 (see aj_cast)", a.call,
                 aj_dtype_name(meta->dtype));
        return NULL;
    }
    if (aji_axes_check(ctx, &a, meta->ndim) != AJ_OK)
        return NULL;
    double n = 1;
    for (int i = 0; i < a.n; i++)
        n *= (double)meta->shape[a.axis[i]];
    aj_tensor *y = aj_sum_axes(x, a.n, a.axis, a.keepdims);
    return aj_div(y, aji_full_like(y, n));
}

aj_tensor *aj_mean(aj_tensor *x) {
    return mean(x, (aji_axes){.call = "aj_mean", .all = true});
}

aj_tensor *aj_mean_axes(aj_tensor *x, int n, const int *axes, bool keepdims) {
    return mean(x, (aji_axes){.call = "aj_mean_axes", .keepdims = keepdims, .n = n, .given = axes});
}
