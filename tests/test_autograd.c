/* Recordings, backward, gradients of gradients, forward mode, consuming calls, steps, checks, and memory over many iterations. */
#include "serial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(autograd, .init = begin, .fini = finish);

#define EPS 2.220446049250313e-16
#define BEGIN() expect_ok(aj_record_begin(context))

/* ---- recordings ---- */

Test(autograd, without_a_recording) {
    aj_tensor *p = aj_param(SCALAR(2)), *y = aj_square(p), *g;
    cr_assert(!aj_is_recording(context) && aj_ctx_stat(context, AJ_STAT_NODES) <= 1, "at most the parameter itself");
    cr_assert(aj_backward(context, y, NULL) == AJ_ERR_STATE);
    expect_error(AJ_ERR_STATE, "aj_backward", "aj_record_begin");
    cr_assert(aj_record_stop(context) == AJ_ERR_STATE);
    expect_error(AJ_ERR_STATE, "aj_record_stop");
    cr_assert(aj_record_end(context) == AJ_ERR_STATE);
    expect_error(AJ_ERR_STATE, "aj_record_end");
    cr_assert(aj_grad_of(context, 1, &y, NULL, 1, &p, &g, 0) == AJ_ERR_STATE && g == NULL);
    expect_error(AJ_ERR_STATE, "aj_grad_of");
    cr_assert(aj_jvp(context, 1, &y, 1, &p, &p, &g, 0) == AJ_ERR_STATE && g == NULL);
    expect_error(AJ_ERR_STATE, "aj_jvp");
    expect_values(aj_grad(p), 0, 0);
    aj_release(&p);
}

Test(autograd, one_recording_at_a_time) {
    BEGIN();
    cr_assert(aj_record_begin(context) == AJ_ERR_STATE);
    expect_error(AJ_ERR_STATE, "aj_record_begin");
    cr_assert(aj_is_recording(context), "the first one goes on");
    expect_ok(aj_record_stop(context));
    cr_assert(!aj_is_recording(context));
    cr_assert(aj_record_begin(context) == AJ_ERR_STATE);
    expect_error(AJ_ERR_STATE, "aj_record_begin");
    cr_assert(aj_record_stop(context) == AJ_ERR_STATE);
    expect_error(AJ_ERR_STATE, "aj_record_stop");
    expect_ok(aj_record_end(context));
    BEGIN();
    expect_ok(aj_record_end(context));
}

Test(autograd, stopped_recording) {
    aj_tensor *p = aj_param(F64((2), 1, 2)), *g;
    BEGIN();
    aj_tensor *y = aj_square(p);
    expect_ok(aj_record_stop(context));
    int64_t nodes = aj_ctx_stat(context, AJ_STAT_NODES);
    aj_tensor *later = aj_exp(y);
    cr_assert(aj_ctx_stat(context, AJ_STAT_NODES) == nodes, "later operations are not recorded");
    for (int i = 0; i < 3; i++) {
        expect_ok(aj_grad_of(context, 1, &y, NULL, 1, &p, &g, 0));
        expect_values(g, 0, 2, 4);
    }
    expect_ok(aj_grad_of(context, 1, &later, NULL, 1, &p, &g, 0));
    expect_values(g, 0, 0, 0);
    expect_ok(aj_backward(context, y, NULL));
    expect_values(aj_grad(p), 0, 2, 4);
    cr_assert(aj_backward(context, y, NULL) == AJ_ERR_STATE);
    expect_error(AJ_ERR_STATE, "aj_backward");
    aj_release(&p);
}

Test(autograd, results_of_an_ended_recording_are_constants) {
    aj_tensor *p = aj_param(SCALAR(3)), *g;
    BEGIN();
    aj_tensor *old = aj_square(p);
    expect_ok(aj_record_end(context));
    BEGIN();
    aj_tensor *y = aj_mul(p, old);
    expect_ok(aj_grad_of(context, 1, &y, NULL, 1, &p, &g, 0));
    expect_near(aj_item(g), 9, 0);
    expect_ok(aj_backward(context, old, NULL)); /* a root that depends on nothing of this recording */
    expect_values(aj_grad(p), 0, 0);
    aj_release(&p);
}

Test(autograd, only_what_is_active_is_recorded) {
    aj_tensor *p = aj_param(SCALAR(1)), *c = SCALAR(2);
    BEGIN();
    int64_t nodes = aj_ctx_stat(context, AJ_STAT_NODES);
    aj_exp(aj_mul(c, c));
    cr_assert(aj_ctx_stat(context, AJ_STAT_NODES) == nodes);
    aj_exp(aj_mul(c, p));
    cr_assert(aj_ctx_stat(context, AJ_STAT_NODES) == nodes + 2);
    expect_ok(aj_record_end(context));
    aj_release(&p);
}

