/*
 * Checked mode: before a collective the ranks compare what they call; messages travel behind an envelope; an error on one rank is told to all others of the
 * communicator, and whoever waits in a call on it, or enters one, stops. docs/checked-mode.md.
 *
 * All of it is made of small messages on `words`, which a rank can stop waiting for at any time, as it could not leave a collective of MPI.
 */
#ifndef AJI_CHECKED_H
#define AJI_CHECKED_H

#include "mpi/comm_internal.h"

enum { AJI_TAG_UP = 1, AJI_TAG_DOWN, AJI_TAG_REPORT }; /* on `words`; 0 is the marker's (flush.c) */
enum { AJI_POSITION_TEXT = 320, AJI_REPORT_TEXT = 1024 };

typedef enum aji_caller { AJI_GATE, AJI_AGREE, AJI_CLOSE } aji_caller;

/* What each rank tells each other one when one of them is in error. */
typedef struct aji_report {
    aj_status status;  /* of its own error; AJ_OK: it has none, or only one that it was told */
    bool in_error;     /* also if it was told */
    aji_caller caller; /* where it reports from */
    int64_t passed;    /* comparisons that it has passed */
    bool committed;    /* it has said what it calls in the next one: that may pass */
    char position[AJI_POSITION_TEXT], message[AJI_REPORT_TEXT];
} aji_report;

/* A small message of the library's own, until MPI has finished with it. */
typedef struct aji_note aji_note;

struct aji_checked {
    MPI_Comm payload;    /* what envelopes announce */
    aji_note *notes;     /* under way on words */
    char where[200];     /* what this rank is in, or was in last */
    int64_t passed;      /* comparisons passed */
    bool committed;      /* as in the report */
    bool relayed;        /* this rank's report is of an error that it was told on another communicator, and has not raised yet */
    double met;          /* of rank 0: when all ranks were last here, in a comparison or in a round */
    bool reporting;      /* a round is open: this rank has sent its reports */
    bool flushing;       /* all reports are there: the markers are under way */
    int missing;         /* reports that have not come */
    bool over;           /* no round is open, and the reports are of the last one */
    bool *came;          /* by rank */
    aji_report *reports; /* by rank */
    MPI_Request *
        told; /* by rank: this one's report to it. All of it is allocated with the communicator: a rank without memory reports, too */
    int64_t waited; /* the error episode for which this rank has waited in vain */
};

aj_status aji_checked_open(aj_comm *comm);
void aji_checked_close(aj_comm *comm); /* frees */

/* notes.c */
aj_status aji_note_send(aj_comm *comm, int dest, int tag, const void *data, size_t bytes);
void aji_notes_progress(aj_comm *comm);
void aji_notes_abandon(aj_comm *comm, bool mpi_is_there);
/* Receive a note of so many bytes, unless a report comes first or the time is up. */
aji_waited aji_note_recv(aj_comm *comm, int source, int tag, void *data, size_t bytes, double end);

/* Of a comparison that all have come to: it has passed, or, if some of them may have given up, they are to say once more what they call. Only a report of a
 * rank that has not said it rules out that the word comes. */
typedef enum aji_word { AJI_GO_ON, AJI_AGAIN } aji_word;
void aji_word_send(aj_comm *comm, int dest, aji_word word);
aji_waited aji_word_recv(aj_comm *comm, int source, aji_word *word);

/* compare.c */
aji_waited aji_compare(aj_comm *comm, const char *text); /* AJI_FAILED: raised */

/* reports.c */
/* Has a rank reported without which the comparison that this one is in cannot pass? Passes on what it is told on other communicators. */
bool aji_is_stuck(aj_comm *comm);
/* The callers of errors.c. False: other ranks did not come within the grace time. */
bool aji_checked_gate(aj_comm *comm, bool last);
aj_status aji_checked_agree(aj_comm *comm);
bool aji_checked_close_round(aj_comm *comm);

#endif
