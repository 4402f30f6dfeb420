/*
 * MPI's collectives as operations call them: with 64-bit counts, after the ranks have compared what they call (checked mode), blocking or polled as the
 * communicator has agreed. Nonblocking ones are polled where ranks outnumber cores or there is a time limit: a blocking and a nonblocking collective do not
 * match each other.
 *
 * What is more than one call of MPI can say (comm->most elements) goes in several: alike on all ranks, since they all know the counts that decide it.
 */
#include "mpi/counts.h"

/* One call of MPI on channel(c): `polled` starts it, with &request as its last argument; `blocking` is the same without. Sets `status`. */
#define CALL(c, polled, blocking)                                                                                                \
    do {                                                                                                                         \
        MPI_Request request = MPI_REQUEST_NULL;                                                                                  \
        int code = (c)->comm->polls ? (polled) : (blocking);                                                                     \
        status = finish(c, code, &request);                                                                                      \
    } while (0)

static aj_status finish(const aji_call *c, int code, MPI_Request *request) {
    bool done = true;
    if (code == MPI_SUCCESS && *request != MPI_REQUEST_NULL)
        code = aji_mpi_wait(c->comm->yields, request, MPI_STATUS_IGNORE, c->comm->timeout, &done);
    if (code == MPI_SUCCESS && !done)
        aji_timed_out(c->comm);
    return aji_mpi_check(c->ctx, c->op->name, code);
}

static MPI_Comm channel(const aji_call *c) {
    return aji_channel(c->comm);
}

/* MPI may be given device memory: the device has finished with it. Then the ranks compare what they call. */
static aj_status begin(const aji_call *c, aji_shapes shapes, MPI_Op op, int root) {
    aj_status status = aji_mpi_ready(c->device);
    return status == AJ_OK ? aji_compare_call(c, shapes, op, root) : status;
}

/* ---- one count for all ranks: in pieces, one at least ---- */

static aji_count piece(const aji_call *c, int64_t n, int64_t at) {
    return (aji_count)(n - at < c->comm->most ? n - at : c->comm->most);
}

/* Runs the statement that follows for each piece of n elements: `at` is the first of the piece. */
#define FOR_PIECES(c, n) for (int64_t at = 0; status == AJ_OK && (at == 0 || at < (n)); at += (c)->comm->most)

aj_status aji_mpi_allreduce(const aji_call *c, const void *in, void *out, int64_t n, MPI_Datatype type, MPI_Op op) {
    aj_status status = begin(c, AJI_SAME_SHAPE, op, AJI_NO_ROOT);
    FOR_PIECES(c, n) {
        const void *from = aji_mpi_at(in, at, type);
        void *to = aji_mpi_at(out, at, type);
        CALL(c, AJI_LARGE(MPI_Iallreduce)(from, to, piece(c, n, at), type, op, channel(c), &request),
             AJI_LARGE(MPI_Allreduce)(from, to, piece(c, n, at), type, op, channel(c)));
    }
    return status;
}

static aj_status reduce_pieces(const aji_call *c, const void *in, void *out, int64_t n, MPI_Datatype type, MPI_Op op, int root) {
    aj_status status = AJ_OK;
    FOR_PIECES(c, n) {
        const void *from = aji_mpi_at(in, at, type);
        void *to = aji_mpi_at(out, at, type);
        CALL(c, AJI_LARGE(MPI_Ireduce)(from, to, piece(c, n, at), type, op, root, channel(c), &request),
             AJI_LARGE(MPI_Reduce)(from, to, piece(c, n, at), type, op, root, channel(c)));
    }
    return status;
}

aj_status aji_mpi_reduce(const aji_call *c, const void *in, void *out, int64_t n, MPI_Datatype type, MPI_Op op, int root) {
    aj_status status = begin(c, AJI_SAME_SHAPE, op, root);
    return status == AJ_OK ? reduce_pieces(c, in, out, n, type, op, root) : status;
}

static aj_status bcast_pieces(const aji_call *c, void *data, int64_t n, MPI_Datatype type, int root) {
    aj_status status = AJ_OK;
    FOR_PIECES(c, n) {
        void *to = aji_mpi_at(data, at, type);
        CALL(c, AJI_LARGE(MPI_Ibcast)(to, piece(c, n, at), type, root, channel(c), &request),
             AJI_LARGE(MPI_Bcast)(to, piece(c, n, at), type, root, channel(c)));
    }
    return status;
}

aj_status aji_mpi_bcast(const aji_call *c, void *data, int64_t n, MPI_Datatype type, int root) {
    aj_status status = begin(c, AJI_SAME_SHAPE, MPI_OP_NULL, root);
    return status == AJ_OK ? bcast_pieces(c, data, n, type, root) : status;
}

