/*
 * Drives mpi_mistakes: programs with one mistake each, a launch and a test for each mistake and number of ranks. Unchecked, with a time limit, each must end by
 * itself: return, or say why the job ends. Checked, each must do what mpi_mistakes judges. And mpi_faults: random programs with faults, checked.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

typedef struct launch {
    char name[64];
    int ranks;
} launch;

static bool begins_with(const char *name, const char *prefix) {
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* Of the pairs: those with an allreduce or a barrier, and those of neighbours in mpi_mistakes' table of calls. */
static bool is_common(const char *name) {
    static const char *const others[] = {"bcast/reduce",      "gather/allgather", "scatter/alltoall", "reduce_scatter/scan",
                                         "scan/exscan",       "maxloc/halo",      "halo/recv",        "agree/comm_split",
                                         "comm_split/shared", "shared/backward",  "bcast/halo",       "backward/recv",
                                         "backward/custom",   "allgather/maxloc", "agree/recv"};
    if (!begins_with(name, "pair/") || strstr(name, "/allreduce") || strstr(name, "/barrier"))
        return true;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(name + strlen("pair/"), others[i]) == 0)
            return true;
    return false;
}

static void free_launches(struct criterion_test_params *params) {
    cr_free(params->params);
}

/* Those where it may matter who else is there. */
static bool depends_on_ranks(const char *name) {
    return !strchr(name, '/') || begins_with(name, "pair/") || begins_with(name, "error-before/");
}

/* ADJOIN_TEST_EVERY=k: only every k-th launch, where each takes long. */
static int every(void) {
    const char *text = getenv("ADJOIN_TEST_EVERY");
    int k = text ? atoi(text) : 1;
    return k > 0 ? k : 1;
}

/* The common mistakes on the first of n numbers of ranks, some of them on the others; programs without one only if `also_right`. */
static struct criterion_test_params launches(int n, const int *ranks, bool also_right) {
    case_list cases = list_cases("mpi_mistakes");
    launch *list = cr_calloc((size_t)(n * cases.n) + 1, sizeof *list);
    size_t count = 0;
    int met = 0;
    for (int k = 0; k < n; k++)
        for (int i = 0; i < cases.n; i++) {
            if (!is_common(cases.name[i]) || (k > 0 && !depends_on_ranks(cases.name[i])) ||
                (!also_right && begins_with(cases.name[i], "none/")) || met++ % every() != 0)
                continue;
            snprintf(list[count].name, sizeof list[count].name, "%s", cases.name[i]);
            list[count++].ranks = ranks[k];
        }
    if (count == 0)
        snprintf(list[count++].name, sizeof list[0].name, "--list"); /* a test that fails */
    free_cases(&cases);
    return cr_make_param_array(launch, list, count, free_launches);
}

enum { SOON = 10 }; /* seconds */

static run_result launch_one(const launch *l, const char *check, const char *limit) {
    setenv("ADJOIN_CHECK", check, 1);
    setenv("ADJOIN_TIMEOUT", limit, 1);
    setenv("ADJOIN_GRACE", "0.5", 1);
    return run_ranks(l->ranks, SOON, "mpi_mistakes", (const char *const[]){l->name, NULL});
}

static void expect_end(const launch *l, const run_result *run) {
    static const char *const crashes[] = {"ERROR: AddressSanitizer",
                                          "runtime error:",
                                          "signal 4)",
                                          "signal 6)",
                                          "signal 7)",
                                          "signal 8)",
                                          "signal 11)",
                                          "Assertion"};
    cr_assert(!run->timed_out, "%s on %d ranks: killed after %.1f s; output:\n%s", l->name, l->ranks, run->seconds, run->output);
    for (size_t i = 0; i < sizeof crashes / sizeof crashes[0]; i++)
        cr_expect(!strstr(run->output, crashes[i]), "%s on %d ranks: %s; output:\n%s", l->name, l->ranks, crashes[i],
                  run->output);
    char verdict[80];
    snprintf(verdict, sizeof verdict, "PASS %s\n", l->name);
    cr_expect(strstr(run->output, verdict) || (run->status != 0 && strstr(run->output, ": the job ends. ")),
              "%s on %d ranks: neither returned, nor says why the job ends; exit status %d, output:\n%s", l->name, l->ranks,
              run->status, run->output);
}

ParameterizedTestParameters(unchecked, mistakes) {
    return launches(2, (const int[]){2, 3}, false);
}

ParameterizedTest(launch *l, unchecked, mistakes) {
    run_result run = launch_one(l, "0", "0.5");
    expect_end(l, &run);
    run_free(&run);
}

ParameterizedTestParameters(checked, mistakes) {
    return launches(3, (const int[]){2, 3, 4}, true);
}

ParameterizedTest(launch *l, checked, mistakes) {
    run_result run = launch_one(l, "1", "2");
    /* What MPI has begun cannot be taken back; what one rank destroys, the others must destroy too. */
    if (strcmp(l->name, "create") == 0 || strcmp(l->name, "destroy-part") == 0)
        expect_end(l, &run);
    else
        cr_expect(!run.timed_out && run.status == 0 && strstr(run.output, "PASS "),
                  "%s on %d ranks: %s after %.1f s, exit status %d; output:\n%s", l->name, l->ranks,
                  run.timed_out ? "killed" : "ended", run.seconds, run.status, run.output);
    run_free(&run);
}

RANK_TESTS(faults, mpi_faults, 200, 2, 3, 4, 5)
