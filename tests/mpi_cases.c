/*
 * Small programs whose gradients are known, one for each way in which an adjoint of a communication goes wrong. Results are compared for
 * equality where the numbers are whole.
 */
#include "mpi_common.h"

/* A parameter of one or more given numbers. */
#define PARAM(...)                                                                                                               \
    aj_param(aj_from_data(ctx, AJ_F64, AJ_SHAPE((int64_t)(sizeof((double[]){__VA_ARGS__}) / sizeof(double))),                    \
                          (const double[]){__VA_ARGS__}))
#define CONSTANT(...)                                                                                                            \
    aj_from_data(ctx, AJ_F64, AJ_SHAPE((int64_t)(sizeof((double[]){__VA_ARGS__}) / sizeof(double))),                             \
                 (const double[]){__VA_ARGS__})
#define CHECK_GRAD(param, ...)                                                                                                   \
    CHECK_VALUES(aj_grad(param), (int64_t)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)), ((const double[]){__VA_ARGS__}), 0)

static aj_tensor *zeros(int64_t n) {
    return aj_zeros(ctx, AJ_F64, AJ_SHAPE(n));
}

static int left(void) {
    return left_of(rank_id, rank_count);
}

static int right(void) {
    return right_of(rank_id, rank_count);
}

static void record(void) {
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
}

/* Gradient of the sum over ranks of loss; ends the recording. */
static void backward(aj_tensor *loss) {
    CHECK_MSG(aj_backward(ctx, loss, NULL) == AJ_OK, "aj_backward: %s", aj_ctx_error(ctx));
}

/* ---- collectives ---- */

/* L_r = (r + 1) allreduce(x): a seed that differs by rank. */
static void ar_seed(void) {
    open_world();
    aj_tensor *x = PARAM(2.0 + rank_id);
    record();
    backward(aj_scale(aj_allreduce(x, MPI_SUM, world), rank_id + 1));
    CHECK_GRAD(x, rank_count * (rank_count + 1) / 2.0);
    aj_release(&x);
    close_world();
}

/* The same for allgather of one entry, and for a reduce_scatter of as many as there are ranks: a seed that all entries of a rank share. */
static void ag_seed(void) {
    open_world();
    aj_tensor *x = PARAM(2.0 + rank_id), *z = vector_param(ctx, rank_count, 1);
    record();
    backward(aj_sum(aj_scale(aj_allgather(x, 0, world), rank_id + 1)));
    CHECK_GRAD(x, rank_count * (rank_count + 1) / 2.0);
    record();
    backward(aj_sum(aj_scale(aj_reduce_scatter(z, 0, 1, MPI_SUM, world), rank_id + 1)));
    double *wanted = malloc((size_t)rank_count * sizeof *wanted);
    for (int r = 0; r < rank_count; r++)
        wanted[r] = r + 1;
    CHECK_VALUES(aj_grad(z), rank_count, wanted, 0);
    free(wanted);
    aj_release(&x);
    aj_release(&z);
    close_world();
}

/* Totals of the seeds of all ranks that do not depend on their number: 1 and 2 on the first two ranks, the rest on rank 0. */
static double part_of(double total) {
    return rank_id == 0 ? total - (rank_count > 1 ? 2 : 0) : rank_id == 1 ? 2 : 0;
}

/* The collectives in which every rank's operand meets every other's: of one entry, with its gradient under a total seed. */
static void check_reduced(MPI_Op op, double operand, double total, double value, double gradient) {
    for (int k = 0; k < 4; k++) {
        aj_tensor *x = PARAM(operand);
        record();
        aj_tensor *y = k == 0   ? aj_allreduce(x, op, world)
                       : k == 1 ? aj_reduce(x, op, 0, world)
                       : k == 2 ? aj_reduce_inplace(x, op, 0, world)
                                : aj_reduce_scatter(x, 0, rank_id == 0, op, world);
        double seed = k == 0 ? part_of(total) : rank_id == 0 ? total : 1e3; /* that of zeros that nobody made is ignored */
        if (k == 0 || rank_id == 0)
            CHECK_ALL(y, 1, value, 0);
        backward(aj_scale(y, seed));
        CHECK_NEAR(aj_item(aj_grad(x)), gradient, 1e-15);
        aj_release(&x);
    }
}

/* (2, 0, 4), total seed 6: only the zero's rank gets a gradient. More ranks have ones. */
static void prod_zero(void) {
    open_world();
    double x = rank_id == 0 ? 2 : rank_id == 1 ? 0 : rank_id == 2 ? 4 : 1;
    double others = rank_count > 2 ? 48 : 12;
    check_reduced(MPI_PROD, x, 6, rank_count > 1 ? 0 : 2, rank_count == 1 ? 6 : rank_id == 1 ? others : 0);
    check_reduced(MPI_PROD, rank_id < 2 ? 0 : 5, 6, 0, rank_count == 1 ? 6 : 0); /* two zeros: nobody */
    close_world();
}

/* (1e-200, 1e-200, 1e300), total seed 1: the product of the others is a number where the whole product is none. */
static void prod_range(void) {
    open_world();
    double x = rank_id < 2 ? 1e-200 : rank_id == 2 ? 1e300 : 1;
    double gradient = rank_count == 1 ? 1 : rank_count == 2 ? 1e-200 : rank_id < 2 ? 1e100 : rank_id == 2 ? 0 : 1e-100;
    aj_tensor *leaf = PARAM(x);
    record();
    backward(aj_scale(aj_allreduce(leaf, MPI_PROD, world), part_of(1)));
    double got = aj_item(aj_grad(leaf));
    CHECK_MSG(fabs(got - gradient) <= 1e-14 * gradient, "the gradient is %.17g, expected %.17g", got, gradient);
    aj_release(&leaf);
    close_world();
}

/* A tie between the last two ranks, and one of all: the lowest of them gets everything. */
static void max_tie(void) {
    open_world();
    int first = rank_count > 1 ? rank_count - 2 : 0;
    for (int sign = -1; sign <= 1; sign += 2) {
        MPI_Op op = sign > 0 ? MPI_MAX : MPI_MIN;
        check_reduced(op, sign * (rank_id >= first ? 7 : 1), 6, 7 * sign, rank_id == first ? 6 : 0);
        check_reduced(op, 3, 6, 3, rank_id == 0 ? 6 : 0);
    }
    close_world();
}

