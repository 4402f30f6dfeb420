/*
 * Random programs, run lazily and eagerly: the numbers must be the same.
 *
 * A program is drawn from its seed and from shapes and dtypes alone, never from numbers, so that both runs make the same calls. What may differ is
 * when the numbers are read: in the lazy run at random moments, in random order, twice. In each kind of program the comparison is as sharp as its
 * rounding allows:
 *
 *   BITS    every elementwise operation, every dtype, NaN, inf and the ends of the integers. Nothing that is used again is a sum over more than one entry,
 *           gradients included (an active operand is never the one that broadcasts): bit for bit. Sums and their kin are outputs at once, compared with
 *           ROUNDING * epsilon * the sum of magnitudes.
 *   EXACT   operations that are exact on multiples of 1/4 that stay small, which is watched: bit for bit, with broadcasting and sums everywhere, in gradients too.
 *   CLOSE   smooth functions with slopes of the order of 1, means, softmax and their kin, all of f64: 1e-10 relative to the largest entry.
 *   FORMULA a few sums, products and factors of three operands: what the evaluator does in pairs. Bit for bit.
 *
 * The same programs run on another device (elsewhere.h), against the CPU: there BITS has only operations that every device rounds alike.
 *
 * NaN equals NaN. A failure prints the seed: LAZY_SEED=... LAZY_KIND=... runs that program alone.
 */
#include "elsewhere.h"
#include "serial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "numbers.h"

TestSuite(lazy);
TestSuite(elsewhere);

enum { MOST_ITEMS = 40, MOST_OUTPUTS = 400, MOST_ENTRIES = 20000 };
/* Reductions add at most 16 blocks one after the other, then in pairs: less than 16 + 16 roundings of a partial sum on each side. */
enum { ROUNDING = 64 };

typedef enum kind { BITS, EXACT, CLOSE, FORMULA } program_kind;

typedef struct item {
    aj_tensor *t;
    bool active, param;
    double fraction, magnitude; /* EXACT: bits behind and before the point, at most */
} item;

typedef struct output {
    int step; /* of the program, which made it */
    const char *what;
    aj_dtype dtype;
    int64_t n;
    void *data;
    double tolerance; /* absolute; 0: bit for bit */
} output;

typedef struct machine {
    aj_ctx *ctx;
    program_kind kind;
    bool lazy;
    aj_device home;          /* what is made lives there; NULL: on the host */
    bool portable;           /* only operations that all devices round alike */
    uint64_t draws, moments; /* states: of the program; of what only the lazy run does */
    aj_dtype dtype;          /* of what is active */
    int ndim;
    int64_t shape[AJ_MAX_NDIM];
    item items[MOST_ITEMS];
    int n, step, n_outputs;
    output outputs[MOST_OUTPUTS];
} machine;

static int draw(machine *m, int below) {
    return (int)draw_below(&m->draws, (uint64_t)below);
}

static bool moment(machine *m, int in) {
    return m->lazy && draw_below(&m->moments, (uint64_t)in) == 0;
}

static bool is_float(aj_tensor *t) {
    return aj_tensor_dtype(t) == AJ_F64 || aj_tensor_dtype(t) == AJ_F32;
}

static int shape_of(aj_tensor *t, int64_t *shape) {
    for (int i = 0; i < aj_ndim(t); i++)
        shape[i] = aj_extent(t, i);
    return aj_ndim(t);
}

/* ---- inputs ---- */

static double special(machine *m) {
    static const double numbers_of[] = {0, -0.0, 1, -1, NAN, INFINITY, -INFINITY, 1e-310, 1e300, -1e300, 0.5, -2};
    return numbers_of[draw(m, sizeof numbers_of / sizeof numbers_of[0])];
}

static double input_number(machine *m, bool with_specials) {
    if (m->kind == EXACT)
        return (draw(m, 17) - 8) / 4.0;
    if (with_specials && m->kind == BITS && draw(m, 8) == 0)
        return special(m);
    return (draw(m, 60001) - 30000) / 10000.0 * (m->kind == CLOSE ? 0.5 : 1);
}

static int64_t integer_number(machine *m, aj_dtype dtype) {
    static const int64_t ends[] = {INT64_MIN, INT64_MAX, INT32_MIN, INT32_MAX, 0, 255};
    int64_t x = draw(m, 10) == 0 ? ends[draw(m, 6)] : draw(m, 201) - 100;
    return dtype == AJ_I64 ? x : dtype == AJ_I32 ? (int64_t)(int32_t)x : (int64_t)(uint8_t)x;
}

static aj_tensor *place_at(machine *m, aj_tensor *t) {
    return m->home ? aj_to_device(t, m->home) : t;
}

static aj_tensor *fresh(machine *m, aj_dtype dtype, int ndim, const int64_t *shape) {
    int64_t n = count_of(ndim, shape);
    bool with_specials = draw(m, 3) == 0;
    union {
        double *f64;
        float *f32;
        int64_t *i64;
        int32_t *i32;
        uint8_t *u8;
        void *any;
    } data = {.any = malloc(8 * (size_t)n + 8)};
    for (int64_t i = 0; i < n; i++)
        if (dtype == AJ_F64)
            data.f64[i] = input_number(m, with_specials);
        else if (dtype == AJ_F32)
            data.f32[i] = (float)input_number(m, with_specials);
        else if (dtype == AJ_I64)
            data.i64[i] = integer_number(m, dtype);
        else if (dtype == AJ_I32)
            data.i32[i] = (int32_t)integer_number(m, dtype);
        else
            data.u8[i] = (uint8_t)integer_number(m, dtype);
    aj_tensor *t = aj_from_data(m->ctx, dtype, ndim, shape, data.any);
    free(data.any);
    return place_at(m, t);
}

