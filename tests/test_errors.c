/*
 * Bad input, call by call: each leaves NULL (or its status), exactly one error whose message names the operation and shows what came and
 * what was expected, and nothing else behind.
 */
#include "serial.h"

#include <stdlib.h>
#include <string.h>

static aj_ctx *other; /* another context */
static aj_tensor *v2, *v3, *m23, *m22, *t222, *i2, *f2, *s, *consumed, *foreign, *far, *p;
static int64_t before[AJ_STAT_COMMS + 1];

static void prepare(void) {
    begin();
    cr_assert(aj_ctx_create(&other, NULL) == AJ_OK);
    v2 = F64((2), 1, 2);
    v3 = F64((3), 1, 2, 3);
    m23 = F64((2, 3), 1, 2, 3, 4, 5, 6);
    m22 = F64((2, 2), 4, 1, 1, 3);
    t222 = F64((2, 2, 2), 1, 2, 3, 4, 5, 6, 7, 8);
    i2 = I64((2), 1, 0);
    f2 = F32((2), 1, 2);
    s = SCALAR(1);
    p = aj_param(v2);
    consumed = aj_add_scalar(v2, 1);
    aj_set_window_inplace(consumed, (const int64_t[]){0}, F64((1), 1));
    foreign = aj_ones(other, AJ_F64, AJ_SHAPE(2));
    far = aj_to_device(v2, aj_test_device(context));
    cr_assert(aj_ctx_status(context) == AJ_OK, "%s", aj_ctx_error(context));
}

static void clean_up(void) {
    aj_release(&p);
    cr_assert(aj_ctx_destroy(&other) == AJ_OK);
    finish();
}

TestSuite(errors, .init = prepare, .fini = clean_up);

/* ---- one rejected call ---- */

static aj_scope *around;

static void remember(void) {
    for (int i = AJ_STAT_TENSORS; i <= AJ_STAT_COMMS; i++)
        before[i] = aj_ctx_stat(context, (aj_stat)i);
    before[0] = aj_ctx_stat(context, AJ_STAT_LIVE_BYTES);
    around = aj_scope_begin(context);
}

static void compare(const char *call, int line, aj_status status) {
    cr_assert(aj_scope_end(around) == status, "%s (line %d): the scope's status", call, line);
    for (int i = AJ_STAT_TENSORS; i <= AJ_STAT_COMMS; i++)
        cr_assert(aj_ctx_stat(context, (aj_stat)i) == before[i], "%s (line %d): statistic %d was %lld, is %lld", call, line, i,
                  (long long)before[i], (long long)aj_ctx_stat(context, (aj_stat)i));
    cr_assert(aj_ctx_stat(context, AJ_STAT_LIVE_BYTES) == before[0], "%s (line %d): bytes are left", call, line);
}

