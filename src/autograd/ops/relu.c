/* Rectifier. */
#include "autograd/autograd_internal.h"

static aj_status vjp(aji_call *c) {
    aj_tensor *y = c->out[0], *zero = aji_zeros_like(y);
    c->g_in[0] = aj_where(aj_gt(y, zero), c->g_out[0], zero);
    return AJ_OK;
}

static aj_tensor *sample(aj_tensor *const *x) {
    return aj_relu(x[0]);
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{.lo = -2, .hi = -0.1}}, .call = sample, .elementwise = true},
    {.n_in = 1, .in = {{.lo = 0.1, .hi = 2}}, .call = sample, .elementwise = true},
    {0},
};

const aji_op aji_op_relu = {
    .name = "aj_relu",
    .maths = "y = max(x, 0); gx = g where x > 0, else 0",
    AJI_ELEMENTWISE(RELU),
    .need = AJI_NEED_OUT,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_relu(aj_tensor *x) {
    return aji_apply1(&aji_op_relu, NULL, x);
}
