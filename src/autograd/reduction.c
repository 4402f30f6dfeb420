/* What the reductions share: their axes, their shape rule, and the way between an operand and its rows. */
#include <float.h>
#include <stdio.h>

#include "autograd/reduction.h"

/* ---- axes and shapes ---- */

aj_status aji_axes_check(aj_ctx *ctx, aji_axes *a, int ndim) {
    if (a->all)
        a->n = ndim;
    if (a->n < 0 || (a->n > 0 && !a->all && !a->given))
        return aj_raise(ctx, AJ_ERR_ARG, "%s: n = %d axes%s; expected n >= 0 and an array of n different axes", a->call, a->n,
                        a->given ? "" : " in NULL");
    a->mask = 0;
    for (int i = 0; i < a->n; i++) { /* at most ndim of them pass */
        int axis = a->all ? i : a->given[i];
        aj_status status = aji_normalize_axis(ctx, a->call, ndim, &axis);
        if (status != AJ_OK)
            return status;
        if (a->mask & (1u << axis))
            return aj_raise(ctx, AJ_ERR_ARG, "%s: axis %d is given twice; expected different axes", a->call, axis);
        a->mask |= 1u << axis;
        a->axis[i] = axis;
    }
    a->given = NULL;
    return AJ_OK;
}

/* meta with extent 1 on the reduced axes */
static aji_meta with_axes(const aji_meta *meta, const aji_axes *a) {
    aji_meta kept = *meta;
    for (int i = 0; i < a->n; i++)
        kept.shape[a->axis[i]] = 1;
    return kept;
}

double aji_reduced_count(const aji_meta *x, const aji_axes *a) {
    double n = 1;
    for (int i = 0; i < a->n; i++)
        n *= (double)x->shape[a->axis[i]];
    return n;
}

aj_status aji_infer_reduction(aji_call *c) {
    aji_axes *a = c->attr;
    aj_status status = aji_axes_check(c->ctx, a, c->in_meta[0].ndim);
    if (status != AJ_OK)
        return status;
    aji_meta *y = &c->out_meta[0];
    const aji_meta kept = with_axes(&c->in_meta[0], a);
    *y = kept;
    if (a->keepdims)
        return AJ_OK;
    y->ndim = 0;
    for (int i = 0; i < kept.ndim; i++)
        if (!(a->mask & (1u << i)))
            y->shape[y->ndim++] = kept.shape[i];
    return AJ_OK;
}

aj_status aji_infer_accumulation(aji_call *c) {
    aj_status status = aji_infer_reduction(c);
    if (status == AJ_OK && !aji_dtype_is_float(c->in_meta[0].dtype))
        c->out_meta[0].dtype = AJ_I64;
    return status;
}

aj_status aji_infer_extremum(aji_call *c) {
    const aji_axes *a = c->attr;
    aj_status status = aji_infer_reduction(c);
    for (int i = 0; i < a->n && status == AJ_OK; i++)
        if (c->in_meta[0].shape[a->axis[i]] == 0) {
            char text[160];
            status = aj_raise(c->ctx, AJ_ERR_SHAPE, "%s: axis %d of shape %s has no entries; expected at least one", a->call,
                              a->axis[i], aji_shape_text(c->in_meta[0].ndim, c->in_meta[0].shape, text));
        }
    return status;
}

aj_status aji_infer_float_reduction(aji_call *c) {
    const aji_axes *a = c->attr;
    if (!aji_dtype_is_float(c->in_meta[0].dtype))
        return aj_raise(c->ctx, AJ_ERR_DTYPE, "%s: the operand is %s; expected f64 or f32 (see aj_cast)", a->call,
                        aj_dtype_name(c->in_meta[0].dtype));
    return aji_infer_reduction(c);
}

aj_tensor *aji_reduce_all(const aji_op *op, const char *call, aj_tensor *x) {
    aji_axes a = {.call = call, .all = true};
    return aji_apply1(op, &a, x);
}

aj_tensor *aji_reduce_axes(const aji_op *op, const char *call, aj_tensor *x, int n, const int *axes, bool keepdims) {
    aji_axes a = {.call = call, .keepdims = keepdims, .n = n, .given = axes};
    return aji_apply1(op, &a, x);
}

/* ---- forward ---- */

aj_status aji_forward_reduction(aji_call *c, aji_reduction kind) {
    const aji_axes *a = c->attr;
    aji_meta kept = with_axes(&c->in_meta[0], a);
    kept.dtype = c->out_meta[0].dtype;
    c->y[0] = aji_value_new(c->ctx, c->device, &c->out_meta[0]);
    if (!c->y[0])
        return AJ_ERR_MEMORY;
    aji_value y = *c->y[0]; /* with the reduced axes */
    y.meta = kept;
    aji_value_set_contiguous(&y);
    return aji_value_reduce(a->call, kind, c->x[0], a->mask, &y);
}

