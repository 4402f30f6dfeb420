/*
 * Halo exchange on Cartesian communicators of one to three dimensions, periodic or not along each. The model knows nothing of faces and of an order of axes:
 * on each axis by itself, an index is the rank's own or lies in a neighbour's inner entries, so F picks for each entry of each rank one entry of one rank;
 * its transpose adds up. Inputs and seeds differ by rank and entry, and are such that all sums and products are exact.
 */
#include "mpi_layouts.h"

enum { MAX_DIMS = 3 };

typedef struct grid {
    int d, dims[MAX_DIMS], periods[MAX_DIMS];
    aj_comm *comm;
} grid;

static grid open_grid(int d, int periods) {
    grid g = {.d = d};
    for (int i = 0; i < d; i++)
        g.periods[i] = periods >> i & 1;
    MPI_Dims_create(rank_count, d, g.dims);
    MPI_Comm cart;
    MPI_Cart_create(MPI_COMM_WORLD, d, g.dims, g.periods, 0, &cart);
    g.comm = aj_comm_create(ctx, cart);
    MPI_Comm_free(&cart); /* the library's duplicate keeps the topology */
    return g;
}

/* ---- fields and the model ---- */

typedef struct field {
    const grid *g;
    int ndim, axes[MAX_DIMS], place[MAX_DIMS]; /* as passed; counted from the front */
    int64_t width[MAX_DIMS];
    bool empty;      /* some blocks are */
    int64_t *first;  /* [rank]: where its entries begin in the arrays of the model; [rank_count]: how many there are */
    int64_t *source; /* [entry]: which one it shows */
} field;

/* Blocks are of different lengths, from the least that the width allows. */
static int64_t inner_extent(const field *f, int dim, int at) {
    return f->width[dim] > 0 ? f->width[dim] + (at + dim) % 3 : f->empty ? at % 2 : 1 + at % 2;
}

static void coordinates(const grid *g, int rank, int *at) {
    for (int i = g->d - 1; i >= 0; i--) { /* row-major, as the standard says */
        at[i] = rank % g->dims[i];
        rank /= g->dims[i];
    }
}

static extents block(const field *f, const int *at) {
    extents e = {.ndim = f->ndim, .n = {2, 2, 2, 2}};
    for (int i = 0; i < f->g->d; i++)
        e.n[f->place[i]] = inner_extent(f, i, at[i]) + 2 * f->width[i];
    return e;
}

static extents block_of(const field *f, int rank) {
    int at[MAX_DIMS];
    coordinates(f->g, rank, at);
    return block(f, at);
}

/* Along one dimension: does the index lie in a neighbour's block? Then move there. */
static void move_home(const field *f, int dim, int *at, int64_t *index) {
    const grid *g = f->g;
    int64_t w = f->width[dim], high = inner_extent(f, dim, *at) + w;
    int step = *index < w ? -1 : *index >= high ? 1 : 0, there = *at + step;
    if (step == 0 || (!g->periods[dim] && (there < 0 || there >= g->dims[dim])))
        return;
    *at = (there + g->dims[dim]) % g->dims[dim];
    *index = step < 0 ? inner_extent(f, dim, *at) + *index : w + *index - high;
}

static int64_t source_of(const field *f, int rank, int64_t entry) {
    extents e = block_of(f, rank);
    int64_t index[4];
    int at[MAX_DIMS], home = 0;
    coordinates(f->g, rank, at);
    for (int i = f->ndim - 1; i >= 0; i--) {
        index[i] = entry % e.n[i];
        entry /= e.n[i];
    }
    for (int i = 0; i < f->g->d; i++) {
        move_home(f, i, &at[i], &index[f->place[i]]);
        home = home * f->g->dims[i] + at[i];
    }
    e = block(f, at);
    for (int i = 0; i < f->ndim; i++)
        entry = entry * e.n[i] + index[i];
    return f->first[home] + entry;
}

