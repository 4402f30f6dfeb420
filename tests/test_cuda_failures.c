/*
 * Every function of NVIDIA's libraries that api.h lists fails, at its first call, at its second, ..., in a program that does a bit of everything. Each time
 * there is an error that names the call, the program goes on with the right numbers once the error is cleared, and nothing is left of what the driver gave.
 */
#include "cuda_standin_private.h"
#include "serial.h"

#include <string.h>

TestSuite(cuda_failures);

static aji_cuda_api api;

/* ---- the program ---- */

static aj_tensor *values(aj_ctx *ctx, aj_dtype dtype, int64_t rows, int64_t columns, double least) {
    aj_tensor *x = aj_arange(ctx, AJ_F64, 0, (double)(rows * columns), 1);
    x = aj_add_scalar(aj_scale(aj_sin(x), 0.5), least + 0.5);
    return aj_cast(aj_reshape(x, 2, (int64_t[]){rows, columns}), dtype);
}

/* Products, an index read by the host, a gradient. */
static aj_tensor *differentiate(aj_ctx *ctx, aj_tensor *p) {
    int64_t rows[] = {2, 0, 2};
    aj_tensor *index = aj_to_device(aj_from_data(ctx, AJ_I64, 1, (int64_t[]){3}, rows), aj_tensor_device(p));
    if (!p || aj_record_begin(ctx) != AJ_OK)
        return NULL;
    aj_tensor *y = aj_matmul(aj_tanh(p), aj_transpose(p, 0, 1));
    aj_tensor *z = aj_scatter_add(y, 0, index, aj_take(y, 0, index));
    aj_status status = aj_backward(ctx, aj_sum(aj_mul(z, aj_flip(z, 0))), NULL);
    return status == AJ_OK ? aj_sum(aj_grad(p)) : NULL;
}

static aj_tensor *factorise(aj_tensor *a) {
    aj_tensor *count = aj_to_device(aj_arange(aj_tensor_ctx(a), AJ_F64, 0, 6, 1), aj_tensor_device(a));
    aj_tensor *unit = aj_cast(aj_eq(count, aj_unsqueeze(count, 1)), AJ_F64);
    aj_tensor *s = aj_add(aj_matmul(a, aj_transpose(a, 0, 1)), unit);
    return aj_add(aj_add(aj_sum(aj_solve(s, a)), aj_sum(aj_cholesky(s))), aj_logdet(s));
}

/* A number that needs all of it; NULL or NaN: an error of ctx. */
static aj_tensor *compute(aj_ctx *ctx, aj_device device, aj_tensor *p) {
    aj_tensor *a = aj_to_device(values(ctx, AJ_F64, 6, 5, 1), device), *b = aj_to_device(values(ctx, AJ_F32, 5, 6, 0), device);
    aj_tensor *row = aj_to_device(values(ctx, AJ_F64, 1, 30000, 0), device), *nothing = aj_slice(a, 1, 0, 0, 1);
    aj_tensor *parts[] = {
        differentiate(ctx, p),
        aj_sum(aj_cast(aj_matmul(b, aj_cast(a, AJ_F32)), AJ_F64)),
        aj_sum(aj_mul(row, aj_scale(aj_cumsum(row, 1), 1e-4))),
        aj_cast(aj_sum(aj_argmax(aj_mul(a, a), 1)), AJ_F64),
        aj_sum(aj_matmul(nothing, aj_transpose(nothing, 0, 1))),
        aj_max(aj_to_device(aj_to_device(aj_exp(row), aj_cpu(ctx)), device)), /* through staging */
        api.loaded[AJI_LIB_CUSOLVER] ? factorise(a) : aj_sum(a),
    };
    aj_tensor *sum = parts[0];
    for (size_t k = 1; k < sizeof parts / sizeof parts[0]; k++)
        sum = aj_add(sum, parts[k]);
    return sum;
}

static double run(aj_ctx *ctx, aj_device device) {
    if (!device)
        return NAN;
    aj_scope *scope = aj_scope_begin(ctx);
    aj_tensor *p = aj_param(aj_to_device(values(ctx, AJ_F64, 6, 5, 1), device));
    aj_tensor *sum = compute(ctx, device, p);
    double result = sum ? aj_item(sum) : NAN;
    aj_release(&p);
    return aj_scope_end(scope) == AJ_OK ? result : NAN;
}

