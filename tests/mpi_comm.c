/*
 * Communicators: many of them, cached, shared by contexts, outlived by their nodes, freed early by the user; what training leaves behind; custom
 * operations that communicate by themselves.
 */
#include "mpi_common.h"

static aj_tensor *zeros(aj_ctx *c, int64_t n) {
    return aj_zeros(c, AJ_F64, AJ_SHAPE(n));
}

static int left(void) {
    return left_of(rank_id, rank_count);
}

static int right(void) {
    return right_of(rank_id, rank_count);
}

/* MPI's own duplication spins, which takes long with more ranks than cores. */
static int repeats(int often, int seldom) {
    return rank_count <= 2 ? often : seldom;
}

/* ---- lives of communicators ---- */

/* MPICH has some 2,000 context ids: a duplicate that is not freed ends this early. */
static void cycles(void) {
    open_ctx(&ctx);
    for (int i = 0; i < repeats(10000, 50); i++) {
        world = aj_comm_create(ctx, MPI_COMM_WORLD);
        if (i % 10 == 0)
            CHECK_ALL(aj_allreduce(aj_full(ctx, AJ_F64, AJ_SHAPE(1), i), MPI_SUM, world), 1, (double)i * rank_count, 0);
        aj_comm_destroy(&world);
        if (!CHECK_INT(aj_ctx_stat(ctx, AJ_STAT_COMMS), 0))
            break;
    }
    close_ctx(&ctx);
}

/* The same of parts: two colors and ranks that are left out, in the given order and the other way round; of every third one a node outlives its handle. */
static void split_cycles(void) {
    open_world();
    int64_t comms = aj_ctx_stat(ctx, AJ_STAT_COMMS);
    aj_tensor *a = vector_param(ctx, 1, 1);
    for (int i = 0; i < repeats(10000, 60); i++) {
        int color = (rank_id + i) % 3, mine = 0;
        for (int r = 0; r < rank_count; r++)
            mine += color < 2 && (r + i) % 3 == color;
        aj_comm *part = aj_comm_split(world, color < 2 ? color : MPI_UNDEFINED, i % 2 ? -rank_id : rank_id);
        CHECK_INT(aj_comm_size(part), mine);
        if (i % 3 == 0) {
            CHECK_INT(aj_record_begin(ctx), AJ_OK);
            aj_tensor *y = aj_allreduce(a, MPI_SUM, part);
            aj_comm_destroy(&part);
            aj_zero_grad(a);
            CHECK_INT(aj_backward(ctx, y, NULL), AJ_OK);
            CHECK_ALL(aj_grad(a), 1, mine > 0 ? mine : 1, 0);
        }
        aj_comm_destroy(&part);
        if (i % 20 == 0) { /* what was queued goes with the next collective destroy */
            aj_comm *again = aj_comm_create(ctx, MPI_COMM_WORLD);
            aj_comm_destroy(&again);
        }
        if (rank_failures > 0)
            break;
    }
    aj_comm *again = aj_comm_split(world, 0, 0);
    aj_comm_destroy(&again);
    CHECK_INT(aj_ctx_stat(ctx, AJ_STAT_COMMS), comms);
    aj_release(&a);
    close_world();
}

static void cached(void) {
    enum { HANDLES = 3000 };
    open_world();
    aj_comm **handles = malloc(HANDLES * sizeof *handles);
    for (int i = 0; i < HANDLES; i++)
        handles[i] = aj_comm_create(ctx, MPI_COMM_WORLD);
    aj_comm_destroy(&world); /* the others stay usable */
    for (int i = 0; i < HANDLES; i += HANDLES / 3)
        CHECK_ALL(aj_allreduce(aj_full(ctx, AJ_F64, AJ_SHAPE(1), i), MPI_SUM, handles[i]), 1, (double)i * rank_count, 0);
    for (int i = 0; i < HANDLES; i++)
        aj_comm_destroy(&handles[i]);
    free(handles);
    CHECK_INT(aj_ctx_stat(ctx, AJ_STAT_COMMS), 0);
    close_ctx(&ctx);
}

