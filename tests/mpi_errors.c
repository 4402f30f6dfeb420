/*
 * Errors that all ranks have, or agree on: they are returned on all ranks, and once they are cleared the program goes on and computes right
 * results. Errors of one rank alone, which end the job, are in mpi_alone.c.
 */
#include "mpi_common.h"

static aj_tensor *zeros(int64_t n) {
    return aj_zeros(ctx, AJ_F64, AJ_SHAPE(n));
}

static int left(void) {
    return left_of(rank_id, rank_count);
}

static int right(void) {
    return right_of(rank_id, rank_count);
}

/* The context's error is this one, and names `part`; forget it. */
#define EXPECT_ERROR(status, part) expect_error(__LINE__, status, part)
static void expect_error(int line, aj_status status, const char *part) {
    aj_status got = aj_ctx_status(ctx);
    /* In checked mode another rank's report may come before this rank makes the same mistake. */
    CHECK_MSG(got == status || (is_checked() && got == AJ_ERR_PEER), "line %d: %s, expected %s: %s", line, aj_status_name(got),
              aj_status_name(status), aj_ctx_error(ctx));
    CHECK_MSG(strstr(aj_ctx_error(ctx), part), "line %d: \"%s\" does not name %s", line, aj_ctx_error(ctx), part);
    aj_ctx_clear_error(ctx);
    CHECK_INT(aj_ctx_status(ctx), AJ_OK);
}

/* All ranks have got this far. */
static void meet(void) {
    MPI_Request request;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    rank_wait(&request);
}

/* A recording with a collective and messages gives what it should: nothing of earlier errors is left in the way. */
static void check_sound(void) {
    static int run;
    aj_scope *scope = aj_scope_begin(ctx);
    double salt = ++run;
    aj_tensor *a = aj_param(aj_full(ctx, AJ_F64, AJ_SHAPE(2), salt + rank_id));
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    aj_tensor *total = aj_allreduce(a, MPI_SUM, world);
    aj_request *in = aj_irecv(zeros(2), left(), 0, world);
    aj_send(a, right(), 0, world);
    aj_tensor *b = aj_wait(in);
    CHECK_ALL(total, 2, rank_count * salt + rank_count * (rank_count - 1) / 2.0, 0);
    CHECK_ALL(b, 2, salt + left(), 0);
    CHECK_INT(aj_backward(ctx, aj_sum(aj_add(aj_scale(total, salt), aj_scale(b, salt * (rank_id + 1)))), NULL), AJ_OK);
    CHECK_ALL(aj_grad(a), 2, salt * (rank_count + right() + 1), 0);
    aj_release(&a);
    CHECK_INT(aj_ctx_stat(ctx, AJ_STAT_REQUESTS), 0);
    check_clean(ctx, "after an error");
    CHECK_INT(aj_scope_end(scope), AJ_OK);
}

/* ---- the same error on all ranks ---- */

static void shape(void) {
    open_world();
    aj_scope *scope = aj_scope_begin(ctx);
    aj_scope_name(scope, "step 512");
    aj_tensor *bad = aj_add(zeros(2), zeros(3));
    CHECK(bad == NULL);
    CHECK(aj_allreduce(bad, MPI_SUM, world) == NULL);
    CHECK(aj_allreduce(zeros(2), MPI_SUM, world) == NULL); /* in error: nobody communicates */
    CHECK(aj_recv(zeros(2), left(), 0, world) == NULL);
    CHECK(aj_wait(aj_irecv(bad, left(), 0, world)) == NULL);
    CHECK_INT(aj_barrier(world), AJ_ERR_SHAPE);
    CHECK_CONTAINS(aj_ctx_error(ctx), "step 512");
    CHECK_CONTAINS(aj_ctx_error(ctx), "rank");
    EXPECT_ERROR(AJ_ERR_SHAPE, "aj_add");
    CHECK_INT(aj_scope_end(scope), AJ_OK);
    check_sound();
    close_world();
}

/* In the middle of a recording, before backward. */
static void before_backward(void) {
    open_world();
    aj_tensor *a = vector_param(ctx, 2, 1);
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    aj_tensor *total = aj_allreduce(a, MPI_SUM, world);
    aj_tensor *loss = aj_sum(aj_add(total, zeros(3)));
    CHECK_INT(aj_backward(ctx, loss, NULL), AJ_ERR_SHAPE);
    EXPECT_ERROR(AJ_ERR_SHAPE, "aj_add");
    CHECK_ALL(aj_grad(a), 2, 0, 0);
    CHECK(!aj_is_recording(ctx));
    aj_release(&a);
    check_sound();
    close_world();
}

static void root(void) {
    open_world();
    static const int wrong[] = {-1, 1000};
    for (int k = 0; k < 2; k++) {
        int r = wrong[k] < 0 ? -1 : rank_count;
        CHECK(aj_bcast(zeros(2), r, world) == NULL);
        EXPECT_ERROR(AJ_ERR_ARG, "aj_bcast");
        CHECK(aj_bcast_inplace(zeros(2), r, world) == NULL);
        EXPECT_ERROR(AJ_ERR_ARG, "aj_bcast_inplace");
        CHECK(aj_reduce(zeros(2), MPI_SUM, r, world) == NULL);
        EXPECT_ERROR(AJ_ERR_ARG, "aj_reduce");
        aj_tensor *x = zeros(2);
        CHECK(aj_reduce_inplace(x, MPI_SUM, r, world) == NULL);
        EXPECT_ERROR(AJ_ERR_ARG, "aj_reduce_inplace");
        CHECK_ALL(x, 2, 0, 0); /* a call that failed consumed nothing */
    }
    check_sound();
    close_world();
}

static int largest_tag(void) {
    void *limit = NULL;
    int found = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &limit, &found);
    return found ? *(int *)limit : 32767;
}