static aj_tensor *constant(machine *m, aj_dtype dtype, int ndim, const int64_t *shape) {
    static const double exact[] = {0, 1, -1, 2, -0.5};
    bool floating = dtype == AJ_F64 || dtype == AJ_F32;
    int which = draw(m, 4);
    double value = !floating || m->kind != BITS ? exact[draw(m, floating ? 5 : dtype == AJ_U8 ? 2 : 4)] : special(m);
    aj_tensor *t = which == 0   ? aj_zeros(m->ctx, dtype, ndim, shape)
                   : which == 1 ? aj_ones(m->ctx, dtype, ndim, shape)
                                : aj_full(m->ctx, dtype, ndim, shape, value);
    return place_at(m, t);
}

/* A shape that broadcasts to this one: extents of 1, fewer axes. */
static int smaller(machine *m, int ndim, const int64_t *shape, int64_t *small) {
    int drop = draw(m, 3) == 0 ? draw(m, ndim + 1) : 0;
    for (int i = drop; i < ndim; i++)
        small[i - drop] = draw(m, 3) == 0 ? 1 : shape[i];
    return ndim - drop;
}

/* ---- items ---- */

static void add(machine *m, aj_tensor *t, bool active, double fraction, double magnitude) {
    cr_assert(t, "kind %d, step %d: %s", m->kind, m->step, aj_ctx_error(m->ctx));
    if (moment(m, 12))
        cr_assert(aj_eval(t) == AJ_OK);
    int at =
        m->n < MOST_ITEMS ? m->n++ : 2 + draw(m, MOST_ITEMS - 2); /* an item that is overwritten is released with its scope */
    m->items[at] = (item){.t = t, .active = active, .fraction = fraction, .magnitude = magnitude};
}

static item *any(machine *m) {
    return &m->items[draw(m, m->n)];
}

static item *any_of(machine *m, bool floating) {
    for (int tries = 0; tries < 20; tries++) {
        item *x = any(m);
        if (is_float(x->t) == floating)
            return x;
    }
    return &m->items[0];
}

/* One that is computed lately: programs that go on are deeper than wide. */
static item *any_float(machine *m) {
    if (draw(m, 2) == 0 && is_float(m->items[m->n - 1].t))
        return &m->items[m->n - 1];
    return any_of(m, true);
}

static bool fits_into(const item *small, aj_tensor *large) {
    int shift = aj_ndim(large) - aj_ndim(small->t);
    if (shift < 0)
        return false;
    for (int i = 0; i < aj_ndim(small->t); i++)
        if (aj_extent(small->t, i) != 1 && aj_extent(small->t, i) != aj_extent(large, i + shift))
            return false;
    return true;
}

/* An item of this dtype that broadcasts to x (in programs of BITS an active one has its very shape), or a new constant. */
static item partner_of(machine *m, const item *x, aj_dtype dtype, bool more_axes) {
    for (int tries = 0; tries < 6; tries++) {
        item *y = any(m);
        bool same_shape = aj_ndim(y->t) == aj_ndim(x->t) && fits_into(x, y->t);
        if (aj_tensor_dtype(y->t) == dtype && fits_into(y, x->t) && (m->kind != BITS || !y->active || same_shape))
            return *y;
    }
    int64_t shape[AJ_MAX_NDIM], small[AJ_MAX_NDIM];
    int ndim = shape_of(x->t, shape);
    ndim = smaller(m, ndim, shape, small);
    if (more_axes && ndim < 6) { /* the result has more axes, and as many entries */
        memmove(small + 1, small, (size_t)ndim++ * sizeof *small);
        small[0] = 1;
    }
    bool folds = draw(m, 2);
    return (item){.t = folds ? constant(m, dtype, ndim, small) : fresh(m, dtype, ndim, small), .fraction = 2, .magnitude = 1};
}

static item partner(machine *m, const item *x, aj_dtype dtype) {
    return partner_of(m, x, dtype, false);
}

/* EXACT: is there room for a result of so many bits? */
static bool has_room(const machine *m, double fraction, double magnitude) {
    return m->kind != EXACT || fraction + magnitude <= (m->dtype == AJ_F32 ? 12 : 26);
}

/* ---- outputs ---- */

static output *emit(machine *m, const char *what, aj_tensor *t, double tolerance) {
    cr_assert(t, "kind %d, step %d: %s: %s", m->kind, m->step, what, aj_ctx_error(m->ctx));
    cr_assert(m->n_outputs < MOST_OUTPUTS);
    output *o = &m->outputs[m->n_outputs++];
    int64_t n = aj_numel(t);
    size_t bytes = (size_t)n * aj_dtype_size(aj_tensor_dtype(t));
    *o = (output){m->step, what, aj_tensor_dtype(t), n, malloc(bytes + 1), tolerance};
    cr_assert(aj_read(t, o->data, bytes) == AJ_OK, "step %d: %s: %s", m->step, what, aj_ctx_error(m->ctx));
    if (moment(m, 3)) { /* the same bits again */
        void *again = malloc(bytes + 1);
        cr_assert(aj_read(t, again, bytes) == AJ_OK && memcmp(again, o->data, bytes) == 0, "step %d: %s: read twice", m->step,
                  what);
        free(again);
    }
    return o;
}

static double largest(const output *o) {
    double most = 0;
    for (int64_t i = 0; i < o->n; i++) {
        double x = o->dtype == AJ_F64 ? ((double *)o->data)[i] : o->dtype == AJ_F32 ? ((float *)o->data)[i] : 0;
        most = fabs(x) > most ? fabs(x) : most; /* not NaN */
    }
    return most;
}

static void emit_result(machine *m, const char *what, aj_tensor *t) {
    output *o = emit(m, what, t, 0);
    if (m->kind == CLOSE)
        o->tolerance = 1e-10 * fmax(1, largest(o));
}

