/*
 * Checks of derivatives: central differences, the dot-product identity, a Taylor test.
 *
 * All work on phi(x) = sum over ranks of <w, f(x)> with fixed random weights w that differ by rank and entry. They record f in a recording of
 * their own.
 */
#include <math.h>
#include <string.h>

#include "autograd/autograd_private.h"

typedef struct check {
    aj_ctx *ctx;
    const char *op;
    aj_fn f;
    void *user;
    int n;
    aj_tensor *const *x;
    aj_comm *comm;
    const aji_comm_hooks *hooks; /* NULL without comm */
    int rank, size;
    bool single; /* f32 among the inputs */
    aj_check *result;
    /* in the check's scope */
    aj_tensor **p; /* the parameters, kept; n of them, then n gradients and n tangents */
    aj_tensor **grads, **tangents;
    aj_tensor *y, *w;
} check;

static aj_status sum_over_ranks(check *k, int n, double *values) {
    return k->hooks ? k->hooks->sum(k->comm, n, values) : aj_ctx_status(k->ctx);
}

static aj_status gather_from_ranks(check *k, int n, const double *mine, double *all) {
    if (k->hooks)
        return k->hooks->gather(k->comm, n, mine, all);
    memcpy(all, mine, (size_t)n * sizeof(double));
    return aj_ctx_status(k->ctx);
}

/* Standard normal numbers like t, different on each rank and for each `what`. */
static aj_tensor *random_like(check *k, aj_tensor *t, int what) {
    if (!t)
        return NULL;
    const aji_meta *m = aji_tensor_meta(t);
    aj_tensor *r = aj_normal(k->ctx, m->dtype, m->ndim, m->shape, 0x9e3779b97f4a7c15u * (uint64_t)(k->rank * 64 + what + 1));
    return aj_to_device(r, aj_tensor_device(t));
}

static double inner(aj_tensor *a, aj_tensor *b) {
    return aj_item(aj_sum(aj_mul(aj_cast(a, AJ_F64), aj_cast(b, AJ_F64))));
}

/* Records f at x and sets y and w; the recording stays open. */
static aj_status record(check *k) {
    for (int i = 0; i < k->n; i++)
        if (!(k->p[i] = aj_param(k->x[i])))
            return aj_ctx_status(k->ctx);
    aj_status status = aj_record_begin(k->ctx);
    if (status != AJ_OK)
        return status;
    k->y = k->f(k->ctx, k->n, k->p, k->user);
    if (!k->y)
        return aj_ctx_status(k->ctx) != AJ_OK ? aj_ctx_status(k->ctx)
                                              : aj_raise(k->ctx, AJ_ERR_ARG, "%s: f returned NULL; expected a tensor", k->op);
    if (!aji_dtype_is_float(aj_tensor_dtype(k->y)))
        return aj_raise(k->ctx, AJ_ERR_DTYPE, "%s: f returned %s; expected f64 or f32", k->op,
                        aj_dtype_name(aj_tensor_dtype(k->y)));
    k->w = random_like(k, k->y, 0);
    return aj_ctx_status(k->ctx);
}

static aj_status gradients(check *k) {
    return aj_grad_of(k->ctx, 1, &k->y, &k->w, k->n, k->p, k->grads, 0);
}

/* The common frame: arguments, a recording and a scope of its own, the body, and everything put back. */
static aj_status run_check(check *k, aj_status (*body)(check *k)) {
    aj_ctx *ctx = k->ctx;
    size_t bytes = (size_t)(3 * k->n) * sizeof(aj_tensor *);
    k->p = aji_calloc(ctx, bytes);
    if (!k->p)
        return AJ_ERR_MEMORY;
    k->grads = k->p + k->n;
    k->tangents = k->grads + k->n;
    aji_recording *recording = NULL;
    int no_grad = 0;
    aji_recording_swap(ctx, &recording, &no_grad);
    aj_scope *scope = aj_scope_begin(ctx);
    aj_status status = AJ_ERR_MEMORY;
    if (scope) {
        status = body(k);
        aj_status ended = aj_scope_end(scope);
        status = status == AJ_OK ? ended : status;
    }
    for (int i = 0; i < k->n; i++)
        aj_release(&k->p[i]);
    aji_recording_swap(ctx, &recording, &no_grad);
    aji_free(ctx, k->p, bytes);
    return status;
}

