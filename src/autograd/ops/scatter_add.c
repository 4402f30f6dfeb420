/* Scatter add: x with value_j added at index_j of an axis, in order of j. gx = g, gvalue_j = g_{index_j}. value has the
 * shape of aj_take's result. */
#include "autograd/region.h"

typedef struct attr {
    int axis;
} attr;

static aj_status infer(aji_call *c) {
    attr *a = c->attr;
    const aji_meta *x = &c->in_meta[0], *value = &c->in_meta[2];
    aji_meta taken;
    aj_status status = aji_infer_taken(c, "aj_scatter_add", &a->axis, &taken);
    if (status != AJ_OK)
        return status;
    if (value->dtype != x->dtype)
        return aj_raise(c->ctx, AJ_ERR_DTYPE, "aj_scatter_add: x is %s, value is %s; expected one dtype (see aj_cast)",
                        aj_dtype_name(x->dtype), aj_dtype_name(value->dtype));
    char a_text[160], b_text[160];
    if (!aji_same_shape(value, &taken))
        return aj_raise(c->ctx, AJ_ERR_SHAPE,
                        "aj_scatter_add: value has shape %s; expected %s: x's, with the index' shape in place of axis %d",
                        aji_shape_text(value->ndim, value->shape, a_text), aji_shape_text(taken.ndim, taken.shape, b_text),
                        a->axis);
    *c->out_meta = *x;
    return AJ_OK;
}

static aj_status forward(aji_call *c) {
    const attr *a = c->attr;
    aji_value *y = aji_value_copy(c->x[0]);
    aji_value *rows = aji_flat_rows(c, a->axis, c->x[2]), *index = aji_flat_index(c);
    aj_status status = y && rows && index ? aji_do_scatter_add("aj_scatter_add", rows, a->axis, index, y) : aj_ctx_status(c->ctx);
    aji_value_release(rows);
    aji_value_release(index);
    return aji_finish(c, y, status);
}

static aj_status vjp(aji_call *c) {
    const attr *a = c->attr;
    if (c->want[0])
        c->g_in[0] = c->g_out[0];
    if (c->want[2])
        c->g_in[2] = aj_take(c->g_out[0], a->axis, c->in[1]);
    return AJ_OK;
}

static aj_tensor *repeated(aj_tensor *const *x) {
    return aj_scatter_add(x[0], 0, aji_sample_index(x[0], AJ_SHAPE(2, 2), (const int64_t[]){2, -1, 0, -3}), x[1]);
}

static aj_tensor *columns_i32(aj_tensor *const *x) {
    return aj_scatter_add(x[0], -1, aj_cast(aji_sample_index(x[0], AJ_SHAPE(3), (const int64_t[]){1, 1, -2}), AJ_I32), x[1]);
}

static aj_tensor *nothing(aj_tensor *const *x) {
    return aj_scatter_add(x[0], 0, aji_sample_index(x[0], AJ_SHAPE(0), (const int64_t[]){0}), x[1]);
}

static const aji_sample samples[] = {
    {.n_in = 2, .in = {{2, {3, 2}, -1, 1}, {3, {2, 2, 2}, -1, 1}}, .call = repeated},
    {.n_in = 2, .in = {{3, {2, 1, 3}, -1, 1}, {3, {2, 1, 3}, -1, 1}}, .call = columns_i32},
    {.n_in = 2, .in = {{2, {0, 2}, -1, 1}, {2, {0, 2}, -1, 1}}, .call = nothing},
    {0},
};

const aji_op aji_op_scatter_add = {
    .name = "aj_scatter_add",
    .maths = "y = x with value_j added at index_j; gx = g; gvalue_j = g_{index_j}",
    .flags = AJI_OP_MIXED_DTYPES,
    .need = AJI_NEED_IN(1),
    .attr_size = sizeof(attr),
    .infer = infer,
    .forward = forward,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_scatter_add(aj_tensor *x, int axis, aj_tensor *index, aj_tensor *value) {
    attr a = {axis};
    return aji_apply3(&aji_op_scatter_add, &a, x, index, value);
}