/* A communicator whose handle the user freed, and whose number MPI gives to the next one, is not the same communicator. */
static void reused_handle(void) {
    open_world();
    for (int i = 0; i < 4; i++) {
        MPI_Comm half, all;
        MPI_Comm_split(MPI_COMM_WORLD, rank_id % 2, -rank_id, &half);
        int rank, size;
        MPI_Comm_rank(half, &rank);
        MPI_Comm_size(half, &size);
        aj_comm *first = aj_comm_create(ctx, half);
        MPI_Comm_free(&half);
        MPI_Comm_dup(MPI_COMM_WORLD, &all);
        aj_comm *second = aj_comm_create(ctx, all);
        MPI_Comm_free(&all);
        CHECK_INT(aj_comm_size(first), size);
        CHECK_INT(aj_comm_rank(first), rank);
        CHECK_INT(aj_comm_size(second), rank_count);
        CHECK_INT(aj_comm_rank(second), rank_id);
        CHECK_ALL(aj_allreduce(aj_ones(ctx, AJ_F64, AJ_SHAPE(1)), MPI_SUM, first), 1, size, 0);
        CHECK_ALL(aj_allreduce(aj_ones(ctx, AJ_F64, AJ_SHAPE(1)), MPI_SUM, second), 1, rank_count, 0);
        aj_comm_destroy(&first);
        aj_comm_destroy(&second);
    }
    close_world();
}

/* The library's duplicate has the user's ranks; errors on the user's own communicator keep the user's handler. */
static void congruent(void) {
    open_world();
    int result;
    MPI_Comm_compare(aj_comm_mpi(world), MPI_COMM_WORLD, &result);
    CHECK_INT(result, MPI_CONGRUENT);
    MPI_Errhandler handler;
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &handler);
    CHECK(handler == MPI_ERRORS_ARE_FATAL);
    MPI_Errhandler_free(&handler);
    close_world();
}

/* Backward after the last handle has gone; over and over, so that a duplicate that stays would be missed. */
static void outlived(void) {
    open_world();
    int64_t comms = aj_ctx_stat(ctx, AJ_STAT_COMMS);
    aj_tensor *a = vector_param(ctx, 2, 1);
    for (int i = 0; i < repeats(1000, 30); i++) {
        MPI_Comm copy;
        MPI_Comm_dup(MPI_COMM_WORLD, &copy);
        aj_comm *comm = aj_comm_create(ctx, copy);
        MPI_Comm_free(&copy);
        aj_scope *scope = aj_scope_begin(ctx);
        CHECK_INT(aj_record_begin(ctx), AJ_OK);
        aj_tensor *total = aj_allreduce(a, MPI_SUM, comm);
        aj_comm_destroy(&comm);
        aj_zero_grad(a);
        CHECK_INT(aj_backward(ctx, aj_scale(total, i), NULL), AJ_OK);
        CHECK_INT(aj_scope_end(scope), AJ_OK);
        if (i % 10 == 0)
            CHECK_ALL(aj_grad(a), 2, i * rank_count, 0);
        aj_comm *again = aj_comm_create(ctx, MPI_COMM_WORLD); /* a destroy frees what was queued */
        aj_comm_destroy(&again);
        if (!CHECK_INT(aj_ctx_stat(ctx, AJ_STAT_COMMS), comms))
            break;
    }
    aj_release(&a);
    close_world();
}

/* A topology for fewer ranks than there are: the others have MPI_COMM_NULL, run the same program on a communicator of size 0, where every call gives its operand
 * back, and take part in what concerns all. */
