/* log(1 + x), exact near 0. */
#include "autograd/autograd_internal.h"

static aj_status vjp(aji_call *c) {
    c->g_in[0] = aj_div(c->g_out[0], aj_add_scalar(c->in[0], 1));
    return AJ_OK;
}

static aj_tensor *sample(aj_tensor *const *x) {
    return aj_log1p(x[0]);
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{.lo = -0.6, .hi = 2}}, .call = sample, .elementwise = true},
    {0},
};

const aji_op aji_op_log1p = {
    .name = "aj_log1p",
    .maths = "y = log(1 + x); gx = g / (1 + x)",
    AJI_ELEMENTWISE(LOG1P),
    .need = AJI_NEED_IN(0),
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_log1p(aj_tensor *x) {
    return aji_apply1(&aji_op_log1p, NULL, x);
}