/* ---- steps ---- */

typedef aj_tensor *unary_call(aj_tensor *x);
typedef aj_tensor *binary_call(aj_tensor *a, aj_tensor *b);

static unary_call *const unaries[] = {aj_neg,   aj_abs,  aj_square, aj_relu,    aj_sign,     aj_sqrt,  aj_reciprocal,
                                      aj_floor, aj_ceil, aj_round,  aj_rsqrt,   aj_exp,      aj_expm1, aj_log,
                                      aj_log1p, aj_sin,  aj_cos,    aj_tan,     aj_asin,     aj_acos,  aj_atan,
                                      aj_sinh,  aj_cosh, aj_tanh,   aj_sigmoid, aj_softplus, aj_erf};
enum { N_UNARIES = sizeof unaries / sizeof unaries[0], FOR_INTEGERS = 5, PORTABLE = 10, PORTABLE_BINARIES = 6 };
static unary_call *const smooth[] = {aj_tanh, aj_sin, aj_cos, aj_sigmoid, aj_atan, aj_erf, aj_softplus, aj_neg};
static unary_call *const piecewise[] = {aj_neg, aj_abs, aj_relu, aj_sign};
static binary_call *const binaries[] = {aj_add, aj_sub, aj_mul, aj_minimum, aj_maximum, aj_div, aj_pow, aj_atan2};
static binary_call *const comparisons[] = {aj_eq, aj_ne, aj_lt, aj_le, aj_gt, aj_ge};

static void step_unary(machine *m) {
    item x = m->kind == BITS && draw(m, 5) == 0 ? *any_of(m, false) : *any_float(m);
    if (m->kind == CLOSE)
        add(m, smooth[draw(m, 8)](x.t), x.active, 0, 0);
    else if (m->kind == EXACT && draw(m, 4) == 0 && has_room(m, 2 * x.fraction, 2 * x.magnitude))
        add(m, aj_square(x.t), x.active, 2 * x.fraction, 2 * x.magnitude);
    else if (m->kind == EXACT)
        add(m, piecewise[draw(m, 4)](x.t), x.active, x.fraction, x.magnitude);
    else
        add(m, unaries[draw(m, !is_float(x.t) ? FOR_INTEGERS : m->portable ? PORTABLE : N_UNARIES)](x.t), x.active, 0, 0);
}

static void step_scalar(machine *m) {
    item x = *any_float(m);
    static const double factors[] = {2, -1, 1, 0.5, -2, 0};
    double factor = factors[draw(m, 6)];
    int which = draw(m, 4);
    if (which == 0 && has_room(m, x.fraction + 1, x.magnitude + 1))
        add(m, aj_scale(x.t, factor), x.active, x.fraction + 1, x.magnitude + 1);
    else if (which == 1 && has_room(m, x.fraction + 1, x.magnitude + 2))
        add(m, aj_add_scalar(x.t, factor), x.active, fmax(x.fraction, 1), fmax(x.magnitude, 1) + 1);
    else if (which == 2 && m->kind == BITS && !m->portable)
        add(m, aj_pow_scalar(x.t, factor), x.active, 0, 0);
    else if (m->kind != CLOSE)
        add(m, aj_clamp(x.t, -1.5, draw(m, 4) == 0 && m->kind == BITS ? INFINITY : 2), x.active, x.fraction,
            fmin(x.magnitude, 1));
}

static void step_binary(machine *m) {
    item x = m->kind == BITS && draw(m, 5) == 0 ? *any_of(m, false) : *any_float(m);
    item y = partner_of(m, &x, aj_tensor_dtype(x.t), draw(m, 4) == 0);
    if (draw(m, 2)) {
        item swap = x;
        x = y;
        y = swap;
    }
    bool active = x.active || y.active;
    double fraction = fmax(x.fraction, y.fraction), magnitude = fmax(x.magnitude, y.magnitude);
    int which = draw(m, m->kind == EXACT ? 5 : m->kind == CLOSE ? 3 : !is_float(x.t) ? 5 : m->portable ? PORTABLE_BINARIES : 8);
    if (which < 2 && !has_room(m, fraction, magnitude + 1))
        which = 3;
    if (which == 2 && !has_room(m, x.fraction + y.fraction, x.magnitude + y.magnitude))
        which = 4;
    aj_tensor *z = binaries[which](x.t, y.t);
    if (m->kind == CLOSE)
        z = aj_scale(z, 0.5);
    if (which < 2)
        magnitude++;
    if (which == 2) {
        fraction = x.fraction + y.fraction;
        magnitude = x.magnitude + y.magnitude;
    }
    add(m, z, active, fraction, magnitude);
}

static void step_where(machine *m) {
    item x = *any_float(m), a = m->kind == BITS && draw(m, 4) == 0 ? *any_of(m, false) : *any_float(m);
    item y = partner(m, &x, aj_tensor_dtype(x.t)), b = partner(m, &a, aj_tensor_dtype(a.t));
    if (m->kind == CLOSE) { /* not on computed numbers: they differ by a rounding, and the choice with them */
        int64_t shape[AJ_MAX_NDIM];
        int ndim = shape_of(a.t, shape);
        add(m, aj_where(fresh(m, AJ_U8, ndim, shape), a.t, b.t), a.active || b.active, 0, 0);
        return;
    }
    item cond = {.t = comparisons[draw(m, 6)](x.t, y.t), .magnitude = 1};
    if (m->kind == BITS)
        add(m, cond.t, false, 0, 1);
    bool swap = draw(m, 2);
    if (!fits_into(&cond, a.t))
        cond = partner(m, &a, AJ_U8);
    add(m, aj_where(cond.t, swap ? b.t : a.t, swap ? a.t : b.t), a.active || b.active, fmax(a.fraction, b.fraction),
        fmax(a.magnitude, b.magnitude));
}

