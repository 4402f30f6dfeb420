/*
 * What the CPU files share: walking over strided regions, the block kernels of the elementwise steps, the slots of aji_cpu_table.
 * Nothing here looks at value->device, so that the test device can use all of it.
 */
#ifndef AJI_CPU_H
#define AJI_CPU_H

#include "tensor/tensor_internal.h"

/* ---- walking (cpu.c) ---- */

#define AJI_ALL_AXES (~0u)

/* Row-major position in a region of ndim >= 1 axes with up to two operands: offset[k] is where operand k is, in elements. */
typedef struct aji_walk {
    int ndim;
    int64_t shape[AJ_MAX_NDIM], index[AJ_MAX_NDIM];
    int64_t strides[2][AJ_MAX_NDIM];
    int64_t offset[2];
} aji_walk;

/* At the begin of the region over some axes of a (those with their bit set in `axes`), with a as operand 0 and b, NULL or of the same ndim, as 1. */
void aji_walk_axes(aji_walk *walk, const aji_value *a, const aji_value *b, unsigned axes);
/* Leave out axes of extent 1, and merge neighbours that both operands cross with one stride; at least one axis remains. */
void aji_walk_coalesce(aji_walk *walk);
/* Another order of the same region: the axes along which operand 0 moves least come last. */
void aji_walk_sort(aji_walk *walk);
int64_t aji_walk_numel(const aji_walk *walk);
/* Go to the position with the given row-major number. */
void aji_walk_seek(aji_walk *walk, int64_t position);

/* How many elements there are from here to the end of the last axis: they lie strides[k][ndim - 1] apart. */
static inline int64_t aji_walk_room(const aji_walk *walk) {
    return walk->shape[walk->ndim - 1] - walk->index[walk->ndim - 1];
}

/* Move on by n <= room elements. */
static inline void aji_walk_advance(aji_walk *walk, int64_t n) {
    int d = walk->ndim - 1;
    walk->index[d] += n;
    walk->offset[0] += n * walk->strides[0][d];
    walk->offset[1] += n * walk->strides[1][d];
    for (; d > 0 && walk->index[d] == walk->shape[d]; d--) {
        walk->index[d] = 0;
        walk->index[d - 1]++;
        for (int k = 0; k < 2; k++)
            walk->offset[k] += walk->strides[k][d - 1] - walk->shape[d] * walk->strides[k][d];
    }
}

/* dst[i dst_stride] = src[i src_stride] for n elements of `size` bytes; strides in elements. */
void aji_copy_line(void *dst, int64_t dst_stride, const void *src, int64_t src_stride, int64_t n, size_t size);
/* The whole region, from its begin: dst is operand 0, src operand 1. The axes of walk may be reordered. */
void aji_copy_region(void *dst, const void *src, aji_walk *walk, size_t size);

/* ---- elementwise steps (cpu_steps.c) ---- */

#define AJI_BLOCK 512 /* elements of a block: what the first-level cache holds of each value of a program */

/* dst[i] = step(src[0][i], ...) for n elements. dst overlaps no source, but may be one whose entries have the size of the result's. */
typedef void aji_kernel(int n, void *dst, const void *const src[3], const double imm[2]);
aji_kernel *aji_step_kernel(const aji_step *step); /* NULL: the step does not exist for this dtype */
/* Instruction sets that kernels are compiled for, the last one being the best; what the machine has and ADJOIN_CPU allows is taken. */
typedef enum aji_cpu_set { AJI_CPU_BASE, AJI_CPU_AVX2, AJI_CPU_AVX512, AJI_N_CPU_SETS } aji_cpu_set;
const char *aji_cpu_set_name(aji_cpu_set set);
aji_kernel *aji_step_kernel_of(aji_cpu_set set, const aji_step *step); /* NULL also where the machine does not have the set */

/* ---- slots ---- */
aj_status aji_cpu_run(aj_ctx *ctx, const aji_program *program, const aji_value *const *in, const aji_value *const *out);
aj_status aji_cpu_reduce(aj_ctx *ctx, aji_reduction kind, const aji_program *program, int reduced, const aji_meta *shape,
                         unsigned axes, const aji_value *const *in, const aji_value *result, const aji_value *const *out);
aj_status aji_cpu_argument(aj_ctx *ctx, bool largest, const aji_value *x, int axis, const aji_value *out);
aj_status aji_cpu_cumsum(aj_ctx *ctx, const aji_value *x, int axis, const aji_value *out);
aj_status aji_cpu_take(aj_ctx *ctx, const char *op, const aji_value *x, int axis, const aji_value *index, const aji_value *out);
aj_status aji_cpu_scatter_add(aj_ctx *ctx, const char *op, const aji_value *value, int axis, const aji_value *index,
                              const aji_value *out);
aj_status aji_cpu_matmul(aj_ctx *ctx, const aji_value *a, const aji_value *b, const aji_value *out);
aj_status aji_cpu_solve(aj_ctx *ctx, const aji_value *a, const aji_value *b, const aji_value *out);
aj_status aji_cpu_cholesky(aj_ctx *ctx, const aji_value *a, const aji_value *out);
aj_status aji_cpu_logdet(aj_ctx *ctx, const aji_value *a, const aji_value *out);

#endif
