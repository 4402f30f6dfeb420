/*
 * Stacks of matrices: what the linear algebra has in common. The last two axes are a matrix, the axes before them count matrices.
 */
#ifndef AJI_MATRIX_H
#define AJI_MATRIX_H

#include "autograd/autograd_internal.h"

/* The operands and the result of a product as stacks: a vector a is a row, a vector b a column. */
typedef struct aji_stacks {
    aji_meta a, b, y;
} aji_stacks;

/* y: as many rows as a, as many columns as b, NumPy's rule for the axes before. AJ_ERR_SHAPE if the operands do not fit. */
aj_status aji_stacks_of(const aji_call *c, const char *op, aji_stacks *s);
/* out_meta[0] of a product: y without the axes that vectors do not have. */
aj_status aji_infer_product(aji_call *c, const char *op);
/* y = kernel(a, b) with both operands broadcast to y's stack */
aj_status aji_forward_product(aji_call *c, const char *op,
                              aj_status (*kernel)(const char *op, const aji_value *a, const aji_value *b, const aji_value *out));

/* AJ_ERR_SHAPE unless a is a stack of square matrices, AJ_ERR_DTYPE unless it is floating. */
aj_status aji_check_square(aj_ctx *ctx, const char *op, const aji_meta *a);
/* x in another shape of the same numel; x itself if it has it. NULL in gives NULL out. */
aj_tensor *aji_seen_as(aj_tensor *x, const aji_meta *shape);
/* value on the diagonal and 0 elsewhere, as large as one matrix of a, of its dtype and on its device: a constant. */
aj_tensor *aji_diagonal_like(aj_tensor *a, double value);
/* The transpose of each matrix. */
aj_tensor *aji_transposed(aj_tensor *x);

#endif
