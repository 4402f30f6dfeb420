/*
 * Each communication call as a linear map F of the ranks' inputs, without the library's own checks: the values of F against a model in plain C, the
 * gradient entry by entry against the transpose of that model, <g, F(x)> = <gx, x> summed over the ranks, and derivatives of derivatives against the model.
 * Inputs, seeds and memory layouts differ by rank.
 */
#include "mpi_layouts.h"

static const extents shapes[] = {{0, {0}},    {1, {1}},       {1, {5}},       {1, {0}},         {2, {1, 1}},
                                 {2, {2, 3}}, {3, {3, 0, 2}}, {3, {2, 3, 4}}, {4, {2, 1, 3, 2}}};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

/* ---- the programs: run() makes one tensor of the inputs' shape from them; model() does the same with plain arrays for all ranks ---- */

typedef struct setup {
    aj_comm *half, *reversed; /* the ranks of the same parity; all ranks, the other way round */
    int root;
} setup;

typedef struct program {
    const char *name;
    int inputs;
    bool rooted, one_variable;
    aj_fn run;
    void (*model)(int root, int64_t n, const double *x, double *y);
} program;

/* Where entry 0 of an input of a rank is, in the arrays of a model. */
static const double *input_at(const double *x, int inputs, int64_t n, int rank, int input) {
    return x + (rank * inputs + input) * n;
}

static aj_tensor *run_allreduce(aj_ctx *c, int n, aj_tensor *const *x, void *user) {
    (void)c, (void)n, (void)user;
    return aj_allreduce(x[0], MPI_SUM, world);
}

static void model_allreduce(int root, int64_t n, const double *x, double *y) {
    (void)root;
    for (int r = 0; r < rank_count; r++)
        for (int k = 0; k < rank_count; k++)
            for (int64_t i = 0; i < n; i++)
                y[r * n + i] += x[k * n + i];
}

static aj_tensor *run_bcast(aj_ctx *c, int n, aj_tensor *const *x, void *user) {
    (void)c, (void)n;
    return aj_bcast(x[0], ((setup *)user)->root, world);
}

static aj_tensor *run_bcast_inplace(aj_ctx *c, int n, aj_tensor *const *x, void *user) {
    (void)c, (void)n;
    return aj_bcast_inplace(x[0], ((setup *)user)->root, world);
}

static void model_bcast(int root, int64_t n, const double *x, double *y) {
    for (int r = 0; r < rank_count; r++)
        for (int64_t i = 0; i < n; i++)
            y[r * n + i] = x[root * n + i];
}

static aj_tensor *run_reduce(aj_ctx *c, int n, aj_tensor *const *x, void *user) {
    (void)c, (void)n;
    return aj_reduce(x[0], MPI_SUM, ((setup *)user)->root, world);
}

static aj_tensor *run_reduce_inplace(aj_ctx *c, int n, aj_tensor *const *x, void *user) {
    (void)c, (void)n;
    return aj_reduce_inplace(x[0], MPI_SUM, ((setup *)user)->root, world);
}

static void model_reduce(int root, int64_t n, const double *x, double *y) {
    for (int k = 0; k < rank_count; k++)
        for (int64_t i = 0; i < n; i++)
            y[root * n + i] += x[k * n + i];
}

static aj_tensor *run_shared(aj_ctx *c, int n, aj_tensor *const *x, void *user) {
    (void)c, (void)n, (void)user;
    return aj_shared(x[0], world);
}

static void model_shared(int root, int64_t n, const double *x, double *y) {
    (void)root;
    memcpy(y, x, (size_t)(rank_count * n) * sizeof *y);
}

static aj_tensor *run_scan(aj_ctx *c, int n, aj_tensor *const *x, void *user) {
    (void)c, (void)n, (void)user;
    return aj_scan(x[0], MPI_SUM, world);
}

