/* Scalar product of two vectors. */
#include "autograd/autograd_internal.h"

static aj_tensor *sample(aj_tensor *const *x) {
    return aj_dot(x[0], x[1]);
}

static const aji_sample samples[] = {
    {.n_in = 2, .in = {{1, {4}, -2, 2}, {1, {4}, -2, 2}}, .call = sample},
    {.n_in = 2, .in = {{1, {1}, -2, 2}, {1, {1}, -2, 2}}, .call = sample},
    {.n_in = 2, .in = {{1, {0}, -2, 2}, {1, {0}, -2, 2}}, .call = sample},
    {0},
};

const aji_op aji_op_dot = {
    .name = "dot",
    .maths = "y = sum of a b; ga = g b, gb = g a",
    .flags = AJI_OP_COMPOSITE,
    .samples = samples,
};

aj_tensor *aj_dot(aj_tensor *a, aj_tensor *b) {
    aj_ctx *ctx = aji_check_composite(&aji_op_dot, 2, (aj_tensor *[]){a, b});
    if (!ctx)
        return NULL;
    const aji_meta *of_a = aji_tensor_meta(a), *of_b = aji_tensor_meta(b);
    if (of_a->ndim != 1 || !aji_same_shape(of_a, of_b)) {
        char text_a[160], text_b[160];
        aj_raise(ctx, AJ_ERR_SHAPE, "aj_dot: shapes %s and %s; expected two vectors of one length (see aj_matmul, aj_reshape)",
                 aji_shape_text(of_a->ndim, of_a->shape, text_a), aji_shape_text(of_b->ndim, of_b->shape, text_b));
        return NULL;
    }
    if (!aji_dtype_is_float(of_a->dtype)) { /* the products count in i64, as their sum does */
        a = aj_cast(a, AJ_I64);
        b = aj_cast(b, AJ_I64);
    }
    return aj_sum(aj_mul(a, b));
}
