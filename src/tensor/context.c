/*
 * Contexts: everything hangs on one; there is no global state.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tensor/tensor_private.h"

#define DEFAULT_GRACE 4.0    /* seconds */
#define CHECKED_TIMEOUT 60.0 /* in checked mode, unless another is given */

/* Large blocks lie in huge pages where the system has them: a pass over a field would else look up a page for each of its rows. */
static void *default_alloc(size_t bytes, size_t align, void *user) {
    (void)user;
#ifdef MADV_HUGEPAGE
    const size_t huge = (size_t)2 << 20;
    if (bytes >= huge) {
        void *memory = aligned_alloc(huge, (bytes + huge - 1) / huge * huge);
        if (memory) /* a hint: what is over the last whole page stays in small ones, and is not touched before it is used */
            (void)madvise(memory, bytes / huge * huge, MADV_HUGEPAGE);
        return memory;
    }
#endif
    return aligned_alloc(align, bytes);
}

static void default_free(void *memory, size_t bytes, void *user) {
    (void)bytes;
    (void)user;
    free(memory);
}

static void default_log(const char *line, void *user) {
    (void)user;
    fprintf(stderr, "%s\n", line);
}

static double seconds_from(const char *variable, double otherwise) {
    const char *text = getenv(variable);
    double seconds = text ? strtod(text, NULL) : 0;
    return seconds > 0 && isfinite(seconds) ? seconds : otherwise;
}

static void defaults_from_environment(aj_ctx_opts *o) {
    const char *pool = getenv("ADJOIN_POOL");
    if (!(o->grace > 0))
        o->grace = seconds_from("ADJOIN_GRACE", DEFAULT_GRACE);
    const char *check = getenv("ADJOIN_CHECK");
    if (check && strcmp(check, "0") != 0 && *check)
        o->checked = 1;
    if (!(o->timeout > 0))
        o->timeout = seconds_from("ADJOIN_TIMEOUT", o->checked ? CHECKED_TIMEOUT : 0);
    if (pool && strcmp(pool, "0") == 0)
        o->disable_pool = 1;
}

static bool fuses_by_environment(void) {
    const char *fuse = getenv("ADJOIN_FUSE");
    return !fuse || strcmp(fuse, "0") != 0;
}

aj_status aj_ctx_create(aj_ctx **ctx, const aj_ctx_opts *opts) {
    if (!ctx)
        return AJ_ERR_ARG;
    *ctx = NULL;
    aj_ctx_opts o = {.size = sizeof(o)};
    if (opts) {
        if (opts->size == 0 || opts->size > sizeof(o))
            return AJ_ERR_ARG;
        memcpy(&o, opts, opts->size);
        if (!o.alloc != !o.free)
            return AJ_ERR_ARG;
    }
    if (!o.alloc) {
        o.alloc = default_alloc;
        o.free = default_free;
    }
    if (!o.log)
        o.log = default_log;
    defaults_from_environment(&o);

    size_t bytes = (sizeof(aj_ctx) + 63) / 64 * 64;
    aj_ctx *c = o.alloc(bytes, 64, o.alloc_user);
    if (!c)
        return AJ_ERR_MEMORY;
    memset(c, 0, bytes);
    c->opts = o;
    c->pool.caches = aji_pool_open(&c->opts);
    c->fuse = fuses_by_environment();
    c->stat[AJ_STAT_ALLOCATIONS] = 1;
    c->cpu = (struct aji_device){.table = &aji_cpu_table, .ctx = c, .name = "cpu"};
    c->test = (struct aji_device){.table = &aji_test_table, .ctx = c, .name = "test"};
    c->rank = -1;
    aji_list_init(&c->kept);
    aji_scope_init(c, &c->root, NULL);
    *ctx = c;
    return AJ_OK;
}

