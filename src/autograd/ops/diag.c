/* Diag: of a vector, the matrix with it on the diagonal; of a matrix, its diagonal, a view. The gradient takes the way
 * back, into a matrix of a's shape. */
#include "autograd/region.h"

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static aj_status infer(aji_call *c) {
    const aji_meta *a = &c->in_meta[0];
    if (a->ndim == 1)
        return aji_meta_set(c->ctx, "aj_diag", c->out_meta, a->dtype, 2, (const int64_t[]){a->shape[0], a->shape[0]});
    if (a->ndim == 2)
        return aji_meta_set(c->ctx, "aj_diag", c->out_meta, a->dtype, 1, (const int64_t[]){smaller(a->shape[0], a->shape[1])});
    return aj_raise(c->ctx, AJ_ERR_SHAPE, "aj_diag: a has %d axes; expected one, a vector, or two, a matrix", a->ndim);
}

/* The diagonal of a matrix; NULL in gives NULL out. */
static aji_value *diagonal(aji_value *matrix) {
    if (!matrix)
        return NULL;
    aji_meta meta = {.dtype = matrix->meta.dtype, .ndim = 1, .shape = {smaller(matrix->meta.shape[0], matrix->meta.shape[1])}};
    return aji_value_view(matrix, &meta, (const int64_t[]){matrix->strides[0] + matrix->strides[1]}, matrix->offset);
}

static aj_status forward(aji_call *c) {
    if (c->in_meta[0].ndim == 2)
        return aji_finish(c, diagonal(c->x[0]), AJ_OK);
    aji_value *zeros = aji_value_full(c->ctx, c->device, c->out_meta, 0);
    aji_value *y = zeros ? aji_value_copy(zeros) : NULL;
    aji_value_release(zeros);
    return aji_finish(c, y, aji_fill("aj_diag", diagonal(y), c->x[0]));
}

static aj_status vjp(aji_call *c) {
    const aji_meta *a = &c->in_meta[0];
    c->g_in[0] = aj_diag(c->g_out[0]);
    if (a->ndim == 2 && a->shape[0] != a->shape[1])
        c->g_in[0] = aj_set_window(aji_zeros_meta(c->ctx, c->device, a), (const int64_t[]){0, 0}, c->g_in[0]);
    return AJ_OK;
}

static aj_tensor *diag(aj_tensor *const *x) {
    return aj_diag(x[0]);
}

static aj_tensor *of_transposed(aj_tensor *const *x) {
    return aj_diag(aj_transpose(aj_flip(x[0], 0), 0, 1));
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{1, {3}, -1, 1}}, .call = diag},
    {.n_in = 1, .in = {{1, {0}, -1, 1}}, .call = diag},
    {.n_in = 1, .in = {{2, {3, 3}, -1, 1}}, .call = of_transposed},
    {.n_in = 1, .in = {{2, {2, 4}, -1, 1}}, .call = diag},
    {.n_in = 1, .in = {{2, {3, 1}, -1, 1}}, .call = diag},
    {.n_in = 1, .in = {{2, {0, 2}, -1, 1}}, .call = diag},
    {0},
};

const aji_op aji_op_diag = {
    .name = "aj_diag",
    .maths = "y = the diagonal of a, or the matrix with it; ga = diag(g)",
    .infer = infer,
    .forward = forward,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_diag(aj_tensor *a) {
    return aji_apply1(&aji_op_diag, NULL, a);
}