/* z = 2x + bcast(b, 0): an operand beside a communication must not lose its gradient. */
static void sibling(void) {
    open_world();
    aj_tensor *x = PARAM(3, 4), *b = PARAM(5, 6);
    record();
    aj_tensor *z = aj_add(aj_scale(x, 2), aj_bcast(b, 0, world));
    backward(aj_sum(aj_mul(z, CONSTANT(1, 2))));
    CHECK_GRAD(x, 2, 4);
    CHECK_GRAD(b, rank_id == 0 ? rank_count : 0, rank_id == 0 ? 2 * rank_count : 0);
    aj_release(&x);
    aj_release(&b);
    close_world();
}

static void allreduce_sum(void) {
    open_world();
    aj_tensor *x = vector_param(ctx, 10, 1);
    record();
    backward(aj_sum(aj_allreduce(x, MPI_SUM, world)));
    CHECK_ALL(aj_grad(x), 10, rank_count, 0);
    aj_release(&x);
    close_world();
}

static void bcast_inplace(void) {
    open_world();
    aj_tensor *x = vector_param(ctx, 10, 1);
    record();
    backward(aj_sum(aj_bcast_inplace(x, 0, world)));
    CHECK_ALL(aj_grad(x), 10, rank_id == 0 ? rank_count : 0, 0);
    aj_release(&x);
    close_world();
}

static void reduce_inplace(void) {
    open_world();
    aj_tensor *x = vector_param(ctx, 10, 1);
    record();
    backward(aj_sum(aj_reduce_inplace(x, MPI_SUM, 0, world)));
    CHECK_ALL(aj_grad(x), 10, 1, 0);
    aj_release(&x);
    close_world();
}

/* x + reduce_inplace(x) is an error on every rank; x is whole again when the recording has gone, and x + reduce(x) is right. */
static void consumed(void) {
    open_world();
    aj_tensor *x = vector_param(ctx, 3, 1);
    record();
    aj_tensor *reduced = aj_reduce_inplace(x, MPI_SUM, 0, world);
    CHECK(reduced != NULL);
    CHECK(aj_add(x, reduced) == NULL);
    CHECK_INT(aj_ctx_status(ctx), AJ_ERR_STATE);
    CHECK_CONTAINS(aj_ctx_error(ctx), "reduce_inplace");
    aj_ctx_clear_error(ctx);
    CHECK_INT(aj_record_end(ctx), AJ_OK);
    record();
    backward(aj_sum(aj_add(x, aj_reduce(x, MPI_SUM, 0, world))));
    CHECK_ALL(aj_grad(x), 3, 2, 0);
    double *wanted = numbers_of(AJ_F64, 1, rank_id, 3);
    CHECK_VALUES(x, 3, wanted, 0);
    free(wanted);
    aj_release(&x);
    close_world();
}

/* The seed of rank 0 alone counts for a loss that is one number on all ranks. */
static void replicated(void) {
    open_world();
    aj_tensor *x = PARAM(1.0 + rank_id, 2);
    record();
    aj_tensor *loss = aj_sum(aj_allreduce(aj_square(x), MPI_SUM, world));
    CHECK_INT(aj_backward_replicated(ctx, loss, NULL, world), AJ_OK);
    CHECK_GRAD(x, 2.0 * (1 + rank_id), 4);
    aj_zero_grad(x);
    record();
    loss = aj_sum(aj_allreduce(aj_square(x), MPI_SUM, world));
    CHECK_INT(aj_backward_replicated(ctx, loss, aj_scalar(ctx, AJ_F64, rank_id == 0 ? 3 : 1e9), world), AJ_OK);
    CHECK_GRAD(x, 6.0 * (1 + rank_id), 12);
    aj_release(&x);
    close_world();
}

static void dummies(void) {
    open_world();
    aj_tensor *x = vector_param(ctx, 4, 1), *d2 = vector_param(ctx, 3, 2), *d3 = vector_param(ctx, 2, 3);
    record();
    aj_tensor *y = aj_join_dummies(aj_allreduce(x, MPI_SUM, world), 2, (aj_tensor *const[]){d2, d3});
    backward(aj_sum(y));
    CHECK_ALL(aj_grad(x), 4, rank_count, 0);
    CHECK_ALL(aj_grad(d2), 3, 0, 0);
    CHECK_ALL(aj_grad(d3), 2, 0, 0);
    aj_release(&x);
    aj_release(&d2);
    aj_release(&d3);
    close_world();
}

/* ---- messages ---- */

/* The naive ring: nothing ties the send to the loss but the messages themselves. */
static void ring(void) {
    open_world();
    aj_tensor *a = PARAM(1.0 + rank_id);
    record();
    aj_send(a, right(), 0, world);
    aj_tensor *b = aj_recv(zeros(1), left(), 0, world);
    CHECK_NEAR(aj_item(b), left() + 1, 0);
    backward(aj_add(a, b));
    CHECK_GRAD(a, 2);
    aj_release(&a);
    close_world();
}

/* A receive buffer that itself needs a gradient gets none for what was overwritten. */
static void buffer(void) {
    open_world();
    aj_tensor *a = PARAM(1.0 + rank_id, 2), *room = PARAM(7, 8);
    record();
    aj_tensor *used = aj_square(room); /* an inner node, too */
    aj_send(a, right(), 0, world);
    aj_tensor *b = aj_recv(used, left(), 0, world);
    backward(aj_sum(aj_scale(b, rank_id + 1)));
    CHECK_GRAD(room, 0, 0);
    CHECK_GRAD(a, right() + 1, right() + 1);
    aj_release(&a);
    aj_release(&room);
    close_world();
}

