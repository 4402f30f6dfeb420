/*
 * Communication: MPI operations as nodes of the DAG. Names and arguments follow MPI: tensor first, communicator last.
 *
 * The convention: aj_backward differentiates the SUM over ranks of what each rank passes. S = number of ranks, r = this rank, g_r = the
 * incoming gradient on rank r, gx_r = the gradient that rank r's input gets.
 *
 * Every floating-point communication inside a recording is a node on every participating rank, whether or not its input is active.
 * Errors of all calls: AJ_ERR_ARG (root, peer, tag or axis out of range, NULL), AJ_ERR_DTYPE, AJ_ERR_CONTEXT (tensor and communicator of two contexts),
 * AJ_ERR_STATE (consumed tensor, spent request), AJ_ERR_UNSUPPORTED, AJ_ERR_MEMORY, AJ_ERR_MPI with MPI's own text, AJ_ERR_PEER (a message has not come
 * within the time limit). A rank in error does not communicate; if the others go on to, it ends the job: docs/errors.md.
 * In checked mode (ADJOIN_CHECK=1, or aj_ctx_opts.checked) the ranks compare each collective before they make it, messages say what they are, and an error
 * of one rank is returned on all that are in a call on the communicator or enter one: AJ_ERR_PEER, with its message, on those that have none of their own.
 * See docs/checked-mode.md.
 * "Collective: comm" means that all ranks of comm make the call, in the same order among their other ones on comm. Results belong to the current scope.
 * Threads: one per context.
 */
#ifndef ADJOIN_COMM_H
#define ADJOIN_COMM_H

#include <mpi.h>

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A communicator of the library on the processes of comm. It works on duplicates, cached per context and communicator and counted, so comm
 * may be freed at any time. MPI_COMM_NULL gives a communicator of size 0, on which every call returns its input unchanged or zeros.
 * The ranks agree on its mode: checked if one of them is; the longest of their time limits.
 * Errors: AJ_ERR_ARG (an intercommunicator), AJ_ERR_STATE (MPI not initialised, or finalised), AJ_ERR_MEMORY, AJ_ERR_MPI, AJ_ERR_PEER (another rank failed
 * in it). Made also by a rank whose context is in error. With a time limit the job ends when the ranks have not all come after it and the grace time.
 * Collective: comm. Since: 0.1.
 */
AJ_API aj_comm *aj_comm_create(aj_ctx *ctx, MPI_Comm comm);
/* A communicator of the ranks that pass the same color, in the order of their keys (on ties, of their ranks). MPI_UNDEFINED: one of size 0. It is
 * destroyed with aj_comm_destroy. Errors: AJ_ERR_ARG (color), AJ_ERR_PEER (checked: the others make another call, or do not come in time), and those of
 * aj_comm_create. Collective: comm. Since: 0.1. */
AJ_API aj_comm *aj_comm_split(aj_comm *comm, int color, int key);
/* Release a communicator; *comm becomes NULL. Nodes that use it keep its duplicates until they go. Waits for all ranks. Errors, in the context:
 * AJ_ERR_STATE (a request that was never waited for; this rank sent a message that nobody received), AJ_ERR_PEER (another rank did). An error that not all
 * ranks have: unchecked it ends the job with the message; checked the others get it, and the job ends only if they do not come to destroy the communicator.
 * Collective: comm. Since: 0.1. */
AJ_API void aj_comm_destroy(aj_comm **comm);
/* This process' rank; MPI_PROC_NULL in one of size 0; -1 for NULL. Collective: no. Since: 0.1. */
AJ_API int aj_comm_rank(const aj_comm *comm);
/* The number of ranks; 0 for NULL. Collective: no. Since: 0.1. */
AJ_API int aj_comm_size(const aj_comm *comm);
/* The library's duplicate, for custom operations; MPI_COMM_NULL for NULL. Collective: no. Since: 0.1. */
AJ_API MPI_Comm aj_comm_mpi(const aj_comm *comm);
/* The context it was created in; NULL for NULL. Collective: no. Since: 0.1. */
AJ_API aj_ctx *aj_comm_ctx(const aj_comm *comm);

