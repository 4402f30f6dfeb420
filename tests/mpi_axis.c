/*
 * The rows of mpi_rows.h, all along an axis: values, gradients and second derivatives, compared entry by entry. Beside them the dot product: <g, F(x)> =
 * <gx, x> summed over the ranks. Axes, roots, lengths (none on some ranks, none on all), memory layouts and the order of the ranks vary.
 */
#include "mpi_rows.h"

enum { INPUT_SEED = 11, GRADIENT_SEED = 23, TANGENT_SEED = 37 };

/* ---- the model: F and its transpose, on the arrays of all ranks ---- */

typedef struct arrays {
    double *of[MOST_RANKS];
} arrays;

static arrays arrays_new(const plan *p, extents (*shape)(const plan *, int)) {
    arrays a = {{NULL}};
    for (int k = 0; k < rank_count; k++) {
        extents e = shape(p, k);
        a.of[k] = calloc((size_t)entries(&e) + 1, sizeof(double));
    }
    return a;
}

static void arrays_free(arrays *a) {
    for (int k = 0; k < rank_count; k++)
        free(a->of[k]);
}

/* to += F(from), or with `transpose` to += F'(from). */
static void apply_model(const plan *p, bool transpose, const arrays *from, arrays *to) {
    source sources[MOST_RANKS];
    for (int r = 0; r < rank_count; r++) {
        extents out = p->row->output(p, r);
        for (int64_t i = 0; i < entries(&out); i++) {
            int64_t at[4];
            unflat(&out, i, at);
            int n = p->row->sources(p, r, at, sources);
            for (int k = 0; k < n; k++) {
                extents in = p->row->input(p, sources[k].rank);
                int64_t j = flat(&in, sources[k].at);
                if (transpose)
                    to->of[sources[k].rank][j] += from->of[r][i];
                else
                    to->of[r][i] += from->of[sources[k].rank][j];
            }
        }
    }
}

/* ---- inputs: in layouts that differ by rank and turn ---- */

static int layout_of(const plan *p, int rank) {
    extents e = p->row->input(p, rank);
    return layout_for(&e, p->turn + 2 * rank);
}

static aj_tensor *input_base(const plan *p, uint64_t seed, int rank) {
    extents e = p->row->input(p, rank);
    return base_of(p->dtype, &e, layout_of(p, rank), seed, rank);
}

static aj_tensor *input_arranged(const plan *p, aj_tensor *base, int rank) {
    extents e = p->row->input(p, rank);
    return arrange(base, &e, layout_of(p, rank));
}

/* The inputs of all ranks: worked out here, with local operations alone. */
static arrays all_inputs(const plan *p, uint64_t seed) {
    arrays x;
    for (int k = 0; k < rank_count; k++) {
        extents e = p->row->input(p, k);
        x.of[k] = values_of(input_arranged(p, input_base(p, seed, k), k), entries(&e));
    }
    return x;
}

static arrays all_numbers(const plan *p, uint64_t seed) {
    arrays g = arrays_new(p, p->row->output);
    for (int k = 0; k < rank_count; k++) {
        extents e = p->row->output(p, k);
        for (int64_t i = 0; i < entries(&e); i++)
            g.of[k][i] = number(seed, k, i);
    }
    return g;
}

static aj_tensor *run(const plan *p, aj_tensor *x) {
    return p->row->run(p, &x);
}

/* ---- first derivatives ---- */

static void check_shape(const plan *p, aj_tensor *t, const extents *e) {
    CHECK_INT(aj_tensor_dtype(t), p->dtype);
    CHECK_INT(aj_ndim(t), e->ndim);
    for (int i = 0; i < e->ndim && aj_ndim(t) == e->ndim; i++)
        CHECK_INT(aj_extent(t, i), e->n[i]);
}

static double dot(int64_t n, const double *a, const double *b, double *magnitude) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += a[i] * b[i];
        *magnitude += fabs(a[i] * b[i]);
    }
    return sum;
}

/* <g, y> against <gx, x>, summed over the ranks, of what the library made. */
static void check_identity(const plan *p, aj_tensor *g, aj_tensor *y, aj_tensor *leaf) {
    int64_t n = aj_numel(g), m = aj_numel(leaf);
    double *values[] = {values_of(g, n), values_of(y, n), values_of(aj_grad(leaf), m), values_of(leaf, m)}, sums[3] = {0};
    sums[0] = dot(n, values[0], values[1], &sums[2]);
    sums[1] = dot(m, values[2], values[3], &sums[2]);
    for (int i = 0; i < 4; i++)
        free(values[i]);
    world_sums(3, sums);
    CHECK_MSG(fabs(sums[0] - sums[1]) <= 1e-14 * sums[2], "%s: <g, F(x)> is %.17g, <gx, x> is %.17g", p->row->name, sums[0],
              sums[1]);
}

