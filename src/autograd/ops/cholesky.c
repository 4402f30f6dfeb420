/*
 * Cholesky: y = L, lower triangular with a positive diagonal, L L' = (a + a') / 2 for stacks of matrices.
 *
 * a is symmetrised first, so that the derivative with respect to each entry of a exists, and the gradient is symmetric. From
 * dL = L phi(L^-1 da L'^-1), phi = the lower triangle with half the diagonal:
 *     ga = L'^-1 S L^-1,  S = (P + P') / 2,  P = phi(L' g).
 * Source: Murray, "Differentiation of the Cholesky decomposition", arXiv:1602.07527 (2016), section 3.
 */
#include "autograd/matrix.h"
#include "autograd/region.h"

static aj_status infer(aji_call *c) {
    *c->out_meta = c->in_meta[0];
    return aji_check_square(c->ctx, "aj_cholesky", &c->in_meta[0]);
}

/* to = (x + x') / 2 */
static aj_status symmetrise(aji_value *x, aji_value *to) {
    int ndim = x->meta.ndim;
    int64_t strides[AJ_MAX_NDIM];
    for (int i = 0; i < ndim; i++)
        strides[i] = x->strides[i == ndim - 1 ? ndim - 2 : i == ndim - 2 ? ndim - 1 : i];
    aji_value *transposed = aji_value_view(x, &x->meta, strides, x->offset);
    if (!transposed)
        return aj_ctx_status(x->ctx);
    aji_program mean = {.n_in = 2, .n_out = 1, .n_steps = 2, .out = {3}};
    mean.steps[0] = (aji_step){.opcode = AJI_STEP_ADD, .dtype = x->meta.dtype, .src = {0, 1}};
    mean.steps[1] = (aji_step){.opcode = AJI_STEP_SCALE, .dtype = x->meta.dtype, .src = {2}, .imm = {0.5}};
    aj_status status =
        aji_do_run("aj_cholesky", &mean, (const aji_value *const[]){x, transposed}, (const aji_value *const[]){to});
    aji_value_release(transposed);
    return status;
}

static aj_status forward(aji_call *c) {
    aji_value *symmetric = aji_value_new(c->ctx, c->device, c->out_meta);
    aji_value *y = aji_value_new(c->ctx, c->device, c->out_meta);
    aj_status status = symmetric && y ? symmetrise(c->x[0], symmetric) : aj_ctx_status(c->ctx);
    if (status == AJ_OK)
        status = aji_do_cholesky("aj_cholesky", symmetric, y);
    aji_value_release(symmetric);
    return aji_finish(c, y, status);
}

/* 1 below the diagonal, 1/2 on it, 0 above. */
static aj_tensor *phi_mask(aj_tensor *like) {
    aj_dtype dtype = aj_tensor_dtype(like);
    aj_tensor *i = aj_arange(aj_tensor_ctx(like), AJ_I64, 0, (double)aj_extent(like, -1), 1);
    i = aj_to_device(i, aj_tensor_device(like));
    aj_tensor *row = aj_unsqueeze(i, 1), *column = aj_unsqueeze(i, 0);
    return aj_scale(aj_add(aj_cast(aj_gt(row, column), dtype), aj_cast(aj_ge(row, column), dtype)), 0.5);
}

static aj_status vjp(aji_call *c) {
    aj_tensor *transposed = aji_transposed(c->out[0]);
    aj_tensor *p = aj_mul(phi_mask(c->out[0]), aj_matmul(transposed, c->g_out[0]));
    aj_tensor *s = aj_scale(aj_add(p, aji_transposed(p)), 0.5);
    c->g_in[0] = aj_solve(transposed, aji_transposed(aj_solve(transposed, s))); /* (L'^-1 S)' = S L^-1 */
    return AJ_OK;
}

static aj_tensor *of_symmetric(aj_tensor *const *x) {
    return aj_cholesky(aj_add(aj_matmul(x[0], aji_transposed(x[0])), aji_diagonal_like(x[0], 1)));
}

static aj_tensor *of_any(aj_tensor *const *x) { /* 4 I dominates up to three rows of -1 ... 1 */
    return aj_cholesky(aj_add(x[0], aji_diagonal_like(x[0], 4)));
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{2, {3, 3}, -1, 1}}, .call = of_symmetric}, {.n_in = 1, .in = {{2, {3, 3}, -1, 1}}, .call = of_any},
    {.n_in = 1, .in = {{3, {2, 2, 2}, -1, 1}}, .call = of_any},    {.n_in = 1, .in = {{2, {1, 1}, -1, 1}}, .call = of_any},
    {.n_in = 1, .in = {{2, {0, 0}, -1, 1}}, .call = of_any},       {0},
};

const aji_op aji_op_cholesky = {
    .name = "aj_cholesky",
    .maths = "y = L, L L' = (a + a') / 2; ga = L'^-1 sym(phi(L' g)) L^-1",
    .need = AJI_NEED_OUT,
    .infer = infer,
    .forward = forward,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_cholesky(aj_tensor *a) {
    return aji_apply1(&aji_op_cholesky, NULL, a);
}
