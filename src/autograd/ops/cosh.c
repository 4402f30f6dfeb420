/* Hyperbolic cosine. */
#include "autograd/autograd_internal.h"

static aj_status vjp(aji_call *c) {
    c->g_in[0] = aj_mul(c->g_out[0], aj_sinh(c->in[0]));
    return AJ_OK;
}

static aj_tensor *sample(aj_tensor *const *x) {
    return aj_cosh(x[0]);
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{.lo = -2, .hi = 2}}, .call = sample, .elementwise = true},
    {0},
};

const aji_op aji_op_cosh = {
    .name = "aj_cosh",
    .maths = "y = cosh(x); gx = g sinh(x)",
    AJI_ELEMENTWISE(COSH),
    .need = AJI_NEED_IN(0),
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_cosh(aj_tensor *x) {
    return aji_apply1(&aji_op_cosh, NULL, x);
}
