/*
 * Alltoall: y_r = the parts of x_k along scatter_axis that belong to rank r, one after the other along gather_axis; numelem is what THIS rank gets along
 * scatter_axis. Its transpose is an alltoall with the axes swapped. With equal axes: the axis is divided anew, from the old lengths to the numelems; the
 * transpose divides it back.
 */
#include "mpi/parts.h"

typedef struct attr {
    int gather_axis, scatter_axis;
    int64_t numelem;
    aji_parts *gather,
        *scatter; /* the ranks' lengths along each axis: before along gather_axis, after along scatter_axis. NULL: to be exchanged */
} attr;

static void attr_free(aj_ctx *ctx, void *at) {
    attr *a = at;
    aji_parts_release(ctx, a->gather);
    aji_parts_release(ctx, a->scatter);
}

/* What each rank will have can be addressed. */
static aj_status check_results(const aji_call *c) {
    const attr *a = c->attr;
    aj_status status = AJ_OK;
    for (int k = 0; k < c->comm->size && status == AJ_OK; k++) {
        aji_meta y = c->in_meta[0];
        y.shape[a->gather_axis] = a->gather->first[c->comm->size];
        y.shape[a->scatter_axis] = a->scatter->length[k];
        status = aji_check_result(c, &y);
    }
    return status;
}

static aj_status check_told(aji_call *c, const aji_told *told) {
    attr *a = c->attr;
    aj_status status = aji_check_told(c, told, false, &a->gather_axis, &a->scatter_axis);
    if (status != AJ_OK)
        return status;
    for (int k = 0; k < c->comm->size; k++)
        a->gather->length[k] = told[k].shape[a->gather_axis];
    aji_parts_close(a->gather);
    int64_t whole = a->gather_axis == a->scatter_axis ? a->gather->first[c->comm->size] : told[0].shape[a->scatter_axis];
    status = aji_parts_from_numelems(c, told, a->scatter, a->scatter_axis, whole);
    return status == AJ_OK ? check_results(c) : status;
}

static aj_status exchange(aji_call *c) {
    attr *a = c->attr;
    a->gather = aji_parts_new(c->ctx, c->comm->size);
    a->scatter = a->gather ? aji_parts_new(c->ctx, c->comm->size) : NULL;
    aji_told mine = {.axis = a->gather_axis, .other_axis = a->scatter_axis, .numelem = a->numelem};
    aji_told *told = a->scatter ? aji_tell(c, &mine) : NULL;
    aj_status status = told ? check_told(c, told) : aj_ctx_status(c->ctx);
    aji_told_free(c, told);
    return status;
}

static aj_status infer(aji_call *c) {
    attr *a = c->attr;
    aji_meta *y = &c->out_meta[0];
    *y = c->in_meta[0];
    if (c->comm->size == 0)
        return AJ_OK;
    aj_status status = a->gather ? AJ_OK : exchange(c);
    if (status != AJ_OK)
        return status;
    y->shape[a->gather_axis] = a->gather->first[a->gather->size];
    y->shape[a->scatter_axis] = a->scatter->length[c->comm->rank];
    return AJ_OK;
}

/* Entries that go to each rank, and that come from it: in arrays of size each. */
static void count(const aji_call *c, int64_t *to, int64_t *from) {
    const attr *a = c->attr;
    int me = c->comm->rank;
    int64_t row = 1; /* of the axes that are neither */
    for (int i = 0; i < c->in_meta[0].ndim; i++)
        row *= i == a->gather_axis || i == a->scatter_axis ? 1 : c->in_meta[0].shape[i];
    for (int k = 0; k < c->comm->size; k++) {
        if (a->gather_axis != a->scatter_axis) {
            to[k] = row * a->gather->length[me] * a->scatter->length[k];
            from[k] = row * a->gather->length[k] * a->scatter->length[me];
            continue;
        }
        /* what this rank has of k's new part; what k has of this rank's */
        const int64_t *old = a->gather->first, *new = a->scatter->first;
        int64_t sent = (old[me + 1] < new[k + 1] ? old[me + 1] : new[k + 1]) - (old[me] > new[k] ? old[me] : new[k]);
        int64_t got = (old[k + 1] < new[me + 1] ? old[k + 1] : new[me + 1]) - (old[k] > new[me] ? old[k] : new[me]);
        to[k] = sent > 0 ? row * sent : 0;
        from[k] = got > 0 ? row * got : 0;
    }
}

