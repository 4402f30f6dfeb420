/* The host's side of the CUDA device, on the stand-in driver: opening, memory, copies and their order, two devices, errors that the program survives. */
#include "cuda_standin_private.h"
#include "serial.h"
#include "tensor/tensor_private.h"

#include <string.h>

static aji_cuda_api api;
static aj_device device;

static void begin_without(void) {
    begin();
    api = standin_api();
}

static void begin_on_device(void) {
    begin_without();
    device = aji_cuda_open(context, &api, 0);
    cr_assert(device, "%s", aj_ctx_error(context));
}

/* The context took everything with it. */
static void finish_all(void) {
    finish();
    must_end(standin_left() == 0, "%ld are left of what the driver gave", standin_left());
}

static int64_t live(void) {
    return aj_ctx_stat(context, AJ_STAT_DEVICE_LIVE_BYTES);
}

static int64_t peak(void) {
    return aj_ctx_stat(context, AJ_STAT_DEVICE_PEAK_BYTES);
}

static aj_tensor *there(aj_tensor *t) {
    return aj_to_device(t, device);
}

static aj_tensor *here(aj_tensor *t) {
    return aj_to_device(t, aj_cpu(context));
}

static aj_tensor *counted_up(int64_t n) {
    return aj_arange(context, AJ_F64, 0, (double)n, 1);
}

/* ---- opening ---- */

TestSuite(cuda_open, .init = begin_without, .fini = finish_all);

Test(cuda_open, is_the_same_device_again) {
    device = aji_cuda_open(context, &api, 0);
    cr_assert(device && aj_cuda(context, 0) == device && strcmp(aj_device_name(device), "cuda:0") == 0);
    cr_assert(aj_cuda(NULL, 0) == NULL);
    cr_assert(standin_calls("cuStreamCreate") == 1 && standin_current() < 0);
}

/* The real one, where there is none. */
Test(cuda_open, without_a_driver) {
    if (aj_cuda(context, 0))
        return;
    cr_assert(strstr(aj_ctx_error(context), "aj_cpu(ctx)") || strstr(aj_ctx_error(context), "cuInit"), "%s",
              aj_ctx_error(context));
    expect_error(AJ_ERR_DEVICE, "aj_cuda");
    expect_values(aj_add(SCALAR(1), SCALAR(2)), 0, 3);
}

static CUresult no_devices(int *n) {
    *n = 0;
    return CUDA_SUCCESS;
}

Test(cuda_open, without_a_device) {
    aji_cuda_api none = api;
    none.cuDeviceGetCount = no_devices;
    cr_assert(aji_cuda_open(context, &none, 0) == NULL);
    expect_error(AJ_ERR_DEVICE, "aj_cuda", "no CUDA device", "CUDA_VISIBLE_DEVICES");
    standin_fail("cuInit", 0, CUDA_ERROR_NO_DEVICE);
    cr_assert(aji_cuda_open(context, &api, 0) == NULL);
    expect_error(AJ_ERR_DEVICE, "aj_cuda", "no CUDA device", "CUDA_VISIBLE_DEVICES");
}

Test(cuda_open, with_a_bad_number) {
    cr_assert(aji_cuda_open(context, &api, STANDIN_DEVICES) == NULL);
    expect_error(AJ_ERR_DEVICE, "aj_cuda", "no device 2", "has 2");
    cr_assert(aji_cuda_open(context, &api, -1) == NULL);
    expect_error(AJ_ERR_DEVICE, "aj_cuda", "no device -1");
    cr_assert(aji_cuda_open(context, &api, STANDIN_DEVICES - 1) != NULL);
}

static CUresult no_pools(int *value, CUdevice_attribute attribute, CUdevice number) {
    if (attribute != CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)
        return api.cuDeviceGetAttribute(value, attribute, number);
    *value = 0;
    return CUDA_SUCCESS;
}

Test(cuda_open, without_memory_pools) {
    aji_cuda_api old = api;
    old.cuDeviceGetAttribute = no_pools;
    cr_assert(aji_cuda_open(context, &old, 0) == NULL);
    expect_error(AJ_ERR_UNSUPPORTED, "aj_cuda", "memory pools", "newer driver");
}

/* A code without a name or a text. */
Test(cuda_open, with_an_error_that_the_driver_cannot_name) {
    standin_fail("cuDeviceGet", 0, 12345);
    standin_fail("cuGetErrorName", 0, CUDA_ERROR_INVALID_VALUE);
    standin_fail("cuGetErrorString", 0, CUDA_ERROR_INVALID_VALUE);
    cr_assert(aji_cuda_open(context, &api, 0) == NULL);
    expect_error(AJ_ERR_DEVICE, "aj_cuda", "cuDeviceGet", "12345", "cuda:0");
}

