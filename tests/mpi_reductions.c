/*
 * Reductions with their derivatives, up to the third, in every collective that reduces: against models in plain C that know all ranks' numbers. MPI's own, and two
 * operations registered here: log(exp a + exp b), which commutes, and a |b|, which does not. With zeros, ties, huge ranges, infinities; and what must be refused.
 */
#include <float.h>

#include "mpi_common.h"

typedef long double real; /* its exponents hold what overflows a double */
enum { MAX_RANKS = 8 };

/* ---- the operations: values, and derivatives by the operands `by` (an operand may occur more than once), of a fold of n operands ---- */

typedef struct operation {
    const char *name;
    MPI_Op op;
    real (*value)(int n, const real *x);
    real (*derivative)(int n, const real *x, int order, const int *by);
    int orders; /* of derivatives that are tested */
    bool commutes;
} operation;

static bool repeats(int order, const int *by) {
    for (int i = 0; i < order; i++)
        for (int k = 0; k < i; k++)
            if (by[i] == by[k])
                return true;
    return false;
}

static bool is_among(int i, int order, const int *by) {
    for (int k = 0; k < order; k++)
        if (by[k] == i)
            return true;
    return false;
}

static real sum_value(int n, const real *x) {
    real y = 0;
    for (int i = 0; i < n; i++)
        y += x[i];
    return y;
}

static real sum_derivative(int n, const real *x, int order, const int *by) {
    (void)n, (void)x, (void)by;
    return order == 1;
}

static real prod_derivative(int n, const real *x, int order, const int *by) {
    real y = 1;
    for (int i = 0; i < n; i++)
        y *= is_among(i, order, by) ? 1 : x[i];
    return repeats(order, by) ? 0 : y;
}

static real prod_value(int n, const real *x) {
    real y = 1;
    for (int i = 0; i < n; i++)
        y *= x[i];
    return y;
}

/* The lowest rank that holds the extremum; NaN wins. */
static int holder(int n, const real *x, bool largest) {
    int best = 0;
    for (int i = 1; i < n; i++)
        if (!isnan(x[best]) && (isnan(x[i]) || (largest ? x[i] > x[best] : x[i] < x[best])))
            best = i;
    return best;
}

static real max_value(int n, const real *x) {
    return x[holder(n, x, true)];
}

static real max_derivative(int n, const real *x, int order, const int *by) {
    return order == 1 && by[0] == holder(n, x, true);
}

static real min_value(int n, const real *x) {
    return x[holder(n, x, false)];
}

static real min_derivative(int n, const real *x, int order, const int *by) {
    return order == 1 && by[0] == holder(n, x, false);
}

static real lse_value(int n, const real *x) {
    real y = 0;
    for (int i = 0; i < n; i++)
        y += expl(x[i]);
    return logl(y);
}

static real lse_derivative(int n, const real *x, int order, const int *by) {
    real y = lse_value(n, x), p[3] = {0};
    for (int i = 0; i < order; i++)
        p[i] = expl(x[by[i]] - y);
    if (order == 1)
        return p[0];
    if (order == 2)
        return (by[0] == by[1] ? p[0] : 0) - p[0] * p[1];
    bool a = by[0] == by[1], b = by[0] == by[2], c = by[1] == by[2];
    return (a && b ? p[0] : 0) - (a ? p[0] * p[2] : 0) - (b ? p[0] * p[1] : 0) - (c ? p[1] * p[0] : 0) + 2 * p[0] * p[1] * p[2];
}

/* a |b|: the sign of the first, the sizes of all */
static real signed_derivative(int n, const real *x, int order, const int *by) {
    real y = !repeats(order, by);
    for (int i = 0; i < n && y != 0; i++) {
        real sign = x[i] > 0 ? 1 : -1;
        y *= is_among(i, order, by) ? (i == 0 ? 1 : sign) : i == 0 ? x[i] : sign * x[i];
    }
    return y;
}

static real signed_value(int n, const real *x) {
    return signed_derivative(n, x, 0, NULL);
}

#define ENTRYWISE(name, expression)                                                                                              \
    static void name(void *in, void *inout, int *n, MPI_Datatype *type) {                                                        \
        for (int i = 0; i < *n; i++)                                                                                             \
            if (*type == MPI_DOUBLE) {                                                                                           \
                double a = ((double *)in)[i], b = ((double *)inout)[i];                                                          \
                ((double *)inout)[i] = expression;                                                                               \
            } else if (*type == MPI_FLOAT) {                                                                                     \
                double a = ((float *)in)[i], b = ((float *)inout)[i];                                                            \
                ((float *)inout)[i] = (float)(expression);                                                                       \
            } else if (*type == MPI_INT64_T) {                                                                                   \
                int64_t a = ((int64_t *)in)[i], b = ((int64_t *)inout)[i];                                                       \
                ((int64_t *)inout)[i] = (int64_t)(expression);                                                                   \
            }                                                                                                                    \
    }
