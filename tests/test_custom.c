/* Custom operations: the contract of their callbacks, derivatives, failures at every stage. */
#include "serial.h"

#include <stdlib.h>
#include <string.h>

TestSuite(custom, .init = begin, .fini = finish);

#define EPS 2.220446049250313e-16

/* ---- polar: (r, phi) -> factor r cos phi, factor r sin phi, r^2; saves cos and sin for the gradient ---- */

typedef enum stage { NEVER, IN_INFER, IN_FORWARD, IN_VJP, SILENTLY_IN_FORWARD, SILENTLY_IN_VJP } stage;

typedef struct polar_attr {
    double factor;
    stage fail;
} polar_attr;

typedef struct seen { /* what the callbacks met */
    int forwards, vjps, jvps;
    bool wanted[2];
} seen;
static seen calls;

static int64_t entries(const aj_buf *b) {
    int64_t n = 1;
    for (int i = 0; i < b->ndim; i++)
        n *= b->shape[i];
    return n;
}

static aj_status polar_infer(aj_call *c) {
    const polar_attr *attr = c->attr;
    if (attr->fail == IN_INFER)
        return aj_raise(c->ctx, AJ_ERR_USER, "polar: refuses in infer");
    for (int k = 0; k < 5; k++) {
        aj_status status = aj_buf_set(c, k < 3 ? &c->out[k] : &c->saved[k - 3], c->in[0].dtype, c->in[0].ndim, c->in[0].shape);
        if (status != AJ_OK)
            return status;
    }
    return AJ_OK;
}

static aj_status polar_forward(const aj_call *c) {
    const polar_attr *attr = c->attr;
    calls.forwards++;
    if (attr->fail == IN_FORWARD)
        return aj_raise(c->ctx, AJ_ERR_NUMERIC, "polar: refuses in forward");
    if (attr->fail == SILENTLY_IN_FORWARD)
        return AJ_ERR_USER;
    cr_assert(c->n_in == 2 && c->n_out == 3 && c->n_saved == 2 && c->user == &calls && c->comm == NULL && c->stream == NULL);
    cr_assert(c->ctx == context);
    const double *r = c->in[0].data, *phi = c->in[1].data;
    double *x = c->out[0].data, *y = c->out[1].data, *q = c->out[2].data, *cosine = c->saved[0].data, *sine = c->saved[1].data;
    for (int64_t i = 0; i < entries(&c->in[0]); i++) {
        cosine[i] = cos(phi[i]);
        sine[i] = sin(phi[i]);
        x[i] = attr->factor * r[i] * cosine[i];
        y[i] = attr->factor * r[i] * sine[i];
        q[i] = r[i] * r[i];
    }
    return AJ_OK;
}

static aj_status polar_vjp(const aj_call *c) {
    const polar_attr *attr = c->attr;
    calls.vjps++;
    if (attr->fail == IN_VJP)
        return aj_raise(c->ctx, AJ_ERR_NUMERIC, "polar: refuses in vjp");
    if (attr->fail == SILENTLY_IN_VJP)
        return AJ_ERR_USER;
    const double *r = c->in[0].data, *cosine = c->saved[0].data, *sine = c->saved[1].data;
    const double *gx = c->g_out[0].data, *gy = c->g_out[1].data, *gq = c->g_out[2].data;
    double *gr = c->g_in[0].data, *gphi = c->g_in[1].data;
    calls.wanted[0] = gr != NULL;
    calls.wanted[1] = gphi != NULL;
    for (int64_t i = 0; i < entries(&c->g_in[0]); i++) {
        if (gr)
            gr[i] = attr->factor * (gx[i] * cosine[i] + gy[i] * sine[i]) + 2 * r[i] * gq[i];
        if (gphi)
            gphi[i] = attr->factor * r[i] * (gy[i] * cosine[i] - gx[i] * sine[i]);
    }
    return AJ_OK;
}