/* What backward would have needed goes with the recording, though a result's handle is still there. */
Test(autograd, an_ended_recording_holds_no_values) {
    aj_tensor *p = aj_param(aj_ones(context, AJ_F64, AJ_SHAPE(1000)));
    int64_t bytes = aj_ctx_stat(context, AJ_STAT_LIVE_BYTES);
    BEGIN();
    aj_scope *s = aj_scope_begin(context);
    aj_tensor *y = aj_scope_return(s, aj_sum(aj_square(aj_exp(p))));
    expect_ok(aj_scope_end(s));
    cr_assert(aj_ctx_stat(context, AJ_STAT_LIVE_BYTES) > bytes + 8000);
    expect_ok(aj_record_end(context));
    expect_near(aj_item(y), 1000 * exp(2), 64 * EPS);
    cr_assert(aj_ctx_stat(context, AJ_STAT_LIVE_BYTES) < bytes + 1000);
    aj_release(&p);
}

Test(autograd, released_handles_stay_in_the_graph) {
    aj_tensor *p = aj_param(F64((2), 0.5, 1));
    BEGIN();
    aj_scope *s = aj_scope_begin(context);
    aj_tensor *y = aj_scope_return(s, aj_sum(aj_mul(aj_exp(p), aj_sin(p))));
    expect_ok(aj_scope_end(s));
    aj_tensor *keep = p;
    expect_ok(aj_backward(context, y, NULL));
    expect_values(aj_grad(keep), 4 * EPS, exp(0.5) * (sin(0.5) + cos(0.5)), exp(1) * (sin(1) + cos(1)));
    aj_release(&p);
}

/* ---- backward ---- */

Test(autograd, seeds) {
    aj_tensor *p = aj_param(F64((2, 2), 1, 2, 3, 4));
    BEGIN();
    aj_tensor *y = aj_mul(p, p);
    expect_ok(aj_backward(context, y, F64((2, 2), 1, 10, 100, 1000)));
    expect_values(aj_grad(p), 0, 2, 40, 600, 8000);
    BEGIN();
    cr_assert(aj_backward(context, aj_exp(p), F64((2), 1, 2)) == AJ_ERR_SHAPE);
    expect_error(AJ_ERR_SHAPE, "seed", "(2,)", "(2, 2)");
    cr_assert(aj_record_end(context) == AJ_ERR_STATE, "the recording was dropped");
    expect_error(AJ_ERR_STATE, "");
    BEGIN();
    cr_assert(aj_backward(context, aj_exp(p), F32((2, 2), 1, 2, 3, 4)) == AJ_ERR_DTYPE);
    expect_error(AJ_ERR_DTYPE, "seed", "f32", "f64");
    expect_values(aj_grad(p), 0, 2, 40, 600, 8000); /* as it was */
    aj_release(&p);
}

Test(autograd, gradients_add_up_until_they_are_zeroed) {
    aj_tensor *p = aj_param(SCALAR(3));
    for (int i = 1; i <= 3; i++) {
        BEGIN();
        expect_ok(aj_backward(context, aj_square(p), NULL));
        expect_near(aj_item(aj_grad(p)), 6 * i, 0);
    }
    aj_tensor *before = aj_grad(p);
    aj_zero_grad(p);
    expect_near(aj_item(aj_grad(p)), 0, 0);
    expect_near(aj_item(before), 18, 0);
    aj_release(&p);
}

Test(autograd, one_value_used_many_times) {
    aj_tensor *p = aj_param(SCALAR(2));
    BEGIN();
    aj_tensor *y = p;
    for (int i = 0; i < 10; i++)
        y = aj_add(y, y);
    expect_ok(aj_backward(context, aj_mul(y, p), NULL)); /* 1024 p^2 */
    expect_near(aj_item(aj_grad(p)), 4096, 0);
    aj_release(&p);
}

Test(autograd, several_roots) {
    aj_tensor *p = aj_param(F64((2), 1, 2)), *q = aj_param(F64((2), 3, 4));
    BEGIN();
    aj_tensor *roots[] = {aj_mul(p, q), aj_sum(p), q, SCALAR(4), aj_mul(p, q)};
    aj_tensor *seeds[] = {F64((2), 1, 10), NULL, F64((2), 5, 6), NULL, NULL};
    roots[4] = roots[0]; /* the same root twice */
    expect_ok(aj_backward_many(context, 5, roots, seeds, 0));
    expect_values(aj_grad(p), 0, 3 + 1 + 3, 40 + 1 + 4);
    expect_values(aj_grad(q), 0, 1 + 5 + 1, 20 + 6 + 2);
    BEGIN();
    expect_ok(aj_backward_many(context, 0, NULL, NULL, 0));
    cr_assert(!aj_is_recording(context));
    aj_release(&p);
    aj_release(&q);
}

Test(autograd, a_retained_graph_doubles_the_gradient) {
    aj_tensor *p = aj_param(F64((2), 1, 2));
    BEGIN();
    aj_tensor *y = aj_exp(aj_square(p));
    expect_ok(aj_backward_many(context, 1, &y, NULL, AJ_RETAIN_GRAPH));
    cr_assert(aj_is_recording(context));
    const double *once = numbers(aj_grad(p));
    expect_ok(aj_backward_many(context, 1, &y, NULL, AJ_RETAIN_GRAPH));
    expect_values(aj_grad(p), 0, 2 * once[0], 2 * once[1]);
    expect_ok(aj_record_stop(context));
    expect_ok(aj_backward_many(context, 1, &y, NULL, AJ_RETAIN_GRAPH));
    expect_values(aj_grad(p), 4 * EPS, 3 * once[0], 3 * once[1]);
    expect_ok(aj_record_end(context));
    aj_release(&p);
}