/* Axes in some order and counted from either end, widths 0 to 3, up to one axis that is not divided: all told by `variant`. */
static field open_field(const grid *g, int variant) {
    field f = {.g = g, .ndim = g->d + variant % 2, .empty = variant % 5 == 3};
    for (int i = 0; i < g->d; i++) {
        f.place[i] = variant % 3 == 0 ? i : variant % 3 == 1 ? f.ndim - 1 - i : (i + 1) % f.ndim;
        f.axes[i] = (variant / 2 + i) % 2 ? f.place[i] - f.ndim : f.place[i];
        f.width[i] = (variant + i + 1) % 4;
    }
    f.first = calloc((size_t)rank_count + 1, sizeof *f.first);
    for (int r = 0; r < rank_count; r++) {
        extents e = block_of(&f, r);
        f.first[r + 1] = f.first[r] + entries(&e);
    }
    f.source = calloc((size_t)f.first[rank_count] + 1, sizeof *f.source);
    for (int r = 0; r < rank_count; r++)
        for (int64_t i = 0; i < f.first[r + 1] - f.first[r]; i++)
            f.source[f.first[r] + i] = source_of(&f, r, i);
    return f;
}

static void close_field(field *f) {
    free(f->first), free(f->source);
}

static int64_t total(const field *f) {
    return f->first[rank_count];
}

static int64_t mine(const field *f) {
    return f->first[rank_id + 1] - f->first[rank_id];
}

/* The arrays of the model hold the entries of all ranks; they are the caller's. */
static double *model_numbers(const field *f, aj_dtype dtype, uint64_t seed) {
    double *x = calloc((size_t)total(f) + 1, sizeof *x);
    for (int r = 0; r < rank_count; r++)
        for (int64_t i = f->first[r]; i < f->first[r + 1]; i++)
            x[i] = number_in(dtype, seed, r, i - f->first[r]);
    return x;
}

static double *model_halo(const field *f, const double *x) {
    double *y = calloc((size_t)total(f) + 1, sizeof *y);
    for (int64_t i = 0; i < total(f); i++)
        y[i] = x[f->source[i]];
    return y;
}

static double *model_adjoint(const field *f, const double *g) {
    double *gx = calloc((size_t)total(f) + 1, sizeof *gx);
    for (int64_t i = 0; i < total(f); i++)
        gx[f->source[i]] += g[i];
    return gx;
}

/* This rank's part of an array of the model. */
static aj_tensor *tensor_from(const field *f, aj_dtype dtype, const double *x) {
    extents e = block_of(f, rank_id);
    return tensor_of(ctx, dtype, e.ndim, e.n, x + f->first[rank_id]);
}

#define CHECK_FIELD(t, f, wanted) CHECK_VALUES(t, mine(f), (wanted) + (f)->first[rank_id], 0)

/* What a tensor of a layout holds, on all ranks. */
static double *gathered(const field *f, aj_tensor *t) {
    double *x = calloc((size_t)total(f) + 1, sizeof *x), *part = values_of(t, mine(f));
    memcpy(x + f->first[rank_id], part, (size_t)mine(f) * sizeof *x);
    free(part);
    world_sums((int)total(f), x);
    return x;
}

static aj_tensor *run(const field *f, aj_tensor *x, bool inplace) {
    return inplace ? aj_halo_inplace(aj_scale(x, 1), f->g->d, f->axes, f->width, f->g->comm)
                   : aj_halo(x, f->g->d, f->axes, f->width, f->g->comm);
}

/* For each grid and a number of fields on it. */
static void for_all_fields(int variants, void (*check)(const field *f, int variant)) {
    open_world();
    int turn = 0;
    for (int d = 1; d <= MAX_DIMS; d++)
        for (int periods = 0; periods < 1 << d; periods++) {
            grid g = open_grid(d, periods);
            for (int k = 0; k < variants; k++, turn += 7) {
                field f = open_field(&g, turn);
                aj_scope *scope = aj_scope_begin(ctx);
                aj_scope_name(scope, "%d dimensions, periods %d, variant %d", d, periods, turn);
                check(&f, turn);
                check_clean(ctx, "a field");
                CHECK_INT(aj_scope_end(scope), AJ_OK);
                close_field(&f);
            }
            aj_comm_destroy(&g.comm);
        }
    close_world();
}

/* ---- first order ---- */

