/* Set window: x, but value in the box that begins at lo and has value's shape. gx = g, but 0 in the box; gvalue = g in the box.
 * The in-place form consumes x, and writes into its memory if nobody else shares it. */
#include "autograd/region.h"

typedef struct attr {
    int64_t lo[AJ_MAX_NDIM];
} attr;

static aj_status infer(aji_call *c) {
    const attr *a = c->attr;
    const aji_meta *x = &c->in_meta[0], *value = &c->in_meta[1];
    *c->out_meta = *x;
    if (value->ndim != x->ndim)
        return aj_raise(c->ctx, AJ_ERR_SHAPE, "%s: x has %d axes, value %d; expected as many (see aj_unsqueeze, aj_broadcast_to)",
                        c->op->name, x->ndim, value->ndim);
    for (int i = 0; i < x->ndim; i++) {
        if (a->lo[i] < 0 || a->lo[i] > x->shape[i])
            return aj_raise(c->ctx, AJ_ERR_ARG, "%s: lo is %lld on axis %d; expected 0 ... %lld, the extent", c->op->name,
                            (long long)a->lo[i], i, (long long)x->shape[i]);
        if (value->shape[i] > x->shape[i] - a->lo[i])
            return aj_raise(c->ctx, AJ_ERR_SHAPE,
                            "%s: value has extent %lld on axis %d; expected at most %lld between lo %lld and the end",
                            c->op->name, (long long)value->shape[i], i, (long long)(x->shape[i] - a->lo[i]), (long long)a->lo[i]);
    }
    return AJ_OK;
}

/* y = x with the box overwritten; takes over the reference to y. */
static aj_status overwrite(aji_call *c, aji_value *y) {
    const attr *a = c->attr;
    return aji_finish(c, y, aji_fill("aj_set_window", aji_window_view(y, a->lo, c->in_meta[1].shape), c->x[1]));
}

/* Between zeros: pending still. */
static aj_status place(aji_call *c) {
    const attr *a = c->attr;
    return aji_finish(c, aji_value_placed(c->x[1], c->out_meta, a->lo), AJ_OK);
}

static aj_status forward(aji_call *c) {
    return aji_is_zero(c->x[0]) ? place(c) : overwrite(c, aji_value_copy(c->x[0]));
}

static aj_status forward_inplace(aji_call *c) {
    if (aji_is_zero(c->x[0]))
        return place(c);
    if (aji_value_evaluate(c->x[0]) != AJ_OK)
        return aj_ctx_status(c->ctx);
    return overwrite(c, aji_value_exclusive(c->x[0]) ? aji_value_retain(c->x[0]) : aji_value_copy(c->x[0]));
}

static aj_status vjp(aji_call *c) {
    const attr *a = c->attr;
    aj_tensor *g = c->g_out[0];
    if (c->want[0])
        c->g_in[0] = aj_set_window(g, a->lo, aji_zeros_meta(c->ctx, c->device, &c->in_meta[1]));
    if (c->want[1]) {
        int64_t hi[AJ_MAX_NDIM];
        for (int i = 0; i < c->in_meta[1].ndim; i++)
            hi[i] = a->lo[i] + c->in_meta[1].shape[i];
        c->g_in[1] = aj_window(g, a->lo, hi);
    }
    return AJ_OK;
}

static aj_tensor *set(aj_tensor *const *x) {
    return aj_set_window(x[0], (const int64_t[]){1, 2}, x[1]);
}

static aj_tensor *set_scalar(aj_tensor *const *x) {
    return aj_set_window(x[0], NULL, x[1]);
}

static aj_tensor *set_inplace(aj_tensor *const *x) { /* 2 x: a value that nobody else has */
    return aj_set_window_inplace(aj_scale(x[0], 2), (const int64_t[]){1, 2}, x[1]);
}

static aj_tensor *
set_inplace_shared(aj_tensor *const *x) { /* the square's derivative needs v, so that it must not be overwritten */
    aj_tensor *v = aj_scale(x[0], 2), *square = aj_square(v);
    return aj_add(square, aj_set_window_inplace(v, (const int64_t[]){1, 2}, x[1]));
}

static const aji_sample samples[] = {
    {.n_in = 2, .in = {{2, {3, 4}, -1, 1}, {2, {2, 1}, -1, 1}}, .call = set},
    {.n_in = 2, .in = {{2, {2, 2}, -1, 1}, {2, {1, 0}, -1, 1}}, .call = set},
    {.n_in = 2, .in = {{0, {0}, -1, 1}, {0, {0}, -1, 1}}, .call = set_scalar},
    {0},
};

static const aji_sample samples_inplace[] = {
    {.n_in = 2, .in = {{2, {3, 4}, -1, 1}, {2, {2, 1}, -1, 1}}, .call = set_inplace},
    {.n_in = 2, .in = {{2, {3, 4}, -1, 1}, {2, {2, 2}, -1, 1}}, .call = set_inplace_shared},
    {.n_in = 2, .in = {{2, {2, 2}, -1, 1}, {2, {1, 0}, -1, 1}}, .call = set_inplace},
    {0},
};

const aji_op aji_op_set_window = {
    .name = "aj_set_window",
    .maths = "y = x, but value in the box at lo; gx = g, but 0 there; gvalue = g there",
    .flags = AJI_OP_LAZY,
    .attr_size = sizeof(attr),
    .infer = infer,
    .forward = forward,
    .vjp = vjp,
    .samples = samples,
};

const aji_op aji_op_set_window_inplace = {
    .name = "aj_set_window_inplace",
    .maths = "y = x, but value in the box at lo; gx = g, but 0 there; gvalue = g there",
    .flags = AJI_OP_CONSUMES | AJI_OP_LAZY,
    .attr_size = sizeof(attr),
    .infer = infer,
    .forward = forward_inplace,
    .vjp = vjp,
    .samples = samples_inplace,
};

static aj_tensor *apply(const aji_op *op, const char *name, aj_tensor *x, const int64_t *lo, aj_tensor *value) {
    attr a = {{0}};
    if (x && aji_copy_numbers(aj_tensor_ctx(x), name, "lo", aj_ndim(x), lo, a.lo) != AJ_OK)
        return NULL;
    return aji_apply2(op, &a, x, value);
}

aj_tensor *aj_set_window(aj_tensor *x, const int64_t *lo, aj_tensor *value) {
    return apply(&aji_op_set_window, "aj_set_window", x, lo, value);
}

aj_tensor *aj_set_window_inplace(aj_tensor *x, const int64_t *lo, aj_tensor *value) {
    return apply(&aji_op_set_window_inplace, "aj_set_window_inplace", x, lo, value);
}
