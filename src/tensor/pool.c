/*
 * All memory of a context, through one caching pool: fresh pages cost more than the arithmetic on them, and nodes and handles come and go by the
 * thousand. A block belongs to a size class and goes to its class' free list when freed. Sizes are passed at free, so
 * that blocks carry no header.
 */
#include <stdlib.h>
#include <string.h>

#include "tensor/tensor_private.h"

#if defined(__SANITIZE_ADDRESS__)
#define POOL_HIDES_ERRORS 1 /* a cached block would hide a use after free */
#else
#define POOL_HIDES_ERRORS 0
#endif

/* Behind the small classes there are four to each power of two. */
enum { ALIGNMENT = AJI_POOL_ALIGNMENT, SMALL = AJI_POOL_SMALL, SMALL_CLASSES = SMALL / ALIGNMENT, SMALL_LOG2 = 10 };

/* The class of a size, and the size that blocks of that class have. */
static inline int size_class(size_t bytes, size_t *block) {
    if (bytes <= SMALL) {
        int class = bytes > 0 ? (int)((bytes - 1) / ALIGNMENT) : 0;
        *block = (size_t)(class + 1) * ALIGNMENT;
        return class;
    }
    int log2 = 63 - __builtin_clzll((unsigned long long)(bytes - 1)); /* 2^log2 < bytes <= 2^(log2+1) */
    size_t quarter = (size_t)1 << (log2 - 2);
    int k = (int)((bytes - 1) / quarter) - 3; /* 1 ... 4 quarters above 2^log2 */
    *block = ((size_t)1 << log2) + (size_t)k * quarter;
    return SMALL_CLASSES + (log2 - SMALL_LOG2) * 4 + k - 1;
}

int aji_pool_class(size_t bytes, size_t *block) {
    return size_class(bytes, block);
}

bool aji_pool_open(const aj_ctx_opts *opts) {
    return !POOL_HIDES_ERRORS && !opts->disable_pool;
}

static void *allocate(aj_ctx *ctx, size_t block) {
    ctx->stat[AJ_STAT_ALLOCATIONS]++;
    return ctx->opts.alloc(block, ALIGNMENT, ctx->opts.alloc_user);
}

/* A block that the pool does not have. */
static void *allocate_block(aj_ctx *ctx, size_t block) {
    void *memory = allocate(ctx, block);
    if (!memory && ctx->stat[AJ_STAT_CACHED_BYTES] > 0) {
        aji_pool_flush(ctx);
        memory = allocate(ctx, block);
    }
    if (!memory)
        aj_raise(ctx, AJ_ERR_MEMORY, "adjoin: out of memory: the allocator refused %zu bytes (%lld bytes of tensors are alive)",
                 block, (long long)ctx->stat[AJ_STAT_LIVE_BYTES]);
    return memory;
}

void *aji_alloc(aj_ctx *ctx, size_t bytes) {
    if (bytes > SIZE_MAX / 4) {
        aj_raise(ctx, AJ_ERR_MEMORY, "adjoin: %zu bytes are more than a process can address", bytes);
        return NULL;
    }
    size_t block;
    int class = size_class(bytes, &block);
    void *memory = ctx->pool.free_list[class];
    if (!memory)
        return allocate_block(ctx, block);
    memcpy(&ctx->pool.free_list[class], memory, sizeof(void *));
    ctx->stat[AJ_STAT_CACHED_BYTES] -= (int64_t)block;
    return memory;
}

void *aji_calloc(aj_ctx *ctx, size_t bytes) {
    void *memory = aji_alloc(ctx, bytes);
    return memory ? memset(memory, 0, bytes) : NULL;
}

void aji_free(aj_ctx *ctx, void *memory, size_t bytes) {
    if (!memory)
        return;
    size_t block;
    int class = size_class(bytes, &block);
    if (!ctx->pool.caches) {
        ctx->opts.free(memory, block, ctx->opts.alloc_user);
        return;
    }
    memcpy(memory, &ctx->pool.free_list[class], sizeof(void *));
    ctx->pool.free_list[class] = memory;
    ctx->stat[AJ_STAT_CACHED_BYTES] += (int64_t)block;
}

static size_t class_size(int class) {
    if (class < SMALL_CLASSES)
        return (size_t)(class + 1) * ALIGNMENT;
    int log2 = (class - SMALL_CLASSES) / 4 + SMALL_LOG2, k = (class - SMALL_CLASSES) % 4 + 1;
    return ((size_t)1 << log2) + (size_t)k * ((size_t)1 << (log2 - 2));
}

void aji_pool_flush(aj_ctx *ctx) {
    for (int class = 0; class < AJI_POOL_CLASSES; class ++) {
        size_t block = class_size(class);
        for (void *memory = ctx->pool.free_list[class], *next; memory; memory = next) {
            memcpy(&next, memory, sizeof(void *));
            ctx->opts.free(memory, block, ctx->opts.alloc_user);
        }
        ctx->pool.free_list[class] = NULL;
    }
    ctx->stat[AJ_STAT_CACHED_BYTES] = 0;
}

aj_status aji_grow(aj_ctx *ctx, void **items, int64_t *capacity, int64_t wanted, size_t size) {
    if (wanted <= *capacity)
        return AJ_OK;
    int64_t larger = *capacity + *capacity / 2 + 8;
    if (larger < wanted)
        larger = wanted;
    void *memory = aji_alloc(ctx, (size_t)larger * size);
    if (!memory)
        return AJ_ERR_MEMORY;
    if (*items)
        memcpy(memory, *items, (size_t)*capacity * size);
    aji_free(ctx, *items, (size_t)*capacity * size);
    *items = memory;
    *capacity = larger;
    return AJ_OK;
}
