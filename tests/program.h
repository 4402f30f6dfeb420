/*
 * Random SPMD programs as data. A program has a track for each rank: an array of steps, which work on numbered slots, the first of which are inputs.
 *
 * make_program draws one from a seed, the same on every rank, so that each rank knows what the others do. It is drawn in one global order of events: a
 * collective is put on the tracks of all its members at once, and a receive completes after the send that it matches has started. So what is drawn is
 * correct under MPI, cannot hang, and neither may its adjoint. run_track runs one track.
 */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <adjoin/adjoin.h>

#include "layouts.h"

enum {
    MAX_RANKS = 8,
    MAX_STEPS = 1024,
    MAX_SLOTS = 1024,
    MAX_INPUTS = 3,
    MAX_ROOTS = MAX_SLOTS,
    MAX_MESSAGES = 64,
    MAX_TEAMS = 8
};

/* ---- communicators ---- */

enum { EVERYONE, PARITY, REVERSED, SOME, GRID, WILD, N_COMMS };

/* The members of one communicator: ranks of the world in the order of their ranks in it. */
typedef struct team {
    int comm, n, rank[MAX_RANKS];
} team;

typedef struct teams {
    int color[N_COMMS][MAX_RANKS], key[N_COMMS][MAX_RANKS]; /* of aj_comm_split of the world */
    int n_dims, dims[2], periods[2];                        /* of GRID, which is made by MPI_Cart_create */
    int n;
    team team[MAX_TEAMS];
} teams;

/* ---- programs ---- */

/* clang-format off */
#define LOCAL_STEPS(X)                                                                                                           \
    X(fit) X(separate) X(scale) X(unary) X(binary) X(where) X(slice) X(transpose) X(broadcast_to) X(concat) X(matmul)            \
    X(sum_axes) X(cumsum) X(flip) X(roll) X(pad) X(set_slice) X(set_window_inplace) X(join_dummies)
#define COLLECTIVE_STEPS(X)                                                                                                      \
    X(allreduce) X(bcast) X(bcast_inplace) X(reduce) X(reduce_inplace) X(gather) X(allgather) X(scatter) X(alltoall)             \
    X(reduce_scatter) X(scan) X(exscan) X(maxloc) X(minloc) X(halo) X(halo_inplace) X(barrier)
#define MESSAGE_STEPS(X) X(send) X(recv) X(isend) X(irecv) X(wait) X(sendrecv) X(request_join_dummies)
/* clang-format on */

#define STEP_KIND(name) STEP_##name,
typedef enum step_kind { LOCAL_STEPS(STEP_KIND) COLLECTIVE_STEPS(STEP_KIND) MESSAGE_STEPS(STEP_KIND) N_STEP_KINDS } step_kind;
#undef STEP_KIND

enum { NONE = 0 }; /* no slot, no request: both are counted from 1 */

/* One call. Which fields count depends on the kind: program_run.c. */
typedef struct step {
    step_kind kind;
    int out, x, y;                 /* slots: of the result, of the operands */
    int function;                  /* unary_functions, binary_functions, reductions */
    int comm, root;                /* one of N_COMMS */
    int dest, tag, source, tag_in; /* ranks of comm */
    int request;
    int axis, other_axis;
    int64_t start, stop, stride; /* along axis */
    int64_t length;              /* what this rank gets along axis; the number of entries to be separated, shift */
    int layout;
    double factor;
    uint64_t salt;
} step;

/* A tensor that a track makes: its shape, a bound of its entries, and whether it may be and was an operand. */
typedef struct slot {
    extents shape;
    double bound;
    bool consumed, used;
} slot;

/* What a rank passes to backward. */
typedef enum root_kind { NO_ROOT, CONSTANT_ROOT, ONE_ROOT, MANY_ROOTS } root_kind;

typedef struct track {
    int n_inputs, n_slots, n_steps, n_roots;
    bool is_param[MAX_INPUTS]; /* else a constant */
    slot slots[MAX_SLOTS];
    step steps[MAX_STEPS];
    root_kind root_kind;
    int roots[MAX_ROOTS];
} track;

typedef struct program {
    uint64_t seed;
    int ranks;
    aj_dtype dtype; /* of all numbers: f64, unless who runs it sets another one */
    bool splits;    /* makes SOME anew, and destroys it before it is differentiated */
    bool reaches;   /* every rank's roots are all that it made, so that they reach all communications: AJ_REACHED is legal */
    teams teams;
    track tracks[MAX_RANKS];
} program;

/* ---- tables of functions, with what they make of bounds ---- */

typedef struct unary_function {
    const char *name;
    aj_tensor *(*apply)(aj_tensor *);
    double (*bound)(double);
} unary_function;

typedef struct binary_function {
    const char *name;
    aj_tensor *(*apply)(aj_tensor *, aj_tensor *);
    double (*bound)(double, double);
} binary_function;

/* Where an MPI_Op may stand. */
enum { IN_REDUCTIONS = 1, IN_SCANS = 2 };

typedef struct reduction {
    const char *name;
    MPI_Op op;
    int where;
    bool separated; /* is smooth only where the ranks' entries are apart */
    double (*bound)(double, double);
} reduction;

extern const unary_function unary_functions[];
extern const binary_function binary_functions[];
extern reduction reductions[];
extern const int n_unary_functions, n_binary_functions, n_reductions;

/* ---- making, printing, running ---- */

/* The reductions that are registered. */
void open_reductions(void);            /* the operations of MPI */
void register_reductions(aj_ctx *ctx); /* their derivatives */
void close_reductions(void);

/* The communicators depend on family alone, so that many programs can share them. */
void make_teams(uint64_t family, int ranks, teams *t);
void make_program(uint64_t seed, const teams *t, int ranks, program *p);
void print_program(const program *p);

void open_teams(const teams *t, aj_comm *world, aj_comm *comms[N_COMMS]);
void close_teams(aj_comm *comms[N_COMMS]);

/* What a track leaves: its part of the objective is the sum of <seed, root>; a seed that is NULL stands for ones. */
typedef struct outcome {
    int n;
    aj_tensor *roots[MAX_ROOTS], *seeds[MAX_ROOTS];
} outcome;

/* A tensor of another shape than the program says is AJ_ERR_SHAPE in ctx. */
void run_track(const program *p, int rank, aj_comm *const comms[N_COMMS], aj_tensor *const *inputs, outcome *result);

/* Called before each step with a copy of it and its operand x, which it may change. The result of a step that is skipped is zero. */
typedef enum verdict { RUN_STEP, SKIP_STEP, LEAVE_TRACK } verdict;
typedef struct hook {
    verdict (*before)(void *user, int number, step *s, aj_tensor **x);
    void *user;
} hook;
void run_track_with(const program *p, int rank, aj_comm *const comms[N_COMMS], aj_tensor *const *inputs, const hook *h,
                    outcome *result);

#endif