Test(autograd, f32) {
    aj_tensor *p = aj_param(F32((2), 1, 2));
    BEGIN();
    expect_ok(aj_backward(context, aj_sum(aj_square(aj_cast(p, AJ_F64))), NULL));
    cr_assert(aj_tensor_dtype(aj_grad(p)) == AJ_F32);
    expect_values(aj_grad(p), 0, 2, 4);
    aj_release(&p);
}

Test(autograd, parameters_released_during_a_recording) {
    aj_tensor *p = aj_param(SCALAR(2)), *q = aj_param(SCALAR(5));
    BEGIN();
    aj_tensor *y = aj_mul(p, q);
    aj_release(&p);
    expect_ok(aj_backward(context, y, NULL));
    expect_near(aj_item(aj_grad(q)), 2, 0);
    aj_release(&q);
}

/* ---- grad_of ---- */

Test(autograd, grad_of_intermediates_and_of_the_unreached) {
    aj_tensor *p = aj_param(F64((2), 1, 2)), *other = aj_param(F64((3), 1, 1, 1)), *g[4];
    BEGIN();
    aj_tensor *u = aj_square(p), *v = aj_exp(u), *aside = aj_sin(p), *y = aj_mul(u, v);
    aj_tensor *ins[] = {u, p, other, aside};
    expect_ok(aj_grad_of(context, 1, &y, NULL, 4, ins, g, 0));
    expect_values(g[0], 4 * EPS, exp(1) * 2, exp(4) * 5);         /* d/du of u e^u */
    expect_values(g[1], 4 * EPS, exp(1) * 2 * 2, exp(4) * 5 * 4); /* times 2 p */
    expect_values(g[2], 0, 0, 0, 0);
    expect_values(g[3], 0, 0, 0);
    expect_values(aj_grad(p), 0, 0, 0); /* the parameters' own gradients stay */
    expect_ok(aj_grad_of(context, 1, &u, NULL, 1, &u, g, 0));
    expect_values(g[0], 0, 1, 1);
    expect_ok(aj_grad_of(context, 0, NULL, NULL, 1, &p, g, 0));
    expect_values(g[0], 0, 0, 0);
    expect_ok(aj_grad_of(context, 1, &y, NULL, 0, NULL, NULL, 0));
    aj_tensor *outs[] = {u, v}, *seeds[] = {NULL, F64((2), 1, 0)};
    expect_ok(aj_grad_of(context, 2, outs, seeds, 1, &p, g, AJ_REACHED));
    expect_values(g[0], 4 * EPS, 2 + 2 * exp(1), 4);
    expect_ok(aj_record_end(context));
    aj_release(&p);
    aj_release(&other);
}

Test(autograd, derivatives_up_to_the_third) {
    aj_tensor *p = aj_param(F64((2), 0.5, 2)), *g[3];
    BEGIN();
    aj_tensor *y = aj_sum(aj_mul(aj_square(p), aj_square(p)));
    aj_tensor *at = y;
    for (int i = 0; i < 3; i++) {
        expect_ok(aj_grad_of(context, 1, &at, NULL, 1, &p, &g[i], AJ_CREATE_GRAPH));
        at = aj_sum(g[i]);
    }
    expect_values(g[0], 8 * EPS, 4 * 0.125, 4 * 8);
    expect_values(g[1], 8 * EPS, 12 * 0.25, 12 * 4);
    expect_values(g[2], 8 * EPS, 24 * 0.5, 24 * 2);
    expect_ok(aj_backward(context, at, NULL));
    expect_values(aj_grad(p), 8 * EPS, 24, 24);
    aj_release(&p);
}

Test(autograd, create_graph_on_a_stopped_recording) {
    aj_tensor *p = aj_param(SCALAR(3)), *g, *h;
    BEGIN();
    aj_tensor *y = aj_mul(aj_square(p), p);
    expect_ok(aj_record_stop(context));
    expect_ok(aj_grad_of(context, 1, &y, NULL, 1, &p, &g, AJ_CREATE_GRAPH));
    expect_near(aj_item(g), 27, 0);
    expect_ok(aj_grad_of(context, 1, &g, NULL, 1, &p, &h, 0));
    expect_near(aj_item(h), 18, 0);
    cr_assert(!aj_is_recording(context));
    expect_ok(aj_record_end(context));
    aj_release(&p);
}

/* Hessian-vector product of sum(x_i^2 x_{i+1}) by reverse over reverse. */
Test(autograd, hessian_vector_product) {
    aj_tensor *p = aj_param(F64((3), 1, 2, 3)), *g, *v = F64((3), 1, -1, 2);
    BEGIN();
    aj_tensor *f = aj_sum(aj_mul(aj_square(aj_slice(p, 0, 0, 2, 1)), aj_slice(p, 0, 1, 3, 1)));
    expect_ok(aj_grad_of(context, 1, &f, NULL, 1, &p, &g, AJ_CREATE_GRAPH));
    expect_values(g, 0, 4, 13, 4);
    expect_ok(aj_backward(context, aj_dot(g, v), NULL)); /* H = [[4, 2, 0], [2, 6, 4], [0, 4, 0]] */
    expect_values(aj_grad(p), 0, 2, 4, -4);
    aj_release(&p);
}

