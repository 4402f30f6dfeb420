#include "cuda_aware_mpi.h"
#include "cuda_standin_private.h"
#include "mpi/counts.h"

int aware_mpi_says;
long aware_mpi_calls, aware_mpi_pinned_calls;

/* MPICH's question, which comes before Open MPI's. */
int MPIX_GPU_query_support(int type, int *is_supported) {
    *is_supported = type == 0 && aware_mpi_says;
    return MPI_SUCCESS;
}

/* A rank of the same machine must not read another's memory behind its back, at a time when that is closed. With UCX's tcp instead, MPICH 4.0.2 may wait for ever
 * in MPI_Finalize after large messages. */
__attribute__((constructor)) static void without_single_copies(void) {
    setenv("UCX_TLS", "self,posix,sysv", 0);
    setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
    setenv("OMPI_MCA_smsc", "^cma", 0);
}

/* ---- requests with device memory ---- */

enum { MAX_PENDING = 256 };
static MPI_Request pending[MAX_PENDING];
static int n_pending;

int aware_mpi_pending(void) {
    return n_pending;
}

static void add(MPI_Request request) {
    if (n_pending == MAX_PENDING)
        STANDIN_DIE("more than %d nonblocking calls with device memory", MAX_PENDING);
    pending[n_pending++] = request;
}

static void forget(MPI_Request request) {
    for (int i = 0; i < n_pending; i++)
        if (pending[i] == request) {
            pending[i] = pending[--n_pending];
            return;
        }
}

/* ---- around calls ---- */

static bool is_device(const void *at) {
    return at && at != MPI_IN_PLACE && standin_is_device_memory(at);
}

static bool is_pinned(const void *at) {
    return !at || at == MPI_IN_PLACE || standin_is_pinned(at);
}

static bool is_predefined(MPI_Op op) {
    static const MPI_Op ops[] = {MPI_OP_NULL, MPI_SUM,  MPI_PROD, MPI_MAX, MPI_MIN, MPI_LAND,
                                 MPI_LOR,     MPI_LXOR, MPI_BAND, MPI_BOR, MPI_BXOR};
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
        if (ops[i] == op)
            return true;
    return false;
}

static void check(const char *call, MPI_Op op) {
    if (!standin_is_idle())
        STANDIN_DIE("%s is given device memory that a stream works on", call);
    if (standin_current() < 0)
        STANDIN_DIE("%s is given device memory where no context is current", call);
    if (!is_predefined(op))
        STANDIN_DIE("%s reduces device memory by a function on the host", call);
}

/* Is device memory to be closed afterwards? */
static bool opens(void) {
    if (n_pending > 0)
        standin_memory_open(0);
    return n_pending > 0;
}

/* The same for a call with numbers at `a` and `b`: has it device memory? */
static bool opens_for(const char *call, const void *a, const void *b, MPI_Op op) {
    bool device = is_device(a) || is_device(b);
    aware_mpi_pinned_calls += is_pinned(a) && is_pinned(b);
    aware_mpi_calls += device;
    if (device) {
        check(call, op);
        standin_memory_open(0);
    } else {
        (void)opens();
    }
    return device;
}

static int closed(int code) {
    standin_memory_close(0);
    return code;
}