static void model_scan(int root, int64_t n, const double *x, double *y) {
    (void)root;
    for (int r = 0; r < rank_count; r++)
        for (int k = 0; k <= r; k++)
            for (int64_t i = 0; i < n; i++)
                y[r * n + i] += x[k * n + i];
}

static aj_tensor *run_exscan(aj_ctx *c, int n, aj_tensor *const *x, void *user) {
    (void)c, (void)n, (void)user;
    return aj_exscan(x[0], MPI_SUM, world);
}

static void model_exscan(int root, int64_t n, const double *x, double *y) {
    (void)root;
    for (int r = 0; r < rank_count; r++)
        for (int k = 0; k < r; k++)
            for (int64_t i = 0; i < n; i++)
                y[r * n + i] += x[k * n + i];
}

/* On the ranks in reverse order, of which each knows its own. */
static aj_tensor *run_scan_reversed(aj_ctx *c, int n, aj_tensor *const *x, void *user) {
    (void)c, (void)n;
    aj_comm *reversed = ((setup *)user)->reversed;
    return aj_add(aj_scan(x[0], MPI_SUM, reversed), aj_scale(aj_exscan(x[0], MPI_SUM, reversed), 4));
}

static void model_scan_reversed(int root, int64_t n, const double *x, double *y) {
    (void)root;
    for (int r = 0; r < rank_count; r++)
        for (int k = r; k < rank_count; k++)
            for (int64_t i = 0; i < n; i++)
                y[r * n + i] += (k == r ? 1 : 5) * x[k * n + i];
}

/* Rings: x goes to the right, the second input is the buffer. */
static aj_tensor *ring_result(aj_tensor *received, aj_tensor *sent) {
    return aj_add(received, aj_scale(sent, 2));
}

static aj_tensor *run_send_recv(aj_ctx *c, int n, aj_tensor *const *x, void *user) {
    (void)c, (void)n, (void)user;
    aj_tensor *sent = aj_send(x[0], right_of(rank_id, rank_count), 3, world);
    return ring_result(aj_recv(x[1], left_of(rank_id, rank_count), 3, world), sent);
}

static aj_tensor *run_isend_irecv(aj_ctx *c, int n, aj_tensor *const *x, void *user) {
    (void)c, (void)n, (void)user;
    aj_request *out = aj_isend(x[0], right_of(rank_id, rank_count), 0, world);
    aj_request *in = aj_irecv(x[1], left_of(rank_id, rank_count), 0, world);
    aj_tensor *received = aj_wait(in);
    return ring_result(received, aj_wait(out));
}

static aj_tensor *run_isend_recv(aj_ctx *c, int n, aj_tensor *const *x, void *user) {
    (void)c, (void)n, (void)user;
    aj_request *out = aj_isend(x[0], right_of(rank_id, rank_count), 3, world);
    aj_tensor *received = aj_recv(x[1], left_of(rank_id, rank_count), 3, world);
    return ring_result(received, aj_wait(out));
}

static aj_tensor *run_irecv_send(aj_ctx *c, int n, aj_tensor *const *x, void *user) {
    (void)c, (void)n, (void)user;
    aj_request *in = aj_irecv(x[1], left_of(rank_id, rank_count), 3, world);
    aj_tensor *sent = aj_send(x[0], right_of(rank_id, rank_count), 3, world);
    return ring_result(aj_wait(in), sent);
}

/* The odd ranks take what comes by a blocking receive, the even ones by a started one. One message reaches each rank. */
static aj_tensor *run_wildcards(aj_ctx *c, int n, aj_tensor *const *x, void *user) {
    (void)c, (void)n, (void)user;
    aj_request *in = rank_id % 2 ? NULL : aj_irecv(x[1], MPI_ANY_SOURCE, MPI_ANY_TAG, world);
    aj_tensor *sent = aj_send(x[0], right_of(rank_id, rank_count), 7 + rank_id, world);
    return ring_result(in ? aj_wait(in) : aj_recv(x[1], MPI_ANY_SOURCE, MPI_ANY_TAG, world), sent);
}