Test(cuda_open, out_of_the_hosts_memory) {
    for (int64_t n = 0, failed = 1; failed; n++) {
        counted.failed = false;
        counted.fail_after = counted.calls + n;
        device = aji_cuda_open(context, &api, 0);
        counted.fail_after = -1;
        failed = counted.failed;
        cr_assert(!device == (bool)failed);
        if (failed)
            expect_error(AJ_ERR_MEMORY, "out of memory");
    }
}

/* ---- the pool ---- */

TestSuite(cuda_memory, .init = begin_on_device, .fini = finish_all);

Test(cuda_memory, is_counted) {
    cr_assert(live() == 0 && peak() == 0);
    aj_scope *scope = aj_scope_begin(context);
    aj_tensor *a = there(counted_up(1000));
    cr_assert(live() == 8000 && peak() == 8000);
    aj_tensor *b = there(F32((3), 1, 2, 3));
    cr_assert(live() == 8012, "%lld", (long long)live());
    expect_values(here(b), 0, 1, 2, 3);
    aj_tensor *view = aj_slice(a, 0, 10, 20, 1);
    cr_assert(view && live() == 8012);
    expect_ok(aj_scope_end(scope));
    cr_assert(live() == 0 && peak() == 8012);
    scope = aj_scope_begin(context);
    cr_assert(there(counted_up(10)));
    expect_ok(aj_scope_end(scope));
    cr_assert(live() == 0 && peak() == 8012);
}

Test(cuda_memory, of_nothing) {
    static const int64_t shape[] = {3, 0, 2};
    aj_tensor *t = there(aj_zeros(context, AJ_F64, 3, shape));
    expect_shape(here(aj_exp(t)), 3, 0, 2);
    expect_values(here(aj_sum(t)), 0, 0);
}

/* The memory of a workspace is the stream's: the counts fall although nothing has run. */
Test(cuda_memory, of_workspaces_is_counted_and_freed) {
    aj_scope *scope = aj_scope_begin(context);
    aj_tensor *t = there(aj_reshape(counted_up(70000), 2, (int64_t[]){1, 70000}));
    expect_values(here(aj_sum(aj_sin(t))), 1e-9, aj_item(aj_sum(aj_sin(counted_up(70000)))));
    cr_assert(peak() > 560000, "%lld: no workspace", (long long)peak());
    expect_ok(aj_scope_end(scope));
    cr_assert(live() == 0);
}

Test(cuda_memory, that_is_not_there_is_an_error_and_the_program_goes_on) {
    aj_tensor *kept = there(counted_up(100)), *one = there(SCALAR(1));
    static const int64_t many[] = {(int64_t)1 << 30, (int64_t)1 << 58};
    for (int k = 0; k < 2; k++) {
        cr_assert(aj_eval(aj_exp(aj_broadcast_to(one, 1, &many[k]))) != AJ_OK);
        expect_error(AJ_ERR_MEMORY, "cuMemAllocFromPoolAsync", k ? "2305843009213693952 bytes" : "8589934592 bytes", "cuda:0",
                     "808 bytes in use");
        cr_assert(standin_calls("cuMemPoolTrimTo") == k + 1, "it did not try again");
    }
    expect_values(here(aj_sum(kept)), 0, 4950);
}

/* What is free in the pool, the driver may need elsewhere. */
Test(cuda_memory, comes_when_the_pool_is_trimmed) {
    standin_fail("cuMemAllocFromPoolAsync", 0, CUDA_ERROR_OUT_OF_MEMORY);
    expect_values(here(there(F64((2), 1, 2))), 0, 1, 2);
    cr_assert(standin_calls("cuMemPoolTrimTo") == 1);
}

Test(cuda_memory, pinned_is_given_back_where_the_driver_has_none) {
    expect_values(here(aj_sum(there(counted_up(20000)))), 0, 199990000);
    standin_fail("cuMemHostAlloc", 0, CUDA_ERROR_OUT_OF_MEMORY);
    expect_values(here(aj_sum(there(counted_up(100000)))), 0, 4999950000);
    cr_assert(standin_calls("cuMemFreeHost") > 0);
    expect_ok(aji_cuda_enter((aji_cuda *)device));
    aji_cuda_pinned_flush((aji_cuda *)device);
    aji_cuda_pinned_flush((aji_cuda *)device);
    expect_ok(aji_cuda_leave((aji_cuda *)device, AJ_OK)); /* nothing is cached now: nothing to give back */
    standin_fail("cuMemHostAlloc", 0, CUDA_ERROR_OUT_OF_MEMORY);
    cr_assert(there(counted_up(300000)) == NULL);
    expect_error(AJ_ERR_MEMORY, "cuMemHostAlloc", "ulimit -l");
    expect_values(here(aj_sum(there(counted_up(300000)))), 0, 44999850000);
}

