/* Tensors: creation, access to the numbers, user memory. */
#ifndef ADJOIN_TENSOR_H
#define ADJOIN_TENSOR_H

#include "context.h"

#define AJ_MAX_NDIM 8

/* AJ_SHAPE(4, 4, 2) stands for two arguments: the number of extents and a pointer to them (int64_t). */
/* clang-format off */
#ifdef __cplusplus
#include <initializer_list>
#define AJ_SHAPE(...)                                                       \
    static_cast<int>((std::initializer_list<int64_t>{__VA_ARGS__}).size()), \
        (std::initializer_list<int64_t>{__VA_ARGS__}).begin()
#else
#define AJ_SHAPE(...) (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]){__VA_ARGS__}
#endif
/* clang-format on */
#define AJ_SHAPE0 0, NULL /* no extents: a scalar */

#ifdef __cplusplus
extern "C" {
#endif

/* Element types. Only AJ_F64 and AJ_F32 are differentiable. There is no implicit promotion: see aj_cast. */
typedef enum aj_dtype { AJ_F64 = 0, AJ_F32 = 1, AJ_I64 = 2, AJ_I32 = 3, AJ_U8 = 4 } aj_dtype;

/* Bytes of one element, 0 for an unknown dtype. Collective: no. Since: 0.1. */
AJ_API size_t aj_dtype_size(aj_dtype dtype);
/* "f64", "f32", "i64", "i32", "u8", "?" for an unknown dtype. Collective: no. Since: 0.1. */
AJ_API const char *aj_dtype_name(aj_dtype dtype);

/*
 * Creation. Shapes are ndim extents >= 0 (an extent 0 is legal: no elements), ndim <= AJ_MAX_NDIM; ndim 0 is a scalar and shape may be NULL.
 * All return a tensor owned by the current scope, or NULL with AJ_ERR_ARG (ndim, dtype, negative extent, NULL data), AJ_ERR_DTYPE (random
 * integers), AJ_ERR_SHAPE (more elements than can be addressed) or AJ_ERR_MEMORY.
 * Collective: no. Differentiable: constants. Threads: one per context. Since: 0.1.
 */
/* y = a copy of data, row-major (the last axis varies fastest). */
AJ_API aj_tensor *aj_from_data(aj_ctx *ctx, aj_dtype dtype, int ndim, const int64_t *shape, const void *data);
/* y = data itself, not copied. With a deleter the library adopts the memory and calls deleter(data, user) exactly once when no tensor
 * and no graph needs it, also if this call fails. With deleter NULL the memory is borrowed: it must stay unchanged and allocated until
 * aj_unborrow, or until the tensor and all made from it are released. The library never writes into borrowed memory. */
AJ_API aj_tensor *aj_from_memory(aj_ctx *ctx, aj_dtype dtype, int ndim, const int64_t *shape, void *data,
                                 void (*deleter)(void *data, void *user), void *user);
/* Give borrowed memory back: computes what is pending on it and copies what this tensor, its views and a graph still need; afterwards the
 * memory is the caller's again and t is as usable as before. Release t and its views first to spare the copy.
 * AJ_ERR_ARG if t's memory was not borrowed, AJ_ERR_MEMORY (the memory stays borrowed). */
AJ_API aj_status aj_unborrow(aj_tensor *t);
AJ_API aj_tensor *aj_zeros(aj_ctx *ctx, aj_dtype dtype, int ndim, const int64_t *shape);              /* y = 0 */
AJ_API aj_tensor *aj_ones(aj_ctx *ctx, aj_dtype dtype, int ndim, const int64_t *shape);               /* y = 1 */
AJ_API aj_tensor *aj_full(aj_ctx *ctx, aj_dtype dtype, int ndim, const int64_t *shape, double value); /* y = value */
AJ_API aj_tensor *aj_scalar(aj_ctx *ctx, aj_dtype dtype, double value);                               /* y = value, no extents */
/* y[i] = start + i step, for i = 0 ... ceil((stop - start)/step) - 1; AJ_ERR_ARG for step 0 or a number that is not finite. */
AJ_API aj_tensor *aj_arange(aj_ctx *ctx, aj_dtype dtype, double start, double stop, double step);
/* y[i] uniform in [0, 1), a function of seed and of the row-major index i alone (counter-based): the same numbers on every rank, machine and
 * device. f64 or f32. Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), Philox 4x32-10. */
AJ_API aj_tensor *aj_uniform(aj_ctx *ctx, aj_dtype dtype, int ndim, const int64_t *shape, uint64_t seed);
/* y[i] standard normal, by the Box-Muller transform of the same counters. f64 or f32. */
AJ_API aj_tensor *aj_normal(aj_ctx *ctx, aj_dtype dtype, int ndim, const int64_t *shape, uint64_t seed);

/* Getters; legal on consumed tensors too. For NULL: NULL, -1, -1, -1, and (aj_dtype)-1. Collective: no. Since: 0.1. */
AJ_API aj_ctx *aj_tensor_ctx(const aj_tensor *t);
AJ_API int aj_ndim(const aj_tensor *t);
/* The extent along an axis; negative axes count from the end. -1 with AJ_ERR_ARG for an axis out of range. */
AJ_API int64_t aj_extent(const aj_tensor *t, int axis);
AJ_API int64_t aj_numel(const aj_tensor *t);
AJ_API aj_dtype aj_tensor_dtype(const aj_tensor *t);

/* Copy the numbers out, row-major. bytes must be numel times element size (AJ_ERR_ARG else). Collective: no. Since: 0.1. */
AJ_API aj_status aj_read(aj_tensor *t, void *out, size_t bytes) AJ_MUST_CHECK;
/* The one element as a double; NaN with an error (AJ_ERR_SHAPE) if there is not exactly one. Collective: no. Since: 0.1. */
AJ_API double aj_item(aj_tensor *t);
/* The numbers in host memory, contiguous, row-major, read-only. Borrowed: valid until the handle is released, consumed or set.
 * NULL with an error; a tensor without elements gives a valid pointer to nothing. AJ_ERR_DEVICE off the CPU. Collective: no. Since: 0.1. */
AJ_API const void *aj_data(aj_tensor *t);
/* Compute the value now, if it is pending. Collective: no. Since: 0.1. */
AJ_API aj_status aj_eval(aj_tensor *t);

#ifdef __cplusplus
}
#endif
#endif