/* ---- forward mode ---- */

Test(autograd, jvp_against_closed_forms) {
    aj_tensor *p = aj_param(F64((2), 0.5, 2)), *q = aj_param(SCALAR(3)), *r[2];
    BEGIN();
    aj_tensor *outs[] = {aj_mul(aj_sin(p), p), aj_mul(aj_exp(p), q)}, *ins[] = {p, q};
    int64_t nodes = aj_ctx_stat(context, AJ_STAT_NODES);
    aj_tensor *tangents[] = {F64((2), 1, 10), SCALAR(-1)};
    expect_ok(aj_jvp(context, 2, outs, 2, ins, tangents, r, 0));
    expect_values(r[0], 8 * EPS, cos(0.5) * 0.5 + sin(0.5), 10 * (cos(2) * 2 + sin(2)));
    expect_values(r[1], 8 * EPS, exp(0.5) * 3 - exp(0.5), exp(2) * 30 - exp(2));
    tangents[0] = NULL;
    expect_ok(aj_jvp(context, 2, outs, 2, ins, tangents, r, 0));
    expect_values(r[0], 0, 0, 0);
    expect_values(r[1], 8 * EPS, -exp(0.5), -exp(2));
    cr_assert(aj_ctx_stat(context, AJ_STAT_NODES) == nodes && aj_is_recording(context));
    expect_ok(aj_record_stop(context));
    tangents[1] = NULL;
    expect_ok(aj_jvp(context, 2, outs, 2, ins, tangents, r, 0));
    expect_values(r[1], 0, 0, 0);
    cr_assert(aj_ctx_stat(context, AJ_STAT_NODES) == nodes);
    expect_ok(aj_backward(context, outs[1], NULL));
    expect_near(aj_item(aj_grad(q)), exp(0.5) + exp(2), 4 * EPS);
    aj_release(&p);
    aj_release(&q);
}

Test(autograd, jvp_is_checked) {
    aj_tensor *p = aj_param(F64((2), 0.5, 2)), *r, *bad = F64((3), 1, 2, 3);
    BEGIN();
    aj_tensor *y = aj_exp(p);
    cr_assert(aj_jvp(context, 1, &y, 1, &p, &bad, &r, 0) == AJ_ERR_SHAPE && r == NULL);
    expect_error(AJ_ERR_SHAPE, "aj_jvp", "(3,)", "(2,)");
    expect_ok(aj_record_end(context));
    aj_release(&p);
}

/* ---- no-grad, detach ---- */

Test(autograd, no_grad_nests) {
    aj_tensor *p = aj_param(SCALAR(3));
    BEGIN();
    expect_ok(aj_no_grad_begin(context));
    expect_ok(aj_no_grad_begin(context));
    expect_ok(aj_no_grad_end(context));
    cr_assert(!aj_is_recording(context));
    aj_tensor *constant = aj_square(p);
    expect_ok(aj_no_grad_end(context));
    cr_assert(aj_is_recording(context));
    expect_ok(aj_backward(context, aj_mul(constant, p), NULL));
    expect_near(aj_item(aj_grad(p)), 9, 0);
    cr_assert(aj_no_grad_end(context) == AJ_ERR_STATE);
    expect_error(AJ_ERR_STATE, "aj_no_grad_end");
    aj_release(&p);
}

Test(autograd, detach) {
    aj_tensor *p = aj_param(SCALAR(3));
    BEGIN();
    aj_tensor *u = aj_square(p), *d = aj_detach(u);
    expect_near(aj_item(d), 9, 0);
    expect_ok(aj_backward(context, aj_mul(d, p), NULL));
    expect_near(aj_item(aj_grad(p)), 9, 0);
    cr_assert(aj_detach(NULL) == NULL);
    aj_release(&p);
}

/* ---- parameters ---- */

Test(autograd, setting_a_parameter) {
    aj_tensor *p = aj_param(F64((2), 1, 2)), *c = F64((2), 1, 2);
    BEGIN();
    expect_ok(aj_backward(context, aj_square(p), NULL));
    expect_ok(aj_param_set(p, aj_scale(p, 10)));
    expect_values(p, 0, 10, 20);
    expect_values(aj_grad(p), 0, 2, 4); /* stays */
    BEGIN();
    cr_assert(aj_param_set(p, c) == AJ_ERR_STATE);
    expect_error(AJ_ERR_STATE, "aj_param_set");
    expect_ok(aj_backward(context, aj_square(p), NULL));
    expect_values(aj_grad(p), 0, 22, 44);
    cr_assert(aj_param_set(p, SCALAR(1)) == AJ_ERR_SHAPE);
    expect_error(AJ_ERR_SHAPE, "aj_param_set", "()", "(2,)");
    cr_assert(aj_param_set(p, F32((2), 1, 2)) == AJ_ERR_DTYPE);
    expect_error(AJ_ERR_DTYPE, "aj_param_set", "f32", "f64");
    cr_assert(aj_param_set(c, c) == AJ_ERR_ARG);
    expect_error(AJ_ERR_ARG, "aj_param_set");
    cr_assert(!aj_grad(c));
    expect_error(AJ_ERR_ARG, "aj_grad");
    aj_zero_grad(c);
    expect_error(AJ_ERR_ARG, "aj_zero_grad");
    expect_values(p, 0, 10, 20);
    aj_release(&p);
}

