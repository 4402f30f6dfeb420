/* Power. */
#include "autograd/autograd_internal.h"

static aj_status vjp(aji_call *c) {
    /* a stands in for itself where the formulas meet 0 * inf although a limit exists. What is put there has the right derivatives too. */
    aj_tensor *g = c->g_out[0], *a = c->in[0], *b = c->in[1], *one = aji_full_like(a, 1);
    aj_tensor *a_is_0 = aj_eq(a, aji_zeros_like(a));
    if (c->want[0]) { /* a^0 is 1, also at 0: no derivative */
        aj_tensor *base = aj_where(aj_mul(a_is_0, aj_eq(b, aji_zeros_like(b))), one, a);
        c->g_in[0] = aj_mul(g, aj_mul(b, aj_pow(base, aj_add_scalar(b, -1))));
    }
    if (c->want[1]) { /* 0^b is 0 for all b > 0 */
        aj_tensor *base = aj_where(aj_mul(a_is_0, aj_ge(b, aji_zeros_like(b))), one, a);
        c->g_in[1] = aj_mul(g, aj_mul(c->out[0], aj_log(base)));
    }
    return AJ_OK;
}

static aj_tensor *sample(aj_tensor *const *x) {
    return aj_pow(x[0], x[1]);
}

static const aji_sample samples[] = {
    {.n_in = 2, .in = {{.lo = 0.5, .hi = 2}, {.lo = -1.5, .hi = 2.5}}, .call = sample, .elementwise = true},
    {0},
};

const aji_op aji_op_pow = {
    .name = "aj_pow",
    .maths = "y = a^b; ga = g b a^(b-1), gb = g y log(a)",
    AJI_ELEMENTWISE(POW),
    .need = AJI_NEED_ALL_IN | AJI_NEED_OUT,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_pow(aj_tensor *a, aj_tensor *b) {
    return aji_apply2(&aji_op_pow, NULL, a, b);
}