static void step_cast(machine *m) {
    item *x = any(m);
    aj_dtype to = (aj_dtype)draw(m, 5);
    if (m->kind == BITS)
        add(m, aj_cast(x->t, to), x->active && to <= AJ_F32 && is_float(x->t), 0, 0);
}

static void step_input(machine *m) {
    int64_t small[AJ_MAX_NDIM];
    int ndim = smaller(m, m->ndim, m->shape, small);
    aj_dtype dtype = m->kind == BITS ? (aj_dtype)draw(m, 5) : m->dtype;
    bool folds = draw(m, 2);
    add(m, folds ? constant(m, dtype, ndim, small) : fresh(m, dtype, ndim, small), false, 2, 1);
}

/* Any box, or all but a rim as wide as ghosts are. */
static aj_tensor *window_of(machine *m, aj_tensor *t) {
    int64_t lo[AJ_MAX_NDIM], hi[AJ_MAX_NDIM];
    bool rim = draw(m, 2);
    for (int i = 0; i < aj_ndim(t); i++) {
        int n = (int)aj_extent(t, i);
        lo[i] = rim ? (n > 4 ? draw(m, 3) : 0) : draw(m, n + 1);
        hi[i] = rim ? (n > 4 ? n - draw(m, 3) : n) : lo[i] + draw(m, n - (int)lo[i] + 1);
    }
    return aj_window(t, lo, hi);
}

/* Neighbours summed up: the gradient is a sum of boxes, each elsewhere. */
static void step_stencil(machine *m) {
    item x = *any_float(m);
    int ndim = aj_ndim(x.t), axes[2] = {ndim > 0 ? draw(m, ndim) : 0, ndim > 0 ? draw(m, ndim) : 0}, terms = 2 + draw(m, 4);
    if (ndim == 0 || aj_extent(x.t, axes[0]) < 3 || aj_extent(x.t, axes[1]) < 3 || !has_room(m, x.fraction + 1, x.magnitude + 4))
        return;
    aj_tensor *sum = NULL, *all = draw(m, 3) ? x.t : aj_scale(x.t, 2);
    for (int k = 0; k < terms; k++) {
        int64_t lo[AJ_MAX_NDIM] = {0}, hi[AJ_MAX_NDIM];
        shape_of(x.t, hi);
        for (int i = 0; i < 2; i++) {
            lo[axes[i]] = draw(m, 3);
            hi[axes[i]] = aj_extent(x.t, axes[i]) - 2 + lo[axes[i]];
        }
        aj_tensor *term = aj_window(all, lo, hi);
        if (draw(m, 2))
            term = draw(m, 2) ? aj_neg(term) : aj_scale(term, 0.5);
        sum = !sum ? term : draw(m, 3) ? aj_add(sum, term) : aj_sub(sum, term);
    }
    if (m->kind == CLOSE)
        sum = aj_scale(sum, 0.15);
    add(m, sum, x.active, x.fraction + 1, x.magnitude + 4);
    int64_t inner[AJ_MAX_NDIM] = {0};
    inner[axes[0]] = inner[axes[1]] = 1;
    if (draw(m, 2))
        add(m, aj_set_window(x.t, inner, sum), x.active, x.fraction + 1, x.magnitude + 4);
}

static aj_tensor *slice_of(machine *m, aj_tensor *t, int axis) {
    static const int64_t steps[] = {1, 1, 2, 3, -1, -2};
    int64_t n = aj_extent(t, axis), step = steps[draw(m, 6)];
    int64_t a = draw(m, (int)n + 1), b = a + draw(m, (int)(n - a) + 1);
    return step > 0 ? aj_slice(t, axis, a, b, step) : aj_slice(t, axis, b - 1, a == 0 ? INT64_MIN : a - 1, step);
}

static void step_view(machine *m) {
    item x = draw(m, 2) ? *any_float(m) : *any(m);
    aj_tensor *y = x.t;
    int ndim = aj_ndim(x.t), axis = ndim > 0 ? draw(m, ndim) : 0;
    int64_t shape[AJ_MAX_NDIM + 1] = {0};
    switch (ndim == 0 ? 8 + draw(m, 2) : draw(m, 10)) {
    case 0:
        y = aj_flip(y, axis);
        break;
    case 1:
    case 2:
        y = slice_of(m, y, axis);
        break;
    case 3:
    case 4:
        y = window_of(m, y);
        break;
    case 5:
        y = aj_transpose(y, 0, axis);
        break;
    case 6:
        y = aj_reshape(y, 1, (int64_t[]){aj_numel(y)});
        break;
    case 7:
        y = aj_roll(y, axis, draw(m, 7) - 3);
        break;
    case 8:
        if (ndim < 5)
            y = aj_unsqueeze(y, draw(m, ndim + 1));
        break;
    default:
        if (ndim < 5 && (m->kind != BITS || !x.active) && aj_numel(y) < MOST_ENTRIES / 3) {
            shape[0] = 1 + draw(m, 3);
            shape_of(y, shape + 1);
            y = aj_broadcast_to(y, ndim + 1, shape);
        }
    }
    if (y != x.t)
        add(m, y, x.active, x.fraction, x.magnitude);
}

