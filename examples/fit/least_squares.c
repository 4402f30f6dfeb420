#include "least_squares.h"

#include <math.h>
#include <string.h>

#define MAX LM_MAX_PARAMETERS

/* The first row of a rank's block: the blocks differ by one row at most, and some are empty when the ranks outnumber the rows. */
static int64_t first_row(const least_squares *ls, int rank) {
    int size = aj_comm_size(ls->comm);
    return ls->m / size * rank + (rank < ls->m % size ? rank : ls->m % size);
}

/* This rank's block of a column that rank 0 has. */
static aj_tensor *take_block(const least_squares *ls, const double *column, int tag) {
    int rank = aj_comm_rank(ls->comm);
    for (int k = 0; rank == 0 && k < aj_comm_size(ls->comm); k++) {
        int64_t first = first_row(ls, k);
        aj_send(aj_from_data(ls->ctx, AJ_F64, AJ_SHAPE(first_row(ls, k + 1) - first), column + first), k, tag, ls->comm);
    }
    int64_t rows = first_row(ls, rank + 1) - first_row(ls, rank);
    return aj_keep(aj_recv(aj_zeros(ls->ctx, AJ_F64, AJ_SHAPE(rows)), 0, tag, ls->comm));
}

/*
 * The sum over the ranks of `local`, with the same bits on all of them, in out. The agreement first: a rank in error would not come to the sum, so an
 * error in what leads up to it, on any rank, is found here by all.
 */
static bool sum_over_ranks(const least_squares *ls, aj_tensor *local, int count, double *out) {
    if (local)
        (void)aj_eval(local);
    if (aj_agree(ls->comm) != AJ_OK)
        return false;
    aj_tensor *sum = aj_bcast(aj_allreduce(local, MPI_SUM, ls->comm), 0, ls->comm);
    return sum && aj_read(sum, out, (size_t)count * sizeof *out) == AJ_OK;
}

static void set_parameters(const least_squares *ls, const double *b) {
    for (int k = 0; k < ls->n; k++)
        (void)aj_param_set(ls->b[ls->slot[k]], aj_scalar(ls->ctx, AJ_F64, b[k])); /* an error is found by the agreement */
}

static aj_tensor *residuals(const least_squares *ls, aj_tensor *const b[FORMULA_MAX_PARAMETERS]) {
    return aj_sub(formula_value(ls->model, ls->x, b), ls->y);
}

bool least_squares_begin(least_squares *ls, aj_comm *comm, const formula *model, int64_t rows, const table *t) {
    double sum;
    *ls = (least_squares){.ctx = aj_comm_ctx(comm), .comm = comm, .model = model, .m = rows};
    aj_scope *scope = aj_scope_begin(ls->ctx);
    for (int slot = 0; slot < FORMULA_MAX_PARAMETERS; slot++)
        if (formula_uses(model, slot)) {
            ls->slot[ls->n++] = slot;
            ls->b[slot] = aj_param(aj_scalar(ls->ctx, AJ_F64, 0));
        }
    ls->x = take_block(ls, t->x, 0);
    ls->y = take_block(ls, t->y, 1);
    bool done = sum_over_ranks(ls, aj_sum(aj_square(ls->y)), 1, &sum);
    ls->measured = done ? sqrt(sum) : NAN;
    return aj_scope_end(scope) == AJ_OK && done;
}

void least_squares_end(least_squares *ls) {
    for (int slot = 0; slot < FORMULA_MAX_PARAMETERS; slot++)
        aj_release(&ls->b[slot]);
    aj_release(&ls->x);
    aj_release(&ls->y);
}

bool least_squares_rss(const least_squares *ls, const double *b, double *rss) {
    aj_scope *scope = aj_scope_begin(ls->ctx);
    set_parameters(ls, b);
    bool done = sum_over_ranks(ls, aj_sum(aj_square(residuals(ls, ls->b))), 1, rss);
    return aj_scope_end(scope) == AJ_OK && done;
}

/* r as a column, and J: its derivative along each parameter, side by side. */
static aj_tensor *jacobian(const least_squares *ls, aj_tensor **r) {
    aj_tensor *columns[MAX] = {NULL};
    (void)aj_record_begin(ls->ctx);
    *r = residuals(ls, ls->b);
    (void)aj_record_stop(ls->ctx);
    for (int k = 0; k < ls->n; k++) {
        aj_tensor *one = aj_scalar(ls->ctx, AJ_F64, 1);
        (void)aj_jvp(ls->ctx, 1, r, 1, &ls->b[ls->slot[k]], &one, &columns[k], 0);
    }
    (void)aj_record_end(ls->ctx);
    *r = aj_unsqueeze(*r, 1);
    return aj_stack(ls->n, columns, 1);
}