/* The tags depend on the sender: each rank sends one and receives another. */
static aj_tensor *run_sendrecv(aj_ctx *c, int n, aj_tensor *const *x, void *user) {
    (void)c, (void)n, (void)user;
    int left = left_of(rank_id, rank_count), right = right_of(rank_id, rank_count);
    return ring_result(aj_sendrecv(x[0], right, 20 + rank_id, x[1], left, 20 + left, world), x[0]);
}

/* A barrier between the start and the wait. */
static aj_tensor *run_barrier(aj_ctx *c, int n, aj_tensor *const *x, void *user) {
    (void)c, (void)n, (void)user;
    aj_request *in = aj_irecv(x[1], left_of(rank_id, rank_count), 1, world);
    aj_tensor *sent = aj_send(x[0], right_of(rank_id, rank_count), 1, world);
    CHECK_INT(aj_barrier(world), AJ_OK);
    return ring_result(aj_wait(in), sent);
}

static void model_ring(int root, int64_t n, const double *x, double *y) {
    (void)root;
    for (int r = 0; r < rank_count; r++)
        for (int64_t i = 0; i < n; i++)
            y[r * n + i] = input_at(x, 2, n, left_of(r, rank_count), 0)[i] + 2 * input_at(x, 2, n, r, 0)[i];
}

static aj_tensor *run_self(aj_ctx *c, int n, aj_tensor *const *x, void *user) {
    (void)c, (void)n, (void)user;
    aj_request *in = aj_irecv(x[1], rank_id, 5, world);
    aj_tensor *first = aj_send(x[0], rank_id, 5, world);
    aj_tensor *second = aj_send(aj_scale(x[0], 3), rank_id, 5, world);
    aj_tensor *received = aj_recv(x[1], rank_id, 5, world); /* 3 x */
    return aj_add(aj_add(aj_wait(in), aj_scale(received, 4)), aj_add(first, second));
}

static void model_self(int root, int64_t n, const double *x, double *y) {
    (void)root;
    for (int r = 0; r < rank_count; r++)
        for (int64_t i = 0; i < n; i++)
            y[r * n + i] = (1 + 12 + 1 + 3) * input_at(x, 2, n, r, 0)[i];
}

/* An open chain: no neighbour at the ends; the largest tag there is. */
static aj_tensor *run_proc_null(aj_ctx *c, int n, aj_tensor *const *x, void *user) {
    (void)c, (void)n, (void)user;
    void *limit = NULL;
    int found = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &limit, &found);
    int tag = found ? *(int *)limit : 32767;
    aj_request *out = aj_isend(x[0], rank_id + 1 < rank_count ? rank_id + 1 : MPI_PROC_NULL, tag, world);
    aj_tensor *received = aj_recv(x[1], rank_id > 0 ? rank_id - 1 : MPI_PROC_NULL, tag, world);
    return ring_result(received, aj_wait(out));
}

static void model_proc_null(int root, int64_t n, const double *x, double *y) {
    (void)root;
    for (int r = 0; r < rank_count; r++)
        for (int64_t i = 0; i < n; i++)
            y[r * n + i] = (r > 0 ? input_at(x, 2, n, r - 1, 0) : input_at(x, 2, n, r, 1))[i] + 2 * input_at(x, 2, n, r, 0)[i];
}

/* Messages shorter than the buffer, of a length that depends on the sender; some have none at all. */
static int64_t short_length(int rank, int64_t n) {
    return n * rank / rank_count;
}

static aj_tensor *run_short_message(aj_ctx *c, int n, aj_tensor *const *x, void *user) {
    (void)c, (void)n, (void)user;
    int64_t all = aj_numel(x[0]);
    aj_tensor *part = aj_slice(aj_reshape(x[0], AJ_SHAPE(all)), 0, 0, short_length(rank_id, all), 1);
    aj_request *in = rank_id % 2 ? aj_irecv(x[1], left_of(rank_id, rank_count), 2, world) : NULL;
    aj_send(part, right_of(rank_id, rank_count), 2, world);
    return in ? aj_wait(in) : aj_recv(x[1], left_of(rank_id, rank_count), 2, world);
}

