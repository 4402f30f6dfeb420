/* The smaller one of two. */
#include "autograd/autograd_internal.h"

static aj_status vjp(aji_call *c) {
    aj_tensor *g = c->g_out[0], *a = c->in[0], *b = c->in[1], *zero = aji_zeros_like(g);
    aj_tensor *a_wins = aj_maximum(aj_le(a, b), aj_ne(a, a)); /* ties, and a NaN of its own */
    if (c->want[0])
        c->g_in[0] = aj_where(a_wins, g, zero);
    if (c->want[1])
        c->g_in[1] = aj_where(a_wins, zero, g);
    return AJ_OK;
}

static aj_tensor *sample(aj_tensor *const *x) {
    return aj_minimum(x[0], x[1]);
}

static const aji_sample samples[] = {
    {.n_in = 2, .in = {{.lo = -2, .hi = 2}, {.lo = -2, .hi = 2}}, .call = sample, .elementwise = true},
    {0},
};

const aji_op aji_op_minimum = {
    .name = "aj_minimum",
    .maths = "y = min(a, b); ga = g where a <= b, else 0, gb = g - ga",
    AJI_ELEMENTWISE(MINIMUM),
    .need = AJI_NEED_ALL_IN,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_minimum(aj_tensor *a, aj_tensor *b) {
    return aji_apply2(&aji_op_minimum, NULL, a, b);
}
