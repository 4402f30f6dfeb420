/*
 * One rank alone is in error and the others wait for it: the job must end soon, with the operation, the rank and the scopes on stderr. Each case is
 * a launch of its own, `mpiexec -n 3 mpi_alone shape`; test_mpi.c says what to expect. The cases after "ends well" must not end the job.
 */
#include <adjoin/adjoin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static aj_ctx *ctx;
static aj_comm *world;
static int rank, size, failing = 1; /* the rank that is in error */

static aj_tensor *zeros(int64_t n) {
    return aj_zeros(ctx, AJ_F64, AJ_SHAPE(n));
}

/* Shapes that do not fit, on one rank alone. */
static aj_tensor *fail_alone(aj_tensor *x) {
    return rank == failing ? aj_add(x, zeros(17)) : x;
}

static void communicate(void) {
    for (int i = 0; i < 100; i++)
        aj_allreduce(zeros(2), MPI_SUM, world);
}

static void shape(void) {
    aj_allreduce(fail_alone(zeros(2)), MPI_SUM, world);
    communicate();
}

static void before_backward(void) {
    aj_tensor *a = aj_param(zeros(2));
    aj_record_begin(ctx);
    aj_tensor *total = fail_alone(aj_allreduce(a, MPI_SUM, world));
    aj_backward(ctx, aj_sum(total), NULL);
    communicate();
}

/* The loop of the manual's first page, left by one rank alone. */
static void break_alone(void) {
    for (int it = 0; it < 100; it++) {
        aj_scope *scope = aj_scope_begin(ctx);
        aj_scope_name(scope, "step %d", it);
        aj_tensor *total = aj_allreduce(zeros(2), MPI_SUM, world);
        if (it == 3)
            fail_alone(total);
        if (aj_scope_end(scope) != AJ_OK)
            break;
    }
    aj_comm_destroy(&world);
    aj_ctx_destroy(&ctx);
}

/* The failing rank never sends; the others wait, one by a receive, the rest in a collective. */
static void message_missing(void) {
    aj_tensor *x = fail_alone(zeros(2));
    if (rank == failing)
        aj_send(x, 0, 0, world);
    else if (rank == 0)
        aj_recv(zeros(2), failing, 0, world);
    communicate();
    aj_comm_destroy(&world);
}

static void wait_missing(void) {
    if (rank == failing) {
        fail_alone(zeros(2));
        aj_wait(aj_isend(zeros(2), 0, 0, world));
    } else if (rank == 0) {
        aj_wait(aj_irecv(zeros(2), failing, 0, world));
    }
    communicate();
}

/* The failing rank tells the others in aj_agree of its error, clears it, and never comes to agree itself. */
static void cleared_without_agreeing(void) {
    fail_alone(zeros(2));
    if (rank != failing && aj_agree(world) == AJ_OK)
        fputs("agreed on nothing\n", stderr);
    aj_barrier(world);
    aj_ctx_clear_error(ctx);
    communicate();
}

static void agree_out_of_turn(void) {
    fail_alone(zeros(2));
    if (rank == failing && aj_agree(world) != AJ_OK)
        fputs("agreed with nobody\n", stderr);
    communicate();
}

/* Straight to MPI_Finalize: nothing is destroyed. */
static void finalize(void) {
    if (fail_alone(zeros(2)))
        communicate();
}

static void ctx_destroy(void) {
    fail_alone(zeros(2));
    if (rank == failing)
        aj_ctx_destroy(&ctx);
    else
        communicate();
}

/* Backward fails on one rank when others wait for its gradients. */
static aj_status copy(const aj_call *call) {
    memcpy(call->out[0].data, call->in[0].data, 2 * sizeof(double));
    return AJ_OK;
}

static aj_status fail_backward(const aj_call *call) {
    if (rank == failing)
        return aj_raise(call->ctx, AJ_ERR_USER, "fail_backward: as told");
    memcpy(call->g_in[0].data, call->g_out[0].data, 2 * sizeof(double));
    return AJ_OK;
}

static void in_backward(void) {
    static const aj_op op = {.size = sizeof(aj_op), .name = "failing", .n_out = 1, .forward = copy, .vjp = fail_backward};
    aj_tensor *a = aj_param(zeros(2)), *y = NULL;
    aj_record_begin(ctx);
    aj_send(a, (rank + 1) % size, 0, world);
    aj_tensor *b = aj_recv(zeros(2), (rank + size - 1) % size, 0, world);
    if (aj_apply(ctx, &op, NULL, NULL, 1, &b, 1, &y) == AJ_OK)
        aj_backward(ctx, aj_sum(y), NULL);
    communicate();
}

/* An argument that is wrong on one rank alone, found by the communication call itself. */
static void wrong_root(void) {
    aj_bcast(zeros(2), rank == failing ? -4 : 0, world);
    communicate();
}

