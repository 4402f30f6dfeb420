/* Sum with a number. */
#include "autograd/autograd_internal.h"

static aj_status vjp(aji_call *c) {
    c->g_in[0] = c->g_out[0];
    return AJ_OK;
}

static aj_tensor *sample_0(aj_tensor *const *x) {
    return aj_add_scalar(x[0], 0.3);
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{.lo = -2, .hi = 2}}, .call = sample_0, .elementwise = true},
    {0},
};

const aji_op aji_op_add_scalar = {
    .name = "aj_add_scalar",
    .maths = "y = x + term; gx = g",
    .flags = AJI_OP_ELEMENTWISE,

    .step = AJI_STEP_ADD_SCALAR,
    .attr_size = sizeof(aji_scalars),
    .infer = aji_infer_scalars,
    .forward = aji_forward_elementwise,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_add_scalar(aj_tensor *x, double term) {
    aji_scalars scalars = {.imm = {term}};
    return aji_apply1(&aji_op_add_scalar, &scalars, x);
}
