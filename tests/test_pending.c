/*
 * Pending values and what happens to their operands meanwhile: handles that go, parameters that are set, memory that is given back, scopes that end. Each test
 * is a promise of the interface that a value which is computed late could break. Then the memory that laziness may hold, and cases that random programs
 * (test_lazy.c) have no reason to make.
 */
#include "serial.h"

#include <stdlib.h>
#include <string.h>

TestSuite(pending, .init = begin, .fini = finish);

enum { N = 1000 }; /* entries: more than what is computed at once */

static aj_tensor *ramp(double start) {
    return aj_arange(context, AJ_F64, start, start + N, 1);
}

/* y_i = formula of i */
#define expect_each(t, formula)                                                                                                  \
    do {                                                                                                                         \
        const double *got_ = numbers(t);                                                                                         \
        cr_assert(aj_numel(t) == N, "%s has %lld entries", #t, (long long)aj_numel(t));                                          \
        for (int i = 0; i < N; i++)                                                                                              \
            cr_assert(got_[i] == (double)(formula), "%s: entry %d is %.17g, expected %.17g", #t, i, got_[i], (double)(formula)); \
    } while (0)

static int64_t live(void) {
    return aj_ctx_stat(context, AJ_STAT_LIVE_BYTES);
}

/* ---- operands that go or change ---- */

Test(pending, operands_are_released) {
    aj_tensor *a = ramp(0), *b = aj_scale(a, 2), *y = aj_add(aj_square(b), a);
    aj_release(&a);
    aj_release(&b);
    expect_each(y, 4.0 * i * i + i);
    expect_each(y, 4.0 * i * i + i);
}

Test(pending, scope_of_the_operands_ends) {
    aj_scope *scope = aj_scope_begin(context);
    aj_tensor *a = aj_add_scalar(ramp(0), 1), *b = aj_neg(a), *y = aj_keep(aj_mul(a, b)),
              *z = aj_scope_return(scope, aj_sub(b, a));
    expect_ok(aj_scope_end(scope));
    expect_each(z, -2.0 * (i + 1));
    expect_each(y, -1.0 * (i + 1) * (i + 1));
    aj_release(&y);
}

Test(pending, parameter_is_set) {
    aj_tensor *p = aj_param(ramp(0)), *y = aj_add(aj_scale(p, 3), aj_flip(p, 0)), *z = aj_add_scalar(p, 1);
    expect_ok(aj_param_set(p, aj_full(context, AJ_F64, AJ_SHAPE(N), -1)));
    aj_tensor *after = aj_scale(p, 3);
    expect_each(y, 3.0 * i + (N - 1 - i));
    expect_each(z, i + 1.0);
    expect_each(after, -3.0);
    aj_release(&p);
}

Test(pending, parameter_steps) {
    aj_tensor *p = aj_param(ramp(0));
    expect_ok(aj_record_begin(context));
    aj_tensor *y = aj_square(p), *before = aj_scale(p, 2);
    expect_ok(aj_backward(context, y, NULL)); /* 2 i */
    aj_tensor *slope = aj_scale(aj_grad(p), 0.5);
    for (int k = 0; k < 3; k++) {
        aj_tensor *old = aj_add_scalar(p, 0.5);
        expect_ok(aj_sgd_step(p, 0.25)); /* p - i / 2 */
        expect_each(old, (double)i - i / 2.0 * k + 0.5);
    }
    expect_each(before, 2.0 * i);
    expect_each(slope, i);
    aj_zero_grad(p);
    expect_each(aj_grad(p), 0);
    expect_each(slope, i);
    expect_each(p, -i / 2.0);
    aj_release(&p);
}

Test(pending, parameter_set_to_what_is_made_of_it) {
    aj_tensor *p = aj_param(ramp(0));
    for (int k = 0; k < 100; k++)
        expect_ok(aj_param_set(p, aj_add_scalar(p, 1)));
    expect_each(p, i + 100.0);
    aj_release(&p);
}

Test(pending, gradient_goes_on_collecting) {
    aj_tensor *p = aj_param(ramp(0)), *first = NULL;
    for (int k = 0; k < 3; k++) {
        expect_ok(aj_record_begin(context));
        expect_ok(aj_backward(context, aj_slice(aj_scale(p, 2), 0, 10, 20, 1), NULL));
        if (k == 0)
            first = aj_neg(aj_grad(p));
    }
    expect_each(first, i >= 10 && i < 20 ? -2.0 : 0);
    expect_each(aj_grad(p), i >= 10 && i < 20 ? 6.0 : 0);
    aj_release(&p);
}

/* ---- user memory ---- */

Test(pending, borrowed_memory_is_given_back) {
    double *data = malloc(N * sizeof *data);
    for (int i = 0; i < N; i++)
        data[i] = i;
    aj_tensor *x = aj_from_memory(context, AJ_F64, AJ_SHAPE(N), data, NULL, NULL);
    aj_tensor *y = aj_scale(x, 2), *z = aj_add(y, aj_flip(x, 0)),
              *w = aj_sub(aj_slice(x, 0, 1, N, 1), aj_slice(x, 0, 0, N - 1, 1));
    expect_ok(aj_unborrow(x));
    for (int i = 0; i < N; i++)
        data[i] = NAN;
    free(data);
    expect_each(z, 2.0 * i + (N - 1 - i));
    expect_each(y, 2.0 * i);
    expect_each(x, i);
    expect_near(aj_item(aj_sum(w)), N - 1, 0);
}

Test(pending, borrowed_memory_in_a_recording) {
    double data[N];
    for (int i = 0; i < N; i++)
        data[i] = i;
    aj_tensor *p = aj_param(aj_ones(context, AJ_F64, AJ_SHAPE(N)));
    aj_tensor *x = aj_from_memory(context, AJ_F64, AJ_SHAPE(N), data, NULL, NULL);
    expect_ok(aj_record_begin(context));
    aj_tensor *y = aj_mul(aj_mul(p, x), aj_add_scalar(x, 1));
    expect_ok(aj_unborrow(x));
    memset(data, 255, sizeof data);
    expect_ok(aj_backward(context, y, NULL));
    expect_each(aj_grad(p), 1.0 * i * (i + 1));
    expect_each(y, 1.0 * i * (i + 1));
    aj_release(&p);
}

static int deletions;
static void spoil_and_free(void *data, void *user) {
    (void)user;
    memset(data, 255, N * sizeof(double));
    free(data);
    deletions++;
}

static aj_tensor *adopted(void) {
    double *data = malloc(N * sizeof *data);
    for (int i = 0; i < N; i++)
        data[i] = i;
    deletions = 0;
    return aj_from_memory(context, AJ_F64, AJ_SHAPE(N), data, spoil_and_free, NULL);
}

Test(pending, adopted_memory_is_freed_after_its_last_user) {
    aj_scope *scope = aj_scope_begin(context);
    aj_tensor *x = adopted(), *y = aj_keep(aj_scale(aj_add_scalar(x, 1), 2)), *z = aj_keep(aj_neg(y));
    expect_ok(aj_scope_end(scope));
    cr_assert(deletions == 0, "y and z are pending on it");
    expect_each(z, -2.0 * (i + 1));
    expect_each(y, 2.0 * (i + 1));
    cr_assert(deletions == 1, "both have numbers of their own now, and the memory was deleted %d times", deletions);
    aj_release(&y);
    aj_release(&z);
}

Test(pending, adopted_memory_is_freed_with_a_user_that_is_never_read) {
    aj_scope *scope = aj_scope_begin(context);
    aj_tensor *x = adopted(), *y = aj_scale(x, 2);
    aj_release(&x);
    cr_assert(deletions == 0 && y);
    expect_ok(aj_scope_end(scope));
    cr_assert(deletions == 1, "deleted %d times", deletions);
}

Test(pending, adopted_memory_is_freed_once_its_users_are_computed) {
    aj_tensor *x = adopted(), *y = aj_scale(x, 2);
    aj_release(&x);
    expect_ok(aj_eval(y));
    cr_assert(deletions == 1, "y has numbers of its own now, and the memory was deleted %d times", deletions);
    expect_each(y, 2.0 * i);
}

/* ---- reading ---- */

Test(pending, every_order_of_reading) {
    for (int order = 0; order < 24; order++) {
        aj_tensor *x = ramp(0), *a = aj_exp(aj_scale(x, -0.01)), *b = aj_add(aj_mul(a, a), a), *c = aj_tanh(b), *d = aj_sub(c, a);
        aj_tensor *all[] = {a, b, c, d};
        int left[] = {0, 1, 2, 3}, k = order;
        double *got[4];
        for (int n = 4; n > 0; n--) {
            int at = k % n, which = left[at];
            k /= n;
            memmove(left + at, left + at + 1, (size_t)(n - at - 1) * sizeof *left);
            got[which] = numbers(all[which]);
        }
        for (int which = 0; which < 4; which++)
            cr_assert(memcmp(got[which], numbers(all[which]), N * sizeof(double)) == 0, "order %d: %d read twice", order, which);
        for (int i = 0; i < N; i++)
            cr_assert(got[1][i] == got[0][i] * got[0][i] + got[0][i] && got[3][i] == got[2][i] - got[0][i], "order %d, entry %d",
                      order, i);
    }
}

Test(pending, data_stays_where_it_is) {
    aj_tensor *x = aj_scale(ramp(0), 2);
    const double *data = aj_data(x);
    aj_tensor *y = aj_add(x, x);
    expect_each(y, 4.0 * i);
    cr_assert(aj_data(x) == data && data[N - 1] == 2.0 * (N - 1));
}

/* In place: the value that is overwritten may still have pending users. */
Test(pending, consumed_while_others_wait) {
    aj_tensor *x = aj_add_scalar(ramp(0), 0), *y, *z;
    expect_ok(aj_eval(x));
    y = aj_scale(x, 2);
    aj_tensor *view = aj_slice(x, 0, 0, 4, 1);
    z = aj_set_window_inplace(x, (const int64_t[]){0}, aj_scale(aj_slice(y, 0, 0, N / 2, 1), -1));
    expect_each(y, 2.0 * i);
    expect_each(z, i < N / 2 ? -2.0 * i : i);
    expect_values(view, 0, 0, 1, 2, 3);
}

Test(pending, window_of_itself_shifted) {
    aj_tensor *x = aj_scale(ramp(0), 1);
    expect_ok(aj_eval(x));
    aj_tensor *moved = aj_add_scalar(aj_slice(x, 0, 0, N - 1, 1), 0.5); /* reads what is written over, one entry later */
    x = aj_set_window_inplace(x, (const int64_t[]){1}, moved);
    expect_each(x, i == 0 ? 0 : i - 0.5);
}

/* ---- placed values: gradients of parts ---- */

/* The gradient of sum(seed * part of p): seed in the part, zeros around it, pending. */
static aj_tensor *placed(aj_tensor *p, int64_t lo, int64_t hi, double start) {
    aj_tensor *g, *seed = aj_arange(context, AJ_F64, start, start + (double)(hi - lo), 1);
    expect_ok(aj_record_begin(context));
    aj_tensor *part = aj_slice(p, 0, lo, hi, 1);
    expect_ok(aj_grad_of(context, 1, &part, &seed, 1, &p, &g, 0));
    expect_ok(aj_record_end(context));
    return g;
}

#define IN(lo, hi) (i >= (lo) && i < (hi))

Test(pending, placed_meets_more_axes) {
    aj_tensor *p = aj_param(ramp(0)), *w = aj_reshape(ramp(10), AJ_SHAPE(1, 1, N));
    expect_each(aj_mul(placed(p, 200, 800, 1), w), IN(200, 800) ? (i - 199.0) * (i + 10) : 0);
    expect_each(aj_reshape(aj_mul(w, placed(p, 200, 800, 1)), AJ_SHAPE(N)), IN(200, 800) ? (i - 199.0) * (i + 10) : 0);
    aj_release(&p);
}

Test(pending, placed_is_read_many_times) {
    aj_tensor *p = aj_param(ramp(0)), *g = placed(p, 100, 900, 1), *v = aj_square(g);
    for (int k = 0; k < 23; k++)
        v = aj_where(aj_gt(g, g), g, v); /* three reads of g in two steps: v */
    expect_each(v, IN(100, 900) ? (i - 99.0) * (i - 99.0) : 0);
    aj_release(&p);
}

Test(pending, many_placed_in_one_expression) {
    aj_tensor *p = aj_param(ramp(0)), *sum = aj_zeros(context, AJ_F64, AJ_SHAPE(N));
    double wanted[N] = {0};
    for (int k = 0; k < 40; k++) {
        sum = aj_add(sum, placed(p, 20 * k, 20 * k + 40, k));
        for (int i = 20 * k; i < 20 * k + 40; i++)
            wanted[i] += k + i - 20 * k;
    }
    expect_each(sum, wanted[i]);
    aj_release(&p);
}

/* One pending value is placed twice: it is computed in two boxes, or once before. */
Test(pending, placed_in_two_places) {
    for (int form = 0; form < 4; form++) {
        aj_tensor *p = aj_param(ramp(0)), *seed = aj_arange(context, AJ_F64, 1, 301, 1);
        expect_ok(aj_record_begin(context));
        aj_tensor *a = aj_slice(p, 0, 50, 350, 1), *b = aj_slice(p, 0, form % 2 ? 600 : 200, form % 2 ? 900 : 500, 1);
        aj_tensor *y = form < 2 ? aj_neg(aj_add(a, b)) : aj_clamp(aj_scale(aj_sub(a, b), -3), -1e9, 1e9);
        expect_ok(aj_backward(context, y, seed));
        int lo = form % 2 ? 600 : 200, factor_a = form < 2 ? -1 : -3, factor_b = form < 2 ? -1 : 3;
        expect_each(aj_grad(p), (IN(50, 350) ? factor_a * (i - 49) : 0) + (IN(lo, lo + 300) ? factor_b * (i - lo + 1) : 0));
        aj_release(&p);
    }
}

/* Zero outside stays +0, whatever factor meets it. */
Test(pending, zeros_around_placed_are_zeros) {
    static const double factors[] = {-2, 1e300, -1e300, 0.5, INFINITY}; /* as f32: inf */
    for (int k = 0; k < 5; k++)
        for (int negated = 0; negated < 2; negated++) {
            aj_tensor *p = aj_param(aj_cast(ramp(1), AJ_F32)), *g, *seed = aj_cast(aj_arange(context, AJ_F64, 1, 101, 1), AJ_F32);
            expect_ok(aj_record_begin(context));
            aj_tensor *part = aj_scale(aj_slice(p, 0, 500, 600, 1), factors[k]);
            if (negated)
                part = aj_neg(part);
            expect_ok(aj_grad_of(context, 1, &part, &seed, 1, &p, &g, 0));
            expect_ok(aj_record_end(context));
            double sign = negated ? -1 : 1;
            aj_tensor *signs = aj_reciprocal(aj_add(g, aj_full(context, AJ_F32, AJ_SHAPE(N), -0.0))); /* -0 added to x is x */
            expect_each(signs, IN(500, 600) ? 1 / (float)(sign * (i - 499.0) * (float)factors[k]) : INFINITY);
            expect_each(g, IN(500, 600) ? sign * (i - 499.0) * (float)factors[k] : 0);
            aj_release(&p);
        }
}

/* What is placed may be one number, repeated. */
Test(pending, repeated_number_is_placed) {
    aj_tensor *p = aj_param(ramp(0)), *q = aj_param(SCALAR(3));
    expect_ok(aj_record_begin(context));
    aj_tensor *y = aj_mul(q, aj_slice(p, 0, 300, 700, 1)), *loss = aj_sum(aj_scale(aj_mean(aj_neg(y)), 400));
    expect_ok(aj_backward(context, loss, NULL));
    expect_each(aj_scale(aj_grad(p), 1.0 / -3), IN(300, 700) ? 1 : 0);
    aj_release(&p);
    aj_release(&q);
}

/* Placed in placed in placed: as deep as the program is long. */
Test(pending, parts_of_parts) {
    const int steps = is_watched() ? 300 : 5000;
    for (int scaled = 0; scaled < 2; scaled++) {
        aj_tensor *p = aj_param(aj_ones(context, AJ_F64, AJ_SHAPE(steps + 100)));
        expect_ok(aj_record_begin(context));
        aj_tensor *x = p;
        for (int k = 0; k < steps; k++)
            x = aj_slice(scaled ? aj_scale(x, -1) : x, 0, 1, INT64_MAX, 1);
        expect_ok(aj_backward(context, x, NULL));
        const double *g = numbers(aj_grad(p));
        for (int i = 0; i < steps + 100; i++)
            cr_assert(g[i] == (i < steps ? 0 : 1), "scaled %d, entry %d: %g", scaled, i, g[i]);
        aj_release(&p);
    }
}

/* ---- steps done in pairs ---- */

Test(pending, square_of_a_sign_and_a_sum) {
    aj_tensor *x = ramp(0), *n = aj_neg(x);
    expect_each(aj_add(aj_square(aj_neg(x)), x), 1.0 * i * i + i);
    expect_each(aj_add(aj_mul(n, n), x), 1.0 * i * i + i);
    expect_each(aj_sub(x, aj_square(aj_neg(x))), i - 1.0 * i * i);
    expect_each(aj_add(aj_mul(n, x), n), -1.0 * i * i - i);
}

/* ---- memory ---- */

Test(pending, everything_goes_with_its_scope) {
    aj_tensor *p = aj_param(ramp(0));
    int64_t before = live(), storages = aj_ctx_stat(context, AJ_STAT_STORAGES);
    for (int read = 0; read < 2; read++) {
        aj_scope *scope = aj_scope_begin(context);
        expect_ok(aj_record_begin(context));
        aj_tensor *y = aj_mul(aj_exp(aj_scale(p, -1)), aj_slice(aj_concat(2, (aj_tensor *[]){p, p}, 0), 0, 0, N, 1));
        aj_tensor *z = aj_add(aj_square(y), y);
        if (read)
            expect_ok(aj_eval(z));
        expect_ok(aj_scope_end(scope)); /* drops the recording */
        cr_assert(live() == before, "%lld bytes more than before", (long long)(live() - before));
        cr_assert(aj_ctx_stat(context, AJ_STAT_STORAGES) == storages);
    }
    aj_release(&p);
}

Test(pending, endless_loop_holds_one_state) {
    const int64_t state_bytes = N * (int64_t)sizeof(double);
    const int steps = is_watched() ? 1000 : 100000;
    aj_tensor *state = NULL, *total = NULL;
    aj_assign(&state, aj_zeros(context, AJ_F64, AJ_SHAPE(N)));
    aj_assign(&total, SCALAR(0));
    for (int k = 0; k < steps; k++) {
        aj_scope *scope = aj_scope_begin(context);
        aj_assign(&state, aj_add_scalar(state, 1)); /* nobody reads it on the way */
        aj_assign(&total, aj_add(total, SCALAR(1)));
        cr_assert(live() <= 3 * state_bytes, "step %d: %lld bytes", k, (long long)live());
        expect_ok(aj_scope_end(scope));
    }
    cr_assert(aj_ctx_stat(context, AJ_STAT_PEAK_BYTES) <= 3 * state_bytes, "peak: %lld bytes",
              (long long)aj_ctx_stat(context, AJ_STAT_PEAK_BYTES));
    cr_assert(aj_ctx_stat(context, AJ_STAT_TENSORS) <= 4);
    expect_each(state, steps);
    expect_near(aj_item(total), steps, 0);
    aj_release(&state);
    aj_release(&total);
}

/* The same where the state is read by more than the next one. */
Test(pending, endless_loop_with_two_states) {
    const int64_t state_bytes = N * (int64_t)sizeof(double);
    const int steps = is_watched() ? 500 : 20000;
    aj_tensor *a = NULL, *b = NULL;
    aj_assign(&a, ramp(0));
    aj_assign(&b, ramp(1));
    for (int k = 0; k < steps; k++) {
        aj_scope *scope = aj_scope_begin(context);
        aj_tensor *next = aj_sub(aj_scale(b, 2), a); /* goes on as a line */
        aj_assign(&a, b);
        aj_assign(&b, next);
        expect_ok(aj_scope_end(scope));
        cr_assert(live() <= 6 * state_bytes, "step %d: %lld bytes", k, (long long)live());
    }
    expect_each(b, i + 1.0 + steps);
    aj_release(&a);
    aj_release(&b);
}

/* Thirty operations, one pass: the operand, the result and little else. */
Test(pending, long_formula_takes_little_memory) {
    const int64_t n = 1 << 17, state_bytes = n * (int64_t)sizeof(double);
    aj_tensor *x = aj_uniform(context, AJ_F64, AJ_SHAPE(n), 1);
    expect_ok(aj_eval(x));
    aj_scope *scope = aj_scope_begin(context);
    aj_tensor *y = x;
    for (int k = 0; k < 10; k++)
        y = aj_add_scalar(aj_mul(aj_sub(x, y), y), 0.25);
    expect_ok(aj_eval(y));
    int64_t peak = aj_ctx_stat(context, AJ_STAT_PEAK_BYTES);
    cr_assert(peak <= 2 * state_bytes + 65536, "the peak is %g states", (double)peak / (double)state_bytes);
    expect_ok(aj_scope_end(scope));
    scope = aj_scope_begin(context); /* a reduction stores nothing at all */
    double sum = aj_item(aj_sum(aj_square(aj_sub(aj_scale(x, 2), aj_neg(x)))));
    cr_assert(sum > 0);
    peak = aj_ctx_stat(context, AJ_STAT_PEAK_BYTES);
    cr_assert(peak <= 2 * state_bytes + 65536, "the peak is %g states", (double)peak / (double)state_bytes);
    expect_ok(aj_scope_end(scope));
}

/* A formula in a scope of its own, with backward: operand, gradient, and a few values that are saved. */
Test(pending, backward_takes_little_memory) {
    const int64_t n = 1 << 16, state_bytes = n * (int64_t)sizeof(double);
    aj_tensor *p = aj_param(aj_uniform(context, AJ_F64, AJ_SHAPE(n), 1));
    expect_ok(aj_record_begin(context));
    aj_tensor *loss = aj_sum(aj_square(aj_add_scalar(aj_scale(aj_sub(p, aj_neg(p)), 0.5), 1)));
    expect_ok(aj_backward(context, loss, NULL));
    expect_ok(aj_eval(aj_grad(p)));
    int64_t peak = aj_ctx_stat(context, AJ_STAT_PEAK_BYTES);
    cr_assert(peak <= 5 * state_bytes + 65536, "the peak is %g states", (double)peak / (double)state_bytes);
    aj_release(&p);
}
