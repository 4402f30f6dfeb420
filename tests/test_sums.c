/* Reductions against loops in long double: every subset of axes of shapes with short and long extents, in every layout, every dtype; what rounds, what wraps, what wins. Lazily and
 * eagerly. */
#include "serial.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "layouts.h"

TestSuite(sums);

/* At most 16 blocks of at most 256 lanes are added one after the other, those sums in pairs, then the lanes in pairs: fewer than 16 + 16 + 8 roundings of a
 * partial sum, which is at most the sum of magnitudes. */
enum { ROUNDINGS = 40 };

static void both_ways(void (*body)(void)) {
    for (int lazy = 0; lazy < 2; lazy++) {
        cr_assert(setenv("ADJOIN_FUSE", lazy ? "1" : "0", 1) == 0);
        begin();
        body();
        finish();
    }
}

/* ---- long sums ---- */

static void check_sum(aj_tensor *x, const char *what) {
    const double *entries = numbers(x);
    long double sum = 0, lost = 0, magnitude = 0; /* Neumaier's summation: what each addition loses is added up too */
    for (int64_t i = 0; i < aj_numel(x); i++) {
        volatile long double next = sum + entries[i];
        lost += fabsl(sum) >= fabs(entries[i]) ? (sum - next) + entries[i] : (entries[i] - next) + sum;
        sum = next;
        magnitude += fabs(entries[i]);
    }
    sum += lost;
    double tolerance = ROUNDINGS * DBL_EPSILON / 2 * (double)magnitude;
    if (aj_tensor_dtype(x) == AJ_F32)
        tolerance += FLT_EPSILON / 2 * fabs((double)sum);
    double got = aj_item(aj_sum(x));
    cr_assert(fabs(got - (double)sum) <= tolerance, "%s, %s: %.17g, expected %.17g, tolerance %g", what,
              aj_dtype_name(aj_tensor_dtype(x)), got, (double)sum, tolerance);
}

static void long_sums(void) {
    const int64_t n = is_watched() ? 1 << 16 : 1 << 20;
    for (int which = 0; which < 2; which++) {
        aj_dtype dtype = which ? AJ_F32 : AJ_F64;
        aj_tensor *u = aj_uniform(context, dtype, AJ_SHAPE(n), 3), *g = aj_normal(context, dtype, AJ_SHAPE(n), 4);
        check_sum(aj_full(context, dtype, AJ_SHAPE(n), 0.1), "a constant");
        check_sum(aj_add_scalar(aj_scale(u, 0), 0.1), "a number again and again");
        check_sum(u, "uniform");
        check_sum(aj_mul(g, aj_exp(aj_scale(u, 20))), "cancellation");
        check_sum(
            aj_sub(aj_concat(2, (aj_tensor *[]){aj_scale(u, 1e6), g}, 0), aj_concat(2, (aj_tensor *[]){g, aj_scale(u, 1e6)}, 0)),
            "halves that cancel");
        check_sum(aj_flip(aj_reshape(g, AJ_SHAPE(n / 256, 256)), 0), "flipped");
        check_sum(aj_transpose(aj_reshape(aj_add_scalar(u, 1e3), AJ_SHAPE(1024, n / 1024)), 0, 1), "transposed");
        check_sum(aj_slice(u, 0, 1, INT64_MAX, 3), "strided");
        check_sum(aj_mul(aj_reshape(u, AJ_SHAPE(n / 16, 16)), aj_uniform(context, dtype, AJ_SHAPE(n / 16, 1), 5)), "rows scaled");
    }
}

Test(sums, long_sums) {
    both_ways(long_sums);
}

/* ---- every subset of axes ---- */

typedef enum reduction { SUM, MEAN, PROD, MAX, MIN, N_REDUCTIONS } reduction;
typedef aj_tensor *reduce_call(aj_tensor *x, int n, const int *axes, bool keepdims);
static reduce_call *const calls[] = {aj_sum_axes, aj_mean_axes, aj_prod_axes, aj_max_axes, aj_min_axes};
static const char *const names[] = {"sum", "mean", "prod", "max", "min"};

typedef struct wanted {
    long double value, magnitude; /* SUM, MEAN: of the sum of absolute values */
    int64_t entries;
} wanted;