static aj_status open_check(check *k, aj_ctx *ctx, const char *op, aj_fn f, void *user, int n, aj_tensor *const *x, aj_comm *comm,
                            aj_check *result) {
    aj_status status = aji_autograd_attach(ctx);
    if (status != AJ_OK)
        return status;
    *k = (check){.ctx = ctx, .op = op, .f = f, .user = user, .n = n, .x = x, .comm = comm, .size = 1, .result = result};
    if (!f || !result || n < 0 || (n > 0 && !x))
        return aj_raise(ctx, AJ_ERR_ARG, "%s: %s; expected a function, inputs and a result", op,
                        !f        ? "f is NULL"
                        : !result ? "result is NULL"
                                  : "x is NULL");
    if (result->size != 0 && result->size != sizeof(aj_check))
        return aj_raise(ctx, AJ_ERR_ARG, "%s: result->size is %zu; expected sizeof(aj_check), %zu", op, result->size,
                        sizeof(aj_check));
    for (int i = 0; i < n; i++) {
        if (!x[i])
            return aj_raise(ctx, AJ_ERR_ARG, "%s: input %d is NULL; expected a tensor", op, i);
        if ((status = aji_check_operand(ctx, op, x[i])) != AJ_OK)
            return status;
        k->single = k->single || aj_tensor_dtype(x[i]) == AJ_F32;
    }
    if (comm) {
        k->hooks = aji_autograd_comm_hooks(ctx);
        if (!k->hooks || k->hooks->ctx(comm) != ctx)
            return aj_raise(ctx, AJ_ERR_CONTEXT, "%s: the communicator belongs to another context", op);
        k->rank = k->hooks->rank(comm);
        k->size = k->hooks->size(comm);
    }
    result->passed = false;
    result->error = result->expected = result->got = 0;
    result->input = result->rank = 0;
    result->entry = 0;
    result->rates[0] = result->rates[1] = 0;
    return AJ_OK;
}

/* ---- central differences ---- */

/* x + shift at one entry (on this rank if owner), f there, or NULL raised. */
static aj_tensor *value_at(check *k, int input, int64_t entry, double shift, bool owner) {
    aj_tensor *moved = NULL;
    if (owner) {
        const aji_meta *m = aji_tensor_meta(k->x[input]);
        int64_t numel = aji_meta_numel(m);
        aj_tensor *flat = aj_reshape(aj_detach(k->x[input]), 1, &numel);
        aj_tensor *there = aj_slice(flat, 0, entry, entry + 1, 1);
        moved = aj_reshape(aj_set_slice(flat, 0, entry, entry + 1, 1, aj_add_scalar(there, shift)), m->ndim, m->shape);
    }
    for (int i = 0; i < k->n; i++) /* parameters of the check: their value is free to change between recordings */
        if (aj_param_set(k->p[i], owner && i == input ? moved : k->x[i]) != AJ_OK)
            return NULL;
    return k->f(k->ctx, k->n, k->p, k->user);
}

/* The step that was really taken, in the dtype of the input. */
static double taken_step(const check *k, double x, double h) {
    if (!k->single)
        return (x + h) - (x - h);
    return (double)(float)((float)x + (float)h) - (double)(float)((float)x - (float)h);
}

static aj_status difference(check *k, int input, int64_t entry, bool owner, double *quotient) {
    double step = k->result->step > 0 ? k->result->step : k->single ? 5e-3 : 6e-6, x = 0;
    if (owner) {
        int64_t numel = aj_numel(k->x[input]);
        x = aj_item(aj_slice(aj_reshape(aj_detach(k->x[input]), 1, &numel), 0, entry, entry + 1, 1));
    }
    double h = step * fmax(1, fabs(x)), sums[2] = {0, owner ? taken_step(k, x, h) : 0};
    aj_tensor *plus = value_at(k, input, entry, h, owner), *minus = value_at(k, input, entry, -h, owner);
    sums[0] = inner(k->w, aj_sub(aj_cast(plus, AJ_F64), aj_cast(minus, AJ_F64)));
    aj_status status = sum_over_ranks(k, 2, sums);
    *quotient = sums[0] / sums[1];
    return status;
}

/* Keep the worst pair. */
static void compare(check *k, double expected, double got, int input, int64_t entry, int rank) {
    double error = fabs(expected - got) / fmax(1, fmax(fabs(expected), fabs(got)));
    if (isnan(error))
        error = isnan(expected) && isnan(got) ? 0 : INFINITY;
    if (error > k->result->error) {
        k->result->error = error;
        k->result->expected = expected;
        k->result->got = got;
        k->result->input = input;
        k->result->entry = entry;
        k->result->rank = rank;
    }
}

