/* Quotient. */
#include "autograd/autograd_internal.h"

static aj_status vjp(aji_call *c) {
    aj_tensor *g_over_b = aj_div(c->g_out[0], c->in[1]);
    c->g_in[0] = g_over_b;
    if (c->want[1])
        c->g_in[1] = aj_neg(aj_mul(g_over_b, c->out[0]));
    return AJ_OK;
}

static aj_tensor *sample(aj_tensor *const *x) {
    return aj_div(x[0], x[1]);
}

static const aji_sample samples[] = {
    {.n_in = 2, .in = {{.lo = -2, .hi = 2}, {.lo = 0.6, .hi = 2}}, .call = sample, .elementwise = true},
    {.n_in = 2, .in = {{.lo = -2, .hi = 2}, {.lo = -2, .hi = -0.6}}, .call = sample, .elementwise = true},
    {0},
};

const aji_op aji_op_div = {
    .name = "aj_div",
    .maths = "y = a / b; ga = g / b, gb = -g y / b",
    AJI_ELEMENTWISE(DIV),
    .need = AJI_NEED_IN(1) | AJI_NEED_OUT,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_div(aj_tensor *a, aj_tensor *b) {
    return aji_apply2(&aji_op_div, NULL, a, b);
}
