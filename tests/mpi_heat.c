/*
 * The heat equation u' = u + c (left - 2 u + right), explicit Euler, periodic, in blocks of rows over the ranks, with halos by messages.
 * J = |u^n|^2 / 2 from u0 = sin(2 pi k i / N): one mode, which every step multiplies by L = 1 - 4 c sin^2(pi k / N). So dJ/du0 = L^(2n) u0, and
 * J = L^(2n) N/4.
 */
#include "mpi_common.h"

static const double pi = 3.14159265358979323846;

typedef struct problem {
    int points, steps, mode;
    double c, decay; /* decay: L^(2n) */
} problem;

/* Blocks of N/S rows, the remainder one each to the first ranks. */
static int64_t block_begin(const problem *p, int rank) {
    int64_t each = p->points / rank_count, rest = p->points % rank_count;
    return rank * each + (rank < rest ? rank : rest);
}

static aj_tensor *initial(const problem *p) {
    int64_t begin = block_begin(p, rank_id), n = block_begin(p, rank_id + 1) - begin;
    double *u = malloc((size_t)n * sizeof *u);
    for (int64_t i = 0; i < n; i++)
        u[i] = sin(2 * pi * p->mode * (double)(begin + i) / p->points);
    aj_tensor *t = aj_from_data(ctx, AJ_F64, AJ_SHAPE(n), u);
    free(u);
    return t;
}

/* One tag for both directions: what comes first from the right neighbour is its first row, also where both neighbours are one rank. */
static aj_tensor *step(aj_tensor *u, double c) {
    int left = left_of(rank_id, rank_count), right = right_of(rank_id, rank_count);
    int64_t n = aj_extent(u, 0);
    aj_tensor *room = aj_zeros(ctx, AJ_F64, AJ_SHAPE(1));
    aj_request *to_left = aj_isend(aj_slice(u, 0, 0, 1, 1), left, 0, world);
    aj_request *to_right = aj_isend(aj_slice(u, 0, n - 1, n, 1), right, 0, world);
    aj_request *from_right = aj_irecv(room, right, 0, world), *from_left = aj_irecv(room, left, 0, world);
    aj_tensor *parts[] = {aj_wait(from_left), u, aj_wait(from_right)};
    aj_wait(to_right);
    aj_wait(to_left);
    aj_tensor *wide = aj_concat(3, parts, 0);
    aj_tensor *sum = aj_add(aj_slice(wide, 0, 0, n, 1), aj_slice(wide, 0, 2, n + 2, 1));
    return aj_add(u, aj_scale(aj_sub(sum, aj_scale(u, 2)), c));
}

static void solve(const problem *p) {
    open_world();
    CHECK_NEAR(pow(1 - 4 * p->c * pow(sin(pi * p->mode / p->points), 2), 2 * p->steps), p->decay, 1e-14);
    aj_tensor *u0 = aj_param(initial(p));
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    aj_tensor *u = u0;
    for (int i = 0; i < p->steps; i++)
        u = step(u, p->c);
    aj_tensor *J = aj_scale(aj_sum(aj_square(u)), 0.5);
    CHECK_INT(aj_backward(ctx, J, NULL), AJ_OK);
    CHECK_NEAR(world_sum(aj_item(J)), p->decay * p->points / 4, 1e-13);
    int64_t n = aj_numel(u0);
    double *wanted = values_of(u0, n);
    for (int64_t i = 0; i < n; i++)
        wanted[i] *= p->decay;
    CHECK_VALUES(aj_grad(u0), n, wanted, 1e-13);
    free(wanted);
    aj_release(&u0);
    close_world();
}

static void third_mode(void) {
    solve(&(problem){.points = 64, .steps = 100, .mode = 3, .c = 0.25, .decay = 0.01286820105014273});
}

static void first_mode(void) {
    solve(&(problem){.points = 64, .steps = 1000, .mode = 1, .c = 0.4, .decay = 4.4416469315492363e-04});
}

RANK_MAIN({"third-mode", third_mode}, {"first-mode", first_mode})
