/*
 * Communication of tensors on a device, direct and staged: on the stand-in for CUDA and a CUDA-aware MPI (cuda_aware_mpi.h). Every call's result and gradient are
 * those of the CPU, to the bit, for all layouts; direct gives MPI device memory, staged never does, nor does what is computed on the host.
 */
#include "cuda_aware_mpi.h"
#include "cuda_standin.h"
#include "layouts.h"
#include "mpi_common.h"

static aj_device gpu;
static bool direct;          /* the mode of the case that runs */
static aj_comm *ring, *grid; /* Cartesian: one dimension, periodic; two, with edges */
static MPI_Op plus, right;   /* a + b; b */

/* ---- a context with a device ---- */

static aj_device standin(aj_ctx *c) {
    static aji_cuda_api api;
    api = standin_api();
    return aji_cuda_open(c, &api, 0);
}

static aj_comm *cart(int ndim, int periodic) {
    int dims[2] = {0, 0}, periods[2] = {periodic, periodic};
    MPI_Comm made;
    MPI_Dims_create(rank_count, ndim, dims);
    MPI_Cart_create(MPI_COMM_WORLD, ndim, dims, periods, 0, &made);
    aj_comm *comm = aj_comm_create(ctx, made);
    MPI_Comm_free(&made);
    return comm;
}

static void add(void *in, void *inout, int *n, MPI_Datatype *type) {
    for (int i = 0; i < *n; i++)
        if (*type == MPI_DOUBLE)
            ((double *)inout)[i] += ((double *)in)[i];
        else if (*type == MPI_FLOAT)
            ((float *)inout)[i] += ((float *)in)[i];
        else if (*type == MPI_INT64_T)
            ((int64_t *)inout)[i] += ((int64_t *)in)[i];
        else
            ((int32_t *)inout)[i] += ((int32_t *)in)[i];
}

static void take_right(void *in, void *inout, int *n, MPI_Datatype *type) {
    (void)in, (void)inout, (void)n, (void)type;
}

static aj_tensor *plus_vjp(aj_ctx *c, aj_tensor *prefix, aj_tensor *x, aj_tensor *suffix, aj_tensor *y, aj_tensor *g,
                           void *user) {
    (void)c, (void)prefix, (void)x, (void)suffix, (void)y, (void)user;
    return g;
}

static aj_tensor *right_vjp(aj_ctx *c, aj_tensor *prefix, aj_tensor *x, aj_tensor *suffix, aj_tensor *y, aj_tensor *g,
                            void *user) {
    (void)c, (void)prefix, (void)x, (void)y, (void)user;
    return suffix ? aj_scale(g, 0) : g;
}

static void open_all(bool is_direct) {
    direct = is_direct;
    setenv("ADJOIN_CUDA_AWARE", direct ? "1" : "0", 1);
    open_world();
    gpu = standin(ctx);
    CHECK_MSG(gpu != NULL, "no device: %s", aj_ctx_error(ctx));
    ring = cart(1, 1);
    grid = cart(2, 0);
    MPI_Op_create(add, 1, &plus);
    MPI_Op_create(take_right, 0, &right);
    CHECK_INT(aj_op_register(ctx, plus, "plus", true, plus_vjp, NULL), AJ_OK);
    CHECK_INT(aj_op_register(ctx, right, "right", false, right_vjp, NULL), AJ_OK);
}

static void close_all(void) {
    aj_comm_destroy(&ring);
    aj_comm_destroy(&grid);
    close_world();
    MPI_Op_free(&plus);
    MPI_Op_free(&right);
    CHECK_INT(standin_left(), 0);
    CHECK_INT(aware_mpi_pending(), 0);
}

/* ---- operations: of x, with a number that says more ---- */

typedef aj_tensor *operation(aj_tensor *x, int k);
static aj_tensor *other; /* a second result */

static int last(void) {
    return rank_count - 1;
}

