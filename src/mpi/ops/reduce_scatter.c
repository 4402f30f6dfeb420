/*
 * Reduce_scatter: y_k = part k along an axis of sum_r x_r or of the extremum; numelem is what THIS rank gets. The transpose is an allgather; of an extremum
 * the ranks that hold it go with the gradient, and only those take it.
 */
#include "mpi/extremum.h"
#include "mpi/parts.h"

static aj_status check_told(aji_call *c, const aji_told *told) {
    aji_axis_attr *a = c->attr;
    aj_status status = aji_check_told(c, told, true, &a->axis, NULL);
    return status == AJ_OK ? aji_parts_from_numelems(c, told, a->parts, a->axis, told[0].shape[a->axis]) : status;
}

static aj_status infer(aji_call *c) {
    aji_axis_attr *a = c->attr;
    aj_status status = aji_check_reduction(c, a->op, true);
    if (status != AJ_OK || c->comm->size == 0)
        return status;
    if (!a->parts) {
        a->parts = aji_parts_new(c->ctx, c->comm->size);
        aji_told *told = a->parts ? aji_tell(c, &(aji_told){.axis = a->axis, .numelem = a->numelem}) : NULL;
        status = told ? check_told(c, told) : aj_ctx_status(c->ctx);
        aji_told_free(c, told);
    }
    if (status == AJ_OK)
        c->out_meta[0].shape[a->axis] = a->parts->length[c->comm->rank];
    return status;
}

static aj_status sum(aji_call *c, const aji_packed *p) {
    const aji_axis_attr *a = c->attr;
    return aji_mpi_reduce_scatter(c, p->in, p->out, p->counts, aji_mpi_type(c->in_meta[0].dtype), a->op);
}

/* On pairs. */
static aj_status extremum(aji_call *c, aji_packed *p) {
    aji_axis_attr *a = c->attr;
    aji_pairs in, out = {.data = NULL};
    aj_status status = aji_pairs_open(c, &in, a->op, aji_meta_numel(&p->x->meta), p->x);
    if (status == AJ_OK)
        status = aji_pairs_open(c, &out, a->op, aji_meta_numel(&p->y->meta), NULL);
    if (status == AJ_OK)
        status = aji_mpi_reduce_scatter(c, in.data, out.data, p->counts, in.type, in.op);
    aji_value *winner = status == AJ_OK ? aji_pairs_split(&out, p->y) : NULL;
    if (winner)
        a->winner = aji_move_front_to(winner, a->axis);
    aji_value_release(winner);
    aji_pairs_close(c, &in);
    aji_pairs_close(c, &out);
    return status;
}

static aj_status forward(aji_call *c) {
    const aji_axis_attr *a = c->attr;
    if (c->comm->size == 0)
        return aji_return_operand(c);
    aji_packed p;
    aj_status status = aji_packed_open(c, &p, true);
    if (status != AJ_OK)
        return status;
    return aji_packed_close(c, &p, aji_is_extremum(c, a->op) ? extremum(c, &p) : sum(c, &p));
}

/* (g, winner) in one allgather: as (before, axis, after), one behind the other along a new first axis. */
static aj_status extremum_vjp(aji_call *c) {
    const aji_axis_attr *a = c->attr;
    const aji_meta *x = &c->in_meta[0], *y = &c->out_meta[0];
    int64_t shape[3] = {1, y->shape[a->axis], 1};
    for (int i = 0; i < y->ndim; i++)
        if (i != a->axis)
            shape[i < a->axis ? 0 : 2] *= y->shape[i];
    aj_tensor *parts[2] = {aj_reshape(c->g_out[0], 3, shape), aj_reshape(aji_constant_on(a->winner, c->device), 3, shape)};
    aj_tensor *both = aji_allgather_parts(aj_stack(2, parts, 0), 2, a->parts, c->comm);
    c->g_in[0] = aj_reshape(aji_for_winner(c, aj_slice(both, 0, 0, 1, 1), aj_slice(both, 0, 1, 2, 1)), x->ndim, x->shape);
    return AJ_OK;
}

static aj_status vjp(aji_call *c) {
    const aji_axis_attr *a = c->attr;
    if (a->winner)
        return extremum_vjp(c);
    c->g_in[0] = a->parts ? aji_allgather_parts(c->g_out[0], a->axis, a->parts, c->comm) : c->g_out[0];
    return AJ_OK;
}

const aji_op aji_op_reduce_scatter = {
    .name = "aj_reduce_scatter",
    .maths = "y_k = part k of sum_r x_r or the extremum; gx_k = concatenation of g_r, for an extremum on its rank only",
    .flags = AJI_OP_COMM,
    .attr_size = sizeof(aji_axis_attr),
    .attr_free = aji_axis_attr_free,
    .infer = infer,
    .forward = forward,
    .vjp = vjp,
};

aj_tensor *aji_reduce_scatter_parts(aj_tensor *x, int axis, aji_parts *parts, aj_comm *comm) {
    aji_axis_attr a = {.axis = axis, .op = MPI_SUM, .parts = aji_parts_retain(parts)};
    return aji_comm_apply(&aji_op_reduce_scatter, &a, x, comm);
}

aj_tensor *aj_reduce_scatter(aj_tensor *x, int axis, int64_t numelem, MPI_Op op, aj_comm *comm) {
    aji_axis_attr a = {.axis = axis, .numelem = numelem, .op = op};
    return aji_comm_apply(&aji_op_reduce_scatter, &a, x, comm);
}
