/*
 * Reduce: y_root = sum_k x_k or an extremum, zeros elsewhere. The transpose is a broadcast: gx_k = g_root; g on other ranks is ignored. Of an extremum the
 * root broadcasts the ranks that hold it with the gradient, and only those take it.
 */
#include "mpi/extremum.h"

static aj_status infer(aji_call *c) {
    const aji_reduction_attr *a = c->attr;
    aj_status status = aji_check_root(c, a->root);
    return status == AJ_OK ? aji_check_reduction(c, a->op, true) : status;
}

static aj_status sum(aji_call *c, const aji_value *x, aji_value *y, bool in_place) {
    const aji_reduction_attr *a = c->attr;
    return aji_mpi_reduce(c, in_place ? MPI_IN_PLACE : aji_value_data(x), y ? aji_value_data(y) : NULL, aji_meta_numel(&x->meta),
                          aji_mpi_type(x->meta.dtype), a->op, a->root);
}

static aj_status extremum(aji_call *c, const aji_value *x, aji_value *y) {
    aji_reduction_attr *a = c->attr;
    aji_pairs p;
    aj_status status = aji_pairs_open(c, &p, a->op, aji_meta_numel(&x->meta), x);
    if (status == AJ_OK)
        status = aji_mpi_reduce(c, y ? MPI_IN_PLACE : p.data, y ? p.data : NULL, p.n, p.type, p.op, a->root);
    if (status == AJ_OK && y && !(a->winner = aji_pairs_split(&p, y)))
        status = aj_ctx_status(c->ctx);
    aji_pairs_close(c, &p);
    return status;
}

static aj_status forward(aji_call *c) {
    const aji_reduction_attr *a = c->attr;
    if (c->comm->size == 0)
        return aji_return_operand(c);
    bool is_root = c->comm->rank == a->root, in_place = is_root && aji_is_host(c->device) && aji_may_overwrite(c);
    aji_value *x = aji_to_host(c->x[0]), *y = NULL; /* y: on the root only */
    aj_status status = x ? AJ_OK : aj_ctx_status(c->ctx);
    if (x && is_root && !(y = in_place ? aji_value_retain(c->x[0]) : aji_new_on_host(c)))
        status = aj_ctx_status(c->ctx);
    if (status == AJ_OK)
        status = aji_is_extremum(c, a->op) ? extremum(c, x, y) : sum(c, x, y, in_place);
    aji_value_release(x);
    if (status == AJ_OK && is_root)
        return aji_from_host(c, y);
    aji_value_release(y);
    if (status == AJ_OK && !(c->y[0] = aji_value_full(c->ctx, c->device, &c->out_meta[0], 0)))
        status = aj_ctx_status(c->ctx);
    return status;
}

/* (g, winner) in one message, flat. */
static aj_status extremum_vjp(aji_call *c) {
    const aji_reduction_attr *a = c->attr;
    const aji_meta *m = &c->in_meta[0];
    int64_t n = aji_meta_numel(m);
    aj_tensor *winner = a->winner ? aji_constant_on(a->winner, c->device) : aji_zeros_like(c->g_out[0]);
    aj_tensor *parts[2] = {aj_reshape(c->g_out[0], 1, &n), aj_reshape(winner, 1, &n)};
    aj_tensor *both = aj_bcast(aj_concat(2, parts, 0), a->root, c->comm);
    aj_tensor *g = aj_slice(both, 0, 0, n, 1), *holder = aj_slice(both, 0, n, 2 * n, 1);
    c->g_in[0] = aj_reshape(aji_for_winner(c, g, holder), m->ndim, m->shape);
    return AJ_OK;
}

static aj_status vjp(aji_call *c) {
    const aji_reduction_attr *a = c->attr;
    if (c->comm->size > 0 && aji_is_extremum(c, a->op))
        return extremum_vjp(c);
    c->g_in[0] = aj_bcast(c->g_out[0], a->root, c->comm);
    return AJ_OK;
}

const aji_op aji_op_reduce = {
    .name = "aj_reduce",
    .maths = "y_root = sum_k x_k or the extremum, 0 elsewhere; gx_k = g_root, for an extremum on its rank only",
    .flags = AJI_OP_COMM,
    .attr_size = sizeof(aji_reduction_attr),
    .attr_free = aji_reduction_attr_free,
    .infer = infer,
    .forward = forward,
    .vjp = vjp,
};
const aji_op aji_op_reduce_inplace = {
    .name = "aj_reduce_inplace",
    .maths = "y_root = sum_k x_k or the extremum, 0 elsewhere; gx_k = g_root, for an extremum on its rank only; consumes x",
    .flags = AJI_OP_COMM | AJI_OP_CONSUMES,
    .attr_size = sizeof(aji_reduction_attr),
    .attr_free = aji_reduction_attr_free,
    .infer = infer,
    .forward = forward,
    .vjp = vjp,
};

aj_tensor *aj_reduce(aj_tensor *x, MPI_Op op, int root, aj_comm *comm) {
    aji_reduction_attr a = {.op = op, .root = root};
    return aji_comm_apply(&aji_op_reduce, &a, x, comm);
}

aj_tensor *aj_reduce_inplace(aj_tensor *x, MPI_Op op, int root, aj_comm *comm) {
    aji_reduction_attr a = {.op = op, .root = root};
    return aji_comm_apply(&aji_op_reduce_inplace, &a, x, comm);
}
