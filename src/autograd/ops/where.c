/* Choice between two tensors by a condition. */
#include "autograd/autograd_internal.h"

static aj_status infer(aji_call *c) {
    aj_dtype cond = c->in_meta[0].dtype, a = c->in_meta[1].dtype, b = c->in_meta[2].dtype;
    if (cond != AJ_U8)
        return aj_raise(c->ctx, AJ_ERR_DTYPE, "aj_where: cond is %s; expected u8, as comparisons give (see aj_ne, aj_cast)",
                        aj_dtype_name(cond));
    if (a != b)
        return aj_raise(c->ctx, AJ_ERR_DTYPE, "aj_where: a and b are %s and %s; expected one dtype (see aj_cast)",
                        aj_dtype_name(a), aj_dtype_name(b));
    return aji_infer_elementwise(c);
}

static aj_status vjp(aji_call *c) {
    /* A choice again, not a product with the condition: what is not chosen may be inf or NaN. */
    aj_tensor *g = c->g_out[0], *cond = c->in[0], *zero = aji_zeros_like(g);
    if (c->want[1])
        c->g_in[1] = aj_where(cond, g, zero);
    if (c->want[2])
        c->g_in[2] = aj_where(cond, zero, g);
    return AJ_OK;
}

static aj_tensor *sample(aj_tensor *const *x) {
    return aj_where(aj_gt(x[0], aji_zeros_like(x[0])), x[1], x[2]);
}

static const aji_sample samples[] = {
    {.n_in = 3, .in = {{.lo = -2, .hi = 2}, {.lo = -2, .hi = 2}, {.lo = -2, .hi = 2}}, .call = sample, .elementwise = true},
    {0},
};

const aji_op aji_op_where = {
    .name = "aj_where",
    .maths = "y = a where cond, else b; ga = g where cond, else 0, gb = 0 where cond, else g",
    .flags = AJI_OP_ELEMENTWISE | AJI_OP_MIXED_DTYPES,
    .need = AJI_NEED_IN(0),
    .step = AJI_STEP_WHERE,
    .infer = infer,
    .forward = aji_forward_elementwise,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_where(aj_tensor *cond, aj_tensor *a, aj_tensor *b) {
    return aji_apply3(&aji_op_where, NULL, cond, a, b);
}
