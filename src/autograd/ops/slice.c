/* Slice: part of one axis, as Python's start:stop:step. A view. gx = g at those entries, 0 elsewhere. */
#include "autograd/region.h"

static aj_status infer(aji_call *c) {
    aji_range *range = c->attr;
    aj_status status = aji_normalize_range(c->ctx, "aj_slice", &c->in_meta[0], range);
    if (status != AJ_OK)
        return status;
    *c->out_meta = c->in_meta[0];
    c->out_meta->shape[range->axis] = range->count;
    return AJ_OK;
}

static aj_status forward(aji_call *c) {
    c->y[0] = aji_range_view(c->x[0], c->attr);
    return c->y[0] ? AJ_OK : aj_ctx_status(c->ctx);
}

static aj_status vjp(aji_call *c) {
    const aji_range *r = c->attr;
    aj_tensor *zeros = aji_zeros_meta(c->ctx, c->device, &c->in_meta[0]);
    c->g_in[0] = aj_set_slice(zeros, r->axis, r->start, r->stop, r->step, c->g_out[0]);
    return AJ_OK;
}

static aj_tensor *inner(aj_tensor *const *x) {
    return aj_slice(x[0], -1, 1, -1, 1);
}

static aj_tensor *every_second(aj_tensor *const *x) {
    return aj_slice(x[0], 0, 1, INT64_MAX, 2);
}

static aj_tensor *backwards(aj_tensor *const *x) {
    return aj_slice(x[0], 0, INT64_MAX, INT64_MIN, -2);
}

static aj_tensor *nothing(aj_tensor *const *x) {
    return aj_slice(x[0], 0, 2, 1, 1);
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{2, {3, 5}, -1, 1}}, .call = inner},
    {.n_in = 1, .in = {{2, {3, 1}, -1, 1}}, .call = inner},
    {.n_in = 1, .in = {{2, {6, 2}, -1, 1}}, .call = every_second},
    {.n_in = 1, .in = {{2, {6, 2}, -1, 1}}, .call = backwards},
    {.n_in = 1, .in = {{2, {0, 2}, -1, 1}}, .call = backwards},
    {.n_in = 1, .in = {{2, {4, 2}, -1, 1}}, .call = nothing},
    {0},
};

const aji_op aji_op_slice = {
    .name = "aj_slice",
    .maths = "y = x[start:stop:step]; gx = g there, 0 elsewhere",
    .attr_size = sizeof(aji_range),
    .infer = infer,
    .forward = forward,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_slice(aj_tensor *x, int axis, int64_t start, int64_t stop, int64_t step) {
    aji_range range = {.axis = axis, .start = start, .stop = stop, .step = step};
    return aji_apply1(&aji_op_slice, &range, x);
}
