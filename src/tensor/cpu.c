/* The CPU's device table, strided copies, and the walk over strided regions that all CPU files use. */
#include "tensor/cpu.h"

#include <stdlib.h>
#include <string.h>

void aji_walk_axes(aji_walk *walk, const aji_value *a, const aji_value *b, unsigned axes) {
    *walk = (aji_walk){.ndim = 0};
    for (int d = 0; d < a->meta.ndim; d++) {
        if (!(axes >> d & 1))
            continue;
        walk->shape[walk->ndim] = a->meta.shape[d];
        walk->strides[0][walk->ndim] = a->strides[d];
        walk->strides[1][walk->ndim++] = b ? b->strides[d] : 0;
    }
}

void aji_walk_coalesce(aji_walk *walk) {
    int last = -1; /* the last axis kept so far */
    for (int d = 0; d < walk->ndim; d++) {
        int64_t extent = walk->shape[d];
        if (extent == 1)
            continue;
        bool merge = last >= 0;
        for (int k = 0; k < 2 && merge; k++)
            merge = walk->strides[k][last] == walk->strides[k][d] * extent;
        if (!merge)
            last++;
        walk->shape[last] = merge ? walk->shape[last] * extent : extent;
        for (int k = 0; k < 2; k++)
            walk->strides[k][last] = walk->strides[k][d];
    }
    if (last < 0) {
        last = 0;
        walk->shape[0] = 1;
        walk->strides[0][0] = walk->strides[1][0] = 0;
    }
    walk->ndim = last + 1;
    aji_walk_seek(walk, 0);
}

static void swap_axes(aji_walk *walk, int a, int b) {
    int64_t extent = walk->shape[a];
    walk->shape[a] = walk->shape[b];
    walk->shape[b] = extent;
    for (int k = 0; k < 2; k++) {
        int64_t stride = walk->strides[k][a];
        walk->strides[k][a] = walk->strides[k][b];
        walk->strides[k][b] = stride;
    }
}

void aji_walk_sort(aji_walk *walk) {
    for (int d = 1; d < walk->ndim; d++)
        for (int e = d; e > 0 && llabs(walk->strides[0][e - 1]) < llabs(walk->strides[0][e]); e--)
            swap_axes(walk, e - 1, e);
}

int64_t aji_walk_numel(const aji_walk *walk) {
    int64_t numel = 1;
    for (int d = 0; d < walk->ndim; d++)
        numel *= walk->shape[d];
    return numel;
}

void aji_walk_seek(aji_walk *walk, int64_t position) {
    walk->offset[0] = walk->offset[1] = 0;
    for (int d = walk->ndim - 1; d >= 0; d--) {
        int64_t extent = walk->shape[d] > 0 ? walk->shape[d] : 1;
        walk->index[d] = position % extent;
        position /= extent;
        for (int k = 0; k < 2; k++)
            walk->offset[k] += walk->index[d] * walk->strides[k][d];
    }
}

#define COPY_ELEMENTS(bytes)                                                                                                     \
    for (int64_t i = 0; i < n; i++)                                                                                              \
    memcpy((char *)dst + i * dst_stride * (bytes), (const char *)src + i * src_stride * (bytes), (bytes))

void aji_copy_line(void *dst, int64_t dst_stride, const void *src, int64_t src_stride, int64_t n, size_t size) {
    if (dst_stride == 1 && src_stride == 1)
        memcpy(dst, src, (size_t)n * size);
    else if (size == 8)
        COPY_ELEMENTS(8);
    else if (size == 4)
        COPY_ELEMENTS(4);
    else
        COPY_ELEMENTS(1);
}

