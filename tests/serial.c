#include "serial.h"

#include <float.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

aj_ctx *context;
counting counted;
char log_text[4096];

static double **reads; /* what numbers() gave out */
static size_t n_reads;

void *counting_alloc(size_t bytes, size_t align, void *user) {
    counting *c = user;
    int64_t call = c->calls++;
    if (c->fail_after >= 0 && (c->once ? call == c->fail_after : call >= c->fail_after)) {
        c->failed = true;
        return NULL;
    }
    if (align < sizeof(void *))
        align = sizeof(void *);
    void *memory = NULL;
    if (posix_memalign(&memory, align, bytes ? bytes : 1) != 0)
        return NULL;
    c->live++;
    return memory;
}

void counting_free(void *memory, size_t bytes, void *user) {
    (void)bytes;
    if (memory)
        ((counting *)user)->live--;
    free(memory);
}

void keep_log(const char *line, void *user) {
    (void)user;
    size_t used = strlen(log_text);
    snprintf(log_text + used, sizeof log_text - used, "%s\n", line);
}

void begin(void) {
    counted = (counting){.fail_after = -1};
    aj_ctx_opts opts = {
        .size = sizeof opts, .alloc = counting_alloc, .free = counting_free, .alloc_user = &counted, .log = keep_log};
    cr_assert(aj_ctx_create(&context, &opts) == AJ_OK);
}

void must_end(bool good, const char *format, ...) {
    if (good)
        return;
    va_list arguments;
    va_start(arguments, format);
    fputs("at the end of a test: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    abort();
}

void finish(void) {
    for (size_t i = 0; i < n_reads; i++)
        free(reads[i]);
    free(reads);
    reads = NULL;
    n_reads = 0;
    must_end(aj_ctx_status(context) == AJ_OK, "the test left an error: %s", aj_ctx_error(context));
    aj_status end = aj_ctx_destroy(&context);
    must_end(end == AJ_OK, "destroying the context: %s; log:\n%s", aj_status_name(end), log_text);
    must_end(counted.live == 0, "%lld blocks of memory leaked", (long long)counted.live);
}

bool is_watched(void) {
#if defined(__SANITIZE_ADDRESS__)
    return true;
#else
    const char *preloaded = getenv("LD_PRELOAD"); /* valgrind preloads its own functions */
    return preloaded && strstr(preloaded, "vgpreload");
#endif
}

/* ---- making values ---- */

static void store(aj_dtype dtype, void *data, int64_t i, double value) {
    switch (dtype) {
    case AJ_F64:
        ((double *)data)[i] = value;
        break;
    case AJ_F32:
        ((float *)data)[i] = (float)value;
        break;
    case AJ_I64:
        ((int64_t *)data)[i] = (int64_t)value;
        break;
    case AJ_I32:
        ((int32_t *)data)[i] = (int32_t)value;
        break;
    case AJ_U8:
        ((uint8_t *)data)[i] = (uint8_t)value;
        break;
    }
}

static double load(aj_dtype dtype, const void *data, int64_t i) {
    switch (dtype) {
    case AJ_F64:
        return ((const double *)data)[i];
    case AJ_F32:
        return ((const float *)data)[i];
    case AJ_I64:
        return (double)((const int64_t *)data)[i];
    case AJ_I32:
        return ((const int32_t *)data)[i];
    case AJ_U8:
        return ((const uint8_t *)data)[i];
    }
    return NAN;
}

static int64_t count(int ndim, const int64_t *shape) {
    int64_t n = 1;
    for (int i = 0; i < ndim; i++)
        n *= shape[i];
    return n;
}

aj_tensor *make_values(aj_dtype dtype, int ndim, const int64_t *shape, int n, const double *values) {
    cr_assert(count(ndim, shape) == n, "%d values for a shape of %lld", n, (long long)count(ndim, shape));
    void *data = malloc(8 * (size_t)n + 1);
    for (int i = 0; i < n; i++)
        store(dtype, data, i, values[i]);
    aj_tensor *t = aj_from_data(context, dtype, ndim, shape, data);
    free(data);
    return t;
}

/* Numerical Recipes' 64-bit linear congruential generator, high bits: the tests' own, not the library's. */
static uint64_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

aj_tensor *make_spread(aj_dtype dtype, int ndim, const int64_t *shape, double lo, double hi, double within, uint64_t seed) {
    int64_t n = count(ndim, shape);
    double *values = malloc(8 * (size_t)n + 8);
    uint64_t state = seed;
    for (int64_t i = 0; i < n; i++)
        values[i] = lo + (hi - lo) * ((double)i + within) / (double)n;
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t k = (int64_t)(next_random(&state) % (uint64_t)(i + 1));
        double swap = values[i];
        values[i] = values[k];
        values[k] = swap;
    }
    aj_tensor *t = make_values(dtype, ndim, shape, (int)n, values);
    free(values);
    return t;
}

double weight(int64_t i, double salt) {
    return 1.1 + cos(2.3 * (double)i + salt);
}

