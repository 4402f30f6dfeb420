/* Join dummies: an explicit dependency of a value on others that it does not use. */
#include "autograd/autograd_internal.h"

static aj_status forward(aji_call *c) {
    c->y[0] = aji_value_retain(c->x[0]);
    return AJ_OK;
}

static aj_status vjp(aji_call *c) {
    c->g_in[0] = c->g_out[0]; /* the dummies' gradients stay NULL: zero, without memory for it */
    return AJ_OK;
}

static aj_tensor *sample(aj_tensor *const *x) {
    return aj_join_dummies(x[0], 2, x + 1);
}

static const aji_sample samples[] = {
    {.n_in = 3, .in = {{2, {2, 3}, -1, 1}, {1, {4}, -1, 1}, {1, {0}, -1, 1}}, .call = sample},
    {0},
};

const aji_op aji_op_join_dummies = {
    .name = "aj_join_dummies",
    .maths = "y = x; gx = g, gdummy = 0",
    .flags = AJI_OP_MIXED_DTYPES | AJI_OP_MIXED_DEVICES,
    .forward = forward,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_join_dummies(aj_tensor *x, int n, aj_tensor *const *dummies) {
    if (!x)
        return NULL;
    aj_ctx *ctx = aj_tensor_ctx(x);
    if (n < 0 || (n > 0 && !dummies)) {
        aj_raise(ctx, AJ_ERR_ARG, "aj_join_dummies: %d dummies%s; expected a count >= 0 and an array of as many", n,
                 dummies ? "" : " in NULL");
        return NULL;
    }
    size_t bytes = ((size_t)n + 1) * sizeof(aj_tensor *);
    aj_tensor **all = aji_alloc(ctx, bytes);
    if (!all)
        return NULL;
    all[0] = x;
    for (int i = 0; i < n; i++)
        all[i + 1] = dummies[i];
    aj_tensor *y = aji_apply_n(&aji_op_join_dummies, NULL, n + 1, all);
    aji_free(ctx, all, bytes);
    return y;
}
