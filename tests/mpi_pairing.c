/*
 * Random programs of messages between few peers with few tags, so that many share a stream (source, destination, tag), waited for in other orders on
 * each rank. What comes is weighted by random factors; gradients are compared with those of the same program worked out in plain C. A program has
 * one global order of events, in which a receive completes after the send that it matches started: so it cannot hang, and neither may its adjoint.
 *
 * ADJOIN_TEST_SEED=n runs the one program with that seed, which every failure prints.
 */
#include "mpi_common.h"

enum { MAX_MESSAGES = 24, ROOM = 3, N_TAGS = 2 };
typedef enum event_kind { SEND_START, RECEIVE_START, SEND_WAIT, RECEIVE_WAIT } event_kind;

/* Send m and receive m belong to one stream, but receive m gets the message of send `match`. */
typedef struct message {
    int source, dest, tag, length; /* of the send's vector; a buffer has ROOM entries */
    bool blocking_send, blocking_receive;
    double start[2], done[2]; /* when send and receive start and complete in the global order */
    int match;                /* the send whose message receive m gets */
    int chained;              /* the receive whose value goes into what send m sends; -1: none */
    double own, chain;        /* send m sends own * parameter + chain * that value */
} message;

typedef struct event {
    double when;
    event_kind kind;
    int m;
} event;

typedef struct script {
    uint64_t seed, state;
    int n, n_events;
    message m[MAX_MESSAGES];
    event events[4 * MAX_MESSAGES];
} script;

static uint64_t draw(script *s, uint64_t below) {
    return draw_below(&s->state, below);
}

static double draw_time(script *s, double after) {
    return after + (2 * s->n + 1 - after) * ((double)draw(s, 1000000) + 1) / 1000002.0;
}

/* ---- making a program ---- */

/* Streams between at most three ranks, and a random order of all starts. */
static void draw_starts(script *s) {
    int order[2 * MAX_MESSAGES];
    for (int i = 0; i < 2 * s->n; i++) {
        int other = (int)draw(s, (uint64_t)i + 1);
        order[i] = order[other];
        order[other] = i;
    }
    int lowest = (int)draw(s, (uint64_t)rank_count), near = rank_count < 3 ? rank_count : 3;
    for (int m = 0; m < s->n; m++) {
        message *p = &s->m[m];
        p->source = (lowest + (int)draw(s, (uint64_t)near)) % rank_count;
        p->dest = (lowest + (int)draw(s, (uint64_t)near)) % rank_count;
        p->tag = (int)draw(s, N_TAGS);
        p->length = 1 + (int)draw(s, ROOM);
        p->own = (double)draw(s, 2) + 1;
        p->chain = draw(s, 2) ? -1 : 2;
        p->chained = -1;
        p->start[0] = order[2 * m];
        p->start[1] = order[2 * m + 1];
    }
}

/* MPI's rule: the k-th send of a stream meets its k-th receive, counted by starts. */
static int rank_in_stream(const script *s, int m, int end) {
    int earlier = 0;
    for (int k = 0; k < s->n; k++)
        if (s->m[k].source == s->m[m].source && s->m[k].dest == s->m[m].dest && s->m[k].tag == s->m[m].tag)
            earlier += s->m[k].start[end] < s->m[m].start[end];
    return earlier;
}

static void draw_matches(script *s) {
    for (int m = 0; m < s->n; m++)
        for (int k = 0; k < s->n; k++)
            if (s->m[k].source == s->m[m].source && s->m[k].dest == s->m[m].dest && s->m[k].tag == s->m[m].tag &&
                rank_in_stream(s, k, 0) == rank_in_stream(s, m, 1))
                s->m[m].match = k;
}

static void draw_waits(script *s) {
    for (int m = 0; m < s->n; m++) {
        message *p = &s->m[m];
        double sent = s->m[p->match].start[0];
        p->blocking_send = draw(s, 2);
        p->blocking_receive = sent < p->start[1] && draw(s, 2);
        p->done[0] = p->blocking_send ? p->start[0] : draw_time(s, p->start[0]);
        p->done[1] = p->blocking_receive ? p->start[1] : draw_time(s, fmax(sent, p->start[1]));
    }
}

/* Some sends pass on what their rank has received by then. */
static void draw_chains(script *s) {
    for (int m = 0; m < s->n; m++) {
        int k = (int)draw(s, (uint64_t)s->n);
        if (s->m[k].dest == s->m[m].source && s->m[k].done[1] < s->m[m].start[0])
            s->m[m].chained = k;
    }
}

