/*
 * Programs with one mistake in their communication, chosen by name, one a launch:
 *
 *     mpiexec -n 3 mpi_mistakes pair allreduce bcast       rank 1 in a bcast, the others in an allreduce
 *     mpiexec -n 3 mpi_mistakes tags                       a mistake with a name of its own; --list prints all names
 *
 * Two ways to run it. With ADJOIN_TIMEOUT alone, the program or the job must end by itself; what it says is not judged. With ADJOIN_CHECK=1 too, every rank
 * must get an error that names both sides, and after aj_agree and aj_ctx_clear_error the program must go on and compute right results: rank 0 prints
 * "PASS name", or "FAIL name" with what was wrong. In both, each rank prints its status and message on one line.
 */
#include "mistake_calls.h"

/* ---- mistakes with a name of their own; rank 1 makes them ---- */

static bool is_odd(void) {
    return rank_id == 1;
}

static void fail(void) {
    aj_add(zeros(2), zeros(3));
}

static void fail_alone(void) {
    if (is_odd())
        fail();
}

static void allreduce(void) {
    aj_allreduce(zeros(2), MPI_SUM, world);
}

static void record_begin(void) {
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
}

static void no_grad_begin(void) {
    CHECK_INT(aj_no_grad_begin(ctx), AJ_OK);
}

/* From rank 1 to rank 0, of n entries. */
static void message(aj_dtype sent, int64_t n_sent, int tag_sent, aj_dtype wanted, int64_t n_wanted, int tag_wanted) {
    if (is_odd())
        aj_send(random_tensor(ctx, sent, AJ_SHAPE(n_sent), 3, rank_id), 0, tag_sent, world);
    else if (rank_id == 0)
        aj_recv(aj_zeros(ctx, wanted, AJ_SHAPE(n_wanted)), 1, tag_wanted, world);
}

static void recording_alone(void) {
    if (is_odd())
        record_begin();
    allreduce();
}

static void recording_alone_message(void) {
    if (is_odd())
        record_begin();
    message(AJ_F64, 2, 0, AJ_F64, 2, 0);
    allreduce();
}

static void no_grad_alone(void) {
    if (is_odd())
        no_grad_begin();
    allreduce();
}

static void no_grad_alone_message(void) {
    if (is_odd())
        no_grad_begin();
    message(AJ_F64, 2, 0, AJ_F64, 2, 0);
    allreduce();
}

static void record_end_alone(void) {
    if (is_odd())
        CHECK_INT(aj_record_end(ctx), AJ_OK);
    aj_backward(ctx, aj_sum(recorded_total), NULL);
}

static void backward_twice(void) {
    CHECK_INT(aj_backward(ctx, aj_sum(recorded_total), NULL), AJ_OK);
    if (is_odd())
        aj_backward(ctx, aj_sum(recorded_total), NULL);
    allreduce();
}

/* Ranks 0 and 1 exchange messages; rank 1 is in error before number `when` of its four calls, and after them for 4. Then all reduce. */
static void exchange_with_error(int when) {
    aj_request *in = NULL, *out = NULL;
    for (int i = 0; i <= 4; i++) {
        if (i == when)
            fail_alone();
        if (rank_id > 1)
            continue;
        if (i == 0)
            in = aj_irecv(zeros(2), 1 - rank_id, 0, world);
        else if (i == 1)
            out = aj_isend(aj_full(ctx, AJ_F64, AJ_SHAPE(2), 1), 1 - rank_id, 0, world);
        else if (i == 2)
            aj_wait(in);
        else if (i == 3)
            aj_wait(out);
    }
    allreduce();
}

static void error_before_irecv(void) {
    exchange_with_error(0);
}

static void error_before_isend(void) {
    exchange_with_error(1);
}

static void error_before_wait(void) {
    exchange_with_error(2);
}

static void error_between_waits(void) {
    exchange_with_error(3);
}

static void error_after_waits(void) {
    exchange_with_error(4);
}