static void tag(void) {
    open_world();
    CHECK(aj_send(zeros(2), right(), -3, world) == NULL);
    EXPECT_ERROR(AJ_ERR_ARG, "aj_send");
    CHECK(aj_isend(zeros(2), right(), MPI_ANY_TAG, world) == NULL);
    EXPECT_ERROR(AJ_ERR_ARG, "aj_isend");
    CHECK(aj_recv(zeros(2), left(), -77, world) == NULL);
    EXPECT_ERROR(AJ_ERR_ARG, "aj_recv");
    CHECK(aj_irecv(zeros(2), left(), -77, world) == NULL);
    EXPECT_ERROR(AJ_ERR_ARG, "aj_irecv");
    if (largest_tag() < INT32_MAX) {
        CHECK(aj_send(zeros(2), right(), largest_tag() + 1, world) == NULL);
        EXPECT_ERROR(AJ_ERR_ARG, "aj_send");
    }
    check_sound();
    close_world();
}

static void peer(void) {
    open_world();
    CHECK(aj_send(zeros(2), rank_count, 0, world) == NULL);
    EXPECT_ERROR(AJ_ERR_ARG, "aj_send");
    CHECK(aj_isend(zeros(2), MPI_ANY_SOURCE, 0, world) == NULL);
    EXPECT_ERROR(AJ_ERR_ARG, "aj_isend");
    CHECK(aj_recv(zeros(2), rank_count, 0, world) == NULL);
    EXPECT_ERROR(AJ_ERR_ARG, "aj_recv");
    CHECK(aj_irecv(zeros(2), -100, 0, world) == NULL);
    EXPECT_ERROR(AJ_ERR_ARG, "aj_irecv");
    CHECK_INT(aj_ctx_stat(ctx, AJ_STAT_REQUESTS), 0);
    check_sound();
    close_world();
}

/* MPICH would end the process on a logical operation over doubles. */
static void reduction(void) {
    open_world();
    CHECK(aj_allreduce(zeros(2), MPI_LAND, world) == NULL);
    EXPECT_ERROR(AJ_ERR_UNSUPPORTED, "MPI_LAND");
    CHECK(aj_reduce(zeros(2), MPI_BXOR, 0, world) == NULL);
    EXPECT_ERROR(AJ_ERR_UNSUPPORTED, "MPI_BXOR");
    CHECK(aj_reduce_inplace(zeros(2), MPI_OP_NULL, 0, world) == NULL);
    EXPECT_ERROR(AJ_ERR_UNSUPPORTED, "aj_reduce_inplace");
    check_sound();
    close_world();
}

/* ---- along an axis: ranks that do not fit together get the same error ---- */

/* Every call gives an error with this status on all ranks, and a recording after it is sound. */
#define EXPECT_REFUSED(status, name, call)                                                                                       \
    do {                                                                                                                         \
        CHECK_MSG((call) == NULL, "line %d: %s gave a result", __LINE__, name);                                                  \
        EXPECT_ERROR(status, name);                                                                                              \
    } while (0)

static aj_tensor *matrix(int64_t m, int64_t n) {
    return aj_zeros(ctx, AJ_F64, AJ_SHAPE(m, n));
}

static aj_tensor *cube(int64_t k, int64_t m, int64_t n) {
    return aj_zeros(ctx, AJ_F64, AJ_SHAPE(k, m, n));
}

/* One rank, the first or the last, differs from the others; inside a recording and outside. */
static void with_one_other(void (*check)(bool other)) {
    open_world();
    for (int turn = 0; turn < 4 && rank_count > 1; turn++) {
        aj_scope *scope = aj_scope_begin(ctx);
        if (turn % 2)
            CHECK_INT(aj_record_begin(ctx), AJ_OK);
        check(rank_id == (turn < 2 ? 0 : rank_count - 1));
        if (turn % 2)
            CHECK_INT(aj_record_end(ctx), AJ_OK);
        check_sound();
        CHECK_INT(aj_scope_end(scope), AJ_OK);
    }
    close_world();
}

static void check_extents(bool other) {
    aj_tensor *x = matrix(rank_id, other ? 3 : 2), *y = matrix(rank_count, other ? 3 : 2);
    EXPECT_REFUSED(AJ_ERR_SHAPE, "aj_gather", aj_gather(x, 0, 0, world));
    EXPECT_REFUSED(AJ_ERR_SHAPE, "aj_allgather", aj_allgather(x, -2, world));
    EXPECT_REFUSED(AJ_ERR_SHAPE, "aj_reduce_scatter", aj_reduce_scatter(y, 0, 1, MPI_SUM, world));
    EXPECT_REFUSED(AJ_ERR_SHAPE, "aj_reduce_scatter", aj_reduce_scatter(y, 1, rank_id == 0 ? 2 : 0, MPI_SUM, world));
    EXPECT_REFUSED(AJ_ERR_SHAPE, "aj_alltoall", aj_alltoall(x, 0, 1, 1, world));       /* the scatter axis */
    EXPECT_REFUSED(AJ_ERR_SHAPE, "aj_alltoall", aj_alltoall(x, 0, 0, rank_id, world)); /* neither */
}

static void extents_differ(void) {
    with_one_other(check_extents);
}