/* All ranks evaluate f together, once for each entry of each input of each rank. */
static aj_status differences_of_rank(check *k, int rank, int n_inputs, const double *numels) {
    for (int input = 0; input < n_inputs; input++) {
        for (int64_t entry = 0; entry < (int64_t)numels[input]; entry++) {
            aj_scope *scope = aj_scope_begin(k->ctx);
            double quotient = 0, adjoint = 0;
            aj_status status = scope ? difference(k, input, entry, rank == k->rank, &quotient) : AJ_ERR_MEMORY;
            if (status == AJ_OK && rank == k->rank) {
                int64_t numel = aj_numel(k->grads[input]);
                adjoint = aj_item(aj_slice(aj_reshape(k->grads[input], 1, &numel), 0, entry, entry + 1, 1));
            }
            if (status == AJ_OK)
                status = sum_over_ranks(k, 1, &adjoint);
            if (status == AJ_OK)
                compare(k, quotient, adjoint, input, entry, rank);
            aj_status ended = scope ? aj_scope_end(scope) : status;
            if (status != AJ_OK || ended != AJ_OK)
                return status == AJ_OK ? ended : status;
        }
    }
    return AJ_OK;
}

#define MAX_INPUTS 64
static aj_status gradcheck_body(check *k) {
    aj_status status = record(k);
    if (status == AJ_OK)
        status = gradients(k);
    if (status == AJ_OK)
        status = aj_record_end(k->ctx);
    double mine[MAX_INPUTS + 1] = {k->n};
    for (int i = 0; i < k->n; i++)
        mine[i + 1] = (double)aj_numel(k->x[i]);
    size_t bytes = (size_t)k->size * sizeof(mine);
    double *all = status == AJ_OK ? aji_alloc(k->ctx, bytes) : NULL;
    if (!all)
        return status == AJ_OK ? AJ_ERR_MEMORY : status;
    status = gather_from_ranks(k, MAX_INPUTS + 1, mine, all);
    for (int r = 0; r < k->size && status == AJ_OK; r++) {
        const double *its = all + (ptrdiff_t)r * (MAX_INPUTS + 1);
        status = differences_of_rank(k, r, (int)its[0], its + 1);
    }
    aji_free(k->ctx, all, bytes);
    k->result->passed = k->result->error <= (k->result->tolerance > 0 ? k->result->tolerance : k->single ? 2e-2 : 1e-6);
    return status;
}

/* ---- <J t, w> = <t, J' w> ---- */

static aj_status dot_body(check *k) {
    aj_status status = record(k);
    for (int i = 0; i < k->n && status == AJ_OK; i++)
        if (!(k->tangents[i] = random_like(k, k->x[i], i + 1)))
            status = aj_ctx_status(k->ctx);
    aj_tensor *jt = NULL;
    if (status == AJ_OK)
        status = gradients(k);
    if (status == AJ_OK)
        status = aj_jvp(k->ctx, 1, &k->y, k->n, k->p, k->tangents, &jt, 0);
    if (status == AJ_OK)
        status = aj_record_end(k->ctx);
    if (status != AJ_OK)
        return status;
    double sums[3] = {inner(jt, k->w), 0, inner(aj_abs(jt), aj_abs(k->w))};
    for (int i = 0; i < k->n; i++) {
        sums[1] += inner(k->tangents[i], k->grads[i]);
        sums[2] += inner(aj_abs(k->tangents[i]), aj_abs(k->grads[i]));
    }
    status = sum_over_ranks(k, 3, sums);
    k->result->expected = sums[0];
    k->result->got = sums[1];
    double difference = fabs(sums[0] - sums[1]);
    k->result->error = difference == 0 ? 0 : difference / sums[2];
    k->result->passed = k->result->error <= (k->result->tolerance > 0 ? k->result->tolerance : k->single ? 1e-4 : 1e-12);
    return status;
}

/* ---- Taylor ---- */

#define HALVINGS 5