/* Entries along the axis of a rank; some have none. */
static int64_t part_of(int rank) {
    static const int64_t parts[] = {3, 0, 2, 1, 4, 0, 2};
    return parts[rank % 7];
}

static int64_t whole(void) {
    int64_t n = 0;
    for (int r = 0; r < rank_count; r++)
        n += part_of(r);
    return n;
}

static MPI_Op reduction(int k) {
    const MPI_Op ops[] = {MPI_SUM, MPI_MAX, MPI_MIN, MPI_PROD, plus, right, MPI_BXOR, MPI_LAND};
    return ops[k];
}
enum { SUM, MAX, MIN, PROD, PLUS, RIGHT, BXOR, LAND };

static aj_tensor *allreduce(aj_tensor *x, int k) {
    return aj_allreduce(x, reduction(k), world);
}
static aj_tensor *reduce(aj_tensor *x, int k) {
    return aj_reduce(x, reduction(k), last(), world);
}
static aj_tensor *reduce_inplace(aj_tensor *x, int k) {
    return aj_reduce_inplace(x, reduction(k), last(), world);
}
static aj_tensor *bcast(aj_tensor *x, int k) {
    return aj_bcast(x, k ? last() : 0, world);
}
static aj_tensor *bcast_inplace(aj_tensor *x, int k) {
    return aj_bcast_inplace(x, k ? last() : 0, world);
}
static aj_tensor *shared(aj_tensor *x, int k) {
    return aj_shared(aj_bcast(x, k, world), world);
}
static aj_tensor *extremum(aj_tensor *x, int k) {
    aj_tensor *y = NULL;
    aj_status status = k ? aj_maxloc(x, world, &y, &other) : aj_minloc(x, world, &y, &other);
    return status == AJ_OK ? y : NULL;
}
static aj_tensor *scan(aj_tensor *x, int k) {
    return aj_scan(x, reduction(k), world);
}
static aj_tensor *exscan(aj_tensor *x, int k) {
    return aj_exscan(x, reduction(k), world);
}
static aj_tensor *gather(aj_tensor *x, int k) {
    return aj_gather(x, k, last(), world);
}
static aj_tensor *allgather(aj_tensor *x, int k) {
    return aj_allgather(x, k, world);
}
static aj_tensor *scatter(aj_tensor *x, int k) {
    return aj_scatter(x, k, part_of(rank_id), last(), world);
}
static aj_tensor *alltoall(aj_tensor *x, int k) {
    return aj_alltoall(x, k, 1 - k, part_of(rank_id), world);
}
static aj_tensor *alltoall_even(aj_tensor *x, int k) {
    return aj_alltoall(x, k, 1 - k, 2, world);
}
static aj_tensor *divide_anew(aj_tensor *x, int k) {
    return aj_alltoall(x, k, k, part_of(last() - rank_id), world);
}
static aj_tensor *reduce_scatter(aj_tensor *x, int k) {
    return aj_reduce_scatter(x, 0, part_of(rank_id), reduction(k), world);
}
static aj_tensor *reduce_scatter_rows(aj_tensor *x, int k) {
    return aj_reduce_scatter(x, 1, part_of(rank_id), reduction(k), world);
}

static int left(void) {
    return left_of(rank_id, rank_count);
}
static int next(void) {
    return right_of(rank_id, rank_count);
}

