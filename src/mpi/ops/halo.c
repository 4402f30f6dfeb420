/*
 * Halo exchange. F = E_{n-1} ... E_0, where E_i fills the ghosts on axis i from the inner faces of the neighbours; the faces run across the whole field,
 * so those of later axes carry the ghosts that earlier ones have filled, and corners arrive by way of a side neighbour. The transpose is
 * F' = E_0' ... E_{n-1}': ghost gradients go home, axes in reverse order, and are added to the inner faces that the ghosts were filled from; filled
 * ghosts get zero. At an edge without a neighbour ghosts keep their numbers and their gradients. Each is the other's vjp, so derivatives of any order are
 * halo exchanges.
 *
 * Both run on a duplicate of the communicator that no receive of the user's can see. Every call finishes its own messages before it returns.
 */
#include <stdio.h>

#include "mpi/comm_internal.h"

typedef struct attr {
    int n;
    bool given; /* neither array was NULL */
    int axes[AJ_MAX_NDIM];
    int64_t width[AJ_MAX_NDIM];
} attr;

/* ---- checks ---- */

static aj_status check_dimensions(aji_call *c) {
    const attr *a = c->attr;
    const char *op = c->op->name;
    int topology = MPI_UNDEFINED, dims = 0, ndim = c->in_meta[0].ndim;
    MPI_Topo_test(c->comm->forward, &topology);
    if (topology != MPI_CART)
        return aj_raise(c->ctx, AJ_ERR_ARG,
                        "%s: the communicator has no Cartesian topology; expected one made by MPI_Cart_create", op);
    MPI_Cartdim_get(c->comm->forward, &dims);
    if (a->n != dims || (dims > 0 && !a->given))
        return aj_raise(c->ctx, AJ_ERR_ARG,
                        "%s: %d axes%s; expected %d axes and widths, one for each dimension of the communicator", op, a->n,
                        a->given ? "" : " in NULL", dims);
    if (dims > ndim)
        return aj_raise(c->ctx, AJ_ERR_ARG, "%s: the communicator has %d dimensions, x %d axes; expected an axis for each", op,
                        dims, ndim);
    return AJ_OK;
}

static aj_status infer(aji_call *c) {
    attr *a = c->attr;
    const aji_meta *x = &c->in_meta[0];
    c->out_meta[0] = *x;
    aj_status status = c->comm->size > 0 ? check_dimensions(c) : AJ_OK;
    unsigned seen = 0;
    for (int i = 0; c->comm->size > 0 && i < a->n && status == AJ_OK; i++) {
        int64_t width = a->width[i];
        status = aji_normalize_axis(c->ctx, c->op->name, x->ndim, &a->axes[i]);
        if (status != AJ_OK)
            return status;
        if (seen & (1u << a->axes[i]))
            return aj_raise(c->ctx, AJ_ERR_ARG, "%s: axis %d is given twice; expected different axes", c->op->name, a->axes[i]);
        seen |= 1u << a->axes[i];
        int64_t extent = x->shape[a->axes[i]];
        if (width < 0 || width > extent / 3)
            return aj_raise(
                c->ctx, AJ_ERR_SHAPE,
                "%s: width %lld on axis %d of extent %lld; expected >= 0, and at least as many inner entries as ghosts on a side",
                c->op->name, (long long)width, a->axes[i], (long long)extent);
    }
    return status;
}

/* The first halo exchange on a communicator makes the duplicate, whatever its widths: alike on all ranks. */
static aj_status need_duplicate(aji_call *c) {
    aj_comm *comm = c->comm;
    MPI_Comm made = MPI_COMM_NULL;
    MPI_Request request;
    if (comm->halo != MPI_COMM_NULL)
        return AJ_OK;
    int code = MPI_Comm_idup(comm->forward, &made, &request);
    MPI_Status unused;
    if (code == MPI_SUCCESS && !aji_mpi_wait_each(comm->yields, 1, &request, &unused, comm->timeout, &code))
        aji_timed_out(comm);
    if (code != MPI_SUCCESS)
        return aji_mpi_check(c->ctx, c->op->name, code);
    comm->halo = made;
    MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN);
    return AJ_OK;
}

/* ---- the exchange: all memory is there before the first message, so that what can fail after it is a neighbour's mistake ---- */

enum { LOW, HIGH, N_SIDES };

/* One side of the axis at hand. A face that goes to the low side travels in direction LOW and is received from the high side. */
typedef struct side {
    int neighbour;
    int64_t inner, ghost; /* where they begin on the axis */
} side;

