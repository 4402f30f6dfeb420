/*
 * Giving up the messages that are under way, after an error that all ranks know of.
 *
 * Freeing the duplicates would not do: MPI gives their context to the next communicator, and with it the messages that nobody received. So they are
 * received here: each rank sends each rank a marker on each duplicate, and receives all that comes before it, since messages between two ranks on one
 * communicator do not overtake each other.
 */
#include <sched.h>
#include <string.h>

#include "mpi/comm_internal.h"

#define MARKER_BYTES 16
static const char marker[MARKER_BYTES] = "adjoin: flushed";

/* Receive the next message from this rank; true if it was the marker. A longer message is cut: MPI says so, and it is gone all the same. */
static bool receive_one(MPI_Comm on, const MPI_Status *found) {
    char data[MARKER_BYTES] = "";
    int bytes = 0;
    MPI_Get_count(found, MPI_BYTE, &bytes);
    MPI_Recv(data, MARKER_BYTES, MPI_BYTE, found->MPI_SOURCE, found->MPI_TAG, on, MPI_STATUS_IGNORE);
    return bytes == MARKER_BYTES && memcmp(data, marker, MARKER_BYTES) == 0;
}

static void receive_until_marked(const aj_comm *comm, MPI_Comm on) {
    for (int source = 0; source < comm->size; source++) {
        for (bool marked = false; !marked;) {
            int found = 0;
            MPI_Status status;
            if (MPI_Iprobe(source, MPI_ANY_TAG, on, &found, &status) != MPI_SUCCESS)
                return;
            if (found)
                marked = receive_one(on, &status);
            else
                sched_yield();
        }
    }
}

static void flush_one(const aj_comm *comm, MPI_Comm on) {
    MPI_Request request;
    for (int dest = 0; dest < comm->size; dest++)
        if (MPI_Isend(marker, MARKER_BYTES, MPI_BYTE, dest, 0, on, &request) == MPI_SUCCESS)
            MPI_Request_free(&request); /* the marker is a constant: it may leave when it likes */
    receive_until_marked(comm, on);
}

void aji_flush(aj_comm *comm) {
    aji_mpi *mpi = aji_mpi_of(comm->ctx);
    aji_request_give_up(comm);
    flush_one(comm, comm->forward);
    flush_one(comm, comm->adjoint);
    if (comm->halo != MPI_COMM_NULL)
        flush_one(comm, comm->halo);
    aji_message_drain(mpi, comm, aji_ctx_grace(comm->ctx)); /* received by now, each of them */
    aji_message_abandon(mpi, comm);
}
