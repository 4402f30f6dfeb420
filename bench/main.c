/* adjoin-bench: the library next to raw MPI and plain loops, in the same run. See bench.h. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

static const bench_case *const cases[] = {
    &oversubscribed_case, &oversubscribed_recorded_case, &allreduce_case, &ring_case, &bcast_case, &chain_case};
enum { CASES = sizeof cases / sizeof cases[0], REPETITIONS = 11, MAX_COUNT = 100000, MAX_N = 100000000 };
static const double batch_seconds = 0.02; /* what one timed batch of runs takes, about */

/* ---- for the cases ---- */

double bench_sum(const double *values, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += values[i];
    return sum;
}

double bench_sum_tensor(aj_tensor *t) {
    const double *values = aj_data(t);
    return values ? bench_sum(values, aj_numel(t)) : NAN;
}

void bench_scope_end(aj_scope *scope) {
    aj_status status = aj_scope_end(scope);
    (void)status;
}

void bench_backward(bench *b, aj_tensor *y, double *sum) {
    aj_zero_grad(b->param);
    aj_backward(b->ctx, y, b->seeds);
    aj_tensor *gradient = aj_grad(b->param);
    aj_eval(y);
    aj_eval(gradient);
    if (sum)
        *sum = bench_sum_tensor(y) + bench_sum_tensor(gradient);
}

/* ---- measuring ---- */

/* A barrier that leaves the cores to ranks still under way: MPI_Barrier spins. */
static void meet(const bench *b) {
    MPI_Request request;
    MPI_Ibarrier(b->mpi, &request);
    for (int done = 0; !done; sched_yield())
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
}

/* Seconds that `count` runs took on the slowest rank. */
static double time_runs(bench *b, bench_fn *run, int count) {
    meet(b);
    double begin = MPI_Wtime();
    for (int i = 0; i < count; i++)
        run(b, NULL);
    double mine = MPI_Wtime() - begin, slowest;
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, b->mpi);
    return slowest;
}

/* How many runs fill a batch: doubled until they do, since where ranks outnumber cores the start alone can take longer than many runs. */
static int count_for_batch(bench *b, bench_fn *run) {
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

static bool any_rank(const bench *b, bool here) {
    int mine = here, all;
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_LOR, b->mpi);
    return all != 0;
}

/* Do both sides come to the same numbers, on all ranks? The ranks where they do not say so. */
static bool agrees(bench *b, const bench_case *c) {
    double raw = NAN, adjoin = NAN;
    c->raw(b, &raw);
    c->adjoin(b, &adjoin);
    bool in_error = aj_ctx_status(b->ctx) != AJ_OK;
    bool wrong = in_error || !(fabs(raw - adjoin) <= 1e-10 * fabs(raw)); /* NaN is wrong; no term of the sums is negative */
    if (in_error)
        fprintf(stderr, "adjoin-bench: %s: %s\n", c->name, aj_ctx_error(b->ctx));
    else if (wrong)
        fprintf(stderr, "adjoin-bench: %s: rank %d: the results add up to %.17g by hand and to %.17g with the library\n", c->name,
                b->rank, raw, adjoin);
    return !any_rank(b, wrong);
}

typedef struct bench_result {
    double raw_us, adjoin_us;
    int64_t peak_bytes; /* of tensors, on the rank that needs most */
} bench_result;

/* The two sides in turns, with a comparison of their numbers before, between and after. */
static bool measure(bench *b, const bench_case *c, bench_result *result) {
    double raw[REPETITIONS], adjoin[REPETITIONS];
    if (!agrees(b, c))
        return false;
    int raw_count = count_for_batch(b, c->raw), adjoin_count = count_for_batch(b, c->adjoin);
    for (int i = 0; i < REPETITIONS; i++) {
        raw[i] = time_runs(b, c->raw, raw_count) / raw_count;
        adjoin[i] = time_runs(b, c->adjoin, adjoin_count) / adjoin_count;
        if (!agrees(b, c))
            return false;
    }
    result->raw_us = 1e6 * median(raw, REPETITIONS);
    result->adjoin_us = 1e6 * median(adjoin, REPETITIONS);
    int64_t peak = aj_ctx_stat(b->ctx, AJ_STAT_PEAK_BYTES);
    MPI_Allreduce(&peak, &result->peak_bytes, 1, MPI_INT64_T, MPI_MAX, b->mpi);
    return true;
}