static void check_first(const field *f, int variant) {
    extents e = block_of(f, rank_id);
    aj_dtype dtype = variant % 4 == 1 ? AJ_F32 : AJ_F64;
    int layout = layout_for(&e, variant + rank_id), other = layout_for(&e, variant / 3 + 2 * rank_id);
    aj_tensor *leaf = aj_param(base_of(dtype, &e, layout, 3, rank_id)), *seed_base = base_of(dtype, &e, other, 4, rank_id);
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    aj_tensor *x = arrange(leaf, &e, layout), *seed = arrange(seed_base, &e, other), *grad = NULL;
    double *x_all = gathered(f, x), *seed_all = gathered(f, seed);
    double *y_all = model_halo(f, x_all), *grad_all = model_adjoint(f, seed_all);
    aj_tensor *y = run(f, x, variant & 1);
    CHECK_INT(aj_tensor_dtype(y), dtype);
    CHECK_FIELD(y, f, y_all);
    if (CHECK_INT(aj_grad_of(ctx, 1, &y, &seed, 1, &x, &grad, 0), AJ_OK)) {
        CHECK_INT(aj_tensor_dtype(grad), dtype);
        CHECK_FIELD(grad, f, grad_all);
    }
    CHECK_FIELD(x, f, x_all); /* values never change */
    CHECK_FIELD(seed, f, seed_all);
    CHECK_INT(aj_record_end(ctx), AJ_OK);
    aj_release(&leaf);
    free(x_all), free(seed_all), free(y_all), free(grad_all);
}

static void fields(void) {
    for_all_fields(8, check_first);
}

/* Integers: forward only, in a recording too. */
static void check_integers(const field *f, int variant) {
    static const aj_dtype dtypes[] = {AJ_I64, AJ_I32, AJ_U8};
    for (int k = 0; k < 3; k++) {
        double *x = model_numbers(f, dtypes[k], 5), *y = model_halo(f, x);
        if (variant & 2)
            CHECK_INT(aj_record_begin(ctx), AJ_OK);
        aj_tensor *got = run(f, tensor_from(f, dtypes[k], x), variant & 1);
        CHECK_INT(aj_tensor_dtype(got), dtypes[k]);
        CHECK_FIELD(got, f, y);
        if (variant & 2)
            CHECK_INT(aj_record_end(ctx), AJ_OK);
        free(x), free(y);
    }
}

static void integers(void) {
    for_all_fields(3, check_integers);
}

/* ---- derivatives of derivatives: L = sum over ranks of <w, (F x)^3> ---- */

/* F'(a p q r), entry by entry */
static double *pulled_back(const field *f, double a, const double *p, const double *q, const double *r) {
    double *product = calloc((size_t)total(f) + 1, sizeof *product);
    for (int64_t i = 0; i < total(f); i++)
        product[i] = a * p[i] * q[i] * r[i];
    double *gx = model_adjoint(f, product);
    free(product);
    return gx;
}

static void check_third_order(const field *f, int variant) {
    double *x = model_numbers(f, AJ_F64, 6), *w = model_numbers(f, AJ_F64, 7), *u = model_numbers(f, AJ_F64, 8),
           *v = model_numbers(f, AJ_F64, 9);
    double *y = model_halo(f, x), *fu = model_halo(f, u), *fv = model_halo(f, v);
    double *first = pulled_back(f, 3, w, y, y), *second = pulled_back(f, 6, w, y, fv), *third = pulled_back(f, 6, w, fu, fv);
    aj_tensor *leaf = aj_param(tensor_from(f, AJ_F64, x)), *along[] = {tensor_from(f, AJ_F64, v), tensor_from(f, AJ_F64, u)};
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    aj_tensor *out = run(f, leaf, variant & 1), *g[3] = {NULL}, *tangent = NULL;
    aj_tensor *loss = aj_sum(aj_mul(tensor_from(f, AJ_F64, w), aj_mul(out, aj_square(out))));
    CHECK_INT(aj_grad_of(ctx, 1, &loss, NULL, 1, &leaf, &g[0], AJ_CREATE_GRAPH), AJ_OK);
    CHECK_INT(aj_grad_of(ctx, 1, &g[0], &along[0], 1, &leaf, &g[1], AJ_CREATE_GRAPH), AJ_OK);
    CHECK_INT(aj_grad_of(ctx, 1, &g[1], &along[1], 1, &leaf, &g[2], AJ_CREATE_GRAPH), AJ_OK);
    CHECK_INT(aj_jvp(ctx, 1, &out, 1, &leaf, &along[1], &tangent, 0), AJ_OK);
    CHECK_FIELD(g[0], f, first);
    CHECK_FIELD(g[1], f, second);
    CHECK_FIELD(g[2], f, third);
    CHECK_FIELD(tangent, f, fu);
    CHECK_INT(aj_record_end(ctx), AJ_OK);
    aj_release(&leaf);
    free(x), free(w), free(u), free(v), free(y), free(fu), free(fv), free(first), free(second), free(third);
}

