/*
 * One loop per step and dtype, generated from steps.def. Each is compiled for any machine, and on x86-64 also for AVX2 and AVX-512, which
 * aji_step_kernel asks the machine for. All give the same numbers: nothing is reordered or contracted.
 */
#include "tensor/cpu.h"
#include "tensor/maths_erf.h"
#include "tensor/maths_float.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

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
#define HAVE_X86_SETS
#pragma GCC push_options
#pragma GCC target("avx2")
#define SET avx2
#include "tensor/cpu_steps_set.h"
#undef SET
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512vl,avx512bw,prefer-vector-width=512")
#define SET avx512
#include "tensor/cpu_steps_set.h"
#undef SET
#pragma GCC pop_options
#endif

/* The kernels for an instruction set; NULL: not for this machine. */
static const struct kernel_set *kernels_of(aji_cpu_set set) {
    switch (set) {
    case AJI_CPU_BASE:
        return &set_base;
#ifdef HAVE_X86_SETS
    case AJI_CPU_AVX2:
        return __builtin_cpu_supports("avx2") ? &set_avx2 : NULL;
    case AJI_CPU_AVX512:
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                       __builtin_cpu_supports("avx512bw")
                   ? &set_avx512
                   : NULL;
#endif
    default:
        return NULL;
    }
}

const char *aji_cpu_set_name(aji_cpu_set set) {
    static const char *const names[AJI_N_CPU_SETS] = {"base", "avx2", "avx512"};
    return names[set];
}

/* The best that the machine has and ADJOIN_CPU allows. */
static const struct kernel_set *choose_set(void) {
    const char *wanted = getenv("ADJOIN_CPU");
    int set = AJI_N_CPU_SETS - 1;
    for (int named = 0; wanted && named < AJI_N_CPU_SETS; named++)
        if (strcmp(wanted, aji_cpu_set_name((aji_cpu_set)named)) == 0)
            set = named;
    while (!kernels_of((aji_cpu_set)set))
        set--;
    return kernels_of((aji_cpu_set)set);
}

/* Chosen once per process: a fact of the machine, not a state. Threads that race write the same pointer. */
static const struct kernel_set *best_set(void) {
    static const struct kernel_set *_Atomic chosen;
    const struct kernel_set *set = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (!set) {
        set = choose_set();
        atomic_store_explicit(&chosen, set, memory_order_relaxed);
    }
    return set;
}

static aji_kernel *kernel_in(const struct kernel_set *set, const aji_step *step) {
    if (!set || !aji_dtype_valid(step->dtype))
        return NULL;
    if (step->opcode == AJI_STEP_CAST)
        return aji_dtype_valid(step->from) ? set->casts[step->from][step->dtype] : NULL;
    return set->steps[step->opcode][step->dtype];
}

aji_kernel *aji_step_kernel(const aji_step *step) {
    return kernel_in(best_set(), step);
}

aji_kernel *aji_step_kernel_of(aji_cpu_set set, const aji_step *step) {
    return kernel_in(kernels_of(set), step);
}

bool aji_step_supports(aji_opcode opcode, aj_dtype dtype) {
    return aji_step_kernel(&(aji_step){.opcode = opcode, .dtype = dtype, .from = AJ_F64}) != NULL;
}

int aji_step_arity(aji_opcode opcode) {
    static const unsigned char arity[AJI_N_STEPS] = {
#define AJI_UNARY(name, formula) 1,
#define AJI_FLOAT_UNARY(name, formula) 1,
#define AJI_FLOAT_TRIG(name, function) 1,
#define AJI_BINARY(name, formula) 2,
#define AJI_FLOAT_BINARY(name, formula) 2,
#define AJI_TERNARY(name, formula) 3,
#define AJI_COMPARE(name, formula) 2,
#define AJI_IMMEDIATE(name, formula) 1,
#define AJI_BINARY_IMMEDIATE(name, formula) 2,
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
#define AJI_FLOAT_TRIG(name, function) #name,
#define AJI_BINARY(name, formula) #name,
#define AJI_FLOAT_BINARY(name, formula) #name,
#define AJI_TERNARY(name, formula) #name,
#define AJI_COMPARE(name, formula) #name,
#define AJI_IMMEDIATE(name, formula) #name,
#define AJI_BINARY_IMMEDIATE(name, formula) #name,
#define AJI_FLOAT_IMMEDIATE(name, formula) #name,
#define AJI_SPECIAL(name) #name,
#include "tensor/steps.def"
    };
    return names[opcode];
}