/* A seed that is not contiguous. */
static aj_tensor *seed_of(const plan *p, const extents *e, const double *g) {
    aj_tensor *t = tensor_of(ctx, p->dtype, e->ndim, e->n, g);
    return aj_slice(aj_pad(t, -1, 1, 2, 7), -1, 1, 1 + e->n[e->ndim - 1], 1);
}

/* inside: the layout is made in the recording, from a plain parameter; else the parameter itself has it. */
static void check_first(const plan *p, bool inside) {
    extents in = p->row->input(p, me), out = p->row->output(p, me);
    arrays x = all_inputs(p, INPUT_SEED), g = all_numbers(p, GRADIENT_SEED);
    arrays y = arrays_new(p, p->row->output), gx = arrays_new(p, p->row->input);
    apply_model(p, false, &x, &y);
    apply_model(p, true, &g, &gx);
    aj_tensor *seed = seed_of(p, &out, g.of[me]), *base = input_base(p, INPUT_SEED, me);
    aj_tensor *leaf = aj_param(inside ? base : input_arranged(p, base, me));
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    aj_tensor *got = run(p, inside ? input_arranged(p, leaf, me) : leaf);
    check_shape(p, got, &out);
    CHECK_INT(aj_backward(ctx, got, seed), AJ_OK);
    CHECK_VALUES(got, entries(&out), y.of[me], 0);
    CHECK_VALUES(seed, entries(&out), g.of[me], 0); /* nobody wrote into the seed */
    if (!inside) {
        CHECK_VALUES(aj_grad(leaf), entries(&in), gx.of[me], 0);
        CHECK_VALUES(leaf, entries(&in), x.of[me], 0); /* nor into the parameter */
    }
    check_identity(p, seed, got, leaf);
    check_clean(ctx, p->row->name);
    aj_release(&leaf);
    arrays_free(&x), arrays_free(&g), arrays_free(&y), arrays_free(&gx);
}

/* ---- second derivatives: L = sum over ranks of <w, y^3>, y = F(x): gradient F'(3 w y^2), Hessian times v: F'(6 w y F(v)) ---- */

typedef struct expectation {
    arrays tangent, gradient, product;
} expectation;

static expectation expect_second(const plan *p) {
    expectation e = {arrays_new(p, p->row->output), arrays_new(p, p->row->input), arrays_new(p, p->row->input)};
    arrays x = all_inputs(p, INPUT_SEED), v = all_inputs(p, TANGENT_SEED), w = all_numbers(p, GRADIENT_SEED);
    arrays y = arrays_new(p, p->row->output), first = arrays_new(p, p->row->output), second = arrays_new(p, p->row->output);
    apply_model(p, false, &x, &y);
    apply_model(p, false, &v, &e.tangent);
    for (int k = 0; k < rank_count; k++) {
        extents out = p->row->output(p, k);
        for (int64_t i = 0; i < entries(&out); i++) {
            first.of[k][i] = 3 * w.of[k][i] * y.of[k][i] * y.of[k][i];
            second.of[k][i] = 6 * w.of[k][i] * y.of[k][i] * e.tangent.of[k][i];
        }
    }
    apply_model(p, true, &first, &e.gradient);
    apply_model(p, true, &second, &e.product);
    arrays_free(&x), arrays_free(&v), arrays_free(&w), arrays_free(&y), arrays_free(&first), arrays_free(&second);
    return e;
}

static void check_second(const plan *p) {
    extents in = p->row->input(p, me), out = p->row->output(p, me);
    int64_t n = entries(&in);
    expectation wanted = expect_second(p);
    aj_tensor *leaf = aj_param(input_arranged(p, input_base(p, INPUT_SEED, me), me)), *g = NULL, *product = NULL, *moved = NULL;
    aj_tensor *v = input_arranged(p, input_base(p, TANGENT_SEED, me), me);
    CHECK_INT(aj_record_begin(ctx), AJ_OK);
    aj_tensor *y = run(p, leaf), *w = random_tensor(ctx, p->dtype, out.ndim, out.n, GRADIENT_SEED, me);
    aj_tensor *loss = aj_sum(aj_mul(w, aj_mul(aj_square(y), y)));
    CHECK_INT(aj_jvp(ctx, 1, &y, 1, &leaf, &v, &moved, 0), AJ_OK);
    CHECK_VALUES(moved, entries(&out), wanted.tangent.of[me], 1e-13);
    CHECK_INT(aj_grad_of(ctx, 1, &loss, NULL, 1, &leaf, &g, AJ_CREATE_GRAPH), AJ_OK);
    CHECK_VALUES(g, n, wanted.gradient.of[me], 1e-13);
    CHECK_INT(aj_grad_of(ctx, 1, &g, &v, 1, &leaf, &product, 0), AJ_OK);
    CHECK_VALUES(product, n, wanted.product.of[me], 1e-13);
    CHECK_INT(aj_jvp(ctx, 1, &g, 1, &leaf, &v, &product, 0), AJ_OK);
    CHECK_VALUES(product, n, wanted.product.of[me], 1e-13);
    CHECK_INT(aj_backward(ctx, aj_sum(aj_mul(g, v)), NULL), AJ_OK);
    CHECK_VALUES(aj_grad(leaf), n, wanted.product.of[me], 1e-13);
    check_clean(ctx, p->row->name);
    aj_release(&leaf);
    arrays_free(&wanted.tangent), arrays_free(&wanted.gradient), arrays_free(&wanted.product);
}