/* By an axis counted from the front, and from the end, where each rank means another one. */
static void check_ndim(bool other) {
    aj_tensor *x = other ? cube(2, 2, 2) : matrix(2, 2);
    EXPECT_REFUSED(AJ_ERR_SHAPE, "aj_gather", aj_gather(x, 0, 0, world));
    EXPECT_REFUSED(AJ_ERR_SHAPE, "aj_allgather", aj_allgather(x, 1, world));
    EXPECT_REFUSED(AJ_ERR_SHAPE, "aj_alltoall", aj_alltoall(x, 0, 1, 1, world));
    EXPECT_REFUSED(AJ_ERR_SHAPE, "aj_alltoall", aj_alltoall(x, 1, 1, 2, world));
    EXPECT_REFUSED(AJ_ERR_SHAPE, "aj_reduce_scatter", aj_reduce_scatter(x, 0, rank_id == 0 ? 2 : 0, MPI_SUM, world));
    EXPECT_REFUSED(AJ_ERR_SHAPE, "aj_gather", aj_gather(x, -1, 0, world));
    EXPECT_REFUSED(AJ_ERR_SHAPE, "aj_allgather", aj_allgather(x, -1, world));
    EXPECT_REFUSED(AJ_ERR_SHAPE, "aj_alltoall", aj_alltoall(x, -1, -2, 1, world));
    EXPECT_REFUSED(AJ_ERR_SHAPE, "aj_reduce_scatter", aj_reduce_scatter(x, -1, rank_id == 0 ? 2 : 0, MPI_SUM, world));
}

static void ndim_differs(void) {
    with_one_other(check_ndim);
}

/* The axis exists for all ranks but one: a mismatch of shapes, which all must hear of. */
static void check_axis_missing(bool other) {
    aj_tensor *x = other ? matrix(2, 2) : cube(2, 2, 2);
    static const int axes[] = {2, -3};
    for (int k = 0; k < 2; k++) {
        CHECK(aj_gather(x, axes[k], 0, world) == NULL);
        CHECK(aj_ctx_status(ctx) == AJ_ERR_SHAPE || aj_ctx_status(ctx) == AJ_ERR_ARG);
        aj_ctx_clear_error(ctx);
    }
}

static void axis_missing(void) {
    with_one_other(check_axis_missing);
}

static void check_dtypes(bool other) {
    aj_tensor *x = aj_cast(matrix(rank_count, 2), other ? AJ_F32 : AJ_F64);
    EXPECT_REFUSED(AJ_ERR_DTYPE, "aj_gather", aj_gather(x, 0, 0, world));
    EXPECT_REFUSED(AJ_ERR_DTYPE, "aj_allgather", aj_allgather(x, 0, world));
    EXPECT_REFUSED(AJ_ERR_DTYPE, "aj_scatter", aj_scatter(x, 0, 1, 0, world));
    EXPECT_REFUSED(AJ_ERR_DTYPE, "aj_scatter", aj_scatter(x, 0, 1, rank_count - 1, world));
    EXPECT_REFUSED(AJ_ERR_DTYPE, "aj_alltoall", aj_alltoall(x, 1, 0, 1, world));
    EXPECT_REFUSED(AJ_ERR_DTYPE, "aj_reduce_scatter", aj_reduce_scatter(x, 0, 1, MPI_SUM, world));
    x = aj_cast(matrix(rank_count, 2), other ? AJ_I32 : AJ_F32); /* one has a derivative, the other none; their sizes are equal */
    EXPECT_REFUSED(AJ_ERR_DTYPE, "aj_allgather", aj_allgather(x, 0, world));
    EXPECT_REFUSED(AJ_ERR_DTYPE, "aj_scatter", aj_scatter(x, 0, 1, 0, world));
}

static void dtypes_differ(void) {
    with_one_other(check_dtypes);
}

static void check_axes(bool other) {
    aj_tensor *x = matrix(rank_count, rank_count);
    int axis = other ? 1 : 0;
    EXPECT_REFUSED(AJ_ERR_ARG, "aj_gather", aj_gather(x, axis, 0, world));
    EXPECT_REFUSED(AJ_ERR_ARG, "aj_allgather", aj_allgather(x, axis, world));
    EXPECT_REFUSED(AJ_ERR_ARG, "aj_scatter", aj_scatter(x, axis, 1, 0, world));
    EXPECT_REFUSED(AJ_ERR_ARG, "aj_scatter", aj_scatter(x, axis, 1, rank_count - 1, world));
    EXPECT_REFUSED(AJ_ERR_ARG, "aj_alltoall", aj_alltoall(x, axis, 0, 1, world));
    EXPECT_REFUSED(AJ_ERR_ARG, "aj_alltoall", aj_alltoall(x, 0, axis, 1, world));
    EXPECT_REFUSED(AJ_ERR_ARG, "aj_alltoall", aj_alltoall(x, axis, 1 - axis, 1, world));
    EXPECT_REFUSED(AJ_ERR_ARG, "aj_reduce_scatter", aj_reduce_scatter(x, axis, 1, MPI_SUM, world));
}

static void axes_differ(void) {
    with_one_other(check_axes);
}

/* One axis, written in two ways, is no mismatch. */
static void check_spellings(bool other) {
    aj_tensor *x = matrix(rank_count, rank_count);
    CHECK(aj_gather(x, other ? -1 : 1, 0, world) != NULL);
    CHECK(aj_allgather(x, other ? -2 : 0, world) != NULL);
    CHECK(aj_alltoall(x, other ? -2 : 0, other ? 1 : -1, 1, world) != NULL);
    CHECK(aj_reduce_scatter(x, other ? 1 : -1, 1, MPI_SUM, world) != NULL);
    CHECK_MSG(aj_scatter(x, other ? -1 : 1, 1, 0, world) != NULL, "%s", aj_ctx_error(ctx));
    aj_ctx_clear_error(ctx);
}

static void axis_spellings(void) {
    with_one_other(check_spellings);
}

static void check_roots(bool other) {
    aj_tensor *x = matrix(rank_count, 2);
    int wrong = other ? 1 : 0;
    CHECK(aj_gather(x, 0, wrong, world) == NULL);
    CHECK_CONTAINS(aj_ctx_error(ctx), "root");
    EXPECT_ERROR(AJ_ERR_ARG, "aj_gather");
    CHECK(aj_scatter(x, 0, 1, wrong, world) == NULL);
    CHECK_CONTAINS(aj_ctx_error(ctx), "root");
    EXPECT_ERROR(AJ_ERR_ARG, "aj_scatter");
    EXPECT_REFUSED(AJ_ERR_ARG, "aj_scatter", aj_scatter(rank_id == 0 ? x : zeros(1), 0, 1, wrong, world));
}