static void model_short_message(int root, int64_t n, const double *x, double *y) {
    (void)root;
    for (int r = 0; r < rank_count; r++) {
        int left = left_of(r, rank_count);
        for (int64_t i = 0; i < n; i++)
            y[r * n + i] = i < short_length(left, n) ? input_at(x, 2, n, left, 0)[i] : input_at(x, 2, n, r, 1)[i];
    }
}

/* Dummies everywhere: they change nothing and get nothing. */
static aj_tensor *run_join_dummies(aj_ctx *c, int n, aj_tensor *const *x, void *user) {
    (void)c, (void)n, (void)user;
    aj_request *out = aj_isend(x[0], right_of(rank_id, rank_count), 3, world);
    aj_tensor *handle = aj_request_dummy(out);
    aj_tensor *buffer = aj_join_dummies(x[1], 1, &handle);
    aj_request *in = aj_irecv(buffer, left_of(rank_id, rank_count), 3, world);
    aj_tensor *dummies[] = {handle, x[0], x[1]};
    in = aj_request_join_dummies(in, 3, dummies);
    aj_tensor *received = aj_wait(in);
    out = aj_request_join_dummies(out, 1, &received);
    aj_tensor *sent = aj_wait(out);
    return aj_join_dummies(ring_result(received, sent), 3, dummies);
}

static aj_tensor *run_split(aj_ctx *c, int n, aj_tensor *const *x, void *user) {
    (void)c, (void)n;
    return aj_allreduce(x[0], MPI_SUM, ((setup *)user)->half);
}

static void model_split(int root, int64_t n, const double *x, double *y) {
    (void)root;
    for (int r = 0; r < rank_count; r++)
        for (int k = r % 2; k < rank_count; k += 2)
            for (int64_t i = 0; i < n; i++)
                y[r * n + i] += x[k * n + i];
}

/* The root counts in a communicator whose ranks run the other way. */
static aj_tensor *run_reversed(aj_ctx *c, int n, aj_tensor *const *x, void *user) {
    (void)c, (void)n;
    return aj_bcast(x[0], ((setup *)user)->root, ((setup *)user)->reversed);
}

static void model_reversed(int root, int64_t n, const double *x, double *y) {
    model_bcast(rank_count - 1 - root, n, x, y);
}

/* Collectives and messages that feed each other, on three communicators; what is sent is an expression that nobody has computed yet. */
static aj_tensor *run_composite(aj_ctx *c, int n, aj_tensor *const *x, void *user) {
    (void)c, (void)n;
    setup *s = user;
    aj_tensor *total = aj_allreduce(x[0], MPI_SUM, world);
    aj_request *in = aj_irecv(x[0], left_of(rank_id, rank_count), 3, world);
    aj_tensor *root_value = aj_bcast(x[1], s->root, s->reversed);
    aj_send(aj_add(aj_scale(total, 2), x[1]), right_of(rank_id, rank_count), 3, world);
    aj_tensor *copies = aj_reduce(root_value, MPI_SUM, s->root, world);
    return aj_add(aj_add(aj_wait(in), root_value), copies);
}

static void model_composite(int root, int64_t n, const double *x, double *y) {
    for (int r = 0; r < rank_count; r++)
        for (int64_t i = 0; i < n; i++) {
            double total = 0, root_value = input_at(x, 2, n, rank_count - 1 - root, 1)[i];
            for (int k = 0; k < rank_count; k++)
                total += input_at(x, 2, n, k, 0)[i];
            y[r * n + i] = 2 * total + input_at(x, 2, n, left_of(r, rank_count), 1)[i] + root_value;
            if (r == root)
                y[r * n + i] += rank_count * root_value;
        }
}

