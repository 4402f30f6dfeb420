/* Maxloc and minloc: the extremum over the ranks, entry by entry, and the lowest rank that holds it. gx = sum_r g_r on that rank, 0 elsewhere. */
#include "mpi/extremum.h"

static aj_status infer(aji_call *c) {
    c->out_meta[0] = c->out_meta[1] = c->in_meta[0];
    c->out_meta[1].dtype = AJ_I64;
    return AJ_OK;
}

/* x, y, ranks: contiguous, in host memory. */
static aj_status reduce(aji_call *c, bool largest, const aji_value *x, aji_value *y, aji_value *ranks) {
    bool floating = aji_dtype_is_float(x->meta.dtype);
    aji_own own = floating ? (largest ? AJI_OWN_MAX : AJI_OWN_MIN) : largest ? AJI_OWN_WHOLE_MAX : AJI_OWN_WHOLE_MIN;
    aji_records r;
    aj_status status =
        aji_records_open(c, &r, floating ? &aji_extremum_records : &aji_whole_extremum_records, own, aji_meta_numel(&x->meta), x);
    if (status == AJ_OK && c->comm->size > 0)
        status = aji_mpi_allreduce(c, MPI_IN_PLACE, r.data, r.n, r.type, r.op);
    if (status == AJ_OK)
        r.kind->take(r.data, r.n, y, &ranks);
    aji_records_close(c, &r);
    return status;
}

static aj_status forward(aji_call *c, bool largest) {
    aji_value *x = aji_to_host(c->x[0]), *y = x ? aji_new_on_host(c) : NULL;
    aji_value *ranks = y ? aji_value_new(c->ctx, aj_cpu(c->ctx), &c->out_meta[1]) : NULL;
    aj_status status = ranks ? reduce(c, largest, x, y, ranks) : aj_ctx_status(c->ctx);
    if (status == AJ_OK) {
        c->y[0] = aji_value_on(y, c->device);
        c->y[1] = aji_value_on(ranks, c->device);
        status = c->y[0] && c->y[1] ? AJ_OK : aj_ctx_status(c->ctx);
    }
    aji_value_release(x);
    aji_value_release(y);
    aji_value_release(ranks);
    return status;
}

static aj_status forward_max(aji_call *c) {
    return forward(c, true);
}

static aj_status forward_min(aji_call *c) {
    return forward(c, false);
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