static void step_join(machine *m) {
    item x = *any(m);
    int ndim = aj_ndim(x.t), axis = ndim > 0 ? draw(m, ndim) : 0;
    if (ndim == 0 || ndim > 5 || aj_numel(x.t) > MOST_ENTRIES / 3)
        return;
    item y = partner(m, &x, aj_tensor_dtype(x.t));
    int64_t shape[AJ_MAX_NDIM], lo[AJ_MAX_NDIM];
    shape_of(x.t, shape);
    aj_tensor *like = m->kind == BITS && y.active ? y.t : aj_broadcast_to(y.t, ndim, shape), *z;
    aj_tensor *part = window_of(m, like);
    bool active = x.active || y.active;
    int64_t start = draw(m, 3), step = 1 + draw(m, 2);
    switch (draw(m, 6)) {
    case 0:
        z = aj_concat(3, (aj_tensor *[]){x.t, like, slice_of(m, x.t, axis)}, axis);
        break;
    case 1:
        z = aj_stack(2, (aj_tensor *[]){like, x.t}, draw(m, ndim + 1));
        break;
    case 2:
        z = aj_pad(x.t, axis, draw(m, 3), draw(m, 3), 1);
        active = x.active;
        break;
    case 3:
        z = aj_set_slice(x.t, axis, start, INT64_MAX, step, aj_slice(like, axis, start, INT64_MAX, step));
        break;
    default:
        for (int i = 0; i < ndim; i++)
            lo[i] = draw(m, (int)(aj_extent(x.t, i) - aj_extent(part, i)) + 1);
        z = draw(m, 2) ? aj_set_window(x.t, lo, part) : aj_set_window_inplace(aj_scale(x.t, 1), lo, part);
    }
    add(m, z, active, fmax(x.fraction, y.fraction), fmax(x.magnitude, y.magnitude));
}

/* ---- reductions ---- */

typedef aj_tensor *reduce_call(aj_tensor *x, int n, const int *axes, bool keepdims);

static int draw_axes(machine *m, aj_tensor *x, int *axes, double *entries) {
    int n = 0;
    *entries = 1;
    for (int i = 0; i < aj_ndim(x); i++)
        if (draw(m, 2)) {
            *entries *= (double)aj_extent(x, i);
            axes[n++] = i - (draw(m, 2) ? aj_ndim(x) : 0);
        }
    return n;
}

/* Sums of BITS are outputs at once. */
static void emit_sums(machine *m, aj_tensor *x, int n, const int *axes, bool keepdims) {
    double eps = machine_epsilon(aj_tensor_dtype(x));
    if (!is_float(x)) { /* these wrap, in any order */
        emit(m, "sum", aj_sum_axes(x, n, axes, keepdims), 0);
        emit(m, "prod", aj_prod_axes(x, n, axes, keepdims), 0);
        return;
    }
    x = aj_clamp(x, -100, 100);
    output *magnitudes = emit(m, "magnitudes", aj_sum_axes(aj_abs(x), n, axes, keepdims), 0);
    double most = magnitudes->tolerance = ROUNDING * eps * largest(magnitudes);
    aj_tensor *near_one =
        aj_add_scalar(aj_scale(aj_tanh(x), 0.01), 1); /* so that products stay of the order of e^(entries/100) at most */
    emit(m, "sum", aj_sum_axes(x, n, axes, keepdims), most);
    emit(m, "mean", aj_mean_axes(x, n, axes, keepdims), most);
    emit(m, "norm", aj_norm_axes(x, n, axes, keepdims), most);
    output *product = emit(m, "prod", aj_prod_axes(near_one, n, axes, keepdims), 0);
    product->tolerance = 2 * eps * (double)(aj_numel(x) + 1) * largest(product);
    if (aj_ndim(x) > 0) {
        int axis = draw(m, aj_ndim(x));
        emit(m, "softmax", aj_softmax(x, axis), 8 * ROUNDING * eps);
        emit(m, "logsumexp", aj_logsumexp(x, axis), 200 * ROUNDING * eps);
    }
}

static void step_reduce(machine *m) {
    item x = m->kind == BITS && draw(m, 3) == 0 ? *any(m) : *any_float(m);
    if (aj_numel(x.t) == 0 && draw(m, 2))
        return;
    int axes[AJ_MAX_NDIM];
    double entries;
    int n = draw_axes(m, x.t, axes, &entries);
    bool keepdims = draw(m, 2), extremum = draw(m, 3) == 0;
    double more = entries > 1 ? ceil(log2(entries)) : 0;
    if (m->kind == BITS && m->n_outputs > MOST_OUTPUTS / 2)
        return;
    if (m->kind == BITS && !extremum) {
        emit_sums(m, x.t, n, axes, keepdims);
    } else if (m->kind == CLOSE) {
        reduce_call *const calls[] = {aj_mean_axes, aj_norm_axes, aj_prod_axes};
        int which = draw(m, 5), ndim = aj_ndim(x.t);
        if (entries == 0 || (which >= 3 && ndim == 0))
            return;
        aj_tensor *y = aj_add_scalar(aj_scale(aj_tanh(x.t), 0.01), 1); /* away from where the norm has no derivative */
        int axis = ndim > 0 ? draw(m, ndim) : 0;
        y = which == 3   ? aj_softmax(x.t, axis)
            : which == 4 ? aj_tanh(aj_logsumexp(x.t, axis))
                         : calls[which](y, n, axes, keepdims);
        add(m, which == 0 || which == 3 ? y : aj_tanh(y), x.active, 0, 0);
    } else if (!extremum && has_room(m, x.fraction, x.magnitude + more)) {
        add(m, aj_sum_axes(x.t, n, axes, keepdims), x.active, x.fraction, x.magnitude + more);
    } else if (entries > 0 && (m->kind != BITS || !x.active)) {
        aj_tensor *y = draw(m, 2) ? aj_max_axes(x.t, n, axes, keepdims) : aj_min_axes(x.t, n, axes, keepdims);
        add(m, is_float(y) ? aj_add_scalar(y, 0) : y, x.active, x.fraction, x.magnitude); /* of 0 and -0 either may come: 0 */
        if (aj_ndim(x.t) > 0 && aj_numel(x.t) > 0)
            emit(m, "argmax", draw(m, 2) ? aj_argmax(x.t, draw(m, aj_ndim(x.t))) : aj_argmin(x.t, draw(m, aj_ndim(x.t))), 0);
    }
}

