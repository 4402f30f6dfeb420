/*
 * Of Criterion what the suites of operations use, for machines without it: scripts/test-gpu puts this folder before the others. Each test runs in a process
 * that begins with it, or with one before it that passed.
 */
#ifndef PLAIN_CRITERION_H
#define PLAIN_CRITERION_H

#include <stdbool.h>

struct criterion_test_set {
    int n;
};

struct criterion_test_set *criterion_initialize(void);
/* --filter PATTERN of "suite/test", with *, @(a|b) and !(a|b). False: there is nothing to run (--list). */
bool criterion_handle_args(int argc, char **argv, bool unknown_is_error);
bool criterion_run_all_tests(struct criterion_test_set *tests);
void criterion_finalize(struct criterion_test_set *tests);

typedef struct plain_suite {
    const char *name;
    void (*init)(void);
    void (*fini)(void);
    struct plain_suite *next;
} plain_suite;

typedef struct plain_test {
    const char *suite, *name;
    void (*run)(void);
    struct plain_test *next;
} plain_test;

void plain_add_suite(plain_suite *suite);
void plain_add_test(plain_test *test);
__attribute__((format(printf, 4, 5), noreturn)) void plain_fail(const char *file, int line, const char *condition,
                                                                const char *format, ...);

#define TestSuite(suite_name, ...)                                                                                               \
    __attribute__((constructor)) static void plain_enter_##suite_name(void) {                                                    \
        static plain_suite suite = {.name = #suite_name, __VA_ARGS__};                                                           \
        plain_add_suite(&suite);                                                                                                 \
    }                                                                                                                            \
    _Static_assert(1, "")

#define Test(suite_name, test_name)                                                                                              \
    static void plain_run_##suite_name##_##test_name(void);                                                                      \
    __attribute__((constructor)) static void plain_enter_##suite_name##_##test_name(void) {                                      \
        static plain_test test = {.suite = #suite_name, .name = #test_name, .run = plain_run_##suite_name##_##test_name};        \
        plain_add_test(&test);                                                                                                   \
    }                                                                                                                            \
    static void plain_run_##suite_name##_##test_name(void)

/* cr_assert(condition) or cr_assert(condition, format, ...): the test ends where it does not hold. */
#define cr_assert(condition, ...) ((condition) ? (void)0 : plain_fail(__FILE__, __LINE__, #condition, " " __VA_ARGS__))

#endif