static aj_tensor *send_on(aj_tensor *x, int k) {
    aj_tensor *sent = aj_send(x, next(), k, world);
    return aj_add(sent, aj_recv(aj_add(x, x), left(), MPI_ANY_TAG, world));
}
static aj_tensor *send_to_self(aj_tensor *x, int k) {
    aj_tensor *sent = aj_send(x, rank_id, k, world);
    return aj_add(sent, aj_recv(aj_add(x, x), rank_id, k, world));
}
static aj_tensor *send_to_nobody(aj_tensor *x, int k) {
    aj_tensor *sent = aj_send(x, MPI_PROC_NULL, k, world);
    return aj_add(sent, aj_recv(aj_add(x, x), MPI_PROC_NULL, k, world));
}
static aj_tensor *sendrecv(aj_tensor *x, int k) {
    return aj_sendrecv(x, next(), k, aj_add(x, x), left(), k, world);
}
/* A message shorter than the buffer, of k entries. */
static aj_tensor *send_short(aj_tensor *x, int k) {
    int64_t n = aj_numel(x);
    aj_tensor *flat = aj_reshape(x, 1, &n);
    if (!aj_send(aj_slice(flat, 0, 0, k < n ? k : n, 1), next(), 3, world))
        return NULL;
    return aj_recv(aj_add(flat, flat), left(), 3, world);
}
/* Two messages at once, waited for in the other order, with work in between. */
static aj_tensor *requests(aj_tensor *x, int k) {
    aj_request *r0 = aj_irecv(aj_add(x, x), left(), 1, world), *r1 = aj_irecv(aj_add(x, x), left(), 2, world);
    aj_request *s0 = aj_isend(x, next(), 1, world), *s1 = aj_isend(aj_mul(x, x), next(), 2, world);
    aj_tensor *between = aj_sub(x, aj_mul(x, x));
    if (k && r1 && s1)
        aj_request_join_dummies(r1, 1, (aj_tensor *[]){aj_request_dummy(s1)});
    aj_tensor *y1 = aj_wait(r1), *y0 = aj_wait(r0), *z0 = aj_wait(s0), *z1 = aj_wait(s1);
    return aj_add(aj_add(aj_mul(y1, between), y0), aj_sub(z0, z1));
}
static aj_tensor *halo(aj_tensor *x, int k) {
    return k ? aj_halo_inplace(x, 1, (const int[]){0}, (const int64_t[]){2}, ring)
             : aj_halo(x, 1, (const int[]){0}, (const int64_t[]){2}, ring);
}
static aj_tensor *halo_of_grid(aj_tensor *x, int k) {
    return k ? aj_halo_inplace(x, 2, (const int[]){1, 0}, (const int64_t[]){1, 2}, grid)
             : aj_halo(x, 2, (const int[]){0, 1}, (const int64_t[]){2, 1}, grid);
}
static aj_tensor *barrier(aj_tensor *x, int k) {
    aj_tensor *sent = aj_send(x, next(), k, world);
    if (aj_barrier(world) != AJ_OK)
        return NULL;
    return aj_add(sent, aj_recv(aj_add(x, x), left(), k, world));
}

/* ---- one run, and its comparison with the CPU's ---- */

typedef enum shape { SAME, ROWS, COLUMNS, ALL_ROWS, ALL_COLUMNS, BLOCKS, EVEN, EVEN_ROWS, FIELD, NOTHING, LARGE } shape;

static extents extents_of(shape s) {
    switch (s) {
    case SAME:
        return (extents){2, {5, 3}};
    case ROWS:
        return (extents){2, {part_of(rank_id), 3}};
    case COLUMNS:
        return (extents){2, {3, part_of(rank_id)}};
    case ALL_ROWS:
        return (extents){2, {whole(), 3}};
    case ALL_COLUMNS:
        return (extents){2, {3, whole()}};
    case BLOCKS:
        return (extents){2, {part_of(rank_id), whole()}};
    case EVEN:
        return (extents){2, {2, 2 * rank_count}};
    case EVEN_ROWS:
        return (extents){2, {2 * rank_count, 2}};
    case FIELD:
        return (extents){2, {7, 6}};
    case NOTHING:
        return (extents){2, {0, 3}};
    case LARGE: /* more than goes without pinned memory */
        return (extents){2, {72, 72}};
    }
    return (extents){0, {0}};
}

/* What MPI is to be given in direct mode: 'd' device memory, 's' none, ' ' either. */
typedef struct trial {
    const char *name;
    operation *call;
    int k;
    shape shape;
    char floats, integers, adjoint; /* ' ' in place of integers: not for them */
    bool rounds;                    /* results are not exact: no layout that adds up gradients in an order of its own */
} trial;

