/*
 * For Criterion drivers of programs that run under mpiexec. MPI must not be initialised inside a Criterion test: Criterion closes the
 * descriptors by which the launcher talks to a rank. So the test is a driver, which launches the rank program (rank.h) as a child.
 *
 *     RANK_TESTS(mpi, mpi_collectives, 60, 1, 2, 3, 5)
 *
 * runs the program mpi_collectives with 1, 2, 3 and 5 ranks, one launch each, and makes every case of every launch a test of its own.
 */
#ifndef HARNESS_H
#define HARNESS_H

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdbool.h>

typedef struct run_result {
    int status;     /* exit status; 128 + signal number if a signal ended it */
    bool timed_out; /* the time was up: the whole process group was killed */
    double seconds;
    char *output; /* stdout and stderr together, cut after 1 MiB; free with run_free */
} run_result;

/* Run argv (ends with NULL) in a process group of its own, for at most `seconds`. */
run_result run_command(double seconds, const char *const *argv);
/* The same for `mpiexec -n ranks program args...`; args ends with NULL or is NULL. A program without a slash is looked for in the folder
 * of built tests, which Meson gives as ADJOIN_TEST_DIR. */
run_result run_ranks(int ranks, double seconds, const char *program, const char *const *args);
void run_free(run_result *result);

/* Assert that a run ended with `wanted`; shows its output if it did not. */
#define assert_status(result, wanted)                                                                                            \
    cr_assert(!(result).timed_out && (result).status == (wanted), "%s after %.1f s, exit status %d instead of %d; output:\n%s",  \
              (result).timed_out ? "killed" : "ended", (result).seconds, (result).status, wanted, (result).output)
#define assert_ran(result) assert_status(result, 0)

enum { MAX_CASES = 512 };
typedef struct case_list {
    int n;
    char *name[MAX_CASES];
} case_list;

/* What `program --list` prints, a name a line; free with free_cases. It needs no MPI. Says on stderr why there are none, if so. */
case_list list_cases(const char *program);
void free_cases(case_list *cases);

/* The outcome of one case of a rank program on a number of ranks. */
typedef struct rank_verdict {
    int ranks;
    bool passed;
    char program[64], name[64];
    char text[2048]; /* what failed, the end of the output if the program broke off */
} rank_verdict;

/* Run every case of a program on each of n numbers of ranks. After a crash or a time-out the case under way has failed, and the rest is
 * launched again. `seconds` limits each launch. ADJOIN_TEST_RANKS leaves some numbers out. */
struct criterion_test_params rank_verdicts(const char *program, double seconds, int n, const int *ranks);
/* The same with an environment variable set. */
struct criterion_test_params rank_verdicts_with(const char *variable, const char *value, const char *program, double seconds,
                                                int n, const int *ranks);

/* Fails the test with what the ranks said. */
void assert_verdict(const rank_verdict *verdict);

#define RANK_TESTS(suite, program, seconds, ...)                                                                                 \
    ParameterizedTestParameters(suite, program) {                                                                                \
        static const int ranks[] = {__VA_ARGS__};                                                                                \
        return rank_verdicts(#program, seconds, (int)(sizeof ranks / sizeof ranks[0]), ranks);                                   \
    }                                                                                                                            \
    ParameterizedTest(rank_verdict *verdict, suite, program) {                                                                   \
        assert_verdict(verdict);                                                                                                 \
    }

/* Once more, as a test named `name`, with an environment variable set. */
#define RANK_TESTS_WITH(variable, value, suite, name, program, seconds, ...)                                                     \
    ParameterizedTestParameters(suite, name) {                                                                                   \
        static const int ranks[] = {__VA_ARGS__};                                                                                \
        return rank_verdicts_with(variable, value, #program, seconds, (int)(sizeof ranks / sizeof ranks[0]), ranks);             \
    }                                                                                                                            \
    ParameterizedTest(rank_verdict *verdict, suite, name) {                                                                      \
        assert_verdict(verdict);                                                                                                 \
    }

#endif