/* What was not received is the buffer's: nothing from MPI_PROC_NULL, and the rest after a short message. */
static void edge(void) {
    open_world();
    aj_tensor *room = PARAM(7, 8, 9), *a = PARAM(1.0 + rank_id, 2);
    record();
    aj_tensor *none = aj_recv(aj_scale(room, 2), MPI_PROC_NULL, MPI_ANY_TAG, world);
    aj_request *request = aj_irecv(aj_scale(room, 3), MPI_PROC_NULL, 1, world);
    aj_tensor *gone = aj_wait(aj_isend(a, MPI_PROC_NULL, 1, world));
    aj_send(a, right(), 1, world);
    aj_tensor *part = aj_recv(aj_scale(room, 5), left(), 1, world);
    aj_tensor *also_none = aj_wait(request);
    CHECK_VALUES(none, 3, ((const double[]){14, 16, 18}), 0);
    CHECK_VALUES(part, 3, ((const double[]){1.0 + left(), 2, 45}), 0);
    aj_tensor *sum = aj_add(aj_add(none, also_none), aj_mul(part, CONSTANT(100, 1000, 10000)));
    backward(aj_add(aj_sum(aj_mul(sum, CONSTANT(1, 2, 3))), aj_sum(gone)));
    CHECK_GRAD(room, 5, 10, 15 + 3 * 5 * 10000);
    CHECK_GRAD(a, 100 + 1, 2000 + 1);
    aj_release(&room);
    aj_release(&a);
    close_world();
}

/* The tag of the sender, not of the receiver, belongs to the stream. */
static void tag_ring(void) {
    open_world();
    aj_tensor *a = PARAM(1.0 + rank_id);
    record();
    aj_request *in = aj_irecv(zeros(1), left(), 10 + left(), world);
    aj_send(a, right(), 10 + rank_id, world);
    aj_tensor *b = aj_wait(in);
    aj_send(a, left(), 100 + rank_id, world);
    aj_tensor *c = aj_recv(zeros(1), right(), 100 + right(), world);
    backward(aj_add(aj_scale(b, rank_id + 1), aj_scale(c, 100 * (rank_id + 1))));
    CHECK_GRAD(a, (right() + 1) + 100 * (left() + 1));
    aj_release(&a);
    close_world();
}

/* The same by sendrecv. */
static void tag_ring_sendrecv(void) {
    open_world();
    aj_tensor *a = PARAM(1.0 + rank_id);
    record();
    aj_tensor *b = aj_sendrecv(a, right(), 10 + rank_id, zeros(1), left(), 10 + left(), world);
    aj_tensor *c = aj_sendrecv(a, left(), 100 + rank_id, zeros(1), right(), 100 + right(), world);
    CHECK_ALL(b, 1, 1 + left(), 0);
    CHECK_ALL(c, 1, 1 + right(), 0);
    backward(aj_add(aj_scale(b, rank_id + 1), aj_scale(c, 100 * (rank_id + 1))));
    CHECK_GRAD(a, (right() + 1) + 100 * (left() + 1));
    aj_release(&a);
    close_world();
}

/* Two messages are on their way; sendrecv takes the one with its tag, which started later. */
static void sendrecv_tags(void) {
    open_world();
    aj_tensor *a = PARAM(1.0 + rank_id), *b = PARAM(10.0 + rank_id);
    record();
    aj_send(b, right(), 2, world);
    aj_tensor *got_a = aj_sendrecv(a, right(), 1, zeros(1), left(), 1, world);
    aj_tensor *got_b = aj_recv(zeros(1), left(), MPI_ANY_TAG, world); /* what is left */
    CHECK_ALL(got_a, 1, 1 + left(), 0);
    CHECK_ALL(got_b, 1, 10 + left(), 0);
    backward(aj_add(aj_scale(got_a, rank_id + 2), aj_scale(got_b, -5 * (rank_id + 2))));
    CHECK_GRAD(a, right() + 2);
    CHECK_GRAD(b, -5 * (right() + 2));
    aj_release(&a);
    aj_release(&b);
    close_world();
}

/* Two messages of one stream, waited for in one order here and in the other there, and weighted differently. */
static void wait_order(void) {
    open_world();
    for (int order = 0; order < 4; order++) {
        aj_tensor *a = PARAM(1.0 + rank_id), *b = PARAM(10.0 + rank_id);
        record();
        aj_request *send_a = aj_isend(a, right(), 0, world), *send_b = aj_isend(b, right(), 0, world);
        aj_request *recv_a = aj_irecv(zeros(1), left(), 0, world), *recv_b = aj_irecv(zeros(1), left(), 0, world);
        aj_tensor *got_a = NULL, *got_b = NULL;
        if (order & 1)
            got_b = aj_wait(recv_b);
        got_a = aj_wait(recv_a);
        if (!got_b)
            got_b = aj_wait(recv_b);
        aj_wait(order & 2 ? send_b : send_a);
        aj_wait(order & 2 ? send_a : send_b);
        CHECK_NEAR(aj_item(got_a), 1 + left(), 0);
        CHECK_NEAR(aj_item(got_b), 10 + left(), 0);
        backward(aj_add(aj_scale(got_a, rank_id + 2), aj_scale(got_b, -5 * (rank_id + 2))));
        CHECK_GRAD(a, right() + 2);
        CHECK_GRAD(b, -5 * (right() + 2));
        aj_release(&a);
        aj_release(&b);
    }
    close_world();
}

/* Orders in which a blocking send or a narrow matching hangs, to the rank itself and in a ring. */
static void self_order(int64_t n, int dest, int source, bool started) {
    aj_scope *scope = aj_scope_begin(ctx);
    aj_tensor *a = vector_param(ctx, n, 5);
    record();
    aj_request *in = started ? aj_irecv(zeros(n), source, 0, world) : NULL;
    aj_tensor *sent = aj_send(a, dest, 0, world);
    aj_tensor *received = started ? aj_wait(in) : aj_recv(zeros(n), source, 0, world);
    double *wanted = numbers_of(AJ_F64, 5, source, n);
    CHECK_VALUES(received, n, wanted, 0);
    free(wanted);
    backward(aj_sum(aj_add(aj_scale(received, rank_id + 1), aj_scale(sent, 50))));
    CHECK_ALL(aj_grad(a), n, 50 + dest + 1, 0);
    aj_release(&a);
    CHECK_INT(aj_scope_end(scope), AJ_OK);
}

static void self(void) {
    open_world();
    for (int64_t n = 10; n <= 100000; n *= 10000)
        for (int started = 0; started < 2; started++) {
            self_order(n, rank_id, rank_id, started);
            self_order(n, right(), left(), started);
            self_order(n, left(), right(), started);
        }
    close_world();
}

