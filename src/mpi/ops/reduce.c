/*
 * Reduce: y_root = the reduction of x_k over k, zeros elsewhere. SUM: the transpose is a broadcast, gx_k = g_root; g on other ranks is ignored. Of other reductions
 * the root broadcasts, with the gradient, what each rank needs to find its share.
 */
#include "mpi/reductions.h"

static aj_status infer(aji_call *c) {
    aji_reduction_attr *a = c->attr;
    aj_status status = aji_check_root(c, a->root);
    return status == AJ_OK ? aji_check_reduction(c, &a->reduction) : status;
}

static aj_status direct(aji_call *c, const aji_value *x, aji_value *y, bool in_place) {
    const aji_reduction_attr *a = c->attr;
    return aji_mpi_reduce(c, in_place ? MPI_IN_PLACE : aji_value_data(x), y ? aji_value_data(y) : NULL, aji_meta_numel(&x->meta),
                          aji_mpi_type(x->meta.dtype), a->reduction.op, a->root);
}

static aj_status by_records(aji_call *c, const aji_value *x, aji_value *y) {
    aji_reduction_attr *a = c->attr;
    aji_records r;
    aj_status status = aji_reduction_open(c, &a->reduction, &r, aji_meta_numel(&x->meta), x);
    if (status == AJ_OK && y)
        status = aji_reduction_keep(c, &a->reduction, y);
    if (status == AJ_OK)
        status = aji_mpi_reduce(c, y ? MPI_IN_PLACE : r.data, y ? r.data : NULL, r.n, r.type, r.op, a->root);
    if (status == AJ_OK && y)
        aji_reduction_take(&a->reduction, &r, y);
    aji_records_close(c, &r);
    return status;
}

/* The operand's memory may hold the result, unless the adjoint needs the operand. */
static bool may_overwrite(const aji_call *c, aj_device where) {
    return where == c->device && aji_may_overwrite(c) && !(c->op->need & AJI_NEED_IN(0));
}

static aj_status forward(aji_call *c) {
    const aji_reduction_attr *a = c->attr;
    if (c->comm->size <= 1)
        return aji_return_operand(c);
    aj_device where = aji_reduction_device(c, &a->reduction);
    bool is_root = c->comm->rank == a->root, in_place = is_root && may_overwrite(c, where);
    aji_value *x = aji_value_on(c->x[0], where), *y = NULL; /* y: on the root only */
    aj_status status = x ? AJ_OK : aj_ctx_status(c->ctx);
    if (x && is_root && !(y = in_place ? aji_value_retain(c->x[0]) : aji_new_for_mpi(c, where)))
        status = aj_ctx_status(c->ctx);
    if (status == AJ_OK)
        status = aji_by_records(c, &a->reduction) ? by_records(c, x, y) : direct(c, x, y, in_place);
    aji_value_release(x);
    if (is_root)
        return aji_from_host(c, y, status);
    if (status == AJ_OK && !(c->y[0] = aji_value_full(c->ctx, c->device, &c->out_meta[0], 0)))
        status = aj_ctx_status(c->ctx);
    return status;
}

/* The gradient and its companions in one message, flat. */
static aj_status vjp(aji_call *c) {
    const aji_reduction_attr *a = c->attr;
    const aji_meta *m = &c->in_meta[0];
    int64_t numel = aji_meta_numel(m);
    aj_tensor *parts[1 + AJI_MAX_KEPT] = {c->g_out[0]};
    int n = aji_companions(c, &a->reduction, parts + 1);
    for (int i = 0; i <= n && n > 0; i++)
        parts[i] = aj_reshape(parts[i], 1, &numel);
    aj_tensor *all = aj_bcast(n > 0 ? aj_concat(1 + n, parts, 0) : parts[0], a->root, c->comm);
    for (int i = 0; i <= n; i++)
        parts[i] = n > 0 ? aj_reshape(aj_slice(all, 0, i * numel, (i + 1) * numel, 1), m->ndim, m->shape) : all;
    c->g_in[0] = aji_share(c, &a->reduction, parts[0], parts + 1);
    return AJ_OK;
}

#define REDUCE                                                                                                                   \
    .maths = "y_root = the reduction of x_k over k, 0 elsewhere; gx_k = its share of g_root",                                    \
    .attr_size = sizeof(aji_reduction_attr), .attr_free = aji_reduction_attr_free, .infer = infer, .forward = forward,           \
    .vjp = vjp
#define NEW REDUCE, .name = "aj_reduce", .flags = AJI_OP_COMM
#define IN_PLACE REDUCE, .name = "aj_reduce_inplace", .flags = AJI_OP_COMM | AJI_OP_CONSUMES
const aji_op aji_op_reduce = {NEW};
const aji_op aji_op_reduce_inplace = {IN_PLACE};
static const aji_op with_operands = {NEW, .need = AJI_NEED_IN(0) | AJI_NEED_OUT};
static const aji_op inplace_with_operands = {IN_PLACE, .need = AJI_NEED_IN(0) | AJI_NEED_OUT};

aj_tensor *aj_reduce(aj_tensor *x, MPI_Op op, int root, aj_comm *comm) {
    aji_reduction_attr a = {.reduction.op = op, .root = root};
    return aji_comm_apply(aji_reduction_needs_operand(op) ? &with_operands : &aji_op_reduce, &a, x, comm);
}

aj_tensor *aj_reduce_inplace(aj_tensor *x, MPI_Op op, int root, aj_comm *comm) {
    aji_reduction_attr a = {.reduction.op = op, .root = root};
    return aji_comm_apply(aji_reduction_needs_operand(op) ? &inplace_with_operands : &aji_op_reduce_inplace, &a, x, comm);
}
