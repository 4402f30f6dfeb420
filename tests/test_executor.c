/* The one executor of elementwise programs, and the device table's empty slots, from inside. */
#include "serial.h"
#include "tensor/tensor_internal.h"

#include <stdlib.h>
#include <string.h>

TestSuite(executor, .init = begin, .fini = finish);

/* ---- values in every layout ---- */

typedef enum layout {
    CONTIGUOUS,
    TRANSPOSED,
    FLIPPED,
    STEP_TWO,
    ALL_BROADCAST,
    FIRST_BROADCAST,
    LAST_BROADCAST,
    N_LAYOUTS
} layout;

static void set_entry(aj_dtype dtype, void *data, int64_t at, double value) {
    switch (dtype) {
    case AJ_F64:
        ((double *)data)[at] = value;
        break;
    case AJ_F32:
        ((float *)data)[at] = (float)value;
        break;
    case AJ_I64:
        ((int64_t *)data)[at] = (int64_t)value;
        break;
    case AJ_I32:
        ((int32_t *)data)[at] = (int32_t)value;
        break;
    case AJ_U8:
        ((uint8_t *)data)[at] = (uint8_t)value;
        break;
    }
}

static double get_entry(const aji_value *v, int64_t at) {
    const void *data = aji_value_data(v);
    switch (v->meta.dtype) {
    case AJ_F64:
        return ((const double *)data)[at];
    case AJ_F32:
        return ((const float *)data)[at];
    case AJ_I64:
        return (double)((const int64_t *)data)[at];
    case AJ_I32:
        return ((const int32_t *)data)[at];
    case AJ_U8:
        return ((const uint8_t *)data)[at];
    }
    return NAN;
}

/* Where the entry with row-major number i of shape lies in v, in elements from v's first entry. */
static int64_t place(const aji_value *v, const aji_meta *shape, int64_t i) {
    int64_t at = 0;
    for (int axis = shape->ndim - 1; axis >= 0; axis--) {
        at += i % shape->shape[axis] * v->strides[axis];
        i /= shape->shape[axis];
    }
    return at;
}

static void layout_strides(layout kind, const aji_meta *meta, int64_t *strides, int64_t *offset, int64_t *room) {
    bool forward = kind == TRANSPOSED;
    *offset = 0;
    *room = kind == STEP_TWO ? 2 : 1;
    for (int k = 0; k < meta->ndim; k++) {
        int axis = forward ? k : meta->ndim - 1 - k;
        strides[axis] = *room;
        *room *= meta->shape[axis];
    }
    for (int axis = 0; axis < meta->ndim; axis++) {
        bool broadcast =
            kind == ALL_BROADCAST || (kind == FIRST_BROADCAST && axis == 0) || (kind == LAST_BROADCAST && axis == meta->ndim - 1);
        if (broadcast)
            strides[axis] = 0;
        if (kind == FLIPPED && meta->shape[axis] > 0) {
            *offset += strides[axis] * (meta->shape[axis] - 1);
            strides[axis] = -strides[axis];
        }
    }
}

/* A value of this shape on a storage of its own, with entries that go round through lo ... hi in steps that differ from input to input. */
static aji_value *make_input(layout kind, const aji_meta *meta, double lo, double hi, int salt) {
    int64_t strides[AJ_MAX_NDIM], offset, room;
    layout_strides(kind, meta, strides, &offset, &room);
    aji_meta flat = {.dtype = meta->dtype, .ndim = 1, .shape = {room}};
    aji_value *base = aji_value_new(context, aj_cpu(context), &flat);
    cr_assert(base);
    for (int64_t i = 0; i < room; i++) {
        double part = (double)((i * 7919 + salt * 104729) % 1009) / 1009;
        set_entry(meta->dtype, aji_value_data(base), i, lo + (hi - lo) * part);
    }
    aji_value *v = aji_value_view(base, meta, strides, base->offset + offset);
    cr_assert(v);
    aji_value_release(base);
    return v;
}