/* Long, with values that are read again: longer than any one program of the evaluator. */
static void step_chain(machine *m) {
    item x = *any_float(m), y = partner(m, &x, aj_tensor_dtype(x.t));
    if (!is_float(x.t) || aj_numel(x.t) > 2000)
        return;
    aj_tensor *v = NULL, *early = x.t;
    bool active = x.active || y.active;
    aj_assign(&v, m->kind == EXACT ? aj_clamp(x.t, -1, 1) : aj_scale(x.t, 1));
    for (int i = 0; i < 70; i++) {
        if (m->kind == EXACT)
            aj_assign(&v, aj_clamp(aj_add(aj_sub(y.t, v), aj_relu(v)), -1, 1));
        else /* x x + x */
            aj_assign(&v, aj_scale(aj_add(aj_mul(v, v), i % 20 == 7 ? aj_mul(v, y.t) : v), 0.4));
        if (i == 33)
            early = aj_abs(v);
    }
    add(m, early, active, x.fraction, 1);
    add(m, aj_scale(v, 1), active, fmax(x.fraction, y.fraction), 1);
    aj_release(&v);
}

/* ---- handles ---- */

static void step(machine *m);

/* Operands in a scope that ends while their values are pending. */
static void step_scope(machine *m) {
    if (m->n >= MOST_ITEMS - 8)
        return;
    aj_scope *scope = aj_scope_begin(m->ctx);
    int before = m->n;
    for (int k = 0; k < 4; k++)
        step(m);
    if (m->n == before) {
        cr_assert(aj_scope_end(scope) == AJ_OK);
        return;
    }
    item last = m->items[m->n - 1];
    aj_scope_return(scope, last.t);
    cr_assert(aj_scope_end(scope) == AJ_OK, "%s", aj_ctx_error(m->ctx));
    m->n = before;
    m->items[m->n++] = last;
}

static void step_release(machine *m) {
    int at = draw(m, m->n);
    if (m->n < 6 || m->items[at].param)
        return;
    if (draw(m, 2)) { /* its users are on their own */
        aj_release(&m->items[at].t);
        m->items[at] = m->items[--m->n];
    } else {
        aj_tensor *kept = aj_keep(m->items[at].t);
        aj_tensor *more = aj_scale(kept, 1);
        aj_release(&kept);
        m->items[at].t = more;
    }
}

static void step(machine *m) {
    typedef void a_step(machine * m);
    static a_step *const often[] = {step_unary,  step_unary,  step_unary,  step_scalar, step_scalar, step_binary,
                                    step_binary, step_binary, step_where,  step_cast,   step_input,  step_view,
                                    step_view,   step_join,   step_reduce, step_stencil};
    m->step++;
    if (m->n < MOST_ITEMS)
        often[draw(m, sizeof often / sizeof often[0])](m);
}

static void steps(machine *m, int n) {
    for (int k = 0; k < n; k++) {
        switch (draw(m, 12)) {
        case 0:
            step_scope(m);
            break;
        case 1:
            step_release(m);
            break;
        case 2:
            if (draw(m, 4) == 0)
                step_chain(m);
            break;
        default:
            step(m);
        }
    }
}

/* ---- derivatives ---- */

static aj_tensor *seed_like(machine *m, aj_tensor *t) {
    int64_t shape[AJ_MAX_NDIM];
    int ndim = shape_of(t, shape);
    return fresh(m, aj_tensor_dtype(t), ndim, shape);
}

/* Gradients are values like others: what comes next uses them, while they are pending. (EXACT does not know how many bits they have.) */
static void use_gradients(machine *m, aj_tensor **g) {
    for (int k = 0; k < 2; k++)
        add(m, g[k], false, 20, 20);
    for (int k = 0; k < 6; k++)
        step(m);
}

static void second_derivative(machine *m, aj_tensor *root, aj_tensor *seed, aj_tensor **p) {
    aj_tensor *g[2], *h[2];
    cr_assert(aj_grad_of(m->ctx, 1, &root, &seed, 2, p, g, AJ_CREATE_GRAPH) == AJ_OK, "%s", aj_ctx_error(m->ctx));
    for (int k = 0; k < 2; k++)
        emit_result(m, "gradient with a graph", g[k]);
    aj_tensor *again = aj_mul(g[0], seed_like(m, g[0])), *w = seed_like(m, again);
    cr_assert(aj_grad_of(m->ctx, 1, &again, &w, 2, p, h, draw(m, 2) ? AJ_CREATE_GRAPH : 0) == AJ_OK, "%s", aj_ctx_error(m->ctx));
    for (int k = 0; k < 2; k++)
        emit_result(m, "second derivative", h[k]);
    cr_assert(aj_backward(m->ctx, again, w) == AJ_OK, "%s", aj_ctx_error(m->ctx));
}

