/* Measuring a case. */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include "bench.h"

typedef struct bench_figures {
    double raw_us, adjoin_us; /* medians */
    int64_t peak_bytes;       /* of tensors, on the rank that needs most */
} bench_figures;

/* Run the case with n: the two sides in turns, `samples` timed batches of each, with comparisons of their results. False on all ranks, after a message, if
 * they differ or something failed. Collective over MPI_COMM_WORLD. */
bool bench_measure(const bench_case *c, int n, int samples, bench_figures *figures);

/* Run the library's side `times` times and nothing else: for tools that count instructions. */
bool bench_repeat(const bench_case *c, int n, int times);

#endif
