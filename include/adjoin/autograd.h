/* Differentiation: recordings, parameters, gradients, checks. */
#ifndef ADJOIN_AUTOGRAD_H
#define ADJOIN_AUTOGRAD_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Flags of aj_backward_many, aj_grad_of and aj_jvp. */
enum {
    AJ_RETAIN_GRAPH = 1, /* aj_backward_many: keep the recording, as it was: open or stopped */
    AJ_CREATE_GRAPH = 2, /* aj_grad_of: record the computation of the gradients, so that they can be differentiated again */
    AJ_REACHED = 4       /* visit only the communication that the roots reach: legal where that is alike on all ranks */
};

/*
 * Begin a recording: from now on operations with an active operand (one that depends on a parameter or on a communication), and every
 * floating-point communication, become nodes. At the same place on every rank.
 * Errors: AJ_ERR_STATE (a recording is open or stopped already, a request is open).
 * Collective: no communication, but alike on all ranks. Threads: one per context. Since: 0.1.
 */
AJ_API aj_status aj_record_begin(aj_ctx *ctx);
/* Freeze the recording: aj_grad_of, aj_jvp and one aj_backward may follow; later operations are not recorded, save those of
 * AJ_CREATE_GRAPH. Errors: AJ_ERR_STATE (no open recording, a request is open). Alike on all ranks. Since: 0.1. */
AJ_API aj_status aj_record_stop(aj_ctx *ctx);
/* Drop the recording, open or stopped, without differentiating it. Errors: AJ_ERR_STATE (none, a request is open). Alike on all ranks. Since: 0.1. */
AJ_API aj_status aj_record_end(aj_ctx *ctx);
/* True while operations are recorded: a recording is open and no-grad is off. Collective: no. Since: 0.1. */
AJ_API bool aj_is_recording(const aj_ctx *ctx);

/*
 * A parameter: a leaf with the value of x that collects a gradient. f64 or f32.
 * Returns a handle of its own that is kept: release it with aj_release when done. Errors: AJ_ERR_DTYPE, AJ_ERR_MEMORY.
 * Collective: no. Threads: one per context. Since: 0.1.
 */
AJ_API aj_tensor *aj_param(aj_tensor *x);
/* Give a parameter a new value of the same shape, dtype and device, outside a recording; the handle and the gradient stay.
 * Errors: AJ_ERR_ARG (not a parameter), AJ_ERR_SHAPE, AJ_ERR_DTYPE, AJ_ERR_STATE (inside a recording). Collective: no. Since: 0.1. */
AJ_API aj_status aj_param_set(aj_tensor *param, aj_tensor *value);
/* The gradient that the parameter has collected on this rank, zeros before any backward: a constant, owned by the current scope.
 * It is this rank's share: see aj_shared for a variable that all ranks hold. Errors: AJ_ERR_ARG (not a parameter). Collective: no. Since: 0.1. */
AJ_API aj_tensor *aj_grad(aj_tensor *param);
/* Set the collected gradient to zero: aj_backward adds to it. Errors: AJ_ERR_ARG (not a parameter). Collective: no. Since: 0.1. */
AJ_API void aj_zero_grad(aj_tensor *param);

/*
 * Reverse mode: adds to the gradient of every parameter p of the recording
 *     gp_r += d/dp_r  sum over ranks k of <seed_k, root_k>,
 * the gradient of the SUM over ranks of what each rank passes. Consumes the recording and ends it.
 * root: a tensor of the recording; one that depends on nothing contributes zero. seed: of root's shape and dtype; NULL for ones.
 * Visits the ancestors of the root and of every communication node, in exact reverse order of creation.
 * Errors: AJ_ERR_STATE (no recording, open request), AJ_ERR_SHAPE, AJ_ERR_DTYPE, AJ_ERR_MEMORY; no gradient is changed then, and
 * the recording is dropped.
 * Collective: over the communicators of the recording. Threads: one per context. Since: 0.1.
 */
AJ_API aj_status aj_backward(aj_ctx *ctx, aj_tensor *root, aj_tensor *seed);
/* The same for n roots (n = 0 on a rank without one). seeds may be NULL, and so may each of its entries: ones.
 * flags: 0, AJ_RETAIN_GRAPH, AJ_REACHED (in checked mode the ranks compare what they visit). Since: 0.1. */
AJ_API aj_status aj_backward_many(aj_ctx *ctx, int n, aj_tensor *const *roots, aj_tensor *const *seeds, int flags);
/*
 * For a loss that is one number on all ranks of comm (after an allreduce, say): the gradient of that number. The seed of rank 0 counts,
 * the others are taken as zero. seed NULL: ones. Errors as aj_backward.
 * Collective: comm, and the communicators of the recording. Since: 0.1.
 */
AJ_API aj_status aj_backward_replicated(aj_ctx *ctx, aj_tensor *root, aj_tensor *seed, aj_comm *comm);

