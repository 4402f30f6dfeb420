/*
 * Random SPMD programs (program.h): local work, collectives on several communicators and messages in all forms. What each rank leaves makes an objective,
 * the sum over ranks; its gradient, directional derivatives and products of its Hessian with vectors are compared with central differences.
 *
 * ADJOIN_TEST_SEED=1017 mpiexec -n 3 mpi_programs programs_1 prints and runs one program: every failure tells its seed and the number of ranks.
 */
#include "mpi_common.h"
#include "program.h"

enum { PROGRAMS = 26, FAMILY = 1000, MOST_NUMBERS = MAX_INPUTS * 27, DIRECTIONS = 2 };
static const double STEP = 1e-5; /* of differences */

/* A second context, in which every operation is computed at once. */
static struct {
    aj_ctx *ctx;
    aj_comm *world, *comms[N_COMMS];
} unfused;

/* One program at one point, with directions that differ by rank and are zero for constants. */
typedef struct subject {
    const program *p;
    const track *track;
    aj_comm **comms;
    int n;
    double x[MOST_NUMBERS], d[DIRECTIONS][MOST_NUMBERS], v[MOST_NUMBERS];
} subject;

static double uniform(uint64_t seed, int entry) {
    return 2 * (double)(mix(mix(seed + (uint64_t)rank_id) + (uint64_t)entry) >> 11) / (double)(UINT64_C(1) << 53) - 1;
}

static void draw_point(subject *s) {
    for (int i = 0; i < s->track->n_inputs; i++)
        for (int64_t k = entries(&s->track->slots[i + 1].shape); k > 0; k--, s->n++) {
            double moves = s->track->is_param[i];
            s->x[s->n] = uniform(mix(s->p->seed + 2), s->n);
            s->v[s->n] = moves * uniform(mix(s->p->seed + 3), s->n);
            for (int j = 0; j < DIRECTIONS; j++)
                s->d[j][s->n] = moves * uniform(mix(s->p->seed + 4 + (uint64_t)j), s->n);
        }
}

/* ---- tensors of a rank's inputs ---- */

typedef struct inputs {
    int n, n_params;
    aj_tensor *all[MAX_INPUTS], *params[MAX_INPUTS];
} inputs;

static aj_tensor *input_of(const subject *s, int i, const double *x) {
    const slot *slots = s->track->slots;
    for (int k = 1; k <= i; k++)
        x += entries(&slots[k].shape);
    return tensor_of(ctx, s->p->dtype, slots[i + 1].shape.ndim, slots[i + 1].shape.n, x);
}

/* At x + t d; recorded: parameters where the program has them. */
static inputs make_inputs(const subject *s, double t, const double *d, bool recorded) {
    double at[MOST_NUMBERS];
    for (int k = 0; k < s->n; k++)
        at[k] = s->x[k] + t * d[k];
    inputs in = {.n = s->track->n_inputs};
    for (int i = 0; i < in.n; i++) {
        in.all[i] = input_of(s, i, at);
        if (recorded && s->track->is_param[i])
            in.params[in.n_params++] = in.all[i] = aj_param(in.all[i]);
    }
    return in;
}

static void release_inputs(inputs *in) {
    for (int i = 0; i < in->n_params; i++)
        aj_release(&in->params[i]);
}

/* The numbers of `all` that belong to parameters, one tensor each. */
static void param_tensors(const subject *s, const double *x, aj_tensor **out) {
    for (int i = 0, k = 0; i < s->track->n_inputs; i++)
        if (s->track->is_param[i])
            out[k++] = input_of(s, i, x);
}

/* sum over the n tensors of <a, b>; b NULL, or one that is NULL: ones. magnitude, too: the same of |a b|. */
static double product(int n, aj_tensor *const *a, aj_tensor *const *b, double *magnitude) {
    double sum = 0;
    for (int i = 0; i < n; i++) {
        aj_tensor *terms = b && b[i] ? aj_mul(a[i], b[i]) : a[i];
        sum += aj_item(aj_sum(terms));
        *magnitude += aj_item(aj_sum(aj_abs(terms)));
    }
    return sum;
}

/* ---- functions along a direction: this rank's share ---- */

static double objective(const subject *s, double t, const double *d, double *magnitude) {
    aj_scope *scope = aj_scope_begin(ctx);
    inputs in = make_inputs(s, t, d, false);
    outcome out;
    run_track(s->p, rank_id, s->comms, in.all, &out);
    double value = product(out.n, out.roots, out.seeds, magnitude);
    CHECK_INT(aj_scope_end(scope), AJ_OK);
    return value;
}

static void backward(const subject *s, outcome *out) {
    if (out->n == 1 && !s->p->reaches)
        CHECK_INT(aj_backward(ctx, out->roots[0], out->seeds[0]), AJ_OK);
    else
        CHECK_INT(aj_backward_many(ctx, out->n, out->roots, out->seeds, s->p->reaches ? AJ_REACHED : 0), AJ_OK);
}

