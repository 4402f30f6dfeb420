/*
 * The differentiation layer as operations and the layers above see it: the operation struct, calls, nodes.
 */
#ifndef AJI_AUTOGRAD_INTERNAL_H
#define AJI_AUTOGRAD_INTERNAL_H

#include "adjoin/autograd.h"
#include "adjoin/custom.h"
#include "adjoin/ops.h"
#include "tensor/tensor_internal.h"

typedef struct aji_op aji_op;
typedef struct aji_node aji_node;
typedef struct aji_sweep aji_sweep;

/* What an operation sees of one call. infer reads in_meta and attr and fills out_meta. forward reads x and fills y. vjp reads g_out and what
 * op->need asked for, and fills g_in. Arrays have n_in or n_out entries; those that do not belong to the phase are NULL. */
typedef struct aji_call {
    aj_ctx *ctx;
    const aji_op *op;
    void *attr;
    aj_comm *comm;
    aj_device device; /* of the inputs */
    int n_in, n_out;
    const aji_meta *in_meta; /* in every phase */
    aji_meta *out_meta;      /* in every phase; dtype, ndim and shape */
    aji_value *const
        *x;        /* forward: the inputs' values, borrowed. Of a consumed input (AJI_OP_CONSUMES): see aji_value_exclusive */
    aji_value **y; /* forward: the results, each a reference of its own */
    aj_tensor *const *in;    /* vjp, with AJI_NEED_IN(i) */
    aj_tensor *const *out;   /* vjp, with AJI_NEED_OUT */
    aj_tensor *const *g_out; /* vjp: never NULL for a floating output (zeros are made), NULL for others */
    aj_tensor *
        *g_in; /* vjp: NULL on entry and where the gradient is zero. Elementwise: may have the broadcast shape, the engine sums */
    const bool *want; /* vjp: is this input's gradient wanted? */
    aji_node *node;   /* vjp */
    aji_sweep *sweep; /* vjp */
} aji_call;

/* Test samples: public calls to check, with shapes and ranges of the floating inputs. */
#define AJI_MAX_SAMPLE_INPUTS 4
typedef struct aji_sample {
    int n_in; /* 0 ends a list */
    struct {
        int ndim;
        int64_t shape[6];
        double lo, hi; /* entries are drawn from lo ... hi, all different */
    } in[AJI_MAX_SAMPLE_INPUTS];
    aj_tensor *(*call)(aj_tensor *const *x); /* other arguments are its own */
    bool elementwise;                        /* shapes are ignored: the tests go through their own, broadcast ones too */
} aji_sample;

enum {                          /* aji_op.flags */
       AJI_OP_COMM = 1,         /* a communication: a node on every rank, visited by every backward */
       AJI_OP_ELEMENTWISE = 2,  /* step is set; gradients are summed back to the shape of the input */
       AJI_OP_CONSUMES = 4,     /* consumes input 0 */
       AJI_OP_MIXED_DTYPES = 8, /* inputs need not have one dtype: infer checks */
       AJI_OP_MIXED_DEVICES = 16,
       AJI_OP_CONSTANT = 32, /* piecewise constant: its result depends on nothing, gradient zero */
       AJI_OP_LAZY = 128,    /* forward takes operands that are pending still; elementwise operations do anyway */
       AJI_OP_CUSTOM = 256,  /* its vjp is the user's code */
       AJI_OP_COMPOSITE = 64 /* made of other operations, never a node: the struct is there for the tests */
};
#define AJI_MAX_ATTR 256        /* attr_size at most */
#define AJI_NEED_OUT (1u << 31) /* aji_op.need */
#define AJI_NEED_IN(i) (1u << (i))
#define AJI_NEED_ALL_IN 0x7fffffffu

/* An operation: local, communication or custom. One static constant, in the operation's file, named aji_op_<name>. */
struct aji_op {
    const char *name;  /* as the caller knows it: "aj_tanh" */
    const char *maths; /* one line: "y = tanh(x); gx = g (1 - y^2)" */
    unsigned flags, need;
    aji_opcode step;                            /* elementwise: its one step */
    size_t attr_size;                           /* bytes of attr to copy into the node */
    void (*attr_free)(aj_ctx *ctx, void *attr); /* when attr owns something: runs once, when the node or the failed call goes */
    aj_status (*infer)(aji_call *c); /* the shape rule: checks everything that can be checked before work; NULL: out like in[0] */
    aj_status (*forward)(aji_call *c);
    aj_status (*vjp)(aji_call *c);
    const aji_sample *samples; /* ends with n_in 0 */
};

#define AJI_OP(name) extern const aji_op aji_op_##name;
#include "autograd/ops.def"
#undef AJI_OP

/* forward of an operation that consumes input 0: nobody else needs its memory, and the operation may write there. */
bool aji_may_overwrite(const aji_call *c);

/* Check operands, infer, compute, wrap and record one operation. outs: results owned by the current scope, all NULL on error.
 * comm: of a communication, else NULL. attr: copied. Consumes ins[0] with AJI_OP_CONSUMES. */
aj_status aji_apply(const aji_op *op, aj_comm *comm, aj_ctx *ctx, const void *attr, int n_in, aj_tensor *const *ins, int n_out,
                    aj_tensor **outs);
