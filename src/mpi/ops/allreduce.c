/* Allreduce: y_r = sum_k x_k. Its transpose is itself: gx_k = sum_r g_r. */
#include "mpi/comm_internal.h"

typedef struct attr {
    MPI_Op op;
} attr;

static aj_status infer(aji_call *c) {
    return aji_check_reduction(c, ((const attr *)c->attr)->op);
}

aj_status aji_forward_allreduce(aji_call *c) {
    if (c->comm->size == 0)
        return aji_return_operand(c);
    aji_value *x = aji_to_host(c->x[0]), *y = x ? aji_new_on_host(c) : NULL;
    aj_status status = y ? AJ_OK : AJ_ERR_MEMORY;
    if (y)
        status = aji_mpi_check(c->ctx, "aj_allreduce",
                               aji_mpi_allreduce(c->comm, aji_channel(c->comm), aji_value_data(x), aji_value_data(y),
                                                 aji_meta_numel(&x->meta), aji_mpi_type(x->meta.dtype), MPI_SUM));
    aji_value_release(x);
    if (status == AJ_OK)
        return aji_from_host(c, y);
    aji_value_release(y);
    return status;
}

static aj_status vjp(aji_call *c) {
    c->g_in[0] = aj_allreduce(c->g_out[0], MPI_SUM, c->comm);
    return AJ_OK;
}

const aji_op aji_op_allreduce = {
    .name = "aj_allreduce",
    .maths = "y_r = sum_k x_k; gx_k = sum_r g_r",
    .flags = AJI_OP_COMM,
    .attr_size = sizeof(attr),
    .infer = infer,
    .forward = aji_forward_allreduce,
    .vjp = vjp,
};

aj_tensor *aj_allreduce(aj_tensor *x, MPI_Op op, aj_comm *comm) {
    attr a = {op};
    return aji_comm_apply(&aji_op_allreduce, &a, x, comm);
}
