/*
 * Scan and exscan: y_r = the reduction of x_k over k <= r, or k < r (zeros on rank 0).
 *
 * SUM: the transpose sums over the ranks that follow: the same operation on the ranks in reverse order. gx_k = sum of g_r over r >= k, or r > k.
 *
 * The others are recurrences y_{r+1} = f(y_r, x_r) on exclusive results, linear for small changes: with d_r and m_r the derivatives of f by x_r and y_r,
 *     gx_k = d_k h_k,  h_k = g_{k+1} + m_{k+1} h_{k+1} = sum over r > k of g_r times the product of m_i over k < i < r
 * which is an affine scan in reverse order. PROD: d = y, m = x. MAX, MIN: d = 1 where x sets a new record, else 0; m = 1 - d. A registered operation: by its
 * derivative, which is linear in the gradient. An inclusive result is an exclusive one and one step more, on this rank. Of a product the step is made in the
 * operation itself, before the exclusive result is rounded: it may be out of range where the inclusive one is not.
 */
#include "mpi/product.h"
#include "mpi/reductions.h"

typedef struct attr {
    aji_rank_reduction reduction;
    bool reversed;
} attr;

static void attr_free(aj_ctx *ctx, void *a) {
    aji_reduction_release(ctx, &((attr *)a)->reduction);
}

bool aji_is_first(const aj_comm *comm, bool reversed) {
    return comm->rank == (reversed ? comm->size - 1 : 0);
}

static aj_status infer(aji_call *c) {
    return aji_check_reduction(c, &((attr *)c->attr)->reduction);
}

/* ---- forward ---- */

static aj_status by_records(aji_call *c, const aji_value *x, aji_value *y) {
    attr *a = c->attr;
    aji_records r;
    aj_status status = aji_reduction_open(c, &a->reduction, &r, aji_meta_numel(&x->meta), x);
    if (status == AJ_OK)
        status = aji_mpi_scan(c, a->reversed, true, MPI_IN_PLACE, r.data, r.n, r.type, r.op);
    if (status == AJ_OK)
        aji_reduction_take(&a->reduction, &r, y);
    aji_records_close(c, &r);
    return status;
}

static aj_status direct(aji_call *c, bool exclusive, const aji_value *x, aji_value *y) {
    const attr *a = c->attr;
    return aji_mpi_scan(c, a->reversed, exclusive, aji_value_data(x), aji_value_data(y), aji_meta_numel(&x->meta),
                        aji_mpi_type(x->meta.dtype), a->reduction.op);
}

/* In reverse order the operands come exchanged. */
static aj_status exchanged(aji_call *c, const aji_value *x, aji_value *y) {
    aji_exchanged e;
    aj_status status = aji_exchanged_open(c, &e, ((attr *)c->attr)->reduction.user, aji_mpi_type(x->meta.dtype));
    if (status == AJ_OK)
        status = aji_mpi_scan(c, true, true, aji_value_data(x), aji_value_data(y), aji_meta_numel(&x->meta), e.type,
                              aji_mpi_of(c->ctx)->exchanged);
    aji_exchanged_close(&e);
    return status;
}

static aj_status forward(aji_call *c, bool exclusive) {
    const attr *a = c->attr;
    if (c->comm->size == 0)
        return aji_return_operand(c);
    aj_device where = aji_reduction_device(c, &a->reduction);
    aji_value *x = aji_value_on(c->x[0], where), *y = x ? aji_new_for_mpi(c, where) : NULL;
    aj_status status = !y                                 ? aj_ctx_status(c->ctx)
                       : aji_by_records(c, &a->reduction) ? by_records(c, x, y)
                       : a->reduction.user && a->reversed ? exchanged(c, x, y)
                                                          : direct(c, exclusive, x, y);
    aji_value_release(x);
    if (status == AJ_OK && exclusive && aji_is_first(c->comm, a->reversed)) { /* MPI leaves it undefined */
        aji_value_release(y);
        y = aji_value_full(c->ctx, c->device, &c->out_meta[0], 0);
    }
    return aji_from_host(c, y, status);
}

static aj_status forward_scan(aji_call *c) {
    return forward(c, false);
}

static aj_status forward_exscan(aji_call *c) {
    return forward(c, true);
}

/* ---- adjoints ---- */

