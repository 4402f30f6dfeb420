/* Pad: x with entries of one value before and after it along an axis. gx = g without them. */
#include "autograd/region.h"

typedef struct attr {
    int axis;
    int64_t before, after;
    double value;
} attr;

static aj_status infer(aji_call *c) {
    attr *a = c->attr;
    aji_meta x = c->in_meta[0];
    aj_status status = aji_normalize_axis(c->ctx, "aj_pad", x.ndim, &a->axis);
    if (status != AJ_OK)
        return status;
    if (a->before < 0 || a->after < 0)
        return aj_raise(c->ctx, AJ_ERR_ARG,
                        "aj_pad: %lld entries before and %lld after; expected no negative number (see aj_slice)",
                        (long long)a->before, (long long)a->after);
    int64_t *extent = &x.shape[a->axis];
    if (__builtin_add_overflow(*extent, a->before, extent) || __builtin_add_overflow(*extent, a->after, extent))
        *extent = INT64_MAX; /* too much for aji_meta_set */
    return aji_meta_set(c->ctx, "aj_pad", c->out_meta, x.dtype, x.ndim, x.shape);
}

static aj_status forward(aji_call *c) {
    const attr *a = c->attr;
    int64_t n = c->in_meta[0].shape[a->axis];
    aji_value *y = aji_value_new(c->ctx, c->device, c->out_meta);
    aji_value *padding = aji_value_full(c->ctx, c->device, &(aji_meta){.dtype = c->out_meta->dtype}, a->value);
    aj_status status = padding ? AJ_OK : aj_ctx_status(c->ctx);
    if (y && status == AJ_OK)
        status = aji_fill("aj_pad", aji_part_view(y, a->axis, 0, a->before), padding);
    if (y && status == AJ_OK)
        status = aji_fill("aj_pad", aji_part_view(y, a->axis, a->before, n), c->x[0]);
    if (y && status == AJ_OK)
        status = aji_fill("aj_pad", aji_part_view(y, a->axis, a->before + n, a->after), padding);
    aji_value_release(padding);
    return aji_finish(c, y, status);
}

static aj_status vjp(aji_call *c) {
    const attr *a = c->attr;
    c->g_in[0] = aj_slice(c->g_out[0], a->axis, a->before, a->before + c->in_meta[0].shape[a->axis], 1);
    return AJ_OK;
}

static aj_tensor *both_ends(aj_tensor *const *x) {
    return aj_pad(x[0], -1, 1, 2, 3.5);
}

static aj_tensor *one_end(aj_tensor *const *x) {
    return aj_pad(x[0], 0, 0, 1, 0);
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{2, {2, 3}, -1, 1}}, .call = both_ends},
    {.n_in = 1, .in = {{2, {2, 0}, -1, 1}}, .call = both_ends},
    {.n_in = 1, .in = {{3, {2, 1, 2}, -1, 1}}, .call = one_end},
    {0},
};

const aji_op aji_op_pad = {
    .name = "aj_pad",
    .maths = "y = value, x, value along an axis; gx = g without the ends",
    .flags = AJI_OP_LAZY,
    .attr_size = sizeof(attr),
    .infer = infer,
    .forward = forward,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_pad(aj_tensor *x, int axis, int64_t before, int64_t after, double value) {
    attr a = {axis, before, after, value};
    return aji_apply1(&aji_op_pad, &a, x);
}
