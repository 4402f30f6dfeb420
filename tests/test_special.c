/* Gradients where the usual formula would be NaN, or the choice is a convention: ties, zeros, infinities, the edges of domains. */
#include "serial.h"

#include <float.h>

TestSuite(special, .init = begin, .fini = finish);

#define EPS DBL_EPSILON

typedef aj_tensor *(*unary)(aj_tensor *);
typedef aj_tensor *(*binary)(aj_tensor *, aj_tensor *);

/* The gradient of sum(f(x)). */
static aj_tensor *slope(unary f, aj_tensor *x) {
    aj_tensor *p = aj_param(x), *g;
    expect_ok(aj_record_begin(context));
    expect_ok(aj_backward(context, f(p), NULL));
    g = aj_grad(p);
    aj_release(&p);
    return g;
}

/* The gradients of sum(f(a, b)). */
static void slopes(binary f, aj_tensor *a, aj_tensor *b, aj_tensor *g[2]) {
    aj_tensor *p[] = {aj_param(a), aj_param(b)};
    expect_ok(aj_record_begin(context));
    expect_ok(aj_backward(context, f(p[0], p[1]), NULL));
    for (int i = 0; i < 2; i++) {
        g[i] = aj_grad(p[i]);
        aj_release(&p[i]);
    }
}

/* The gradient of sum(v * gradient of sum(f(x))), v = 1, 2, 3, ... */
static aj_tensor *curvature(unary f, aj_tensor *x) {
    aj_tensor *p = aj_param(x), *g;
    expect_ok(aj_record_begin(context));
    aj_tensor *y = f(p);
    expect_ok(aj_grad_of(context, 1, &y, NULL, 1, &p, &g, AJ_CREATE_GRAPH));
    expect_ok(aj_backward(context, aj_dot(g, aj_arange(context, AJ_F64, 1, (double)aj_numel(x) + 1, 1)), NULL));
    g = aj_grad(p);
    aj_release(&p);
    return g;
}

/* ---- ties and kinks ---- */

Test(special, kinks) {
    expect_values(slope(aj_abs, F64((4), -2, 0, -0.0, 3)), 0, -1, 0, 0, 1);
    expect_values(slope(aj_relu, F64((3), -2, 0, 3)), 0, 0, 0, 1);
    expect_values(slope(aj_sign, F64((3), -2, 0, 3)), 0, 0, 0, 0);
}

static aj_tensor *clamped(aj_tensor *x) {
    return aj_clamp(x, -1, 2);
}

Test(special, clamp_passes_its_edges) {
    expect_values(slope(clamped, F64((5), -2, -1, 0, 2, 3)), 0, 0, 1, 1, 1, 0);
}

Test(special, equal_operands_give_the_gradient_to_the_first) {
    aj_tensor *g[2];
    slopes(aj_maximum, F64((3), 1, 2, 3), F64((3), 3, 2, 1), g);
    expect_values(g[0], 0, 0, 1, 1);
    expect_values(g[1], 0, 1, 0, 0);
    slopes(aj_minimum, F64((3), 1, 2, 3), F64((3), 3, 2, 1), g);
    expect_values(g[0], 0, 1, 1, 0);
    expect_values(g[1], 0, 0, 0, 1);
    slopes(aj_maximum, F64((3), NAN, 1, NAN), F64((3), 1, NAN, NAN), g);
    expect_values(aj_add(g[0], g[1]), 0, 1, 1, 1);
    expect_values(g[0], 0, 1, 0, 1); /* to the operand that was chosen */
}

Test(special, tied_extrema_give_the_gradient_to_the_first) {
    expect_values(slope(aj_max, F64((5), 1, 7, 7, 2, 7)), 0, 0, 1, 0, 0, 0);
    expect_values(slope(aj_min, F64((2, 2), 3, 1, 1, 1)), 0, 0, 1, 0, 0);
    expect_values(slope(aj_max, F64((4), 1, NAN, 7, NAN)), 0, 0, 1, 0, 0);
    expect_values(slope(aj_max, aj_flip(F64((4), 7, 1, 7, 2), 0)), 0, 0, 1, 0, 0);
}

static aj_tensor *largest_of_columns(aj_tensor *x) {
    return aj_max_axes(x, 2, (const int[]){2, 0}, false);
}

Test(special, first_in_row_major_order_over_several_axes) {
    aj_tensor *x = F64((2, 2, 2), 5, 1, 5, 5, 2, 5, 5, 0); /* for each middle index the entries (i, k) in the order 00 01 10 11 */
    expect_values(slope(largest_of_columns, x), 0, 1, 0, 1, 0, 0, 0, 0, 0);
}