static aj_status vjp_of_sum(aji_call *c) {
    const attr *a = c->attr;
    attr back = {{.op = a->reduction.op}, !a->reversed};
    c->g_in[0] = aji_comm_apply(c->op, &back, c->g_out[0], c->comm);
    return AJ_OK;
}

/* Where x sets a new record: u8. NaN is one, the first of them. */
static aj_tensor *sets_record(aj_tensor *x, aj_tensor *before, MPI_Op op) {
    aj_tensor *beyond = op == MPI_MAX ? aj_gt(x, before) : aj_lt(x, before);
    return aj_maximum(beyond, aj_minimum(aj_ne(x, x), aj_eq(before, before)));
}

/* f(before, x) of a registered operation. */
static aj_tensor *combined(const attr *a, aj_tensor *before, aj_tensor *x) {
    return a->reversed ? aji_combine(a->reduction.user, x, before) : aji_combine(a->reduction.user, before, x);
}

/* d h from h, and m. `first`: there is nothing before, and f(., x) = x. */
static aj_tensor *step_vjp(const attr *a, bool first, aj_tensor *before, aj_tensor *x, aj_tensor *h) {
    MPI_Op op = a->reduction.op;
    if (first)
        return h;
    if (op == MPI_PROD)
        return aji_weigh(h, before);
    if (op == MPI_MAX || op == MPI_MIN)
        return aj_where(sets_record(x, before, op), h, aji_zeros_like(x));
    aji_user_op *u = a->reduction.user;
    aj_tensor *y = combined(a, before, x);
    return a->reversed ? aji_user_vjp(u, NULL, x, before, y, h) : aji_user_vjp(u, before, x, NULL, y, h);
}

static aj_tensor *step_factor(const attr *a, bool first, aj_tensor *before, aj_tensor *x) {
    MPI_Op op = a->reduction.op;
    if (op == MPI_PROD)
        return x;
    if (first)
        return aji_zeros_like(x);
    if (op == MPI_MAX || op == MPI_MIN)
        return aj_where(sets_record(x, before, op), aji_zeros_like(x), aji_full_like(x, 1));
    aji_user_op *u = a->reduction.user;
    aj_tensor *y = combined(a, before, x), *one = aji_full_like(x, 1);
    return a->reversed ? aji_user_vjp(u, x, before, NULL, y, one) : aji_user_vjp(u, NULL, before, x, y, one);
}

static aj_status vjp(aji_call *c) {
    const attr *a = c->attr;
    bool first = aji_is_first(c->comm, a->reversed);
    aj_tensor *x = c->in[0], *before = c->out[0];
    c->g_in[0] = c->g_out[0];
    if (c->comm->size > 0)
        c->g_in[0] =
            step_vjp(a, first, before, x, aji_affine_scan(c->g_out[0], step_factor(a, first, before, x), !a->reversed, c->comm));
    return AJ_OK;
}

const aji_op aji_op_scan = {
    .name = "aj_scan",
    .maths = "y_r = sum_{k <= r} x_k; gx_k = sum_{r >= k} g_r",
    .flags = AJI_OP_COMM,
    .attr_size = sizeof(attr),
    .attr_free = attr_free,
    .infer = infer,
    .forward = forward_scan,
    .vjp = vjp_of_sum,
};
const aji_op aji_op_exscan = {
    .name = "aj_exscan",
    .maths = "y_r = sum_{k < r} x_k, 0 on rank 0; gx_k = sum_{r > k} g_r",
    .flags = AJI_OP_COMM,
    .attr_size = sizeof(attr),
    .attr_free = attr_free,
    .infer = infer,
    .forward = forward_exscan,
    .vjp = vjp_of_sum,
};
/* Of other reductions: the same call, by its name, and the one that a scan begins with. */
#define PREFIX                                                                                                                   \
    .maths = "y_{r+1} = f(y_r, x_r), 0 on rank 0; gx_k = df/dx_k h_k, h_k = g_{k+1} + df/dy_{k+1} h_{k+1}",                      \
    .flags = AJI_OP_COMM, .need = AJI_NEED_IN(0) | AJI_NEED_OUT, .attr_size = sizeof(attr), .attr_free = attr_free,              \
    .infer = infer, .forward = forward_exscan, .vjp = vjp
static const aji_op prefix_of_scan = {.name = "aj_scan", PREFIX};
static const aji_op prefix = {.name = "aj_exscan", PREFIX};

/* ---- inclusive products: results are the product through this rank, and that before it ---- */