/* ---- one case ---- */

/* Allocate and fill the arrays: x in [1, 2), seeds in [2, 3), different on every rank. */
static double *fill(bench *b, const bench_case *c) {
    size_t n = (size_t)b->n;
    double *memory = calloc(n * (size_t)(4 + c->work_rows), sizeof *memory);
    if (!memory)
        return NULL;
    double *x = memory, *seed = memory + n;
    for (int i = 0; i < b->n; i++) {
        x[i] = 1 + (i % 7 + 0.5 * b->rank / b->size) / 8;
        seed[i] = 2 + (i % 5 + 0.5 * b->rank / b->size) / 8;
    }
    b->x = x;
    b->seed = seed;
    b->y = memory + 2 * n;
    b->gx = memory + 3 * n;
    b->work = memory + 4 * n;
    return memory;
}

static bool make_tensors(bench *b) {
    const int64_t shape = b->n;
    b->param = aj_param(aj_from_data(b->ctx, AJ_F64, 1, &shape, b->x));
    b->seeds = aj_from_data(b->ctx, AJ_F64, 1, &shape, b->seed);
    b->zeros = aj_zeros(b->ctx, AJ_F64, 1, &shape);
    return aj_ctx_status(b->ctx) == AJ_OK;
}

static void print_result(const bench *b, const bench_case *c, const bench_result *r, bool json) {
    if (b->rank != 0)
        return;
    double ratio = r->adjoin_us / r->raw_us;
    if (json)
        printf("{\"case\": \"%s\", \"np\": %d, \"n\": %d, \"raw_us\": %.4g, \"adjoin_us\": %.4g, \"ratio\": %.4g, "
               "\"peak_bytes\": %" PRId64 "}\n",
               c->name, b->size, b->n, r->raw_us, r->adjoin_us, ratio, r->peak_bytes);
    else
        printf("%-24s %4d %10d %12.4g %12.4g %10.4g %14" PRId64 "\n", c->name, b->size, b->n, r->raw_us, r->adjoin_us, ratio,
               r->peak_bytes);
    fflush(stdout);
}

/* Every case has a context of its own, so that the peak of memory is its own too. */
static bool run_case(const bench_case *c, int n, bool json) {
    bench b = {.mpi = MPI_COMM_WORLD, .n = n};
    MPI_Comm_rank(b.mpi, &b.rank);
    MPI_Comm_size(b.mpi, &b.size);
    double *memory = fill(&b, c);
    if (any_rank(&b, !memory)) {
        if (b.rank == 0)
            fprintf(stderr, "adjoin-bench: %s: not enough memory for %d numbers: give a smaller --n\n", c->name, n);
        free(memory);
        return false;
    }
    bool good = false;
    bench_result result;
    if (aj_ctx_create(&b.ctx, NULL) == AJ_OK) {
        b.comm = aj_comm_create(b.ctx, b.mpi);
        good = make_tensors(&b) && measure(&b, c, &result);
        aj_release(&b.param);
        aj_comm_destroy(&b.comm);
        good = aj_ctx_destroy(&b.ctx) == AJ_OK && good;
    }
    free(memory);
    if (good)
        print_result(&b, c, &result, json);
    return good;
}

/* ---- options ---- */

typedef struct bench_options {
    const char *name; /* NULL: all cases */
    const char *sizes;
    bool json, help;
    char error[512];
} bench_options;

static bool selected(const bench_case *c, const char *name) {
    size_t length = name ? strlen(name) : 0;
    return !name || (length && strncmp(c->name, name, length) == 0 && (c->name[length] == 0 || c->name[length] == '-'));
}

