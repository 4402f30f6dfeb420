/*
 * For mpi_mistakes.c: the calls in which ranks wait for each other, with arguments that fit together, and the ways to give one rank others.
 */
#ifndef MISTAKE_CALLS_H
#define MISTAKE_CALLS_H

#include "mpi_common.h"

/* What a call is given. The same on all ranks: right. */
typedef struct arguments {
    aj_dtype dtype;
    int64_t shape[2];
    int root, axis; /* alltoall: gathered along axis, scattered along the other one */
    MPI_Op op;
    int64_t more;  /* entries beyond this rank's share */
    int64_t width; /* of a halo */
    int holder;    /* whose numbers the operand has; -1: this rank's */
} arguments;

static aj_tensor *kept_param, *recorded_total; /* made by prepare_backward */
static aj_comm *part;                          /* a second communicator, of the mistakes that need one */

static inline aj_tensor *zeros(int64_t n) {
    return aj_zeros(ctx, AJ_F64, AJ_SHAPE(n));
}

static inline int left(void) {
    return left_of(rank_id, rank_count);
}

static inline int right(void) {
    return right_of(rank_id, rank_count);
}

static inline arguments right_arguments(void) {
    return (arguments){.dtype = AJ_F64, .shape = {rank_count, 2 * rank_count}, .op = MPI_SUM, .width = 1, .holder = -1};
}

static inline aj_tensor *operand(const arguments *a) {
    return random_tensor(ctx, a->dtype, 2, a->shape, 11, a->holder < 0 ? rank_id : a->holder);
}

static inline int64_t share(const arguments *a, int axis) {
    return a->shape[axis] / rank_count + a->more;
}

static inline void call_allreduce(const arguments *a) {
    aj_allreduce(operand(a), a->op, world);
}

static inline void call_bcast(const arguments *a) {
    aj_bcast(operand(a), a->root, world);
}

static inline void call_reduce(const arguments *a) {
    aj_reduce(operand(a), a->op, a->root, world);
}

static inline void call_gather(const arguments *a) {
    aj_gather(operand(a), a->axis, a->root, world);
}

static inline void call_allgather(const arguments *a) {
    aj_allgather(operand(a), a->axis, world);
}

static inline void call_scatter(const arguments *a) {
    aj_scatter(operand(a), a->axis, share(a, a->axis), a->root, world);
}

static inline void call_alltoall(const arguments *a) {
    aj_alltoall(operand(a), a->axis, 1 - a->axis, share(a, 1 - a->axis), world);
}

static inline void call_reduce_scatter(const arguments *a) {
    aj_reduce_scatter(operand(a), a->axis, share(a, a->axis), a->op, world);
}

static inline void call_scan(const arguments *a) {
    aj_scan(operand(a), a->op, world);
}

static inline void call_exscan(const arguments *a) {
    aj_exscan(operand(a), a->op, world);
}

static inline void call_barrier(const arguments *a) {
    (void)a;
    aj_barrier(world);
}

static inline void call_maxloc(const arguments *a) {
    aj_maxloc(operand(a), world, NULL, NULL);
}

static inline void call_halo(const arguments *a) {
    aj_halo(random_tensor(ctx, a->dtype, AJ_SHAPE(3, 9), 11, rank_id), 1, (const int[]){1}, &a->width, world);
}

/* A status that is returned is the context's too. */
static inline void call_agree(const arguments *a) {
    (void)a;
    aj_status status = aj_agree(world);
    CHECK_INT(status, aj_ctx_status(ctx));
}

static inline void call_comm_split(const arguments *a) {
    (void)a;
    part = aj_comm_split(world, rank_id % 2, -rank_id);
}

static inline void call_shared(const arguments *a) {
    arguments same = *a;
    same.holder = a->holder < 0 ? 0 : a->holder;
    aj_shared(operand(&same), world);
}

/* On all ranks, before the mistake. */
static inline void prepare_backward(void) {
    kept_param = vector_param(ctx, 3, 5);
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    recorded_total = aj_allreduce(kept_param, MPI_SUM, world);
}

static inline void call_backward(const arguments *a) {
    (void)a;
    aj_status status = aj_backward(ctx, aj_sum(recorded_total), NULL);
    CHECK_INT(status, aj_ctx_status(ctx));
}

static inline void call_recv(const arguments *a) {
    aj_recv(operand(a), left(), 5, world);
}

static inline aj_status copy_operand(const aj_call *call) {
    size_t n = (size_t)count_of(call->in[0].ndim, call->in[0].shape);
    memcpy(call->out[0].data, call->in[0].data, n * aj_dtype_size(call->in[0].dtype));
    return AJ_OK;
}

static inline aj_status copy_gradient(const aj_call *call) {
    size_t n = (size_t)count_of(call->in[0].ndim, call->in[0].shape);
    memcpy(call->g_in[0].data, call->g_out[0].data, n * aj_dtype_size(call->in[0].dtype));
    return AJ_OK;
}