/* All are in error, and rank 1 needs a while to take its receives back: what the others send meanwhile must not end in one of them. */
static void error_with_open_receives(void) {
    for (int i = 0; i < (is_odd() ? 20000 : 1); i++)
        aj_irecv(zeros(2), left(), 0, world);
    fail();
    allreduce();
}

static void error_and_agree_alone(void) {
    fail_alone();
    if (!is_odd())
        allreduce();
    else if (aj_agree(world) == AJ_OK)
        CHECK_MSG(false, "agreed that there is no error");
}

static aj_status fail_on_odd(const aj_call *call) {
    return is_odd() ? aj_raise(call->ctx, AJ_ERR_USER, "exchange_step: as told") : copy_operand(call);
}

static aj_status fail_gradient_on_odd(const aj_call *call) {
    return is_odd() ? aj_raise(call->ctx, AJ_ERR_USER, "exchange_step: as told") : copy_gradient(call);
}

static void custom_forward(void) {
    static const aj_op op = {
        .size = sizeof(aj_op), .name = "exchange_step", .n_out = 1, .forward = fail_on_odd, .vjp = copy_gradient};
    aj_tensor *x = zeros(2), *y = NULL;
    aj_apply(ctx, &op, world, NULL, 1, &x, 1, &y);
    aj_allreduce(y, MPI_SUM, world);
    allreduce();
}

static void custom_vjp(void) {
    static const aj_op op = {
        .size = sizeof(aj_op), .name = "exchange_step", .n_out = 1, .forward = copy_operand, .vjp = fail_gradient_on_odd};
    aj_tensor *y = NULL;
    if (aj_apply(ctx, &op, NULL, NULL, 1, &recorded_total, 1, &y) == AJ_OK)
        aj_backward(ctx, aj_sum(y), NULL);
    allreduce();
}

/* What rank 1's root reaches is another communication. */
static void reached(aj_tensor *other) {
    aj_tensor *root = aj_sum(is_odd() ? other : recorded_total);
    aj_backward_many(ctx, 1, &root, NULL, AJ_REACHED);
    allreduce();
}

static void reached_allreduce(void) {
    reached(aj_allreduce(kept_param, MPI_SUM, world));
}

static void reached_bcast(void) {
    reached(aj_bcast(kept_param, 0, world));
}

static void reached_nothing(void) {
    reached(kept_param);
}

static void backward_missing_message(void) {
    aj_send(kept_param, right(), 0, world);
    aj_tensor *y = aj_recv(zeros(3), left(), 0, world);
    if (!is_odd())
        aj_backward(ctx, aj_sum(y), NULL);
}

static void replicated_or_barrier(void) {
    if (!is_odd())
        aj_backward_replicated(ctx, aj_sum(recorded_total), NULL, world);
    else
        aj_barrier(world);
}

static void nobody_sends(void) {
    aj_recv(zeros(2), left(), 5, world);
}

static void nobody_sends_any(void) {
    aj_recv(zeros(2), MPI_ANY_SOURCE, MPI_ANY_TAG, world);
}

static void nobody_receives(void) {
    if (is_odd())
        aj_send(zeros(2), 0, 7, world);
    aj_comm_destroy(&world);
}

/* So long that MPI waits for the receive. */
static void nobody_receives_long(void) {
    if (is_odd())
        aj_send(zeros(1000000), 0, 7, world);
    aj_comm_destroy(&world);
}

static void never_waited(void) {
    if (is_odd())
        aj_irecv(zeros(2), 0, 7, world);
    aj_comm_destroy(&world);
}

static void tags(void) {
    message(AJ_F64, 2, 3, AJ_F64, 2, 4);
    allreduce();
}

static void longer(void) {
    message(AJ_F64, 6, 0, AJ_F64, 4, 0);
    allreduce();
}

static void message_f32(void) {
    message(AJ_F64, 4, 0, AJ_F32, 8, 0); /* as many bytes */
    allreduce();
}

static void message_i64(void) {
    message(AJ_I64, 4, 0, AJ_F64, 4, 0);
    allreduce();
}