/* <v, gradient> */
static double gradient_along_v(const subject *s, double t, const double *d, double *magnitude) {
    aj_scope *scope = aj_scope_begin(ctx);
    inputs in = make_inputs(s, t, d, true);
    outcome out;
    aj_tensor *v[MAX_INPUTS], *g[MAX_INPUTS];
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    run_track(s->p, rank_id, s->comms, in.all, &out);
    backward(s, &out);
    param_tensors(s, s->v, v);
    for (int i = 0; i < in.n_params; i++)
        g[i] = aj_grad(in.params[i]);
    double value = product(in.n_params, g, v, magnitude);
    release_inputs(&in);
    CHECK_INT(aj_scope_end(scope), AJ_OK);
    return value;
}

/* ---- comparing ---- */

/* A derivative along a direction: each rank's share, then the sums over ranks. */
typedef struct comparison {
    double got, wanted, magnitude;
} comparison;

/* What is wanted: the derivative at t = 0, by central differences. They have rounding errors of about 1e-16 / STEP times the function's own
 * magnitude. */
static void want_difference(comparison *c, const subject *s, const double *d,
                            double (*f)(const subject *, double, const double *, double *)) {
    double magnitude = 0;
    c->wanted = (f(s, STEP, d, &magnitude) - f(s, -STEP, d, &magnitude)) / (2 * STEP);
    c->magnitude += 1e-5 * magnitude;
}

static void compare(const subject *s, const char *what, comparison c, double tolerance) {
    double sums[] = {c.got, c.wanted, c.magnitude};
    world_sums(3, sums);
    if (rank_id == 0)
        CHECK_MSG(fabs(sums[0] - sums[1]) <= tolerance * sums[2],
                  "program %llu on %d ranks: %s is %.17g, expected %.17g; magnitude %g", (unsigned long long)s->p->seed,
                  rank_count, what, sums[0], sums[1], sums[2]);
}

/* Forward mode, and second derivatives, which leave the recording as it was. */
static void check_recording(const subject *s, const inputs *in, const outcome *out, comparison *jvp, comparison *hessian) {
    aj_tensor *direction[MAX_INPUTS], *v[MAX_INPUTS], *g[MAX_INPUTS], *hv[MAX_INPUTS], *tangents[MAX_ROOTS];
    param_tensors(s, s->v, v);
    param_tensors(s, s->d[0], direction);
    CHECK_INT(aj_jvp(ctx, out->n, out->roots, in->n_params, in->params, direction, tangents, 0), AJ_OK);
    jvp->got = product(out->n, tangents, out->seeds, &jvp->magnitude);
    CHECK_INT(aj_grad_of(ctx, out->n, out->roots, out->seeds, in->n_params, in->params, g, AJ_CREATE_GRAPH), AJ_OK);
    CHECK_INT(aj_grad_of(ctx, in->n_params, g, v, in->n_params, in->params, hv, 0), AJ_OK);
    hessian->got = product(in->n_params, hv, direction, &hessian->magnitude);
}

/* What came out of a program, and once more, from another way to compute it: the same up to `tolerance` of the sum of the terms' magnitudes. */
static void check_again(const subject *t, const char *how, const comparison *value, const comparison *gradient,
                        double tolerance) {
    comparison c[1 + DIRECTIONS] = {{0}};
    inputs in = make_inputs(t, 0, t->x, true);
    outcome out;
    aj_tensor *direction[MAX_INPUTS], *g[MAX_INPUTS];
    char what[80];
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    run_track(t->p, rank_id, t->comms, in.all, &out);
    c[0].got = product(out.n, out.roots, out.seeds, &c[0].magnitude);
    c[0].wanted = value->got;
    backward(t, &out);
    for (int i = 0; i < in.n_params; i++)
        g[i] = aj_grad(in.params[i]);
    for (int j = 0; j < DIRECTIONS; j++) {
        param_tensors(t, t->d[j], direction);
        c[1 + j].got = product(in.n_params, g, direction, &c[1 + j].magnitude);
        c[1 + j].wanted = gradient[j].got;
    }
    for (int k = 0; k <= DIRECTIONS; k++) {
        snprintf(what, sizeof what, "the %s, %s", k == 0 ? "objective" : "gradient along a direction", how);
        compare(t, what, c[k], tolerance);
    }
    release_inputs(&in);
    check_clean(ctx, how);
}

static void check_single(const subject *s, const comparison *value, const comparison *gradient) {
    static program single;
    single = *s->p;
    single.dtype = AJ_F32;
    subject t = *s;
    t.p = &single;
    t.track = &single.tracks[rank_id];
    check_again(&t, "in f32", value, gradient, 2e-5);
}