static void check_topology(int d, const int *dims, int members) {
    MPI_Comm cart;
    MPI_Cart_create(MPI_COMM_WORLD, d, dims, (const int[]){1, 0}, 0, &cart);
    bool outside = rank_id >= members;
    CHECK_INT(cart == MPI_COMM_NULL, outside);
    aj_comm *comm = aj_comm_create(ctx, cart);
    if (cart != MPI_COMM_NULL)
        MPI_Comm_free(&cart);
    CHECK_INT(aj_comm_size(comm), outside ? 0 : members);
    CHECK_INT(aj_comm_rank(comm), outside ? MPI_PROC_NULL : rank_id);
    int axes[] = {0, 1}, to = outside ? 0 : right_of(rank_id, members), from = outside ? 0 : left_of(rank_id, members);
    int64_t width[] = {1, 0};
    aj_tensor *a = aj_param(aj_full(ctx, AJ_F64, AJ_SHAPE(3, 2), rank_id + 1));
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    aj_tensor *sum = aj_allreduce(a, MPI_SUM, comm), *halo = aj_halo(a, d, axes, width, comm);
    aj_tensor *last = aj_bcast(aj_scale(a, 1), outside ? 0 : members - 1, comm);
    CHECK_INT(aj_barrier(comm), AJ_OK);
    aj_tensor *got = aj_sendrecv(a, to, 1, zeros(ctx, 6), from, 1, comm);
    CHECK_ALL(sum, 6, outside ? rank_id + 1 : members * (members + 1) / 2.0, 0);
    CHECK_ALL(last, 6, outside ? rank_id + 1 : members, 0);
    if (!outside)
        CHECK_ALL(got, 6, from + 1, 0);
    aj_tensor *all = aj_allreduce(aj_add(sum, last), MPI_SUM, world);
    CHECK_INT(aj_backward(ctx, aj_add(aj_scale(all, rank_id + 1), halo), NULL), AJ_OK);
    double seeds = rank_count * (rank_count + 1) / 2.0, column[3];
    double wanted = outside ? 2 * seeds : members * seeds + (rank_id == members - 1 ? members * seeds : 0);
    CHECK_INT(aj_read(aj_slice(aj_grad(a), 1, 0, 1, 1), column, sizeof column), AJ_OK);
    CHECK_NEAR(column[0] + column[1] + column[2], 3 * wanted + 3, 0); /* a halo keeps the sum */
    aj_release(&a);
    aj_comm_destroy(&comm);
    CHECK(comm == NULL);
}

static void leftover(void) {
    open_world();
    int line = rank_count > 1 ? rank_count - 1 : 1, half = rank_count > 1 ? rank_count / 2 : 1;
    check_topology(1, (const int[]){line}, line);
    check_topology(1, (const int[]){half}, half);
    if (rank_count > 1)
        check_topology(2, (const int[]){half, 2}, 2 * half);
    close_world();
}

/* Parts of parts: of a part of size 0 too, which nobody else needs for it. */
static void parts_of_parts(void) {
    open_world();
    aj_comm *lower = aj_comm_split(world, rank_id < (rank_count + 1) / 2 ? 0 : MPI_UNDEFINED, -rank_id);
    int size = aj_comm_size(lower);
    CHECK_INT(size, rank_id < (rank_count + 1) / 2 ? (rank_count + 1) / 2 : 0);
    CHECK_INT(aj_comm_rank(lower), size ? size - 1 - rank_id : MPI_PROC_NULL);
    aj_comm *even = aj_comm_split(lower, rank_id % 2, 0);
    CHECK_INT(aj_comm_size(even), size == 0 ? 0 : rank_id % 2 ? size / 2 : (size + 1) / 2);
    aj_tensor *a = vector_param(ctx, 2, 1);
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    aj_tensor *y = aj_allreduce(aj_allreduce(a, MPI_SUM, even), MPI_SUM, lower);
    aj_comm_destroy(&lower);
    aj_comm_destroy(&even);
    CHECK_INT(aj_backward(ctx, y, NULL), AJ_OK); /* each of `size` ranks gets what the members of its part have added up */
    CHECK_ALL(aj_grad(a), 2, size == 0 ? 1 : (rank_id % 2 ? size / 2 : (size + 1) / 2) * size, 0);
    aj_release(&a);
    close_world();
}

