/* Bcast: y_r = x_root. Its transpose is a reduction to the root: gx_root = sum_r g_r, zero elsewhere. */
#include "mpi/comm_internal.h"

typedef struct attr {
    int root;
} attr;

static aj_status infer(aji_call *c) {
    return aji_check_root(c, ((const attr *)c->attr)->root);
}

static aj_status forward(aji_call *c) {
    const attr *a = c->attr;
    if (c->comm->size <= 1)
        return aji_return_operand(c);
    bool is_root = c->comm->rank == a->root;
    /* The root's own numbers are the result; elsewhere x is memory at most, if the caller gave it up. */
    aj_device where = aji_mpi_device(c->device);
    bool reuse = !is_root && where == c->device && aji_may_overwrite(c);
    aji_value *y = is_root ? aji_value_on(c->x[0], where) : reuse ? aji_value_retain(c->x[0]) : aji_new_for_mpi(c, where);
    if (!y)
        return aj_ctx_status(c->ctx);
    aj_status status = aji_mpi_bcast(c, aji_value_data(y), aji_meta_numel(&y->meta), aji_mpi_type(y->meta.dtype), a->root);
    if (status == AJ_OK && is_root) {
        aji_value_release(y);
        return aji_return_operand(c);
    }
    return aji_from_host(c, y, status);
}

static aj_status vjp(aji_call *c) {
    const attr *a = c->attr;
    aj_tensor *g = c->g_out[0]; /* given up where nobody differentiates it */
    c->g_in[0] =
        aj_is_recording(c->ctx) ? aj_reduce(g, MPI_SUM, a->root, c->comm) : aj_reduce_inplace(g, MPI_SUM, a->root, c->comm);
    return AJ_OK;
}

const aji_op aji_op_bcast = {
    .name = "aj_bcast",
    .maths = "y_r = x_root; gx_root = sum_r g_r, 0 elsewhere",
    .flags = AJI_OP_COMM,
    .attr_size = sizeof(attr),
    .infer = infer,
    .forward = forward,
    .vjp = vjp,
};
const aji_op aji_op_bcast_inplace = {
    .name = "aj_bcast_inplace",
    .maths = "y_r = x_root; gx_root = sum_r g_r, 0 elsewhere; consumes x",
    .flags = AJI_OP_COMM | AJI_OP_CONSUMES,
    .attr_size = sizeof(attr),
    .infer = infer,
    .forward = forward,
    .vjp = vjp,
};

aj_tensor *aj_bcast(aj_tensor *x, int root, aj_comm *comm) {
    attr a = {root};
    return aji_comm_apply(&aji_op_bcast, &a, x, comm);
}

aj_tensor *aj_bcast_inplace(aj_tensor *x, int root, aj_comm *comm) {
    attr a = {root};
    return aji_comm_apply(&aji_op_bcast_inplace, &a, x, comm);
}
