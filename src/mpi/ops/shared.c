/*
 * Shared: x is ONE variable that every rank holds, so its gradient is the sum of what the ranks found.
 *
 * The adjoint is an operation of its own, because its transpose depends on who asks. Differentiated once more by aj_backward or aj_grad_of, its result is
 * S numbers, one on each rank, under the sum over ranks: an allreduce again. In aj_jvp the tangents that come in are one variable, held by all,
 * and count once: y' = x'.
 */
#include "mpi/comm_internal.h"

static aj_status adjoint_vjp(aji_call *c);

static const aji_op aji_op_shared_adjoint = {
    .name = "aj_shared_adjoint",
    .maths = "y_r = sum_k x_k, one variable; gx_k = sum_r g_r, in aj_jvp gx = g",
    .flags = AJI_OP_COMM,
    .forward = aji_forward_allreduce,
    .vjp = adjoint_vjp,
};

static aj_status adjoint_vjp(aji_call *c) {
    c->g_in[0] = aji_sweep_transposes(c->sweep) ? c->g_out[0] : aj_allreduce(c->g_out[0], MPI_SUM, c->comm);
    return AJ_OK;
}

static aj_status vjp(aji_call *c) {
    c->g_in[0] = aji_comm_apply(&aji_op_shared_adjoint, NULL, c->g_out[0], c->comm);
    return AJ_OK;
}

static aj_status forward(aji_call *c) {
    aj_status status = aji_compare_contents(c);
    return status == AJ_OK ? aji_return_operand(c) : status;
}

const aji_op aji_op_shared = {
    .name = "aj_shared",
    .maths = "y = x; gx = sum_r g_r",
    .flags = AJI_OP_COMM,
    .forward = forward,
    .vjp = vjp,
};

aj_tensor *aj_shared(aj_tensor *x, aj_comm *comm) {
    return aji_comm_apply(&aji_op_shared, NULL, x, comm);
}