ENTRYWISE(lse_operate, (a > b ? a : b) + log1p(exp(a > b ? b - a : a - b)))
ENTRYWISE(signed_operate, a *(b < 0 ? -b : b))
#undef ENTRYWISE

static int user_data[2];

static aj_tensor *lse_vjp(aj_ctx *c, aj_tensor *prefix, aj_tensor *x, aj_tensor *suffix, aj_tensor *y, aj_tensor *g, void *user) {
    CHECK(c == ctx && user == &user_data[0] && !prefix && !suffix && x && y && g);
    return aj_mul(g, aj_exp(aj_sub(x, y)));
}

static aj_tensor *signed_vjp(aj_ctx *c, aj_tensor *prefix, aj_tensor *x, aj_tensor *suffix, aj_tensor *y, aj_tensor *g,
                             void *user) {
    CHECK(c == ctx && user == &user_data[1] && !y && x && g);
    aj_tensor *gx = prefix ? aj_mul(aj_mul(g, prefix), aj_sign(x)) : g;
    return suffix ? aj_mul(gx, aj_abs(suffix)) : gx;
}

enum { SUM, PROD, MAX, MIN, LSE, SIGNED, N_OPERATIONS };
static operation operations[N_OPERATIONS] = {
    {"sum", MPI_SUM, sum_value, sum_derivative, 2, true},
    {"prod", MPI_PROD, prod_value, prod_derivative, 3, true},
    {"max", MPI_MAX, max_value, max_derivative, 2, true},
    {"min", MPI_MIN, min_value, min_derivative, 2, true},
    {"log(exp a + exp b)", MPI_OP_NULL, lse_value, lse_derivative, 3, true},
    {"a |b|", MPI_OP_NULL, signed_value, signed_derivative, 3, false},
};

static void open_all(void) {
    open_world();
    MPI_Op_create(lse_operate, 1, &operations[LSE].op);
    MPI_Op_create(signed_operate, 0, &operations[SIGNED].op);
    CHECK_INT(aj_op_register(ctx, operations[LSE].op, "lse", true, lse_vjp, &user_data[0]), AJ_OK);
    CHECK_INT(aj_op_register(ctx, operations[SIGNED].op, "signed", false, signed_vjp, &user_data[1]), AJ_OK);
}

static void close_all(void) {
    close_world();
    MPI_Op_free(&operations[LSE].op);
    MPI_Op_free(&operations[SIGNED].op);
}

/* ---- the collectives: entry `column` of the result on a rank is the fold of the first so many ranks; 0: zero; -1: it is not there ---- */

static int64_t first_column(int rank) {
    return rank * (rank + 1) / 2;
}

static int folds_all(int rank, int root, int64_t column) {
    (void)rank, (void)root, (void)column;
    return rank_count;
}

static int folds_on_root(int rank, int root, int64_t column) {
    (void)column;
    return rank == root ? rank_count : 0;
}

static int folds_up_to(int rank, int root, int64_t column) {
    (void)root, (void)column;
    return rank + 1;
}

static int folds_before(int rank, int root, int64_t column) {
    (void)root, (void)column;
    return rank;
}

static int folds_part(int rank, int root, int64_t column) {
    (void)root;
    return column >= first_column(rank) && column < first_column(rank + 1) ? rank_count : -1;
}

static aj_tensor *run_allreduce(aj_tensor *x, MPI_Op op, int root) {
    (void)root;
    return aj_allreduce(x, op, world);
}

static aj_tensor *run_reduce(aj_tensor *x, MPI_Op op, int root) {
    return aj_reduce(x, op, root, world);
}

static aj_tensor *run_reduce_inplace(aj_tensor *x, MPI_Op op, int root) {
    return aj_reduce_inplace(aj_scale(x, 1), op, root, world);
}

static aj_tensor *run_scan(aj_tensor *x, MPI_Op op, int root) {
    (void)root;
    return aj_scan(x, op, world);
}

static aj_tensor *run_exscan(aj_tensor *x, MPI_Op op, int root) {
    (void)root;
    return aj_exscan(x, op, world);
}

static aj_tensor *run_reduce_scatter(aj_tensor *x, MPI_Op op, int root) {
    (void)root;
    return aj_reduce_scatter(x, -1, rank_id + 1, op, world);
}

typedef struct collective {
    const char *name;
    aj_tensor *(*run)(aj_tensor *x, MPI_Op op, int root);
    int (*folds)(int rank, int root, int64_t column);
    bool rooted;
} collective;
enum { ALLREDUCE, REDUCE, REDUCE_INPLACE, SCAN, EXSCAN, REDUCE_SCATTER, N_COLLECTIVES };
static const collective collectives[N_COLLECTIVES] = {{"allreduce", run_allreduce, folds_all, false},
                                                      {"reduce", run_reduce, folds_on_root, true},
                                                      {"reduce_inplace", run_reduce_inplace, folds_on_root, true},
                                                      {"scan", run_scan, folds_up_to, false},
                                                      {"exscan", run_exscan, folds_before, false},
                                                      {"reduce_scatter", run_reduce_scatter, folds_part, false}};

/* ---- one run: operands of shape (2, columns) ---- */

