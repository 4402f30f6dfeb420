/*
 * Running tests without Criterion. Each of several workers starts this program once more, which runs the worker's tests one after the other and tells of each
 * that passed; where it ends before, the test under way has failed, and the next one begins in a new process. Workers do nothing else: a process that has used
 * a GPU can only fork to execute something.
 */
#include "criterion/criterion.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_TESTS = 1024, SECONDS = 900 /* of one test */, MAX_WORKERS = 8 };

static plain_suite *suites;
static plain_test *all, **end = &all;
static char **arguments;
static const char *filter;
static const plain_test *chosen[MAX_TESTS]; /* of this worker */

void plain_add_suite(plain_suite *suite) {
    suite->next = suites;
    suites = suite;
}

void plain_add_test(plain_test *test) {
    *end = test;
    end = &test->next;
}

void plain_fail(const char *file, int line, const char *condition, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fflush(stdout);
    fprintf(stderr, "    %s:%d: %s:", file, line, condition);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    _exit(1);
}

/* ---- which ---- */

static const char *name_of(const plain_test *test, char name[256]) {
    snprintf(name, 256, "%s/%s", test->suite, test->name);
    return name;
}

/* Every test that fits whose number is worker's, modulo workers. */
static int choose(int worker, int workers) {
    int n = 0, number = 0;
    char name[256];
    for (const plain_test *test = all; test; test = test->next)
        if (!filter || fnmatch(filter, name_of(test, name), FNM_EXTMATCH) == 0)
            if (number++ % workers == worker && n < MAX_TESTS)
                chosen[n++] = test;
    return n;
}

struct criterion_test_set *criterion_initialize(void) {
    return calloc(1, sizeof(struct criterion_test_set));
}

bool criterion_handle_args(int argc, char **argv, bool unknown_is_error) {
    char name[256];
    arguments = argv;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--filter") == 0 && i + 1 < argc) {
            filter = argv[++i];
        } else if (strcmp(argv[i], "--list") == 0) {
            for (const plain_test *test = all; test; test = test->next)
                puts(name_of(test, name));
            return false;
        } else if (unknown_is_error) {
            fprintf(stderr, "%s: '%s'; expected --filter PATTERN or --list\n", argv[0], argv[i]);
            exit(2);
        }
    }
    return true;
}

/* ---- in the process that runs them ---- */

static const plain_suite *suite_of(const plain_test *test) {
    const plain_suite *suite = suites;
    while (suite && strcmp(suite->name, test->suite) != 0)
        suite = suite->next;
    return suite;
}

static void run_test(const plain_test *test) {
    const plain_suite *suite = suite_of(test);
    if (suite && suite->init)
        suite->init();
    test->run();
    if (suite && suite->fini)
        suite->fini();
}

/* From test number `first` on; the pipe gets a byte for each one that passed. */
static void run_from(int first, int n, int pipe_end) {
    for (int i = first; i < n; i++) {
        alarm(SECONDS);
        run_test(chosen[i]);
        alarm(0);
        fflush(stdout);
        if (write(pipe_end, "", 1) != 1)
            _exit(3);
    }
}

/* ---- in a worker ---- */

static void become_runner(int first, int worker, int workers, const int ends[2]) {
    char text[64];
    snprintf(text, sizeof text, "%d %d %d %d", first, worker, workers, ends[1]);
    setenv("PLAIN_TESTS_FROM", text, 1);
    close(ends[0]);
    execv("/proc/self/exe", arguments);
    fprintf(stderr, "execv: %s\n", strerror(errno));
    _exit(3);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void print_failure(const char *name, int status) {
    if (WIFSIGNALED(status))
        printf("[FAIL] %s: ended by signal %d (%s)\n", name, WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        printf("[FAIL] %s: exit status %d\n", name, WEXITSTATUS(status));
}

/* Start a process with test number `first`, and return the number of those that passed in a row; *status is the process' own. */
static int run_in_a_row(int first, int worker, int workers, int *status) {
    int ends[2], done = first;
    char byte, name[256];
    if (pipe(ends) != 0)
        abort();
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        become_runner(first, worker, workers, ends);
    if (child < 0)
        abort();
    close(ends[1]);
    double begin = now();
    for (ssize_t got; (got = read(ends[0], &byte, 1)) == 1 || (got < 0 && errno == EINTR);) {
        if (got < 0)
            continue;
        printf("[PASS] %s (%.2f s)\n", name_of(chosen[done++], name), now() - begin);
        fflush(stdout);
        begin = now();
    }
    close(ends[0]);
    while (waitpid(child, status, 0) < 0 && errno == EINTR) {
    }
    return done - first;
}

typedef struct counts {
    int tests, passed, crashed;
} counts;

static counts work(int worker, int workers) {
    int n = choose(worker, workers), status = 0;
    counts c = {.tests = n};
    char name[256];
    for (int next = 0; next < n; next++) {
        int in_a_row = run_in_a_row(next, worker, workers, &status);
        c.passed += in_a_row;
        next += in_a_row;
        if (next == n && status == 0)
            break;
        if (next == n)
            c.passed--; /* the end of the process is the last test's matter */
        print_failure(name_of(chosen[next < n ? next : n - 1], name), status);
        fflush(stdout);
        c.crashed += WIFSIGNALED(status);
    }
    return c;
}

/* ---- in the parent ---- */

static int start_worker(int worker, int workers) {
    int ends[2];
    if (pipe(ends) != 0)
        abort();
    fflush(NULL);
    pid_t child = fork();
    if (child < 0)
        abort();
    if (child == 0) {
        close(ends[0]);
        counts c = work(worker, workers);
        _exit(write(ends[1], &c, sizeof c) != sizeof c);
    }
    close(ends[1]);
    return ends[0];
}

static bool run_all(void) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int workers = cores < 1 ? 1 : cores > MAX_WORKERS ? MAX_WORKERS : (int)cores, ends[MAX_WORKERS];
    counts total = {.tests = choose(0, 1)}, one;
    for (int i = 0; i < workers; i++)
        ends[i] = start_worker(i, workers);
    for (int i = 0; i < workers; i++) {
        if (read(ends[i], &one, sizeof one) == sizeof one) {
            total.passed += one.passed;
            total.crashed += one.crashed;
        }
        close(ends[i]);
        wait(NULL);
    }
    printf("[====] Synthesis: Tested: %d | Passing: %d | Failing: %d | Crashing: %d\n", total.tests, total.passed,
           total.tests - total.passed, total.crashed);
    fflush(stdout);
    return total.passed == total.tests;
}

bool criterion_run_all_tests(struct criterion_test_set *tests) {
    int first, worker, workers, pipe_end;
    const char *from = getenv("PLAIN_TESTS_FROM");
    if (!from || sscanf(from, "%d %d %d %d", &first, &worker, &workers, &pipe_end) != 4)
        return run_all();
    tests->n = choose(worker, workers);
    run_from(first, tests->n, pipe_end);
    return true;
}

void criterion_finalize(struct criterion_test_set *tests) {
    free(tests);
}
