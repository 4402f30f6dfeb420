/*
 * The stand-in driver's memory. Each allocation has pages of its own, with a page that nobody may touch on both sides, and lies at their end; its addresses
 * are never given out again. So an access before or behind it, or after it was freed, is a fault.
 */
#include "cuda_standin_private.h"

#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, ALIGN = 256, FRESH = 0xff /* NaN */, CANARY = 0xa5 };
static const size_t capacity = (size_t)1 << 30; /* bytes of a device */

typedef struct block {
    struct block *next;
    unsigned char *at;
    size_t bytes;
    unsigned char *pages;
    size_t page_bytes;
    int device;   /* -1: pinned host memory */
    bool freeing; /* in the stream */
} block;

struct CUmemPoolHandle_st {
    int device;
};

static block *blocks;
static size_t used[STANDIN_DEVICES];

/* ---- blocks ---- */

static block *block_new(int device, size_t bytes) {
    block *b = malloc(sizeof(*b));
    size_t room = (bytes + ALIGN - 1) / ALIGN * ALIGN, page_bytes = (room + PAGE - 1) / PAGE * PAGE;
    unsigned char *all = mmap(NULL, page_bytes + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED || mprotect(all + PAGE, page_bytes, PROT_READ | PROT_WRITE) != 0)
        STANDIN_DIE("mmap of %zu bytes failed", bytes);
    *b = (block){blocks, all + PAGE + page_bytes - room, bytes, all + PAGE, page_bytes, device, false};
    memset(b->pages, CANARY, page_bytes);
    memset(b->at, FRESH, bytes);
    if (device >= 0)
        mprotect(b->pages, page_bytes, PROT_NONE);
    blocks = b;
    standin_hold((long)bytes);
    return b;
}

static block *find(const void *address, int device) {
    for (block *b = blocks; b; b = b->next)
        if ((const unsigned char *)address >= b->at && (const unsigned char *)address < b->at + b->bytes &&
            (b->device < 0) == (device < 0))
            return b;
    return NULL;
}

static void check_canary(const unsigned char *at, const unsigned char *end, const block *b) {
    for (; at < end; at++)
        if (*at != CANARY)
            STANDIN_DIE("something wrote %ld bytes from the begin of a block of %zu bytes", (long)(at - b->at), b->bytes);
}

/* Its addresses stay reserved. Its pages must be open. */
static void block_free(block *b) {
    check_canary(b->pages, b->at, b);
    check_canary(b->at + b->bytes, b->pages + b->page_bytes, b);
    if (mmap(b->pages, b->page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
        STANDIN_DIE("mmap failed");
    block **at = &blocks;
    while (*at != b)
        at = &(*at)->next;
    *at = b->next;
    standin_hold(-(long)b->bytes);
    free(b);
}

static void protect(int device, int how) {
    for (block *b = blocks; b; b = b->next)
        if (b->device == device)
            mprotect(b->pages, b->page_bytes, how);
}

void standin_memory_open(int device) {
    protect(device, PROT_READ | PROT_WRITE);
}

void standin_memory_close(int device) {
    protect(device, PROT_NONE);
}

bool standin_is_device_memory(const void *at) {
    return find(at, 0) != NULL;
}

bool standin_is_pinned(const void *at) {
    return find(at, -1) != NULL;
}

/* ---- pools ---- */

static CUresult in_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties) {
    BEGIN(cuMemPoolCreate);
    if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE || properties->location.id < 0 ||
        properties->location.id >= STANDIN_DEVICES)
        return CUDA_ERROR_INVALID_VALUE;
    *pool = malloc(sizeof(**pool));
    (*pool)->device = properties->location.id;
    standin_hold(1);
    return CUDA_SUCCESS;
}

static CUresult in_cuMemPoolDestroy(CUmemoryPool pool) {
    free(pool);
    standin_hold(-1);
    return (CUresult)standin_failure("cuMemPoolDestroy");
}

static CUresult in_cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
    BEGIN(cuMemPoolSetAttribute);
    return pool && value && attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult in_cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
    BEGIN(cuMemPoolTrimTo);
    (void)keep;
    return pool ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult in_cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream) {
    BEGIN_IN_CONTEXT(cuMemAllocFromPoolAsync);
    if (bytes == 0 || pool->device != standin_stream_device(stream))
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes > capacity - used[pool->device])
        return CUDA_ERROR_OUT_OF_MEMORY;
    used[pool->device] += bytes;
    *address = (CUdeviceptr)block_new(pool->device, bytes)->at;
    return CUDA_SUCCESS;
}

typedef struct freeing {
    block *block;
} freeing;

static void run_free(void *data) {
    block_free(((freeing *)data)->block);
}

