/*
 * Wait: completes a request. Of a receive: y as recv; of a send: y = x. Its adjoint starts a message: of a receive, the gradient goes home; of a send, the
 * receive for the gradient is posted, and the adjoint of the start waits for it.
 */
#include "mpi/comm_internal.h"

static aj_status forward(aji_call *c) {
    aji_wait_attr *a = c->attr;
    if (a->message->is_send)
        return aji_return_operand(c);
    return aji_message_finish_recv(a->message, a->buffer, &c->y[0]);
}

static aj_status vjp(aji_call *c) {
    aji_message *m = ((aji_wait_attr *)c->attr)->message;
    if (!m->is_send)
        return aji_return_gradient(m, c->g_out[0], &c->g_in[0]);
    c->g_in[0] = c->g_out[0];
    return aji_post_gradient(m);
}

static void attr_free(aj_ctx *ctx, void *attr) {
    (void)ctx;
    aji_wait_attr *a = attr;
    aji_message_release(a->message);
    aji_value_release(a->buffer);
}

const aji_op aji_op_wait = {
    .name = "aj_wait",
    .maths = "y = the received value, or what was sent; the adjoint starts the gradient's message",
    .flags = AJI_OP_COMM,
    .attr_size = sizeof(aji_wait_attr),
    .attr_free = attr_free,
    .forward = forward,
    .vjp = vjp,
};
