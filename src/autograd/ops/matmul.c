/* Matmul: y = a b for stacks of matrices, by NumPy's rules: a vector a is a row, a vector b a column, and the axes
 * before broadcast. ga = g b', gb = a' g, summed over the matrices that were repeated. */
#include "autograd/matrix.h"

static aj_status infer(aji_call *c) {
    return aji_infer_product(c, "aj_matmul");
}

static aj_status forward(aji_call *c) {
    return aji_forward_product(c, "aj_matmul", aji_do_matmul);
}

/* One b for a whole stack of a: see the stack as one tall matrix, so that gb is one product and not a sum of many. */
static void fold(aji_stacks *s) {
    if (s->b.ndim > 2)
        return;
    int64_t rows = 1;
    for (int i = 0; i < s->a.ndim - 1; i++)
        rows *= s->a.shape[i];
    s->a = (aji_meta){.dtype = s->a.dtype, .ndim = 2, .shape = {rows, s->a.shape[s->a.ndim - 1]}};
    s->y = (aji_meta){.dtype = s->y.dtype, .ndim = 2, .shape = {rows, s->y.shape[s->y.ndim - 1]}};
}

static aj_status vjp(aji_call *c) {
    aji_stacks s;
    aj_status status = aji_stacks_of(c, "aj_matmul", &s);
    if (status != AJ_OK)
        return status;
    fold(&s);
    aj_tensor *g = aji_seen_as(c->g_out[0], &s.y);
    if (c->want[0]) {
        aj_tensor *ga = aj_matmul(g, aji_transposed(aji_seen_as(c->in[1], &s.b)));
        c->g_in[0] = aji_seen_as(aji_sum_to(ga, &s.a), &c->in_meta[0]);
    }
    if (c->want[1]) {
        aj_tensor *gb = aj_matmul(aji_transposed(aji_seen_as(c->in[0], &s.a)), g);
        c->g_in[1] = aji_seen_as(aji_sum_to(gb, &s.b), &c->in_meta[1]);
    }
    return AJ_OK;
}

static aj_tensor *product(aj_tensor *const *x) {
    return aj_matmul(x[0], x[1]);
}

static aj_tensor *of_transposed(aj_tensor *const *x) {
    return aj_matmul(aj_transpose(x[0], -2, -1), aj_flip(x[1], -1));
}

static const aji_sample samples[] = {
    {.n_in = 2, .in = {{2, {2, 3}, -1, 1}, {2, {3, 4}, -1, 1}}, .call = product},
    {.n_in = 2, .in = {{1, {3}, -1, 1}, {1, {3}, -1, 1}}, .call = product},
    {.n_in = 2, .in = {{1, {3}, -1, 1}, {2, {3, 2}, -1, 1}}, .call = product},
    {.n_in = 2, .in = {{2, {2, 3}, -1, 1}, {1, {3}, -1, 1}}, .call = product},
    {.n_in = 2, .in = {{3, {2, 3, 2}, -1, 1}, {1, {2}, -1, 1}}, .call = product},
    {.n_in = 2, .in = {{1, {2}, -1, 1}, {3, {3, 2, 2}, -1, 1}}, .call = product},
    {.n_in = 2, .in = {{3, {2, 2, 3}, -1, 1}, {2, {3, 2}, -1, 1}}, .call = product},
    {.n_in = 2, .in = {{2, {2, 3}, -1, 1}, {3, {2, 3, 2}, -1, 1}}, .call = product},
    {.n_in = 2, .in = {{4, {2, 1, 1, 3}, -1, 1}, {3, {2, 3, 2}, -1, 1}}, .call = product},
    {.n_in = 2, .in = {{3, {2, 3, 2}, -1, 1}, {3, {1, 3, 2}, -1, 1}}, .call = of_transposed},
    {.n_in = 2, .in = {{2, {2, 0}, -1, 1}, {2, {0, 2}, -1, 1}}, .call = product},
    {.n_in = 2, .in = {{3, {0, 2, 3}, -1, 1}, {2, {3, 1}, -1, 1}}, .call = product},
    {0},
};

const aji_op aji_op_matmul = {
    .name = "aj_matmul",
    .maths = "y = a b; ga = g b'; gb = a' g",
    .need = AJI_NEED_IN(0) | AJI_NEED_IN(1),
    .infer = infer,
    .forward = forward,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_matmul(aj_tensor *a, aj_tensor *b) {
    return aji_apply2(&aji_op_matmul, NULL, a, b);
}
