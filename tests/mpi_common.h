/*
 * What the rank programs of the communication layer share: a context with its world, numbers that differ by rank and entry and that every
 * rank can work out for every other, sums over ranks.
 */
#ifndef MPI_COMMON_H
#define MPI_COMMON_H

#include <adjoin/adjoin.h>
#include <signal.h>
#include <unistd.h>

#include "numbers.h"
#include "rank.h"

/* ---- a context and a communicator over all ranks, for one case ---- */

static aj_ctx *ctx;
static aj_comm *world;
static char world_log[1024]; /* what the context logged; it goes to stderr, too */

static inline void keep_line(const char *line, void *user) {
    (void)user;
    fprintf(stderr, "%s\n", line);
    size_t used = strlen(world_log);
    snprintf(world_log + used, sizeof world_log - used, "%s ", line);
}

static inline bool open_ctx(aj_ctx **c) {
    world_log[0] = 0;
    aj_ctx_opts opts = {.size = sizeof opts, .log = keep_line};
    return CHECK_INT(aj_ctx_create(c, &opts), AJ_OK);
}

static inline void open_world(void) {
    open_ctx(&ctx);
    world = aj_comm_create(ctx, MPI_COMM_WORLD);
    CHECK_MSG(world != NULL, "aj_comm_create: %s", aj_ctx_error(ctx));
    CHECK_INT(aj_comm_rank(world), rank_id);
    CHECK_INT(aj_comm_size(world), rank_count);
}

/* The context must be free of errors; note down and forget the one it has. */
static inline bool check_clean(aj_ctx *c, const char *where) {
    bool clean = CHECK_MSG(aj_ctx_status(c) == AJ_OK, "%s: %s: %s", where, aj_status_name(aj_ctx_status(c)), aj_ctx_error(c));
    aj_ctx_clear_error(c);
    return clean;
}

static inline void close_ctx(aj_ctx **c) {
    check_clean(*c, "at the end");
    aj_status status = aj_ctx_destroy(c);
    CHECK_MSG(status == AJ_OK && *c == NULL, "aj_ctx_destroy: %s: %s", aj_status_name(status), world_log);
}

/* Do the ranks compare what they call? */
static inline bool is_checked(void) {
    const char *check = getenv("ADJOIN_CHECK");
    return check && strcmp(check, "0") != 0;
}

static inline void close_world(void) {
    check_clean(ctx, "before aj_comm_destroy");
    aj_comm_destroy(&world);
    CHECK(world == NULL);
    close_ctx(&ctx);
}

/* ---- where tensors live: on the host, or, of a program compiled for it, on another device, of a file that is linked with it ---- */

#ifdef RANKS_ELSEWHERE
#include "elsewhere.h"
enum { RUN_SECONDS = 600 }; /* kernels are compiled in between */
static inline aj_tensor *placed(aj_tensor *t) {
    return t ? aj_to_device(t, elsewhere(aj_tensor_ctx(t))) : NULL;
}
#else
enum { RUN_SECONDS = 30 };
static inline aj_tensor *placed(aj_tensor *t) {
    return t;
}
#endif

/* ---- numbers ---- */

/* The same made to fit a dtype: whole numbers, in u8 so small that the sum over ranks does not wrap around. */
static inline double number_in(aj_dtype dtype, uint64_t seed, int rank, int64_t entry) {
    double x = number(seed, rank, entry);
    if (dtype == AJ_I64 || dtype == AJ_I32)
        return 8 * x;
    return dtype == AJ_U8 ? (double)((int)fabs(8 * x) % 32) : x;
}

/* A tensor of the given doubles. */
static inline aj_tensor *tensor_of(aj_ctx *c, aj_dtype dtype, int ndim, const int64_t *shape, const double *x) {
    aj_tensor *t = placed(aj_from_data(c, AJ_F64, ndim, shape, x));
    return dtype == AJ_F64 ? t : aj_cast(t, dtype);
}