typedef struct bytes {
    size_t n;
    unsigned char *at;
} bytes;

typedef struct outcome {
    bytes y, other, gradient;
    long forward, adjoint; /* calls of MPI with device memory */
} outcome;

static bytes numbers_in(aj_tensor *t) {
    bytes b = {0, NULL};
    if (!t)
        return b;
    b.n = (size_t)aj_numel(t) * aj_dtype_size(aj_tensor_dtype(t));
    b.at = malloc(b.n + 1);
    memset(b.at, 0xee, b.n);
    if (aj_read(t, b.at, b.n) != AJ_OK)
        memset(b.at, 0xdd, b.n);
    return b;
}

static aj_tensor *seed_like(aj_tensor *y, aj_device device) {
    return aj_to_device(random_tensor(ctx, aj_tensor_dtype(y), aji_tensor_meta(y)->ndim, aji_tensor_meta(y)->shape, 99, rank_id),
                        device);
}

static outcome run(const trial *t, aj_dtype dtype, int layout, aj_device device) {
    outcome o = {.forward = 0};
    extents e = extents_of(t->shape), base = base_extents(&e, layout);
    aj_scope *scope = aj_scope_begin(ctx);
    aj_tensor *x = aj_to_device(random_tensor(ctx, dtype, base.ndim, base.n, 7, rank_id), device);
    bool is_float = dtype == AJ_F64 || dtype == AJ_F32;
    aj_tensor *leaf = is_float ? aj_param(x) : x;
    if (is_float)
        CHECK_INT(aj_record_begin(ctx), AJ_OK);
    other = NULL;
    long before = aware_mpi_calls;
    aj_tensor *y = t->call(arrange(leaf, &e, layout), t->k);
    o.forward = aware_mpi_calls - before;
    CHECK_MSG(y && (!is_float || aj_tensor_device(y) == device), "%s: %s", t->name, y ? "on another device" : aj_ctx_error(ctx));
    o.y = numbers_in(y);
    o.other = numbers_in(other);
    before = aware_mpi_calls;
    if (is_float) {
        CHECK_MSG(y && aj_backward(ctx, y, seed_like(y, device)) == AJ_OK, "%s: aj_backward: %s", t->name, aj_ctx_error(ctx));
        o.adjoint = aware_mpi_calls - before;
        aj_tensor *g = aj_grad(leaf);
        CHECK_MSG(aj_tensor_device(g) == device, "%s: the gradient is on another device", t->name);
        o.gradient = numbers_in(g);
        aj_release(&leaf);
    }
    check_clean(ctx, t->name);
    CHECK_INT(aj_scope_end(scope), AJ_OK);
    return o;
}

static void free_outcome(outcome *o) {
    free(o->y.at);
    free(o->other.at);
    free(o->gradient.at);
}

static void check_same(const trial *t, aj_dtype dtype, int layout, const char *what, bytes got, bytes wanted) {
    bool same = got.n == wanted.n && (got.n == 0 || memcmp(got.at, wanted.at, got.n) == 0);
    CHECK_MSG(same, "%s, number %d, %s, layout %d, %s: %s differs from the CPU's", t->name, t->k, aj_dtype_name(dtype), layout,
              direct ? "direct" : "staged", what);
}

static void check_calls(const trial *t, aj_dtype dtype, const char *what, char how, long calls) {
    bool right_so = !direct || how == 's' ? calls == 0 : how != 'd' || rank_count == 1 || calls > 0;
    CHECK_MSG(right_so || (how == ' ' && direct), "%s, number %d, %s, %s: MPI was given device memory %ld times in the %s",
              t->name, t->k, aj_dtype_name(dtype), direct ? "direct" : "staged", calls, what);
}

