/*
 * What all communication operations share: entry, checks alike on all ranks, host memory.
 */
#include <stdio.h>

#include "mpi/checked.h"

void aji_comm_enter(aj_comm *comm, const char *op) {
    aji_mpi *mpi = aji_mpi_of(comm->ctx);
    mpi->last = comm;
    aji_message_progress(mpi);
    if (comm->timeout > 0)
        aji_recent_add(mpi, "%s", op);
    if (comm->checked)
        snprintf(comm->checked->where, sizeof(comm->checked->where), "%s", op);
}

/* Before any communication call on an operand. False with an error, after the gate; then the attr has gone, as after a call of aji_apply that failed. */
static bool enter(const aji_op *op, const void *attr, aj_tensor *x, aj_comm *comm) {
    if (comm) {
        aji_comm_enter(comm, op->name);
        return true;
    }
    aj_ctx *ctx = x ? aj_tensor_ctx(x) : NULL;
    if (ctx) {
        aj_raise(ctx, AJ_ERR_ARG, "%s: the communicator is NULL; expected one made by aj_comm_create", op->name);
        aji_gate(ctx, NULL);
    }
    if (op->attr_free)
        op->attr_free(ctx, (void *)attr);
    return false;
}

aj_tensor *aji_comm_apply(const aji_op *op, const void *attr, aj_tensor *x, aj_comm *comm) {
    return aji_comm_apply_n(op, attr, 1, &x, comm);
}

aj_tensor *aji_comm_apply_n(const aji_op *op, const void *attr, int n, aj_tensor *const *x, aj_comm *comm) {
    aj_tensor *y = NULL;
    return enter(op, attr, x[0], comm) && aji_apply(op, comm, comm->ctx, attr, n, x, 1, &y) == AJ_OK ? y : NULL;
}

aj_tensor *aji_comm_apply_first(const aji_op *op, const void *attr, aj_tensor *x, aj_comm *comm) {
    aj_tensor *y[2] = {NULL, NULL};
    if (!enter(op, attr, x, comm) || aji_apply(op, comm, comm->ctx, attr, 1, &x, 2, y) != AJ_OK)
        return NULL;
    aj_release(&y[1]);
    return y[0];
}

aj_status aji_comm_apply_two(const aji_op *op, aj_tensor *x, aj_comm *comm, aj_tensor **first, aj_tensor **second) {
    aj_tensor *y[2] = {NULL, NULL}, *unused;
    first = first ? first : &unused;
    second = second ? second : &unused;
    *first = *second = NULL;
    if (!enter(op, NULL, x, comm))
        return AJ_ERR_ARG;
    aj_status status = aji_apply(op, comm, comm->ctx, NULL, 1, &x, 2, y);
    *first = y[0];
    *second = y[1];
    return status;
}

aj_status aji_check_root(aji_call *c, int root) {
    int size = c->comm->size;
    c->out_meta[0] = c->in_meta[0];
    if (size > 0 && (root < 0 || root >= size))
        return aj_raise(c->ctx, AJ_ERR_ARG, "%s: root %d is out of range; expected 0 ... %d", c->op->name, root, size - 1);
    return AJ_OK;
}

aji_value *aji_to_host(aji_value *v) {
    return aji_value_on(v, aj_cpu(v->ctx));
}

aji_value *aji_new_on_host(const aji_call *c) {
    return aji_value_staged(c->device, &c->out_meta[0]);
}

aj_status aji_from_host(aji_call *c, aji_value *v, aj_status status) {
    if (status == AJ_OK && v)
        c->y[0] = aji_is_host(c->device) ? aji_value_retain(v) : aji_value_on(v, c->device);
    aji_value_release(v);
    return status != AJ_OK ? status : c->y[0] ? AJ_OK : aj_ctx_status(c->ctx);
}

aj_status aji_return_operand(aji_call *c) {
    c->y[0] = aji_value_retain(c->x[0]);
    return AJ_OK;
}