static void print_help(FILE *to) {
    fputs("Usage: mpiexec -n RANKS adjoin-bench [--case NAME] [--n N,N,...] [--json]\n"
          "\n"
          "Times the library next to raw MPI and plain loops, in turns, in the same run. Prints medians in microseconds; the "
          "ratio is\n"
          "adjoin / raw: below 1 the library is the faster one. peak_bytes: the most memory that tensors took, on any rank.\n"
          "\n"
          "  --case NAME  one case, with its variants, instead of all\n"
          "  --n N,N,...  numbers in a tensor, instead of each case's own\n"
          "  --json       one line of JSON per case\n"
          "  --help       print this\n"
          "\n"
          "Cases:\n",
          to);
    for (int i = 0; i < CASES; i++)
        fprintf(to, "  %-24s %s (n = %d)\n", cases[i]->name, cases[i]->what, cases[i]->n);
    fputs("\nExit status: 0 well; 1 the two sides disagree, or an error of the library; 2 bad options.\n", to);
}

/* Read one size off the text; 0 if there is none in range. */
static int next_size(const char **text) {
    char *end;
    errno = 0;
    long n = **text >= '0' && **text <= '9' ? strtol(*text, &end, 10) : 0;
    if (errno || n < 1 || n > MAX_N || (*end != ',' && *end != 0) || (*end == ',' && end[1] == 0))
        return 0;
    *text = *end ? end + 1 : end;
    return (int)n;
}

__attribute__((format(printf, 2, 3))) static bool refuse(bench_options *o, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(o->error, sizeof o->error, format, args);
    va_end(args);
    return false;
}

static bool check_name(bench_options *o) {
    for (int i = 0; i < CASES; i++)
        if (selected(cases[i], o->name))
            return true;
    return refuse(o, "--case: '%.200s' is not one of the cases", o->name);
}

static bool check_sizes(bench_options *o) {
    const char *text = o->sizes;
    if (!text)
        return true;
    do
        if (!next_size(&text))
            return refuse(o, "--n: '%.200s'; expected whole numbers from 1 to %d, separated by commas", o->sizes, MAX_N);
    while (*text);
    return true;
}

/* False with o->error if something is wrong. */
static bool parse_options(bench_options *o, int argc, char **argv) {
    static const struct option known[] = {{"case", required_argument, NULL, 'c'},
                                          {"n", required_argument, NULL, 'n'},
                                          {"json", no_argument, NULL, 'j'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    opterr = 0;
    for (int option; (option = getopt_long_only(argc, argv, ":", known, NULL)) != -1;) {
        if (option == 'c')
            o->name = optarg;
        else if (option == 'n')
            o->sizes = optarg;
        else if (option == 'j')
            o->json = true;
        else if (option == 'h')
            o->help = true;
        else if (option == ':')
            return refuse(o, "%.200s needs a value", argv[optind - 1]);
        else
            return refuse(o, "%.200s is not an option", argv[optind - 1]);
    }
    if (optind < argc)
        return refuse(o, "'%.200s' where an option was expected", argv[optind]);
    return check_name(o) && check_sizes(o);
}

/* ---- all cases ---- */

static bool run_cases(const bench_options *o, int rank) {
    if (!o->json && rank == 0)
        printf("%-24s %4s %10s %12s %12s %10s %14s\n", "case", "np", "n", "raw us", "adjoin us", "ratio", "peak bytes");
    for (int i = 0; i < CASES; i++) {
        if (!selected(cases[i], o->name))
            continue;
        if (!o->sizes && !run_case(cases[i], cases[i]->n, o->json))
            return false;
        for (const char *text = o->sizes; text && *text;)
            if (!run_case(cases[i], next_size(&text), o->json))
                return false;
    }
    return true;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, status = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    bench_options options = {0};
    if (!parse_options(&options, argc, argv)) {
        status = 2;
        if (rank == 0)
            fprintf(stderr, "adjoin-bench: %s; see adjoin-bench --help\n", options.error);
    } else if (options.help) {
        if (rank == 0)
            print_help(stdout);
    } else {
        status = run_cases(&options, rank) ? 0 : 1;
    }
    MPI_Finalize();
    return status;
}
