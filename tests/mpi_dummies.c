/*
 * Explicit dependencies, of tensors and of requests: they change no value and no gradient, whatever is joined to what and how often, and get zeros themselves.
 */
#include "mpi_common.h"

static int left(void) {
    return left_of(rank_id, rank_count);
}

static int right(void) {
    return right_of(rank_id, rank_count);
}

static aj_tensor *zeros(int64_t n) {
    return aj_zeros(ctx, AJ_F64, AJ_SHAPE(n));
}

static double weight(int rank) {
    return rank + 2;
}

static void record(void) {
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
}

static void backward(aj_tensor *loss) {
    CHECK_MSG(aj_backward(ctx, loss, NULL) == AJ_OK, "aj_backward: %s", aj_ctx_error(ctx));
}

/* ---- none, one, many: parameters of different shapes and dtypes, and constants ---- */

enum { MANY = 200, N = 4 };

static aj_tensor *make_dummy(int k) {
    switch (k % 5) {
    case 0:
        return aj_param(aj_full(ctx, AJ_F64, AJ_SHAPE(1 + k % 7), rank_id));
    case 1:
        return aj_param(aj_full(ctx, AJ_F32, AJ_SHAPE(2, k % 3), rank_id));
    case 2:
        return aj_param(aj_scalar(ctx, AJ_F64, k));
    case 3:
        return aj_keep(aj_full(ctx, AJ_I64, AJ_SHAPE(3), k));
    default:
        return aj_keep(aj_full(ctx, AJ_F64, AJ_SHAPE(3), k));
    }
}

static void check_zero_gradient(aj_tensor *dummy, int k) {
    aj_tensor *g = aj_grad(dummy);
    CHECK_INT(aj_tensor_dtype(g), aj_tensor_dtype(dummy));
    CHECK_INT(aj_ndim(g), aj_ndim(dummy));
    for (int i = 0; i < aj_ndim(dummy) && g; i++)
        CHECK_INT(aj_extent(g, i), aj_extent(dummy, i));
    CHECK_ALL(g, aj_numel(dummy), 0, 0);
    CHECK_MSG(rank_failures == 0, "that was dummy %d", k);
}

/* The ring and a sum, to which they are joined, before, between and after. */
static aj_tensor *joined_to(aj_tensor *x, int n, aj_tensor *const *dummies) {
    aj_tensor *total = aj_join_dummies(aj_allreduce(aj_join_dummies(x, n, dummies), MPI_SUM, world), n, dummies);
    aj_request *out = aj_request_join_dummies(aj_isend(x, right(), 0, world), n, dummies);
    aj_request *in = aj_request_join_dummies(aj_irecv(aj_join_dummies(zeros(N), n, dummies), left(), 0, world), n, dummies);
    aj_tensor *got = aj_wait(in), *sent = aj_wait(out);
    return aj_join_dummies(aj_add(aj_add(total, aj_scale(got, 10)), aj_scale(sent, 100)), n, dummies);
}

static void check_joined(aj_tensor *y) {
    double *mine = numbers_of(AJ_F64, 1, rank_id, N), *there = numbers_of(AJ_F64, 1, left(), N), wanted[N] = {0};
    for (int r = 0; r < rank_count; r++)
        for (int i = 0; i < N; i++)
            wanted[i] += number(1, r, i);
    for (int i = 0; i < N; i++)
        wanted[i] += 10 * there[i] + 100 * mine[i];
    CHECK_VALUES(y, N, wanted, 0);
    free(mine), free(there);
}

static void counts(void) {
    static const int count[] = {0, 1, 2, 5, MANY};
    aj_tensor *dummies[MANY];
    open_world();
    for (int c = 0; c < 5; c++) {
        int n = count[c];
        aj_scope *scope = aj_scope_begin(ctx);
        aj_tensor *x = vector_param(ctx, N, 1);
        for (int k = 0; k < n; k++)
            dummies[k] = make_dummy(k);
        record();
        aj_tensor *y = joined_to(x, n, n ? dummies : NULL);
        check_joined(y);
        backward(aj_scale(y, weight(rank_id)));
        double total = 0;
        for (int r = 0; r < rank_count; r++)
            total += weight(r);
        CHECK_ALL(aj_grad(x), N, total + 10 * weight(right()) + 100 * weight(rank_id), 0);
        for (int k = 0; k < n; k++) {
            if (k % 5 < 3)
                check_zero_gradient(dummies[k], k);
            aj_release(&dummies[k]);
        }
        aj_release(&x);
        CHECK_INT(aj_scope_end(scope), AJ_OK);
    }
    close_world();
}