static const aji_meta shapes[] = {
    {.ndim = 0},
    {.ndim = 1, .shape = {1}},
    {.ndim = 1, .shape = {255}},
    {.ndim = 1, .shape = {256}},
    {.ndim = 1, .shape = {257}},
    {.ndim = 1, .shape = {1000}},
    {.ndim = 1, .shape = {0}},
    {.ndim = 2, .shape = {300, 1}},
    {.ndim = 2, .shape = {7, 2}},
    {.ndim = 2, .shape = {700, 2}},
    {.ndim = 2, .shape = {129, 3}},
    {.ndim = 2, .shape = {3, 1000}},
    {.ndim = 3, .shape = {3, 0, 2}},
    {.ndim = 3, .shape = {40, 1, 13}},
    {.ndim = 4, .shape = {5, 4, 3, 257}},
    {.ndim = 8, .shape = {2, 1, 2, 3, 1, 2, 2, 3}},
};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

/* ---- the program of twelve steps ---- */

#define STEP(code, ...)                                                                                                          \
    {                                                                                                                            \
        .opcode = AJI_STEP_##code, .src = { __VA_ARGS__ }                                                                        \
    }

static aji_program twelve_steps(aj_dtype dtype) {
    aji_program p = {.n_in = 3,
                     .n_out = 3,
                     .n_steps = 12,
                     .steps = {STEP(ADD, 0, 1), STEP(MUL, 3, 2), STEP(SUB, 4, 0), STEP(MAXIMUM, 5, 1), STEP(SCALE, 6),
                               STEP(ADD_SCALAR, 7), STEP(LT, 8, 2), STEP(WHERE, 9, 8, 2), STEP(CLAMP, 10), STEP(SQUARE, 11),
                               STEP(ADD, 12, 5), STEP(ABS, 13)},
                     .out = {14, 9, 4}};
    for (int i = 0; i < p.n_steps; i++)
        p.steps[i].dtype = dtype;
    p.steps[4].imm[0] = 3;
    p.steps[5].imm[0] = 1;
    p.steps[8].imm[0] = 1;
    p.steps[8].imm[1] = 50;
    return p;
}

/* The same by hand on one entry, in C's arithmetic of each type. Small integers: nothing but u8 can overflow, and that wraps. */
#define REFERENCE(T)                                                                                                             \
    {                                                                                                                            \
        T a = (T)in[0], b = (T)in[1], c = (T)in[2];                                                                              \
        T product = (T)((T)(a + b) * c), rest = (T)(product - a);                                                                \
        T larger = rest > b ? rest : b, scaled = (T)((T)(larger * 3) + 1);                                                       \
        T chosen = scaled < c ? scaled : c;                                                                                      \
        T held = chosen < 1 ? 1 : chosen > 50 ? 50 : chosen;                                                                     \
        T sum = (T)((T)(held * held) + rest);                                                                                    \
        out[0] = fabs((double)sum);                                                                                              \
        out[1] = scaled < c;                                                                                                     \
        out[2] = (double)product;                                                                                                \
        return;                                                                                                                  \
    }

static void reference(aj_dtype dtype, const double in[3], double out[3]) {
    switch (dtype) {
    case AJ_F64:
        REFERENCE(double)
    case AJ_F32:
        REFERENCE(float)
    case AJ_I64:
        REFERENCE(int64_t)
    case AJ_I32:
        REFERENCE(int32_t)
    case AJ_U8:
        REFERENCE(uint8_t)
    }
}

static void check_twelve(aj_dtype dtype, const aji_meta *shape, const layout kinds[3]) {
    aji_meta meta = *shape, flags = *shape;
    meta.dtype = dtype;
    flags.dtype = AJ_U8;
    double lo = dtype == AJ_U8 ? 0 : -9;
    aji_value *in[3], *out[3];
    for (int k = 0; k < 3; k++) {
        in[k] = make_input(kinds[k], &meta, lo, 9, k);
        out[k] = aji_value_new(context, aj_cpu(context), k == 1 ? &flags : &meta);
        cr_assert(in[k] && out[k]);
    }
    aji_program program = twelve_steps(dtype);
    expect_ok(aji_do_run("twelve", &program, (const aji_value *const *)in, (const aji_value *const *)out));
    int64_t n = aji_meta_numel(&meta);
    for (int64_t i = 0; i < n; i++) {
        double values[3], wanted[3];
        for (int k = 0; k < 3; k++)
            values[k] = get_entry(in[k], place(in[k], shape, i));
        reference(dtype, values, wanted);
        for (int k = 0; k < 3; k++) { /* entries stay below 2^12; four roundings of that size */
            double got = get_entry(out[k], i), scale = 4096 * 4 * machine_epsilon(dtype);
            cr_assert(fabs(got - wanted[k]) <= scale,
                      "%s, shape %d of %d axes, layouts %d %d %d: output %d entry %lld is %g, expected %g", aj_dtype_name(dtype),
                      (int)(shape - shapes), shape->ndim, kinds[0], kinds[1], kinds[2], k, (long long)i, got, wanted[k]);
        }
    }
    for (int k = 0; k < 3; k++) {
        aji_value_release(in[k]);
        aji_value_release(out[k]);
    }
}