/* The same by the halo exchange. */
static void halo_2_cart(void) {
    open_world();
    MPI_Comm line;
    MPI_Cart_create(MPI_COMM_WORLD, 1, &rank_count, (const int[]){1}, 0, &line);
    aj_comm *comm = aj_comm_create(ctx, line);
    MPI_Comm_free(&line);
    aj_tensor *u = PARAM(-1, 1.0 + rank_id, 2, 3 + 10.0 * rank_id, -1); /* ghosts at the ends */
    record();
    aj_tensor *y = aj_halo(u, 1, (const int[]){0}, (const int64_t[]){1}, comm);
    CHECK_VALUES(y, 5, ((const double[]){3 + 10.0 * left(), 1 + rank_id, 2, 3 + 10.0 * rank_id, 1 + right()}), 0);
    backward(aj_sum(aj_scale(aj_mul(y, CONSTANT(1, 10, 100, 1000, 10000)), 2 + rank_id)));
    CHECK_GRAD(u, 0, 10 * (2 + rank_id) + 10000 * (2 + left()), 100 * (2 + rank_id), 1000 * (2 + rank_id) + 2 + right(), 0);
    aj_release(&u);
    aj_comm_destroy(&comm);
    close_world();
}

/* Periodic halo with one tag: on two ranks both neighbours are the same one, on one rank they are itself. */
static void halo_2(void) {
    open_world();
    for (int order = 0; order < 2; order++) {
        aj_tensor *u = PARAM(1.0 + rank_id, 2, 3 + 10.0 * rank_id);
        record();
        aj_request *to_left = aj_isend(aj_slice(u, 0, 0, 1, 1), left(), 0, world);
        aj_request *to_right = aj_isend(aj_slice(u, 0, 2, 3, 1), right(), 0, world);
        aj_request *from_right = aj_irecv(zeros(1), right(), 0, world);
        aj_request *from_left = aj_irecv(zeros(1), left(), 0, world);
        aj_tensor *right_ghost = order ? NULL : aj_wait(from_right), *left_ghost = aj_wait(from_left);
        if (order)
            right_ghost = aj_wait(from_right);
        aj_wait(to_right);
        aj_wait(to_left);
        CHECK_NEAR(aj_item(left_ghost), 3 + 10 * left(), 0);
        CHECK_NEAR(aj_item(right_ghost), 1 + right(), 0);
        backward(aj_add(aj_sum(aj_scale(left_ghost, 2 + rank_id)), aj_sum(aj_scale(right_ghost, 100 * (2 + rank_id)))));
        CHECK_GRAD(u, 100 * (2 + left()), 0, 2 + right());
        aj_release(&u);
    }
    close_world();
}

/* Several messages in flight to receives that take anything: each gradient goes home to the message that came. */
static void wild(void) {
    enum { EACH = 3 };
    open_world();
    aj_scope *scope = aj_scope_begin(ctx);
    int slots = EACH * rank_count;
    aj_tensor *a[EACH], *loss = zeros(1);
    aj_request **in = malloc((size_t)slots * sizeof *in);
    double *weight_of = calloc((size_t)(rank_count * slots), sizeof *weight_of); /* [receiver][message]: what it gave each */
    for (int k = 0; k < EACH; k++)
        a[k] = PARAM(100.0 * rank_id + k);
    record();
    for (int i = 0; i < slots; i++)
        in[i] = rank_id % 2 && i % 3 == 0 ? NULL
                                          : aj_irecv(zeros(1), MPI_ANY_SOURCE,
                                                     i % 2   ? MPI_ANY_TAG
                                                     : i % 3 ? 1
                                                             : MPI_ANY_TAG,
                                                     world);
    for (int k = 0; k < EACH; k++)
        for (int to = 0; to < rank_count; to++)
            aj_send(a[k], (to + rank_id) % rank_count, 1, world);
    for (int i = slots - 1; i >= 0; i--) {
        aj_tensor *got = in[i] ? aj_wait(in[i]) : aj_recv(zeros(1), MPI_ANY_SOURCE, MPI_ANY_TAG, world);
        double weight = number(77, rank_id, i), value = aj_item(got);
        int message = (int)(value / 100) * EACH + (int)value % 100;
        if (CHECK_MSG(message >= 0 && message < slots, "received %g", value))
            weight_of[rank_id * slots + message] += weight;
        loss = aj_add(loss, aj_scale(got, weight));
    }
    backward(loss);
    world_sums(rank_count * slots, weight_of);
    for (int k = 0; k < EACH; k++) {
        double wanted = 0;
        for (int r = 0; r < rank_count; r++)
            wanted += weight_of[r * slots + rank_id * EACH + k];
        CHECK_GRAD(a[k], wanted);
        aj_release(&a[k]);
    }
    free(weight_of);
    free(in);
    CHECK_INT(aj_scope_end(scope), AJ_OK);
    close_world();
}

/* Ranks that do not use what they got, have nothing to differentiate or no root at all must not keep the others waiting. */
static void passive(void) {
    open_world();
    bool idle = rank_id == rank_count - 1;
    aj_tensor *a = PARAM(1.0 + rank_id);
    record();
    aj_tensor *mine = idle ? aj_detach(a) : a;
    aj_send(mine, right(), 0, world);
    aj_tensor *b = aj_recv(zeros(1), left(), 0, world);
    aj_tensor *total = aj_allreduce(mine, MPI_SUM, world);
    backward(idle ? aj_scalar(ctx, AJ_F64, 3) : aj_sum(aj_add(aj_scale(b, 10), total)));
    bool wanted_right = right() != rank_count - 1; /* my message reached one that uses it */
    CHECK_GRAD(a, idle ? 0 : (wanted_right ? 10 : 0) + rank_count - 1);
    aj_zero_grad(a);
    record();
    total = aj_allreduce(a, MPI_SUM, world);
    aj_tensor *doubled = aj_scale(total, 2);
    CHECK_INT(aj_backward_many(ctx, idle ? 0 : 1, &doubled, NULL, 0), AJ_OK); /* a rank without a root */
    CHECK_GRAD(a, 2 * (rank_count - 1));
    aj_release(&a);
    close_world();
}

