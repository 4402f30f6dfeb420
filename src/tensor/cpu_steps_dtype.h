/*
 * The loops of all steps for one dtype. No include guard: included once per dtype and instruction set, with these macros, which it undefines:
 *   T, TAG     the element type, and the suffix of the functions' names
 *   W          the type that formulas compute in: T itself, or for integers a wider one in which no step overflows; going back to T wraps
 *   M(f)       the maths function f for T; not defined for integers
 *   LOW, HIGH  the range of an integer T
 */
#ifdef M
#define FROM_FLOAT(x) ((T)(x))
#else
#define FROM_FLOAT(x) AJI_SATURATE(T, x, LOW, HIGH)
#endif

#define KERNEL(name) static void PASTE(name, TAG)(int n, void *restrict dst, const void *const src[3], const double imm[2])

#define AJI_UNARY(name, formula)                                                                                                 \
    KERNEL(name) {                                                                                                               \
        T *restrict y = dst;                                                                                                     \
        const T *restrict x = src[0];                                                                                            \
        (void)imm;                                                                                                               \
        for (int i = 0; i < n; i++) {                                                                                            \
            const W a = x[i];                                                                                                    \
            y[i] = (formula);                                                                                                    \
        }                                                                                                                        \
    }

#define AJI_IMMEDIATE(name, formula)                                                                                             \
    KERNEL(name) {                                                                                                               \
        T *restrict y = dst;                                                                                                     \
        const T *restrict x = src[0];                                                                                            \
        const T imm0 = FROM_FLOAT(imm[0]), imm1 = FROM_FLOAT(imm[1]);                                                            \
        (void)imm1;                                                                                                              \
        for (int i = 0; i < n; i++) {                                                                                            \
            const W a = x[i];                                                                                                    \
            y[i] = (formula);                                                                                                    \
        }                                                                                                                        \
    }

#define TWO_OPERANDS(name, RESULT, formula)                                                                                      \
    KERNEL(name) {                                                                                                               \
        RESULT *restrict y = dst;                                                                                                \
        const T *restrict x0 = src[0], *restrict x1 = src[1];                                                                    \
        (void)imm;                                                                                                               \
        for (int i = 0; i < n; i++) {                                                                                            \
            const W a = x0[i], b = x1[i];                                                                                        \
            y[i] = (formula);                                                                                                    \
        }                                                                                                                        \
    }
#define AJI_BINARY(name, formula) TWO_OPERANDS(name, T, formula)
#define AJI_COMPARE(name, formula) TWO_OPERANDS(name, uint8_t, formula)

#ifdef M
#define AJI_FLOAT_UNARY(name, formula) AJI_UNARY(name, formula)
#define AJI_FLOAT_BINARY(name, formula) AJI_BINARY(name, formula)
#define AJI_FLOAT_IMMEDIATE(name, formula) AJI_IMMEDIATE(name, formula)
#endif

#include "tensor/steps.def"

KERNEL(WHERE) {
    T *restrict y = dst;
    const uint8_t *restrict condition = src[0];
    const T *restrict a = src[1], *restrict b = src[2];
    (void)imm;
    for (int i = 0; i < n; i++)
        y[i] = condition[i] ? a[i] : b[i];
}

#define CAST(FROM, name, convert)                                                                                                \
    KERNEL(name) {                                                                                                               \
        T *restrict y = dst;                                                                                                     \
        const FROM *restrict x = src[0];                                                                                         \
        (void)imm;                                                                                                               \
        for (int i = 0; i < n; i++)                                                                                              \
            y[i] = convert(x[i]);                                                                                                \
    }
CAST(double, CAST_f64, FROM_FLOAT)
CAST(float, CAST_f32, FROM_FLOAT)
CAST(int64_t, CAST_i64, (T))
CAST(int32_t, CAST_i32, (T))
CAST(uint8_t, CAST_u8, (T))

#undef CAST
#undef TWO_OPERANDS
#undef KERNEL
#undef FROM_FLOAT
#undef T
#undef TAG
#undef W
#undef M
#undef LOW
#undef HIGH
