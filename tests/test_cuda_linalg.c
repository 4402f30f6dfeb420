/* solve, cholesky and logdet of the CUDA device, on the stand-in, against the CPU: values, statuses, messages; and what is left when a call fails. */
#include "cuda_standin.h"
#include "serial.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static aj_device gpu;

static void begin_gpu(void) {
    begin();
    aji_cuda_api api = standin_api();
    gpu = aji_cuda_open(context, &api, 0);
    cr_assert(gpu, "%s", aj_ctx_error(context));
}

static void finish_gpu(void) {
    finish();
    must_end(standin_left() == 0, "%ld are left of what the driver gave", standin_left());
}

TestSuite(cuda_linalg, .init = begin_gpu, .fini = finish_gpu);

/* ---- the same call here and there ---- */

typedef aj_tensor *call(aj_tensor *a, aj_tensor *b);

typedef struct outcome {
    aj_tensor *y; /* on the host */
    aj_status status;
    char message[1024];
} outcome;

static outcome outcome_of(call *f, aj_tensor *a, aj_tensor *b) {
    outcome o = {.y = f(a, b)};
    if (o.y)
        o.y = aj_to_device(o.y, aj_cpu(context));
    o.status = aj_ctx_status(context);
    snprintf(o.message, sizeof o.message, "%s", o.status == AJ_OK ? "" : aj_ctx_error(context));
    o.message[strcspn(o.message, "\n")] = 0; /* where the call came from is not the same */
    aj_ctx_clear_error(context);
    cr_assert((o.y != NULL) == (o.status == AJ_OK));
    return o;
}

#define expect_alike(f, a, b, tolerance) check_alike(__LINE__, f, a, b, tolerance)
static aj_status check_alike(int line, call *f, aj_tensor *a, aj_tensor *b, double tolerance) {
    cr_assert(a && b, "line %d: %s", line, aj_ctx_error(context));
    outcome here = outcome_of(f, a, b), there = outcome_of(f, aj_to_device(a, gpu), aj_to_device(b, gpu));
    cr_assert(here.status == there.status && strcmp(here.message, there.message) == 0, "line %d: here %s \"%s\", there %s \"%s\"",
              line, aj_status_name(here.status), here.message, aj_status_name(there.status), there.message);
    if (here.y)
        check_same(__FILE__, line, "there", there.y, here.y, tolerance);
    return here.status;
}

static aj_tensor *transposed(aj_tensor *x) {
    return aj_transpose(x, -2, -1);
}
static aj_tensor *flipped(aj_tensor *x) {
    return aj_flip(aj_flip(x, -1), -2);
}
/* Every second row and column of a larger one */
static aj_tensor *sparse(aj_tensor *x) {
    int64_t n = aj_extent(x, -1);
    return aj_slice(aj_slice(x, -1, 0, n, 2), -2, 0, aj_extent(x, -2), 2);
}

static aj_tensor *solve(aj_tensor *a, aj_tensor *b) {
    return aj_solve(a, b);
}
static aj_tensor *solve_transposed(aj_tensor *a, aj_tensor *b) {
    return aj_solve(transposed(a), b);
}
static aj_tensor *solve_flipped(aj_tensor *a, aj_tensor *b) {
    return aj_solve(flipped(a), flipped(b));
}
static aj_tensor *solve_sparse(aj_tensor *a, aj_tensor *b) {
    return aj_solve(sparse(a), aj_slice(b, -2, 0, aj_extent(b, -2), 2));
}
static aj_tensor *cholesky(aj_tensor *a, aj_tensor *b) {
    (void)b;
    return aj_cholesky(a);
}
static aj_tensor *cholesky_flipped(aj_tensor *a, aj_tensor *b) {
    (void)b;
    return aj_cholesky(flipped(a));
}
static aj_tensor *logdet(aj_tensor *a, aj_tensor *b) {
    (void)b;
    return aj_logdet(a);
}
static aj_tensor *logdet_views(aj_tensor *a, aj_tensor *b) {
    (void)b;
    return aj_add(aj_logdet(transposed(a)), aj_add(aj_logdet(flipped(a)), aj_logdet(sparse(a))));
}
static aj_tensor *logdet_repeated(aj_tensor *a, aj_tensor *b) {
    (void)b;
    return aj_logdet(aj_broadcast_to(a, AJ_SHAPE(2, 3, 2, aj_extent(a, -1), aj_extent(a, -1))));
}

