/* Comparisons: eq, ne, lt, le, gt, ge. Piecewise constant, so without a derivative rule: one macro makes them all. */
#include "autograd/autograd_internal.h"

#define COMPARISON(name_, opcode, sign)                                                                                          \
    static aj_tensor *name_##_sample(aj_tensor *const *x) {                                                                      \
        return aj_##name_(x[0], x[1]);                                                                                           \
    }                                                                                                                            \
    static const aji_sample name_##_samples[] = {                                                                                \
        {.n_in = 2, .in = {{.lo = -2, .hi = 2}, {.lo = -2, .hi = 2}}, .call = name_##_sample, .elementwise = true},              \
        {0},                                                                                                                     \
    };                                                                                                                           \
    const aji_op aji_op_##name_ = {                                                                                              \
        .name = #name_,                                                                                                          \
        .maths = "y = a " sign " b",                                                                                             \
        .flags = AJI_OP_ELEMENTWISE | AJI_OP_CONSTANT,                                                                           \
        .step = AJI_STEP_##opcode,                                                                                               \
        .infer = aji_infer_elementwise,                                                                                          \
        .forward = aji_forward_elementwise,                                                                                      \
        .samples = name_##_samples,                                                                                              \
    };                                                                                                                           \
    aj_tensor *aj_##name_(aj_tensor *a, aj_tensor *b) {                                                                          \
        return aji_apply2(&aji_op_##name_, NULL, a, b);                                                                          \
    }

COMPARISON(eq, EQ, "==")
COMPARISON(ne, NE, "!=")
COMPARISON(lt, LT, "<")
COMPARISON(le, LE, "<=")
COMPARISON(gt, GT, ">")
COMPARISON(ge, GE, ">=")