#define PROGRAMS(X)                                                                                                              \
    X(allreduce, .inputs = 1, .model = model_allreduce)                                                                          \
    X(bcast, .inputs = 1, .rooted = true, .model = model_bcast)                                                                  \
    X(bcast_inplace, .inputs = 1, .rooted = true, .model = model_bcast)                                                          \
    X(reduce, .inputs = 1, .rooted = true, .model = model_reduce)                                                                \
    X(reduce_inplace, .inputs = 1, .rooted = true, .model = model_reduce)                                                        \
    X(shared, .inputs = 1, .one_variable = true, .model = model_shared)                                                          \
    X(send_recv, .inputs = 2, .model = model_ring)                                                                               \
    X(isend_irecv, .inputs = 2, .model = model_ring)                                                                             \
    X(isend_recv, .inputs = 2, .model = model_ring)                                                                              \
    X(irecv_send, .inputs = 2, .model = model_ring)                                                                              \
    X(wildcards, .inputs = 2, .model = model_ring)                                                                               \
    X(barrier, .inputs = 2, .model = model_ring)                                                                                 \
    X(sendrecv, .inputs = 2, .model = model_ring)                                                                                \
    X(scan, .inputs = 1, .model = model_scan)                                                                                    \
    X(exscan, .inputs = 1, .model = model_exscan)                                                                                \
    X(scan_reversed, .inputs = 1, .model = model_scan_reversed)                                                                  \
    X(self, .inputs = 2, .model = model_self)                                                                                    \
    X(proc_null, .inputs = 2, .model = model_proc_null)                                                                          \
    X(short_message, .inputs = 2, .model = model_short_message)                                                                  \
    X(join_dummies, .inputs = 2, .model = model_ring)                                                                            \
    X(split, .inputs = 1, .model = model_split)                                                                                  \
    X(reversed, .inputs = 1, .rooted = true, .model = model_reversed)                                                            \
    X(composite, .inputs = 2, .rooted = true, .model = model_composite)

#define DEFINE(id, ...) static const program program_##id = {.name = #id, .run = run_##id, __VA_ARGS__};
PROGRAMS(DEFINE)
#undef DEFINE

static void open_setup(setup *s) {
    open_world();
    MPI_Comm half, reversed;
    MPI_Comm_split(MPI_COMM_WORLD, rank_id % 2, rank_id, &half);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank_id, &reversed);
    *s = (setup){.half = aj_comm_create(ctx, half), .reversed = aj_comm_create(ctx, reversed)};
    MPI_Comm_free(&half);
    MPI_Comm_free(&reversed);
}

static void close_setup(setup *s) {
    check_clean(ctx, "before aj_comm_destroy");
    aj_comm_destroy(&s->half);
    aj_comm_destroy(&s->reversed);
    close_world();
}

/* ---- the model and its transpose ---- */

static double *model(const program *p, int root, int64_t n, const double *x) {
    double *y = calloc((size_t)(rank_count * n) + 1, sizeof *y);
    p->model(root, n, x, y);
    return y;
}

/* This rank's gradient of sum over ranks of <g, F(x)> for one input: g is applied to the image of each unit vector. For one variable that all
 * ranks hold, all its copies move at once. */
static double *transposed(const program *p, int root, int64_t n, const double *g, int input) {
    double *gx = calloc((size_t)n + 1, sizeof *gx), *unit = calloc((size_t)(rank_count * p->inputs * n) + 1, sizeof *unit);
    for (int64_t i = 0; i < n; i++) {
        for (int r = 0; r < rank_count; r++)
            unit[(r * p->inputs + input) * n + i] = p->one_variable || r == rank_id;
        double *y = model(p, root, n, unit);
        for (int64_t k = 0; k < rank_count * n; k++)
            gx[i] += g[k] * y[k];
        free(y);
        for (int r = 0; r < rank_count; r++)
            unit[(r * p->inputs + input) * n + i] = 0;
    }
    free(unit);
    return gx;
}

