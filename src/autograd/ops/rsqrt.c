/* Reciprocal of the square root. */
#include "autograd/autograd_internal.h"

static aj_status vjp(aji_call *c) {
    aj_tensor *y = c->out[0];
    c->g_in[0] = aj_scale(aj_mul(c->g_out[0], aj_mul(y, aj_square(y))), -0.5);
    return AJ_OK;
}

static aj_tensor *sample(aj_tensor *const *x) {
    return aj_rsqrt(x[0]);
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{.lo = 0.5, .hi = 3}}, .call = sample, .elementwise = true},
    {0},
};

const aji_op aji_op_rsqrt = {
    .name = "aj_rsqrt",
    .maths = "y = 1 / sqrt(x); gx = -g y^3 / 2",
    AJI_ELEMENTWISE(RSQRT),
    .need = AJI_NEED_OUT,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_rsqrt(aj_tensor *x) {
    return aji_apply1(&aji_op_rsqrt, NULL, x);
}
