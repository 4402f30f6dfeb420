/*
 * Operations on tensors: elementwise, reductions, shape, linear algebra.
 *
 * Common to all. Results are new tensors, owned by the current scope; operands stay as they are (save those of _inplace calls). NULL in gives NULL
 * out. In the formulas y is the result, g the gradient with respect to y, gx, ga ... the gradients of the operands; only f64 and f32 are
 * differentiable. All operands of a call have one dtype, unless said otherwise, one device and one context. Negative axes count from the end.
 * Zero extents are legal. Errors of every call:
 *   AJ_ERR_ARG      an axis or another argument is out of its range, or one of several operands is NULL
 *   AJ_ERR_SHAPE    the shapes do not fit
 *   AJ_ERR_DTYPE    mixed dtypes, or a dtype the operation does not exist for: see aj_cast
 *   AJ_ERR_CONTEXT  operands of two contexts            AJ_ERR_DEVICE  operands on two devices
 *   AJ_ERR_STATE    an operand was consumed             AJ_ERR_MEMORY  an allocation failed
 *   AJ_ERR_UNSUPPORTED  the device has no such operation
 * Collective: no. Threads: one per context. Since: 0.1. The last line of each block repeats the first and says what is differentiable.
 */
#ifndef ADJOIN_OPS_H
#define ADJOIN_OPS_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Elementwise, two operands ---- */
/*
 * Arithmetic. Shapes broadcast as in NumPy: aligned at the last axis, an extent 1 is repeated; the gradient of a repeated operand is summed.
 * dtypes: all for add, sub, mul, minimum and maximum; f64 and f32 for div, pow and atan2. Errors: AJ_ERR_SHAPE, AJ_ERR_DTYPE (cast first).
 * Collective: no. Differentiable: a and b. Since: 0.1.
 */
AJ_API aj_tensor *aj_add(aj_tensor *a, aj_tensor *b); /* y = a + b; ga = g, gb = g */
AJ_API aj_tensor *aj_sub(aj_tensor *a, aj_tensor *b); /* y = a - b; ga = g, gb = -g */
AJ_API aj_tensor *aj_mul(aj_tensor *a, aj_tensor *b); /* y = a b; ga = g b, gb = g a */
AJ_API aj_tensor *aj_div(aj_tensor *a, aj_tensor *b); /* y = a / b; ga = g / b, gb = -g y / b */
/* y = a^b, C's pow; ga = g b a^(b-1), gb = g y log(a). Where a = 0 and b >= 0: gb = 0. Where a < 0 no derivative in b exists: gb = NaN. */
AJ_API aj_tensor *aj_pow(aj_tensor *a, aj_tensor *b);
/* y = the angle of the point (b, a), -pi ... pi; ga = g b / (a^2 + b^2), gb = -g a / (a^2 + b^2); NaN at the origin, where none exists. */
AJ_API aj_tensor *aj_atan2(aj_tensor *a, aj_tensor *b);
/* y = the smaller one, NaN if one is NaN; all of g goes to the operand chosen, to a when they are equal. */
AJ_API aj_tensor *aj_minimum(aj_tensor *a, aj_tensor *b);
/* y = the larger one, NaN if one is NaN; all of g goes to the operand chosen, to a when they are equal. */
AJ_API aj_tensor *aj_maximum(aj_tensor *a, aj_tensor *b);

/*
 * Comparisons: y = 1 where true, else 0, as u8. Shapes broadcast; all dtypes. NaN is unequal to everything. Errors: AJ_ERR_SHAPE, AJ_ERR_DTYPE.
 * Collective: no. Differentiable: none (piecewise constant). Since: 0.1.
 */