static const aj_dtype floats[] = {AJ_F64, AJ_F32};

/* Random entries and n on the diagonal: far from singular. */
#define SOLID(dtype, ...) solid(dtype, AJ_SHAPE(__VA_ARGS__))
static aj_tensor *solid(aj_dtype dtype, int ndim, const int64_t *shape) {
    int64_t n = shape[ndim - 1];
    aj_tensor *diagonal = aj_diag(aj_full(context, dtype, AJ_SHAPE(n), (double)n + 1));
    return aj_add(make_spread(dtype, ndim, shape, -1, 1, 0.37, (uint64_t)n + 1), diagonal);
}

#define SPREAD(dtype, ...) make_spread(dtype, AJ_SHAPE(__VA_ARGS__), -2, 2, 0.61, 5)

/* ---- values ---- */

Test(cuda_linalg, solves) {
    static const int64_t sizes[] = {1, 2, 3, 8, 33, 130};
    for (int d = 0; d < 2; d++)
        for (int s = 0; s < 6; s++) {
            int64_t n = sizes[s];
            aj_dtype dtype = floats[d];
            double tolerance = 1024 * machine_epsilon(dtype);
            aj_tensor *a = SOLID(dtype, n, n), *b = SPREAD(dtype, n, 4);
            expect_alike(solve, a, b, tolerance);
            expect_alike(solve_transposed, a, b, tolerance);
            expect_alike(solve_flipped, a, b, tolerance);
            expect_alike(solve_sparse, a, b, tolerance);
            expect_alike(solve, a, SPREAD(dtype, n), tolerance);
            expect_alike(solve, a, SPREAD(dtype, n, 1), tolerance);
            aj_tensor *x = aj_solve(aj_to_device(a, gpu), aj_to_device(b, gpu));
            expect_same(aj_matmul(a, aj_to_device(x, aj_cpu(context))), b, tolerance);
        }
}

Test(cuda_linalg, solves_stacks) {
    for (int d = 0; d < 2; d++) {
        aj_dtype dtype = floats[d];
        double tolerance = 1024 * machine_epsilon(dtype);
        aj_tensor *one = SOLID(dtype, 3, 3), *row = SOLID(dtype, 4, 3, 3), *column = SOLID(dtype, 2, 1, 3, 3);
        aj_tensor *both = SOLID(dtype, 2, 4, 3, 3), *many = SPREAD(dtype, 2, 4, 3, 5), *vectors = SPREAD(dtype, 2, 4, 3, 1);
        aj_tensor *const as[] = {one, row, column, both}, *const bs[] = {many,
                                                                         vectors,
                                                                         SPREAD(dtype, 3, 2),
                                                                         SPREAD(dtype, 3),
                                                                         SPREAD(dtype, 4, 3, 2),
                                                                         SPREAD(dtype, 2, 1, 3, 2)};
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 6; j++) {
                expect_alike(solve, as[i], bs[j], tolerance);
                expect_alike(solve_transposed, as[i], bs[j], tolerance);
            }
        expect_alike(solve_flipped, both, many, tolerance);
        expect_alike(solve, SOLID(dtype, 2, 1, 3, 1, 2, 2), SPREAD(dtype, 4, 1, 2, 2, 3), tolerance);
    }
}

