/*
 * What the generator writes, given to the real NVRTC for compute capability 8.0 and 9.0 (cuda_real_nvrtc.c). The other programs on the stand-in do so as well, with
 * all that they run; here is what they have little of: large reductions and scans, which are made of CUB's, and long programs. Skipped where there is no NVRTC.
 */
#include "cuda_standin.h"
#include "serial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static aji_cuda_api api;
static aj_device device;

static void begin_on_device(void) {
    begin();
    api = standin_api();
    device = aji_cuda_open(context, &api, 0);
}

TestSuite(cuda_nvrtc, .init = begin_on_device, .fini = finish);

static aj_tensor *there(aj_tensor *x) {
    return aj_to_device(x, device);
}

static void expect_as_here(aj_tensor *far, aj_tensor *near, double tolerance) {
    expect_same(aj_to_device(far, aj_cpu(context)), near, tolerance);
}

/* Rows along memory, columns, and both; few that are long, many that are short. */
static const int64_t shapes[][2] = {{1, 40000}, {40000, 1}, {3, 700}, {700, 3}, {40, 60}, {20000, 2}};

static aj_tensor *input(aj_dtype dtype, const int64_t *shape) {
    aj_tensor *x = aj_arange(context, AJ_F64, 0, (double)(shape[0] * shape[1]), 1);
    return aj_cast(aj_reshape(aj_sub(aj_scale(x, 0.37), aj_scale(aj_floor(aj_scale(x, 0.0137)), 25)), 2, shape), dtype);
}

static void reduce(aj_dtype dtype, const int64_t *shape) {
    aj_tensor *x = input(dtype, shape), *y = there(x);
    double tolerance = dtype == AJ_F64 ? 1e-12 : dtype == AJ_F32 ? 1e-5 : 0;
    for (int axis = 0; axis < 2; axis++) {
        expect_as_here(aj_sum_axes(y, 1, &axis, false), aj_sum_axes(x, 1, &axis, false), tolerance);
        expect_as_here(aj_max_axes(y, 1, &axis, true), aj_max_axes(x, 1, &axis, true), 0);
        expect_as_here(aj_argmin(y, axis), aj_argmin(x, axis), 0);
        expect_as_here(aj_cumsum(y, axis), aj_cumsum(x, axis), 10 * tolerance);
    }
    expect_as_here(aj_sum(aj_mul(y, y)), aj_sum(aj_mul(x, x)), tolerance);
}

#define REDUCTIONS(dtype, name)                                                                                                  \
    Test(cuda_nvrtc, reductions_of_##name) {                                                                                     \
        for (size_t k = 0; k < sizeof shapes / sizeof shapes[0]; k++)                                                            \
            reduce(dtype, shapes[k]);                                                                                            \
    }
REDUCTIONS(AJ_F64, f64)
REDUCTIONS(AJ_I32, i32)

/* More arguments than a launch takes, and 64-bit indices. */
Test(cuda_nvrtc, long_programs) {
    static const int64_t shape[] = {5, 7};
    aj_tensor *x = input(AJ_F64, shape), *y = there(x), *a = x, *b = y;
    for (int k = 0; k < 60; k++) {
        a = aj_add(aj_scale(aj_flip(x, k % 2), 0.5 + k), aj_mul(a, aj_roll(x, 0, k % 5)));
        b = aj_add(aj_scale(aj_flip(y, k % 2), 0.5 + k), aj_mul(b, aj_roll(y, 0, k % 5)));
        a = aj_tanh(a);
        b = aj_tanh(b);
    }
    expect_as_here(b, a, 1e-6);
    aj_tensor *wide = aj_broadcast_to(aj_slice(y, 1, 0, 1, 1), 2, (int64_t[]){5, (int64_t)1 << 33});
    expect_as_here(aj_add_scalar(aj_slice(wide, 1, 0, (int64_t)1 << 33, (int64_t)1 << 32), 1),
                   aj_add_scalar(aj_broadcast_to(aj_slice(x, 1, 0, 1, 1), 2, (int64_t[]){5, 2}), 1), 0);
}

/* Every dtype from and to every other. */
Test(cuda_nvrtc, casts_and_comparisons) {
    for (int from = AJ_F64; from <= AJ_U8; from++) {
        aj_tensor *x = input((aj_dtype)from, (int64_t[]){3, 5}), *y = there(x);
        for (int to = AJ_F64; to <= AJ_U8; to++)
            expect_as_here(aj_cast(y, (aj_dtype)to), aj_cast(x, (aj_dtype)to), 0);
        expect_as_here(aj_where(aj_lt(y, aj_flip(y, 0)), y, aj_flip(y, 1)), aj_where(aj_lt(x, aj_flip(x, 0)), x, aj_flip(x, 1)),
                       0);
    }
}

/* Would it be noticed? */
Test(cuda_nvrtc, refuses_what_only_the_host_takes) {
    static const char *const options[] = {"--gpu-architecture=sm_90", "--std=c++17"};
    static const char good[] = "extern \"C\" __global__ void run(const long long x) { }\n";
    static const char bad[] = "extern \"C\" __global__ void run(const long long x) { asm(\"nop no_such\"); no_such(x); }\n";
    cr_assert(standin_nvrtc_log(good, 2, options, "--gpu-architecture=sm_80") == NULL);
    char *log = standin_nvrtc_log(bad, 2, options, "--gpu-architecture=sm_80");
    cr_assert(log && strstr(log, "no_such"), "%s", log ? log : "it was taken");
    free(log);
}

int main(int argc, char **argv) {
    if (!standin_has_nvrtc()) {
        printf("[SKIP] kernels given to the real NVRTC: it was not found\n");
        return 77;
    }
    struct criterion_test_set *tests = criterion_initialize();
    int status = criterion_handle_args(argc, argv, true) ? !criterion_run_all_tests(tests) : 0;
    criterion_finalize(tests);
    return status;
}
