/* Another dtype. */
#include "autograd/autograd_internal.h"

static aj_status infer(aji_call *c) {
    const aji_scalars *scalars = c->attr;
    if (!aji_dtype_valid(scalars->to))
        return aj_raise(c->ctx, AJ_ERR_DTYPE, "aj_cast: %d is not a dtype; expected AJ_F64, AJ_F32, AJ_I64, AJ_I32 or AJ_U8",
                        (int)scalars->to);
    return aji_infer_elementwise(c);
}

static aj_status vjp(aji_call *c) {
    c->g_in[0] = aj_cast(c->g_out[0], c->in_meta[0].dtype);
    return AJ_OK;
}

static aj_tensor *to_f64(aj_tensor *const *x) {
    return aj_cast(x[0], AJ_F64);
}

static aj_tensor *to_f32(aj_tensor *const *x) {
    return aj_cast(x[0], AJ_F32);
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{.lo = -2, .hi = 2}}, .call = to_f64, .elementwise = true},
    {.n_in = 1, .in = {{.lo = -2, .hi = 2}}, .call = to_f32, .elementwise = true},
    {0},
};

const aji_op aji_op_cast = {
    .name = "aj_cast",
    .maths = "y = x as dtype; gx = g as x's dtype",
    .flags = AJI_OP_ELEMENTWISE,
    .step = AJI_STEP_CAST,
    .attr_size = sizeof(aji_scalars),
    .infer = infer,
    .forward = aji_forward_elementwise,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_cast(aj_tensor *x, aj_dtype dtype) {
    aji_scalars scalars = {.to = dtype};
    return aji_apply1(&aji_op_cast, &scalars, x);
}