static void check_all_layouts(aj_dtype dtype) {
    for (int s = 0; s < N_SHAPES; s++)
        for (int a = 0; a < N_LAYOUTS; a++)
            for (int b = 0; b < N_LAYOUTS; b++) {
                layout kinds[3] = {(layout)a, (layout)b, (layout)((a + 2 * b) % N_LAYOUTS)};
                check_twelve(dtype, &shapes[s], kinds);
            }
}

Test(executor, twelve_steps_f64) {
    check_all_layouts(AJ_F64);
}
Test(executor, twelve_steps_f32) {
    check_all_layouts(AJ_F32);
}
Test(executor, twelve_steps_i64) {
    check_all_layouts(AJ_I64);
}
Test(executor, twelve_steps_i32) {
    check_all_layouts(AJ_I32);
}
Test(executor, twelve_steps_u8) {
    check_all_layouts(AJ_U8);
}

/* Inputs whose own shape is smaller than the outputs' are broadcast as NumPy does. */
Test(executor, inputs_broadcast_by_shape) {
    aji_meta row = {.dtype = AJ_F64, .ndim = 1, .shape = {4}}, column = {.dtype = AJ_F64, .ndim = 2, .shape = {3, 1}};
    aji_meta both = {.dtype = AJ_F64, .ndim = 2, .shape = {3, 4}};
    aji_value *a = make_input(CONTIGUOUS, &row, 0, 1, 1), *b = make_input(CONTIGUOUS, &column, 0, 1, 2);
    aji_value *y = aji_value_new(context, aj_cpu(context), &both);
    aji_program program = {.n_in = 2, .n_out = 1, .n_steps = 1, .steps = {STEP(SUB, 0, 1)}, .out = {2}};
    expect_ok(aji_do_run("sub", &program, (const aji_value *const[]){a, b}, (const aji_value *const[]){y}));
    for (int i = 0; i < 12; i++)
        cr_assert(get_entry(y, i) == get_entry(a, i % 4) - get_entry(b, i / 4));
    aji_value_release(a);
    aji_value_release(b);
    aji_value_release(y);
}

/* ---- every step on its own ---- */

