/* Each entry of each result by hand is compared with that of the library. */
#include "results.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double tolerance = 1e-10; /* times the largest entry of the result */

void bench_results_begin(bench_results *r, bench_compare mode) {
    r->mode = mode;
    r->at = 0;
    if (mode == BENCH_RECORD)
        r->n = 0;
}

void bench_results_end(bench_results *r) {
    if (r->mode == BENCH_COMPARE && r->at != r->n && !r->wrong[0])
        snprintf(r->wrong, sizeof r->wrong, "%" PRId64 " results by hand, %" PRId64 " with the library", r->n, r->at);
    r->mode = BENCH_IGNORE;
}

void bench_results_free(bench_results *r) {
    free(r->values);
    *r = (bench_results){0};
}

static void record(bench_results *r, const double *values, int64_t n) {
    if (r->n + n > r->capacity) {
        double *more = realloc(r->values, (size_t)(r->n + n) * sizeof *more);
        if (!more) {
            snprintf(r->wrong, sizeof r->wrong, "%s", bench_no_memory);
            return;
        }
        r->values = more;
        r->capacity = r->n + n;
    }
    memcpy(r->values + r->n, values, (size_t)n * sizeof *values);
    r->n += n;
}

static void compare(bench_results *r, const char *name, const double *values, int64_t n) {
    const double *raw = r->values + r->at;
    double scale = 0;
    r->at += n;
    if (r->at > r->n)
        return; /* told at the end */
    for (int64_t i = 0; i < n; i++)
        scale = fmax(scale, fabs(raw[i]));
    for (int64_t i = 0; i < n && !r->wrong[0]; i++)
        if (!(fabs(values[i] - raw[i]) <= tolerance * scale)) /* NaN is wrong */
            snprintf(r->wrong, sizeof r->wrong, "%s[%" PRId64 "] is %.17g by hand and %.17g with the library", name, i, raw[i],
                     values[i]);
}

void bench_result(bench *b, const char *name, const double *values, int64_t n) {
    if (b->results->mode == BENCH_RECORD)
        record(b->results, values, n);
    else if (b->results->mode == BENCH_COMPARE)
        compare(b->results, name, values, n);
}

/* Read into memory of our own: the peak of the context shall be that of the work. */
void bench_result_tensor(bench *b, const char *name, aj_tensor *t) {
    if (aj_eval(t) != AJ_OK || b->results->mode == BENCH_IGNORE)
        return;
    int64_t n = aj_numel(t);
    double *values = malloc((size_t)(n + 1) * sizeof *values);
    if (!values)
        snprintf(b->results->wrong, sizeof b->results->wrong, "%s", bench_no_memory);
    else if (aj_read(t, values, (size_t)n * sizeof *values) == AJ_OK)
        bench_result(b, name, values, n);
    free(values);
}

bool bench_compares(const bench *b) {
    return b->results->mode != BENCH_IGNORE;
}

void bench_expect(bench *b, const char *name, double value, double expected, double relative) {
    if (!(fabs(value - expected) <= relative * fabs(expected)) && !b->results->wrong[0])
        snprintf(b->results->wrong, sizeof b->results->wrong, "%s = %.17g; expected %.15g", name, value, expected);
}
