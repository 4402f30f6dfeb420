/*
 * Pinned host memory, which the device reads and writes by itself. To get it from the driver is slow, so blocks are kept, by size class. A block that is
 * given back may still be under a copy: an event behind it in the stream tells when it can be used again.
 */
#include <stdint.h>

#include "cuda/cuda_private.h"

enum { SMALLEST = 4096 }; /* bytes */
enum { MANY = 8 };        /* blocks of a class under copies: then the oldest is waited for, instead of pinning more */
static const size_t most_cached = 1u << 30; /* bytes that are kept for reuse */

/* What there is to know of a block. While somebody has the block, a record waits in `spare` for its return, so that this needs no memory. */
typedef struct record {
    struct record *next;
    void *memory;
    CUevent done; /* the stream has passed what used the block */
} record;

typedef struct queue {
    record *first, *last; /* oldest first */
    int n;
} queue;

struct aji_cuda_pinned {
    record *spare;
    size_t cached; /* bytes */
    queue queue[AJI_POOL_CLASSES];
};

static int class_of(size_t bytes, size_t *block) {
    return aji_pool_class(bytes > SMALLEST ? bytes : SMALLEST, block);
}

static record *pop(aji_cuda_pinned *p, queue *q, size_t block) {
    record *r = q->first;
    q->first = r->next;
    q->last = q->first ? q->last : NULL;
    q->n--;
    p->cached -= block;
    return r;
}

static void push(aji_cuda_pinned *p, queue *q, size_t block, record *r) {
    r->next = NULL;
    *(q->last ? &q->last->next : &q->first) = r;
    q->last = r;
    q->n++;
    p->cached += block;
}

static void record_free(aji_cuda *d, record *r) {
    (void)AJI_CU(d, cuEventDestroy, r->done);
    aji_free(d->device.ctx, r, sizeof(*r));
}

static record *record_new(aji_cuda *d) {
    record *r = aji_alloc(d->device.ctx, sizeof(*r));
    if (r && AJI_CU(d, cuEventCreate, &r->done, CU_EVENT_DISABLE_TIMING) != AJ_OK) {
        aji_free(d->device.ctx, r, sizeof(*r));
        return NULL;
    }
    return r;
}

/* The block that came back first, if the stream has passed its use; with many under way, once it has. *status: what the driver raised. */
static record *reuse(aji_cuda *d, queue *q, size_t block, aj_status *status) {
    if (!q->first)
        return NULL;
    CUresult code = d->api.cuEventQuery(q->first->done);
    if (code == CUDA_ERROR_NOT_READY && q->n < MANY)
        return NULL;
    *status =
        code == CUDA_ERROR_NOT_READY ? AJI_CU(d, cuEventSynchronize, q->first->done) : aji_cuda_check(d, "cuEventQuery", code);
    return *status == AJ_OK ? pop(d->pinned, q, block) : NULL;
}

/* Fresh memory from the driver. If it has none, what is cached is given back first. */
static void *allocate(aji_cuda *d, size_t block) {
    void *memory = NULL;
    CUresult code = d->api.cuMemHostAlloc(&memory, block, CU_MEMHOSTALLOC_PORTABLE);
    if (code == CUDA_ERROR_OUT_OF_MEMORY && d->pinned->cached > 0) {
        aji_cuda_pinned_flush(d);
        code = d->api.cuMemHostAlloc(&memory, block, CU_MEMHOSTALLOC_PORTABLE);
    }
    if (code == CUDA_ERROR_OUT_OF_MEMORY)
        aj_raise(
            d->device.ctx, AJ_ERR_MEMORY,
            "%s: out of memory: cuMemHostAlloc refused %zu bytes of pinned host memory, which copies from and to device %s go "
            "through; release tensors, or raise the limit on locked memory (ulimit -l)",
            aji_ctx_operation(d->device.ctx), block, d->device.name);
    else
        (void)aji_cuda_check(d, "cuMemHostAlloc", code);
    return code == CUDA_SUCCESS ? memory : NULL;
}

void *aji_cuda_pinned_take(aji_cuda *d, size_t bytes) {
    size_t block;
    int class = class_of(bytes, &block);
    if (!d->pinned)
        d->pinned = aji_calloc(d->device.ctx, sizeof(*d->pinned));
    if (!d->pinned)
        return NULL;
    aj_status status = AJ_OK;
    record *r = reuse(d, &d->pinned->queue[class], block, &status);
    void *memory = r ? r->memory : NULL;
    if (!r && status == AJ_OK && (r = record_new(d))) {
        memory = allocate(d, block);
        if (!memory) {
            record_free(d, r);
            return NULL;
        }
    }
    if (!memory)
        return NULL;
    r->next = d->pinned->spare;
    d->pinned->spare = r;
    return memory;
}

static void give_to_driver(aji_cuda *d, record *r) {
    (void)AJI_CU(d, cuMemFreeHost, r->memory);
    record_free(d, r);
}

void aji_cuda_pinned_give(aji_cuda *d, void *memory, size_t bytes) {
    size_t block;
    int class = class_of(bytes, &block);
    record *r = d->pinned->spare;
    d->pinned->spare = r->next;
    r->memory = memory;
    aj_status status = AJI_CU(d, cuEventRecord, r->done, d->stream);
    if (status == AJ_OK && d->pinned->cached + block <= most_cached) {
        push(d->pinned, &d->pinned->queue[class], block, r);
        return;
    }
    (void)AJI_CU(d, cuStreamSynchronize, d->stream);
    give_to_driver(d, r);
}

void aji_cuda_pinned_flush(aji_cuda *d) {
    if (!d->pinned || d->pinned->cached == 0)
        return;
    (void)AJI_CU(d, cuStreamSynchronize, d->stream);
    for (int class = 0; class < AJI_POOL_CLASSES; class ++) {
        queue *q = &d->pinned->queue[class];
        while (q->first)
            give_to_driver(d, pop(d->pinned, q, 0));
    }
    d->pinned->cached = 0;
}

void aji_cuda_pinned_destroy(aji_cuda *d) {
    aji_cuda_pinned_flush(d);
    aji_free(d->device.ctx, d->pinned, sizeof(*d->pinned));
    d->pinned = NULL;
}
