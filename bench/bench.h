/*
 * A benchmark is a pair of functions that do the same work, forward and backward: one by hand, with MPI, CBLAS and plain loops, one with the library.
 * measure.c runs them in turns, after it has seen that both come to the same numbers. Cases on a GPU are in gpu_cases.c. This is what the files of the cases include; the rest of the
 * program is in measure.h, options.h and progress.h.
 */
#ifndef BENCH_H
#define BENCH_H

#include <adjoin/adjoin.h>
#include <stdbool.h>

typedef struct bench_results bench_results;

/* What the two sides of a case work on. */
typedef struct bench {
    aj_ctx *ctx;
    MPI_Comm mpi;
    aj_comm *comm; /* the same for the library */
    int rank, size, n;
    bench_results *results;
    void *state; /* of a case that has more than these */
    /* Of a case on a device, from its setup: until the device has done all work. */
    void (*wait)(struct bench *b);
    /* From bench_arrays, for cases y = f(x). By hand: input, gradient of the output, output, gradient of the input, room. */
    const double *x, *seed;
    double *y, *gx, *work;
    double *given[2]; /* x and seed, to free */
    int64_t n_x, n_y;
    /* The same for the library. */
    aj_tensor *param, *seeds;
} bench;

/* Cases are selected by the part of the name before the first dash. */
typedef struct bench_case {
    const char *name;
    const char *what;
    int n; /* unless --n says otherwise; what it counts is up to the case */
    /* Before and after all runs, collective. setup returns what is wrong, in words, or NULL; an error of the library is found without it. teardown may be
     * NULL, and comes in any case: what setup has not made is zero. */
    const char *(*setup)(bench *b);
    void (*teardown)(bench *b);
    /* The work, once: from the inputs to all results, which are handed to bench_result, the same ones in the same order. */
    void (*raw)(bench *b);
    void (*adjoin)(bench *b);
} bench_case;

/* ---- setup ---- */

extern const char *const bench_no_memory;

/* n zeros, aligned for vectors; NULL if there is not so much memory. */
double *bench_zeros(int64_t n);

/* Make x and param, seed and seeds, y and gx, and room for n_work numbers. x is in [1, 2), the seeds in [2, 3), other ones on every rank. */
const char *bench_arrays(bench *b, int x_ndim, const int64_t *x_shape, int y_ndim, const int64_t *y_shape, int64_t n_work);
void bench_free_arrays(bench *b);

/* ---- results ---- */

/* A result. Compared with that of the other side when measure.c asks for it, and nothing else than computed in runs that are timed. */
void bench_result(bench *b, const char *name, const double *values, int64_t n);
void bench_result_tensor(bench *b, const char *name, aj_tensor *t);

/* Is this run one of those that are compared? For checks that cost time: */
bool bench_compares(const bench *b);
/* A number that is known. */
void bench_expect(bench *b, const char *name, double value, double expected, double tolerance);

/* ---- the library's side ---- */

/* End a scope. An error needs no answer here: it stays in the context, where measure.c looks for it. */
void bench_scope_end(aj_scope *scope);

/* The end of a run y = f(param): backward from y with the seeds; y and the gradient are the results. */
void bench_backward(bench *b, aj_tensor *y);

/* ---- by hand ---- */

/* A function of loops, compiled for several instruction sets; the best that the machine has is taken at run time. */
#ifdef BENCH_CLONES
#define BENCH_VECTORISED __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define BENCH_VECTORISED
#endif

#endif
