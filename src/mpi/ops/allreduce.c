/*
 * Allreduce. SUM: its transpose is itself, gx_k = sum_r g_r. MAX, MIN: the same, but only on the rank that holds the extremum, entry by entry.
 */
#include "mpi/extremum.h"

static aj_status infer(aji_call *c) {
    return aji_check_reduction(c, ((const aji_reduction_attr *)c->attr)->op, true);
}

static aj_status sum(aji_call *c, MPI_Op op, const aji_value *x, aji_value *y) {
    return aji_mpi_allreduce(c, aji_value_data(x), aji_value_data(y), aji_meta_numel(&x->meta), aji_mpi_type(x->meta.dtype), op);
}

static aj_status extremum(aji_call *c, aji_reduction_attr *a, const aji_value *x, aji_value *y) {
    aji_pairs p;
    aj_status status = aji_pairs_open(c, &p, a->op, aji_meta_numel(&x->meta), x);
    if (status == AJ_OK)
        status = aji_mpi_allreduce(c, MPI_IN_PLACE, p.data, p.n, p.type, p.op);
    if (status == AJ_OK && !(a->winner = aji_pairs_split(&p, y)))
        status = aj_ctx_status(c->ctx);
    aji_pairs_close(c, &p);
    return status;
}

static aj_status reduce(aji_call *c, aji_reduction_attr *a, MPI_Op op) {
    if (c->comm->size == 0)
        return aji_return_operand(c);
    aji_value *x = aji_to_host(c->x[0]), *y = x ? aji_new_on_host(c) : NULL;
    aj_status status = y ? AJ_OK : aj_ctx_status(c->ctx);
    if (y && a && aji_is_extremum(c, op))
        status = extremum(c, a, x, y);
    else if (y)
        status = sum(c, op, x, y);
    aji_value_release(x);
    if (status == AJ_OK)
        return aji_from_host(c, y);
    aji_value_release(y);
    return status;
}

aj_status aji_forward_allreduce(aji_call *c) {
    return reduce(c, NULL, MPI_SUM);
}

static aj_status forward(aji_call *c) {
    aji_reduction_attr *a = c->attr;
    return reduce(c, a, a->op);
}

static aj_status vjp(aji_call *c) {
    const aji_reduction_attr *a = c->attr;
    aj_tensor *g = aj_allreduce(c->g_out[0], MPI_SUM, c->comm);
    if (a->winner)
        g = aji_for_winner(c, g, aji_constant_on(a->winner, c->device));
    c->g_in[0] = g;
    return AJ_OK;
}

const aji_op aji_op_allreduce = {
    .name = "aj_allreduce",
    .maths = "y_r = sum_k x_k, or the extremum; gx_k = sum_r g_r, for an extremum on its rank only",
    .flags = AJI_OP_COMM,
    .attr_size = sizeof(aji_reduction_attr),
    .attr_free = aji_reduction_attr_free,
    .infer = infer,
    .forward = forward,
    .vjp = vjp,
};

aj_tensor *aj_allreduce(aj_tensor *x, MPI_Op op, aj_comm *comm) {
    aji_reduction_attr a = {.op = op};
    return aji_comm_apply(&aji_op_allreduce, &a, x, comm);
}