static aj_status polar_jvp(const aj_call *c) {
    const polar_attr *attr = c->attr;
    calls.jvps++;
    const double *r = c->in[0].data, *cosine = c->saved[0].data, *sine = c->saved[1].data, *tr = c->g_in[0].data,
                 *tphi = c->g_in[1].data;
    double *tx = c->g_out[0].data, *ty = c->g_out[1].data, *tq = c->g_out[2].data;
    for (int64_t i = 0; i < entries(&c->in[0]); i++) {
        double dr = tr ? tr[i] : 0, dphi = tphi ? tphi[i] : 0;
        tx[i] = attr->factor * (dr * cosine[i] - dphi * r[i] * sine[i]);
        ty[i] = attr->factor * (dr * sine[i] + dphi * r[i] * cosine[i]);
        tq[i] = 2 * r[i] * dr;
    }
    return AJ_OK;
}

static aj_status polar_vjp_ops(aj_ctx *ctx, const void *attr, aj_tensor *const *in, aj_tensor *const *out,
                               aj_tensor *const *g_out, aj_tensor **g_in) {
    (void)out;
    const polar_attr *a = attr;
    aj_tensor *cosine = aj_cos(in[1]), *sine = aj_sin(in[1]);
    aj_tensor *along = aj_add(aj_mul(g_out[0], cosine), aj_mul(g_out[1], sine));
    aj_tensor *across = aj_sub(aj_mul(g_out[1], cosine), aj_mul(g_out[0], sine));
    g_in[0] = aj_add(aj_scale(along, a->factor), aj_scale(aj_mul(in[0], g_out[2]), 2));
    g_in[1] = aj_scale(aj_mul(in[0], across), a->factor);
    return aj_ctx_status(ctx);
}

static const aj_op polar = {.size = sizeof(aj_op),
                            .name = "polar",
                            .maths = "x = f r cos phi, y = f r sin phi, q = r^2",
                            .n_out = 3,
                            .n_saved = 2,
                            .need = AJ_NEED_IN,
                            .attr_size = sizeof(polar_attr),
                            .user = &calls,
                            .infer = polar_infer,
                            .forward = polar_forward,
                            .vjp = polar_vjp,
                            .jvp = polar_jvp,
                            .vjp_ops = polar_vjp_ops};

static aj_status apply_polar(const aj_op *op, double factor, stage fail, aj_tensor *r, aj_tensor *phi, aj_tensor **outs) {
    polar_attr attr = {.factor = factor, .fail = fail};
    aj_status status = aj_apply(context, op, NULL, &attr, 2, (aj_tensor *[]){r, phi}, 3, outs);
    attr.factor = NAN; /* the operation has its own copy */
    return status;
}

Test(custom, three_outputs_and_saved_buffers) {
    aj_tensor *r = aj_param(F64((2), 1, 2)), *phi = aj_param(F64((2), 0.3, 0.7)), *out[3];
    expect_ok(aj_record_begin(context));
    expect_ok(apply_polar(&polar, 10, NEVER, r, phi, out));
    expect_values(out[0], 4 * EPS, 10 * cos(0.3), 20 * cos(0.7));
    expect_values(out[1], 4 * EPS, 10 * sin(0.3), 20 * sin(0.7));
    expect_values(out[2], 0, 1, 4);
    aj_tensor *seeds[] = {F64((2), 1, 2), NULL, F64((2), 3, 4)}, *g[2], *ins[] = {r, phi};
    expect_ok(aj_grad_of(context, 3, out, seeds, 2, ins, g, 0));
    expect_values(g[0], 8 * EPS, 10 * (cos(0.3) + sin(0.3)) + 6, 10 * (2 * cos(0.7) + sin(0.7)) + 16);
    expect_values(g[1], 8 * EPS, 10 * (cos(0.3) - sin(0.3)), 20 * (cos(0.7) - 2 * sin(0.7)));
    expect_ok(aj_backward(context, out[2], NULL)); /* the other two outputs are unused: their gradients are zeros */
    expect_values(aj_grad(r), 0, 2, 4);
    expect_values(aj_grad(phi), 0, 0, 0);
    cr_assert(calls.forwards == 1 && calls.vjps == 2 && calls.wanted[0] && calls.wanted[1]);
    aj_release(&r);
    aj_release(&phi);
}

