/*
 * Parameters: leaves that collect a gradient. And detach, which is the opposite.
 */
#include "autograd/autograd_private.h"

aj_tensor *aj_param(aj_tensor *x) {
    static const char op[] = "aj_param";
    if (!x)
        return NULL;
    aj_ctx *ctx = aj_tensor_ctx(x);
    if (!aji_dtype_is_float(aj_tensor_dtype(x))) {
        aj_raise(ctx, AJ_ERR_DTYPE, "%s: the tensor is %s; expected f64 or f32 (see aj_cast)", op,
                 aj_dtype_name(aj_tensor_dtype(x)));
        return NULL;
    }
    aji_value *v = aji_tensor_value(x, "aj_param");
    if (!v || aji_autograd_attach(ctx) != AJ_OK)
        return NULL;
    aji_node *leaf = aji_leaf_new(ctx);
    aj_tensor *p = leaf ? aji_tensor_wrap(aji_value_retain(v), "aj_param") : NULL;
    if (p)
        aji_tensor_set_link(p, &leaf->link, 0);
    if (leaf)
        aji_link_release(&leaf->link); /* the handle's reference stays */
    return aj_keep(p);
}

/* The leaf, or AJ_ERR_ARG raised. */
static aji_node *leaf_of(const char *op, aj_tensor *t) {
    aji_node *leaf = t ? aji_param_leaf(t) : NULL;
    if (t && !leaf)
        aj_raise(aj_tensor_ctx(t), AJ_ERR_ARG, "%s: the tensor, made by %s, is not a parameter; expected one made by aj_param",
                 op, aji_tensor_made_by(t));
    return leaf;
}

aj_status aj_param_set(aj_tensor *param, aj_tensor *value) {
    static const char op[] = "aj_param_set";
    if (!leaf_of(op, param))
        return AJ_ERR_ARG;
    aj_ctx *ctx = aj_tensor_ctx(param);
    if (!value)
        return aj_raise(ctx, AJ_ERR_ARG, "%s: the value is NULL; expected a tensor", op);
    aji_autograd *ag = aji_autograd_of(ctx);
    if (ag->recording)
        return aj_raise(ctx, AJ_ERR_STATE,
                        "%s: a recording is open or stopped; expected a call after aj_backward or aj_record_end", op);
    aj_status status = aji_check_operand(ctx, "aj_param_set", value);
    if (status != AJ_OK)
        return status;
    const aji_meta *m = aji_tensor_meta(value), *p = aji_tensor_meta(param);
    char a[160], b[160];
    if (!aji_same_shape(m, p))
        return aj_raise(ctx, AJ_ERR_SHAPE, "%s: the value has shape %s; expected the parameter's, %s", op,
                        aji_shape_text(m->ndim, m->shape, a), aji_shape_text(p->ndim, p->shape, b));
    if (m->dtype != p->dtype)
        return aj_raise(ctx, AJ_ERR_DTYPE, "%s: the value is %s; expected %s, as the parameter", op, aj_dtype_name(m->dtype),
                        aj_dtype_name(p->dtype));
    if (aj_tensor_device(value) != aj_tensor_device(param))
        return aj_raise(ctx, AJ_ERR_DEVICE, "%s: the value is on %s; expected %s, as the parameter", op,
                        aj_device_name(aj_tensor_device(value)), aj_device_name(aj_tensor_device(param)));
    aji_value *v = aji_tensor_value(value, op);
    if (!v)
        return aj_ctx_status(ctx);
    aji_tensor_set_value(param, aji_value_retain(v));
    return AJ_OK;
}

aj_tensor *aj_grad(aj_tensor *param) {
    aji_node *leaf = leaf_of("aj_grad", param);
    if (!leaf)
        return NULL;
    return leaf->grad ? aji_tensor_wrap(aji_value_retain(leaf->grad), "aj_grad") : aji_zeros_like(param);
}

void aj_zero_grad(aj_tensor *param) {
    aji_node *leaf = leaf_of("aj_zero_grad", param);
    if (!leaf)
        return;
    aji_value_release(leaf->grad);
    leaf->grad = NULL;
}

aj_tensor *aj_detach(aj_tensor *x) {
    aji_value *v = x ? aji_tensor_pending(x, "aj_detach") : NULL;
    return v ? aji_tensor_wrap(aji_value_retain(v), "aj_detach") : NULL;
}