static aj_status infer_products(aji_call *c) {
    aj_status status = infer(c);
    c->out_meta[1] = c->out_meta[0];
    return status;
}

static aj_status scan_products(aji_call *c, const aji_value *x, aji_value *through, aji_value *before) {
    const attr *a = c->attr;
    aji_records r;
    aj_status status = aji_reduction_open(c, &a->reduction, &r, aji_meta_numel(&x->meta), x);
    if (status == AJ_OK)
        status = aji_mpi_scan(c, false, true, MPI_IN_PLACE, r.data, r.n, r.type, r.op);
    if (status == AJ_OK)
        aji_product_through(&r, x, aji_is_first(c->comm, false), before, through);
    aji_records_close(c, &r);
    return status;
}

static aj_status forward_products(aji_call *c) {
    aji_value *x = aji_to_host(c->x[0]), *through = x ? aji_new_on_host(c) : NULL, *before = through ? aji_new_on_host(c) : NULL;
    aj_status status = before ? scan_products(c, x, through, before) : aj_ctx_status(c->ctx);
    if (status == AJ_OK) {
        c->y[0] = aji_value_on(through, c->device);
        c->y[1] = aji_value_on(before, c->device);
        status = c->y[0] && c->y[1] ? AJ_OK : aj_ctx_status(c->ctx);
    }
    aji_value_release(x);
    aji_value_release(through);
    aji_value_release(before);
    return status;
}

/* through = before x is a step of the recurrence and has its part of both gradients; on the first rank it is x. */
static aj_status vjp_of_products(aji_call *c) {
    bool first = aji_is_first(c->comm, false);
    aj_tensor *x = c->in[0], *before = c->out[1], *g = c->g_out[0];
    aj_tensor *of_before = first ? c->g_out[1] : aj_add(c->g_out[1], aji_weigh(g, x));
    aj_tensor *h = aji_affine_scan(of_before, x, true, c->comm);
    c->g_in[0] = first ? aj_add(g, h) : aj_add(aji_weigh(g, before), aji_weigh(h, before));
    return AJ_OK;
}

static const aji_op scan_of_products = {
    .name = "aj_scan",
    .maths = "y_r = product of x_k over k <= r, b_r = over k < r; gx_k = b_k (g_k + h_k), h_k = sum_{r > k} x_r g_r prod_{k < i "
             "< r} x_i",
    .flags = AJI_OP_COMM,
    .need = AJI_NEED_IN(0) | AJI_NEED_OUT,
    .attr_size = sizeof(attr),
    .attr_free = attr_free,
    .infer = infer_products,
    .forward = forward_products,
    .vjp = vjp_of_products,
};

/* ---- the calls ---- */

aj_tensor *aji_prefix(aj_tensor *x, MPI_Op op, aji_user_op *user, bool reversed, aj_comm *comm) {
    attr a = {{.op = op, .user = user ? aji_user_op_retain(user) : NULL}, reversed};
    return aji_comm_apply(&prefix, &a, x, comm);
}

/* Is it a recurrence with a derivative? */
static bool steps(const aj_tensor *x, MPI_Op op, const aj_comm *comm) {
    if (!x || !comm || !aji_dtype_is_float(aj_tensor_dtype(x)))
        return false;
    return op == MPI_PROD || op == MPI_MAX || op == MPI_MIN || aji_user_op_find(comm->ctx, op);
}

aj_tensor *aj_scan(aj_tensor *x, MPI_Op op, aj_comm *comm) {
    attr a = {{.op = op}, false};
    if (!steps(x, op, comm))
        return aji_comm_apply(&aji_op_scan, &a, x, comm);
    if (op == MPI_PROD && comm->size > 0)
        return aji_comm_apply_first(&scan_of_products, &a, x, comm);
    aj_tensor *before = aji_comm_apply(&prefix_of_scan, &a, x, comm);
    if (!before || comm->size == 0)
        return before;
    if (comm->rank == 0)
        return aj_join_dummies(x, 1, &before);
    if (op == MPI_MAX || op == MPI_MIN)
        return aj_where(sets_record(x, before, op), x, before);
    return aji_combine(aji_user_op_find(comm->ctx, op), before, x);
}

aj_tensor *aj_exscan(aj_tensor *x, MPI_Op op, aj_comm *comm) {
    attr a = {{.op = op}, false};
    return aji_comm_apply(steps(x, op, comm) ? &prefix : &aji_op_exscan, &a, x, comm);
}
