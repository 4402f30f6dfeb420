/* Reshape: the same entries, row-major, in another shape. A view where the strides allow it. One extent may be -1: what
 * the others leave. */
#include "autograd/region.h"

typedef struct attr {
    int ndim;
    int64_t shape[AJ_MAX_NDIM];
} attr;

/* Replace the extent that is -1. Returns false if no extent will do, or more than one. */
static bool resolve(attr *a, int open, int64_t numel) {
    int64_t known = 1;
    for (int i = 0; i < a->ndim; i++)
        if (i != open && __builtin_mul_overflow(known, a->shape[i], &known))
            known = 0;
    bool divides = known != 0 && numel % known == 0;
    a->shape[open] = divides ? numel / known : 0;
    return divides;
}

static aj_status infer(aji_call *c) {
    attr *a = c->attr;
    const attr asked = *a;
    const aji_meta *x = &c->in_meta[0];
    int64_t numel = aji_meta_numel(x);
    int open = -1;
    for (int i = 0; i < a->ndim; i++) {
        if (a->shape[i] == -1 && open >= 0)
            return aj_raise(c->ctx, AJ_ERR_ARG, "aj_reshape: extents %d and %d are both -1; expected at most one left open", open,
                            i);
        if (a->shape[i] == -1)
            open = i;
    }
    bool fits = open < 0 || resolve(a, open, numel);
    aj_status status = aji_meta_set(c->ctx, "aj_reshape", c->out_meta, x->dtype, a->ndim, a->shape);
    char from[160], to[160];
    if (status == AJ_OK && (!fits || aji_meta_numel(c->out_meta) != numel))
        return aj_raise(c->ctx, AJ_ERR_SHAPE, "aj_reshape: from shape %s to %s; expected the same number of entries, %lld",
                        aji_shape_text(x->ndim, x->shape, from), aji_shape_text(asked.ndim, asked.shape, to), (long long)numel);
    return status;
}

static aj_status forward(aji_call *c) {
    c->y[0] = aji_value_reshape(c->x[0], c->out_meta);
    return c->y[0] ? AJ_OK : aj_ctx_status(c->ctx);
}

static aj_status vjp(aji_call *c) {
    c->g_in[0] = aj_reshape(c->g_out[0], c->in_meta[0].ndim, c->in_meta[0].shape);
    return AJ_OK;
}

static aj_tensor *flat(aj_tensor *const *x) {
    return aj_reshape(x[0], AJ_SHAPE(-1));
}

static aj_tensor *of_transposed(aj_tensor *const *x) { /* needs a copy */
    return aj_reshape(aj_transpose(x[0], 0, -1), AJ_SHAPE(2, -1, 1, 3));
}

static aj_tensor *empty(aj_tensor *const *x) {
    return aj_reshape(x[0], AJ_SHAPE(4, -1));
}

static aj_tensor *scalar(aj_tensor *const *x) {
    return aj_reshape(x[0], AJ_SHAPE0);
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{3, {2, 3, 4}, -1, 1}}, .call = flat},          {.n_in = 1, .in = {{0, {0}, -1, 1}}, .call = flat},
    {.n_in = 1, .in = {{3, {2, 3, 4}, -1, 1}}, .call = of_transposed}, {.n_in = 1, .in = {{2, {0, 3}, -1, 1}}, .call = empty},
    {.n_in = 1, .in = {{3, {1, 1, 1}, -1, 1}}, .call = scalar},        {0},
};

const aji_op aji_op_reshape = {
    .name = "aj_reshape",
    .maths = "y = x in another shape; gx = g in x's shape",
    .flags = AJI_OP_LAZY,
    .attr_size = sizeof(attr),
    .infer = infer,
    .forward = forward,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_reshape(aj_tensor *x, int ndim, const int64_t *shape) {
    attr a = {.ndim = ndim};
    if (!x || aji_copy_numbers(aj_tensor_ctx(x), "aj_reshape", "shape", ndim, shape, a.shape) != AJ_OK)
        return NULL;
    return aji_apply1(&aji_op_reshape, &a, x);
}