/* The graph after aj_record_stop: several gradients, with other roots on other ranks, then backward; nothing is counted twice. */
static void retained(void) {
    open_world();
    aj_tensor *a = PARAM(1.0 + rank_id), *grad = NULL;
    record();
    aj_send(a, right(), 0, world);
    aj_tensor *b = aj_recv(zeros(1), left(), 0, world), *total = aj_allreduce(aj_square(a), MPI_SUM, world);
    CHECK_INT(aj_record_stop(ctx), AJ_OK);
    CHECK_INT(aj_grad_of(ctx, 1, &b, NULL, 1, &a, &grad, 0), AJ_OK);
    CHECK_ALL(grad, 1, 1, 0);
    CHECK_INT(aj_grad_of(ctx, rank_id == 0, &total, NULL, 1, &a, &grad, 0), AJ_OK); /* a root on rank 0 alone */
    CHECK_ALL(grad, 1, 2 * (rank_id + 1), 0);
    CHECK_INT(aj_grad_of(ctx, 1, &b, NULL, rank_id == 0 ? 0 : 1, &a, &grad, 0), AJ_OK); /* rank 0 wants nothing */
    CHECK_INT(aj_grad_of(ctx, 1, &total, NULL, 1, &a, &grad, AJ_REACHED), AJ_OK);
    CHECK_ALL(grad, 1, 2 * rank_count * (rank_id + 1), 0);
    CHECK_GRAD(a, 0);
    CHECK_INT(aj_backward_many(ctx, 1, &b, NULL, AJ_RETAIN_GRAPH), AJ_OK);
    backward(total);
    CHECK_GRAD(a, 1 + 2 * rank_count * (rank_id + 1));
    aj_release(&a);
    close_world();
}

/* The user's communicator, and the library's handle on it, may go before backward. */
static void freed(void) {
    open_world();
    for (int early = 0; early < 2; early++) {
        MPI_Comm copy;
        MPI_Comm_dup(MPI_COMM_WORLD, &copy);
        aj_comm *comm = aj_comm_create(ctx, copy);
        if (early)
            MPI_Comm_free(&copy);
        aj_tensor *a = PARAM(1.0 + rank_id);
        record();
        aj_send(a, right(), 0, comm);
        aj_tensor *b = aj_recv(zeros(1), left(), 0, comm), *total = aj_allreduce(a, MPI_SUM, comm);
        if (!early)
            MPI_Comm_free(&copy);
        aj_comm_destroy(&comm);
        backward(aj_add(aj_scale(b, rank_id + 1), total));
        CHECK_GRAD(a, right() + 1 + rank_count);
        aj_release(&a);
    }
    close_world();
}

/* A communication outside of the recording, by no-grad, passes no gradient and takes no part in backward. */
static void no_grad(void) {
    open_world();
    aj_tensor *a = PARAM(1.0 + rank_id);
    record();
    CHECK_INT(aj_no_grad_begin(ctx), AJ_OK);
    aj_tensor *total = aj_allreduce(a, MPI_SUM, world);
    aj_send(a, right(), 0, world);
    aj_tensor *b = aj_recv(zeros(1), left(), 0, world);
    CHECK_INT(aj_no_grad_end(ctx), AJ_OK);
    backward(aj_add(aj_mul(a, total), b));
    CHECK_GRAD(a, rank_count * (rank_count + 1) / 2.0);
    aj_release(&a);
    close_world();
}

/* ---- 10,000,000 doubles where the machine has room for them: the order of starts and waits, with explicit dependencies and without ---- */

enum { ISEND_IRECV, ISEND_RECV, IRECV_SEND, N_ORDERS };

/* The explicit dependencies of a code that encodes them by hand. */
static aj_tensor *exchange_joined(aj_tensor *x, aj_tensor *room, int order) {
    if (order == ISEND_IRECV) {
        aj_request *out = aj_isend(x, right(), 0, world);
        aj_tensor *handle = aj_request_dummy(out);
        aj_request *in = aj_irecv(aj_join_dummies(room, 1, &handle), left(), 0, world);
        aj_tensor *got = aj_wait(aj_request_join_dummies(in, 1, &handle));
        aj_tensor *sent = aj_wait(aj_request_join_dummies(out, 1, &got));
        return aj_join_dummies(got, 1, &sent);
    }
    if (order == ISEND_RECV) {
        aj_request *out = aj_isend(x, right(), 0, world);
        aj_tensor *handle = aj_request_dummy(out);
        aj_tensor *got = aj_recv(aj_join_dummies(room, 1, &handle), left(), 0, world);
        aj_tensor *sent = aj_wait(aj_request_join_dummies(out, 1, &got));
        return aj_join_dummies(got, 1, &sent);
    }
    aj_request *in = aj_irecv(room, left(), 0, world);
    aj_tensor *handle = aj_request_dummy(in);
    aj_tensor *sent = aj_send(aj_join_dummies(x, 1, &handle), right(), 0, world);
    return aj_wait(aj_request_join_dummies(in, 1, &sent));
}

static aj_tensor *exchange_naive(aj_tensor *x, aj_tensor *room, int order) {
    if (order == ISEND_IRECV) {
        aj_request *out = aj_isend(x, right(), 0, world), *in = aj_irecv(room, left(), 0, world);
        aj_wait(out);
        return aj_wait(in);
    }
    if (order == ISEND_RECV) {
        aj_request *out = aj_isend(x, right(), 0, world);
        aj_tensor *got = aj_recv(room, left(), 0, world);
        aj_wait(out);
        return got;
    }
    aj_request *in = aj_irecv(room, left(), 0, world);
    aj_send(x, right(), 0, world);
    return aj_wait(in);
}

static void large(void) {
    open_world();
    double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    int64_t n = rank_count <= 3 && memory > rank_count * 1e9 ? 10000000 : 200000;
    for (int joined = 0; joined < 2; joined++)
        for (int order = 0; order < N_ORDERS; order++) {
            aj_scope *scope = aj_scope_begin(ctx);
            aj_tensor *x = aj_param(aj_full(ctx, AJ_F64, AJ_SHAPE(n), rank_id + 1));
            record();
            aj_tensor *got = joined ? exchange_joined(x, zeros(n), order) : exchange_naive(x, zeros(n), order);
            backward(aj_sum(aj_scale(got, rank_id)));
            aj_tensor *wrong = aj_sum(aj_cast(aj_ne(got, aj_scalar(ctx, AJ_F64, left() + 1)), AJ_I64));
            aj_tensor *astray = aj_sum(aj_cast(aj_ne(aj_grad(x), aj_scalar(ctx, AJ_F64, right())), AJ_I64));
            CHECK_NEAR(aj_item(wrong), 0, 0);
            CHECK_NEAR(aj_item(astray), 0, 0);
            aj_release(&x);
            CHECK_INT(aj_scope_end(scope), AJ_OK);
        }
    close_world();
}