/* Where every operation is computed at once: the same but for the order in which gradients and entries are added. */
static void check_unfused(const subject *s, const comparison *value, const comparison *gradient) {
    aj_ctx *fused = ctx;
    subject t = *s;
    t.comms = unfused.comms;
    ctx = unfused.ctx;
    aj_scope *scope = aj_scope_begin(ctx);
    check_again(&t, "unfused", value, gradient, 1e-14);
    CHECK_INT(aj_scope_end(scope), AJ_OK);
    ctx = fused;
}

/* The adjoint and, of every third program, all the rest: recorded, in a scope that the caller ends. Of every fourth one the adjoint in f32, too. */
static void check_program(const subject *s) {
    comparison value = {0}, gradient[DIRECTIONS] = {{0}}, jvp = {0}, hessian = {0};
    bool second = s->p->seed % 3 == 0;
    inputs in = make_inputs(s, 0, s->x, true);
    outcome out;
    aj_tensor *direction[MAX_INPUTS], *g[MAX_INPUTS];
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    run_track(s->p, rank_id, s->comms, in.all, &out);
    value.got = product(out.n, out.roots, out.seeds, &value.magnitude);
    if (s->p->seed % 2)
        CHECK_INT(aj_record_stop(ctx), AJ_OK);
    if (second)
        check_recording(s, &in, &out, &jvp, &hessian);
    backward(s, &out);
    for (int i = 0; i < in.n_params; i++)
        g[i] = aj_grad(in.params[i]);
    for (int j = 0; j < DIRECTIONS; j++) {
        param_tensors(s, s->d[j], direction);
        gradient[j].got = product(in.n_params, g, direction, &gradient[j].magnitude);
        want_difference(&gradient[j], s, s->d[j], objective);
    }
    value.wanted = objective(s, 0, s->x, &value.magnitude);
    compare(s, "the recorded objective", value, 1e-13);
    for (int j = 0; j < DIRECTIONS; j++)
        compare(s, "the gradient along a direction", gradient[j], 2e-7);
    if (second) {
        jvp.wanted = gradient[0].got;
        jvp.magnitude += gradient[0].magnitude;
        compare(s, "the product with the Jacobian", jvp, 1e-12);
        want_difference(&hessian, s, s->d[0], gradient_along_v);
        compare(s, "the product with the Hessian", hessian, 2e-7);
    }
    release_inputs(&in);
    check_clean(ctx, "a program");
    if (s->p->seed % 4 == 0)
        check_single(s, &value, gradient);
    check_unfused(s, &value, gradient);
}

static void run_program(uint64_t seed, const teams *t, aj_comm **comms, bool print) {
    static program p;
    make_program(seed, t, rank_count, &p);
    if (print && rank_id == 0)
        print_program(&p);
    subject s = {.p = &p, .track = &p.tracks[rank_id], .comms = comms};
    draw_point(&s);
    watch(seed);
    aj_scope *scope = aj_scope_begin(ctx);
    aj_scope_name(scope, "program %llu on %d ranks", (unsigned long long)seed, rank_count);
    check_program(&s);
    CHECK_INT(aj_scope_end(scope), AJ_OK);
    watch_no_more();
}

static void open_unfused(const teams *t) {
    setenv("ADJOIN_FUSE", "0", 1);
    open_world();
    unsetenv("ADJOIN_FUSE");
    register_reductions(ctx);
    open_teams(t, world, unfused.comms);
    unfused.ctx = ctx;
    unfused.world = world;
}

/* Programs of one family share their communicators. */
static void run_family(int family) {
    const char *only = getenv("ADJOIN_TEST_SEED");
    uint64_t seed = only ? strtoull(only, NULL, 10) : (uint64_t)family * FAMILY;
    teams t;
    aj_comm *comms[N_COMMS];
    make_teams(seed / FAMILY, rank_count, &t);
    open_reductions();
    open_unfused(&t);
    open_world();
    register_reductions(ctx);
    open_teams(&t, world, comms);
    for (int i = 0; i < (only ? 1 : PROGRAMS); i++)
        run_program(seed + (uint64_t)i, &t, comms, only);
    close_teams(comms);
    close_world();
    ctx = unfused.ctx;
    world = unfused.world;
    close_teams(unfused.comms);
    close_world();
    close_reductions();
}

static void programs_1(void) {
    run_family(1);
}

static void programs_2(void) {
    run_family(2);
}

static void programs_3(void) {
    run_family(3);
}

static void programs_4(void) {
    run_family(4);
}

static void programs_5(void) {
    run_family(5);
}

RANK_MAIN({"programs_1", programs_1}, {"programs_2", programs_2}, {"programs_3", programs_3}, {"programs_4", programs_4},
          {"programs_5", programs_5})
