/* Allgather: the parts of all ranks, one after the other along an axis, on every rank. Its transpose: gx_k = sum over r of part k of g_r, one reduce_scatter. */
#include "mpi/parts.h"

static aj_status infer(aji_call *c) {
    c->out_meta[0] = c->in_meta[0];
    return c->comm->size == 0 ? AJ_OK : aji_exchange_lengths(c);
}

static aj_status collect(aji_call *c, const aji_packed *p) {
    return aji_mpi_allgatherv(c, p->in, p->out, p->counts, aji_mpi_type(c->in_meta[0].dtype));
}

static aj_status forward(aji_call *c) {
    return aji_join_run(c, collect);
}

static aj_status vjp(aji_call *c) {
    const aji_axis_attr *a = c->attr;
    c->g_in[0] = a->parts ? aji_reduce_scatter_parts(c->g_out[0], a->axis, a->parts, c->comm) : c->g_out[0];
    return AJ_OK;
}

const aji_op aji_op_allgather = {
    .name = "aj_allgather",
    .maths = "y = concatenation of x_k; gx_k = sum_r part k of g_r",
    .flags = AJI_OP_COMM,
    .attr_size = sizeof(aji_axis_attr),
    .attr_free = aji_axis_attr_free,
    .infer = infer,
    .forward = forward,
    .vjp = vjp,
};

aj_tensor *aji_allgather_parts(aj_tensor *x, int axis, aji_parts *parts, aj_comm *comm) {
    aji_axis_attr a = {.axis = axis, .parts = parts ? aji_parts_retain(parts) : NULL};
    return aji_comm_apply(&aji_op_allgather, &a, x, comm);
}

aj_tensor *aj_allgather(aj_tensor *x, int axis, aj_comm *comm) {
    return aji_allgather_parts(x, axis, NULL, comm);
}