/* Ranks whose copies of a variable count for once share their numbers. */
static int data_rank(const program *p, int rank) {
    return p->one_variable ? 0 : rank;
}

static int input_layout(const program *p, const extents *e, int turn, int rank, int input) {
    return layout_for(e, turn + data_rank(p, rank) + 3 * input);
}

/* The inputs of all ranks, as the models want them: worked out here, with local operations alone. */
static double *all_inputs(const program *p, aj_dtype dtype, const extents *e, int turn, uint64_t seed) {
    int64_t n = entries(e);
    double *x = malloc(((size_t)(rank_count * p->inputs * n) + 1) * sizeof *x);
    for (int r = 0; r < rank_count; r++)
        for (int i = 0; i < p->inputs; i++) {
            int layout = input_layout(p, e, turn, r, i);
            double *one = values_of(arrange(base_of(dtype, e, layout, seed + (uint64_t)i, data_rank(p, r)), e, layout), n);
            memcpy(x + (r * p->inputs + i) * n, one, (size_t)n * sizeof *x);
            free(one);
        }
    return x;
}

static double *all_numbers(int64_t n, uint64_t seed) {
    double *g = malloc(((size_t)(rank_count * n) + 1) * sizeof *g);
    for (int r = 0; r < rank_count; r++)
        for (int64_t i = 0; i < n; i++)
            g[r * n + i] = number(seed, r, i);
    return g;
}

static double dot(int64_t n, const double *a, const double *b, double *magnitude) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += a[i] * b[i];
        *magnitude += fabs(a[i] * b[i]);
    }
    return sum;
}

/* ---- first derivatives ---- */

enum { INPUT_SEED = 11, GRADIENT_SEED = 23, TANGENT_SEED = 37 };

/* <g, F(x)> against <gx, x>, summed over the ranks. */
static void check_identity(const program *p, const double *g, const double *y, int64_t n, aj_tensor *const *leaf) {
    double sums[3] = {0};
    sums[0] = dot(n, g, y, &sums[2]);
    for (int i = 0; i < p->inputs; i++) {
        int64_t m = aj_numel(leaf[i]);
        double *gx = values_of(aj_grad(leaf[i]), m), *x = values_of(leaf[i], m);
        if (rank_id == data_rank(p, rank_id))
            sums[1] += dot(m, gx, x, &sums[2]);
        free(gx);
        free(x);
    }
    world_sums(3, sums);
    CHECK_MSG(fabs(sums[0] - sums[1]) <= 1e-14 * sums[2], "%s: <g, F(x)> is %.17g, <gx, x> is %.17g", p->name, sums[0], sums[1]);
}

/* One point: one shape, dtype and root; the layouts depend on turn and rank. inside: the layout is made in the recording, from a plain
 * parameter; else the parameter itself has it. */