Test(autograd, a_parameter_is_a_value_of_its_own) {
    aj_tensor *x = F64((2), 1, 2), *p = aj_param(x), *q = aj_param(x), *old = aj_add_scalar(p, 0);
    expect_ok(aj_param_set(p, F64((2), 5, 6)));
    expect_values(x, 0, 1, 2);
    expect_values(q, 0, 1, 2);
    expect_values(old, 0, 1, 2); /* computed after the change, from the value before */
    cr_assert(!aj_param(I64((1), 1)));
    expect_error(AJ_ERR_DTYPE, "aj_param", "i64");
    aj_release(&p);
    aj_release(&q);
}

Test(autograd, gradient_descent) {
    aj_tensor *p = aj_param(F64((2), 3, -4));
    for (int i = 0; i < 50; i++) {
        aj_scope *s = aj_scope_begin(context);
        BEGIN();
        aj_tensor *loss = aj_sum(aj_square(p));
        aj_zero_grad(p);
        expect_ok(aj_backward(context, loss, NULL));
        expect_ok(aj_sgd_step(p, 0.25));
        expect_ok(aj_scope_end(s));
    }
    expect_values(p, 0, ldexp(3, -50), ldexp(-4, -50)); /* halved 50 times, exactly */
    cr_assert(aj_sgd_step(SCALAR(1), 0.1) == AJ_ERR_ARG);
    expect_error(AJ_ERR_ARG, "aj_sgd_step");
    cr_assert(aj_sgd_step(p, NAN) == AJ_ERR_ARG);
    expect_error(AJ_ERR_ARG, "aj_sgd_step");
    BEGIN();
    cr_assert(aj_sgd_step(p, 0.1) == AJ_ERR_STATE);
    expect_error(AJ_ERR_STATE, "aj_sgd_step");
    expect_ok(aj_record_end(context));
    aj_raise(context, AJ_ERR_USER, "upstream");
    cr_assert(aj_sgd_step(p, 0.1) == AJ_ERR_USER);
    expect_error(AJ_ERR_USER, "upstream");
    expect_values(p, 0, ldexp(3, -50), ldexp(-4, -50));
    aj_release(&p);
}

/* ---- consuming calls ---- */

static aj_tensor *overwrite(aj_tensor *x, int64_t at, double value) {
    return aj_set_window_inplace(x, &at, F64((1), value));
}

Test(autograd, a_consumed_tensor_names_its_consumer) {
    aj_tensor *x = aj_add_scalar(F64((3), 1, 2, 3), 1), *y = overwrite(x, 1, 9);
    expect_values(y, 0, 2, 9, 4);
    cr_assert(!aj_add(x, y));
    expect_error(AJ_ERR_STATE, "add", "set_window_inplace");
    double out[3];
    cr_assert(aj_read(x, out, sizeof out) == AJ_ERR_STATE);
    expect_error(AJ_ERR_STATE, "set_window_inplace");
    cr_assert(!overwrite(x, 0, 1));
    expect_error(AJ_ERR_STATE, "set_window_inplace");
    cr_assert(aj_ndim(x) == 1 && aj_extent(x, 0) == 3 && aj_tensor_dtype(x) == AJ_F64 && aj_tensor_ctx(x) == context);
    aj_release(&x);
}

Test(autograd, consuming_what_others_share_copies) {
    aj_tensor *x = F64((3), 1, 2, 3), *view = aj_slice(x, 0, 0, 2, 1), *pending = aj_neg(x), *kept = aj_detach(x);
    expect_values(overwrite(x, 0, 9), 0, 9, 2, 3);
    expect_values(view, 0, 1, 2);
    expect_values(pending, 0, -1, -2, -3);
    expect_values(kept, 0, 1, 2, 3);
}

Test(autograd, a_consumed_parameter_is_whole_again) {
    aj_tensor *p = aj_param(F64((2), 1, 2));
    for (int way = 0; way < 3; way++) { /* backward, the recording's end, the scope's end */
        aj_scope *s = aj_scope_begin(context);
        BEGIN();
        aj_tensor *y = overwrite(p, 0, 9);
        cr_assert(!aj_exp(p));
        expect_error(AJ_ERR_STATE, "exp", "set_window_inplace");
        expect_values(aj_grad(p), 0, 0, way == 0 ? 0 : 1);
        if (way == 0)
            expect_ok(aj_backward(context, y, NULL));
        if (way == 1)
            expect_ok(aj_record_end(context));
        if (way < 2)
            expect_values(p, 0, 1, 2);
        expect_ok(aj_scope_end(s));
        expect_values(p, 0, 1, 2);
    }
    expect_values(aj_grad(p), 0, 0, 1);
    aj_release(&p);
}

