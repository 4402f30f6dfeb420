/*
 * By hand a step is one pass: reads u, writes the next state, all of which are kept. The sum of the neighbours is its own transpose, so the way back is
 * the same loop, over the gradient and its ghosts, with a factor that depends on u. The ghost rows are kept apart from the field.
 */
#include "allen_cahn.h"

#include <math.h>
#include <stdlib.h>

enum { STEPS = 50 };
static const double diffusion = 0.1, dt = 0.05;
enum { UP, DOWN }; /* tags of messages */

/* J and the squared norm of the gradient for n = 512. */
static const double known_loss = 118740.255482, known_square = 43531.6370217;
enum { KNOWN_N = 512 };
static const double known_digits = 2e-12;

/* ---- setup ---- */

static bool take_memory(allen_cahn *a) {
    int64_t size = (int64_t)a->rows * a->n;
    a->states = bench_zeros((STEPS + 1) * size);
    a->gradient = bench_zeros(size);
    a->spare = bench_zeros(size);
    a->ghosts = bench_zeros(2 * (int64_t)a->n);
    return a->states && a->gradient && a->spare && a->ghosts;
}

const char *allen_cahn_setup(bench *b) {
    allen_cahn *a = b->state = calloc(1, sizeof *a);
    if (b->n < b->size)
        return "fewer rows than ranks: give a larger --n";
    if (!a)
        return bench_no_memory;
    int rest = b->n % b->size, first = b->rank * (b->n / b->size) + (b->rank < rest ? b->rank : rest);
    a->rows = b->n / b->size + (b->rank < rest);
    a->n = b->n;
    a->mpi = b->mpi;
    a->above = (b->rank + b->size - 1) % b->size;
    a->below = (b->rank + 1) % b->size;
    MPI_Cart_create(b->mpi, 2, (int[]){b->size, 1}, (int[]){1, 1}, 0, &a->mpi_grid);
    a->grid = aj_comm_create(b->ctx, a->mpi_grid);
    if (!take_memory(a))
        return bench_no_memory;
    for (int i = 0; i < a->rows; i++)
        for (int j = 0; j < a->n; j++)
            a->states[(int64_t)i * a->n + j] = sin(0.01 * (3.0 * (first + i + 1) + j));
    a->start = aj_param(aj_from_data(b->ctx, AJ_F64, AJ_SHAPE(a->rows, a->n), a->states));
    return NULL;
}

void allen_cahn_teardown(bench *b) {
    allen_cahn *a = b->state;
    if (!a)
        return;
    aj_release(&a->start);
    if (a->grid) {
        aj_comm_destroy(&a->grid);
        MPI_Comm_free(&a->mpi_grid);
    }
    free(a->ghosts);
    free(a->spare);
    free(a->gradient);
    free(a->states);
    free(a);
}

/* ---- by hand ---- */

/* The last row of the block above, and the first one of that below. */
static void exchange(const allen_cahn *a, const double *u) {
    MPI_Request requests[4];
    MPI_Status statuses[4];
    MPI_Irecv(a->ghosts, a->n, MPI_DOUBLE, a->above, DOWN, a->mpi, &requests[0]);
    MPI_Irecv(a->ghosts + a->n, a->n, MPI_DOUBLE, a->below, UP, a->mpi, &requests[1]);
    MPI_Isend(u, a->n, MPI_DOUBLE, a->above, UP, a->mpi, &requests[2]);
    MPI_Isend(u + (int64_t)(a->rows - 1) * a->n, a->n, MPI_DOUBLE, a->below, DOWN, a->mpi, &requests[3]);
    MPI_Waitall(4, requests, statuses);
}

static inline double step_at(const double *up, const double *u, const double *down, int west, int j, int east) {
    return u[j] + diffusion * (up[j] + down[j] + u[west] + u[east] - 4 * u[j]) + dt * (u[j] - u[j] * u[j] * u[j]);
}

static inline double back_at(const double *up, const double *g, const double *down, const double *u, int west, int j, int east) {
    return g[j] * (1 - 4 * diffusion + dt - 3 * dt * u[j] * u[j]) + diffusion * (up[j] + down[j] + g[west] + g[east]);
}

static inline const double *row_above(const double *u, const double *ghosts, int i, int n) {
    return i ? u + (int64_t)(i - 1) * n : ghosts;
}

static inline const double *row_below(const double *u, const double *ghosts, int i, int rows, int n) {
    return i < rows - 1 ? u + (int64_t)(i + 1) * n : ghosts + n;
}

BENCH_VECTORISED static void step_rows(const double *restrict u, const double *restrict ghosts, double *restrict next, int rows,
                                       int n) {
    for (int i = 0; i < rows; i++) {
        const double *here = u + (int64_t)i * n, *up = row_above(u, ghosts, i, n), *down = row_below(u, ghosts, i, rows, n);
        double *out = next + (int64_t)i * n;
        for (int j = 1; j < n - 1; j++)
            out[j] = step_at(up, here, down, j - 1, j, j + 1);
        out[0] = step_at(up, here, down, n - 1, 0, 1 % n);
        out[n - 1] = step_at(up, here, down, (2 * n - 2) % n, n - 1, 0);
    }
}

