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
    int n;
    MPI_Request requests[]; /* then the data */
};

static void note_free(const aj_comm *comm, aji_note *note) {
    aji_free(comm->ctx, note, note->bytes);
}

aj_status aji_note_send(aj_comm *comm, int first, int n, int tag, const void *data, size_t bytes) {
    size_t room = sizeof(aji_note) + (size_t)n * sizeof(MPI_Request);
    aji_note *note = aji_alloc(comm->ctx, room + bytes);
    if (!note)
        return AJ_ERR_MEMORY;
    void *copy = memcpy((char *)note + room, data, bytes);
    *note = (aji_note){.next = comm->checked->notes, .bytes = room + bytes, .n = n};
    comm->checked->notes = note;
    int code = MPI_SUCCESS;
    for (int i = 0; i < n; i++) {
        note->requests[i] = MPI_REQUEST_NULL;
        if (first + i != comm->rank && code == MPI_SUCCESS)
            code = MPI_Isend(copy, (int)bytes, MPI_BYTE, first + i, tag, comm->words, &note->requests[i]);
    }
    return aji_mpi_check(comm->ctx, aji_ctx_operation(comm->ctx), code);
}

static bool is_done(aji_note *note) {
    int done = 1;
    for (int i = 0; i < note->n && done; i++)
        MPI_Test(&note->requests[i], &done, MPI_STATUS_IGNORE);
    return done;
}

void aji_notes_progress(aj_comm *comm) {
    for (aji_note **at = &comm->checked->notes; *at;) {
        aji_note *note = *at;
        if (!is_done(note)) {
            at = &note->next;
            continue;
        }
        *at = note->next;
        note_free(comm, note);
    }
}

void aji_notes_abandon(aj_comm *comm, bool mpi_is_there) {
    while (comm->checked->notes) {
        aji_note *note = comm->checked->notes;
        comm->checked->notes = note->next;
        for (int i = 0; mpi_is_there && i < note->n; i++)
            if (note->requests[i] != MPI_REQUEST_NULL) {
                MPI_Cancel(&note->requests[i]);
                MPI_Request_free(&note->requests[i]);
            }
        note_free(comm, note);
    }
}

typedef bool interrupts(aj_comm *comm);

static aji_waited receive(aj_comm *comm, int source, int tag, void *data, size_t bytes, interrupts *is_interrupted) {
    double end = MPI_Wtime() + comm->timeout;
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

aji_waited aji_note_recv(aj_comm *comm, int source, int tag, void *data, size_t bytes) {
    return receive(comm, source, tag, data, bytes, aji_is_told);
}

aji_waited aji_note_recv_passed(aj_comm *comm, int source, void *data, size_t bytes) {
    return receive(comm, source, AJI_TAG_DOWN, data, bytes, aji_is_told_by_all_behind);
}