static void higher_order(void) {
    for_all_fields(3, check_third_order);
}

/* ---- memory ---- */

enum { SMALL = 4, LARGE = 4000, FIELD = LARGE * (SMALL + 2) };
static const int64_t field_bytes = FIELD * (int64_t)sizeof(double);

/* No byte of a field's size but the copy: none for the consuming form, one for the adjoint. */
static void memory(void) {
    open_world();
    grid g = open_grid(1, 1);
    aj_scope *scope = aj_scope_begin(ctx);
    aj_tensor *x = aj_uniform(ctx, AJ_F64, AJ_SHAPE(SMALL + 2, LARGE), 1),
              *seed = aj_uniform(ctx, AJ_F64, AJ_SHAPE(SMALL + 2, LARGE), 2), *grad = NULL;
    int axes[] = {0};
    int64_t width[] = {1}, faces = 4 * LARGE * (int64_t)sizeof(double);
    const void *before = aj_data(x);
    int64_t live = aj_ctx_stat(ctx, AJ_STAT_LIVE_BYTES);
    CHECK(aj_data(seed) != NULL && live >= 2 * field_bytes);
    CHECK_MSG(aj_ctx_stat(ctx, AJ_STAT_PEAK_BYTES) < live + faces, "the peak before hides that of the exchange");
    aj_tensor *y = aj_halo_inplace(x, 1, axes, width, g.comm);
    CHECK(aj_data(y) == before);
    int64_t peak = aj_ctx_stat(ctx, AJ_STAT_PEAK_BYTES) - live;
    CHECK_MSG(peak >= faces && peak < faces + 1000, "in place: %lld bytes more, the faces have %lld", (long long)peak,
              (long long)faces);
    aj_tensor *leaf = aj_param(y);
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    live = aj_ctx_stat(ctx, AJ_STAT_LIVE_BYTES) + field_bytes; /* and the result */
    aj_tensor *out = aj_halo(leaf, 1, axes, width, g.comm);
    CHECK(aj_data(out) != before);
    peak = aj_ctx_stat(ctx, AJ_STAT_PEAK_BYTES) - live;
    CHECK_MSG(peak < faces + 1000, "out of place: %lld bytes beside the result", (long long)peak);
    CHECK_INT(aj_grad_of(ctx, 1, &out, &seed, 1, &leaf, &grad, 0), AJ_OK);
    peak = aj_ctx_stat(ctx, AJ_STAT_PEAK_BYTES) - live;
    CHECK_MSG(peak < field_bytes + faces + 1000, "adjoint: %lld bytes, a field has %lld", (long long)peak,
              (long long)field_bytes);
    CHECK_INT(aj_record_end(ctx), AJ_OK);
    aj_release(&leaf);
    aj_halo(x, 1, axes, width, g.comm);
    CHECK_INT(aj_ctx_status(ctx), AJ_ERR_STATE);
    CHECK_CONTAINS(aj_ctx_error(ctx), "consumed");
    aj_ctx_clear_error(ctx);
    CHECK_INT(aj_scope_end(scope), AJ_OK);
    aj_comm_destroy(&g.comm);
    close_world();
}