/*
 * grads[i] = d/d ins[i] sum over ranks of sum_k <seeds[k], outs[k]>: the vector-Jacobian product, without touching the parameters' own
 * gradients. Keeps the recording, open or stopped. ins: parameters or tensors of the recording; zeros for what is not reached.
 * n_out and n_in may be 0 on a rank. seeds may be NULL, and so may each entry: ones. grads: n_in results, owned by the current scope;
 * all NULL on error. flags: AJ_CREATE_GRAPH (the results can be differentiated again), AJ_REACHED.
 * Errors: AJ_ERR_STATE (no recording, open request), AJ_ERR_ARG, AJ_ERR_SHAPE, AJ_ERR_DTYPE, AJ_ERR_UNSUPPORTED (with AJ_CREATE_GRAPH: an operation
 * without a derivative of its derivative), AJ_ERR_MEMORY.
 * Collective: over the communicators of the recording. Threads: one per context. Since: 0.1.
 */
AJ_API aj_status aj_grad_of(aj_ctx *ctx, int n_out, aj_tensor *const *outs, aj_tensor *const *seeds, int n_in,
                            aj_tensor *const *ins, aj_tensor **grads, int flags);
/*
 * results[k] = sum_i (d outs[k] / d ins[i]) tangents[i], across ranks: the Jacobian-vector product of the recording, computed by
 * differentiating the vjp, which is linear in its seed. Leaves the recording as it found it. tangents may have NULL entries: zero.
 * results: n_out tensors, owned by the current scope; all NULL on error. flags: 0, AJ_REACHED. Errors as aj_grad_of with AJ_CREATE_GRAPH.
 * Collective: over the communicators of the recording. Threads: one per context. Since: 0.1.
 */
AJ_API aj_status aj_jvp(aj_ctx *ctx, int n_out, aj_tensor *const *outs, int n_in, aj_tensor *const *ins,
                        aj_tensor *const *tangents, aj_tensor **results, int flags);

/* Between begin and end nothing is recorded, communication included: on all ranks alike. They nest. Errors: AJ_ERR_STATE (an open request,
 * an end without a begin). Since: 0.1. */
AJ_API aj_status aj_no_grad_begin(aj_ctx *ctx);
AJ_API aj_status aj_no_grad_end(aj_ctx *ctx);
/* y = x as a constant; gx = 0. Owned by the current scope. Collective: no. Since: 0.1. */
AJ_API aj_tensor *aj_detach(aj_tensor *x);

/* y = x; gx = g, each dummy's gradient is zero: an explicit dependency of y on the dummies. n >= 0. Collective: no.
 * Differentiable: x. Since: 0.1. */
AJ_API aj_tensor *aj_join_dummies(aj_tensor *x, int n, aj_tensor *const *dummies);

/* A function of n tensors for the checks: returns one tensor, made from x by recorded operations. */
typedef aj_tensor *(*aj_fn)(aj_ctx *ctx, int n, aj_tensor *const *x, void *user);

/* The outcome of a check. Set size to sizeof(aj_check), or the whole to zero, before the call; tolerance and step may be set too, 0 means the default. */
typedef struct aj_check {
    size_t size;
    double tolerance;     /* in: what error may be at most. Default: see each check */
    double step;          /* in: step of the differences, relative to max(1, |x|). Default: see each check */
    bool passed;          /* out: the verdict, the same on all ranks of comm */
    double error;         /* out: the largest relative error, over all ranks */
    double expected, got; /* out: the pair of numbers behind it */
    int input;            /* out: gradcheck: the input it belongs to, and the entry in it, on rank `rank` */
    int64_t entry;
    int rank;
    double rates[2]; /* out: taylor_test: observed orders of the first and second remainder: 1 and 2 when right */
} aj_check;

/*
 * The checks record f themselves, with the x as parameters, differentiate sum over ranks of <w, f(x)> for fixed random weights w that differ
 * by rank and entry, and leave an open recording as they found it. x: f64 (f32 is accepted, with tolerances to match), n of them.
 * comm: the communicator over which f communicates and the verdict is combined; NULL: this rank alone. Each rank's x are variables of their own: not
 * for functions that use aj_shared.
 * Return AJ_OK when the check ran: the verdict is result->passed. Errors: AJ_ERR_ARG, AJ_ERR_DTYPE, AJ_ERR_MEMORY, and whatever f raises.
 * Collective: comm. Threads: one per context. Since: 0.1.
 */
/* Adjoint against central differences of the sum over ranks, every entry of every input of every rank. f must not be discontinuous at x.
 * Default tolerance 1e-6 (f32: 2e-2), step 6e-6 (f32: 5e-3). */
AJ_API aj_status aj_gradcheck(aj_ctx *ctx, aj_fn f, void *user, int n, aj_tensor *const *x, aj_comm *comm, aj_check *result);
/* <J t, w> = <t, J' w> summed over ranks, for random t and w: reverse mode against forward mode. Default tolerance 1e-12 (f32: 1e-4). */
AJ_API aj_status aj_dot_test(aj_ctx *ctx, aj_fn f, void *user, int n, aj_tensor *const *x, aj_comm *comm, aj_check *result);
/* |F(x+ht) - F(x)| = O(h) and |F(x+ht) - F(x) - h <g,t>| = O(h^2), for a random direction t and five halvings of h; a remainder at rounding level
 * counts as right. Default tolerance 0.2 on the second rate, step 1e-2. */
AJ_API aj_status aj_taylor_test(aj_ctx *ctx, aj_fn f, void *user, int n, aj_tensor *const *x, aj_comm *comm, aj_check *result);

#ifdef __cplusplus
}
#endif
#endif