static void no_wait_at_destroy(void) {
    if (rank == failing)
        aj_irecv(zeros(2), failing, 0, world); /* never waited for: an error of this rank alone */
    aj_comm_destroy(&world);
    world = aj_comm_create(ctx, MPI_COMM_WORLD);
    communicate();
}

/* The grace time is the library's own. */
static void default_grace(void) {
    shape();
}

/* ---- calls that do not match: nobody is in error, and everybody waits, until the time limit ---- */

static void left_early(void) {
    if (rank == 0)
        aj_comm_destroy(&world);
    else
        aj_allreduce(zeros(2), MPI_SUM, world);
}

/* Rank 1 waits for a message from rank 0, which waits in a collective. */
static void no_such_message(void) {
    if (rank == 1)
        aj_recv(zeros(2), 0, 5, world);
    else
        aj_barrier(world);
}

/* ---- ends well ---- */

/* A receive that nobody sends to, on all ranks alike, is an error on all, and the program goes on. */
static void nobody_sends(void) {
    aj_recv(zeros(2), MPI_ANY_SOURCE, 5, world);
    if (aj_ctx_status(ctx) != AJ_ERR_PEER || !strstr(aj_ctx_error(ctx), "MPI_ANY_SOURCE"))
        MPI_Abort(MPI_COMM_WORLD, 7);
    aj_ctx_clear_error(ctx);
    aj_tensor *one = aj_ones(ctx, AJ_F64, AJ_SHAPE(1));
    if (aj_item(aj_allreduce(one, MPI_SUM, world)) != size)
        MPI_Abort(MPI_COMM_WORLD, 7);
    aj_send(one, rank, 5, world); /* the receive that was given up must not take it */
    if (aj_item(aj_recv(zeros(1), rank, 5, world)) != 1)
        MPI_Abort(MPI_COMM_WORLD, 7);
    aj_comm_destroy(&world);
    if (aj_ctx_destroy(&ctx) != AJ_OK)
        MPI_Abort(MPI_COMM_WORLD, 7);
}

static void no_error(void) {
    communicate();
    aj_comm_destroy(&world);
    if (aj_ctx_destroy(&ctx) != AJ_OK)
        MPI_Abort(MPI_COMM_WORLD, 7);
}

static void error_on_all(void) {
    aj_allreduce(aj_add(zeros(2), zeros(3)), MPI_SUM, world);
    communicate();
}

static void cleared_alone(void) {
    if (!fail_alone(zeros(2)))
        aj_ctx_clear_error(ctx); /* the rank has dealt with it by itself */
    no_error();
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {{"shape", shape},
             {"before-backward", before_backward},
             {"break", break_alone},
             {"message-missing", message_missing},
             {"wait-missing", wait_missing},
             {"agree-out-of-turn", agree_out_of_turn},
             {"cleared-without-agreeing", cleared_without_agreeing},
             {"finalize", finalize},
             {"ctx-destroy", ctx_destroy},
             {"in-backward", in_backward},
             {"wrong-root", wrong_root},
             {"no-wait-at-destroy", no_wait_at_destroy},
             {"default-grace", default_grace},
             {"left-early", left_early},
             {"no-such-message", no_such_message},
             {"nobody-sends", nobody_sends},
             {"no-error", no_error},
             {"error-on-all", error_on_all},
             {"cleared-alone", cleared_alone}};

static void expect_refused(const char *when) {
    if (aj_comm_create(ctx, MPI_COMM_WORLD) || aj_ctx_status(ctx) != AJ_ERR_STATE) {
        fprintf(stderr, "%s: aj_comm_create: %s: %s\n", when, aj_status_name(aj_ctx_status(ctx)), aj_ctx_error(ctx));
        exit(9);
    }
    aj_ctx_clear_error(ctx);
}

/* A context needs no MPI; a communicator does. */
static int without_mpi(int argc, char **argv) {
    if (aj_ctx_create(&ctx, NULL) != AJ_OK)
        return 8;
    expect_refused("before MPI_Init");
    MPI_Init(&argc, &argv);
    world = aj_comm_create(ctx, MPI_COMM_WORLD);
    communicate();
    aj_comm_destroy(&world);
    MPI_Finalize();
    expect_refused("after MPI_Finalize");
    return aj_ctx_destroy(&ctx) == AJ_OK ? 0 : 7;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "without-mpi") == 0)
        return without_mpi(argc, argv);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    bool patient = argc == 2 && strcmp(argv[1], "default-grace") == 0;
    aj_ctx_opts opts = {.size = sizeof opts, .grace = patient ? 0 : 0.5, .timeout = patient ? 0 : 1.5};
    if (argc != 2 || aj_ctx_create(&ctx, &opts) != AJ_OK)
        MPI_Abort(MPI_COMM_WORLD, 8);
    world = aj_comm_create(ctx, MPI_COMM_WORLD);
    bool known = false;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (strcmp(argv[1], cases[i].name) == 0) {
            known = true;
            cases[i].run();
        }
    if (!known)
        MPI_Abort(MPI_COMM_WORLD, 8);
    MPI_Finalize();
    return 0;
}
