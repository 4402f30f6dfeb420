/*
 * Random SPMD programs (program.h) with faults, in checked mode: one rank or several raise an error, run out of memory, leave out a call, make another one,
 * give it other arguments, leave early. Then all ranks agree, clear the error, and the communicators must be sound: the same communicators see one fault after
 * the other, so what one leaves behind, the next ones meet.
 *
 * ADJOIN_TEST_SEED=1017 mpiexec -n 3 mpi_faults faults_1 runs that one alone; ADJOIN_TEST_REPORT=1 prints the time of each fault.
 */
#include "mpi_common.h"
#include "program.h"

enum { FAULTS = 25, FAMILY = 1000 };
static const double GRACE = 1, LIMIT = 2; /* seconds */

/* clang-format off */
#define FAULT_KINDS(X)                                                                                                           \
    X(raised) X(wrong_shape) X(raised_and_left) X(left) X(cleared) X(no_memory) X(in_vjp) X(no_backward) X(record_ended)         \
    X(skipped) X(skipped_wait) X(other_call) X(more_calls) X(other_root) X(other_dtype) X(other_shape) X(other_tag) X(other_peer)
/* clang-format on */

#define FAULT_KIND(name) FAULT_##name,
typedef enum fault_kind { FAULT_KINDS(FAULT_KIND) N_FAULT_KINDS } fault_kind;
#undef FAULT_KIND
#define FAULT_NAME(name) #name,
static const char *const fault_names[] = {FAULT_KINDS(FAULT_NAME)};
#undef FAULT_NAME

/* An error of one rank, which it reports by itself: nobody waits until the time limit. */
static bool is_told_at_once(fault_kind kind) {
    return kind == FAULT_raised || kind == FAULT_wrong_shape || kind == FAULT_raised_and_left || kind == FAULT_in_vjp;
}

/* Of this rank: at the first step from `at` on that it fits to. */
typedef struct fault {
    bool made_here, at_once;
    fault_kind kind;
    int at;
    uint64_t salt;
    bool done, must_clear, left;
    aj_comm **comms;
} fault;

/* ---- an allocator that fails when it is told to ---- */

static int64_t allocations_left = -1, failures_left; /* before the first one that fails; -1: none fails */

static void *failing_alloc(size_t bytes, size_t align, void *user) {
    (void)user;
    if (allocations_left == 0 && failures_left > 0) {
        failures_left--;
        return NULL;
    }
    allocations_left -= allocations_left > 0;
    return aligned_alloc(align, bytes);
}

static void failing_free(void *memory, size_t bytes, void *user) {
    (void)bytes;
    (void)user;
    free(memory);
}

/* ---- faults ---- */

static bool is_collective(const step *s) {
    return s->kind >= STEP_allreduce && s->kind < STEP_send;
}

static bool has_root(const step *s) {
    return s->kind == STEP_bcast || s->kind == STEP_bcast_inplace || s->kind == STEP_reduce || s->kind == STEP_reduce_inplace ||
           s->kind == STEP_gather || s->kind == STEP_scatter;
}

static bool sends(const step *s) {
    return s->kind == STEP_send || s->kind == STEP_isend || s->kind == STEP_sendrecv;
}

static bool receives(const step *s) {
    return s->kind == STEP_recv || s->kind == STEP_irecv || s->kind == STEP_sendrecv;
}

static bool fits(const fault *f, const step *s) {
    switch (f->kind) {
    case FAULT_skipped:
        return is_collective(s) || sends(s) || receives(s);
    case FAULT_skipped_wait:
        return s->kind == STEP_wait;
    case FAULT_in_vjp:
    case FAULT_other_dtype:
    case FAULT_other_shape:
        return (is_collective(s) && s->x) || sends(s) || receives(s);
    case FAULT_other_call:
        return is_collective(s);
    case FAULT_other_root:
        return has_root(s);
    case FAULT_other_tag:
    case FAULT_other_peer:
        return sends(s) || receives(s);
    default:
        return true;
    }
}

static aj_status copy(const aj_buf *from, const aj_buf *to) {
    memcpy(to->data, from->data, (size_t)count_of(from->ndim, from->shape) * aj_dtype_size(from->dtype));
    return AJ_OK;
}

static aj_status copy_operand(const aj_call *call) {
    return copy(&call->in[0], &call->out[0]);
}

static aj_status fail_in_vjp(const aj_call *call) {
    return aj_raise(call->ctx, AJ_ERR_USER, "faulty: as told");
}