/* What others share is not overwritten by the consuming form. */
static void check_shared(const field *f, int variant) {
    (void)variant;
    double *x = model_numbers(f, AJ_F64, 10), *y = model_halo(f, x);
    aj_tensor *t = tensor_from(f, AJ_F64, x), *param = aj_param(tensor_from(f, AJ_F64, x));
    extents e = block_of(f, rank_id);
    aj_tensor *view = aj_reshape(t, e.ndim, e.n);
    CHECK_FIELD(aj_halo_inplace(t, f->g->d, f->axes, f->width, f->g->comm), f, y);
    CHECK_FIELD(view, f, x);
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    CHECK_FIELD(aj_halo_inplace(param, f->g->d, f->axes, f->width, f->g->comm), f, y);
    CHECK_INT(aj_record_end(ctx), AJ_OK);
    CHECK_FIELD(param, f, x);
    aj_release(&param);
    free(x), free(y);
}

static void shared(void) {
    for_all_fields(1, check_shared);
}

/* ---- elsewhere than in host memory, and nowhere ---- */

static void check_on_device(const field *f, int variant) {
    double *x = model_numbers(f, AJ_F64, 11), *w = model_numbers(f, AJ_F64, 12), *y = model_halo(f, x), *gx = model_adjoint(f, w);
    aj_device far = aj_test_device(ctx), near = aj_cpu(ctx);
    aj_tensor *leaf = aj_param(aj_to_device(tensor_from(f, AJ_F64, x), far));
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    aj_tensor *out = run(f, leaf, variant & 1);
    CHECK(aj_tensor_device(out) == far);
    CHECK_FIELD(aj_to_device(out, near), f, y);
    CHECK_INT(aj_backward(ctx, out, aj_to_device(tensor_from(f, AJ_F64, w), far)), AJ_OK);
    CHECK_FIELD(aj_to_device(aj_grad(leaf), near), f, gx);
    aj_release(&leaf);
    free(x), free(w), free(y), free(gx);
}

static void device(void) {
    for_all_fields(2, check_on_device);
}

/* A communicator without ranks: x passes through, and its gradient. */
static void nobody(void) {
    open_world();
    aj_comm *none = aj_comm_create(ctx, MPI_COMM_NULL);
    aj_tensor *leaf = vector_param(ctx, 5, 1);
    double *x = values_of(leaf, 5), *w = numbers_of(AJ_F64, 2, rank_id, 5);
    for (int inplace = 0; inplace < 2; inplace++) {
        CHECK_INT(aj_record_begin(ctx), AJ_OK);
        int axis = 0;
        int64_t width = 1;
        aj_tensor *y =
            inplace ? aj_halo_inplace(aj_scale(leaf, 1), 1, &axis, &width, none) : aj_halo(leaf, 1, &axis, &width, none);
        CHECK_VALUES(y, 5, x, 0);
        aj_zero_grad(leaf);
        CHECK_INT(aj_backward(ctx, y, vector(ctx, 5, 2, rank_id)), AJ_OK);
        CHECK_VALUES(aj_grad(leaf), 5, w, 0);
    }
    aj_release(&leaf);
    aj_comm_destroy(&none);
    free(x), free(w);
    close_world();
}

/* ---- beside the user's messages ---- */

/* A receive of anything from anyone is open while faces travel, on the same communicator, forward and in a backward of an earlier recording's kind. */
static void check_wildcard(const field *f, int variant) {
    double *x = model_numbers(f, AJ_F64, 13), *y = model_halo(f, x);
    aj_comm *comm = f->g->comm;
    int right = right_of(rank_id, rank_count), left = left_of(rank_id, rank_count);
    aj_request *open = aj_irecv(aj_zeros(ctx, AJ_F64, AJ_SHAPE(400)), MPI_ANY_SOURCE, MPI_ANY_TAG, comm);
    CHECK_FIELD(run(f, tensor_from(f, AJ_F64, x), variant & 1), f, y);
    aj_send(vector(ctx, 400, 14, rank_id), right, 0, comm);
    CHECK_FIELD(run(f, tensor_from(f, AJ_F64, x), variant & 1), f, y);
    double *wanted = numbers_of(AJ_F64, 14, left, 400);
    CHECK_VALUES(aj_wait(open), 400, wanted, 0);
    free(x), free(y), free(wanted);
}

static void wildcard(void) {
    for_all_fields(1, check_wildcard);
}