AJ_API aj_tensor *aj_eq(aj_tensor *a, aj_tensor *b); /* y = (a == b) */
AJ_API aj_tensor *aj_ne(aj_tensor *a, aj_tensor *b); /* y = (a != b) */
AJ_API aj_tensor *aj_lt(aj_tensor *a, aj_tensor *b); /* y = (a < b) */
AJ_API aj_tensor *aj_le(aj_tensor *a, aj_tensor *b); /* y = (a <= b) */
AJ_API aj_tensor *aj_gt(aj_tensor *a, aj_tensor *b); /* y = (a > b) */
AJ_API aj_tensor *aj_ge(aj_tensor *a, aj_tensor *b); /* y = (a >= b) */

/*
 * Choice: y = a where cond is not 0, else b; ga = g where cond, else 0; gb = 0 where cond, else g. What is not chosen gets gradient 0 even
 * where it is inf or NaN; but if it was made by a function with an infinite derivative there, as sqrt at 0, 0 times inf is NaN again: choose that
 * function's operand too. cond: u8; a and b of one dtype, any; the three shapes broadcast. Errors: AJ_ERR_SHAPE, AJ_ERR_DTYPE.
 * Collective: no. Differentiable: a and b. Since: 0.1.
 */
AJ_API aj_tensor *aj_where(aj_tensor *cond, aj_tensor *a, aj_tensor *b);

/* ---- Elementwise, one operand ---- */
/*
 * dtypes: all for neg, abs, square and relu; f64 and f32 for the others. Outside its domain a function is NaN or inf, as in C, and so is its
 * gradient. Errors: AJ_ERR_DTYPE.
 * Collective: no. Differentiable: x. Since: 0.1.
 */
AJ_API aj_tensor *aj_neg(aj_tensor *x);        /* y = -x; gx = -g */
AJ_API aj_tensor *aj_abs(aj_tensor *x);        /* y = |x|; gx = g sign(x), 0 at 0 */
AJ_API aj_tensor *aj_square(aj_tensor *x);     /* y = x^2; gx = 2 g x */
AJ_API aj_tensor *aj_sqrt(aj_tensor *x);       /* y = sqrt(x); gx = g / (2 y) */
AJ_API aj_tensor *aj_rsqrt(aj_tensor *x);      /* y = 1 / sqrt(x); gx = -g y^3 / 2 */
AJ_API aj_tensor *aj_reciprocal(aj_tensor *x); /* y = 1 / x; gx = -g y^2 */
AJ_API aj_tensor *aj_exp(aj_tensor *x);        /* y = exp(x); gx = g y */
AJ_API aj_tensor *aj_expm1(aj_tensor *x);      /* y = exp(x) - 1; gx = g exp(x) */
AJ_API aj_tensor *aj_log(aj_tensor *x);        /* y = log(x); gx = g / x */
AJ_API aj_tensor *aj_log1p(aj_tensor *x);      /* y = log(1 + x); gx = g / (1 + x) */
AJ_API aj_tensor *aj_sin(aj_tensor *x);        /* y = sin(x); gx = g cos(x) */
AJ_API aj_tensor *aj_cos(aj_tensor *x);        /* y = cos(x); gx = -g sin(x) */
AJ_API aj_tensor *aj_tan(aj_tensor *x);        /* y = tan(x); gx = g (1 + y^2) */
AJ_API aj_tensor *aj_asin(aj_tensor *x);       /* y = asin(x); gx = g / sqrt(1 - x^2) */
AJ_API aj_tensor *aj_acos(aj_tensor *x);       /* y = acos(x); gx = -g / sqrt(1 - x^2) */
AJ_API aj_tensor *aj_atan(aj_tensor *x);       /* y = atan(x); gx = g / (1 + x^2) */
AJ_API aj_tensor *aj_sinh(aj_tensor *x);       /* y = sinh(x); gx = g cosh(x) */
AJ_API aj_tensor *aj_cosh(aj_tensor *x);       /* y = cosh(x); gx = g sinh(x) */
AJ_API aj_tensor *aj_tanh(aj_tensor *x);       /* y = tanh(x); gx = g (1 - y^2) */
AJ_API aj_tensor *aj_sigmoid(aj_tensor *x);    /* y = 1 / (1 + exp(-x)); gx = g y (1 - y) */
AJ_API aj_tensor *aj_relu(aj_tensor *x);       /* y = max(x, 0); gx = g where x > 0, else 0 */
AJ_API aj_tensor *aj_softplus(aj_tensor *x);   /* y = log(1 + exp(x)); gx = g sigmoid(x) */
AJ_API aj_tensor *aj_erf(aj_tensor *x);        /* y = erf(x); gx = g 2 exp(-x^2) / sqrt(pi) */

