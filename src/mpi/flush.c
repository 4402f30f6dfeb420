/*
 * Giving up the messages that are under way, after an error that all ranks know of.
 *
 * Freeing the duplicates would not do: MPI gives their context to the next communicator, and with it the messages that nobody received. So they are
 * received here: each rank sends each rank a marker on each duplicate, and receives all that comes before it, since messages between two ranks on one
 * communicator do not overtake each other.
 */
#include <sched.h>
#include <string.h>

#include "mpi/checked.h"

#define MARKER_BYTES 16
static const char marker[MARKER_BYTES] = "adjoin: flushed";

/* The duplicates that carry messages. */
static int channels(const aj_comm *comm, MPI_Comm on[AJI_MAX_CHANNELS]) {
    int n = 0;
    on[n++] = comm->forward;
    on[n++] = comm->adjoint;
    if (comm->halo != MPI_COMM_NULL) /* alike on all ranks: its making is collective */
        on[n++] = comm->halo;
    if (comm->checked) {
        on[n++] = comm->words;
        on[n++] = comm->checked->payload;
    }
    return n;
}

/* Receive the next message from this rank; true if it was the marker. A longer message is cut: MPI says so, and it is gone all the same. */
static bool receive_one(MPI_Comm on, const MPI_Status *found) {
    char data[MARKER_BYTES] = "";
    int bytes = 0;
    MPI_Get_count(found, MPI_BYTE, &bytes);
    MPI_Recv(data, MARKER_BYTES, MPI_BYTE, found->MPI_SOURCE, found->MPI_TAG, on, MPI_STATUS_IGNORE);
    return bytes == MARKER_BYTES && memcmp(data, marker, MARKER_BYTES) == 0;
}

void aji_flush_begin(aj_comm *comm) {
    MPI_Comm on[AJI_MAX_CHANNELS];
    int n = channels(comm, on);
    memset(comm->marked, 0, (size_t)comm->size * sizeof(*comm->marked));
    MPI_Request request;
    for (int i = 0; i < n; i++)
        for (int dest = 0; dest < comm->size; dest++)
            if (dest != comm->rank && MPI_Isend(marker, MARKER_BYTES, MPI_BYTE, dest, 0, on[i], &request) == MPI_SUCCESS)
                MPI_Request_free(&request); /* the marker is a constant: it may leave when it likes */
}

/* Receive what has come from this rank on this duplicate. True when that is all: the marker has come; what a rank sent to itself is there at once. */
static bool receive_until_marked(const aj_comm *comm, int source, MPI_Comm on) {
    for (;;) {
        int found = 0;
        MPI_Status status;
        if (MPI_Iprobe(source, MPI_ANY_TAG, on, &found, &status) != MPI_SUCCESS)
            return true;
        if (!found)
            return source == comm->rank;
        if (receive_one(on, &status))
            return true;
    }
}

bool aji_flush_step(aj_comm *comm) {
    MPI_Comm on[AJI_MAX_CHANNELS];
    int n = channels(comm, on);
    unsigned all = (1u << n) - 1;
    bool done = true;
    for (int source = 0; source < comm->size; source++) {
        for (int i = 0; i < n; i++)
            if (!(comm->marked[source] & (1u << i)) && receive_until_marked(comm, source, on[i]))
                comm->marked[source] |= (unsigned char)(1u << i);
        done = done && comm->marked[source] == all;
    }
    return done;
}

/* A receive that is still posted could take a marker. */
static void wait_until_all_have_given_up(const aj_comm *comm) {
    MPI_Request request;
    if (comm->size > 1 && MPI_Ibarrier(comm->words, &request) == MPI_SUCCESS)
        aji_mpi_wait(true, &request, MPI_STATUS_IGNORE, -1, NULL);
}

void aji_flush_end(aj_comm *comm) {
    aji_mpi *mpi = aji_mpi_of(comm->ctx);
    aji_message_drain(mpi, comm, aji_ctx_grace(comm->ctx)); /* received by now, each of them */
    aji_message_abandon(mpi, comm);
    memset(comm->sent, 0, (size_t)comm->size * sizeof(*comm->sent)); /* both sides begin anew */
    memset(comm->received, 0, (size_t)comm->size * sizeof(*comm->received));
}

void aji_flush(aj_comm *comm) {
    aji_request_give_up(comm);
    wait_until_all_have_given_up(comm);
    aji_flush_begin(comm);
    while (!aji_flush_step(comm))
        sched_yield();
    aji_flush_end(comm);
}
