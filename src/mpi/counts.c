/*
 * MPI calls with 64-bit counts. Collectives block where the communicator has agreed so, and are polled where ranks outnumber cores or there is a time limit: a blocking and a nonblocking collective do not match each other.
 */
#include <limits.h>

#include "mpi/comm_internal.h"

#if MPI_VERSION >= 4
typedef MPI_Count count;
typedef MPI_Aint displacement;
#define LARGE(call) call##_c
#else /* 32-bit counts: refuse what they cannot say */
typedef int count;
typedef int displacement;
#define LARGE(call) call
#endif
#define COUNT(n) ((count)(n))

static bool fits(int64_t n) {
    return MPI_VERSION >= 4 || n <= INT_MAX;
}

MPI_Datatype aji_mpi_type(aj_dtype dtype) {
    switch (dtype) {
    case AJ_F64:
        return MPI_DOUBLE;
    case AJ_F32:
        return MPI_FLOAT;
    case AJ_I64:
        return MPI_INT64_T;
    case AJ_I32:
        return MPI_INT32_T;
    case AJ_U8:
        return MPI_UINT8_T;
    }
    return MPI_DATATYPE_NULL;
}

static int poll_until_done(const aj_comm *comm, int code, MPI_Request *request) {
    bool done = false;
    if (code == MPI_SUCCESS)
        code = aji_mpi_wait(comm->yields, request, MPI_STATUS_IGNORE, comm->timeout, &done);
    if (code == MPI_SUCCESS && !done)
        aji_timed_out(comm);
    return code;
}

int aji_mpi_allreduce(const aj_comm *comm, MPI_Comm on, const void *in, void *out, int64_t n, MPI_Datatype type, MPI_Op op) {
    MPI_Request request;
    if (!fits(n))
        return MPI_ERR_COUNT;
    if (!comm->polls)
        return LARGE(MPI_Allreduce)(in, out, COUNT(n), type, op, on);
    return poll_until_done(comm, LARGE(MPI_Iallreduce)(in, out, COUNT(n), type, op, on, &request), &request);
}

int aji_mpi_reduce(const aj_comm *comm, MPI_Comm on, const void *in, void *out, int64_t n, MPI_Datatype type, MPI_Op op,
                   int root) {
    MPI_Request request;
    if (!fits(n))
        return MPI_ERR_COUNT;
    if (!comm->polls)
        return LARGE(MPI_Reduce)(in, out, COUNT(n), type, op, root, on);
    return poll_until_done(comm, LARGE(MPI_Ireduce)(in, out, COUNT(n), type, op, root, on, &request), &request);
}

int aji_mpi_bcast(const aj_comm *comm, MPI_Comm on, void *data, int64_t n, MPI_Datatype type, int root) {
    MPI_Request request;
    if (!fits(n))
        return MPI_ERR_COUNT;
    if (!comm->polls)
        return LARGE(MPI_Bcast)(data, COUNT(n), type, root, on);
    return poll_until_done(comm, LARGE(MPI_Ibcast)(data, COUNT(n), type, root, on, &request), &request);
}

int aji_mpi_allgather(const aj_comm *comm, MPI_Comm on, const void *in, void *out, int64_t n, MPI_Datatype type) {
    MPI_Request request;
    if (!fits(n))
        return MPI_ERR_COUNT;
    if (!comm->polls)
        return LARGE(MPI_Allgather)(in, COUNT(n), type, out, COUNT(n), type, on);
    return poll_until_done(comm, LARGE(MPI_Iallgather)(in, COUNT(n), type, out, COUNT(n), type, on, &request), &request);
}

int aji_mpi_scan(const aj_comm *comm, MPI_Comm on, bool exclusive, const void *in, void *out, int64_t n, MPI_Datatype type,
                 MPI_Op op) {
    MPI_Request request;
    if (!fits(n))
        return MPI_ERR_COUNT;
    if (!comm->polls)
        return exclusive ? LARGE(MPI_Exscan)(in, out, COUNT(n), type, op, on) : LARGE(MPI_Scan)(in, out, COUNT(n), type, op, on);
    int code = exclusive ? LARGE(MPI_Iexscan)(in, out, COUNT(n), type, op, on, &request)
                         : LARGE(MPI_Iscan)(in, out, COUNT(n), type, op, on, &request);
    return poll_until_done(comm, code, &request);
}

int aji_mpi_barrier(const aj_comm *comm, MPI_Comm on) {
    MPI_Request request;
    return comm->polls ? poll_until_done(comm, MPI_Ibarrier(on, &request), &request) : MPI_Barrier(on);
}

int aji_mpi_isend(MPI_Comm on, const void *data, int64_t n, MPI_Datatype type, int dest, int tag, MPI_Request *request) {
    return fits(n) ? LARGE(MPI_Isend)(data, COUNT(n), type, dest, tag, on, request) : MPI_ERR_COUNT;
}

int aji_mpi_irecv(MPI_Comm on, void *data, int64_t n, MPI_Datatype type, int source, int tag, MPI_Request *request) {
    return fits(n) ? LARGE(MPI_Irecv)(data, COUNT(n), type, source, tag, on, request) : MPI_ERR_COUNT;
}