/*
 * Agree on errors: every rank returns the status of the lowest rank that is in error, and has its message in the context (with this rank's own behind
 * it, if it is in error too); a rank that was told another one's error counts only if no rank has one of its own. AJ_OK on all if none is in error. Leave a
 * loop, or decide anything on errors, only on this. Then messages still under way on the communicator are received and dropped, and open requests given up;
 * after aj_ctx_clear_error on all ranks the program can go on.
 * Unchecked, a rank in error that waits here for longer than the grace time, because the others wait elsewhere, ends the job. Checked, the others are called
 * back from where they wait; if they do not come, every later call returns the error.
 * Errors: AJ_ERR_ARG (NULL), AJ_ERR_PEER (checked: the others do not come in time), and whatever is agreed on. Collective: comm. Since: 0.1.
 */
AJ_API aj_status aj_agree(aj_comm *comm) AJ_MUST_CHECK;

/*
 * Reductions take MPI_Op itself, in allreduce, reduce, reduce_scatter, scan and exscan. Integer dtypes: all of MPI's predefined ones. Floating dtypes, with exact
 * gradients:
 *   MPI_SUM
 *   MPI_MAX, MPI_MIN: the gradient goes, entry by entry, to the one rank that holds the extremum: on ties the lowest; NaN wins, and its rank takes the gradient
 *   MPI_PROD: gx_k = g times the product of the others; exact with zeros, and right where the product over- or underflows and that of the others does not
 *   registered operations: see aj_op_register
 * Of an MPI_Op that is not registered only values can be had: of integers, and of floats outside a recording. Anything else is AJ_ERR_UNSUPPORTED before any
 * communication, alike on all ranks. "Share": what the above makes of g, or of the sum of the g_r.
 */
/*
 * The derivative of a user-defined operation a op b, which is associative and works entry by entry: gx from operands of one shape and dtype, in operations of
 * ops.h, so that it can be differentiated again. Of an operation that commutes: x one operand, y the result, g the gradient of y: gx = g dy/dx; prefix and suffix
 * are NULL. Of one that does not: y = prefix op x op suffix; prefix is NULL where nothing comes before x, suffix where nothing follows; y is NULL.
 * It must be linear in g, and may return g itself. NULL with an error raised (aj_raise) fails the call. user: as registered. Collective: no.
 */
typedef aj_tensor *(*aj_op_vjp)(aj_ctx *ctx, aj_tensor *prefix, aj_tensor *x, aj_tensor *suffix, aj_tensor *y, aj_tensor *g,
                                void *user);
/*
 * Give op, made by MPI_Op_create, its derivative in this context; name, which is copied, is for messages, and in checked mode what the ranks compare. commutes:
 * also which form vjp has; op may be registered as not commuting only if MPI was told so. Register alike on all ranks. Once more: the new derivative takes the
 * place of the old one, which recordings that use it keep. op must stay valid while the context uses it; MPI passes it entries of one datatype (MPI_DOUBLE or
 * MPI_FLOAT), any number at a time.
 * Adjoint: of an operation that commutes, one collective, like that of MPI_PROD; of another, and two exscans. Of scan and exscan: one exscan.
 * Errors: AJ_ERR_ARG (NULL, a predefined operation, commutes), AJ_ERR_STATE (MPI not initialised, or finalised), AJ_ERR_MEMORY. Collective: no. Since: 0.1.
 */
AJ_API aj_status aj_op_register(aj_ctx *ctx, MPI_Op op, const char *name, bool commutes, aj_op_vjp vjp, void *user);

/* y = x, x being ONE variable that every rank holds (equal on all, to the bit: compared in checked mode); gx = sum_r g_r on every rank: the whole gradient.
 * No communication but in checked mode. Adjoint: one allreduce.
 * The checks of autograd.h move each rank's x alone, which one variable forbids: give them f(aj_bcast(x, 0, comm)) instead.
 * Collective: comm. Differentiable: x. Since: 0.1. */
AJ_API aj_tensor *aj_shared(aj_tensor *x, aj_comm *comm);
/* y_r = the reduction of x_k over k; gx_k = sum_r g_r, or its share of it. x: the same shape and dtype on all ranks. Adjoint: one allreduce.
 * Collective: comm. Differentiable: x. Since: 0.1. */
AJ_API aj_tensor *aj_allreduce(aj_tensor *x, MPI_Op op, aj_comm *comm);
/* y_r = x_root; gx_root = sum_r g_r, zero elsewhere. x: the same shape and dtype on all ranks. Adjoint: one reduce. Collective: comm.
 * Differentiable: x. The _inplace form consumes x and may reuse its memory. Since: 0.1. */