static aj_tensor *faulty(aj_tensor *x) {
    static const aj_op op = {.size = sizeof(aj_op), .name = "faulty", .n_out = 1, .forward = copy_operand, .vjp = fail_in_vjp};
    aj_tensor *y = NULL;
    aj_apply(ctx, &op, NULL, NULL, 1, &x, 1, &y);
    return y;
}

/* Not aj_agree: then the ranks would not agree equally often. */
static void make_another_call(const fault *f, aj_comm *comm) {
    aj_tensor *x = aj_full(ctx, AJ_F64, AJ_SHAPE(2), rank_id);
    int k = (int)(mix(f->salt + 1) % 4);
    if (k == 0)
        aj_barrier(comm);
    else if (k == 1)
        aj_allreduce(x, MPI_MIN, comm);
    else if (k == 2)
        aj_bcast(x, 0, comm);
    else
        aj_allgather(x, 0, comm);
}

static void change_arguments(const fault *f, step *s, aj_tensor **x) {
    int other = 1 + (int)(mix(f->salt + 2) % 3);
    if (f->kind == FAULT_other_root)
        s->root = other == 3 ? -4 : (s->root + other) % aj_comm_size(f->comms[s->comm]);
    else if (f->kind == FAULT_other_dtype)
        *x = aj_cast(*x, AJ_F32);
    else if (f->kind == FAULT_other_shape)
        *x = aj_ndim(*x) > 0 ? aj_concat(2, (aj_tensor *[]){*x, *x}, 0) : aj_broadcast_to(*x, AJ_SHAPE(2));
    else if (f->kind == FAULT_other_tag && sends(s))
        s->tag += other;
    else if (f->kind == FAULT_other_tag)
        s->tag_in = s->tag_in < 0 ? 9 : s->tag_in + other;
    else if (sends(s))
        s->dest = s->dest < 0 ? 0 : (s->dest + other) % aj_comm_size(f->comms[s->comm]);
    else
        s->source = s->source < 0 ? 0 : (s->source + other) % aj_comm_size(f->comms[s->comm]);
}

static verdict make_fault(fault *f, step *s, aj_tensor **x) {
    switch (f->kind) {
    case FAULT_raised:
    case FAULT_raised_and_left:
    case FAULT_cleared:
        aj_raise(ctx, AJ_ERR_USER, "fault: as told");
        f->must_clear = f->kind == FAULT_cleared;
        return f->kind == FAULT_raised_and_left ? LEAVE_TRACK : RUN_STEP;
    case FAULT_wrong_shape:
        aj_add(aj_zeros(ctx, AJ_F64, AJ_SHAPE(2)), aj_zeros(ctx, AJ_F64, AJ_SHAPE(3)));
        return RUN_STEP;
    case FAULT_left:
        return LEAVE_TRACK;
    case FAULT_no_memory:
        allocations_left = (int64_t)(mix(f->salt + 3) % 30);
        failures_left = f->salt % 2 ? 1 : 10000;
        return RUN_STEP;
    case FAULT_in_vjp:
        *x = faulty(*x);
        return RUN_STEP;
    case FAULT_record_ended:
        (void)aj_record_end(ctx);
        return RUN_STEP;
    case FAULT_no_backward:
        return RUN_STEP;
    case FAULT_skipped:
    case FAULT_skipped_wait:
        return SKIP_STEP;
    case FAULT_other_call:
        make_another_call(f, f->comms[s->comm]);
        return SKIP_STEP;
    case FAULT_more_calls:
        make_another_call(f, f->comms[s->kind < STEP_allreduce ? EVERYONE : s->comm]);
        return RUN_STEP;
    default:
        change_arguments(f, s, x);
        return RUN_STEP;
    }
}

static verdict before_step(void *user, int number, step *s, aj_tensor **x) {
    fault *f = user;
    if (f->must_clear)
        aj_ctx_clear_error(ctx);
    f->must_clear = false;
    if (!f->made_here || f->done || number < f->at || !fits(f, s))
        return RUN_STEP;
    f->done = true;
    verdict v = make_fault(f, s, x);
    f->left = v == LEAVE_TRACK;
    return v;
}

