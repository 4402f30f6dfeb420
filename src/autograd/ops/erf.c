/* Error function. */
#include "autograd/autograd_internal.h"

static aj_status vjp(aji_call *c) {
    const double two_over_sqrt_pi = 1.12837916709551257390;
    c->g_in[0] = aj_scale(aj_mul(c->g_out[0], aj_exp(aj_neg(aj_square(c->in[0])))), two_over_sqrt_pi);
    return AJ_OK;
}

static aj_tensor *sample(aj_tensor *const *x) {
    return aj_erf(x[0]);
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{.lo = -2, .hi = 2}}, .call = sample, .elementwise = true},
    {0},
};

const aji_op aji_op_erf = {
    .name = "aj_erf",
    .maths = "y = erf(x); gx = g 2 exp(-x^2) / sqrt(pi)",
    AJI_ELEMENTWISE(ERF),
    .need = AJI_NEED_IN(0),
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_erf(aj_tensor *x) {
    return aji_apply1(&aji_op_erf, NULL, x);
}
