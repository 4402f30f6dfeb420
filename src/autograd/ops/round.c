/* Whole numbers and signs: floor, ceil, round, sign. Piecewise constant, so without a derivative rule: one macro makes them all. */
#include "autograd/autograd_internal.h"

#define ROUNDING(name_, opcode, formula, lo_, hi_)                                                                               \
    static aj_tensor *name_##_sample(aj_tensor *const *x) {                                                                      \
        return aj_##name_(x[0]);                                                                                                 \
    }                                                                                                                            \
    static const aji_sample name_##_samples[] = {                                                                                \
        {.n_in = 1, .in = {{.lo = lo_, .hi = hi_}}, .call = name_##_sample, .elementwise = true},                                \
        {0},                                                                                                                     \
    };                                                                                                                           \
    const aji_op aji_op_##name_ = {                                                                                              \
        .name = #name_,                                                                                                          \
        .maths = formula,                                                                                                        \
        .flags = AJI_OP_ELEMENTWISE | AJI_OP_CONSTANT,                                                                           \
        .step = AJI_STEP_##opcode,                                                                                               \
        .infer = aji_infer_elementwise,                                                                                          \
        .forward = aji_forward_elementwise,                                                                                      \
        .samples = name_##_samples,                                                                                              \
    };                                                                                                                           \
    aj_tensor *aj_##name_(aj_tensor *x) {                                                                                        \
        return aji_apply1(&aji_op_##name_, NULL, x);                                                                             \
    }

ROUNDING(floor, FLOOR, "y = largest whole number <= x", 1.1, 1.9)
ROUNDING(ceil, CEIL, "y = smallest whole number >= x", 1.1, 1.9)
ROUNDING(round, ROUND, "y = nearest whole number, ties to even", 0.6, 1.4)
ROUNDING(sign, SIGN, "y = sign of x", 0.1, 2)