/* phi(x + h t) - phi(x) over all ranks, and the size of the terms behind it, which bounds the rounding error. */
static aj_status remainder_at(check *k, double h, double *difference, double *size) {
    aj_scope *scope = aj_scope_begin(k->ctx);
    if (!scope)
        return AJ_ERR_MEMORY;
    aj_status status = AJ_OK;
    for (int i = 0; i < k->n && status == AJ_OK; i++)
        status = aj_param_set(k->p[i], aj_add(aj_detach(k->x[i]), aj_scale(k->tangents[i], h)));
    double sums[2] = {0, 0};
    if (status == AJ_OK) {
        aj_tensor *moved = aj_cast(k->f(k->ctx, k->n, k->p, k->user), AJ_F64), *y = aj_cast(k->y, AJ_F64);
        sums[0] = inner(k->w, aj_sub(moved, y));
        sums[1] = inner(aj_abs(k->w), aj_add(aj_abs(moved), aj_abs(y)));
        status = sum_over_ranks(k, 2, sums);
    }
    *difference = sums[0];
    *size = sums[1];
    aj_status ended = aj_scope_end(scope);
    return status == AJ_OK ? ended : status;
}

/* The order at which r falls when h is halved: from the first remainder to the last one above the rounding level. */
static double observed_rate(const double *r, const double *rounding, double expected) {
    int last = -1;
    for (int i = 0; i < HALVINGS; i++)
        if (r[i] > 100 * rounding[i])
            last = i;
        else
            break;
    if (last < 1)
        return expected; /* at rounding level from the start: nothing is wrong */
    return log2(r[0] / r[last]) / last;
}

static aj_status taylor_body(check *k) {
    aj_status status = record(k);
    double slope = 0, h = k->result->step > 0 ? k->result->step : 1e-2;
    for (int i = 0; i < k->n && status == AJ_OK; i++)
        if (!(k->tangents[i] = random_like(k, k->x[i], i + 1)))
            status = aj_ctx_status(k->ctx);
    if (status == AJ_OK)
        status = gradients(k);
    if (status == AJ_OK)
        status = aj_record_end(k->ctx);
    for (int i = 0; i < k->n && status == AJ_OK; i++)
        slope += inner(k->tangents[i], k->grads[i]);
    if (status == AJ_OK)
        status = sum_over_ranks(k, 1, &slope);
    double first[HALVINGS], second[HALVINGS], rounding[HALVINGS];
    for (int i = 0; i < HALVINGS && status == AJ_OK; i++, h /= 2) {
        double difference = 0, size = 0;
        status = remainder_at(k, h, &difference, &size);
        first[i] = fabs(difference);
        second[i] = fabs(difference - h * slope);
        rounding[i] = (size + fabs(h * slope)) * (k->single ? 1.2e-7 : 2.3e-16);
    }
    if (status != AJ_OK)
        return status;
    k->result->rates[0] = observed_rate(first, rounding, 1);
    k->result->rates[1] = observed_rate(second, rounding, 2);
    k->result->expected = 2;
    k->result->got = k->result->rates[1];
    k->result->error = fmax(0, 2 - k->result->rates[1]);
    k->result->passed = k->result->error <= (k->result->tolerance > 0 ? k->result->tolerance : 0.2);
    return AJ_OK;
}

/* ---- the public calls ---- */

static aj_status check_with(aj_ctx *ctx, const char *op, aj_fn f, void *user, int n, aj_tensor *const *x, aj_comm *comm,
                            aj_check *result, aj_status (*body)(check *k)) {
    if (!ctx)
        return AJ_ERR_ARG;
    check k;
    aj_status status = aj_ctx_status(ctx);
    if (status == AJ_OK)
        status = open_check(&k, ctx, op, f, user, n, x, comm, result);
    if (status == AJ_OK && n > MAX_INPUTS)
        status = aj_raise(ctx, AJ_ERR_ARG, "%s: %d inputs; expected at most %d", op, n, MAX_INPUTS);
    if (status == AJ_OK)
        status = run_check(&k, body);
    const aji_comm_hooks *hooks = comm ? aji_autograd_comm_hooks(ctx) : NULL;
    if (status != AJ_OK && hooks)
        hooks->gate(ctx, comm);
    return status;
}

aj_status aj_gradcheck(aj_ctx *ctx, aj_fn f, void *user, int n, aj_tensor *const *x, aj_comm *comm, aj_check *result) {
    return check_with(ctx, "aj_gradcheck", f, user, n, x, comm, result, gradcheck_body);
}

aj_status aj_dot_test(aj_ctx *ctx, aj_fn f, void *user, int n, aj_tensor *const *x, aj_comm *comm, aj_check *result) {
    return check_with(ctx, "aj_dot_test", f, user, n, x, comm, result, dot_body);
}

aj_status aj_taylor_test(aj_ctx *ctx, aj_fn f, void *user, int n, aj_tensor *const *x, aj_comm *comm, aj_check *result) {
    return check_with(ctx, "aj_taylor_test", f, user, n, x, comm, result, taylor_body);
}
