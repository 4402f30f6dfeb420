/*
 * What a generated kernel is: its structure, of which the source is made, and its arguments, which change from launch to launch. Two launches with one key
 * have one source.
 *
 * Arguments are words of 8 bytes: extents, strides, addresses, immediates. They are passed by value where a launch takes that many (AJI_CUDA_ARGUMENT), else
 * through device memory: the largest program has some 22 KiB of them.
 */
#ifndef AJI_CUDA_PLAN_H
#define AJI_CUDA_PLAN_H

#include "cuda/cuda_private.h"
#include "cuda/text.h"
#include "tensor/space_internal.h"

enum {
    AJI_PLAN_VALUES = AJI_MAX_INPUTS + AJI_MAX_STEPS,
    AJI_PLAN_OPERANDS = AJI_MAX_INPUTS + AJI_MAX_OUTPUTS + 2, /* the last two: results of a reduction */
    AJI_PLAN_WORDS = AJI_PLAN_OPERANDS * (AJ_MAX_NDIM + 1) + 2 * AJI_MAX_STEPS + 2 * AJ_MAX_NDIM * AJI_MAX_BOXES + 64,
    AJI_PLAN_KEY = 4096
};

/* Where an operand's entry is: the address itself; element i of the space; or the offset of a pattern of strides, which operands share. */
typedef enum aji_place { AJI_PLACE_UNUSED, AJI_PLACE_ONE, AJI_PLACE_DENSE, AJI_PLACE_PATTERN } aji_place;

/* What becomes of the entries */
typedef enum aji_kernel_kind {
    AJI_KERNEL_RUN,
    AJI_KERNEL_REDUCE,   /* `kind` */
    AJI_KERNEL_ARGUMENT, /* the place of the largest, or smallest (`kind`) */
    AJI_KERNEL_LINES,    /* cumsum, one thread for each line or part of one */
    AJI_KERNEL_SCAN      /* cumsum, one block for each line or part of one */
} aji_kernel_kind;

/* How the threads share out a space with reduced axes (layout.c). Entry (k, r) of kept and reduced axes is number
 * (k / columns * reduced + r) * columns + k % columns. A block's threads are 2^x_bits kept by 2^y_bits reduced ones; the reduced axes are cut in
 * `splits` parts of `chunk`, each for another block. */
typedef struct aji_layout {
    int64_t kept, reduced, columns, splits, chunk;
    int x_bits, y_bits;
    bool kept_first; /* neighbouring threads are neighbours along the kept axes */
} aji_layout;

typedef struct aji_plan {
    aji_kernel_kind kernel;
    const aji_program *program;
    int n_in, n_out;
    aji_space space;
    aji_operand operand[AJI_PLAN_OPERANDS]; /* inputs, outputs, results */
    aji_space_box box[AJI_MAX_BOXES];
    aj_dtype dtype[AJI_PLAN_VALUES], operand_dtype[AJI_PLAN_OPERANDS];
    aji_place place[AJI_PLAN_OPERANDS];
    int pattern[AJI_PLAN_OPERANDS];              /* of PATTERN: its number */
    int n_patterns, first_of[AJI_PLAN_OPERANDS]; /* an operand that has it */
    int64_t numel;
    bool wide; /* 64-bit indices */
    int width; /* elements that a thread moves at once; 1: or the space is more than one row */
    /* reductions and scans */
    aji_reduction kind;
    int reduced; /* value */
    aj_dtype accumulation;
    bool folds; /* the entries are the partial results of another kernel's splits */
    double neutral;
    aji_layout layout;
    void *partial; /* device memory for splits > 1, or to fold: number k * splits + split */
    int n_words;
    uint64_t word[AJI_PLAN_WORDS];
    int n_key;
    unsigned char key[AJI_PLAN_KEY];
} aji_plan;

/* The space of a program over shape, with results of reductions behind the outputs. Not merged yet. */
void aji_plan_open(aji_plan *p, aji_kernel_kind kernel, const aji_program *program, const aji_meta *shape,
                   const aji_value *const *in, const aji_value *const *out, int n_results, const aji_value *const *results);
/* After merging or reducing the space: the places, the key and the words. */
void aji_plan_close(aji_plan *p);
/* Enqueue its kernel. */
aj_status aji_plan_launch(aji_cuda *d, aji_plan *p, int64_t blocks);

/* The source (generate.c), and the names of the arguments in it: with text, declarations are added to it, without, values to the plan's words. */
aj_status aji_plan_write(aj_ctx *ctx, const void *plan, aji_text *source);
void aji_plan_fields(aji_plan *p, aji_text *text);
const char *aji_cuda_type(aj_dtype dtype);
const char *aji_cuda_tag(aj_dtype dtype);
/* What all sources begin with: functions for the steps that are set, by dtype, and casts by from and to. */
typedef struct aji_needed {
    bool step[AJI_N_STEPS][AJ_U8 + 1], cast[AJ_U8 + 1][AJ_U8 + 1];
} aji_needed;
void aji_write_formulas(aji_text *t, const aji_needed *needed);
bool aji_step_has_immediates(aji_opcode opcode);

/* ---- between the files that write kernels ---- */

void aji_write_entry(const aji_plan *p, aji_text *t);
const char *aji_write_result(const aji_plan *p, aji_text *t, int k, char text[48]);
void aji_write_includes(const aji_plan *p, aji_text *t);
void aji_write_accumulator(const aji_plan *p, aji_text *t);
void aji_write_blocks(aji_text *t);
void aji_write_reduce(const aji_plan *p, aji_text *t);
void aji_write_scan(const aji_plan *p, aji_text *t);
aji_opcode aji_reduction_step(aji_reduction kind);

/* ---- layouts (layout.c): of a space that aji_space_reduce has ordered ---- */
void aji_layout_reduce(const aji_cuda *d, aji_plan *p);
void aji_layout_fold(const aji_cuda *d, aji_plan *p); /* of partial results */
void aji_layout_scan(const aji_cuda *d, aji_plan *p); /* chooses the kernel, too */
/* The sums of the parts that a scan's layout has, as a reduction. */
void aji_layout_parts(const aji_cuda *d, aji_plan *p);
int64_t aji_layout_blocks(const aji_layout *l);
aj_status aji_layout_launch(aji_cuda *d, aji_plan *p); /* closes the plan */
/* Along the threads of a block that have one k: nothing, in shared memory, or by the whole block. */
typedef enum aji_join { AJI_JOIN_ALONE, AJI_JOIN_GROUP, AJI_JOIN_BLOCK } aji_join;
static inline aji_join aji_layout_join(const aji_layout *l) {
    return l->y_bits == 0 ? AJI_JOIN_ALONE : l->x_bits > 0 ? AJI_JOIN_GROUP : AJI_JOIN_BLOCK;
}

/* The dtype that a reduction accumulates in, and cumsum. */
static inline aj_dtype aji_cuda_accumulation(aj_dtype dtype) {
    return aji_dtype_is_float(dtype) ? AJ_F64 : AJ_I64;
}

#endif
