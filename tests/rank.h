/*
 * For programs that run under mpiexec: cases, checks, one verdict a case over all ranks. Plain C, usable by hand:
 *
 *     static void ring(void) { CHECK_NEAR(value, rank_id + 1, 0); }
 *     RANK_MAIN({"ring", ring}, {"star", star})
 *
 * `mpiexec -n 3 program ring` runs one case, without names it runs all, `program --list` lists them. For each case rank 0 prints one line,
 * "PASS ring" or "FAIL ring", the latter followed by indented lines with the failed checks of each rank. Exit status 1 if one failed.
 */
#ifndef RANK_H
#define RANK_H

#include <math.h>
#include <mpi.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank_id, rank_count; /* this process in MPI_COMM_WORLD */

enum { RANK_TEXT = 512 };
static char rank_text[RANK_TEXT]; /* the first failed checks of the case */
static int rank_failures;

static void rank_vappend(const char *format, va_list args) {
    size_t used = strlen(rank_text);
    vsnprintf(rank_text + used, RANK_TEXT - used, format, args);
}

__attribute__((format(printf, 1, 2))) static void rank_append(const char *format, ...) {
    va_list args;
    va_start(args, format);
    rank_vappend(format, args);
    va_end(args);
}

/* Note down one failed check, on one line: the driver takes the indented lines after FAIL for the details. */
static void rank_vfail(const char *file, int line, const char *format, va_list args) {
    const char *name = strrchr(file, '/') ? strrchr(file, '/') + 1 : file;
    rank_append("    rank %d: %s:%d: ", rank_id, name, line);
    size_t begin = strlen(rank_text);
    rank_vappend(format, args);
    for (char *c = rank_text + begin; *c; c++)
        if (*c == '\n')
            *c = ' ';
    if (strlen(rank_text) == RANK_TEXT - 1)
        rank_text[RANK_TEXT - 2] = 0;
    rank_append("\n");
    rank_failures++;
}

__attribute__((format(printf, 4, 5), unused)) static bool rank_check(bool right, const char *file, int line, const char *format,
                                                                     ...) {
    va_list args;
    va_start(args, format);
    if (!right)
        rank_vfail(file, line, format, args);
    va_end(args);
    return right;
}

/* Record a failure, with the values, and go on: a rank that leaves a case early would leave the others waiting. Each returns its verdict. */
#define CHECK(condition) rank_check(condition, __FILE__, __LINE__, "%s", #condition)
#define CHECK_MSG(condition, ...) rank_check(condition, __FILE__, __LINE__, __VA_ARGS__)
#define CHECK_NEAR(got, wanted, tolerance) rank_check_near(__FILE__, __LINE__, #got, got, wanted, tolerance)
#define CHECK_INT(got, wanted) rank_check_int(__FILE__, __LINE__, #got, (long long)(got), (long long)(wanted))
#define CHECK_CONTAINS(text, part) rank_check_contains(__FILE__, __LINE__, #text, text, part)

/* |got - wanted| <= tolerance max(1, |wanted|); equal for tolerance 0; NaN equals NaN. */
__attribute__((unused)) static bool rank_check_near(const char *file, int line, const char *what, double got, double wanted,
                                                    double tolerance) {
    bool same = got == wanted || (isnan(got) && isnan(wanted));
    if (same || fabs(got - wanted) <= tolerance * fmax(1, fabs(wanted)))
        return true;
    return rank_check(false, file, line, "%s is %.17g, expected %.17g (tolerance %g)", what, got, wanted, tolerance);
}

__attribute__((unused)) static bool rank_check_int(const char *file, int line, const char *what, long long got,
                                                   long long wanted) {
    return rank_check(got == wanted, file, line, "%s is %lld, expected %lld", what, got, wanted);
}

__attribute__((unused)) static bool rank_check_contains(const char *file, int line, const char *what, const char *text,
                                                        const char *part) {
    return rank_check(text && strstr(text, part), file, line, "%s does not contain \"%s\"; it is \"%.300s\"", what, part,
                      text ? text : "NULL");
}

typedef struct rank_case {
    const char *name;
    void (*run)(void);
} rank_case;

/* MPICH's blocking waits spin: with more ranks than cores, ranks that wait would keep those that work from the processor. */
static void rank_wait(MPI_Request *request) {
    for (int done = 0, polls = 0; !done; polls++) {
        MPI_Test(request, &done, MPI_STATUS_IGNORE);
        if (!done && polls > 50)
            sched_yield();
    }
}

/* Run one case on all ranks; the verdict is the same on all. */
static bool rank_run(const rank_case *c, MPI_Comm comm, char *texts) {
    rank_failures = 0;
    rank_text[0] = 0;
    c->run();
    int failures = 0;
    MPI_Request request;
    MPI_Iallreduce(&rank_failures, &failures, 1, MPI_INT, MPI_SUM, comm, &request);
    rank_wait(&request);
    if (failures > 0) {
        MPI_Igather(rank_text, RANK_TEXT, MPI_CHAR, texts, RANK_TEXT, MPI_CHAR, 0, comm, &request);
        rank_wait(&request);
    }
    if (rank_id == 0) {
        printf("%s %s\n", failures ? "FAIL" : "PASS", c->name);
        for (int r = 0; r < rank_count && failures; r++)
            fputs(texts + (size_t)r * RANK_TEXT, stdout);
        fflush(stdout);
    }
    return failures == 0;
}

static bool rank_wanted(const char *name, int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return true;
    return argc < 2;
}

static int rank_main(int argc, char **argv, int n, const rank_case *cases) {
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (int i = 0; i < n; i++)
            puts(cases[i].name);
        return 0;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm comm; /* of this header alone: a case's messages and verdicts cannot meet */
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_rank(comm, &rank_id);
    MPI_Comm_size(comm, &rank_count);
    char *texts = calloc((size_t)rank_count, RANK_TEXT);
    bool passed = true;
    int found = 0;
    for (int i = 0; i < n; i++)
        if (rank_wanted(cases[i].name, argc, argv)) {
            passed = rank_run(&cases[i], comm, texts) && passed;
            found++;
        }
    for (int i = 1; i < argc && found < argc - 1; i++) {
        bool known = false;
        for (int k = 0; k < n; k++)
            known = known || strcmp(argv[i], cases[k].name) == 0;
        if (!known && rank_id == 0)
            printf("FAIL %s\n    no such case\n", argv[i]);
        passed = passed && known;
    }
    free(texts);
    MPI_Comm_free(&comm);
    MPI_Finalize();
    return passed ? 0 : 1;
}

#define RANK_MAIN(...)                                                                                                           \
    static const rank_case rank_cases[] = {__VA_ARGS__};                                                                         \
    int main(int argc, char **argv) {                                                                                            \
        return rank_main(argc, argv, (int)(sizeof rank_cases / sizeof rank_cases[0]), rank_cases);                               \
    }

#endif