aj_status aji_forward_argument(aji_call *c, bool largest) {
    const aji_axes *a = c->attr;
    c->y[0] = aji_value_new(c->ctx, c->device, &c->out_meta[0]);
    if (!c->y[0])
        return AJ_ERR_MEMORY;
    aji_value y = *c->y[0];
    y.meta = with_axes(&c->in_meta[0], a);
    y.meta.dtype = AJ_I64;
    aji_value_set_contiguous(&y);
    return aji_do_argument(a->call, largest, c->x[0], a->axis[0], &y);
}

aj_status aji_forward_formula(aji_call *c, aj_tensor *(*formula)(aj_tensor *const *x, const void *attr)) {
    aj_scope *scope = aj_scope_begin(c->ctx);
    if (!scope)
        return AJ_ERR_MEMORY;
    aj_tensor *x[2], *y = NULL;
    int n = 0;
    while (n < c->n_in && (x[n] = aji_tensor_wrap(aji_value_retain(c->x[n]), c->op->name)))
        n++;
    if (n == c->n_in)
        y = formula(x, c->attr);
    aji_value *v = y ? aji_tensor_pending(y, c->op->name) : NULL;
    if (v)
        c->y[0] = aji_value_retain(v);
    aj_status status = aj_scope_end(scope);
    return v ? AJ_OK : status;
}

aj_tensor *aji_exp_shift(aj_tensor *x, const aji_axes *a) {
    if (aj_numel(x) == 0)
        return aj_sum_axes(x, 1, a->axis, true);
    /* x - largest must not be inf - inf */
    double finite = aj_tensor_dtype(x) == AJ_F32 ? FLT_MAX : DBL_MAX;
    return aj_clamp(aj_max_axes(x, 1, a->axis, true), -finite, finite);
}

/* ---- vjps ---- */

aj_tensor *aji_with_axes(const aji_call *c, aj_tensor *t) {
    const aji_meta kept = with_axes(&c->in_meta[0], c->attr);
    return aj_reshape(t, kept.ndim, kept.shape);
}

aj_tensor *aji_spread(const aji_call *c, aj_tensor *t) {
    return aj_broadcast_to(aji_with_axes(c, t), c->in_meta[0].ndim, c->in_meta[0].shape);
}

/* The axes that stay, then the reduced ones, each in order. Returns how many stay. */
static int rows_first(const aji_call *c, int order[AJ_MAX_NDIM]) {
    const aji_axes *a = c->attr;
    int n = 0, ndim = c->in_meta[0].ndim;
    for (int i = 0; i < ndim; i++)
        if (!(a->mask & (1u << i)))
            order[n++] = i;
    for (int i = 0, k = n; i < ndim; i++)
        if (a->mask & (1u << i))
            order[k++] = i;
    return n;
}

aj_tensor *aji_to_rows(const aji_call *c, aj_tensor *x) {
    int order[AJ_MAX_NDIM], stay = rows_first(c, order);
    int64_t shape[2] = {1, 1};
    for (int i = 0; i < c->in_meta[0].ndim; i++)
        shape[i >= stay] *= c->in_meta[0].shape[order[i]];
    return aj_reshape(aj_permute(x, order), 2, shape);
}

aj_tensor *aji_from_rows(const aji_call *c, aj_tensor *rows) {
    int order[AJ_MAX_NDIM], back[AJ_MAX_NDIM], ndim = c->in_meta[0].ndim;
    int64_t shape[AJ_MAX_NDIM];
    rows_first(c, order);
    for (int i = 0; i < ndim; i++) {
        shape[i] = c->in_meta[0].shape[order[i]];
        back[order[i]] = i;
    }
    return aj_permute(aj_reshape(rows, ndim, shape), back);
}

aj_status aji_extremum_vjp(aji_call *c, aj_tensor *(*index)(aj_tensor *x, int axis)) {
    aj_tensor *x = aji_to_rows(c, c->in[0]);
    if (!x || aj_numel(x) == 0)
        return AJ_OK; /* no entry, no gradient */
    int64_t rows = aj_extent(x, 0), n = aj_extent(x, 1);
    aj_tensor *place = aj_reshape(index(x, 1), 2, (int64_t[]){rows, 1});
    aj_tensor *here = aj_eq(aj_to_device(aj_arange(c->ctx, AJ_I64, 0, (double)n, 1), c->device), place);
    aj_tensor *g = aj_reshape(c->g_out[0], 2, (int64_t[]){rows, 1});
    c->g_in[0] = aji_from_rows(c, aj_where(here, g, aji_zeros_like(g)));
    return AJ_OK;
}
