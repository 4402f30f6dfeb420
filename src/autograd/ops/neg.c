/* Negation. */
#include "autograd/autograd_internal.h"

static aj_status vjp(aji_call *c) {
    c->g_in[0] = aj_neg(c->g_out[0]);
    return AJ_OK;
}

static aj_tensor *sample(aj_tensor *const *x) {
    return aj_neg(x[0]);
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{.lo = -2, .hi = 2}}, .call = sample, .elementwise = true},
    {0},
};

const aji_op aji_op_neg = {
    .name = "aj_neg",
    .maths = "y = -x; gx = -g",
    AJI_ELEMENTWISE(NEG),

    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_neg(aj_tensor *x) {
    return aji_apply1(&aji_op_neg, NULL, x);
}
