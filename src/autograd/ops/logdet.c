/* Logdet: y = log |det a| for stacks of matrices. From dy = trace(a^-1 da): ga = g a'^-1. */
#include "autograd/matrix.h"
#include "autograd/region.h"

static aj_status infer(aji_call *c) {
    *c->out_meta = c->in_meta[0];
    c->out_meta->ndim -= 2;
    return aji_check_square(c->ctx, "aj_logdet", &c->in_meta[0]);
}

static aj_status forward(aji_call *c) {
    aji_value *y = aji_value_new(c->ctx, c->device, c->out_meta);
    return aji_finish(c, y, y ? aji_do_logdet("aj_logdet", c->x[0], y) : AJ_OK);
}

static aj_status vjp(aji_call *c) {
    aj_tensor *a = c->in[0];
    aj_tensor *inverse = aj_solve(aji_transposed(a), aji_diagonal_like(a, 1));
    c->g_in[0] = aj_mul(aj_unsqueeze(aj_unsqueeze(c->g_out[0], -1), -1), inverse);
    return AJ_OK;
}

static aj_tensor *logdet(aj_tensor *const *x) { /* 4 I dominates up to three rows of -1 ... 1 */
    return aj_logdet(aj_add(x[0], aji_diagonal_like(x[0], 4)));
}

static aj_tensor *of_negative(aj_tensor *const *x) { /* det < 0 for an odd number of rows */
    return aj_logdet(aj_add(x[0], aji_diagonal_like(x[0], -4)));
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{2, {3, 3}, -1, 1}}, .call = logdet},
    {.n_in = 1, .in = {{2, {3, 3}, -1, 1}}, .call = of_negative},
    {.n_in = 1, .in = {{3, {2, 2, 2}, -1, 1}}, .call = logdet},
    {.n_in = 1, .in = {{2, {1, 1}, -1, 1}}, .call = logdet},
    {.n_in = 1, .in = {{2, {0, 0}, -1, 1}}, .call = logdet},
    {.n_in = 1, .in = {{3, {0, 2, 2}, -1, 1}}, .call = logdet},
    {0},
};

const aji_op aji_op_logdet = {
    .name = "aj_logdet",
    .maths = "y = log |det a|; ga = g a'^-1",
    .need = AJI_NEED_IN(0),
    .infer = infer,
    .forward = forward,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_logdet(aj_tensor *a) {
    return aji_apply1(&aji_op_logdet, NULL, a);
}
