/* Scalar product of two vectors. */
#include "autograd/reduction.h"

static aj_status infer(aji_call *c) {
    const aji_meta *a = &c->in_meta[0], *b = &c->in_meta[1];
    char text_a[160], text_b[160];
    if (a->ndim != 1 || !aji_same_shape(a, b))
        return aj_raise(c->ctx, AJ_ERR_SHAPE,
                        "aj_dot: shapes %s and %s; expected two vectors of one length (see aj_matmul, aj_reshape)",
                        aji_shape_text(a->ndim, a->shape, text_a), aji_shape_text(b->ndim, b->shape, text_b));
    c->out_meta[0] = (aji_meta){.dtype = aji_dtype_is_float(a->dtype) ? a->dtype : AJ_I64};
    return AJ_OK;
}

static aj_tensor *dot(aj_tensor *const *x, const void *attr) {
    (void)attr;
    if (aji_dtype_is_float(aj_tensor_dtype(x[0])))
        return aj_sum(aj_mul(x[0], x[1]));
    return aj_sum(aj_mul(aj_cast(x[0], AJ_I64), aj_cast(x[1], AJ_I64))); /* the products count in i64, as their sum does */
}

static aj_status forward(aji_call *c) {
    return aji_forward_formula(c, dot);
}

static aj_status vjp(aji_call *c) {
    for (int i = 0; i < 2; i++)
        if (c->want[i])
            c->g_in[i] = aj_mul(c->g_out[0], c->in[1 - i]);
    return AJ_OK;
}

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
    .name = "aj_dot",
    .maths = "y = sum of a b; ga = g b, gb = g a",
    .flags = AJI_OP_LAZY,
    .need = AJI_NEED_ALL_IN,
    .infer = infer,
    .forward = forward,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_dot(aj_tensor *a, aj_tensor *b) {
    return aji_apply2(&aji_op_dot, NULL, a, b);
}
