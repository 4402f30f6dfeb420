/*
 * MPI_MAX and MPI_MIN with their gradients, maxloc and minloc: against models that know every rank's numbers.
 */
#include "mpi_common.h"

typedef aj_tensor *(*collective)(aj_tensor *x, MPI_Op op, int root);

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

static aj_tensor *run_loc(aj_tensor *x, MPI_Op op, int root) {
    (void)root;
    aj_tensor *value = NULL;
    aj_status status = op == MPI_MAX ? aj_maxloc(x, world, &value, NULL) : aj_minloc(x, world, &value, NULL);
    CHECK_INT(status, AJ_OK);
    return value;
}

static const struct {
    const char *name;
    collective run;
    bool rooted;
} collectives[] = {{"allreduce", run_allreduce, false},
                   {"reduce", run_reduce, true},
                   {"reduce_inplace", run_reduce_inplace, true},
                   {"loc", run_loc, false}};
enum { N_COLLECTIVES = sizeof collectives / sizeof *collectives, N = 6 };

/* Entry i of rank r's operand. With ties: every rank that is a multiple of three has the extremum of entry 0, all have that of entry 1. */
static double operand(int rank, int i, bool ties) {
    if (ties && i == 0)
        return rank % 3 == 0 ? 100 : 1;
    if (ties && i == 1)
        return 7;
    return number(5, rank, i) + rank / 64.0; /* all different */
}

static int holder(int i, bool largest, bool ties) {
    int best = 0;
    for (int r = 1; r < rank_count; r++) {
        double there = operand(r, i, ties), here = operand(best, i, ties);
        if (largest ? there > here : there < here)
            best = r;
    }
    return best;
}

/* y and the gradient of sum over ranks of <seed, y^p>, p = 1 or 3, entry by entry. */
static void check_one(int k, MPI_Op op, int root, aj_dtype dtype, bool ties, int power) {
    aj_scope *scope = aj_scope_begin(ctx);
    aj_scope_name(scope, "%s of %s, root %d, ties %d, power %d", collectives[k].name, op == MPI_MAX ? "max" : "min", root, ties,
                  power);
    double x[N], seed[N], got[N];
    for (int i = 0; i < N; i++) {
        x[i] = operand(rank_id, i, ties);
        seed[i] = number(9, rank_id, i);
    }
    aj_tensor *leaf = aj_param(aj_cast(aj_from_data(ctx, AJ_F64, AJ_SHAPE(2, 3), x), dtype));
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    aj_tensor *y = collectives[k].run(leaf, op, root), *z = power == 1 ? y : aj_mul(y, aj_square(y));
    bool empty = collectives[k].rooted && rank_id != root;
    if (CHECK_INT(aj_read(aj_cast(y, AJ_F64), got, sizeof got), AJ_OK))
        for (int i = 0; i < N; i++)
            CHECK_NEAR(got[i], empty ? 0 : operand(holder(i, op == MPI_MAX, ties), i, ties), 0);
    CHECK_INT(aj_backward(ctx, z, aj_cast(aj_from_data(ctx, AJ_F64, AJ_SHAPE(2, 3), seed), dtype)), AJ_OK);
    if (CHECK_INT(aj_read(aj_cast(aj_grad(leaf), AJ_F64), got, sizeof got), AJ_OK))
        for (int i = 0; i < N; i++) {
            double total = 0;
            for (int r = 0; r < rank_count; r++)
                total += collectives[k].rooted && r != root ? 0 : number(9, r, i);
            double factor = power == 1 ? 1 : 3 * x[i] * x[i];
            CHECK_NEAR(got[i], holder(i, op == MPI_MAX, ties) == rank_id ? factor * total : 0, dtype == AJ_F64 ? 1e-13 : 1e-5);
        }
    aj_release(&leaf);
    CHECK_INT(aj_scope_end(scope), AJ_OK);
}

static void gradients(void) {
    open_world();
    for (int k = 0; k < N_COLLECTIVES; k++)
        for (int root = 0; root < (collectives[k].rooted ? rank_count : 1); root++)
            for (int variant = 0; variant < 16; variant++)
                check_one(k, variant & 1 ? MPI_MAX : MPI_MIN, root, variant & 2 ? AJ_F32 : AJ_F64, variant & 4,
                          variant & 8 ? 3 : 1);
    close_world();
}

/* ---- reduce_scatter: the whole has rank_count (rank_count + 1) / 2 entries along the axis, rank r gets r + 1 of them ---- */