AJ_API aj_tensor *aj_bcast(aj_tensor *x, int root, aj_comm *comm);
AJ_API aj_tensor *aj_bcast_inplace(aj_tensor *x, int root, aj_comm *comm);
/* *value = max_k x_k (min_k), entry by entry, and *rank = the lowest rank that holds it (i64); gx = sum_r g_r there, 0 elsewhere. x: the same
 * shape and dtype on all ranks. value and rank may be NULL; they are owned by the current scope, and NULL on error. Adjoint: one allreduce. Collective: comm.
 * Differentiable: x, of a floating dtype, through value. Since: 0.1. */
AJ_API aj_status aj_maxloc(aj_tensor *x, aj_comm *comm, aj_tensor **value, aj_tensor **rank);
AJ_API aj_status aj_minloc(aj_tensor *x, aj_comm *comm, aj_tensor **value, aj_tensor **rank);
/* y_root = the reduction of x_k over k, zeros elsewhere; gx_k = g_root, or its share of it. Adjoint: one bcast. Collective: comm. Differentiable: x.
 * The _inplace form consumes x and may reuse its memory. Since: 0.1. */
AJ_API aj_tensor *aj_reduce(aj_tensor *x, MPI_Op op, int root, aj_comm *comm);
AJ_API aj_tensor *aj_reduce_inplace(aj_tensor *x, MPI_Op op, int root, aj_comm *comm);

/*
 * Along an axis (negative ones count from the end). Parts may have any lengths, 0 too; numelem is what THIS rank gets. The forward first exchanges lengths,
 * shapes and dtypes, so that a mismatch is the same AJ_ERR_SHAPE, AJ_ERR_DTYPE or AJ_ERR_ARG on all ranks; the adjoint needs no exchange.
 */
/* y_root = the x_k one after the other along axis, in rank order; no entries along axis elsewhere. gx_k = part k of g_root. Adjoint: one scatter.
 * Collective: comm. Differentiable: x. Since: 0.1. */
AJ_API aj_tensor *aj_gather(aj_tensor *x, int axis, int root, aj_comm *comm);
/* The same on every rank; gx_k = sum_r part k of g_r. Adjoint: one reduce_scatter. Collective: comm. Differentiable: x. Since: 0.1. */
AJ_API aj_tensor *aj_allgather(aj_tensor *x, int axis, aj_comm *comm);
/* y_k = part k of x_root, numelem entries along axis; gx_root = the g_k one after the other, zero elsewhere. x on other ranks is a placeholder of any
 * shape and the root's dtype. The numelems sum up to the root's extent. Adjoint: one gather. Collective: comm. Differentiable: x. Since: 0.1. */
AJ_API aj_tensor *aj_scatter(aj_tensor *x, int axis, int64_t numelem, int root, aj_comm *comm);
/* y_r = part r of each x_k along scatter_axis, one after the other along gather_axis; gx by an alltoall with the axes swapped. With equal axes: the whole
 * axis is divided anew, from the old lengths to the numelems. The numelems sum up to the extent along scatter_axis (with equal axes, over all ranks).
 * Adjoint: one alltoall. Collective: comm. Differentiable: x. Since: 0.1. */
AJ_API aj_tensor *aj_alltoall(aj_tensor *x, int gather_axis, int scatter_axis, int64_t numelem, aj_comm *comm);
/* y_k = part k of the reduction of x_r over r, numelem entries along axis; gx_k = the g_r one after the other, or its share of them. Adjoint: one allgather. Collective: comm.
 * Differentiable: x. Since: 0.1. */
AJ_API aj_tensor *aj_reduce_scatter(aj_tensor *x, int axis, int64_t numelem, MPI_Op op, aj_comm *comm);

/* y_r = the reduction of x_k over k <= r. gx_k = sum of g_r over r >= k; or, with h_k the gradient of y_k by way of all later ranks too, dy_k/dx_k h_k. x: the
 * same shape and dtype on all ranks. Adjoint: one scan; of other floating reductions than MPI_SUM both ways one exscan. Collective: comm. Differentiable: x.
 * Since: 0.1. */
AJ_API aj_tensor *aj_scan(aj_tensor *x, MPI_Op op, aj_comm *comm);
/* y_r = the reduction of x_k over k < r; zeros on rank 0, whatever the reduction, and its gradient is ignored. gx_k = sum of g_r over r > k; of other reductions
 * as for aj_scan. x: the same shape and dtype on all ranks. Adjoint: one exscan. Collective: comm. Differentiable: x. Since: 0.1. */
AJ_API aj_tensor *aj_exscan(aj_tensor *x, MPI_Op op, aj_comm *comm);