/* The numbers of a seed on one rank, in memory that the caller frees. */
static inline double *numbers_of(aj_dtype dtype, uint64_t seed, int rank, int64_t n) {
    double *x = calloc((size_t)n + 1, sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = number_in(dtype, seed, rank, i);
    return x;
}

static inline aj_tensor *random_tensor(aj_ctx *c, aj_dtype dtype, int ndim, const int64_t *shape, uint64_t seed, int rank) {
    double *x = numbers_of(dtype, seed, rank, count_of(ndim, shape));
    aj_tensor *t = tensor_of(c, dtype, ndim, shape, x);
    free(x);
    return t;
}

static inline aj_tensor *vector(aj_ctx *c, int64_t n, uint64_t seed, int rank) {
    return random_tensor(c, AJ_F64, AJ_SHAPE(n), seed, rank);
}

/* A parameter that belongs to the case: released by the caller. */
static inline aj_tensor *vector_param(aj_ctx *c, int64_t n, uint64_t seed) {
    return aj_param(vector(c, n, seed, rank_id));
}

/* All numbers of t as doubles; the caller frees them. NaN, and a failed check, if there are not n of them. */
static inline double *values_of(aj_tensor *t, int64_t n) {
    double *x = malloc(((size_t)n + 1) * sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = NAN;
    if (!CHECK_MSG(t != NULL, "no tensor: %s", t ? "" : aj_ctx_error(ctx)) || !CHECK_INT(aj_numel(t), n))
        return x;
    aj_tensor *wide = aj_tensor_dtype(t) == AJ_F64 ? t : aj_cast(t, AJ_F64);
    CHECK_INT(aj_read(wide, x, (size_t)n * sizeof *x), AJ_OK);
    return x;
}

/* Compare all numbers of t; reports the first one that is wrong. */
#define CHECK_VALUES(t, n, wanted, tolerance) check_values(__FILE__, __LINE__, #t, t, n, wanted, tolerance)
static inline bool check_values(const char *file, int line, const char *what, aj_tensor *t, int64_t n, const double *wanted,
                                double tolerance) {
    double *x = values_of(t, n);
    bool right = true;
    for (int64_t i = 0; i < n && right; i++)
        if (!(x[i] == wanted[i] || fabs(x[i] - wanted[i]) <= tolerance * fmax(1, fabs(wanted[i]))))
            right = rank_check(false, file, line, "%s[%lld] is %.17g, expected %.17g (tolerance %g)", what, (long long)i, x[i],
                               wanted[i], tolerance);
    free(x);
    return right;
}

/* The same with one number for all entries. */
#define CHECK_ALL(t, n, wanted, tolerance) check_all(__FILE__, __LINE__, #t, t, n, wanted, tolerance)
static inline bool check_all(const char *file, int line, const char *what, aj_tensor *t, int64_t n, double wanted,
                             double tolerance) {
    double *w = malloc(((size_t)n + 1) * sizeof *w);
    for (int64_t i = 0; i < n; i++)
        w[i] = wanted;
    bool right = check_values(file, line, what, t, n, w, tolerance);
    free(w);
    return right;
}

/* ---- over all ranks, independent of the library ---- */

/* x[i] = sum over ranks of x[i]. */
static inline void world_sums(int n, double *x) {
    double *mine = malloc((size_t)n * sizeof *mine);
    memcpy(mine, x, (size_t)n * sizeof *mine);
    MPI_Request request;
    MPI_Iallreduce(mine, x, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
    rank_wait(&request);
    free(mine);
}

static inline double world_sum(double x) {
    world_sums(1, &x);
    return x;
}

/* ---- hangs: which of many small runs it was ---- */

static volatile sig_atomic_t watched;

static inline void on_alarm(int number_of_signal) {
    (void)number_of_signal;
    char text[] = "run number 0000000000 hangs\n";
    for (int i = 20, rest = watched; i > 10; i--, rest /= 10)
        text[i] = (char)('0' + rest % 10);
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0)
        _exit(3);
    _exit(2);
}

/* End the program, with this number on stderr, if watch_no_more is not called in time. */
static inline void watch(uint64_t number_of_run) {
    watched = (sig_atomic_t)number_of_run;
    signal(SIGALRM, on_alarm);
    alarm(RUN_SECONDS);
}

static inline void watch_no_more(void) {
    alarm(0);
}

static inline int left_of(int rank, int size) {
    return (rank + size - 1) % size;
}

static inline int right_of(int rank, int size) {
    return (rank + 1) % size;
}

#endif
