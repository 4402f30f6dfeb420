/* Trace: y = the sum of a matrix' diagonal; ga = g on the diagonal. */
#include "autograd/autograd_internal.h"

static aj_tensor *trace(aj_tensor *const *x) {
    return aj_trace(x[0]);
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{2, {3, 3}, -1, 1}}, .call = trace},
    {.n_in = 1, .in = {{2, {2, 3}, -1, 1}}, .call = trace},
    {.n_in = 1, .in = {{2, {0, 0}, -1, 1}}, .call = trace},
    {0},
};

const aji_op aji_op_trace = {
    .name = "aj_trace",
    .maths = "y = sum_i a_ii; ga = g on the diagonal",
    .flags = AJI_OP_COMPOSITE,
    .samples = samples,
};

aj_tensor *aj_trace(aj_tensor *a) {
    aj_ctx *ctx = aji_check_composite(&aji_op_trace, 1, &a);
    if (!ctx)
        return NULL;
    if (aj_ndim(a) != 2) {
        aj_raise(ctx, AJ_ERR_SHAPE, "aj_trace: a has %d axes; expected two, a matrix", aj_ndim(a));
        return NULL;
    }
    return aj_sum(aj_diag(a));
}