/* Two contexts on one communicator: their messages do not meet. */
static void two_contexts(void) {
    open_world();
    aj_ctx *other = NULL;
    open_ctx(&other);
    aj_comm *others = aj_comm_create(other, MPI_COMM_WORLD);
    aj_tensor *a = aj_param(aj_full(ctx, AJ_F64, AJ_SHAPE(1), 1)), *b = aj_param(aj_full(other, AJ_F64, AJ_SHAPE(1), 2));
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    CHECK_INT(aj_record_begin(other), AJ_OK);
    aj_send(a, right(), 0, world);
    aj_send(b, right(), 0, others);
    aj_tensor *from_b = aj_recv(zeros(other, 1), left(), 0, others), *from_a = aj_recv(zeros(ctx, 1), left(), 0, world);
    CHECK_ALL(from_a, 1, 1, 0);
    CHECK_NEAR(aj_item(from_b), 2, 0);
    CHECK_INT(aj_backward(other, aj_scale(from_b, rank_id + 1), NULL), AJ_OK);
    CHECK_INT(aj_backward(ctx, aj_scale(from_a, 10 * (rank_id + 1)), NULL), AJ_OK);
    CHECK_NEAR(aj_item(aj_grad(a)), 10 * (right() + 1), 0);
    CHECK_NEAR(aj_item(aj_grad(b)), right() + 1, 0);
    aj_release(&a);
    aj_release(&b);
    aj_comm_destroy(&others);
    close_ctx(&other);
    close_world();
}

/* ---- what training leaves behind ---- */

static const aj_stat stats[] = {AJ_STAT_LIVE_BYTES, AJ_STAT_TENSORS, AJ_STAT_STORAGES, AJ_STAT_NODES,
                                AJ_STAT_REQUESTS,   AJ_STAT_SCOPES,  AJ_STAT_COMMS};
enum { N_STATS = sizeof stats / sizeof stats[0] };

static void take_stats(aj_ctx *c, int64_t *values) {
    for (int i = 0; i < N_STATS; i++)
        values[i] = aj_ctx_stat(c, stats[i]);
}

static bool same_stats(aj_ctx *c, const int64_t *wanted, const char *when) {
    int64_t now[N_STATS];
    take_stats(c, now);
    bool same = true;
    for (int i = 0; i < N_STATS; i++)
        same = CHECK_MSG(now[i] == wanted[i], "%s: statistic %d is %lld, expected %lld", when, (int)stats[i], (long long)now[i],
                         (long long)wanted[i]) &&
               same;
    return same;
}

static void train(aj_tensor *w, int steps) {
    for (int it = 0; it < steps; it++) {
        aj_scope *scope = aj_scope_begin(ctx);
        CHECK_INT(aj_record_begin(ctx), AJ_OK);
        aj_tensor *mean = aj_scale(aj_allreduce(w, MPI_SUM, world), 1.0 / rank_count);
        aj_request *in = aj_irecv(zeros(ctx, 32), left(), 0, world), *out = aj_isend(aj_tanh(mean), right(), 0, world);
        aj_tensor *got = aj_wait(in);
        aj_tensor *root = aj_bcast_inplace(aj_add(got, aj_wait(out)), it % rank_count, world);
        aj_tensor *loss = aj_sum(aj_square(aj_sub(aj_reduce(root, MPI_SUM, 0, world), mean)));
        aj_zero_grad(w);
        CHECK_INT(aj_backward(ctx, loss, NULL), AJ_OK);
        CHECK_INT(aj_sgd_step(w, 1e-4), AJ_OK);
        CHECK_INT(aj_scope_end(scope), AJ_OK);
    }
}

static void training(void) {
    open_ctx(&ctx);
    int64_t before[N_STATS], warm[N_STATS];
    take_stats(ctx, before);
    world = aj_comm_create(ctx, MPI_COMM_WORLD);
    aj_tensor *w = NULL;
    aj_scope *scope = aj_scope_begin(ctx);
    w = vector_param(ctx, 32, 1);
    CHECK_INT(aj_scope_end(scope), AJ_OK);
    train(w, 10);
    take_stats(ctx, warm);
    int64_t peak = aj_ctx_stat(ctx, AJ_STAT_PEAK_BYTES), cached_bytes = aj_ctx_stat(ctx, AJ_STAT_CACHED_BYTES);
    train(w, 990);
    same_stats(ctx, warm, "after 1000 steps");
    CHECK(aj_ctx_stat(ctx, AJ_STAT_PEAK_BYTES) <= 2 * peak);
    CHECK(aj_ctx_stat(ctx, AJ_STAT_CACHED_BYTES) <= 2 * cached_bytes + 65536);
    aj_release(&w);
    aj_comm_destroy(&world);
    same_stats(ctx, before, "at the end");
    close_ctx(&ctx);
}