static double apply_reference(aji_opcode opcode, const double *x, const double *imm) {
    double a = x[0], b = x[1];
    switch (opcode) {
    case AJI_STEP_COPY:
        return a;
    case AJI_STEP_NEG:
        return -a;
    case AJI_STEP_ABS:
        return fabs(a);
    case AJI_STEP_SIGN:
        return (a > 0) - (a < 0);
    case AJI_STEP_SQUARE:
        return a * a;
    case AJI_STEP_RELU:
        return fmax(a, 0);
    case AJI_STEP_SQRT:
        return sqrt(a);
    case AJI_STEP_RSQRT:
        return 1 / sqrt(a);
    case AJI_STEP_RECIPROCAL:
        return 1 / a;
    case AJI_STEP_EXP:
        return exp(a);
    case AJI_STEP_EXPM1:
        return expm1(a);
    case AJI_STEP_LOG:
        return log(a);
    case AJI_STEP_LOG1P:
        return log1p(a);
    case AJI_STEP_SIN:
        return sin(a);
    case AJI_STEP_COS:
        return cos(a);
    case AJI_STEP_TAN:
        return tan(a);
    case AJI_STEP_ASIN:
        return asin(a);
    case AJI_STEP_ACOS:
        return acos(a);
    case AJI_STEP_ATAN:
        return atan(a);
    case AJI_STEP_SINH:
        return sinh(a);
    case AJI_STEP_COSH:
        return cosh(a);
    case AJI_STEP_TANH:
        return tanh(a);
    case AJI_STEP_SIGMOID:
        return 1 / (1 + exp(-a));
    case AJI_STEP_SOFTPLUS:
        return log1p(exp(a));
    case AJI_STEP_ERF:
        return erf(a);
    case AJI_STEP_FLOOR:
        return floor(a);
    case AJI_STEP_CEIL:
        return ceil(a);
    case AJI_STEP_ROUND:
        return nearbyint(a);
    case AJI_STEP_ADD:
        return a + b;
    case AJI_STEP_SUB:
        return a - b;
    case AJI_STEP_MUL:
        return a * b;
    case AJI_STEP_MINIMUM:
        return fmin(a, b);
    case AJI_STEP_MAXIMUM:
        return fmax(a, b);
    case AJI_STEP_DIV:
        return a / b;
    case AJI_STEP_POW:
        return pow(a, b);
    case AJI_STEP_ATAN2:
        return atan2(a, b);
    case AJI_STEP_EQ:
        return a == b;
    case AJI_STEP_NE:
        return a != b;
    case AJI_STEP_LT:
        return a < b;
    case AJI_STEP_LE:
        return a <= b;
    case AJI_STEP_GT:
        return a > b;
    case AJI_STEP_GE:
        return a >= b;
    case AJI_STEP_SCALE:
        return a * imm[0];
    case AJI_STEP_ADD_SCALAR:
        return a + imm[0];
    case AJI_STEP_CLAMP:
        return fmin(fmax(a, imm[0]), imm[1]);
    case AJI_STEP_POW_SCALAR:
        return pow(a, imm[0]);
    case AJI_STEP_MUL_ADD:
        return a * b + x[2];
    case AJI_STEP_MUL_SUB:
        return a * b - x[2];
    case AJI_STEP_SUB_MUL:
        return x[2] - a * b;
    case AJI_STEP_SCALE_ADD:
        return a * imm[0] + b;
    case AJI_STEP_SCALE_SUB:
        return b - a * imm[0];
    case AJI_STEP_AFFINE:
        return a * imm[0] + imm[1];
    case AJI_STEP_CAST:
        return a;
    case AJI_STEP_WHERE:
        return a != 0 ? b : x[2];
    case AJI_STEP_PLACE:
    case AJI_N_STEPS:
        break;
    }
    return NAN;
}

static bool is_comparison(aji_opcode opcode) {
    return opcode >= AJI_STEP_EQ && opcode <= AJI_STEP_GE;
}

/* One step on 1003 entries. Arguments lie in 0.1 ... 0.9 for floats (in every function's domain) and in 0 ... 9 for integers. */
static void check_step(aji_opcode opcode, aj_dtype dtype) {
    enum { N = 1003 };
    bool real = aji_dtype_is_float(dtype);
    aji_program program = {.n_in = 3, .n_out = 1, .n_steps = 1, .out = {3}};
    program.steps[0] = (aji_step){.opcode = opcode, .dtype = dtype, .from = dtype, .src = {0, 1, 2}, .imm = {2, 5}};
    aji_meta meta = {.dtype = dtype, .ndim = 1, .shape = {N}}, first = meta, result = meta;
    if (opcode == AJI_STEP_WHERE)
        first.dtype = AJ_U8;
    if (is_comparison(opcode))
        result.dtype = AJ_U8;
    aji_value *in[3], *out = aji_value_new(context, aj_cpu(context), &result);
    for (int k = 0; k < 3; k++)
        in[k] = make_input(STEP_TWO, k ? &meta : &first, real && !(k == 0 && opcode == AJI_STEP_WHERE) ? 0.1 : 0,
                           real && k ? 0.9
                           : real    ? 0.95
                                     : 9,
                           k);
    if (opcode == AJI_STEP_WHERE)
        for (int64_t i = 0; i < 2 * N; i++)
            set_entry(AJ_U8, aji_value_data(in[0]), i < 2 * N - 1 ? i : i - 1, i % 4 < 2);
    expect_ok(aji_do_run("step", &program, (const aji_value *const *)in, (const aji_value *const[]){out}));
    for (int64_t i = 0; i < N; i++) {
        double x[3], got = get_entry(out, i);
        for (int k = 0; k < 3; k++)
            x[k] = get_entry(in[k], i * in[k]->strides[0]);
        double wanted = apply_reference(opcode, x, program.steps[0].imm);
        if (dtype == AJ_U8 && result.dtype == AJ_U8 && !is_comparison(opcode))
            wanted = (uint8_t)(int)wanted;
        /* 8 ulps for functions of libm's quality and formulas of three operations; integers are exact */
        cr_assert(fabs(got - wanted) <= 8 * machine_epsilon(dtype) * fmax(1, fabs(wanted)),
                  "step %d of %s: f(%g, %g, %g) is %.17g, expected %.17g", (int)opcode, aj_dtype_name(dtype), x[0], x[1], x[2],
                  got, wanted);
    }
    for (int k = 0; k < 3; k++)
        aji_value_release(in[k]);
    aji_value_release(out);
}