static void wait_twice(void) {
    aj_request *r = aj_isend(zeros(2), right(), 0, world);
    aj_recv(zeros(2), left(), 0, world);
    aj_wait(r);
    if (is_odd())
        aj_wait(r);
    allreduce();
}

static void sendrecv_missing(void) {
    if (!is_odd())
        aj_sendrecv(zeros(2), right(), 0, zeros(2), left(), 0, world);
}

static void duplicate(void) {
    MPI_Comm again;
    MPI_Comm_dup(MPI_COMM_WORLD, &again);
    part = aj_comm_create(ctx, again);
    MPI_Comm_free(&again);
}

static void split(void) {
    part = aj_comm_split(world, 0, rank_id);
}

static void other_communicator(void) {
    aj_allreduce(zeros(2), MPI_SUM, is_odd() ? part : world);
}

static void opposite_order(void) {
    aj_allreduce(zeros(2), MPI_SUM, is_odd() ? part : world);
    aj_allreduce(zeros(2), MPI_SUM, is_odd() ? world : part);
}

/* Making a communicator waits for the ranks of another one. */
static void split_crossed(void) {
    aj_comm *made = aj_comm_split(is_odd() ? part : world, 0, rank_id);
    aj_comm_destroy(&made);
}

/* The first scan on a communicator makes another one. */
static void scan_crossed(void) {
    aj_scan(zeros(2), MPI_SUM, is_odd() ? part : world);
}

static void destroy_part(void) {
    if (is_odd())
        aj_comm_destroy(&part);
    else
        aj_allreduce(zeros(2), MPI_SUM, part);
}

/* As many bytes as the ranks tell each other before an allgather: MPI delivers numbers as shapes, with a right dtype and root, and far too many axes. */
static void numbers_for_shapes(void) {
    double x[14];
    for (int i = 0; i < 14; i++)
        x[i] = i == 0 || i == 4 ? 0 : 1.0 / 3;
    if (is_odd())
        aj_allgather(zeros(2), 0, world);
    else
        aj_allreduce(aj_from_data(ctx, AJ_F64, AJ_SHAPE(14), x), MPI_SUM, world);
}

/* Rank 0 waits for rank 1's message on one communicator; it comes on the other. */
static void message_on_other(void) {
    if (is_odd())
        aj_send(zeros(2), 0, 0, part);
    else if (rank_id == 0)
        aj_recv(zeros(2), 1, 0, world);
    allreduce();
}

static void create_alone(void) {
    if (is_odd())
        allreduce();
    else
        part = aj_comm_create(ctx, MPI_COMM_WORLD);
}

static void consumed(void) {
    aj_tensor *x = zeros(2);
    if (is_odd())
        aj_set_window_inplace(x, (const int64_t[]){0}, zeros(1));
    aj_allreduce(x, MPI_SUM, world);
}

static void null_operand(void) {
    aj_allreduce(is_odd() ? NULL : zeros(2), MPI_SUM, world);
}

static void null_communicator(void) {
    aj_allreduce(zeros(2), MPI_SUM, is_odd() ? NULL : world);
}

static void root_out_of_range(void) {
    aj_bcast(zeros(2), is_odd() ? -4 : 0, world);
}

static void peer_out_of_range(void) {
    if (is_odd())
        aj_send(zeros(2), rank_count, 0, world);
    allreduce();
}

static void reduction_missing(void) {
    aj_allreduce(zeros(2), is_odd() ? MPI_LAND : MPI_SUM, world);
}

/* "The root has it already." */
static void branch_on_root(void) {
    if (rank_id != 0)
        aj_bcast(zeros(2), 0, world);
    aj_reduce(zeros(2), MPI_SUM, 0, world);
}

static void loop_too_short(void) {
    for (int i = 0; i < (is_odd() ? 3 : 5); i++)
        allreduce();
    aj_barrier(world);
}

/* The error is dealt with, but what it kept from happening is missing. */
static void cleared_alone(void) {
    fail_alone();
    if (is_odd())
        aj_ctx_clear_error(ctx);
    else
        aj_bcast(zeros(2), 0, world);
    allreduce();
}