Test(autograd, saved_values_survive_consuming_calls) {
    aj_tensor *p = aj_param(F64((3), 0.1, 0.2, 0.3));
    BEGIN();
    aj_tensor *e = aj_exp(p); /* needs its result for backward */
    expect_ok(aj_eval(e));
    aj_tensor *y = overwrite(e, 1, 5); /* gives it up */
    aj_tensor *z = overwrite(aj_mul(y, y), 2, 7);
    expect_values(z, 4 * EPS, exp(0.2), 25, 7);
    expect_ok(aj_backward(context, z, F64((3), 1, 10, 100)));
    expect_values(aj_grad(p), 4 * EPS, 2 * exp(0.2), 0, 0);
    aj_release(&p);
}

/* A chain of in-place steps, as a time loop does, with its gradient: x_{k+1} = x_k with entry k replaced by x_k[k]^2. */
Test(autograd, a_loop_of_consuming_steps) {
    aj_tensor *p = aj_param(F64((4), 2, 3, 4, 5));
    BEGIN();
    aj_tensor *x = aj_scale(p, 1);
    for (int64_t k = 0; k < 4; k++)
        x = aj_set_window_inplace(x, &k, aj_square(aj_slice(x, 0, k, k + 1, 1)));
    expect_values(x, 0, 4, 9, 16, 25);
    expect_ok(aj_backward(context, x, F64((4), 1, 2, 3, 4)));
    expect_values(aj_grad(p), 0, 4, 12, 24, 40);
    aj_release(&p);
}

Test(autograd, incoming_gradients_are_not_written) {
    aj_tensor *p = aj_param(F64((2), 1, 2)), *seed = F64((2), 3, 4);
    BEGIN();
    aj_tensor *y = aj_add(aj_add(p, p), aj_scale(p, 5));
    expect_ok(aj_backward(context, y, seed));
    expect_values(seed, 0, 3, 4);
    expect_values(aj_grad(p), 0, 21, 28);
    aj_tensor *g = aj_grad(p);
    BEGIN();
    expect_ok(aj_backward(context, aj_scale(p, 1), NULL));
    expect_values(g, 0, 21, 28); /* what was read is a value */
    aj_release(&p);
}

/* ---- join_dummies ---- */

Test(autograd, join_dummies) {
    aj_tensor *p = aj_param(F64((2), 1, 2)), *d = aj_param(F64((3), 1, 2, 3)), *e = aj_param(SCALAR(1));
    BEGIN();
    aj_tensor *y = aj_join_dummies(aj_square(p), 2, (aj_tensor *[]){aj_exp(d), e});
    expect_values(y, 0, 1, 4);
    expect_ok(aj_backward(context, aj_join_dummies(y, 0, NULL), NULL));
    expect_values(aj_grad(p), 0, 2, 4);
    expect_values(aj_grad(d), 0, 0, 0, 0);
    expect_near(aj_item(aj_grad(e)), 0, 0);
    cr_assert(!aj_join_dummies(p, 1, (aj_tensor *[]){NULL}));
    expect_error(AJ_ERR_ARG, "join_dummies");
    aj_release(&p);
    aj_release(&d);
    aj_release(&e);
}

/* ---- devices ---- */

Test(autograd, to_device_is_differentiable) {
    aj_tensor *p = aj_param(F64((2), 1, 2));
    BEGIN();
    aj_tensor *far = aj_to_device(p, aj_test_device(context)), *y = aj_to_device(aj_square(far), aj_cpu(context));
    expect_ok(aj_backward(context, y, F64((2), 1, 10)));
    expect_values(aj_grad(p), 0, 2, 40);
    aj_release(&p);
}

/* ---- the public checks find what is right, and what is wrong ---- */

static aj_tensor *right(aj_ctx *ctx, int n, aj_tensor *const *x, void *user) {
    (void)ctx, (void)n, (void)user;
    return aj_mul(aj_sin(x[0]), aj_exp(aj_matmul(x[1], x[0])));
}

Test(autograd, checks_pass_what_is_right) {
    static const aj_dtype dtypes[] = {AJ_F64, AJ_F32};
    for (int d = 0; d < 2; d++) {
        aj_tensor *x[] = {VALUES(dtypes[d], (2), 0.3, 0.7), VALUES(dtypes[d], (2, 2), 0.1, -0.5, 0.8, 0.4)};
        aj_check result = {.size = sizeof result};
        BEGIN(); /* an open recording stays as it is */
        int64_t nodes = aj_ctx_stat(context, AJ_STAT_NODES);
        expect_ok(aj_gradcheck(context, right, NULL, 2, x, NULL, &result));
        cr_assert(result.passed, "error %g", result.error);
        result = (aj_check){.size = sizeof result};
        expect_ok(aj_dot_test(context, right, NULL, 2, x, NULL, &result));
        cr_assert(result.passed, "error %g", result.error);
        result = (aj_check){.size = sizeof result};
        expect_ok(aj_taylor_test(context, right, NULL, 2, x, NULL, &result));
        cr_assert(result.passed, "rates %g and %g", result.rates[0], result.rates[1]);
        if (d == 0) {
            expect_near(result.rates[0], 1, 0.2);
            expect_near(result.rates[1], 2, 0.2);
        }
        cr_assert(aj_is_recording(context) && aj_ctx_stat(context, AJ_STAT_NODES) == nodes);
        expect_ok(aj_record_end(context));
    }
}