static void check(const trial *t, aj_dtype dtype, int layout) {
    bool is_float = dtype == AJ_F64 || dtype == AJ_F32;
    outcome here = run(t, dtype, layout, aj_cpu(ctx)), there = run(t, dtype, layout, gpu);
    CHECK_INT(here.forward + here.adjoint, 0);
    check_same(t, dtype, layout, "the result", there.y, here.y);
    check_same(t, dtype, layout, "the second result", there.other, here.other);
    check_same(t, dtype, layout, "the gradient", there.gradient, here.gradient);
    check_calls(t, dtype, "forward", is_float ? t->floats : t->integers, there.forward);
    if (is_float)
        check_calls(t, dtype, "adjoint", t->adjoint, there.adjoint);
    free_outcome(&here);
    free_outcome(&there);
}

/* All layouts for f64, the next one in turn for the other dtypes. */
static void check_trial(const trial *t, int turn) {
    static const aj_dtype dtypes[] = {AJ_F64, AJ_F32, AJ_I64, AJ_I32};
    extents e = extents_of(t->shape);
    for (int d = 0; d < 4; d++)
        for (int i = 0; i < (d == 0 ? N_LAYOUTS : 2); i++) {
            int layout = layout_for(&e, d == 0 ? i : turn + 3 * i);
            bool is_float = d < 2, skipped = (t->rounds && layout == BROADCAST) || !(is_float ? t->floats : t->integers);
            if (!skipped)
                check(t, dtypes[d], layout);
        }
}

static void check_all_trials(int n, const trial *trials) {
    for (int mode = 0; mode < 2; mode++) {
        open_all(mode == 1);
        for (int i = 0; i < n; i++)
            check_trial(&trials[i], i + mode);
        close_all();
    }
}

/* ---- the cases ---- */

#define TRIALS(name, ...)                                                                                                        \
    static void name(void) {                                                                                                     \
        static const trial trials[] = {__VA_ARGS__};                                                                             \
        check_all_trials((int)(sizeof trials / sizeof trials[0]), trials);                                                       \
    }

TRIALS(reductions, {"allreduce", allreduce, SUM, SAME, 'd', 'd', 'd', false}, /**/
       {"allreduce", allreduce, MAX, SAME, 's', 'd', 'd', false}, {"allreduce", allreduce, MIN, NOTHING, 's', 'd', 'd', false},
       {"allreduce", allreduce, PROD, SAME, 's', 'd', 'd', true}, {"allreduce", allreduce, BXOR, SAME, 0, 'd', 0, false},
       {"allreduce", allreduce, LAND, ALL_ROWS, 0, 'd', 0, false}, {"reduce", reduce, SUM, SAME, 'd', 'd', 'd', false},
       {"reduce", reduce, MAX, ALL_ROWS, 's', 'd', 'd', false},
       {"reduce_inplace", reduce_inplace, SUM, SAME, 'd', 'd', 'd', false},
       {"reduce_inplace", reduce_inplace, MIN, SAME, 's', 'd', 'd', false}, {"shared", shared, 0, SAME, 'd', 'd', 'd', false})

TRIALS(bcasts, {"bcast", bcast, 0, SAME, 'd', 'd', 'd', false}, {"bcast", bcast, 1, NOTHING, 'd', 'd', 'd', false},
       {"bcast_inplace", bcast_inplace, 0, ALL_ROWS, 'd', 'd', 'd', false},
       {"bcast_inplace", bcast_inplace, 1, SAME, 'd', 'd', 'd', false})

TRIALS(extrema, {"minloc", extremum, 0, SAME, 's', 's', 'd', false}, {"maxloc", extremum, 1, ALL_ROWS, 's', 's', 'd', false},
       {"maxloc", extremum, 1, NOTHING, 's', 's', 'd', false})

TRIALS(scans, {"scan", scan, SUM, SAME, 'd', 'd', 'd', false}, {"exscan", exscan, SUM, SAME, 'd', 'd', 'd', false},
       {"scan", scan, MAX, SAME, 's', 'd', ' ', false}, {"exscan", exscan, MIN, SAME, 's', 'd', ' ', false},
       {"scan", scan, PROD, SAME, 's', 'd', ' ', true}, {"exscan", exscan, PROD, SAME, 's', 'd', ' ', true},
       {"exscan", exscan, SUM, NOTHING, 'd', 'd', 'd', false})

