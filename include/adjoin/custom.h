/* Custom operations: a code keeps its own kernels, with several outputs and its own communication, as nodes of the DAG. */
#ifndef ADJOIN_CUSTOM_H
#define ADJOIN_CUSTOM_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a custom operation sees of a tensor: contiguous, row-major. data NULL in g_in: that gradient is not wanted (never so in a
 * communication, which must run alike on every rank). */
typedef struct aj_buf {
    void *data;
    aj_dtype dtype;
    int ndim;
    const int64_t *shape;
} aj_buf;

/* The arguments of a callback. Only what op->need asks for has data in vjp; shapes and dtypes are always there. */
typedef struct aj_call {
    size_t size;
    aj_ctx *ctx;
    aj_comm *comm;
    const void *attr; /* the copy of the attributes given to aj_apply */
    void *user;       /* op->user */
    void *stream;     /* the device's stream; NULL on the CPU */
    int n_in, n_out, n_saved;
    aj_buf *in, *out, *saved; /* forward reads in, writes out and saved */
    /* vjp reads g_out, overwrites g_in (every entry). jvp reads g_in (tangents, NULL data: zero), overwrites g_out. */
    aj_buf *g_in, *g_out;
} aj_call;

/* op->need: what vjp reads besides g_out and saved. */
enum { AJ_NEED_IN = 1, AJ_NEED_OUT = 2 };

/* A custom operation, usually a static constant; it must outlive every graph that uses it. Unset members are zero. */
typedef struct aj_op {
    size_t size;              /* sizeof(aj_op) */
    const char *name, *maths; /* for messages: "step", "u' = u + dt f(u); gu = g + dt f'(u) g" */
    int n_out, n_saved;       /* outputs, and buffers that forward leaves for vjp */
    unsigned need, flags;     /* AJ_NEED_*; flags: 0 */
    size_t attr_size;         /* bytes of attr that aj_apply copies */
    void *user;
    /* Shapes: set dtype, ndim and shape of each out and saved with aj_buf_set. NULL: every output is like in[0]; needs n_saved 0. */
    aj_status (*infer)(aj_call *call);
    aj_status (*forward)(const aj_call *call);
    aj_status (*vjp)(const aj_call *call); /* NULL: not differentiable: an error when an active input meets a recording */
    aj_status (*jvp)(const aj_call *call); /* the derivative of vjp with respect to g_out, used by aj_jvp; optional */
    /* vjp in tensor operations, for derivatives of derivatives: g_in[i] NULL stands for zero. Without it they are a clear error. */
    aj_status (*vjp_ops)(aj_ctx *ctx, const void *attr, aj_tensor *const *in, aj_tensor *const *out, aj_tensor *const *g_out,
                         aj_tensor **g_in);
} aj_op;

/* In infer: give a buffer its dtype and shape; the extents are copied. AJ_ERR_ARG for a bad dtype, ndim or extent. Collective: no. Since: 0.1. */
AJ_API aj_status aj_buf_set(const aj_call *call, aj_buf *buf, aj_dtype dtype, int ndim, const int64_t *shape);

/*
 * outs = op(ins): one node. A callback reports failure by returning a status other than AJ_OK, best after aj_raise; it may use
 * aj_comm_mpi(call->comm) for its own communication. comm NULL: a local operation; else a communication node, visited by backward on every
 * rank, and collective over comm: in checked mode the ranks compare op->name before forward, vjp and jvp.
 * outs: n_out = op->n_out results, owned by the current scope, all NULL on error. attr: op->attr_size bytes, copied.
 * Errors: AJ_ERR_ARG, AJ_ERR_DTYPE, AJ_ERR_DEVICE (off the CPU), AJ_ERR_MEMORY, and what the callbacks return. forward may run again under
 * checkpointing, so it must depend on its arguments alone.
 * Collective: comm. Differentiable: floating inputs, if vjp is given. Threads: one per context. Since: 0.1.
 */
AJ_API aj_status aj_apply(aj_ctx *ctx, const aj_op *op, aj_comm *comm, const void *attr, int n_in, aj_tensor *const *ins,
                          int n_out, aj_tensor **outs);

#ifdef __cplusplus
}
#endif
#endif
