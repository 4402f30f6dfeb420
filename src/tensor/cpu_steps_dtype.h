/*
 * The loops of all steps for one dtype. No include guard: included once per dtype and instruction set, with these macros, which it undefines:
 *   T, TAG     the element type, and the suffix of the functions' names
 *   W          the type that formulas compute in: T itself, or for integers a wider one in which no step overflows; going back to T wraps
 *   M(f), V(f) the maths function f for T, C's and the library's own; not defined for integers
 *   LOW, HIGH  the range of an integer T
 */
#ifdef M
#define FROM_FLOAT(x) ((T)(x))
#else
#define FROM_FLOAT(x) AJI_SATURATE(T, x, LOW, HIGH)
#endif

#define KERNEL(name) static void PASTE(name, TAG)(int n, void *dst, const void *const src[3], const double imm[2])

/* The result may lie on an operand, entry on entry: not restrict, but no iteration waits for another either. */
#ifdef __clang__
#define EACH(index) _Pragma("clang loop vectorize(assume_safety)") for (int index = 0; index < n; index++)
#else
#define EACH(index) _Pragma("GCC ivdep") for (int index = 0; index < n; index++)
#endif

#define AJI_UNARY(name, formula)                                                                                                 \
    KERNEL(name) {                                                                                                               \
        T *y = dst;                                                                                                              \
        const T *x = src[0];                                                                                                     \
        (void)imm;                                                                                                               \
        EACH(i) {                                                                                                                \
            const W a = x[i];                                                                                                    \
            y[i] = (formula);                                                                                                    \
        }                                                                                                                        \
    }

#define AJI_IMMEDIATE(name, formula)                                                                                             \
    KERNEL(name) {                                                                                                               \
        T *y = dst;                                                                                                              \
        const T *x = src[0];                                                                                                     \
        const T imm0 = FROM_FLOAT(imm[0]), imm1 = FROM_FLOAT(imm[1]);                                                            \
        (void)imm1;                                                                                                              \
        EACH(i) {                                                                                                                \
            const W a = x[i];                                                                                                    \
            y[i] = (formula);                                                                                                    \
        }                                                                                                                        \
    }

#define AJI_BINARY_IMMEDIATE(name, formula)                                                                                      \
    KERNEL(name) {                                                                                                               \
        T *y = dst;                                                                                                              \
        const T *x0 = src[0], *x1 = src[1];                                                                                      \
        const T imm0 = FROM_FLOAT(imm[0]);                                                                                       \
        EACH(i) {                                                                                                                \
            const W a = x0[i], b = x1[i];                                                                                        \
            y[i] = (formula);                                                                                                    \
        }                                                                                                                        \
    }

#define TWO_OPERANDS(name, RESULT, formula)                                                                                      \
    KERNEL(name) {                                                                                                               \
        RESULT *y = dst;                                                                                                         \
        const T *x0 = src[0], *x1 = src[1];                                                                                      \
        (void)imm;                                                                                                               \
        EACH(i) {                                                                                                                \
            const W a = x0[i], b = x1[i];                                                                                        \
            y[i] = (formula);                                                                                                    \
        }                                                                                                                        \
    }
#define AJI_BINARY(name, formula) TWO_OPERANDS(name, T, formula)
#define AJI_COMPARE(name, formula) TWO_OPERANDS(name, uint8_t, formula)

#define AJI_TERNARY(name, formula)                                                                                               \
    KERNEL(name) {                                                                                                               \
        T *y = dst;                                                                                                              \
        const T *x0 = src[0], *x1 = src[1], *x2 = src[2];                                                                        \
        (void)imm;                                                                                                               \
        EACH(i) {                                                                                                                \
            const W a = x0[i], b = x1[i], c = x2[i];                                                                             \
            y[i] = (formula);                                                                                                    \
        }                                                                                                                        \
    }

#ifdef M
#define AJI_FLOAT_UNARY(name, formula) AJI_UNARY(name, formula)
#define AJI_FLOAT_BINARY(name, formula) AJI_BINARY(name, formula)
/* One number out of range, for which C's function of doubles is called, takes the block's vectors away, but changes no other number's result. */
#define AJI_FLOAT_TRIG(name, function)                                                                                           \
    KERNEL(name) {                                                                                                               \
        T *y = dst;                                                                                                              \
        const T *x = src[0];                                                                                                     \
        int large = 0;                                                                                                           \
        (void)imm;                                                                                                               \
        for (int i = 0; i < n; i++)                                                                                              \
            large |= !(M(fabs)(x[i]) <= (T)AJI_TRIG_MAX);                                                                        \
        if (!large)                                                                                                              \
            EACH(i) {                                                                                                            \
                y[i] = V(function)(x[i]);                                                                                        \
            }                                                                                                                    \
        else                                                                                                                     \
            for (int i = 0; i < n; i++)                                                                                          \
                y[i] = M(fabs)(x[i]) <= (T)AJI_TRIG_MAX ? V(function)(x[i]) : (T)function(x[i]);                                 \
    }
#define AJI_FLOAT_IMMEDIATE(name, formula) AJI_IMMEDIATE(name, formula)
#endif

#include "tensor/steps.def"

KERNEL(WHERE) {
    T *y = dst;
    const uint8_t *condition = src[0];
    const T *x1 = src[1], *x2 = src[2];
    (void)imm;
    EACH(i) {
        const T a = x1[i], b = x2[i]; /* read either way, so that no load depends on the condition */
        y[i] = condition[i] ? a : b;
    }
}

#define CAST(FROM, name, convert)                                                                                                \
    KERNEL(name) {                                                                                                               \
        T *y = dst;                                                                                                              \
        const FROM *x = src[0];                                                                                                  \
        (void)imm;                                                                                                               \
        EACH(i) {                                                                                                                \
            y[i] = convert(x[i]);                                                                                                \
        }                                                                                                                        \
    }
CAST(double, CAST_f64, FROM_FLOAT)
CAST(float, CAST_f32, FROM_FLOAT)
CAST(int64_t, CAST_i64, (T))
CAST(int32_t, CAST_i32, (T))
CAST(uint8_t, CAST_u8, (T))

#undef CAST
#undef TWO_OPERANDS
#undef EACH
#undef KERNEL
#undef FROM_FLOAT
#undef T
#undef TAG
#undef W
#undef M
#undef V
#undef LOW
#undef HIGH