static void take(reduction what, wanted *w, double x) {
    if (w->entries++ == 0)
        w->value = what == PROD ? 1 : what == MAX ? -INFINITY : what == MIN ? INFINITY : 0;
    w->magnitude += fabs(x);
    if (what == PROD)
        w->value *= x;
    else if (what == MAX || what == MIN)
        w->value = isnan(x) || (!isnan(w->value) && (what == MAX ? x > w->value : x < w->value)) ? x : w->value;
    else
        w->value += x;
}

static void check_axes(aj_tensor *x, const double *entries, const extents *e, reduction what, unsigned axes, bool keepdims) {
    int list[4], n = 0;
    int64_t kept = 1, stride[4];
    for (int d = 3; d >= 0; d--) {
        stride[d] = axes >> d & 1 ? 0 : kept;
        kept *= axes >> d & 1 ? 1 : e->n[d];
    }
    for (int d = 3; d >= 0; d--)
        if (axes >> d & 1)
            list[n++] = d % 2 ? d : d - 4;
    wanted *w = calloc((size_t)kept + 1, sizeof *w);
    int64_t i = 0;
    for (int64_t a = 0; a < e->n[0]; a++)
        for (int64_t b = 0; b < e->n[1]; b++)
            for (int64_t c = 0; c < e->n[2]; c++)
                for (int64_t d = 0; d < e->n[3]; d++)
                    take(what, &w[a * stride[0] + b * stride[1] + c * stride[2] + d * stride[3]], entries[i++]);
    aj_tensor *y = calls[what](x, n, list, keepdims);
    cr_assert(y && aj_numel(y) == kept && aj_ndim(y) == (keepdims ? 4 : 4 - n), "%s: %s", names[what], aj_ctx_error(context));
    const double *got = numbers(y);
    bool single = aj_tensor_dtype(x) == AJ_F32;
    for (int64_t k = 0; k < kept; k++) {
        double value = (double)w[k].value, tolerance = what >= MAX ? 0 : (single ? FLT_EPSILON : 0) * fabs(value);
        if (what == MEAN)
            value /= (double)w[k].entries;
        if (what == SUM || what == MEAN)
            tolerance += ROUNDINGS * DBL_EPSILON * (double)w[k].magnitude / (what == MEAN ? (double)w[k].entries : 1);
        if (what == PROD)
            tolerance += (double)w[k].entries * DBL_EPSILON * fabs(value);
        cr_assert(got[k] == value || (isnan(got[k]) && isnan(value)) || fabs(got[k] - value) <= tolerance,
                  "%s of %s, shape (%d, %d, %d, %d), axes %x, entry %d: %.17g, expected %.17g, tolerance %g", names[what],
                  aj_dtype_name(aj_tensor_dtype(x)), (int)e->n[0], (int)e->n[1], (int)e->n[2], (int)e->n[3], axes, (int)k, got[k],
                  value, tolerance);
    }
    free(w);
}

/* Numbers near 1 for products, which then neither over- nor underflow; small ones for integers; a NaN now and then for floats. */
static aj_tensor *entries_for(reduction what, aj_dtype dtype, const extents *e, uint64_t seed, bool with_nan) {
    int64_t n = entries(e);
    double *values = malloc(8 * (size_t)n + 8);
    bool floating = dtype == AJ_F64 || dtype == AJ_F32;
    for (int64_t i = 0; i < n; i++) {
        double x = number(seed, 0, i);
        values[i] = what == PROD && floating ? 1 + x / 1000
                    : what == PROD           ? (x > 7.9 ? 2 : 1)
                    : floating               ? x * 1.1
                                             : floor(fabs(x)) * (dtype == AJ_U8 || x > 0 ? 1 : -1);
        if (with_nan && mix(seed + (uint64_t)i) % 50 == 0)
            values[i] = NAN;
    }
    aj_tensor *t = make_values(dtype, e->ndim, e->n, (int)n, values);
    free(values);
    return t;
}

