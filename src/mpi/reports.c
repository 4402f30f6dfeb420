/*
 * Checked mode: what happens when a rank is in error. It reports to every other rank of the communicator: its error, and where it is. Whoever is in a call
 * on that communicator, or enters one, finds the report, stops, and reports too, so that in the end every rank has the report of every other. Then what was
 * under way is flushed, and the communicator is sound again. That is a round; for ranks that do not come within the grace time, or to aj_agree within the
 * time limit, it is left open, and goes on when they do.
 */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "mpi/checked.h"

/* ---- a round ---- */

/* The lowest rank with an error of its own; failing that, with any. -1: none, of those that came. */
static int first_in_error(const aj_comm *comm) {
    const aji_checked *k = comm->checked;
    for (int r = 0; r < comm->size; r++)
        if (k->came[r] && k->reports[r].status != AJ_OK)
            return r;
    for (int r = 0; r < comm->size; r++)
        if (k->came[r] && k->reports[r].in_error)
            return r;
    return -1;
}

/* Up to the backtrace. */
static void copy_message(char *to, size_t size, const char *error) {
    const char *end = strstr(error, "\n  at ");
    int n = end ? (int)(end - error) : (int)strlen(error);
    snprintf(to, size, "%.*s", n, error);
}

static void describe_position(const aj_comm *comm, char *text, size_t size) {
    const aji_mpi *mpi = aji_mpi_of(comm->ctx);
    int n = snprintf(text, size, "%s%s", comm->checked->where, mpi->n_recent > 0 ? "; its last operations: " : "");
    if (n > 0 && (size_t)n < size)
        aji_describe_recent(mpi, text + n, size - (size_t)n);
}

/* Reports of the last round are kept until the next begins, for whoever reads them. */
static void forget(aj_comm *comm) {
    aji_checked *k = comm->checked;
    if (!k->over)
        return;
    memset(k->reports, 0, (size_t)comm->size * sizeof(*k->reports));
    memset(k->came, 0, (size_t)comm->size * sizeof(*k->came));
    k->missing = comm->size;
    k->over = false;
}

/* told_on: the communicator on which this rank was told of the error, if it has not raised it yet; else NULL. */
static void open_round(aj_comm *comm, aji_caller who, const aj_comm *told_on) {
    aji_checked *k = comm->checked;
    aji_report *mine = &k->reports[comm->rank];
    aji_request_give_up(comm); /* before the others hear of it: see flush.c */
    forget(comm);
    mine->caller = who;
    mine->passed = k->passed;
    mine->committed = k->committed;
    mine->in_error = aj_ctx_status(comm->ctx) != AJ_OK;
    mine->status = aji_only_told(comm->ctx) ? AJ_OK : aj_ctx_status(comm->ctx);
    copy_message(mine->message, sizeof(mine->message), aj_ctx_error(comm->ctx));
    int first = told_on ? first_in_error(told_on) : -1;
    k->relayed = first >= 0 && !mine->in_error;
    if (k->relayed) {
        mine->in_error = true;
        snprintf(mine->message, sizeof(mine->message), "%s", told_on->checked->reports[first].message);
    }
    describe_position(comm, mine->position, sizeof(mine->position));
    k->came[comm->rank] = true;
    k->missing--;
    k->reporting = true;
    k->flushing = false;
    for (int r = 0; r < comm->size; r++)
        if (r != comm->rank)
            MPI_Isend(mine, (int)sizeof(*mine), MPI_BYTE, r, AJI_TAG_REPORT, comm->words, &k->told[r]);
}

/* While a flush is on, a report would be one of the next round. */
static bool receive_report(aj_comm *comm) {
    aji_checked *k = comm->checked;
    MPI_Status status;
    int found = 0;
    if (!k->flushing)
        MPI_Iprobe(MPI_ANY_SOURCE, AJI_TAG_REPORT, comm->words, &found, &status);
    if (!found)
        return false;
    forget(comm);
    int from = status.MPI_SOURCE;
    MPI_Recv(&k->reports[from], (int)sizeof(aji_report), MPI_BYTE, from, AJI_TAG_REPORT, comm->words, MPI_STATUS_IGNORE);
    k->came[from] = true;
    k->missing--;
    return true;
}

bool aji_is_told(aj_comm *comm) {
    aji_checked *k = comm->checked;
    if (!k || comm->size == 1)
        return false;
    while (receive_report(comm)) {
    }
    return k->reporting || (!k->over && k->missing < comm->size);
}

static bool flush(aj_comm *comm) {
    if (!aji_flush_step(comm))
        return false;
    aji_flush_end(comm);
    aji_notes_progress(comm);
    for (int r = 0; r < comm->size; r++) /* they have come: all ranks have begun to flush */
        aji_mpi_wait(comm->yields, &comm->checked->told[r], MPI_STATUS_IGNORE, -1, NULL);
    comm->checked->reporting = comm->checked->flushing = comm->checked->committed = false;
    comm->checked->over = true;
    comm->agreed = aji_episode(comm->ctx);
    return true;
}