enum { ROWS = 2, FEW_COLUMNS = 4, MAX_ENTRIES = ROWS * MAX_RANKS * (MAX_RANKS + 1) / 2 };

typedef double (*numbers)(int rank, int64_t entry);

typedef struct setting {
    const operation *operation;
    const collective *collective;
    int root;
    aj_dtype dtype;
    bool transposed; /* the operand is a view of the parameter */
    int64_t columns;
    numbers operand, seed;
} setting;

static double direction(int order, int rank, int64_t entry) {
    return number(40 + (uint64_t)order, rank, entry);
}

static void fold_operands(const setting *s, int64_t entry, real *x) {
    for (int r = 0; r < rank_count; r++)
        x[r] = s->operand(r, entry);
}

static real expected_value(const setting *s, int64_t entry) {
    real x[MAX_RANKS];
    int n = s->collective->folds(rank_id, s->root, entry % s->columns);
    fold_operands(s, entry, x);
    return n > 0 ? s->operation->value(n, x) : 0;
}

/* The derivative by this rank's operand of sum over ranks of <seed, y>, differentiated along directions 1 ... order - 1 before; and the sum of its terms' sizes. */
static real expected_derivative(const setting *s, int64_t entry, int order, real *size) {
    real x[MAX_RANKS], total = 0;
    fold_operands(s, entry, x);
    *size = 0;
    for (int r = 0; r < rank_count; r++) {
        int n = s->collective->folds(r, s->root, entry % s->columns);
        int combinations = 1, by[3] = {rank_id};
        for (int i = 1; i < order; i++)
            combinations *= n;
        for (int k = 0; k < combinations && rank_id < n; k++) {
            real weight = s->seed(r, entry);
            for (int i = 1, rest = k; i < order; i++, rest /= n) {
                by[i] = rest % n;
                weight *= direction(i, by[i], entry);
            }
            real derivative = s->operation->derivative(n, x, order, by);
            if (weight != 0) { /* else 0 inf */
                total += weight * derivative;
                *size += fabsl(weight * derivative);
            }
        }
    }
    return total;
}

static aj_tensor *whole(const setting *s, int order) {
    double x[MAX_ENTRIES];
    for (int64_t i = 0; i < ROWS * s->columns; i++)
        x[i] = order < 0 ? s->seed(rank_id, i) : order == 0 ? s->operand(rank_id, i) : direction(order, rank_id, i);
    return tensor_of(ctx, s->dtype, AJ_SHAPE(ROWS, s->columns), x);
}

/* What the result has of a tensor like the operand. */
static aj_tensor *part(const setting *s, aj_tensor *t) {
    return s->collective->folds == folds_part ? aj_slice(t, 1, first_column(rank_id), first_column(rank_id + 1), 1) : t;
}

static double rounding(const setting *s) {
    return s->dtype == AJ_F64 ? 2e-14 : 4e-6;
}

/* size: of the terms that are added up. Where they leave the dtype's range, so may the sum. */
static bool close_to(const setting *s, double got, real wanted, real size) {
    real least = s->dtype == AJ_F64 ? (real)DBL_TRUE_MIN : (real)FLT_TRUE_MIN;
    real most = s->dtype == AJ_F64 ? (real)DBL_MAX : (real)FLT_MAX;
    if (isnan(size))
        return isnan(got) || (isinf(got) && !isnan(wanted));
    if (size > most)
        return !isfinite(got) || fabsl(got - wanted) <= rounding(s) * size;
    return fabsl(got - wanted) <= rounding(s) * size + 4 * least;
}

static void check_value(const setting *s, aj_tensor *y) {
    double *got = values_of(y, y ? aj_numel(y) : 0);
    int64_t at = 0;
    for (int64_t i = 0; i < ROWS * s->columns; i++)
        if (s->collective->folds(rank_id, s->root, i % s->columns) >= 0) {
            real wanted = expected_value(s, i);
            CHECK_MSG(close_to(s, got[at], wanted, fabsl(wanted)), "entry %d is %.17g, expected %.17Lg", (int)i, got[at], wanted);
            at++;
        }
    CHECK_INT(at, aj_numel(y));
    free(got);
}

static void check_gradient(const setting *s, aj_tensor *g, int order) {
    double *got = values_of(s->transposed ? aj_transpose(g, 0, 1) : g, ROWS * s->columns);
    for (int64_t i = 0; i < ROWS * s->columns; i++) {
        real size, wanted = expected_derivative(s, i, order, &size);
        CHECK_MSG(close_to(s, got[i], wanted, size), "derivative %d, entry %d is %.17g, expected %.17Lg (terms of %Lg)", order,
                  (int)i, got[i], wanted, size);
    }
    free(got);
}

