#include "measure.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "progress.h"
#include "results.h"

typedef void bench_side(bench *b);

enum { MAX_COUNT = 100000 };
static const double batch_seconds = 0.02; /* what one timed batch of runs takes, about */

/* ---- time ---- */

/* A barrier that leaves the cores to ranks still under way: MPI_Barrier spins. */
static void meet(const bench *b) {
    MPI_Request request;
    MPI_Ibarrier(b->mpi, &request);
    for (int done = 0; !done; sched_yield())
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
}

static void wait_for_device(bench *b) {
    if (b->wait)
        b->wait(b);
}

/* Seconds that `count` runs took on the slowest rank. */
static double time_runs(bench *b, bench_side *run, int count) {
    wait_for_device(b);
    meet(b);
    double begin = MPI_Wtime();
    for (int i = 0; i < count; i++)
        run(b);
    wait_for_device(b);
    double mine = MPI_Wtime() - begin, slowest;
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, b->mpi);
    return slowest;
}

/* How many runs fill a batch: doubled until they do, since where ranks outnumber cores the start alone can take longer than many runs. */
static int count_for_batch(bench *b, bench_side *run) {
    int count = 1;
    time_runs(b, run, 1); /* warms up */
    while (count < MAX_COUNT && time_runs(b, run, count) < batch_seconds)
        count *= 2;
    return count;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, compare);
    return n % 2 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

/* ---- results ---- */

static bool any_rank(const bench *b, bool here) {
    int mine = here, all;
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_LOR, b->mpi);
    return all != 0;
}

/* Do both sides come to the same numbers, on all ranks? The ranks where they do not say so. */
static bool agrees(bench *b, const bench_case *c) {
    bench_results_begin(b->results, BENCH_RECORD);
    c->raw(b);
    bench_results_end(b->results);
    bench_results_begin(b->results, BENCH_COMPARE);
    c->adjoin(b);
    bench_results_end(b->results);
    bool in_error = aj_ctx_status(b->ctx) != AJ_OK, wrong = b->results->wrong[0] != 0;
    if (in_error || wrong) {
        bench_progress_end();
        fprintf(stderr, "adjoin-bench: %s: rank %d: %s\n", c->name, b->rank, in_error ? aj_ctx_error(b->ctx) : b->results->wrong);
    }
    return !any_rank(b, in_error || wrong);
}

static void progress(const bench *b, const bench_case *c, int step, int steps) {
    if (b->rank == 0)
        bench_progress(c->name, b->n, step, steps);
}

/* The two sides in turns, with a comparison of their results before, between and after. */
static bool sample(bench *b, const bench_case *c, int samples, double *raw, double *adjoin) {
    progress(b, c, 0, samples);
    if (!agrees(b, c))
        return false;
    int raw_count = count_for_batch(b, c->raw), adjoin_count = count_for_batch(b, c->adjoin);
    for (int i = 0; i < samples; i++) {
        progress(b, c, i + 1, samples);
        raw[i] = time_runs(b, c->raw, raw_count) / raw_count;
        adjoin[i] = time_runs(b, c->adjoin, adjoin_count) / adjoin_count;
        if (!agrees(b, c))
            return false;
    }
    return true;
}

/* ---- one case: it has a context of its own, so that the peak of memory is its own too ---- */

typedef struct bench_plan {
    const bench_case *c;
    int samples, repeat;
    bench_figures *figures;
} bench_plan;

static bool measure(bench *b, const bench_plan *p) {
    double *times = calloc(2 * (size_t)p->samples, sizeof *times), *raw = times, *adjoin = times + p->samples;
    bool good = !any_rank(b, !times) && sample(b, p->c, p->samples, raw, adjoin);
    if (good) {
        int64_t peak = aj_ctx_stat(b->ctx, b->wait ? AJ_STAT_DEVICE_PEAK_BYTES : AJ_STAT_PEAK_BYTES);
        *p->figures = (bench_figures){.raw_us = 1e6 * median(raw, p->samples), .adjoin_us = 1e6 * median(adjoin, p->samples)};
        MPI_Allreduce(&peak, &p->figures->peak_bytes, 1, MPI_INT64_T, MPI_MAX, b->mpi);
    }
    free(times);
    return good;
}

static bool repeat(bench *b, const bench_plan *p) {
    for (int i = 0; i < p->repeat; i++)
        p->c->adjoin(b);
    return !any_rank(b, aj_ctx_status(b->ctx) != AJ_OK);
}

static bool set_up(bench *b, const bench_case *c) {
    const char *wrong = c->setup(b);
    if (!wrong && aj_ctx_status(b->ctx) != AJ_OK)
        wrong = aj_ctx_error(b->ctx);
    if (wrong)
        fprintf(stderr, "adjoin-bench: %s with n = %d: rank %d: %s\n", c->name, b->n, b->rank, wrong);
    return !any_rank(b, wrong != NULL);
}

static bool carry_out(const bench_plan *p, int n) {
    bench_results results = {0};
    bench b = {.mpi = MPI_COMM_WORLD, .n = n, .results = &results};
    MPI_Comm_rank(b.mpi, &b.rank);
    MPI_Comm_size(b.mpi, &b.size);
    if (aj_ctx_create(&b.ctx, NULL) != AJ_OK) {
        fprintf(stderr, "adjoin-bench: %s: rank %d: no context\n", p->c->name, b.rank);
        MPI_Abort(b.mpi, 1);
    }
    b.comm = aj_comm_create(b.ctx, b.mpi);
    bool good = set_up(&b, p->c) && (p->repeat ? repeat : measure)(&b, p);
    if (p->c->teardown)
        p->c->teardown(&b);
    bench_free_arrays(&b);
    bench_results_free(&results);
    aj_comm_destroy(&b.comm);
    good = aj_ctx_destroy(&b.ctx) == AJ_OK && good;
    bench_progress_end();
    return !any_rank(&b, !good);
}

bool bench_measure(const bench_case *c, int n, int samples, bench_figures *figures) {
    return carry_out(&(bench_plan){.c = c, .samples = samples, .figures = figures}, n);
}

bool bench_repeat(const bench_case *c, int n, int times) {
    return carry_out(&(bench_plan){.c = c, .repeat = times}, n);
}
