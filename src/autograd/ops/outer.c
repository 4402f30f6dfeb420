/* Outer: y_ij = a_i b_j, the product of a column and a row, by broadcasting. */
#include "autograd/autograd_internal.h"

static aj_tensor *outer(aj_tensor *const *x) {
    return aj_outer(x[0], x[1]);
}

static const aji_sample samples[] = {
    {.n_in = 2, .in = {{1, {2}, -1, 1}, {1, {3}, -1, 1}}, .call = outer},
    {.n_in = 2, .in = {{1, {1}, -1, 1}, {1, {0}, -1, 1}}, .call = outer},
    {0},
};

const aji_op aji_op_outer = {
    .name = "aj_outer",
    .maths = "y_ij = a_i b_j; ga = g b; gb = g' a",
    .flags = AJI_OP_COMPOSITE,
    .samples = samples,
};

aj_tensor *aj_outer(aj_tensor *a, aj_tensor *b) {
    aj_ctx *ctx = aji_check_composite(&aji_op_outer, 2, (aj_tensor *const[]){a, b});
    if (!ctx)
        return NULL;
    if (aj_ndim(a) != 1 || aj_ndim(b) != 1) {
        aj_raise(ctx, AJ_ERR_SHAPE, "aj_outer: a has %d axes, b %d; expected one each (see aj_reshape)", aj_ndim(a), aj_ndim(b));
        return NULL;
    }
    return aj_mul(aj_unsqueeze(a, 1), aj_unsqueeze(b, 0));
}
