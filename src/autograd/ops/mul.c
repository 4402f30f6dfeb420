/* Product, entry by entry. */
#include "autograd/autograd_internal.h"

static aj_status vjp(aji_call *c) {
    for (int i = 0; i < 2; i++)
        if (c->want[i])
            c->g_in[i] = aj_mul(c->g_out[0], c->in[1 - i]);
    return AJ_OK;
}

static aj_tensor *sample(aj_tensor *const *x) {
    return aj_mul(x[0], x[1]);
}

static const aji_sample samples[] = {
    {.n_in = 2, .in = {{.lo = -2, .hi = 2}, {.lo = -2, .hi = 2}}, .call = sample, .elementwise = true},
    {0},
};

const aji_op aji_op_mul = {
    .name = "aj_mul",
    .maths = "y = a b; ga = g b, gb = g a",
    AJI_ELEMENTWISE(MUL),
    .need = AJI_NEED_ALL_IN,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_mul(aj_tensor *a, aj_tensor *b) {
    return aji_apply2(&aji_op_mul, NULL, a, b);
}
