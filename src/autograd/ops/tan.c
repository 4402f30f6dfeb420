/* Tangent. */
#include "autograd/autograd_internal.h"

static aj_status vjp(aji_call *c) {
    c->g_in[0] = aj_mul(c->g_out[0], aj_add_scalar(aj_square(c->out[0]), 1));
    return AJ_OK;
}

static aj_tensor *sample(aj_tensor *const *x) {
    return aj_tan(x[0]);
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{.lo = -1.1, .hi = 1.1}}, .call = sample, .elementwise = true},
    {0},
};

const aji_op aji_op_tan = {
    .name = "aj_tan",
    .maths = "y = tan(x); gx = g (1 + y^2)",
    AJI_ELEMENTWISE(TAN),
    .need = AJI_NEED_OUT,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_tan(aj_tensor *x) {
    return aji_apply1(&aji_op_tan, NULL, x);
}