static void early_return(const communication *c) {
    arguments a = right_arguments();
    if (is_odd())
        aj_comm_destroy(&world);
    else
        c->call(&a);
}

/* ---- what is expected when checked ---- */

typedef enum who { NOBODY, ALL, OTHERS, SOME } who; /* ranks; OTHERS: all but rank 1, SOME: one at least */

typedef struct mistake {
    char name[64], named[128];   /* named: what each message must name, divided by | */
    who in_error;                /* before the agreement */
    aj_status of_odd, of_others; /* the status there; AJ_OK: any */
    bool destroys;               /* the communicator may be gone: no agreement */
    void (*prepare)(void);
    void (*run)(void);
    const communication *first, *second; /* of the table */
    unsigned what;                       /* differs on rank 1 */
    const char *also_named;              /* by the messages of the others; may be NULL */
} mistake;

static const mistake singles[] = {
    {"recording", "aj_allreduce|record", ALL, AJ_OK, AJ_OK, .run = recording_alone},
    {"recording-message", "record", SOME, AJ_OK, AJ_OK, .run = recording_alone_message},
    {"no-grad", "aj_allreduce|record", ALL, AJ_OK, AJ_OK, .prepare = record_begin, .run = no_grad_alone},
    {"no-grad-message", "record", SOME, AJ_OK, AJ_OK, .prepare = record_begin, .run = no_grad_alone_message},
    {"record-end", "aj_backward|no recording", ALL, AJ_ERR_STATE, AJ_ERR_PEER, .prepare = prepare_backward,
     .run = record_end_alone},
    {"backward-twice", "aj_backward|no recording", ALL, AJ_ERR_STATE, AJ_ERR_PEER, .prepare = prepare_backward,
     .run = backward_twice},
    {"error-before-irecv", "aj_add|rank 1", ALL, AJ_ERR_SHAPE, AJ_ERR_PEER, .run = error_before_irecv},
    {"error-before-isend", "aj_add|rank 1", ALL, AJ_ERR_SHAPE, AJ_ERR_PEER, .run = error_before_isend},
    {"error-before-wait", "aj_add|rank 1", ALL, AJ_ERR_SHAPE, AJ_ERR_PEER, .run = error_before_wait},
    {"error-between-waits", "aj_add|rank 1", ALL, AJ_ERR_SHAPE, AJ_ERR_PEER, .run = error_between_waits},
    {"error-after-waits", "aj_add|rank 1", ALL, AJ_ERR_SHAPE, AJ_ERR_PEER, .run = error_after_waits},
    {"error-with-open-receives", "aj_add", ALL, AJ_OK, AJ_OK, .run = error_with_open_receives},
    {"error-and-agree", "aj_add|rank 1", ALL, AJ_ERR_SHAPE, AJ_OK, .run = error_and_agree_alone},
    {"custom-forward", "as told|rank 1", ALL, AJ_ERR_USER, AJ_ERR_PEER, .run = custom_forward},
    {"custom-vjp", "as told|rank 1", ALL, AJ_ERR_USER, AJ_ERR_PEER, .prepare = prepare_backward, .run = custom_vjp},
    {"reached-allreduce", "aj_backward", ALL, AJ_OK, AJ_OK, .prepare = prepare_backward, .run = reached_allreduce},
    {"reached-bcast", "aj_backward|aj_bcast", ALL, AJ_OK, AJ_OK, .prepare = prepare_backward, .run = reached_bcast},
    {"reached-nothing", "aj_backward|aj_allreduce", ALL, AJ_OK, AJ_OK, .prepare = prepare_backward, .run = reached_nothing},
    {"backward-missing-message", "aj_backward|aj_agree", OTHERS, AJ_OK, AJ_ERR_PEER, .prepare = prepare_backward,
     .run = backward_missing_message},
    {"replicated", "aj_backward|aj_barrier", ALL, AJ_OK, AJ_OK, .prepare = prepare_backward, .run = replicated_or_barrier},
    {"nobody-sends", "aj_recv|tag 5", ALL, AJ_ERR_PEER, AJ_ERR_PEER, .run = nobody_sends},
    {"nobody-sends-any", "aj_recv|MPI_ANY_SOURCE|MPI_ANY_TAG", ALL, AJ_ERR_PEER, AJ_ERR_PEER, .run = nobody_sends_any},
    {"nobody-receives", "nobody received", ALL, AJ_ERR_STATE, AJ_ERR_PEER, .destroys = true, .run = nobody_receives},
    {"nobody-receives-long", "nobody received", ALL, AJ_ERR_STATE, AJ_ERR_PEER, .destroys = true, .run = nobody_receives_long},
    {"never-waited", "aj_irecv", ALL, AJ_ERR_STATE, AJ_ERR_PEER, .destroys = true, .run = never_waited},
    {"tags", "aj_recv|tag 4|aj_allreduce", ALL, AJ_ERR_PEER, AJ_ERR_PEER, .run = tags},
    {"longer", "aj_recv|6|4|aj_allreduce", ALL, AJ_OK, AJ_OK, .run = longer},
    {"message-f32", "aj_recv|f64|f32", ALL, AJ_OK, AJ_OK, .run = message_f32},
    {"message-i64", "aj_recv|f64|i64", ALL, AJ_OK, AJ_OK, .run = message_i64},
    {"wait-twice", "aj_wait|waited for before", ALL, AJ_ERR_STATE, AJ_ERR_PEER, .run = wait_twice},
    {"sendrecv-missing", "aj_recv|aj_agree", SOME, AJ_OK, AJ_ERR_PEER, .run = sendrecv_missing},
    {"other-duplicate", "aj_allreduce", ALL, AJ_ERR_PEER, AJ_ERR_PEER, .prepare = duplicate, .run = other_communicator},
    {"other-split", "aj_allreduce", ALL, AJ_ERR_PEER, AJ_ERR_PEER, .prepare = split, .run = other_communicator},
    {"opposite-order", "aj_allreduce", ALL, AJ_ERR_PEER, AJ_ERR_PEER, .prepare = duplicate, .run = opposite_order},
    {"split-crossed", "aj_comm_split", ALL, AJ_ERR_PEER, AJ_ERR_PEER, .prepare = duplicate, .run = split_crossed},
    {"scan-crossed", "aj_scan", ALL, AJ_ERR_PEER, AJ_ERR_PEER, .prepare = duplicate, .run = scan_crossed},
    {"destroy-part", "aj_allreduce|aj_comm_destroy", ALL, AJ_OK, AJ_ERR_PEER, .prepare = duplicate, .run = destroy_part},
    {"numbers-for-shapes", "aj_allreduce|aj_allgather", ALL, AJ_OK, AJ_OK, .run = numbers_for_shapes},
    {"message-on-other", "aj_recv|aj_allreduce", ALL, AJ_ERR_PEER, AJ_ERR_PEER, .prepare = duplicate, .run = message_on_other},
    {"create", "rank", ALL, AJ_ERR_PEER, AJ_ERR_PEER, .run = create_alone}, /* checked too, it ends the job */
    {"consumed", "aj_allreduce|aj_set_window_inplace", ALL, AJ_ERR_STATE, AJ_ERR_PEER, .run = consumed},
    {"null-operand", "aj_allreduce|NULL", ALL, AJ_ERR_ARG, AJ_ERR_PEER, .run = null_operand},
    {"null-communicator", "aj_allreduce|NULL", ALL, AJ_ERR_ARG, AJ_ERR_PEER, .run = null_communicator},
    {"root-out-of-range", "aj_bcast|-4", ALL, AJ_ERR_ARG, AJ_ERR_PEER, .run = root_out_of_range},
    {"peer-out-of-range", "aj_send", ALL, AJ_ERR_ARG, AJ_ERR_PEER, .run = peer_out_of_range},
    {"reduction-missing", "aj_allreduce|MPI_LAND", ALL, AJ_ERR_UNSUPPORTED, AJ_ERR_PEER, .run = reduction_missing},
    {"branch-on-root", "aj_bcast|aj_reduce", ALL, AJ_OK, AJ_OK, .run = branch_on_root},
    {"loop-too-short", "aj_allreduce|aj_barrier", ALL, AJ_OK, AJ_OK, .run = loop_too_short},
    {"cleared-alone", "aj_allreduce|aj_bcast", ALL, AJ_OK, AJ_OK, .run = cleared_alone},
};

