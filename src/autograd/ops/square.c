/* Square. */
#include "autograd/autograd_internal.h"

static aj_status vjp(aji_call *c) {
    c->g_in[0] = aj_scale(aj_mul(c->g_out[0], c->in[0]), 2);
    return AJ_OK;
}

static aj_tensor *sample(aj_tensor *const *x) {
    return aj_square(x[0]);
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{.lo = -2, .hi = 2}}, .call = sample, .elementwise = true},
    {0},
};

const aji_op aji_op_square = {
    .name = "aj_square",
    .maths = "y = x^2; gx = 2 g x",
    AJI_ELEMENTWISE(SQUARE),
    .need = AJI_NEED_IN(0),
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_square(aj_tensor *x) {
    return aji_apply1(&aji_op_square, NULL, x);
}