aj_tensor *make_weights(aj_tensor *t, double salt) {
    int64_t shape[AJ_MAX_NDIM], n = aj_numel(t);
    for (int i = 0; i < aj_ndim(t); i++)
        shape[i] = aj_extent(t, i);
    double *values = malloc(8 * (size_t)n + 8);
    for (int64_t i = 0; i < n; i++)
        values[i] = weight(i, salt);
    aj_tensor *w = make_values(aj_tensor_dtype(t), aj_ndim(t), shape, (int)n, values);
    free(values);
    return aj_to_device(w, aj_tensor_device(t));
}

/* ---- comparing ---- */

double *numbers(aj_tensor *t) {
    cr_assert(t != NULL, "no tensor: %s", aj_ctx_error(context));
    int64_t n = aj_numel(t);
    aj_dtype dtype = aj_tensor_dtype(t);
    size_t bytes = (size_t)n * aj_dtype_size(dtype);
    void *data = malloc(bytes + 1);
    aj_status status = aj_read(t, data, bytes);
    cr_assert(status == AJ_OK, "aj_read: %s", aj_ctx_error(context));
    double *values = malloc(8 * (size_t)n + 8);
    for (int64_t i = 0; i < n; i++)
        values[i] = load(dtype, data, i);
    free(data);
    if ((n_reads & (n_reads - 1)) == 0) { /* full at each power of two */
        reads = realloc(reads, (n_reads ? 2 * n_reads : 1) * sizeof *reads);
        cr_assert(reads != NULL);
    }
    return reads[n_reads++] = values;
}

double machine_epsilon(aj_dtype dtype) {
    return dtype == AJ_F64 ? DBL_EPSILON : dtype == AJ_F32 ? FLT_EPSILON : 0;
}

static bool near(double got, double wanted, double tolerance) {
    return got == wanted || (isnan(got) && isnan(wanted)) || fabs(got - wanted) <= tolerance * fmax(1, fabs(wanted));
}

void check_near(const char *file, int line, const char *what, double got, double wanted, double tolerance) {
    cr_assert(near(got, wanted, tolerance), "%s:%d: %s is %.17g, expected %.17g (tolerance %g); error: %s", file, line, what, got,
              wanted, tolerance, aj_ctx_error(context));
}

void check_values(const char *file, int line, const char *what, aj_tensor *t, double tolerance, int n, const double *wanted) {
    cr_assert(t != NULL, "%s:%d: %s is NULL: %s", file, line, what, aj_ctx_error(context));
    cr_assert(aj_numel(t) == n, "%s:%d: %s has %lld entries, expected %d", file, line, what, (long long)aj_numel(t), n);
    const double *got = numbers(t);
    for (int i = 0; i < n; i++)
        cr_assert(near(got[i], wanted[i], tolerance), "%s:%d: %s: entry %d is %.17g, expected %.17g (tolerance %g)", file, line,
                  what, i, got[i], wanted[i], tolerance);
}

void check_same(const char *file, int line, const char *what, aj_tensor *a, aj_tensor *b, double tolerance) {
    cr_assert(a && b, "%s:%d: %s: a NULL: %s", file, line, what, aj_ctx_error(context));
    cr_assert(aj_tensor_dtype(a) == aj_tensor_dtype(b), "%s:%d: %s: dtypes %s and %s", file, line, what,
              aj_dtype_name(aj_tensor_dtype(a)), aj_dtype_name(aj_tensor_dtype(b)));
    int64_t shape[AJ_MAX_NDIM];
    for (int i = 0; i < aj_ndim(b); i++)
        shape[i] = aj_extent(b, i);
    check_shape(file, line, what, a, aj_ndim(b), shape);
    check_values(file, line, what, a, tolerance, (int)aj_numel(b), numbers(b));
}

void check_shape(const char *file, int line, const char *what, aj_tensor *t, int ndim, const int64_t *shape) {
    cr_assert(t != NULL, "%s:%d: %s is NULL: %s", file, line, what, aj_ctx_error(context));
    cr_assert(aj_ndim(t) == ndim, "%s:%d: %s has %d axes, expected %d", file, line, what, aj_ndim(t), ndim);
    for (int i = 0; i < ndim; i++)
        cr_assert(aj_extent(t, i) == shape[i], "%s:%d: %s: extent %d is %lld, expected %lld", file, line, what, i,
                  (long long)aj_extent(t, i), (long long)shape[i]);
}

void check_error(const char *file, int line, aj_status status, const char *const *parts) {
    cr_assert(aj_ctx_status(context) == status, "%s:%d: status %s, expected %s; message: %s", file, line,
              aj_status_name(aj_ctx_status(context)), aj_status_name(status), aj_ctx_error(context));
    for (int i = 0; parts[i]; i++)
        cr_assert(strstr(aj_ctx_error(context), parts[i]), "%s:%d: no \"%s\" in the message: %s", file, line, parts[i],
                  aj_ctx_error(context));
    aj_ctx_clear_error(context);
    cr_assert(aj_ctx_status(context) == AJ_OK && aj_ctx_error(context)[0] == 0, "%s:%d: the error is not cleared", file, line);
}

void check_ok(const char *file, int line, const char *what, aj_status status) {
    cr_assert(status == AJ_OK, "%s:%d: %s returned %s: %s", file, line, what, aj_status_name(status), aj_ctx_error(context));
}
