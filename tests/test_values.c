/* Making tensors, user memory, views, devices, and the forward values of every operation against plain C. */
#include "serial.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

TestSuite(values, .init = begin, .fini = finish);

#define EPS DBL_EPSILON

/* ---- creation ---- */

Test(values, creation_in_every_dtype) {
    for (int d = AJ_F64; d <= AJ_U8; d++) {
        aj_dtype dtype = (aj_dtype)d;
        aj_tensor *z = aj_zeros(context, dtype, AJ_SHAPE(2, 3)), *s = aj_scalar(context, dtype, 7);
        expect_values(z, 0, 0, 0, 0, 0, 0, 0);
        expect_shape(z, 2, 3);
        cr_assert(aj_tensor_dtype(z) == dtype && aj_ndim(z) == 2 && aj_numel(z) == 6 && aj_extent(z, -1) == 3);
        expect_values(aj_ones(context, dtype, AJ_SHAPE(3)), 0, 1, 1, 1);
        expect_values(aj_full(context, dtype, AJ_SHAPE(2), 5), 0, 5, 5);
        cr_assert(aj_ndim(s) == 0 && aj_numel(s) == 1);
        expect_near(aj_item(s), 7, 0);
        expect_values(aj_arange(context, dtype, 2, 11, 3), 0, 2, 5, 8);
        expect_values(VALUES(dtype, (2, 2), 1, 2, 3, 4), 0, 1, 2, 3, 4);
    }
}

Test(values, dtype_names_and_sizes) {
    static const char *const names[] = {"f64", "f32", "i64", "i32", "u8"};
    static const size_t sizes[] = {8, 4, 8, 4, 1};
    for (int d = 0; d < 5; d++)
        cr_assert(strcmp(aj_dtype_name((aj_dtype)d), names[d]) == 0 && aj_dtype_size((aj_dtype)d) == sizes[d]);
    cr_assert(strcmp(aj_dtype_name((aj_dtype)9), "?") == 0 && aj_dtype_size((aj_dtype)9) == 0);
}

Test(values, arange) {
    expect_values(aj_arange(context, AJ_F64, 1, 2, 0.25), 0, 1, 1.25, 1.5, 1.75);
    expect_values(aj_arange(context, AJ_F64, 3, 0, -1), 0, 3, 2, 1);
    cr_assert(aj_numel(aj_arange(context, AJ_F64, 3, 0, 1)) == 0);
    cr_assert(aj_numel(aj_arange(context, AJ_F64, 0, 1, 0.3)) == 4);
    cr_assert(!aj_arange(context, AJ_F64, 0, 1, 0));
    expect_error(AJ_ERR_ARG, "arange");
    cr_assert(!aj_arange(context, AJ_F64, 0, INFINITY, 1));
    expect_error(AJ_ERR_ARG, "arange");
}

Test(values, nothing_and_scalars) {
    aj_tensor *none = aj_zeros(context, AJ_F64, AJ_SHAPE(3, 0, 2));
    cr_assert(aj_numel(none) == 0 && aj_data(none) != NULL);
    expect_ok(aj_read(none, NULL, 0));
    expect_shape(aj_exp(none), 3, 0, 2);
    expect_shape(aj_add(none, aj_ones(context, AJ_F64, AJ_SHAPE(2))), 3, 0, 2);
    expect_near(aj_item(aj_sum(none)), 0, 0);
    expect_near(aj_item(aj_prod(none)), 1, 0);
    cr_assert(isnan(aj_item(aj_mean(none))));
    aj_tensor *s = aj_full(context, AJ_F64, AJ_SHAPE0, 4);
    cr_assert(aj_ndim(s) == 0);
    expect_near(aj_item(aj_sqrt(s)), 2, 0);
    aj_tensor *eight = aj_ones(context, AJ_F64, AJ_SHAPE(1, 2, 1, 2, 1, 2, 1, 2));
    expect_near(aj_item(aj_sum(eight)), 16, 0);
}

Test(values, reading) {
    aj_tensor *x = aj_transpose(F64((2, 3), 1, 2, 3, 4, 5, 6), 0, 1);
    const double *data = aj_data(x), wanted[] = {1, 4, 2, 5, 3, 6};
    cr_assert(memcmp(data, wanted, sizeof wanted) == 0, "contiguous and row-major, whatever the strides");
    double out[6];
    cr_assert(aj_read(x, out, 5 * sizeof *out) == AJ_ERR_ARG);
    expect_error(AJ_ERR_ARG, "aj_read", "40 bytes", "6 elements");
    expect_ok(aj_read(x, out, sizeof out));
    cr_assert(memcmp(out, wanted, sizeof wanted) == 0);
    cr_assert(isnan(aj_item(x)));
    expect_error(AJ_ERR_SHAPE, "aj_item");
}

/* ---- user memory ---- */

static int deleted;
static void count_deletion(void *data, void *user) {
    cr_assert(user == &deleted);
    free(data);
    deleted++;
}

static double *heap(int n, double first) {
    double *data = malloc((size_t)n * sizeof *data);
    for (int i = 0; i < n; i++)
        data[i] = first + i;
    return data;
}

Test(values, adopted_memory_is_deleted_once) {
    aj_scope *s = aj_scope_begin(context);
    aj_tensor *x = aj_from_memory(context, AJ_F64, AJ_SHAPE(4), heap(4, 1), count_deletion, &deleted);
    aj_tensor *view = aj_keep(aj_slice(x, 0, 1, 3, 1));
    expect_ok(aj_eval(view));
    expect_ok(aj_scope_end(s));
    cr_assert(deleted == 0, "the view still needs it");
    expect_values(view, 0, 2, 3);
    aj_release(&view);
    cr_assert(deleted == 1);
}

Test(values, adopted_memory_is_deleted_when_creation_fails) {
    cr_assert(!aj_from_memory(context, AJ_F64, AJ_SHAPE(-4), heap(4, 1), count_deletion, &deleted));
    expect_error(AJ_ERR_ARG, "from_memory");
    cr_assert(deleted == 1);
    cr_assert(!aj_from_memory(context, (aj_dtype)17, AJ_SHAPE(4), heap(4, 1), count_deletion, &deleted));
    expect_error(AJ_ERR_ARG, "from_memory");
    cr_assert(deleted == 2);
    counted.fail_after = counted.calls;
    aj_tensor *x = aj_from_memory(context, AJ_F64, AJ_SHAPE(4), heap(4, 1), count_deletion, &deleted);
    counted.fail_after = -1;
    if (!x)
        expect_error(AJ_ERR_MEMORY, "64 bytes");
    aj_release(&x);
    cr_assert(deleted == 3);
    cr_assert(!aj_from_memory(context, AJ_F64, AJ_SHAPE(4), NULL, NULL, NULL));
    expect_error(AJ_ERR_ARG, "from_memory");
}