/* ---- all of it ---- */

/* Lengths of parts: equal, uneven with some zeros, all on one rank, all zero. */
enum { EQUAL, UNEVEN, ONE, NONE, N_KINDS };

static int64_t length_of(int kind, int rank) {
    switch (kind) {
    case EQUAL:
        return 2;
    case UNEVEN:
        return (3 * rank + 1) % 4;
    case ONE:
        return rank == rank_count / 2 ? 3 : 0;
    default:
        return 0;
    }
}

/* With equal axes the new lengths are the old ones in another order: ranks that had nothing get some. */
static void set_lengths(plan *p, int kind) {
    for (int k = 0; k < rank_count; k++) {
        p->lengths[k] = length_of(kind, k);
        p->numelem[k] = p->second == p->axis ? length_of(kind, (k + 1) % rank_count)
                                             : length_of((kind + p->turn) % N_KINDS, rank_count - 1 - k);
    }
}

static void with_plan(plan *p, void (*check)(plan *p)) {
    aj_scope *scope = aj_scope_begin(ctx);
    use(p->turn % 3 == 2);
    aj_scope_name(scope, "%s: %s, ndim %d, axis %d, second %d, root %d, turn %d", p->row->name, aj_dtype_name(p->dtype),
                  p->other.ndim, p->axis, p->second, p->root, p->turn);
    int failures = rank_failures;
    watch((uint64_t)p->turn);
    check(p);
    watch_no_more();
    if (rank_failures > failures)
        rank_append("      in %s: %s, ndim %d, axis %d, second %d, root %d, turn %d\n", p->row->name, aj_dtype_name(p->dtype),
                    p->other.ndim, p->axis, p->second, p->root, p->turn);
    CHECK_INT(aj_scope_end(scope), AJ_OK);
}

/* Every axis (of alltoall: every pair), root and kind of lengths, for the given numbers of axes. */
static void for_all_plans(const row *r, int from_ndim, int to_ndim, aj_dtype dtype, void (*check)(plan *p)) {
    static const extents other = {4, {2, 3, 1, 2}};
    plan p = {.row = r, .op = MPI_SUM, .dtype = dtype, .other = other};
    open_world();
    CHECK(rank_count <= MOST_RANKS);
    reversed = aj_comm_split(world, 7, -rank_id);
    for (p.other.ndim = from_ndim; p.other.ndim <= to_ndim; p.other.ndim++)
        for (p.axis = 0; p.axis < p.other.ndim; p.axis++)
            for (p.second = 0; p.second < (r->kind & TWO_AXES ? p.other.ndim : 1); p.second++)
                for (p.root = 0; p.root < (r->kind & ROOTED ? rank_count : 1); p.root++)
                    for (int kind = 0; kind < N_KINDS; kind++, p.turn++) {
                        if (r->kind & ROOTED && rank_count > 3 && (p.axis + p.root + kind) % 2) /* there are roots enough */
                            continue;
                        p.negative = (p.turn + p.turn / N_KINDS) % 2;
                        set_lengths(&p, kind);
                        with_plan(&p, check);
                    }
    aj_comm_destroy(&reversed);
    close_world();
}

/* Both precisions, layouts inside and outside of the recording. */
static void both_precisions(plan *p) {
    bool swap = p->turn / N_KINDS % 2;
    p->dtype = AJ_F64;
    check_first(p, swap);
    p->dtype = AJ_F32;
    check_first(p, !swap);
}

static void second_order(plan *p) {
    check_second(p);
}

#define DEFINE(name)                                                                                                             \
    static void first_##name(void) {                                                                                             \
        for_all_plans(&row_##name, 1, 4, AJ_F64, both_precisions);                                                               \
    }                                                                                                                            \
    static void second_##name(void) {                                                                                            \
        for_all_plans(&row_##name, 2, 2, AJ_F64, second_order);                                                                  \
    }
AXIS_ROWS(DEFINE)
#undef DEFINE

#define CASES(name) {#name, first_##name}, {#name "_second", second_##name},

RANK_MAIN(AXIS_ROWS(CASES))