/* One step on; false: nothing has come. */
static bool advance(aj_comm *comm) {
    aji_checked *k = comm->checked;
    if (k->flushing)
        return flush(comm);
    bool came = receive_report(comm);
    if (k->missing == 0) {
        k->met = MPI_Wtime(); /* before any rank gets this one's marker and goes on */
        aji_flush_begin(comm);
        k->flushing = true;
    }
    return came || k->flushing;
}

/* ---- the other communicators of the context: a rank that waits on one may be waiting, by way of others, for a rank that reports on another ---- */

/* Rounds in which this rank takes part go on. Returns a communicator on which others report, and this rank has neither reported nor agreed. */
static aj_comm *listen_elsewhere(const aj_comm *comm) {
    aj_comm *found = NULL;
    for (aj_comm *other = aji_mpi_of(comm->ctx)->comms; other; other = other->next) {
        if (other == comm || !aji_is_told(other))
            continue;
        if (other->checked->reporting)
            advance(other);
        else if (other->agreed != aji_episode(comm->ctx))
            found = other;
    }
    return found;
}

bool aji_must_stop(aj_comm *comm) {
    return comm->checked && (aji_is_told(comm) || listen_elsewhere(comm));
}

bool aji_is_stuck(aj_comm *comm) {
    aji_checked *k = comm->checked;
    const aj_comm *elsewhere = listen_elsewhere(comm);
    if (elsewhere && !k->reporting)
        open_round(comm, AJI_GATE, elsewhere);
    if (!aji_is_told(comm))
        return false;
    for (int r = 0; r < comm->size; r++) {
        const aji_report *theirs = &k->reports[r];
        if (k->came[r] && r != comm->rank && (theirs->passed < k->passed || (theirs->passed == k->passed && !theirs->committed)))
            return true;
    }
    return false;
}

/* Take part in the round, or open one, and in those on other communicators; true when it is over. To an agreement the others may come after a wait of
 * their own that takes all of its time. */
static bool run_round(aj_comm *comm, aji_caller who) {
    aji_checked *k = comm->checked;
    if (!k->reporting)
        open_round(comm, who, NULL);
    double end = MPI_Wtime() + aji_ctx_grace(comm->ctx) + (who == AJI_AGREE ? comm->timeout : 0);
    while (k->reporting) {
        if (advance(comm))
            continue;
        aj_comm *elsewhere = listen_elsewhere(comm);
        if (elsewhere)
            open_round(elsewhere, AJI_GATE, comm);
        if (MPI_Wtime() > end) {
            k->waited = aji_episode(comm->ctx);
            return false;
        }
        sched_yield();
    }
    return true;
}

/* ---- what a round tells ---- */

static bool all_from(const aj_comm *comm, aji_caller who, aji_caller or_who) {
    const aji_checked *k = comm->checked;
    for (int r = 0; r < comm->size; r++)
        if (k->reports[r].caller != who && k->reports[r].caller != or_who)
            return false;
    return true;
}

/* Where the ranks are: a line for each, the first ones and this one. */
typedef struct positions {
    char text[3072];
} positions;

static positions where_all_are(const aj_comm *comm) {
    enum { SHOWN = 8 };
    const aji_checked *k = comm->checked;
    positions p = {""};
    size_t used = 0;
    for (int r = 0; r < comm->size; r++) {
        if (r >= SHOWN && r != comm->rank)
            continue;
        int n = snprintf(p.text + used, sizeof(p.text) - used, "%s  rank %d%s: %s", used ? "\n" : "", r,
                         r == comm->rank ? " (this one)" : "",
                         k->came[r] ? k->reports[r].position : "in no call on this communicator");
        used = n > 0 && (size_t)n < sizeof(p.text) - used ? used + (size_t)n : used;
    }
    return p;
}

/* The error of the first rank in error becomes this rank's, with that status; one that this rank has already gets the positions. */
static void take_error(aj_comm *comm, int first, aj_status status) {
    aj_ctx *ctx = comm->ctx;
    aji_mpi *mpi = aji_mpi_of(ctx);
    positions p = where_all_are(comm);
    if (aj_ctx_status(ctx) != AJ_OK) {
        if (mpi->amended != aji_episode(ctx))
            aji_ctx_amend_error(ctx, p.text);
        mpi->amended = aji_episode(ctx);
        return;
    }
    mpi->amended = aji_episode(ctx);
    mpi->told = aji_episode(ctx);
    if (first < 0)
        aj_raise(ctx, status, "%s: other ranks stopped because of an error, and did not come to tell it\n%s",
                 aji_ctx_operation(ctx), p.text);
    else
        aj_raise(ctx, status, "%s: rank %d is in error%s: %s\n%s", aji_ctx_operation(ctx), first,
                 first == comm->rank && !comm->checked->relayed ? ", which was cleared here before all ranks knew of it" : "",
                 comm->checked->reports[first].message, p.text);
}

/* ---- callers ---- */