static void check_point(const program *p, setup *s, aj_dtype dtype, const extents *e, int turn, bool inside) {
    int64_t n = entries(e);
    aj_scope *scope = aj_scope_begin(ctx);
    aj_scope_name(scope, "%s: %s, shape %d, root %d, turn %d, inside %d", p->name, aj_dtype_name(dtype), (int)(e - shapes),
                  s->root, turn, inside);
    double *x_all = all_inputs(p, dtype, e, turn, INPUT_SEED), *y_all = model(p, s->root, n, x_all);
    double *g_all = all_numbers(n, GRADIENT_SEED);
    aj_tensor *g = tensor_of(ctx, dtype, e->ndim, e->n, g_all + rank_id * n);
    if (e->ndim > 0) /* a seed that is not contiguous either */
        g = aj_slice(aj_pad(g, -1, 1, 2, 7), -1, 1, 1 + e->n[e->ndim - 1], 1);
    aj_tensor *leaf[2], *x[2];
    for (int i = 0; i < p->inputs; i++) {
        int layout = input_layout(p, e, turn, rank_id, i);
        aj_tensor *base = base_of(dtype, e, layout, INPUT_SEED + (uint64_t)i, data_rank(p, rank_id));
        leaf[i] = aj_param(inside ? base : arrange(base, e, layout));
    }
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    for (int i = 0; i < p->inputs; i++)
        x[i] = inside ? arrange(leaf[i], e, input_layout(p, e, turn, rank_id, i)) : leaf[i];
    aj_tensor *y = p->run(ctx, p->inputs, x, s);
    CHECK_INT(aj_backward(ctx, y, g), AJ_OK);
    CHECK_VALUES(y, n, y_all + rank_id * n, 0);
    CHECK_VALUES(g, n, g_all + rank_id * n, 0); /* nobody wrote into the seed */
    for (int i = 0; i < p->inputs && !inside; i++) {
        double *gx = transposed(p, s->root, n, g_all, i);
        CHECK_VALUES(aj_grad(leaf[i]), n, gx, 0);
        CHECK_VALUES(leaf[i], n, x_all + (rank_id * p->inputs + i) * n, 0); /* nor into the parameter */
        free(gx);
    }
    check_identity(p, g_all + rank_id * n, y_all + rank_id * n, n, leaf);
    check_clean(ctx, "a point");
    for (int i = 0; i < p->inputs; i++)
        aj_release(&leaf[i]);
    free(x_all);
    free(y_all);
    free(g_all);
    CHECK_INT(aj_scope_end(scope), AJ_OK);
}

/* With many ranks, each shape and root has one dtype inside and the other outside of the recording: there are roots enough. */
static void test_first(const program *p) {
    setup s;
    open_setup(&s);
    int turn = 0;
    for (s.root = 0; s.root < (p->rooted ? rank_count : 1); s.root++)
        for (int k = 0; k < N_SHAPES; k++)
            for (int inside = 0; inside < 2; inside++, turn++) {
                bool all = rank_count < 4 || !p->rooted, even = (s.root + k + inside) % 2 == 0;
                if (all || even)
                    check_point(p, &s, AJ_F64, &shapes[k], turn, inside);
                if (all || !even)
                    check_point(p, &s, AJ_F32, &shapes[k], turn + 3, inside);
            }
    close_setup(&s);
}

/* ---- second derivatives: L = sum over ranks of <w, y^3>, y = F(x): gradient F'(3 w y^2), Hessian times v: F'(6 w y F(v)) ---- */

typedef struct expectation {
    double *gradient[2], *product[2], *tangent;
} expectation;

static void expect_second(const program *p, int root, int64_t n, expectation *wanted) {
    const extents e = {1, {n}};
    double *x = all_inputs(p, AJ_F64, &e, 0, INPUT_SEED), *v = all_inputs(p, AJ_F64, &e, 0, TANGENT_SEED);
    double *y = model(p, root, n, x), *dy = model(p, root, n, v), *w = all_numbers(n, GRADIENT_SEED);
    double *first = malloc((size_t)(rank_count * n) * sizeof *first), *second = malloc((size_t)(rank_count * n) * sizeof *second);
    for (int64_t k = 0; k < rank_count * n; k++) {
        first[k] = 3 * w[k] * y[k] * y[k];
        second[k] = 6 * w[k] * y[k] * dy[k];
    }
    for (int i = 0; i < p->inputs; i++) {
        wanted->gradient[i] = transposed(p, root, n, first, i);
        wanted->product[i] = transposed(p, root, n, second, i);
    }
    wanted->tangent = malloc((size_t)n * sizeof *dy);
    memcpy(wanted->tangent, dy + rank_id * n, (size_t)n * sizeof *dy);
    free(x), free(v), free(y), free(dy), free(w), free(first), free(second);
}

