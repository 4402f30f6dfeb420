/*
 * Sendrecv: a send and a receive. A send never blocks, so one after the other is as good as both at once, and so are their adjoints: source and destination
 * swapped, and the tags with them.
 */
#include "mpi/comm_internal.h"

aj_tensor *aj_sendrecv(aj_tensor *x, int dest, int sendtag, aj_tensor *buffer, int source, int recvtag, aj_comm *comm) {
    aj_tensor *sent = aj_send(x, dest, sendtag, comm);
    aj_tensor *received = sent ? aj_recv(buffer, source, recvtag, comm) : NULL;
    return received ? aj_join_dummies(received, 1, &sent) : NULL; /* whoever reaches one half reaches the other: AJ_REACHED */
}
