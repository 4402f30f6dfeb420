/*
 * One problem, whatever the number of ranks: a fixed set of rows, divided unevenly, and an objective made of neighbouring rows, reductions, prefixes and all
 * rows at once. Objective, gradient and product of the Hessian with a vector are those of the same model on all rows, without communication, which
 * each rank evaluates for itself.
 */
#include "mpi_common.h"

enum { COLUMNS = 3 };

/* comm NULL: the model of all rows on one rank. */
typedef struct model {
    aj_comm *comm, *cart;       /* cart: neighbours by halo exchange; NULL: by messages, and ranks may have no rows */
    int64_t n_all, begin, rows; /* this rank has `rows` rows from number `begin` */
} model;

/* Rank r gets a share that grows with r; with many ranks the first one may get nothing. */
static int64_t begin_of(int64_t n_all, int rank) {
    return n_all * rank * (rank + 1) / (rank_count * (rank_count + 1));
}

static int64_t rows_of(int64_t n_all, int rank) {
    return begin_of(n_all, rank + 1) - begin_of(n_all, rank);
}

/* ---- what differs with and without ranks ---- */

/* The next rank with rows in a direction, periodically. */
static int neighbour(const model *m, int direction) {
    int r = rank_id;
    do
        r = (r + direction + rank_count) % rank_count;
    while (rows_of(m->n_all, r) == 0);
    return r;
}

static aj_tensor *rows(aj_tensor *x, int64_t begin, int64_t end) {
    return aj_slice(x, 0, begin, end, 1);
}

/* Row i of the result is row i - by of all rows, by = 1 or -1, periodically. */
static aj_tensor *shifted_by_messages(const model *m, aj_tensor *x, int by) {
    if (m->rows == 0)
        return x;
    int64_t n = m->rows;
    aj_tensor *border = by > 0 ? rows(x, n - 1, n) : rows(x, 0, 1);
    aj_tensor *room = aj_zeros(ctx, AJ_F64, AJ_SHAPE(1, COLUMNS));
    aj_request *in = aj_irecv(room, neighbour(m, -by), 0, m->comm);
    aj_send(border, neighbour(m, by), 0, m->comm);
    aj_tensor *from_left[] = {aj_wait(in), rows(x, 0, n - 1)}, *from_right[] = {rows(x, 1, n), from_left[0]};
    return aj_concat(2, by > 0 ? from_left : from_right, 0);
}

static aj_tensor *shifted_by_halo(const model *m, aj_tensor *x, int by) {
    const int axis = 0;
    const int64_t width = 1;
    aj_tensor *wide = aj_halo_inplace(aj_pad(x, 0, width, width, 0), 1, &axis, &width, m->cart);
    return rows(wide, 1 - by, 1 - by + m->rows);
}

static aj_tensor *shifted(const model *m, aj_tensor *x, int by) {
    if (!m->comm)
        return aj_roll(x, 0, by);
    return m->cart ? shifted_by_halo(m, x, by) : shifted_by_messages(m, x, by);
}

static aj_tensor *total(const model *m, aj_tensor *x) {
    return m->comm ? aj_allreduce(x, MPI_SUM, m->comm) : x;
}

/* Column by column; a rank without rows has none to offer. */
static aj_tensor *largest(const model *m, aj_tensor *x) {
    const int axis = 0;
    aj_tensor *here = m->rows ? aj_max_axes(x, 1, &axis, false) : aj_full(ctx, AJ_F64, AJ_SHAPE(COLUMNS), -100);
    return m->comm ? aj_allreduce(here, MPI_MAX, m->comm) : here;
}

static aj_tensor *all_rows(const model *m, aj_tensor *x) {
    return m->comm ? aj_allgather(x, 0, m->comm) : x;
}

/* This rank's rows of the sum over ranks. */
static aj_tensor *own_rows(const model *m, aj_tensor *x) {
    return m->comm ? aj_reduce_scatter(x, 0, m->rows, MPI_SUM, m->comm) : x;
}

static aj_tensor *column_sums(aj_tensor *x) {
    const int axis = 0;
    return aj_sum_axes(x, 1, &axis, false);
}

static aj_tensor *prefixes(const model *m, aj_tensor *x) {
    aj_tensor *here = aj_cumsum(x, 0);
    return m->comm ? aj_add(here, aj_exscan(column_sums(x), MPI_SUM, m->comm)) : here;
}

/* ---- the model ---- */

