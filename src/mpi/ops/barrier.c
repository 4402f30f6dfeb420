/* Barrier: waits until all ranks have come; so does its adjoint. */
#include "mpi/comm_internal.h"

static aj_status forward(aji_call *c) {
    if (c->comm->size <= 1)
        return AJ_OK;
    return aji_mpi_barrier(c);
}

static aj_status vjp(aji_call *c) {
    return aj_barrier(c->comm);
}

const aji_op aji_op_barrier = {
    .name = "aj_barrier",
    .maths = "adjoint: a barrier",
    .flags = AJI_OP_COMM,
    .forward = forward,
    .vjp = vjp,
};

aj_status aj_barrier(aj_comm *comm) {
    if (!comm)
        return AJ_ERR_ARG;
    aji_comm_enter(comm, "aj_barrier");
    return aji_apply(&aji_op_barrier, comm, comm->ctx, NULL, 0, NULL, 0, NULL);
}