Test(custom, gradients_that_nobody_wants_are_not_asked_for) {
    aj_tensor *phi = aj_param(F64((2), 0.3, 0.7)), *out[3];
    expect_ok(aj_record_begin(context));
    expect_ok(apply_polar(&polar, 1, NEVER, F64((2), 1, 2), phi, out));
    expect_ok(aj_backward(context, out[1], NULL));
    cr_assert(!calls.wanted[0] && calls.wanted[1]);
    expect_values(aj_grad(phi), 4 * EPS, cos(0.3), 2 * cos(0.7));
    expect_ok(aj_record_begin(context));
    int64_t nodes = aj_ctx_stat(context, AJ_STAT_NODES);
    expect_ok(apply_polar(&polar, 1, NEVER, F64((2), 1, 2), F64((2), 0, 0), out));
    cr_assert(aj_ctx_stat(context, AJ_STAT_NODES) == nodes, "nothing active, no node");
    expect_ok(aj_record_end(context));
    aj_release(&phi);
}

Test(custom, strided_inputs_arrive_contiguous) {
    aj_tensor *r = aj_flip(aj_slice(F64((4), 1, 9, 2, 9), 0, 0, 4, 2), 0), *phi = aj_broadcast_to(SCALAR(0), AJ_SHAPE(2)),
              *out[3];
    expect_ok(apply_polar(&polar, 1, NEVER, r, phi, out));
    expect_values(out[0], 0, 2, 1);
    expect_values(out[2], 0, 4, 1);
    aj_tensor *none = aj_zeros(context, AJ_F64, AJ_SHAPE(0));
    expect_ok(apply_polar(&polar, 1, NEVER, none, none, out));
    expect_shape(out[2], 0);
}

Test(custom, derivatives_of_derivatives) {
    aj_tensor *r = aj_param(F64((1), 2)), *phi = aj_param(F64((1), 0.3)), *out[3], *ins[] = {r, phi}, *g[2];
    expect_ok(aj_record_begin(context));
    expect_ok(apply_polar(&polar, 1, NEVER, r, phi, out));
    expect_ok(aj_grad_of(context, 1, out, NULL, 2, ins, g, AJ_CREATE_GRAPH)); /* of r cos phi */
    expect_values(g[0], 4 * EPS, cos(0.3));
    expect_values(g[1], 4 * EPS, -2 * sin(0.3));
    expect_ok(aj_backward(context, aj_sum(g[1]), NULL));
    expect_values(aj_grad(r), 4 * EPS, -sin(0.3));
    expect_values(aj_grad(phi), 4 * EPS, -2 * cos(0.3));
    aj_release(&r);
    aj_release(&phi);
}

Test(custom, without_vjp_ops_they_are_an_error) {
    aj_op once = polar;
    once.vjp_ops = NULL;
    once.jvp = NULL;
    aj_tensor *r = aj_param(F64((1), 2)), *phi = F64((1), 0.3), *out[3], *g, *t = F64((1), 1);
    expect_ok(aj_record_begin(context));
    expect_ok(apply_polar(&once, 1, NEVER, r, phi, out));
    cr_assert(aj_grad_of(context, 1, out, NULL, 1, &r, &g, AJ_CREATE_GRAPH) == AJ_ERR_UNSUPPORTED && g == NULL);
    expect_error(AJ_ERR_UNSUPPORTED, "polar", "vjp_ops");
    cr_assert(aj_jvp(context, 1, out, 1, &r, &t, &g, 0) == AJ_ERR_UNSUPPORTED && g == NULL);
    expect_error(AJ_ERR_UNSUPPORTED, "polar");
    expect_ok(aj_grad_of(context, 1, out, NULL, 1, &r, &g, 0)); /* the recording is as good as before */
    expect_values(g, 4 * EPS, cos(0.3));
    expect_ok(aj_record_end(context));
    aj_release(&r);
}