/* This rank's part of the objective. u: its rows; w: COLUMNS x COLUMNS, one variable that all ranks hold. */
static aj_tensor *objective(const model *m, aj_tensor *u, aj_tensor *w) {
    aj_tensor *v = aj_tanh(aj_matmul(u, m->comm ? aj_shared(w, m->comm) : w));
    v = aj_add(v, aj_sub(aj_scale(aj_sin(shifted(m, v, 1)), 0.3), aj_scale(aj_mul(v, shifted(m, v, -1)), 0.2)));
    aj_tensor *mean = aj_scale(total(m, column_sums(v)), 1 / (double)m->n_all);
    aj_tensor *centred = aj_sub(v, mean), *all = all_rows(m, centred);
    aj_tensor *mixed = aj_matmul(aj_softmax(aj_matmul(centred, aj_transpose(all, 0, 1)), 1), all);
    aj_tensor *covariance = aj_matmul(aj_transpose(centred, 0, 1), mixed);
    aj_tensor *projected = own_rows(m, aj_matmul(all, covariance));
    aj_tensor *below = aj_sub(largest(m, v), prefixes(m, aj_scale(mixed, 0.1)));
    return aj_sum(aj_square(aj_add(aj_sub(mixed, aj_cos(u)), aj_mul(projected, below))));
}

/* ---- comparing ---- */

typedef struct outcome {
    double value;
    aj_tensor *gradient[2], *product[2]; /* of u, of w */
} outcome;

/* Own rows of a tensor of all rows that is the same on every rank. */
static aj_tensor *part(const model *m, uint64_t seed) {
    aj_tensor *all = aj_add_scalar(aj_uniform(ctx, AJ_F64, AJ_SHAPE(m->n_all, COLUMNS), seed), -0.5);
    return rows(all, m->begin, m->begin + m->rows);
}

static outcome differentiate(const model *m) {
    outcome o = {0};
    aj_tensor *params[] = {aj_param(part(m, 1)), aj_param(aj_uniform(ctx, AJ_F64, AJ_SHAPE(COLUMNS, COLUMNS), 2))};
    /* One variable has one direction, which the ranks share out: the sum over them counts it once. */
    aj_tensor *w_direction = aj_add_scalar(aj_uniform(ctx, AJ_F64, AJ_SHAPE(COLUMNS, COLUMNS), 4), -0.5);
    if (m->comm)
        w_direction = aj_scale(w_direction, 2.0 * (rank_id + 1) / (rank_count * (rank_count + 1)));
    aj_tensor *directions[] = {part(m, 3), w_direction};
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    aj_tensor *root = objective(m, params[0], params[1]);
    o.value = aj_item(root);
    CHECK_INT(aj_grad_of(ctx, 1, &root, NULL, 2, params, o.gradient, AJ_CREATE_GRAPH), AJ_OK);
    CHECK_INT(aj_grad_of(ctx, 2, o.gradient, directions, 2, params, o.product, 0), AJ_OK);
    CHECK_INT(aj_backward(ctx, root, NULL), AJ_OK);
    for (int i = 0; i < 2; i++) {
        o.gradient[i] = aj_grad(params[i]);
        aj_release(&params[i]);
    }
    return o;
}

/* Own rows of what all rows have, to 1e-13 of the largest entry. */
static void compare(const model *m, const char *what, aj_tensor *got, aj_tensor *wanted, bool by_rows) {
    int64_t n = aj_numel(wanted), skip = by_rows ? m->begin * COLUMNS : 0, count = by_rows ? m->rows * COLUMNS : n;
    double *x = values_of(got, count), *y = values_of(wanted, n), scale = 0, error = 0;
    for (int64_t i = 0; i < n; i++)
        scale = fmax(scale, fabs(y[i]));
    for (int64_t i = 0; i < count; i++)
        error = isnan(x[i]) ? INFINITY : fmax(error, fabs(x[i] - y[skip + i]));
    CHECK_MSG(scale > 0 && error <= 1e-13 * scale, "%s differs by %g from entries of size %g", what, error, scale);
    free(x);
    free(y);
}

static void run(int64_t n_all, bool by_halo) {
    open_world();
    aj_scope *scope = aj_scope_begin(ctx);
    aj_comm *cart = NULL;
    if (by_halo) {
        MPI_Comm grid;
        MPI_Cart_create(MPI_COMM_WORLD, 1, &rank_count, (int[]){1}, 0, &grid);
        cart = aj_comm_create(ctx, grid);
        MPI_Comm_free(&grid);
    }
    model alone = {.n_all = n_all, .rows = n_all};
    model together = {world, cart, n_all, begin_of(n_all, rank_id), rows_of(n_all, rank_id)};
    outcome wanted = differentiate(&alone), got = differentiate(&together);
    CHECK_NEAR(world_sum(got.value), wanted.value, 1e-13);
    compare(&together, "the gradient of the rows", got.gradient[0], wanted.gradient[0], true);
    compare(&together, "the gradient of the matrix", got.gradient[1], wanted.gradient[1], false);
    compare(&together, "the Hessian's product, rows", got.product[0], wanted.product[0], true);
    compare(&together, "the Hessian's product, matrix", got.product[1], wanted.product[1], false);
    CHECK_INT(aj_scope_end(scope), AJ_OK);
    if (cart)
        aj_comm_destroy(&cart);
    close_world();
}

static void messages(void) {
    run(23, false);
}

static void halo(void) {
    run(40, true);
}

RANK_MAIN({"messages", messages}, {"halo", halo})