/* Messages of the user's are under way over the exchange, in a recording: each adjoint gets its own. */
static void check_between(const field *f, int variant) {
    double *x = model_numbers(f, AJ_F64, 15), *w = model_numbers(f, AJ_F64, 16), *gx = model_adjoint(f, w);
    aj_comm *comm = f->g->comm;
    int right = right_of(rank_id, rank_count), left = left_of(rank_id, rank_count);
    aj_tensor *leaf = aj_param(tensor_from(f, AJ_F64, x)), *sent = vector_param(ctx, 3, 17);
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    aj_request *in = aj_irecv(aj_zeros(ctx, AJ_F64, AJ_SHAPE(3)), MPI_ANY_SOURCE, MPI_ANY_TAG, comm),
               *out = aj_isend(sent, right, variant % 50, comm);
    aj_tensor *y = run(f, leaf, variant & 1), *got = aj_wait(in), *roots[] = {y, got},
              *seeds[] = {tensor_from(f, AJ_F64, w), vector(ctx, 3, 18, rank_id)};
    aj_wait(out);
    CHECK_INT(aj_backward_many(ctx, 2, roots, seeds, 0), AJ_OK);
    CHECK_FIELD(aj_grad(leaf), f, gx);
    double *wanted = numbers_of(AJ_F64, 18, right, 3), *arrived = numbers_of(AJ_F64, 17, left, 3);
    CHECK_VALUES(got, 3, arrived, 0);
    CHECK_VALUES(aj_grad(sent), 3, wanted, 0);
    aj_release(&leaf);
    aj_release(&sent);
    free(x), free(w), free(gx), free(wanted), free(arrived);
}

static void between(void) {
    for_all_fields(2, check_between);
}

/* ---- mistakes ---- */

/* Those that all ranks make in their arguments: returned on all, and the program goes on. */
static void mistakes(void) {
    enum { HUGE = 0x7fffffff };
    open_world();
    grid g = open_grid(2, 0);
    aj_scope *scope = aj_scope_begin(ctx);
    aj_tensor *x = aj_zeros(ctx, AJ_F64, AJ_SHAPE(5, 6)), *line = aj_zeros(ctx, AJ_F64, AJ_SHAPE(6));
    static const int axes[][2] = {{0, 1}, {0, 2}, {0, -2}, {-3, 1}};
    static const int64_t widths[][2] = {{1, 1}, {-1, 1}, {2, 1}, {1, INT64_MAX}, {1, INT64_MAX / 2}, {INT64_MIN, 1}};
    const struct {
        aj_tensor *x;
        aj_comm *comm;
        int n;
        const int *axes;
        const int64_t *width;
        aj_status status;
        const char *text;
    } wrong[] = {{x, world, 2, axes[0], widths[0], AJ_ERR_ARG, "Cartesian"},
                 {x, g.comm, 1, axes[0], widths[0], AJ_ERR_ARG, "expected 2 axes"},
                 {x, g.comm, HUGE, axes[0], widths[0], AJ_ERR_ARG, "expected 2 axes"},
                 {x, g.comm, -1, axes[0], widths[0], AJ_ERR_ARG, "expected 2 axes"},
                 {x, g.comm, 2, NULL, widths[0], AJ_ERR_ARG, "NULL"},
                 {x, g.comm, 2, axes[0], NULL, AJ_ERR_ARG, "NULL"},
                 {line, g.comm, 2, axes[0], widths[0], AJ_ERR_ARG, "2 dimensions, x 1 axes"},
                 {x, g.comm, 2, axes[1], widths[0], AJ_ERR_ARG, "axis 2"},
                 {x, g.comm, 2, axes[2], widths[0], AJ_ERR_ARG, "axis 0 is given twice"},
                 {x, g.comm, 2, axes[3], widths[0], AJ_ERR_ARG, "axis -3"},
                 {x, g.comm, 2, axes[0], widths[1], AJ_ERR_SHAPE, "width -1 on axis 0 of extent 5"},
                 {x, g.comm, 2, axes[0], widths[2], AJ_ERR_SHAPE, "width 2 on axis 0 of extent 5"},
                 {x, g.comm, 2, axes[0], widths[3], AJ_ERR_SHAPE, "9223372036854775807"},
                 {x, g.comm, 2, axes[0], widths[4], AJ_ERR_SHAPE, "4611686018427387903"},
                 {x, g.comm, 2, axes[0], widths[5], AJ_ERR_SHAPE, "-9223372036854775808"},
                 {NULL, g.comm, 2, axes[0], widths[0], AJ_ERR_ARG, "NULL"},
                 {x, NULL, 2, axes[0], widths[0], AJ_ERR_ARG, "communicator is NULL"}};
    for (size_t i = 0; i < 2 * sizeof wrong / sizeof *wrong; i++) {
        size_t k = i / 2;
        bool inplace = i % 2;
        aj_tensor *(*call)(aj_tensor *, int, const int *, const int64_t *, aj_comm *) = inplace ? aj_halo_inplace : aj_halo;
        CHECK(call(wrong[k].x, wrong[k].n, wrong[k].axes, wrong[k].width, wrong[k].comm) == NULL);
        CHECK_INT(aj_ctx_status(ctx), wrong[k].status);
        CHECK_CONTAINS(aj_ctx_error(ctx), inplace ? "aj_halo_inplace: " : "aj_halo: ");
        CHECK_CONTAINS(aj_ctx_error(ctx), wrong[k].text);
        aj_ctx_clear_error(ctx);
    }
    CHECK(aj_halo(x, 2, axes[0], widths[0], g.comm) != NULL);
    CHECK_INT(aj_scope_end(scope), AJ_OK);
    aj_comm_destroy(&g.comm);
    close_world();
}

