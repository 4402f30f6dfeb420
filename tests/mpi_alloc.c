/*
 * Every allocation of a program that uses each communication call, in first and second order, fails once; then all from the k-th on. The error is
 * clean, nothing stays alive, and the same context goes on to compute right results. For one rank: with more, an allocation that fails on one alone
 * ends the job.
 */
#include "mpi_common.h"

/* ---- an allocator that counts and fails ---- */

typedef struct counting {
    int64_t live, calls, fail_from, fail_to; /* the calls that fail: from <= number < to */
} counting;

static void *counting_alloc(size_t bytes, size_t align, void *user) {
    counting *c = user;
    int64_t number_of_call = c->calls++;
    if (number_of_call >= c->fail_from && number_of_call < c->fail_to)
        return NULL;
    void *memory = NULL;
    if (posix_memalign(&memory, align < sizeof(void *) ? sizeof(void *) : align, bytes ? bytes : 1) != 0)
        return NULL;
    c->live++;
    return memory;
}

static void counting_free(void *memory, size_t bytes, void *user) {
    (void)bytes;
    ((counting *)user)->live -= memory != NULL;
    free(memory);
}

/* ---- the program ---- */

enum { N = 3, N_RESULTS = 7 * N };

static aj_status copy(const aj_call *call) {
    memcpy(call->out[0].data, call->in[0].data, N * sizeof(double));
    return AJ_OK;
}

static aj_status copy_back(const aj_call *call) {
    memcpy(call->g_in[0].data, call->g_out[0].data, N * sizeof(double));
    return AJ_OK;
}

static aj_status copy_ops(aj_ctx *c, const void *attr, aj_tensor *const *in, aj_tensor *const *out, aj_tensor *const *g_out,
                          aj_tensor **g_in) {
    (void)c, (void)attr, (void)in, (void)out;
    g_in[0] = g_out[0];
    return AJ_OK;
}

static const aj_op op_copy = {
    .size = sizeof(aj_op), .name = "copy", .n_out = 1, .forward = copy, .vjp = copy_back, .vjp_ops = copy_ops};

/* An operation of this program's own: the last operand. */
static MPI_Op own;

static void take_last(void *in, void *inout, int *n, MPI_Datatype *type) {
    (void)in, (void)inout, (void)n, (void)type;
}

static aj_tensor *take_last_vjp(aj_ctx *c, aj_tensor *prefix, aj_tensor *x, aj_tensor *suffix, aj_tensor *y, aj_tensor *g,
                                void *user) {
    (void)c, (void)prefix, (void)x, (void)y, (void)user;
    return suffix ? aj_scale(g, 0) : g;
}

static aj_tensor *collectives(aj_tensor *a, aj_tensor *b) {
    aj_tensor *y = aj_allreduce(aj_square(a), MPI_SUM, world), *copied = NULL;
    y = aj_add(aj_bcast(y, 0, world), aj_bcast_inplace(aj_scale(y, 2), 0, world));
    y = aj_add(aj_reduce(y, MPI_SUM, 0, world), aj_reduce_inplace(aj_mul(y, a), MPI_SUM, 0, world));
    if (aj_apply(ctx, &op_copy, world, NULL, 1, &y, 1, &copied) != AJ_OK || aj_barrier(world) != AJ_OK)
        return NULL;
    return aj_mul(copied, aj_shared(b, world));
}

/* On one rank these leave the entries as they are, save that exscan gives zeros. */
static aj_tensor *along_an_axis(aj_tensor *y) {
    aj_comm *alone = aj_comm_split(world, 0, 0);
    if (!alone)
        return NULL;
    y = aj_allgather(aj_scatter(aj_gather(aj_square(y), 0, 0, alone), 0, N, 0, alone), 0, alone);
    aj_comm_destroy(&alone);
    aj_tensor *both = aj_alltoall(aj_broadcast_to(y, AJ_SHAPE(2, N)), 0, -1, N, world);
    y = aj_reduce_scatter(aj_alltoall(aj_sum_axes(both, 1, (const int[]){0}, false), 0, 0, N, world), 0, N, MPI_SUM, world);
    y = aj_add(aj_scan(y, MPI_SUM, world), aj_exscan(y, MPI_SUM, world));
    y = aj_add(aj_allreduce(y, MPI_PROD, world), aj_reduce(aj_scan(y, MPI_PROD, world), MPI_MAX, 0, world));
    y = aj_reduce_scatter(aj_scan(aj_allreduce(y, own, world), own, world), 0, N, MPI_PROD, world);
    return aj_sendrecv(y, 0, 5, aj_scale(y, 2), 0, 5, world);
}