static void roots_differ(void) {
    with_one_other(check_roots);
}

/* Several things are wrong at once: which of them is named does not depend on whom a rank takes for the root. */
static void check_several(bool other) {
    aj_tensor *x = aj_cast(matrix(rank_count, 2), rank_id == 1 ? AJ_F32 : AJ_F64);
    CHECK(aj_scatter(x, 0, 1, other ? rank_count - 1 : 0, world) == NULL);
    double status = aj_ctx_status(ctx);
    CHECK_NEAR(world_sum(status), rank_count * status, 0);
    aj_ctx_clear_error(ctx);
}

static void several_differ(void) {
    with_one_other(check_several);
}

static void check_sums(bool other) {
    aj_tensor *x = matrix(rank_count, 2);
    for (int more = -1; more <= 1; more += 2) {
        int64_t numelem = 1 + (other ? more : 0);
        EXPECT_REFUSED(AJ_ERR_SHAPE, "aj_scatter", aj_scatter(x, 0, numelem, rank_count - 1, world));
        EXPECT_REFUSED(AJ_ERR_SHAPE, "aj_alltoall", aj_alltoall(x, 1, 0, numelem, world));
        EXPECT_REFUSED(AJ_ERR_SHAPE, "aj_alltoall", aj_alltoall(x, 0, 0, rank_count - 1 + numelem, world));
        EXPECT_REFUSED(AJ_ERR_SHAPE, "aj_reduce_scatter", aj_reduce_scatter(x, 0, numelem, MPI_SUM, world));
    }
}

static void sums_differ(void) {
    with_one_other(check_sums);
}

/* The sum is right, but one rank's share is negative. */
static void check_negative(bool other) {
    aj_tensor *x = matrix(rank_count - 2, 2), *y = matrix(1, 2);
    int64_t numelem = other ? -1 : 1;
    EXPECT_REFUSED(AJ_ERR_ARG, "aj_scatter", aj_scatter(x, 0, numelem, 0, world));
    EXPECT_REFUSED(AJ_ERR_ARG, "aj_alltoall", aj_alltoall(x, 1, 0, numelem, world));
    EXPECT_REFUSED(AJ_ERR_ARG, "aj_alltoall", aj_alltoall(y, 0, 0, numelem, world));
    EXPECT_REFUSED(AJ_ERR_ARG, "aj_reduce_scatter", aj_reduce_scatter(x, 0, numelem, MPI_SUM, world));
    EXPECT_REFUSED(AJ_ERR_ARG, "aj_scatter", aj_scatter(x, 0, other ? INT64_MIN : 1, 0, world));
}

static void negative(void) {
    with_one_other(check_negative);
}

/* Numbers whose sum overflows: from three ranks on to what is there. */
static void check_overflow(bool other) {
    (void)other;
    aj_tensor *x = matrix(2, 2);
    int64_t numelem = rank_id < 2 ? INT64_MAX : rank_id == 2 ? 4 : 0;
    EXPECT_REFUSED(AJ_ERR_SHAPE, "aj_scatter", aj_scatter(x, 0, numelem, 0, world));
    EXPECT_REFUSED(AJ_ERR_SHAPE, "aj_alltoall", aj_alltoall(x, 1, 0, numelem, world));
    EXPECT_REFUSED(AJ_ERR_SHAPE, "aj_reduce_scatter", aj_reduce_scatter(x, 0, numelem, MPI_SUM, world));
}

/* Tensors without entries, as long as they may be: together they are too long, which a gather finds on all ranks, not on the root alone. */
static void check_too_long(bool other) {
    (void)other;
    aj_tensor *x = aj_zeros(ctx, AJ_F64, AJ_SHAPE(INT64_MAX / 16, 0));
    CHECK(x != NULL);
    EXPECT_REFUSED(AJ_ERR_SHAPE, "aj_allgather", aj_allgather(x, 0, world));
    EXPECT_REFUSED(AJ_ERR_SHAPE, "aj_alltoall", aj_alltoall(x, 0, 1, 0, world));
    EXPECT_REFUSED(AJ_ERR_SHAPE, "aj_gather", aj_gather(x, 0, 0, world));
}

static void too_long_together(void) {
    with_one_other(check_too_long);
}

static void overflow(void) {
    with_one_other(check_overflow);
}

/* Wrong in the same way on all ranks; with one rank alone, too. */
static void axis_range(void) {
    open_world();
    static const int wrong[] = {2, -3, 1000, INT32_MIN, INT32_MAX};
    aj_tensor *x = matrix(rank_count, 2);
    for (int k = 0; k < 5; k++) {
        EXPECT_REFUSED(AJ_ERR_ARG, "aj_gather", aj_gather(x, wrong[k], 0, world));
        EXPECT_REFUSED(AJ_ERR_ARG, "aj_allgather", aj_allgather(x, wrong[k], world));
        EXPECT_REFUSED(AJ_ERR_ARG, "aj_scatter", aj_scatter(x, wrong[k], 1, 0, world));
        EXPECT_REFUSED(AJ_ERR_ARG, "aj_alltoall", aj_alltoall(x, wrong[k], 0, 1, world));
        EXPECT_REFUSED(AJ_ERR_ARG, "aj_alltoall", aj_alltoall(x, 0, wrong[k], 1, world));
        EXPECT_REFUSED(AJ_ERR_ARG, "aj_reduce_scatter", aj_reduce_scatter(x, wrong[k], 1, MPI_SUM, world));
        EXPECT_REFUSED(AJ_ERR_ARG, "aj_allgather", aj_allgather(aj_scalar(ctx, AJ_F64, 1), k - 2, world)); /* no axes at all */
    }
    int bad = rank_count;
    EXPECT_REFUSED(AJ_ERR_ARG, "aj_gather", aj_gather(x, 0, bad, world));
    EXPECT_REFUSED(AJ_ERR_ARG, "aj_gather", aj_gather(x, 0, -1, world));
    EXPECT_REFUSED(AJ_ERR_ARG, "aj_scatter", aj_scatter(x, 0, 1, bad, world));
    EXPECT_REFUSED(AJ_ERR_ARG, "aj_scatter", aj_scatter(x, 0, 1, -1, world));
    EXPECT_REFUSED(AJ_ERR_SHAPE, "aj_reduce_scatter", aj_reduce_scatter(x, 0, 2, MPI_SUM, world));
    EXPECT_REFUSED(AJ_ERR_ARG, "aj_gather", aj_gather(x, 0, 0, NULL));
    check_sound();
    close_world();
}