static bool stop_with_others(aj_comm *comm) {
    bool settled = run_round(comm, AJI_GATE);
    take_error(comm, first_in_error(comm), AJ_ERR_PEER);
    return settled;
}

aj_status aji_be_told(aj_comm *comm) {
    aj_comm *elsewhere = aji_is_told(comm) ? NULL : listen_elsewhere(comm);
    stop_with_others(elsewhere ? elsewhere : comm);
    return aj_ctx_status(comm->ctx);
}

bool aji_checked_gate(aj_comm *comm, bool last) {
    if (comm->checked->waited == aji_episode(comm->ctx) && !last)
        return false;
    return stop_with_others(comm);
}

/* Has the comparison failed, and not because this rank was told? Then that is its error. */
static bool is_alike(aj_comm *comm, const char *call) {
    if (aj_ctx_status(comm->ctx) != AJ_OK || comm->checked->reporting)
        return false;
    aji_waited waited = aji_compare(comm, call);
    if (waited == AJI_LATE)
        aji_raise_late(comm);
    if (waited == AJI_TOLD && !aji_is_told(comm))
        aji_be_told(comm);
    return waited == AJI_CAME;
}

/* Rounds until all ranks take part from a call that ends an error: aj_agree or aj_comm_destroy. Those that came from another call have been told in it, and come here next. */
static bool run_rounds(aj_comm *comm, aji_caller who, aji_caller or_who) {
    do {
        if (!run_round(comm, who))
            return false;
    } while (!all_from(comm, who, or_who));
    return true;
}

/* The error of the first rank that has one of its own becomes this rank's; one of this rank's own stays behind it. */
static void take_agreed_error(aj_comm *comm, int first) {
    aj_ctx *ctx = comm->ctx;
    const aji_report *theirs = &comm->checked->reports[first];
    char own[AJI_REPORT_TEXT];
    copy_message(own, sizeof(own), aj_ctx_error(ctx));
    bool also = !aji_only_told(ctx) && !strstr(own, theirs->message); /* agreed on another communicator before */
    aji_ctx_replace_error(ctx, theirs->status, "aj_agree: rank %d is in error: %s%s%s\n%s", first, theirs->message,
                          also ? "\nThis rank is too: " : "", also ? own : "", where_all_are(comm).text);
}

aj_status aji_checked_agree(aj_comm *comm) {
    aj_ctx *ctx = comm->ctx;
    if (is_alike(comm, "aj_agree"))
        return AJ_OK;
    run_rounds(comm, AJI_AGREE, AJI_CLOSE);
    int first = first_in_error(comm);
    aj_status theirs = first >= 0 ? comm->checked->reports[first].status : AJ_OK;
    if (theirs != AJ_OK && first != comm->rank && aj_ctx_status(ctx) != AJ_OK)
        take_agreed_error(comm, first);
    else
        take_error(comm, first, theirs != AJ_OK ? theirs : AJ_ERR_PEER);
    return aj_ctx_status(ctx);
}

bool aji_checked_close_round(aj_comm *comm) {
    if (is_alike(comm, "aj_comm_destroy"))
        return true;
    bool settled = run_rounds(comm, AJI_CLOSE, AJI_CLOSE);
    take_error(comm, first_in_error(comm), AJ_ERR_PEER);
    return settled;
}

/* ---- the state ---- */

aj_status aji_checked_open(aj_comm *comm) {
    size_t n = (size_t)comm->size;
    aji_checked *k = comm->checked = aji_calloc(comm->ctx, sizeof(*k));
    if (!k)
        return AJ_ERR_MEMORY;
    k->payload = MPI_COMM_NULL;
    k->missing = comm->size;
    k->met = MPI_Wtime();
    k->came = aji_calloc(comm->ctx, n * sizeof(*k->came));
    k->reports = aji_calloc(comm->ctx, n * sizeof(*k->reports));
    k->told = aji_alloc(comm->ctx, n * sizeof(*k->told));
    for (size_t r = 0; r < n && k->told; r++)
        k->told[r] = MPI_REQUEST_NULL;
    return k->came && k->reports && k->told ? AJ_OK : AJ_ERR_MEMORY;
}

void aji_checked_close(aj_comm *comm) {
    aji_checked *k = comm->checked;
    if (!k)
        return;
    size_t n = (size_t)comm->size;
    bool mpi_is_there = !aji_mpi_of(comm->ctx)->finalized;
    aji_notes_abandon(comm, mpi_is_there);
    for (size_t r = 0; r < n && k->told && mpi_is_there; r++)
        if (k->told[r] != MPI_REQUEST_NULL)
            MPI_Request_free(&k->told[r]);
    aji_free(comm->ctx, k->told, n * sizeof(*k->told));
    aji_free(comm->ctx, k->came, n * sizeof(*k->came));
    aji_free(comm->ctx, k->reports, n * sizeof(*k->reports));
    aji_free(comm->ctx, k, sizeof(*k));
    comm->checked = NULL;
}