/* y = x^2, with a gradient that is wrong by a factor in entry 1, and a right tangent. */
static double wrong_factor;

static aj_status square_forward(const aj_call *c) {
    const double *x = c->in[0].data;
    double *y = c->out[0].data;
    for (int64_t i = 0; i < c->in[0].shape[0]; i++)
        y[i] = x[i] * x[i];
    return AJ_OK;
}

static aj_status wrong_vjp(const aj_call *c) {
    const double *x = c->in[0].data, *g = c->g_out[0].data;
    double *gx = c->g_in[0].data;
    for (int64_t i = 0; i < c->in[0].shape[0]; i++)
        gx[i] = 2 * x[i] * g[i] * (i == 1 ? wrong_factor : 1);
    return AJ_OK;
}

static aj_status square_jvp(const aj_call *c) {
    const double *x = c->in[0].data, *t = c->g_in[0].data;
    double *ty = c->g_out[0].data;
    for (int64_t i = 0; i < c->in[0].shape[0]; i++)
        ty[i] = t ? 2 * x[i] * t[i] : 0;
    return AJ_OK;
}

static const aj_op wrong_square = {.size = sizeof(aj_op),
                                   .name = "wrong_square",
                                   .maths = "y = x^2; gx = 2 x g, but not quite",
                                   .n_out = 1,
                                   .need = AJ_NEED_IN,
                                   .forward = square_forward,
                                   .vjp = wrong_vjp,
                                   .jvp = square_jvp};

static aj_tensor *wrong(aj_ctx *ctx, int n, aj_tensor *const *x, void *user) {
    (void)user;
    aj_tensor *y = NULL;
    return aj_apply(ctx, &wrong_square, NULL, NULL, n, x, 1, &y) == AJ_OK ? y : NULL;
}

Test(autograd, checks_fail_what_is_wrong) {
    aj_tensor *x = F64((3), 0.5, 0.7, 0.9);
    aj_check result = {.size = sizeof result};
    wrong_factor = 1.001;
    expect_ok(aj_gradcheck(context, wrong, NULL, 1, &x, NULL, &result));
    cr_assert(!result.passed && result.input == 0 && result.entry == 1 && result.error > 5e-4, "error %g", result.error);
    expect_near(result.got / result.expected, 1.001, 1e-6);
    result = (aj_check){.size = sizeof result};
    expect_ok(aj_dot_test(context, wrong, NULL, 1, &x, NULL, &result));
    cr_assert(!result.passed, "error %g", result.error);
    result = (aj_check){.size = sizeof result};
    wrong_factor = 1.1;
    expect_ok(aj_taylor_test(context, wrong, NULL, 1, &x, NULL, &result));
    cr_assert(!result.passed && result.rates[1] < 1.8, "rates %g and %g", result.rates[0], result.rates[1]);
    wrong_factor = 1.001;
    result = (aj_check){.size = sizeof result, .tolerance = 0.01};
    expect_ok(aj_gradcheck(context, wrong, NULL, 1, &x, NULL, &result));
    cr_assert(result.passed, "the tolerance is the caller's");
}

static aj_tensor *raises(aj_ctx *ctx, int n, aj_tensor *const *x, void *user) {
    (void)n, (void)user;
    aj_raise(ctx, AJ_ERR_USER, "the function gives up");
    return aj_exp(x[0]);
}

Test(autograd, checks_are_checked) {
    aj_tensor *x = F64((2), 1, 2), *whole = I64((1), 1);
    aj_check result = {.size = sizeof result};
    cr_assert(aj_gradcheck(context, raises, NULL, 1, &x, NULL, &result) == AJ_ERR_USER);
    expect_error(AJ_ERR_USER, "the function gives up");
    cr_assert(!aj_is_recording(context));
    cr_assert(aj_gradcheck(context, right, NULL, 1, &whole, NULL, &result) == AJ_ERR_DTYPE);
    expect_error(AJ_ERR_DTYPE, "i64", "f64");
    cr_assert(aj_dot_test(context, NULL, NULL, 1, &x, NULL, &result) == AJ_ERR_ARG);
    expect_error(AJ_ERR_ARG, "aj_dot_test");
    result.size = 1;
    cr_assert(aj_taylor_test(context, right, NULL, 1, &x, NULL, &result) == AJ_ERR_ARG);
    expect_error(AJ_ERR_ARG, "aj_taylor_test");
}

/* ---- memory over many iterations ---- */

enum { N_STATS = AJ_STAT_COMMS + 1 };

static int iterations(int full) {
    return is_watched() ? full / 100 : full;
}

