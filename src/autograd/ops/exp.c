/* Exponential function. */
#include "autograd/autograd_internal.h"

static aj_status vjp(aji_call *c) {
    c->g_in[0] = aj_mul(c->g_out[0], c->out[0]);
    return AJ_OK;
}

static aj_tensor *sample(aj_tensor *const *x) {
    return aj_exp(x[0]);
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{.lo = -2, .hi = 2}}, .call = sample, .elementwise = true},
    {0},
};

const aji_op aji_op_exp = {
    .name = "aj_exp",
    .maths = "y = exp(x); gx = g y",
    AJI_ELEMENTWISE(EXP),
    .need = AJI_NEED_OUT,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_exp(aj_tensor *x) {
    return aji_apply1(&aji_op_exp, NULL, x);
}
