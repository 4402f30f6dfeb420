/*
 * Scan and exscan: y_r = sum of x_k over k <= r, or k < r (zeros on rank 0). The transpose sums over the ranks that follow: the same operation on the ranks
 * in reverse order. gx_k = sum of g_r over r >= k, or r > k.
 */
#include <string.h>

#include "mpi/comm_internal.h"

typedef struct attr {
    MPI_Op op;
    bool reversed;
} attr;

static aj_status infer(aji_call *c) {
    return aji_check_reduction(c, ((const attr *)c->attr)->op, false);
}

static aj_status forward(aji_call *c, bool exclusive) {
    const attr *a = c->attr;
    aj_comm *comm = c->comm;
    if (comm->size == 0)
        return aji_return_operand(c);
    aji_value *x = aji_to_host(c->x[0]), *y = x ? aji_new_on_host(c) : NULL;
    aj_status status = y ? aji_mpi_scan(c, a->reversed, exclusive, aji_value_data(x), aji_value_data(y), aji_meta_numel(&x->meta),
                                        aji_mpi_type(x->meta.dtype), a->op)
                         : aj_ctx_status(c->ctx);
    bool is_first = comm->rank == (a->reversed ? comm->size - 1 : 0);
    if (status == AJ_OK && exclusive && is_first) /* MPI leaves it undefined */
        memset(aji_value_data(y), 0, (size_t)aji_meta_numel(&y->meta) * aj_dtype_size(y->meta.dtype));
    aji_value_release(x);
    if (status == AJ_OK)
        return aji_from_host(c, y);
    aji_value_release(y);
    return status;
}

static aj_status forward_scan(aji_call *c) {
    return forward(c, false);
}

static aj_status forward_exscan(aji_call *c) {
    return forward(c, true);
}

static aj_status vjp(aji_call *c) {
    const attr *a = c->attr;
    attr back = {a->op, !a->reversed};
    c->g_in[0] = aji_comm_apply(c->op, &back, c->g_out[0], c->comm);
    return AJ_OK;
}

const aji_op aji_op_scan = {
    .name = "aj_scan",
    .maths = "y_r = sum_{k <= r} x_k; gx_k = sum_{r >= k} g_r",
    .flags = AJI_OP_COMM,
    .attr_size = sizeof(attr),
    .infer = infer,
    .forward = forward_scan,
    .vjp = vjp,
};
const aji_op aji_op_exscan = {
    .name = "aj_exscan",
    .maths = "y_r = sum_{k < r} x_k, 0 on rank 0; gx_k = sum_{r > k} g_r",
    .flags = AJI_OP_COMM,
    .attr_size = sizeof(attr),
    .infer = infer,
    .forward = forward_exscan,
    .vjp = vjp,
};

aj_tensor *aj_scan(aj_tensor *x, MPI_Op op, aj_comm *comm) {
    attr a = {op, false};
    return aji_comm_apply(&aji_op_scan, &a, x, comm);
}

aj_tensor *aj_exscan(aj_tensor *x, MPI_Op op, aj_comm *comm) {
    attr a = {op, false};
    return aji_comm_apply(&aji_op_exscan, &a, x, comm);
}
