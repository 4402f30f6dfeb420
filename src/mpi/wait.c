/*
 * Waiting. MPI implementations spin without yielding: where ranks outnumber cores, a rank that spins keeps the one it waits for from running.
 */
#include <sched.h>

#include "mpi/comm_internal.h"

#define POLLS_BEFORE_YIELD 50

/* MPICH 4.0.2 raises what it finds at completion (a message longer than its buffer) on MPI_COMM_WORLD, whose handler usually ends the job, and not on
 * the communicator of the message. So that one returns errors while we wait, and gets its handler back. */
static MPI_Errhandler hold_back_errors(void) {
    MPI_Errhandler users;
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &users);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    return users;
}

static void give_handler_back(MPI_Errhandler users) {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, users);
    MPI_Errhandler_free(&users);
}

/* seconds < 0: no limit. Stops for what comm has to say; comm NULL: for nothing. */
static aji_waited poll(aj_comm *comm, bool yields, MPI_Request *request, MPI_Status *status, double seconds, int *code) {
    double end = seconds < 0 ? 0 : MPI_Wtime() + seconds;
    for (int polls = 0;; polls++) {
        int done = 0;
        *code = MPI_Test(request, &done, status);
        if (done || *code != MPI_SUCCESS)
            return AJI_CAME;
        if (comm && aji_must_stop(comm))
            return AJI_TOLD;
        if (seconds >= 0 && MPI_Wtime() > end)
            return AJI_LATE;
        if (yields && polls >= POLLS_BEFORE_YIELD)
            sched_yield();
    }
}

int aji_mpi_wait(bool yields, MPI_Request *request, MPI_Status *status, double seconds, bool *done) {
    int code;
    aji_waited waited = AJI_CAME;
    MPI_Errhandler users = hold_back_errors();
    if (yields || seconds >= 0)
        waited = poll(NULL, yields, request, status, seconds, &code);
    else
        code = MPI_Wait(request, status);
    give_handler_back(users);
    if (done)
        *done = waited != AJI_LATE;
    return code;
}

bool aji_mpi_wait_each(bool yields, int n, MPI_Request *requests, MPI_Status *statuses, double seconds, int *codes) {
    MPI_Errhandler users = hold_back_errors();
    aji_waited waited = AJI_CAME;
    for (int i = 0; i < n && waited == AJI_CAME; i++)
        if (requests[i] == MPI_REQUEST_NULL)
            codes[i] = MPI_SUCCESS;
        else if (yields || seconds >= 0)
            waited = poll(NULL, yields, &requests[i], &statuses[i], seconds, &codes[i]);
        else
            codes[i] = MPI_Wait(&requests[i], &statuses[i]);
    give_handler_back(users);
    return waited == AJI_CAME;
}

aji_waited aji_wait_for(aj_comm *comm, const char *op, MPI_Request *request, MPI_Status *status) {
    int code;
    aji_waited waited = AJI_CAME;
    MPI_Errhandler users = hold_back_errors();
    if (comm->polls)
        waited = poll(comm, comm->yields, request, status, comm->timeout, &code);
    else
        code = MPI_Wait(request, status);
    give_handler_back(users);
    return waited == AJI_CAME && aji_mpi_check(comm->ctx, op, code) != AJ_OK ? AJI_FAILED : waited;
}

aj_status aji_mpi_check(aj_ctx *ctx, const char *op, int code) {
    if (code == MPI_SUCCESS)
        return AJ_OK;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    return aj_raise(ctx, AJ_ERR_MPI, "%s: MPI reports: %s", op, text);
}