/* A loop outside a recording holds one state and the messages under way, however long it runs. */
static void forward_only(void) {
    enum { STEPS = 3000, ENTRIES = 8 };
    open_world();
    aj_tensor *state = NULL;
    for (int it = 0; it < STEPS; it++) {
        aj_scope *scope = aj_scope_begin(ctx);
        aj_tensor *mine = state ? state : vector(ctx, ENTRIES, 1, rank_id);
        aj_send(mine, right(), 0, world);
        aj_assign(&state, aj_recv(zeros(ctx, ENTRIES), left(), 0, world));
        CHECK_INT(aj_scope_end(scope), AJ_OK);
    }
    CHECK_INT(aj_barrier(world), AJ_OK);
    CHECK_INT(aj_ctx_stat(ctx, AJ_STAT_TENSORS), 1);
    CHECK_INT(aj_ctx_stat(ctx, AJ_STAT_NODES), 0);
    CHECK(aj_ctx_stat(ctx, AJ_STAT_LIVE_BYTES) <= 20 * 64);
    double *wanted = numbers_of(AJ_F64, 1, ((rank_id - STEPS) % rank_count + rank_count) % rank_count, ENTRIES);
    CHECK_VALUES(state, ENTRIES, wanted, 0);
    free(wanted);
    aj_release(&state);
    close_world();
}

/* ---- custom operations that communicate ---- */

typedef struct shift_attr {
    aj_comm *comm;
    int by; /* 1: to the right, -1: to the left */
} shift_attr;

/* to = from of the rank that is `by` before this one. Nobody here may want what comes (to has no data), but it comes all the same. */
static aj_status shift(const aj_call *call, const aj_buf *from, const aj_buf *to, int by) {
    double unwanted[8];
    MPI_Comm comm = aj_comm_mpi(call->comm);
    int rank = aj_comm_rank(call->comm), size = aj_comm_size(call->comm), n = 1;
    for (int i = 0; i < from->ndim; i++)
        n *= (int)from->shape[i];
    MPI_Request requests[2];
    if (MPI_Irecv(to->data ? to->data : unwanted, n, MPI_DOUBLE, (rank - by + size) % size, 0, comm, &requests[0]) !=
            MPI_SUCCESS ||
        MPI_Isend(from->data, n, MPI_DOUBLE, (rank + by + size) % size, 0, comm, &requests[1]) != MPI_SUCCESS)
        return aj_raise(call->ctx, AJ_ERR_MPI, "shift: no message could be started");
    rank_wait(&requests[0]);
    rank_wait(&requests[1]);
    return AJ_OK;
}

static aj_status shift_forward(const aj_call *call) {
    return shift(call, &call->in[0], &call->out[0], ((const shift_attr *)call->attr)->by);
}

static aj_status shift_vjp(const aj_call *call) {
    return shift(call, &call->g_out[0], &call->g_in[0], -((const shift_attr *)call->attr)->by);
}

static aj_status shift_jvp(const aj_call *call) {
    return shift(call, &call->g_in[0], &call->g_out[0], ((const shift_attr *)call->attr)->by);
}

/* An error that a review of the formulas would hardly find: the gradient stays where it is. */
static aj_status wrong_vjp(const aj_call *call) {
    return shift(call, &call->g_out[0], &call->g_in[0], 0);
}

static aj_tensor *apply_shift(const aj_op *op, aj_tensor *x, int by) {
    aj_tensor *y = NULL;
    aj_apply(ctx, op, world, &(shift_attr){world, by}, 1, &x, 1, &y);
    return y;
}

static aj_status shift_vjp_ops(aj_ctx *c, const void *attr, aj_tensor *const *in, aj_tensor *const *out, aj_tensor *const *g_out,
                               aj_tensor **g_in);

static const aj_op op_shift = {.size = sizeof(aj_op),
                               .name = "shift",
                               .maths = "y_r = x_{r - by}; gx_r = g_{r + by}",
                               .n_out = 1,
                               .attr_size = sizeof(shift_attr),
                               .forward = shift_forward,
                               .vjp = shift_vjp,
                               .vjp_ops = shift_vjp_ops};