Test(executor, every_step_on_every_dtype) {
    int checked = 0;
    for (int opcode = 0; opcode < AJI_N_STEPS; opcode++)
        for (int dtype = AJ_F64; dtype <= AJ_U8; dtype++)
            if (aji_step_supports((aji_opcode)opcode, (aj_dtype)dtype)) {
                check_step((aji_opcode)opcode, (aj_dtype)dtype);
                checked++;
            }
    cr_assert(checked >= 2 * AJI_N_STEPS, "only %d pairs of step and dtype exist", checked);
}

Test(executor, float_steps_do_not_exist_for_integers) {
    for (int dtype = AJ_I64; dtype <= AJ_U8; dtype++) {
        cr_assert(!aji_step_supports(AJI_STEP_EXP, (aj_dtype)dtype));
        cr_assert(!aji_step_supports(AJI_STEP_DIV, (aj_dtype)dtype));
        cr_assert(!aji_step_supports(AJI_STEP_POW_SCALAR, (aj_dtype)dtype));
        cr_assert(aji_step_supports(AJI_STEP_ADD, (aj_dtype)dtype));
        cr_assert(aji_step_supports(AJI_STEP_WHERE, (aj_dtype)dtype));
    }
}

Test(executor, casts_between_all_dtypes) {
    enum { N = 300 };
    for (int from = AJ_F64; from <= AJ_U8; from++)
        for (int to = AJ_F64; to <= AJ_U8; to++) {
            aji_meta source = {.dtype = (aj_dtype)from, .ndim = 1, .shape = {N}}, target = source;
            target.dtype = (aj_dtype)to;
            aji_value *x = make_input(FLIPPED, &source, 0, 200, from), *y = aji_value_new(context, aj_cpu(context), &target);
            aji_program program = {.n_in = 1, .n_out = 1, .n_steps = 1, .out = {1}};
            program.steps[0] = (aji_step){.opcode = AJI_STEP_CAST, .dtype = (aj_dtype)to, .from = (aj_dtype)from, .src = {0}};
            expect_ok(aji_do_run("cast", &program, (const aji_value *const[]){x}, (const aji_value *const[]){y}));
            for (int64_t i = 0; i < N; i++) {
                double value = get_entry(x, -i);
                double wanted = to == AJ_F64 ? value : to == AJ_F32 ? (double)(float)value : trunc(value);
                cr_assert(get_entry(y, i) == wanted, "%s to %s: %g became %g", aj_dtype_name((aj_dtype)from),
                          aj_dtype_name((aj_dtype)to), value, get_entry(y, i));
            }
            aji_value_release(x);
            aji_value_release(y);
        }
}

