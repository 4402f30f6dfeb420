/*
 * Communicators: who holds one, and its end. Nodes keep it; its duplicates are freed by a collective call, when no rank needs them any more.
 */
#include "mpi/checked.h"

void aji_comm_retain(aj_comm *comm) {
    comm->nodes++;
}

void aji_comm_release(aj_comm *comm) {
    comm->nodes--;
    /* Freeing the duplicates is collective: a later aj_comm_destroy does it. One of size 0 has none. */
    if (comm->size == 0 && comm->handles == 0 && comm->nodes == 0)
        aji_comm_free(comm);
}

void aji_comm_free_duplicates(aj_comm *comm) {
    if (comm->user != MPI_COMM_NULL)
        MPI_Comm_delete_attr(comm->user, aji_mpi_of(comm->ctx)->comm_key);
    MPI_Comm none = MPI_COMM_NULL;
    MPI_Comm *const duplicates[] = {&comm->words,    &comm->forward, &comm->adjoint,
                                    &comm->reversed, &comm->halo,    comm->checked ? &comm->checked->payload : &none};
    for (size_t i = 0; i < sizeof(duplicates) / sizeof(*duplicates); i++)
        if (*duplicates[i] != MPI_COMM_NULL)
            MPI_Comm_free(duplicates[i]);
}

static void free_tables(aj_comm *comm) {
    size_t n = (size_t)comm->size;
    aji_free(comm->ctx, comm->marked, n);
    aji_free(comm->ctx, comm->sent, n * sizeof(*comm->sent));
    aji_free(comm->ctx, comm->received, n * sizeof(*comm->received));
    aji_free(comm->ctx, comm->arrived, n * sizeof(*comm->arrived));
}

void aji_comm_free(aj_comm *comm) {
    aji_mpi *mpi = aji_mpi_of(comm->ctx);
    if (!mpi->finalized)
        aji_comm_free_duplicates(comm);
    aj_comm **at = &mpi->comms;
    while (*at != comm)
        at = &(*at)->next;
    *at = comm->next;
    if (mpi->last == comm)
        mpi->last = NULL;
    aji_ctx_count(comm->ctx, AJ_STAT_COMMS, -1);
    aji_checked_close(comm);
    free_tables(comm);
    aji_free(comm->ctx, comm, sizeof(*comm));
}

/* Are all ranks of comm in this group? */
static bool is_within(const aj_comm *comm, MPI_Group here) {
    MPI_Group group;
    MPI_Comm_group(comm->words, &group);
    bool within = true;
    for (int rank = 0; rank < comm->size && within; rank++) {
        int there = MPI_UNDEFINED;
        MPI_Group_translate_ranks(group, 1, &rank, here, &there);
        within = there != MPI_UNDEFINED;
    }
    MPI_Group_free(&group);
    return within;
}

/* Free the duplicates that no rank needs any more: of this communicator and of those, destroyed earlier, whose ranks are all here. */
static void free_unused(aji_mpi *mpi, const aj_comm *destroyed) {
    MPI_Group here;
    MPI_Comm_group(destroyed->words, &here);
    for (aj_comm *comm = mpi->comms, *next; comm; comm = next) {
        next = comm->next;
        if (comm->handles > 0 || comm->size == 0 || (comm != destroyed && !is_within(comm, here)))
            continue;
        double in_use = comm->nodes > 0;
        if (comm->size > 1)
            aji_comm_largest(comm, 1, &in_use);
        if (in_use <= 0)
            aji_comm_free(comm);
    }
    MPI_Group_free(&here);
}

static void refuse_open_messages(aji_mpi *mpi, const aj_comm *comm) {
    for (aj_request *r = mpi->open; r; r = r->next) {
        if (r->message->comm != comm)
            continue;
        char text[160];
        aji_request_describe(r->message, text);
        aj_raise(mpi->ctx, AJ_ERR_STATE, "aj_comm_destroy: a request was never waited for: %s; expected an aj_wait for each",
                 text);
        return;
    }
}

/* Of all ranks: messages sent and not received. */
static double count_lost(const aj_comm *comm) {
    double lost = 0;
    MPI_Request request;
    for (int k = 0; k < comm->size; k++)
        lost += (double)(comm->sent[k] - comm->received[k]);
    if (comm->size > 1)
        aji_comm_finish(comm, MPI_Iallreduce(MPI_IN_PLACE, &lost, 1, MPI_DOUBLE, MPI_SUM, comm->words, &request), &request);
    return lost;
}

/* One pair of ranks between which a message was lost, the same on all: *from, *to. */
static void find_lost(const aj_comm *comm, int *from, int *to) {
    MPI_Request request;
    double pair = -1;
    aji_comm_finish(comm, MPI_Ialltoall(comm->received, 1, MPI_INT64_T, comm->arrived, 1, MPI_INT64_T, comm->words, &request),
                    &request);
    for (int k = 0; k < comm->size; k++)
        if (comm->arrived[k] < comm->sent[k])
            pair = (double)comm->rank * comm->size + k;
    aji_comm_largest(comm, 1, &pair);
    *from = (int)(pair / comm->size);
    *to = (int)(pair - (double)*from * comm->size);
}

/* All ranks are here, so every send has been received, or never will be: then its sender has the error, and the others hear of it. */
static void refuse_lost_sends(aj_comm *comm) {
    if (count_lost(comm) <= 0)
        return;
    int from, to;
    find_lost(comm, &from, &to);
    aj_raise(
        comm->ctx, from == comm->rank ? AJ_ERR_STATE : AJ_ERR_PEER,
        "aj_comm_destroy: rank %d sent a message to rank %d on this communicator that nobody received; expected a receive for "
        "each send",
        from, to);
    aji_settle(comm);
}

void aj_comm_destroy(aj_comm **at) {
    if (!at || !*at)
        return;
    aj_comm *comm = *at;
    *at = NULL;
    aji_mpi *mpi = aji_mpi_of(comm->ctx);
    if (mpi->finalized || comm->size == 0) {
        if (--comm->handles == 0 && comm->nodes == 0)
            aji_comm_free(comm);
        return;
    }
    const char *before = aji_ctx_enter(comm->ctx, "aj_comm_destroy");
    if (comm->handles == 1)
        refuse_open_messages(mpi, comm);
    aji_close_round(comm);
    if (--comm->handles == 0 && aj_ctx_status(comm->ctx) == AJ_OK)
        refuse_lost_sends(comm);
    if (comm->handles == 0)
        aji_request_give_up(comm);
    free_unused(mpi, comm);
    aji_ctx_enter(mpi->ctx, before);
}
