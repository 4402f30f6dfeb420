/*
 * Every operation of autograd/ops.def against checks that know nothing of it but its samples.
 * The differences and inner products are computed here, in plain doubles: the library's own checks are not trusted to check themselves.
 */
#include "autograd/autograd_internal.h"
#include "elsewhere.h"
#include "serial.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_IN = AJI_MAX_SAMPLE_INPUTS };

/* One sample with definite shapes. */
typedef struct problem {
    const aji_op *op;
    const aji_sample *sample;
    int n;
    aji_meta in[MAX_IN];
} problem;

typedef struct point { /* the numbers of the inputs */
    double *x[MAX_IN];
} point;

/* ---- from an operation to its problems ---- */

static const aji_meta own_shapes[] = {
    {.ndim = 0},
    {.ndim = 1, .shape = {0}},
    {.ndim = 1, .shape = {1}},
    {.ndim = 1, .shape = {5}},
    {.ndim = 3, .shape = {3, 0, 2}},
    {.ndim = 2, .shape = {2, 3}},
    {.ndim = 3, .shape = {2, 1, 4}},
};

static const aji_meta broadcast_shapes[][3] = {
    {{.ndim = 2, .shape = {2, 3}}, {.ndim = 1, .shape = {3}}, {.ndim = 0}},
    {{.ndim = 1, .shape = {3}}, {.ndim = 2, .shape = {2, 3}}, {.ndim = 2, .shape = {2, 1}}},
    {{.ndim = 2, .shape = {2, 1}}, {.ndim = 2, .shape = {1, 3}}, {.ndim = 2, .shape = {2, 3}}},
    {{.ndim = 0}, {.ndim = 1, .shape = {4}}, {.ndim = 1, .shape = {1}}},
    {{.ndim = 1, .shape = {1}}, {.ndim = 1, .shape = {5}}, {.ndim = 3, .shape = {2, 1, 1}}},
    {{.ndim = 3, .shape = {3, 0, 2}}, {.ndim = 1, .shape = {2}}, {.ndim = 2, .shape = {1, 1}}},
    {{.ndim = 2, .shape = {1, 0}}, {.ndim = 2, .shape = {3, 1}}, {.ndim = 0}},
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void for_elementwise(const aji_op *op, const aji_sample *sample, void (*check)(const problem *)) {
    problem p = {.op = op, .sample = sample, .n = sample->n_in};
    for (size_t s = 0; s < COUNT(own_shapes); s++) {
        for (int k = 0; k < p.n; k++)
            p.in[k] = own_shapes[s];
        check(&p);
    }
    for (size_t s = 0; s < COUNT(broadcast_shapes) && p.n > 1; s++) {
        cr_assert(p.n <= 3);
        memcpy(p.in, broadcast_shapes[s], sizeof broadcast_shapes[s]);
        check(&p);
    }
}

static void for_each_problem(const aji_op *op, void (*check)(const problem *)) {
    cr_assert(op->samples && op->samples[0].n_in > 0, "no gradient check: %s has no samples", op->name);
    for (const aji_sample *sample = op->samples; sample->n_in > 0; sample++) {
        if (sample->elementwise) {
            for_elementwise(op, sample, check);
            continue;
        }
        problem p = {.op = op, .sample = sample, .n = sample->n_in};
        for (int k = 0; k < p.n; k++) {
            p.in[k].ndim = sample->in[k].ndim;
            memcpy(p.in[k].shape, sample->in[k].shape, sizeof sample->in[k].shape);
        }
        check(&p);
    }
}

/* ---- evaluating a problem ---- */

/* The sample's call, with a result that can be differentiated: a result of integers is made floating. */
static aj_tensor *call(const problem *p, aj_tensor *const *x) {
    aj_tensor *in[MAX_IN];
    memcpy(in, x, (size_t)p->n * sizeof *x);
    if (p->op->flags & AJI_OP_CONSUMES) /* what it consumes must not be the caller's */
        in[0] = aj_scale(in[0], 1);
    aj_tensor *y = p->sample->call(in);
    cr_assert(y, "%s: %s", p->op->name, aj_ctx_error(context));
    return aji_dtype_is_float(aj_tensor_dtype(y)) ? y : aj_cast(y, aj_tensor_dtype(x[0]));
}

static aj_tensor *call_for_check(aj_ctx *ctx, int n, aj_tensor *const *x, void *user) {
    (void)ctx, (void)n;
    return call(user, x);
}

static aj_tensor *input(const problem *p, int k, aj_dtype dtype, const double *x) {
    return make_values(dtype, p->in[k].ndim, p->in[k].shape, (int)aji_meta_numel(&p->in[k]), x);
}

/* Numbers from the sample's ranges that dtype holds exactly; different in all inputs, so that extrema are not tied. */
static point choose_point(const problem *p, aj_dtype dtype) {
    static const double within[MAX_IN] = {0.31, 0.47, 0.73, 0.59};
    point at = {{NULL}};
    for (int k = 0; k < p->n; k++)
        at.x[k] = numbers(make_spread(dtype, p->in[k].ndim, p->in[k].shape, p->sample->in[k].lo, p->sample->in[k].hi, within[k],
                                      (uint64_t)k + 1));
    return at;
}

/* sum_i weight_i y_i in f64; *coarse is set if y is f32 all the same. */
static double objective(const problem *p, const point *at, bool *coarse) {
    aj_scope *scope = aj_scope_begin(context);
    aj_tensor *x[MAX_IN];
    for (int k = 0; k < p->n; k++)
        x[k] = input(p, k, AJ_F64, at->x[k]);
    aj_tensor *y = call(p, x);
    double *values = numbers(y), sum = 0;
    for (int64_t i = 0; i < aj_numel(y); i++)
        sum += weight(i, 0) * values[i];
    *coarse = aj_tensor_dtype(y) == AJ_F32;
    expect_ok(aj_scope_end(scope));
    return sum;
}

/* Where parameters are made: NULL: on the host. */
static aj_device home;

static aj_tensor *input_at_home(const problem *p, int k, aj_dtype dtype, const double *x) {
    return aj_to_device(input(p, k, dtype, x), home ? home : aj_cpu(context));
}

static void make_params(const problem *p, const point *at, aj_dtype dtype, aj_tensor **params) {
    for (int k = 0; k < p->n; k++)
        cr_assert(params[k] = aj_param(input_at_home(p, k, dtype, at->x[k])));
}

static point take_gradients(const problem *p, aj_tensor **params) {
    point g = {{NULL}};
    for (int k = 0; k < p->n; k++) {
        g.x[k] = numbers(aj_grad(params[k]));
        aj_release(&params[k]);
    }
    return g;
}

/* The gradient of the objective by reverse mode. */
static point gradient(const problem *p, const point *at, aj_dtype dtype) {
    aj_scope *scope = aj_scope_begin(context);
    aj_tensor *params[MAX_IN];
    make_params(p, at, dtype, params);
    expect_ok(aj_record_begin(context));
    aj_tensor *y = call(p, params);
    expect_ok(aj_backward(context, y, make_weights(y, 0)));
    point g = take_gradients(p, params);
    expect_ok(aj_scope_end(scope));
    return g;
}

/* sum_k <v_k, gradient_k>, and its own gradient by differentiating the recorded gradient. */
static point second_gradient(const problem *p, const point *at, aj_dtype dtype) {
    aj_scope *scope = aj_scope_begin(context);
    aj_tensor *params[MAX_IN], *grads[MAX_IN];
    make_params(p, at, dtype, params);
    expect_ok(aj_record_begin(context));
    aj_tensor *y = call(p, params), *w = make_weights(y, 0),
              *total = aj_to_device(aj_scalar(context, dtype, 0), aj_tensor_device(params[0]));
    aj_status status = aj_grad_of(context, 1, &y, &w, p->n, params, grads, AJ_CREATE_GRAPH);
    cr_assert(status == AJ_OK, "%s: the gradient of the gradient: %s", p->op->name, aj_ctx_error(context));
    for (int k = 0; k < p->n; k++)
        total = aj_add(total, aj_sum(aj_mul(grads[k], make_weights(grads[k], k + 1))));
    status = aj_backward(context, total, NULL);
    cr_assert(status == AJ_OK, "%s: the gradient of the gradient: %s", p->op->name, aj_ctx_error(context));
    point g = take_gradients(p, params);
    expect_ok(aj_scope_end(scope));
    return g;
}

static double weighted_gradient(const problem *p, const point *at) {
    point g = gradient(p, at, AJ_F64);
    double sum = 0;
    for (int k = 0; k < p->n; k++)
        for (int64_t i = 0; i < aji_meta_numel(&p->in[k]); i++)
            sum += weight(i, k + 1) * g.x[k][i];
    return sum;
}

/* ---- central differences ---- */

typedef double (*scalar_of)(const problem *, const point *);

static double plain_objective(const problem *p, const point *at) {
    bool coarse;
    return objective(p, at, &coarse);
}

/* The cube root of eps balances the rounding, eps / h, against the truncation, h^2. */
static double difference(scalar_of f, const problem *p, const point *at, int k, int64_t i, double relative_step) {
    double x = at->x[k][i], h = relative_step * fmax(1, fabs(x));
    at->x[k][i] = x + h;
    double above = f(p, at);
    at->x[k][i] = x - h;
    double below = f(p, at);
    at->x[k][i] = x;
    return (above - below) / ((x + h) - (x - h));
}

/* Does got agree with the differences of f at every entry of every input? The tolerance is relative to the largest entry (at least 1), since
 * that is what rounding in f is relative to. */
static void compare(const char *what, const problem *p, const point *at, const point *got, scalar_of f, double step,
                    double tolerance) {
    point wanted = {{NULL}};
    double largest = 1;
    for (int k = 0; k < p->n; k++) {
        int64_t n = aji_meta_numel(&p->in[k]);
        wanted.x[k] = malloc(8 * (size_t)n + 8);
        for (int64_t i = 0; i < n; i++) {
            wanted.x[k][i] = difference(f, p, at, k, i, step);
            largest = fmax(largest, fabs(wanted.x[k][i]));
        }
    }
    for (int k = 0; k < p->n; k++) {
        for (int64_t i = 0; i < aji_meta_numel(&p->in[k]); i++)
            cr_assert(fabs(got->x[k][i] - wanted.x[k][i]) <= tolerance * largest,
                      "%s, sample %d, %s of input %d at entry %lld (x = %.6g): got %.10g, differences say %.10g (tolerance %g)",
                      p->op->name, (int)(p->sample - p->op->samples), what, k, (long long)i, at->x[k][i], got->x[k][i],
                      wanted.x[k][i], tolerance * largest);
        free(wanted.x[k]);
    }
}

static void expect_zero(const problem *p, const point *g) {
    for (int k = 0; k < p->n; k++)
        for (int64_t i = 0; i < aji_meta_numel(&p->in[k]); i++)
            cr_assert(g->x[k][i] == 0, "%s is piecewise constant, but its gradient is %g", p->op->name, g->x[k][i]);
}

static void check_first(const problem *p) {
    static const aj_dtype dtypes[] = {AJ_F64, AJ_F32};
    for (int d = 0; d < 2; d++) {
        point at = choose_point(p, dtypes[d]), got = gradient(p, &at, dtypes[d]);
        if (p->op->flags & AJI_OP_CONSTANT) {
            expect_zero(p, &got);
            continue;
        }
        bool coarse;
        objective(p, &at, &coarse);
        /* f64: rounding and truncation are some 1e-10 each, times condition numbers of the samples. f32: 256 eps for the gradient itself, the
         * differences are taken in f64. A result that is f32 in any case needs its own step, and loses eps / step. */
        double tolerance = coarse ? 1e-3 : dtypes[d] == AJ_F32 ? 256 * machine_epsilon(AJ_F32) : 1e-7;
        compare("gradient", p, &at, &got, plain_objective, cbrt(machine_epsilon(coarse ? AJ_F32 : AJ_F64)), tolerance);
    }
}

static void check_second(const problem *p) {
    point at = choose_point(p, AJ_F32), exact = second_gradient(p, &at, AJ_F64), rough = second_gradient(p, &at, AJ_F32);
    double largest = 1;
    compare("second derivative", p, &at, &exact, weighted_gradient, cbrt(machine_epsilon(AJ_F64)), 1e-6);
    for (int k = 0; k < p->n; k++)
        for (int64_t i = 0; i < aji_meta_numel(&p->in[k]); i++)
            largest = fmax(largest, fabs(exact.x[k][i]));
    for (int k = 0; k < p->n; k++) /* two sweeps of some hundred eps each, amplified by the samples' condition */
        for (int64_t i = 0; i < aji_meta_numel(&p->in[k]); i++)
            cr_assert(fabs(rough.x[k][i] - exact.x[k][i]) <= 4096 * machine_epsilon(AJ_F32) * largest,
                      "%s: second derivative of input %d in f32 is %g, in f64 %g", p->op->name, k, rough.x[k][i], exact.x[k][i]);
}

/* <J t, w> = <t, J' w>: forward mode against reverse mode. */
static void check_dot(const problem *p) {
    aj_scope *scope = aj_scope_begin(context);
    point at = choose_point(p, AJ_F64);
    aj_tensor *params[MAX_IN], *tangents[MAX_IN], *tangent;
    make_params(p, &at, AJ_F64, params);
    expect_ok(aj_record_begin(context));
    aj_tensor *y = call(p, params);
    for (int k = 0; k < p->n; k++)
        tangents[k] = make_weights(params[k], k + 1);
    int64_t nodes = aj_ctx_stat(context, AJ_STAT_NODES);
    expect_ok(aj_jvp(context, 1, &y, p->n, params, tangents, &tangent, 0));
    cr_assert(aj_ctx_stat(context, AJ_STAT_NODES) == nodes, "%s: the jvp left %lld nodes", p->op->name,
              (long long)(aj_ctx_stat(context, AJ_STAT_NODES) - nodes));
    expect_ok(aj_backward(context, y, make_weights(y, 0)));
    double forward = 0, reverse = 0, size = 0, *values = numbers(tangent);
    for (int64_t i = 0; i < aj_numel(y); i++) {
        forward += weight(i, 0) * values[i];
        size += fabs(weight(i, 0) * values[i]);
    }
    double eps = machine_epsilon(aj_tensor_dtype(y));
    point g = take_gradients(p, params);
    for (int k = 0; k < p->n; k++)
        for (int64_t i = 0; i < aji_meta_numel(&p->in[k]); i++) {
            reverse += weight(i, k + 1) * g.x[k][i];
            size += fabs(weight(i, k + 1) * g.x[k][i]);
        }
    cr_assert(fabs(forward - reverse) <= 4096 * eps * size, "%s, sample %d: forward mode %.15g, reverse mode %.15g", p->op->name,
              (int)(p->sample - p->op->samples), forward, reverse);
    expect_ok(aj_scope_end(scope));
}

/* The public checks agree with those above. */
static void check_public(const problem *p) {
    point at = choose_point(p, AJ_F64);
    aj_tensor *x[MAX_IN];
    bool coarse;
    objective(p, &at, &coarse);
    for (int k = 0; k < p->n; k++)
        x[k] = input_at_home(p, k, AJ_F64, at.x[k]);
    aj_check result = {.size = sizeof result, .tolerance = coarse ? 1e-3 : 0, .step = coarse ? 5e-3 : 0};
    void *user = (void *)(uintptr_t)p;
    expect_ok(aj_gradcheck(context, call_for_check, user, p->n, x, NULL, &result));
    cr_assert(result.passed, "%s: aj_gradcheck: error %g, expected %g, got %g", p->op->name, result.error, result.expected,
              result.got);
    result = (aj_check){.size = sizeof result, .tolerance = coarse ? 1e-4 : 0};
    expect_ok(aj_dot_test(context, call_for_check, user, p->n, x, NULL, &result));
    cr_assert(result.passed, "%s: aj_dot_test: error %g, expected %g, got %g", p->op->name, result.error, result.expected,
              result.got);
}

/* ---- strided operands ---- */

enum { TRANSPOSE, FLIP, STEP, WIDEN, N_VIEWS };

/* A view of x, and its shape undone: what must the larger tensor hold so that the view is x? */
static aj_tensor *view(int kind, aj_tensor *x) {
    int axes[AJ_MAX_NDIM], n = aj_ndim(x);
    for (int i = 0; i < n; i++)
        axes[i] = n - 1 - i;
    switch (kind) {
    case TRANSPOSE:
        return aj_permute(x, axes);
    case FLIP:
        return aj_flip(x, 0);
    case STEP:
        return aj_slice(x, -1, 1, INT64_MAX, 2);
    default:
        return aj_slice(x, 0, 1, -1, 1);
    }
}

static aj_tensor *undo_view(int kind, aj_tensor *x) {
    int64_t shape[AJ_MAX_NDIM + 1];
    int n = aj_ndim(x);
    for (int i = 0; i < n; i++)
        shape[i] = aj_extent(x, i);
    if (kind == TRANSPOSE || kind == FLIP)
        return view(kind, x);
    if (kind == WIDEN)
        return aj_pad(x, 0, 1, 1, 17);
    aj_tensor *pair[] = {aj_full(context, aj_tensor_dtype(x), n, shape, 17), x}; /* 17, x0, 17, x1, ... */
    shape[n - 1] *= 2;
    return aj_reshape(aj_stack(2, pair, n), n, shape);
}

/* The same numbers through views: the same result, and gradients that come back through the views. */
static void check_views(const problem *p) {
    point at = choose_point(p, AJ_F64), plain = gradient(p, &at, AJ_F64);
    for (int round = 0; round < N_VIEWS; round++) {
        aj_scope *scope = aj_scope_begin(context);
        aj_tensor *x[MAX_IN], *params[MAX_IN], *views[MAX_IN];
        for (int k = 0; k < p->n; k++) {
            x[k] = input(p, k, AJ_F64, at.x[k]);
            cr_assert(params[k] = aj_param(p->in[k].ndim ? undo_view((round + k) % N_VIEWS, x[k]) : x[k]));
        }
        aj_tensor *contiguous = call(p, x);
        expect_ok(aj_record_begin(context));
        for (int k = 0; k < p->n; k++)
            views[k] = p->in[k].ndim ? view((round + k) % N_VIEWS, params[k]) : params[k];
        aj_tensor *y = call(p, views);
        expect_same(y, contiguous, 256 * machine_epsilon(AJ_F64)); /* sums may run in another order */
        expect_ok(aj_backward(context, y, make_weights(y, 0)));
        for (int k = 0; k < p->n; k++) {
            aj_tensor *g = aj_grad(params[k]), *part = p->in[k].ndim ? view((round + k) % N_VIEWS, g) : g;
            expect_same(part, input(p, k, AJ_F64, plain.x[k]), 4096 * machine_epsilon(AJ_F64));
            double rest = aj_item(aj_sum(aj_abs(g))) - aj_item(aj_sum(aj_abs(part)));
            cr_assert(fabs(rest) <= 1e-12 * (1 + aj_item(aj_sum(aj_abs(g)))), "%s: a gradient outside the view", p->op->name);
            aj_release(&params[k]);
        }
        expect_ok(aj_scope_end(scope));
    }
}

/* ---- another device: what it computes is what the CPU computes, and no code touches its memory from the host ---- */

static void check_device(const problem *p) {
    point at = choose_point(p, AJ_F64), plain = gradient(p, &at, AJ_F64);
    aj_scope *scope = aj_scope_begin(context);
    aj_device device = elsewhere(context);
    cr_assert(device, "%s", aj_ctx_error(context));
    aj_tensor *x[MAX_IN], *params[MAX_IN];
    for (int k = 0; k < p->n; k++) {
        x[k] = input(p, k, AJ_F64, at.x[k]);
        cr_assert(params[k] = aj_param(aj_to_device(x[k], device)));
    }
    expect_ok(aj_record_begin(context));
    aj_tensor *y = call(p, params), *host = call(p, x);
    expect_same(aj_to_device(y, aj_cpu(context)), host, 256 * machine_epsilon(AJ_F64));
    expect_ok(aj_backward(context, y, make_weights(y, 0)));
    for (int k = 0; k < p->n; k++) {
        aj_tensor *g = aj_grad(params[k]);
        cr_assert(aj_tensor_device(g) == device, "%s: the gradient is not on the parameter's device", p->op->name);
        expect_same(aj_to_device(g, aj_cpu(context)), input(p, k, AJ_F64, plain.x[k]), 4096 * machine_epsilon(AJ_F64));
        aj_release(&params[k]);
    }
    expect_ok(aj_scope_end(scope));
}

/* ---- three tests for each operation: what it computes and how that changes, operands that are views, another device ---- */

static void check_derivatives(const problem *p) {
    check_first(p);
    check_second(p);
    check_dot(p);
    check_public(p);
}

/* Derivatives of derivatives there are those here. */
static void check_device_second(const problem *p) {
    point at = choose_point(p, AJ_F32), here = second_gradient(p, &at, AJ_F64);
    home = elsewhere(context);
    cr_assert(home, "%s", aj_ctx_error(context));
    point there = second_gradient(p, &at, AJ_F64), rough = second_gradient(p, &at, AJ_F32);
    home = NULL;
    double largest = 1;
    for (int k = 0; k < p->n; k++)
        for (int64_t i = 0; i < aji_meta_numel(&p->in[k]); i++)
            largest = fmax(largest, fabs(here.x[k][i]));
    for (int k = 0; k < p->n; k++)
        for (int64_t i = 0; i < aji_meta_numel(&p->in[k]); i++) {
            double wanted = here.x[k][i];
            cr_assert(fabs(there.x[k][i] - wanted) <= 65536 * machine_epsilon(AJ_F64) * largest,
                      "%s: second derivative of input %d is %.17g there, %.17g here", p->op->name, k, there.x[k][i], wanted);
            cr_assert(fabs(rough.x[k][i] - wanted) <= 4096 * machine_epsilon(AJ_F32) * largest,
                      "%s: second derivative of input %d is %g there in f32, %g here", p->op->name, k, rough.x[k][i], wanted);
        }
}

static void check_elsewhere(const problem *p) {
    check_device(p);
    check_device_second(p);
    home = elsewhere(context);
    check_public(p);
    home = NULL;
}

TestSuite(ops_derivatives, .init = begin, .fini = finish);
TestSuite(ops_views, .init = begin, .fini = finish);
TestSuite(ops_elsewhere, .init = begin, .fini = finish);

#define AJI_OP(name)                                                                                                             \
    Test(ops_derivatives, name) {                                                                                                \
        for_each_problem(&aji_op_##name, check_derivatives);                                                                     \
    }                                                                                                                            \
    Test(ops_views, name) {                                                                                                      \
        for_each_problem(&aji_op_##name, check_views);                                                                           \
    }                                                                                                                            \
    Test(ops_elsewhere, name) {                                                                                                  \
        for_each_problem(&aji_op_##name, check_elsewhere);                                                                       \
    }
#include "autograd/ops.def"
#undef AJI_OP
