/* Calls into a value's device. An empty slot of its table is an error here, so no device needs stubs and no caller looks. */
#include "tensor/tensor_internal.h"

static aj_status unsupported(const char *op, const aji_value *v) {
    return aj_raise(v->ctx, AJ_ERR_UNSUPPORTED,
                    "%s: not available for %s on device %s; move the operands with aj_to_device, for instance to aj_cpu(ctx)", op,
                    aj_dtype_name(v->meta.dtype), v->device->name);
}

/* slot(arguments) of v's device */
#define CALL(v, slot, ...) ((v)->device->table->slot ? (v)->device->table->slot((v)->ctx, __VA_ARGS__) : unsupported(op, (v)))

aj_status aji_do_copy(const char *op, const aji_value *src, const aji_value *dst) {
    return CALL(dst, copy, src, dst);
}

aj_status aji_do_run(const char *op, const aji_program *program, const aji_value *const *in, const aji_value *const *out) {
    return CALL(out[0], run, program, in, out);
}

aj_status aji_do_reduce(const char *op, aji_reduction kind, const aji_program *program, int reduced, const aji_meta *shape,
                        unsigned axes, const aji_value *const *in, const aji_value *result, const aji_value *const *out) {
    return CALL(result, reduce, kind, program, reduced, shape, axes, in, result, out);
}

aj_status aji_do_argument(const char *op, bool largest, const aji_value *x, int axis, const aji_value *out) {
    return CALL(x, argument, largest, x, axis, out);
}

aj_status aji_do_cumsum(const char *op, const aji_value *x, int axis, const aji_value *out) {
    return CALL(x, cumsum, x, axis, out);
}

aj_status aji_do_take(const char *op, const aji_value *x, int axis, const aji_value *index, const aji_value *out) {
    return CALL(x, take, op, x, axis, index, out);
}

aj_status aji_do_scatter_add(const char *op, const aji_value *value, int axis, const aji_value *index, const aji_value *out) {
    return CALL(value, scatter_add, op, value, axis, index, out);
}

aj_status aji_do_matmul(const char *op, const aji_value *a, const aji_value *b, const aji_value *out) {
    return CALL(a, matmul, a, b, out);
}

aj_status aji_do_solve(const char *op, const aji_value *a, const aji_value *b, const aji_value *out) {
    return CALL(a, solve, a, b, out);
}

aj_status aji_do_cholesky(const char *op, const aji_value *a, const aji_value *out) {
    return CALL(a, cholesky, a, out);
}

aj_status aji_do_logdet(const char *op, const aji_value *a, const aji_value *out) {
    return CALL(a, logdet, a, out);
}