TRIALS(user_defined, {"allreduce", allreduce, PLUS, SAME, 's', 's', ' ', false},
       {"allreduce", allreduce, RIGHT, SAME, 's', 's', ' ', false}, {"reduce", reduce, PLUS, SAME, 's', 's', ' ', false},
       {"reduce_inplace", reduce_inplace, PLUS, SAME, 's', 's', ' ', false}, {"scan", scan, PLUS, SAME, 's', 's', ' ', false},
       {"scan", scan, RIGHT, SAME, 's', 's', ' ', false}, {"exscan", exscan, RIGHT, SAME, 's', 's', ' ', false},
       {"reduce_scatter", reduce_scatter, PLUS, ALL_ROWS, 's', 's', ' ', false},
       {"reduce_scatter", reduce_scatter, RIGHT, ALL_ROWS, 's', 's', ' ', false})

TRIALS(joins, {"gather", gather, 0, ROWS, 'd', 'd', 'd', false}, {"gather", gather, 1, COLUMNS, 'd', 'd', 'd', false},
       {"allgather", allgather, 0, ROWS, 'd', 'd', 'd', false}, {"allgather", allgather, 1, COLUMNS, 'd', 'd', 'd', false},
       {"allgather", allgather, 0, SAME, 'd', 'd', 'd', false}, {"allgather", allgather, 1, SAME, 'd', 'd', 'd', false},
       {"gather", gather, 0, NOTHING, 'd', 'd', 'd', false})

TRIALS(divisions, {"scatter", scatter, 0, ALL_ROWS, 'd', 'd', 'd', false},
       {"scatter", scatter, 1, ALL_COLUMNS, 'd', 'd', 'd', false},
       {"reduce_scatter", reduce_scatter, SUM, ALL_ROWS, 'd', 'd', 'd', false},
       {"reduce_scatter", reduce_scatter_rows, SUM, ALL_COLUMNS, 'd', 'd', 'd', false},
       {"reduce_scatter", reduce_scatter_rows, MAX, ALL_COLUMNS, 's', 'd', 'd', false},
       {"reduce_scatter", reduce_scatter, PROD, ALL_ROWS, 's', 'd', 'd', true})

TRIALS(alltoalls, {"alltoall", alltoall, 0, BLOCKS, 'd', 'd', 'd', false},
       {"alltoall", alltoall_even, 1, EVEN_ROWS, 'd', 'd', 'd', false},
       {"alltoall", alltoall_even, 0, EVEN, 'd', 'd', 'd', false}, {"alltoall", divide_anew, 0, ROWS, 'd', 'd', 'd', false},
       {"alltoall", divide_anew, 1, COLUMNS, 'd', 'd', 'd', false})

TRIALS(messages, {"send", send_on, 5, SAME, 'd', 'd', 'd', false}, {"send", send_on, 5, NOTHING, 'd', 'd', 'd', false},
       {"send", send_on, 5, LARGE, 'd', 'd', 'd', false}, {"to self", send_to_self, 2, SAME, 'd', 'd', 'd', false},
       {"to nobody", send_to_nobody, 2, SAME, 's', 's', 's', false}, {"sendrecv", sendrecv, 4, SAME, 'd', 'd', 'd', false},
       {"short", send_short, 2, SAME, 'd', 'd', 'd', false}, {"short", send_short, 0, SAME, 'd', 'd', 'd', false},
       {"barrier", barrier, 9, SAME, 'd', 'd', 'd', false})

TRIALS(open_requests, {"requests", requests, 0, SAME, 'd', 'd', 'd', true}, {"requests", requests, 1, SAME, 'd', 'd', 'd', true},
       {"requests", requests, 1, LARGE, 'd', 'd', 'd', true}, {"requests", requests, 0, NOTHING, 'd', 'd', 'd', false})

