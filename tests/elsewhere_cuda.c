/*
 * The operations on CUDA: on a stand-in, or with ADJOIN_TEST_GPU=1 on the first GPU; without one the program is skipped (gpu_main.c). And the table of what
 * has no kernel, as docs/cuda.md prints it.
 */
#include "cuda_standin.h"
#include "elsewhere.h"
#include "gpu.h"
#include "serial.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

aj_device elsewhere(aj_ctx *ctx) {
    if (on_gpu())
        return aj_cuda(ctx, 0);
    aj_device device = aji_ctx_device(ctx, "cuda:0");
    if (device)
        return device;
    aji_cuda_api api = standin_api();
    return aji_cuda_open(ctx, &api, 0);
}

/* ---- what has no kernel ---- */

typedef aj_tensor *operation(aj_tensor *x);

static aj_tensor *first(aj_tensor *x) {
    return aj_to_device(aj_zeros(aj_tensor_ctx(x), AJ_I64, AJ_SHAPE(1)), aj_tensor_device(x));
}
static aj_tensor *call_matmul(aj_tensor *x) {
    return aj_matmul(x, x);
}
static aj_tensor *call_sum(aj_tensor *x) {
    return aj_sum(x);
}
static aj_tensor *call_prod(aj_tensor *x) {
    return aj_prod(x);
}
static aj_tensor *call_max(aj_tensor *x) {
    return aj_max(x);
}
static aj_tensor *call_argmax(aj_tensor *x) {
    return aj_argmax(x, 0);
}
static aj_tensor *call_cumsum(aj_tensor *x) {
    return aj_cumsum(x, 0);
}
static aj_tensor *call_take(aj_tensor *x) {
    return aj_take(x, 0, first(x));
}
static aj_tensor *call_scatter_add(aj_tensor *x) {
    return aj_scatter_add(x, 0, first(x), aj_slice(x, 0, 0, 1, 1));
}
static aj_tensor *call_add(aj_tensor *x) {
    return aj_add(x, aj_transpose(x, 0, 1));
}
static aj_tensor *call_solve(aj_tensor *x) {
    return aj_solve(x, x);
}
static aj_tensor *call_cholesky(aj_tensor *x) {
    return aj_cholesky(x);
}
static aj_tensor *call_logdet(aj_tensor *x) {
    return aj_logdet(x);
}

static const struct {
    const char *name;
    operation *call;
} slots[] = {
    {"aj_add", call_add},       {"aj_sum", call_sum},       {"aj_prod", call_prod},         {"aj_max", call_max},
    {"aj_argmax", call_argmax}, {"aj_cumsum", call_cumsum}, {"aj_take", call_take},         {"aj_scatter_add", call_scatter_add},
    {"aj_matmul", call_matmul}, {"aj_solve", call_solve},   {"aj_cholesky", call_cholesky}, {"aj_logdet", call_logdet}};

/* Is the operation there on the CPU, and not on the device? Then its error names the operation, the dtype and the device. */
static bool is_missing(int k, aj_dtype dtype) {
    aj_tensor *x = aj_cast(aj_from_data(context, AJ_F64, AJ_SHAPE(2, 2), (double[]){2, 1, 1, 2}), dtype);
    bool here = slots[k].call(x) && aj_ctx_status(context) == AJ_OK;
    aj_ctx_clear_error(context);
    if (!here)
        return false;
    aj_tensor *y = slots[k].call(aj_to_device(x, elsewhere(context)));
    bool there = y && aj_eval(y) == AJ_OK;
    if (!there) {
        cr_assert(aj_ctx_status(context) == AJ_ERR_UNSUPPORTED, "%s: %s", slots[k].name, aj_ctx_error(context));
        cr_assert(strstr(aj_ctx_error(context), slots[k].name) && strstr(aj_ctx_error(context), "cuda:0"), "%s",
                  aj_ctx_error(context));
        aj_ctx_clear_error(context);
    }
    return !there;
}

static void find_missing(char *table, size_t room) {
    static const char *const names[] = {"f64", "f32", "i64", "i32", "u8"};
    *table = 0;
    for (int k = 0; k < (int)(sizeof slots / sizeof slots[0]); k++) {
        bool any = false;
        for (int dtype = AJ_F64; dtype <= AJ_U8; dtype++) {
            if (!is_missing(k, (aj_dtype)dtype))
                continue;
            size_t used = strlen(table);
            if (!any)
                used += (size_t)snprintf(table + used, room - used, "| `%s` |", slots[k].name);
            snprintf(table + used, room - used, "%s %s", any ? "," : "", names[dtype]);
            any = true;
        }
        if (any)
            strcat(table, " |\n");
    }
}

/* The lines of the page between the marks, without the table's head. */
static void read_page(char *table, size_t room) {
    char line[512], path[4096];
    bool inside = false;
    int head = 2;
    snprintf(path, sizeof path, "%s/docs/cuda.md", SOURCE_ROOT);
    FILE *page = fopen(path, "r");
    cr_assert(page, "cannot read %s", path);
    *table = 0;
    while (fgets(line, sizeof line, page)) {
        if (strstr(line, "without a kernel: end"))
            inside = false;
        if (inside && head-- <= 0)
            snprintf(table + strlen(table), room - strlen(table), "%s", line);
        if (strstr(line, "without a kernel: begin"))
            inside = true;
    }
    fclose(page);
}

TestSuite(cuda_table, .init = begin, .fini = finish);

Test(cuda_table, says_what_has_no_kernel) {
    char found[4096], written[4096];
    find_missing(found, sizeof found);
    read_page(written, sizeof written);
    cr_assert(*found && strcmp(found, written) == 0, "without a kernel are\n%sdocs/cuda.md says\n%s", found, written);
}
