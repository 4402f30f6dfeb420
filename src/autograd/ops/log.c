/* Natural logarithm. */
#include "autograd/autograd_internal.h"

static aj_status vjp(aji_call *c) {
    c->g_in[0] = aj_div(c->g_out[0], c->in[0]);
    return AJ_OK;
}

static aj_tensor *sample(aj_tensor *const *x) {
    return aj_log(x[0]);
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{.lo = 0.4, .hi = 3}}, .call = sample, .elementwise = true},
    {0},
};

const aji_op aji_op_log = {
    .name = "aj_log",
    .maths = "y = log(x); gx = g / x",
    AJI_ELEMENTWISE(LOG),
    .need = AJI_NEED_IN(0),
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_log(aj_tensor *x) {
    return aji_apply1(&aji_op_log, NULL, x);
}