/* ---- communicators of the user's ---- */

static void check_communicator(MPI_Comm comm) {
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    aj_comm *c = aj_comm_create(ctx, comm);
    CHECK_INT(aj_comm_rank(c), rank);
    CHECK_INT(aj_comm_size(c), size);
    aj_tensor *x = vector_param(ctx, 10, 1);
    record();
    backward(aj_sum(aj_allreduce(x, MPI_SUM, c)));
    CHECK_ALL(aj_grad(x), 10, size, 0);
    aj_zero_grad(x);
    record();
    backward(aj_sum(aj_scale(aj_allreduce(x, MPI_SUM, c), rank_id + 1))); /* seed: rank in the world + 1 */
    double total = rank_id + 1;
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, &total, 1, MPI_DOUBLE, MPI_SUM, comm, &request);
    rank_wait(&request);
    CHECK_ALL(aj_grad(x), 10, total, 0);
    aj_release(&x);
    aj_comm_destroy(&c);
}

static void communicators(void) {
    open_world();
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    check_communicator(comm);
    MPI_Comm_free(&comm);
    MPI_Comm_split(MPI_COMM_WORLD, rank_id % 2, rank_id, &comm);
    check_communicator(comm);
    MPI_Comm_free(&comm);
    MPI_Comm_split(MPI_COMM_WORLD, rank_id < 2, -rank_id, &comm);
    check_communicator(comm);
    MPI_Comm_free(&comm);
    check_communicator(MPI_COMM_SELF);
    close_world();
}

/* Odd and even ranks, seed r + 1. */
static void split(void) {
    open_world();
    aj_comm *half = aj_comm_split(world, rank_id % 2, rank_id);
    CHECK_INT(aj_comm_rank(half), rank_id / 2);
    CHECK_INT(aj_comm_size(half), (rank_count + 1 - rank_id % 2) / 2);
    double total = 0;
    for (int r = rank_id % 2; r < rank_count; r += 2)
        total += r + 1;
    aj_tensor *x = PARAM(2.0 + rank_id);
    record();
    aj_tensor *loss = aj_scale(aj_allreduce(x, MPI_SUM, half), rank_id + 1);
    aj_comm_destroy(&half);
    backward(loss);
    CHECK_GRAD(x, total);
    aj_release(&x);
    close_world();
}

/* Keys give the order, equal ones that of the ranks; MPI_UNDEFINED gives a communicator of size 0; a part of a part. */
static void split_order(void) {
    open_world();
    aj_comm *turned = aj_comm_split(world, 3, -rank_id), *same = aj_comm_split(turned, 0, 5);
    CHECK_INT(aj_comm_rank(turned), rank_count - 1 - rank_id);
    CHECK_INT(aj_comm_rank(same), rank_count - 1 - rank_id);
    CHECK_INT(aj_comm_size(same), rank_count);
    int below = rank_count - 1 - rank_id; /* ranks that come before this one in `turned` */
    aj_tensor *x = PARAM(1.0 + rank_id), *before = zeros(1);
    record();
    aj_tensor *y = aj_scan(x, MPI_SUM, turned);
    for (int r = rank_id; r < rank_count; r++)
        before = aj_add_scalar(before, r + 1);
    CHECK_NEAR(aj_item(y), aj_item(before), 0);
    backward(aj_scale(y, rank_id + 1));
    CHECK_GRAD(x, (rank_id + 1) * (rank_id + 2) / 2.0);
    aj_comm *first = aj_comm_split(turned, below == 0 ? 0 : MPI_UNDEFINED, 0);
    CHECK_INT(aj_comm_size(first), below == 0 ? 1 : 0);
    CHECK_ALL(aj_allreduce(x, MPI_SUM, first), 1, rank_id + 1, 0);
    aj_comm_destroy(&first);
    aj_comm_destroy(&same);
    aj_comm_destroy(&turned);
    aj_release(&x);
    close_world();
}

/* ---- along an axis: zeros of a shape of five or six axes, with numbers along one of them where the others are 0 ---- */

static int64_t triangle(int64_t n) {
    return n * (n + 1) / 2;
}

/* first, first + 1, ... along `axis`, at index 0 of the others. */
static aj_tensor *marked(int ndim, const int64_t *shape, int axis, double first) {
    int64_t n = count_of(ndim, shape), step = count_of(ndim - axis - 1, shape + axis + 1);
    double *x = calloc((size_t)n + 1, sizeof *x);
    for (int64_t i = 0; i < shape[axis]; i++)
        x[i * step] = first + (double)i;
    aj_tensor *t = tensor_of(ctx, AJ_F64, ndim, shape, x);
    free(x);
    return t;
}

static void check_equal(aj_tensor *got, aj_tensor *wanted) {
    if (!CHECK_MSG(got && wanted, "%s", aj_ctx_error(ctx)) || !CHECK_INT(aj_ndim(got), aj_ndim(wanted)))
        return;
    for (int i = 0; i < aj_ndim(got); i++)
        CHECK_INT(aj_extent(got, i), aj_extent(wanted, i));
    double *x = values_of(wanted, aj_numel(wanted));
    CHECK_VALUES(got, aj_numel(wanted), x, 0);
    free(x);
}

static void gather_axis(void) {
    static const int64_t shape[] = {2, 5, 4, 2, 3};
    open_world();
    double *x = calloc(240, sizeof *x);
    for (int i = 0; i < 4; i++)
        x[6 * i] = rank_id;
    for (int all = 0; all < 2; all++) {
        aj_tensor *leaf = aj_param(aj_from_data(ctx, AJ_F64, 5, shape, x));
        record();
        aj_tensor *y = all ? aj_allgather(leaf, 2, world) : aj_gather(leaf, 2, 0, world);
        bool here = all || rank_id == 0;
        CHECK_INT(aj_extent(y, 2), here ? 4 * rank_count : 0);
        const int64_t lo[5] = {0}, hi[] = {1, 1, here ? 4 * rank_count : 0, 1, 1};
        CHECK_ALL(aj_sum(aj_window(y, lo, hi)), 1, here ? 4 * (rank_count - 1) * rank_count / 2 : 0, 0);
        for (int r = 0; here && r < rank_count; r++) {
            const int64_t from[] = {0, 0, 4 * r, 0, 0}, to[] = {1, 1, 4 * r + 4, 1, 1};
            CHECK_ALL(aj_window(y, from, to), 4, r, 0);
        }
        backward(aj_sum(y));
        CHECK_ALL(aj_grad(leaf), 240, all ? rank_count : 1, 0);
        aj_release(&leaf);
    }
    free(x);
    close_world();
}

