/*
 * Waiting. MPI implementations spin without yielding: where ranks outnumber cores, a rank that spins keeps the one it waits for from running.
 */
#include <sched.h>

#include "mpi/comm_internal.h"

#define POLLS_BEFORE_YIELD 50

int aji_mpi_wait(bool yields, MPI_Request *request, MPI_Status *status, double seconds, bool *done) {
    if (!yields && seconds < 0) {
        int code = MPI_Wait(request, status);
        if (done)
            *done = code == MPI_SUCCESS;
        return code;
    }
    double end = seconds < 0 ? 0 : MPI_Wtime() + seconds;
    int flag = 0;
    for (int polls = 0;; polls++) {
        int code = MPI_Test(request, &flag, status);
        if (flag || code != MPI_SUCCESS || (seconds >= 0 && MPI_Wtime() > end)) {
            if (done)
                *done = flag;
            return code;
        }
        if (yields && polls >= POLLS_BEFORE_YIELD)
            sched_yield();
    }
}

aj_status aji_mpi_check(aj_ctx *ctx, const char *op, int code) {
    if (code == MPI_SUCCESS)
        return AJ_OK;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    return aj_raise(ctx, AJ_ERR_MPI, "%s: MPI reports: %s", op, text);
}
