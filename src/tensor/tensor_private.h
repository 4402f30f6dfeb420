/*
 * The structs that stay inside src/tensor: context, scope, handle, storage.
 */
#ifndef AJI_TENSOR_PRIVATE_H
#define AJI_TENSOR_PRIVATE_H

#include <string.h>

#include "tensor/tensor_internal.h"

/* Intrusive doubly linked list with a sentinel: O(1) removal, no allocation. */
typedef struct aji_list {
    struct aji_list *next, *prev;
} aji_list;

static inline void aji_list_init(aji_list *head) {
    head->next = head->prev = head;
}
static inline bool aji_list_empty(const aji_list *head) {
    return head->next == head;
}
static inline void aji_list_append(aji_list *head, aji_list *item) {
    item->prev = head->prev;
    item->next = head;
    head->prev->next = item;
    head->prev = item;
}
static inline void aji_list_remove(aji_list *item) {
    item->prev->next = item->next;
    item->next->prev = item->prev;
    item->next = item->prev = item;
}

/* A counted block of memory: of a device, or the user's. */
typedef enum aji_owner { AJI_OWNED, AJI_WITHIN, AJI_ADOPTED, AJI_BORROWED } aji_owner; /* WITHIN: in the block of the header */
struct aji_storage {
    int refs;
    aji_owner owner;
    aj_ctx *ctx;
    aj_device device;
    void *data;
    size_t bytes;
    void (*deleter)(void *data, void *user); /* adopted */
    void *user;
};
aji_storage *aji_storage_retain(aji_storage *s);
void aji_storage_release(aji_storage *s);
/* A contiguous value on the whole of a storage; takes over the reference, also on failure. NULL in, NULL out. */
aji_value *aji_value_over(aji_storage *storage, const aji_meta *meta);
/* A number as the bytes of one element, saturated, and back. */
void aji_encode(aj_dtype dtype, double value, unsigned char bytes[8]);
double aji_decode(aj_dtype dtype, const void *data);
/* Put a copy of its own in the place of user memory. */
aj_status aji_storage_own(aji_storage *s);

/* A handle. It sits in the list of its scope, or in the context's list of kept handles. */
struct aj_tensor {
    aji_list list; /* first: a list item is the handle */
    aj_ctx *ctx;
    aj_scope *scope; /* NULL: kept */
    int refs;        /* of a kept handle: how often */
    int link_out;
    aji_link *link;
    aji_value *value; /* NULL after consumption */
    aji_meta meta;
    aj_device device;
    const char *made_by, *consumer;
};

#define AJI_SCOPE_NAME 64
#define AJI_SCOPE_MARK 32
struct aj_scope {
    aj_ctx *ctx;
    aj_scope *parent;
    aji_list tensors;
    aj_status status; /* first error since its begin */
    char name[AJI_SCOPE_NAME];
    _Alignas(16) unsigned char mark[AJI_N_SLOTS][AJI_SCOPE_MARK]; /* what the layers above put back at its end */
};

/* The pool: free blocks by size class (pool.c). */
/* Up to SMALL bytes there is a class for each multiple of the alignment. */
enum { AJI_POOL_ALIGNMENT = 64, AJI_POOL_SMALL = 1024 };
typedef struct aji_pool {
    bool caches; /* else all lists are empty */
    void *free_list[AJI_POOL_CLASSES];
} aji_pool;

#define AJI_ERROR_TEXT 8192
struct aj_ctx {
    aj_ctx_opts opts;
    aji_pool pool;
    int64_t stat[AJ_STAT_DEVICE_PEAK_BYTES + 1];
    int64_t visits;  /* traversals of pending values so far */
    bool fuse;       /* elementwise work is left pending, and evaluated together */
    bool stages_mpi; /* MPI is not given device memory */
    struct aji_device cpu, test;
    const struct aji_device *devices; /* those that were added */
    aj_scope root, *scope;
    aji_list kept;
    aji_layer *layer[AJI_N_SLOTS];
    int rank;              /* -1: unknown */
    const char *operation; /* the one that runs, for messages; NULL: none */
    aj_status status;
    int64_t error_epoch;
    char error[AJI_ERROR_TEXT];
};

bool aji_pool_open(const aj_ctx_opts *opts); /* does it cache? */
void aji_pool_flush(aj_ctx *ctx);            /* give the cached blocks back to the allocator */

/* aji_alloc and aji_free for a constant size of at most AJI_POOL_SMALL bytes, in a few instructions where the pool has a block. */
static inline void *aji_alloc_small(aj_ctx *ctx, size_t bytes) {
    size_t class = (bytes - 1) / AJI_POOL_ALIGNMENT;
    void *memory = ctx->pool.free_list[class];
    if (!memory)
        return aji_alloc(ctx, bytes);
    memcpy(&ctx->pool.free_list[class], memory, sizeof(void *));
    ctx->stat[AJ_STAT_CACHED_BYTES] -= (int64_t)(class + 1) * AJI_POOL_ALIGNMENT;
    return memory;
}

static inline void aji_free_small(aj_ctx *ctx, void *memory, size_t bytes) {
    size_t class = (bytes - 1) / AJI_POOL_ALIGNMENT;
    if (!ctx->pool.caches) {
        aji_free(ctx, memory, bytes);
        return;
    }
    memcpy(memory, &ctx->pool.free_list[class], sizeof(void *));
    ctx->pool.free_list[class] = memory;
    ctx->stat[AJ_STAT_CACHED_BYTES] += (int64_t)(class + 1) * AJI_POOL_ALIGNMENT;
}

void aji_scope_init(aj_ctx *ctx, aj_scope *scope, aj_scope *parent);
void aji_scope_clear(aj_scope *scope); /* release what it owns */
void aji_tensor_free(aj_tensor *t);

#endif