/*
 * Rounding and sign; y has x's dtype. dtypes: f64 and f32; all for sign. Errors: AJ_ERR_DTYPE.
 * Collective: no. Differentiable: none (piecewise constant). Since: 0.1.
 */
AJ_API aj_tensor *aj_floor(aj_tensor *x); /* y = the largest whole number <= x */
AJ_API aj_tensor *aj_ceil(aj_tensor *x);  /* y = the smallest whole number >= x */
AJ_API aj_tensor *aj_round(aj_tensor *x); /* y = the nearest whole number, ties to even */
AJ_API aj_tensor *aj_sign(aj_tensor *x);  /* y = 1, 0 or -1 */

/*
 * With scalar arguments, which are constants. dtypes: all for scale, add_scalar and clamp; f64 and f32 for pow_scalar. For an integer x the
 * scalars must be numbers of its dtype. Errors: AJ_ERR_ARG (a scalar that is none; clamp: lo > hi or NaN), AJ_ERR_DTYPE.
 * Collective: no. Differentiable: x. Since: 0.1.
 */
AJ_API aj_tensor *aj_scale(aj_tensor *x, double factor);        /* y = factor x; gx = factor g */
AJ_API aj_tensor *aj_add_scalar(aj_tensor *x, double term);     /* y = x + term; gx = g */
AJ_API aj_tensor *aj_pow_scalar(aj_tensor *x, double exponent); /* y = x^p; gx = g p x^(p-1), 0 for p = 0 */
AJ_API aj_tensor *aj_clamp(aj_tensor *x, double lo, double hi); /* y = min(max(x, lo), hi); gx = g where lo <= x <= hi, else 0 */

/*
 * Another dtype: y = x as dtype; gx = g as x's dtype. From floating to integer: towards zero. All dtypes.
 * Errors: AJ_ERR_DTYPE (unknown dtype).
 * Collective: no. Differentiable: x, between f64 and f32; else y is a constant. Since: 0.1.
 */
AJ_API aj_tensor *aj_cast(aj_tensor *x, aj_dtype dtype);

/* ---- Reductions ---- */
/*
 * aj_NAME(x) reduces all axes: y is a scalar. aj_NAME_axes(x, n, axes, keepdims) reduces those n axes (n = 0: none, as NumPy's axis=()); with
 * keepdims they stay with extent 1, else they go.
 * dtypes: f64 and f32; all for sum, prod (integers give i64, which wraps around), max and min. f32 is accumulated in f64.
 * Errors: AJ_ERR_ARG (an axis out of range or given twice), AJ_ERR_DTYPE, AJ_ERR_SHAPE (max and min of nothing).
 * Collective: no. Differentiable: x. Since: 0.1.
 */
