/*
 * Allreduce. SUM: its transpose is itself, gx_k = sum_r g_r. Other reductions: that sum, and each rank's share of it.
 */
#include "mpi/reductions.h"

static aj_status infer(aji_call *c) {
    return aji_check_reduction(c, &((aji_reduction_attr *)c->attr)->reduction);
}

static aj_status direct(aji_call *c, MPI_Op op, const aji_value *x, aji_value *y) {
    return aji_mpi_allreduce(c, aji_value_data(x), aji_value_data(y), aji_meta_numel(&x->meta), aji_mpi_type(x->meta.dtype), op);
}

/* Of an operand that the adjoint has given up; of sums only. MPI wants this from all ranks or none, so where others share the operand a copy is
 * reduced. */
static aj_status in_place(aji_call *c, MPI_Op op) {
    aj_device where = aji_mpi_device(c->device);
    aji_value *y = where != c->device     ? aji_value_on(c->x[0], where)
                   : aji_may_overwrite(c) ? aji_value_retain(c->x[0])
                                          : aji_value_copy(c->x[0]);
    if (!y)
        return aj_ctx_status(c->ctx);
    return aji_from_host(
        c, y, aji_mpi_allreduce(c, MPI_IN_PLACE, aji_value_data(y), aji_meta_numel(&y->meta), aji_mpi_type(y->meta.dtype), op));
}

static aj_status by_records(aji_call *c, aji_rank_reduction *r, const aji_value *x, aji_value *y) {
    aji_records records;
    aj_status status = aji_reduction_open(c, r, &records, aji_meta_numel(&x->meta), x);
    if (status == AJ_OK)
        status = aji_reduction_keep(c, r, y);
    if (status == AJ_OK)
        status = aji_mpi_allreduce(c, MPI_IN_PLACE, records.data, records.n, records.type, records.op);
    if (status == AJ_OK)
        aji_reduction_take(r, &records, y);
    aji_records_close(c, &records);
    return status;
}

static aj_status reduce(aji_call *c, aji_rank_reduction *r) {
    if (c->comm->size <= 1)
        return aji_return_operand(c);
    if (c->op->flags & AJI_OP_CONSUMES)
        return in_place(c, r->op);
    aj_device where = aji_reduction_device(c, r);
    aji_value *x = aji_value_on(c->x[0], where), *y = x ? aji_new_for_mpi(c, where) : NULL;
    aj_status status = !y ? aj_ctx_status(c->ctx) : aji_by_records(c, r) ? by_records(c, r, x, y) : direct(c, r->op, x, y);
    aji_value_release(x);
    return aji_from_host(c, y, status);
}

aj_status aji_forward_allreduce(aji_call *c) {
    return reduce(c, &(aji_rank_reduction){.op = MPI_SUM});
}

static aj_status forward(aji_call *c) {
    return reduce(c, &((aji_reduction_attr *)c->attr)->reduction);
}

static const aji_op sum_inplace;

/* One that nobody differentiates is given up. */
static aj_tensor *sum_of_gradients(const aji_call *c) {
    aji_reduction_attr a = {.reduction.op = MPI_SUM};
    return aji_comm_apply(aj_is_recording(c->ctx) ? &aji_op_allreduce : &sum_inplace, &a, c->g_out[0], c->comm);
}

static aj_status vjp(aji_call *c) {
    const aji_rank_reduction *r = &((const aji_reduction_attr *)c->attr)->reduction;
    aj_tensor *g = sum_of_gradients(c), *with[AJI_MAX_KEPT];
    aji_companions(c, r, with);
    c->g_in[0] = aji_share(c, r, g, with);
    return AJ_OK;
}

#define ALLREDUCE                                                                                                                \
    .name = "aj_allreduce", .maths = "y_r = the reduction of x_k over k; gx_k = its share of sum_r g_r",                         \
    .attr_size = sizeof(aji_reduction_attr), .attr_free = aji_reduction_attr_free, .infer = infer, .forward = forward,           \
    .vjp = vjp
const aji_op aji_op_allreduce = {ALLREDUCE, .flags = AJI_OP_COMM};
static const aji_op with_operands = {ALLREDUCE, .flags = AJI_OP_COMM, .need = AJI_NEED_IN(0) | AJI_NEED_OUT};
static const aji_op sum_inplace = {ALLREDUCE, .flags = AJI_OP_COMM | AJI_OP_CONSUMES};

aj_tensor *aj_allreduce(aj_tensor *x, MPI_Op op, aj_comm *comm) {
    aji_reduction_attr a = {.reduction.op = op};
    return aji_comm_apply(aji_reduction_needs_operand(op) ? &with_operands : &aji_op_allreduce, &a, x, comm);
}
