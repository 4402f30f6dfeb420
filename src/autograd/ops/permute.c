/* Permute: axis i of y is axis axes[i] of x. A view. */
#include "autograd/autograd_internal.h"

typedef struct attr {
    int axes[AJ_MAX_NDIM];
} attr;

static aj_status infer(aji_call *c) {
    attr *a = c->attr;
    const aji_meta *x = &c->in_meta[0];
    unsigned seen = 0;
    *c->out_meta = *x;
    for (int i = 0; i < x->ndim; i++) {
        aj_status status = aji_normalize_axis(c->ctx, "aj_permute", x->ndim, &a->axes[i]);
        if (status != AJ_OK)
            return status;
        if (seen & 1u << a->axes[i])
            return aj_raise(c->ctx, AJ_ERR_ARG, "aj_permute: axis %d is given twice; expected each of the %d axes once",
                            a->axes[i], x->ndim);
        seen |= 1u << a->axes[i];
        c->out_meta->shape[i] = x->shape[a->axes[i]];
    }
    return AJ_OK;
}

static aj_status forward(aji_call *c) {
    const attr *a = c->attr;
    aji_value *x = c->x[0];
    int64_t strides[AJ_MAX_NDIM];
    for (int i = 0; i < x->meta.ndim; i++)
        strides[i] = x->strides[a->axes[i]];
    c->y[0] = aji_value_view(x, c->out_meta, strides, x->offset);
    return c->y[0] ? AJ_OK : aj_ctx_status(c->ctx);
}

static aj_status vjp(aji_call *c) {
    const attr *a = c->attr;
    int inverse[AJ_MAX_NDIM];
    for (int i = 0; i < c->in_meta[0].ndim; i++)
        inverse[a->axes[i]] = i;
    c->g_in[0] = aj_permute(c->g_out[0], inverse);
    return AJ_OK;
}

static aj_tensor *cycle(aj_tensor *const *x) {
    return aj_permute(x[0], (const int[]){2, 0, -2});
}

static aj_tensor *swap(aj_tensor *const *x) {
    return aj_permute(x[0], (const int[]){-1, 0});
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{3, {2, 3, 4}, -1, 1}}, .call = cycle},
    {.n_in = 1, .in = {{3, {2, 0, 1}, -1, 1}}, .call = cycle},
    {.n_in = 1, .in = {{2, {3, 1}, -1, 1}}, .call = swap},
    {0},
};

const aji_op aji_op_permute = {
    .name = "aj_permute",
    .maths = "y's axis i = x's axis axes[i]; gx = g permuted back",
    .attr_size = sizeof(attr),
    .infer = infer,
    .forward = forward,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_permute(aj_tensor *x, const int *axes) {
    attr a = {{0}};
    if (x && !axes && aj_ndim(x) > 0) {
        aj_raise(aj_tensor_ctx(x), AJ_ERR_ARG, "aj_permute: axes is NULL; expected %d axes", aj_ndim(x));
        return NULL;
    }
    for (int i = 0; i < aj_ndim(x); i++)
        a.axes[i] = axes[i];
    return aji_apply1(&aji_op_permute, &a, x);
}