enum { N_SINGLES = sizeof singles / sizeof singles[0], MAX_MISTAKES = 512 };

static void add(mistake *list, int *n, mistake m) {
    if (*n == MAX_MISTAKES)
        abort();
    list[(*n)++] = m;
}

static mistake named(const char *kind, const communication *c, const communication *d) {
    mistake m = {.first = c, .second = d ? d : c, .in_error = ALL};
    snprintf(m.name, sizeof m.name, "%s/%s%s%s", kind, c->name, d ? "/" : "", d ? d->name : "");
    snprintf(m.named, sizeof m.named, "%s%s%s", c->operation, d ? "|" : "", d ? d->operation : "");
    return m;
}

static void name_also(mistake *m, const char *text) {
    size_t used = strlen(m->named);
    snprintf(m->named + used, sizeof m->named - used, "|%s", text);
}

static mistake differing(const difference *d, const communication *c) {
    mistake m = named(d->name, c, NULL);
    m.what = d->what;
    if (d->named)
        name_also(&m, d->named);
    if (d->what == WIDTH || (c->call == call_halo && d->what))
        m.in_error = SOME; /* neighbours of rank 1 */
    return m;
}

/* Agreeing is right then: all have the error of rank 1. */
static mistake error_before(const communication *c) {
    mistake m = named("error-before", c, NULL);
    bool agrees = c->call == call_agree;
    snprintf(m.named, sizeof m.named, "aj_add|rank 1");
    m.also_named = agrees ? NULL : c->operation;
    m.of_odd = AJ_ERR_SHAPE;
    m.of_others = agrees ? AJ_ERR_SHAPE : AJ_ERR_PEER;
    return m;
}

