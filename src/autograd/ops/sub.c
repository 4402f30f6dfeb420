/* Difference. */
#include "autograd/autograd_internal.h"

static aj_status vjp(aji_call *c) {
    c->g_in[0] = c->g_out[0];
    if (c->want[1])
        c->g_in[1] = aj_neg(c->g_out[0]);
    return AJ_OK;
}

static aj_tensor *sample(aj_tensor *const *x) {
    return aj_sub(x[0], x[1]);
}

static const aji_sample samples[] = {
    {.n_in = 2, .in = {{.lo = -2, .hi = 2}, {.lo = -2, .hi = 2}}, .call = sample, .elementwise = true},
    {0},
};

const aji_op aji_op_sub = {
    .name = "aj_sub",
    .maths = "y = a - b; ga = g, gb = -g",
    AJI_ELEMENTWISE(SUB),

    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_sub(aj_tensor *a, aj_tensor *b) {
    return aji_apply2(&aji_op_sub, NULL, a, b);
}
