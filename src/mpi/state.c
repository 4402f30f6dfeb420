/*
 * What a context knows of MPI: attached with its first communicator, ended with the context or in MPI_Finalize, whichever comes first.
 */
#include "mpi/records.h"
#include "mpi/user_op.h"

aji_mpi *aji_mpi_of(const aj_ctx *ctx) {
    return (aji_mpi *)aji_ctx_layer(ctx, AJI_SLOT_MPI);
}

static bool mpi_is_usable(void) {
    int initialized = 0, finalized = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    return initialized && !finalized;
}

/* ---- scopes: a spent request lives as long as its scope; the mark holds the scope's list of them ---- */

static void scope_mark(aj_ctx *ctx, void *room) {
    (void)ctx;
    *(aj_request **)room = NULL;
}

static void scope_restore(aj_ctx *ctx, const void *room, aj_scope *scope) {
    aj_request *spent = *(aj_request *const *)room;
    aji_request_scope_end(ctx, scope, &spent);
}

/* ---- the end ---- */

/* Complain of requests and sends that are still open, and give them up. */
static bool abandon_open(aji_mpi *mpi) {
    bool left = mpi->open != NULL;
    aj_comm *of = left ? mpi->open->message->comm : NULL;
    char text[160];
    for (aj_request *r = mpi->open; r; r = r->next) {
        aji_request_describe(r->message, text);
        aj_raise(mpi->ctx, AJ_ERR_STATE, "aj_ctx_destroy: a request was never waited for: %s; expected an aj_wait for each",
                 text);
        aji_ctx_log(mpi->ctx, "adjoin: aj_ctx_destroy: a request was never waited for: %s", text);
    }
    mpi->last = left ? of : mpi->last;
    if (!mpi->finalized)
        aji_last_gate(mpi->ctx);
    while (mpi->open)
        aji_request_free(mpi->open);
    if (!mpi->finalized && !aji_message_drain(mpi, NULL, aji_ctx_grace(mpi->ctx))) {
        aji_ctx_log(mpi->ctx, "adjoin: aj_ctx_destroy: a message was sent that nobody received: %s to %d, tag %d",
                    mpi->in_flight->op, mpi->in_flight->peer, mpi->in_flight->tag);
        left = true;
    }
    aji_message_abandon(mpi, NULL);
    return left;
}

/* At MPI_Finalize (through MPI_COMM_SELF): the last moment to speak. The context itself may live on without MPI. */
static int at_finalize(MPI_Comm comm, int key, void *value, void *extra) {
    (void)comm;
    (void)key;
    (void)extra;
    aji_mpi *mpi = value;
    if (mpi->finalized)
        return MPI_SUCCESS;
    aji_last_gate(mpi->ctx);
    aji_message_drain(mpi, NULL, aji_ctx_grace(mpi->ctx));
    aji_message_abandon(mpi, NULL);
    for (aj_comm *c = mpi->comms; c; c = c->next)
        aji_comm_free_duplicates(c);
    aji_operators_detach(mpi);
    mpi->finalized = true;
    return MPI_SUCCESS;
}

static bool destroy(aj_ctx *ctx) {
    aji_mpi *mpi = aji_mpi_of(ctx);
    mpi->finalized = mpi->finalized || !mpi_is_usable();
    bool left = abandon_open(mpi);
    for (aj_scope *s = aji_ctx_scope(ctx); s; s = aji_scope_parent(s))
        aji_request_scope_end(ctx, s, aji_scope_mark(s, AJI_SLOT_MPI));
    aji_recording_drop(ctx); /* its nodes hold communicators */
    int kept = 0;
    while (mpi->comms) {
        kept += mpi->comms->handles > 0;
        aji_comm_free(mpi->comms);
    }
    if (kept)
        aji_ctx_log(
            ctx, "adjoin: aj_ctx_destroy: %d communicator%s never destroyed; expected an aj_comm_destroy for each aj_comm_create",
            kept, kept == 1 ? " was" : "s were");
    if (!mpi->finalized) {
        mpi->finalized = true; /* the attribute's delete function has nothing to do any more */
        MPI_Comm_delete_attr(MPI_COMM_SELF, mpi->self_key);
        aji_operators_detach(mpi);
        MPI_Comm_free_keyval(&mpi->self_key);
        MPI_Comm_free_keyval(&mpi->comm_key);
    }
    aji_user_ops_free(mpi);
    aji_ctx_set_layer(ctx, AJI_SLOT_MPI, NULL);
    aji_free(ctx, mpi, sizeof(*mpi));
    return left || kept > 0;
}