static void check_tangent(const setting *s, aj_tensor *t) {
    double *got = values_of(t, t ? aj_numel(t) : 0);
    int64_t at = 0;
    for (int64_t i = 0; i < ROWS * s->columns; i++) {
        real x[MAX_RANKS], wanted = 0, size = 0;
        int n = s->collective->folds(rank_id, s->root, i % s->columns);
        fold_operands(s, i, x);
        for (int k = 0; k < n; k++) {
            real term = s->operation->derivative(n, x, 1, &k) * direction(1, k, i);
            wanted += term;
            size += fabsl(term);
        }
        if (n >= 0) {
            CHECK_MSG(close_to(s, got[at], wanted, size), "tangent, entry %d is %.17g, expected %.17Lg", (int)i, got[at], wanted);
            at++;
        }
    }
    free(got);
}

static aj_tensor *oriented(const setting *s, aj_tensor *t) {
    return s->transposed ? aj_transpose(t, 0, 1) : t;
}

/* Values, and derivatives up to an order. */
static void check(const setting *s, int orders) {
    aj_scope *scope = aj_scope_begin(ctx);
    aj_scope_name(scope, "%s of %s, root %d, %s", s->collective->name, s->operation->name, s->root, aj_dtype_name(s->dtype));
    int failures = rank_failures;
    aj_tensor *leaf = aj_param(oriented(s, whole(s, 0))), *g[3] = {NULL}, *tangent = NULL;
    aj_tensor *along[2] = {oriented(s, whole(s, 1)), oriented(s, whole(s, 2))}, *seed = part(s, whole(s, -1));
    check_value(s, s->collective->run(oriented(s, leaf), s->operation->op, s->root)); /* outside the recording */
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    aj_tensor *y = s->collective->run(oriented(s, leaf), s->operation->op, s->root);
    check_value(s, y);
    if (orders > 1)
        CHECK_INT(aj_jvp(ctx, 1, &y, 1, &leaf, &along[0], &tangent, 0), AJ_OK);
    for (int k = 0; k < orders; k++) {
        CHECK_INT(aj_grad_of(ctx, 1, k == 0 ? &y : &g[k - 1], k == 0 ? &seed : &along[k - 1], 1, &leaf, &g[k],
                             k + 1 < orders ? AJ_CREATE_GRAPH : 0),
                  AJ_OK);
        check_gradient(s, g[k], k + 1);
    }
    if (orders > 1)
        check_tangent(s, tangent);
    CHECK_INT(aj_backward(ctx, y, seed), AJ_OK);
    check_gradient(s, aj_grad(leaf), 1);
    aj_release(&leaf);
    check_clean(ctx, s->collective->name);
    CHECK_MSG(rank_failures == failures, "that was %s of %s, root %d, %s, derivatives up to %d", s->collective->name,
              s->operation->name, s->root, aj_dtype_name(s->dtype), orders);
    CHECK_INT(aj_scope_end(scope), AJ_OK);
}

static setting setting_of(int o, int k, int root, numbers operand, numbers seed) {
    return (setting){.operation = &operations[o],
                     .collective = &collectives[k],
                     .root = root,
                     .dtype = AJ_F64,
                     .transposed = (o + k + root) % 2,
                     .columns = k == REDUCE_SCATTER ? first_column(rank_count) : FEW_COLUMNS,
                     .operand = operand,
                     .seed = seed};
}

/* ---- numbers ---- */

static double plain_seed(int rank, int64_t entry) {
    return number(9, rank, entry);
}

/* Between 1/2 and 3/2, of either sign: all different, 64ths and 1024ths. */
static double moderate(int rank, int64_t entry) {
    double x = number(5, rank, entry);
    return (x < 0 ? -1 : 1) * (0.5 + fabs(x) / 8 + rank / 1024.0);
}

/* Entry by entry: no zero, one, two (if there are as many ranks), all; at other ranks each time. */
static double with_zeros(int rank, int64_t entry) {
    int a = (int)(entry * 5 % rank_count), b = (int)((entry * 5 + 1) % rank_count);
    bool zero = entry % 4 == 3 || (entry % 4 >= 1 && rank == a) || (entry % 4 == 2 && rank == b);
    return zero ? (entry % 3 ? 0.0 : -0.0) : moderate(rank, entry);
}

/* Ties: on every third rank, on all, on the last two. */
static double with_ties(int rank, int64_t entry) {
    if (entry % 4 == 0)
        return rank % 3 == 0 ? 2 : 1;
    if (entry % 4 == 1)
        return 7;
    if (entry % 4 == 2)
        return rank >= rank_count - 2 ? -3 : rank;
    return moderate(rank, entry);
}

static void for_all(numbers operand, int first, int last, int orders) {
    open_all();
    for (int o = first; o <= last; o++)
        for (int k = 0; k < N_COLLECTIVES; k++)
            for (int root = 0; root < (collectives[k].rooted ? rank_count : 1); root++)
                for (int single = 0; single < 2; single++) {
                    setting s = setting_of(o, k, root, operand, plain_seed);
                    s.dtype = single ? AJ_F32 : AJ_F64;
                    check(&s, operations[o].orders < orders ? operations[o].orders : orders);
                }
    close_all();
}

static void derivatives(void) {
    for_all(moderate, SUM, SIGNED, 3);
}

