/* Gather: the parts of all ranks, one after the other along an axis, on the root; no entries elsewhere. Its transpose is a scatter: gx_k = part k of g_root. */
#include "mpi/parts.h"

static aj_status infer(aji_call *c) {
    aji_axis_attr *a = c->attr;
    aj_status status = aji_check_root(c, a->root);
    if (status != AJ_OK || c->comm->size == 0)
        return status;
    status = aji_exchange_lengths(c);
    if (status == AJ_OK && c->comm->rank != a->root)
        c->out_meta[0].shape[a->axis] = 0;
    return status;
}

static aj_status collect(aji_call *c, const aji_packed *p) {
    const aji_axis_attr *a = c->attr;
    return aji_mpi_gatherv(c, p->in, p->out, p->counts, aji_mpi_type(c->in_meta[0].dtype), a->root);
}

static aj_status forward(aji_call *c) {
    return aji_join_run(c, collect);
}

static aj_status vjp(aji_call *c) {
    const aji_axis_attr *a = c->attr;
    c->g_in[0] = a->parts ? aji_scatter_parts(c->g_out[0], a->axis, a->root, a->parts, c->comm) : c->g_out[0];
    return AJ_OK;
}

const aji_op aji_op_gather = {
    .name = "aj_gather",
    .maths = "y_root = concatenation of x_k, empty elsewhere; gx_k = part k of g_root",
    .flags = AJI_OP_COMM,
    .attr_size = sizeof(aji_axis_attr),
    .attr_free = aji_axis_attr_free,
    .infer = infer,
    .forward = forward,
    .vjp = vjp,
};

aj_tensor *aji_gather_parts(aj_tensor *x, int axis, int root, aji_parts *parts, aj_comm *comm) {
    aji_axis_attr a = {.axis = axis, .root = root, .parts = parts ? aji_parts_retain(parts) : NULL};
    return aji_comm_apply(&aji_op_gather, &a, x, comm);
}

aj_tensor *aj_gather(aj_tensor *x, int axis, int root, aj_comm *comm) {
    return aji_gather_parts(x, axis, root, NULL, comm);
}
