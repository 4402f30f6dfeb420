/* Logistic function. */
#include "autograd/autograd_internal.h"

static aj_status vjp(aji_call *c) {
    aj_tensor *y = c->out[0];
    c->g_in[0] = aj_mul(c->g_out[0], aj_mul(y, aj_add_scalar(aj_neg(y), 1)));
    return AJ_OK;
}

static aj_tensor *sample(aj_tensor *const *x) {
    return aj_sigmoid(x[0]);
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{.lo = -4, .hi = 4}}, .call = sample, .elementwise = true},
    {0},
};

const aji_op aji_op_sigmoid = {
    .name = "aj_sigmoid",
    .maths = "y = 1 / (1 + exp(-x)); gx = g y (1 - y)",
    AJI_ELEMENTWISE(SIGMOID),
    .need = AJI_NEED_OUT,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_sigmoid(aj_tensor *x) {
    return aji_apply1(&aji_op_sigmoid, NULL, x);
}