static const aj_op op_shift_jvp = {.size = sizeof(aj_op),
                                   .name = "shift_jvp",
                                   .n_out = 1,
                                   .attr_size = sizeof(shift_attr),
                                   .forward = shift_forward,
                                   .vjp = shift_vjp,
                                   .jvp = shift_jvp};
static const aj_op op_shift_once = {.size = sizeof(aj_op),
                                    .name = "shift_once",
                                    .n_out = 1,
                                    .attr_size = sizeof(shift_attr),
                                    .forward = shift_forward,
                                    .vjp = shift_vjp};
static const aj_op op_shift_wrong = {.size = sizeof(aj_op),
                                     .name = "shift_wrong",
                                     .n_out = 1,
                                     .attr_size = sizeof(shift_attr),
                                     .forward = shift_forward,
                                     .vjp = wrong_vjp};

static aj_status shift_vjp_ops(aj_ctx *c, const void *attr, aj_tensor *const *in, aj_tensor *const *out, aj_tensor *const *g_out,
                               aj_tensor **g_in) {
    (void)in, (void)out;
    shift_attr back = *(const shift_attr *)attr;
    back.by = -back.by;
    return aj_apply(c, &op_shift, back.comm, &back, 1, g_out, 1, g_in);
}

/* First order; the result is used with a weight of each rank's own, and on the last rank not at all. */
static void custom(void) {
    open_world();
    static const aj_op *const ops[] = {&op_shift, &op_shift_jvp, &op_shift_once};
    for (int k = 0; k < 3; k++) {
        bool idle = rank_id == rank_count - 1;
        aj_tensor *a = vector_param(ctx, 3, 1);
        CHECK_INT(aj_record_begin(ctx), AJ_OK);
        aj_tensor *b = apply_shift(ops[k], idle ? aj_detach(a) : aj_scale(a, 2), 1);
        double *wanted = numbers_of(AJ_F64, 1, left(), 3);
        for (int i = 0; i < 3; i++)
            wanted[i] *= left() == rank_count - 1 ? 1 : 2;
        CHECK_VALUES(b, 3, wanted, 0);
        free(wanted);
        CHECK_INT(aj_backward(ctx, idle ? aj_scalar(ctx, AJ_F64, 1) : aj_scale(b, rank_id + 1), NULL), AJ_OK);
        CHECK_ALL(aj_grad(a), 3, idle || right() == rank_count - 1 ? 0 : 2 * (right() + 1), 0);
        aj_release(&a);
    }
    close_world();
}

/* L = sum_r w_r x_r^2 b_r^3, b = shift(x). */
static void check_custom_second(const aj_op *op, bool twice) {
    double x[3], v[3], w[3]; /* of the left neighbour, of this rank, of the right one */
    for (int k = 0; k < 3; k++) {
        int rank = (rank_id + k - 1 + rank_count) % rank_count;
        x[k] = number(1, rank, 0);
        v[k] = number(2, rank, 0);
        w[k] = number(3, rank, 0);
    }
    aj_tensor *p = aj_param(aj_full(ctx, AJ_F64, AJ_SHAPE(1), x[1])), *tangent = aj_full(ctx, AJ_F64, AJ_SHAPE(1), v[1]);
    aj_tensor *gradient = NULL, *product = NULL;
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    aj_tensor *b = apply_shift(op, p, 1);
    aj_tensor *loss = aj_scale(aj_mul(aj_square(p), aj_mul(aj_square(b), b)), w[1]);
    CHECK_INT(aj_jvp(ctx, 1, &b, 1, &p, &tangent, &product, 0), AJ_OK);
    CHECK_ALL(product, 1, v[0], 0);
    if (twice) {
        double wanted = 2 * w[1] * pow(x[0], 3) * v[1] + 6 * w[1] * x[1] * x[0] * x[0] * v[0] +
                        6 * w[2] * x[2] * x[1] * x[1] * v[2] + 6 * w[2] * x[2] * x[2] * x[1] * v[1];
        CHECK_INT(aj_grad_of(ctx, 1, &loss, NULL, 1, &p, &gradient, AJ_CREATE_GRAPH), AJ_OK);
        CHECK_INT(aj_grad_of(ctx, 1, &gradient, &tangent, 1, &p, &product, 0), AJ_OK);
        CHECK_ALL(product, 1, wanted, 1e-13);
    }
    CHECK_INT(aj_backward(ctx, loss, NULL), AJ_OK);
    CHECK_ALL(aj_grad(p), 1, 2 * w[1] * x[1] * pow(x[0], 3) + 3 * w[2] * pow(x[2] * x[1], 2), 1e-13);
    aj_release(&p);
}

