/* Take: y_j = x_{index_j} along an axis, whose place the axes of the index take. gx = 0 with g_j added at index_j. */
#include "autograd/region.h"

typedef struct attr {
    int axis;
} attr;

static aj_status infer(aji_call *c) {
    attr *a = c->attr;
    return aji_infer_taken(c, "aj_take", &a->axis, c->out_meta);
}

static aj_status forward(aji_call *c) {
    const attr *a = c->attr;
    aji_value *y = aji_value_new(c->ctx, c->device, c->out_meta);
    aji_value *rows = aji_flat_rows(c, a->axis, y), *index = aji_flat_index(c);
    aj_status status = rows && index ? aji_do_take("aj_take", c->x[0], a->axis, index, rows) : aj_ctx_status(c->ctx);
    aji_value_release(rows);
    aji_value_release(index);
    return aji_finish(c, y, status);
}

static aj_status vjp(aji_call *c) {
    const attr *a = c->attr;
    if (c->want[0])
        c->g_in[0] = aj_scatter_add(aji_zeros_meta(c->ctx, c->device, &c->in_meta[0]), a->axis, c->in[1], c->g_out[0]);
    return AJ_OK;
}

static aj_tensor *repeated(aj_tensor *const *x) {
    return aj_take(x[0], 0, aji_sample_index(x[0], AJ_SHAPE(2, 2), (const int64_t[]){2, -1, 0, -3}));
}

static aj_tensor *columns_i32(aj_tensor *const *x) {
    return aj_take(x[0], -1, aj_cast(aji_sample_index(x[0], AJ_SHAPE(3), (const int64_t[]){1, 1, -2}), AJ_I32));
}

static aj_tensor *scalar(aj_tensor *const *x) {
    return aj_take(x[0], 1, aji_sample_index(x[0], AJ_SHAPE0, (const int64_t[]){-1}));
}

static aj_tensor *nothing(aj_tensor *const *x) {
    return aj_take(x[0], 0, aji_sample_index(x[0], AJ_SHAPE(0), (const int64_t[]){0}));
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{2, {3, 2}, -1, 1}}, .call = repeated},
    {.n_in = 1, .in = {{3, {3, 0, 2}, -1, 1}}, .call = repeated},
    {.n_in = 1, .in = {{3, {2, 1, 3}, -1, 1}}, .call = columns_i32},
    {.n_in = 1, .in = {{3, {2, 4, 3}, -1, 1}}, .call = scalar},
    {.n_in = 1, .in = {{2, {3, 2}, -1, 1}}, .call = nothing},
    {.n_in = 1, .in = {{2, {0, 2}, -1, 1}}, .call = nothing},
    {0},
};

const aji_op aji_op_take = {
    .name = "aj_take",
    .maths = "y_j = x_{index_j}; gx = 0 with g_j added at index_j",
    .flags = AJI_OP_MIXED_DTYPES,
    .need = AJI_NEED_IN(1),
    .attr_size = sizeof(attr),
    .infer = infer,
    .forward = forward,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_take(aj_tensor *x, int axis, aj_tensor *index) {
    attr a = {axis};
    return aji_apply2(&aji_op_take, &a, x, index);
}