/* Rows that are alike, so that ghosts are as well: the first row is y again. */
static aj_tensor *halos(aj_tensor *y) {
    MPI_Comm cart;
    MPI_Cart_create(MPI_COMM_WORLD, 1, (int[]){1}, (int[]){1}, 0, &cart);
    aj_comm *ring = aj_comm_create(ctx, cart);
    MPI_Comm_free(&cart);
    if (!ring)
        return NULL;
    const int axis = 0;
    const int64_t width = 1;
    y = aj_halo_inplace(aj_scale(aj_broadcast_to(y, AJ_SHAPE(3, N)), 1), 1, &axis, &width, ring);
    aj_comm_destroy(&ring);
    return aj_reshape(aj_slice(y, 0, 0, 1, 1), AJ_SHAPE(N));
}

static aj_tensor *messages(aj_tensor *y, aj_tensor *b) {
    aj_request *in = aj_irecv(b, MPI_ANY_SOURCE, MPI_ANY_TAG, world);
    aj_tensor *handle = aj_request_dummy(in), *sent = aj_send(y, 0, 3, world);
    aj_tensor *got = aj_wait(aj_request_join_dummies(in, 1, &sent));
    aj_request *out = aj_isend(aj_slice(aj_square(got), 0, 0, N - 1, 1), 0, 4, world);
    aj_tensor *part = aj_recv(b, 0, 4, world), *whole = aj_wait(out);
    aj_tensor *dummies[] = {handle, whole};
    return aj_add(aj_join_dummies(part, 2, dummies), sent);
}

static bool read_next(double **out, aj_tensor *t) {
    double x[N];
    if (!t || aj_read(t, x, sizeof x) != AJ_OK)
        return false;
    memcpy(*out, x, sizeof x);
    *out += N;
    return true;
}

/* Everything a recording offers. The results are of use if it returns true. */
static bool differentiate(aj_tensor *const *leaf, aj_tensor *v, double *out) {
    aj_tensor *g[2] = {NULL}, *h[2] = {NULL}, *seeds[2] = {v, v}, *t[1] = {NULL};
    if (aj_op_register(ctx, own, "own", false, take_last_vjp, NULL) != AJ_OK || aj_record_begin(ctx) != AJ_OK)
        return false;
    aj_tensor *y = messages(halos(along_an_axis(collectives(leaf[0], leaf[1]))), leaf[1]), *loss = aj_sum(aj_mul(y, y));
    return aj_grad_of(ctx, 1, &loss, NULL, 2, leaf, g, AJ_CREATE_GRAPH) == AJ_OK &&
           aj_grad_of(ctx, 2, g, seeds, 2, leaf, h, 0) == AJ_OK && aj_jvp(ctx, 1, &y, 2, leaf, seeds, t, 0) == AJ_OK &&
           aj_record_stop(ctx) == AJ_OK && aj_backward_many(ctx, 1, &loss, NULL, AJ_RETAIN_GRAPH) == AJ_OK &&
           aj_backward_replicated(ctx, loss, NULL, world) == AJ_OK && aj_agree(world) == AJ_OK && read_next(&out, g[0]) &&
           read_next(&out, g[1]) && read_next(&out, h[0]) && read_next(&out, h[1]) && read_next(&out, t[0]) &&
           read_next(&out, aj_grad(leaf[0])) && read_next(&out, aj_grad(leaf[1]));
}

static bool program(double *out) {
    aj_scope *scope = aj_scope_begin(ctx);
    if (!scope)
        return false;
    aj_tensor *leaf[2] = {aj_param(vector(ctx, N, 1, 0)), aj_param(vector(ctx, N, 2, 0))}, *v = vector(ctx, N, 3, 0);
    bool done = differentiate(leaf, v, out);
    aj_release(&leaf[0]);
    aj_release(&leaf[1]);
    bool ended = aj_scope_end(scope) == AJ_OK;
    return done && ended;
}

