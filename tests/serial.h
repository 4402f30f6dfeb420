/*
 * For the serial suites: a context for each test, whose end checks that nothing leaked, and short words for making and comparing values.
 *
 *     TestSuite(values, .init = begin, .fini = finish);
 *     Test(values, add) { expect_values(aj_add(F64((2), 1, 2), F64((2), 3, 4)), 0, 4, 6); }
 */
#ifndef SERIAL_H
#define SERIAL_H

#include <adjoin/adjoin.h>
#include <criterion/criterion.h>
#include <math.h>

extern aj_ctx *context; /* of the running test */

void begin(void);  /* context = a new one on the counting allocator */
void finish(void); /* destroys it; asserts that the test left no error, and the library no block of memory */

/* For a suite's .fini, where Criterion reports a failed assertion, but lets the test pass: says what is wrong, and aborts, which fails the program. */
void must_end(bool good, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The allocator behind the context: counts blocks. With fail_after = n >= 0 it has memory for n calls; call n + 1 fails, and unless `once`
 * is set every call after it. */
typedef struct counting {
    int64_t live, calls, fail_after;
    bool once, failed;
} counting;
void *counting_alloc(size_t bytes, size_t align, void *user);
void counting_free(void *memory, size_t bytes, void *user);
extern counting counted;
extern char log_text[4096]; /* what the context logged */
void keep_log(const char *line, void *user);

/* Are a sanitizer or valgrind watching? Then everything is many times slower, and memory is not what it was. */
bool is_watched(void);

/* Values written out: F64((2, 2), 1, 2, 3, 4), of the running test's context. An extent list () cannot be written: use SCALAR(1.5). */
#define UNWRAP(...) __VA_ARGS__
#define NUMBERS(...)                                                                                                             \
    (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)), (const double[]) {                                                  \
        __VA_ARGS__                                                                                                              \
    }
#define VALUES(dtype, shape, ...) make_values(dtype, AJ_SHAPE(UNWRAP shape), NUMBERS(__VA_ARGS__))
#define F64(shape, ...) VALUES(AJ_F64, shape, __VA_ARGS__)
#define F32(shape, ...) VALUES(AJ_F32, shape, __VA_ARGS__)
#define I64(shape, ...) VALUES(AJ_I64, shape, __VA_ARGS__)
#define I32(shape, ...) VALUES(AJ_I32, shape, __VA_ARGS__)
#define U8(shape, ...) VALUES(AJ_U8, shape, __VA_ARGS__)
#define SCALAR(value) aj_scalar(context, AJ_F64, value)
aj_tensor *make_values(aj_dtype dtype, int ndim, const int64_t *shape, int n, const double *values);
/* Entries drawn from lo ... hi, all different, in no order: one in each of as many equal cells as there are entries, shuffled. Each lies at
 * `within` (0 ... 1) of its cell: tensors with different ones have no entry in common. */
aj_tensor *make_spread(aj_dtype dtype, int ndim, const int64_t *shape, double lo, double hi, double within, uint64_t seed);
/* Weights, seeds and directions: 1.1 + cos(2.3 i + salt) for entry i: far from uniform, none zero. Of the shape and dtype of t. */
aj_tensor *make_weights(aj_tensor *t, double salt);
double weight(int64_t i, double salt);

/* All numbers of t as doubles, row-major; freed at the end of the test. Asserts that reading works. */
double *numbers(aj_tensor *t);
double machine_epsilon(aj_dtype dtype); /* of f64 or f32; 0 for integers */

/* Assertions. A tolerance is relative to max(1, |wanted|); 0 asks for equality; NaN equals NaN. */
#define expect_values(t, tolerance, ...) check_values(__FILE__, __LINE__, #t, t, tolerance, NUMBERS(__VA_ARGS__))
#define expect_near(got, wanted, tolerance) check_near(__FILE__, __LINE__, #got, got, wanted, tolerance)
#define expect_same(a, b, tolerance) check_same(__FILE__, __LINE__, #a, a, b, tolerance)
#define expect_shape(t, ...) check_shape(__FILE__, __LINE__, #t, t, AJ_SHAPE(__VA_ARGS__))
/* Exactly one error of this status, whose message contains each of the parts (a list that ends with NULL is made here); clears it. */
#define expect_error(status, ...) check_error(__FILE__, __LINE__, status, (const char *const[]){__VA_ARGS__, NULL})
#define expect_ok(call) check_ok(__FILE__, __LINE__, #call, call)
void check_values(const char *file, int line, const char *what, aj_tensor *t, double tolerance, int n, const double *wanted);
void check_near(const char *file, int line, const char *what, double got, double wanted, double tolerance);
void check_same(const char *file, int line, const char *what, aj_tensor *a, aj_tensor *b, double tolerance);
void check_shape(const char *file, int line, const char *what, aj_tensor *t, int ndim, const int64_t *shape);
void check_error(const char *file, int line, aj_status status, const char *const *parts);
void check_ok(const char *file, int line, const char *what, aj_status status);

#endif
