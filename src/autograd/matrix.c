/*
 * Stacks of matrices: shapes of products, and their forward.
 */
#include <stdio.h>

#include "autograd/matrix.h"
#include "autograd/region.h"

static aji_meta as_row(const aji_meta *x) {
    aji_meta row = *x;
    if (x->ndim == 1) {
        row.ndim = 2;
        row.shape[0] = 1;
        row.shape[1] = x->shape[0];
    }
    return row;
}

static aji_meta as_column(const aji_meta *x) {
    aji_meta column = *x;
    if (x->ndim == 1) {
        column.ndim = 2;
        column.shape[1] = 1;
    }
    return column;
}

/* y's shape: the stack of a and b, with `rows` and `columns`. */
static aj_status stack_shape(const aji_call *c, const char *op, const aji_stacks *s, aji_meta *y) {
    aji_meta a = s->a, b = s->b, stack = {.dtype = s->a.dtype};
    a.ndim -= 2;
    b.ndim -= 2;
    char what[64];
    snprintf(what, sizeof(what), "%s, axes before the last two", op);
    aj_status status = aji_broadcast_shape(c->ctx, what, 2, (const aji_meta *[]){&a, &b}, &stack);
    if (status != AJ_OK)
        return status;
    stack.shape[stack.ndim++] = s->a.shape[a.ndim];
    stack.shape[stack.ndim++] = s->b.shape[b.ndim + 1];
    return aji_meta_set(c->ctx, op, y, s->a.dtype, stack.ndim, stack.shape);
}

aj_status aji_stacks_of(const aji_call *c, const char *op, aji_stacks *s) {
    const aji_meta *a = &c->in_meta[0], *b = &c->in_meta[1];
    char a_text[160], b_text[160];
    if (a->ndim == 0 || b->ndim == 0)
        return aj_raise(c->ctx, AJ_ERR_SHAPE,
                        "%s: a has shape %s, b %s; expected at least one axis each (see aj_mul for numbers)", op,
                        aji_shape_text(a->ndim, a->shape, a_text), aji_shape_text(b->ndim, b->shape, b_text));
    *s = (aji_stacks){.a = as_row(a), .b = as_column(b)};
    if (s->a.shape[s->a.ndim - 1] != s->b.shape[s->b.ndim - 2])
        return aj_raise(c->ctx, AJ_ERR_SHAPE,
                        "%s: a has shape %s, b %s: %lld columns meet %lld rows; expected as many (see aj_transpose)", op,
                        aji_shape_text(a->ndim, a->shape, a_text), aji_shape_text(b->ndim, b->shape, b_text),
                        (long long)s->a.shape[s->a.ndim - 1], (long long)s->b.shape[s->b.ndim - 2]);
    return stack_shape(c, op, s, &s->y);
}

aj_status aji_infer_product(aji_call *c, const char *op) {
    aji_stacks s;
    aj_status status = aji_stacks_of(c, op, &s);
    if (status != AJ_OK)
        return status;
    aji_meta *y = &c->out_meta[0];
    *y = s.y;
    y->ndim -= 2;
    if (c->in_meta[0].ndim > 1)
        y->shape[y->ndim++] = s.y.shape[s.y.ndim - 2];
    if (c->in_meta[1].ndim > 1)
        y->shape[y->ndim++] = s.y.shape[s.y.ndim - 1];
    return AJ_OK;
}

/* v in the shape `as`, repeated along the axes that count matrices in y. */
static aji_value *stacked(aji_value *v, const aji_meta *as, const aji_meta *y) {
    aji_meta full = *y;
    full.shape[full.ndim - 2] = as->shape[as->ndim - 2];
    full.shape[full.ndim - 1] = as->shape[as->ndim - 1];
    aji_value *seen = aji_value_reshape(v, as);
    aji_value *repeated = seen ? aji_value_broadcast(seen, &full) : NULL;
    aji_value_release(seen);
    return repeated;
}

aj_status aji_forward_product(aji_call *c, const char *op,
                              aj_status (*kernel)(const char *op, const aji_value *a, const aji_value *b, const aji_value *out)) {
    aji_stacks s;
    aj_status status = aji_stacks_of(c, op, &s);
    if (status != AJ_OK)
        return status;
    aji_value *y = aji_value_new(c->ctx, c->device, &c->out_meta[0]);
    aji_value *out = y ? aji_value_reshape(y, &s.y) : NULL;
    aji_value *a = stacked(c->x[0], &s.a, &s.y), *b = stacked(c->x[1], &s.b, &s.y);
    status = a && b && out ? kernel(op, a, b, out) : aj_ctx_status(c->ctx);
    aji_value_release(a);
    aji_value_release(b);
    aji_value_release(out);
    return aji_finish(c, y, status);
}

aj_status aji_check_square(aj_ctx *ctx, const char *op, const aji_meta *a) {
    char text[160];
    if (a->ndim < 2 || a->shape[a->ndim - 1] != a->shape[a->ndim - 2])
        return aj_raise(ctx, AJ_ERR_SHAPE, "%s: a has shape %s; expected square matrices, (..., n, n)", op,
                        aji_shape_text(a->ndim, a->shape, text));
    if (!aji_dtype_is_float(a->dtype))
        return aj_raise(ctx, AJ_ERR_DTYPE, "%s: a is %s; expected f64 or f32 (see aj_cast)", op, aj_dtype_name(a->dtype));
    return AJ_OK;
}

aj_tensor *aji_seen_as(aj_tensor *x, const aji_meta *shape) {
    return x && aji_same_shape(aji_tensor_meta(x), shape) ? x : aj_reshape(x, shape->ndim, shape->shape);
}

aj_tensor *aji_diagonal_like(aj_tensor *a, double value) {
    if (!a)
        return NULL;
    aji_meta diagonal = {.dtype = aj_tensor_dtype(a), .ndim = 1, .shape = {aj_extent(a, -1)}};
    return aj_diag(aj_add_scalar(aji_zeros_meta(aj_tensor_ctx(a), aj_tensor_device(a), &diagonal), value));
}

aj_tensor *aji_transposed(aj_tensor *x) {
    return aj_transpose(x, -2, -1);
}
