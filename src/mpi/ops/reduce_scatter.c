/*
 * Reduce_scatter: y_k = part k along an axis of the reduction of x_r over r; numelem is what THIS rank gets. SUM: the transpose is an allgather. Of other reductions
 * what each rank needs to find its share goes with the gradient.
 */
#include "mpi/parts.h"

static aj_status check_told(aji_call *c, const aji_told *told) {
    aji_axis_attr *a = c->attr;
    aj_status status = aji_check_told(c, told, true, &a->axis, NULL);
    return status == AJ_OK ? aji_parts_from_numelems(c, told, a->parts, a->axis, told[0].shape[a->axis]) : status;
}

static aj_status infer(aji_call *c) {
    aji_axis_attr *a = c->attr;
    aj_status status = aji_check_reduction(c, &a->reduction);
    if (status != AJ_OK || c->comm->size == 0)
        return status;
    if (!a->parts) {
        a->parts = aji_parts_new(c->ctx, c->comm->size);
        aji_told *told = a->parts ? aji_tell(c, &(aji_told){.axis = a->axis, .numelem = a->numelem}) : NULL;
        status = told ? check_told(c, told) : aj_ctx_status(c->ctx);
        aji_told_free(c, told);
    }
    if (status == AJ_OK)
        c->out_meta[0].shape[a->axis] = a->parts->length[c->comm->rank];
    return status;
}

static aj_status direct(aji_call *c, const aji_packed *p) {
    const aji_axis_attr *a = c->attr;
    return aji_mpi_reduce_scatter(c, p->in, p->out, p->counts, aji_mpi_type(c->in_meta[0].dtype), a->reduction.op);
}

static aj_status by_records(aji_call *c, const aji_packed *p) {
    aji_axis_attr *a = c->attr;
    aji_records in, out = {.data = NULL};
    aj_status status = aji_reduction_open(c, &a->reduction, &in, aji_meta_numel(&p->x->meta), p->x);
    if (status == AJ_OK)
        status = aji_reduction_open(c, &a->reduction, &out, aji_meta_numel(&p->y->meta), NULL);
    if (status == AJ_OK)
        status = aji_reduction_keep(c, &a->reduction, p->y);
    if (status == AJ_OK)
        status = aji_mpi_reduce_scatter(c, in.data, out.data, p->counts, in.type, in.op);
    if (status == AJ_OK)
        aji_reduction_take(&a->reduction, &out, p->y);
    aji_records_close(c, &in);
    aji_records_close(c, &out);
    return status;
}

static aj_status reduce(aji_call *c, const aji_packed *p) {
    const aji_axis_attr *a = c->attr;
    return aji_by_records(c, &a->reduction) ? by_records(c, p) : direct(c, p);
}

static aj_status forward(aji_call *c) {
    return aji_divide_run(c, true, aji_reduction_device(c, &((const aji_axis_attr *)c->attr)->reduction), reduce);
}

/* The gradient and its companions in one allgather: as (before, axis, after), one behind the other along a new first axis. */
static aj_tensor *stacked(const aji_call *c, int n, aj_tensor **parts) {
    const aji_meta *y = &c->out_meta[0];
    int axis = ((const aji_axis_attr *)c->attr)->axis;
    int64_t shape[3] = {1, y->shape[axis], 1};
    for (int i = 0; i < y->ndim; i++)
        if (i != axis)
            shape[i < axis ? 0 : 2] *= y->shape[i];
    for (int i = 0; i < n; i++)
        parts[i] = aj_reshape(parts[i], 3, shape);
    return aj_stack(n, parts, 0);
}

static aj_status vjp(aji_call *c) {
    const aji_axis_attr *a = c->attr;
    const aji_meta *x = &c->in_meta[0];
    aj_tensor *parts[1 + AJI_MAX_KEPT] = {c->g_out[0]};
    int n = aji_companions(c, &a->reduction, parts + 1);
    if (n > 0) {
        aj_tensor *all = aji_allgather_parts(stacked(c, 1 + n, parts), 2, a->parts, c->comm);
        for (int i = 0; i <= n; i++)
            parts[i] = aj_reshape(aj_slice(all, 0, i, i + 1, 1), x->ndim, x->shape);
    } else if (a->parts) {
        parts[0] = aji_allgather_parts(parts[0], a->axis, a->parts, c->comm);
    }
    c->g_in[0] = aji_share(c, &a->reduction, parts[0], parts + 1);
    return AJ_OK;
}

#define REDUCE_SCATTER                                                                                                           \
    .name = "aj_reduce_scatter",                                                                                                 \
    .maths = "y_k = part k of the reduction of x_r over r; gx_k = its share of the g_r one after the other",                     \
    .flags = AJI_OP_COMM, .attr_size = sizeof(aji_axis_attr), .attr_free = aji_axis_attr_free, .infer = infer,                   \
    .forward = forward, .vjp = vjp
const aji_op aji_op_reduce_scatter = {REDUCE_SCATTER};
static const aji_op with_operands = {REDUCE_SCATTER, .need = AJI_NEED_IN(0) | AJI_NEED_OUT};

aj_tensor *aji_reduce_scatter_parts(aj_tensor *x, int axis, aji_parts *parts, aj_comm *comm) {
    aji_axis_attr a = {.axis = axis, .reduction.op = MPI_SUM, .parts = aji_parts_retain(parts)};
    return aji_comm_apply(&aji_op_reduce_scatter, &a, x, comm);
}

aj_tensor *aj_reduce_scatter(aj_tensor *x, int axis, int64_t numelem, MPI_Op op, aj_comm *comm) {
    aji_axis_attr a = {.axis = axis, .numelem = numelem, .reduction.op = op};
    return aji_comm_apply(aji_reduction_needs_operand(op) ? &with_operands : &aji_op_reduce_scatter, &a, x, comm);
}