/* The call returns `failure`, and the context has one error of this status, whose message contains the parts. */
#define REJECT_AS(failure, status, call, ...)                                                                                    \
    do {                                                                                                                         \
        remember();                                                                                                              \
        cr_assert((call) == (failure), "line %d: %s was accepted", __LINE__, #call);                                             \
        compare(#call, __LINE__, status);                                                                                        \
        expect_error(status, __VA_ARGS__);                                                                                       \
    } while (0)
#define REJECT(status, call, ...) REJECT_AS(NULL, status, call, __VA_ARGS__)
#define REJECT_STATUS(status, call, ...) REJECT_AS(status, status, call, __VA_ARGS__)

/* ---- NULL ---- */

typedef aj_tensor *(*unary)(aj_tensor *);
typedef aj_tensor *(*binary)(aj_tensor *, aj_tensor *);
typedef struct named_unary {
    const char *name;
    unary apply;
    bool integers; /* exists for integers too */
} named_unary;
typedef struct named_binary {
    const char *name;
    binary apply;
    bool integers; /* no dtype error for two vectors of integers */
    bool broadcasts;
} named_binary;

#define UNARY(name, integers)                                                                                                    \
    { #name, aj_##name, integers }
static const named_unary unaries[] = {
    UNARY(neg, true),      UNARY(abs, true),       UNARY(sign, true),        UNARY(square, true), UNARY(relu, true),
    UNARY(sqrt, false),    UNARY(rsqrt, false),    UNARY(exp, false),        UNARY(expm1, false), UNARY(log, false),
    UNARY(log1p, false),   UNARY(sin, false),      UNARY(cos, false),        UNARY(tan, false),   UNARY(asin, false),
    UNARY(acos, false),    UNARY(atan, false),     UNARY(sinh, false),       UNARY(cosh, false),  UNARY(tanh, false),
    UNARY(sigmoid, false), UNARY(softplus, false), UNARY(erf, false),        UNARY(floor, false), UNARY(ceil, false),
    UNARY(round, false),   UNARY(sum, true),       UNARY(mean, false),       UNARY(prod, true),   UNARY(max, true),
    UNARY(min, true),      UNARY(norm, false),     UNARY(reciprocal, false),
};
#define BINARY(name, integers, broadcasts)                                                                                       \
    { #name, aj_##name, integers, broadcasts }
static const named_binary binaries[] = {
    BINARY(add, true, true),     BINARY(sub, true, true),    BINARY(mul, true, true),     BINARY(div, false, true),
    BINARY(pow, false, true),    BINARY(atan2, false, true), BINARY(minimum, true, true), BINARY(maximum, true, true),
    BINARY(eq, true, true),      BINARY(ne, true, true),     BINARY(lt, true, true),      BINARY(le, true, true),
    BINARY(gt, true, true),      BINARY(ge, true, true),     BINARY(dot, true, false),    BINARY(outer, true, false),
    BINARY(matmul, true, false), BINARY(solve, true, false),
};
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

Test(errors, null_alone_gives_null) {
    const int64_t zero = 0;
    for (size_t i = 0; i < COUNT(unaries); i++)
        cr_assert(unaries[i].apply(NULL) == NULL);
    for (size_t i = 0; i < COUNT(binaries); i++)
        cr_assert(binaries[i].apply(NULL, NULL) == NULL);
    cr_assert(!aj_where(NULL, NULL, NULL) && !aj_scale(NULL, 1) && !aj_add_scalar(NULL, 1) && !aj_pow_scalar(NULL, 1));
    cr_assert(!aj_clamp(NULL, 0, 1) && !aj_cast(NULL, AJ_F64) && !aj_sum_axes(NULL, 0, NULL, false) && !aj_argmax(NULL, 0));
    cr_assert(!aj_logsumexp(NULL, 0) && !aj_softmax(NULL, 0) && !aj_cumsum(NULL, 0) && !aj_reshape(NULL, 0, NULL));
    cr_assert(!aj_transpose(NULL, 0, 1) && !aj_permute(NULL, NULL) && !aj_broadcast_to(NULL, 0, NULL) && !aj_flip(NULL, 0));
    cr_assert(!aj_slice(NULL, 0, 0, 1, 1) && !aj_set_slice(NULL, 0, 0, 1, 1, NULL) && !aj_window(NULL, &zero, &zero));
    cr_assert(!aj_set_window(NULL, &zero, NULL) && !aj_set_window_inplace(NULL, &zero, NULL) && !aj_pad(NULL, 0, 0, 0, 0));
    cr_assert(!aj_roll(NULL, 0, 1) && !aj_squeeze(NULL, 0) && !aj_unsqueeze(NULL, 0) && !aj_take(NULL, 0, NULL));
    cr_assert(!aj_scatter_add(NULL, 0, NULL, NULL) && !aj_cholesky(NULL) && !aj_logdet(NULL) && !aj_trace(NULL) &&
              !aj_diag(NULL));
    cr_assert(!aj_concat(1, (aj_tensor *[]){NULL}, 0) && !aj_stack(1, (aj_tensor *[]){NULL}, 0));
    cr_assert(!aj_param(NULL) && !aj_grad(NULL) && !aj_detach(NULL) && !aj_join_dummies(NULL, 0, NULL) &&
              !aj_to_device(NULL, NULL));
    aj_zero_grad(NULL);
    cr_assert(aj_param_set(NULL, NULL) == AJ_ERR_ARG && aj_sgd_step(NULL, 1) == AJ_ERR_ARG && aj_unborrow(NULL) == AJ_ERR_ARG);
    cr_assert(aj_record_begin(NULL) == AJ_ERR_ARG && aj_record_stop(NULL) == AJ_ERR_ARG && aj_record_end(NULL) == AJ_ERR_ARG);
    cr_assert(aj_no_grad_begin(NULL) == AJ_ERR_ARG && aj_no_grad_end(NULL) == AJ_ERR_ARG && !aj_is_recording(NULL));
    cr_assert(aj_backward(NULL, NULL, NULL) == AJ_ERR_ARG && aj_eval(NULL) == AJ_ERR_ARG && aj_read(NULL, NULL, 0) == AJ_ERR_ARG);
    cr_assert(!aj_data(NULL) && isnan(aj_item(NULL)) && !aj_scope_begin(NULL));
    cr_assert(!aj_tensor_ctx(NULL) && aj_ndim(NULL) == -1 && aj_extent(NULL, 0) == -1 && aj_numel(NULL) == -1 &&
              (int)aj_tensor_dtype(NULL) == -1);
    cr_assert(!aj_zeros(NULL, AJ_F64, AJ_SHAPE(1)) && !aj_scalar(NULL, AJ_F64, 1) && !aj_uniform(NULL, AJ_F64, AJ_SHAPE(1), 1));
    cr_assert(aj_ctx_status(context) == AJ_OK);
}

Test(errors, one_null_of_several_is_an_error) {
    for (size_t i = 0; i < COUNT(binaries); i++) {
        REJECT(AJ_ERR_ARG, binaries[i].apply(v2, NULL), binaries[i].name, "NULL");
        REJECT(AJ_ERR_ARG, binaries[i].apply(NULL, v2), binaries[i].name, "NULL");
    }
    REJECT(AJ_ERR_ARG, aj_where(NULL, v2, v2), "where", "NULL");
    REJECT(AJ_ERR_ARG, aj_concat(2, (aj_tensor *[]){v2, NULL}, 0), "concat", "NULL");
    REJECT(AJ_ERR_ARG, aj_stack(2, (aj_tensor *[]){NULL, v2}, 0), "stack", "NULL");
    REJECT(AJ_ERR_ARG, aj_set_slice(v2, 0, 0, 1, 1, NULL), "set_slice", "NULL");
    REJECT(AJ_ERR_ARG, aj_take(v2, 0, NULL), "take", "NULL");
    REJECT(AJ_ERR_ARG, aj_scatter_add(v2, 0, i2, NULL), "scatter_add", "NULL");
    REJECT(AJ_ERR_ARG, aj_set_window(v2, NULL, v2), "set_window", "NULL");
    REJECT(AJ_ERR_ARG, aj_window(v2, NULL, NULL), "window", "NULL");
    REJECT(AJ_ERR_ARG, aj_permute(m23, NULL), "permute", "NULL");
    REJECT(AJ_ERR_ARG, aj_reshape(m23, 1, NULL), "reshape", "NULL");
    REJECT(AJ_ERR_ARG, aj_sum_axes(m23, 1, NULL, false), "sum", "NULL");
    cr_assert(!aj_concat(1, NULL, 0) && !aj_stack(0, NULL, 0), "no context to raise in");
}

/* ---- dtypes, contexts, devices, consumed operands ---- */

Test(errors, dtypes_of_one_operand) {
    for (size_t i = 0; i < COUNT(unaries); i++)
        if (!unaries[i].integers)
            REJECT(AJ_ERR_DTYPE, unaries[i].apply(i2), unaries[i].name, "i64", "f64");
    REJECT(AJ_ERR_DTYPE, aj_pow_scalar(i2, 2), "pow_scalar", "i64");
    REJECT(AJ_ERR_DTYPE, aj_logsumexp(i2, 0), "logsumexp", "i64");
    REJECT(AJ_ERR_DTYPE, aj_softmax(i2, 0), "softmax", "i64");
    REJECT(AJ_ERR_DTYPE, aj_cast(v2, (aj_dtype)12), "cast");
    REJECT(AJ_ERR_DTYPE, aj_param(i2), "param", "i64");
    REJECT(AJ_ERR_DTYPE, aj_cholesky(I64((1, 1), 1)), "cholesky", "i64");
    REJECT(AJ_ERR_DTYPE, aj_logdet(I64((1, 1), 1)), "logdet", "i64");
    REJECT(AJ_ERR_DTYPE, aj_solve(I64((1, 1), 1), I64((1), 1)), "solve", "i64");
}

Test(errors, dtypes_of_two_operands) {
    for (size_t i = 0; i < COUNT(binaries); i++) {
        REJECT(AJ_ERR_DTYPE, binaries[i].apply(v2, f2), binaries[i].name, "f64", "f32");
        if (!binaries[i].integers)
            REJECT(AJ_ERR_DTYPE, binaries[i].apply(i2, i2), binaries[i].name, "i64");
    }
    REJECT(AJ_ERR_DTYPE, aj_add(v2, i2), "add", "aj_cast");
    REJECT(AJ_ERR_DTYPE, aj_where(v2, v2, v2), "where", "f64", "u8");
    REJECT(AJ_ERR_DTYPE, aj_where(U8((2), 1, 0), v2, f2), "where", "f64", "f32");
    REJECT(AJ_ERR_DTYPE, aj_concat(2, (aj_tensor *[]){v2, f2}, 0), "concat", "f64", "f32");
    REJECT(AJ_ERR_DTYPE, aj_stack(2, (aj_tensor *[]){v2, i2}, 0), "stack", "f64", "i64");
    REJECT(AJ_ERR_DTYPE, aj_take(v2, 0, f2), "take", "f32", "i64");
    REJECT(AJ_ERR_DTYPE, aj_scatter_add(v2, 0, i2, f2), "scatter_add", "f32");
    REJECT(AJ_ERR_DTYPE, aj_set_slice(v2, 0, 0, 1, 1, f2), "set_slice", "f32");
    REJECT(AJ_ERR_DTYPE, aj_set_window(v2, (const int64_t[]){0}, f2), "set_window", "f32");
}

Test(errors, contexts_and_devices) {
    for (size_t i = 0; i < COUNT(binaries); i++) {
        REJECT(AJ_ERR_CONTEXT, binaries[i].apply(v2, foreign), binaries[i].name, "context");
        REJECT(AJ_ERR_DEVICE, binaries[i].apply(v2, far), binaries[i].name, "cpu", "test");
    }
    REJECT(AJ_ERR_CONTEXT, aj_concat(2, (aj_tensor *[]){v2, foreign}, 0), "concat");
    REJECT(AJ_ERR_CONTEXT, aj_take(v2, 0, foreign), "take");
    REJECT(AJ_ERR_DEVICE, aj_set_slice(v2, 0, 0, 1, 1, far), "set_slice");
    cr_assert(aj_ctx_status(other) == AJ_OK);
}

Test(errors, consumed_operands) {
    for (size_t i = 0; i < COUNT(unaries); i++)
        REJECT(AJ_ERR_STATE, unaries[i].apply(consumed), unaries[i].name, "set_window_inplace");
    for (size_t i = 0; i < COUNT(binaries); i++)
        REJECT(AJ_ERR_STATE, binaries[i].apply(v2, consumed), binaries[i].name, "set_window_inplace");
    REJECT(AJ_ERR_STATE, aj_reshape(consumed, AJ_SHAPE(2)), "reshape", "set_window_inplace");
    REJECT(AJ_ERR_STATE, aj_slice(consumed, 0, 0, 1, 1), "slice", "set_window_inplace");
    REJECT(AJ_ERR_STATE, aj_concat(2, (aj_tensor *[]){v2, consumed}, 0), "concat", "set_window_inplace");
    REJECT(AJ_ERR_STATE, aj_detach(consumed), "detach", "set_window_inplace");
    REJECT(AJ_ERR_STATE, aj_param(consumed), "param", "set_window_inplace");
    REJECT(AJ_ERR_STATE, aj_to_device(consumed, aj_cpu(context)), "to_device", "set_window_inplace");
    REJECT_STATUS(AJ_ERR_STATE, aj_eval(consumed), "aj_eval", "set_window_inplace");
    REJECT(AJ_ERR_STATE, (aj_tensor *)(uintptr_t)aj_data(consumed), "aj_data", "set_window_inplace");
}

/* ---- shapes ---- */

Test(errors, shapes_that_do_not_fit) {
    for (size_t i = 0; i < COUNT(binaries); i++)
        if (binaries[i].broadcasts) {
            REJECT(AJ_ERR_SHAPE, binaries[i].apply(v2, v3), binaries[i].name, "(2,)", "(3,)");
            REJECT(AJ_ERR_SHAPE, binaries[i].apply(m23, m22), binaries[i].name, "(2, 3)", "(2, 2)");
        }
    REJECT(AJ_ERR_SHAPE, aj_where(U8((2), 1, 0), v2, v3), "where", "(2,)", "(3,)");
    REJECT(AJ_ERR_SHAPE, aj_dot(v2, v3), "dot", "(2,)", "(3,)");
    REJECT(AJ_ERR_SHAPE, aj_dot(m22, m22), "dot", "(2, 2)");
    REJECT(AJ_ERR_SHAPE, aj_outer(m22, v2), "outer", "2 axes");
    REJECT(AJ_ERR_SHAPE, aj_matmul(m23, m23), "matmul", "(2, 3)");
    REJECT(AJ_ERR_SHAPE, aj_matmul(m23, v2), "matmul", "(2, 3)", "(2,)");
    REJECT(AJ_ERR_SHAPE, aj_matmul(s, m22), "matmul", "()");
    REJECT(AJ_ERR_SHAPE, aj_matmul(t222, aj_zeros(context, AJ_F64, AJ_SHAPE(3, 2, 2))), "matmul", "(2,)", "(3,)");
    REJECT(AJ_ERR_SHAPE, aj_solve(m23, v2), "solve", "(2, 3)");
    REJECT(AJ_ERR_SHAPE, aj_solve(m22, v3), "solve", "(2, 2)", "(3,)");
    REJECT(AJ_ERR_SHAPE, aj_solve(v2, v2), "solve", "(2,)");
    REJECT(AJ_ERR_SHAPE, aj_cholesky(m23), "cholesky", "(2, 3)");
    REJECT(AJ_ERR_SHAPE, aj_logdet(m23), "logdet", "(2, 3)");
    REJECT(AJ_ERR_SHAPE, aj_trace(v2), "trace");
    REJECT(AJ_ERR_SHAPE, aj_diag(t222), "diag", "3 axes");
    REJECT(AJ_ERR_SHAPE, aj_diag(s), "diag", "0 axes");
    REJECT(AJ_ERR_SHAPE, aj_reshape(m23, AJ_SHAPE(4)), "reshape", "(2, 3)", "(4,)");
    REJECT(AJ_ERR_SHAPE, aj_broadcast_to(v2, AJ_SHAPE(2, 3)), "broadcast_to", "(2,)", "(2, 3)");
    REJECT(AJ_ERR_SHAPE, aj_broadcast_to(m23, AJ_SHAPE(3)), "broadcast_to", "(2, 3)", "(3,)");
    REJECT(AJ_ERR_SHAPE, aj_squeeze(m23, 0), "squeeze", "extent 2");
    REJECT(AJ_ERR_SHAPE, aj_concat(2, (aj_tensor *[]){m23, m22}, 0), "concat", "(2, 3)", "(2, 2)");
    REJECT(AJ_ERR_SHAPE, aj_concat(2, (aj_tensor *[]){m23, v3}, 0), "concat", "(2, 3)", "(3,)");
    REJECT(AJ_ERR_SHAPE, aj_stack(2, (aj_tensor *[]){v2, v3}, 0), "stack", "(2,)", "(3,)");
    REJECT(AJ_ERR_SHAPE, aj_set_slice(m23, 1, 0, 2, 1, v3), "set_slice", "(3,)", "(2, 2)");
    REJECT(AJ_ERR_SHAPE, aj_set_window(m23, (const int64_t[]){0, 0}, v3), "set_window", "2 axes");
    REJECT(AJ_ERR_SHAPE, aj_scatter_add(m23, 0, i2, v3), "scatter_add", "(3,)", "(2, 3)");
    REJECT(AJ_ERR_SHAPE, aj_max(aj_zeros(context, AJ_F64, AJ_SHAPE(0))), "max", "(0,)");
    REJECT(AJ_ERR_SHAPE, aj_argmin(aj_zeros(context, AJ_F64, AJ_SHAPE(2, 0)), 1), "argmin", "(2, 0)");
    REJECT(AJ_ERR_ARG, aj_unsqueeze(aj_zeros(context, AJ_F64, AJ_SHAPE(1, 1, 1, 1, 1, 1, 1, 1)), 0), "unsqueeze", "8");
}

/* ---- axes and other arguments ---- */

Test(errors, axes_out_of_range) {
    const int twice[] = {0, -2}, far_axis[] = {5}, wrong[] = {0, 0}, beyond[] = {0, 2};
    REJECT(AJ_ERR_ARG, aj_sum_axes(m23, 1, far_axis, false), "sum", "5", "2");
    REJECT(AJ_ERR_ARG, aj_mean_axes(m23, 2, twice, false), "mean", "twice");
    REJECT(AJ_ERR_ARG, aj_prod_axes(m23, -1, twice, false), "prod", "-1");
    REJECT(AJ_ERR_ARG, aj_norm_axes(s, 1, twice, true), "norm", "0");
    REJECT(AJ_ERR_ARG, aj_argmax(m23, 2), "argmax", "2");
    REJECT(AJ_ERR_ARG, aj_argmin(m23, -3), "argmin", "-3");
    REJECT(AJ_ERR_ARG, aj_logsumexp(s, 0), "logsumexp", "0");
    REJECT(AJ_ERR_ARG, aj_softmax(m23, 7), "softmax", "7");
    REJECT(AJ_ERR_ARG, aj_cumsum(m23, -7), "cumsum", "-7");
    REJECT(AJ_ERR_ARG, aj_transpose(m23, 0, 2), "transpose", "2");
    REJECT(AJ_ERR_ARG, aj_permute(m23, wrong), "permute");
    REJECT(AJ_ERR_ARG, aj_permute(m23, beyond), "permute", "2");
    REJECT(AJ_ERR_ARG, aj_slice(m23, 2, 0, 1, 1), "slice", "2");
    REJECT(AJ_ERR_ARG, aj_set_slice(m23, -3, 0, 1, 1, s), "set_slice", "-3");
    REJECT(AJ_ERR_ARG, aj_flip(s, 0), "flip", "0");
    REJECT(AJ_ERR_ARG, aj_roll(m23, 2, 1), "roll", "2");
    REJECT(AJ_ERR_ARG, aj_squeeze(m23, 2), "squeeze", "2");
    REJECT(AJ_ERR_ARG, aj_unsqueeze(m23, 4), "unsqueeze", "4");
    REJECT(AJ_ERR_ARG, aj_concat(1, (aj_tensor *[]){m23}, 2), "concat", "2");
    REJECT(AJ_ERR_ARG, aj_concat(1, (aj_tensor *[]){s}, 0), "concat", "0");
    REJECT(AJ_ERR_ARG, aj_stack(1, (aj_tensor *[]){m23}, 4), "stack", "4");
    REJECT(AJ_ERR_ARG, aj_pad(m23, 3, 0, 1, 0), "pad", "3");
    REJECT(AJ_ERR_ARG, aj_take(m23, 2, i2), "take", "2");
    REJECT(AJ_ERR_ARG, aj_scatter_add(m23, 9, i2, m23), "scatter_add", "9");
    REJECT_AS(-1, AJ_ERR_ARG, aj_extent(m23, 2), "aj_extent", "2");
}

Test(errors, other_arguments) {
    const int64_t negative[] = {-1, 0}, zero[] = {0, 0}, beyond[] = {1, 4}, wide[] = {2, 3};
    REJECT(AJ_ERR_ARG, aj_slice(v3, 0, 0, 3, 0), "slice", "step");
    REJECT(AJ_ERR_ARG, aj_set_slice(v3, 0, 0, 3, 0, v3), "set_slice", "step");
    REJECT(AJ_ERR_ARG, aj_window(m23, negative, wide), "window", "-1");
    REJECT(AJ_ERR_ARG, aj_window(m23, zero, beyond), "window", "4", "3");
    REJECT(AJ_ERR_ARG, aj_window(m23, wide, zero), "window");
    REJECT(AJ_ERR_SHAPE, aj_set_window(m23, (const int64_t[]){1, 1}, m22), "set_window", "axis 0");
    REJECT(AJ_ERR_ARG, aj_set_window(m23, negative, m22), "set_window", "-1");
    REJECT(AJ_ERR_ARG, aj_pad(v3, 0, -1, 0, 0), "pad", "-1");
    REJECT(AJ_ERR_ARG, aj_clamp(v3, 2, 1), "clamp", "2", "1");
    REJECT(AJ_ERR_ARG, aj_clamp(v3, NAN, 1), "clamp", "nan");
    REJECT(AJ_ERR_ARG, aj_scale(i2, 0.5), "scale", "0.5", "i64");
    REJECT(AJ_ERR_ARG, aj_add_scalar(i2, 1e30), "add_scalar", "1e+30", "i64");
    REJECT(AJ_ERR_ARG, aj_clamp(U8((1), 1), -1, 5), "clamp", "-1", "u8");
    REJECT(AJ_ERR_ARG, aj_permute(t222, (const int[]){0, 1, -5}), "permute", "-5");
    REJECT(AJ_ERR_ARG, aj_take(v3, 0, I64((1), 3)), "take", "3");
    REJECT(AJ_ERR_ARG, aj_take(v3, 0, I32((2), 0, -4)), "take", "-4");
    REJECT(AJ_ERR_ARG, aj_scatter_add(v3, 0, I64((2), 0, 99), v2), "scatter_add", "99");
    REJECT(AJ_ERR_ARG, aj_reshape(m23, 9, zero), "reshape", "9");
    REJECT(AJ_ERR_ARG, aj_reshape(m23, AJ_SHAPE(-6, -1)), "reshape", "-6");
    REJECT(AJ_ERR_ARG, aj_broadcast_to(s, AJ_SHAPE(-2)), "broadcast_to", "-2");
}

Test(errors, creation) {
    const int64_t huge[] = {INT64_C(1) << 40, INT64_C(1) << 40};
    REJECT(AJ_ERR_ARG, aj_zeros(context, AJ_F64, AJ_SHAPE(2, -3)), "zeros", "-3");
    REJECT(AJ_ERR_ARG, aj_ones(context, (aj_dtype)8, AJ_SHAPE(2)), "ones", "8");
    REJECT(AJ_ERR_ARG, aj_full(context, AJ_F64, 9, huge, 1), "full", "9");
    REJECT(AJ_ERR_ARG, aj_full(context, AJ_F64, -1, huge, 1), "full", "-1");
    REJECT(AJ_ERR_ARG, aj_full(context, AJ_F64, 1, NULL, 1), "full", "NULL");
    REJECT(AJ_ERR_SHAPE, aj_zeros(context, AJ_F64, 2, huge), "zeros");
    REJECT(AJ_ERR_SHAPE, aj_broadcast_to(s, 2, huge), "broadcast_to");
    REJECT(AJ_ERR_SHAPE, aj_add(aj_broadcast_to(s, AJ_SHAPE(huge[0], 1)), aj_broadcast_to(s, AJ_SHAPE(huge[0]))), "add");
    REJECT(AJ_ERR_SHAPE, aj_matmul(aj_broadcast_to(s, AJ_SHAPE(huge[0], 1)), aj_broadcast_to(s, AJ_SHAPE(1, huge[0]))), "matmul");
    REJECT(AJ_ERR_SHAPE, aj_pad(v2, 0, INT64_MAX, INT64_MAX, 0), "pad");
    REJECT(AJ_ERR_SHAPE, aj_diag(aj_broadcast_to(s, AJ_SHAPE(huge[0]))), "diag");
    REJECT(AJ_ERR_ARG, aj_from_data(context, AJ_F64, AJ_SHAPE(2), NULL), "from_data", "NULL");
    REJECT(AJ_ERR_DTYPE, aj_uniform(context, AJ_I64, AJ_SHAPE(2), 1), "uniform", "i64");
    REJECT(AJ_ERR_DTYPE, aj_normal(context, AJ_U8, AJ_SHAPE(2), 1), "normal", "u8");
    REJECT(AJ_ERR_ARG, aj_arange(context, AJ_F64, NAN, 1, 1), "arange", "nan");
}

Test(errors, more_memory_than_there_is) {
    const int64_t large[] = {INT64_C(1) << 55}; /* more than AddressSanitizer lets anybody ask for */
    if (is_watched())
        return;
    REJECT(AJ_ERR_MEMORY, aj_uniform(context, AJ_F64, 1, large, 1), "");
}

Test(errors, reading) {
    double out[2];
    REJECT_STATUS(AJ_ERR_ARG, aj_read(v2, out, 8), "aj_read", "8 bytes", "2 elements");
    REJECT_STATUS(AJ_ERR_ARG, aj_read(v2, NULL, 16), "aj_read", "NULL");
    REJECT(AJ_ERR_DEVICE, (aj_tensor *)(uintptr_t)aj_data(far), "aj_data", "test");
    remember();
    cr_assert(isnan(aj_item(v2)));
    compare("aj_item", __LINE__, AJ_ERR_SHAPE);
    expect_error(AJ_ERR_SHAPE, "aj_item", "(2,)");
}

/* ---- recordings ---- */

Test(errors, recordings) {
    aj_tensor *g = v2;
    REJECT_STATUS(AJ_ERR_STATE, aj_backward(context, s, NULL), "aj_backward");
    expect_ok(aj_record_begin(context));
    REJECT_STATUS(AJ_ERR_STATE, aj_record_begin(context), "aj_record_begin");
    REJECT_STATUS(AJ_ERR_STATE, aj_param_set(p, v2), "aj_param_set");
    REJECT_STATUS(AJ_ERR_STATE, aj_sgd_step(p, 1), "aj_sgd_step");
    REJECT_STATUS(AJ_ERR_ARG, aj_grad_of(context, -1, &p, NULL, 0, NULL, NULL, 0), "aj_grad_of", "-1");
    REJECT_STATUS(AJ_ERR_ARG, aj_grad_of(context, 1, &p, NULL, 1, &p, &g, 77), "aj_grad_of", "77");
    cr_assert(g == NULL);
    REJECT_STATUS(AJ_ERR_SHAPE, aj_grad_of(context, 1, &p, &v3, 1, &p, &g, 0), "aj_grad_of", "(3,)", "(2,)");
    REJECT_STATUS(AJ_ERR_CONTEXT, aj_grad_of(context, 1, &foreign, NULL, 1, &p, &g, 0), "aj_grad_of");
    REJECT_STATUS(AJ_ERR_ARG, aj_grad_of(context, 1, &p, NULL, 1, NULL, NULL, 0), "aj_grad_of", "NULL");
    REJECT_STATUS(AJ_ERR_ARG, aj_jvp(context, 1, &p, 1, &p, NULL, &g, 0), "aj_jvp", "NULL");
    cr_assert(aj_is_recording(context), "none of these touched the recording");
    expect_ok(aj_record_end(context));
}

Test(errors, backward_drops_the_recording) {
    for (int i = 0; i < 3; i++) {
        expect_ok(aj_record_begin(context));
        aj_scope *scope = aj_scope_begin(context);
        aj_tensor *y = aj_square(p);
        aj_status wanted = i == 0 ? AJ_ERR_SHAPE : i == 1 ? AJ_ERR_DTYPE : AJ_ERR_ARG;
        cr_assert(aj_backward(context, i == 2 ? NULL : y, i == 0 ? v3 : f2) == wanted);
        cr_assert(aj_scope_end(scope) == wanted);
        expect_error(wanted, "aj_backward");
        cr_assert(aj_record_end(context) == AJ_ERR_STATE);
        expect_error(AJ_ERR_STATE, "aj_record_end");
        expect_values(aj_grad(p), 0, 0, 0);
    }
}

/* In error, calls go on returning NULL, and the first message stays. */
Test(errors, one_error_is_enough) {
    aj_tensor *y = aj_exp(aj_add(aj_matmul(v2, m23), aj_add(v2, v3)));
    cr_assert(y == NULL);
    y = aj_sum(aj_mul(y, s));
    cr_assert(y == NULL);
    expect_error(AJ_ERR_SHAPE, "add: ");
    aj_add(v2, v3);
    char *first = strdup(aj_ctx_error(context));
    aj_add(v2, f2);
    aj_matmul(m23, m23);
    cr_assert(strcmp(aj_ctx_error(context), first) == 0);
    free(first);
    expect_error(AJ_ERR_SHAPE, "add");
}