AJ_API aj_tensor *aj_sum(aj_tensor *x); /* y = sum of x, 0 of nothing; gx = g, repeated */
AJ_API aj_tensor *aj_sum_axes(aj_tensor *x, int n, const int *axes, bool keepdims);
AJ_API aj_tensor *aj_mean(aj_tensor *x); /* y = sum of x / number of entries, NaN of nothing; gx = g / number, repeated */
AJ_API aj_tensor *aj_mean_axes(aj_tensor *x, int n, const int *axes, bool keepdims);
/* y = product of x, 1 of nothing; gx_i = g (product of the others), exact at zeros too */
AJ_API aj_tensor *aj_prod(aj_tensor *x);
AJ_API aj_tensor *aj_prod_axes(aj_tensor *x, int n, const int *axes, bool keepdims);
AJ_API aj_tensor *aj_max(aj_tensor *x); /* y = largest entry, NaN if there is one; g goes to the first such entry, row-major */
AJ_API aj_tensor *aj_max_axes(aj_tensor *x, int n, const int *axes, bool keepdims);
AJ_API aj_tensor *aj_min(aj_tensor *x); /* y = smallest entry, NaN if there is one; g goes to the first such entry, row-major */
AJ_API aj_tensor *aj_min_axes(aj_tensor *x, int n, const int *axes, bool keepdims);
/* y = sqrt(sum of x^2), scaled: it over- and underflows only if y does; gx = g x / y, 0 where y = 0 */
AJ_API aj_tensor *aj_norm(aj_tensor *x);
AJ_API aj_tensor *aj_norm_axes(aj_tensor *x, int n, const int *axes, bool keepdims);

/*
 * Where the extremum is: y = its index along axis, i64, the first one of equals, of the first NaN if there is one; the axis goes. All dtypes.
 * Errors: AJ_ERR_ARG (axis), AJ_ERR_SHAPE (the axis has extent 0).
 * Collective: no. Differentiable: none (piecewise constant). Since: 0.1.
 */
AJ_API aj_tensor *aj_argmax(aj_tensor *x, int axis);
AJ_API aj_tensor *aj_argmin(aj_tensor *x, int axis);

/*
 * Scalar product: y = sum_i a_i b_i, a scalar; ga = g b, gb = g a. a, b: one axis, one length. All dtypes; integers give i64.
 * Errors: AJ_ERR_SHAPE, AJ_ERR_DTYPE.
 * Collective: no. Differentiable: a and b. Since: 0.1.
 */
AJ_API aj_tensor *aj_dot(aj_tensor *a, aj_tensor *b);

/*
 * Along one axis, f64 and f32, shifted so that nothing overflows. Errors: AJ_ERR_ARG (axis), AJ_ERR_DTYPE.
 * Collective: no. Differentiable: x. Since: 0.1.
 */
/* y = log(sum exp(x)), the axis goes; gx = g exp(x - y). Where all x are -inf, and of nothing: y = -inf, gx = 0. */
AJ_API aj_tensor *aj_logsumexp(aj_tensor *x, int axis);
/* y = exp(x) / sum exp(x), like x; gx = y (g - sum g y). NaN where all x are -inf. */
AJ_API aj_tensor *aj_softmax(aj_tensor *x, int axis);

/*
 * Running sum along an axis: y_i = sum_{j <= i} x_j, x's shape; gx_j = sum_{i >= j} g_i. All dtypes; integers give i64.
 * Errors: AJ_ERR_ARG (axis).
 * Collective: no. Differentiable: x. Since: 0.1.
 */
AJ_API aj_tensor *aj_cumsum(aj_tensor *x, int axis);

/* ---- Shape: all dtypes. Views where the strides allow it, which costs no copy. ---- */
/*
 * Other shapes for the same numbers; the gradient takes the way back. Errors: AJ_ERR_SHAPE, AJ_ERR_ARG (axis, ndim).
 * Collective: no. Differentiable: x. Since: 0.1.
 */
