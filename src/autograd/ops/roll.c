/* Roll: y_{(i + shift) mod n} = x_i along an axis of extent n. gx = g rolled back. */
#include "autograd/region.h"

typedef struct attr {
    int axis;
    int64_t shift;
} attr;

static aj_status infer(aji_call *c) {
    attr *a = c->attr;
    *c->out_meta = c->in_meta[0];
    aj_status status = aji_normalize_axis(c->ctx, "aj_roll", c->in_meta[0].ndim, &a->axis);
    if (status != AJ_OK)
        return status;
    int64_t n = c->in_meta[0].shape[a->axis];
    a->shift = n > 0 ? a->shift % n : 0;
    if (a->shift < 0)
        a->shift += n;
    return AJ_OK;
}

/* y's part at `to` = the n entries of x at `from` */
static aj_status move(const attr *a, aji_value *y, int64_t to, aji_value *x, int64_t from, int64_t n) {
    aji_value *source = aji_part_view(x, a->axis, from, n);
    aj_status status = source ? aji_fill("aj_roll", aji_part_view(y, a->axis, to, n), source) : aj_ctx_status(x->ctx);
    aji_value_release(source);
    return status;
}

static aj_status forward(aji_call *c) {
    const attr *a = c->attr;
    int64_t kept = c->in_meta[0].shape[a->axis] - a->shift;
    aji_value *y = aji_value_new(c->ctx, c->device, c->out_meta);
    aj_status status = y ? move(a, y, a->shift, c->x[0], 0, kept) : AJ_OK;
    if (y && status == AJ_OK)
        status = move(a, y, 0, c->x[0], kept, a->shift);
    return aji_finish(c, y, status);
}

static aj_status vjp(aji_call *c) {
    const attr *a = c->attr;
    c->g_in[0] = aj_roll(c->g_out[0], a->axis, -a->shift);
    return AJ_OK;
}

static aj_tensor *forwards(aj_tensor *const *x) {
    return aj_roll(x[0], -1, 2);
}

static aj_tensor *backwards(aj_tensor *const *x) {
    return aj_roll(x[0], 0, -7);
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{2, {2, 5}, -1, 1}}, .call = forwards},
    {.n_in = 1, .in = {{2, {2, 1}, -1, 1}}, .call = forwards},
    {.n_in = 1, .in = {{2, {3, 2}, -1, 1}}, .call = backwards},
    {.n_in = 1, .in = {{2, {0, 2}, -1, 1}}, .call = backwards},
    {0},
};

const aji_op aji_op_roll = {
    .name = "aj_roll",
    .maths = "y_{(i + shift) mod n} = x_i; gx = g rolled back",
    .attr_size = sizeof(attr),
    .infer = infer,
    .forward = forward,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_roll(aj_tensor *x, int axis, int64_t shift) {
    attr a = {axis, shift};
    return aji_apply1(&aji_op_roll, &a, x);
}
