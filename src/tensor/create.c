/* Tensors from a rule: constants, ranges, random numbers. */
#include <math.h>

#include "tensor/cpu.h"

/* ---- constants ---- */

static aj_tensor *full(aj_ctx *ctx, const char *op, aj_dtype dtype, int ndim, const int64_t *shape, double value) {
    aji_meta meta;
    if (!ctx || aji_meta_set(ctx, op, &meta, dtype, ndim, shape) != AJ_OK)
        return NULL;
    aji_value *v = aji_value_full(ctx, aj_cpu(ctx), &meta, value);
    return v ? aji_tensor_wrap(v, op) : NULL;
}

aj_tensor *aj_zeros(aj_ctx *ctx, aj_dtype dtype, int ndim, const int64_t *shape) {
    return full(ctx, "aj_zeros", dtype, ndim, shape, 0);
}

aj_tensor *aj_ones(aj_ctx *ctx, aj_dtype dtype, int ndim, const int64_t *shape) {
    return full(ctx, "aj_ones", dtype, ndim, shape, 1);
}

aj_tensor *aj_full(aj_ctx *ctx, aj_dtype dtype, int ndim, const int64_t *shape, double value) {
    return full(ctx, "aj_full", dtype, ndim, shape, value);
}

aj_tensor *aj_scalar(aj_ctx *ctx, aj_dtype dtype, double value) {
    return full(ctx, "aj_scalar", dtype, 0, NULL, value);
}

/* ---- ranges ---- */

/* data[i] = x as an element of this dtype */
static void store(void *data, aj_dtype dtype, int64_t i, double x) {
    switch (dtype) {
    case AJ_F64:
        ((double *)data)[i] = x;
        break;
    case AJ_F32:
        ((float *)data)[i] = (float)x;
        break;
    case AJ_I64:
        ((int64_t *)data)[i] = AJI_SATURATE(int64_t, x, INT64_MIN, INT64_MAX);
        break;
    case AJ_I32:
        ((int32_t *)data)[i] = AJI_SATURATE(int32_t, x, INT32_MIN, INT32_MAX);
        break;
    case AJ_U8:
        ((uint8_t *)data)[i] = AJI_SATURATE(uint8_t, x, 0, UINT8_MAX);
        break;
    }
}

aj_tensor *aj_arange(aj_ctx *ctx, aj_dtype dtype, double start, double stop, double step) {
    if (!ctx)
        return NULL;
    if (step == 0 || !isfinite(start) || !isfinite(stop) || !isfinite(step)) {
        aj_raise(ctx, AJ_ERR_ARG, "aj_arange: start %g, stop %g, step %g; expected finite numbers, and a step that is not 0",
                 start, stop, step);
        return NULL;
    }
    double steps = ceil((stop - start) / step);
    if (steps > 0x1p62) {
        aj_raise(ctx, AJ_ERR_SHAPE, "aj_arange: start %g, stop %g, step %g give more elements than an int64_t counts", start,
                 stop, step);
        return NULL;
    }
    int64_t n = steps > 0 ? (int64_t)steps : 0;
    aji_meta meta;
    if (aji_meta_set(ctx, "aj_arange", &meta, dtype, 1, &n) != AJ_OK)
        return NULL;
    aji_value *v = aji_value_new(ctx, aj_cpu(ctx), &meta);
    if (!v)
        return NULL;
    void *data = aji_value_data(v);
    for (int64_t i = 0; i < n; i++)
        store(data, dtype, i, start + (double)i * step);
    return aji_tensor_wrap(v, "aj_arange");
}

/* ---- random numbers ---- */

/*
 * Philox 4x32-10: ten rounds on a counter of four words, with a key of two. Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy
 * as 1, 2, 3" (SC 2011), section 4 and its reference implementation Random123. The counter is the index of the element, the key is the
 * seed, so that each number depends on these two alone.
 */
static void philox(uint64_t seed, uint64_t index, uint64_t word[2]) {
    uint32_t c[4] = {(uint32_t)index, (uint32_t)(index >> 32), 0, 0};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53 * c[0], p1 = (uint64_t)0xCD9E8D57 * c[2];
        uint32_t next[4] = {(uint32_t)(p1 >> 32) ^ c[1] ^ key[0], (uint32_t)p1, (uint32_t)(p0 >> 32) ^ c[3] ^ key[1],
                            (uint32_t)p0};
        for (int i = 0; i < 4; i++)
            c[i] = next[i];
        key[0] += 0x9E3779B9; /* the golden ratio */
        key[1] += 0xBB67AE85; /* sqrt(3) - 1 */
    }
    word[0] = (uint64_t)c[1] << 32 | c[0];
    word[1] = (uint64_t)c[3] << 32 | c[2];
}

/* In [0, 1): the upper 53 bits, which a double holds exactly. */
static double unit_interval(uint64_t word) {
    return (double)(word >> 11) * 0x1p-53;
}

static double uniform_f64(const uint64_t word[2]) {
    return unit_interval(word[0]);
}

/* The upper 24 bits of the same number: rounded, it might become 1. */
static double uniform_f32(const uint64_t word[2]) {
    return (double)(word[0] >> 40) * 0x1p-24;
}

/* Box and Muller, "A note on the generation of random normal deviates" (1958); 1 - u is in (0, 1], so that its logarithm is finite. */
static double normal(const uint64_t word[2]) {
    return sqrt(-2 * log(1 - unit_interval(word[0]))) * cos(2 * 3.14159265358979323846 * unit_interval(word[1]));
}

static aj_tensor *random_numbers(aj_ctx *ctx, const char *op, aj_dtype dtype, int ndim, const int64_t *shape, uint64_t seed,
                                 double (*draw)(const uint64_t word[2])) {
    aji_meta meta;
    if (!ctx || aji_meta_set(ctx, op, &meta, dtype, ndim, shape) != AJ_OK)
        return NULL;
    if (!aji_dtype_is_float(dtype)) {
        aj_raise(ctx, AJ_ERR_DTYPE, "%s: dtype %s; expected f64 or f32; use aj_cast on the result", op, aj_dtype_name(dtype));
        return NULL;
    }
    aji_value *v = aji_value_new(ctx, aj_cpu(ctx), &meta);
    if (!v)
        return NULL;
    void *data = aji_value_data(v);
    int64_t n = aji_meta_numel(&meta);
    for (int64_t i = 0; i < n; i++) {
        uint64_t word[2];
        philox(seed, (uint64_t)i, word);
        store(data, dtype, i, draw(word));
    }
    return aji_tensor_wrap(v, op);
}

aj_tensor *aj_uniform(aj_ctx *ctx, aj_dtype dtype, int ndim, const int64_t *shape, uint64_t seed) {
    return random_numbers(ctx, "aj_uniform", dtype, ndim, shape, seed, dtype == AJ_F32 ? uniform_f32 : uniform_f64);
}

aj_tensor *aj_normal(aj_ctx *ctx, aj_dtype dtype, int ndim, const int64_t *shape, uint64_t seed) {
    return random_numbers(ctx, "aj_normal", dtype, ndim, shape, seed, normal);
}