static void zeros(void) {
    for_all(with_zeros, PROD, PROD, 3);
}

static void ties(void) {
    for_all(with_ties, MAX, MIN, 2);
}

/* ---- products of huge and tiny numbers: right where the result is a number of the dtype, also if the whole product is none ---- */

static double huge_range(int rank, int64_t entry) {
    static const double few[4][3] = {
        {1e-200, 1e-200, 1e300}, {1e300, 1e-200, 1e-150}, {5e-324, 1e10, 3e-310}, {1e154, -1e154, 1e-308}};
    return few[entry % 4][(rank + entry / 4) % 3];
}

static double small_seed(int rank, int64_t entry) {
    return number(9, rank, entry) / (64 * rank_count);
}

/* Not of scans, whose results are products out of range themselves. */
static void ranges(void) {
    open_all();
    for (int k = 0; k < N_COLLECTIVES; k++)
        if (k != SCAN && k != EXSCAN) {
            setting s = setting_of(PROD, k, rank_count - 1, huge_range, small_seed);
            check(&s, 2);
        }
    close_all();
}

/* (1e-200, 1e-200, 1e300), total seed 1: the table's gradients. */
static double range_operand(int rank, int64_t entry) {
    (void)entry;
    return rank == 2 ? 1e300 : rank < 2 ? 1e-200 : 1;
}

static double zero_operand(int rank, int64_t entry) {
    (void)entry;
    return rank == 0 ? 2 : rank == 1 ? 0 : rank == 2 ? 4 : 1;
}

static double tie_operand(int rank, int64_t entry) {
    (void)rank, (void)entry;
    return 3;
}

static double total_one(int rank, int64_t entry) {
    (void)entry;
    return rank == 0;
}

static double total_six(int rank, int64_t entry) {
    (void)entry;
    return rank < 3 ? rank + 1 : 0;
}

static void named(void) {
    open_all();
    for (int k = 0; k < N_COLLECTIVES; k++) {
        setting range = setting_of(PROD, k, 0, range_operand, total_one);
        setting zero = setting_of(PROD, k, 0, zero_operand, total_six);
        setting tie = setting_of(MAX, k, 0, tie_operand, total_six);
        if (k != EXSCAN) /* its results are the products out of range */
            check(&range, 1);
        check(&zero, 3);
        check(&tie, 2);
    }
    close_all();
}

/* ---- infinities and NaN ---- */

static double positive_seed(int rank, int64_t entry) {
    return fabs(plain_seed(rank, entry));
}

static double not_finite(int rank, int64_t entry) {
    int last = rank_count - 1;
    switch (entry % 8) {
    case 0:
        return rank == last ? INFINITY : -2;
    case 1:
        return rank == last ? -INFINITY : rank == 0 ? 0.0 : 3;
    case 2:
        return rank == 0 ? NAN : rank == last ? NAN : 2;
    case 3:
        return rank == last / 2 ? -INFINITY : -1;
    case 4:
        return INFINITY;
    case 5:
        return rank == 0 ? 1e200 : rank == last ? 1e200 : 4;
    case 6:
        return rank == 0 ? -0.0 : 5;
    default:
        return rank == last ? NAN : 0;
    }
}

static void infinities(void) {
    open_all();
    for (int o = PROD; o <= MIN; o++)
        for (int k = 0; k < N_COLLECTIVES; k++) {
            setting s = setting_of(o, k, rank_count - 1, not_finite, positive_seed);
            check(&s, 1);
        }
    close_all();
}

/* Every communication's adjoint runs, those of derivatives too. Where no gradient has come, none goes on, whatever is infinite. */
static void unreached(void) {
    open_all();
    for (int o = PROD; o <= MIN; o++)
        for (int k = 0; k < N_COLLECTIVES; k++) {
            setting s = setting_of(o, k, 0, not_finite, plain_seed);
            aj_tensor *leaf = aj_param(whole(&s, 0)), *other = aj_param(whole(&s, 1)), *g = NULL, *h = NULL, *v = whole(&s, 1);
            CHECK_INT(aj_record_begin(ctx), AJ_OK);
            aj_tensor *y = collectives[k].run(leaf, operations[o].op, 0);
            CHECK_INT(aj_grad_of(ctx, 1, &y, NULL, 1, &leaf, &g, AJ_CREATE_GRAPH), AJ_OK);
            CHECK_INT(aj_grad_of(ctx, 1, &g, &v, 1, &leaf, &h, AJ_CREATE_GRAPH), AJ_OK);
            CHECK_INT(aj_backward(ctx, aj_sum(other), NULL), AJ_OK);
            CHECK_ALL(aj_grad(leaf), ROWS * s.columns, 0, 0);
            CHECK_ALL(aj_grad(other), ROWS * s.columns, 1, 0);
            CHECK_MSG(rank_failures == 0, "that was %s of %s", collectives[k].name, operations[o].name);
            aj_release(&leaf);
            aj_release(&other);
        }
    close_all();
}