Test(cuda_linalg, solves_with_more_columns_than_one_call_takes) {
    int64_t k = (1 << 20) + 3;
    aj_tensor *a = aj_to_device(F32((1, 1), 4), gpu), *b = aj_to_device(aj_full(context, AJ_F32, AJ_SHAPE(1, k), 8), gpu);
    long before = standin_calls("cusolverDnXgetrs");
    aj_tensor *x = aj_solve(a, b);
    cr_assert(x && standin_calls("cusolverDnXgetrs") == before + 2, "%s", aj_ctx_error(context));
    expect_near(aj_item(aj_to_device(aj_min(x), aj_cpu(context))), 2, 0);
    expect_near(aj_item(aj_to_device(aj_max(x), aj_cpu(context))), 2, 0);
}

Test(cuda_linalg, factorises_what_is_broadcast_once) {
    aj_tensor *a = aj_to_device(SOLID(AJ_F64, 4, 4), gpu), *b = aj_to_device(SPREAD(AJ_F64, 2, 3, 4, 2), gpu);
    expect_ok(aj_eval(a));
    expect_ok(aj_eval(b));
    long factorised = standin_calls("cusolverDnXgetrf"), solved = standin_calls("cusolverDnXgetrs");
    cr_assert(aj_solve(a, b) && aj_solve(aj_broadcast_to(a, AJ_SHAPE(5, 2, 3, 4, 4)), b));
    cr_assert(standin_calls("cusolverDnXgetrf") == factorised + 2 && standin_calls("cusolverDnXgetrs") == solved + 2);
}

Test(cuda_linalg, waits_once_for_a_stack_and_not_for_logdet) {
    aj_tensor *a = aj_to_device(SOLID(AJ_F64, 5, 4, 4), gpu), *b = aj_to_device(SPREAD(AJ_F64, 5, 4, 2), gpu);
    aj_tensor *s = aj_matmul(a, transposed(a));
    expect_ok(aj_eval(s));
    expect_ok(aj_eval(b));
    long streams = standin_calls("cuStreamSynchronize"), events = standin_calls("cuEventSynchronize");
    aj_tensor *y = aj_logdet(a);
    expect_ok(aj_eval(y));
    cr_assert(standin_calls("cuEventSynchronize") == events);
    cr_assert(aj_solve(a, b));
    cr_assert(standin_calls("cuEventSynchronize") == events + 1);
    cr_assert(aj_cholesky(s));
    cr_assert(standin_calls("cuEventSynchronize") == events + 2);
    cr_assert(standin_calls("cuStreamSynchronize") == streams);
}

Test(cuda_linalg, factorises_positive_definite_matrices) {
    static const int64_t sizes[] = {1, 2, 3, 8, 33, 130};
    for (int d = 0; d < 2; d++)
        for (int s = 0; s < 6; s++) {
            double tolerance = 1024 * machine_epsilon(floats[d]);
            aj_tensor *a = SOLID(floats[d], 2, sizes[s], sizes[s]), *definite = aj_matmul(a, transposed(a));
            expect_alike(cholesky, definite, definite, tolerance);
            expect_alike(cholesky_flipped, definite, definite, tolerance);
            expect_alike(cholesky, a, a, tolerance); /* symmetrised */
        }
}

Test(cuda_linalg, takes_logarithms_of_determinants) {
    static const int64_t sizes[] = {1, 2, 3, 8, 33, 300, 513};
    for (int d = 0; d < 2; d++)
        for (int s = 0; s < 7; s++) {
            double tolerance = 1024 * machine_epsilon(floats[d]);
            aj_tensor *a = SOLID(floats[d], 2, sizes[s], sizes[s]);
            expect_alike(logdet, a, a, tolerance);
            expect_alike(logdet_views, a, a, tolerance);
            expect_alike(logdet_repeated, a, a, tolerance);
            expect_alike(logdet, aj_neg(a), a, tolerance);
        }
    aj_tensor *many = SOLID(AJ_F64, 700, 2, 2); /* more than there are blocks */
    expect_alike(logdet, many, many, 1024 * machine_epsilon(AJ_F64));
}

/* ---- nothing to do ---- */

