/* Inverse cosine. */
#include "autograd/autograd_internal.h"

static aj_status vjp(aji_call *c) {
    aj_tensor *x = c->in[0]; /* 1 - x^2 as (1 - x) (1 + x), exact near 1 */
    c->g_in[0] = aj_neg(aj_div(c->g_out[0], aj_sqrt(aj_mul(aj_add_scalar(aj_neg(x), 1), aj_add_scalar(x, 1)))));
    return AJ_OK;
}

static aj_tensor *sample(aj_tensor *const *x) {
    return aj_acos(x[0]);
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{.lo = -0.8, .hi = 0.8}}, .call = sample, .elementwise = true},
    {0},
};

const aji_op aji_op_acos = {
    .name = "aj_acos",
    .maths = "y = acos(x); gx = -g / sqrt(1 - x^2)",
    AJI_ELEMENTWISE(ACOS),
    .need = AJI_NEED_IN(0),
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_acos(aj_tensor *x) {
    return aji_apply1(&aji_op_acos, NULL, x);
}