static void signs_of_zero(void) {
    open_all();
    double x[2] = {rank_id == 0 ? -0.0 : 3, rank_id == 0 ? 0.0 : -3}, y[2];
    aj_tensor *t = aj_allreduce(aj_from_data(ctx, AJ_F64, AJ_SHAPE(2), x), MPI_PROD, world);
    if (CHECK_INT(aj_read(t, y, sizeof y), AJ_OK)) {
        CHECK(y[0] == 0 && signbit(y[0]));
        CHECK(y[1] == 0 && !!signbit(y[1]) == (rank_count % 2 == 0));
    }
    close_all();
}

/* A second derivative whose terms differ by more than the digits of a number: none is lost. */
static double uneven(int rank, int64_t entry) {
    return rank == entry % rank_count ? 1e-40 : rank + 1.5;
}

static void cancellation(void) {
    open_all();
    for (int k = 0; k < N_COLLECTIVES; k++) {
        setting s = setting_of(PROD, k, 0, uneven, plain_seed);
        check(&s, 3);
    }
    close_all();
}

/* ---- no entries ---- */

static void empty(void) {
    open_all();
    for (int o = 0; o < N_OPERATIONS; o++)
        for (int k = 0; k < N_COLLECTIVES - 1; k++) {
            aj_tensor *leaf = aj_param(aj_zeros(ctx, AJ_F64, AJ_SHAPE(3, 0))), *g = NULL;
            CHECK_INT(aj_record_begin(ctx), AJ_OK);
            aj_tensor *y = collectives[k].run(leaf, operations[o].op, 0);
            CHECK_INT(aj_grad_of(ctx, 1, &y, NULL, 1, &leaf, &g, AJ_CREATE_GRAPH), AJ_OK);
            CHECK_INT(aj_backward(ctx, g, NULL), AJ_OK);
            CHECK_INT(aj_numel(aj_grad(leaf)), 0);
            aj_release(&leaf);
        }
    close_all();
}

/* ---- a communicator without ranks: the operand comes back ---- */

static void nobody(void) {
    open_all();
    aj_comm *none = aj_comm_create(ctx, MPI_COMM_NULL), *all = world;
    world = none;
    for (int o = 0; o < N_OPERATIONS; o++)
        for (int k = 0; k < N_COLLECTIVES - 1; k++) {
            aj_tensor *leaf = aj_param(aj_full(ctx, AJ_F64, AJ_SHAPE(3), 2.5));
            CHECK_INT(aj_record_begin(ctx), AJ_OK);
            aj_tensor *y = collectives[k].run(leaf, operations[o].op, 0);
            CHECK_ALL(y, 3, 2.5, 0);
            CHECK_INT(aj_backward(ctx, y, aj_full(ctx, AJ_F64, AJ_SHAPE(3), 4)), AJ_OK);
            CHECK_ALL(aj_grad(leaf), 3, 4, 0);
            aj_release(&leaf);
        }
    world = all;
    aj_comm_destroy(&none);
    close_all();
}

/* ---- registering ---- */

static aj_tensor *twice_vjp(aj_ctx *c, aj_tensor *prefix, aj_tensor *x, aj_tensor *suffix, aj_tensor *y, aj_tensor *g,
                            void *user) {
    (void)c, (void)prefix, (void)x, (void)suffix, (void)y, (void)user;
    return aj_scale(g, 2);
}

static aj_tensor *wrong_shape_vjp(aj_ctx *c, aj_tensor *prefix, aj_tensor *x, aj_tensor *suffix, aj_tensor *y, aj_tensor *g,
                                  void *user) {
    (void)c, (void)prefix, (void)x, (void)suffix, (void)y, (void)user;
    return aj_sum(g);
}

static aj_tensor *null_vjp(aj_ctx *c, aj_tensor *prefix, aj_tensor *x, aj_tensor *suffix, aj_tensor *y, aj_tensor *g,
                           void *user) {
    (void)c, (void)prefix, (void)x, (void)suffix, (void)y, (void)g, (void)user;
    return NULL;
}

#define EXPECT_ERROR(status, part) expect_error(__LINE__, status, part)
static void expect_error(int line, aj_status status, const char *part) {
    aj_status got = aj_ctx_status(ctx);
    bool told = got == AJ_ERR_PEER && getenv("ADJOIN_CHECK"); /* another rank was first to find the same */
    CHECK_MSG((got == status || told) && strstr(aj_ctx_error(ctx), part), "line %d: %s, expected %s with %s: %s", line,
              aj_status_name(got), aj_status_name(status), part, aj_ctx_error(ctx));
    aj_ctx_clear_error(ctx);
}