/* One line for all that was left: "3 tensors: aj_param 2, aj_sum 1". */
static bool report_kept(aj_ctx *ctx) {
    if (aji_list_empty(&ctx->kept))
        return false;
    char line[1024] = "";
    size_t used = 0;
    int total = 0;
    for (aji_list *i = ctx->kept.next; i != &ctx->kept; i = i->next, total++) {
        const char *name = ((aj_tensor *)i)->made_by;
        bool seen = false;
        for (aji_list *j = ctx->kept.next; j != i; j = j->next)
            seen = seen || strcmp(((aj_tensor *)j)->made_by, name) == 0;
        int count = 0;
        for (aji_list *j = i; !seen && j != &ctx->kept; j = j->next)
            count += strcmp(((aj_tensor *)j)->made_by, name) == 0;
        if (!seen && used < sizeof(line))
            used += (size_t)snprintf(line + used, sizeof(line) - used, "%s%s %d", used ? ", " : "", name, count);
    }
    aji_ctx_log(ctx, "adjoin: aj_ctx_destroy: %d kept tensor%s never released, by operation: %s", total,
                total == 1 ? " was" : "s were", line);
    return true;
}

aj_status aj_ctx_destroy(aj_ctx **ctx) {
    if (!ctx || !*ctx)
        return AJ_OK;
    aj_ctx *c = *ctx;
    bool leaked = false;
    while (c->scope != &c->root)
        if (aj_scope_end(c->scope) != AJ_OK)
            continue;                          /* the context's own status is returned below */
    for (int i = AJI_N_SLOTS - 1; i >= 0; i--) /* a layer's destroy may still use those below it */
        if (c->layer[i])
            leaked = c->layer[i]->destroy(c) || leaked;
    leaked = report_kept(c) || leaked;
    aji_scope_clear(&c->root);
    while (!aji_list_empty(&c->kept))
        aji_tensor_free((aj_tensor *)c->kept.next);
    for (const struct aji_device *d = c->devices, *next; d; d = next) {
        next = d->next;
        d->table->destroy(d);
    }
    aj_status status = leaked ? AJ_ERR_LEAK : c->status;
    aji_pool_flush(c);
    c->opts.free(c, (sizeof(aj_ctx) + 63) / 64 * 64, c->opts.alloc_user);
    *ctx = NULL;
    return status;
}

int64_t aj_ctx_stat(const aj_ctx *ctx, aj_stat which) {
    return ctx && (unsigned)which <= AJ_STAT_DEVICE_PEAK_BYTES ? ctx->stat[which] : -1;
}

void aji_ctx_count(aj_ctx *ctx, aj_stat which, int64_t delta) {
    ctx->stat[which] += delta;
}

aji_layer *aji_ctx_layer(const aj_ctx *ctx, aji_slot slot) {
    return ctx->layer[slot];
}

void aji_ctx_set_layer(aj_ctx *ctx, aji_slot slot, aji_layer *layer) {
    ctx->layer[slot] = layer;
    /* Scopes that are open already must have something to go back to. */
    for (aj_scope *s = ctx->scope; s; s = s->parent)
        if (layer && layer->scope_mark)
            layer->scope_mark(ctx, s->mark[slot]);
}

void aji_ctx_add_device(aj_ctx *ctx, struct aji_device *device) {
    device->next = ctx->devices;
    ctx->devices = device;
}

aj_device aji_ctx_device(const aj_ctx *ctx, const char *name) {
    for (const struct aji_device *d = ctx->devices; d; d = d->next)
        if (strcmp(d->name, name) == 0)
            return d;
    return NULL;
}

void aji_ctx_set_rank(aj_ctx *ctx, int rank) {
    ctx->rank = rank;
}

const char *aji_ctx_enter(aj_ctx *ctx, const char *operation) {
    const char *before = ctx->operation;
    ctx->operation = operation;
    return before;
}

double aji_ctx_grace(const aj_ctx *ctx) {
    return ctx->opts.grace;
}

double aji_ctx_timeout(const aj_ctx *ctx) {
    return ctx->opts.timeout;
}

bool aji_ctx_checked(const aj_ctx *ctx) {
    return ctx->opts.checked;
}

bool aji_ctx_stages_mpi(const aj_ctx *ctx) {
    return ctx->stages_mpi;
}

aj_status aj_cuda_deactivate_aware_mpi(aj_ctx *ctx) {
    if (!ctx)
        return AJ_ERR_ARG;
    ctx->stages_mpi = true;
    return AJ_OK;
}

const char *aji_ctx_operation(const aj_ctx *ctx) {
    return ctx->operation ? ctx->operation : "adjoin";
}