static void scatter_axis(void) {
    open_world();
    const int64_t shape[] = {2, 5, rank_count, 2, 3};
    aj_tensor *leaf = aj_param(rank_id == 0 ? marked(5, shape, 2, 0) : zeros(1));
    record();
    aj_tensor *y = aj_scatter(leaf, 2, 1, 0, world);
    check_equal(y, marked(AJ_SHAPE(2, 5, 1, 2, 3), 2, rank_id));
    backward(aj_sum(y));
    int64_t n = rank_id == 0 ? 60 * rank_count : 1;
    CHECK_ALL(aj_grad(leaf), n, rank_id == 0 ? 1 : 0, 0);
    CHECK_INT(aj_ndim(aj_grad(leaf)), rank_id == 0 ? 5 : 1);
    aj_release(&leaf);
    aj_tensor *x = random_tensor(ctx, AJ_F64, 5, shape, 4, 0);
    aj_tensor *back = aj_gather(aj_scatter(rank_id == 0 ? x : zeros(1), 2, 1, 0, world), 2, 0, world);
    if (rank_id == 0)
        check_equal(back, x);
    close_world();
}

/* An alltoall is a gather and a scatter. */
static void alltoall_axes(void) {
    open_world();
    aj_tensor *x = random_tensor(ctx, AJ_F64, AJ_SHAPE(3, 4, 1, 4, rank_count, 2), 5, rank_id);
    check_equal(aj_alltoall(x, 2, 4, 1, world), aj_scatter(aj_gather(x, 2, 0, world), 4, 1, 0, world));
    x = random_tensor(ctx, AJ_F64, AJ_SHAPE(3, 4, rank_id + 1, 4, triangle(rank_count), 2), 6, rank_id);
    check_equal(aj_alltoall(x, 2, 4, rank_id + 1, world), aj_scatter(aj_gather(x, 2, 0, world), 4, rank_id + 1, 0, world));
    close_world();
}

static void alltoall_equal_axes(void) {
    open_world();
    int64_t total = triangle(rank_count), numelem = rank_count - rank_id, end = total - triangle(numelem - 1);
    aj_tensor *leaf = aj_param(marked(AJ_SHAPE(3, 4, rank_id + 1, 2), 2, (double)triangle(rank_id)));
    record();
    aj_tensor *y = aj_alltoall(leaf, 2, 2, numelem, world);
    check_equal(y, marked(AJ_SHAPE(3, 4, numelem, 2), 2, (double)(end - numelem)));
    backward(aj_sum(aj_square(y)));
    check_equal(aj_grad(leaf), aj_scale(leaf, 2));
    aj_release(&leaf);
    close_world();
}

static void alltoall_back(void) {
    open_world();
    int64_t n = 3 * 4 * 2 * 4 * 3 * rank_count * 2;
    aj_tensor *leaf = aj_param(random_tensor(ctx, AJ_F64, AJ_SHAPE(3, 4, 2, 4, 3 * rank_count, 2), 7, rank_id));
    record();
    aj_tensor *y = aj_alltoall(aj_alltoall(leaf, 2, 4, 3, world), 4, 2, 2, world);
    check_equal(y, leaf);
    backward(aj_sum(y));
    CHECK_ALL(aj_grad(leaf), n, 1, 0);
    aj_release(&leaf);
    close_world();
}

/* ---- regression over ranks ---- */

static void check_regression(aj_tensor *p, double loss) {
    static const double gradient[] = {104666.6664, 157999.9992, 253333.33120666668};
    CHECK_NEAR(loss, 501433.3290933334, 1e-12);
    CHECK_VALUES(aj_grad(p), 3, gradient, 1e-12);
}

/* Own rows of x and y. */
static void regression_rows(aj_tensor **x, aj_tensor **y) {
    const int64_t all = 10000, begin = all * rank_id / rank_count, end = all * (rank_id + 1) / rank_count;
    *x = aj_scale(aj_add_scalar(aj_arange(ctx, AJ_F64, (double)begin, (double)end, 1), 0.5), 2.0 / (double)all);
    *y = aj_add(aj_add_scalar(*x, 0.1), aj_scale(aj_square(*x), -2));
}

/* Sum of squares of the own residuals. */
static aj_tensor *regression_loss(aj_tensor *p, aj_tensor *x, aj_tensor *y) {
    aj_tensor *model = aj_add(aj_slice(p, 0, 0, 1, 1), aj_mul(aj_slice(p, 0, 1, 2, 1), x));
    model = aj_add(model, aj_mul(aj_slice(p, 0, 2, 3, 1), aj_square(x)));
    return aj_sum(aj_square(aj_sub(model, y)));
}

static void regression(void) {
    open_world();
    aj_tensor *x, *y, *p = PARAM(0, 1, 2);
    regression_rows(&x, &y);
    record();
    aj_tensor *mean = aj_scale(aj_allreduce(p, MPI_SUM, world), 1.0 / rank_count);
    aj_tensor *loss = aj_allreduce(regression_loss(mean, x, y), MPI_SUM, world);
    backward(loss);
    check_regression(p, aj_item(loss));
    aj_zero_grad(p);
    record();
    loss = regression_loss(aj_shared(p, world), x, y);
    backward(loss);
    check_regression(p, world_sum(aj_item(loss)));
    aj_release(&p);
    close_world();
}

/* ---- derivatives of derivatives, up to the third ---- */