static void axis_reduction(void) {
    open_world();
    for (int recorded = 0; recorded < 2; recorded++) {
        if (recorded)
            CHECK_INT(aj_record_begin(ctx), AJ_OK);
        EXPECT_REFUSED(AJ_ERR_UNSUPPORTED, "aj_reduce_scatter", aj_reduce_scatter(zeros(rank_count), 0, 1, MPI_LAND, world));
        EXPECT_REFUSED(AJ_ERR_UNSUPPORTED, "aj_reduce_scatter", aj_reduce_scatter(zeros(rank_count), 0, 1, MPI_OP_NULL, world));
        EXPECT_REFUSED(AJ_ERR_UNSUPPORTED, "aj_scan", aj_scan(zeros(2), MPI_BXOR, world));
        EXPECT_REFUSED(AJ_ERR_UNSUPPORTED, "aj_scan", aj_scan(zeros(2), MPI_MINLOC, world));
        EXPECT_REFUSED(AJ_ERR_UNSUPPORTED, "aj_exscan", aj_exscan(zeros(2), MPI_LOR, world));
        EXPECT_REFUSED(AJ_ERR_UNSUPPORTED, "aj_exscan", aj_exscan(aj_ones(ctx, AJ_I32, AJ_SHAPE(2)), MPI_REPLACE, world));
        if (recorded)
            CHECK_INT(aj_record_end(ctx), AJ_OK);
    }
    check_sound();
    close_world();
}

/* ---- */

static void consumed(void) {
    open_world();
    aj_tensor *x = aj_full(ctx, AJ_F64, AJ_SHAPE(2), 3);
    CHECK(aj_add(x, aj_reduce_inplace(x, MPI_SUM, 0, world)) == NULL);
    EXPECT_ERROR(AJ_ERR_STATE, "reduce_inplace");
    CHECK_INT(aj_numel(x), 2); /* getters stay legal */
    CHECK(aj_allreduce(x, MPI_SUM, world) == NULL);
    EXPECT_ERROR(AJ_ERR_STATE, "reduce_inplace");
    aj_tensor *y = aj_full(ctx, AJ_F64, AJ_SHAPE(2), 3), *view = aj_slice(y, 0, 0, 1, 1);
    CHECK(aj_bcast_inplace(y, 0, world) != NULL);
    CHECK(aj_send(y, right(), 0, world) == NULL);
    EXPECT_ERROR(AJ_ERR_STATE, "bcast_inplace");
    CHECK_ALL(view, 1, 3, 0); /* a view of the memory keeps its value */
    check_sound();
    close_world();
}

static void null_arguments(void) {
    open_world();
    CHECK(aj_allreduce(zeros(2), MPI_SUM, NULL) == NULL);
    EXPECT_ERROR(AJ_ERR_ARG, "aj_allreduce");
    CHECK(aj_isend(zeros(2), 0, 0, NULL) == NULL);
    EXPECT_ERROR(AJ_ERR_ARG, "aj_isend");
    CHECK(aj_wait(NULL) == NULL);
    CHECK(aj_request_dummy(NULL) == NULL);
    CHECK(aj_comm_create(NULL, MPI_COMM_WORLD) == NULL);
    CHECK_INT(aj_comm_size(NULL), 0);
    CHECK_INT(aj_comm_rank(NULL), -1);
    CHECK(aj_comm_mpi(NULL) == MPI_COMM_NULL);
    CHECK(aj_comm_ctx(NULL) == NULL);
    CHECK(aj_barrier(NULL) != AJ_OK);
    CHECK(aj_agree(NULL) != AJ_OK);
    aj_comm_destroy(NULL);
    aj_ctx_clear_error(ctx);
    check_sound();
    close_world();
}

/* A message that does not fit into the buffer, on every rank. */
static void too_long(void) {
    open_world();
    aj_send(aj_full(ctx, AJ_F64, AJ_SHAPE(5), 1), right(), 9, world);
    CHECK(aj_recv(zeros(2), left(), 9, world) == NULL);
    EXPECT_ERROR(is_checked() ? AJ_ERR_SHAPE : AJ_ERR_MPI, "aj_recv");
    check_sound();
    close_world();
}

/* The vjp of a custom operation fails on all ranks, when gradients of messages are already under way. */
static aj_status copy_forward(const aj_call *call) {
    memcpy(call->out[0].data, call->in[0].data, 2 * sizeof(double));
    return AJ_OK;
}

static aj_status failing_vjp(const aj_call *call) {
    return aj_raise(call->ctx, AJ_ERR_USER, "failing_vjp: as told");
}