/* ---- a failure ---- */

static const char *const functions[] = {
#define NAME(function) #function,
    AJI_CUDA_DRIVER(NAME) AJI_CUDA_NVRTC(NAME) AJI_CUDA_CUBLAS(NAME) AJI_CUDA_CUSOLVER(NAME)
#undef NAME
};
enum { N_FUNCTIONS = sizeof functions / sizeof functions[0], CODE = 999 };

static bool is_one_of(const char *name, const char *const *list) {
    for (; *list; list++)
        if (strcmp(*list, name) == 0)
            return true;
    return false;
}

/* Their failure changes nothing: what they give back is of no use any more, what they say is said after another failure. */
static const char *const quiet[] = {"cuGetErrorName",      "cuGetErrorString", "nvrtcGetErrorString", "cublasGetStatusString",
                                    "nvrtcDestroyProgram", "cublasDestroy",    "cusolverDnDestroy",   NULL};
/* Not called by this program: they describe or follow an error (below), are for MPI, or for what no test does. */
static const char *const elsewhere[] = {"cuGetErrorName",        "cuGetErrorString",       "nvrtcGetErrorString",
                                        "cublasGetStatusString", "nvrtcGetProgramLogSize", "nvrtcGetProgramLog",
                                        "cuMemPoolTrimTo",       "cuDriverGetVersion",     "cuMemcpyDtoDAsync",
                                        "cuCtxGetCurrent",       "cuCtxSetCurrent",        NULL};

static double right;
static bool is_old; /* the device's architecture is one that the compiler does not know */

static CUresult attribute(int *value, CUdevice_attribute which, CUdevice number) {
    aji_cuda_api all = standin_api();
    CUresult code = all.cuDeviceGetAttribute(value, which, number);
    if (which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR && code == CUDA_SUCCESS)
        *value = is_old ? 6 : 0;
    return code;
}

static aj_ctx *new_context(void) {
    aj_ctx *ctx;
    aj_ctx_opts opts = {
        .size = sizeof opts, .alloc = counting_alloc, .free = counting_free, .alloc_user = &counted, .log = keep_log};
    counted = (counting){.fail_after = -1};
    log_text[0] = 0;
    cr_assert(aj_ctx_create(&ctx, &opts) == AJ_OK);
    return ctx;
}

static bool is_right(double x) {
    return fabs(x - right) <= 1e-6 * fabs(right);
}

/* The error of the first run, if there was one, and the second run after it. */
static void go_on(const char *function, int n, aj_ctx *ctx, double first) {
    const char *text = aj_ctx_error(ctx);
    bool said = aj_ctx_status(ctx) != AJ_OK;
    cr_assert(said || is_one_of(function, quiet), "call %d of %s fails, and there is no error", n + 1, function);
    cr_assert(said || is_right(first), "call %d of %s fails: %.17g, not %.17g", n + 1, function, first, right);
    cr_assert(!said || strstr(text, function), "call %d of %s fails, and the error is %s", n + 1, function, text);
    aj_ctx_clear_error(ctx);
    aj_device device = aji_ctx_device(ctx, "cuda:0");
    double second = run(ctx, device ? device : aji_cuda_open(ctx, &api, 0));
    cr_assert(is_right(second), "after a failure of call %d of %s: %.17g, not %.17g; error: %s", n + 1, function, second, right,
              aj_ctx_error(ctx));
}

/* Was there a call n, counted from 0? */
static bool fail(const char *function, int n) {
    aj_ctx *ctx = new_context();
    long before = standin_calls(function);
    standin_fail(function, n, CODE);
    double result = run(ctx, aji_cuda_open(ctx, &api, 0));
    bool early = standin_calls(function) > before + n;
    if (early)
        go_on(function, n, ctx, result);
    aj_status status = aj_ctx_destroy(&ctx);
    bool late = !early && standin_calls(function) > before + n;
    cr_assert(status == AJ_OK || late, "after a failure of call %d of %s: %s; log: %s", n + 1, function, aj_status_name(status),
              log_text);
    cr_assert(!late || is_one_of(function, quiet) || strstr(log_text, function), "call %d of %s fails, and the log says: %s",
              n + 1, function, log_text);
    cr_assert(standin_left() == 0, "after a failure of call %d of %s: %ld are left", n + 1, function, standin_left());
    cr_assert(counted.live == 0, "after a failure of call %d of %s: %lld blocks of memory leaked", n + 1, function,
              (long long)counted.live);
    standin_fail(function, -1, 0);
    return early || late;
}

