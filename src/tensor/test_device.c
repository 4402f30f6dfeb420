/*
 * A device for tests. It computes with the CPU's functions, in memory that may be touched only inside its own calls: in between the pages are
 * protected, so that code which reads or writes device memory from the host faults at once and on the spot.
 *
 * Each call opens the storages of its operands, calls the CPU's slot, and closes them again, whatever the slot returned. Opening and
 * closing set a state and do not count, so a storage may appear twice in a call.
 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tensor/tensor_private.h"

/* Protection is by the page, so every block has pages of its own. */
static size_t whole_pages(size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return bytes > 0 ? (bytes + page - 1) / page * page : page;
}

static void *test_alloc(aj_device device, size_t bytes) {
    void *memory = MAP_FAILED;
    if (bytes <= SIZE_MAX / 4)
        memory = mmap(NULL, whole_pages(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED)
        return memory;
    aj_raise(device->ctx, AJ_ERR_MEMORY, "adjoin: out of memory: mmap refused %zu bytes for the test device", bytes);
    return NULL;
}

static void test_free(aj_device device, void *memory, size_t bytes) {
    (void)device;
    if (memory)
        munmap(memory, whole_pages(bytes));
}

/* All pages that hold some of the bytes. */
static bool protect(aj_ctx *ctx, void *memory, size_t bytes, int protection) {
    size_t begin_of_page = (uintptr_t)memory % whole_pages(1);
    if (mprotect((char *)memory - begin_of_page, whole_pages(begin_of_page + bytes), protection) == 0)
        return true;
    aj_raise(ctx, AJ_ERR_MEMORY, "adjoin: the system refused to %s %zu bytes of the test device; it may have too many mappings",
             protection == PROT_NONE ? "close" : "open", bytes);
    return false;
}

static bool open_all(aj_ctx *ctx, int n, const aji_value *const *values) {
    bool opened = true;
    for (int i = 0; i < n && opened; i++)
        opened = protect(ctx, values[i]->storage->data, values[i]->storage->bytes, PROT_READ | PROT_WRITE);
    return opened;
}

/* Close what open_all opened; returns status, that of the work in between, unless it was good and closing fails. */
static aj_status close_all(aj_ctx *ctx, int n, const aji_value *const *values, aj_status status) {
    for (int i = 0; i < n; i++)
        if (!protect(ctx, values[i]->storage->data, values[i]->storage->bytes, PROT_NONE) && status == AJ_OK)
            status = AJ_ERR_MEMORY;
    return status;
}

/* The CPU's slot on n open operands. */
#define CALL(slot, n, operands, ...)                                                                                             \
    close_all(ctx, (n), (operands), open_all(ctx, (n), (operands)) ? aji_cpu_table.slot(ctx, __VA_ARGS__) : AJ_ERR_MEMORY)

static aj_status test_upload(aj_device device, void *device_memory, const void *host, size_t bytes) {
    if (bytes == 0)
        return AJ_OK;
    if (!protect(device->ctx, device_memory, bytes, PROT_READ | PROT_WRITE))
        return AJ_ERR_MEMORY;
    memcpy(device_memory, host, bytes);
    return protect(device->ctx, device_memory, bytes, PROT_NONE) ? AJ_OK : AJ_ERR_MEMORY;
}

static aj_status test_download(aj_device device, void *host, const void *device_memory, size_t bytes) {
    if (bytes == 0)
        return AJ_OK;
    if (!protect(device->ctx, (void *)device_memory, bytes, PROT_READ))
        return AJ_ERR_MEMORY;
    memcpy(host, device_memory, bytes);
    return protect(device->ctx, (void *)device_memory, bytes, PROT_NONE) ? AJ_OK : AJ_ERR_MEMORY;
}

static aj_status test_copy(aj_ctx *ctx, const aji_value *src, const aji_value *dst) {
    const aji_value *operands[] = {src, dst};
    return CALL(copy, 2, operands, src, dst);
}

/* The operands of a program. Returns how many. */
static int gather_operands(const aji_program *program, const aji_value *const *in, const aji_value *const *out,
                           const aji_value **operands) {
    int n = 0;
    for (int i = 0; i < program->n_in; i++)
        operands[n++] = in[i];
    for (int k = 0; k < program->n_out; k++)
        operands[n++] = out[k];
    return n;
}

static aj_status test_run(aj_ctx *ctx, const aji_program *program, const aji_value *const *in, const aji_value *const *out) {
    const aji_value *operands[AJI_MAX_INPUTS + AJI_MAX_OUTPUTS];
    int n = gather_operands(program, in, out, operands);
    return CALL(run, n, operands, program, in, out);
}

static aj_status test_reduce(aj_ctx *ctx, aji_reduction kind, const aji_program *program, int reduced, const aji_meta *shape,
                             unsigned axes, const aji_value *const *in, const aji_value *result, const aji_value *const *out) {
    const aji_value *operands[AJI_MAX_INPUTS + AJI_MAX_OUTPUTS + 1];
    int n = gather_operands(program, in, out, operands);
    operands[n++] = result;
    return CALL(reduce, n, operands, kind, program, reduced, shape, axes, in, result, out);
}

static aj_status test_argument(aj_ctx *ctx, bool largest, const aji_value *x, int axis, const aji_value *out) {
    const aji_value *operands[] = {x, out};
    return CALL(argument, 2, operands, largest, x, axis, out);
}

static aj_status test_cumsum(aj_ctx *ctx, const aji_value *x, int axis, const aji_value *out) {
    const aji_value *operands[] = {x, out};
    return CALL(cumsum, 2, operands, x, axis, out);
}

static aj_status test_take(aj_ctx *ctx, const char *op, const aji_value *x, int axis, const aji_value *index,
                           const aji_value *out) {
    const aji_value *operands[] = {x, index, out};
    return CALL(take, 3, operands, op, x, axis, index, out);
}

static aj_status test_scatter_add(aj_ctx *ctx, const char *op, const aji_value *value, int axis, const aji_value *index,
                                  const aji_value *out) {
    const aji_value *operands[] = {value, index, out};
    return CALL(scatter_add, 3, operands, op, value, axis, index, out);
}

static aj_status test_matmul(aj_ctx *ctx, const aji_value *a, const aji_value *b, const aji_value *out) {
    const aji_value *operands[] = {a, b, out};
    return CALL(matmul, 3, operands, a, b, out);
}

static aj_status test_solve(aj_ctx *ctx, const aji_value *a, const aji_value *b, const aji_value *out) {
    const aji_value *operands[] = {a, b, out};
    return CALL(solve, 3, operands, a, b, out);
}

static aj_status test_cholesky(aj_ctx *ctx, const aji_value *a, const aji_value *out) {
    const aji_value *operands[] = {a, out};
    return CALL(cholesky, 2, operands, a, out);
}

static aj_status test_logdet(aj_ctx *ctx, const aji_value *a, const aji_value *out) {
    const aji_value *operands[] = {a, out};
    return CALL(logdet, 2, operands, a, out);
}

static aj_status test_wait(aj_device device) {
    return aji_cpu_table.wait(device);
}

const aji_device_table aji_test_table = {
    .alloc = test_alloc,
    .free = test_free,
    .upload = test_upload,
    .download = test_download,
    .copy = test_copy,
    .run = test_run,
    .reduce = test_reduce,
    .argument = test_argument,
    .cumsum = test_cumsum,
    .take = test_take,
    .scatter_add = test_scatter_add,
    .matmul = test_matmul,
    .solve = test_solve,
    .cholesky = test_cholesky,
    .logdet = test_logdet,
    .wait = test_wait,
};
