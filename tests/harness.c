#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { OUTPUT_LIMIT = 1 << 20, MAX_ARGS = 256, MAX_COUNTS = 16 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* In the child: become argv, in an own group, with both outputs in the pipe. Dies with the driver, so that a killed driver leaves nothing. */
static void become(const char *const *argv, int output) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int nothing = open("/dev/null", O_RDONLY);
    dup2(nothing, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    setenv("HWLOC_PLUGINS_PATH", "/nonexistent", 1); /* plugins that are loaded and unloaded look like leaks to LeakSanitizer */
    execvp(argv[0], (char *const *)(uintptr_t)argv);
    fprintf(stderr, "cannot run %s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

/* Read what the child prints until it closes its end or the time is up; keeps the first OUTPUT_LIMIT bytes. Returns false on time-out. */
static bool drain(int input, char *output, double deadline) {
    size_t length = 0;
    for (;;) {
        double left = deadline - now();
        if (left <= 0)
            return false;
        struct pollfd p = {.fd = input, .events = POLLIN};
        if (poll(&p, 1, left > 1 ? 1000 : (int)(1000 * left) + 1) <= 0)
            continue;
        char block[4096];
        ssize_t got = read(input, block, sizeof block);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return true;
        size_t room = OUTPUT_LIMIT - length, take = (size_t)got < room ? (size_t)got : room;
        memcpy(output + length, block, take);
        length += take;
    }
}

run_result run_command(double seconds, const char *const *argv) {
    run_result result = {.status = 127, .output = calloc(OUTPUT_LIMIT + 1, 1)};
    int ends[2];
    if (!result.output || pipe2(ends, O_CLOEXEC) != 0)
        abort();
    fflush(NULL);
    double begin = now();
    pid_t child = fork();
    if (child == 0)
        become(argv, ends[1]);
    if (child < 0)
        abort();
    setpgid(child, child);
    close(ends[1]);
    result.timed_out = !drain(ends[0], result.output, begin + seconds);
    if (result.timed_out)
        kill(-child, SIGKILL);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    kill(-child, SIGKILL); /* ranks that outlived their launcher */
    close(ends[0]);
    result.seconds = now() - begin;
    result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return result;
}

static const char *find_program(const char *program, char path[1024]) {
    const char *folder = getenv("ADJOIN_TEST_DIR");
    if (strchr(program, '/') || !folder)
        return program;
    snprintf(path, 1024, "%s/%s", folder, program);
    return path;
}

run_result run_ranks(int ranks, double seconds, const char *program, const char *const *args) {
    char count[16], path[1024];
    snprintf(count, sizeof count, "%d", ranks);
    const char *argv[MAX_ARGS] = {getenv("MPIEXEC") ? getenv("MPIEXEC") : "mpiexec", "-n", count, find_program(program, path)};
    int n = 4;
    for (int i = 0; args && args[i]; i++) {
        if (n == MAX_ARGS - 1)
            abort();
        argv[n++] = args[i];
    }
    return run_command(seconds, argv);
}

void run_free(run_result *result) {
    free(result->output);
    result->output = NULL;
}

/* ---- the cases of a rank program ---- */

case_list list_cases(const char *program) {
    char path[1024];
    run_result run = run_command(30, (const char *const[]){find_program(program, path), "--list", NULL});
    case_list cases = {0};
    char *rest = NULL;
    for (char *line = strtok_r(run.output, "\n", &rest); line && run.status == 0; line = strtok_r(NULL, "\n", &rest)) {
        if (cases.n == MAX_CASES)
            abort();
        cases.name[cases.n++] = strdup(line);
    }
    if (cases.n == 0)
        fprintf(stderr, "%s --list: exit status %d, no cases\n%s\n", path, run.status, run.output);
    run_free(&run);
    return cases;
}

void free_cases(case_list *cases) {
    for (int i = 0; i < cases->n; i++)
        free(cases->name[i]);
    cases->n = 0;
}

/* The line "PASS name" or "FAIL name" in output, NULL if there is none. */
static const char *find_verdict(const char *output, const char *word, const char *name) {
    char wanted[128];
    int length = snprintf(wanted, sizeof wanted, "%s %s\n", word, name);
    for (const char *at = strstr(output, wanted); at; at = strstr(at + length, wanted))
        if (at == output || at[-1] == '\n')
            return at;
    return NULL;
}

/* The details of a failure: the lines that follow it, which are indented. */
static void copy_details(char *text, size_t size, const char *line) {
    const char *begin = strchr(line, '\n') + 1, *end = begin;
    while (*end == ' ') {
        const char *next = strchr(end, '\n');
        end = next ? next + 1 : end + strlen(end);
    }
    snprintf(text, size, "%.*s", (int)(end - begin), begin);
}

static bool judge(rank_verdict *verdict, const run_result *run) {
    const char *failed = find_verdict(run->output, "FAIL", verdict->name);
    if (failed)
        copy_details(verdict->text, sizeof verdict->text, failed);
    verdict->passed = !failed && find_verdict(run->output, "PASS", verdict->name);
    return failed || verdict->passed;
}

/* The case that was under way when the program broke off. */
static void blame(rank_verdict *verdict, const run_result *run) {
    size_t length = strlen(run->output), tail = sizeof verdict->text - 100;
    snprintf(verdict->text, sizeof verdict->text,
             "%s after %.1f s with exit status %d and no verdict; the end of the output:\n%s",
             run->timed_out ? "killed" : "ended", run->seconds, run->status, run->output + (length > tail ? length - tail : 0));
}

/* Launch until each of n cases has its verdict. A launch that ends badly after its last verdict (a leak, a crash in MPI_Finalize) counts
 * against its last case. */
static void run_cases(const char *program, double seconds, int ranks, int n, rank_verdict *verdicts) {
    for (int done = 0; done < n;) {
        const char *names[MAX_CASES + 1] = {NULL};
        for (int i = done; i < n; i++)
            names[i - done] = verdicts[i].name;
        run_result run = run_ranks(ranks, seconds, program, names);
        int wanted = 0; /* the exit status that goes with the verdicts */
        while (done < n && judge(&verdicts[done], &run))
            wanted |= !verdicts[done++].passed;
        if (done < n) {
            blame(&verdicts[done++], &run);
        } else if (run.timed_out || run.status != wanted) {
            verdicts[n - 1].passed = false;
            blame(&verdicts[n - 1], &run);
        }
        run_free(&run);
    }
}

void assert_verdict(const rank_verdict *verdict) {
    cr_assert(verdict->passed, "%s %s on %d ranks:\n%s", verdict->program, verdict->name, verdict->ranks, verdict->text);
}

/* ADJOIN_TEST_RANKS="1 2 3": only these numbers of ranks, where each launch takes long; the first one in any case. */
static bool is_wanted(int ranks) {
    const char *text = getenv("ADJOIN_TEST_RANKS");
    if (!text || !*text)
        return true;
    for (char *end; *text; text = end) {
        if (strtol(text, &end, 10) == ranks)
            return true;
        if (end == text)
            break; /* no number */
    }
    return false;
}

static int choose_ranks(int n, const int *ranks, int *chosen) {
    int kept = 0;
    for (int k = 0; k < n; k++)
        if (is_wanted(ranks[k]))
            chosen[kept++] = ranks[k];
    if (kept == 0)
        chosen[kept++] = ranks[0];
    return kept;
}

static void free_verdicts(struct criterion_test_params *params) {
    cr_free(params->params);
}

struct criterion_test_params rank_verdicts(const char *program, double seconds, int n_all, const int *all) {
    int ranks[MAX_COUNTS], n = choose_ranks(n_all < MAX_COUNTS ? n_all : MAX_COUNTS, all, ranks);
    case_list cases = list_cases(program);
    int per_launch = cases.n > 0 ? cases.n : 1;
    size_t total = (size_t)n * (size_t)per_launch;
    rank_verdict *verdicts = cr_calloc(total, sizeof *verdicts);
    for (size_t i = 0; i < total; i++) {
        rank_verdict *v = &verdicts[i];
        v->ranks = ranks[i / (size_t)per_launch];
        snprintf(v->program, sizeof v->program, "%s", program);
        snprintf(v->name, sizeof v->name, "%s", cases.n > 0 ? cases.name[i % (size_t)per_launch] : "--list");
        snprintf(v->text, sizeof v->text, "the program lists no cases");
    }
    for (int k = 0; k < n && cases.n > 0; k++)
        run_cases(program, seconds, ranks[k], cases.n, verdicts + k * cases.n);
    free_cases(&cases);
    return cr_make_param_array(rank_verdict, verdicts, total, free_verdicts);
}

struct criterion_test_params rank_verdicts_with(const char *variable, const char *value, const char *program, double seconds,
                                                int n, const int *ranks) {
    char *before = getenv(variable) ? strdup(getenv(variable)) : NULL;
    setenv(variable, value, 1);
    struct criterion_test_params params = rank_verdicts(program, seconds, n, ranks);
    if (before)
        setenv(variable, before, 1);
    else
        unsetenv(variable);
    free(before);
    return params;
}