/* An output that is an input, two outputs of one value, and more entries than one block is long. */
Test(executor, several_outputs) {
    aji_meta meta = {.dtype = AJ_F64, .ndim = 2, .shape = {19, 31}};
    aji_value *x = make_input(TRANSPOSED, &meta, 0, 1, 5), *out[4];
    for (int k = 0; k < 4; k++)
        out[k] = aji_value_new(context, aj_cpu(context), &meta);
    aji_program program = {.n_in = 1, .n_out = 4, .n_steps = 2, .steps = {STEP(EXP, 0), STEP(NEG, 1)}, .out = {0, 1, 2, 1}};
    expect_ok(aji_do_run("several", &program, (const aji_value *const[]){x}, (const aji_value *const *)out));
    for (int64_t i = 0; i < 19 * 31; i++) {
        double value = get_entry(x, place(x, &meta, i));
        cr_assert(get_entry(out[0], i) == value);
        expect_near(get_entry(out[1], i), exp(value), 4 * machine_epsilon(AJ_F64));
        cr_assert(get_entry(out[2], i) == -get_entry(out[1], i));
        cr_assert(get_entry(out[3], i) == get_entry(out[1], i));
    }
    aji_value_release(x);
    for (int k = 0; k < 4; k++)
        aji_value_release(out[k]);
}

/* ---- a device with empty slots ---- */

Test(executor, empty_slots_are_unsupported) {
    aji_device_table table = aji_cpu_table;
    table.run = NULL;
    table.reduce = NULL;
    table.argument = NULL;
    table.cumsum = NULL;
    table.take = NULL;
    table.scatter_add = NULL;
    table.matmul = NULL;
    table.solve = NULL;
    table.cholesky = NULL;
    table.logdet = NULL;
    struct aji_device device = {.table = &table, .ctx = context, .name = "hollow"};
    aji_meta meta = {.dtype = AJ_F64, .ndim = 2, .shape = {2, 2}};
    aji_value *v = aji_value_new(context, &device, &meta);
    aji_program program = {.n_in = 1, .n_out = 1, .n_steps = 1, .steps = {STEP(NEG, 0)}, .out = {1}};
    cr_assert(aji_do_run("aj_neg", &program, (const aji_value *const[]){v}, (const aji_value *const[]){v}) == AJ_ERR_UNSUPPORTED);
    expect_error(AJ_ERR_UNSUPPORTED, "aj_neg", "f64", "hollow");
    cr_assert(aji_value_reduce("aj_sum", AJI_SUM, v, 3, v) == AJ_ERR_UNSUPPORTED);
    expect_error(AJ_ERR_UNSUPPORTED, "aj_sum", "f64", "hollow");
    cr_assert(aji_do_argument("aj_argmax", true, v, 0, v) == AJ_ERR_UNSUPPORTED);
    expect_error(AJ_ERR_UNSUPPORTED, "aj_argmax", "f64", "hollow");
    cr_assert(aji_do_cumsum("aj_cumsum", v, 0, v) == AJ_ERR_UNSUPPORTED);
    expect_error(AJ_ERR_UNSUPPORTED, "aj_cumsum", "f64", "hollow");
    cr_assert(aji_do_take("aj_take", v, 0, v, v) == AJ_ERR_UNSUPPORTED);
    expect_error(AJ_ERR_UNSUPPORTED, "aj_take", "f64", "hollow");
    cr_assert(aji_do_scatter_add("aj_scatter_add", v, 0, v, v) == AJ_ERR_UNSUPPORTED);
    expect_error(AJ_ERR_UNSUPPORTED, "aj_scatter_add", "f64", "hollow");
    cr_assert(aji_do_matmul("aj_matmul", v, v, v) == AJ_ERR_UNSUPPORTED);
    expect_error(AJ_ERR_UNSUPPORTED, "aj_matmul", "f64", "hollow");
    cr_assert(aji_do_solve("aj_solve", v, v, v) == AJ_ERR_UNSUPPORTED);
    expect_error(AJ_ERR_UNSUPPORTED, "aj_solve", "f64", "hollow");
    cr_assert(aji_do_cholesky("aj_cholesky", v, v) == AJ_ERR_UNSUPPORTED);
    expect_error(AJ_ERR_UNSUPPORTED, "aj_cholesky", "f64", "hollow");
    cr_assert(aji_do_logdet("aj_logdet", v, v) == AJ_ERR_UNSUPPORTED);
    expect_error(AJ_ERR_UNSUPPORTED, "aj_logdet", "f64", "hollow");
    aji_value_release(v);
}