typedef struct exchange {
    aji_call *call;
    bool adjoint;
    aji_value *y;
    /* Room for what is sent to the two sides and comes from them, `room` entries each: where the field is, and where MPI reads and writes. The same, but for a
     * device whose memory MPI is not given. */
    aji_value *near, *mpi;
    int64_t room;
    aji_value *zero; /* one number */
    /* the axis at hand */
    int dimension, axis;
    side sides[N_SIDES];
    aji_meta face;
} exchange;

/* A window on a value, or on a packed face in the room for them, that holds no share of the memory and needs none of its own. */
static aji_value window(const exchange *e, int64_t at) {
    aji_value w = *e->y;
    w.meta = e->face;
    if (aji_meta_numel(&w.meta) > 0) /* else it might lie outside */
        w.offset += at * w.strides[e->axis];
    return w;
}

static aji_value packed(const exchange *e, const aji_value *room, bool received, int s) {
    aji_value p = *room;
    p.meta = e->face;
    p.offset = (received ? N_SIDES + s : s) * e->room;
    int64_t stride = 1;
    for (int i = e->face.ndim - 1; i >= 0; i--) {
        p.strides[i] = stride;
        stride *= e->face.shape[i];
    }
    return p;
}

static size_t face_bytes(const exchange *e) {
    return (size_t)aji_meta_numel(&e->face) * aj_dtype_size(e->face.dtype);
}

/* What goes to side s: the inner face, or the ghosts' gradients, which leave zeros behind. */
static aj_status pack(exchange *e, int s) {
    aji_call *c = e->call;
    aji_value from = window(e, e->adjoint ? e->sides[s].ghost : e->sides[s].inner);
    aji_value near = packed(e, e->near, false, s), mpi = packed(e, e->mpi, false, s);
    aj_status status = aji_do_copy(c->op->name, &from, &near);
    if (status == AJ_OK && e->near != e->mpi)
        status = c->device->table->download(c->device, aji_value_data(&mpi), aji_value_data(&near), face_bytes(e));
    if (status != AJ_OK || !e->adjoint)
        return status;
    aji_value zeros = *e->zero; /* its strides are 0 */
    zeros.meta = e->face;
    return aji_do_copy(c->op->name, &zeros, &from);
}

/* What came from side s: into the ghosts, or added to the inner face. */
static aj_status unpack(exchange *e, int s) {
    aji_call *c = e->call;
    aji_value to = window(e, e->adjoint ? e->sides[s].inner : e->sides[s].ghost);
    aji_value near = packed(e, e->near, true, s), mpi = packed(e, e->mpi, true, s);
    aj_status status = AJ_OK;
    if (e->near != e->mpi)
        status = c->device->table->upload(c->device, aji_value_data(&near), aji_value_data(&mpi), face_bytes(e));
    if (status == AJ_OK && e->adjoint) {
        aji_program sum = {.n_in = 2, .n_out = 1, .n_steps = 1, .out = {2}};
        sum.steps[0] = (aji_step){.opcode = AJI_STEP_ADD, .dtype = e->face.dtype, .src = {0, 1}};
        status = aji_do_run(c->op->name, &sum, (const aji_value *const[]){&to, &near}, (const aji_value *const[]){&near});
    }
    return status == AJ_OK ? aji_do_copy(c->op->name, &near, &to) : status;
}

/* ---- what a face is, in its tag: one of another sort must not be taken for the one that is expected ---- */

enum { N_DTYPES = AJ_U8 + 1, N_SHAPES = 199 }; /* so that the largest tag is one that MPI guarantees: 32767 */
_Static_assert(2 * AJ_MAX_NDIM * N_SIDES * N_DTYPES * N_SHAPES <= 32767, "tags of faces");

typedef struct face_sort {
    bool adjoint;
    int dimension, direction, dtype; /* and a hash of its shape */
} face_sort;

static int tag_for(const exchange *e, int direction) {
    uint64_t hash = 0;
    for (int i = 0; i < e->face.ndim; i++)
        hash = (hash * 31 + (uint64_t)e->face.shape[i]) % N_SHAPES;
    int tag = (e->adjoint * AJ_MAX_NDIM + e->dimension) * N_SIDES + direction;
    return (tag * N_DTYPES + (int)e->face.dtype) * N_SHAPES + (int)hash;
}

