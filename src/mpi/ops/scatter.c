/*
 * Scatter: y_k = part k of x_root along an axis; numelem is what THIS rank gets. x on other ranks is a placeholder. Its transpose is a gather:
 * gx_root = concatenation of g_k, zeros of the placeholder's own shape elsewhere.
 */
#include <string.h>

#include "mpi/parts.h"

/* The root's shape counts; the numelems of all ranks make the parts. */
static aj_status check_told(aji_call *c, const aji_told *told) {
    aji_axis_attr *a = c->attr;
    aj_status status = aji_check_told_root(c, told);
    if (status != AJ_OK)
        return status;
    const aji_told *root = &told[a->root];
    aji_meta *y = &c->out_meta[0];
    *y = (aji_meta){.dtype = (aj_dtype)root->dtype, .ndim = (int)root->ndim};
    memcpy(y->shape, root->shape, sizeof(y->shape));
    status = aji_check_told_axis(c, told, y->ndim, false, &a->axis);
    return status == AJ_OK ? aji_parts_from_numelems(c, told, a->parts, a->axis, y->shape[a->axis]) : status;
}

static aj_status exchange(aji_call *c) {
    aji_axis_attr *a = c->attr;
    a->parts = aji_parts_new(c->ctx, c->comm->size);
    aji_told *told = a->parts ? aji_tell(c, &(aji_told){.axis = a->axis, .root = a->root, .numelem = a->numelem}) : NULL;
    aj_status status = told ? check_told(c, told) : aj_ctx_status(c->ctx);
    aji_told_free(c, told);
    return status;
}

static aj_status infer(aji_call *c) {
    aji_axis_attr *a = c->attr;
    aj_status status = aji_check_root(c, a->root);
    if (status != AJ_OK || c->comm->size == 0)
        return status;
    if (!a->parts)
        status = exchange(c);
    if (status == AJ_OK)
        c->out_meta[0].shape[a->axis] = a->parts->length[c->comm->rank];
    return status;
}

static aj_status distribute(aji_call *c, const aji_packed *p) {
    const aji_axis_attr *a = c->attr;
    return aji_mpi_scatterv(c, p->in, p->counts, p->out, aji_mpi_type(c->in_meta[0].dtype), a->root);
}

static aj_status forward(aji_call *c) {
    bool is_root = c->comm->rank == ((const aji_axis_attr *)c->attr)->root;
    return aji_divide_run(c, is_root, aji_mpi_device(c->device), distribute);
}

static aj_status vjp(aji_call *c) {
    const aji_axis_attr *a = c->attr;
    if (!a->parts) {
        c->g_in[0] = c->g_out[0];
        return AJ_OK;
    }
    aj_tensor *g = aji_gather_parts(c->g_out[0], a->axis, a->root, a->parts, c->comm);
    c->g_in[0] = c->comm->rank == a->root ? g : NULL; /* a placeholder's gradient is zero */
    return AJ_OK;
}

const aji_op aji_op_scatter = {
    .name = "aj_scatter",
    .maths = "y_k = part k of x_root; gx_root = concatenation of g_k, 0 elsewhere",
    .flags = AJI_OP_COMM,
    .attr_size = sizeof(aji_axis_attr),
    .attr_free = aji_axis_attr_free,
    .infer = infer,
    .forward = forward,
    .vjp = vjp,
};

aj_tensor *aji_scatter_parts(aj_tensor *x, int axis, int root, aji_parts *parts, aj_comm *comm) {
    aji_axis_attr a = {.axis = axis, .root = root, .parts = aji_parts_retain(parts)};
    return aji_comm_apply(&aji_op_scatter, &a, x, comm);
}

aj_tensor *aj_scatter(aj_tensor *x, int axis, int64_t numelem, int root, aj_comm *comm) {
    aji_axis_attr a = {.axis = axis, .root = root, .numelem = numelem};
    return aji_comm_apply(&aji_op_scatter, &a, x, comm);
}