/* Without gradients: outside a recording, inside one but of nothing active, and with recording switched off. Nothing is kept. */
static void without_gradients(void) {
    open_world();
    aj_tensor *x = vector(ctx, N, 1, rank_id), *dummies[] = {zeros(3), x, aj_ones(ctx, AJ_U8, AJ_SHAPE(2))};
    check_joined(joined_to(x, 3, dummies));
    CHECK_INT(aj_ctx_stat(ctx, AJ_STAT_NODES), 0);
    record();
    CHECK_INT(aj_no_grad_begin(ctx), AJ_OK);
    check_joined(joined_to(x, 3, dummies));
    CHECK_INT(aj_no_grad_end(ctx), AJ_OK);
    CHECK_INT(aj_ctx_stat(ctx, AJ_STAT_NODES), 0);
    check_joined(joined_to(x, 3, dummies));
    backward(aj_scalar(ctx, AJ_F64, 1));
    close_world();
}

/* ---- handles that are used more than once ---- */

/* One request's dummy goes into two sends and a value, is asked for again, and outlives the request; one tensor goes into two others. */
static void bifurcated(void) {
    open_world();
    aj_tensor *a = vector_param(ctx, 1, 1), *b = vector_param(ctx, 1, 2), *t = vector_param(ctx, 1, 3);
    record();
    aj_request *first = aj_irecv(zeros(1), left(), 0, world), *second = aj_irecv(zeros(1), left(), 0, world);
    aj_tensor *handle = aj_request_dummy(first), *again = aj_request_dummy(first);
    aj_tensor *sent_a = aj_send(aj_join_dummies(a, 1, &handle), right(), 0, world);
    aj_tensor *both[] = {handle, again, handle, t};
    aj_tensor *sent_b = aj_send(aj_join_dummies(b, 4, both), right(), 0, world);
    aj_tensor *got_a = aj_wait(aj_request_join_dummies(first, 1, &sent_b)), *late[] = {handle, again, got_a, t};
    second = aj_request_join_dummies(aj_request_join_dummies(second, 4, late), 1, &sent_a);
    aj_tensor *got_b = aj_wait(second);
    CHECK_NEAR(aj_item(got_a), number(1, left(), 0), 0);
    CHECK_NEAR(aj_item(got_b), number(2, left(), 0), 0);
    aj_tensor *loss = aj_add(aj_scale(aj_join_dummies(got_a, 4, late), weight(rank_id)), aj_scale(got_b, -5 * weight(rank_id)));
    backward(aj_join_dummies(loss, 4, both));
    CHECK_ALL(aj_grad(a), 1, weight(right()), 0);
    CHECK_ALL(aj_grad(b), 1, -5 * weight(right()), 0);
    CHECK_ALL(aj_grad(t), 1, 0, 0);
    aj_release(&a);
    aj_release(&b);
    aj_release(&t);
    close_world();
}

/* Dummies that are used otherwise, too, keep the gradient of that, and none comes through the joint: a parameter, an inner value, what was received and reduced. */
static void active(void) {
    open_world();
    aj_tensor *x = vector_param(ctx, 2, 1), *d = vector_param(ctx, 2, 2), *e = vector_param(ctx, 2, 3);
    record();
    aj_tensor *inner = aj_square(d), *total = aj_allreduce(e, MPI_SUM, world);
    aj_send(e, right(), 0, world);
    aj_tensor *got = aj_recv(zeros(2), left(), 0, world), *dummies[] = {d, inner, total, got};
    aj_tensor *y = aj_join_dummies(aj_scale(x, 3), 4, dummies);
    backward(aj_add(aj_scale(y, weight(rank_id)), aj_add(inner, aj_scale(got, weight(rank_id)))));
    double *at = numbers_of(AJ_F64, 2, rank_id, 2);
    CHECK_ALL(aj_grad(x), 2, 3 * weight(rank_id), 0);
    CHECK_VALUES(aj_grad(d), 2, ((const double[]){2 * at[0], 2 * at[1]}), 0);
    CHECK_ALL(aj_grad(e), 2, weight(right()), 0); /* none by way of total, which is a dummy alone */
    free(at);
    aj_release(&x);
    aj_release(&d);
    aj_release(&e);
    close_world();
}