static void replaced(void) {
    open_all();
    double total = rank_count * (rank_count + 1) / 2.0;
    aj_tensor *leaf = aj_param(aj_full(ctx, AJ_F64, AJ_SHAPE(3), 1)), *seed = aj_full(ctx, AJ_F64, AJ_SHAPE(3), rank_id + 1);
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    aj_tensor *y = aj_allreduce(leaf, operations[LSE].op, world); /* keeps its derivative */
    CHECK_INT(aj_op_register(ctx, operations[LSE].op, "other", true, twice_vjp, NULL), AJ_OK);
    CHECK_INT(aj_backward(ctx, y, seed), AJ_OK);
    CHECK_ALL(aj_grad(leaf), 3, total / rank_count, 1e-14);
    aj_zero_grad(leaf);
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    CHECK_INT(aj_backward(ctx, aj_allreduce(leaf, operations[LSE].op, world), seed), AJ_OK);
    CHECK_ALL(aj_grad(leaf), 3, 2 * total, 0);
    static const aj_op_vjp bad[] = {wrong_shape_vjp, null_vjp};
    for (int k = 0; k < 2; k++) {
        CHECK_INT(aj_op_register(ctx, operations[LSE].op, "bad one", true, bad[k], NULL), AJ_OK);
        CHECK_INT(aj_record_begin(ctx), AJ_OK);
        y = aj_allreduce(leaf, operations[LSE].op, world);
        CHECK_INT(aj_backward(ctx, y, seed), k == 0 ? AJ_ERR_SHAPE : AJ_ERR_ARG);
        EXPECT_ERROR(k == 0 ? AJ_ERR_SHAPE : AJ_ERR_ARG, "bad one");
    }
    aj_release(&leaf);
    close_all();
}

static void registered_wrongly(void) {
    open_all();
    CHECK_INT(aj_op_register(NULL, operations[LSE].op, "x", true, lse_vjp, NULL), AJ_ERR_ARG);
    aj_op_register(ctx, operations[LSE].op, NULL, true, lse_vjp, NULL);
    EXPECT_ERROR(AJ_ERR_ARG, "aj_op_register: the name");
    aj_op_register(ctx, operations[LSE].op, "x", true, NULL, NULL);
    EXPECT_ERROR(AJ_ERR_ARG, "aj_op_register: the derivative");
    aj_op_register(ctx, MPI_SUM, "x", true, lse_vjp, NULL);
    EXPECT_ERROR(AJ_ERR_ARG, "MPI_SUM");
    aj_op_register(ctx, MPI_OP_NULL, "x", true, lse_vjp, NULL);
    EXPECT_ERROR(AJ_ERR_ARG, "MPI_OP_NULL");
    aj_op_register(ctx, operations[LSE].op, "x", false, lse_vjp, NULL);
    EXPECT_ERROR(AJ_ERR_ARG, "not to commute");
    close_all();
}

/* Before a communicator was ever made. */
static void registered_first(void) {
    open_ctx(&ctx);
    MPI_Op op;
    MPI_Op_create(lse_operate, 1, &op);
    CHECK_INT(aj_op_register(ctx, op, "lse", true, lse_vjp, &user_data[0]), AJ_OK);
    world = aj_comm_create(ctx, MPI_COMM_WORLD);
    aj_tensor *leaf = aj_param(aj_full(ctx, AJ_F64, AJ_SHAPE(1), 2));
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    CHECK_INT(aj_backward(ctx, aj_allreduce(leaf, op, world), NULL), AJ_OK);
    CHECK_ALL(aj_grad(leaf), 1, 1, 1e-14);
    aj_release(&leaf);
    close_world();
    MPI_Op_free(&op);
}

/* ---- what must be refused, alike on all ranks, before anything is communicated ---- */

/* Reductions of operands as long as these, and allgathers. The library in error waits for all ranks by short ones of its own. */
enum { LENGTH = 100 };
static int calls;

#define COUNT(name, counts, parameters, arguments)                                                                               \
    int MPI_##name parameters {                                                                                                  \
        calls += counts;                                                                                                         \
        return PMPI_##name arguments;                                                                                            \
    }