static CUresult in_cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
    BEGIN_GIVING_BACK(cuMemFreeAsync);
    block *b = find((void *)address, 0);
    if (!b || (CUdeviceptr)b->at != address || b->freeing || b->device != standin_stream_device(stream))
        STANDIN_DIE("cuMemFreeAsync of %p, which is no allocation of the device, or was freed before", (void *)address);
    b->freeing = true;
    used[b->device] -= b->bytes;
    freeing *f = malloc(sizeof(*f));
    f->block = b;
    standin_enqueue(stream, run_free, f);
    return result;
}

/* ---- pinned memory ---- */

static CUresult in_cuMemHostAlloc(void **memory, size_t bytes, unsigned flags) {
    BEGIN_IN_CONTEXT(cuMemHostAlloc);
    (void)flags;
    if (bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    *memory = block_new(-1, bytes)->at;
    return CUDA_SUCCESS;
}

static CUresult in_cuMemFreeHost(void *memory) {
    BEGIN_GIVING_BACK(cuMemFreeHost);
    block *b = find(memory, -1);
    if (!b || b->at != memory)
        STANDIN_DIE("cuMemFreeHost of %p, which is no pinned memory, or was freed before", memory);
    block_free(b);
    return result;
}

/* ---- copies ---- */

typedef struct copy {
    void *to;
    const void *from;
    size_t bytes;
    int value;          /* of a memset, which has no `from` */
    int to_on, from_on; /* devices; -1: the host */
    const char *function;
} copy;

static void check_side(const copy *c, const void *at, int device) {
    const block *b = find(at, device);
    if (device < 0 && !b)
        return; /* pageable */
    if (!b || b->device != device || (const unsigned char *)at + c->bytes > b->at + b->bytes)
        STANDIN_DIE("%s: %zu bytes from %p lie in no live allocation of device %d", c->function, c->bytes, at, device);
}

void standin_check_device(CUstream stream, const char *function, const void *at, size_t bytes) {
    check_side(&(copy){.bytes = bytes, .function = function}, at, standin_stream_device(stream));
}

static void run_copy(void *data) {
    const copy *c = data;
    check_side(c, c->to, c->to_on);
    if (!c->from) {
        memset(c->to, c->value, c->bytes);
        return;
    }
    check_side(c, c->from, c->from_on);
    memcpy(c->to, c->from, c->bytes);
}

static CUresult enqueue_copy(CUstream stream, copy c) {
    if (c.bytes == 0)
        return CUDA_SUCCESS;
    if (!c.to)
        return CUDA_ERROR_INVALID_VALUE;
    copy *kept = malloc(sizeof(*kept));
    *kept = c;
    standin_enqueue(stream, run_copy, kept);
    return CUDA_SUCCESS;
}

static CUresult in_cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
    BEGIN_IN_CONTEXT(cuMemcpyHtoDAsync);
    if (bytes > 0 && !from)
        return CUDA_ERROR_INVALID_VALUE;
    return enqueue_copy(stream, (copy){(void *)to, from, bytes, 0, standin_stream_device(stream), -1, "cuMemcpyHtoDAsync"});
}

static CUresult in_cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
    BEGIN_IN_CONTEXT(cuMemcpyDtoHAsync);
    if (bytes > 0 && !from)
        return CUDA_ERROR_INVALID_VALUE;
    return enqueue_copy(stream, (copy){to, (const void *)from, bytes, 0, -1, standin_stream_device(stream), "cuMemcpyDtoHAsync"});
}

static CUresult in_cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    BEGIN_IN_CONTEXT(cuMemcpyDtoDAsync);
    int device = standin_stream_device(stream);
    if (bytes > 0 && !from)
        return CUDA_ERROR_INVALID_VALUE;
    return enqueue_copy(stream, (copy){(void *)to, (const void *)from, bytes, 0, device, device, "cuMemcpyDtoDAsync"});
}

static CUresult in_cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
    BEGIN_IN_CONTEXT(cuMemsetD8Async);
    return enqueue_copy(stream, (copy){(void *)to, NULL, bytes, value, standin_stream_device(stream), -1, "cuMemsetD8Async"});
}

void standin_memory(aji_cuda_api *api) {
    api->cuMemPoolCreate = in_cuMemPoolCreate;
    api->cuMemPoolDestroy = in_cuMemPoolDestroy;
    api->cuMemPoolSetAttribute = in_cuMemPoolSetAttribute;
    api->cuMemPoolTrimTo = in_cuMemPoolTrimTo;
    api->cuMemAllocFromPoolAsync = in_cuMemAllocFromPoolAsync;
    api->cuMemFreeAsync = in_cuMemFreeAsync;
    api->cuMemHostAlloc = in_cuMemHostAlloc;
    api->cuMemFreeHost = in_cuMemFreeHost;
    api->cuMemcpyHtoDAsync = in_cuMemcpyHtoDAsync;
    api->cuMemcpyDtoHAsync = in_cuMemcpyDtoHAsync;
    api->cuMemcpyDtoDAsync = in_cuMemcpyDtoDAsync;
    api->cuMemsetD8Async = in_cuMemsetD8Async;
}