static void custom_second(void) {
    open_world();
    check_custom_second(&op_shift, true);
    check_custom_second(&op_shift_jvp, false);
    close_world();
}

/* Without vjp_ops a derivative of the derivative is a clear error on all ranks, after which the first one still works. */
static void custom_once(void) {
    open_world();
    aj_tensor *a = vector_param(ctx, 2, 1), *gradient = NULL;
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    aj_tensor *b = apply_shift(&op_shift_once, a, 1);
    CHECK_INT(aj_grad_of(ctx, 1, &b, NULL, 1, &a, &gradient, AJ_CREATE_GRAPH), AJ_ERR_UNSUPPORTED);
    CHECK(gradient == NULL);
    CHECK_CONTAINS(aj_ctx_error(ctx), "shift_once");
    aj_ctx_clear_error(ctx);
    CHECK_INT(aj_backward(ctx, aj_scale(b, rank_id + 1), NULL), AJ_OK);
    CHECK_ALL(aj_grad(a), 2, right() + 1, 0);
    aj_release(&a);
    close_world();
}

/* The checks: they pass what is right, and find the wrong derivative, alike on all ranks. */
static aj_tensor *shifted(aj_ctx *c, int n, aj_tensor *const *x, void *user) {
    (void)c, (void)n;
    const aj_op *const *op = user;
    return aj_sin(apply_shift(*op, x[0], 1));
}

static void custom_checks(void) {
    open_world();
    aj_tensor *x = aj_scale(vector(ctx, 3, 1, rank_id), 0.125);
    const aj_op *op = &op_shift;
    aj_check check = {.size = sizeof check};
    CHECK_INT(aj_gradcheck(ctx, shifted, &op, 1, &x, world, &check), AJ_OK);
    CHECK_MSG(check.passed, "gradcheck: %g instead of %g", check.got, check.expected);
    check = (aj_check){.size = sizeof check};
    CHECK_INT(aj_dot_test(ctx, shifted, &op, 1, &x, world, &check), AJ_OK);
    CHECK_MSG(check.passed, "dot test: %g instead of %g", check.got, check.expected);
    check = (aj_check){.size = sizeof check};
    CHECK_INT(aj_taylor_test(ctx, shifted, &op, 1, &x, world, &check), AJ_OK);
    CHECK_MSG(check.passed, "Taylor test: rates %g, %g", check.rates[0], check.rates[1]);
    op = &op_shift_wrong;
    check = (aj_check){.size = sizeof check};
    CHECK_INT(aj_gradcheck(ctx, shifted, &op, 1, &x, world, &check), AJ_OK);
    CHECK_INT(check.passed, rank_count == 1); /* alone, the wrong formula is right */
    check = (aj_check){.size = sizeof check};
    CHECK_INT(aj_taylor_test(ctx, shifted, &op, 1, &x, world, &check), AJ_OK);
    CHECK_INT(check.passed, rank_count == 1);
    close_world();
}

RANK_MAIN({"cycles", cycles}, {"split-cycles", split_cycles}, {"cached", cached}, {"leftover", leftover},
          {"parts-of-parts", parts_of_parts}, {"reused-handle", reused_handle}, {"congruent", congruent}, {"outlived", outlived},
          {"two-contexts", two_contexts}, {"training", training}, {"forward-only", forward_only}, {"custom", custom},
          {"custom-second", custom_second}, {"custom-once", custom_once}, {"custom-checks", custom_checks})
