/* Angle of the point (b, a). */
#include "autograd/autograd_internal.h"

static aj_status vjp(aji_call *c) {
    /* Both formulas with a and b divided by the larger one, so that the squares neither over- nor underflow. The divisor cancels, so it may be
     * taken as a constant. */
    aj_tensor *g = c->g_out[0], *size = aj_detach(aj_maximum(aj_abs(c->in[0]), aj_abs(c->in[1])));
    aj_tensor *a = aj_div(c->in[0], size), *b = aj_div(c->in[1], size);
    aj_tensor *g_over_r = aj_div(g, aj_mul(size, aj_add(aj_square(a), aj_square(b))));
    if (c->want[0])
        c->g_in[0] = aj_mul(g_over_r, b);
    if (c->want[1])
        c->g_in[1] = aj_neg(aj_mul(g_over_r, a));
    return AJ_OK;
}

static aj_tensor *sample(aj_tensor *const *x) {
    return aj_atan2(x[0], x[1]);
}

static const aji_sample samples[] = {
    {.n_in = 2, .in = {{.lo = 0.5, .hi = 2}, {.lo = -2, .hi = 2}}, .call = sample, .elementwise = true},
    {.n_in = 2, .in = {{.lo = -2, .hi = 2}, {.lo = 0.5, .hi = 2}}, .call = sample, .elementwise = true},
    {.n_in = 2, .in = {{.lo = -2, .hi = -0.5}, {.lo = -2, .hi = -0.5}}, .call = sample, .elementwise = true},
    {0},
};

const aji_op aji_op_atan2 = {
    .name = "aj_atan2",
    .maths = "y = atan2(a, b); ga = g b / (a^2 + b^2), gb = -g a / (a^2 + b^2)",
    AJI_ELEMENTWISE(ATAN2),
    .need = AJI_NEED_ALL_IN,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_atan2(aj_tensor *a, aj_tensor *b) {
    return aji_apply2(&aji_op_atan2, NULL, a, b);
}
