/* Limits. */
#include <math.h>

#include "autograd/autograd_internal.h"

static aj_status infer(aji_call *c) {
    const aji_scalars *scalars = c->attr;
    if (!(scalars->imm[0] <= scalars->imm[1]))
        return aj_raise(c->ctx, AJ_ERR_ARG, "aj_clamp: the limits are %g and %g; expected lo <= hi", scalars->imm[0],
                        scalars->imm[1]);
    return aji_infer_scalars(c);
}

static aj_status vjp(aji_call *c) {
    aj_tensor *g = c->g_out[0], *inside = aj_eq(c->in[0], c->out[0]); /* where nothing was cut off */
    c->g_in[0] = aj_where(inside, g, aji_zeros_like(g));
    return AJ_OK;
}

static aj_tensor *sample_0(aj_tensor *const *x) {
    return aj_clamp(x[0], -0.7, 0.9);
}

static aj_tensor *sample_1(aj_tensor *const *x) {
    return aj_clamp(x[0], -INFINITY, 0.5);
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{.lo = -2, .hi = 2}}, .call = sample_0, .elementwise = true},
    {.n_in = 1, .in = {{.lo = -2, .hi = 2}}, .call = sample_1, .elementwise = true},
    {0},
};

const aji_op aji_op_clamp = {
    .name = "aj_clamp",
    .maths = "y = min(max(x, lo), hi); gx = g where lo <= x <= hi, else 0",
    .flags = AJI_OP_ELEMENTWISE,
    .need = AJI_NEED_IN(0) | AJI_NEED_OUT,
    .step = AJI_STEP_CLAMP,
    .attr_size = sizeof(aji_scalars),
    .infer = infer,
    .forward = aji_forward_elementwise,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_clamp(aj_tensor *x, double lo, double hi) {
    aji_scalars scalars = {.imm = {lo, hi}};
    return aji_apply1(&aji_op_clamp, &scalars, x);
}