static void check_tangents(const aj_op *op) {
    aj_tensor *r = aj_param(F64((1), 2)), *phi = aj_param(F64((1), 0.3)), *out[3], *ins[] = {r, phi},
              *tangents[] = {F64((1), 3), NULL}, *results[3];
    expect_ok(aj_record_begin(context));
    expect_ok(apply_polar(op, 1, NEVER, r, phi, out));
    expect_ok(aj_jvp(context, 3, out, 2, ins, tangents, results, 0));
    expect_values(results[0], 8 * EPS, 3 * cos(0.3));
    expect_values(results[1], 8 * EPS, 3 * sin(0.3));
    expect_values(results[2], 8 * EPS, 12);
    tangents[1] = F64((1), -1);
    expect_ok(aj_jvp(context, 3, out, 2, ins, tangents, results, 0));
    expect_values(results[0], 8 * EPS, 3 * cos(0.3) + 2 * sin(0.3));
    expect_ok(aj_record_end(context));
    aj_release(&r);
    aj_release(&phi);
}

Test(custom, forward_mode_by_the_callback) {
    aj_op op = polar;
    op.vjp_ops = NULL;
    check_tangents(&op);
    cr_assert(calls.jvps > 0);
}

Test(custom, forward_mode_by_vjp_ops) {
    aj_op op = polar;
    op.jvp = NULL;
    check_tangents(&op);
    cr_assert(calls.jvps == 0);
}

static aj_tensor *through_polar(aj_ctx *ctx, int n, aj_tensor *const *x, void *user) {
    (void)ctx, (void)n;
    aj_tensor *out[3];
    if (apply_polar(user, 1.5, NEVER, x[0], x[1], out) != AJ_OK)
        return NULL;
    return aj_concat(3, out, 0);
}

Test(custom, the_checks_accept_it) {
    aj_tensor *x[] = {F64((3), 1, 2, 3), F64((3), 0.3, 0.7, -1)};
    aj_check result = {.size = sizeof result};
    void *user = (void *)(uintptr_t)&polar;
    expect_ok(aj_gradcheck(context, through_polar, user, 2, x, NULL, &result));
    cr_assert(result.passed, "error %g", result.error);
    result = (aj_check){.size = sizeof result};
    expect_ok(aj_dot_test(context, through_polar, user, 2, x, NULL, &result));
    cr_assert(result.passed, "error %g", result.error);
}

/* ---- failures ---- */

Test(custom, callbacks_that_fail) {
    aj_tensor *r = aj_param(F64((1), 2)), *phi = F64((1), 0.3), *out[3];
    expect_ok(aj_record_begin(context));
    memset(out, 0xff, sizeof out);
    cr_assert(apply_polar(&polar, 1, IN_INFER, r, phi, out) == AJ_ERR_USER && !out[0] && !out[1] && !out[2]);
    expect_error(AJ_ERR_USER, "polar: refuses in infer");
    cr_assert(apply_polar(&polar, 1, IN_FORWARD, r, phi, out) == AJ_ERR_NUMERIC && !out[0] && !out[1] && !out[2]);
    expect_error(AJ_ERR_NUMERIC, "polar: refuses in forward");
    cr_assert(apply_polar(&polar, 1, SILENTLY_IN_FORWARD, r, phi, out) == AJ_ERR_USER && !out[0]);
    expect_error(AJ_ERR_USER, "polar", "forward");
    expect_ok(apply_polar(&polar, 1, IN_VJP, r, phi, out));
    cr_assert(aj_backward(context, out[0], NULL) == AJ_ERR_NUMERIC);
    expect_error(AJ_ERR_NUMERIC, "polar: refuses in vjp");
    expect_values(aj_grad(r), 0, 0);
    expect_ok(aj_record_begin(context)); /* the failed backward dropped the recording */
    expect_ok(apply_polar(&polar, 1, SILENTLY_IN_VJP, r, phi, out));
    cr_assert(aj_backward(context, out[0], NULL) == AJ_ERR_USER);
    expect_error(AJ_ERR_USER, "polar", "vjp");
    aj_release(&r);
}