/* Right again after a mistake: nothing of it is left under way. */
static void check_recovered(const grid *g) {
    field f = open_field(g, 2);
    double *x = model_numbers(&f, AJ_F64, 19), *y = model_halo(&f, x);
    CHECK_FIELD(run(&f, tensor_from(&f, AJ_F64, x), false), &f, y);
    free(x), free(y);
    close_field(&f);
}

/* Fields that do not fit each other: the even ranks pass one, the odd ranks another. On a ring each rank has a neighbour of the other sort. All ranks
 * find it, or learn of it by aj_agree. */
static void check_mismatch(const grid *g, aj_dtype even, aj_dtype odd, int64_t even_n, int64_t odd_n, int64_t even_m,
                           int64_t odd_m, const char *even_text, const char *odd_text) {
    bool is_even = rank_id % 2 == 0;
    int axes[] = {1};
    int64_t width[] = {1};
    aj_scope *scope = aj_scope_begin(ctx);
    aj_tensor *x = aj_zeros(ctx, is_even ? even : odd, AJ_SHAPE(is_even ? even_n : odd_n, 5, is_even ? even_m : odd_m));
    CHECK(aj_halo(x, 1, axes, width, g->comm) == NULL);
    if (is_checked() && even != odd) { /* found before the exchange */
        CHECK_INT(aj_ctx_status(ctx), AJ_ERR_PEER);
        CHECK_CONTAINS(aj_ctx_error(ctx), aj_dtype_name(even));
        CHECK_CONTAINS(aj_ctx_error(ctx), aj_dtype_name(odd));
    } else {
        CHECK(aj_ctx_status(ctx) == AJ_ERR_SHAPE || aj_ctx_status(ctx) == AJ_ERR_DTYPE);
        CHECK_CONTAINS(aj_ctx_error(ctx), "aj_halo: the face from rank");
        CHECK_CONTAINS(aj_ctx_error(ctx), "axis 1");
        CHECK_CONTAINS(aj_ctx_error(ctx), "expected");
        CHECK_CONTAINS(aj_ctx_error(ctx), is_even ? even_text : odd_text);
    }
    CHECK(aj_agree(g->comm) != AJ_OK);
    CHECK(aj_scope_end(scope) != AJ_OK);
    aj_ctx_clear_error(ctx);
    check_recovered(g);
}