/* x is its own dummy: its gradient counts once. */
static void itself(void) {
    open_world();
    aj_tensor *x = vector_param(ctx, 3, 1), *twice[] = {x, x};
    record();
    backward(aj_allreduce(aj_join_dummies(x, 2, twice), MPI_SUM, world));
    CHECK_ALL(aj_grad(x), 3, rank_count, 0);
    aj_release(&x);
    close_world();
}

/* ---- programs with explicit dependencies, and the same without: nothing differs by a bit, up to second derivatives ---- */

enum { ISEND_IRECV, ISEND_RECV, IRECV_SEND, N_ORDERS, STEPS = 3, ENTRIES = 5 };

/* One exchange in the ring, as codes write it that encode the order by hand. *after: what must have happened before; then this. */
static aj_tensor *exchange_joined(aj_tensor *x, aj_tensor *room, int order, aj_tensor **after) {
    aj_tensor *got, *sent;
    x = aj_join_dummies(x, 1, after);
    if (order == IRECV_SEND) {
        aj_request *in = aj_irecv(aj_join_dummies(room, 1, after), left(), 0, world);
        aj_tensor *handle = aj_request_dummy(in);
        sent = aj_send(aj_join_dummies(x, 1, &handle), right(), 0, world);
        got = aj_wait(aj_request_join_dummies(in, 1, &sent));
    } else {
        aj_request *out = aj_isend(x, right(), 0, world);
        aj_tensor *handle = aj_request_dummy(out);
        room = aj_join_dummies(room, 1, &handle);
        got = order == ISEND_RECV ? aj_recv(room, left(), 0, world)
                                  : aj_wait(aj_request_join_dummies(aj_irecv(room, left(), 0, world), 1, &handle));
        sent = aj_wait(aj_request_join_dummies(out, 1, &got));
    }
    *after = got;
    return aj_join_dummies(got, 1, &sent);
}

static aj_tensor *exchange_naive(aj_tensor *x, aj_tensor *room, int order) {
    aj_request *out = NULL, *in = NULL;
    if (order != IRECV_SEND)
        out = aj_isend(x, right(), 0, world);
    if (order != ISEND_RECV)
        in = aj_irecv(room, left(), 0, world);
    if (order == IRECV_SEND)
        aj_send(x, right(), 0, world);
    aj_tensor *got = in ? aj_wait(in) : aj_recv(room, left(), 0, world);
    if (out)
        aj_wait(out);
    return got;
}

/* Several exchanges, each of what came by the one before, bent and weighted. Its loss is not linear. */
static aj_tensor *ring_loss(aj_tensor *x, aj_tensor *room, int order, bool joined) {
    aj_tensor *after = room, *state = x;
    for (int step = 0; step < STEPS; step++) {
        aj_tensor *sent = aj_sin(aj_mul(state, x));
        aj_tensor *got = joined ? exchange_joined(sent, room, order, &after) : exchange_naive(sent, room, order);
        state = aj_add(aj_scale(got, weight(rank_id) / 8), aj_square(x));
    }
    return aj_sum(aj_mul(state, state));
}

