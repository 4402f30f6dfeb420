/* Window: the box lo <= index < hi over all axes. A view. gx = g in the box, 0 elsewhere. A negative hi counts from the end. */
#include "autograd/region.h"

typedef struct attr {
    int64_t lo[AJ_MAX_NDIM], hi[AJ_MAX_NDIM];
} attr;

static aj_status infer(aji_call *c) {
    attr *a = c->attr;
    *c->out_meta = c->in_meta[0];
    for (int i = 0; i < c->in_meta[0].ndim; i++) {
        int64_t n = c->in_meta[0].shape[i], hi = a->hi[i] < 0 ? a->hi[i] + n : a->hi[i];
        if (a->lo[i] < 0 || a->lo[i] > hi || hi > n)
            return aj_raise(
                c->ctx, AJ_ERR_ARG,
                "aj_window: lo is %lld and hi is %lld on axis %d; expected 0 <= lo <= hi <= %lld, the extent (a negative "
                "hi counts from the end)",
                (long long)a->lo[i], (long long)a->hi[i], i, (long long)n);
        a->hi[i] = hi;
        c->out_meta->shape[i] = hi - a->lo[i];
    }
    return AJ_OK;
}

static aj_status forward(aji_call *c) {
    const attr *a = c->attr;
    c->y[0] = aji_window_view(c->x[0], a->lo, c->out_meta->shape);
    return c->y[0] ? AJ_OK : aj_ctx_status(c->ctx);
}

static aj_status vjp(aji_call *c) {
    const attr *a = c->attr;
    c->g_in[0] = aj_set_window(aji_zeros_meta(c->ctx, c->device, &c->in_meta[0]), a->lo, c->g_out[0]);
    return AJ_OK;
}

static aj_tensor *interior(aj_tensor *const *x) {
    return aj_window(x[0], (const int64_t[]){1, 1, 0}, (const int64_t[]){-1, 3, 2});
}

static aj_tensor *nothing(aj_tensor *const *x) {
    return aj_window(x[0], (const int64_t[]){3, 0}, (const int64_t[]){3, -1});
}

static aj_tensor *all(aj_tensor *const *x) {
    return aj_window(x[0], NULL, NULL);
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{3, {4, 3, 2}, -1, 1}}, .call = interior},
    {.n_in = 1, .in = {{2, {3, 1}, -1, 1}}, .call = nothing},
    {.n_in = 1, .in = {{0, {0}, -1, 1}}, .call = all},
    {0},
};

const aji_op aji_op_window = {
    .name = "aj_window",
    .maths = "y = x[lo:hi]; gx = g there, 0 elsewhere",
    .attr_size = sizeof(attr),
    .infer = infer,
    .forward = forward,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_window(aj_tensor *x, const int64_t *lo, const int64_t *hi) {
    attr a = {{0}, {0}};
    aj_ctx *ctx = aj_tensor_ctx(x);
    if (!x || aji_copy_numbers(ctx, "aj_window", "lo", aj_ndim(x), lo, a.lo) != AJ_OK ||
        aji_copy_numbers(ctx, "aj_window", "hi", aj_ndim(x), hi, a.hi) != AJ_OK)
        return NULL;
    return aji_apply1(&aji_op_window, &a, x);
}