/* The sum over the ranks of [Q r]'[Q r], split into Q'Q (n x n), Q'r and r'r. */
static bool gram(const least_squares *ls, aj_tensor *q, aj_tensor *r, double *qq, double *qr, double *rr) {
    int n = ls->n;
    double all[(MAX + 1) * (MAX + 1)];
    aj_tensor *both = aj_concat(2, (aj_tensor *[]){q, r}, 1);
    if (!sum_over_ranks(ls, aj_matmul(aj_transpose(both, 0, 1), both), (n + 1) * (n + 1), all))
        return false;
    for (int i = 0; i < n; i++) {
        memcpy(qq + i * n, all + i * (n + 1), (size_t)n * sizeof *qq);
        qr[i] = all[i * (n + 1) + n];
    }
    *rr = all[(n + 1) * (n + 1) - 1];
    return true;
}

static bool all_finite(int count, const double *v) {
    for (int i = 0; i < count; i++)
        if (!isfinite(v[i]))
            return false;
    return true;
}

static bool is_nearly_identity(int n, const double *a) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            if (!(fabs(a[i * n + j] - (i == j)) < 0.1))
                return false;
    return true;
}

/*
 * Cholesky QR, repeated: Q'Q = U'U, R <- U R, Q <- Q U^-1 until Q is orthonormal. Sums over the rows are all it needs of the ranks, and unlike the normal
 * equations it does not lose half of the digits: two rounds are as accurate as Householder's method while J's condition is below 1e8, and
 * shifts extend that to all J. (Y. Yamamoto, Y. Nakatsukasa, Y. Yanagisawa, T. Fukaya, ETNA 44 (2015) 306; T. Fukaya, R. Kannan, Y. Nakatsukasa,
 * Y. Yamamoto, Y. Yanagisawa, SIAM J. Sci. Comput. 42 (2020) A477.)
 */
static bool factorise(const least_squares *ls, aj_tensor *q, aj_tensor *r, lm_linearisation *l) {
    enum { MAX_ROUNDS = 6 };
    int n = ls->n;
    double qq[MAX * MAX], qr[MAX], u[MAX * MAX], inverse[MAX * MAX], product[MAX * MAX];
    memset(l->R, 0, sizeof l->R);
    for (int k = 0; k < n; k++)
        l->R[k * n + k] = 1;
    for (int round = 1; round <= MAX_ROUNDS; round++) {
        if (!gram(ls, q, r, qq, qr, &l->rss))
            return false;
        l->finite = all_finite(n * n, qq) && all_finite(n, qr) && isfinite(l->rss);
        if (!l->finite)
            return true;
        dense_cholesky(n, qq, u);
        dense_invert_upper(n, u, inverse);
        dense_multiply_upper(n, u, l->R, product);
        memcpy(l->R, product, sizeof product);
        if (is_nearly_identity(n, qq))
            break;
        q = aj_matmul(q, aj_from_data(ls->ctx, AJ_F64, AJ_SHAPE(n, n), inverse));
    }
    dense_apply_transposed(n, inverse, qr, l->c);
    return true;
}

bool least_squares_linearise(const least_squares *ls, const double *b, lm_linearisation *at_b) {
    aj_scope *scope = aj_scope_begin(ls->ctx);
    set_parameters(ls, b);
    aj_tensor *r, *j = jacobian(ls, &r);
    bool done = factorise(ls, j, r, at_b);
    return aj_scope_end(scope) == AJ_OK && done;
}

/* aj_shared makes the replicated parameters one variable, so each rank gets the whole gradient of the sum over all rows. */
static void backward(const least_squares *ls, double *gradient) {
    aj_tensor *shared[FORMULA_MAX_PARAMETERS] = {NULL};
    (void)aj_record_begin(ls->ctx);
    for (int k = 0; k < ls->n; k++) {
        aj_tensor *parameter = ls->b[ls->slot[k]];
        aj_zero_grad(parameter);
        shared[ls->slot[k]] = aj_shared(parameter, ls->comm);
    }
    (void)aj_backward(ls->ctx, aj_sum(aj_square(residuals(ls, shared))), NULL);
    for (int k = 0; k < ls->n; k++)
        gradient[k] = aj_item(aj_grad(ls->b[ls->slot[k]]));
}

bool least_squares_gradient(const least_squares *ls, const double *b, double *gradient) {
    aj_scope *scope = aj_scope_begin(ls->ctx);
    set_parameters(ls, b);
    bool done = aj_agree(ls->comm) == AJ_OK; /* backward communicates, too */
    if (done)
        backward(ls, gradient);
    return aj_scope_end(scope) == AJ_OK && done;
}