/* ---- copies ---- */

TestSuite(cuda_copies, .init = begin_on_device, .fini = finish_all);

/* Of many sizes, through one piece of pinned memory and through several. */
Test(cuda_copies, there_and_back) {
    static const int64_t sizes[] = {0, 1, 3, 511, 4096, 4097, 100000, 524288, 524289, 1600001};
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        aj_tensor *x = aj_uniform(context, AJ_F64, 1, &sizes[k], k + 1);
        expect_same(here(there(x)), x, 0);
    }
}

Test(cuda_copies, of_views) {
    aj_tensor *x = aj_reshape(counted_up(24), 2, (int64_t[]){4, 6});
    aj_tensor *far = there(x);
    expect_same(here(there(aj_transpose(x, 0, 1))), aj_transpose(x, 0, 1), 0);
    expect_same(here(aj_transpose(far, 0, 1)), aj_transpose(x, 0, 1), 0);
    expect_same(here(aj_flip(aj_slice(far, 1, 1, 6, 2), 0)), aj_flip(aj_slice(x, 1, 1, 6, 2), 0), 0);
    expect_values(here(there(aj_broadcast_to(SCALAR(7), 1, (int64_t[]){3}))), 0, 7, 7, 7);
}

/* The host's memory is the caller's again when the upload returns, long before the device reads. */
Test(cuda_copies, keep_the_hosts_side) {
    enum { N = 3 << 20 }; /* doubles: several pieces */
    double *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y);
    for (int i = 0; i < N; i++)
        x[i] = i;
    void *memory = aji_cuda_alloc_slot(device, N * sizeof *x);
    expect_ok(aji_cuda_upload(device, memory, x, N * sizeof *x));
    memset(x, 0x5a, N * sizeof *x);
    free(x);
    expect_ok(aji_cuda_upload(device, (double *)memory + 5, (double[]){-1, -2}, 2 * sizeof *x)); /* after the first */
    expect_ok(aji_cuda_download(device, y, memory, N * sizeof *y));                              /* and before the third */
    expect_ok(aji_cuda_upload(device, memory, (double[]){-3}, sizeof *x));
    for (int i = 0; i < N; i++)
        cr_assert(y[i] == (i == 5 ? -1 : i == 6 ? -2 : i), "entry %d is %g", i, y[i]);
    aji_cuda_free_slot(device, memory, N * sizeof *x);
    free(y);
}

/* Blocks go back to the cache, and one is used again only when the device has read it. */
Test(cuda_copies, reuse_pinned_memory) {
    void *memory = aji_cuda_alloc_slot(device, 100 * sizeof(double));
    for (int i = 0; i < 100; i++)
        expect_ok(aji_cuda_upload(device, (double *)memory + i, &(double){i}, sizeof(double)));
    long taken = standin_calls("cuMemHostAlloc");
    double back[100];
    expect_ok(aji_cuda_download(device, back, memory, sizeof back));
    for (int i = 0; i < 100; i++)
        cr_assert(back[i] == i, "entry %d is %g: its block was overwritten", i, back[i]);
    cr_assert(taken <= 16, "%ld blocks for one upload after the other", taken);
    for (int i = 0; i < 100; i++) {
        expect_ok(aji_cuda_upload(device, memory, back, sizeof back));
        expect_ok(aji_cuda_wait(device));
    }
    cr_assert(standin_calls("cuMemHostAlloc") == taken);
    aji_cuda_free_slot(device, memory, sizeof back);
}

/* Staging is pinned where that brings something, and goes back to the cache while a copy from it may be under way. */
Test(cuda_copies, by_way_of_staging) {
    static const size_t sizes[] = {0, 8, 32 << 10, (32 << 10) + 8, 5 << 20};
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        long before = standin_calls("cuMemHostAlloc");
        aji_storage *s = aji_cuda_staging(device, sizes[k]);
        cr_assert(s, "%s", aj_ctx_error(context));
        cr_assert((standin_calls("cuMemHostAlloc") > before) == (sizes[k] > 32 << 10), "%zu bytes", sizes[k]);
        aji_storage_release(s);
    }
    expect_ok(aji_cuda_wait(device));
    long before = standin_calls("cuMemHostAlloc");
    for (int k = 0; k < 4; k++) {
        aji_storage_release(aji_cuda_staging(device, 5 << 20));
        expect_ok(aji_cuda_wait(device));
    }
    cr_assert(standin_calls("cuMemHostAlloc") == before);
}

/* ---- streams and contexts ---- */

TestSuite(cuda_order, .init = begin_on_device, .fini = finish_all);