Test(cuda_linalg, takes_empty_matrices_and_stacks) {
    for (int d = 0; d < 2; d++) {
        aj_dtype dtype = floats[d];
#define ZEROS(...) aj_zeros(context, dtype, AJ_SHAPE(__VA_ARGS__))
        expect_alike(solve, ZEROS(0, 0), ZEROS(0, 3), 0);
        expect_alike(solve, ZEROS(0, 0), ZEROS(0), 0);
        expect_alike(solve, ZEROS(2, 2), ZEROS(2, 0), 0); /* singular, but nobody asks */
        expect_alike(solve, ZEROS(0, 2, 2), ZEROS(2, 2), 0);
        expect_alike(solve, ZEROS(2, 2), ZEROS(3, 0, 2, 1), 0);
        expect_alike(cholesky, ZEROS(0, 0), ZEROS(0), 0);
        expect_alike(cholesky, ZEROS(3, 0, 0), ZEROS(0), 0);
        expect_alike(cholesky, ZEROS(0, 2, 2), ZEROS(0), 0);
        expect_alike(logdet, ZEROS(0, 0), ZEROS(0), 0);
        expect_alike(logdet, ZEROS(2, 3, 0, 0), ZEROS(0), 0);
        expect_alike(logdet, ZEROS(0, 2, 2), ZEROS(0), 0);
    }
}

/* ---- matrices that cannot be ---- */

/* Rows 1 and 2 depend on each other; columns 1, 2 and 3 do. */
#define DEPENDENT(dtype) VALUES(dtype, (3, 3), 1, 2, 3, 2, 4, 6, 1, 1, 1)

Test(cuda_linalg, names_the_singular_matrix) {
    for (int d = 0; d < 2; d++) {
        aj_dtype dtype = floats[d];
        aj_tensor *bad = DEPENDENT(dtype), *good = SOLID(dtype, 3, 3), *b = SPREAD(dtype, 3, 2), *v = SPREAD(dtype, 3);
        cr_assert(expect_alike(solve, bad, b, 0) == AJ_ERR_NUMERIC);
        cr_assert(expect_alike(solve_transposed, bad, b, 0) == AJ_ERR_NUMERIC); /* another pivot */
        cr_assert(expect_alike(solve, bad, v, 0) == AJ_ERR_NUMERIC);
        cr_assert(expect_alike(solve, aj_zeros(context, dtype, AJ_SHAPE(1, 1)), SPREAD(dtype, 1), 0) == AJ_ERR_NUMERIC);
        aj_tensor *stack = aj_stack(4, (aj_tensor *[]){good, good, bad, good}, 0);
        cr_assert(expect_alike(solve, stack, b, 0) == AJ_ERR_NUMERIC);
        cr_assert(expect_alike(solve, stack, v, 0) == AJ_ERR_NUMERIC);
        cr_assert(expect_alike(solve, stack, SPREAD(dtype, 2, 4, 3, 2), 0) == AJ_ERR_NUMERIC);
        cr_assert(expect_alike(solve, aj_unsqueeze(stack, 1), SPREAD(dtype, 5, 3, 1), 0) == AJ_ERR_NUMERIC); /* 11 of 20 */
        aj_tensor *two = aj_stack(4, (aj_tensor *[]){good, aj_zeros(context, dtype, AJ_SHAPE(3, 3)), good, bad}, 0);
        cr_assert(expect_alike(solve, two, b, 0) == AJ_ERR_NUMERIC);
        cr_assert(expect_alike(solve, aj_flip(two, 0), b, 0) == AJ_ERR_NUMERIC);
    }
}

