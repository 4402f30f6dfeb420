/* Stacks of matrices, those along the axes before the last two: packed copies of them, and their factors by cuSOLVER. All between enter and leave. */
#ifndef AJI_CUDA_LINALG_H
#define AJI_CUDA_LINALG_H

#include "cuda/cuda_private.h"

static inline int64_t aji_n_rows(const aji_value *v) {
    return v->meta.shape[v->meta.ndim - 2];
}

static inline int64_t aji_n_columns(const aji_value *v) {
    return v->meta.shape[v->meta.ndim - 1];
}

/* ---- pack.c ---- */

/* New, contents undefined: the matrices lie one behind the other, each with its columns first, as cuSOLVER wants them, or row-major. NULL raised. */
aji_value *aji_cuda_matrices(aj_ctx *ctx, aj_device device, const aji_meta *meta, bool columns_first);
/* A copy. Matrices that repeat are copied once: extent 1 on their axes. NULL raised. */
aji_value *aji_cuda_packed(const aji_value *v, bool columns_first);
/* Which of packed's matrices is number p of a stack that it broadcasts to? */
int64_t aji_cuda_matrix_of(const aji_meta *packed, const aji_meta *stack, int64_t p);

/* ---- factors.c ---- */

/* Of `count` matrices of n rows, columns first, in the place of the matrices. */
typedef struct aji_factors {
    aji_cuda *d;
    aj_dtype dtype;
    int64_t n, count;
    char *matrices; /* the caller's */
    char *work;     /* device memory: the room that cuSOLVER wants, the pivots, the outcomes */
    size_t work_bytes, room;
    void *host; /* cuSOLVER may want some of the host's, too */
    size_t host_bytes;
    int64_t *pivots;
    int *info; /* one more than matrices: the last is that of aji_factors_solve */
} aji_factors;

/* Enqueue the factorisation. f has d, dtype, n, count, matrices; to be released in any case. */
aj_status aji_factors_lu(aji_factors *f);
aj_status aji_factors_cholesky(aji_factors *f); /* of the upper triangles; the lower ones hold anything afterwards */
/* Enqueue b = matrix^-1 b, n x columns, columns first. After aji_factors_lu. */
aj_status aji_factors_solve(const aji_factors *f, int64_t matrix, void *b, int64_t columns);
/* Wait for the outcomes of all: 0, or the number, from 1, of the pivot that is zero, of the leading minor that is not positive. NULL raised; the
 * caller frees it, count numbers. */
int *aji_factors_info(const aji_factors *f);
void aji_factors_release(aji_factors *f);

#endif