Test(values, adopted_memory_lives_as_long_as_a_graph_needs_it) {
    aj_scope *s = aj_scope_begin(context);
    aj_tensor *p = aj_param(F64((3), 1, 1, 1));
    expect_ok(aj_record_begin(context));
    aj_tensor *x = aj_from_memory(context, AJ_F64, AJ_SHAPE(3), heap(3, 1), count_deletion, &deleted);
    aj_tensor *y = aj_mul(p, x);
    aj_release(&x);
    cr_assert(deleted == 0);
    expect_ok(aj_backward(context, y, NULL));
    expect_values(aj_grad(p), 0, 1, 2, 3);
    aj_release(&p);
    expect_ok(aj_scope_end(s));
    cr_assert(deleted == 1);
}

Test(values, unborrow_computes_and_copies_what_is_pending) {
    double memory[4] = {1, 2, 3, 4};
    aj_tensor *x = aj_from_memory(context, AJ_F64, AJ_SHAPE(4), memory, NULL, NULL);
    aj_tensor *p = aj_param(F64((4), 1, 1, 1, 1));
    aj_tensor *lazy = aj_add_scalar(aj_exp(x), 1), *view = aj_flip(x, 0), *of_view = aj_neg(view);
    expect_ok(aj_record_begin(context));
    aj_tensor *loss = aj_sum(aj_mul(aj_mul(p, x), aj_slice(x, 0, 0, 4, 1)));
    expect_ok(aj_unborrow(x));
    memset(memory, 0x7f, sizeof memory);
    expect_ok(aj_backward(context, loss, NULL));
    expect_values(aj_grad(p), 0, 1, 4, 9, 16);
    expect_near(aj_item(loss), 30, 0);
    expect_values(lazy, 4 * EPS, 1 + exp(1), 1 + exp(2), 1 + exp(3), 1 + exp(4));
    expect_values(view, 0, 4, 3, 2, 1);
    expect_values(of_view, 0, -4, -3, -2, -1);
    expect_values(x, 0, 1, 2, 3, 4);
    expect_values(aj_square(x), 0, 1, 4, 9, 16);
    cr_assert(aj_unborrow(x) == AJ_ERR_ARG);
    expect_error(AJ_ERR_ARG, "unborrow");
    cr_assert(aj_unborrow(lazy) == AJ_ERR_ARG);
    expect_error(AJ_ERR_ARG, "unborrow");
    aj_release(&p);
}

Test(values, borrowed_memory_is_never_written) {
    double memory[4] = {1, 2, 3, 4};
    aj_tensor *x = aj_from_memory(context, AJ_F64, AJ_SHAPE(4), memory, NULL, NULL);
    aj_tensor *y = aj_set_window_inplace(x, (const int64_t[]){1}, F64((2), 8, 9));
    expect_values(y, 0, 1, 8, 9, 4);
    cr_assert(memory[1] == 2 && memory[2] == 3);
}

Test(values, copies_are_independent_of_their_source) {
    double memory[2] = {1, 2};
    aj_tensor *x = aj_from_data(context, AJ_F64, AJ_SHAPE(2), memory), *y = aj_neg(x);
    memory[0] = 99;
    expect_values(y, 0, -1, -2);
}

/* ---- random numbers ---- */

Test(values, random_numbers_depend_on_seed_and_index_alone) {
    static const aj_dtype dtypes[] = {AJ_F64, AJ_F32};
    for (int d = 0; d < 2; d++) {
        aj_tensor *flat = aj_uniform(context, dtypes[d], AJ_SHAPE(60), 7),
                  *box = aj_uniform(context, dtypes[d], AJ_SHAPE(3, 4, 5), 7);
        expect_same(aj_reshape(box, AJ_SHAPE(60)), flat, 0);
        expect_same(aj_uniform(context, dtypes[d], AJ_SHAPE(17), 7), aj_slice(flat, 0, 0, 17, 1), 0);
        aj_tensor *normal = aj_reshape(aj_normal(context, dtypes[d], AJ_SHAPE(20, 3), 7), AJ_SHAPE(60));
        expect_same(aj_normal(context, dtypes[d], AJ_SHAPE(17), 7), aj_slice(normal, 0, 0, 17, 1), 0);
        aj_tensor *other = aj_uniform(context, dtypes[d], AJ_SHAPE(60), 8);
        expect_near(aj_item(aj_sum(aj_cast(aj_eq(flat, other), AJ_F64))), 0, 0);
    }
}

/* Moments of n = 100,000 numbers, to five standard errors. */
Test(values, random_numbers_have_the_right_moments) {
    enum { N = 100000 };
    static const aj_dtype dtypes[] = {AJ_F64, AJ_F32};
    for (int d = 0; d < 2; d++) {
        const double *u = numbers(aj_uniform(context, dtypes[d], AJ_SHAPE(N), 42));
        const double *z = numbers(aj_normal(context, dtypes[d], AJ_SHAPE(N), 42));
        double m[2] = {0}, v[2] = {0}, neighbours = 0, fourth = 0;
        int cells[10] = {0};
        for (int i = 0; i < N; i++) {
            cr_assert(u[i] >= 0 && u[i] < 1 && isfinite(z[i]));
            cells[(int)(10 * u[i])]++;
            m[0] += u[i] / N;
            m[1] += z[i] / N;
            v[0] += (u[i] - 0.5) * (u[i] - 0.5) / N;
            v[1] += z[i] * z[i] / N;
            fourth += z[i] * z[i] * z[i] * z[i] / N;
            neighbours += i ? z[i] * z[i - 1] / N : 0;
        }
        double root = sqrt(N);
        expect_near(m[0], 0.5, 5 / sqrt(12) / root);
        expect_near(v[0], 1.0 / 12, 5 * sqrt(1.0 / 180) / root);
        expect_near(m[1], 0, 5 / root);
        expect_near(v[1], 1, 5 * sqrt(2) / root);
        expect_near(fourth, 3, 5 * sqrt(96) / root);
        expect_near(neighbours, 0, 5 / root);
        for (int c = 0; c < 10; c++)
            cr_assert(abs(cells[c] - N / 10) < 5 * sqrt(N * 0.09));
    }
}

/* The first counter of Philox 4x32-10 with key 0 gives 6627e8d5 e169c58d bc57ac4c 9b00dbd8 (Random123's known-answer test): the numbers of
 * seed 0 are made of these words, whichever way the words become doubles. */