static mistake destroy_before(const communication *c) {
    mistake m = named("destroy-before", c, NULL);
    name_also(&m, "aj_comm_destroy");
    m.of_others = AJ_ERR_PEER;
    m.destroys = true;
    return m;
}

static mistake no_mistake(const communication *c) {
    mistake m = named("none", c, NULL);
    m.in_error = NOBODY;
    return m;
}

static int make_list(mistake *list) {
    int n = 0;
    for (int i = 0; i < N_SINGLES; i++)
        add(list, &n, singles[i]);
    for (int k = 0; k < N_DIFFERENCES; k++)
        for (int i = 0; i < N_COMMUNICATIONS; i++)
            if (communications[i].can_differ & differences[k].what)
                add(list, &n, differing(&differences[k], &communications[i]));
    for (int i = 0; i < N_COMMUNICATIONS; i++) {
        const communication *c = &communications[i];
        add(list, &n, error_before(c));
        add(list, &n, destroy_before(c));
        if (!(c->can_differ & ALONE))
            add(list, &n, no_mistake(c));
    }
    for (int i = 0; i < N_COMMUNICATIONS; i++)
        for (int k = i + 1; k < N_COMMUNICATIONS; k++)
            add(list, &n, named("pair", &communications[i], &communications[k]));
    return n;
}

/* ---- one run ---- */

static mistake chosen;
static bool checked; /* judge what the ranks say */
static double limit; /* seconds */

static void open_cart(void) {
    MPI_Comm ring;
    MPI_Cart_create(MPI_COMM_WORLD, 1, &rank_count, (const int[]){1}, 0, &ring);
    open_ctx(&ctx);
    world = aj_comm_create(ctx, ring);
    MPI_Comm_free(&ring);
}

static const communication *communication_of_this_rank(void) {
    return is_odd() ? chosen.second : chosen.first;
}

