/* What the sides of a case come to. */
#ifndef BENCH_RESULTS_H
#define BENCH_RESULTS_H

#include "bench.h"

typedef enum bench_compare {
    BENCH_IGNORE,  /* compute results, and look at none of them */
    BENCH_RECORD,  /* keep the results of the run */
    BENCH_COMPARE, /* compare them with those kept */
} bench_compare;

struct bench_results {
    bench_compare mode;
    double *values;
    int64_t n, capacity, at; /* kept, room, and those compared */
    char wrong[320];         /* the first thing that is; empty if none */
};

void bench_results_begin(bench_results *r, bench_compare mode);
/* Back to BENCH_IGNORE. */
void bench_results_end(bench_results *r);
void bench_results_free(bench_results *r);

#endif