/* ---- its failures ---- */

/* After a failure and its clearing: the program on a fresh communicator. Not if messages are still open, which a program that broke off cannot
 * wait for any more. Returns whether it ran. */
static bool run_again(counting *memory, const double *wanted, int64_t k) {
    memory->fail_from = memory->fail_to = 0;
    aj_ctx_clear_error(ctx);
    aj_comm_destroy(&world);
    aj_ctx_clear_error(ctx);
    if (aj_ctx_stat(ctx, AJ_STAT_REQUESTS) > 0)
        return false;
    double got[N_RESULTS] = {0};
    world = aj_comm_create(ctx, MPI_COMM_WORLD);
    bool done = program(got);
    CHECK_MSG(done && memcmp(got, wanted, sizeof got) == 0, "allocation %lld: the next run: %s", (long long)k, aj_ctx_error(ctx));
    aj_ctx_clear_error(ctx);
    aj_comm_destroy(&world);
    return true;
}

static int reruns;

/* Run with the k-th allocation failing, or all from then on. Returns false once k is beyond the last one. */
static bool fail_at(int64_t k, bool all, const double *wanted) {
    world_log[0] = 0;
    counting memory = {.fail_from = k, .fail_to = all ? INT64_MAX : k + 1};
    aj_ctx_opts opts = {.size = sizeof opts,
                        .alloc = counting_alloc,
                        .free = counting_free,
                        .alloc_user = &memory,
                        .log = keep_line,
                        .disable_pool = 1};
    double got[N_RESULTS] = {0};
    aj_status created = aj_ctx_create(&ctx, &opts);
    if (created != AJ_OK) {
        CHECK_INT(created, AJ_ERR_MEMORY);
        CHECK(ctx == NULL);
        CHECK_MSG(memory.live == 0, "allocation %lld: aj_ctx_create left %lld blocks", (long long)k, (long long)memory.live);
        return true;
    }
    world = aj_comm_create(ctx, MPI_COMM_WORLD);
    bool done = world && program(got), failed = memory.calls > k;
    if (done) /* also where the library found its way around the failure */
        CHECK_MSG(memcmp(got, wanted, sizeof got) == 0, "allocation %lld: wrong results without an error", (long long)k);
    else
        CHECK_MSG(aj_ctx_status(ctx) == AJ_ERR_MEMORY, "allocation %lld: %s: %s", (long long)k,
                  aj_status_name(aj_ctx_status(ctx)), aj_ctx_error(ctx));
    bool again = run_again(&memory, wanted, k);
    reruns += failed && again;
    aj_status destroyed = aj_ctx_destroy(&ctx);
    CHECK_MSG(destroyed == AJ_OK || !again, "allocation %lld: aj_ctx_destroy: %s: %s", (long long)k, aj_status_name(destroyed),
              world_log);
    CHECK_MSG(memory.live == 0, "allocation %lld: %lld blocks left", (long long)k, (long long)memory.live);
    return failed;
}

/* What the program gives when nothing fails. */
static void reference(double *results) {
    open_world();
    CHECK_MSG(program(results), "%s", aj_ctx_error(ctx));
    close_world();
}

static void fail_all_in_turn(bool all) {
    if (rank_count > 1)
        return;
    double wanted[N_RESULTS] = {0};
    MPI_Op_create(take_last, 0, &own);
    reference(wanted);
    CHECK(wanted[0] != 0 && wanted[2 * N] != 0 && wanted[5 * N] == 2 * wanted[0]);
    reruns = 0;
    int64_t k = 0;
    for (bool failed = true; failed && rank_failures < 10; k += failed) {
        watch((uint64_t)k);
        failed = fail_at(k, all, wanted);
        watch_no_more();
    }
    CHECK_MSG(k > 100, "%lld allocations", (long long)k);
    CHECK_MSG(reruns > k / 2, "%d runs after %lld failures", reruns, (long long)k);
    MPI_Op_free(&own);
}

static void one_fails(void) {
    fail_all_in_turn(false);
}

static void all_fail_from(void) {
    fail_all_in_turn(true);
}

RANK_MAIN({"one-fails", one_fails}, {"all-fail-from", all_fail_from})