static void make_mistake(void) {
    arguments a = is_odd() ? wrong_arguments(chosen.what) : right_arguments();
    if (chosen.run)
        chosen.run();
    else if (strncmp(chosen.name, "destroy-before/", 15) == 0)
        early_return(chosen.first);
    else {
        if (strncmp(chosen.name, "error-before/", 13) == 0)
            fail_alone();
        communication_of_this_rank()->call(&a);
    }
}

/* A line of this rank, whole even where another rank prints at the same time. */
static void report(aj_status status, const char *text, double seconds) {
    char line[4096];
    snprintf(line, sizeof line - 1, "rank %d: %s after %.1f s: %s", rank_id, aj_status_name(status), seconds, text);
    for (char *c = line; *c; c++)
        if (*c == '\n')
            *c = ' ';
    strcat(line, "\n");
    fputs(line, stdout);
    fflush(stdout);
}

static bool must_fail(void) {
    return chosen.in_error == ALL || (chosen.in_error == OTHERS && !is_odd());
}

/* Both shapes, where they differ. */
static void check_shapes_named(const char *text) {
    for (int k = 0; k < 2; k++) {
        arguments a = k ? wrong_arguments(chosen.what) : right_arguments();
        char shape[40];
        snprintf(shape, sizeof shape, "(%d, %d)", (int)a.shape[0], (int)a.shape[1]);
        CHECK_CONTAINS(text, shape);
    }
}

/* The status that a rank has by itself, and what it says in the end. */
static void judge(aj_status before, aj_status after, const char *text, double seconds) {
    if (chosen.in_error == NOBODY) {
        CHECK_MSG(before == AJ_OK && after == AJ_OK, "%s: %s", aj_status_name(after), text);
        return;
    }
    double failed = world_sum(before != AJ_OK);
    CHECK_MSG(failed > 0, "no rank is in error before the agreement");
    if (must_fail())
        CHECK_MSG(before != AJ_OK, "not in error before the agreement");
    aj_status wanted = is_odd() ? chosen.of_odd : chosen.of_others;
    if (before != AJ_OK && wanted != AJ_OK)
        CHECK_MSG(before == wanted, "%s, expected %s: %.200s", aj_status_name(before), aj_status_name(wanted), text);
    CHECK_MSG(after != AJ_OK, "not in error after the agreement");
    CHECK_MSG(seconds <= 2 * limit + 1, "in error after %.1f s only; the limit is %.1f s", seconds, limit);
    char parts[sizeof chosen.named];
    snprintf(parts, sizeof parts, "%s", chosen.named);
    for (char *rest = NULL, *part_of = strtok_r(parts, "|", &rest); part_of; part_of = strtok_r(NULL, "|", &rest))
        CHECK_CONTAINS(text, part_of);
    if (chosen.also_named && !is_odd())
        CHECK_CONTAINS(text, chosen.also_named);
    if (chosen.what & (SHAPE | COUNT))
        check_shapes_named(text);
    if (before == AJ_ERR_PEER && !chosen.destroys)
        CHECK_CONTAINS(text, "aj_minloc"); /* among this rank's last operations */
}

/* A collective, messages and a backward give what they should: nothing is left in the way. */
static void check_recovered(void) {
    aj_scope *scope = aj_scope_begin(ctx);
    aj_tensor *x = aj_param(aj_full(ctx, AJ_F64, AJ_SHAPE(2), rank_id + 1));
    record_begin();
    aj_tensor *total = aj_allreduce(x, MPI_SUM, world);
    aj_send(x, right(), 5, world);
    aj_tensor *y = aj_recv(zeros(2), MPI_ANY_SOURCE, MPI_ANY_TAG, world);
    aj_status status = aj_backward(ctx, aj_sum(aj_add(aj_scale(total, 3), aj_scale(y, rank_id + 2))), NULL);
    if (checked) {
        CHECK_ALL(total, 2, rank_count * (rank_count + 1) / 2.0, 0);
        CHECK_ALL(y, 2, left() + 1, 0);
        CHECK_INT(status, AJ_OK);
        CHECK_ALL(aj_grad(x), 2, 3.0 * rank_count + right() + 2, 0);
        CHECK_INT(aj_ctx_stat(ctx, AJ_STAT_REQUESTS), 0);
        check_clean(ctx, "after the mistake");
    }
    aj_release(&x);
    status = aj_scope_end(scope);
    aj_ctx_clear_error(ctx);
}