TRIALS(halos, {"halo", halo, 0, FIELD, 'd', 'd', 'd', false}, {"halo_inplace", halo, 1, FIELD, 'd', 'd', 'd', false},
       {"halo of a grid", halo_of_grid, 0, FIELD, 'd', 'd', 'd', false},
       {"halo_inplace of a grid", halo_of_grid, 1, FIELD, 'd', 'd', 'd', false}, {"halo", halo, 0, LARGE, 'd', 'd', 'd', false},
       {"halo of a grid", halo_of_grid, 0, LARGE, 'd', 'd', 'd', false})

TRIALS(large_ones, {"allreduce", allreduce, SUM, LARGE, 'd', 'd', 'd', false},
       {"reduce", reduce_inplace, SUM, LARGE, 'd', 'd', 'd', false}, {"bcast", bcast, 0, LARGE, 'd', 'd', 'd', false},
       {"allreduce", allreduce, MAX, LARGE, 's', 'd', 'd', false}, {"gather", gather, 1, LARGE, 'd', 'd', 'd', false},
       {"exscan", exscan, SUM, LARGE, 'd', 'd', 'd', false})

/* ---- the choice ---- */

/* Is MPI given device memory, in a context of its own? environment NULL: not set. */
static bool is_direct(const char *environment, int says, bool deactivated) {
    if (environment)
        setenv("ADJOIN_CUDA_AWARE", environment, 1);
    else
        unsetenv("ADJOIN_CUDA_AWARE");
    aware_mpi_says = says;
    open_world();
    aware_mpi_says = !says; /* it is asked once */
    gpu = standin(ctx);
    if (deactivated)
        CHECK_INT(aj_cuda_deactivate_aware_mpi(ctx), AJ_OK);
    long before = aware_mpi_calls;
    aj_tensor *x = aj_to_device(vector(ctx, 4, 3, rank_id), gpu);
    aj_send(x, next(), 0, world);
    aj_tensor *y = aj_recv(aj_to_device(vector(ctx, 4, 4, 0), gpu), left(), 0, world);
    bool is = aware_mpi_calls > before;
    double *wanted = numbers_of(AJ_F64, 3, left(), 4);
    CHECK_VALUES(aj_to_device(y, aj_cpu(ctx)), 4, wanted, 0);
    free(wanted);
    close_world();
    CHECK_INT(standin_left(), 0);
    aware_mpi_says = 0;
    return is;
}

static void choice(void) {
    CHECK(!is_direct(NULL, 0, false));
    CHECK(is_direct(NULL, 1, false));
    CHECK(!is_direct("0", 1, false));
    CHECK(is_direct("1", 0, false));
    CHECK(is_direct("", 1, false));
    CHECK(!is_direct("yes", 0, false));
    CHECK(!is_direct(NULL, 1, true));
    CHECK(!is_direct("1", 1, true));
    CHECK_INT(aj_cuda_deactivate_aware_mpi(NULL), AJ_ERR_ARG);
}

static void ring_of_requests(aj_tensor *x, bool switches) {
    aj_request *r = aj_irecv(aj_add(x, x), left(), 1, world), *s = aj_isend(x, next(), 1, world);
    if (switches)
        CHECK_INT(aj_cuda_deactivate_aware_mpi(ctx), AJ_OK);
    double *wanted = numbers_of(AJ_F64, 3, left(), 5000);
    CHECK_VALUES(aj_to_device(aj_wait(r), aj_cpu(ctx)), 5000, wanted, 0);
    CHECK(aj_wait(s) != NULL);
    free(wanted);
}

