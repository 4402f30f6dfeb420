/* Solve: y = a^-1 b for stacks of matrices; a vector b is a column. From a dy = db - da y: gb = a'^-1 g, ga = -gb y',
 * each summed over the matrices that were repeated. */
#include "autograd/matrix.h"

static aj_status infer(aji_call *c) {
    aj_status status = aji_check_square(c->ctx, "aj_solve", &c->in_meta[0]);
    return status == AJ_OK ? aji_infer_product(c, "aj_solve") : status;
}

static aj_status forward(aji_call *c) {
    return aji_forward_product(c, "aj_solve", aji_do_solve);
}

static aj_status vjp(aji_call *c) {
    aji_stacks s;
    aj_status status = aji_stacks_of(c, "aj_solve", &s);
    if (status != AJ_OK)
        return status;
    aj_tensor *gb = aj_solve(aji_transposed(c->in[0]), aji_seen_as(c->g_out[0], &s.y));
    if (c->want[0]) {
        aj_tensor *minus_ga = aj_matmul(gb, aji_transposed(aji_seen_as(c->out[0], &s.y)));
        c->g_in[0] = aji_sum_to(aj_neg(minus_ga), &c->in_meta[0]);
    }
    if (c->want[1])
        c->g_in[1] = aji_seen_as(aji_sum_to(gb, &s.b), &c->in_meta[1]);
    return AJ_OK;
}

static aj_tensor *solve(aj_tensor *const *x) { /* 4 I dominates up to three rows of -1 ... 1 */
    return aj_solve(aj_add(x[0], aji_diagonal_like(x[0], 4)), x[1]);
}

static const aji_sample samples[] = {
    {.n_in = 2, .in = {{2, {3, 3}, -1, 1}, {1, {3}, -1, 1}}, .call = solve},
    {.n_in = 2, .in = {{2, {3, 3}, -1, 1}, {2, {3, 2}, -1, 1}}, .call = solve},
    {.n_in = 2, .in = {{2, {1, 1}, -1, 1}, {2, {1, 1}, -1, 1}}, .call = solve},
    {.n_in = 2, .in = {{3, {2, 3, 3}, -1, 1}, {3, {2, 3, 2}, -1, 1}}, .call = solve},
    {.n_in = 2, .in = {{3, {2, 2, 2}, -1, 1}, {1, {2}, -1, 1}}, .call = solve},
    {.n_in = 2, .in = {{2, {2, 2}, -1, 1}, {3, {2, 2, 1}, -1, 1}}, .call = solve},
    {.n_in = 2, .in = {{4, {2, 1, 2, 2}, -1, 1}, {3, {3, 2, 1}, -1, 1}}, .call = solve},
    {.n_in = 2, .in = {{2, {0, 0}, -1, 1}, {2, {0, 2}, -1, 1}}, .call = solve},
    {.n_in = 2, .in = {{2, {2, 2}, -1, 1}, {2, {2, 0}, -1, 1}}, .call = solve},
    {0},
};

const aji_op aji_op_solve = {
    .name = "aj_solve",
    .maths = "y = a^-1 b; gb = a'^-1 g; ga = -gb y'",
    .need = AJI_NEED_IN(0) | AJI_NEED_OUT,
    .infer = infer,
    .forward = forward,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_solve(aj_tensor *a, aj_tensor *b) {
    return aji_apply2(&aji_op_solve, NULL, a, b);
}
