/*
 * Errors: the context keeps the first one in full. aj_raise is the only function that sets one.
 */
#include <stdio.h>
#include <string.h>

#if defined(__GLIBC__)
#include <execinfo.h>
#include <stdlib.h>
#endif

#include "tensor/tensor_private.h"

const char *aj_status_name(aj_status status) {
    static const char *const names[] = {"AJ_OK",         "AJ_ERR_ARG",   "AJ_ERR_SHAPE",  "AJ_ERR_DTYPE",       "AJ_ERR_CONTEXT",
                                        "AJ_ERR_DEVICE", "AJ_ERR_STATE", "AJ_ERR_MEMORY", "AJ_ERR_UNSUPPORTED", "AJ_ERR_NUMERIC",
                                        "AJ_ERR_MPI",    "AJ_ERR_PEER",  "AJ_ERR_IO",     "AJ_ERR_LEAK",        "AJ_ERR_USER"};
    return (unsigned)status < sizeof(names) / sizeof(*names) ? names[status] : "unknown status";
}

/* Text that is appended piece by piece and cut where the buffer ends. */
typedef struct text {
    char *data;
    size_t used, size;
} text;

static void append(text *t, const char *format, ...) AJ_PRINTF(2, 3);
static void append(text *t, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(t->data + t->used, t->size - t->used, format, args);
    va_end(args);
    if (n > 0)
        t->used = (size_t)n < t->size - t->used ? t->used + (size_t)n : t->size - 1;
}

/* Outermost scope first: "step 512 > line search". */
static void append_scopes(text *t, const aj_scope *scope) {
    if (!scope)
        return;
    append_scopes(t, scope->parent);
    if (scope->name[0])
        append(t, "%s%s", t->data[t->used - 1] == '\n' ? "  in scope: " : " > ", scope->name);
}

static void append_backtrace(text *t) {
#if defined(__GLIBC__)
    void *frames[24];
    int n = backtrace(frames, 24);
    char **names = backtrace_symbols(frames, n);
    for (int i = 2; names && i < n; i++) /* 0 and 1 are this function and aj_raise */
        append(t, "  at %s\n", names[i]);
    free(names);
#else
    (void)t;
#endif
}

static void set_error(aj_ctx *ctx, aj_status status, const char *format, va_list args) {
    text t = {ctx->error, 0, sizeof(ctx->error)};
    int n = vsnprintf(t.data, t.size, format, args);
    t.used = n < 0 ? 0 : (size_t)n < t.size ? (size_t)n : t.size - 1;
    append(&t, " [%s", aj_status_name(status));
    if (ctx->operation && strncmp(ctx->error, ctx->operation, strlen(ctx->operation)) != 0)
        append(&t, ", in %s", ctx->operation);
    if (ctx->rank >= 0)
        append(&t, ", rank %d", ctx->rank);
    append(&t, "]\n");
    append_scopes(&t, ctx->scope);
    if (t.data[t.used - 1] != '\n')
        append(&t, "\n");
    append_backtrace(&t);
    if (t.used && t.data[t.used - 1] == '\n')
        t.data[t.used - 1] = '\0';
    ctx->status = status;
}

aj_status aj_raise(aj_ctx *ctx, aj_status status, const char *format, ...) {
    if (!ctx || status == AJ_OK || !format)
        return AJ_ERR_ARG;
    for (aj_scope *s = ctx->scope; s; s = s->parent)
        if (s->status == AJ_OK)
            s->status = status;
    if (ctx->status == AJ_OK) {
        va_list args;
        va_start(args, format);
        set_error(ctx, status, format, args);
        va_end(args);
    }
    return status;
}

void aji_ctx_replace_error(aj_ctx *ctx, aj_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    set_error(ctx, status, format, args);
    va_end(args);
}

void aji_ctx_amend_error(aj_ctx *ctx, const char *more) {
    char old[AJI_ERROR_TEXT];
    memcpy(old, ctx->error, sizeof(old));
    const char *rest = strchr(old, '\n');
    int line = rest ? (int)(rest - old) : (int)strlen(old);
    snprintf(ctx->error, sizeof(ctx->error), "%.*s\n%s%s", line, old, more, rest ? rest : "");
}

aj_status aj_ctx_status(const aj_ctx *ctx) {
    return ctx ? ctx->status : AJ_ERR_ARG;
}

const char *aj_ctx_error(const aj_ctx *ctx) {
    return ctx ? ctx->error : "";
}

void aj_ctx_clear_error(aj_ctx *ctx) {
    if (!ctx)
        return;
    ctx->status = AJ_OK;
    ctx->error[0] = '\0';
    ctx->error_epoch++;
    for (aj_scope *s = ctx->scope; s; s = s->parent)
        s->status = AJ_OK;
}

int64_t aji_ctx_error_epoch(const aj_ctx *ctx) {
    return ctx->error_epoch;
}

void aji_ctx_log(aj_ctx *ctx, const char *format, ...) {
    char line[AJI_ERROR_TEXT + 256];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    ctx->opts.log(line, ctx->opts.log_user);
}

const char *aji_shape_text(int ndim, const int64_t *shape, char out[160]) {
    text t = {out, 0, 160};
    append(&t, "(");
    for (int i = 0; i < ndim; i++)
        append(&t, i ? ", %lld" : "%lld", (long long)shape[i]);
    append(&t, ndim == 1 ? ",)" : ")");
    return out;
}
