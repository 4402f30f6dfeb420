/*
 * A benchmark is a pair of functions that do the same work: one with MPI and plain loops, one with the library. main.c runs them in turns, checks
 * that both come to the same numbers, and prints the medians.
 */
#ifndef BENCH_H
#define BENCH_H

#include <adjoin/adjoin.h>

/* What the two functions of a case work on. Arrays have n entries. */
typedef struct bench {
    aj_ctx *ctx;
    aj_comm *comm;
    MPI_Comm mpi;
    int rank, size, n;
    const double *x, *seed; /* the input and the gradient of the output; they differ by rank and entry */
    double *y, *gx, *work;  /* for the hand-written side: output, gradient of x, and n * work_rows more */
    aj_tensor *param;       /* x as a parameter */
    aj_tensor *seeds;       /* seed as a tensor */
    aj_tensor *zeros;
} bench;

/* Does the work once. With sum not NULL, *sum = the sum of the results, the same number on both sides; such runs are not timed. */
typedef void bench_fn(bench *b, double *sum);

/* Cases are selected by the part of the name before the first dash. */
typedef struct bench_case {
    const char *name;
    const char *what;
    int n;         /* unless --n says otherwise */
    int work_rows; /* how many times n numbers of bench.work the hand-written side needs */
    bench_fn *raw, *adjoin;
} bench_case;

extern const bench_case oversubscribed_case, oversubscribed_recorded_case, allreduce_case, ring_case, bcast_case, chain_case;

/* The sum of n numbers, and of all numbers of a tensor: NaN for NULL. */
double bench_sum(const double *values, int64_t n);
double bench_sum_tensor(aj_tensor *t);

/* End a scope. An error needs no answer here: it stays in the context, where main.c looks for it. */
void bench_scope_end(aj_scope *scope);

/* The end of a differentiated run: backward from y with the seeds, the gradient of the parameter, and the sum of both if asked for. */
void bench_backward(bench *b, aj_tensor *y, double *sum);

#endif
