/*
 * Halo exchange: ghosts filled from the Cartesian neighbours, axis by axis, so that corners arrive by way of a side neighbour. It is made of messages and
 * in-place windows, which bring their adjoints along: ghost gradients go home and are added, axes in reverse order; filled ghosts get zero, and at an
 * edge without a neighbour ghosts keep their numbers and their gradients.
 */
#include "mpi/comm_internal.h"

/* ---- a face in memory of its own: a message that is a view would keep the field from being overwritten ---- */

static aj_status pack_forward(aji_call *c) {
    c->y[0] = aji_value_copy(c->x[0]);
    return c->y[0] ? AJ_OK : aj_ctx_status(c->ctx);
}

static aj_status pack_vjp(aji_call *c) {
    c->g_in[0] = c->g_out[0];
    return AJ_OK;
}

static const aji_op aji_op_pack = {.name = "aj_halo", .maths = "y = x; gx = g", .forward = pack_forward, .vjp = pack_vjp};

static aj_tensor *packed_face(aj_tensor *x, int axis, int64_t start, int64_t width) {
    aj_tensor *view = aj_slice(x, axis, start, start + width, 1), *face = aji_apply1(&aji_op_pack, NULL, view);
    aj_release(&view);
    return face;
}

/* ---- one axis ---- */

typedef struct side {
    int neighbour, tag_out, tag_in;
    int64_t face, ghost; /* where the entries to send begin, and those to fill */
    aj_request *request;
} side;

static aj_tensor *ghosts_like(aj_tensor *x, int axis, int64_t width) {
    aji_meta meta = *aji_tensor_meta(x);
    meta.shape[axis] = width;
    return aji_zeros_meta(aj_tensor_ctx(x), aj_tensor_device(x), &meta);
}

/* x with the side's ghosts replaced; writes into x if it may. */
static aj_tensor *fill(aj_tensor *x, int axis, int64_t at, aj_tensor *ghosts, bool *consumable) {
    int64_t lo[AJ_MAX_NDIM] = {0};
    lo[axis] = at;
    aj_tensor *y = *consumable ? aj_set_window_inplace(x, lo, ghosts) : aj_set_window(x, lo, ghosts);
    *consumable = true; /* what this call has made, nobody else holds */
    return y;
}

static aj_tensor *exchange(aj_tensor *x, int axis, int64_t width, int low, int high, int tag, aj_comm *comm, bool *consumable) {
    int64_t n = aj_extent(x, axis);
    /* One tag for each direction: on two periodic ranks both neighbours are the same. */
    side sides[2] = {{.neighbour = low, .tag_out = tag, .tag_in = tag + 1, .face = width, .ghost = 0},
                     {.neighbour = high, .tag_out = tag + 1, .tag_in = tag, .face = n - 2 * width, .ghost = n - width}};
    for (int i = 0; i < 2; i++) {
        if (sides[i].neighbour == MPI_PROC_NULL)
            continue;
        sides[i].request = aj_irecv(ghosts_like(x, axis, width), sides[i].neighbour, sides[i].tag_in, comm);
        aj_tensor *face = packed_face(x, axis, sides[i].face, width),
                  *sent = aj_send(face, sides[i].neighbour, sides[i].tag_out, comm);
        aj_release(&sent);
        aj_release(&face);
    }
    for (int i = 0; i < 2 && x; i++)
        if (sides[i].neighbour != MPI_PROC_NULL)
            x = fill(x, axis, sides[i].ghost, aj_wait(sides[i].request), consumable);
    return x;
}

/* ---- the call ---- */

static aj_status check(aj_ctx *ctx, const char *op, aj_tensor *x, int n, const int *axes, const int64_t *width, aj_comm *cart) {
    int topology = MPI_UNDEFINED, dims = 0;
    MPI_Topo_test(cart->forward, &topology);
    if (topology != MPI_CART)
        return aj_raise(ctx, AJ_ERR_ARG, "%s: the communicator has no Cartesian topology; expected one made by MPI_Cart_create",
                        op);
    MPI_Cartdim_get(cart->forward, &dims);
    if (n != dims || (n > 0 && (!axes || !width)))
        return aj_raise(ctx, AJ_ERR_ARG, "%s: %d axes%s; expected %d axes and widths, one for each dimension of the communicator",
                        op, n, axes && width ? "" : " in NULL", dims);
    unsigned seen = 0;
    for (int i = 0; i < n; i++) {
        int axis = axes[i];
        aj_status status = aji_normalize_axis(ctx, op, aj_ndim(x), &axis);
        if (status != AJ_OK)
            return status;
        if (seen & (1u << axis))
            return aj_raise(ctx, AJ_ERR_ARG, "%s: axis %d is given twice; expected different axes", op, axis);
        seen |= 1u << axis;
        if (width[i] < 0 || (width[i] > 0 && aj_extent(x, axis) < 3 * width[i]))
            return aj_raise(
                ctx, AJ_ERR_SHAPE,
                "%s: width %lld on axis %d of extent %lld; expected >= 0, and at least as many inner entries as ghosts on a side",
                op, (long long)width[i], axis, (long long)aj_extent(x, axis));
    }
    return AJ_OK;
}

static aj_tensor *exchange_all(aj_tensor *x, int n, const int *axes, const int64_t *width, aj_comm *cart, bool consumable) {
    for (int i = 0; i < n && x; i++) {
        int low = MPI_PROC_NULL, high = MPI_PROC_NULL;
        MPI_Cart_shift(cart->forward, i, 1, &low, &high);
        if (width[i] > 0)
            x = exchange(x, axes[i] < 0 ? axes[i] + aj_ndim(x) : axes[i], width[i], low, high, 2 * i, cart, &consumable);
    }
    return x;
}

static aj_tensor *halo(const char *op, aj_tensor *x, int n, const int *axes, const int64_t *width, aj_comm *cart,
                       bool consumable) {
    aj_ctx *ctx = cart ? cart->ctx : x ? aj_tensor_ctx(x) : NULL;
    if (!ctx)
        return NULL;
    aj_status status = aj_ctx_status(ctx);
    if (status == AJ_OK && (!x || !cart))
        status = aj_raise(ctx, AJ_ERR_ARG, "%s: the %s is NULL", op, x ? "communicator" : "tensor");
    if (status == AJ_OK)
        status = aji_check_operand(ctx, op, x);
    if (status == AJ_OK && cart->size > 0)
        status = check(ctx, op, x, n, axes, width, cart);
    if (status != AJ_OK) {
        aji_gate(ctx, cart);
        return NULL;
    }
    aj_scope *scope = aj_scope_begin(ctx);
    if (!scope)
        return NULL;
    if (consumable && aj_ndim(x) > 0) /* also where there is nothing to fill */
        x = fill(x, 0, 0, ghosts_like(x, 0, 0), &consumable);
    aj_tensor *y = cart->size > 0 ? exchange_all(x, n, axes, width, cart, consumable) : x;
    if (y == x)
        y = y ? aj_join_dummies(y, 0, NULL) : NULL; /* a handle of its own */
    aj_scope_return(scope, y);
    return aj_scope_end(scope) == AJ_OK ? y : NULL;
}

aj_tensor *aj_halo(aj_tensor *x, int n, const int *axes, const int64_t *width, aj_comm *cart) {
    return halo("aj_halo", x, n, axes, width, cart, false);
}

aj_tensor *aj_halo_inplace(aj_tensor *x, int n, const int *axes, const int64_t *width, aj_comm *cart) {
    return halo("aj_halo_inplace", x, n, axes, width, cart, true);
}
