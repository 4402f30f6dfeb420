/* Smooth rectifier. */
#include "autograd/autograd_internal.h"

static aj_status vjp(aji_call *c) {
    c->g_in[0] = aj_mul(c->g_out[0], aj_sigmoid(c->in[0]));
    return AJ_OK;
}

static aj_tensor *sample(aj_tensor *const *x) {
    return aj_softplus(x[0]);
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{.lo = -4, .hi = 4}}, .call = sample, .elementwise = true},
    {0},
};

const aji_op aji_op_softplus = {
    .name = "aj_softplus",
    .maths = "y = log(1 + exp(x)); gx = g sigmoid(x)",
    AJI_ELEMENTWISE(SOFTPLUS),
    .need = AJI_NEED_IN(0),
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_softplus(aj_tensor *x) {
    return aji_apply1(&aji_op_softplus, NULL, x);
}
