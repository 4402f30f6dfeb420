/* Small dense matrices, n x n with n <= 9, row-major in n*n doubles: what the ranks' sums are brought down to. */
#ifndef FIT_DENSE_H
#define FIT_DENSE_H

#include <stdbool.h>

#define DENSE_MAX 9

/* The Euclidean norm of v. */
double dense_norm(int n, const double *v);
/* The norm of column j of a. */
double dense_column_norm(int n, const double *a, int j);

/*
 * Upper triangular r with a = r'r. What rounding has made indefinite is shifted: the smallest of 0, n 1e-15, n 1e-14, ... that lets the
 * factorisation pass is added to a's diagonal, relative to it (to 1 where it is 0), so r is never singular.
 */
void dense_cholesky(int n, const double *a, double *r);
/* inverse = r^-1 for an upper triangular r. */
void dense_invert_upper(int n, const double *r, double *inverse);
/* product = a b for upper triangular a and b; product may be neither. */
void dense_multiply_upper(int n, const double *a, const double *b, double *product);
/* y = a x */
void dense_apply(int n, const double *a, const double *x, double *y);
/* y = a' x */
void dense_apply_transposed(int n, const double *a, const double *x, double *y);
/* x = r^-1 y and x = r'^-1 y for an upper triangular r; x may be y. */
void dense_solve_upper(int n, const double *r, const double *y, double *x);
void dense_solve_upper_transposed(int n, const double *r, const double *y, double *x);
/*
 * Upper triangular s and a vector d with |s x + d|^2 = |r x + c|^2 + damping sum_k (scale_k x_k)^2 + a constant: the rows of sqrt(damping) diag(scale)
 * are rotated into the triangle r, as in qrsolv of MINPACK, so that the condition of r is not squared.
 */
void dense_damp(int n, const double *r, const double *c, double damping, const double *scale, double *s, double *d);

#endif
