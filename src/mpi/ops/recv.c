/*
 * Recv and irecv: y has the buffer's shape; its first m entries come from the message. g[0:m] goes home to the sender, the rest to the buffer.
 */
#include "mpi/comm_internal.h"

static aj_status start_forward(aji_call *c) {
    aj_status status = aji_message_start_recv(((aji_message_attr *)c->attr)->message, c->device, &c->in_meta[0]);
    return status == AJ_OK ? aji_return_operand(c) : status;
}

/* What wait's adjoint has left for the buffer. */
static aj_status start_vjp(aji_call *c) {
    c->g_in[0] = c->g_out[0];
    return AJ_OK;
}

static aj_status forward(aji_call *c) {
    aji_message *m = ((aji_message_attr *)c->attr)->message;
    aj_status status = aji_message_start_recv(m, c->device, &c->in_meta[0]);
    return status == AJ_OK ? aji_message_finish_recv(m, c->x[0], &c->y[0]) : status;
}

static aj_status vjp(aji_call *c) {
    return aji_return_gradient(((aji_message_attr *)c->attr)->message, c->g_out[0], &c->g_in[0]);
}

const aji_op aji_op_recv = {
    .name = "aj_recv",
    .maths = "y[0:m] = message, y[m:] = buffer[m:]; g[0:m] goes home, gbuffer = (0, g[m:])",
    .flags = AJI_OP_COMM,
    .attr_size = sizeof(aji_message_attr),
    .attr_free = aji_message_attr_free,
    .infer = aji_message_check,
    .forward = forward,
    .vjp = vjp,
};
const aji_op aji_op_irecv = {
    .name = "aj_irecv",
    .maths = "y = buffer, until wait; gbuffer = what wait left of g",
    .flags = AJI_OP_COMM,
    .attr_size = sizeof(aji_message_attr),
    .attr_free = aji_message_attr_free,
    .infer = aji_message_check,
    .forward = start_forward,
    .vjp = start_vjp,
};

aj_tensor *aj_recv(aj_tensor *buffer, int source, int tag, aj_comm *comm) {
    aji_message_attr attr = {comm ? aji_message_new(comm, "aj_recv", false, source, tag) : NULL};
    if (comm && !attr.message) {
        aji_gate(comm->ctx, comm);
        return NULL;
    }
    return aji_comm_apply(&aji_op_recv, &attr, buffer, comm);
}