/* A message that began direct ends so; ranks need not agree. */
static void switched_off(void) {
    open_all(true);
    aj_tensor *x = aj_to_device(vector(ctx, 5000, 3, rank_id), gpu);
    ring_of_requests(x, rank_id % 2 == 0);
    long before = aware_mpi_calls;
    ring_of_requests(x, false);
    CHECK_INT(aware_mpi_calls - before, rank_id % 2 ? 2 : 0);
    double sum = 0;
    for (int r = 0; r < rank_count; r++)
        sum += number(3, r, 0);
    CHECK_NEAR(aj_item(aj_slice(aj_allreduce(x, MPI_SUM, world), 0, 0, 1, 1)), sum, 0);
    close_all();
}

/* Staged: what MPI reads and writes is pinned, and the device reads the result from there. An event for the download, and one for each block that goes back. */
static void pinned(void) {
    open_all(false);
    aj_tensor *x = aj_to_device(vector(ctx, 5000, 3, rank_id), gpu);
    CHECK_INT(aj_eval(x), AJ_OK);
    long events = standin_calls("cuEventRecord"), calls = aware_mpi_pinned_calls;
    aj_tensor *y = aj_scan(x, MPI_SUM, world);
    CHECK(y != NULL);
    CHECK_INT(aware_mpi_pinned_calls - calls, 1);
    CHECK_INT(standin_calls("cuEventRecord") - events, 3);
    close_all();
}

/* A thread with a context of its own keeps it; one without is lent the device's. */
static void contexts(void) {
    open_all(true);
    aji_cuda_api api = standin_api();
    aj_tensor *x = aj_to_device(vector(ctx, 4, 3, rank_id), gpu);
    CUcontext own, popped;
    CHECK_INT(api.cuDevicePrimaryCtxRetain(&own, 1), CUDA_SUCCESS);
    CHECK_INT(api.cuCtxPushCurrent(own), CUDA_SUCCESS);
    CHECK(send_on(x, 0) != NULL);
    CHECK_INT(api.cuCtxPopCurrent(&popped), CUDA_SUCCESS);
    CHECK(popped == own);
    CHECK(api.cuCtxGetCurrent(&popped) == CUDA_SUCCESS && !popped);
    CHECK(send_on(x, 0) != NULL);
    CHECK(api.cuCtxGetCurrent(&popped) == CUDA_SUCCESS && popped && popped != own);
    CHECK_INT(api.cuDevicePrimaryCtxRelease(1), CUDA_SUCCESS);
    close_all();
}

/* The device refuses, on all ranks, before MPI is called: an error as any other. */
static void refusals(void) {
    static const char *const functions[] = {"cuStreamSynchronize", "cuCtxGetCurrent", "cuCtxSetCurrent"};
    for (int i = 0; i < 3; i++) {
        open_all(true);
        aj_tensor *x = aj_to_device(vector(ctx, 4, 3, rank_id), gpu);
        CHECK_INT(aj_eval(x), AJ_OK);
        standin_fail(functions[i], 0, CUDA_ERROR_UNKNOWN);
        CHECK(aj_exscan(x, MPI_SUM, world) == NULL);
        CHECK_CONTAINS(aj_ctx_error(ctx), functions[i]);
        CHECK_INT(aj_agree(world), AJ_ERR_DEVICE);
        aj_ctx_clear_error(ctx);
        double before = 0;
        for (int r = 0; r < rank_id; r++)
            before += number(3, r, 0);
        aj_tensor *y = aj_exscan(x, MPI_SUM, world);
        CHECK_NEAR(y ? aj_item(aj_slice(y, 0, 0, 1, 1)) : NAN, before, 0);
        close_all();
    }
}

RANK_MAIN({"reductions", reductions}, {"bcasts", bcasts}, {"extrema", extrema}, {"scans", scans}, {"user_defined", user_defined},
          {"joins", joins}, {"divisions", divisions}, {"alltoalls", alltoalls}, {"messages", messages},
          {"open_requests", open_requests}, {"halos", halos}, {"large_ones", large_ones}, {"choice", choice},
          {"switched_off", switched_off}, {"pinned", pinned}, {"contexts", contexts}, {"refusals", refusals})