static face_sort sort_of(int tag) {
    face_sort f;
    tag /= N_SHAPES;
    f.dtype = tag % N_DTYPES;
    tag /= N_DTYPES;
    f.direction = tag % N_SIDES;
    tag /= N_SIDES;
    f.dimension = tag % AJ_MAX_NDIM;
    f.adjoint = tag / AJ_MAX_NDIM;
    return f;
}

/* Raise what is wrong with a face from side s. */
static aj_status refuse(const exchange *e, int s, face_sort got, int64_t n) {
    aji_call *c = e->call;
    const char *op = c->op->name, *const kinds[] = {"the exchange", "the adjoint"};
    int from = e->sides[s].neighbour;
    int64_t wanted = aji_meta_numel(&e->face);
    char shape[160];
    if (got.adjoint != e->adjoint || got.dimension != e->dimension || got.direction != 1 - s)
        return aj_raise(c->ctx, AJ_ERR_ARG,
                        "%s: rank %d sent a face of %s for dimension %d of the communicator; expected one of %s for "
                        "dimension %d: the same calls with the same widths on all ranks",
                        op, from, kinds[got.adjoint], got.dimension, kinds[e->adjoint], e->dimension);
    if (got.dtype != (int)e->face.dtype)
        return aj_raise(c->ctx, AJ_ERR_DTYPE,
                        "%s: the face from rank %d on axis %d is %s; expected %s, that of this rank's field", op, from, e->axis,
                        aj_dtype_name((aj_dtype)got.dtype), aj_dtype_name(e->face.dtype));
    return aj_raise(
        c->ctx, AJ_ERR_SHAPE,
        "%s: the face from rank %d on axis %d has %lld entries%s; expected %lld, of shape %s: the same width and other extents",
        op, from, e->axis, (long long)n, n == wanted ? " in another shape" : "", (long long)wanted,
        aji_shape_text(e->face.ndim, e->face.shape, shape));
}

/* Is what came from side s the face that was expected? code: MPI's, of the wait. */
static aj_status check_face(const exchange *e, int s, int code, const MPI_Status *status) {
    aji_call *c = e->call;
    int64_t wanted = aji_meta_numel(&e->face), n = wanted;
    int class = MPI_SUCCESS;
    char shape[160];
    MPI_Error_class(code, &class);
    if (class == MPI_ERR_TRUNCATE) /* the status need not tell more */
        return aj_raise(c->ctx, AJ_ERR_SHAPE,
                        "%s: the face from rank %d on axis %d is longer than the %lld entries of %s that were expected, of "
                        "shape %s: the same width, other extents and dtype",
                        c->op->name, e->sides[s].neighbour, e->axis, (long long)wanted, aj_dtype_name(e->face.dtype),
                        aji_shape_text(e->face.ndim, e->face.shape, shape));
    if (code == MPI_SUCCESS)
        code = aji_mpi_get_count(status, aji_mpi_type(e->face.dtype), &n);
    if (code != MPI_SUCCESS)
        return aji_mpi_check(c->ctx, c->op->name, code);
    bool right = n == wanted && status->MPI_TAG == tag_for(e, 1 - s);
    return right ? AJ_OK : refuse(e, s, sort_of(status->MPI_TAG), n);
}

/* ---- messages ---- */

/* Receives take any tag of the neighbour's, to see what came. On two periodic ranks both neighbours are the same one, on one rank they are this rank
 * itself: then the order of the starts tells the directions apart, LOW first on both ends. */
static int start(const exchange *e, MPI_Request *receives, MPI_Request *sends) {
    MPI_Comm on = e->call->comm->halo;
    MPI_Datatype type = aji_mpi_type(e->face.dtype);
    int64_t n = aji_meta_numel(&e->face);
    int code = MPI_SUCCESS;
    for (int direction = LOW; direction < N_SIDES && code == MPI_SUCCESS; direction++) {
        int s = 1 - direction;
        aji_value into = packed(e, e->mpi, true, s);
        if (e->sides[s].neighbour != MPI_PROC_NULL)
            code = aji_mpi_irecv(e->call->comm, on, aji_value_data(&into), n, type, e->sides[s].neighbour, MPI_ANY_TAG,
                                 &receives[s]);
    }
    for (int s = LOW; s < N_SIDES && code == MPI_SUCCESS; s++) {
        aji_value from = packed(e, e->mpi, false, s);
        if (e->sides[s].neighbour != MPI_PROC_NULL)
            code =
                aji_mpi_isend(e->call->comm, on, aji_value_data(&from), n, type, e->sides[s].neighbour, tag_for(e, s), &sends[s]);
    }
    return code;
}