int aji_mpi_get_count(const MPI_Status *status, MPI_Datatype type, int64_t *n) {
    count found = 0;
    int code = LARGE(MPI_Get_count)(status, type, &found);
    *n = (int64_t)found;
    return code;
}

/* ---- a count for each rank ---- */

/* Counts and displacements as MPI wants them, of blocks that follow each other. */
typedef struct layout {
    count *counts;
    displacement *at;
    size_t bytes;
    aj_ctx *ctx;
} layout;

static int layout_open(const aj_comm *comm, layout *l, const int64_t *n) {
    l->ctx = comm->ctx;
    l->bytes = (size_t)comm->size * (sizeof(count) + sizeof(displacement));
    l->counts = aji_alloc(comm->ctx, l->bytes);
    if (!l->counts)
        return MPI_ERR_NO_MEM;
    l->at = (displacement *)(l->counts + comm->size);
    int64_t sum = 0;
    for (int k = 0; k < comm->size; k++) {
        l->counts[k] = COUNT(n[k]);
        l->at[k] = (displacement)sum;
        sum += n[k];
    }
    return fits(sum) ? MPI_SUCCESS : MPI_ERR_COUNT;
}

static void layout_close(layout *l) {
    aji_free(l->ctx, l->counts, l->bytes);
}

int aji_mpi_gatherv(const aj_comm *comm, MPI_Comm on, const void *in, int64_t n, void *out, const int64_t *ns, MPI_Datatype type,
                    int root) {
    layout l;
    MPI_Request request;
    int code = layout_open(comm, &l, ns);
    if (code == MPI_SUCCESS && comm->polls)
        code = poll_until_done(comm, LARGE(MPI_Igatherv)(in, COUNT(n), type, out, l.counts, l.at, type, root, on, &request),
                               &request);
    else if (code == MPI_SUCCESS)
        code = LARGE(MPI_Gatherv)(in, COUNT(n), type, out, l.counts, l.at, type, root, on);
    layout_close(&l);
    return code;
}

int aji_mpi_scatterv(const aj_comm *comm, MPI_Comm on, const void *in, const int64_t *ns, void *out, int64_t n, MPI_Datatype type,
                     int root) {
    layout l;
    MPI_Request request;
    int code = layout_open(comm, &l, ns);
    if (code == MPI_SUCCESS && comm->polls)
        code = poll_until_done(comm, LARGE(MPI_Iscatterv)(in, l.counts, l.at, type, out, COUNT(n), type, root, on, &request),
                               &request);
    else if (code == MPI_SUCCESS)
        code = LARGE(MPI_Scatterv)(in, l.counts, l.at, type, out, COUNT(n), type, root, on);
    layout_close(&l);
    return code;
}

int aji_mpi_allgatherv(const aj_comm *comm, MPI_Comm on, const void *in, int64_t n, void *out, const int64_t *ns,
                       MPI_Datatype type) {
    layout l;
    MPI_Request request;
    int code = layout_open(comm, &l, ns);
    if (code == MPI_SUCCESS && comm->polls)
        code =
            poll_until_done(comm, LARGE(MPI_Iallgatherv)(in, COUNT(n), type, out, l.counts, l.at, type, on, &request), &request);
    else if (code == MPI_SUCCESS)
        code = LARGE(MPI_Allgatherv)(in, COUNT(n), type, out, l.counts, l.at, type, on);
    layout_close(&l);
    return code;
}

int aji_mpi_reduce_scatter(const aj_comm *comm, MPI_Comm on, const void *in, void *out, const int64_t *ns, MPI_Datatype type,
                           MPI_Op op) {
    layout l;
    MPI_Request request;
    int code = layout_open(comm, &l, ns);
    if (code == MPI_SUCCESS && comm->polls)
        code = poll_until_done(comm, LARGE(MPI_Ireduce_scatter)(in, out, l.counts, type, op, on, &request), &request);
    else if (code == MPI_SUCCESS)
        code = LARGE(MPI_Reduce_scatter)(in, out, l.counts, type, op, on);
    layout_close(&l);
    return code;
}

int aji_mpi_alltoallv(const aj_comm *comm, MPI_Comm on, const void *in, const int64_t *n_in, void *out, const int64_t *n_out,
                      MPI_Datatype type) {
    layout to, from;
    MPI_Request request;
    int code = layout_open(comm, &to, n_in);
    int code_from = layout_open(comm, &from, n_out);
    code = code == MPI_SUCCESS ? code_from : code;
    if (code == MPI_SUCCESS && comm->polls)
        code = poll_until_done(
            comm, LARGE(MPI_Ialltoallv)(in, to.counts, to.at, type, out, from.counts, from.at, type, on, &request), &request);
    else if (code == MPI_SUCCESS)
        code = LARGE(MPI_Alltoallv)(in, to.counts, to.at, type, out, from.counts, from.at, type, on);
    layout_close(&to);
    layout_close(&from);
    return code;
}
