/* The cases of --device cuda. */
#ifndef BENCH_DEVICE_H
#define BENCH_DEVICE_H

#include "bench.h"

extern const bench_case *const bench_cuda_cases[]; /* ends with NULL */
/* Is there no GPU? Then why not. */
bool bench_cuda_missing(char *why, size_t room);

#endif
