/*
 * The error rule across ranks. A rank in error does not communicate, and must not leave the others waiting for it.
 *
 * Everything rests on one round on the communicator's own `words` duplicate, an all-reduce that every kind of caller joins: a rank in error that would
 * communicate (the gate), aj_agree, aj_comm_destroy. A rank in error waits for the others a grace time only. If they all come, everyone knows who is
 * in error; if not, they are waiting in some other call for this rank, and the job ends with its message.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "mpi/checked.h"

typedef enum caller { GATE, AGREE, CLOSE, MEET } caller;

/* What a round tells; -1: no rank is in error. */
typedef struct outcome {
    int first;     /* the lowest rank in error */
    bool all;      /* all are in error */
    bool agreeing; /* some called aj_agree */
    bool gating;   /* some come from a communication */
    bool meeting;  /* all called aji_meet */
} outcome;

typedef struct words {
    int status;
    char message[3072];
} words;

int64_t aji_episode(const aj_ctx *ctx) {
    return aji_ctx_error_epoch(ctx) + 1;
}

bool aji_only_told(const aj_ctx *ctx) {
    return aji_mpi_of(ctx)->told == aji_episode(ctx);
}

static bool is_known(const aj_comm *comm) {
    return comm->agreed == aji_episode(comm->ctx);
}

void aji_end_job(void) {
    const struct timespec pause = {.tv_nsec = 200000000}; /* else the launcher may end before it has passed on what was said */
    fflush(NULL);
    nanosleep(&pause, NULL);
    MPI_Abort(MPI_COMM_WORLD, 1); /* not a part of it: MPICH 4.0.2 would leave those ranks waiting that are in MPI_Finalize */
}

static void end_job(const aj_comm *comm) {
    aji_ctx_log(comm->ctx, "adjoin: rank %d is in error, and not all other ranks are: the job ends. %s", comm->rank,
                aj_ctx_error(comm->ctx));
    aji_end_job();
}

aj_status aji_raise_late(const aj_comm *comm) {
    return aj_raise(
        comm->ctx, AJ_ERR_PEER,
        "%s: waited %g s for the other ranks of a communicator of %d (ADJOIN_TIMEOUT); expected the same call on all of them",
        aji_ctx_operation(comm->ctx), comm->timeout, comm->size);
}

void aji_timed_out(const aj_comm *comm) {
    aji_raise_late(comm);
    end_job(comm);
}

/* The lowest rank in error has the largest number; an error of its own goes before one that it was told. */
static int precedence(const aj_comm *comm) {
    return comm->size - comm->rank + (aji_only_told(comm->ctx) ? 0 : comm->size);
}

static int rank_of(const aj_comm *comm, int precedence_of_it) {
    return precedence_of_it <= 0 ? -1 : (2 * comm->size - precedence_of_it) % comm->size;
}

static outcome run_round(aj_comm *comm, caller who) {
    bool failed = aj_ctx_status(comm->ctx) != AJ_OK;
    int mine[5] = {failed ? precedence(comm) : 0, !failed, who == AGREE, who != MEET, who == GATE}, all[5] = {0};
    MPI_Request request;
    bool done = false;
    int code = MPI_Iallreduce(mine, all, 5, MPI_INT, MPI_MAX, comm->words, &request);
    if (code == MPI_SUCCESS)
        code = aji_mpi_wait(true, &request, MPI_STATUS_IGNORE, failed ? aji_ctx_grace(comm->ctx) : comm->timeout, &done);
    if (code != MPI_SUCCESS)
        aji_mpi_check(comm->ctx, "adjoin: agreeing on errors", code);
    if (!done && failed)
        end_job(comm);
    if (!done)
        aji_timed_out(comm);
    return (outcome){.first = rank_of(comm, all[0]), .all = !all[1], .agreeing = all[2], .meeting = !all[3], .gating = all[4]};
}

/* The first failing rank's status and message, to everyone. */
static aj_status share_message(aj_comm *comm, int first) {
    words w = {0};
    if (comm->rank == first) {
        w.status = (int)aj_ctx_status(comm->ctx);
        snprintf(w.message, sizeof(w.message), "%s", aj_ctx_error(comm->ctx));
    }
    MPI_Request request;
    int code = MPI_Ibcast(&w, (int)sizeof(w), MPI_BYTE, first, comm->words, &request);
    if (code == MPI_SUCCESS)
        code = aji_mpi_wait(true, &request, MPI_STATUS_IGNORE, -1, NULL);
    if (aji_mpi_check(comm->ctx, "aj_agree", code) != AJ_OK)
        return AJ_ERR_MPI;
    if (comm->rank == first || (aji_only_told(comm->ctx) && aj_ctx_status(comm->ctx) != AJ_OK))
        return (aj_status)w.status;
    if (aj_ctx_status(comm->ctx) == AJ_OK) {
        aji_mpi_of(comm->ctx)->told = aji_episode(comm->ctx);
        aj_raise(comm->ctx, (aj_status)w.status, "aj_agree: rank %d is in error: %s", first, w.message);
    } else {
        char own[sizeof(w.message)];
        snprintf(own, sizeof(own), "%s", aj_ctx_error(comm->ctx));
        aji_ctx_replace_error(comm->ctx, (aj_status)w.status, "aj_agree: rank %d is in error: %s\nThis rank is too: %s", first,
                              w.message, own);
    }
    return (aj_status)w.status;
}