static void abandoned(void) {
    static const aj_op op = {.size = sizeof(aj_op), .name = "failing", .n_out = 1, .forward = copy_forward, .vjp = failing_vjp};
    open_world();
    aj_tensor *a = vector_param(ctx, 2, 1), *d = NULL;
    for (int k = 0; k < 3; k++) {
        CHECK_INT(aj_record_begin(ctx), AJ_OK);
        aj_tensor *total = aj_allreduce(a, MPI_SUM, world);
        aj_send(a, right(), 0, world);
        aj_send(aj_scale(total, 2), left(), 0, world);
        CHECK_INT(aj_apply(ctx, &op, NULL, NULL, 1, &a, 1, &d), AJ_OK);
        aj_tensor *b = aj_recv(zeros(2), left(), 0, world), *c = aj_recv(zeros(2), right(), 0, world);
        meet();
        aj_status status = aj_backward(ctx, aj_sum(aj_scale(aj_add(aj_add(b, c), d), -1000)), NULL);
        CHECK_INT(status, aj_ctx_status(ctx));
        EXPECT_ERROR(AJ_ERR_USER, "as told");
        CHECK_ALL(aj_grad(a), 2, 0, 0);
        check_sound();
    }
    aj_release(&a);
    close_world();
}

/* ---- agreement ---- */

/* Ranks k with failing(k) are in error; all get the lowest one's status and message, clear it and go on. */
static void check_agree(bool (*failing)(int rank)) {
    int lowest = 0;
    while (lowest < rank_count && !failing(lowest))
        lowest++;
    static const aj_status statuses[] = {AJ_ERR_USER, AJ_ERR_NUMERIC, AJ_ERR_IO};
    if (failing(rank_id))
        aj_raise(ctx, statuses[rank_id % 3], "bad luck number %d", 100 + rank_id);
    char wanted[64];
    snprintf(wanted, sizeof wanted, "bad luck number %d", 100 + lowest);
    aj_status status = aj_agree(world);
    if (lowest == rank_count) {
        CHECK_INT(status, AJ_OK);
    } else {
        CHECK_INT(status, statuses[lowest % 3]);
        CHECK(aj_ctx_status(ctx) != AJ_OK);
        CHECK_CONTAINS(aj_ctx_error(ctx), wanted);
        aj_ctx_clear_error(ctx);
    }
    CHECK_INT(aj_agree(world), AJ_OK);
    check_sound();
}

static bool nobody(int rank) {
    (void)rank;
    return false;
}

static bool everybody(int rank) {
    (void)rank;
    return true;
}

static bool the_last(int rank) {
    return rank == rank_count - 1;
}

static bool the_first(int rank) {
    return rank == 0;
}

static bool the_odd(int rank) {
    return rank % 2 == 1;
}

static void agree(void) {
    open_world();
    check_agree(nobody);
    check_agree(everybody);
    check_agree(the_last);
    check_agree(the_first);
    check_agree(the_odd);
    check_agree(the_last);
    close_world();
}

/* The loop that leaves on what was agreed, inside scopes and with a recording open; the error is not cleared before the end. */
static void agree_loop(void) {
    open_world();
    int it;
    for (it = 0; it < 10; it++) {
        aj_scope *scope = aj_scope_begin(ctx);
        CHECK_INT(aj_record_begin(ctx), AJ_OK);
        aj_tensor *total = aj_allreduce(zeros(2), MPI_SUM, world);
        if (it == 4 && rank_id == rank_count / 2)
            total = aj_add(total, zeros(3));
        aj_status status = aj_agree(world);
        aj_status ended = aj_scope_end(scope);
        CHECK_INT(status, it == 4 ? AJ_ERR_SHAPE : AJ_OK);
        CHECK((ended == AJ_OK) == (status == AJ_OK));
        if (status != AJ_OK)
            break;
    }
    CHECK_INT(it, 4);
    CHECK(!aj_is_recording(ctx));
    aj_comm_destroy(&world); /* all know: this ends no job */
    CHECK(aj_ctx_destroy(&ctx) != AJ_OK);
}

/* ---- requests ---- */

/* A ring of one message, started and not yet waited for. */
typedef struct pair {
    aj_request *out, *in;
} pair;

static pair start(aj_comm *comm) {
    pair p = {.out = aj_isend(aj_full(ctx, AJ_F64, AJ_SHAPE(2), 1.0 + rank_id), right(), 4, comm)};
    p.in = aj_irecv(zeros(2), left(), 4, comm);
    meet(); /* in checked mode a rank that starts later would be told of the errors to come */
    return p;
}

static void finish(pair p) {
    CHECK_ALL(aj_wait(p.in), 2, 1 + left(), 0);
    CHECK_ALL(aj_wait(p.out), 2, 1 + rank_id, 0);
    CHECK_INT(aj_ctx_stat(ctx, AJ_STAT_REQUESTS), 0);
}

/* The error names the call that came too early and a message that is still open. */
#define EXPECT_OPEN(call) expect_open(__LINE__, call)
static void expect_open(int line, const char *call) {
    const char *text = aj_ctx_error(ctx);
    CHECK_MSG(strstr(text, "isend") || strstr(text, "irecv"), "line %d: \"%s\" names no message", line, text);
    expect_error(line, AJ_ERR_STATE, call);
}

static void spent(void) {
    open_world();
    for (int recorded = 0; recorded < 2; recorded++) {
        if (recorded)
            CHECK_INT(aj_record_begin(ctx), AJ_OK);
        pair p = start(world);
        CHECK_INT(aj_ctx_stat(ctx, AJ_STAT_REQUESTS), 2);
        finish(p);
        CHECK(aj_wait(p.in) == NULL);
        EXPECT_ERROR(AJ_ERR_STATE, "irecv");
        CHECK(aj_wait(p.out) == NULL);
        EXPECT_ERROR(AJ_ERR_STATE, "isend");
        CHECK(aj_request_join_dummies(p.in, 0, NULL) == NULL);
        EXPECT_ERROR(AJ_ERR_STATE, "join_dummies");
        if (recorded)
            CHECK_INT(aj_record_end(ctx), AJ_OK);
    }
    check_sound();
    close_world();
}