static int by_time(const void *a, const void *b) {
    double x = ((const event *)a)->when, y = ((const event *)b)->when;
    return (x > y) - (x < y);
}

static void add_event(script *s, double when, event_kind kind, int m) {
    s->events[s->n_events++] = (event){when, kind, m};
}

static void make_script(script *s, uint64_t seed) {
    *s = (script){.seed = seed, .state = seed};
    s->n = 2 + (int)draw(s, MAX_MESSAGES - 1);
    draw_starts(s);
    draw_matches(s);
    draw_waits(s);
    draw_chains(s);
    for (int m = 0; m < s->n; m++) {
        add_event(s, s->m[m].start[0], SEND_START, m);
        add_event(s, s->m[m].start[1], RECEIVE_START, m);
        if (!s->m[m].blocking_send)
            add_event(s, s->m[m].done[0], SEND_WAIT, m);
        if (!s->m[m].blocking_receive)
            add_event(s, s->m[m].done[1], RECEIVE_WAIT, m);
    }
    qsort(s->events, (size_t)s->n_events, sizeof(event), by_time);
}

/* ---- its numbers ---- */

/* Inputs of the program: a vector for each send, a buffer for each receive; and what is made from them. */
typedef struct numbers {
    double send[MAX_MESSAGES][ROOM], receive[MAX_MESSAGES][ROOM];
} numbers;

static void draw_numbers(const script *s, uint64_t salt, numbers *x) {
    for (int m = 0; m < MAX_MESSAGES; m++)
        for (int i = 0; i < ROOM; i++) {
            x->send[m][i] = number(s->seed + salt, m, i);
            x->receive[m][i] = number(s->seed + salt, m, ROOM + i);
        }
}

/* The values sent and received, from the inputs. */
static void forward(const script *s, const numbers *in, numbers *out) {
    for (int e = 0; e < s->n_events; e++) {
        const event *ev = &s->events[e];
        const message *p = &s->m[ev->m];
        if (ev->kind == SEND_START)
            for (int i = 0; i < p->length; i++)
                out->send[ev->m][i] = p->own * in->send[ev->m][i] + (p->chained < 0 ? 0 : p->chain * out->receive[p->chained][i]);
        if (ev->kind == RECEIVE_WAIT || (ev->kind == RECEIVE_START && p->blocking_receive))
            for (int i = 0; i < ROOM; i++)
                out->receive[ev->m][i] = i < s->m[p->match].length ? out->send[p->match][i] : in->receive[ev->m][i];
    }
}

/* g: on entry the weights of the values sent and received; on exit the gradients of the inputs. */
static void reverse(const script *s, numbers *g) {
    for (int e = s->n_events - 1; e >= 0; e--) {
        const event *ev = &s->events[e];
        const message *p = &s->m[ev->m];
        if (ev->kind == RECEIVE_WAIT || (ev->kind == RECEIVE_START && p->blocking_receive))
            for (int i = 0; i < s->m[p->match].length; i++) {
                g->send[p->match][i] += g->receive[ev->m][i];
                g->receive[ev->m][i] = 0;
            }
        if (ev->kind == SEND_START)
            for (int i = 0; i < p->length; i++) {
                if (p->chained >= 0)
                    g->receive[p->chained][i] += p->chain * g->send[ev->m][i];
                g->send[ev->m][i] *= p->own;
            }
    }
}

/* The gradient at `in` of sum <w, values> or, squared, of sum <w, values^2>/2. */
static void expected_gradient(const script *s, const numbers *in, const numbers *weights, bool squared, numbers *g) {
    numbers values = {0};
    forward(s, in, &values);
    *g = *weights;
    for (int m = 0; m < s->n && squared; m++)
        for (int i = 0; i < ROOM; i++) {
            g->send[m][i] *= values.send[m][i];
            g->receive[m][i] *= values.receive[m][i];
        }
    reverse(s, g);
}

/* ---- running it ---- */

typedef struct run {
    const script *s;
    aj_tensor *send[MAX_MESSAGES], *receive[MAX_MESSAGES];  /* parameters */
    aj_tensor *sent[MAX_MESSAGES], *received[MAX_MESSAGES]; /* results */
    aj_request *send_request[MAX_MESSAGES], *receive_request[MAX_MESSAGES];
} run;

