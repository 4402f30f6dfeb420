/*
 * Calls of communication, each described by where every entry of its results comes from: what the results and everything linear in them should be follows
 * from that, in plain C. Here are those along an axis, where shapes differ by rank. With rank programs.
 */
#ifndef MPI_ROWS_H
#define MPI_ROWS_H

#include "mpi_layouts.h"

enum { MOST_RANKS = 16 };

static aj_comm *reversed; /* all ranks, the other way round */
static aj_comm *on;       /* the communicator in use */
static int me;            /* this rank in it */

/* One call. Ranks are those of `on`. */
typedef struct plan {
    const struct row *row;
    aj_dtype dtype;
    MPI_Op op;
    const struct reduction *by;  /* op, as mpi_table.c knows it */
    extents other;               /* the shape; what the extent along the axes is depends on the row */
    int axis, second;            /* second: alltoall's scatter axis */
    bool negative;               /* axes are given counted from the end */
    int root, turn;              /* turn: what varies besides */
    int64_t lengths[MOST_RANKS]; /* the parts of the axis; of alltoall's gather axis */
    int64_t numelem[MOST_RANKS]; /* the parts of alltoall's scatter axis */
} plan;

/* An entry of one of the inputs of a rank. */
typedef struct source {
    int rank, input;
    int64_t at[4];
} source;

/* What a row depends on, and what is special: ONCE: the input is one variable that all ranks hold. */
enum { ROOTED = 1, ALONG_AXIS = 2, TWO_AXES = 4, REDUCES = 8, ON_GRID = 16, ONCE = 32 };

typedef struct row {
    const char *name;
    unsigned kind;
    extents (*input)(const plan *p, int rank);
    extents (*buffer)(const plan *p, int rank); /* a second input; NULL: there is none */
    extents (*output)(const plan *p, int rank);
    /* Which entries of the inputs make up entry `at` of a rank's result: their number; of none, it is zero. */
    int (*sources)(const plan *p, int rank, const int64_t *at, source *from);
    aj_tensor *(*run)(const plan *p, aj_tensor *const *x);
} row;

/* Use the world, or all its ranks the other way round. */
static inline void use(bool backwards) {
    on = backwards ? reversed : world;
    me = backwards ? rank_count - 1 - rank_id : rank_id;
}

/* ---- shapes ---- */

static inline int64_t flat(const extents *e, const int64_t *at) {
    int64_t i = 0;
    for (int k = 0; k < e->ndim; k++)
        i = i * e->n[k] + at[k];
    return i;
}

static inline void unflat(const extents *e, int64_t i, int64_t *at) {
    for (int k = e->ndim - 1; k >= 0; k--) {
        at[k] = i % e->n[k];
        i /= e->n[k];
    }
}

static inline int64_t sum_of(const int64_t *lengths, int n) {
    int64_t sum = 0;
    for (int k = 0; k < n; k++)
        sum += lengths[k];
    return sum;
}

static inline extents with_length(const plan *p, int axis, int64_t length) {
    extents e = p->other;
    e.n[axis] = length;
    return e;
}

static inline extents part(const plan *p, int rank) {
    return with_length(p, p->axis, p->lengths[rank]);
}

static inline extents whole(const plan *p, int rank) {
    (void)rank;
    return with_length(p, p->axis, sum_of(p->lengths, rank_count));
}

static inline int given(const plan *p, int axis) {
    return p->negative ? axis - p->other.ndim : axis;
}

/* ---- the rows ---- */

static inline source source_at(int rank, const int64_t *at, int ndim) {
    source s = {.rank = rank};
    memcpy(s.at, at, (size_t)ndim * sizeof *at);
    return s;
}

/* Entry `at` of parts that follow each other along an axis. */
static inline source in_parts(const int64_t *lengths, int axis, const int64_t *at, int ndim) {
    source s = source_at(0, at, ndim);
    while (s.at[axis] >= lengths[s.rank])
        s.at[axis] -= lengths[s.rank++];
    return s;
}

static inline int concatenation(const plan *p, int rank, const int64_t *at, source *from) {
    (void)rank;
    from[0] = in_parts(p->lengths, p->axis, at, p->other.ndim);
    return 1;
}

static inline extents gather_output(const plan *p, int rank) {
    return rank == p->root ? whole(p, rank) : with_length(p, p->axis, 0);
}

