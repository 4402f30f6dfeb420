/* The block kernels of the elementwise steps, from inside and for every instruction set of the machine: accuracy of the maths functions, and
 * that a result depends on nothing but its operands. */
#include "serial.h"
#include "tensor/cpu.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(maths, .init = begin, .fini = finish);

/* ---- random numbers and special ones ---- */

static uint64_t state = 88172645463325252u;

static uint64_t next_bits(void) { /* xorshift64* (Vigna 2016) */
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 2685821657736338717u;
}

static double next_unit(void) {
    return (double)(next_bits() >> 11) * 0x1p-53;
}

static double any_double(aj_dtype dtype) {
    uint64_t bits = next_bits();
    double x;
    float f;
    if (dtype == AJ_F32) {
        memcpy(&f, &bits, sizeof(f));
        x = (double)f;
    } else
        memcpy(&x, &bits, sizeof(x));
    return isnan(x) ? NAN : x; /* none that signals: C leaves open what functions make of it */
}

static const double specials[] = {
    0,
    -0.0,
    1,
    -1,
    INFINITY,
    -INFINITY,
    NAN,
    0.5,
    -0.5,
    2,
    -2,
    3,
    0x1p-1074,
    -0x1p-1074,
    0x1p-1022,
    -0x1p-1022,
    DBL_MAX,
    -DBL_MAX,
    0x1p-149,
    -0x1p-149,
    0x1p-126,
    FLT_MAX,
    -FLT_MAX,
    709.7,
    710,
    710.4,
    711,
    745,
    -745,
    -746,
    -708.4,
    88.7,
    89,
    89.4,
    90,
    -103.9,
    -104,
    1e22,
    1e300,
    -1e300,
    1e-300,
    0x1p20,
    -0x1p20,
    1048577,
    0x1p-30,
    0x1p-54,
    0x1p53,
    0.9999999999999999,
    1.0000000000000002,
    6,
    -6,
    20,
    -20,
    5.9,
    0.25,
    -0.25,
    0.4375,
    0.6875,
    1.5707963267948966,
    3.141592653589793,
};
enum { N_SPECIALS = sizeof specials / sizeof specials[0] };

/* Everywhere, around 0 and 1, over the range of exponentials, small, and large; near multiples of pi/2 and of ln 2, where reductions cancel */
static double draw(int i, aj_dtype dtype) {
    double part = 2 * next_unit() - 1;
    bool single = dtype == AJ_F32;
    switch (i % 8) {
    case 0:
        return any_double(dtype);
    case 1:
        return 2 * part;
    case 2:
        return (single ? 100 : 750) * part;
    case 3:
        return ldexp(part, (int)(next_bits() % 40) - 30);
    case 4:
        return 1 + ldexp(part, -(int)(next_bits() % (single ? 22 : 50)));
    case 5:
        return rint(ldexp(part, (int)(next_bits() % 20))) * 1.5707963267948966;
    case 6:
        return rint((single ? 150 : 1080) * part) * 0.6931471805599453 * (1 + (double)(next_bits() % 3) * 0x1p-52);
    default:
        return ldexp(part, (int)(next_bits() % (single ? 40 : 100)));
    }
}