BENCH_VECTORISED static void back_rows(const double *restrict u, const double *restrict g_next, const double *restrict ghosts,
                                       double *restrict g, int rows, int n) {
    for (int i = 0; i < rows; i++) {
        const double *here = g_next + (int64_t)i * n, *state = u + (int64_t)i * n;
        const double *up = row_above(g_next, ghosts, i, n), *down = row_below(g_next, ghosts, i, rows, n);
        double *out = g + (int64_t)i * n;
        for (int j = 1; j < n - 1; j++)
            out[j] = back_at(up, here, down, state, j - 1, j, j + 1);
        out[0] = back_at(up, here, down, state, n - 1, 0, 1 % n);
        out[n - 1] = back_at(up, here, down, state, (2 * n - 2) % n, n - 1, 0);
    }
}

void allen_cahn_step(const allen_cahn *a, const double *u, double *next) {
    exchange(a, u);
    step_rows(u, a->ghosts, next, a->rows, a->n);
}

void allen_cahn_step_back(const allen_cahn *a, const double *u, const double *g_next, double *g) {
    exchange(a, g_next);
    back_rows(u, g_next, a->ghosts, g, a->rows, a->n);
}

BENCH_VECTORISED static double square(const double *restrict u, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += u[i] * u[i];
    return sum;
}

/* dJ/du_T = u_T. */
void allen_cahn_raw(bench *b) {
    allen_cahn *a = b->state;
    int64_t size = (int64_t)a->rows * a->n;
    for (int t = 0; t < STEPS; t++)
        allen_cahn_step(a, a->states + t * size, a->states + (t + 1) * size);
    double loss = 0.5 * square(a->states + STEPS * size, size);
    const double *g_next = a->states + STEPS * size;
    for (int t = STEPS - 1; t >= 0; t--) {
        double *g = t % 2 ? a->spare : a->gradient;
        allen_cahn_step_back(a, a->states + t * size, g_next, g);
        g_next = g;
    }
    bench_result(b, "J", &loss, 1);
    bench_result(b, "dJ/du", a->gradient, size);
    if (!bench_compares(b) || b->n != KNOWN_N)
        return;
    double sums[] = {loss, square(a->gradient, size)};
    MPI_Allreduce(MPI_IN_PLACE, sums, 2, MPI_DOUBLE, MPI_SUM, b->mpi);
    bench_expect(b, "J", sums[0], known_loss, known_digits);
    bench_expect(b, "|dJ/du|^2", sums[1], known_square, known_digits);
}

/* ---- with the library ---- */

void allen_cahn_adjoin(bench *b, aj_tensor *(*step)(bench *b, aj_tensor *u)) {
    allen_cahn *a = b->state;
    aj_tensor *u = NULL;
    aj_scope *scope = aj_scope_begin(b->ctx);
    aj_record_begin(b->ctx);
    aj_assign(&u, a->start);
    for (int t = 0; t < STEPS; t++) {
        aj_scope *inner = aj_scope_begin(b->ctx);
        aj_assign(&u, step(b, u));
        bench_scope_end(inner);
    }
    aj_tensor *loss = aj_scale(aj_sum(aj_square(u)), 0.5);
    aj_release(&u);
    aj_zero_grad(a->start);
    aj_backward(b->ctx, loss, NULL);
    bench_result_tensor(b, "J", loss);
    bench_result_tensor(b, "dJ/du", aj_grad(a->start));
    bench_scope_end(scope);
}

/* A field with ghosts all around, which the exchange fills in place; the neighbours are windows on it. */
static aj_tensor *step(bench *b, aj_tensor *u) {
    const allen_cahn *a = b->state;
    int64_t m = a->rows, n = a->n;
    const int axes[] = {0, 1};
    const int64_t width[] = {1, 1}, corner[] = {1, 1};
    aj_tensor *field = aj_set_window_inplace(aj_zeros(b->ctx, AJ_F64, AJ_SHAPE(m + 2, n + 2)), corner, u);
    field = aj_halo_inplace(field, 2, axes, width, a->grid);
    aj_tensor *here = aj_window(field, corner, (const int64_t[]){m + 1, n + 1});
    aj_tensor *north = aj_window(field, (const int64_t[]){0, 1}, (const int64_t[]){m, n + 1});
    aj_tensor *south = aj_window(field, (const int64_t[]){2, 1}, (const int64_t[]){m + 2, n + 1});
    aj_tensor *west = aj_window(field, (const int64_t[]){1, 0}, (const int64_t[]){m + 1, n});
    aj_tensor *east = aj_window(field, (const int64_t[]){1, 2}, (const int64_t[]){m + 1, n + 2});
    aj_tensor *around = aj_add(aj_add(north, south), aj_add(west, east));
    aj_tensor *laplacian = aj_sub(around, aj_scale(here, 4));
    aj_tensor *reaction = aj_sub(here, aj_mul(aj_square(here), here));
    return aj_add(aj_add(here, aj_scale(laplacian, diffusion)), aj_scale(reaction, dt));
}

static void adjoin(bench *b) {
    allen_cahn_adjoin(b, step);
}

const bench_case allen_cahn_case = {"allen_cahn",
                                    "50 steps of a reaction-diffusion equation on n x n points in rows over the ranks",
                                    512,
                                    allen_cahn_setup,
                                    allen_cahn_teardown,
                                    allen_cahn_raw,
                                    adjoin};