/* One of the ranks, now and then several. All ranks draw the same kinds and places. */
static fault draw_fault(const program *p) {
    uint64_t state = mix(p->seed + 77);
    int first = (int)draw_below(&state, (uint64_t)rank_count), n = draw_below(&state, 4) ? 1 : 2;
    fault mine = {.kind = N_FAULT_KINDS};
    bool at_once = true;
    for (int i = 0; i < n; i++) {
        int rank = (first + i) % rank_count, steps = p->tracks[rank].n_steps;
        fault f = {.kind = (fault_kind)draw_below(&state, N_FAULT_KINDS),
                   .at = (int)draw_below(&state, (uint64_t)steps),
                   .salt = draw_below(&state, 1000000)};
        f.made_here = true;
        at_once = at_once && is_told_at_once(f.kind);
        if (rank == rank_id)
            mine = f;
        if (rank_id == 0 && getenv("ADJOIN_TEST_REPORT"))
            printf("  %llu rank %d %s at %d of %d\n", (unsigned long long)p->seed, rank, fault_names[f.kind], f.at, steps);
    }
    mine.at_once = at_once;
    return mine;
}

/* ---- one program ---- */

static void run_faulty(const program *p, fault *f) {
    const track *t = &p->tracks[rank_id];
    aj_tensor *inputs[MAX_INPUTS], *params[MAX_INPUTS] = {NULL};
    outcome out;
    for (int i = 0; i < t->n_inputs; i++) {
        const extents *e = &t->slots[i + 1].shape;
        inputs[i] = aj_uniform(ctx, AJ_F64, e->ndim, e->n, mix(p->seed) + (uint64_t)(i + 8 * rank_id));
        if (t->is_param[i])
            inputs[i] = params[i] = aj_param(inputs[i]);
    }
    if (p->seed % 4 && aj_record_begin(ctx) != AJ_OK)
        CHECK(aj_ctx_status(ctx) != AJ_OK);
    run_track_with(p, rank_id, f->comms, inputs, &(hook){before_step, f}, &out);
    bool skips = f->left || (f->made_here && f->kind == FAULT_no_backward);
    if (p->seed % 4 && !skips && aj_backward_many(ctx, out.n, out.roots, out.seeds, 0) != AJ_OK)
        CHECK(aj_ctx_status(ctx) != AJ_OK);
    for (int i = 0; i < t->n_inputs; i++)
        aj_release(&params[i]);
}

/* True: there was an error, of all. The ranks do nothing else together before they have agreed. */
static bool agree_on_all(aj_comm **comms, uint64_t seed) {
    double failed[2] = {aj_ctx_status(ctx) != AJ_OK}; /* before, after */
    for (int i = 0; i < N_COMMS; i++) {
        aj_status status = aj_comm_size(comms[i]) > 0 ? aj_agree(comms[i]) : aj_ctx_status(ctx);
        CHECK_INT(status, aj_ctx_status(ctx));
        if (i == EVERYONE)
            failed[1] = status != AJ_OK;
    }
    world_sums(2, failed);
    CHECK_MSG(failed[1] == 0 || failed[1] == rank_count, "fault %llu: %g of %d ranks are in error after aj_agree",
              (unsigned long long)seed, failed[1], rank_count);
    CHECK_MSG(failed[1] > 0 || failed[0] == 0, "fault %llu: aj_agree finds no error", (unsigned long long)seed);
    return failed[1] > 0;
}

/* Of this rank's members in a communicator, in the order of their ranks there. */
static const team *team_of(const teams *t, int comm) {
    for (int i = 0; i < t->n; i++)
        for (int k = 0; k < t->team[i].n && t->team[i].comm == comm; k++)
            if (t->team[i].rank[k] == rank_id)
                return &t->team[i];
    return NULL;
}

/* A collective, two messages around the ring, and their adjoint. */
static void check_sound(const team *t, aj_comm *comm) {
    int n = t->n, me = aj_comm_rank(comm), left = left_of(me, n), right = right_of(me, n);
    double sum = 0;
    for (int k = 0; k < n; k++)
        sum += t->rank[k] + 1;
    aj_tensor *x = aj_param(aj_full(ctx, AJ_F64, AJ_SHAPE(3), rank_id + 1));
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    aj_request *in[2], *out[2];
    for (int k = 0; k < 2; k++)
        in[k] = aj_irecv(aj_zeros(ctx, AJ_F64, AJ_SHAPE(3)), left, k, comm);
    for (int k = 0; k < 2; k++)
        out[k] = aj_isend(aj_scale(x, k + 1), right, k, comm);
    aj_tensor *total = aj_allreduce(x, MPI_SUM, comm), *y[2];
    for (int k = 1; k >= 0; k--) {
        y[k] = aj_wait(in[k]);
        aj_wait(out[k]);
    }
    aj_tensor *loss = aj_add(aj_scale(total, 3), aj_add(aj_scale(y[0], me + 2), aj_scale(y[1], me + 4)));
    CHECK_INT(aj_backward(ctx, aj_sum(loss), NULL), AJ_OK);
    CHECK_ALL(total, 3, sum, 0);
    CHECK_ALL(y[0], 3, t->rank[left] + 1, 0);
    CHECK_ALL(y[1], 3, 2 * (t->rank[left] + 1), 0);
    CHECK_ALL(aj_grad(x), 3, 3.0 * n + (right + 2) + 2 * (right + 4), 0);
    aj_release(&x);
}

