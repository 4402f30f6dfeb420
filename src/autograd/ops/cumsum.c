/* Running sum along an axis. */
#include "autograd/reduction.h"

static aj_status infer(aji_call *c) {
    aj_status status = aji_infer_reduction(c);
    c->out_meta[0] = c->in_meta[0];
    return status;
}

static aj_status forward(aji_call *c) {
    const aji_axes *a = c->attr;
    aji_value *y = aji_value_new(c->ctx, c->device, &c->out_meta[0]);
    if (!y)
        return AJ_ERR_MEMORY;
    aj_status status = aji_do_cumsum(a->call, c->x[0], a->axis[0], y);
    if (status == AJ_OK)
        c->y[0] = y;
    else
        aji_value_release(y);
    return status;
}

static aj_status vjp(aji_call *c) {
    const aji_axes *a = c->attr;
    int axis = a->axis[0];
    c->g_in[0] = aj_flip(aj_cumsum(aj_flip(c->g_out[0], axis), axis), axis);
    return AJ_OK;
}

static aj_tensor *of_last(aj_tensor *const *x) {
    return aj_cumsum(x[0], -1);
}

static aj_tensor *of_first(aj_tensor *const *x) {
    return aj_cumsum(x[0], 0);
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

const aji_op aji_op_cumsum = {
    .name = "aj_cumsum",
    .maths = "y_i = sum_{j <= i} x_j; gx_j = sum_{i >= j} g_i",

    .attr_size = sizeof(aji_axes),
    .infer = infer,
    .forward = forward,
    .vjp = vjp,
    .samples = samples,
};

/* Integers are summed in i64, as by aj_sum. */
aj_tensor *aj_cumsum(aj_tensor *x, int axis) {
    bool is_small = x && !aji_dtype_is_float(aj_tensor_dtype(x)) && aj_tensor_dtype(x) != AJ_I64;
    return aji_reduce_axes(&aji_op_cumsum, "aj_cumsum", is_small ? aj_cast(x, AJ_I64) : x, 1, &axis, false);
}