/* A hundred steps that the device does when somebody reads, in order. */
Test(cuda_order, reading_waits) {
    aj_tensor *x = there(F64((3), 1, 2, 3));
    for (int k = 0; k < 100; k++) {
        x = aj_scale(aj_flip(x, 0), k % 2 ? 0.5 : 2);
        expect_ok(aj_eval(x));
    }
    expect_values(here(x), 0, 1, 2, 3);
    cr_assert(aj_item(aj_sum(x)) == 6 && standin_calls("cuStreamCreate") == 1);
}

/* Freed at once, given out again at once, and the work before still reads what it should. */
Test(cuda_order, memory_is_freed_behind_the_work) {
    aj_tensor *sum = there(aj_zeros(context, AJ_F64, AJ_SHAPE(1000)));
    for (int k = 0; k < 20; k++) {
        aj_scope *scope = aj_scope_begin(context);
        aj_tensor *next = aj_add(sum, there(aj_full(context, AJ_F64, AJ_SHAPE(1000), k)));
        expect_ok(aj_eval(next));
        sum = aj_scope_return(scope, next);
        expect_ok(aj_scope_end(scope));
    }
    expect_values(here(aj_sum(sum)), 0, 190000);
}

Test(cuda_order, two_devices_exchange_through_the_host) {
    aj_device other = aji_cuda_open(context, &api, 1);
    cr_assert(other && other != device && strcmp(aj_device_name(other), "cuda:1") == 0);
    aj_tensor *p = aj_param(there(counted_up(50)));
    expect_ok(aj_record_begin(context));
    aj_tensor *q = aj_to_device(aj_square(p), other);
    cr_assert(aj_tensor_device(q) == other);
    expect_ok(aj_backward(context, aj_sum(aj_square(q)), NULL));
    cr_assert(aj_tensor_device(aj_grad(p)) == device);
    expect_same(here(aj_grad(p)), aj_scale(aj_pow_scalar(counted_up(50), 3), 4), 1e-14);
    aj_release(&p);
    cr_assert(aj_add(q, there(counted_up(50))) == NULL);
    expect_error(AJ_ERR_DEVICE, "aj_add", "cuda:0", "cuda:1");
    expect_values(here(aj_sum(q)), 0, 40425);
    cr_assert(live() > 0 && standin_calls("cuStreamCreate") == 2);
}

/* Who has a context of their own finds it again, and one device's calls may lie between another's. */
Test(cuda_order, the_callers_context_stays_current) {
    CUcontext own;
    cr_assert(api.cuDevicePrimaryCtxRetain(&own, 1) == CUDA_SUCCESS && api.cuCtxPushCurrent(own) == CUDA_SUCCESS);
    aj_tensor *x = there(counted_up(70000));
    expect_values(here(aj_sum(aj_square(x))), 1e-15, 114330883345000);
    cr_assert(standin_current() == 1);
    cr_assert(aj_solve(x, x) == NULL && standin_current() == 1);
    aj_ctx_clear_error(context);
    expect_ok(aj_ctx_destroy(&context));
    cr_assert(standin_current() == 1 && api.cuCtxPopCurrent(&own) == CUDA_SUCCESS && standin_current() < 0);
    cr_assert(api.cuDevicePrimaryCtxRelease(1) == CUDA_SUCCESS);
    begin();
}

static aj_status refuse_forward(const aj_call *c) {
    return aj_raise(c->ctx, AJ_ERR_USER, "twice: it was called");
}

Test(cuda_order, custom_operations_are_refused) {
    static const aj_op twice = {.size = sizeof twice, .name = "twice", .maths = "y = 2 x", .n_out = 1, .forward = refuse_forward};
    aj_tensor *x = there(F64((2), 1, 2)), *y;
    cr_assert(aj_apply(context, &twice, NULL, NULL, 1, &x, 1, &y) == AJ_ERR_DEVICE && y == NULL);
    expect_error(AJ_ERR_DEVICE, "twice", "cuda:0", "aj_to_device");
    expect_values(here(aj_scale(x, 2)), 0, 2, 4);
}

Test(cuda_order, a_bad_index_leaves_nothing_half_done) {
    aj_tensor *x = there(F64((3), 1, 2, 3)), *bad = there(I64((2), 0, 3));
    cr_assert(aj_take(x, 0, bad) == NULL || aj_eval(aj_take(x, 0, bad)) != AJ_OK);
    expect_error(AJ_ERR_ARG, "aj_take", "3");
    cr_assert(aj_scatter_add(x, 0, bad, there(F64((2), 1, 1))) == NULL);
    expect_error(AJ_ERR_ARG, "aj_scatter_add", "3");
    expect_values(here(x), 0, 1, 2, 3);
}