/* The same for one result and no communicator; the context is that of the operands. NULL in, NULL out. */
aj_tensor *aji_apply1(const aji_op *op, const void *attr, aj_tensor *x);
aj_tensor *aji_apply2(const aji_op *op, const void *attr, aj_tensor *a, aj_tensor *b);
aj_tensor *aji_apply3(const aji_op *op, const void *attr, aj_tensor *a, aj_tensor *b, aj_tensor *c);
aj_tensor *aji_apply_n(const aji_op *op, const void *attr, int n, aj_tensor *const *xs);
/* For a composite: the checks of operands that aji_apply makes, so that errors name the composite and not what it is made of. Returns the
 * context, NULL on error and when all operands are NULL. */
aj_ctx *aji_check_composite(const aji_op *op, int n, aj_tensor *const *ins);

/* Elementwise operations (elementwise.c): attr is an aji_scalars, or NULL. */
typedef struct aji_scalars {
    double imm[2];
    aj_dtype to; /* CAST */
} aji_scalars;
aj_status aji_infer_elementwise(aji_call *c);
aj_status aji_infer_scalars(aji_call *c); /* with attr: for an integer operand the scalars must be numbers of its dtype */
aj_status aji_forward_elementwise(aji_call *c);
/* Members of an aji_op that computes one step: `const aji_op aji_op_tanh = {.name = "aj_tanh", AJI_ELEMENTWISE(TANH), ...}` */
#define AJI_ELEMENTWISE(opcode)                                                                                                  \
    .flags = AJI_OP_ELEMENTWISE, .step = AJI_STEP_##opcode, .infer = aji_infer_elementwise, .forward = aji_forward_elementwise
#define AJI_ELEMENTWISE_SCALARS(opcode) AJI_ELEMENTWISE(opcode), .attr_size = sizeof(aji_scalars)

/* Constants for vjps, on x's device and of its dtype: no memory beyond one number. */
aj_tensor *aji_zeros_like(aj_tensor *x);
aj_tensor *aji_full_like(aj_tensor *x, double value);
aj_tensor *aji_zeros_meta(aj_ctx *ctx, aj_device device, const aji_meta *meta);
/* Sum x over the axes along which `shape` was broadcast to x's shape; x itself if there are none. */
aj_tensor *aji_sum_to(aj_tensor *x, const aji_meta *shape);

/* Is this the handle of a parameter or of a node of the current recording? Then operations on it are recorded. */
bool aji_is_active(const aj_tensor *t);
bool aji_is_param(const aj_tensor *t);

/* ---- nodes and recordings, for src/mpi ---- */
void *aji_node_attr(aji_node *node);
const aji_op *aji_node_op(const aji_node *node);
int64_t aji_sweep_count(const aji_sweep *sweep); /* nodes in the sweep's range */
aji_node *aji_sweep_node(const aji_sweep *sweep,
                         int64_t i); /* in creation order; only those that will be visited have aji_sweep_visits */
bool aji_sweep_visits(const aji_sweep *sweep, int64_t i);
aj_comm *aji_node_comm(const aji_node *node);
bool aji_sweep_reached_only(const aji_sweep *sweep); /* AJ_REACHED */
bool aji_sweep_creates_graph(const aji_sweep *sweep);
bool aji_sweep_transposes(const aji_sweep *sweep); /* the second sweep of aj_jvp: its seeds are tangents */

/* What src/mpi gives to this layer. */
typedef struct aji_comm_hooks {
    void (*retain)(aj_comm *comm); /* nodes hold communicators */
    void (*release)(aj_comm *comm);
    aj_ctx *(*ctx)(const aj_comm *comm);
    /* This rank is in error and would communicate now: wait for the others (all in error: return) or end the job. comm may be NULL: any. */
    void (*gate)(aj_ctx *ctx, aj_comm *comm);
    /* In checked mode: does every rank of the call's communicator make it? Raises where not. Before a custom operation communicates. */
    aj_status (*compare)(const aji_call *c);
    aj_status (*sweep_begin)(aj_ctx *ctx, aji_sweep *sweep);
    aj_status (*sweep_end)(aj_ctx *ctx, aji_sweep *sweep, aj_status status); /* completes or abandons what is under way */
    /* The operation of a request that was not waited for, such as "aj_isend to 1, tag 0"; NULL: none is open. Calls that begin, end or differentiate a
     * recording refuse to run then. */
    const char *(*open_request)(aj_ctx *ctx);
    /* For the checks: this process' rank, and sum / largest with its owner over the ranks. comm not NULL. */
    int (*rank)(const aj_comm *comm);
    int (*size)(const aj_comm *comm);
    aj_status (*sum)(aj_comm *comm, int n, double *values);
    aj_status (*gather)(aj_comm *comm, int n, const double *mine, double *all); /* all: size * n, by rank */
} aji_comm_hooks;
aj_status aji_autograd_set_comm_hooks(aj_ctx *ctx, const aji_comm_hooks *hooks);
const aji_comm_hooks *aji_autograd_comm_hooks(aj_ctx *ctx); /* NULL: no communicator was ever made */
/* True inside a sweep: communication then uses the adjoint duplicate. */
bool aji_in_sweep(const aj_ctx *ctx);
const char *aji_sweep_call(const aj_ctx *ctx); /* inside: the call that sweeps, such as "aj_backward" */
/* A number that names the current recording (0: none): a message belongs to the one it started in. */
int64_t aji_recording_id(const aj_ctx *ctx);
aj_status aji_autograd_attach(aj_ctx *ctx);
void aji_recording_drop(aj_ctx *ctx); /* ends it, if there is one: parameters are whole again */

#endif