/* After an error a request may be given up, or not: its wait gives the value or an error that says so, and it is open no more. */
static void try_finish(pair p) {
    aj_request *requests[] = {p.in, p.out};
    for (int k = 0; k < 2; k++) {
        aj_tensor *t = aj_wait(requests[k]);
        if (t)
            CHECK_ALL(t, 2, 1 + (k == 0 ? left() : rank_id), 0);
        else
            EXPECT_ERROR(AJ_ERR_STATE, "aj_wait");
    }
    CHECK_INT(aj_ctx_stat(ctx, AJ_STAT_REQUESTS), 0);
}

static aj_status call_grad_of(aj_ctx *c) {
    aj_tensor *none = NULL, *grad = NULL, *total = aj_scale(aj_ones(c, AJ_F64, AJ_SHAPE(1)), 2);
    aj_status status = aj_grad_of(c, 1, &total, NULL, 0, &none, &grad, 0);
    CHECK(grad == NULL);
    return status;
}

/* A recording call or a no-grad switch with an open request is an error. */
static void open_request(void) {
    static const struct {
        const char *name;
        aj_status (*call)(aj_ctx *c);
        bool recorded;
    } calls[] = {{"aj_record_begin", aj_record_begin, false},  {"aj_record_stop", aj_record_stop, true},
                 {"aj_record_end", aj_record_end, true},       {"aj_no_grad_begin", aj_no_grad_begin, false},
                 {"aj_no_grad_begin", aj_no_grad_begin, true}, {"aj_grad_of", call_grad_of, true}};
    open_world();
    for (int k = 0; k < (int)(sizeof calls / sizeof calls[0]); k++) {
        aj_scope *scope = aj_scope_begin(ctx); /* its end drops the recording */
        if (calls[k].recorded)
            CHECK_INT(aj_record_begin(ctx), AJ_OK);
        pair p = start(world);
        CHECK_INT(calls[k].call(ctx), AJ_ERR_STATE);
        EXPECT_OPEN(calls[k].name);
        try_finish(p);
        CHECK_INT(aj_scope_end(scope), AJ_OK);
        check_sound();
    }
    close_world();
}

/* Backward with an open request drops the recording; the request belongs to none from then on. */
static void open_at_backward(void) {
    open_world();
    aj_tensor *a = vector_param(ctx, 2, 1);
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    aj_tensor *total = aj_allreduce(a, MPI_SUM, world);
    pair p = start(world);
    CHECK_INT(aj_backward(ctx, total, NULL), AJ_ERR_STATE);
    EXPECT_OPEN("aj_backward");
    CHECK_ALL(aj_grad(a), 2, 0, 0);
    CHECK(!aj_is_recording(ctx));
    CHECK(aj_wait(p.in) == NULL); /* started inside, waited outside */
    EXPECT_ERROR(AJ_ERR_STATE, "aj_wait");
    CHECK(aj_wait(p.out) == NULL);
    EXPECT_ERROR(AJ_ERR_STATE, "aj_wait");
    CHECK_INT(aj_ctx_stat(ctx, AJ_STAT_REQUESTS), 0);
    aj_release(&a);
    check_sound();
    close_world();
}

/* The scope that began the recording ends before the wait. */
static void waited_outside(void) {
    open_world();
    aj_scope *scope = aj_scope_begin(ctx);
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    pair p = start(world);
    aj_scope_return_request(scope, p.in);
    aj_scope_return_request(scope, p.out);
    CHECK_INT(aj_scope_end(scope), AJ_OK);
    CHECK(!aj_is_recording(ctx));
    CHECK(aj_wait(p.in) == NULL);
    EXPECT_ERROR(AJ_ERR_STATE, "aj_wait");
    CHECK(aj_wait(p.out) == NULL);
    EXPECT_ERROR(AJ_ERR_STATE, "aj_wait");
    CHECK_INT(aj_ctx_stat(ctx, AJ_STAT_REQUESTS), 0);
    check_sound();
    close_world();
}

/* Of a scope that ends, a request stays with the context and can still be waited for. */
static void outlives_scope(void) {
    open_world();
    aj_scope *scope = aj_scope_begin(ctx);
    pair p = start(world);
    CHECK_INT(aj_scope_end(scope), AJ_OK);
    finish(p);
    check_sound();
    close_world();
}

static void open_at_comm_destroy(void) {
    open_world();
    MPI_Comm copy;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    aj_comm *comm = aj_comm_create(ctx, copy);
    MPI_Comm_free(&copy);
    pair p = start(comm);
    aj_comm_destroy(&comm);
    EXPECT_ERROR(AJ_ERR_STATE, "aj_comm_destroy");
    aj_wait(p.in); /* an error or a value, but neither a crash nor a hang */
    aj_wait(p.out);
    aj_ctx_clear_error(ctx);
    check_sound();
    aj_comm_destroy(&comm);
    close_world();
}

static void open_at_ctx_destroy(void) {
    open_world();
    start(world);
    CHECK_INT(aj_ctx_destroy(&ctx), AJ_ERR_LEAK);
    CHECK_CONTAINS(world_log, "isend");
    CHECK_CONTAINS(world_log, "irecv");
}

/* Neither the communicator nor what it carried was given back: reported, freed, and no trouble for MPI_Finalize. */
static void forgotten(void) {
    open_world();
    aj_tensor *a = vector_param(ctx, 2, 1);
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    aj_allreduce(a, MPI_SUM, world);
    CHECK_INT(aj_ctx_destroy(&ctx), AJ_ERR_LEAK);
    CHECK(world_log[0]);
}

/* ---- contexts and communicators ---- */