static void differentiate(machine *m, aj_tensor *root, aj_tensor **p) {
    aj_tensor *seed = seed_like(m, root), *g[2], *t[2] = {seed_like(m, p[0]), draw(m, 2) ? seed_like(m, p[1]) : NULL}, *r;
    switch (draw(m, 5)) {
    case 0:
        cr_assert(aj_backward(m->ctx, root, seed) == AJ_OK, "%s", aj_ctx_error(m->ctx));
        break;
    case 1:
        for (int k = 0; k < 2; k++)
            cr_assert(aj_backward_many(m->ctx, 1, &root, &seed, AJ_RETAIN_GRAPH) == AJ_OK, "%s", aj_ctx_error(m->ctx));
        cr_assert(aj_backward(m->ctx, root, NULL) == AJ_OK);
        break;
    case 2:
        second_derivative(m, root, seed, p);
        break;
    case 3:
        cr_assert(aj_jvp(m->ctx, 1, &root, 2, p, t, &r, 0) == AJ_OK, "%s", aj_ctx_error(m->ctx));
        emit_result(m, "jvp", r);
        cr_assert(aj_backward(m->ctx, root, seed) == AJ_OK);
        break;
    default:
        cr_assert(aj_record_stop(m->ctx) == AJ_OK);
        cr_assert(aj_grad_of(m->ctx, 1, &root, &seed, 2, p, g, 0) == AJ_OK, "%s", aj_ctx_error(m->ctx));
        use_gradients(m, g);
        for (int k = 0; k < 2; k++)
            emit_result(m, "grad_of", g[k]);
        cr_assert(aj_backward(m->ctx, root, NULL) == AJ_OK);
    }
    for (int k = 0; k < 2; k++)
        g[k] = aj_grad(p[k]);
    use_gradients(m, g);
    for (int k = 0; k < 2; k++)
        emit_result(m, "gradient", g[k]);
}

/* ---- a program ---- */

/* Some are so little that every operation on them is computed at once, on the CPU. */
static const int64_t shapes[][5] = {/* ndim, extents */
                                    {0},           {1, 1},          {1, 3},           {1, 7},       {1, 63},        {1, 64},
                                    {1, 65},       {1, 255},        {1, 256},         {1, 257},     {1, 513},       {2, 3, 7},
                                    {2, 7, 1},     {2, 90, 1},      {2, 1, 90},       {2, 9, 64},   {2, 4, 65},     {2, 2, 257},
                                    {2, 3, 513},   {2, 40, 3},      {2, 2, 63},       {2, 3, 255},  {2, 2, 256},    {2, 100, 7},
                                    {3, 3, 1, 7},  {3, 40, 1, 7},   {3, 2, 3, 65},    {3, 4, 5, 2}, {3, 2, 1, 64},  {3, 13, 2, 9},
                                    {3, 3, 16, 3}, {4, 2, 3, 4, 5}, {4, 3, 1, 7, 63}, {2, 30, 100}, {3, 3, 20, 70}, {2, 7, 600},
                                    {1, 0},        {2, 3, 0},       {3, 0, 2, 65}};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

static void read_all(machine *m) {
    int first = m->n_outputs;
    bool backwards = moment(m, 2);
    m->n_outputs += m->n;
    cr_assert(m->n_outputs <= MOST_OUTPUTS);
    for (int k = 0; k < m->n; k++) { /* each has its place, in whatever order it is read */
        int i = backwards ? m->n - 1 - k : k, end = m->n_outputs;
        m->n_outputs = first + i;
        emit_result(m, "value", m->items[i].t);
        m->n_outputs = end;
    }
}

static void run(machine *m) {
    aj_scope *scope = aj_scope_begin(m->ctx);
    const int64_t *s = shapes[draw(m, N_SHAPES)];
    m->ndim = (int)s[0];
    memcpy(m->shape, s + 1, 4 * sizeof *s);
    m->dtype = m->kind != CLOSE && draw(m, 3) == 0 ? AJ_F32 : AJ_F64;
    int differentiated = draw(m, 4);
    aj_tensor *p[2] = {NULL, NULL};
    for (int k = 0; k < 2; k++)
        p[k] = aj_param(fresh(m, m->dtype, m->ndim, m->shape));
    if (differentiated)
        cr_assert(aj_record_begin(m->ctx) == AJ_OK);
    for (int k = 0; k < 2; k++)
        m->items[m->n++] = (item){.t = p[k], .active = differentiated, .param = true, .fraction = 2, .magnitude = 1};
    steps(m, 30);
    if (differentiated) {
        item *root = &m->items[0];
        for (int k = 0; k < m->n; k++)
            if (m->items[k].active)
                root = &m->items[k];
        if (moment(m, 2))
            cr_assert(aj_eval(root->t) == AJ_OK);
        differentiate(m, root->t, p);
    }
    read_all(m);
    for (int k = 0; k < 2; k++)
        aj_release(&p[k]);
    cr_assert(aj_scope_end(scope) == AJ_OK, "%s", aj_ctx_error(m->ctx));
    cr_assert(aj_ctx_stat(m->ctx, AJ_STAT_LIVE_BYTES) == 0, "%lld bytes are alive after the scope",
              (long long)aj_ctx_stat(m->ctx, AJ_STAT_LIVE_BYTES));
    cr_assert(aj_ctx_stat(m->ctx, AJ_STAT_STORAGES) == 0 && aj_ctx_stat(m->ctx, AJ_STAT_NODES) == 0);
}

/* Some steps are read once, some more often, some by nobody. */
static void run_formula(machine *m) {
    enum { STEPS = 8 };
    aj_tensor *t[3 + STEPS];
    aj_scope *scope = aj_scope_begin(m->ctx);
    aj_dtype dtype = (aj_dtype)draw(m, 7) % 5; /* floats more often */
    for (int k = 0; k < 3; k++)
        t[k] = fresh(m, dtype, 1, (int64_t[]){70});
    for (int k = 3; k < 3 + STEPS; k++) {
        aj_tensor *x = t[draw(m, 2) ? k - 1 : draw(m, k)], *y = draw(m, 6) == 0 ? x : t[draw(m, k)];
        static binary_call *const arithmetic[] = {aj_add, aj_sub, aj_mul};
        int which = draw(m, 8);
        double number = dtype == AJ_U8 ? 3 : draw(m, 2) ? -2 : 3;
        t[k] = which < 4   ? arithmetic[which % 3](x, y)
               : which < 5 ? aj_square(x)
               : which < 6 ? aj_neg(x)
               : which < 7 ? aj_scale(x, number)
                           : aj_add_scalar(x, number);
    }
    m->step = STEPS;
    int also = draw(m, STEPS);
    emit(m, "formula", t[2 + STEPS], 0);
    emit(m, "its part", t[3 + also], 0);
    cr_assert(aj_scope_end(scope) == AJ_OK, "%s", aj_ctx_error(m->ctx));
}

