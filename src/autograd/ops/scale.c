/* Product with a number. */
#include "autograd/autograd_internal.h"

static aj_status vjp(aji_call *c) {
    const aji_scalars *scalars = c->attr;
    c->g_in[0] = aj_scale(c->g_out[0], scalars->imm[0]);
    return AJ_OK;
}

static aj_tensor *sample_0(aj_tensor *const *x) {
    return aj_scale(x[0], -1.7);
}

static aj_tensor *sample_1(aj_tensor *const *x) {
    return aj_scale(x[0], 0);
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{.lo = -2, .hi = 2}}, .call = sample_0, .elementwise = true},
    {.n_in = 1, .in = {{.lo = -2, .hi = 2}}, .call = sample_1, .elementwise = true},
    {0},
};

const aji_op aji_op_scale = {
    .name = "aj_scale",
    .maths = "y = factor x; gx = factor g",
    .flags = AJI_OP_ELEMENTWISE,

    .step = AJI_STEP_SCALE,
    .attr_size = sizeof(aji_scalars),
    .infer = aji_infer_scalars,
    .forward = aji_forward_elementwise,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_scale(aj_tensor *x, double factor) {
    aji_scalars scalars = {.imm = {factor}};
    return aji_apply1(&aji_op_scale, &scalars, x);
}
