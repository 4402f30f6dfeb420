/*
 * Handles: what the user holds. A handle names a value, and hangs in the list of the scope that owns it or in the context's list of kept ones.
 */
#include "tensor/tensor_private.h"

aj_tensor *aji_tensor_wrap(aji_value *v, const char *by) {
    aj_ctx *ctx = v->ctx;
    aj_tensor *t = aji_alloc_small(ctx, sizeof(*t));
    if (!t) {
        aji_value_release(v);
        return NULL;
    }
    *t = (aj_tensor){.ctx = ctx, .scope = ctx->scope, .value = v, .meta = v->meta, .device = v->device, .made_by = by};
    aji_list_append(&ctx->scope->tensors, &t->list);
    ctx->stat[AJ_STAT_TENSORS]++;
    return t;
}

void aji_tensor_free(aj_tensor *t) {
    aj_ctx *ctx = t->ctx;
    aji_list_remove(&t->list);
    aji_link_release(t->link);
    aji_value_release(t->value);
    aji_free_small(ctx, t, sizeof(*t));
    ctx->stat[AJ_STAT_TENSORS]--;
}

aj_tensor *aj_keep(aj_tensor *t) {
    if (!t)
        return NULL;
    t->refs++;
    if (t->scope) {
        aji_list_remove(&t->list);
        aji_list_append(&t->ctx->kept, &t->list);
        t->scope = NULL;
    }
    return t;
}

void aj_release(aj_tensor **t) {
    if (!t || !*t)
        return;
    if (--(*t)->refs <= 0) /* a scope's handle has none */
        aji_tensor_free(*t);
    *t = NULL;
}

aj_tensor *aj_assign(aj_tensor **var, aj_tensor *t) {
    if (!var)
        return NULL;
    if (!t)
        return *var;
    aj_keep(t);
    aj_release(var);
    return *var = t;
}

aji_value *aji_tensor_pending(aj_tensor *t, const char *user) {
    if (t->consumer)
        aj_raise(t->ctx, AJ_ERR_STATE,
                 "%s: this tensor was consumed by %s; use the result of that call, or the form without _inplace", user,
                 t->consumer);
    return t->value;
}

aji_value *aji_tensor_value(aj_tensor *t, const char *user) {
    aji_value *v = aji_tensor_pending(t, user);
    return v && aji_value_evaluate(v) == AJ_OK ? v : NULL;
}

const aji_meta *aji_tensor_meta(const aj_tensor *t) {
    return &t->meta;
}

aji_link *aji_tensor_link(const aj_tensor *t, int *out) {
    if (out)
        *out = t->link_out;
    return t->link;
}

void aji_tensor_set_link(aj_tensor *t, aji_link *link, int out) {
    aji_link *old = t->link;
    if (link)
        aji_link_retain(link);
    t->link = link;
    t->link_out = out;
    aji_link_release(old);
}

void aji_tensor_set_value(aj_tensor *t, aji_value *v) {
    aji_value_release(t->value);
    t->value = v;
    t->consumer = NULL;
}

aji_value *aji_tensor_consume(aj_tensor *t, const char *consumer) {
    aji_value *v = aji_tensor_pending(t, consumer);
    if (!v)
        return NULL;
    t->value = NULL;
    t->consumer = consumer;
    return v;
}

void aji_tensor_unconsume(aj_tensor *t, aji_value *v) {
    aji_tensor_set_value(t, v);
}

const char *aji_tensor_consumer(const aj_tensor *t) {
    return t->consumer;
}

const char *aji_tensor_made_by(const aj_tensor *t) {
    return t->made_by;
}

bool aji_are_uniform(int n, aj_tensor *const *t, aji_value **x) {
    const aj_tensor *first = t[0];
    for (int i = 0; i < n; i++) {
        const aj_tensor *other = t[i];
        if (!other || other->consumer || other->ctx != first->ctx || other->device != first->device ||
            other->meta.dtype != first->meta.dtype || !aji_same_shape(&other->meta, &first->meta))
            return false;
        x[i] = other->value;
    }
    return true;
}

aj_status aji_check_operand(aj_ctx *ctx, const char *op, aj_tensor *t) {
    if (t->ctx != ctx)
        return aj_raise(ctx, AJ_ERR_CONTEXT,
                        "%s: an operand made by %s belongs to another context; move its numbers with aj_data and aj_from_data",
                        op, t->made_by);
    return aji_tensor_pending(t, op) ? AJ_OK : AJ_ERR_STATE;
}

aj_ctx *aji_ctx_of(const char *op, int n, aj_tensor *const *t) {
    aj_ctx *ctx = NULL;
    int missing = -1;
    for (int i = 0; i < n; i++) {
        if (t[i] && !ctx)
            ctx = t[i]->ctx;
        if (!t[i] && missing < 0)
            missing = i;
    }
    if (missing < 0)
        return ctx;
    if (ctx)
        aj_raise(ctx, AJ_ERR_ARG, "%s: operand %d is NULL; expected a tensor", op, missing);
    return NULL;
}

aj_ctx *aj_tensor_ctx(const aj_tensor *t) {
    return t ? t->ctx : NULL;
}

int aj_ndim(const aj_tensor *t) {
    return t ? t->meta.ndim : -1;
}

int64_t aj_extent(const aj_tensor *t, int axis) {
    if (!t || aji_normalize_axis(t->ctx, "aj_extent", t->meta.ndim, &axis) != AJ_OK)
        return -1;
    return t->meta.shape[axis];
}

int64_t aj_numel(const aj_tensor *t) {
    return t ? aji_meta_numel(&t->meta) : -1;
}

aj_dtype aj_tensor_dtype(const aj_tensor *t) {
    return t ? t->meta.dtype : (aj_dtype)-1;
}

aj_device aj_tensor_device(const aj_tensor *t) {
    return t ? t->device : NULL;
}