static void give_up(MPI_Request *requests) {
    for (int s = 0; s < N_SIDES; s++)
        if (requests[s] != MPI_REQUEST_NULL) {
            MPI_Cancel(&requests[s]);
            MPI_Request_free(&requests[s]);
        }
}

static aj_status first_of(aj_status a, aj_status b) {
    return a != AJ_OK ? a : b;
}

/* The device has finished with the memory that MPI is to read and write: with the room itself, or with what it reads from it. */
static aj_status settle(const exchange *e) {
    aj_device device = e->call->device;
    return e->near == e->mpi ? aji_mpi_ready(device) : device->table->wait(device);
}

static aj_status swap_faces(exchange *e) {
    aji_call *c = e->call;
    MPI_Request requests[2 * N_SIDES] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Request *const receives = requests, *const sends = requests + N_SIDES;
    aj_status result = aji_mpi_check(c->ctx, c->op->name, start(e, receives, sends));
    if (result != AJ_OK) {
        give_up(receives);
        give_up(sends);
        return result;
    }
    bool expected[N_SIDES];
    for (int s = 0; s < N_SIDES; s++)
        expected[s] = receives[s] != MPI_REQUEST_NULL;
    MPI_Status statuses[2 * N_SIDES];
    int codes[2 * N_SIDES];
    if (!aji_mpi_wait_each(c->comm->yields, 2 * N_SIDES, requests, statuses, c->comm->timeout, codes))
        aji_timed_out(c->comm);
    for (int s = 0; s < N_SIDES; s++)
        if (expected[s])
            result = first_of(result, check_face(e, s, codes[s], &statuses[s]));
    for (int s = 0; s < N_SIDES; s++)
        result = first_of(result, aji_mpi_check(c->ctx, c->op->name, codes[N_SIDES + s]));
    return result;
}

/* ---- the operations ---- */

static aj_status exchange_axis(exchange *e, int dimension) {
    const attr *a = e->call->attr;
    int64_t width = a->width[dimension], n = e->y->meta.shape[a->axes[dimension]];
    if (width == 0)
        return AJ_OK;
    e->dimension = dimension;
    e->axis = a->axes[dimension];
    e->face = e->y->meta;
    e->face.shape[e->axis] = width;
    e->sides[LOW] = (side){.inner = width, .ghost = 0};
    e->sides[HIGH] = (side){.inner = n - 2 * width, .ghost = n - width};
    MPI_Cart_shift(e->call->comm->forward, dimension, 1, &e->sides[LOW].neighbour, &e->sides[HIGH].neighbour);
    aj_status status = AJ_OK;
    for (int s = 0; s < N_SIDES; s++)
        if (e->sides[s].neighbour != MPI_PROC_NULL)
            status = first_of(status, pack(e, s));
    status = first_of(status, settle(e));
    status = first_of(status, swap_faces(e));
    for (int s = 0; s < N_SIDES && status == AJ_OK; s++)
        if (e->sides[s].neighbour != MPI_PROC_NULL)
            status = unpack(e, s);
    return status;
}

/* This rank's mistake is not its neighbours': they get all their messages, unless MPI refuses them, and hear of the error when they next communicate. */
static aj_status exchange_all(exchange *e) {
    int n = ((const attr *)e->call->attr)->n;
    aj_status status = AJ_OK;
    for (int i = 0; i < n && status != AJ_ERR_MPI; i++)
        status = first_of(status, exchange_axis(e, e->adjoint ? n - 1 - i : i));
    return status;
}

static aj_status open_exchange(exchange *e) {
    aji_call *c = e->call;
    const attr *a = c->attr;
    for (int i = 0; i < a->n; i++) {
        aji_meta face = c->in_meta[0];
        face.shape[a->axes[i]] = a->width[i];
        int64_t entries = aji_meta_numel(&face);
        e->room = entries > e->room ? entries : e->room;
    }
    e->y = aji_may_overwrite(c) ? aji_value_retain(c->x[0]) : aji_value_copy(c->x[0]);
    if (!e->y)
        return aj_ctx_status(c->ctx);
    aji_meta faces = {.dtype = c->in_meta[0].dtype, .ndim = 1, .shape = {2 * N_SIDES * e->room}}, one = {.dtype = faces.dtype};
    e->near = aji_value_new(c->ctx, c->device, &faces);
    if (e->near)
        e->mpi = aji_mpi_device(c->device) == c->device ? aji_value_retain(e->near) : aji_value_staged(c->device, &faces);
    if (e->mpi && e->adjoint)
        e->zero = aji_value_full(c->ctx, c->device, &one, 0);
    bool ready = e->mpi && (!e->adjoint || (e->zero && aji_value_evaluate(e->zero) == AJ_OK));
    return ready ? AJ_OK : aj_ctx_status(c->ctx);
}