static aj_status forward_only(const aj_call *c) {
    memcpy(c->out[0].data, c->in[0].data, (size_t)entries(&c->in[0]) * aj_dtype_size(c->in[0].dtype));
    return AJ_OK;
}

static const aj_op copier = {.size = sizeof(aj_op), .name = "copier", .maths = "y = x", .n_out = 1, .forward = forward_only};

Test(custom, without_infer_and_without_vjp) {
    aj_tensor *y, *x = I32((2, 2), 1, 2, 3, 4);
    expect_ok(aj_apply(context, &copier, NULL, NULL, 1, &x, 1, &y));
    expect_same(y, x, 0);
    aj_tensor *p = aj_param(F64((2), 1, 2)), *c = F64((2), 1, 2);
    expect_ok(aj_apply(context, &copier, NULL, NULL, 1, &p, 1, &y)); /* outside a recording */
    expect_ok(aj_record_begin(context));
    expect_ok(aj_apply(context, &copier, NULL, NULL, 1, &c, 1, &y)); /* an input that depends on nothing */
    cr_assert(aj_apply(context, &copier, NULL, NULL, 1, &p, 1, &y) == AJ_ERR_UNSUPPORTED && y == NULL);
    expect_error(AJ_ERR_UNSUPPORTED, "copier", "derivative");
    expect_ok(aj_record_end(context));
    aj_release(&p);
}

Test(custom, descriptions_and_arguments_are_checked) {
    aj_tensor *x = F64((1), 1), *y, *two[2];
    aj_op bad = copier;
    bad.size = 8;
    cr_assert(aj_apply(context, &bad, NULL, NULL, 1, &x, 1, &y) == AJ_ERR_ARG && y == NULL);
    expect_error(AJ_ERR_ARG, "size");
    bad = copier;
    bad.forward = NULL;
    cr_assert(aj_apply(context, &bad, NULL, NULL, 1, &x, 1, &y) == AJ_ERR_ARG);
    expect_error(AJ_ERR_ARG, "aj_apply", "forward");
    cr_assert(aj_apply(context, &copier, NULL, NULL, 1, &x, 2, two) == AJ_ERR_ARG);
    expect_error(AJ_ERR_ARG, "copier");
    cr_assert(aj_apply(context, NULL, NULL, NULL, 1, &x, 1, &y) == AJ_ERR_ARG);
    expect_error(AJ_ERR_ARG, "aj_apply");
    cr_assert(aj_apply(context, &polar, NULL, NULL, 2, (aj_tensor *[]){x, x}, 1, &y) == AJ_ERR_ARG);
    expect_error(AJ_ERR_ARG, "polar");
    aj_tensor *none = NULL;
    cr_assert(aj_apply(context, &copier, NULL, NULL, 1, &none, 1, &y) == AJ_ERR_ARG && y == NULL);
    expect_error(AJ_ERR_ARG, "copier");
    aj_tensor *far = aj_to_device(x, aj_test_device(context));
    cr_assert(aj_apply(context, &copier, NULL, NULL, 1, &far, 1, &y) == AJ_ERR_DEVICE && y == NULL);
    expect_error(AJ_ERR_DEVICE, "copier");
}

static aj_status infer_nonsense(aj_call *c) {
    return aj_buf_set(c, &c->out[0], c->in[0].dtype, 1, (const int64_t[]){-3});
}

Test(custom, infer_is_checked) {
    aj_op bad = copier;
    bad.infer = infer_nonsense;
    aj_tensor *x = F64((1), 1), *y;
    cr_assert(aj_apply(context, &bad, NULL, NULL, 1, &x, 1, &y) == AJ_ERR_ARG && y == NULL);
    expect_error(AJ_ERR_ARG, "-3");
}
