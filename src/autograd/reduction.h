/* What the reductions share: their axes, their shape rule, and the way between an operand and its rows. */
#ifndef AJI_REDUCTION_H
#define AJI_REDUCTION_H

#include "autograd/autograd_internal.h"

/* The attr of a reduction. infer makes axis and mask from what was given. */
typedef struct aji_axes {
    const char *call; /* the public call, for errors: "aj_sum_axes" */
    bool all, keepdims;
    int n;            /* reduced axes */
    const int *given; /* the caller's n axes; not read after infer */
    int axis[AJ_MAX_NDIM];
    unsigned mask; /* the bits of the reduced axes */
} aji_axes;

/* AJ_ERR_ARG, or a->axis and a->mask. */
aj_status aji_axes_check(aj_ctx *ctx, aji_axes *a, int ndim);
/* The shape rule of a reduction with attr aji_axes; the dtype stays. */
aj_status aji_infer_reduction(aji_call *c);
/* The same for sums and products: of integers in i64. */
aj_status aji_infer_accumulation(aji_call *c);
/* The same, where an extremum is taken, which needs an entry. */
aj_status aji_infer_extremum(aji_call *c);
/* The same for f64 and f32 only. */
aj_status aji_infer_float_reduction(aji_call *c);
aj_status aji_forward_reduction(aji_call *c, aji_reduction kind); /* with AJI_OP_LAZY */
aj_status aji_forward_argument(aji_call *c, bool largest);
/* Call a reduction: attr for aj_NAME(x), attr for aj_NAME_axes. */
aj_tensor *aji_reduce_all(const aji_op *op, const char *call, aj_tensor *x);
aj_tensor *aji_reduce_axes(const aji_op *op, const char *call, aj_tensor *x, int n, const int *axes, bool keepdims);

/* How many entries reduce to one. */
double aji_reduced_count(const aji_meta *x, const aji_axes *a);
/* In a reduction's vjp: t, of the result's shape, with the reduced axes back as extents 1; the same, repeated to the operand's shape. */
aj_tensor *aji_with_axes(const aji_call *c, aj_tensor *t);
aj_tensor *aji_spread(const aji_call *c, aj_tensor *t);
/* x as a matrix: each row holds the entries that reduce to one, row-major. And back to the operand's shape. */
aj_tensor *aji_to_rows(const aji_call *c, aj_tensor *x);
aj_tensor *aji_from_rows(const aji_call *c, aj_tensor *rows);
/* The vjp of max and min: index = argmax or argmin. */
aj_status aji_extremum_vjp(aji_call *c, aj_tensor *(*index)(aj_tensor *x, int axis));

/* The forward of an operation of at most two operands that is a formula in other operations, with a vjp better than theirs: nothing is
 * recorded, no temporaries are left. */
aj_status aji_forward_formula(aji_call *c, aj_tensor *(*formula)(aj_tensor *const *x, const void *attr));
/* For formulas with exp: the largest entry along a->axis, extent 1, made finite; 0 of nothing. */
aj_tensor *aji_exp_shift(aj_tensor *x, const aji_axes *a);

#endif
