/*
 * Reductions as the collectives see them: which there are, what their forward delivers besides the result, and what share of a gradient this rank gets.
 */
#ifndef AJI_REDUCTIONS_H
#define AJI_REDUCTIONS_H

#include "mpi/records.h"
#include "mpi/user_op.h"

/* In the attr of an operation that reduces. */
typedef struct aji_rank_reduction {
    MPI_Op op;
    aji_user_op *user;             /* of a registered one, on a floating operand: found by the check, held */
    aji_value *kept[AJI_MAX_KEPT]; /* what the adjoint needs besides, where the result is */
} aji_rank_reduction;
void aji_reduction_release(aj_ctx *ctx, aji_rank_reduction *r);

/* Does its adjoint need operands and results? Then the operation has them saved. */
bool aji_reduction_needs_operand(MPI_Op op);
/* Is this reduction there for the operand's dtype, with a derivative where one is needed? Alike on all ranks. The result is like the operand. */
aj_status aji_check_reduction(aji_call *c, aji_rank_reduction *r);

/* Where MPI reduces the operand: on its device where MPI is given that and the operation is one of MPI's own; else on the CPU. */
aj_device aji_reduction_device(const aji_call *c, const aji_rank_reduction *r);
/* Does it run on records? Then: open them for an operand; memory for what is kept, like y; reduce; take the result. Of nothing recorded nothing is kept. */
bool aji_by_records(const aji_call *c, const aji_rank_reduction *r);
aj_status aji_reduction_open(const aji_call *c, const aji_rank_reduction *r, aji_records *records, int64_t n, const aji_value *x);
aj_status aji_reduction_keep(const aji_call *c, aji_rank_reduction *r, const aji_value *y);
void aji_reduction_take(const aji_rank_reduction *r, const aji_records *records, aji_value *y);

/* In a vjp. What has to be where the gradient is needed, besides it: tensors like the result, zeros where this rank has none. Returns their number. */
int aji_companions(const aji_call *c, const aji_rank_reduction *r, aj_tensor **with);
/* The gradient of this rank's operand, from that of the result and its companions, both with the operand's shape. Some reductions communicate here. */
aj_tensor *aji_share(const aji_call *c, const aji_rank_reduction *r, aj_tensor *g, aj_tensor *const *with);

/* The attr of allreduce and reduce. */
typedef struct aji_reduction_attr {
    aji_rank_reduction reduction;
    int root;
} aji_reduction_attr;
void aji_reduction_attr_free(aj_ctx *ctx, void *attr);

/* ops/scan.c: y_r = the reduction of x over the ranks before this one, or after it, in rank order; zeros where there is none. MPI_PROD, or a registered operation. */
aj_tensor *aji_prefix(aj_tensor *x, MPI_Op op, aji_user_op *user, bool reversed, aj_comm *comm);
bool aji_is_first(const aj_comm *comm, bool reversed); /* there is no such rank */
/* ops/weigh.c: g times factor; 0 where g is 0, whatever the factor is. */
aj_tensor *aji_weigh(aj_tensor *g, aj_tensor *factor);
/* ops/affine_scan.c: h = c_k + m_k h over the ranks k before this one, or after it, from h = 0. */
extern const aji_operator aji_operator_compose;
aj_tensor *aji_affine_scan(aj_tensor *c, aj_tensor *m, bool reversed, aj_comm *comm);

#endif