static void ring_derivatives(int order, bool joined, double results[4][ENTRIES]) {
    aj_tensor *x = aj_param(aj_scale(vector(ctx, ENTRIES, 1, rank_id), 0.125)), *room = vector_param(ctx, ENTRIES, 2);
    aj_tensor *v = vector(ctx, ENTRIES, 3, rank_id), *g = NULL, *hv = NULL, *tangent = NULL;
    record();
    aj_tensor *loss = ring_loss(x, room, order, joined);
    CHECK_INT(aj_jvp(ctx, 1, &loss, 1, &x, &v, &tangent, 0), AJ_OK);
    CHECK_INT(aj_grad_of(ctx, 1, &loss, NULL, 1, &x, &g, AJ_CREATE_GRAPH), AJ_OK);
    CHECK_INT(aj_grad_of(ctx, 1, &g, &v, 1, &x, &hv, 0), AJ_OK);
    results[0][0] = aj_item(loss);
    results[0][1] = aj_item(tangent);
    CHECK_INT(aj_read(g, results[1], sizeof results[1]), AJ_OK);
    CHECK_INT(aj_read(hv, results[2], sizeof results[2]), AJ_OK);
    backward(loss);
    CHECK_INT(aj_read(aj_grad(x), results[3], sizeof results[3]), AJ_OK);
    CHECK_ALL(aj_grad(room), ENTRIES, 0, 0);
    aj_release(&x);
    aj_release(&room);
}

static void programs(void) {
    open_world();
    for (int order = 0; order < N_ORDERS; order++) {
        double naive[4][ENTRIES] = {{0}}, joined[4][ENTRIES] = {{0}};
        ring_derivatives(order, false, naive);
        ring_derivatives(order, true, joined);
        CHECK_MSG(memcmp(naive, joined, sizeof naive) == 0, "order %d: loss %.17g and %.17g, gradient %.17g and %.17g", order,
                  naive[0][0], joined[0][0], naive[1][0], joined[1][0]);
        CHECK(naive[0][0] != 0 && naive[1][0] != 0 && naive[2][0] != 0);
        CHECK(memcmp(joined[1], joined[3], sizeof joined[1]) == 0);
    }
    close_world();
}

/* The second derivative is that of central differences of the gradient. */
static double gradient_along(double h, const double *x, const double *v, const double *w) {
    double at[ENTRIES], sum = 0;
    for (int i = 0; i < ENTRIES; i++)
        at[i] = x[i] + h * v[i];
    aj_tensor *leaf = aj_param(aj_from_data(ctx, AJ_F64, AJ_SHAPE(ENTRIES), at));
    record();
    backward(ring_loss(leaf, zeros(ENTRIES), ISEND_IRECV, true));
    CHECK_INT(aj_read(aj_grad(leaf), at, sizeof at), AJ_OK);
    for (int i = 0; i < ENTRIES; i++)
        sum += w[i] * at[i];
    aj_release(&leaf);
    return sum;
}

static void second(void) {
    open_world();
    double x[ENTRIES], v[ENTRIES], w[ENTRIES], hv[ENTRIES], sums[3] = {0};
    for (int i = 0; i < ENTRIES; i++) {
        x[i] = number(1, rank_id, i) / 8;
        v[i] = number(3, rank_id, i);
        w[i] = number(4, rank_id, i);
    }
    aj_tensor *leaf = aj_param(aj_from_data(ctx, AJ_F64, AJ_SHAPE(ENTRIES), x)), *g = NULL;
    record();
    aj_tensor *loss = ring_loss(leaf, zeros(ENTRIES), ISEND_IRECV, true);
    CHECK_INT(aj_grad_of(ctx, 1, &loss, NULL, 1, &leaf, &g, AJ_CREATE_GRAPH), AJ_OK);
    CHECK_INT(aj_backward(ctx, g, aj_from_data(ctx, AJ_F64, AJ_SHAPE(ENTRIES), v)), AJ_OK);
    CHECK_INT(aj_read(aj_grad(leaf), hv, sizeof hv), AJ_OK);
    for (int i = 0; i < ENTRIES; i++) {
        sums[0] += w[i] * hv[i];
        sums[2] += fabs(w[i] * hv[i]);
    }
    const double h = 1e-6;
    sums[1] = (gradient_along(h, x, v, w) - gradient_along(-h, x, v, w)) / (2 * h);
    world_sums(3, sums);
    CHECK_MSG(fabs(sums[0] - sums[1]) <= 1e-6 * (1 + sums[2]), "<w, H v> is %.17g, by differences %.17g", sums[0], sums[1]);
    aj_release(&leaf);
    close_world();
}

RANK_MAIN({"counts", counts}, {"without-gradients", without_gradients}, {"bifurcated", bifurcated}, {"active", active},
          {"itself", itself}, {"programs", programs}, {"second", second})
