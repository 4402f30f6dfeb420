/* Hyperbolic tangent. */
#include "autograd/autograd_internal.h"

static aj_status vjp(aji_call *c) {
    c->g_in[0] = aj_mul(c->g_out[0], aj_add_scalar(aj_neg(aj_square(c->out[0])), 1));
    return AJ_OK;
}

static aj_tensor *sample(aj_tensor *const *x) {
    return aj_tanh(x[0]);
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{.lo = -2, .hi = 2}}, .call = sample, .elementwise = true},
    {0},
};

const aji_op aji_op_tanh = {
    .name = "aj_tanh",
    .maths = "y = tanh(x); gx = g (1 - y^2)",
    AJI_ELEMENTWISE(TANH),
    .need = AJI_NEED_OUT,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_tanh(aj_tensor *x) {
    return aji_apply1(&aji_op_tanh, NULL, x);
}