static void prepare(void) {
    api = standin_api();
    api.cuDeviceGetAttribute = attribute;
    aj_ctx *ctx = new_context();
    right = run(ctx, aj_cpu(ctx));
    cr_assert(isfinite(right), "%s", aj_ctx_error(ctx));
    double there = run(ctx, aji_cuda_open(ctx, &api, 0));
    cr_assert(is_right(there), "%.17g, not %.17g: %s", there, right, aj_ctx_error(ctx));
    cr_assert(aj_ctx_destroy(&ctx) == AJ_OK);
}

/* All of the first calls, then fewer and fewer. */
static void sweep(const char *function) {
    enum { ALL = 20 };
    is_old = strstr(function, "PTX") != NULL;
    int n = 0;
    while (fail(function, n))
        n += n < ALL ? 1 : n / 3;
    bool loaded = strncmp(function, "cusolver", 8) != 0 || api.loaded[AJI_LIB_CUSOLVER];
    cr_assert(n > 0 || !loaded || is_one_of(function, elsewhere), "nothing calls %s here: let the program use it", function);
}

Test(cuda_failures, of_each_call) {
    prepare();
    for (int k = 0; k < N_FUNCTIONS; k++)
        sweep(functions[k]);
}

/* ---- what only follows an error ---- */

Test(cuda_failures, of_what_describes_a_failure) {
    static const char *const describes[] = {"cuGetErrorName", "cuGetErrorString", "cublasGetStatusString"};
    prepare();
    for (int k = 0; k < 3; k++) {
        standin_fail(describes[k], 0, CODE);
        (void)fail(k == 2 ? "cublasDgemmStridedBatched" : "cuLaunchKernel", 0);
        standin_fail(describes[k], -1, 0);
    }
}

/* A source that does not compile: the compiler's words, where they can be had. */
Test(cuda_failures, of_a_source) {
    static const char *const asks[] = {"", "nvrtcGetProgramLogSize", "nvrtcGetProgramLog"};
    aji_cuda_api all = standin_api();
    aj_ctx *ctx = new_context();
    aji_cuda *d = (aji_cuda *)aji_cuda_open(ctx, &all, 0);
    for (int k = 0; k < 3; k++) {
        standin_fail(asks[k], 0, CODE);
        cr_assert(aji_cuda_enter(d) == AJ_OK);
        aj_status status = aji_cuda_launch(d, "run", "no kernel;", 1, &(int64_t){1}, 8);
        cr_assert(aji_cuda_leave(d, status) == AJ_ERR_DEVICE && strstr(aj_ctx_error(ctx), "nvrtcCompileProgram"));
        cr_assert(strstr(aj_ctx_error(ctx), "no kernel;"));
        cr_assert(k > 0 || strstr(aj_ctx_error(ctx), "error:"), "%s", aj_ctx_error(ctx));
        aj_ctx_clear_error(ctx);
    }
    cr_assert(aj_ctx_destroy(&ctx) == AJ_OK && standin_left() == 0 && counted.live == 0);
}

/* The pool is trimmed when it is empty; that fails, too. */
Test(cuda_failures, of_trimming) {
    aji_cuda_api all = standin_api();
    aj_ctx *ctx = new_context();
    aj_device device = aji_cuda_open(ctx, &all, 0);
    standin_fail("cuMemAllocFromPoolAsync", 0, CUDA_ERROR_OUT_OF_MEMORY);
    standin_fail("cuMemPoolTrimTo", 0, CODE);
    cr_assert(aj_to_device(aj_ones(ctx, AJ_F64, 1, (int64_t[]){3}), device) == NULL);
    cr_assert(strstr(aj_ctx_error(ctx), "cuMemPoolTrimTo"), "%s", aj_ctx_error(ctx));
    aj_ctx_clear_error(ctx);
    cr_assert(aj_item(aj_sum(aj_to_device(aj_ones(ctx, AJ_F64, 1, (int64_t[]){3}), device))) == 3);
    cr_assert(aj_ctx_destroy(&ctx) == AJ_OK && standin_left() == 0 && counted.live == 0);
}
