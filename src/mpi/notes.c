/*
 * Notes: small messages on a communicator's `words` duplicate, for the checked mode. Sending never blocks, and whoever waits for one stops when a report of an
 * error comes.
 */
#include <sched.h>
#include <string.h>

#include "mpi/checked.h"

struct aji_note {
    aji_note *next;
    size_t bytes; /* of all this */
    MPI_Request request;
    char data[];
};

aj_status aji_note_send(aj_comm *comm, int dest, int tag, const void *data, size_t bytes) {
    aji_note *note = aji_alloc(comm->ctx, sizeof(*note) + bytes);
    if (!note)
        return AJ_ERR_MEMORY;
    *note = (aji_note){.next = comm->checked->notes, .bytes = sizeof(*note) + bytes, .request = MPI_REQUEST_NULL};
    memcpy(note->data, data, bytes);
    comm->checked->notes = note;
    return aji_mpi_check(comm->ctx, aji_ctx_operation(comm->ctx),
                         MPI_Isend(note->data, (int)bytes, MPI_BYTE, dest, tag, comm->words, &note->request));
}

void aji_notes_progress(aj_comm *comm) {
    for (aji_note **at = &comm->checked->notes; *at;) {
        aji_note *note = *at;
        int done = 1;
        MPI_Test(&note->request, &done, MPI_STATUS_IGNORE);
        if (!done) {
            at = &note->next;
            continue;
        }
        *at = note->next;
        aji_free(comm->ctx, note, note->bytes);
    }
}

void aji_notes_abandon(aj_comm *comm, bool mpi_is_there) {
    while (comm->checked->notes) {
        aji_note *note = comm->checked->notes;
        comm->checked->notes = note->next;
        if (mpi_is_there && note->request != MPI_REQUEST_NULL) {
            MPI_Cancel(&note->request);
            MPI_Request_free(&note->request);
        }
        aji_free(comm->ctx, note, note->bytes);
    }
}

typedef bool interrupts(aj_comm *comm);

static aji_waited receive(aj_comm *comm, int source, int tag, void *data, size_t bytes, double end, interrupts *is_interrupted) {
    for (;;) {
        int found = 0;
        MPI_Iprobe(source, tag, comm->words, &found, MPI_STATUS_IGNORE);
        if (found) {
            MPI_Recv(data, (int)bytes, MPI_BYTE, source, tag, comm->words, MPI_STATUS_IGNORE);
            return AJI_CAME;
        }
        if (is_interrupted(comm))
            return AJI_TOLD;
        if (MPI_Wtime() > end)
            return AJI_LATE;
        if (comm->yields)
            sched_yield();
    }
}

aji_waited aji_note_recv(aj_comm *comm, int source, int tag, void *data, size_t bytes, double end) {
    return receive(comm, source, tag, data, bytes, end, aji_must_stop);
}

static const char words[] = {AJI_GO_ON, AJI_AGAIN}; /* they may leave when they like */

void aji_word_send(aj_comm *comm, int dest, aji_word word) {
    MPI_Request request;
    if (MPI_Isend(&words[word], 1, MPI_BYTE, dest, AJI_TAG_DOWN, comm->words, &request) == MPI_SUCCESS)
        MPI_Request_free(&request);
}

/* For longer than those above: see compare.c. */
aji_waited aji_word_recv(aj_comm *comm, int source, aji_word *word) {
    char came = AJI_GO_ON;
    double end = MPI_Wtime() + comm->timeout + aji_ctx_grace(comm->ctx);
    aji_waited waited = receive(comm, source, AJI_TAG_DOWN, &came, 1, end, aji_is_stuck);
    *word = (aji_word)came;
    return waited;
}
