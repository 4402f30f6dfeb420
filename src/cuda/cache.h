/* Compiled kernels on disk, so that the next run, and the other ranks, need not compile them again. */
#ifndef AJI_CUDA_CACHE_H
#define AJI_CUDA_CACHE_H

#include "cuda/cuda_private.h"

/* The image that was kept for a key: NULL if there is none, or a damaged one. Nothing is raised but AJ_ERR_MEMORY. Freed by aji_free. */
char *aji_cuda_cache_read(aj_ctx *ctx, const char *key, size_t key_bytes, size_t *bytes);
/* Keep it. What cannot be written is not kept: that is no error. */
void aji_cuda_cache_write(const char *key, size_t key_bytes, const char *image, size_t bytes);
/* FNV-1a, 64 bits (Fowler, Noll, Vo; draft-eastlake-fnv): start with AJI_HASH_BEGIN. */
#define AJI_HASH_BEGIN 0xcbf29ce484222325u
uint64_t aji_cuda_hash(uint64_t hash, const void *data, size_t bytes);

#endif
