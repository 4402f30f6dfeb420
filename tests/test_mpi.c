/* Drives the rank programs of the communication layer: each case on each number of ranks is a test of its own. */
#include <string.h>

#include "harness.h"

RANK_TESTS(mpi, mpi_table, 300, 1, 2, 3, 4, 5, 7)
RANK_TESTS(mpi, mpi_cases, 120, 1, 2, 3, 4, 5, 7)
RANK_TESTS(mpi, mpi_dot, 300, 1, 2, 3, 4, 5, 7)
RANK_TESTS(mpi, mpi_extrema, 60, 1, 2, 3, 4, 5, 7)
RANK_TESTS(mpi, mpi_reductions, 120, 1, 2, 3, 4, 5, 7)
RANK_TESTS(mpi, mpi_halo, 60, 1, 2, 3, 4, 5, 7)
RANK_TESTS(mpi, mpi_axis, 120, 1, 2, 3, 4, 5, 7)
RANK_TESTS(mpi, mpi_pairing, 120, 1, 2, 3, 4, 5, 7)
RANK_TESTS(mpi, mpi_programs, 240, 2, 3, 4, 5)
RANK_TESTS(mpi, mpi_same, 60, 1, 2, 3, 4, 5, 7)
RANK_TESTS(mpi, mpi_heat, 120, 1, 2, 3, 4)
RANK_TESTS(mpi, mpi_errors, 120, 1, 2, 3, 4, 5, 7)
RANK_TESTS(mpi, mpi_comm, 120, 1, 2, 3, 4, 5, 7)
RANK_TESTS(mpi, mpi_counts, 60, 1, 2, 3, 5)
RANK_TESTS(mpi, mpi_alloc, 300, 1)
RANK_TESTS(mpi, mpi_dummies, 60, 1, 2, 3, 4, 5, 7)

/* As if MPI could not say more than three elements: collectives go in pieces, messages as one element of a derived datatype. */
#define IN_PIECES(program, seconds) RANK_TESTS_WITH("ADJOIN_MAX_COUNT", "3", mpi, program##_in_pieces, program, seconds, 2, 3, 5)
IN_PIECES(mpi_table, 300)
IN_PIECES(mpi_axis, 120)
IN_PIECES(mpi_cases, 120)
IN_PIECES(mpi_pairing, 120)
IN_PIECES(mpi_halo, 60)

/* ---- one rank alone in error ---- */

enum { SOON = 10 }; /* seconds */

/* The job ends by itself, not well, and says why: the operation and the rank, and what else is asked for. */
static void expect_end(const char *name, const char *operation, const char *also) {
    static const int counts[] = {2, 3, 5};
    for (int i = 0; i < 3; i++) {
        run_result run = run_ranks(counts[i], SOON, "mpi_alone", (const char *const[]){name, NULL});
        cr_expect(!run.timed_out && run.status != 0, "mpi_alone %s on %d ranks: %s after %.1f s, exit status %d; output:\n%s",
                  name, counts[i], run.timed_out ? "killed" : "ended", run.seconds, run.status, run.output);
        cr_expect(strstr(run.output, operation) && strstr(run.output, "rank 1") && strstr(run.output, also),
                  "mpi_alone %s on %d ranks does not print \"%s\", \"rank 1\" and \"%s\"; output:\n%s", name, counts[i],
                  operation, also, run.output);
        run_free(&run);
    }
}

/* The time limit ends the job. All ranks reach it at once, so whose message comes out is not known. */
static void expect_time_limit(const char *name) {
    for (int ranks = 2; ranks <= 5; ranks++) {
        run_result run = run_ranks(ranks, SOON, "mpi_alone", (const char *const[]){name, NULL});
        cr_expect(!run.timed_out && run.status != 0 && strstr(run.output, "waited 1.5 s") && strstr(run.output, "ADJOIN_TIMEOUT"),
                  "mpi_alone %s on %d ranks: %s after %.1f s, exit status %d; output:\n%s", name, ranks,
                  run.timed_out ? "killed" : "ended", run.seconds, run.status, run.output);
        run_free(&run);
    }
}

static void expect_well(const char *name) {
    for (int ranks = 1; ranks <= 5; ranks += 2) {
        run_result run = run_ranks(ranks, SOON, "mpi_alone", (const char *const[]){name, NULL});
        assert_ran(run);
        run_free(&run);
    }
}

Test(mpi_alone, shape) {
    expect_end("shape", "aj_add", "AJ_ERR_SHAPE");
}

Test(mpi_alone, before_backward) {
    expect_end("before-backward", "aj_add", "");
}

Test(mpi_alone, break_out_of_the_loop) {
    expect_end("break", "aj_add", "step 3");
}

Test(mpi_alone, message_missing) {
    expect_end("message-missing", "aj_add", "");
}

Test(mpi_alone, wait_missing) {
    expect_end("wait-missing", "aj_add", "");
}

Test(mpi_alone, agree_out_of_turn) {
    expect_end("agree-out-of-turn", "aj_add", "");
}

Test(mpi_alone, cleared_without_agreeing) {
    expect_end("cleared-without-agreeing", "aj_agree", "aj_add");
}

Test(mpi_alone, finalize) {
    expect_end("finalize", "aj_add", "");
}

Test(mpi_alone, ctx_destroy) {
    expect_end("ctx-destroy", "aj_add", "");
}

Test(mpi_alone, in_backward) {
    expect_end("in-backward", "fail_backward", "as told");
}

Test(mpi_alone, wrong_root) {
    expect_end("wrong-root", "aj_bcast", "-4");
}

Test(mpi_alone, no_wait_at_destroy) {
    expect_end("no-wait-at-destroy", "irecv", "");
}

Test(mpi_alone, default_grace) {
    expect_end("default-grace", "aj_add", "");
}

Test(mpi_alone, left_early) {
    expect_time_limit("left-early");
}

Test(mpi_alone, no_such_message) {
    expect_time_limit("no-such-message");
}

Test(mpi_alone, nobody_sends) {
    expect_well("nobody-sends");
}

Test(mpi_alone, no_error) {
    expect_well("no-error");
}

Test(mpi_alone, error_on_all) {
    expect_well("error-on-all");
}

Test(mpi_alone, cleared_alone) {
    expect_well("cleared-alone");
}

Test(mpi_alone, without_mpi) {
    expect_well("without-mpi");
}
