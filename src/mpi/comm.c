/*
 * Communicators: duplicates of the user's, cached through an attribute on it. comm_destroy.c frees them.
 */
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "mpi/checked.h"
#include "mpi/counts.h"

/* ---- creation ---- */

/* Processes of the job on this machine, as the launcher tells: also those outside the communicator. 0: it does not. */
static int launched_here(void) {
    static const char *const variables[] = {"MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE"};
    for (size_t i = 0; i < sizeof(variables) / sizeof(*variables); i++) {
        const char *text = getenv(variables[i]);
        if (text && atoi(text) > 0)
            return atoi(text);
    }
    return 0;
}

/* Creation is polled: whether these ranks have cores of their own is not known yet. What has begun cannot be taken back: past the time limit the job ends. */
int aji_comm_finish(const aj_comm *comm, int code, MPI_Request *request) {
    aj_ctx *ctx = comm->ctx;
    /* Another rank may wait the grace time for something before it comes. */
    double limit = comm->timeout > 0 ? comm->timeout : aji_ctx_timeout(ctx);
    limit = limit > 0 ? limit + aji_ctx_grace(ctx) : -1;
    bool done = true;
    if (code == MPI_SUCCESS)
        code = aji_mpi_wait(true, request, MPI_STATUS_IGNORE, limit, &done);
    if (code == MPI_SUCCESS && !done) {
        aj_raise(ctx, AJ_ERR_PEER, "%s: waited %g s for the other ranks (ADJOIN_TIMEOUT); expected the call on all of them",
                 aji_ctx_operation(ctx), limit);
        aji_ctx_log(ctx, "adjoin: the job ends. %s", aj_ctx_error(ctx));
        aji_end_job();
    }
    return code;
}

int aji_comm_largest(const aj_comm *comm, int n, double *values) {
    MPI_Request request;
    return aji_comm_finish(comm, MPI_Iallreduce(MPI_IN_PLACE, values, n, MPI_DOUBLE, MPI_MAX, comm->words, &request), &request);
}

/* Cores that the ranks of this machine may use between them: each may be bound to one of its own. */
static int cores_together(MPI_Comm comm, cpu_set_t *mine, int *ranks) {
    MPI_Comm local;
    if (MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local) != MPI_SUCCESS)
        return 0;
    cpu_set_t all = *mine;
    MPI_Comm_size(local, ranks);
    MPI_Allreduce(mine, &all, (int)sizeof(all), MPI_BYTE, MPI_BOR, local);
    MPI_Comm_free(&local);
    return CPU_COUNT(&all);
}

static aj_status duplicate(const aj_comm *comm, MPI_Comm of, MPI_Comm *into) {
    MPI_Request request;
    int code = aji_comm_finish(comm, MPI_Comm_idup(of, into, &request), &request);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_set_errhandler(*into, MPI_ERRORS_RETURN);
    return aji_mpi_check(comm->ctx, "aj_comm_create", code);
}

/* Elements in one call of MPI at most. Fewer than MPI can say: so that a test sees the calls that more elements take. */
static double most_elements(void) {
    const char *text = getenv("ADJOIN_MAX_COUNT");
    double most = text ? strtod(text, NULL) : 0;
    return most >= 1 ? most : (double)AJI_MOST;
}

/* How to wait, alike on all ranks: with a time limit, checked? Do ranks outnumber cores anywhere? The launcher's word and this process' own cores settle that, unless
 * some process is bound to a part of them. And have all ranks got this far? *status: how far this rank has; what it needs for the checked mode is allocated on the way. */
static int agree_on_waiting(aj_comm *comm, aj_status *status, bool *all_well) {
    cpu_set_t mine;
    CPU_ZERO(&mine);
    sched_getaffinity(0, sizeof(mine), &mine);
    int ranks = launched_here(), cores = CPU_COUNT(&mine);
    bool must_look = ranks == 0 || cores < sysconf(_SC_NPROCESSORS_ONLN);
    double first[] = {must_look, aji_ctx_timeout(comm->ctx), aji_ctx_checked(comm->ctx), -most_elements()};
    int code = aji_comm_largest(comm, 4, first);
    if (code != MPI_SUCCESS)
        return code;
    bool checked = first[2] > 0;
    if (first[0] > 0)
        cores = cores_together(comm->words, &mine, &ranks);
    if (*status == AJ_OK && checked)
        *status = aji_checked_open(comm);
    double second[] = {ranks > cores, *status != AJ_OK};
    code = aji_comm_largest(comm, 2, second);
    *all_well = second[1] <= 0;
    comm->timeout = first[1] > 0 ? first[1] : -1;
    comm->yields = second[0] > 0;
    comm->most = -first[3] < (double)AJI_MOST ? (int64_t)-first[3] : AJI_MOST;
    comm->polls = comm->yields || comm->timeout > 0;
    return code;
}