static double get(aj_dtype dtype, const void *data, int i) {
    return dtype == AJ_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

static void set(aj_dtype dtype, void *data, int i, double value) {
    if (dtype == AJ_F64)
        ((double *)data)[i] = value;
    else
        ((float *)data)[i] = (float)value;
}

/* ---- accuracy ---- */

static long double logistic(long double x) {
    return x >= 0 ? 1 / (1 + expl(-x)) : expl(x) / (1 + expl(x));
}

static long double softplus(long double x) {
    return (x > 0 ? x : 0) + log1pl(expl(x > 0 ? -x : x));
}

static long double power_exponent; /* of powers with one exponent for all */

static long double power_of(long double x) {
    return powl(x, power_exponent);
}

typedef struct function {
    aji_opcode step;
    const char *name;
    double limit[2]; /* of the error in units in the last place: f64, f32 */
    long double (*of_one)(long double x);
    long double (*of_two)(long double x, long double y);
} function;

static const function functions[] = {
    {AJI_STEP_EXP, "exp", {0.8, 0.51}, expl, NULL},
    {AJI_STEP_EXPM1, "expm1", {0.95, 0.51}, expm1l, NULL},
    {AJI_STEP_LOG, "log", {0.85, 0.51}, logl, NULL},
    {AJI_STEP_LOG1P, "log1p", {0.85, 0.51}, log1pl, NULL},
    {AJI_STEP_SIN, "sin", {0.9, 0.51}, sinl, NULL},
    {AJI_STEP_COS, "cos", {0.9, 0.51}, cosl, NULL},
    {AJI_STEP_TAN, "tan", {1.55, 0.51}, tanl, NULL},
    {AJI_STEP_ASIN, "asin", {0.75, 0.51}, asinl, NULL},
    {AJI_STEP_ACOS, "acos", {0.75, 0.51}, acosl, NULL},
    {AJI_STEP_ATAN, "atan", {0.85, 0.51}, atanl, NULL},
    {AJI_STEP_SINH, "sinh", {0.9, 0.51}, sinhl, NULL},
    {AJI_STEP_COSH, "cosh", {1.15, 0.51}, coshl, NULL},
    {AJI_STEP_TANH, "tanh", {1.3, 0.51}, tanhl, NULL},
    {AJI_STEP_ERF, "erf", {1.35, 0.51}, erfl, NULL},
    {AJI_STEP_SIGMOID, "sigmoid", {1.15, 0.51}, logistic, NULL},
    {AJI_STEP_SOFTPLUS, "softplus", {1.15, 0.51}, softplus, NULL},
    {AJI_STEP_ATAN2, "atan2", {1.55, 0.51}, NULL, atan2l},
    {AJI_STEP_POW, "pow", {1, 1}, NULL, powl}, /* C's own */
};
enum { N_FUNCTIONS = sizeof functions / sizeof functions[0] };

/* valgrind computes long doubles with the precision of doubles, and some of C's functions wrong with it: then there is no reference. */
static bool reference_is_exact(void) {
    volatile long double one = 1, small = LDBL_EPSILON;
    return one + small != one;
}

/* How far got is from wanted, in units in the last place of wanted; infinite for what no rounding explains */
static double ulps(aj_dtype dtype, double got, long double wanted) {
    double rounded = dtype == AJ_F64 ? (double)wanted : (double)(float)wanted,
           largest = dtype == AJ_F64 ? DBL_MAX : (double)FLT_MAX;
    if (isnan(rounded) || isnan(got))
        return isnan(rounded) && isnan(got) ? 0 : INFINITY;
    if (isinf(rounded) || isinf(got)) /* near the end of the range either is right */
        return got == rounded || (signbit(got) == signbit(rounded) && fabsl(wanted) < (long double)largest * 1.0000001L &&
                                  fabsl(wanted) > (long double)largest * 0.99999999999999989L)
                   ? 0
                   : INFINITY;
    if (rounded == 0 && got == 0)
        return signbit(rounded) == signbit(got) ? 0 : INFINITY;
    int exponent, digits = dtype == AJ_F64 ? DBL_MANT_DIG : FLT_MANT_DIG, least = dtype == AJ_F64 ? DBL_MIN_EXP : FLT_MIN_EXP;
    frexpl(wanted, &exponent);
    return (double)fabsl(((long double)got - wanted) / ldexpl(1, (exponent < least ? least : exponent) - digits));
}

typedef struct points {
    int n;
    aj_dtype dtype;
    void *x, *y;
    long double *wanted;
} points;

/* Special numbers first, in all pairs; for powers half the bases positive and some results in range */
static points make_points(const function *f, aj_dtype dtype, int n) {
    points p = {n, dtype, malloc((size_t)n * sizeof(double)), malloc((size_t)n * sizeof(double)),
                malloc((size_t)n * sizeof(long double))};
    for (int i = 0; i < n; i++) {
        bool special = i < N_SPECIALS * N_SPECIALS;
        double x = special ? specials[i % N_SPECIALS] : draw(i, dtype),
               y = special ? specials[i / N_SPECIALS] : draw(i / 8, dtype);
        if (!special && f->step == AJI_STEP_POW && i % 2)
            x = fabs(x);
        if (!special && f->step == AJI_STEP_POW && i % 7 == 0 && log(fabs(x)) != 0)
            y = (dtype == AJ_F64 ? 745 : 88) * (2 * next_unit() - 1) / log(fabs(x));
        set(dtype, p.x, i, x);
        set(dtype, p.y, i, y);
        x = get(dtype, p.x, i);
        p.wanted[i] = f->of_one ? f->of_one(x) : f->of_two(x, get(dtype, p.y, i));
    }
    return p;
}

static void free_points(points *p) {
    free(p->x);
    free(p->y);
    free(p->wanted);
}

/* All points in blocks, into out */
static void run_points(aji_kernel *kernel, const points *p, void *out) {
    const double imm[2] = {(double)power_exponent, 0};
    size_t size = aj_dtype_size(p->dtype);
    for (int begin_at = 0; begin_at < p->n; begin_at += AJI_BLOCK) {
        int n = p->n - begin_at < AJI_BLOCK ? p->n - begin_at : AJI_BLOCK;
        size_t offset = (size_t)begin_at * size;
        const void *src[3] = {(char *)p->x + offset, (char *)p->y + offset, NULL};
        kernel(n, (char *)out + offset, src, imm);
    }
}

static bool same(double a, double b) {
    return memcmp(&a, &b, sizeof(a)) == 0 || (isnan(a) && isnan(b));
}

static void check_function(const function *f, aj_dtype dtype, int n) {
    points p = make_points(f, dtype, n);
    void *out = malloc((size_t)n * sizeof(double)), *base = malloc((size_t)n * sizeof(double));
    aji_step step = {.opcode = f->step, .dtype = dtype};
    double limit = reference_is_exact() ? f->limit[dtype == AJ_F32] : INFINITY;
    for (int s = 0; s < AJI_N_CPU_SETS; s++) {
        aji_kernel *kernel = aji_step_kernel_of((aji_cpu_set)s, &step);
        if (!kernel)
            continue;
        run_points(kernel, &p, s == AJI_CPU_BASE ? base : out);
        double worst = 0, at = 0;
        for (int i = 0; i < n; i++) {
            double got = get(dtype, s == AJI_CPU_BASE ? base : out, i), error = ulps(dtype, got, p.wanted[i]);
            cr_assert(error <= limit, "%s of %s with %s: f(%.17g, %.17g) is %.17g, expected %.17Lg: %g ulps", f->name,
                      aj_dtype_name(dtype), aji_cpu_set_name((aji_cpu_set)s), get(dtype, p.x, i), get(dtype, p.y, i), got,
                      p.wanted[i], error);
            cr_assert(same(got, get(dtype, base, i)), "%s of %s: f(%.17g, %.17g) is %.17g with %s, %.17g without", f->name,
                      aj_dtype_name(dtype), get(dtype, p.x, i), get(dtype, p.y, i), got, aji_cpu_set_name((aji_cpu_set)s),
                      get(dtype, base, i));
            if (error > worst) {
                worst = error;
                at = get(dtype, p.x, i);
            }
        }
        if (getenv("ADJOIN_TEST_SHOW"))
            printf("%-8s %s %-6s %.3f ulps at %.17g\n", f->name, aj_dtype_name(dtype), aji_cpu_set_name((aji_cpu_set)s), worst,
                   at);
    }
    free_points(&p);
    free(out);
    free(base);
}

/* ADJOIN_TEST_POINTS: more of them, for a survey of the errors with ADJOIN_TEST_SHOW=1 */
static int number_of_points(void) {
    const char *text = getenv("ADJOIN_TEST_POINTS");
    return text ? atoi(text) : reference_is_exact() ? 60000 : N_SPECIALS * N_SPECIALS + 3000;
}

Test(maths, functions_are_right_everywhere_f64) {
    for (int k = 0; k < N_FUNCTIONS; k++)
        check_function(&functions[k], AJ_F64, number_of_points());
}

Test(maths, functions_are_right_everywhere_f32) {
    for (int k = 0; k < N_FUNCTIONS; k++)
        check_function(&functions[k], AJ_F32, number_of_points());
}

Test(maths, powers_are_right_everywhere) {
    static const double exponents[] = {-2, -1, -0.0, 0.5, 1, 2, 3, 4, 2.5, -33, INFINITY, -INFINITY, NAN};
    static const function power = {AJI_STEP_POW_SCALAR, "power", {1.35, 1.35}, power_of, NULL};
    for (size_t k = 0; k < sizeof exponents / sizeof exponents[0]; k++)
        for (int dtype = AJ_F64; dtype <= AJ_F32; dtype++) {
            power_exponent = exponents[k];
            check_function(&power, (aj_dtype)dtype, N_SPECIALS * N_SPECIALS + 3000);
        }
}

/* ---- every step, every dtype, every set ---- */

enum { LONGEST = 40 };

/* n entries of memory of their own, so that memory checkers see what lies beyond; whole numbers for integers, of any size. */
static void *make_operand(aj_dtype dtype, int n, int salt) {
    char *data = malloc((size_t)n * aj_dtype_size(dtype));
    state = 88172645463325252u + (uint64_t)salt;
    for (int i = 0; i < n; i++) {
        uint64_t bits = next_bits();
        if (aji_dtype_is_float(dtype))
            set(dtype, data, i, i % 5 == 4 ? specials[bits % N_SPECIALS] : draw(i + salt, dtype));
        else
            memcpy(data + (size_t)i * aj_dtype_size(dtype), &bits, aj_dtype_size(dtype));
    }
    return data;
}

static aj_dtype operand_dtype(const aji_step *step, int k) {
    return step->opcode == AJI_STEP_CAST ? step->from : step->opcode == AJI_STEP_WHERE && k == 0 ? AJ_U8 : step->dtype;
}

static aj_dtype result_dtype(const aji_step *step) {
    return step->opcode >= AJI_STEP_EQ && step->opcode <= AJI_STEP_GE ? AJ_U8 : step->dtype;
}

static bool same_entries(aj_dtype dtype, const void *a, const void *b, int n) {
    if (!aji_dtype_is_float(dtype))
        return memcmp(a, b, (size_t)n * aj_dtype_size(dtype)) == 0;
    for (int i = 0; i < n; i++)
        if (!same(get(dtype, a, i), get(dtype, b, i)))
            return false;
    return true;
}

typedef void check_kernel(const aji_step *step, aji_kernel *kernel, const char *set);

static void for_every_kernel(check_kernel *check) {
    int checked = 0;
    for (int opcode = 0; opcode < AJI_N_STEPS; opcode++)
        for (int dtype = AJ_F64; dtype <= AJ_U8; dtype++)
            for (int from = AJ_F64; from <= (opcode == AJI_STEP_CAST ? AJ_U8 : AJ_F64); from++)
                for (int s = 0; s < AJI_N_CPU_SETS; s++) {
                    aji_step step = {
                        .opcode = (aji_opcode)opcode, .dtype = (aj_dtype)dtype, .from = (aj_dtype)from, .imm = {3, 5}};
                    aji_kernel *kernel = aji_step_kernel_of((aji_cpu_set)s, &step);
                    if (!kernel)
                        continue;
                    check(&step, kernel, aji_cpu_set_name((aji_cpu_set)s));
                    checked++;
                }
    cr_assert(checked >= 2 * AJI_N_STEPS);
}

/* An entry's result is the one it has alone, wherever it stands in blocks of whatever length, and nothing is written behind the last. */
static void check_positions(const aji_step *step, aji_kernel *kernel, const char *set_name) {
    aj_dtype dtype = result_dtype(step);
    size_t size = aj_dtype_size(dtype);
    char alone[LONGEST * sizeof(double)], guard[sizeof(double)];
    memset(guard, 0xa5, sizeof(guard));
    for (int n = LONGEST; n >= 1; n = n > 18 ? 18 : n - 1) {
        void *operands[3], *y = malloc((size_t)n * size + sizeof(guard));
        for (int k = 0; k < 3; k++)
            operands[k] = make_operand(operand_dtype(step, k), n, k);
        if (n == LONGEST)
            for (int i = 0; i < n; i++) {
                const void *src[3];
                for (int k = 0; k < 3; k++)
                    src[k] = (char *)operands[k] + (size_t)i * aj_dtype_size(operand_dtype(step, k));
                kernel(1, alone + (size_t)i * size, src, step->imm);
            }
        memcpy((char *)y + (size_t)n * size, guard, sizeof(guard));
        kernel(n, y, (const void *const[]){operands[0], operands[1], operands[2]}, step->imm);
        cr_assert(same_entries(dtype, y, alone, n), "step %s of %s with %s: a block of %d differs from its entries alone",
                  aji_step_name(step->opcode), aj_dtype_name(step->dtype), set_name, n);
        cr_assert(memcmp((char *)y + (size_t)n * size, guard, sizeof(guard)) == 0,
                  "step %s of %s with %s writes behind %d entries", aji_step_name(step->opcode), aj_dtype_name(step->dtype),
                  set_name, n);
        for (int k = 0; k < 3; k++)
            free(operands[k]);
        free(y);
    }
}

Test(maths, results_do_not_depend_on_the_place_in_a_block) {
    for_every_kernel(check_positions);
}

/* The result may lie on any operand of its size, or on several that are the same. */
static void check_in_place(const aji_step *step, aji_kernel *kernel, const char *set_name) {
    aj_dtype dtype = result_dtype(step);
    size_t size = aj_dtype_size(dtype);
    int arity = aji_step_arity(step->opcode);
    for (int n = 1; n <= LONGEST; n += n < 18 ? 1 : 22)
        for (unsigned on = 1; on < 1u << arity; on++) {
            bool fits = true;
            const void *src[3];
            void *operands[3], *y = malloc((size_t)n * size), *shared = NULL;
            for (int k = 0; k < 3; k++) {
                operands[k] = make_operand(operand_dtype(step, k), n, k);
                src[k] = operands[k];
                if (!(on >> k & 1))
                    continue;
                fits = fits && aj_dtype_size(operand_dtype(step, k)) == size;
                shared = shared ? shared : operands[k];
                src[k] = shared;
            }
            if (fits) {
                kernel(n, y, src, step->imm);
                kernel(n, shared, src, step->imm);
                cr_assert(same_entries(dtype, y, shared, n), "step %s of %s with %s: %d entries over operands %x differ",
                          aji_step_name(step->opcode), aj_dtype_name(step->dtype), set_name, n, on);
            }
            for (int k = 0; k < 3; k++)
                free(operands[k]);
            free(y);
        }
}

Test(maths, results_may_lie_on_an_operand) {
    for_every_kernel(check_in_place);
}

/* ---- two steps in one ---- */

static const struct {
    aji_opcode both, first, second;
    int left, right;  /* what the second reads: an operand, or PRODUCT */
    bool scalar_last; /* the second adds imm[1] */
} pairs[] = {
#define PRODUCT 3
    {AJI_STEP_MUL_ADD, AJI_STEP_MUL, AJI_STEP_ADD, PRODUCT, 2, false},
    {AJI_STEP_MUL_SUB, AJI_STEP_MUL, AJI_STEP_SUB, PRODUCT, 2, false},
    {AJI_STEP_SUB_MUL, AJI_STEP_MUL, AJI_STEP_SUB, 2, PRODUCT, false},
    {AJI_STEP_SCALE_ADD, AJI_STEP_SCALE, AJI_STEP_ADD, PRODUCT, 1, false},
    {AJI_STEP_SCALE_SUB, AJI_STEP_SCALE, AJI_STEP_SUB, 1, PRODUCT, false},
    {AJI_STEP_AFFINE, AJI_STEP_SCALE, AJI_STEP_ADD_SCALAR, PRODUCT, PRODUCT, true},
};

static void check_pair(int pair, aj_dtype dtype, aji_cpu_set set_number) {
    enum { N = 256 };
    const double imm[3] = {dtype == AJ_U8 ? 201 : 1e9 + 0.7, dtype == AJ_U8 ? 90 : -7.3, 0};
    void *operands[4] = {make_operand(dtype, N, 11), make_operand(dtype, N, 12), make_operand(dtype, N, 13),
                         make_operand(dtype, N, 14)};
    void *one = make_operand(dtype, N, 15), *two = make_operand(dtype, N, 16);
    aji_step step = {.opcode = pairs[pair].first, .dtype = dtype};
    aji_step_kernel_of(set_number, &step)(N, operands[PRODUCT], (const void *const[]){operands[0], operands[1], NULL}, imm);
    step.opcode = pairs[pair].second;
    const void *const parts[3] = {operands[pairs[pair].left], operands[pairs[pair].right], NULL};
    aji_step_kernel_of(set_number, &step)(N, two, parts, pairs[pair].scalar_last ? &imm[1] : imm);
    step.opcode = pairs[pair].both;
    aji_step_kernel_of(set_number, &step)(N, one, (const void *const[]){operands[0], operands[1], operands[2]}, imm);
    cr_assert(same_entries(dtype, one, two, N), "%s of %s with %s differs from its two steps", aji_step_name(step.opcode),
              aj_dtype_name(dtype), aji_cpu_set_name(set_number));
    for (int k = 0; k < 4; k++)
        free(operands[k]);
    free(one);
    free(two);
}

Test(maths, two_steps_in_one_give_the_bits_of_two) {
    for (int pair = 0; pair < (int)(sizeof pairs / sizeof pairs[0]); pair++)
        for (int dtype = AJ_F64; dtype <= AJ_U8; dtype++)
            for (int s = 0; s < AJI_N_CPU_SETS; s++)
                if (aji_step_kernel_of((aji_cpu_set)s, &(aji_step){.opcode = AJI_STEP_ADD, .dtype = AJ_F64}))
                    check_pair(pair, (aj_dtype)dtype, (aji_cpu_set)s);
}

/* ---- the choice: ADJOIN_CPU is read at the first step, so each of these is a test, which has a process of its own ---- */

static void expect_choice(const char *wanted, aji_cpu_set highest) {
    cr_assert(setenv("ADJOIN_CPU", wanted, 1) == 0);
    aji_step step = {.opcode = AJI_STEP_ADD, .dtype = AJ_F64};
    int best = highest;
    while (!aji_step_kernel_of((aji_cpu_set)best, &step))
        best--;
    cr_assert(aji_step_kernel(&step) == aji_step_kernel_of((aji_cpu_set)best, &step), "ADJOIN_CPU=%s", wanted);
}

Test(maths, base_is_chosen) {
    expect_choice("base", AJI_CPU_BASE);
}
Test(maths, avx2_is_chosen_where_there_is_one) {
    expect_choice("avx2", AJI_CPU_AVX2);
}
Test(maths, avx512_is_chosen_where_there_is_one) {
    expect_choice("avx512", AJI_CPU_AVX512);
}
Test(maths, other_text_means_the_best) {
    expect_choice("AVX", AJI_CPU_AVX512);
}