/* Ghosts of the first dimension. */
static void check_halo_sound(const teams *t, aj_comm *comm) {
    int axes[] = {0, 1}, low, high;
    int64_t width[] = {1, 1};
    MPI_Cart_shift(aj_comm_mpi(comm), 0, 1, &low, &high);
    aj_tensor *y = aj_halo(aj_full(ctx, AJ_F64, AJ_SHAPE(3, 3), rank_id + 1), t->n_dims, axes, width, comm);
    double *x = values_of(y, 9);
    CHECK_NEAR(x[1], low < 0 ? rank_id + 1 : low + 1, 0);
    CHECK_NEAR(x[7], high < 0 ? rank_id + 1 : high + 1, 0);
    CHECK_NEAR(x[4], rank_id + 1, 0);
    free(x);
}

static void check_all_sound(const teams *t, aj_comm **comms, uint64_t seed) {
    aj_scope *scope = aj_scope_begin(ctx);
    for (int i = 0; i < N_COMMS; i++)
        if (team_of(t, i))
            check_sound(team_of(t, i), comms[i]);
    check_halo_sound(t, comms[GRID]);
    CHECK_INT(aj_ctx_stat(ctx, AJ_STAT_REQUESTS), 0);
    char where[80];
    snprintf(where, sizeof where, "after fault %llu", (unsigned long long)seed);
    check_clean(ctx, where);
    CHECK_INT(aj_scope_end(scope), AJ_OK);
}

/* False, on all ranks: something is wrong. */
static bool run_fault(uint64_t seed, const teams *t, aj_comm **comms, bool print) {
    static program p;
    make_program(seed, t, rank_count, &p);
    p.splits = false;
    fault f = draw_fault(&p);
    f.comms = comms;
    if (print && rank_id == 0)
        print_program(&p);
    watch(seed);
    aj_scope *scope = aj_scope_begin(ctx);
    aj_scope_name(scope, "fault %llu on %d ranks", (unsigned long long)seed, rank_count);
    double begin = MPI_Wtime();
    run_faulty(&p, &f);
    allocations_left = -1;
    double ran = MPI_Wtime() - begin;
    if (print)
        printf("rank %d: %s after %.2f s: %s\n", rank_id, aj_status_name(aj_ctx_status(ctx)), ran, aj_ctx_error(ctx));
    bool failed = agree_on_all(comms, seed);
    double seconds = MPI_Wtime() - begin;
    if (print)
        printf("rank %d: %s after %.2f s: %s\n", rank_id, aj_status_name(aj_ctx_status(ctx)), seconds, aj_ctx_error(ctx));
    CHECK_MSG(!f.at_once || seconds < LIMIT, "all are in error after %.1f s only", seconds);
    if (!failed) { /* what the fault may have left is an error that all know of, too */
        aj_raise(ctx, AJ_ERR_USER, "fault: to be flushed");
        agree_on_all(comms, seed);
    }
    if (getenv("ADJOIN_TEST_REPORT"))
        printf("%llu rank %d %s ran %.2f s, agreed %.2f s, %s\n", (unsigned long long)seed, rank_id,
               f.made_here ? fault_names[f.kind] : "-", ran, seconds, failed ? "failed" : "well");
    aj_ctx_clear_error(ctx);
    CHECK_INT(aj_scope_end(scope), AJ_OK);
    check_all_sound(t, comms, seed);
    watch_no_more();
    bool right = world_sum(rank_failures) == 0;
    CHECK_MSG(right || rank_id > 0, "that was fault %llu on %d ranks", (unsigned long long)seed, rank_count);
    return right;
}

