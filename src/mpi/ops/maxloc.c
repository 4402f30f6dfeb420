/* Maxloc and minloc: the extremum over the ranks, entry by entry, and the lowest rank that holds it. gx = sum_r g_r on that rank, 0 elsewhere. */
#include "mpi/extremum.h"

static aj_status infer(aji_call *c) {
    if (!aji_dtype_is_float(c->in_meta[0].dtype))
        return aj_raise(c->ctx, AJ_ERR_DTYPE, "%s: the operand is %s; expected f64 or f32 (see aj_cast)", c->op->name,
                        aj_dtype_name(c->in_meta[0].dtype));
    c->out_meta[0] = c->out_meta[1] = c->in_meta[0];
    c->out_meta[1].dtype = AJ_I64;
    return AJ_OK;
}

/* Ranks as numbers of a floating dtype, as i64. */
static aji_value *as_integers(aji_call *c, const aji_value *winner) {
    aji_value *ranks = aji_value_new(c->ctx, aj_cpu(c->ctx), &c->out_meta[1]);
    int64_t *to = ranks ? aji_value_data(ranks) : NULL;
    const void *from = aji_value_data(winner);
    for (int64_t i = 0; ranks && i < aji_meta_numel(&winner->meta); i++)
        to[i] = (int64_t)(winner->meta.dtype == AJ_F64 ? ((const double *)from)[i] : ((const float *)from)[i]);
    return ranks;
}

/* y and winner: on the host, this call's own references. */
static aj_status results(aji_call *c, aji_value *y, const aji_value *winner) {
    aji_value *ranks = as_integers(c, winner);
    c->y[0] = aji_value_on(y, c->device);
    c->y[1] = ranks ? aji_value_on(ranks, c->device) : NULL;
    aji_value_release(ranks);
    return c->y[0] && c->y[1] ? AJ_OK : aj_ctx_status(c->ctx);
}

static aj_status forward(aji_call *c, MPI_Op op) {
    aji_value *x = aji_to_host(c->x[0]), *y = x ? aji_new_on_host(c) : NULL, *winner = NULL;
    aji_pairs p = {.data = NULL};
    aj_status status = y ? aji_pairs_open(c, &p, op, aji_meta_numel(&x->meta), x) : aj_ctx_status(c->ctx);
    if (status == AJ_OK && c->comm->size > 0)
        status = aji_mpi_allreduce(c, MPI_IN_PLACE, p.data, p.n, p.type, p.op);
    if (status == AJ_OK)
        winner = aji_pairs_split(&p, y);
    if (winner)
        status = results(c, y, winner);
    else if (status == AJ_OK)
        status = aj_ctx_status(c->ctx);
    aji_pairs_close(c, &p);
    aji_value_release(winner);
    aji_value_release(x);
    aji_value_release(y);
    return status;
}

static aj_status forward_max(aji_call *c) {
    return forward(c, MPI_MAX);
}

static aj_status forward_min(aji_call *c) {
    return forward(c, MPI_MIN);
}

static aj_status vjp(aji_call *c) {
    c->g_in[0] = aji_for_winner(c, aj_allreduce(c->g_out[0], MPI_SUM, c->comm), c->out[1]);
    return AJ_OK;
}

const aji_op aji_op_maxloc = {
    .name = "aj_maxloc",
    .maths = "y = max_k x_k, rank = the lowest k that holds it; gx = sum_r g_r there, 0 elsewhere",
    .flags = AJI_OP_COMM,
    .need = AJI_NEED_OUT,
    .infer = infer,
    .forward = forward_max,
    .vjp = vjp,
};
const aji_op aji_op_minloc = {
    .name = "aj_minloc",
    .maths = "y = min_k x_k, rank = the lowest k that holds it; gx = sum_r g_r there, 0 elsewhere",
    .flags = AJI_OP_COMM,
    .need = AJI_NEED_OUT,
    .infer = infer,
    .forward = forward_min,
    .vjp = vjp,
};

aj_status aj_maxloc(aj_tensor *x, aj_comm *comm, aj_tensor **value, aj_tensor **rank) {
    return aji_comm_apply_two(&aji_op_maxloc, x, comm, value, rank);
}

aj_status aj_minloc(aj_tensor *x, aj_comm *comm, aj_tensor **value, aj_tensor **rank) {
    return aji_comm_apply_two(&aji_op_minloc, x, comm, value, rank);
}