static long resident_kilobytes(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    cr_assert(file && fscanf(file, "%*d %ld", &pages) == 1);
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void run_and_compare(int n, int warm_up, void (*step)(int)) {
    int64_t before[N_STATS] = {0};
    long resident = 0;
    for (int i = 0; i < n; i++) {
        step(i);
        if (i == warm_up) {
            for (int s = 0; s < N_STATS; s++)
                before[s] = aj_ctx_stat(context, (aj_stat)s);
            resident = resident_kilobytes();
        }
    }
    for (int s = 0; s < N_STATS; s++)
        cr_assert(aj_ctx_stat(context, (aj_stat)s) == before[s], "statistic %d was %lld after %d iterations, is %lld after %d", s,
                  (long long)before[s], warm_up, (long long)aj_ctx_stat(context, (aj_stat)s), n);
    long growth = resident_kilobytes() - resident;
    cr_assert(growth < 1024 || is_watched(), "resident memory has grown by %ld kB", growth);
}

static aj_tensor *weights, *bias, *state, *inputs;

static void train(int i) {
    aj_scope *s = aj_scope_begin(context);
    aj_scope_name(s, "iteration %d", i);
    (void)aj_record_begin(context);
    aj_tensor *y = aj_tanh(aj_add(aj_matmul(inputs, weights), bias));
    aj_tensor *loss = aj_mean(aj_square(aj_sub(y, aj_slice(inputs, 1, 0, 2, 1))));
    aj_zero_grad(weights);
    aj_zero_grad(bias);
    (void)aj_backward(context, loss, NULL);
    (void)aj_sgd_step(weights, 0.01);
    (void)aj_sgd_step(bias, 0.01);
    expect_ok(aj_scope_end(s));
}

Test(autograd, training_holds_no_memory) {
    weights = aj_param(aj_normal(context, AJ_F64, AJ_SHAPE(3, 2), 1));
    bias = aj_param(aj_zeros(context, AJ_F64, AJ_SHAPE(2)));
    inputs = aj_uniform(context, AJ_F64, AJ_SHAPE(8, 3), 2);
    run_and_compare(iterations(100000), iterations(1000), train);
    aj_release(&weights);
    aj_release(&bias);
}

static void step_forward(int i) {
    aj_scope *s = aj_scope_begin(context);
    aj_assign(&state, aj_add_scalar(aj_scale(state, 0.5), i % 2));
    if (i % 64 == 0)
        (void)aj_eval(state);
    expect_ok(aj_scope_end(s));
}

Test(autograd, a_forward_loop_holds_one_state) {
    aj_assign(&state, aj_ones(context, AJ_F64, AJ_SHAPE(5)));
    run_and_compare(iterations(1000000) / 64 * 64 + 1, iterations(1000000) / 128 * 64, step_forward);
    cr_assert(aj_item(aj_slice(state, 0, 0, 1, 1)) < 2);
    aj_release(&state);
}

/* The same where the state is never read: pending expressions must not pile up. */
static void step_unread(int i) {
    aj_scope *s = aj_scope_begin(context);
    aj_assign(&state, aj_add_scalar(aj_scale(state, 0.5), i % 2));
    expect_ok(aj_scope_end(s));
}

Test(autograd, a_state_that_is_never_read_does_not_pile_up) {
    aj_assign(&state, aj_ones(context, AJ_F64, AJ_SHAPE(5)));
    int64_t most = 0;
    for (int i = 0; i < iterations(100000); i++) {
        step_unread(i);
        int64_t now = aj_ctx_stat(context, AJ_STAT_LIVE_BYTES) + counted.live;
        if (i > 1000)
            cr_assert(now <= 2 * most + 100, "%lld after %d steps, was %lld", (long long)now, i, (long long)most);
        else
            most = now > most ? now : most;
    }
    double x = 1;
    for (int i = 0; i < iterations(100000); i++)
        x = 0.5 * x + i % 2;
    expect_near(aj_item(aj_slice(state, 0, 0, 1, 1)), x, 4 * EPS);
    aj_release(&state);
}

/* One long recording: memory in proportion to its length, all of it gone at its end. */
Test(autograd, long_recordings_are_freed) {
    int64_t nodes = aj_ctx_stat(context, AJ_STAT_NODES), tensors = aj_ctx_stat(context, AJ_STAT_TENSORS);
    for (int way = 0; way < 3; way++) {
        aj_scope *s = aj_scope_begin(context);
        aj_tensor *p = aj_param(SCALAR(1));
        BEGIN();
        aj_tensor *y = p;
        for (int i = 0; i < 100000; i++)
            y = aj_add_scalar(aj_scale(y, 1), 1e-5);
        if (way == 0)
            expect_ok(aj_backward(context, y, NULL));
        if (way == 0)
            expect_near(aj_item(aj_grad(p)), 1, 0);
        if (way == 1)
            expect_ok(aj_record_end(context));
        aj_release(&p);
        expect_ok(aj_scope_end(s));
        cr_assert(aj_ctx_stat(context, AJ_STAT_NODES) == nodes && aj_ctx_stat(context, AJ_STAT_TENSORS) == tensors);
    }
}