static void close_all(void) {
    aj_release(&kept_param);
    aj_comm_destroy(&part);
    aj_comm_destroy(&world);
    if (checked)
        check_clean(ctx, "after aj_comm_destroy");
    aj_status status = aj_ctx_destroy(&ctx);
    if (checked)
        CHECK_MSG(status == AJ_OK, "aj_ctx_destroy: %s: %s", aj_status_name(status), world_log);
}

static void run_chosen(void) {
    open_cart();
    aj_scope *scope = aj_scope_begin(ctx);
    if (chosen.prepare)
        chosen.prepare();
    if (chosen.first && chosen.first->prepare)
        chosen.first->prepare();
    else if (chosen.second && chosen.second->prepare)
        chosen.second->prepare();
    aj_minloc(zeros(2), world, NULL, NULL);
    check_clean(ctx, "before the mistake");
    double begin = MPI_Wtime();
    make_mistake();
    aj_status before = aj_ctx_status(ctx), after = before;
    char *text = strdup(aj_ctx_error(ctx));
    /* A rank that went straight to aj_agree has agreed with the others' one here. */
    bool has_agreed = chosen.run == error_and_agree_alone && is_odd();
    if (chosen.second && chosen.first != chosen.second)
        has_agreed = communication_of_this_rank()->call == call_agree;
    if (!chosen.destroys && !has_agreed && aj_agree(world) != AJ_OK)
        after = aj_ctx_status(ctx);
    if (after != AJ_OK && before == AJ_OK) {
        free(text);
        text = strdup(aj_ctx_error(ctx));
    }
    double seconds = MPI_Wtime() - begin;
    report(after, text, seconds);
    if (chosen.destroys)
        aj_comm_destroy(&world);
    if (checked)
        judge(before, after, text, seconds);
    free(text);
    if (part && after != AJ_OK && aj_agree(part) != AJ_OK)
        report(aj_ctx_status(ctx), "the second communicator has agreed", MPI_Wtime() - begin);
    if (chosen.destroys) {
        aj_ctx_clear_error(ctx);
        world = aj_comm_create(ctx, MPI_COMM_WORLD);
    }
    aj_ctx_clear_error(ctx);
    aj_status ended = aj_scope_end(scope);
    if (checked)
        CHECK_INT(ended, AJ_OK);
    check_recovered();
    close_all();
}

static bool choose(const mistake *list, int n, const char *name) {
    for (int i = 0; i < n; i++)
        if (strcmp(list[i].name, name) == 0) {
            chosen = list[i];
            return true;
        }
    return false;
}

static double seconds_from(const char *variable) {
    const char *text = getenv(variable);
    return text ? atof(text) : 0;
}

int main(int argc, char **argv) {
    static mistake list[MAX_MISTAKES];
    int n = make_list(list);
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (int i = 0; i < n; i++)
            puts(list[i].name);
        return 0;
    }
    char name[128];
    if (argc == 4)
        snprintf(name, sizeof name, "%s/%s/%s", argv[1], argv[2], argv[3]);
    else
        snprintf(name, sizeof name, "%s", argc == 2 ? argv[1] : "");
    limit = seconds_from("ADJOIN_TIMEOUT");
    checked = seconds_from("ADJOIN_CHECK") > 0;
    if (!choose(list, n, name) || limit <= 0) {
        fprintf(stderr, "usage: ADJOIN_TIMEOUT=2 [ADJOIN_CHECK=1] mpi_mistakes NAME, or pair CALL CALL; no mistake \"%s\"\n",
                name);
        return 2;
    }
    rank_case one = {chosen.name, run_chosen};
    return rank_main(2, (char *[]){argv[0], chosen.name, NULL}, 1, &one);
}
