/*
 * Halo exchange on two-dimensional Cartesian communicators, periodic or not along each dimension: values against the global field, corners included, and
 * gradients against the transpose of what the values are.
 */
#include "mpi_common.h"

enum { INNER_0 = 3, INNER_1 = 4, WIDTH_0 = 1, WIDTH_1 = 2, EXTENT_0 = INNER_0 + 2 * WIDTH_0, EXTENT_1 = INNER_1 + 2 * WIDTH_1 };
static const int64_t width[2] = {WIDTH_0, WIDTH_1};

typedef struct grid {
    int dims[2], periods[2], at[2];
    bool swapped; /* dimension 0 of the grid is the tensor's last axis */
    int axes[2];
    int64_t shape[2];
    aj_comm *comm;
} grid;

static grid open_grid(int periods, bool swapped) {
    grid g = {.periods = {periods & 1, periods >> 1}, .swapped = swapped, .axes = {swapped ? -1 : 0, swapped ? 0 : 1}};
    g.shape[swapped] = EXTENT_0;
    g.shape[!swapped] = EXTENT_1;
    MPI_Dims_create(rank_count, 2, g.dims);
    MPI_Comm cart;
    MPI_Cart_create(MPI_COMM_WORLD, 2, g.dims, g.periods, 0, &cart);
    MPI_Cart_coords(cart, rank_id, 2, g.at);
    g.comm = aj_comm_create(ctx, cart);
    MPI_Comm_free(&cart);
    return g;
}

static int64_t index_of(const grid *g, int64_t a, int64_t b) {
    return g->swapped ? b * g->shape[1] + a : a * g->shape[1] + b;
}

/* Where a local entry lies in the global field; false: beyond an edge that has no neighbour. */
static bool global_place(const grid *g, int64_t a, int64_t b, int64_t *place) {
    int64_t n0 = INNER_0 * g->dims[0], n1 = INNER_1 * g->dims[1], i = g->at[0] * INNER_0 + a - WIDTH_0,
            j = g->at[1] * INNER_1 + b - WIDTH_1;
    if ((!g->periods[0] && (i < 0 || i >= n0)) || (!g->periods[1] && (j < 0 || j >= n1)))
        return false;
    *place = (i + n0) % n0 * n1 + (j + n1) % n1;
    return true;
}

static bool is_inner(int64_t a, int64_t b) {
    return a >= WIDTH_0 && a < WIDTH_0 + INNER_0 && b >= WIDTH_1 && b < WIDTH_1 + INNER_1;
}

static void fill_field(const grid *g, double *x) {
    for (int64_t a = 0; a < EXTENT_0; a++)
        for (int64_t b = 0; b < EXTENT_1; b++) {
            int64_t place = 0;
            global_place(g, a, b, &place);
            x[index_of(g, a, b)] = is_inner(a, b) ? number(3, 0, place) : number(4, rank_id, index_of(g, a, b));
        }
}

static void check_field(const grid *g, const double *x, const double *y) {
    for (int64_t a = 0; a < EXTENT_0; a++)
        for (int64_t b = 0; b < EXTENT_1; b++) {
            int64_t place = 0, i = index_of(g, a, b);
            bool inside = global_place(g, a, b, &place);
            bool corner = (a < WIDTH_0 || a >= WIDTH_0 + INNER_0) && (b < WIDTH_1 || b >= WIDTH_1 + INNER_1);
            if (inside)
                CHECK_NEAR(y[i], number(3, 0, place), 0);
            else if (!corner) /* a corner beyond an edge is the neighbour's own edge ghost, or stays */
                CHECK_NEAR(y[i], x[i], 0);
        }
}

/* The sum over ranks of <seed, y>: an inner entry gets the seeds of all places that show it. On fully periodic grids the seeds depend on the place alone, so
 * that each can be counted here. */
static void check_gradient(const grid *g, const double *gx) {
    double *copies = calloc((size_t)(INNER_0 * g->dims[0] * INNER_1 * g->dims[1]), sizeof *copies);
    for (int c0 = 0; c0 < g->dims[0]; c0++)
        for (int c1 = 0; c1 < g->dims[1]; c1++) {
            grid other = *g;
            other.at[0] = c0;
            other.at[1] = c1;
            for (int64_t a = 0; a < EXTENT_0; a++)
                for (int64_t b = 0; b < EXTENT_1; b++) {
                    int64_t place = 0;
                    global_place(&other, a, b, &place);
                    copies[place] += number(6, 0, place * 100 + a * EXTENT_1 + b);
                }
        }
    for (int64_t a = 0; a < EXTENT_0; a++)
        for (int64_t b = 0; b < EXTENT_1; b++) {
            int64_t place = 0;
            global_place(g, a, b, &place);
            CHECK_NEAR(gx[index_of(g, a, b)], is_inner(a, b) ? copies[place] : 0, 1e-13);
        }
    free(copies);
}