/* All ranks know of the error now, and all are here: what was under way would meet the messages of the program that goes on. */
void aji_settle(aj_comm *comm) {
    comm->agreed = aji_episode(comm->ctx);
    aji_flush(comm);
}

static void pass_gate(aj_ctx *ctx, aj_comm *comm, bool last) {
    aji_mpi *mpi = aji_mpi_of(ctx);
    if (!comm && mpi)
        comm = mpi->last;
    if (!comm || comm->size == 0 || mpi->finalized || aj_ctx_status(ctx) == AJ_OK || is_known(comm))
        return;
    if (comm->size == 1) {
        aji_settle(comm);
        return;
    }
    if (comm->checked) {
        if (!aji_checked_gate(comm, last) && last)
            end_job(comm);
        return;
    }
    outcome o = run_round(comm, GATE);
    if (o.agreeing)
        share_message(comm, o.first);
    else if (!o.all)
        end_job(comm); /* the others are closing the communicator and know of no error */
    aji_settle(comm);
}

void aji_gate(aj_ctx *ctx, aj_comm *comm) {
    pass_gate(ctx, comm, false);
}

/* Ranks that are in error may still wait for this one's report. */
void aji_last_gate(aj_ctx *ctx) {
    aji_mpi *mpi = aji_mpi_of(ctx);
    for (aj_comm *comm = mpi->comms; comm && !mpi->finalized; comm = comm->next)
        if (aji_is_told(comm))
            aji_be_told(comm);
    pass_gate(ctx, NULL, true);
}

void aji_close_round(aj_comm *comm) {
    bool failed = aj_ctx_status(comm->ctx) != AJ_OK;
    if (comm->size <= 1 || (failed && is_known(comm) && !comm->checked))
        return;
    if (comm->checked && !aji_checked_close_round(comm))
        end_job(comm);
    outcome o = comm->checked ? (outcome){.first = -1} : run_round(comm, CLOSE);
    if (o.agreeing)
        share_message(comm, o.first);
    else if (o.first >= 0 && !o.all && failed)
        end_job(comm);
    if (o.first >= 0)
        aji_settle(comm);
}

aj_status aji_meet(aj_comm *comm, const char *op) {
    if (aj_ctx_status(comm->ctx) != AJ_OK || comm->size <= 1)
        return aj_ctx_status(comm->ctx);
    if (comm->checked)
        return aji_compare_text(comm, op);
    if (comm->timeout <= 0)
        return AJ_OK;
    outcome o = run_round(comm, MEET);
    if (o.meeting)
        return AJ_OK;
    if (!o.agreeing || o.first < 0)
        return aj_raise(comm->ctx, AJ_ERR_PEER, "%s: another rank is in another call; expected the same call on all ranks", op);
    share_message(comm, o.first);
    aji_settle(comm);
    return aj_ctx_status(comm->ctx);
}

/* Ranks that came to the round from a communication have returned an error there, and call aj_agree next. */
static aj_status agree(aj_comm *comm) {
    for (;;) {
        outcome o = run_round(comm, AGREE);
        if (o.first < 0)
            return AJ_OK;
        aj_status status = share_message(comm, o.first);
        aji_settle(comm);
        if (!o.gating)
            return status;
    }
}

aj_status aj_agree(aj_comm *comm) {
    if (!comm)
        return AJ_ERR_ARG;
    aji_mpi_of(comm->ctx)->last = comm;
    if (comm->size <= 1) {
        if (comm->size == 1 && aj_ctx_status(comm->ctx) != AJ_OK && !is_known(comm))
            aji_settle(comm);
        return aj_ctx_status(comm->ctx);
    }
    const char *before = aji_ctx_enter(comm->ctx, "aj_agree");
    aj_status status = comm->checked ? aji_checked_agree(comm) : agree(comm);
    aji_ctx_enter(comm->ctx, before);
    return status;
}
