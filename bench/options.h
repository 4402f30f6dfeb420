/* The command line. */
#ifndef BENCH_OPTIONS_H
#define BENCH_OPTIONS_H

#include <stdio.h>

#include "bench.h"

typedef struct bench_options {
    const char *name;  /* NULL: all cases */
    const char *sizes; /* NULL: each case's own */
    int samples, repeat;
    bool json, help, cuda;
    const bench_case *const *cases; /* those of the device; ends with NULL */
    char error[512];
} bench_options;

/* False with o->error if something is wrong. Lists of cases end with NULL. */
bool bench_parse(bench_options *o, int argc, char **argv, const bench_case *const *cases, const bench_case *const *cuda_cases);
void bench_help(FILE *to, const bench_options *o);
bool bench_selected(const bench_case *c, const char *name);

/* Read a number off a list that bench_parse has seen. */
int bench_next_size(const char **text);

#endif
