/* Set slice: x, but value in start:stop:step of one axis. gx = g, but 0 there; gvalue = g there, summed over what was
 * repeated. */
#include "autograd/region.h"

static aj_status infer(aji_call *c) {
    aji_range *range = c->attr;
    aj_status status = aji_normalize_range(c->ctx, "aj_set_slice", &c->in_meta[0], range);
    if (status != AJ_OK)
        return status;
    *c->out_meta = c->in_meta[0];
    aji_meta part = c->in_meta[0];
    part.shape[range->axis] = range->count;
    return aji_check_broadcasts(c->ctx, "aj_set_slice", "value", &c->in_meta[1], &part);
}

/* Between zeros, without steps: pending still. Returns false if that is not so. */
static bool place(aji_call *c) {
    const aji_range *r = c->attr;
    aji_meta part = c->in_meta[0];
    part.shape[r->axis] = r->count;
    if (r->step != 1 || !aji_is_zero(c->x[0]) || !aji_same_shape(&part, &c->in_meta[1]))
        return false;
    int64_t lo[AJ_MAX_NDIM] = {0};
    lo[r->axis] = r->start;
    c->y[0] = aji_value_placed(c->x[1], c->out_meta, lo);
    return true;
}

static aj_status forward(aji_call *c) {
    if (place(c))
        return c->y[0] ? AJ_OK : aj_ctx_status(c->ctx);
    aji_value *y = aji_value_copy(c->x[0]);
    return aji_finish(c, y, aji_fill("aj_set_slice", aji_range_view(y, c->attr), c->x[1]));
}

static aj_status vjp(aji_call *c) {
    const aji_range *r = c->attr;
    aj_tensor *g = c->g_out[0];
    if (c->want[0]) {
        aj_tensor *zero = aji_zeros_meta(c->ctx, c->device, &(aji_meta){.dtype = c->in_meta[0].dtype});
        c->g_in[0] = aj_set_slice(g, r->axis, r->start, r->stop, r->step, zero);
    }
    if (c->want[1])
        c->g_in[1] = aji_sum_to(aj_slice(g, r->axis, r->start, r->stop, r->step), &c->in_meta[1]);
    return AJ_OK;
}

static aj_tensor *inner(aj_tensor *const *x) {
    return aj_set_slice(x[0], -1, 1, -1, 1, x[1]);
}

static aj_tensor *backwards(aj_tensor *const *x) {
    return aj_set_slice(x[0], 0, -1, INT64_MIN, -2, x[1]);
}

static const aji_sample samples[] = {
    {.n_in = 2, .in = {{2, {3, 5}, -1, 1}, {2, {3, 3}, -1, 1}}, .call = inner},
    {.n_in = 2, .in = {{2, {3, 5}, -1, 1}, {2, {3, 1}, -1, 1}}, .call = inner},
    {.n_in = 2, .in = {{2, {3, 5}, -1, 1}, {0, {0}, -1, 1}}, .call = inner},
    {.n_in = 2, .in = {{2, {3, 2}, -1, 1}, {2, {3, 0}, -1, 1}}, .call = inner},
    {.n_in = 2, .in = {{2, {6, 2}, -1, 1}, {2, {3, 2}, -1, 1}}, .call = backwards},
    {.n_in = 2, .in = {{2, {0, 2}, -1, 1}, {1, {2}, -1, 1}}, .call = backwards},
    {0},
};

const aji_op aji_op_set_slice = {
    .name = "aj_set_slice",
    .maths = "y = x, but value in [start:stop:step]; gx = g, but 0 there; gvalue = g there",
    .flags = AJI_OP_LAZY,
    .attr_size = sizeof(aji_range),
    .infer = infer,
    .forward = forward,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_set_slice(aj_tensor *x, int axis, int64_t start, int64_t stop, int64_t step, aj_tensor *value) {
    aji_range range = {.axis = axis, .start = start, .stop = stop, .step = step};
    return aji_apply2(&aji_op_set_slice, &range, x, value);
}