static void run_family(int family) {
    const char *only = getenv("ADJOIN_TEST_SEED");
    uint64_t seed = only ? strtoull(only, NULL, 10) : (uint64_t)family * FAMILY;
    aj_ctx_opts opts = {.size = sizeof opts,
                        .alloc = failing_alloc,
                        .free = failing_free,
                        .log = keep_line,
                        .disable_pool = 1,
                        .checked = 1,
                        .grace = GRACE,
                        .timeout = LIMIT};
    teams t;
    aj_comm *comms[N_COMMS];
    CHECK_INT(aj_ctx_create(&ctx, &opts), AJ_OK);
    world = aj_comm_create(ctx, MPI_COMM_WORLD);
    make_teams(seed / FAMILY, rank_count, &t);
    open_teams(&t, world, comms);
    for (int i = 0; i < (only ? 1 : FAULTS); i++)
        if (!run_fault(seed + (uint64_t)i, &t, comms, only))
            break;
    close_teams(comms);
    close_world();
}

static void faults_1(void) {
    run_family(1);
}

static void faults_2(void) {
    run_family(2);
}

static void faults_3(void) {
    run_family(3);
}

/* ---- in the wrong moment ---- */

/* Meanwhile MPI takes in what the others send. */
static void wait_until(double time) {
    int found;
    while (MPI_Wtime() < time) {
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
        sched_yield();
    }
}

static void open_with_limits(double grace, double limit) {
    aj_ctx_opts opts = {.size = sizeof opts, .log = keep_line, .checked = 1, .grace = grace, .timeout = limit};
    CHECK_INT(aj_ctx_create(&ctx, &opts), AJ_OK);
    world = aj_comm_create(ctx, MPI_COMM_WORLD);
    world_sum(0);
}

/* True: all were told of an error, which is forgotten now. */
static bool agree_and_clear(int trial) {
    aj_status status = aj_agree(world);
    double failed = world_sum(status != AJ_OK);
    CHECK_MSG(failed == 0 || failed == rank_count, "trial %d: %g of %d ranks are told", trial, failed, rank_count);
    CHECK_INT(status, aj_ctx_status(ctx));
    aj_ctx_clear_error(ctx);
    return failed > 0;
}

/* One rank comes to a collective, or to aj_agree, when the others give up waiting for it. Whether they meet or not, all are told the same. */
static void at_the_limit(void) {
    enum { TRIALS = 34 };
    const double limit = 0.2;
    int late_ones = 0;
    open_with_limits(GRACE, limit);
    for (int trial = 0; trial < TRIALS; trial++) {
        watch((uint64_t)trial);
        aj_scope *scope = aj_scope_begin(ctx);
        aj_tensor *x = aj_full(ctx, AJ_F64, AJ_SHAPE(2), rank_id + 1), *sum = NULL;
        bool agrees_only = trial / rank_count % 2;
        world_sum(0);
        if (rank_id == trial % rank_count)
            wait_until(MPI_Wtime() + limit + 0.0005 * (trial * 7 % 17 - 8));
        if (!agrees_only)
            sum = aj_allreduce(x, MPI_SUM, world);
        bool late = agree_and_clear(trial);
        if (!late && !agrees_only)
            CHECK_ALL(sum, 2, rank_count * (rank_count + 1) / 2.0, 0);
        late_ones += late;
        CHECK_INT(aj_scope_end(scope), AJ_OK);
        watch_no_more();
    }
    if (rank_id == 0 && getenv("ADJOIN_TEST_REPORT"))
        printf("late in %d of %d trials\n", late_ones, TRIALS);
    close_world();
}

/* The last rank tells of an error, clears it, and makes the call all the same; rank 1 has left that call for the report when rank 0 comes to it. */
static void cleared_and_back(void) {
    const double grace = 0.5;
    open_with_limits(grace, 4 * grace);
    for (int trial = 0; trial < 3; trial++) {
        aj_scope *scope = aj_scope_begin(ctx);
        aj_tensor *x = aj_full(ctx, AJ_F64, AJ_SHAPE(2), rank_id + 1);
        world_sum(0);
        if (rank_id == rank_count - 1) {
            aj_raise(ctx, AJ_ERR_USER, "fault: as told");
            aj_barrier(world);
            aj_ctx_clear_error(ctx);
        } else if (rank_id == 0) {
            wait_until(MPI_Wtime() + 2.5 * grace);
        }
        aj_allreduce(x, MPI_SUM, world);
        CHECK(agree_and_clear(trial) || rank_count == 1);
        aj_tensor *sum = aj_allreduce(x, MPI_SUM, world);
        CHECK_ALL(sum, 2, rank_count * (rank_count + 1) / 2.0, 0);
        CHECK_INT(aj_scope_end(scope), AJ_OK);
    }
    close_world();
}

RANK_MAIN({"at_the_limit", at_the_limit}, {"cleared_and_back", cleared_and_back}, {"faults_1", faults_1}, {"faults_2", faults_2},
          {"faults_3", faults_3})