static aj_status agree_at_creation(aj_comm *comm, aj_status mine) {
    bool all_well = true;
    int code = agree_on_waiting(comm, &mine, &all_well);
    if (mine != AJ_OK)
        return mine;
    if (code == MPI_SUCCESS && !all_well)
        return aj_raise(comm->ctx, AJ_ERR_PEER,
                        "aj_comm_create: another rank failed to create this communicator; its message is on that rank");
    aj_status status = aji_mpi_check(comm->ctx, "aj_comm_create", code);
    return status == AJ_OK && comm->checked ? duplicate(comm, comm->words, &comm->checked->payload) : status;
}

/* What is kept for each rank. */
static aj_status make_tables(aj_comm *comm) {
    size_t n = (size_t)comm->size;
    comm->marked = aji_calloc(comm->ctx, n);
    comm->sent = aji_calloc(comm->ctx, n * sizeof(*comm->sent));
    comm->received = aji_calloc(comm->ctx, n * sizeof(*comm->received));
    comm->arrived = aji_calloc(comm->ctx, n * sizeof(*comm->arrived));
    return comm->marked && comm->sent && comm->received && comm->arrived ? AJ_OK : AJ_ERR_MEMORY;
}

static int largest_tag(MPI_Comm comm) {
    int found = 0, *value = NULL;
    MPI_Comm_get_attr(comm, MPI_TAG_UB, &value, &found);
    return found ? *value : 32767; /* what MPI guarantees */
}

/* The duplicates, and what does not depend on the other ranks. Without memory this rank still takes part in what the others do. */
static aj_status open_comm(aj_comm *comm, MPI_Comm user, aj_status so_far) {
    MPI_Comm *const duplicates[] = {&comm->words, &comm->forward, &comm->adjoint};
    for (int i = 0; i < 3; i++) {
        aj_status status = duplicate(comm, user, duplicates[i]);
        if (status != AJ_OK)
            return status;
    }
    MPI_Comm_rank(comm->words, &comm->rank);
    MPI_Comm_size(comm->words, &comm->size);
    comm->largest_tag = largest_tag(comm->words);
    if (so_far == AJ_OK)
        so_far = make_tables(comm);
    return agree_at_creation(comm, so_far);
}

static aj_comm *comm_new(aji_mpi *mpi) {
    aj_comm *comm = aji_calloc(mpi->ctx, sizeof(*comm));
    if (!comm)
        return NULL;
    comm->ctx = mpi->ctx;
    comm->handles = 1;
    comm->rank = MPI_PROC_NULL;
    comm->largest_tag = 32767;
    comm->forward = comm->adjoint = comm->words = comm->reversed = comm->halo = comm->user = MPI_COMM_NULL;
    aj_comm **end = &mpi->comms;
    while (*end)
        end = &(*end)->next;
    *end = comm;
    aji_ctx_count(mpi->ctx, AJ_STAT_COMMS, 1);
    return comm;
}

/* The communicator made from this one before, if it is still there: the same on every rank. */
static aj_comm *cached(const aji_mpi *mpi, MPI_Comm user) {
    void *value = NULL;
    int found = 0;
    MPI_Comm_get_attr(user, mpi->comm_key, &value, &found);
    return found ? value : NULL;
}

/* This rank could not even allocate: take part in what the others do, so that they learn of it. */
static void fail_with_others(aj_ctx *ctx, MPI_Comm user) {
    aj_comm stand_in = {.ctx = ctx, .forward = MPI_COMM_NULL, .adjoint = MPI_COMM_NULL, .words = MPI_COMM_NULL};
    open_comm(&stand_in, user, AJ_ERR_MEMORY);
    MPI_Comm_free(&stand_in.words);
    MPI_Comm_free(&stand_in.forward);
    MPI_Comm_free(&stand_in.adjoint);
}