static void axis_subsets(void) {
    static const int64_t from[] = {1, 2, 3, 7, 16, 64, 300};
    uint64_t draws = 7;
    for (int turn = 0; turn < (is_watched() ? 12 : 250); turn++) {
        aj_scope *scope = aj_scope_begin(context);
        extents e = {.ndim = 4};
        do
            for (int d = 0; d < 4; d++)
                e.n[d] = from[draw_below(&draws, 7)];
        while (entries(&e) > 9000);
        reduction what = (reduction)draw_below(&draws, N_REDUCTIONS);
        aj_dtype dtype = (aj_dtype)draw_below(&draws, what == MEAN ? 2 : 5);
        if (what == PROD && dtype >= AJ_I64 && entries(&e) > 2000)
            dtype = AJ_F64; /* more twos than fit into 63 bits: see wrapping */
        int layout = layout_for(&e, turn);
        extents base = base_extents(&e, layout);
        bool with_nan = what >= MAX && dtype <= AJ_F32 && turn % 3 == 0;
        aj_tensor *x = arrange(entries_for(what, dtype, &base, mix((uint64_t)turn), with_nan), &e,
                               layout == EXPRESSION && (what == PROD || dtype == AJ_U8) ? PLAIN : layout);
        const double *numbers_of = numbers(x);
        for (unsigned axes = 0; axes < 16; axes++) {
            aj_tensor *pending = dtype <= AJ_F32 ? aj_neg(aj_neg(x)) : x;
            check_axes(axes % 2 ? pending : x, numbers_of, &e, what, axes, (axes + (unsigned)turn) % 2);
        }
        expect_ok(aj_scope_end(scope));
    }
}

Test(sums, axis_subsets) {
    both_ways(axis_subsets);
}

/* ---- integers ---- */

static void wrapping(void) {
    enum { LENGTH = 1000 };
    static int64_t data[LENGTH];
    static uint8_t bytes[LENGTH];
    static int32_t words[LENGTH];
    uint64_t sum = 0, product = 1;
    int64_t of_bytes = 0, of_words = 0, out;
    for (int i = 0; i < LENGTH; i++) {
        data[i] = (int64_t)mix((uint64_t)i) | 1;
        bytes[i] = (uint8_t)data[i];
        words[i] = (int32_t)data[i];
        sum += (uint64_t)data[i];
        product *= (uint64_t)data[i];
        of_bytes += bytes[i];
        of_words += words[i];
    }
    aj_tensor *x = aj_from_data(context, AJ_I64, AJ_SHAPE(LENGTH), data);
    expect_ok(aj_read(aj_sum(x), &out, sizeof out));
    cr_assert(out == (int64_t)sum);
    expect_ok(aj_read(aj_sum(aj_flip(aj_reshape(x, AJ_SHAPE(10, 100)), 1)), &out, sizeof out));
    cr_assert(out == (int64_t)sum);
    expect_ok(aj_read(aj_prod(aj_transpose(aj_reshape(x, AJ_SHAPE(10, 100)), 0, 1)), &out, sizeof out));
    cr_assert(out == (int64_t)product);
    expect_near(aj_item(aj_sum(aj_from_data(context, AJ_U8, AJ_SHAPE(LENGTH), bytes))), (double)of_bytes,
                0); /* i64: more than a byte */
    expect_near(aj_item(aj_sum(aj_from_data(context, AJ_I32, AJ_SHAPE(LENGTH), words))), (double)of_words, 0);
    expect_near(aj_item(aj_sum(aj_full(context, AJ_I32, AJ_SHAPE(LENGTH), INT32_MAX))), 1000.0 * INT32_MAX, 0);
    int64_t ends[] = {INT64_MAX, INT64_MIN, 0};
    x = aj_from_data(context, AJ_I64, AJ_SHAPE(3), ends);
    expect_ok(aj_read(aj_max(x), &out, sizeof out));
    cr_assert(out == INT64_MAX);
    expect_ok(aj_read(aj_min(x), &out, sizeof out));
    cr_assert(out == INT64_MIN);
    int64_t neighbours[] = {INT64_MAX - 1, INT64_MAX - 2}; /* equal as doubles */
    expect_ok(aj_read(aj_max(aj_flip(aj_from_data(context, AJ_I64, AJ_SHAPE(2), neighbours), 0)), &out, sizeof out));
    cr_assert(out == INT64_MAX - 1);
}

Test(sums, wrapping) {
    both_ways(wrapping);
}

/* ---- special values ---- */

static bool is_minus_zero(double x) {
    return x == 0 && signbit(x);
}

