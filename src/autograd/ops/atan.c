/* Inverse tangent. */
#include "autograd/autograd_internal.h"

static aj_status vjp(aji_call *c) {
    c->g_in[0] = aj_div(c->g_out[0], aj_add_scalar(aj_square(c->in[0]), 1));
    return AJ_OK;
}

static aj_tensor *sample(aj_tensor *const *x) {
    return aj_atan(x[0]);
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{.lo = -2, .hi = 2}}, .call = sample, .elementwise = true},
    {0},
};

const aji_op aji_op_atan = {
    .name = "aj_atan",
    .maths = "y = atan(x); gx = g / (1 + x^2)",
    AJI_ELEMENTWISE(ATAN),
    .need = AJI_NEED_IN(0),
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_atan(aj_tensor *x) {
    return aji_apply1(&aji_op_atan, NULL, x);
}
