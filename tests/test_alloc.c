/*
 * Fail the k-th allocation, for k = 0, 1, 2, ... until a program needs no more: each time either all goes well, or the context has
 * AJ_ERR_MEMORY; then everything can be destroyed as usual, and the allocator has every block back. With and without the pool; with one
 * failing call, and with all calls failing from there on.
 */
#include "autograd/autograd_internal.h"
#include "serial.h"

#include <stdlib.h>

TestSuite(alloc);

typedef void (*program)(aj_ctx *ctx, const void *data);

static void run_once(program f, const void *data, const aj_ctx_opts *opts) {
    int64_t k = counted.fail_after;
    aj_ctx *ctx = NULL;
    aj_status status = aj_ctx_create(&ctx, opts);
    if (status != AJ_OK) {
        cr_assert(status == AJ_ERR_MEMORY && ctx == NULL && counted.failed, "creating a context: %s", aj_status_name(status));
    } else {
        f(ctx, data);
        status = aj_ctx_status(ctx);
        cr_assert(status == AJ_OK || (status == AJ_ERR_MEMORY && counted.failed),
                  "allocation %lld failed, and the error is %s: %s", (long long)k, aj_status_name(status), aj_ctx_error(ctx));
        cr_assert(status == AJ_OK || aj_ctx_error(ctx)[0] != 0);
        status = aj_ctx_destroy(&ctx);
        cr_assert((status == AJ_OK || status == AJ_ERR_MEMORY) && ctx == NULL, "allocation %lld failed, and destroy says %s: %s",
                  (long long)k, aj_status_name(status), log_text);
    }
    cr_assert(counted.live == 0, "allocation %lld failed, and %lld blocks leaked", (long long)k, (long long)counted.live);
}

static void fail_each_allocation(program f, const void *data) {
    for (int mode = 0; mode < 4; mode++) {
        aj_ctx_opts opts = {.size = sizeof opts,
                            .alloc = counting_alloc,
                            .free = counting_free,
                            .alloc_user = &counted,
                            .log = keep_log,
                            .disable_pool = mode & 1};
        int64_t k = 0;
        do {
            counted = (counting){.fail_after = k++, .once = mode & 2};
            run_once(f, data, &opts);
        } while (counted.failed);
        cr_assert(k > 1, "the program allocates nothing through the context");
    }
}

/* ---- every operation: forward, gradient, gradient of the gradient ---- */

static aj_tensor *draw(aj_ctx *ctx, const aji_sample *sample, int k) {
    static const int64_t own[] = {2, 3};
    double lo = sample->in[k].lo, hi = sample->in[k].hi;
    aj_tensor *u = sample->elementwise ? aj_uniform(ctx, AJ_F64, 2, own, (uint64_t)k)
                                       : aj_uniform(ctx, AJ_F64, sample->in[k].ndim, sample->in[k].shape, (uint64_t)k);
    return aj_add_scalar(aj_scale(u, hi - lo), lo);
}

typedef struct task {
    const aji_op *op;
    const aji_sample *sample;
} task;

static void differentiate_twice(aj_ctx *ctx, const void *data) {
    const aji_op *op = ((const task *)data)->op;
    const aji_sample *sample = ((const task *)data)->sample;
    aj_tensor *params[AJI_MAX_SAMPLE_INPUTS] = {NULL}, *in[AJI_MAX_SAMPLE_INPUTS], *grads[AJI_MAX_SAMPLE_INPUTS];
    aj_scope *scope = aj_scope_begin(ctx);
    for (int k = 0; k < sample->n_in; k++)
        in[k] = params[k] = aj_param(draw(ctx, sample, k));
    (void)aj_record_begin(ctx);
    if (op->flags & AJI_OP_CONSUMES)
        in[0] = aj_scale(in[0], 1);
    aj_tensor *y = sample->call(in), *total = aj_scalar(ctx, AJ_F64, 0);
    if (y && !aji_dtype_is_float(aj_tensor_dtype(y)))
        y = aj_cast(y, AJ_F64);
    (void)aj_grad_of(ctx, 1, &y, NULL, sample->n_in, params, grads, AJ_CREATE_GRAPH);
    for (int k = 0; k < sample->n_in; k++)
        total = aj_add(total, aj_sum(aj_square(grads[k])));
    (void)aj_backward(ctx, total, NULL);
    for (int k = 0; k < sample->n_in; k++) {
        (void)aj_eval(params[k] ? aj_grad(params[k]) : NULL);
        aj_release(&params[k]);
    }
    aj_status status = aj_scope_end(scope);
    cr_assert(status == AJ_OK || counted.failed, "%s: %s", op->name, aj_ctx_error(ctx));
}

