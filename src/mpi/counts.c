/*
 * MPI calls with 64-bit counts. Collectives block where the communicator has agreed that its ranks have cores of their own, and are polled where they
 * have not: a blocking and a nonblocking collective do not match each other.
 */
#include <limits.h>

#include "mpi/comm_internal.h"

#if MPI_VERSION >= 4
#define COUNT(n) ((MPI_Count)(n))
#define LARGE(call) call##_c
#else /* 32-bit counts: refuse what they cannot say */
#define COUNT(n) ((int)(n))
#define LARGE(call) call
#endif

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

static int poll_until_done(int code, MPI_Request *request) {
    return code == MPI_SUCCESS ? aji_mpi_wait(true, request, MPI_STATUS_IGNORE, -1, NULL) : code;
}

int aji_mpi_allreduce(const aj_comm *comm, MPI_Comm on, const void *in, void *out, int64_t n, MPI_Datatype type, MPI_Op op) {
    MPI_Request request;
    if (!fits(n))
        return MPI_ERR_COUNT;
    if (!comm->yields)
        return LARGE(MPI_Allreduce)(in, out, COUNT(n), type, op, on);
    return poll_until_done(LARGE(MPI_Iallreduce)(in, out, COUNT(n), type, op, on, &request), &request);
}

int aji_mpi_reduce(const aj_comm *comm, MPI_Comm on, const void *in, void *out, int64_t n, MPI_Datatype type, MPI_Op op,
                   int root) {
    MPI_Request request;
    if (!fits(n))
        return MPI_ERR_COUNT;
    if (!comm->yields)
        return LARGE(MPI_Reduce)(in, out, COUNT(n), type, op, root, on);
    return poll_until_done(LARGE(MPI_Ireduce)(in, out, COUNT(n), type, op, root, on, &request), &request);
}

int aji_mpi_bcast(const aj_comm *comm, MPI_Comm on, void *data, int64_t n, MPI_Datatype type, int root) {
    MPI_Request request;
    if (!fits(n))
        return MPI_ERR_COUNT;
    if (!comm->yields)
        return LARGE(MPI_Bcast)(data, COUNT(n), type, root, on);
    return poll_until_done(LARGE(MPI_Ibcast)(data, COUNT(n), type, root, on, &request), &request);
}

int aji_mpi_allgather(const aj_comm *comm, MPI_Comm on, const void *in, void *out, int64_t n, MPI_Datatype type) {
    MPI_Request request;
    if (!fits(n))
        return MPI_ERR_COUNT;
    if (!comm->yields)
        return LARGE(MPI_Allgather)(in, COUNT(n), type, out, COUNT(n), type, on);
    return poll_until_done(LARGE(MPI_Iallgather)(in, COUNT(n), type, out, COUNT(n), type, on, &request), &request);
}

int aji_mpi_barrier(const aj_comm *comm, MPI_Comm on) {
    MPI_Request request;
    return comm->yields ? poll_until_done(MPI_Ibarrier(on, &request), &request) : MPI_Barrier(on);
}

int aji_mpi_isend(MPI_Comm on, const void *data, int64_t n, MPI_Datatype type, int dest, int tag, MPI_Request *request) {
    return fits(n) ? LARGE(MPI_Isend)(data, COUNT(n), type, dest, tag, on, request) : MPI_ERR_COUNT;
}

int aji_mpi_irecv(MPI_Comm on, void *data, int64_t n, MPI_Datatype type, int source, int tag, MPI_Request *request) {
    return fits(n) ? LARGE(MPI_Irecv)(data, COUNT(n), type, source, tag, on, request) : MPI_ERR_COUNT;
}

int aji_mpi_get_count(const MPI_Status *status, MPI_Datatype type, int64_t *n) {
#if MPI_VERSION >= 4
    MPI_Count count = 0;
#else
    int count = 0;
#endif
    int code = LARGE(MPI_Get_count)(status, type, &count);
    *n = (int64_t)count;
    return code;
}
