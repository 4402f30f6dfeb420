/* exp(x) - 1, exact near 0. */
#include "autograd/autograd_internal.h"

static aj_status vjp(aji_call *c) {
    /* not y + 1: for very negative x nothing is left of it */
    c->g_in[0] = aj_mul(c->g_out[0], aj_exp(c->in[0]));
    return AJ_OK;
}

static aj_tensor *sample(aj_tensor *const *x) {
    return aj_expm1(x[0]);
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{.lo = -2, .hi = 2}}, .call = sample, .elementwise = true},
    {0},
};

const aji_op aji_op_expm1 = {
    .name = "aj_expm1",
    .maths = "y = exp(x) - 1; gx = g exp(x)",
    AJI_ELEMENTWISE(EXPM1),
    .need = AJI_NEED_IN(0),
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_expm1(aj_tensor *x) {
    return aji_apply1(&aji_op_expm1, NULL, x);
}