static void start_send(run *r, int m) {
    const message *p = &r->s->m[m];
    aj_tensor *x = aj_scale(r->send[m], p->own);
    if (p->chained >= 0)
        x = aj_add(x, aj_scale(aj_slice(r->received[p->chained], 0, 0, p->length, 1), p->chain));
    if (p->blocking_send)
        r->sent[m] = aj_send(x, p->dest, p->tag, world);
    else
        r->send_request[m] = aj_isend(x, p->dest, p->tag, world);
}

static void start_receive(run *r, int m) {
    const message *p = &r->s->m[m];
    if (p->blocking_receive)
        r->received[m] = aj_recv(r->receive[m], p->source, p->tag, world);
    else
        r->receive_request[m] = aj_irecv(r->receive[m], p->source, p->tag, world);
}

/* This rank's part of the program. */
static void play(run *r) {
    for (int e = 0; e < r->s->n_events; e++) {
        const event *ev = &r->s->events[e];
        const message *p = &r->s->m[ev->m];
        if ((ev->kind == SEND_START || ev->kind == SEND_WAIT ? p->source : p->dest) != rank_id)
            continue;
        if (ev->kind == SEND_START)
            start_send(r, ev->m);
        else if (ev->kind == RECEIVE_START)
            start_receive(r, ev->m);
        else if (ev->kind == SEND_WAIT)
            r->sent[ev->m] = aj_wait(r->send_request[ev->m]);
        else
            r->received[ev->m] = aj_wait(r->receive_request[ev->m]);
    }
}

static aj_tensor *weighted(aj_tensor *loss, aj_tensor *value, const double *weights, bool squared) {
    aj_tensor *w = aj_from_data(ctx, AJ_F64, AJ_SHAPE(aj_numel(value)), weights);
    aj_tensor *term = aj_sum(aj_mul(w, squared ? aj_scale(aj_square(value), 0.5) : value));
    return loss ? aj_add(loss, term) : term;
}

/* What this rank adds to the loss; it may be nothing: NULL. */
static aj_tensor *loss_of(run *r, const numbers *weights, bool squared) {
    aj_tensor *loss = NULL;
    for (int m = 0; m < r->s->n; m++) {
        if (r->s->m[m].dest == rank_id)
            loss = weighted(loss, r->received[m], weights->receive[m], squared);
        if (r->s->m[m].source == rank_id)
            loss = weighted(loss, r->sent[m], weights->send[m], squared);
    }
    return loss;
}

/* The parameters of this rank and, in the same order, the tensors of other numbers and the expected gradients. */
typedef struct inputs {
    int n;
    aj_tensor *param[2 * MAX_MESSAGES], *tangent[2 * MAX_MESSAGES];
    const double *gradient[2 * MAX_MESSAGES], *product[2 * MAX_MESSAGES];
} inputs;

static aj_tensor *add_input(inputs *list, int length, const double *x, const double *v, const double *g, const double *hv) {
    aj_tensor *param = aj_param(aj_from_data(ctx, AJ_F64, AJ_SHAPE(length), x));
    list->param[list->n] = param;
    list->tangent[list->n] = aj_from_data(ctx, AJ_F64, AJ_SHAPE(length), v);
    list->gradient[list->n] = g;
    list->product[list->n++] = hv;
    return param;
}

static void check_inputs(const inputs *list, const script *s, const char *what, aj_tensor *const *got,
                         const double *const *wanted) {
    for (int k = 0; k < list->n; k++)
        if (!CHECK_VALUES(got[k], aj_numel(list->param[k]), wanted[k], 1e-12)) {
            CHECK_MSG(false, "that was %s %d of program %llu", what, k, (unsigned long long)s->seed);
            return;
        }
}