static void check_grid(int periods, bool swapped, bool inplace) {
    grid g = open_grid(periods, swapped);
    aj_scope *scope = aj_scope_begin(ctx);
    aj_scope_name(scope, "periods %d, swapped %d, in place %d", periods, swapped, inplace);
    enum { COUNT = EXTENT_0 * EXTENT_1 };
    double x[COUNT], y[COUNT], seed[COUNT];
    fill_field(&g, x);
    for (int64_t a = 0; a < EXTENT_0; a++)
        for (int64_t b = 0; b < EXTENT_1; b++) {
            int64_t place = 0;
            global_place(&g, a, b, &place);
            seed[index_of(&g, a, b)] = number(6, 0, place * 100 + a * EXTENT_1 + b);
        }
    aj_tensor *leaf = aj_param(aj_from_data(ctx, AJ_F64, 2, g.shape, x));
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    aj_tensor *out =
        inplace ? aj_halo_inplace(aj_scale(leaf, 1), 2, g.axes, width, g.comm) : aj_halo(leaf, 2, g.axes, width, g.comm);
    if (CHECK_INT(aj_read(out, y, sizeof y), AJ_OK))
        check_field(&g, x, y);
    CHECK_INT(aj_backward(ctx, out, aj_from_data(ctx, AJ_F64, 2, g.shape, seed)), AJ_OK);
    if (periods == 3 && CHECK_INT(aj_read(aj_grad(leaf), y, sizeof y), AJ_OK))
        check_gradient(&g, y);
    aj_release(&leaf);
    CHECK_INT(aj_scope_end(scope), AJ_OK);
    aj_comm_destroy(&g.comm);
}

static void fields(void) {
    open_world();
    for (int periods = 0; periods < 4; periods++)
        for (int variant = 0; variant < 4; variant++)
            check_grid(periods, variant & 1, variant & 2);
    close_world();
}

/* Forward mode against reverse mode, first and second order, at edges too; and central differences. */
static grid checked;

static aj_tensor *cubed(aj_ctx *c, int n, aj_tensor *const *x, void *inplace) {
    (void)c, (void)n;
    aj_tensor *y = inplace ? aj_halo_inplace(aj_scale(x[0], 1), 2, checked.axes, width, checked.comm)
                           : aj_halo(x[0], 2, checked.axes, width, checked.comm);
    return aj_mul(y, aj_square(y));
}

static void checks(void) {
    open_world();
    for (int periods = 0; periods < 4; periods++) {
        checked = open_grid(periods, periods % 2);
        aj_scope *scope = aj_scope_begin(ctx);
        aj_tensor *x = aj_uniform(ctx, AJ_F64, 2, checked.shape, (uint64_t)rank_id + 3);
        aj_check result = {.size = sizeof result};
        for (int inplace = 0; inplace < 2; inplace++) {
            CHECK_INT(aj_dot_test(ctx, cubed, inplace ? &checked : NULL, 1, &x, checked.comm, &result), AJ_OK);
            CHECK_MSG(result.passed, "periods %d: dot test: %.17g, %.17g", periods, result.expected, result.got);
        }
        if (periods == 1) {
            CHECK_INT(aj_gradcheck(ctx, cubed, NULL, 1, &x, checked.comm, &result), AJ_OK);
            CHECK_MSG(result.passed, "central differences: %.17g, adjoint %.17g", result.expected, result.got);
        }
        CHECK_INT(aj_scope_end(scope), AJ_OK);
        aj_comm_destroy(&checked.comm);
    }
    close_world();
}

/* The consuming form writes into the field's own memory. */
static void in_place(void) {
    open_world();
    grid g = open_grid(3, false);
    aj_scope *scope = aj_scope_begin(ctx);
    aj_tensor *x = aj_uniform(ctx, AJ_F64, 2, g.shape, 1), *y = NULL;
    const void *before = aj_data(x);
    y = aj_halo_inplace(x, 2, g.axes, width, g.comm);
    CHECK(aj_data(y) == before);
    aj_halo(x, 2, g.axes, width, g.comm);
    CHECK_INT(aj_ctx_status(ctx), AJ_ERR_STATE);
    CHECK_CONTAINS(aj_ctx_error(ctx), "consumed");
    aj_ctx_clear_error(ctx);
    CHECK_INT(aj_scope_end(scope), AJ_OK);
    aj_comm_destroy(&g.comm);
    close_world();
}

/* Mistakes that all ranks make: returned on all, and the program goes on. */
static void mistakes(void) {
    open_world();
    grid g = open_grid(0, false);
    aj_scope *scope = aj_scope_begin(ctx);
    aj_tensor *x = aj_zeros(ctx, AJ_F64, 2, g.shape);
    struct {
        aj_comm *comm;
        int n, axes[2];
        int64_t width[2];
        aj_status status;
    } wrong[] = {{world, 2, {0, 1}, {1, 1}, AJ_ERR_ARG},     {g.comm, 1, {0, 1}, {1, 1}, AJ_ERR_ARG},
                 {g.comm, 2, {0, 2}, {1, 1}, AJ_ERR_ARG},    {g.comm, 2, {0, -2}, {1, 1}, AJ_ERR_ARG},
                 {g.comm, 2, {0, 1}, {-1, 1}, AJ_ERR_SHAPE}, {g.comm, 2, {0, 1}, {EXTENT_0, 1}, AJ_ERR_SHAPE}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK(aj_halo(x, wrong[i].n, wrong[i].axes, wrong[i].width, wrong[i].comm) == NULL);
        CHECK_INT(aj_ctx_status(ctx), wrong[i].status);
        CHECK_CONTAINS(aj_ctx_error(ctx), "aj_halo");
        aj_ctx_clear_error(ctx);
    }
    CHECK(aj_halo(x, 2, g.axes, width, g.comm) != NULL);
    CHECK_INT(aj_scope_end(scope), AJ_OK);
    aj_comm_destroy(&g.comm);
    close_world();
}

RANK_MAIN({"fields", fields}, {"checks", checks}, {"in_place", in_place}, {"mistakes", mistakes})