aj_status aji_mpi_allgather(const aji_call *c, const void *in, void *out, int64_t n, MPI_Datatype type) {
    aj_status status = begin(c, AJI_ANY_SHAPE, MPI_OP_NULL, AJI_NO_ROOT);
    aji_count m = (aji_count)n;
    if (status == AJ_OK)
        CALL(c, AJI_LARGE(MPI_Iallgather)(in, m, type, out, m, type, channel(c), &request),
             AJI_LARGE(MPI_Allgather)(in, m, type, out, m, type, channel(c)));
    return status;
}

aj_status aji_mpi_scan(const aji_call *c, bool reversed, bool exclusive, const void *in, void *out, int64_t n, MPI_Datatype type,
                       MPI_Op op) {
    aj_status status = begin(c, AJI_SAME_SHAPE, op, AJI_NO_ROOT);
    if (status == AJ_OK)
        status = aji_comm_need_reversed(c->comm, c->op->name);
    MPI_Comm on = reversed ? c->comm->reversed : channel(c);
    FOR_PIECES(c, n) {
        const void *from = aji_mpi_at(in, at, type);
        void *to = aji_mpi_at(out, at, type);
        aji_count m = piece(c, n, at);
        if (exclusive)
            CALL(c, AJI_LARGE(MPI_Iexscan)(from, to, m, type, op, on, &request),
                 AJI_LARGE(MPI_Exscan)(from, to, m, type, op, on));
        else
            CALL(c, AJI_LARGE(MPI_Iscan)(from, to, m, type, op, on, &request), AJI_LARGE(MPI_Scan)(from, to, m, type, op, on));
    }
    return status;
}

aj_status aji_mpi_barrier(const aji_call *c) {
    aj_status status = aji_compare_call(c, AJI_ANY_SHAPE, MPI_OP_NULL, AJI_NO_ROOT);
    if (status == AJ_OK)
        CALL(c, MPI_Ibarrier(channel(c), &request), MPI_Barrier(channel(c)));
    return status;
}

/* ---- a count for each rank ---- */

/* Counts and displacements as MPI wants them, of blocks that follow each other. */
typedef struct layout {
    aji_count *counts;
    aji_displacement *at;
    size_t bytes;
} layout;

/* ns NULL: all zero. */
static aj_status layout_open(const aji_call *c, layout *l, const int64_t *ns) {
    int size = c->comm->size;
    l->bytes = (size_t)size * (sizeof(aji_count) + sizeof(aji_displacement));
    l->counts = aji_calloc(c->ctx, l->bytes);
    if (!l->counts)
        return AJ_ERR_MEMORY;
    l->at = (aji_displacement *)(l->counts + size);
    int64_t sum = 0;
    for (int k = 0; k < size && ns; k++) {
        l->counts[k] = (aji_count)ns[k];
        l->at[k] = (aji_displacement)sum;
        sum += ns[k];
    }
    return AJ_OK;
}

static void layout_close(const aji_call *c, layout *l) {
    aji_free(c->ctx, l->counts, l->bytes);
}

static int64_t sum_of(const aji_call *c, const int64_t *ns) {
    int64_t sum = 0;
    for (int k = 0; k < c->comm->size; k++)
        sum += ns[k];
    return sum;
}

/* MPI is faster with one count for all. Only where every rank knows all counts: the two do not match each other. */
static bool alike(const aji_call *c, const int64_t *ns) {
    for (int k = 1; k < c->comm->size; k++)
        if (ns[k] != ns[0])
            return false;
    return true;
}

/* Do blocks of these lengths fit into one call? */
static bool fit(const aji_call *c, const int64_t *ns) {
    return sum_of(c, ns) <= c->comm->most;
}

static aj_status gatherv(const aji_call *c, const void *in, aji_count n, void *out, const layout *l, MPI_Datatype type,
                         int root) {
    aj_status status = AJ_OK;
    CALL(c, AJI_LARGE(MPI_Igatherv)(in, n, type, out, l->counts, l->at, type, root, channel(c), &request),
         AJI_LARGE(MPI_Gatherv)(in, n, type, out, l->counts, l->at, type, root, channel(c)));
    return status;
}

/* Rank by rank, piece by piece: of the others' blocks there is nothing in a call. */
static aj_status gatherv_pieces(const aji_call *c, const void *in, void *out, const int64_t *ns, layout *l, MPI_Datatype type,
                                int root) {
    aj_status status = AJ_OK;
    int64_t first = 0;
    for (int k = 0; k < c->comm->size; first += ns[k++]) {
        FOR_PIECES(c, ns[k]) {
            l->counts[k] = piece(c, ns[k], at);
            status = gatherv(c, aji_mpi_at(in, at, type), k == c->comm->rank ? l->counts[k] : 0,
                             aji_mpi_at(out, first + at, type), l, type, root);
        }
        l->counts[k] = 0;
    }
    return status;
}

