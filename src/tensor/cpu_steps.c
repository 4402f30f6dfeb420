/*
 * One loop per step and dtype, generated from steps.def. Each is compiled twice, for any machine and on x86-64 also for AVX2, which
 * aji_step_kernel asks the machine for. Both give the same numbers: nothing is reordered or contracted.
 */
#include "tensor/cpu.h"

#include <math.h>

struct kernel_set {
    aji_kernel *steps[AJI_N_STEPS][AJ_U8 + 1]; /* of a step, for a dtype */
    aji_kernel *casts[AJ_U8 + 1][AJ_U8 + 1];   /* from, to */
};

__extension__ typedef __int128 wide;

#define PASTE_EXPANDED(a, b) a##_##b
#define PASTE(a, b) PASTE_EXPANDED(a, b)

#define SET base
#include "tensor/cpu_steps_set.h"
#undef SET

#if defined(__x86_64__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC target("avx2")
#define SET avx2
#include "tensor/cpu_steps_set.h"
#undef SET
#pragma GCC pop_options

static const struct kernel_set *best_set(void) {
    return __builtin_cpu_supports("avx2") ? &set_avx2 : &set_base;
}
#else
static const struct kernel_set *best_set(void) {
    return &set_base;
}
#endif

aji_kernel *aji_step_kernel(const aji_step *step) {
    if (!aji_dtype_valid(step->dtype))
        return NULL;
    if (step->opcode == AJI_STEP_CAST)
        return aji_dtype_valid(step->from) ? best_set()->casts[step->from][step->dtype] : NULL;
    return best_set()->steps[step->opcode][step->dtype];
}

bool aji_step_supports(aji_opcode opcode, aj_dtype dtype) {
    return aji_step_kernel(&(aji_step){.opcode = opcode, .dtype = dtype, .from = AJ_F64}) != NULL;
}

int aji_step_arity(aji_opcode opcode) {
    static const unsigned char arity[AJI_N_STEPS] = {
#define AJI_UNARY(name, formula) 1,
#define AJI_FLOAT_UNARY(name, formula) 1,
#define AJI_BINARY(name, formula) 2,
#define AJI_FLOAT_BINARY(name, formula) 2,
#define AJI_COMPARE(name, formula) 2,
#define AJI_IMMEDIATE(name, formula) 1,
#define AJI_FLOAT_IMMEDIATE(name, formula) 1,
#include "tensor/steps.def"
        [AJI_STEP_CAST] = 1,
        [AJI_STEP_WHERE] = 3,
        [AJI_STEP_PLACE] = 1,
    };
    return arity[opcode];
}

const char *aji_step_name(aji_opcode opcode) {
    static const char *const names[AJI_N_STEPS] = {
#define AJI_UNARY(name, formula) #name,
#define AJI_FLOAT_UNARY(name, formula) #name,
#define AJI_BINARY(name, formula) #name,
#define AJI_FLOAT_BINARY(name, formula) #name,
#define AJI_COMPARE(name, formula) #name,
#define AJI_IMMEDIATE(name, formula) #name,
#define AJI_FLOAT_IMMEDIATE(name, formula) #name,
#define AJI_SPECIAL(name) #name,
#include "tensor/steps.def"
    };
    return names[opcode];
}
