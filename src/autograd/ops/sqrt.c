/* Square root. */
#include "autograd/autograd_internal.h"

static aj_status vjp(aji_call *c) {
    c->g_in[0] = aj_div(c->g_out[0], aj_scale(c->out[0], 2));
    return AJ_OK;
}

static aj_tensor *sample(aj_tensor *const *x) {
    return aj_sqrt(x[0]);
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{.lo = 0.3, .hi = 3}}, .call = sample, .elementwise = true},
    {0},
};

const aji_op aji_op_sqrt = {
    .name = "aj_sqrt",
    .maths = "y = sqrt(x); gx = g / (2 y)",
    AJI_ELEMENTWISE(SQRT),
    .need = AJI_NEED_OUT,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_sqrt(aj_tensor *x) {
    return aji_apply1(&aji_op_sqrt, NULL, x);
}