/* ---- the beginning ---- */

static aj_ctx *comm_ctx(const aj_comm *comm) {
    return comm->ctx;
}

static int comm_rank(const aj_comm *comm) {
    return comm->rank;
}

static int comm_size(const aj_comm *comm) {
    return comm->size > 0 ? comm->size : 1;
}

/* The checks of autograd.h compare numbers over the ranks. */
static const aji_op aji_op_check = {.name = "a check of gradients"};

static aj_status sum(aj_comm *comm, int n, double *values) {
    aj_ctx *ctx = comm->ctx;
    if (aj_ctx_status(ctx) != AJ_OK)
        aji_gate(ctx, comm);
    else if (comm->size > 1)
        aji_mpi_allreduce(&(aji_call){.ctx = ctx, .op = &aji_op_check, .comm = comm}, MPI_IN_PLACE, values, n, MPI_DOUBLE,
                          MPI_SUM);
    return aj_ctx_status(ctx);
}

static aj_status gather(aj_comm *comm, int n, const double *mine, double *all) {
    aj_ctx *ctx = comm->ctx;
    if (aj_ctx_status(ctx) != AJ_OK) {
        aji_gate(ctx, comm);
    } else if (comm->size > 1) {
        aji_mpi_allgather(&(aji_call){.ctx = ctx, .op = &aji_op_check, .comm = comm}, mine, all, n, MPI_DOUBLE);
    } else {
        for (int i = 0; i < n; i++)
            all[i] = mine[i];
    }
    return aj_ctx_status(ctx);
}

static aj_status compare(const aji_call *c) {
    return aji_compare_call(c, AJI_ANY_SHAPE, MPI_OP_NULL, AJI_NO_ROOT);
}

/* MPI forgets the cache when the user frees the communicator. */
static int at_user_free(MPI_Comm comm, int key, void *value, void *extra) {
    (void)comm;
    (void)key;
    (void)extra;
    ((aj_comm *)value)->user = MPI_COMM_NULL;
    return MPI_SUCCESS;
}

static aj_status make_keys(aji_mpi *mpi, const char *op) {
    int code = MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_finalize, &mpi->self_key, NULL);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_user_free, &mpi->comm_key, NULL);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_set_attr(MPI_COMM_SELF, mpi->self_key, mpi);
    return aji_mpi_check(mpi->ctx, op, code);
}

aj_status aji_mpi_attach(aj_ctx *ctx, const char *op) {
    if (!mpi_is_usable())
        return aj_raise(ctx, AJ_ERR_STATE,
                        "%s: MPI is not initialised, or finalised; expected a call between MPI_Init and MPI_Finalize", op);
    if (aji_mpi_of(ctx))
        return AJ_OK;
    static const aji_comm_hooks hooks = {.retain = aji_comm_retain,
                                         .release = aji_comm_release,
                                         .ctx = comm_ctx,
                                         .gate = aji_gate,
                                         .compare = compare,
                                         .open_request = aji_open_request,
                                         .sweep_begin = aji_streams_begin,
                                         .sweep_end = aji_streams_end,
                                         .rank = comm_rank,
                                         .size = comm_size,
                                         .sum = sum,
                                         .gather = gather};
    aj_status status = aji_autograd_set_comm_hooks(ctx, &hooks);
    if (status != AJ_OK)
        return status;
    aji_mpi *mpi = aji_calloc(ctx, sizeof(*mpi));
    if (!mpi)
        return AJ_ERR_MEMORY;
    mpi->layer = (aji_layer){.scope_mark = scope_mark, .scope_restore = scope_restore, .destroy = destroy};
    mpi->ctx = ctx;
    mpi->in_flight_end = &mpi->in_flight;
    mpi->cuda_aware = aji_mpi_is_aware();
    /* The keys last: MPI_Finalize finds this state by them. */
    if ((status = aji_operators_attach(mpi, op)) != AJ_OK || (status = make_keys(mpi, op)) != AJ_OK) {
        aji_free(ctx, mpi, sizeof(*mpi));
        return status;
    }
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    aji_ctx_set_rank(ctx, rank);
    aji_ctx_set_layer(ctx, AJI_SLOT_MPI, &mpi->layer);
    return AJ_OK;
}