/* Entries of all ranks together. */
static int64_t whole(const aji_call *c) {
    const attr *a = c->attr;
    int64_t n = a->gather->first[c->comm->size];
    for (int i = 0; i < c->in_meta[0].ndim; i++)
        if (i != a->gather_axis)
            n *= i == a->scatter_axis ? a->scatter->first[c->comm->size] : c->in_meta[0].shape[i];
    return n;
}

/* The block that came from rank k, into its place in y. Blocks have the scatter axis in front; so has `front`, a view on y. */
static aj_status place_block(const aji_call *c, aji_value *came, int64_t *offset, aji_value *front, int k) {
    const attr *a = c->attr;
    int along = a->gather_axis < a->scatter_axis ? a->gather_axis + 1 : a->gather_axis;
    aji_meta meta = front->meta;
    meta.shape[along] = a->gather->length[k];
    int64_t strides[AJ_MAX_NDIM], stride = 1;
    for (int i = meta.ndim - 1; i >= 0; i--) {
        strides[i] = stride;
        stride *= meta.shape[i];
    }
    aji_value *from = aji_value_view(came, &meta, strides, *offset);
    aji_value *to =
        from ? aji_value_view(front, &meta, front->strides, front->offset + a->gather->first[k] * front->strides[along]) : NULL;
    aj_status status = to ? aji_do_copy(c->op->name, from, to) : aj_ctx_status(c->ctx);
    aji_value_release(from);
    aji_value_release(to);
    *offset += aji_meta_numel(&meta);
    return status;
}

static aj_status place_blocks(aji_call *c, aji_value *came) {
    const attr *a = c->attr;
    if (a->gather_axis == a->scatter_axis) { /* in order already */
        aji_value *y = aji_move_front_to(came, a->scatter_axis);
        return aji_from_host(c, y, AJ_OK);
    }
    aji_value *y = aji_new_on_host(c), *front = y ? aji_move_to_front(y, a->scatter_axis) : NULL;
    aj_status status = front ? AJ_OK : aj_ctx_status(c->ctx);
    int64_t offset = 0;
    for (int k = 0; k < c->comm->size && status == AJ_OK; k++)
        status = place_block(c, came, &offset, front, k);
    aji_value_release(front);
    return aji_from_host(c, y, status);
}

static aj_status forward(aji_call *c) {
    const attr *a = c->attr;
    if (c->comm->size == 0)
        return aji_return_operand(c);
    size_t bytes = 2 * (size_t)c->comm->size * sizeof(int64_t);
    int64_t *to = aji_alloc(c->ctx, bytes), *from = to ? to + c->comm->size : NULL;
    aji_value *x = to ? aji_pack(c->x[0], a->scatter_axis) : NULL, *came = x ? aji_new_packed(c, a->scatter_axis) : NULL;
    aj_status status = aj_ctx_status(c->ctx);
    if (came) {
        count(c, to, from);
        status = aji_mpi_alltoallv(c, aji_value_data(x), to, aji_value_data(came), from, aji_mpi_type(x->meta.dtype), whole(c));
    }
    if (status == AJ_OK)
        status = place_blocks(c, came);
    aji_value_release(x);
    aji_value_release(came);
    aji_free(c->ctx, to, bytes);
    return status;
}

static aj_tensor *apply(aj_tensor *x, const attr *a, aj_comm *comm);

static aj_status vjp(aji_call *c) {
    const attr *a = c->attr;
    attr back = {.gather_axis = a->scatter_axis, .scatter_axis = a->gather_axis, .gather = a->scatter, .scatter = a->gather};
    c->g_in[0] = a->gather ? apply(c->g_out[0], &back, c->comm) : c->g_out[0];
    return AJ_OK;
}

const aji_op aji_op_alltoall = {
    .name = "aj_alltoall",
    .maths = "y_r = parts r of x_k, concatenated; gx by alltoall with the axes swapped",
    .flags = AJI_OP_COMM,
    .attr_size = sizeof(attr),
    .attr_free = attr_free,
    .infer = infer,
    .forward = forward,
    .vjp = vjp,
};

static aj_tensor *apply(aj_tensor *x, const attr *a, aj_comm *comm) {
    if (a->gather) {
        aji_parts_retain(a->gather);
        aji_parts_retain(a->scatter);
    }
    return aji_comm_apply(&aji_op_alltoall, a, x, comm);
}

aj_tensor *aj_alltoall(aj_tensor *x, int gather_axis, int scatter_axis, int64_t numelem, aj_comm *comm) {
    attr a = {.gather_axis = gather_axis, .scatter_axis = scatter_axis, .numelem = numelem};
    return apply(x, &a, comm);
}