/* ---- both ways ---- */

static bool same_bits(const output *a, const output *b, int64_t i, double *x, double *y) {
    size_t size = aj_dtype_size(a->dtype);
    const char *at = (const char *)a->data + (size_t)i * size, *bt = (const char *)b->data + (size_t)i * size;
    if (a->dtype == AJ_F64) {
        memcpy(x, at, 8);
        memcpy(y, bt, 8);
    } else if (a->dtype == AJ_F32) {
        float f[2];
        memcpy(&f[0], at, 4);
        memcpy(&f[1], bt, 4);
        *x = f[0];
        *y = f[1];
    } else {
        int64_t n[2] = {0, 0};
        memcpy(&n[0], at, size);
        memcpy(&n[1], bt, size);
        *x = (double)n[0];
        *y = (double)n[1];
        return n[0] == n[1];
    }
    return memcmp(at, bt, size) == 0 || (isnan(*x) && isnan(*y));
}

static void compare(uint64_t seed, const machine *a, const machine *b) {
    cr_assert(a->n_outputs == b->n_outputs, "seed %llu: %d and %d outputs", (unsigned long long)seed, a->n_outputs, b->n_outputs);
    for (int k = 0; k < a->n_outputs; k++) {
        const output *o = &a->outputs[k], *w = &b->outputs[k];
        cr_assert(o->dtype == w->dtype && o->n == w->n && o->step == w->step, "seed %llu, output %d", (unsigned long long)seed,
                  k);
        for (int64_t i = 0; i < o->n; i++) {
            double x, y;
            cr_assert(same_bits(o, w, i, &x, &y) || fabs(x - y) <= w->tolerance,
                      "LAZY_KIND=%d LAZY_SEED=%llu: output %d of %d, %s of %s after step %d, entry %lld of %lld: lazily %.17g, "
                      "eagerly %.17g (tolerance %g)",
                      a->kind, (unsigned long long)seed, k, a->n_outputs, o->what, aj_dtype_name(o->dtype), o->step, (long long)i,
                      (long long)o->n, x, y, w->tolerance);
        }
    }
}

static aj_ctx *context_of(bool lazy) {
    aj_ctx *ctx;
    cr_assert(setenv("ADJOIN_FUSE", lazy ? "1" : "0", 1) == 0);
    cr_assert(aj_ctx_create(&ctx, NULL) == AJ_OK);
    return ctx;
}

/* Both machines are there, with all that is not zero. */
static void run_program(program_kind kind, uint64_t seed, machine *m) {
    for (int k = 0; k < 2; k++) {
        m[k].kind = kind;
        m[k].lazy = k == 0;
        m[k].draws = mix(seed);
        m[k].moments = mix(~seed);
        (kind == FORMULA ? run_formula : run)(&m[k]);
    }
    compare(seed, &m[0], &m[1]);
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < m[k].n_outputs; i++)
            free(m[k].outputs[i].data);
}

typedef void one_program(program_kind kind, uint64_t seed, aj_ctx *const *ctx, machine *m);

static void run_here(program_kind kind, uint64_t seed, aj_ctx *const *ctx, machine *m) {
    m[0] = (machine){.ctx = ctx[0], .home = seed % 6 == 5 ? aj_test_device(ctx[0]) : NULL};
    m[1] = (machine){.ctx = ctx[1]};
    run_program(kind, seed, m);
}

/* On a device that is not the CPU, against the CPU. Most programs run step by step there, since kernels of one step are few, and compiled soon. */
static void run_elsewhere(program_kind kind, uint64_t seed, aj_ctx *const *ctx, machine *m) {
    aj_ctx *far = ctx[seed % 8 == 0 ? 0 : 1];
    m[0] = (machine){.ctx = far, .home = elsewhere(far), .portable = true};
    m[1] = (machine){.ctx = ctx[2], .portable = true};
    cr_assert(m[0].home, "%s", aj_ctx_error(far));
    run_program(kind, seed, m);
}

static void run_programs(program_kind kind, int n, one_program *one) {
    const char *seed = getenv("LAZY_SEED"), *only = getenv("LAZY_KIND");
    aj_ctx *ctx[3] = {context_of(true), context_of(false), context_of(false)};
    machine *m = calloc(2, sizeof *m);
    if (only && atoi(only) != (int)kind)
        n = 0;
    for (int k = 0; k < n && !seed; k++)
        one(kind, (uint64_t)k, ctx, m);
    if (seed && n > 0)
        one(kind, strtoull(seed, NULL, 10), ctx, m);
    free(m);
    for (int k = 0; k < 3; k++)
        cr_assert(aj_ctx_destroy(&ctx[k]) == AJ_OK);
}

static int programs(int n) {
    const char *more = getenv("LAZY_PROGRAMS");
    return more ? atoi(more) : is_watched() ? n / 20 : n;
}

#define PROGRAMS(name, kind, n, n_elsewhere)                                                                                     \
    Test(lazy, name) {                                                                                                           \
        run_programs(kind, programs(n), run_here);                                                                               \
    }                                                                                                                            \
    Test(elsewhere, name) {                                                                                                      \
        run_programs(kind, programs(n_elsewhere), run_elsewhere);                                                                \
    }
PROGRAMS(bits, BITS, 2000, 60)
PROGRAMS(exact, EXACT, 2000, 60)
PROGRAMS(close, CLOSE, 1000, 40)
PROGRAMS(formula, FORMULA, 20000, 40)