/* Two axes. If src is contiguous across dst's rows, small tiles keep the cache lines of both sides in use until they are done. */
static void copy_plane(char *dst, const char *src, const aji_walk *walk, size_t size) {
    int inner = walk->ndim - 1, outer = walk->ndim - 2;
    int64_t rows = walk->shape[outer], columns = walk->shape[inner];
    int64_t d0 = walk->strides[0][outer], d1 = walk->strides[0][inner];
    int64_t s0 = walk->strides[1][outer], s1 = walk->strides[1][inner];
    bool transposed = llabs(s0) < llabs(s1);
    int64_t tile_rows = transposed ? 32 : rows, tile_columns = transposed ? 32 : columns;
    for (int64_t r0 = 0; r0 < rows; r0 += tile_rows)
        for (int64_t c = 0; c < columns; c += tile_columns) {
            int64_t n = columns - c < tile_columns ? columns - c : tile_columns;
            for (int64_t r = r0; r < rows && r < r0 + tile_rows; r++)
                aji_copy_line(dst + (r * d0 + c * d1) * (int64_t)size, d1, src + (r * s0 + c * s1) * (int64_t)size, s1, n, size);
        }
}

void aji_copy_region(void *dst, const void *src, aji_walk *walk, size_t size) {
    if (aji_walk_numel(walk) == 0)
        return;
    aji_walk_sort(walk);
    aji_walk_coalesce(walk);
    int inner = walk->ndim - 1;
    if (inner == 0) {
        aji_copy_line(dst, walk->strides[0][0], src, walk->strides[1][0], walk->shape[0], size);
        return;
    }
    int best = inner - 1; /* the axis along which src moves least becomes the plane's other one */
    for (int d = 0; d < inner; d++)
        if (llabs(walk->strides[1][d]) < llabs(walk->strides[1][best]))
            best = d;
    swap_axes(walk, best, inner - 1);
    int64_t plane = walk->shape[inner - 1] * walk->shape[inner];
    aji_walk outside = *walk;
    outside.ndim = inner - 1;
    int64_t n_planes = aji_walk_numel(walk) / plane;
    if (outside.ndim == 0)
        aji_walk_coalesce(&outside);
    aji_walk_seek(&outside, 0);
    for (int64_t p = 0; p < n_planes; p++, aji_walk_advance(&outside, 1))
        copy_plane((char *)dst + outside.offset[0] * (int64_t)size, (const char *)src + outside.offset[1] * (int64_t)size, walk,
                   size);
}

static aj_status cpu_copy(aj_ctx *ctx, const aji_value *src, const aji_value *dst) {
    (void)ctx;
    aji_walk walk;
    aji_walk_axes(&walk, dst, src, AJI_ALL_AXES);
    aji_copy_region(aji_value_data(dst), aji_value_data(src), &walk, aj_dtype_size(dst->meta.dtype));
    return AJ_OK;
}

static void *cpu_alloc(aj_device device, size_t bytes) {
    return aji_alloc(device->ctx, bytes);
}

static void cpu_free(aj_device device, void *memory, size_t bytes) {
    aji_free(device->ctx, memory, bytes);
}

static aj_status cpu_memcpy(aj_device device, void *dst, const void *src, size_t bytes) {
    (void)device;
    if (bytes > 0)
        memcpy(dst, src, bytes);
    return AJ_OK;
}

static aj_status cpu_wait(aj_device device) {
    (void)device; /* every call has finished when it returns */
    return AJ_OK;
}

const aji_device_table aji_cpu_table = {
    .alloc = cpu_alloc,
    .free = cpu_free,
    .upload = cpu_memcpy,
    .download = cpu_memcpy,
    .copy = cpu_copy,
    .run = aji_cpu_run,
    .reduce = aji_cpu_reduce,
    .argument = aji_cpu_argument,
    .cumsum = aji_cpu_cumsum,
    .take = aji_cpu_take,
    .scatter_add = aji_cpu_scatter_add,
    .matmul = aji_cpu_matmul,
    .solve = aji_cpu_solve,
    .cholesky = aji_cpu_cholesky,
    .logdet = aji_cpu_logdet,
    .wait = cpu_wait,
};
