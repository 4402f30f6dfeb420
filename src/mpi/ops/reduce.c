/* Reduce: y_root = sum_k x_k, zeros elsewhere. Its transpose is a broadcast: gx_k = g_root; g on other ranks is ignored. */
#include "mpi/comm_internal.h"

typedef struct attr {
    MPI_Op op;
    int root;
} attr;

static aj_status infer(aji_call *c) {
    const attr *a = c->attr;
    aj_status status = aji_check_root(c, a->root);
    return status == AJ_OK ? aji_check_reduction(c, a->op) : status;
}

static aj_status forward(aji_call *c) {
    const attr *a = c->attr;
    if (c->comm->size == 0)
        return aji_return_operand(c);
    bool is_root = c->comm->rank == a->root;
    bool reuse = is_root && aji_is_host(c->device) && aji_may_overwrite(c);
    aji_value *x = aji_value_on(c->x[0], aj_cpu(c->ctx)), *y = NULL;
    aj_status status = x ? AJ_OK : aj_ctx_status(c->ctx);
    if (x && is_root && !(y = reuse ? aji_value_retain(c->x[0]) : aji_new_on_host(c)))
        status = aj_ctx_status(c->ctx);
    if (status == AJ_OK)
        status = aji_mpi_check(c->ctx, "aj_reduce",
                               aji_mpi_reduce(c->comm, aji_channel(c->comm), reuse ? MPI_IN_PLACE : aji_value_data(x),
                                              is_root ? aji_value_data(y) : NULL, aji_meta_numel(&x->meta),
                                              aji_mpi_type(x->meta.dtype), a->op, a->root));
    aji_value_release(x);
    if (status == AJ_OK && is_root)
        return aji_from_host(c, y);
    aji_value_release(y);
    if (status == AJ_OK && !(c->y[0] = aji_value_full(c->ctx, c->device, &c->out_meta[0], 0)))
        status = aj_ctx_status(c->ctx);
    return status;
}

static aj_status vjp(aji_call *c) {
    const attr *a = c->attr;
    c->g_in[0] = aj_bcast(c->g_out[0], a->root, c->comm);
    return AJ_OK;
}

const aji_op aji_op_reduce = {
    .name = "aj_reduce",
    .maths = "y_root = sum_k x_k, 0 elsewhere; gx_k = g_root",
    .flags = AJI_OP_COMM,
    .attr_size = sizeof(attr),
    .infer = infer,
    .forward = forward,
    .vjp = vjp,
};
const aji_op aji_op_reduce_inplace = {
    .name = "aj_reduce_inplace",
    .maths = "y_root = sum_k x_k, 0 elsewhere; gx_k = g_root; consumes x",
    .flags = AJI_OP_COMM | AJI_OP_CONSUMES,
    .attr_size = sizeof(attr),
    .infer = infer,
    .forward = forward,
    .vjp = vjp,
};

aj_tensor *aj_reduce(aj_tensor *x, MPI_Op op, int root, aj_comm *comm) {
    attr a = {op, root};
    return aji_comm_apply(&aji_op_reduce, &a, x, comm);
}

aj_tensor *aj_reduce_inplace(aj_tensor *x, MPI_Op op, int root, aj_comm *comm) {
    attr a = {op, root};
    return aji_comm_apply(&aji_op_reduce_inplace, &a, x, comm);
}
