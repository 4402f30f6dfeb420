/*
 * Scopes: a stack in each context. The innermost one owns what is created.
 */
#include <stdio.h>

#include "tensor/tensor_private.h"

void aji_scope_init(aj_ctx *ctx, aj_scope *scope, aj_scope *parent) {
    scope->ctx = ctx;
    scope->parent = parent;
    scope->status = AJ_OK;
    scope->name[0] = '\0';
    aji_list_init(&scope->tensors);
    for (int i = 0; i < AJI_N_SLOTS; i++)
        if (ctx->layer[i] && ctx->layer[i]->scope_mark)
            ctx->layer[i]->scope_mark(ctx, scope->mark[i]);
    ctx->scope = scope;
}

aj_scope *aj_scope_begin(aj_ctx *ctx) {
    if (!ctx)
        return NULL;
    aj_scope *scope = aji_alloc(ctx, sizeof(*scope));
    if (!scope)
        return NULL;
    aji_scope_init(ctx, scope, ctx->scope);
    ctx->stat[AJ_STAT_SCOPES]++;
    return scope;
}

void aji_scope_clear(aj_scope *scope) {
    while (!aji_list_empty(&scope->tensors))
        aji_tensor_free((aj_tensor *)scope->tensors.next);
}

static bool is_open(const aj_ctx *ctx, const aj_scope *scope) {
    for (const aj_scope *s = ctx->scope; s; s = s->parent)
        if (s == scope)
            return true;
    return false;
}

static aj_status end_innermost(aj_ctx *ctx) {
    aj_scope *scope = ctx->scope;
    for (int i = AJI_N_SLOTS - 1; i >= 0; i--)
        if (ctx->layer[i] && ctx->layer[i]->scope_restore)
            ctx->layer[i]->scope_restore(ctx, scope->mark[i], scope);
    aji_scope_clear(scope);
    aj_status status = scope->status;
    ctx->scope = scope->parent;
    aji_free(ctx, scope, sizeof(*scope));
    ctx->stat[AJ_STAT_SCOPES]--;
    return status;
}

aj_status aj_scope_end(aj_scope *scope) {
    if (!scope)
        return AJ_ERR_ARG;
    aj_ctx *ctx = scope->ctx;
    if (scope == &ctx->root || !is_open(ctx, scope))
        return aj_raise(ctx, AJ_ERR_STATE, "aj_scope_end: this scope is not open");
    while (ctx->scope != scope)
        end_innermost(ctx);
    return end_innermost(ctx);
}

void aj_scope_name(aj_scope *scope, const char *format, ...) {
    if (!scope || !format)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(scope->name, sizeof(scope->name), format, args);
    va_end(args);
}

aj_scope *aji_ctx_scope(const aj_ctx *ctx) {
    return ctx->scope;
}

aj_scope *aji_scope_parent(const aj_scope *scope) {
    return scope->parent;
}

void *aji_scope_mark(aj_scope *scope, aji_slot slot) {
    return scope->mark[slot];
}

aji_handles aji_handles_begin(aj_ctx *ctx) {
    return (aji_handles){ctx->scope, ctx->scope->tensors.prev};
}

void aji_handles_release(aji_handles h) {
    while (h.scope->tensors.prev != h.last)
        aji_tensor_free((aj_tensor *)h.scope->tensors.prev);
}

aj_tensor *aj_scope_return(aj_scope *scope, aj_tensor *t) {
    if (!scope || !t || t->scope != scope || !scope->parent)
        return t;
    aji_list_remove(&t->list);
    aji_list_append(&scope->parent->tensors, &t->list);
    t->scope = scope->parent;
    return t;
}