/* One of the inputs of expect_second, in its layout. */
static aj_tensor *second_input(const program *p, int64_t n, uint64_t seed, int input) {
    const extents e = {1, {n}};
    int layout = input_layout(p, &e, 0, rank_id, input);
    return arrange(base_of(AJ_F64, &e, layout, seed + (uint64_t)input, data_rank(p, rank_id)), &e, layout);
}

static void check_second(const program *p, setup *s, int64_t n) {
    aj_scope *scope = aj_scope_begin(ctx);
    expectation wanted;
    expect_second(p, s->root, n, &wanted);
    aj_tensor *leaf[2], *x[2], *v[2], *seed[2], *g[2], *product[2], *moved = NULL;
    for (int i = 0; i < p->inputs; i++) {
        leaf[i] = aj_param(second_input(p, n, INPUT_SEED, i));
        v[i] = second_input(p, n, TANGENT_SEED, i);
        seed[i] = rank_id == data_rank(p, rank_id) ? v[i] : aj_zeros(ctx, AJ_F64, AJ_SHAPE(n));
    }
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    for (int i = 0; i < p->inputs; i++)
        x[i] = aj_scale(leaf[i], 1); /* so that nothing but a temporary is consumed */
    aj_tensor *y = p->run(ctx, p->inputs, x, s);
    aj_tensor *loss = aj_sum(aj_mul(vector(ctx, n, GRADIENT_SEED, rank_id), aj_mul(aj_square(y), y)));
    CHECK_INT(aj_jvp(ctx, 1, &y, p->inputs, leaf, v, &moved, 0), AJ_OK);
    CHECK_VALUES(moved, n, wanted.tangent, 1e-13);
    CHECK_INT(aj_grad_of(ctx, 1, &loss, NULL, p->inputs, leaf, g, AJ_CREATE_GRAPH), AJ_OK);
    CHECK_INT(aj_grad_of(ctx, p->inputs, g, seed, p->inputs, leaf, product, 0), AJ_OK);
    for (int i = 0; i < p->inputs; i++) {
        CHECK_VALUES(g[i], n, wanted.gradient[i], 1e-13);
        CHECK_VALUES(product[i], n, wanted.product[i], 1e-13);
    }
    CHECK_INT(aj_jvp(ctx, p->inputs, g, p->inputs, leaf, v, product, 0), AJ_OK);
    for (int i = 0; i < p->inputs; i++)
        CHECK_VALUES(product[i], n, wanted.product[i], 1e-13);
    aj_tensor *along = aj_sum(aj_mul(g[0], seed[0]));
    if (p->inputs == 2)
        along = aj_add(along, aj_sum(aj_mul(g[1], seed[1])));
    CHECK_INT(aj_backward(ctx, along, NULL), AJ_OK);
    for (int i = 0; i < p->inputs; i++) {
        CHECK_VALUES(aj_grad(leaf[i]), n, wanted.product[i], 1e-13);
        aj_release(&leaf[i]);
        free(wanted.gradient[i]);
        free(wanted.product[i]);
    }
    free(wanted.tangent);
    check_clean(ctx, p->name);
    CHECK_INT(aj_scope_end(scope), AJ_OK);
}

static void test_second(const program *p) {
    setup s;
    open_setup(&s);
    for (s.root = 0; s.root < (p->rooted ? rank_count : 1); s.root++)
        for (int64_t n = 1; n <= 4; n += 3)
            check_second(p, &s, n);
    close_setup(&s);
}

#define DEFINE(id, ...)                                                                                                          \
    static void first_##id(void) {                                                                                               \
        test_first(&program_##id);                                                                                               \
    }                                                                                                                            \
    static void second_##id(void) {                                                                                              \
        test_second(&program_##id);                                                                                              \
    }
PROGRAMS(DEFINE)
#undef DEFINE

#define CASES(id, ...) {#id, first_##id}, {#id "_second", second_##id},

RANK_MAIN(PROGRAMS(CASES))
