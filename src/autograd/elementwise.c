/*
 * What all elementwise operations share: the shape rule, and the forward, which notes down one step. Also the constants
 * that vjps are made with.
 */
#include <math.h>

#include "autograd/autograd_private.h"

/* The dtype that the step works on: WHERE's first operand is a condition. */
static aj_dtype working_dtype(const aji_call *c) {
    return c->in_meta[c->n_in - 1].dtype;
}

static bool is_comparison(aji_opcode step) {
    switch (step) {
#define AJI_COMPARE(name, formula) case AJI_STEP_##name:
#include "tensor/steps.def"
        return true;
    default:
        return false;
    }
}

aj_status aji_infer_elementwise(aji_call *c) {
    const aji_scalars *scalars = c->attr;
    aj_dtype dtype = working_dtype(c);
    if (c->op->step != AJI_STEP_CAST && !aji_step_supports(c->op->step, dtype))
        return aj_raise(c->ctx, AJ_ERR_DTYPE, "%s: the operand is %s; expected f64 or f32 (see aj_cast)", c->op->name,
                        aj_dtype_name(dtype));
    const aji_meta *in[3] = {&c->in_meta[0], &c->in_meta[c->n_in > 1 ? 1 : 0], &c->in_meta[c->n_in - 1]};
    c->out_meta[0].dtype = c->op->step == AJI_STEP_CAST ? scalars->to : is_comparison(c->op->step) ? AJ_U8 : dtype;
    return aji_broadcast_shape(c->ctx, c->op->name, c->n_in, in, &c->out_meta[0]);
}

static bool is_number_of(aj_dtype dtype, double value) {
    switch (dtype) {
    case AJ_I64:
        return value == trunc(value) && value >= -0x1p63 && value < 0x1p63;
    case AJ_I32:
        return value == trunc(value) && value >= INT32_MIN && value <= INT32_MAX;
    case AJ_U8:
        return value == trunc(value) && value >= 0 && value <= UINT8_MAX;
    default:
        return true;
    }
}

aj_status aji_infer_scalars(aji_call *c) {
    const aji_scalars *scalars = c->attr;
    aj_dtype dtype = c->in_meta[0].dtype;
    for (int i = 0; i < 2; i++)
        if (!is_number_of(dtype, scalars->imm[i]))
            return aj_raise(c->ctx, AJ_ERR_ARG,
                            "%s: the scalar %g is not a number of x's dtype, %s; make x floating with aj_cast", c->op->name,
                            scalars->imm[i], aj_dtype_name(dtype));
    return aji_infer_elementwise(c);
}

static aji_step step_of(const aji_op *op, aj_dtype dtype, const aji_scalars *scalars) {
    aji_step step = {.opcode = op->step, .dtype = dtype};
    if (op->step == AJI_STEP_CAST) {
        step.from = step.dtype;
        step.dtype = scalars->to;
    }
    if (op->attr_size) {
        step.imm[0] = scalars->imm[0];
        step.imm[1] = scalars->imm[1];
    }
    return step;
}

aj_status aji_forward_elementwise(aji_call *c) {
    aji_step step = step_of(c->op, working_dtype(c), c->attr);
    c->y[0] = aji_value_step(c->ctx, c->device, &c->out_meta[0], &step, c->n_in, c->x);
    return c->y[0] ? AJ_OK : aj_ctx_status(c->ctx);
}

bool aji_is_plain(const aji_op *op, int n, aj_tensor *const *xs, aji_value **x) {
    bool plain = op->infer == aji_infer_elementwise || op->infer == aji_infer_scalars;
    return plain && op->step != AJI_STEP_CAST && aji_are_uniform(n, xs, x) && aji_dtype_is_float(x[0]->meta.dtype);
}

/* The node behind t, if there is to be one. Returns false if that fails. */
static bool record_plain(const aji_op *op, const void *attr, int n, aj_tensor *const *xs, aji_value *const *x, aji_value *y,
                         aj_tensor *t) {
    aji_edge in[3];
    bool active = false;
    for (int i = 0; i < n; i++) {
        in[i] = aji_tensor_edge(xs[i]);
        active = active || in[i].node;
    }
    if (!active || (op->flags & AJI_OP_CONSTANT) || !aji_dtype_is_float(y->meta.dtype))
        return true;
    aji_node *node = aji_node_record_plain(op, attr, n, in, x, y);
    if (node)
        aji_tensor_set_link(t, (aji_link *)node, 0);
    return node != NULL;
}

aj_tensor *aji_apply_plain(const aji_op *op, const void *attr, int n, aj_tensor *const *xs, aji_value *const *x) {
    const aji_value *first = x[0];
    aj_ctx *ctx = first->ctx;
    aji_meta meta = first->meta;
    if (is_comparison(op->step))
        meta.dtype = AJ_U8;
    const char *before = aji_ctx_enter(ctx, op->name);
    aji_step step = step_of(op, first->meta.dtype, attr);
    aji_value *y = aji_value_step(ctx, first->device, &meta, &step, n, x);
    aj_tensor *t = y ? aji_tensor_wrap(y, op->name) : NULL;
    if (t && aji_records(aji_autograd_of(ctx)) && !record_plain(op, attr, n, xs, x, y, t))
        aj_release(&t);
    aji_ctx_enter(ctx, before);
    return t;
}

static aj_tensor *full(aj_ctx *ctx, aj_device device, const aji_meta *meta, double value) {
    aji_value *v = aji_value_full(ctx, device, meta, value);
    return v ? aji_tensor_wrap(v, "aj_full") : NULL;
}

aj_tensor *aji_full_like(aj_tensor *x, double value) {
    return x ? full(aj_tensor_ctx(x), aj_tensor_device(x), aji_tensor_meta(x), value) : NULL;
}

aj_tensor *aji_zeros_like(aj_tensor *x) {
    return aji_full_like(x, 0);
}

aj_tensor *aji_zeros_meta(aj_ctx *ctx, aj_device device, const aji_meta *meta) {
    return full(ctx, device, meta, 0);
}

aj_tensor *aji_sum_to(aj_tensor *x, const aji_meta *shape) {
    if (!x || aji_same_shape(aji_tensor_meta(x), shape))
        return x;
    const aji_meta from = *aji_tensor_meta(x);
    int axes[AJ_MAX_NDIM], n = 0, extra = from.ndim - shape->ndim;
    for (int i = 0; i < from.ndim; i++)
        if (i < extra || shape->shape[i - extra] != from.shape[i])
            axes[n++] = i;
    x = aj_sum_axes(x, n, axes, true);
    return aj_reshape(x, shape->ndim, shape->shape);
}