Test(cuda_linalg, names_the_matrix_that_is_not_positive_definite) {
    for (int d = 0; d < 2; d++) {
        aj_dtype dtype = floats[d];
        aj_tensor *bad = VALUES(dtype, (3, 3), 2, 0, 0, 0, 1, 2, 0, 2, 1), *zero = aj_zeros(context, dtype, AJ_SHAPE(3, 3));
        aj_tensor *good = aj_diag(aj_full(context, dtype, AJ_SHAPE(3), 4));
        cr_assert(expect_alike(cholesky, bad, bad, 0) == AJ_ERR_NUMERIC);
        cr_assert(expect_alike(cholesky, zero, bad, 0) == AJ_ERR_NUMERIC);
        cr_assert(expect_alike(cholesky, aj_neg(good), bad, 0) == AJ_ERR_NUMERIC);
        aj_tensor *stack = aj_stack(4, (aj_tensor *[]){good, bad, good, zero}, 0);
        cr_assert(expect_alike(cholesky, stack, bad, 0) == AJ_ERR_NUMERIC);
        cr_assert(expect_alike(cholesky, aj_flip(stack, 0), bad, 0) == AJ_ERR_NUMERIC);
        cr_assert(expect_alike(cholesky, aj_stack(2, (aj_tensor *[]){stack, stack}, 1), bad, 0) == AJ_ERR_NUMERIC);
    }
}

Test(cuda_linalg, says_minus_infinity_of_singular_matrices) {
    for (int d = 0; d < 2; d++) {
        aj_dtype dtype = floats[d];
        aj_tensor *good = SOLID(dtype, 3, 3), *bad = DEPENDENT(dtype), *zero = aj_zeros(context, dtype, AJ_SHAPE(3, 3));
        aj_tensor *stack = aj_stack(4, (aj_tensor *[]){good, bad, zero, good}, 0);
        cr_assert(expect_alike(logdet, stack, good, 64 * machine_epsilon(dtype)) == AJ_OK);
        cr_assert(expect_alike(logdet, VALUES(dtype, (2, 2), 0, 0, 0, NAN), good, 0) == AJ_OK);
        cr_assert(expect_alike(logdet, VALUES(dtype, (2, 2), INFINITY, 0, 0, 0), good, 0) == AJ_OK);
    }
    expect_near(aj_item(aj_to_device(aj_logdet(aj_to_device(F64((2, 2), 0, 0, 0, NAN), gpu)), aj_cpu(context))), -INFINITY, 0);
}

Test(cuda_linalg, takes_what_is_no_number_as_the_cpu_does) {
    for (int d = 0; d < 2; d++)
        for (int at = 0; at < 9; at++)
            for (int k = 0; k < 2; k++) {
                aj_dtype dtype = floats[d];
                double entries[9] = {4, 1, 0, 1, 5, 1, 0, 1, 6};
                entries[at] = k ? INFINITY : NAN;
                aj_tensor *one = make_values(dtype, AJ_SHAPE(3, 3), 9, entries), *good = SOLID(dtype, 3, 3);
                aj_tensor *stack = aj_stack(3, (aj_tensor *[]){good, one, good}, 0);
                expect_alike(solve, stack, SPREAD(dtype, 3, 2), 64 * machine_epsilon(dtype));
                expect_alike(solve, stack, SPREAD(dtype, 3), 64 * machine_epsilon(dtype));
                expect_alike(logdet, stack, good, 64 * machine_epsilon(dtype));
                expect_alike(cholesky, stack, good, 64 * machine_epsilon(dtype));
            }
    aj_tensor *good = SOLID(AJ_F64, 2, 2);
    expect_alike(solve, good, F64((2, 2), NAN, 1, 2, 3), 64 * machine_epsilon(AJ_F64));
    expect_alike(solve, good, F64((2), 1, INFINITY), 64 * machine_epsilon(AJ_F64));
}

Test(cuda_linalg, keeps_the_operands) {
    aj_tensor *a = SOLID(AJ_F64, 2, 3, 3), *b = SPREAD(AJ_F64, 2, 3, 1), *s = aj_matmul(a, transposed(a));
    aj_tensor *there[] = {aj_to_device(a, gpu), aj_to_device(b, gpu), aj_to_device(s, gpu)}, *here[] = {a, b, s};
    cr_assert(aj_solve(there[0], there[1]) && aj_logdet(there[0]) && aj_cholesky(there[2]));
    for (int i = 0; i < 3; i++)
        expect_same(aj_to_device(there[i], aj_cpu(context)), here[i], 0);
}