aj_comm *aj_comm_create(aj_ctx *ctx, MPI_Comm user) {
    static const char op[] = "aj_comm_create";
    if (!ctx)
        return NULL;
    aj_status status = aji_mpi_attach(ctx, op);
    if (status == AJ_ERR_STATE || status == AJ_ERR_MPI)
        return NULL;
    int inter = 0;
    if (user != MPI_COMM_NULL)
        MPI_Comm_test_inter(user, &inter);
    if (inter) {
        aj_raise(ctx, AJ_ERR_ARG,
                 "%s: the communicator is an intercommunicator; expected an intracommunicator (see MPI_Intercomm_merge)", op);
        return NULL;
    }
    aji_mpi *mpi = aji_mpi_of(ctx);
    aj_comm *comm = mpi && user != MPI_COMM_NULL ? cached(mpi, user) : NULL;
    if (comm) {
        comm->handles++;
        return comm;
    }
    comm = mpi ? comm_new(mpi) : NULL;
    if (user == MPI_COMM_NULL)
        return comm;
    if (!comm) {
        fail_with_others(ctx, user);
        return NULL;
    }
    const char *before = aji_ctx_enter(ctx, op);
    status = open_comm(comm, user, AJ_OK);
    aji_ctx_enter(ctx, before);
    if (status == AJ_OK)
        status = aji_mpi_check(ctx, op, MPI_Comm_set_attr(user, mpi->comm_key, comm));
    if (status != AJ_OK) {
        aji_comm_free(comm);
        return NULL;
    }
    comm->user = user;
    mpi->last = comm;
    return comm;
}

aj_comm *aj_comm_split(aj_comm *comm, int color, int key) {
    static const char op[] = "aj_comm_split";
    if (!comm)
        return NULL;
    aj_ctx *ctx = comm->ctx;
    if (comm->size == 0)
        return aj_comm_create(ctx, MPI_COMM_NULL);
    if (color < 0 && color != MPI_UNDEFINED)
        aj_raise(ctx, AJ_ERR_ARG, "%s: color %d; expected one >= 0 or MPI_UNDEFINED", op, color);
    MPI_Comm part = MPI_COMM_NULL;
    const char *before = aji_ctx_enter(ctx, op);
    aji_comm_enter(comm, op);
    aj_status status = aji_meet(comm, op);
    if (status == AJ_OK)
        status = aji_mpi_check(ctx, op, MPI_Comm_split(comm->forward, color, key, &part));
    if (status != AJ_OK)
        aji_gate(ctx, comm);
    aji_ctx_enter(ctx, before);
    if (status != AJ_OK)
        return NULL;
    aj_comm *made = aj_comm_create(ctx, part);
    if (part != MPI_COMM_NULL)
        MPI_Comm_free(&part);
    return made;
}

aj_status aji_comm_need_reversed(aj_comm *comm, const char *op) {
    if (comm->reversed != MPI_COMM_NULL)
        return AJ_OK;
    aj_status status = aji_meet(comm, op);
    if (status == AJ_OK)
        status = aji_mpi_check(comm->ctx, op, MPI_Comm_split(comm->forward, 0, -comm->rank, &comm->reversed));
    if (status == AJ_OK)
        MPI_Comm_set_errhandler(comm->reversed, MPI_ERRORS_RETURN);
    return status;
}

/* ---- getters ---- */

int aj_comm_rank(const aj_comm *comm) {
    return comm ? comm->rank : -1;
}

int aj_comm_size(const aj_comm *comm) {
    return comm ? comm->size : 0;
}

MPI_Comm aj_comm_mpi(const aj_comm *comm) {
    return comm ? comm->forward : MPI_COMM_NULL;
}

aj_ctx *aj_comm_ctx(const aj_comm *comm) {
    return comm ? comm->ctx : NULL;
}

MPI_Comm aji_channel(const aj_comm *comm) {
    return aji_in_sweep(comm->ctx) ? comm->adjoint : comm->forward;
}