aj_status aji_mpi_gatherv(const aji_call *c, const void *in, void *out, const int64_t *ns, MPI_Datatype type, int root) {
    layout l;
    bool whole = fit(c, ns);
    aj_status status = layout_open(c, &l, whole ? ns : NULL);
    if (status == AJ_OK)
        status = begin(c, AJI_ANY_SHAPE, MPI_OP_NULL, root);
    if (status == AJ_OK)
        status = whole ? gatherv(c, in, (aji_count)ns[c->comm->rank], out, &l, type, root)
                       : gatherv_pieces(c, in, out, ns, &l, type, root);
    layout_close(c, &l);
    return status;
}

static aj_status scatterv(const aji_call *c, const void *in, const layout *l, void *out, aji_count n, MPI_Datatype type,
                          int root) {
    aj_status status = AJ_OK;
    CALL(c, AJI_LARGE(MPI_Iscatterv)(in, l->counts, l->at, type, out, n, type, root, channel(c), &request),
         AJI_LARGE(MPI_Scatterv)(in, l->counts, l->at, type, out, n, type, root, channel(c)));
    return status;
}

static aj_status scatterv_pieces(const aji_call *c, const void *in, const int64_t *ns, void *out, layout *l, MPI_Datatype type,
                                 int root) {
    aj_status status = AJ_OK;
    int64_t first = 0;
    for (int k = 0; k < c->comm->size; first += ns[k++]) {
        FOR_PIECES(c, ns[k]) {
            l->counts[k] = piece(c, ns[k], at);
            status = scatterv(c, aji_mpi_at(in, first + at, type), l, aji_mpi_at(out, at, type),
                              k == c->comm->rank ? l->counts[k] : 0, type, root);
        }
        l->counts[k] = 0;
    }
    return status;
}

aj_status aji_mpi_scatterv(const aji_call *c, const void *in, const int64_t *ns, void *out, MPI_Datatype type, int root) {
    layout l;
    bool whole = fit(c, ns);
    aj_status status = layout_open(c, &l, whole ? ns : NULL);
    if (status == AJ_OK)
        status = begin(c, AJI_ANY_SHAPE, MPI_OP_NULL, root);
    if (status == AJ_OK)
        status = whole ? scatterv(c, in, &l, out, (aji_count)ns[c->comm->rank], type, root)
                       : scatterv_pieces(c, in, ns, out, &l, type, root);
    layout_close(c, &l);
    return status;
}

static aj_status allgatherv(const aji_call *c, const void *in, aji_count n, void *out, const layout *l, MPI_Datatype type) {
    aj_status status = AJ_OK;
    CALL(c, AJI_LARGE(MPI_Iallgatherv)(in, n, type, out, l->counts, l->at, type, channel(c), &request),
         AJI_LARGE(MPI_Allgatherv)(in, n, type, out, l->counts, l->at, type, channel(c)));
    return status;
}

/* As gatherv_pieces. */
static aj_status allgatherv_pieces(const aji_call *c, const void *in, void *out, const int64_t *ns, layout *l,
                                   MPI_Datatype type) {
    aj_status status = AJ_OK;
    int64_t first = 0;
    for (int k = 0; k < c->comm->size; first += ns[k++]) {
        FOR_PIECES(c, ns[k]) {
            l->counts[k] = piece(c, ns[k], at);
            status = allgatherv(c, aji_mpi_at(in, at, type), k == c->comm->rank ? l->counts[k] : 0,
                                aji_mpi_at(out, first + at, type), l, type);
        }
        l->counts[k] = 0;
    }
    return status;
}

aj_status aji_mpi_allgatherv(const aji_call *c, const void *in, void *out, const int64_t *ns, MPI_Datatype type) {
    layout l;
    if (fit(c, ns) && alike(c, ns))
        return aji_mpi_allgather(c, in, out, ns[0], type);
    bool whole = fit(c, ns);
    aj_status status = layout_open(c, &l, whole ? ns : NULL);
    if (status == AJ_OK)
        status = begin(c, AJI_ANY_SHAPE, MPI_OP_NULL, AJI_NO_ROOT);
    if (status == AJ_OK)
        status =
            whole ? allgatherv(c, in, (aji_count)ns[c->comm->rank], out, &l, type) : allgatherv_pieces(c, in, out, ns, &l, type);
    layout_close(c, &l);
    return status;
}