/* ---- calls that fail ---- */

/* Operands on the device: of an odd number of rows, for which the stand-in wants memory of the host's, too. */
typedef struct operands {
    aj_tensor *a, *b;
} operands;

static operands make_operands(void) {
    aj_tensor *a = SOLID(AJ_F64, 2, 3, 3);
    operands o = {aj_to_device(aj_matmul(a, transposed(a)), gpu), aj_to_device(SPREAD(AJ_F64, 2, 3, 2), gpu)};
    expect_ok(aj_eval(o.a));
    expect_ok(aj_eval(o.b));
    return o;
}

static const struct {
    const char *name;
    call *call;
} all[] = {{"aj_solve", solve}, {"aj_cholesky", cholesky}, {"aj_logdet", logdet}};

/* With the next call but n of a function failing: the error names it; afterwards all is as before. False: there was no such call. */
static bool fails(int k, const char *function, int n, int code, aj_status wanted) {
    operands o = make_operands();
    standin_fail(function, n, code);
    aj_tensor *y = all[k].call(o.a, o.b);
    standin_fail(function, -1, 0);
    if (y && aj_ctx_status(context) == AJ_OK)
        return false;
    bool gives_back = strcmp(function, "cuCtxPushCurrent") == 0; /* also where memory is given back when all is done */
    cr_assert((!y || gives_back) && aj_ctx_status(context) == wanted, "%s, %s: %s", all[k].name, function, aj_ctx_error(context));
    cr_assert(strstr(aj_ctx_error(context), all[k].name) && strstr(aj_ctx_error(context), function), "%s, %s: %s", all[k].name,
              function, aj_ctx_error(context));
    aj_ctx_clear_error(context);
    expect_alike(all[k].call, aj_to_device(o.a, aj_cpu(context)), aj_to_device(o.b, aj_cpu(context)),
                 1024 * machine_epsilon(AJ_F64));
    return true;
}

static void check_cusolver(const char *function, unsigned of) {
    for (int k = 0; k < 3; k++) {
        bool failed = fails(k, function, 0, CUSOLVER_STATUS_INTERNAL_ERROR, AJ_ERR_DEVICE);
        cr_assert(failed == (of >> k & 1), "%s calls %s: %d", all[k].name, function, failed);
        if (failed && strstr(function, "cusolverDnX"))
            cr_assert(fails(k, function, 0, CUSOLVER_STATUS_ALLOC_FAILED, AJ_ERR_MEMORY));
    }
}

Test(cuda_linalg, says_which_call_of_cusolver_failed) {
    check_cusolver("cusolverDnXgetrf_bufferSize", 5);
    check_cusolver("cusolverDnXgetrf", 5);
    check_cusolver("cusolverDnXgetrs", 1);
    check_cusolver("cusolverDnXpotrf_bufferSize", 2);
    check_cusolver("cusolverDnXpotrf", 2);
    cr_assert(fails(0, "cusolverDnXgetrf", 1, CUSOLVER_STATUS_EXECUTION_FAILED, AJ_ERR_DEVICE)); /* of the second matrix */
    cr_assert(fails(0, "cusolverDnXgetrs", 1, CUSOLVER_STATUS_EXECUTION_FAILED, AJ_ERR_DEVICE));
    cr_assert(fails(1, "cusolverDnXpotrf", 1, CUSOLVER_STATUS_EXECUTION_FAILED, AJ_ERR_DEVICE));
    cr_assert(fails(2, "cusolverDnXgetrf", 1, CUSOLVER_STATUS_EXECUTION_FAILED, AJ_ERR_DEVICE));
}