static void check_scattered(int axis, MPI_Op op) {
    aj_scope *scope = aj_scope_begin(ctx);
    int64_t whole = rank_count * (rank_count + 1) / 2, shape[3] = {2, 3, 2};
    shape[axis] = whole;
    int64_t n = shape[0] * shape[1] * shape[2];
    double *x = malloc((size_t)n * sizeof *x), *expected = calloc((size_t)n, sizeof *expected);
    for (int64_t i = 0; i < n; i++)
        x[i] = operand(rank_id, (int)i + 2, false);
    aj_tensor *leaf = aj_param(aj_from_data(ctx, AJ_F64, 3, shape, x));
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    aj_tensor *y = aj_reduce_scatter(leaf, axis - 3, rank_id + 1, op, world);
    CHECK_INT(
        aj_backward(ctx, aj_mul(y, aj_square(y)),
                    aj_full(ctx, AJ_F64, 3,
                            (int64_t[]){axis == 0 ? rank_id + 1 : 2, axis == 1 ? rank_id + 1 : 3, axis == 2 ? rank_id + 1 : 2},
                            rank_id + 1)),
        AJ_OK);
    int64_t after = axis == 2 ? 1 : axis == 1 ? shape[2] : shape[1] * shape[2];
    for (int64_t i = 0; i < n; i++) {
        int64_t place = i / after % whole;
        int owner = 0;
        while ((owner + 1) * (owner + 2) / 2 <= place)
            owner++;
        expected[i] = holder((int)i + 2, op == MPI_MAX, false) == rank_id ? 3 * x[i] * x[i] * (owner + 1) : 0;
    }
    double *got = malloc((size_t)n * sizeof *got);
    if (CHECK_INT(aj_read(aj_grad(leaf), got, (size_t)n * sizeof *got), AJ_OK))
        for (int64_t i = 0; i < n; i++)
            CHECK_NEAR(got[i], expected[i], 1e-13);
    free(x), free(expected), free(got);
    aj_release(&leaf);
    CHECK_INT(aj_scope_end(scope), AJ_OK);
}

static void scattered(void) {
    open_world();
    for (int axis = 0; axis < 3; axis++) {
        check_scattered(axis, MPI_MAX);
        check_scattered(axis, MPI_MIN);
    }
    close_world();
}

/* NaN wins, and its rank takes the gradient; of two, the lower one. */
static void nan_wins(void) {
    open_world();
    int last = rank_count - 1;
    double x[2] = {rank_id == last ? NAN : rank_id, rank_id >= last - 1 ? NAN : -rank_id}, got[2];
    for (int largest = 0; largest < 2; largest++) {
        aj_scope *scope = aj_scope_begin(ctx);
        aj_tensor *leaf = aj_param(aj_from_data(ctx, AJ_F64, AJ_SHAPE(2), x)), *value = NULL, *where = NULL;
        CHECK_INT(aj_record_begin(ctx), AJ_OK);
        aj_tensor *y = aj_allreduce(leaf, largest ? MPI_MAX : MPI_MIN, world);
        CHECK_INT(largest ? aj_maxloc(leaf, world, &value, &where) : aj_minloc(leaf, world, &value, &where), AJ_OK);
        CHECK(aj_read(y, got, sizeof got) == AJ_OK && isnan(got[0]) && isnan(got[1]));
        CHECK_INT(aj_tensor_dtype(where), AJ_I64);
        CHECK_NEAR(aj_item(aj_slice(where, 0, 0, 1, 1)), last, 0);
        CHECK_NEAR(aj_item(aj_slice(where, 0, 1, 2, 1)), last > 0 ? last - 1 : 0, 0);
        CHECK_INT(aj_backward(ctx, y, aj_full(ctx, AJ_F64, AJ_SHAPE(2), rank_id + 1)), AJ_OK);
        double total = rank_count * (rank_count + 1) / 2.0;
        if (CHECK_INT(aj_read(aj_grad(leaf), got, sizeof got), AJ_OK)) {
            CHECK_NEAR(got[0], rank_id == last ? total : 0, 0);
            CHECK_NEAR(got[1], rank_id == (last > 0 ? last - 1 : 0) ? total : 0, 0);
        }
        aj_release(&leaf);
        CHECK_INT(aj_scope_end(scope), AJ_OK);
    }
    close_world();
}

/* ---- integers ---- */

/* Value and rank, inside a recording and outside; of i64 numbers that no double tells apart. */
static void integer_locations(void) {
    static const aj_dtype dtypes[] = {AJ_I64, AJ_I32, AJ_U8};
    open_world();
    for (int variant = 0; variant < 6; variant++) {
        aj_dtype dtype = dtypes[variant % 3];
        if (variant >= 3)
            CHECK_INT(aj_record_begin(ctx), AJ_OK);
        int64_t base = dtype == AJ_I64 ? (int64_t)1 << 60 : 100, mine[3] = {base + rank_id, base - rank_id / 2, base}, got[3];
        aj_tensor *x = aj_from_data(ctx, AJ_I64, AJ_SHAPE(3), mine), *value, *where;
        x = dtype == AJ_I64 ? x : aj_cast(x, dtype);
        int last = rank_count - 1;
        const int64_t largest[] = {base + last, base, base}, smallest[] = {base, base - last / 2, base};
        const int64_t at_largest[] = {last, 0, 0}, at_smallest[] = {0, last / 2 * 2, 0};
        for (int up = 0; up < 2; up++) {
            CHECK_INT(up ? aj_maxloc(x, world, &value, &where) : aj_minloc(x, world, &value, &where), AJ_OK);
            CHECK_INT(aj_tensor_dtype(value), dtype);
            if (CHECK_INT(aj_read(dtype == AJ_I64 ? value : aj_cast(value, AJ_I64), got, sizeof got), AJ_OK))
                CHECK(memcmp(got, up ? largest : smallest, sizeof got) == 0);
            if (CHECK_INT(aj_read(where, got, sizeof got), AJ_OK))
                CHECK(memcmp(got, up ? at_largest : at_smallest, sizeof got) == 0);
        }
        if (variant >= 3)
            CHECK_INT(aj_record_end(ctx), AJ_OK);
    }
    close_world();
}

RANK_MAIN({"gradients", gradients}, {"scattered", scattered}, {"nan_wins", nan_wins}, {"integer_locations", integer_locations})