static void run_operation(const aji_op *op) {
    for (const aji_sample *sample = op->samples; sample->n_in > 0; sample++)
        fail_each_allocation(differentiate_twice, &(task){op, sample});
}

#define AJI_OP(name)                                                                                                             \
    Test(alloc, op_##name) {                                                                                                     \
        run_operation(&aji_op_##name);                                                                                           \
    }
#include "autograd/ops.def"
#undef AJI_OP

/* ---- scopes and handles ---- */

static void run_scopes(aj_ctx *ctx, const void *data) {
    (void)data;
    aj_tensor *state = NULL, *kept = NULL;
    aj_assign(&state, aj_ones(ctx, AJ_F64, AJ_SHAPE(3)));
    for (int i = 0; i < 3; i++) {
        aj_scope *outer = aj_scope_begin(ctx), *inner = aj_scope_begin(ctx);
        if (inner)
            aj_scope_name(inner, "step %d", i);
        aj_tensor *t = aj_exp(aj_normal(ctx, AJ_F64, AJ_SHAPE(40), (uint64_t)i));
        aj_scope_begin(ctx); /* left open */
        aj_assign(&state, aj_add(state, aj_slice(t, 0, i, i + 3, 1)));
        if (inner)
            t = aj_scope_return(inner, t);
        if (outer)
            (void)!aj_scope_end(outer); /* closes inner, and the one inside it */
    }
    for (int i = 0; i < 100; i++) /* handles enough for the scope's list to grow */
        aj_arange(ctx, AJ_F32, 0, i, 1);
    kept = aj_keep(aj_full(ctx, AJ_U8, AJ_SHAPE(2), 3));
    (void)aj_eval(state);
    aj_release(&state);
    aj_release(&kept);
}

Test(alloc, scopes) {
    fail_each_allocation(run_scopes, NULL);
}

/* ---- user memory: the deleter runs exactly once, whatever fails ---- */

static int deletions;
static void count_deletion(void *data, void *user) {
    (void)user;
    free(data);
    deletions++;
}

static void run_user_memory(aj_ctx *ctx, const void *data) {
    (void)data;
    deletions = 0;
    double borrowed[6] = {1, 2, 3, 4, 5, 6};
    aj_tensor *adopted = aj_from_memory(ctx, AJ_F64, AJ_SHAPE(2, 3), calloc(6, sizeof(double)), count_deletion, NULL);
    aj_tensor *view = aj_transpose(adopted, 0, 1);
    aj_release(&adopted);
    aj_tensor *x = aj_from_memory(ctx, AJ_F64, AJ_SHAPE(2, 3), borrowed, NULL, NULL), *lazy = aj_exp(aj_flip(x, 0));
    aj_tensor *copy = aj_from_data(ctx, AJ_F64, AJ_SHAPE(6), borrowed);
    if (x)
        (void)aj_unborrow(x);
    double out[6];
    if (lazy)
        (void)!aj_read(lazy, out, sizeof out);
    if (copy)
        (void)aj_data(copy);
    aj_release(&view);
    cr_assert(deletions == 1, "the deleter ran %d times", deletions);
}

Test(alloc, user_memory) {
    fail_each_allocation(run_user_memory, NULL);
}

/* ---- training, forward mode, retained graphs, devices, in-place ---- */

static void run_training(aj_ctx *ctx, const void *data) {
    (void)data;
    aj_tensor *w = aj_param(aj_normal(ctx, AJ_F64, AJ_SHAPE(3, 2), 1)), *y, *r, *t;
    for (int i = 0; i < 2; i++) {
        aj_scope *scope = aj_scope_begin(ctx);
        (void)aj_record_begin(ctx);
        y = aj_softmax(aj_matmul(aj_uniform(ctx, AJ_F64, AJ_SHAPE(4, 3), 2), w), 1);
        y = aj_set_window_inplace(y, (const int64_t[]){1, 0}, aj_ones(ctx, AJ_F64, AJ_SHAPE(2, 1)));
        t = aj_ones(ctx, AJ_F64, AJ_SHAPE(3, 2));
        (void)aj_jvp(ctx, 1, &y, 1, &w, &t, &r, 0);
        (void)aj_backward_many(ctx, 1, &y, NULL, AJ_RETAIN_GRAPH);
        (void)aj_record_stop(ctx);
        (void)aj_grad_of(ctx, 1, &y, NULL, 1, &w, &r, AJ_REACHED);
        (void)aj_backward(ctx, y, NULL);
        if (w) {
            (void)aj_sgd_step(w, 0.1);
            (void)aj_param_set(w, aj_scale(w, 0.5));
            aj_zero_grad(w);
        }
        aj_tensor *far = aj_to_device(w, aj_test_device(ctx));
        (void)aj_eval(aj_join_dummies(aj_exp(far), 1, &far));
        if (scope)
            (void)!aj_scope_end(scope);
    }
    aj_release(&w);
}

Test(alloc, training) {
    fail_each_allocation(run_training, NULL);
}

/* ---- custom operations and checks ---- */

static aj_status cube_infer(aj_call *c) {
    aj_status status = aj_buf_set(c, &c->out[0], c->in[0].dtype, c->in[0].ndim, c->in[0].shape);
    return status == AJ_OK ? aj_buf_set(c, &c->saved[0], c->in[0].dtype, c->in[0].ndim, c->in[0].shape) : status;
}

static aj_status cube_forward(const aj_call *c) {
    const double *x = c->in[0].data;
    double *y = c->out[0].data, *slope = c->saved[0].data;
    for (int64_t i = 0; i < c->in[0].shape[0]; i++) {
        slope[i] = 3 * x[i] * x[i];
        y[i] = x[i] * x[i] * x[i];
    }
    return AJ_OK;
}

static aj_status cube_vjp(const aj_call *c) {
    const double *slope = c->saved[0].data, *g = c->g_out[0].data;
    double *gx = c->g_in[0].data;
    for (int64_t i = 0; i < c->g_in[0].shape[0]; i++)
        gx[i] = slope[i] * g[i];
    return AJ_OK;
}

static aj_status cube_vjp_ops(aj_ctx *ctx, const void *attr, aj_tensor *const *in, aj_tensor *const *out, aj_tensor *const *g_out,
                              aj_tensor **g_in) {
    (void)attr, (void)out;
    g_in[0] = aj_scale(aj_mul(g_out[0], aj_square(in[0])), 3);
    return aj_ctx_status(ctx);
}

static const aj_op cube = {.size = sizeof(aj_op),
                           .name = "cube",
                           .maths = "y = x^3; gx = 3 x^2 g",
                           .n_out = 1,
                           .n_saved = 1,
                           .need = AJ_NEED_IN,
                           .attr_size = sizeof(int),
                           .infer = cube_infer,
                           .forward = cube_forward,
                           .vjp = cube_vjp,
                           .vjp_ops = cube_vjp_ops};

static aj_tensor *cubed(aj_ctx *ctx, int n, aj_tensor *const *x, void *user) {
    (void)user;
    int attr = 1;
    aj_tensor *y;
    return aj_apply(ctx, &cube, NULL, &attr, n, x, 1, &y) == AJ_OK ? y : NULL;
}

static void run_custom(aj_ctx *ctx, const void *data) {
    (void)data;
    aj_tensor *p = aj_param(aj_uniform(ctx, AJ_F64, AJ_SHAPE(2), 1)), *g;
    (void)aj_record_begin(ctx);
    aj_tensor *y = p ? cubed(ctx, 1, &p, NULL) : NULL;
    (void)aj_grad_of(ctx, 1, &y, NULL, 1, &p, &g, AJ_CREATE_GRAPH);
    (void)aj_backward(ctx, g, NULL);
    aj_release(&p);
}

Test(alloc, custom) {
    fail_each_allocation(run_custom, NULL);
}

static void run_checks(aj_ctx *ctx, const void *data) {
    (void)data;
    aj_tensor *x = aj_uniform(ctx, AJ_F64, AJ_SHAPE(2), 1);
    aj_check result = {.size = sizeof result};
    if (!x)
        return;
    (void)aj_gradcheck(ctx, cubed, NULL, 1, &x, NULL, &result);
    (void)aj_dot_test(ctx, cubed, NULL, 1, &x, NULL, &result);
    (void)aj_taylor_test(ctx, cubed, NULL, 1, &x, NULL, &result);
    cr_assert(aj_ctx_status(ctx) != AJ_OK || result.passed);
    cr_assert(!aj_is_recording(ctx));
}

Test(alloc, checks) {
    fail_each_allocation(run_checks, NULL);
}

/* ---- pending values: a failure leaves them pending, and what comes after it is right ---- */

enum { MANY = 300, RESULTS = 9 };

static aj_tensor *from_wave(aj_ctx *ctx) {
    double wave[MANY];
    for (int i = 0; i < MANY; i++)
        wave[i] = sin(0.1 * i);
    return aj_from_data(ctx, AJ_F64, AJ_SHAPE(MANY), wave);
}

/* Interior values that are read twice, parts with their gradients, results made of parts, reductions. */
static void pending_values(aj_ctx *ctx, aj_tensor *p, aj_tensor **y) {
    aj_tensor *g[2] = {NULL, NULL}, *in[] = {p, NULL};
    (void)aj_record_begin(ctx);
    aj_tensor *a = aj_exp(aj_scale(p, 0.5)), *b = aj_mul(a, aj_tanh(a)), *part = aj_slice(b, 0, 20, 150, 1);
    in[1] = a;
    y[0] = aj_add(aj_square(b), a);
    y[1] = aj_sub(b, aj_flip(a, 0));
    y[2] = aj_set_window(aj_neg(p), (const int64_t[]){7}, aj_scale(part, 3));
    y[3] = aj_concat(3, (aj_tensor *[]){aj_sub(p, a), part, aj_cast(aj_gt(p, a), AJ_F64)}, 0);
    y[4] = aj_sum_axes(aj_mul(aj_reshape(b, AJ_SHAPE(MANY, 1)), aj_slice(p, 0, 0, 3, 1)), 1, (int[]){0}, false);
    y[5] = aj_softmax(aj_reshape(y[0], AJ_SHAPE(3, 100)), 1);
    (void)aj_grad_of(ctx, 1, &part, NULL, 2, in, g, AJ_CREATE_GRAPH);
    y[6] = aj_mul(g[0], aj_add(p, g[1]));
    (void)aj_backward(ctx, aj_sum(aj_mul(g[0], b)), NULL);
    y[7] = p ? aj_scale(aj_grad(p), 2) : NULL;
    y[8] = aj_max(aj_abs(y[7]));
}

static void check_results(aj_tensor *const *y, double *const *right, int64_t k) {
    for (int r = 0; r < RESULTS; r++) {
        int64_t n = aj_numel(y[r]);
        double out[3 * MANY];
        cr_assert(aj_read(y[r], out, (size_t)n * sizeof *out) == AJ_OK, "allocation %lld", (long long)k);
        for (int64_t i = 0; i < n; i++)
            cr_assert(out[i] == right[r][i],
                      "allocation %lld failed; afterwards result %d, entry %lld, is %.17g instead of %.17g", (long long)k, r,
                      (long long)i, out[i], right[r][i]);
    }
}

/* Fails call k of the allocator, counted from the program's begin or (late) from the first read. */
static bool fail_pending(aj_ctx *ctx, aj_tensor *p, double *const *right, int64_t k, bool late, bool once) {
    aj_tensor *y[RESULTS] = {NULL};
    aj_scope *scope = aj_scope_begin(ctx);
    if (late)
        pending_values(ctx, p, y);
    counted = (counting){.live = counted.live, .fail_after = k, .once = once};
    if (!late)
        pending_values(ctx, p, y);
    for (int r = 0; r < RESULTS; r++)
        (void)aj_eval(y[r]);
    bool failed = counted.failed;
    counted.fail_after = -1;
    aj_status status = aj_ctx_status(ctx);
    cr_assert(status == AJ_OK || (failed && status == AJ_ERR_MEMORY), "allocation %lld failed, and the error is %s", (long long)k,
              aj_ctx_error(ctx));
    aj_ctx_clear_error(ctx);
    if (late || status == AJ_OK)
        check_results(y, right, k); /* the very values whose evaluation failed */
    cr_assert(aj_scope_end(scope) == AJ_OK);
    return failed;
}

static void check_pending(const aj_ctx_opts *opts, bool late, bool once) {
    aj_ctx *ctx;
    aj_tensor *y[RESULTS];
    double *right[RESULTS];
    counted = (counting){.fail_after = -1};
    cr_assert(aj_ctx_create(&ctx, opts) == AJ_OK);
    aj_tensor *p = aj_param(from_wave(ctx));
    aj_scope *scope = aj_scope_begin(ctx);
    pending_values(ctx, p, y);
    for (int r = 0; r < RESULTS; r++) {
        right[r] = malloc((size_t)aj_numel(y[r]) * sizeof(double));
        cr_assert(aj_read(y[r], right[r], (size_t)aj_numel(y[r]) * sizeof(double)) == AJ_OK);
    }
    cr_assert(aj_scope_end(scope) == AJ_OK);
    aj_zero_grad(p);
    int64_t before = aj_ctx_stat(ctx, AJ_STAT_LIVE_BYTES), storages = aj_ctx_stat(ctx, AJ_STAT_STORAGES), k = 0;
    for (bool failed = true; failed; k++) {
        aj_zero_grad(p);
        failed = fail_pending(ctx, p, right, k, late, once);
        aj_zero_grad(p);
        scope = aj_scope_begin(ctx);
        pending_values(ctx, p, y);
        check_results(y, right, k);
        cr_assert(aj_scope_end(scope) == AJ_OK);
        aj_zero_grad(p);
        cr_assert(aj_ctx_stat(ctx, AJ_STAT_LIVE_BYTES) == before && aj_ctx_stat(ctx, AJ_STAT_STORAGES) == storages,
                  "allocation %lld failed, and %lld bytes in %lld storages leaked", (long long)k,
                  (long long)(aj_ctx_stat(ctx, AJ_STAT_LIVE_BYTES) - before),
                  (long long)(aj_ctx_stat(ctx, AJ_STAT_STORAGES) - storages));
    }
    cr_assert(!opts->disable_pool || k > (late ? 3 : 30), "only %lld allocations failed", (long long)k);
    for (int r = 0; r < RESULTS; r++)
        free(right[r]);
    aj_release(&p);
    cr_assert(aj_ctx_destroy(&ctx) == AJ_OK, "%s", log_text);
    cr_assert(counted.live == 0, "%lld blocks leaked", (long long)counted.live);
}

Test(alloc, pending_values) {
    for (int mode = 0; mode < 12; mode++) {
        bool lazy = mode < 8, late = mode & 2; /* eagerly there is nothing left to compute late */
        cr_assert(setenv("ADJOIN_FUSE", lazy ? "1" : "0", 1) == 0);
        aj_ctx_opts opts = {.size = sizeof opts,
                            .alloc = counting_alloc,
                            .free = counting_free,
                            .alloc_user = &counted,
                            .log = keep_log,
                            .disable_pool = mode & 1};
        if (lazy || !late)
            check_pending(&opts, late, mode & 4);
    }
}