/* y = the entries of x, row-major, in the shape given, of the same number of entries; gx = g in x's shape. One extent may be -1: what is left. */
AJ_API aj_tensor *aj_reshape(aj_tensor *x, int ndim, const int64_t *shape);
/* y = x with two axes exchanged; gx = g with them exchanged. */
AJ_API aj_tensor *aj_transpose(aj_tensor *x, int axis0, int axis1);
/* y's axis i is x's axis axes[i]; axes holds each of x's axes once; gx = g permuted back. */
AJ_API aj_tensor *aj_permute(aj_tensor *x, const int *axes);
/* y = x repeated to the shape given, by the rules of broadcasting; gx = g summed over what was repeated. */
AJ_API aj_tensor *aj_broadcast_to(aj_tensor *x, int ndim, const int64_t *shape);
/* y = x without this axis of extent 1; AJ_ERR_SHAPE if it has another. gx = g with it. */
AJ_API aj_tensor *aj_squeeze(aj_tensor *x, int axis);
/* y = x with a new axis of extent 1, which is y's axis `axis`; gx = g without it. */
AJ_API aj_tensor *aj_unsqueeze(aj_tensor *x, int axis);
/* y = x in reverse order along an axis; gx = g in reverse order. */
AJ_API aj_tensor *aj_flip(aj_tensor *x, int axis);
/* y_{(i + shift) mod n} = x_i along an axis of extent n, any shift; gx = g rolled back. */
AJ_API aj_tensor *aj_roll(aj_tensor *x, int axis, int64_t shift);

/*
 * Parts along one axis, as Python's start:stop:step: negative start and stop count from the end, both are cut to the extent (so INT64_MAX and
 * INT64_MIN reach either end), step may be negative, not 0. Errors: AJ_ERR_ARG (axis, step), AJ_ERR_SHAPE, AJ_ERR_DTYPE.
 * Collective: no. Differentiable: x and value. Since: 0.1.
 */
/* y = x[start:stop:step]; gx = g there, 0 elsewhere. */
AJ_API aj_tensor *aj_slice(aj_tensor *x, int axis, int64_t start, int64_t stop, int64_t step);
/* y = x, but value in [start:stop:step]; gx = g, but 0 there; gvalue = g there. value: broadcasts to the part, of x's dtype. */
AJ_API aj_tensor *aj_set_slice(aj_tensor *x, int axis, int64_t start, int64_t stop, int64_t step, aj_tensor *value);

/*
 * Boxes over all axes at once: lo and hi hold one number for each axis of x, 0 <= lo <= hi <= extent; a negative hi counts from the end.
 * Errors: AJ_ERR_ARG (lo, hi, NULL), AJ_ERR_SHAPE (value does not fit), AJ_ERR_DTYPE.
 * Collective: no. Differentiable: x and value. Since: 0.1.
 */
/* y = x[lo:hi]; gx = g there, 0 elsewhere. */
AJ_API aj_tensor *aj_window(aj_tensor *x, const int64_t *lo, const int64_t *hi);
/* y = x, but value in the box that begins at lo and has value's shape; gx = g, but 0 there; gvalue = g there. */
AJ_API aj_tensor *aj_set_window(aj_tensor *x, const int64_t *lo, aj_tensor *value);
/* The same, and consumes x: writes into its memory if nobody else shares it, else copies. */
AJ_API aj_tensor *aj_set_window_inplace(aj_tensor *x, const int64_t *lo, aj_tensor *value);

/*
 * Joining n >= 1 tensors. Errors: AJ_ERR_ARG (axis, NULL), AJ_ERR_SHAPE, AJ_ERR_DTYPE. With n < 1 or xs NULL there is no context to raise in: NULL.
 * Collective: no. Differentiable: all xs. Since: 0.1.
 */
/* y = the xs one after the other along an axis of theirs, shapes equal elsewhere; gx_i = i's part of g. */
AJ_API aj_tensor *aj_concat(int n, aj_tensor *const *xs, int axis);
/* y = the xs, of one shape, along a new axis at position axis of y; gx_i = g at i. */
AJ_API aj_tensor *aj_stack(int n, aj_tensor *const *xs, int axis);

/*
 * y = x with `before` and `after` more entries of this value along an axis; gx = g without them. before, after >= 0.
 * Errors: AJ_ERR_ARG.
 * Collective: no. Differentiable: x. Since: 0.1.
 */
AJ_API aj_tensor *aj_pad(aj_tensor *x, int axis, int64_t before, int64_t after, double value);