static inline void call_custom(const arguments *a) {
    static const aj_op op = {
        .size = sizeof(aj_op), .name = "exchange_step", .n_out = 1, .forward = copy_operand, .vjp = copy_gradient};
    aj_tensor *x = operand(a), *y = NULL;
    aj_apply(ctx, &op, world, NULL, 1, &x, 1, &y);
}

/* What can differ by mistake. */
enum {
    ROOT = 1,
    REDUCTION = 2,
    TO_F32 = 4,
    TO_I64 = 8,
    SHAPE = 16,
    COUNT = 32,
    AXIS = 64,
    SHARE = 128,
    WIDTH = 256,
    VALUE = 512,
    ALONE = 1024 /* right only if another rank does something else */
};

typedef struct communication {
    const char *name, *operation;
    void (*call)(const arguments *a);
    unsigned can_differ;
    void (*prepare)(void);
} communication;

static const communication communications[] = {
    {"allreduce", "aj_allreduce", call_allreduce, REDUCTION | TO_F32 | TO_I64 | SHAPE | COUNT, NULL},
    {"bcast", "aj_bcast", call_bcast, ROOT | TO_F32 | TO_I64 | SHAPE | COUNT, NULL},
    {"reduce", "aj_reduce", call_reduce, ROOT | REDUCTION | TO_F32 | TO_I64 | SHAPE | COUNT, NULL},
    {"gather", "aj_gather", call_gather, ROOT | TO_F32 | TO_I64 | SHAPE | COUNT | AXIS, NULL},
    {"allgather", "aj_allgather", call_allgather, TO_F32 | TO_I64 | SHAPE | COUNT | AXIS, NULL},
    {"scatter", "aj_scatter", call_scatter, ROOT | TO_F32 | TO_I64 | AXIS | SHARE, NULL},
    {"alltoall", "aj_alltoall", call_alltoall, TO_F32 | TO_I64 | SHAPE | COUNT | AXIS | SHARE, NULL},
    {"reduce_scatter", "aj_reduce_scatter", call_reduce_scatter, REDUCTION | TO_F32 | TO_I64 | SHAPE | COUNT | AXIS | SHARE,
     NULL},
    {"scan", "aj_scan", call_scan, TO_F32 | TO_I64 | SHAPE | COUNT, NULL},
    {"exscan", "aj_exscan", call_exscan, TO_F32 | TO_I64 | SHAPE | COUNT, NULL},
    {"barrier", "aj_barrier", call_barrier, 0, NULL},
    {"maxloc", "aj_maxloc", call_maxloc, TO_F32 | SHAPE | COUNT, NULL},
    {"halo", "aj_halo", call_halo, TO_F32 | TO_I64 | WIDTH, NULL},
    {"agree", "aj_agree", call_agree, 0, NULL},
    {"comm_split", "aj_comm_split", call_comm_split, 0, NULL},
    {"shared", "aj_shared", call_shared, TO_F32 | TO_I64 | SHAPE | COUNT | VALUE, NULL},
    {"backward", "aj_backward", call_backward, 0, prepare_backward},
    {"recv", "aj_recv", call_recv, ALONE, NULL},
    {"custom", "exchange_step", call_custom, 0, NULL},
};

enum { N_COMMUNICATIONS = sizeof communications / sizeof communications[0] };

/* One rank's arguments made wrong, and and what every message must name; NULL: the two shapes. */
typedef struct difference {
    const char *name;
    unsigned what;
    const char *named;
} difference;

static const difference differences[] = {
    {"root", ROOT, "root"},     {"reduction", REDUCTION, "MPI_SUM|MPI_MAX"},
    {"f32", TO_F32, "f64|f32"}, {"i64", TO_I64, "f64|i64"},
    {"shape", SHAPE, NULL},     {"count", COUNT, NULL},
    {"axis", AXIS, "axis"},     {"share", SHARE, "numelem"},
    {"width", WIDTH, "rank 1"}, {"value", VALUE, "contents"},
};

enum { N_DIFFERENCES = sizeof differences / sizeof differences[0] };

static inline arguments wrong_arguments(unsigned what) {
    arguments a = right_arguments();
    int64_t first = a.shape[0];
    switch (what) {
    case ROOT:
        a.root = 1;
        break;
    case REDUCTION:
        a.op = MPI_MAX;
        break;
    case TO_F32:
        a.dtype = AJ_F32;
        break;
    case TO_I64:
        a.dtype = AJ_I64;
        break;
    case SHAPE: /* as many entries */
        a.shape[0] = a.shape[1];
        a.shape[1] = first;
        break;
    case COUNT:
        a.shape[1] = 3 * first;
        break;
    case AXIS:
        a.axis = 1;
        break;
    case SHARE:
        a.more = 1;
        break;
    case WIDTH:
        a.width = 2;
        break;
    case VALUE:
        a.holder = 1;
        break;
    }
    return a;
}

#endif
