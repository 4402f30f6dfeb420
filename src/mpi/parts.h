/*
 * Parts of an axis: what the collectives that concatenate, divide and re-partition along an axis have in common.
 */
#ifndef AJI_PARTS_H
#define AJI_PARTS_H

#include "mpi/reductions.h"

/* How an axis is divided over the ranks: length[k] entries belong to rank k, first[k] is the number of its first one. Counted, since the node of an
 * operation and that of its adjoint know the same parts: what the forward has exchanged is never exchanged again. */
typedef struct aji_parts {
    int refs, size;
    int64_t *length, *first; /* size, size + 1 entries; first[size]: the whole */
} aji_parts;
aji_parts *aji_parts_new(aj_ctx *ctx, int size);
aji_parts *aji_parts_retain(aji_parts *parts);
void aji_parts_release(aj_ctx *ctx, aji_parts *parts); /* NULL is fine */
void aji_parts_close(aji_parts *parts);                /* lengths are set: works out first */

/* The attr of these operations. parts NULL: to be exchanged; the adjoint's attr comes with them. */
typedef struct aji_axis_attr {
    int axis, root;
    int64_t numelem; /* what this rank gets along the axis */
    aji_parts *parts;
    aji_rank_reduction reduction;
} aji_axis_attr;
void aji_axis_attr_free(aj_ctx *ctx, void *attr);

/* What each rank tells the others of its operand and its arguments, as given. */
typedef struct aji_told {
    int64_t call; /* which call this is about: ranks in different ones may meet here */
    int64_t dtype, ndim, axis, other_axis, root, numelem, shape[AJ_MAX_NDIM];
} aji_told;
/* Exchange it: one entry for each rank. NULL raised. */
aji_told *aji_tell(aji_call *c, const aji_told *arguments);
void aji_told_free(const aji_call *c, aji_told *told); /* NULL is fine */

/* The checks of what was told. All ranks see the same, so errors are alike on all of them. */
/* The same root and dtype everywhere. */
aj_status aji_check_told_root(const aji_call *c, const aji_told *told);
/* The same axis everywhere, counted from either end of ndim axes: *axis, normalised. other: of other_axis. */
aj_status aji_check_told_axis(const aji_call *c, const aji_told *told, int ndim, bool other, int *axis);
/* All operands alike: root, dtype, number of axes, the axis (and the other one, unless NULL), and the extents, along the axis only if lengths_alike. */
aj_status aji_check_told(const aji_call *c, const aji_told *told, bool lengths_alike, int *axis, int *other_axis);
/* The numelems as parts: each >= 0, together `whole`. */
aj_status aji_parts_from_numelems(const aji_call *c, const aji_told *told, aji_parts *parts, int axis, int64_t whole);
/* A result that one of the ranks will have can be addressed. */
aj_status aji_check_result(const aji_call *c, const aji_meta *meta);
/* gather, allgather: make the attr's parts from the operands' lengths along the axis, unless they are known. */
aj_status aji_exchange_lengths(aji_call *c);

/* Blocks: parts of a value along an axis, one behind the other, each with its axes in order. Rank k's is this one. */
typedef struct aji_span {
    int64_t at, length;
} aji_span;
typedef aji_span aji_span_of(const aji_call *c, int k);
/* The operand as blocks for MPI, on device `where`: its own memory, where they lie there already. NULL raised. */
aji_value *aji_pack_blocks(const aji_call *c, int axis, aji_span_of *span, aj_device where);
/* Sets c->y[0]: made of blocks, given by a value like the result, in host memory or on the call's device. */
aj_status aji_unpack_blocks(aji_call *c, aji_value *blocks, int axis, aji_span_of *span);
int64_t aji_row(const aji_meta *meta, int axis); /* entries for one index along the axis */

/* What MPI gets: the operand and the result, contiguous, in host memory or on the device. One of them is blocks, of counts[k] entries for rank k. */
typedef struct aji_packed {
    aji_value *x, *y;
    int64_t *counts;
    const void *in; /* x's and y's memory; in NULL without x */
    void *out;
} aji_packed;
typedef aj_status aji_collective(aji_call *c, const aji_packed *p);
/* The forward of these operations: packs, makes the collective, and sets c->y[0]. The results of a join are blocks, and so are the operands of a division.
 * with_x false: this rank's operand does not count. where: the device on which MPI, or the collective, reads and writes: the call's or the CPU. */
aj_status aji_join_run(aji_call *c, aji_collective *collective);
aj_status aji_divide_run(aji_call *c, bool with_x, aj_device where, aji_collective *collective);

/* The adjoints, with known parts. */
aj_tensor *aji_gather_parts(aj_tensor *x, int axis, int root, aji_parts *parts, aj_comm *comm);
aj_tensor *aji_scatter_parts(aj_tensor *x, int axis, int root, aji_parts *parts, aj_comm *comm);
aj_tensor *aji_allgather_parts(aj_tensor *x, int axis, aji_parts *parts, aj_comm *comm);
aj_tensor *aji_reduce_scatter_parts(aj_tensor *x, int axis, aji_parts *parts, aj_comm *comm);

#endif
