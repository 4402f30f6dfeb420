/* Absolute value. */
#include "autograd/autograd_internal.h"

static aj_status vjp(aji_call *c) {
    c->g_in[0] = aj_mul(c->g_out[0], aj_sign(c->in[0]));
    return AJ_OK;
}

static aj_tensor *sample(aj_tensor *const *x) {
    return aj_abs(x[0]);
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{.lo = -2, .hi = -0.1}}, .call = sample, .elementwise = true},
    {.n_in = 1, .in = {{.lo = 0.1, .hi = 2}}, .call = sample, .elementwise = true},
    {0},
};

const aji_op aji_op_abs = {
    .name = "aj_abs",
    .maths = "y = |x|; gx = g sign(x), 0 at 0",
    AJI_ELEMENTWISE(ABS),
    .need = AJI_NEED_IN(0),
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_abs(aj_tensor *x) {
    return aji_apply1(&aji_op_abs, NULL, x);
}
