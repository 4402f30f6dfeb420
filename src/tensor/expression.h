/* Pending values from inside: what expression.c makes and evaluate.c computes. */
#ifndef AJI_EXPRESSION_H
#define AJI_EXPRESSION_H

#include "tensor/cpu.h"
#include "tensor/tensor_private.h"

typedef enum aji_pending {
    AJI_PENDING_STEP,  /* one step on src */
    AJI_PENDING_FULL,  /* imm[0] everywhere */
    AJI_PENDING_PLACED /* src[0] in a box, zeros around it */
} aji_pending;

/* Longer expressions are cut: an operand is evaluated at the call. In a program each PLACED input takes a step, a few more steps with inputs of
 * their own are computed in boxes, and a step that is evaluated later on becomes an input. */
enum { AJI_MOST_STEPS = 48, AJI_MOST_INPUTS = 16, AJI_MOST_IN_BOXES = 32, AJI_MOST_LEVELS = 8 };
_Static_assert(AJI_MOST_STEPS + AJI_MOST_INPUTS + AJI_MOST_IN_BOXES <= AJI_MAX_STEPS, "steps fit into a program");
_Static_assert(AJI_MOST_STEPS + AJI_MOST_INPUTS + 3 * AJI_MOST_IN_BOXES <= AJI_MAX_INPUTS, "inputs fit into a program");
_Static_assert(AJI_MOST_INPUTS <= AJI_MAX_BOXES, "boxes fit into a program");

/* Is v computed in the same pass as values of numel entries that read it? Else it is evaluated before, and an input. */
static inline bool aji_value_fuses(const aji_value *v, int64_t numel) {
    return !v->storage && v->expression.kind == AJI_PENDING_STEP && v->numel == numel;
}
/* Count v's steps and inputs, each once. */
void aji_expression_count(aji_value *v);
/* Do pairs of steps at once (combine.c). result: a value that is needed beside the outputs; its new number is returned. */
int aji_program_combine(aji_program *p, int result);
/* v has its storage now: let go of what it was made of. */
void aji_expression_settle(aji_value *v, aji_storage *storage);
void aji_expression_release(aji_value *v);

#endif