/* ---- products with zeros ---- */

Test(special, products) {
    expect_values(slope(aj_prod, F64((3), 2, 3, 4)), 0, 12, 8, 6);
    expect_values(slope(aj_prod, F64((3), 2, 0, 4)), 0, 0, 8, 0);
    expect_values(slope(aj_prod, F64((3), 0, 0, 4)), 0, 0, 0, 0);
    expect_values(slope(aj_prod, F64((3), 1e-200, 1e-200, 1e300)), 4 * EPS, 1e100, 1e100, 0);
    expect_values(curvature(aj_prod, F64((3), 2, 3, 4)), 4 * EPS, 2 * 4 + 3 * 3, 1 * 4 + 3 * 2, 1 * 3 + 2 * 2);
    expect_values(curvature(aj_prod, F64((3), 2, 0, 4)), 4 * EPS, 2 * 4, 1 * 4 + 3 * 2, 2 * 2);
    expect_values(curvature(aj_prod, F64((3), 0, 0, 4)), 4 * EPS, 2 * 4, 1 * 4, 0);
}

/* ---- powers and roots ---- */

static aj_tensor *to_the_zero(aj_tensor *x) {
    return aj_pow_scalar(x, 0);
}
static aj_tensor *to_the_one(aj_tensor *x) {
    return aj_pow_scalar(x, 1);
}
static aj_tensor *cube(aj_tensor *x) {
    return aj_pow_scalar(x, 3);
}

Test(special, powers_of_zero) {
    aj_tensor *g[2];
    expect_values(slope(to_the_zero, F64((2), 0, 2)), 0, 0, 0);
    expect_values(slope(to_the_one, F64((2), 0, 2)), 0, 1, 1);
    expect_values(slope(cube, F64((2), 0, -2)), 4 * EPS, 0, 12);
    expect_values(curvature(cube, F64((2), 0, -2)), 4 * EPS, 0, -24);
    slopes(aj_pow, F64((4), 0, 0, 0, 2), F64((4), 0, 1, 2, 3), g);
    expect_values(g[0], 4 * EPS, 0, 1, 0, 12);
    expect_values(g[1], 4 * EPS, 0, 0, 0, 8 * log(2));
    slopes(aj_pow, F64((1), -2), F64((1), 3), g);
    expect_values(g[0], 4 * EPS, 12);
    expect_values(g[1], 0, NAN);
}

Test(special, norms) {
    expect_values(slope(aj_norm, F64((2), 0, 0)), 0, 0, 0);
    expect_values(slope(aj_norm, F64((2), 3, -4)), 2 * EPS, 0.6, -0.8);
    expect_values(slope(aj_norm, F64((2), 3e200, -4e200)), 4 * EPS, 0.6, -0.8);
    expect_values(slope(aj_norm, F64((2), 3e-200, -4e-200)), 4 * EPS, 0.6, -0.8);
}

Test(special, edges_of_domains) {
    expect_values(slope(aj_sqrt, F64((2), 0, 4)), 0, INFINITY, 0.25);
    expect_values(slope(aj_log, F64((2), 0, 2)), 0, INFINITY, 0.5);
    expect_values(slope(aj_asin, F64((2), 1, 0)), 0, INFINITY, 1);
    cr_assert(isnan(aj_item(slope(aj_sqrt, F64((1), -1)))));
    aj_tensor *g[2];
    slopes(aj_atan2, F64((3), 0, 1e200, 3e-200), F64((3), 2, 1e200, 4e-200), g);
    expect_values(g[0], 4 * EPS, 0.5, 0.5e-200, 0.16e200);
    slopes(aj_atan2, F64((1), 0), F64((1), 0), g);
    expect_values(g[0], 0, NAN);
}

/* ---- saturation ---- */

Test(special, saturated_functions) {
    expect_values(slope(aj_sigmoid, F64((2), 800, -800)), 0, 0, 0);
    expect_values(slope(aj_tanh, F64((2), 800, -800)), 0, 0, 0);
    expect_values(slope(aj_softplus, F64((2), 800, -800)), 0, 1, 0);
    expect_values(slope(aj_erf, F64((2), 40, -40)), 0, 0, 0);
    expect_values(curvature(aj_softplus, F64((3), 800, -800, 0)), EPS, 0, 0, 0.75);
}