static void mismatches(void) {
    open_world();
    grid g = open_grid(1, 1);
    if (rank_count > 1) { /* a rank alone is of one sort */
        check_mismatch(&g, AJ_F64, AJ_F64, 2, 3, 2, 2, "longer than the 4 entries of f64",
                       "has 4 entries; expected 6, of shape (3, 1, 2)");
        check_mismatch(&g, AJ_F64, AJ_F64, 0, 3, 2, 2, "longer than the 0 entries", "has 0 entries; expected 6");
        check_mismatch(&g, AJ_F64, AJ_F64, 2, 3, 3, 2, "6 entries in another shape; expected 6, of shape (2, 1, 3)",
                       "shape (3, 1, 2)");
        check_mismatch(&g, AJ_F64, AJ_I64, 2, 2, 2, 2, "is i64; expected f64", "is f64; expected i64");
        check_mismatch(&g, AJ_F64, AJ_F32, 2, 2, 2, 2, "is f32; expected f64", "longer than the 4 entries of f32");
        check_mismatch(&g, AJ_I64, AJ_U8, 3, 3, 1, 1, "is u8; expected i64", "longer than the 3 entries of u8");
        check_mismatch(&g, AJ_F64, AJ_F64, 200, 300, 200, 300, "longer than the 40000", "has 40000 entries; expected 90000");
    }
    aj_comm_destroy(&g.comm);
    close_world();
}

/* The last rank's faces along the first axis are of another length: its neighbours there find it. The other ranks get all their faces, from those in
 * error too, and learn of it by aj_agree. */
static void found_by_some(void) {
    open_world();
    grid g = open_grid(2, 3);
    aj_scope *scope = aj_scope_begin(ctx);
    int axes[] = {0, 1}, at[MAX_DIMS], last[MAX_DIMS];
    int64_t width[] = {1, 2};
    coordinates(&g, rank_id, at);
    coordinates(&g, rank_count - 1, last);
    int apart = last[0] - at[0];
    bool finds = g.dims[0] > 1 && at[1] == last[1] && (apart <= 1 || apart == g.dims[0] - 1);
    for (int inplace = 0; inplace < 2; inplace++) {
        aj_tensor *x = aj_zeros(ctx, AJ_F64, AJ_SHAPE(5, rank_id == rank_count - 1 ? 8 : 7));
        aj_tensor *y = inplace ? aj_halo_inplace(x, 2, axes, width, g.comm) : aj_halo(x, 2, axes, width, g.comm);
        CHECK_MSG((y == NULL) == finds, "rank %d: %s", rank_id, aj_ctx_error(ctx));
        CHECK_INT(aj_agree(g.comm), g.dims[0] > 1 ? AJ_ERR_SHAPE : AJ_OK);
        aj_ctx_clear_error(ctx);
        check_recovered(&g);
    }
    CHECK_INT(aj_scope_end(scope), AJ_OK);
    aj_comm_destroy(&g.comm);
    close_world();
}

/* The even ranks differentiate, the odd ones exchange: an error on all that says so. */
static void other_call(void) {
    open_world();
    grid g = open_grid(1, 1);
    aj_scope *scope = aj_scope_begin(ctx);
    int axes[] = {0};
    int64_t width[] = {1};
    aj_tensor *x = vector_param(ctx, 5, 1);
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    aj_tensor *y = aj_halo(x, 1, axes, width, g.comm);
    aj_status status = is_checked() ? AJ_ERR_PEER : AJ_ERR_ARG;
    if (rank_count > 1 && rank_id % 2 == 0) {
        CHECK_INT(aj_backward(ctx, y, NULL), status);
        CHECK_CONTAINS(aj_ctx_error(ctx),
                       is_checked() ? "aj_halo of f64, width 1" : "sent a face of the exchange for dimension 0");
    } else if (rank_count > 1) {
        CHECK(aj_halo(x, 1, axes, width, g.comm) == NULL);
        CHECK_CONTAINS(aj_ctx_error(ctx), is_checked() ? "aj_halo_adjoint" : "sent a face of the adjoint for dimension 0");
    }
    CHECK_INT(aj_agree(g.comm), rank_count > 1 ? status : AJ_OK);
    CHECK_INT(aj_scope_end(scope), rank_count > 1 ? status : AJ_OK);
    aj_ctx_clear_error(ctx);
    aj_release(&x);
    check_recovered(&g);
    aj_comm_destroy(&g.comm);
    close_world();
}

RANK_MAIN({"fields", fields}, {"integers", integers}, {"higher-order", higher_order}, {"memory", memory}, {"shared", shared},
          {"device", device}, {"nobody", nobody}, {"wildcard", wildcard}, {"between", between}, {"mistakes", mistakes},
          {"mismatches", mismatches}, {"found-by-some", found_by_some}, {"other-call", other_call})