/*
 * Messages. Sends never block: the library holds a share of the value until the message is gone. Tags: 0 ... MPI_TAG_UB, equal on both ends; receives
 * take MPI_ANY_TAG and MPI_ANY_SOURCE, and every peer may be MPI_PROC_NULL or this rank. Both ends inside the same recording, or both outside.
 * Collective: no, but each message has two ends.
 */
/* Send x; y = x, which passes its own gradient on; gx = g + the gradient that comes home from the receiver. Since: 0.1. */
AJ_API aj_tensor *aj_send(aj_tensor *x, int dest, int tag, aj_comm *comm);
/* y has buffer's shape and dtype; its first m entries (row-major) come from the message (m from the status; 0 from MPI_PROC_NULL), the rest from
 * buffer. g[0:m] goes home to the sender; buffer gets g with the first m entries zero. A message longer than buffer is AJ_ERR_MPI, checked AJ_ERR_SHAPE.
 * Another dtype: AJ_ERR_DTYPE if checked, or if the message is not a whole number of entries. One end only inside a recording: AJ_ERR_STATE if checked.
 * Since: 0.1. */
AJ_API aj_tensor *aj_recv(aj_tensor *buffer, int source, int tag, aj_comm *comm);
/* The same, started only. The request is owned by the context until aj_wait; a spent one stays valid until its scope ends. Since: 0.1. */
AJ_API aj_request *aj_isend(aj_tensor *x, int dest, int tag, aj_comm *comm);
AJ_API aj_request *aj_irecv(aj_tensor *buffer, int source, int tag, aj_comm *comm);
/* aj_send of x, then aj_recv into buffer: what was received. In the adjoint source and destination are swapped, and the tags with them. Since: 0.1. */
AJ_API aj_tensor *aj_sendrecv(aj_tensor *x, int dest, int sendtag, aj_tensor *buffer, int source, int recvtag, aj_comm *comm);
/* Complete a request: the received value, or what was sent. The request is spent. Its adjoint starts a message; that of the start waits: overlap in
 * the forward is overlap in the adjoint. Errors: AJ_ERR_STATE (spent before, or given up after an error; started on the other side of a recording's begin or
 * end), and of a receive those of aj_recv. Since: 0.1. */
AJ_API aj_tensor *aj_wait(aj_request *request);
/* The handle's tensor: something to join other operations to, with aj_join_dummies. Owned by the current scope. Since: 0.1. */
AJ_API aj_tensor *aj_request_dummy(aj_request *request);
/* An explicit dependency of the request on the dummies; they get zero gradients. Returns request. Since: 0.1. */
AJ_API aj_request *aj_request_join_dummies(aj_request *request, int n, aj_tensor *const *dummies);
/*
 * Halo exchange on a communicator with a Cartesian topology (MPI_Cart_create): axes[i] of x is divided along dimension i of the topology, and has width[i]
 * ghosts on each side. y = x with the ghosts filled from the neighbours, axis by axis in the order given, so that corners arrive; where there is no
 * neighbour they stay. Ghost gradients go home and are added to the entries they came from; filled ghosts of x get zero, others pass theirs on.
 * n: the dimensions of the topology; widths of 0 are none. Neighbours have the same width, dtype and extents but for the divided axis, whose length may
 * differ. Messages: for each axis and neighbour one out and one in, the adjoint as many; no receive of the program's can take one.
 * Errors: AJ_ERR_ARG (topology, n, axes; a neighbour that makes another call), AJ_ERR_SHAPE (fewer inner entries than ghosts on a side; a neighbour's face
 * does not fit), AJ_ERR_DTYPE (nor its dtype). The _inplace form consumes x and fills the ghosts in its memory if nobody else shares it; if it fails on
 * a neighbour's mistake, x's ghosts may be new. Checked: another dtype, axes or widths on another rank are AJ_ERR_PEER on all.
 * Collective: cart. Differentiable: x. Since: 0.1.
 */
AJ_API aj_tensor *aj_halo(aj_tensor *x, int n, const int *axes, const int64_t *width, aj_comm *cart);
AJ_API aj_tensor *aj_halo_inplace(aj_tensor *x, int n, const int *axes, const int64_t *width, aj_comm *cart);
/* Wait until all ranks of comm have come. A node in a recording: its adjoint is a barrier. Collective: comm. Since: 0.1. */
AJ_API aj_status aj_barrier(aj_comm *comm);

#ifdef __cplusplus
}
#endif
#endif