/* As a reduction of each rank's block to it. */
static aj_status reduce_scatter_pieces(const aji_call *c, const void *in, void *out, const int64_t *ns, MPI_Datatype type,
                                       MPI_Op op) {
    aj_status status = AJ_OK;
    int64_t first = 0;
    for (int k = 0; k < c->comm->size && status == AJ_OK; first += ns[k++])
        status = reduce_pieces(c, aji_mpi_at(in, first, type), out, ns[k], type, op, k);
    return status;
}

aj_status aji_mpi_reduce_scatter(const aji_call *c, const void *in, void *out, const int64_t *ns, MPI_Datatype type, MPI_Op op) {
    layout l;
    aj_status status = layout_open(c, &l, ns);
    if (status == AJ_OK)
        status = begin(c, AJI_ANY_SHAPE, op, AJI_NO_ROOT);
    if (status == AJ_OK && !fit(c, ns))
        status = reduce_scatter_pieces(c, in, out, ns, type, op);
    else if (status == AJ_OK)
        CALL(c, AJI_LARGE(MPI_Ireduce_scatter)(in, out, l.counts, type, op, channel(c), &request),
             AJI_LARGE(MPI_Reduce_scatter)(in, out, l.counts, type, op, channel(c)));
    layout_close(c, &l);
    return status;
}

static aj_status alltoallv(const aji_call *c, const void *in, const layout *to, void *out, const layout *from,
                           MPI_Datatype type) {
    aj_status status = AJ_OK;
    CALL(c, AJI_LARGE(MPI_Ialltoallv)(in, to->counts, to->at, type, out, from->counts, from->at, type, channel(c), &request),
         AJI_LARGE(MPI_Alltoallv)(in, to->counts, to->at, type, out, from->counts, from->at, type, channel(c)));
    return status;
}

/* Elements of the piece at `at` in a block of n. */
static aji_count piece_of(const aji_call *c, int64_t n, int64_t at) {
    return at < n ? piece(c, n, at) : 0;
}

/* By distance: in one call each rank sends a piece to the one `step` ranks up, and gets one from the one `step` ranks down. */
static aj_status alltoallv_pieces(const aji_call *c, const void *in, const int64_t *n_in, void *out, const int64_t *n_out,
                                  layout *to, layout *from, MPI_Datatype type, int64_t largest) {
    aj_status status = AJ_OK;
    int size = c->comm->size, me = c->comm->rank;
    for (int step = 0; step < size; step++) {
        int up = (me + step) % size, down = (me - step + size) % size;
        int64_t first_in = 0, first_out = 0;
        for (int k = 0; k < up; k++)
            first_in += n_in[k];
        for (int k = 0; k < down; k++)
            first_out += n_out[k];
        FOR_PIECES(c, largest) {
            to->counts[up] = piece_of(c, n_in[up], at);
            from->counts[down] = piece_of(c, n_out[down], at);
            status = alltoallv(c, aji_mpi_at(in, first_in + at, type), to, aji_mpi_at(out, first_out + at, type), from, type);
        }
        to->counts[up] = from->counts[down] = 0;
    }
    return status;
}

aj_status aji_mpi_alltoall(const aji_call *c, const void *in, void *out, int64_t n, MPI_Datatype type) {
    aj_status status = begin(c, AJI_ANY_SHAPE, MPI_OP_NULL, AJI_NO_ROOT);
    aji_count m = (aji_count)n;
    if (status == AJ_OK)
        CALL(c, AJI_LARGE(MPI_Ialltoall)(in, m, type, out, m, type, channel(c), &request),
             AJI_LARGE(MPI_Alltoall)(in, m, type, out, m, type, channel(c)));
    return status;
}

aj_status aji_mpi_alltoallv(const aji_call *c, const void *in, const int64_t *n_in, void *out, const int64_t *n_out,
                            MPI_Datatype type, int64_t whole) {
    layout to = {.counts = NULL}, from = {.counts = NULL};
    bool fits = whole <= c->comm->most;
    aj_status status = layout_open(c, &to, fits ? n_in : NULL);
    if (status == AJ_OK)
        status = layout_open(c, &from, fits ? n_out : NULL);
    if (status == AJ_OK)
        status = begin(c, AJI_ANY_SHAPE, MPI_OP_NULL, AJI_NO_ROOT);
    if (status == AJ_OK)
        status =
            fits ? alltoallv(c, in, &to, out, &from, type) : alltoallv_pieces(c, in, n_in, out, n_out, &to, &from, type, whole);
    layout_close(c, &to);
    layout_close(c, &from);
    return status;
}