static aj_tensor *logsumexp(aj_tensor *x) {
    return aj_logsumexp(x, -1);
}
static aj_tensor *first_softmax(aj_tensor *x) {
    return aj_slice(aj_softmax(x, 0), 0, 0, 1, 1);
}

Test(special, logsumexp_and_softmax) {
    expect_values(slope(logsumexp, F64((2), -INFINITY, -INFINITY)), 0, 0, 0);
    expect_values(slope(logsumexp, F64((2), -INFINITY, 3)), 0, 0, 1);
    expect_values(slope(logsumexp, F64((2), 2000, 2000)), 2000 * EPS, 0.5, 0.5); /* exp(x - y), and y has an eps of 2000 */
    expect_values(slope(first_softmax, F64((2), 2000, 2000)), 0, 0.25, -0.25);
    expect_values(slope(first_softmax, F64((2), -INFINITY, 5)), 0, 0, 0);
}

/* ---- what is not chosen has no influence ---- */

static aj_tensor *guarded_log(aj_tensor *x) {
    aj_tensor *positive = aj_gt(x, aj_scale(aj_detach(x), 0));
    return aj_where(positive, aj_log(aj_where(positive, x, aj_add_scalar(aj_scale(aj_detach(x), 0), 1))), x);
}

Test(special, where_hides_what_is_not_chosen) {
    aj_tensor *g[2], *cond = U8((2), 1, 0), *p = aj_param(F64((2), 1, INFINITY)), *q = aj_param(F64((2), NAN, 2));
    expect_ok(aj_record_begin(context));
    expect_ok(aj_backward(context, aj_where(cond, p, q), F64((2), 3, 4)));
    g[0] = aj_grad(p);
    g[1] = aj_grad(q);
    expect_values(g[0], 0, 3, 0);
    expect_values(g[1], 0, 0, 4);
    aj_release(&p);
    aj_release(&q);
    expect_values(slope(guarded_log, F64((2), 2, -2)), 0, 0.5, 1);
}

/* ---- indices ---- */

static aj_tensor *take_twice(aj_tensor *x) {
    return aj_mul(aj_take(x, 0, I64((3), 1, 1, -1)), F64((3), 1, 10, 100));
}

Test(special, repeated_indices_add_up) {
    expect_values(slope(take_twice, F64((3), 5, 6, 7)), 0, 0, 11, 100);
    aj_tensor *x = aj_param(F64((3), 1, 2, 3)), *v = aj_param(F64((2), 10, 20));
    expect_ok(aj_record_begin(context));
    aj_tensor *y = aj_scatter_add(x, 0, I64((2), 2, 2), v);
    expect_values(y, 0, 1, 2, 33);
    expect_ok(aj_backward(context, y, F64((3), 4, 5, 6)));
    expect_values(aj_grad(x), 0, 4, 5, 6);
    expect_values(aj_grad(v), 0, 6, 6);
    aj_release(&x);
    aj_release(&v);
}

/* ---- linear algebra ---- */

Test(special, gradients_that_do_not_exist) {
    aj_tensor *a = aj_param(F64((2, 2), 1, 2, 2, 4));
    expect_ok(aj_record_begin(context));
    aj_tensor *y = aj_logdet(a);
    expect_near(aj_item(y), -INFINITY, 0);
    cr_assert(aj_backward(context, y, NULL) == AJ_ERR_NUMERIC);
    expect_error(AJ_ERR_NUMERIC, "singular");
    aj_release(&a);
}

Test(special, cholesky_has_a_symmetric_gradient) {
    aj_tensor *a = aj_param(F64((2, 2), 4, 2, 2, 5));
    expect_ok(aj_record_begin(context));
    expect_ok(
        aj_backward(context, aj_cholesky(a), F64((2, 2), 0, 9, 1, 0))); /* of l10 = a10 / sqrt(a00); l01 is zero whatever a is */
    expect_values(aj_grad(a), 4 * EPS, -0.125, 0.25, 0.25, 0);
    aj_release(&a);
}

/* ---- f32 keeps its range ---- */

Test(special, f32_does_not_leave_its_range) {
    expect_values(slope(aj_norm, F32((2), 3e30, -4e30)), 4 * FLT_EPSILON, 0.6, -0.8);
    expect_values(slope(aj_sigmoid, F32((2), 200, -200)), 0, 0, 0);
    expect_values(slope(aj_prod, F32((3), 1e-30, 1e-30, 1e30)), 4 * FLT_EPSILON, 1, 1, 0);
}
