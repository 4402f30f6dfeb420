/* Power with a constant exponent. */
#include "autograd/autograd_internal.h"

static aj_status vjp(aji_call *c) {
    const aji_scalars *scalars = c->attr;
    double p = scalars->imm[0];
    if (p != 0) /* else the gradient stays NULL: zero, at x = 0 too, where 0 x^-1 would be NaN */
        c->g_in[0] = aj_mul(c->g_out[0], aj_scale(aj_pow_scalar(c->in[0], p - 1), p));
    return AJ_OK;
}

static aj_tensor *sample_0(aj_tensor *const *x) {
    return aj_pow_scalar(x[0], 0);
}

static aj_tensor *sample_1(aj_tensor *const *x) {
    return aj_pow_scalar(x[0], 1);
}

static aj_tensor *sample_2(aj_tensor *const *x) {
    return aj_pow_scalar(x[0], 2);
}

static aj_tensor *sample_3(aj_tensor *const *x) {
    return aj_pow_scalar(x[0], 3);
}

static aj_tensor *sample_4(aj_tensor *const *x) {
    return aj_pow_scalar(x[0], -1.5);
}

static aj_tensor *sample_5(aj_tensor *const *x) {
    return aj_pow_scalar(x[0], 0.5);
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{.lo = -2, .hi = 2}}, .call = sample_0, .elementwise = true},
    {.n_in = 1, .in = {{.lo = -2, .hi = 2}}, .call = sample_1, .elementwise = true},
    {.n_in = 1, .in = {{.lo = -2, .hi = 2}}, .call = sample_2, .elementwise = true},
    {.n_in = 1, .in = {{.lo = -2, .hi = 2}}, .call = sample_3, .elementwise = true},
    {.n_in = 1, .in = {{.lo = 0.6, .hi = 2}}, .call = sample_4, .elementwise = true},
    {.n_in = 1, .in = {{.lo = 0.5, .hi = 2}}, .call = sample_5, .elementwise = true},
    {0},
};

const aji_op aji_op_pow_scalar = {
    .name = "aj_pow_scalar",
    .maths = "y = x^p; gx = g p x^(p-1), 0 for p = 0",
    .flags = AJI_OP_ELEMENTWISE,
    .need = AJI_NEED_IN(0),
    .step = AJI_STEP_POW_SCALAR,
    .attr_size = sizeof(aji_scalars),
    .infer = aji_infer_scalars,
    .forward = aji_forward_elementwise,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_pow_scalar(aj_tensor *x, double exponent) {
    aji_scalars scalars = {.imm = {exponent}};
    return aji_apply1(&aji_op_pow_scalar, &scalars, x);
}