/*
 * Entries by index along an axis. index: i64 or i32, of any shape, which takes the place of the axis; negative entries count from the end.
 * Errors: AJ_ERR_ARG (axis, an index out of range), AJ_ERR_SHAPE, AJ_ERR_DTYPE.
 * Collective: no. Differentiable: x and value. Since: 0.1.
 */
/* y_j = x_{index_j}; gx = 0 with g_j added at index_j. */
AJ_API aj_tensor *aj_take(aj_tensor *x, int axis, aj_tensor *index);
/* y = x with value_j added at index_j, in order of j, repeated ones too; gx = g, gvalue_j = g_{index_j}. value: as aj_take(x, axis, index). */
AJ_API aj_tensor *aj_scatter_add(aj_tensor *x, int axis, aj_tensor *index, aj_tensor *value);

/* ---- Linear algebra: f64 and f32; matmul, outer, trace and diag take integers too. (..., m, n): the leading axes count matrices. ' is the transpose of the last two axes. ---- */
/*
 * y = a b, the product of matrices; ga = g b', gb = a' g. a: (..., m, k), b: (..., k, n), leading axes broadcast (their gradient is summed); an
 * operand with one axis is a row (a) or a column (b), whose axis goes from the result. Errors: AJ_ERR_SHAPE, AJ_ERR_DTYPE.
 * Collective: no. Differentiable: a and b. Since: 0.1.
 */
AJ_API aj_tensor *aj_matmul(aj_tensor *a, aj_tensor *b);
/*
 * y_ij = a_i b_j; ga = g b, gb = g' a. a and b have one axis each. Errors: AJ_ERR_SHAPE, AJ_ERR_DTYPE.
 * Collective: no. Differentiable: a and b. Since: 0.1.
 */
AJ_API aj_tensor *aj_outer(aj_tensor *a, aj_tensor *b);
/*
 * y = a^-1 b, by LU with pivoting; gb = a'^-1 g, ga = -gb y'. a: (..., n, n), b: (n) or (..., n, k), leading axes broadcast.
 * Errors: AJ_ERR_SHAPE, AJ_ERR_DTYPE, AJ_ERR_NUMERIC (singular).
 * Collective: no. Differentiable: a and b. Since: 0.1.
 */
AJ_API aj_tensor *aj_solve(aj_tensor *a, aj_tensor *b);
/*
 * y = L, lower triangular with a positive diagonal, L L' = (a + a') / 2; ga = L'^-1 S L^-1, symmetric, with S = (P + P') / 2 and P the lower
 * triangle of L' g with half the diagonal. a: (..., n, n). Errors: AJ_ERR_SHAPE, AJ_ERR_DTYPE, AJ_ERR_NUMERIC (not positive definite).
 * Collective: no. Differentiable: a. Since: 0.1.
 */
AJ_API aj_tensor *aj_cholesky(aj_tensor *a);
/*
 * y = log |det a|; ga = g a'^-1. a: (..., n, n). Errors: AJ_ERR_SHAPE, AJ_ERR_DTYPE, AJ_ERR_NUMERIC (singular, in the gradient).
 * Collective: no. Differentiable: a. Since: 0.1.
 */
AJ_API aj_tensor *aj_logdet(aj_tensor *a);
/*
 * y = sum of the diagonal; ga = g on the diagonal. a: (m, n), any dtype; integers give i64. Errors: AJ_ERR_SHAPE.
 * Collective: no. Differentiable: a. Since: 0.1.
 */
AJ_API aj_tensor *aj_trace(aj_tensor *a);
/*
 * Of a vector (n): y = the matrix (n, n) with a on its diagonal. Of a matrix (m, n): y = its diagonal. The gradient is the other one of the two,
 * of g. Any dtype. Errors: AJ_ERR_SHAPE (not one or two axes).
 * Collective: no. Differentiable: a. Since: 0.1.
 */
AJ_API aj_tensor *aj_diag(aj_tensor *a);

#ifdef __cplusplus
}
#endif
#endif
