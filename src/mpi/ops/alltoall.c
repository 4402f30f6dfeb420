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

/* What this rank and rank k have for each other: in x along the scatter axis, in y along the gather axis. */
static aji_span overlap(const int64_t *mine, const int64_t *theirs, int me, int k) {
    int64_t first = mine[me] > theirs[k] ? mine[me] : theirs[k];
    int64_t last = mine[me + 1] < theirs[k + 1] ? mine[me + 1] : theirs[k + 1];
    return last > first ? (aji_span){first - mine[me], last - first} : (aji_span){0, 0};
}

static aji_span span_to(const aji_call *c, int k) {
    const attr *a = c->attr;
    if (a->gather_axis == a->scatter_axis)
        return overlap(a->gather->first, a->scatter->first, c->comm->rank, k);
    return (aji_span){a->scatter->first[k], a->scatter->length[k]};
}

static aji_span span_from(const aji_call *c, int k) {
    const attr *a = c->attr;
    if (a->gather_axis == a->scatter_axis)
        return overlap(a->scatter->first, a->gather->first, c->comm->rank, k);
    return (aji_span){a->gather->first[k], a->gather->length[k]};
}

/* Entries that go to each rank, and that come from it: in arrays of size each. */
static void count(const aji_call *c, int64_t *to, int64_t *from) {
    const attr *a = c->attr;
    int64_t in_row = aji_row(&c->in_meta[0], a->scatter_axis), out_row = aji_row(&c->out_meta[0], a->gather_axis);
    for (int k = 0; k < c->comm->size; k++) {
        to[k] = in_row * span_to(c, k).length;
        from[k] = out_row * span_from(c, k).length;
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

/* The same number for all, on all ranks. */
static bool is_even(const aji_call *c) {
    const attr *a = c->attr;
    for (int k = 1; k < c->comm->size; k++)
        if (a->gather->length[k] != a->gather->length[0] || a->scatter->length[k] != a->scatter->length[0])
            return false;
    return a->gather_axis != a->scatter_axis;
}

static aj_status swap_blocks(const aji_call *c, const aji_value *x, aji_value *came) {
    MPI_Datatype type = aji_mpi_type(x->meta.dtype);
    int64_t all = whole(c), n = aji_meta_numel(&x->meta);
    if (all <= c->comm->most && is_even(c))
        return aji_mpi_alltoall(c, aji_value_data(x), aji_value_data(came), n / c->comm->size, type);
    size_t bytes = 2 * (size_t)c->comm->size * sizeof(int64_t);
    int64_t *to = aji_alloc(c->ctx, bytes), *from = to ? to + c->comm->size : NULL;
    if (!to)
        return AJ_ERR_MEMORY;
    count(c, to, from);
    aj_status status = aji_mpi_alltoallv(c, aji_value_data(x), to, aji_value_data(came), from, type, all);
    aji_free(c->ctx, to, bytes);
    return status;
}

static aj_status forward(aji_call *c) {
    const attr *a = c->attr;
    if (c->comm->size <= 1)
        return aji_return_operand(c);
    aj_device where = aji_mpi_device(c->device);
    aji_value *x = aji_pack_blocks(c, a->scatter_axis, span_to, where), *came = x ? aji_new_for_mpi(c, where) : NULL;
    aj_status status = came ? swap_blocks(c, x, came) : aj_ctx_status(c->ctx);
    if (status == AJ_OK)
        status = aji_unpack_blocks(c, came, a->gather_axis, span_from);
    aji_value_release(x);
    aji_value_release(came);
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