Test(values, uniform_is_philox) {
    const double *u = numbers(aj_uniform(context, AJ_F64, AJ_SHAPE(2), 0));
    static const uint32_t words[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    bool found = false;
    for (int i = 0; i < 4; i++)
        found = found || fabs(u[0] - words[i] / 4294967296.0) < 1e-9;
    cr_assert(found, "the first number is %.17g", u[0]);
}

/* ---- elementwise operations ---- */

typedef struct function {
    const char *name;
    aj_tensor *(*apply)(aj_tensor *);
    double (*wanted)(double);
    double lo, hi;
} function;

static double reciprocal(double x) {
    return 1 / x;
}
static double rsqrt(double x) {
    return 1 / sqrt(x);
}
static double negate(double x) {
    return -x;
}
static double square(double x) {
    return x * x;
}
static double sign(double x) {
    return (x > 0) - (x < 0);
}
static double relu(double x) {
    return x > 0 ? x : 0;
}
static double sigmoid(double x) {
    return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
}
static double softplus(double x) {
    return fmax(x, 0) + log1p(exp(-fabs(x)));
}

static const function functions[] = {
    {"neg", aj_neg, negate, -5, 5},
    {"abs", aj_abs, fabs, -5, 5},
    {"sign", aj_sign, sign, -5, 5},
    {"square", aj_square, square, -5, 5},
    {"sqrt", aj_sqrt, sqrt, 0, 9},
    {"rsqrt", aj_rsqrt, rsqrt, 0.1, 9},
    {"reciprocal", aj_reciprocal, reciprocal, 0.1, 9},
    {"exp", aj_exp, exp, -20, 20},
    {"expm1", aj_expm1, expm1, -5, 5},
    {"log", aj_log, log, 0, 100},
    {"log1p", aj_log1p, log1p, -0.99, 10},
    {"sin", aj_sin, sin, -100, 100},
    {"cos", aj_cos, cos, -100, 100},
    {"tan", aj_tan, tan, -1.5, 1.5},
    {"asin", aj_asin, asin, -1, 1},
    {"acos", aj_acos, acos, -1, 1},
    {"atan", aj_atan, atan, -50, 50},
    {"sinh", aj_sinh, sinh, -9, 9},
    {"cosh", aj_cosh, cosh, -9, 9},
    {"tanh", aj_tanh, tanh, -9, 9},
    {"sigmoid", aj_sigmoid, sigmoid, -40, 40},
    {"relu", aj_relu, relu, -5, 5},
    {"softplus", aj_softplus, softplus, -40, 40},
    {"erf", aj_erf, erf, -3, 3},
    {"floor", aj_floor, floor, -5, 5},
    {"ceil", aj_ceil, ceil, -5, 5},
    {"round", aj_round, rint, -5, 5},
};

/* To 8 units in the last place of the result, on 2003 entries; the input is a strided view. */
Test(values, functions_of_one_operand) {
    static const aj_dtype dtypes[] = {AJ_F64, AJ_F32};
    for (size_t f = 0; f < sizeof functions / sizeof functions[0]; f++)
        for (int d = 0; d < 2; d++) {
            const function *fn = &functions[f];
            aj_tensor *x = aj_slice(make_spread(dtypes[d], AJ_SHAPE(4006), fn->lo, fn->hi, 0.37, f), 0, 1, INT64_MAX, 2);
            const double *in = numbers(x), *got = numbers(fn->apply(x));
            for (int i = 0; i < 2003; i++) {
                double wanted = fn->wanted(in[i]), unit = machine_epsilon(dtypes[d]) * fmax(fabs(wanted), 1e-30);
                cr_assert(fabs(got[i] - wanted) <= 8 * unit, "%s(%.17g) of %s is %.17g, expected %.17g", fn->name, in[i],
                          aj_dtype_name(dtypes[d]), got[i], wanted);
            }
        }
}

Test(values, large_arguments_do_not_overflow) {
    expect_values(aj_sigmoid(F64((2), 800, -800)), 0, 1, 0);
    expect_values(aj_softplus(F64((2), 800, -800)), 0, 800, 0);
    expect_values(aj_tanh(F64((2), 800, -800)), 0, 1, -1);
    expect_values(aj_round(F64((6), 0.5, 1.5, 2.5, -0.5, -1.5, -2.5)), 0, 0, 2, 2, 0, -2, -2);
}

Test(values, arithmetic_in_every_dtype) {
    for (int d = AJ_F64; d <= AJ_U8; d++) {
        aj_tensor *a = VALUES((aj_dtype)d, (4), 9, 8, 7, 6), *b = VALUES((aj_dtype)d, (4), 1, 8, 3, 6);
        expect_values(aj_add(a, b), 0, 10, 16, 10, 12);
        expect_values(aj_sub(a, b), 0, 8, 0, 4, 0);
        expect_values(aj_mul(a, b), 0, 9, 64, 21, 36);
        expect_values(aj_minimum(a, b), 0, 1, 8, 3, 6);
        expect_values(aj_maximum(b, a), 0, 9, 8, 7, 6);
        expect_values(aj_scale(a, 3), 0, 27, 24, 21, 18);
        expect_values(aj_add_scalar(a, 2), 0, 11, 10, 9, 8);
        expect_values(aj_clamp(a, 7, 8), 0, 8, 8, 7, 7);
        expect_values(aj_square(b), 0, 1, 64, 9, 36);
        expect_values(aj_eq(a, b), 0, 0, 1, 0, 1);
        expect_values(aj_ne(a, b), 0, 1, 0, 1, 0);
        expect_values(aj_lt(b, a), 0, 1, 0, 1, 0);
        expect_values(aj_le(b, a), 0, 1, 1, 1, 1);
        expect_values(aj_gt(b, a), 0, 0, 0, 0, 0);
        expect_values(aj_ge(b, a), 0, 0, 1, 0, 1);
        cr_assert(aj_tensor_dtype(aj_eq(a, b)) == AJ_U8);
        aj_tensor *chosen = aj_where(aj_lt(b, a), a, b);
        expect_values(chosen, 0, 9, 8, 7, 6);
        cr_assert(aj_tensor_dtype(chosen) == (aj_dtype)d);
    }
}

Test(values, large_integers_stay_exact) {
    int64_t big[2] = {INT64_C(9007199254740993), -INT64_C(9007199254740993)}, out[2], sum;
    aj_tensor *x = aj_from_data(context, AJ_I64, AJ_SHAPE(2), big);
    expect_ok(aj_read(aj_neg(x), out, sizeof out));
    cr_assert(out[0] == -big[0] && out[1] == -big[1]);
    expect_ok(aj_read(aj_sum(aj_slice(x, 0, 0, 1, 1)), &sum, sizeof sum));
    cr_assert(sum == big[0]);
    expect_ok(aj_read(aj_maximum(x, aj_neg(x)), out, sizeof out));
    cr_assert(out[0] == big[0] && out[1] == big[0]);
    expect_values(aj_add(U8((2), 250, 255), U8((2), 10, 1)), 0, 4, 0); /* wraps around */
    expect_values(aj_sum(U8((3), 250, 250, 250)), 0, 750);
    cr_assert(aj_tensor_dtype(aj_sum(I32((1), 1))) == AJ_I64);
    expect_values(aj_sum(I32((2), 2147483647, 2147483647)), 0, 4294967294.0);
}

Test(values, division_and_powers) {
    expect_values(aj_div(F64((3), 1, -6, 1), F64((3), 4, 3, 0)), 0, 0.25, -2, INFINITY);
    expect_values(aj_pow(F64((4), 2, 9, -2, 0), F64((4), 3, 0.5, 3, 0)), 2 * EPS, 8, 3, -8, 1);
    expect_values(aj_pow_scalar(F64((3), 1, 4, 9), 1.5), 4 * EPS, 1, 8, 27);
    expect_values(aj_atan2(F64((4), 1, 1, -1, 0), F64((4), 1, -1, -1, -1)), 2 * EPS, M_PI / 4, 3 * M_PI / 4, -3 * M_PI / 4, M_PI);
}

Test(values, casts) {
    expect_values(aj_cast(F64((4), 1.9, -1.9, 0.5, 200), AJ_I32), 0, 1, -1, 0, 200);
    expect_values(aj_cast(I64((2), 3, -4), AJ_F32), 0, 3, -4);
    expect_values(aj_cast(F64((1), 0.1), AJ_F32), 0, (double)0.1f);
    cr_assert(aj_tensor_dtype(aj_cast(U8((1), 1), AJ_F64)) == AJ_F64);
}

Test(values, nan_rules) {
    aj_tensor *a = F64((3), NAN, 1, NAN), *b = F64((3), 1, NAN, NAN);
    expect_values(aj_maximum(a, b), 0, NAN, NAN, NAN);
    expect_values(aj_minimum(a, b), 0, NAN, NAN, NAN);
    expect_values(aj_clamp(a, -1, 1), 0, NAN, 1, NAN);
    expect_values(aj_relu(a), 0, NAN, 1, NAN);
    expect_values(aj_eq(a, a), 0, 0, 1, 0);
    expect_values(aj_ne(a, a), 0, 1, 0, 1);
    expect_values(aj_lt(a, b), 0, 0, 0, 0);
    expect_values(aj_ge(a, b), 0, 0, 0, 0);
    expect_values(aj_where(U8((3), 1, 0, 0), F64((3), 1, NAN, INFINITY), F64((3), NAN, 2, 3)), 0, 1, 2, 3);
    expect_near(aj_item(aj_max(F64((4), 1, NAN, 7, 2))), NAN, 0);
    expect_near(aj_item(aj_min(F64((4), 1, NAN, 7, 2))), NAN, 0);
    expect_near(aj_item(aj_argmax(F64((4), 1, NAN, 7, NAN), 0)), 1, 0);
    expect_near(aj_item(aj_argmin(F64((4), 1, NAN, -7, NAN), 0)), 1, 0);
    expect_near(aj_item(aj_max(F64((2), -INFINITY, -INFINITY))), -INFINITY, 0);
}

/* ---- broadcasting, views ---- */

Test(values, broadcasting_by_hand) {
    aj_tensor *column = F64((2, 1), 10, 20), *row = F64((3), 1, 2, 3);
    expect_values(aj_add(column, row), 0, 11, 12, 13, 21, 22, 23);
    expect_shape(aj_add(column, row), 2, 3);
    expect_values(aj_sub(row, SCALAR(1)), 0, 0, 1, 2);
    expect_shape(aj_mul(F64((1, 1), 2), F64((1), 3)), 1, 1);
    expect_values(aj_where(U8((2, 1), 1, 0), row, F64((1, 1), 9)), 0, 1, 2, 3, 9, 9, 9);
    expect_shape(aj_add(aj_zeros(context, AJ_F64, AJ_SHAPE(0, 1)), row), 0, 3);
    expect_values(aj_broadcast_to(column, AJ_SHAPE(2, 2, 3)), 0, 10, 10, 10, 20, 20, 20, 10, 10, 10, 20, 20, 20);
    expect_values(aj_sum_axes(aj_broadcast_to(row, AJ_SHAPE(4, 3)), 1, (const int[]){0}, false), 0, 4, 8, 12);
}

Test(values, views_of_views) {
    aj_tensor *x = aj_reshape(aj_arange(context, AJ_F64, 0, 24, 1), AJ_SHAPE(2, 3, 4));
    aj_tensor *v = aj_flip(aj_slice(aj_transpose(x, 0, 2), 0, 3, INT64_MIN, -2), 1); /* v[i, j, k] = x[k, 2 - j, 3 - 2i] */
    expect_shape(v, 2, 3, 2);
    const double *got = numbers(v);
    for (int i = 0, n = 0; i < 2; i++)
        for (int j = 0; j < 3; j++)
            for (int k = 0; k < 2; k++, n++)
                cr_assert(got[n] == 12 * k + 4 * (2 - j) + 3 - 2 * i);
    expect_values(aj_reshape(aj_slice(v, 1, 0, 1, 1), AJ_SHAPE(4)), 0, 11, 23, 9, 21);
    expect_values(aj_sum_axes(v, 2, (const int[]){0, -1}, false), 0, 11 + 23 + 9 + 21, 7 + 19 + 5 + 17, 3 + 15 + 1 + 13);
    expect_values(aj_add(aj_slice(v, 2, 0, 1, 1), aj_slice(v, 2, 1, 2, 1)), 0, 34, 26, 18, 30, 22, 14);
}

Test(values, slices_follow_python) {
    aj_tensor *x = aj_arange(context, AJ_F64, 0, 6, 1);
    expect_values(aj_slice(x, 0, 1, -1, 2), 0, 1, 3);
    expect_values(aj_slice(x, 0, -2, INT64_MAX, 1), 0, 4, 5);
    expect_values(aj_slice(x, 0, INT64_MAX, INT64_MIN, -1), 0, 5, 4, 3, 2, 1, 0);
    expect_values(aj_slice(x, 0, -1, 0, -3), 0, 5, 2);
    expect_values(aj_slice(x, -1, 4, 100, 1), 0, 4, 5);
    cr_assert(aj_numel(aj_slice(x, 0, 4, 2, 1)) == 0 && aj_numel(aj_slice(x, 0, 100, 200, 1)) == 0);
    expect_values(aj_slice(x, 0, 0, INT64_MAX, INT64_MAX), 0, 0);
    expect_values(aj_slice(x, 0, -1, INT64_MIN, INT64_MIN), 0, 5);
    expect_values(aj_set_slice(x, 0, 0, 6, 2, F64((3), 7, 8, 9)), 0, 7, 1, 8, 3, 9, 5);
    expect_values(aj_set_slice(x, 0, -1, -4, -1, SCALAR(0)), 0, 0, 1, 2, 0, 0, 0);
    expect_values(x, 0, 0, 1, 2, 3, 4, 5);
}

Test(values, windows) {
    aj_tensor *x = aj_reshape(aj_arange(context, AJ_F64, 0, 12, 1), AJ_SHAPE(3, 4));
    expect_values(aj_window(x, (const int64_t[]){1, 1}, (const int64_t[]){3, -1}), 0, 5, 6, 9, 10);
    expect_values(aj_set_window(x, (const int64_t[]){0, 2}, F64((2, 2), 90, 91, 92, 93)), 0, 0, 1, 90, 91, 4, 5, 92, 93, 8, 9, 10,
                  11);
    expect_near(aj_item(aj_sum(x)), 66, 0);
    aj_tensor *y = aj_set_window_inplace(aj_add_scalar(x, 1), (const int64_t[]){2, 3}, F64((1, 1), -1));
    expect_values(y, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, -1);
}

Test(values, joining_and_moving) {
    aj_tensor *a = F64((2, 2), 1, 2, 3, 4), *b = F64((2, 1), 5, 6), *none = aj_zeros(context, AJ_F64, AJ_SHAPE(2, 0));
    expect_values(aj_concat(3, (aj_tensor *[]){a, none, b}, -1), 0, 1, 2, 5, 3, 4, 6);
    expect_values(aj_concat(2, (aj_tensor *[]){a, aj_transpose(a, 0, 1)}, 0), 0, 1, 2, 3, 4, 1, 3, 2, 4);
    expect_values(aj_stack(2, (aj_tensor *[]){a, a}, -1), 0, 1, 1, 2, 2, 3, 3, 4, 4);
    expect_shape(aj_stack(3, (aj_tensor *[]){a, a, a}, 0), 3, 2, 2);
    expect_values(aj_pad(b, 1, 1, 2, 9), 0, 9, 5, 9, 9, 9, 6, 9, 9);
    expect_values(aj_roll(aj_arange(context, AJ_I32, 0, 5, 1), 0, 7), 0, 3, 4, 0, 1, 2);
    expect_values(aj_roll(aj_arange(context, AJ_I32, 0, 5, 1), 0, -1), 0, 1, 2, 3, 4, 0);
    cr_assert(aj_numel(aj_roll(none, 1, 3)) == 0);
    expect_values(aj_flip(a, 1), 0, 2, 1, 4, 3);
    expect_shape(aj_squeeze(b, 1), 2);
    expect_shape(aj_unsqueeze(b, 1), 2, 1, 1);
    expect_shape(aj_unsqueeze(b, -1), 2, 1, 1);
    expect_values(aj_permute(aj_reshape(aj_arange(context, AJ_U8, 0, 6, 1), AJ_SHAPE(1, 2, 3)), (const int[]){2, 0, 1}), 0, 0, 3,
                  1, 4, 2, 5);
}

Test(values, indexing) {
    aj_tensor *x = F64((3, 2), 1, 2, 3, 4, 5, 6), *index = I64((2, 2), 2, 0, -1, 1);
    expect_values(aj_take(x, 0, index), 0, 5, 6, 1, 2, 5, 6, 3, 4);
    expect_shape(aj_take(x, 0, index), 2, 2, 2);
    expect_values(aj_take(x, 1, I32((3), 1, 1, 0)), 0, 2, 2, 1, 4, 4, 3, 6, 6, 5);
    expect_values(aj_scatter_add(x, 0, I64((3), 1, 1, -1), F64((3, 2), 10, 20, 30, 40, 50, 60)), 0, 1, 2, 43, 64, 55, 66);
    cr_assert(!aj_take(x, 0, I64((1), 3)));
    expect_error(AJ_ERR_ARG, "take", "3");
    cr_assert(!aj_scatter_add(x, 0, I64((1), -4), F64((1, 2), 0, 0)));
    expect_error(AJ_ERR_ARG, "scatter_add", "-4");
}

/* ---- reductions ---- */

typedef struct reduction {
    const char *name;
    aj_tensor *(*all)(aj_tensor *);
    aj_tensor *(*axes)(aj_tensor *, int, const int *, bool);
    double start;
    double (*step)(double, double);
} reduction;

static double plus(double a, double b) {
    return a + b;
}
static double times(double a, double b) {
    return a * b;
}
static double plus_square(double a, double b) {
    return a + b * b;
}

static const reduction reductions[] = {
    {"sum", aj_sum, aj_sum_axes, 0, plus},        {"mean", aj_mean, aj_mean_axes, 0, plus},
    {"prod", aj_prod, aj_prod_axes, 1, times},    {"max", aj_max, aj_max_axes, -INFINITY, fmax},
    {"min", aj_min, aj_min_axes, INFINITY, fmin}, {"norm", aj_norm, aj_norm_axes, 0, plus_square},
};

/* The reduction of x (extents n) over the axes in the set, with loops; out has the kept extents. Returns the number of results. */
static int reduce_by_loops(const reduction *r, const double *x, const int n[4], unsigned set, double *out) {
    int results = 1, reduced = 1;
    for (int a = 0; a < 4; a++)
        *(set >> a & 1 ? &reduced : &results) *= n[a];
    for (int i = 0; i < results; i++)
        out[i] = r->start;
    for (int i = 0; i < n[0] * n[1] * n[2] * n[3]; i++) {
        int at[4] = {i / (n[1] * n[2] * n[3]), i / (n[2] * n[3]) % n[1], i / n[3] % n[2], i % n[3]}, to = 0;
        for (int a = 0; a < 4; a++)
            if (!(set >> a & 1))
                to = to * n[a] + at[a];
        out[to] = r->step(out[to], x[i]);
    }
    for (int i = 0; i < results; i++)
        out[i] = strcmp(r->name, "mean") == 0 ? out[i] / reduced : strcmp(r->name, "norm") == 0 ? sqrt(out[i]) : out[i];
    return results;
}

static void check_reduction(const reduction *r, aj_dtype dtype, const int n[4], unsigned set, bool strided) {
    aj_tensor *x = make_spread(dtype, AJ_SHAPE(n[0], n[1], n[2], n[3]), 0.6, 1.5, 0.4, set);
    if (strided)
        x = aj_permute(aj_flip(aj_permute(x, (const int[]){3, 1, 0, 2}), 0), (const int[]){2, 1, 3, 0});
    int axes[4], count = 0;
    for (int a = 0; a < 4; a++)
        if (set >> a & 1)
            axes[count++] = a - (a % 2 ? 4 : 0);
    double *wanted = malloc((size_t)(n[0] * n[1] * n[2] * n[3] + 1) * sizeof *wanted);
    int results = reduce_by_loops(r, numbers(x), n, set, wanted);
    aj_tensor *y = r->axes(x, count, axes, false), *kept = r->axes(x, count, axes, true);
    cr_assert(y && kept, "%s: %s", r->name, aj_ctx_error(context));
    cr_assert(aj_ndim(y) == 4 - count && aj_ndim(kept) == 4 && aj_numel(y) == results && aj_numel(kept) == results);
    cr_assert(aj_tensor_dtype(y) == dtype);
    const double *got = numbers(y), *got_kept = numbers(kept);
    for (int i = 0; i < results; i++) { /* f32 accumulates in f64: one rounding, and n eps for the product's and sum's own */
        double tolerance = dtype == AJ_F32 ? FLT_EPSILON : 64 * EPS;
        cr_assert(fabs(got[i] - wanted[i]) <= tolerance * fabs(wanted[i]), "%s over %x: %.17g, expected %.17g", r->name, set,
                  got[i], wanted[i]);
        cr_assert(got_kept[i] == got[i]);
    }
    if (set == 15)
        expect_same(r->all(x), y, 64 * EPS);
    free(wanted);
}

Test(values, reductions_over_every_set_of_axes) {
    static const aj_dtype dtypes[] = {AJ_F64, AJ_F32};
    static const int extents[][4] = {{2, 3, 4, 5}, {1, 7, 1, 3}, {3, 1, 33, 2}};
    for (size_t r = 0; r < sizeof reductions / sizeof reductions[0]; r++)
        for (int d = 0; d < 2; d++)
            for (int e = 0; e < 3; e++)
                for (unsigned set = 0; set < 16; set++)
                    check_reduction(&reductions[r], dtypes[d], extents[e], set, set % 2);
}

Test(values, f32_accumulates_in_f64) {
    enum { N = 1000000 };
    aj_tensor *x = aj_full(context, AJ_F32, AJ_SHAPE(N), 0.1), *tenth = aj_cast(x, AJ_F64);
    double exact = N * aj_item(aj_slice(tenth, 0, 0, 1, 1));
    expect_near(aj_item(aj_sum(x)) / exact, 1, FLT_EPSILON);
    expect_near(aj_item(aj_mean(x)) / (exact / N), 1, FLT_EPSILON);
    expect_near(aj_item(aj_slice(aj_cumsum(x, 0), 0, -1, INT64_MAX, 1)) / exact, 1, FLT_EPSILON);
    aj_tensor *column = aj_reshape(x, AJ_SHAPE(N / 10, 10));
    expect_near(aj_item(aj_slice(aj_sum_axes(column, 1, (const int[]){0}, false), 0, 0, 1, 1)) / (exact / 10), 1, FLT_EPSILON);
    aj_tensor *big = F32((3), 1e8, 1, -1e8);
    expect_near(aj_item(aj_sum(big)), 1, 0);
}

Test(values, norms_do_not_overflow) {
    expect_near(aj_item(aj_norm(F64((2), 3e200, 4e200))) / 5e200, 1, 4 * EPS);
    expect_near(aj_item(aj_norm(F64((2), 3e-200, 4e-200))) / 5e-200, 1, 4 * EPS);
    expect_near(aj_item(aj_norm(F64((2), 0, 0))), 0, 0);
    expect_near(aj_item(aj_norm(F64((2), INFINITY, 1))), INFINITY, 0);
    cr_assert(isnan(aj_item(aj_norm(F64((2), NAN, 1)))));
}

Test(values, integer_reductions) {
    aj_tensor *x = I32((2, 3), 1, 2, 3, 4, 5, 6);
    expect_values(aj_sum_axes(x, 1, (const int[]){0}, false), 0, 5, 7, 9);
    expect_values(aj_prod_axes(x, 1, (const int[]){1}, true), 0, 6, 120);
    expect_values(aj_max_axes(x, 1, (const int[]){1}, false), 0, 3, 6);
    cr_assert(aj_tensor_dtype(aj_max(x)) == AJ_I32 && aj_tensor_dtype(aj_prod(x)) == AJ_I64);
    expect_values(aj_argmax(I64((2, 3), 1, 3, 3, 5, 4, 5), 1), 0, 1, 0);
    expect_values(aj_argmin(U8((2, 2), 1, 1, 0, 1), 0), 0, 1, 0);
    expect_values(aj_cumsum(I32((2, 2), 1, 2, 3, 4), 0), 0, 1, 2, 4, 6);
    expect_near(aj_item(aj_dot(I64((3), 1, 2, 3), I64((3), 4, 5, 6))), 32, 0);
    expect_near(aj_item(aj_dot(U8((2), 200, 100), U8((2), 200, 100))), 50000, 0);
    cr_assert(aj_tensor_dtype(aj_argmax(x, 0)) == AJ_I64);
}

Test(values, extrema_of_nothing_are_errors) {
    aj_tensor *none = aj_zeros(context, AJ_F64, AJ_SHAPE(2, 0));
    cr_assert(!aj_max(none));
    expect_error(AJ_ERR_SHAPE, "max");
    cr_assert(!aj_min_axes(none, 1, (const int[]){1}, false));
    expect_error(AJ_ERR_SHAPE, "min");
    cr_assert(!aj_argmax(none, 1));
    expect_error(AJ_ERR_SHAPE, "argmax");
    cr_assert(aj_numel(aj_max_axes(none, 1, (const int[]){0}, false)) == 0, "no results are asked of nothing here");
}

Test(values, along_one_axis) {
    aj_tensor *x = F64((2, 3), 1, 2, 3, 1000, 1000, 1000);
    double e = exp(1), z = 1 + e + e * e;
    expect_values(aj_logsumexp(x, 1), 4 * EPS, 1 + log(z), 1000 + log(3));
    expect_values(aj_softmax(x, -1), 4 * EPS, 1 / z, e / z, e * e / z, 1.0 / 3, 1.0 / 3, 1.0 / 3);
    expect_values(aj_logsumexp(F64((2), -INFINITY, -INFINITY), 0), 0, -INFINITY);
    expect_values(aj_logsumexp(aj_zeros(context, AJ_F64, AJ_SHAPE(0)), 0), 0, -INFINITY);
    expect_values(aj_logsumexp(F64((2), -2000, -2000), 0), 4 * EPS, -2000 + log(2));
    expect_values(aj_cumsum(x, 0), 0, 1, 2, 3, 1001, 1002, 1003);
    expect_values(aj_cumsum(aj_flip(F64((4), 1, 2, 3, 4), 0), 0), 0, 4, 7, 9, 10);
    expect_near(aj_item(aj_dot(F64((3), 1, 2, 3), aj_flip(F64((3), 1, 2, 3), 0))), 10, 0);
}

/* ---- linear algebra ---- */

/* y[b, i, j] = sum_k a[b, i, k] c[b, k, j] with loops; a and c have batch * m * k entries or one matrix for all. */
static void check_matmul(aj_dtype dtype, int batch, bool share_b, int m, int k, int n, int layout) {
    aj_tensor *a = make_spread(dtype, AJ_SHAPE(batch, m, k), -1, 1, 0.3, 1);
    aj_tensor *b =
        share_b ? make_spread(dtype, AJ_SHAPE(k, n), -1, 1, 0.7, 2) : make_spread(dtype, AJ_SHAPE(batch, k, n), -1, 1, 0.7, 2);
    const double *pa = numbers(a), *pb = numbers(b);
    if (layout & 1) /* the same matrix, stored column by column */
        a = aj_transpose(aj_reshape(aj_transpose(a, 1, 2), AJ_SHAPE(batch, k, m)), 1, 2);
    if (layout & 2) /* backwards in memory, both ways */
        b = aj_flip(aj_flip(aj_add_scalar(aj_flip(aj_flip(b, -1), -2), 0), -2), -1);
    if (layout & 4) /* every second column of a wider one */
        a = aj_slice(aj_reshape(aj_stack(2, (aj_tensor *[]){a, a}, 3), AJ_SHAPE(batch, m, 2 * k)), 2, 0, INT64_MAX, 2);
    aj_tensor *y = aj_matmul(a, b);
    expect_shape(y, batch, m, n);
    const double *got = numbers(y);
    for (int z = 0; z < batch; z++)
        for (int i = 0; i < m; i++)
            for (int j = 0; j < n; j++) {
                double wanted = 0, size = 0;
                for (int l = 0; l < k; l++) {
                    double term = pa[(z * m + i) * k + l] * pb[((share_b ? 0 : z * k) + l) * n + j];
                    wanted += term;
                    size += fabs(term);
                }
                double g = got[(z * m + i) * n + j];
                cr_assert(fabs(g - wanted) <= (k + 2) * machine_epsilon(dtype) * size,
                          "%d x (%d, %d, %d), layout %d: %g, expected %g", batch, m, k, n, layout, g, wanted);
            }
}

Test(values, matmul_against_loops) {
    static const int shapes[][3] = {{1, 1, 1}, {2, 3, 4}, {7, 5, 1}, {1, 9, 6}, {33, 17, 20},
                                    {3, 0, 2}, {0, 2, 2}, {2, 2, 0}, {1, 40, 1}};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (int layout = 0; layout < 8; layout++)
            for (int batch = 0; batch < 4; batch++) {
                check_matmul(AJ_F64, batch, false, shapes[s][0], shapes[s][1], shapes[s][2], layout);
                check_matmul(AJ_F32, batch, true, shapes[s][0], shapes[s][1], shapes[s][2], layout);
            }
}

Test(values, matmul_of_vectors_and_batches) {
    aj_tensor *a = F64((2, 3), 1, 2, 3, 4, 5, 6), *v = F64((3), 1, 0, -1), *w = F64((2), 1, 1);
    expect_values(aj_matmul(a, v), 0, -2, -2);
    expect_shape(aj_matmul(a, v), 2);
    expect_values(aj_matmul(w, a), 0, 5, 7, 9);
    expect_near(aj_item(aj_matmul(v, v)), 2, 0);
    cr_assert(aj_ndim(aj_matmul(v, v)) == 0);
    expect_values(aj_outer(w, v), 0, 1, 0, -1, 1, 0, -1);
    expect_values(aj_matmul(I32((2, 2), 1, 2, 3, 4), aj_transpose(I32((2, 2), 5, 6, 7, 8), 0, 1)), 0, 17, 23, 39, 53);
    aj_tensor *left = aj_broadcast_to(a, AJ_SHAPE(4, 1, 2, 3)), *right = aj_ones(context, AJ_F64, AJ_SHAPE(5, 3, 2));
    expect_shape(aj_matmul(left, right), 4, 5, 2, 2);
    expect_near(aj_item(aj_sum(aj_matmul(left, right))), 20 * 2 * 21, 0);
}

/* A well-conditioned matrix: spread entries and a large diagonal. */
static aj_tensor *solid_matrix(aj_dtype dtype, int batch, int n) {
    aj_tensor *a = make_spread(dtype, AJ_SHAPE(batch, n, n), -1, 1, 0.3, 5);
    return aj_add(a, aj_diag(aj_full(context, dtype, AJ_SHAPE(n), n)));
}

Test(values, solve) {
    static const aj_dtype dtypes[] = {AJ_F64, AJ_F32};
    for (int d = 0; d < 2; d++)
        for (int n = 1; n < 12; n += 5) {
            aj_tensor *a = solid_matrix(dtypes[d], 3, n), *b = make_spread(dtypes[d], AJ_SHAPE(3, n, 2), -1, 1, 0.6, 6);
            double tolerance = 16 * n * machine_epsilon(dtypes[d]);
            expect_same(aj_matmul(a, aj_solve(a, b)), b, tolerance);
            aj_tensor *flipped = aj_flip(a, -1); /* needs pivoting: the large entries are off the diagonal */
            expect_same(aj_matmul(flipped, aj_solve(flipped, b)), b, tolerance);
            aj_tensor *t = aj_transpose(a, 1, 2);
            expect_same(aj_matmul(t, aj_solve(t, b)), b, tolerance);
            aj_tensor *one = aj_reshape(aj_slice(a, 0, 0, 1, 1), AJ_SHAPE(n, n)),
                      *v = make_spread(dtypes[d], AJ_SHAPE(n), -1, 1, 0.6, 7);
            expect_same(aj_matmul(one, aj_solve(one, v)), v, tolerance);
            expect_same(aj_matmul(a, aj_solve(a, aj_unsqueeze(v, 1))), aj_broadcast_to(aj_unsqueeze(v, 1), AJ_SHAPE(3, n, 1)),
                        tolerance);
        }
    cr_assert(!aj_solve(F64((2, 2), 1, 2, 2, 4), F64((2), 1, 1)));
    expect_error(AJ_ERR_NUMERIC, "solve", "singular");
    cr_assert(aj_numel(aj_solve(aj_zeros(context, AJ_F64, AJ_SHAPE(0, 0)), aj_zeros(context, AJ_F64, AJ_SHAPE(0, 3)))) == 0);
}

Test(values, cholesky) {
    static const aj_dtype dtypes[] = {AJ_F64, AJ_F32};
    for (int d = 0; d < 2; d++)
        for (int n = 1; n < 12; n += 5) {
            aj_tensor *a = solid_matrix(dtypes[d], 2, n), *s = aj_matmul(a, aj_transpose(a, 1, 2)), *l = aj_cholesky(s);
            expect_same(aj_scale(aj_matmul(l, aj_transpose(l, 1, 2)), 1.0 / (n * n)), aj_scale(s, 1.0 / (n * n)),
                        16 * n * machine_epsilon(dtypes[d]));
            const double *p = numbers(l);
            for (int z = 0; z < 2; z++)
                for (int i = 0; i < n; i++)
                    for (int j = i; j < n; j++)
                        cr_assert(j == i ? p[(z * n + i) * n + j] > 0 : p[(z * n + i) * n + j] == 0);
        }
    cr_assert(!aj_cholesky(F64((2, 2), 1, 2, 2, 1)));
    expect_error(AJ_ERR_NUMERIC, "cholesky");
}

Test(values, determinants_and_diagonals) {
    expect_values(aj_logdet(F64((2, 2, 2), 1, 2, 3, 4, 0, 5, 1, 9)), 8 * EPS, log(2), log(5));
    expect_near(aj_item(aj_logdet(F64((2, 2), 1, 2, 2, 4))), -INFINITY, 0);
    expect_near(aj_item(aj_logdet(aj_diag(aj_full(context, AJ_F64, AJ_SHAPE(400), 1e3)))), 400 * log(1e3), 64 * EPS);
    expect_near(aj_item(aj_trace(F64((2, 2), 1, 2, 3, 4))), 5, 0);
    expect_near(aj_item(aj_trace(aj_flip(I32((2, 2), 1, 2, 3, 4), 1))), 5, 0);
    expect_values(aj_diag(F64((2), 1, 2)), 0, 1, 0, 0, 2);
    expect_values(aj_diag(F64((2, 3), 1, 2, 3, 4, 5, 6)), 0, 1, 5);
    expect_values(aj_diag(I64((2), 1, 2)), 0, 1, 0, 0, 2);
}

/* ---- devices ---- */

Test(values, devices) {
    aj_device host = aj_cpu(context), device = aj_test_device(context);
    cr_assert(host && device && host != device);
    cr_assert(strcmp(aj_device_name(host), "cpu") == 0 && strcmp(aj_device_name(device), "test") == 0);
    aj_tensor *x = aj_transpose(F64((2, 3), 1, 2, 3, 4, 5, 6), 0, 1), *far = aj_to_device(x, device);
    cr_assert(aj_tensor_device(x) == host && aj_tensor_device(far) == device && aj_tensor_device(NULL) == NULL);
    expect_same(aj_to_device(far, host), x, 0);
    expect_same(aj_to_device(aj_flip(aj_exp(far), 0), host), aj_flip(aj_exp(x), 0), 2 * EPS);
    expect_same(aj_to_device(x, host), x, 0);
    cr_assert(aj_data(far) == NULL);
    expect_error(AJ_ERR_DEVICE, "aj_data");
    expect_values(far, 0, 1, 4, 2, 5, 3, 6); /* aj_read copies from any device */
    cr_assert(!aj_add(x, far));
    expect_error(AJ_ERR_DEVICE, "add");
    cr_assert(!aj_to_device(x, NULL));
    expect_error(AJ_ERR_ARG, "to_device");
    aj_ctx *other = NULL;
    cr_assert(aj_ctx_create(&other, NULL) == AJ_OK);
    cr_assert(!aj_to_device(x, aj_test_device(other)));
    expect_error(AJ_ERR_CONTEXT, "to_device");
    cr_assert(aj_ctx_destroy(&other) == AJ_OK);
    cr_assert(aj_cpu(NULL) == NULL);
}

/* ---- laziness cannot be told ---- */

/* A long chain, one expression used by many, a chain over a view of itself. */
Test(values, long_and_shared_expressions) {
    aj_tensor *x = F64((3), 0.1, 0.2, 0.3), *y = x;
    double wanted[3] = {0.1, 0.2, 0.3};
    for (int i = 0; i < 500; i++) {
        y = aj_sub(y, aj_scale(aj_mul(y, y), 0.01));
        for (int k = 0; k < 3; k++)
            wanted[k] = wanted[k] - 0.01 * (wanted[k] * wanted[k]);
    }
    expect_values(y, 1e-13, wanted[0], wanted[1], wanted[2]);
    aj_tensor *e = aj_exp(x), *total = aj_zeros(context, AJ_F64, AJ_SHAPE(3));
    for (int i = 0; i < 100; i++)
        total = aj_add(total, aj_scale(e, i));
    expect_values(aj_div(total, e), 1e-13, 4950, 4950, 4950);
    aj_tensor *many = aj_add(aj_add(aj_mul(e, x), aj_where(aj_lt(x, e), x, e)), aj_cast(aj_cast(e, AJ_F32), AJ_F64));
    expect_near(aj_item(aj_sum(aj_slice(many, 0, 1, 2, 1))), exp(0.2) * 0.2 + 0.2 + (double)(float)exp(0.2), 4 * EPS);
}

/* More different inputs than one program can have. */
Test(values, wide_expressions) {
    aj_tensor *total = SCALAR(0);
    for (int i = 0; i < 100; i++)
        total = aj_add(total, aj_mul(F64((2), i, 1), aj_full(context, AJ_F64, AJ_SHAPE(2, 1), 2)));
    expect_values(total, 0, 9900, 200, 9900, 200);
    aj_tensor *leaves[64];
    for (int i = 0; i < 64; i++)
        leaves[i] = aj_exp(F64((1), i * 0.01));
    for (int n = 64; n > 1; n /= 2)
        for (int i = 0; i < n / 2; i++)
            leaves[i] = aj_add(leaves[2 * i], leaves[2 * i + 1]);
    double wanted = 0;
    for (int i = 0; i < 64; i++)
        wanted += exp(i * 0.01);
    expect_near(aj_item(leaves[0]), wanted, 64 * EPS);
}
