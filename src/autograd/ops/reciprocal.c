/* Reciprocal. */
#include "autograd/autograd_internal.h"

static aj_status vjp(aji_call *c) {
    c->g_in[0] = aj_neg(aj_mul(c->g_out[0], aj_square(c->out[0])));
    return AJ_OK;
}

static aj_tensor *sample(aj_tensor *const *x) {
    return aj_reciprocal(x[0]);
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{.lo = 0.5, .hi = 3}}, .call = sample, .elementwise = true},
    {.n_in = 1, .in = {{.lo = -3, .hi = -0.5}}, .call = sample, .elementwise = true},
    {0},
};

const aji_op aji_op_reciprocal = {
    .name = "aj_reciprocal",
    .maths = "y = 1 / x; gx = -g y^2",
    AJI_ELEMENTWISE(RECIPROCAL),
    .need = AJI_NEED_OUT,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_reciprocal(aj_tensor *x) {
    return aji_apply1(&aji_op_reciprocal, NULL, x);
}
