/*
 * Send and isend: the value goes to another rank and is passed on here; gx = g + the gradient that comes home.
 * The adjoint of a blocking send posts and waits at once; that of isend waits, its wait's adjoint (wait.c) has posted.
 */
#include "mpi/comm_internal.h"

static aj_status forward(aji_call *c) {
    aji_message *m = ((aji_message_attr *)c->attr)->message;
    aj_status status = aji_message_start_send(m, c->x[0]);
    if (status != AJ_OK)
        return status;
    aji_message_let_go(m);
    return aji_return_operand(c);
}

static aj_status vjp(aji_call *c) {
    aji_message *m = ((aji_message_attr *)c->attr)->message;
    c->g_in[0] = c->g_out[0];
    if (m->peer == MPI_PROC_NULL)
        return AJ_OK;
    aj_status status = aji_post_gradient(m);
    aj_tensor *home = status == AJ_OK ? aji_wait_gradient(m) : NULL;
    if (home && c->want[0])
        c->g_in[0] = aj_add(c->g_out[0], home);
    return aj_ctx_status(c->ctx);
}

const aji_op aji_op_send = {
    .name = "aj_send",
    .maths = "y = x, sent; gx = g + the receiver's g[0:m]",
    .flags = AJI_OP_COMM,
    .attr_size = sizeof(aji_message_attr),
    .attr_free = aji_message_attr_free,
    .infer = aji_message_check,
    .forward = forward,
    .vjp = vjp,
};
const aji_op aji_op_isend = {
    .name = "aj_isend",
    .maths = "y = x, on its way; gx = g + the receiver's g[0:m]",
    .flags = AJI_OP_COMM,
    .attr_size = sizeof(aji_message_attr),
    .attr_free = aji_message_attr_free,
    .infer = aji_message_check,
    .forward = forward,
    .vjp = vjp,
};

aj_status aji_send_value(aji_value *x, int dest, int tag, aj_comm *comm) {
    aji_message *m = aji_message_new(comm, "aj_send", true, dest, tag);
    if (!m)
        return AJ_ERR_MEMORY;
    const char *before = aji_ctx_enter(comm->ctx, m->op);
    aji_comm_enter(comm, m->op);
    aj_status status = aji_message_start_send(m, x);
    if (status == AJ_OK)
        aji_message_let_go(m);
    aji_message_release(m);
    aji_ctx_enter(comm->ctx, before);
    return status;
}

aj_tensor *aj_send(aj_tensor *x, int dest, int tag, aj_comm *comm) {
    aji_message_attr attr = {comm ? aji_message_new(comm, "aj_send", true, dest, tag) : NULL};
    if (comm && !attr.message) {
        aji_gate(comm->ctx, comm);
        return NULL;
    }
    return aji_comm_apply(&aji_op_send, &attr, x, comm);
}