static void special_values(void) {
    for (int64_t n = 1; n < 700; n = n * 2 + 1)
        for (int64_t at = 0; at<n; at += n> 20 ? n / 3 : 1) {
            aj_scope *scope = aj_scope_begin(context);
            aj_tensor *zeros = aj_full(context, AJ_F64, AJ_SHAPE(n), -0.0),
                      *x = aj_pad(aj_pad(aj_full(context, AJ_F64, AJ_SHAPE(1), NAN), 0, at, 0, 1), 0, 0, n - 1 - at, -1);
            for (int form = 0; form < 3; form++) {
                aj_tensor *t = form == 0 ? x : form == 1 ? aj_flip(x, 0) : aj_neg(x);
                cr_assert(isnan(aj_item(aj_max(t))) && isnan(aj_item(aj_min(t))) && isnan(aj_item(aj_sum(t))), "NaN at %d of %d",
                          (int)at, (int)n);
                aj_tensor *rows = aj_stack(3, (aj_tensor *[]){zeros, t, zeros}, 0); /* each column and row has its own */
                const double *over_rows = numbers(aj_max_axes(rows, 1, (int[]){1}, false)),
                             *over_columns = numbers(aj_min_axes(rows, 1, (int[]){0}, false));
                int64_t place = form == 1 ? n - 1 - at : at;
                cr_assert(over_rows[0] == 0 && isnan(over_rows[1]) && over_rows[2] == 0);
                for (int64_t i = 0; i < n; i++)
                    cr_assert(isnan(over_columns[i]) == (i == place), "NaN at %d of %d, column %d", (int)at, (int)n, (int)i);
            }
            cr_assert(is_minus_zero(aj_item(aj_sum(zeros))) && is_minus_zero(aj_item(aj_max(zeros))) &&
                          is_minus_zero(aj_item(aj_min(aj_flip(zeros, 0)))),
                      "%d times -0", (int)n);
            cr_assert(is_minus_zero(aj_item(aj_sum(aj_neg(aj_abs(zeros))))));
            expect_ok(aj_scope_end(scope));
        }
    expect_near(aj_item(aj_sum(F64((3), 1, INFINITY, 2))), INFINITY, 0);
    cr_assert(isnan(aj_item(aj_sum(F64((3), -INFINITY, INFINITY, 2)))));
    expect_near(aj_item(aj_max(F64((2), -INFINITY, -INFINITY))), -INFINITY, 0);
    expect_near(aj_item(aj_min(F32((2), INFINITY, INFINITY))), INFINITY, 0);
    expect_near(aj_item(aj_sum(F32((3), 3e38, 3e38, -3e38))), 3e38f, 0); /* no f32 on the way */
}

Test(sums, special_values) {
    both_ways(special_values);
}

static void nothing(void) {
    for (int which = 0; which < 5; which++) {
        aj_tensor *x = aj_zeros(context, (aj_dtype)which, AJ_SHAPE(3, 0, 100));
        for (int pending = 0; pending < 2; pending++, x = aj_neg(aj_add(x, x))) {
            aj_tensor *y = aj_sum_axes(x, 1, (int[]){1}, false), *z = aj_prod_axes(x, 2, (int[]){1, 2}, true);
            expect_shape(y, 3, 100);
            expect_shape(z, 3, 1, 1);
            expect_near(aj_item(aj_max(aj_abs(y))), 0, 0);
            expect_values(z, 0, 1, 1, 1);
            expect_shape(aj_sum_axes(x, 2, (int[]){0, 2}, false), 0);
            expect_shape(aj_max_axes(x, 1, (int[]){2}, false), 3, 0);
            expect_near(aj_item(aj_sum(x)), 0, 0);
            expect_near(aj_item(aj_prod(x)), 1, 0);
            cr_assert(!aj_max(x));
            expect_error(AJ_ERR_SHAPE, "aj_max", "no entries");
        }
    }
    aj_tensor *x = aj_exp(aj_zeros(context, AJ_F64, AJ_SHAPE(5, 50)));
    expect_same(aj_sum_axes(x, 0, NULL, false), x, 0);
    expect_same(aj_min_axes(x, 0, NULL, true), x, 0);
    cr_assert(isnan(aj_item(aj_mean(aj_zeros(context, AJ_F64, AJ_SHAPE(0))))));
}

Test(sums, nothing) {
    both_ways(nothing);
}
