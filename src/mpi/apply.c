/*
 * What all communication operations share: entry, checks alike on all ranks, host memory.
 */
#include "mpi/comm_internal.h"

aj_tensor *aji_comm_apply(const aji_op *op, const void *attr, aj_tensor *x, aj_comm *comm) {
    if (!comm) {
        if (x) {
            aj_raise(aj_tensor_ctx(x), AJ_ERR_ARG, "%s: the communicator is NULL; expected one made by aj_comm_create", op->name);
            aji_gate(aj_tensor_ctx(x), NULL);
        }
        return NULL;
    }
    aji_mpi *mpi = aji_mpi_of(comm->ctx);
    mpi->last = comm;
    aji_message_progress(mpi);
    aj_tensor *y = NULL;
    return aji_apply(op, comm, comm->ctx, attr, 1, &x, 1, &y) == AJ_OK ? y : NULL;
}

aj_status aji_check_root(aji_call *c, int root) {
    int size = c->comm->size;
    c->out_meta[0] = c->in_meta[0];
    if (size > 0 && (root < 0 || root >= size))
        return aj_raise(c->ctx, AJ_ERR_ARG, "%s: root %d is out of range; expected 0 ... %d", c->op->name, root, size - 1);
    return AJ_OK;
}

aj_status aji_check_reduction(aji_call *c, MPI_Op op) {
    c->out_meta[0] = c->in_meta[0];
    if (op != MPI_SUM)
        return aj_raise(c->ctx, AJ_ERR_UNSUPPORTED, "%s: this reduction is not supported for %s; expected MPI_SUM", c->op->name,
                        aj_dtype_name(c->in_meta[0].dtype));
    return AJ_OK;
}

aji_value *aji_to_host(aji_value *v) {
    return aji_value_on(v, aj_cpu(v->ctx));
}

aji_value *aji_new_on_host(aji_call *c) {
    return aji_value_new(c->ctx, aj_cpu(c->ctx), &c->out_meta[0]);
}

aj_status aji_from_host(aji_call *c, aji_value *v) {
    if (!v)
        return aj_ctx_status(c->ctx);
    c->y[0] = aji_is_host(c->device) ? aji_value_retain(v) : aji_value_on(v, c->device);
    aji_value_release(v);
    return c->y[0] ? AJ_OK : aj_ctx_status(c->ctx);
}

aj_status aji_return_operand(aji_call *c) {
    c->y[0] = aji_value_retain(c->x[0]);
    return AJ_OK;
}