#define BLOCKING(name, parameters, arguments, a, b, op)                                                                          \
    int name parameters {                                                                                                        \
        (void)opens_for(#name, a, b, op);                                                                                        \
        return closed(P##name arguments);                                                                                        \
    }
#define NONBLOCKING(name, parameters, arguments, a, b, op)                                                                       \
    int name parameters {                                                                                                        \
        bool device = opens_for(#name, a, b, op);                                                                                \
        int code = closed(P##name arguments);                                                                                    \
        if (device && code == MPI_SUCCESS)                                                                                       \
            add(*request);                                                                                                       \
        return code;                                                                                                             \
    }
/* The names of counts.h, which are macros' */
#define BLOCKING_(name, ...) BLOCKING(name, __VA_ARGS__)
#define NONBLOCKING_(name, ...) NONBLOCKING(name, __VA_ARGS__)
#define UNPACK(...) __VA_ARGS__
/* A collective both ways, with 64-bit counts where there are such. */
#define COLLECTIVE(name, Iname, parameters, arguments, a, b, op)                                                                 \
    BLOCKING_(AJI_LARGE(MPI_##name), (UNPACK parameters), (UNPACK arguments), a, b, op)                                          \
    NONBLOCKING_(AJI_LARGE(MPI_##Iname), (UNPACK parameters, MPI_Request * request), (UNPACK arguments, request), a, b, op)

/* ---- collectives ---- */

typedef const aji_count counts[];
typedef const aji_displacement places[];
#define NO_OP MPI_OP_NULL

COLLECTIVE(Allreduce, Iallreduce, (const void *in, void *out, aji_count n, MPI_Datatype t, MPI_Op op, MPI_Comm on),
           (in, out, n, t, op, on), in, out, op)
COLLECTIVE(Reduce, Ireduce, (const void *in, void *out, aji_count n, MPI_Datatype t, MPI_Op op, int root, MPI_Comm on),
           (in, out, n, t, op, root, on), in, out, op)
COLLECTIVE(Scan, Iscan, (const void *in, void *out, aji_count n, MPI_Datatype t, MPI_Op op, MPI_Comm on), (in, out, n, t, op, on),
           in, out, op)
COLLECTIVE(Exscan, Iexscan, (const void *in, void *out, aji_count n, MPI_Datatype t, MPI_Op op, MPI_Comm on),
           (in, out, n, t, op, on), in, out, op)
COLLECTIVE(Reduce_scatter, Ireduce_scatter, (const void *in, void *out, counts n, MPI_Datatype t, MPI_Op op, MPI_Comm on),
           (in, out, n, t, op, on), in, out, op)
COLLECTIVE(Bcast, Ibcast, (void *data, aji_count n, MPI_Datatype t, int root, MPI_Comm on), (data, n, t, root, on), data, NULL,
           NO_OP)
COLLECTIVE(Allgather, Iallgather,
           (const void *in, aji_count n, MPI_Datatype t, void *out, aji_count m, MPI_Datatype u, MPI_Comm on),
           (in, n, t, out, m, u, on), in, out, NO_OP)
COLLECTIVE(Alltoall, Ialltoall,
           (const void *in, aji_count n, MPI_Datatype t, void *out, aji_count m, MPI_Datatype u, MPI_Comm on),
           (in, n, t, out, m, u, on), in, out, NO_OP)
COLLECTIVE(Gatherv, Igatherv,
           (const void *in, aji_count n, MPI_Datatype t, void *out, counts m, places at, MPI_Datatype u, int root, MPI_Comm on),
           (in, n, t, out, m, at, u, root, on), in, out, NO_OP)
COLLECTIVE(Scatterv, Iscatterv,
           (const void *in, counts n, places at, MPI_Datatype t, void *out, aji_count m, MPI_Datatype u, int root, MPI_Comm on),
           (in, n, at, t, out, m, u, root, on), in, out, NO_OP)
COLLECTIVE(Allgatherv, Iallgatherv,
           (const void *in, aji_count n, MPI_Datatype t, void *out, counts m, places at, MPI_Datatype u, MPI_Comm on),
           (in, n, t, out, m, at, u, on), in, out, NO_OP)
COLLECTIVE(Alltoallv, Ialltoallv,
           (const void *in, counts n, places from, MPI_Datatype t, void *out, counts m, places to, MPI_Datatype u, MPI_Comm on),
           (in, n, from, t, out, m, to, u, on), in, out, NO_OP)

/* ---- messages ---- */

NONBLOCKING(MPI_Isend, (const void *data, int n, MPI_Datatype t, int to, int tag, MPI_Comm on, MPI_Request *request),
            (data, n, t, to, tag, on, request), data, NULL, NO_OP)
NONBLOCKING(MPI_Irecv, (void *data, int n, MPI_Datatype t, int from, int tag, MPI_Comm on, MPI_Request *request),
            (data, n, t, from, tag, on, request), data, NULL, NO_OP)
#if MPI_VERSION >= 4
NONBLOCKING(MPI_Isend_c, (const void *data, MPI_Count n, MPI_Datatype t, int to, int tag, MPI_Comm on, MPI_Request *request),
            (data, n, t, to, tag, on, request), data, NULL, NO_OP)
NONBLOCKING(MPI_Irecv_c, (void *data, MPI_Count n, MPI_Datatype t, int from, int tag, MPI_Comm on, MPI_Request *request),
            (data, n, t, from, tag, on, request), data, NULL, NO_OP)
#endif
BLOCKING(MPI_Reduce_local, (const void *in, void *inout, int n, MPI_Datatype t, MPI_Op op), (in, inout, n, t, op), in, inout, op)

/* ---- calls that finish others, or make progress ---- */

int MPI_Test(MPI_Request *request, int *done, MPI_Status *status) {
    MPI_Request of = *request;
    bool open = opens();
    int code = PMPI_Test(request, done, status);
    if (*done || code != MPI_SUCCESS)
        forget(of);
    return open ? closed(code) : code;
}

int MPI_Wait(MPI_Request *request, MPI_Status *status) {
    MPI_Request of = *request;
    bool open = opens();
    int code = PMPI_Wait(request, status);
    forget(of);
    return open ? closed(code) : code;
}

int MPI_Request_free(MPI_Request *request) {
    forget(*request);
    return PMPI_Request_free(request);
}

#define PROGRESS(name, parameters, arguments)                                                                                    \
    int name parameters {                                                                                                        \
        bool open = opens();                                                                                                     \
        int code = P##name arguments;                                                                                            \
        return open ? closed(code) : code;                                                                                       \
    }
PROGRESS(MPI_Cancel, (MPI_Request * request), (request))
PROGRESS(MPI_Iprobe, (int from, int tag, MPI_Comm on, int *flag, MPI_Status *status), (from, tag, on, flag, status))
PROGRESS(MPI_Recv, (void *data, int n, MPI_Datatype t, int from, int tag, MPI_Comm on, MPI_Status *status),
         (data, n, t, from, tag, on, status))
PROGRESS(MPI_Barrier, (MPI_Comm on), (on))
PROGRESS(MPI_Ibarrier, (MPI_Comm on, MPI_Request *request), (on, request))
PROGRESS(MPI_Comm_idup, (MPI_Comm on, MPI_Comm *made, MPI_Request *request), (on, made, request))
PROGRESS(MPI_Comm_free, (MPI_Comm * on), (on))
#if MPI_VERSION >= 4 /* else above */
PROGRESS(MPI_Allreduce, (const void *in, void *out, int n, MPI_Datatype t, MPI_Op op, MPI_Comm on), (in, out, n, t, op, on))
PROGRESS(MPI_Iallreduce, (const void *in, void *out, int n, MPI_Datatype t, MPI_Op op, MPI_Comm on, MPI_Request *request),
         (in, out, n, t, op, on, request))
#endif
PROGRESS(MPI_Comm_split, (MPI_Comm on, int color, int key, MPI_Comm *made), (on, color, key, made))