/* The handle is made in the first call; after a failure the next one tries again. */
Test(cuda_linalg, says_which_call_failed_to_open_cusolver) {
    cr_assert(fails(0, "cusolverDnCreate", 0, CUSOLVER_STATUS_NOT_INITIALIZED, AJ_ERR_DEVICE));
}
Test(cuda_linalg, opens_cusolver_again_when_it_got_no_stream) {
    cr_assert(fails(1, "cusolverDnSetStream", 0, CUSOLVER_STATUS_INTERNAL_ERROR, AJ_ERR_DEVICE));
    cr_assert(standin_calls("cusolverDnDestroy") == 1 && standin_calls("cusolverDnCreate") == 2);
}
Test(cuda_linalg, opens_cusolver_again_when_it_got_no_parameters) {
    cr_assert(fails(2, "cusolverDnCreateParams", 0, CUSOLVER_STATUS_ALLOC_FAILED, AJ_ERR_MEMORY));
    cr_assert(standin_calls("cusolverDnDestroy") == 1 && standin_calls("cusolverDnCreate") == 2);
}

Test(cuda_linalg, survives_a_driver_that_fails) {
    static const char *const functions[] = {"cuMemAllocFromPoolAsync", "cuLaunchKernel",     "cuMemcpyDtoHAsync",
                                            "cuEventRecord",           "cuEventSynchronize", "cuCtxPushCurrent"};
    static const int least[][6] = {{3, 2, 1, 1, 1, 3}, {1, 2, 1, 1, 1, 3}, {3, 2, 0, 0, 0, 3}};
    for (int k = 0; k < 3; k++)
        for (int f = 0; f < 6; f++) {
            int n = 0;
            while (n < 64 && fails(k, functions[f], n, CUDA_ERROR_UNKNOWN, AJ_ERR_DEVICE))
                n++;
            cr_assert(n >= least[k][f] && n < 64, "%s calls %s %d times", all[k].name, functions[f], n);
        }
}

Test(cuda_linalg, survives_a_device_without_memory) {
    for (int k = 0; k < 3; k++) {
        operands o = make_operands();
        (void)o;
        for (int n = 0; n < 3; n++) {
            standin_fail("cuMemAllocFromPoolAsync", n, CUDA_ERROR_OUT_OF_MEMORY); /* once: memory that is given back suffices */
            cr_assert(all[k].call(o.a, o.b), "%s", aj_ctx_error(context));
            standin_fail("cuMemAllocFromPoolAsync", -1, 0);
        }
    }
}

Test(cuda_linalg, survives_a_host_without_memory) {
    for (int k = 0; k < 3; k++) {
        operands o = make_operands();
        cr_assert(all[k].call(o.a, o.b)); /* kernels and handles are there from now on */
        for (int n = 0;; n++) {
            aj_scope *scope = aj_scope_begin(context);
            counted.fail_after = counted.calls + n;
            counted.once = true;
            counted.failed = false;
            aj_tensor *y = all[k].call(o.a, o.b);
            bool failed = counted.failed;
            counted.fail_after = -1;
            cr_assert((y == NULL) == (aj_ctx_status(context) == AJ_ERR_MEMORY) && (failed || y), "%s, %d: %s", all[k].name, n,
                      aj_ctx_error(context));
            aj_ctx_clear_error(context);
            expect_ok(aj_scope_end(scope));
            if (!failed)
                break;
        }
    }
}

Test(cuda_linalg, gives_all_back_when_closing_fails) {
    operands o = make_operands();
    cr_assert(aj_solve(o.a, o.b) && aj_matmul(o.a, o.b));
    standin_fail("cusolverDnDestroyParams", 0, CUSOLVER_STATUS_INTERNAL_ERROR);
    standin_fail("cusolverDnDestroy", 0, CUSOLVER_STATUS_INTERNAL_ERROR);
    standin_fail("cublasDestroy", 0, CUBLAS_STATUS_INTERNAL_ERROR);
    aj_status end = aj_ctx_destroy(&context);
    cr_assert(end == AJ_ERR_DEVICE, "%s, %s", aj_status_name(end), log_text);
    cr_assert(strstr(log_text, "cusolverDnDestroyParams"), "%s", log_text);
    cr_assert(standin_left() == 0 && standin_calls("cusolverDnDestroy") == 1 && standin_calls("cublasDestroy") == 1);
    begin_gpu(); /* for the test's end */
}