/* L = sum_r w_r x_r^2 b_r^3, b_r = x of the left neighbour. */
static void ring_second(void) {
    open_world();
    double x[3], v[3], w[3]; /* of the left neighbour, of this rank, of the right one */
    for (int k = 0; k < 3; k++) {
        int rank = (rank_id + k - 1 + rank_count) % rank_count;
        x[k] = number(1, rank, 0);
        v[k] = number(2, rank, 0);
        w[k] = number(3, rank, 0);
    }
    aj_tensor *p = PARAM(x[1]), *tangent = CONSTANT(v[1]), *gradient = NULL, *product = NULL;
    record();
    aj_send(p, right(), 0, world);
    aj_tensor *b = aj_recv(zeros(1), left(), 0, world);
    aj_tensor *loss = aj_scale(aj_mul(aj_square(p), aj_mul(aj_square(b), b)), w[1]);
    CHECK_INT(aj_grad_of(ctx, 1, &loss, NULL, 1, &p, &gradient, AJ_CREATE_GRAPH), AJ_OK);
    CHECK_NEAR(aj_item(gradient), 2 * w[1] * x[1] * pow(x[0], 3) + 3 * w[2] * pow(x[2] * x[1], 2), 1e-13);
    double wanted = 2 * w[1] * pow(x[0], 3) * v[1] + 6 * w[1] * x[1] * x[0] * x[0] * v[0] + 6 * w[2] * x[2] * x[1] * x[1] * v[2] +
                    6 * w[2] * x[2] * x[2] * x[1] * v[1];
    CHECK_INT(aj_jvp(ctx, 1, &gradient, 1, &p, &tangent, &product, 0), AJ_OK);
    CHECK_NEAR(aj_item(product), wanted, 1e-13);
    CHECK_INT(aj_grad_of(ctx, 1, &gradient, &tangent, 1, &p, &product, 0), AJ_OK);
    CHECK_NEAR(aj_item(product), wanted, 1e-13);
    backward(aj_mul(gradient, tangent));
    CHECK_NEAR(aj_item(aj_grad(p)), wanted, 1e-13);
    aj_release(&p);
    close_world();
}

/* L = sum_r w_r y^4, y = sum of x: every derivative is the same number on all ranks. */
static void allreduce_third(void) {
    open_world();
    double total = 0, weight = 0;
    for (int r = 0; r < rank_count; r++) {
        total += number(1, r, 0) / 8;
        weight += number(3, r, 0);
    }
    aj_tensor *p = PARAM(number(1, rank_id, 0) / 8), *d1 = NULL, *d2 = NULL, *d3 = NULL;
    record();
    aj_tensor *loss = aj_scale(aj_square(aj_square(aj_allreduce(p, MPI_SUM, world))), number(3, rank_id, 0));
    CHECK_INT(aj_grad_of(ctx, 1, &loss, NULL, 1, &p, &d1, AJ_CREATE_GRAPH), AJ_OK);
    CHECK_INT(aj_grad_of(ctx, rank_id == 0, &d1, NULL, 1, &p, &d2, AJ_CREATE_GRAPH), AJ_OK);
    CHECK_INT(aj_grad_of(ctx, rank_id == 0, &d2, NULL, 1, &p, &d3, 0), AJ_OK);
    CHECK_NEAR(aj_item(d1), 4 * weight * pow(total, 3), 1e-12);
    CHECK_NEAR(aj_item(d2), 12 * weight * pow(total, 2), 1e-12);
    CHECK_NEAR(aj_item(d3), 24 * weight * total, 1e-12);
    CHECK_INT(aj_record_end(ctx), AJ_OK);
    aj_release(&p);
    close_world();
}

/* An adjoint may write into a gradient only if nobody else has it: a seed, a gradient that is a result, one that two operands share, have somebody. */
static void gradients_kept(void) {
    open_world();
    double n = rank_count;
    aj_tensor *a = PARAM(rank_id + 1), *b = PARAM(2), *seed = aj_full(ctx, AJ_F64, AJ_SHAPE(1), 3), *g[3];
    record();
    aj_tensor *t = aj_allreduce(a, MPI_SUM, world), *u = aj_bcast(b, 0, world), *y = aj_add(t, u);
    CHECK_INT(aj_grad_of(ctx, 1, &y, &seed, 3, (aj_tensor *[]){t, a, b}, g, 0), AJ_OK);
    CHECK_ALL(g[0], 1, 3, 0);
    CHECK_ALL(g[1], 1, 3 * n, 0);
    CHECK_ALL(g[2], 1, rank_id == 0 ? 3 * n : 0, 0);
    CHECK_ALL(seed, 1, 3, 0);
    aj_tensor *twice = aj_allreduce(aj_scale(y, 2), MPI_SUM, world); /* its gradient is nobody else's */
    CHECK_INT(aj_grad_of(ctx, 1, &twice, NULL, 3, (aj_tensor *[]){y, t, a}, g, 0), AJ_OK);
    CHECK_ALL(g[0], 1, 2 * n, 0);
    CHECK_ALL(g[1], 1, 2 * n, 0);
    CHECK_ALL(g[2], 1, 2 * n * n, 0);
    CHECK_INT(aj_record_end(ctx), AJ_OK);
    aj_release(&a);
    aj_release(&b);
    close_world();
}

RANK_MAIN({"ar-seed", ar_seed}, {"ag-seed", ag_seed}, {"prod-zero", prod_zero}, {"prod-range", prod_range}, {"max-tie", max_tie},
          {"tag-ring-sendrecv", tag_ring_sendrecv}, {"sendrecv-tags", sendrecv_tags}, {"split", split},
          {"split-order", split_order}, {"gather-axis", gather_axis}, {"scatter-axis", scatter_axis},
          {"alltoall-axes", alltoall_axes}, {"alltoall-equal-axes", alltoall_equal_axes}, {"alltoall-back", alltoall_back},
          {"sibling", sibling}, {"allreduce-sum", allreduce_sum}, {"bcast-inplace", bcast_inplace},
          {"reduce-inplace", reduce_inplace}, {"consumed", consumed}, {"replicated", replicated}, {"dummies", dummies},
          {"ring", ring}, {"buffer", buffer}, {"edge", edge}, {"tag-ring", tag_ring}, {"wait-order", wait_order}, {"self", self},
          {"halo-2", halo_2}, {"halo-2-cart", halo_2_cart}, {"wild", wild}, {"passive", passive}, {"retained", retained},
          {"freed", freed}, {"no-grad", no_grad}, {"large", large}, {"communicators", communicators}, {"regression", regression},
          {"ring-second", ring_second}, {"allreduce-third", allreduce_third}, {"gradients-kept", gradients_kept})