#define COUNT_ALL(name, nonblocking, counts, parameters, ...)                                                                    \
    COUNT(name, counts, (parameters(int)), (__VA_ARGS__))                                                                        \
    COUNT(name##_c, counts, (parameters(MPI_Count)), (__VA_ARGS__))                                                              \
    COUNT(nonblocking, counts, (parameters(int), MPI_Request * q), (__VA_ARGS__, q))                                             \
    COUNT(nonblocking##_c, counts, (parameters(MPI_Count), MPI_Request * q), (__VA_ARGS__, q))
#define REDUCTION(count) const void *s, void *r, count n, MPI_Datatype t, MPI_Op op, MPI_Comm c
#define ROOTED_REDUCTION(count) const void *s, void *r, count n, MPI_Datatype t, MPI_Op op, int root, MPI_Comm c
#define EQUAL_PARTS(count) const void *s, count n, MPI_Datatype t, void *r, count m, MPI_Datatype u, MPI_Comm c
COUNT_ALL(Allreduce, Iallreduce, n == LENGTH, REDUCTION, s, r, n, t, op, c)
COUNT_ALL(Scan, Iscan, n == LENGTH, REDUCTION, s, r, n, t, op, c)
COUNT_ALL(Exscan, Iexscan, n == LENGTH, REDUCTION, s, r, n, t, op, c)
COUNT_ALL(Reduce, Ireduce, n == LENGTH, ROOTED_REDUCTION, s, r, n, t, op, root, c)
COUNT_ALL(Allgather, Iallgather, true, EQUAL_PARTS, s, n, t, r, m, u, c)

static void refuse(int k, aj_tensor *x, MPI_Op op, const char *part) {
    calls = 0;
    CHECK(collectives[k].run(x, op, 0) == NULL);
    CHECK_MSG(calls == 0, "%s communicates", collectives[k].name);
    CHECK_CONTAINS(aj_ctx_error(ctx), k == REDUCE_INPLACE ? "aj_reduce_inplace" : collectives[k].name);
    EXPECT_ERROR(AJ_ERR_UNSUPPORTED, part);
}

static void refused(void) {
    open_all();
    MPI_Op unknown;
    MPI_Op_create(signed_operate, 0, &unknown);
    aj_tensor *x = aj_full(ctx, AJ_F64, AJ_SHAPE(2, LENGTH / 2), -rank_id - 1);
    aj_tensor *whole_numbers = aj_cast(x, AJ_I64), *leaf = aj_param(x);
    const MPI_Op logical[] = {MPI_LAND, MPI_LOR,    MPI_LXOR,   MPI_BAND,    MPI_BOR,
                              MPI_BXOR, MPI_MAXLOC, MPI_MINLOC, MPI_REPLACE, MPI_OP_NULL};
    calls = 0;
    for (int k = 0; k < REDUCE_SCATTER; k++)
        collectives[k].run(x, operations[k].op, 0);
    aj_allgather(x, 0, world);
    if (!getenv("ADJOIN_MAX_COUNT") && rank_count > 1)
        CHECK_INT(calls, REDUCE_SCATTER + 2); /* they are seen: an allgather of the lengths, and one of equal parts */
    for (int recorded = 0; recorded < 2; recorded++) {
        if (recorded)
            CHECK_INT(aj_record_begin(ctx), AJ_OK);
        for (int k = 0; k < N_COLLECTIVES; k++) {
            for (size_t i = 0; i < sizeof logical / sizeof *logical; i++)
                refuse(k, i % 2 ? aj_cast(x, AJ_F32) : rank_id % 2 ? leaf : x, logical[i], "MPI_");
            refuse(k, whole_numbers, MPI_MAXLOC, "MPI_MAXLOC");
            if (recorded) /* also where the operand is inactive */
                refuse(k, rank_id % 2 ? x : leaf, unknown, "aj_op_register");
        }
        if (recorded)
            CHECK_INT(aj_record_end(ctx), AJ_OK);
    }
    aj_release(&leaf);
    MPI_Op_free(&unknown);
    close_all();
}

/* What is not registered has values: outside a recording, or of integers. */
static void unregistered(void) {
    open_all();
    MPI_Op unknown;
    MPI_Op_create(signed_operate, 0, &unknown);
    int64_t product = 1, before = 1;
    for (int r = 0; r < rank_count; r++) {
        before = r == rank_id ? product : before;
        product *= r == 0 ? -2 : 1 + r % 3;
    }
    int64_t mine = rank_id == 0 ? -2 : rank_id % 2 ? 1 + rank_id % 3 : -1 - rank_id % 3;
    for (int recorded = 0; recorded < 2; recorded++) {
        aj_tensor *x = aj_full(ctx, recorded ? AJ_I64 : AJ_F64, AJ_SHAPE(2, 3), (double)mine);
        if (recorded)
            CHECK_INT(aj_record_begin(ctx), AJ_OK);
        CHECK_ALL(aj_allreduce(x, unknown, world), 6, (double)product, 0);
        CHECK_ALL(aj_reduce(x, unknown, rank_count - 1, world), 6, rank_id == rank_count - 1 ? (double)product : 0, 0);
        CHECK_ALL(aj_exscan(x, unknown, world), 6, rank_id == 0 ? 0 : (double)before, 0);
        CHECK_ALL(aj_scan(x, unknown, world), 6, rank_id == 0 ? -2 : (double)(before * llabs(mine)), 0);
        CHECK_ALL(aj_reduce_scatter(x, 0, rank_id == 0 ? 2 : 0, unknown, world), rank_id == 0 ? 6 : 0, (double)product, 0);
        CHECK_ALL(aj_allreduce(aj_full(ctx, AJ_I64, AJ_SHAPE(2), (double)mine), operations[SIGNED].op, world), 2, (double)product,
                  0);
        if (recorded)
            CHECK_INT(aj_record_end(ctx), AJ_OK);
    }
    MPI_Op_free(&unknown);
    close_all();
}

RANK_MAIN({"derivatives", derivatives}, {"zeros", zeros}, {"ties", ties}, {"ranges", ranges}, {"named", named},
          {"infinities", infinities}, {"unreached", unreached}, {"signs_of_zero", signs_of_zero}, {"cancellation", cancellation},
          {"empty", empty}, {"nobody", nobody}, {"replaced", replaced}, {"registered_wrongly", registered_wrongly},
          {"registered_first", registered_first}, {"refused", refused}, {"unregistered", unregistered})