/* In checked mode: the axes and the widths are alike. The fields need not be. */
static aj_status compare(const aji_call *c) {
    const attr *a = c->attr;
    char text[128];
    if (!c->comm->checked)
        return AJ_OK;
    size_t used = (size_t)snprintf(text, sizeof(text), " of %s", aj_dtype_name(c->in_meta[0].dtype));
    for (int i = 0; i < a->n; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, ", width %lld on axis %d", (long long)a->width[i], a->axes[i]);
    return aji_compare_more(c, text);
}

/* Of a consumed field that goes back to its owner after a failure, the ghosts may be new. */
static aj_status run(aji_call *c, bool adjoint) {
    if (c->comm->size == 0)
        return aji_return_operand(c);
    exchange e = {.call = c, .adjoint = adjoint};
    aj_status status = open_exchange(&e);
    if (status == AJ_OK)
        status = compare(c);
    if (status == AJ_OK)
        status = need_duplicate(c);
    if (status == AJ_OK)
        status = exchange_all(&e);
    aji_value_release(e.zero);
    aji_value_release(e.mpi);
    aji_value_release(e.near);
    if (status == AJ_OK)
        c->y[0] = e.y;
    else
        aji_value_release(e.y);
    return status;
}

static aj_status forward(aji_call *c) {
    return run(c, false);
}

static aj_status forward_adjoint(aji_call *c) {
    return run(c, true);
}

/* Derivatives consume the gradient, which the sweep has given up: unless others share it the faces change in place. */
static aj_status vjp(aji_call *c) {
    c->g_in[0] = aji_comm_apply(&aji_op_halo_adjoint, c->attr, c->g_out[0], c->comm);
    return AJ_OK;
}

static aj_status vjp_adjoint(aji_call *c) {
    c->g_in[0] = aji_comm_apply(&aji_op_halo_inplace, c->attr, c->g_out[0], c->comm);
    return AJ_OK;
}

const aji_op aji_op_halo = {
    .name = "aj_halo",
    .maths = "y = x, ghosts filled from the neighbours; gx = g, ghosts sent home and added",
    .flags = AJI_OP_COMM,
    .attr_size = sizeof(attr),
    .infer = infer,
    .forward = forward,
    .vjp = vjp,
};
const aji_op aji_op_halo_inplace = {
    .name = "aj_halo_inplace",
    .maths = "y = x, ghosts filled from the neighbours; gx = g, ghosts sent home and added; consumes x",
    .flags = AJI_OP_COMM | AJI_OP_CONSUMES,
    .attr_size = sizeof(attr),
    .infer = infer,
    .forward = forward,
    .vjp = vjp,
};
const aji_op aji_op_halo_adjoint = {
    .name = "aj_halo_adjoint",
    .maths = "y = x, ghosts sent home and added; gx = g, ghosts filled from the neighbours; consumes x",
    .flags = AJI_OP_COMM | AJI_OP_CONSUMES,
    .attr_size = sizeof(attr),
    .infer = infer,
    .forward = forward_adjoint,
    .vjp = vjp_adjoint,
};

static aj_tensor *apply(const aji_op *op, aj_tensor *x, int n, const int *axes, const int64_t *width, aj_comm *cart) {
    attr a = {.n = n, .given = axes && width};
    for (int i = 0; a.given && i < n && i < AJ_MAX_NDIM; i++) {
        a.axes[i] = axes[i];
        a.width[i] = width[i];
    }
    return aji_comm_apply(op, &a, x, cart);
}

aj_tensor *aj_halo(aj_tensor *x, int n, const int *axes, const int64_t *width, aj_comm *cart) {
    return apply(&aji_op_halo, x, n, axes, width, cart);
}

aj_tensor *aj_halo_inplace(aj_tensor *x, int n, const int *axes, const int64_t *width, aj_comm *cart) {
    return apply(&aji_op_halo_inplace, x, n, axes, width, cart);
}