static void contexts(void) {
    open_world();
    aj_ctx *other = NULL;
    open_ctx(&other);
    aj_tensor *foreign = aj_zeros(other, AJ_F64, AJ_SHAPE(2));
    CHECK(aj_allreduce(foreign, MPI_SUM, world) == NULL);
    CHECK(aj_ctx_status(ctx) == AJ_ERR_CONTEXT || aj_ctx_status(other) == AJ_ERR_CONTEXT);
    aj_ctx_clear_error(ctx);
    aj_ctx_clear_error(other);
    CHECK(aj_isend(foreign, right(), 0, world) == NULL);
    CHECK(aj_ctx_status(ctx) == AJ_ERR_CONTEXT || aj_ctx_status(other) == AJ_ERR_CONTEXT);
    aj_ctx_clear_error(ctx);
    aj_ctx_clear_error(other);
    pair p = start(world);
    CHECK(aj_request_join_dummies(p.in, 1, &foreign) == NULL);
    CHECK(aj_ctx_status(ctx) == AJ_ERR_CONTEXT || aj_ctx_status(other) == AJ_ERR_CONTEXT);
    aj_ctx_clear_error(ctx);
    aj_ctx_clear_error(other);
    finish(p);
    CHECK(aj_comm_ctx(world) == ctx);
    close_ctx(&other);
    check_sound();
    close_world();
}

static void intercommunicator(void) {
    open_world();
    if (rank_count > 1) {
        MPI_Comm half, inter;
        MPI_Comm_split(MPI_COMM_WORLD, rank_id > 0, rank_id, &half);
        MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank_id > 0 ? 0 : 1, 5, &inter);
        CHECK(aj_comm_create(ctx, inter) == NULL);
        EXPECT_ERROR(AJ_ERR_ARG, "aj_comm_create");
        MPI_Comm_free(&inter);
        MPI_Comm_free(&half);
    }
    check_sound();
    close_world();
}

/* Of a communicator of no ranks, split off, nothing is left either. */
static void split_errors(void) {
    open_world();
    CHECK(aj_comm_split(world, -7, 0) == NULL);
    EXPECT_ERROR(AJ_ERR_ARG, "aj_comm_split");
    CHECK(aj_comm_split(NULL, 0, 0) == NULL);
    aj_comm *none = aj_comm_split(world, MPI_UNDEFINED, 0), *part = aj_comm_split(none, 0, 0);
    CHECK_INT(aj_comm_size(part), 0);
    aj_comm_destroy(&part);
    aj_comm_destroy(&none);
    check_sound();
    close_world();
}

static void null_communicator(void) {
    open_world();
    aj_comm *none = aj_comm_create(ctx, MPI_COMM_NULL);
    CHECK(none != NULL);
    CHECK_INT(aj_comm_size(none), 0);
    CHECK_INT(aj_comm_rank(none), MPI_PROC_NULL);
    aj_tensor *a = vector_param(ctx, 3, 1);
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    aj_tensor *y = aj_add(aj_allreduce(a, MPI_SUM, none), aj_bcast(a, 0, none));
    y = aj_add(y, aj_reduce(aj_shared(a, none), MPI_SUM, 0, none));
    y = aj_add(y, aj_send(a, MPI_PROC_NULL, 0, none));
    y = aj_add(y, aj_recv(a, MPI_PROC_NULL, 0, none));
    y = aj_add(y, aj_wait(aj_isend(a, MPI_PROC_NULL, 0, none)));
    y = aj_add(y, aj_wait(aj_irecv(a, MPI_PROC_NULL, 0, none)));
    y = aj_add(y, aj_add(aj_gather(a, 0, 0, none), aj_allgather(a, 0, none)));
    y = aj_add(y, aj_add(aj_scatter(a, 0, 3, 0, none), aj_reduce_scatter(a, 0, 3, MPI_SUM, none)));
    y = aj_add(y, aj_add(aj_alltoall(a, 0, 0, 3, none), aj_scan(a, MPI_SUM, none)));
    y = aj_add(y, aj_sendrecv(a, MPI_PROC_NULL, 0, a, MPI_PROC_NULL, 0, none));
    CHECK_INT(aj_barrier(none), AJ_OK);
    CHECK_INT(aj_numel(y), 3);
    CHECK_INT(aj_backward(ctx, y, NULL), AJ_OK);
    CHECK_INT(aj_agree(none), AJ_OK);
    double *grad = values_of(aj_grad(a), 3);
    CHECK_MSG(grad[0] == rint(grad[0]) && grad[0] >= 3 && grad[0] <= 14 && grad[0] == grad[1] && grad[1] == grad[2],
              "gradient %g %g %g: not of inputs that come out unchanged or as zeros", grad[0], grad[1], grad[2]);
    free(grad);
    aj_release(&a);
    aj_comm_destroy(&none);
    CHECK(none == NULL);
    check_sound();
    close_world();
}

RANK_MAIN({"shape", shape}, {"before-backward", before_backward}, {"root", root}, {"tag", tag}, {"peer", peer},
          {"reduction", reduction}, {"extents-differ", extents_differ}, {"ndim-differs", ndim_differs},
          {"axis-missing", axis_missing}, {"dtypes-differ", dtypes_differ}, {"axes-differ", axes_differ},
          {"axis-spellings", axis_spellings}, {"roots-differ", roots_differ}, {"several-differ", several_differ},
          {"sums-differ", sums_differ}, {"negative", negative}, {"overflow", overflow}, {"too-long-together", too_long_together},
          {"axis-range", axis_range}, {"axis-reduction", axis_reduction}, {"consumed", consumed},
          {"null-arguments", null_arguments}, {"too-long", too_long}, {"abandoned", abandoned}, {"agree", agree},
          {"agree-loop", agree_loop}, {"spent", spent}, {"open-request", open_request}, {"open-at-backward", open_at_backward},
          {"waited-outside", waited_outside}, {"outlives-scope", outlives_scope}, {"open-at-comm-destroy", open_at_comm_destroy},
          {"open-at-ctx-destroy", open_at_ctx_destroy}, {"forgotten", forgotten}, {"contexts", contexts},
          {"intercommunicator", intercommunicator}, {"split-errors", split_errors}, {"null-communicator", null_communicator})