static inline aj_tensor *run_gather(const plan *p, aj_tensor *const *x) {
    return aj_gather(x[0], given(p, p->axis), p->root, on);
}

static inline aj_tensor *run_allgather(const plan *p, aj_tensor *const *x) {
    return aj_allgather(x[0], given(p, p->axis), on);
}

/* Placeholders of any shape: a scalar, one entry, none, more axes than the root's, a shape like the root's. */
static inline extents scatter_input(const plan *p, int rank) {
    static const extents placeholders[] = {{0, {0}}, {1, {1}}, {2, {3, 0}}, {4, {1, 2, 1, 3}}};
    int kind = (p->turn + rank) % 5;
    return rank == p->root || kind == 4 ? whole(p, rank) : placeholders[kind];
}

static inline int scatter_sources(const plan *p, int rank, const int64_t *at, source *from) {
    from[0] = source_at(p->root, at, p->other.ndim);
    from[0].at[p->axis] += sum_of(p->lengths, rank);
    return 1;
}

static inline aj_tensor *run_scatter(const plan *p, aj_tensor *const *x) {
    return aj_scatter(x[0], given(p, p->axis), p->lengths[me], p->root, on);
}

static inline extents alltoall_input(const plan *p, int rank) {
    extents e = part(p, rank);
    if (p->second != p->axis)
        e.n[p->second] = sum_of(p->numelem, rank_count);
    return e;
}

static inline extents alltoall_output(const plan *p, int rank) {
    extents e = whole(p, rank);
    e.n[p->second] = p->numelem[rank];
    return e;
}

static inline int alltoall_sources(const plan *p, int rank, const int64_t *at, source *from) {
    source s = source_at(0, at, p->other.ndim);
    s.at[p->second] += sum_of(p->numelem, rank);
    from[0] = in_parts(p->lengths, p->axis, s.at, p->other.ndim);
    return 1;
}

static inline aj_tensor *run_alltoall(const plan *p, aj_tensor *const *x) {
    return aj_alltoall(x[0], given(p, p->axis), given(p, p->second), p->numelem[me], on);
}

static inline int reduce_scatter_sources(const plan *p, int rank, const int64_t *at, source *from) {
    for (int k = 0; k < rank_count; k++) {
        from[k] = source_at(k, at, p->other.ndim);
        from[k].at[p->axis] += sum_of(p->lengths, rank);
    }
    return rank_count;
}

static inline aj_tensor *run_reduce_scatter(const plan *p, aj_tensor *const *x) {
    return aj_reduce_scatter(x[0], given(p, p->axis), p->lengths[me], p->op, on);
}

static inline extents sendrecv_output(const plan *p, int rank) {
    return part(p, left_of(rank, rank_count));
}

static inline int sendrecv_sources(const plan *p, int rank, const int64_t *at, source *from) {
    from[0] = source_at(left_of(rank, rank_count), at, p->other.ndim);
    return 1;
}

/* The tag depends on the sender. */
static inline aj_tensor *run_sendrecv(const plan *p, aj_tensor *const *x) {
    int left = left_of(me, rank_count);
    extents e = sendrecv_output(p, me);
    return aj_sendrecv(x[0], right_of(me, rank_count), 40 + me, placed(aj_zeros(ctx, p->dtype, e.ndim, e.n)), left, 40 + left,
                       on);
}

static const row row_gather = {"gather", ROOTED | ALONG_AXIS, part, NULL, gather_output, concatenation, run_gather};
static const row row_allgather = {"allgather", ALONG_AXIS, part, NULL, whole, concatenation, run_allgather};
static const row row_scatter = {"scatter", ROOTED | ALONG_AXIS, scatter_input, NULL, part, scatter_sources, run_scatter};
static const row row_alltoall = {"alltoall",      ALONG_AXIS | TWO_AXES, alltoall_input, NULL,
                                 alltoall_output, alltoall_sources,      run_alltoall};
static const row row_reduce_scatter = {"reduce_scatter",       ALONG_AXIS | REDUCES, whole, NULL, part,
                                       reduce_scatter_sources, run_reduce_scatter};
static const row row_sendrecv = {"sendrecv", ALONG_AXIS, part, NULL, sendrecv_output, sendrecv_sources, run_sendrecv};

#define AXIS_ROWS(X) X(gather) X(allgather) X(scatter) X(alltoall) X(reduce_scatter) X(sendrecv)

#endif