/* One program: its gradients, and if squared the product of its Hessian with a vector. */
static void run_program(uint64_t seed, bool squared) {
    script s;
    numbers x, v, w, g, hv;
    make_script(&s, seed);
    draw_numbers(&s, 1000, &x);
    draw_numbers(&s, 2000, &v);
    draw_numbers(&s, 3000, &w);
    expected_gradient(&s, &x, &w, squared, &g);
    expected_gradient(&s, &v, &w, true, &hv);
    watch(seed);
    aj_scope *scope = aj_scope_begin(ctx);
    aj_scope_name(scope, "program %llu", (unsigned long long)seed);
    run r = {.s = &s};
    inputs list = {0};
    for (int m = 0; m < s.n; m++) {
        if (s.m[m].source == rank_id)
            r.send[m] = add_input(&list, s.m[m].length, x.send[m], v.send[m], g.send[m], hv.send[m]);
        if (s.m[m].dest == rank_id)
            r.receive[m] = add_input(&list, ROOM, x.receive[m], v.receive[m], g.receive[m], hv.receive[m]);
    }
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    play(&r);
    aj_tensor *loss = loss_of(&r, &w, squared), *got[2 * MAX_MESSAGES];
    if (squared) {
        CHECK_INT(aj_grad_of(ctx, loss != NULL, &loss, NULL, list.n, list.param, got, AJ_CREATE_GRAPH), AJ_OK);
        check_inputs(&list, &s, "gradient", got, list.gradient);
        aj_tensor *product[2 * MAX_MESSAGES];
        CHECK_INT(aj_grad_of(ctx, list.n, got, list.tangent, list.n, list.param, product, 0), AJ_OK);
        check_inputs(&list, &s, "Hessian product", product, list.product);
    }
    CHECK_INT(aj_backward_many(ctx, loss != NULL, &loss, NULL, 0), AJ_OK);
    for (int k = 0; k < list.n; k++)
        got[k] = aj_grad(list.param[k]);
    check_inputs(&list, &s, "gradient", got, list.gradient);
    check_clean(ctx, "a program");
    for (int k = 0; k < list.n; k++)
        aj_release(&list.param[k]);
    CHECK_INT(aj_scope_end(scope), AJ_OK);
    watch_no_more();
}

static void run_programs(uint64_t first, int count, void (*one)(uint64_t seed)) {
    open_world();
    const char *only = getenv("ADJOIN_TEST_SEED");
    if (only)
        one(strtoull(only, NULL, 10));
    for (int i = 0; i < count && !only; i++)
        one(first + (uint64_t)i);
    close_world();
}

static void one_linear(uint64_t seed) {
    run_program(seed, false);
}

static void one_squared(uint64_t seed) {
    run_program(seed, true);
}

static void linear(void) {
    run_programs(10000, 400, one_linear);
}

static void squared(void) {
    run_programs(20000, 200, one_squared);
}

/* ---- receives that take anything: which message came is known from its value ---- */

/* Sends at random, all receives with wildcards at random places, waits at the end in an order of each rank's own. */
static void one_wild(uint64_t seed) {
    script s;
    make_script(&s, seed);
    watch(seed);
    aj_scope *scope = aj_scope_begin(ctx);
    aj_tensor *param[MAX_MESSAGES] = {NULL}, *loss = aj_zeros(ctx, AJ_F64, AJ_SHAPE(1));
    aj_request *in[MAX_MESSAGES];
    int slots = 0;
    double given[MAX_MESSAGES] = {0}; /* the weight that message m met */
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    for (int e = 0; e < s.n_events; e++) {
        int m = s.events[e].m;
        if (s.events[e].kind == SEND_START && s.m[m].source == rank_id) {
            param[m] = aj_param(aj_full(ctx, AJ_F64, AJ_SHAPE(1), m));
            aj_send(param[m], s.m[m].dest, s.m[m].tag, world);
        } else if (s.events[e].kind == RECEIVE_START && s.m[m].dest == rank_id) {
            in[slots++] = aj_irecv(aj_zeros(ctx, AJ_F64, AJ_SHAPE(1)), MPI_ANY_SOURCE, MPI_ANY_TAG, world);
        }
    }
    for (int k = slots; k > 0; k--) {
        int pick = (int)((mix(seed + (uint64_t)(100 * rank_id + k)) >> 20) % (uint64_t)k);
        aj_tensor *got = aj_wait(in[pick]);
        in[pick] = in[k - 1];
        int m = (int)aj_item(got);
        double weight = number(seed, rank_id, k);
        if (CHECK_MSG(m >= 0 && m < s.n && s.m[m].dest == rank_id, "program %llu: received %d", (unsigned long long)seed, m))
            given[m] += weight;
        loss = aj_add(loss, aj_scale(got, weight));
    }
    CHECK_INT(aj_backward(ctx, loss, NULL), AJ_OK);
    world_sums(s.n, given);
    for (int m = 0; m < s.n; m++)
        if (s.m[m].source == rank_id) {
            if (!CHECK_ALL(aj_grad(param[m]), 1, given[m], 0))
                CHECK_MSG(false, "that was message %d of program %llu", m, (unsigned long long)seed);
            aj_release(&param[m]);
        }
    check_clean(ctx, "a program");
    CHECK_INT(aj_scope_end(scope), AJ_OK);
    watch_no_more();
}

static void wildcards(void) {
    run_programs(30000, 200, one_wild);
}

RANK_MAIN({"linear", linear}, {"squared", squared}, {"wildcards", wildcards})
