/*
 * The structs that stay inside src/autograd: nodes, recordings, sweeps.
 */
#ifndef AJI_AUTOGRAD_PRIVATE_H
#define AJI_AUTOGRAD_PRIVATE_H

#include "autograd/autograd_internal.h"

typedef struct aji_recording aji_recording;

/* Where an input of a node comes from: output `out` of `node`. node NULL: a constant. Holds a reference to the node. */
typedef struct aji_edge {
    aji_node *node;
    int out;
} aji_edge;

/* A node: an operation of a recording, or a leaf (op NULL), which belongs to its parameter and to no recording. One block of memory; handles of
 * its outputs, edges of later nodes and the recording hold references. After the recording has gone only the shell is left. */
struct aji_node {
    aji_link link; /* first: handles hang on it */
    aj_ctx *ctx;
    size_t bytes;
    const aji_op *op;
    aji_recording *recording; /* NULL: a leaf, or a shell */
    int64_t index;            /* creation number in its recording */
    int n_in, n_out;
    aj_comm *comm;
    aj_device device;
    void *attr;
    aji_edge *in;
    aji_meta *in_meta, *out_meta;
    aji_value **saved_in, **saved_out; /* NULL where the operation needs nothing */
    /* leaves */
    aji_value *grad;  /* collected so far; NULL: zero */
    aji_sweep *sweep; /* the innermost sweep that collects for this leaf, and the leaf's place in it */
    int64_t slot;
};

/* A parameter that an _inplace call consumed: whole again when the recording ends. */
typedef struct aji_consumed {
    aj_tensor *param; /* kept */
    aji_value *value;
} aji_consumed;

struct aji_recording {
    int64_t id;
    bool stopped;
    aji_node **nodes; /* in order of creation */
    int64_t n, capacity;
    int64_t n_comm; /* communication nodes among them */
    aji_consumed *consumed;
    int64_t n_consumed, consumed_capacity;
};

typedef struct aji_autograd {
    aji_layer layer; /* first */
    aji_recording *recording;
    int no_grad; /* depth */
    int sweeps;  /* depth */
    const char *sweep_call;
    int64_t last_id;
    bool has_comm;
    aji_comm_hooks comm;
} aji_autograd;

static inline aji_autograd *aji_autograd_of(const aj_ctx *ctx) { /* NULL: nothing was ever recorded */
    return (aji_autograd *)aji_ctx_layer(ctx, AJI_SLOT_AUTOGRAD);
}
static inline bool aji_records(const aji_autograd *ag) {
    return ag && ag->recording && !ag->recording->stopped && ag->no_grad == 0;
}

/* recording.c */
aj_status aji_refuse_open_request(aj_ctx *ctx, const char *op);
void aji_recording_truncate(aj_ctx *ctx, int64_t n); /* forget the nodes from number n on */
aj_status aji_recording_remember_consumed(aj_ctx *ctx, aj_tensor *param, aji_value *value);
/* Put another recording in the place of the current one (for the checks): swaps *recording and *no_grad with the context's. */
void aji_recording_swap(aj_ctx *ctx, aji_recording **recording, int *no_grad);

/* node.c */
aji_node *aji_leaf_new(aj_ctx *ctx);
/* A node for a call that has run: inputs' edges, saved values, attr (moved into the node). NULL raised; the attr is still the caller's then. */
aji_node *aji_node_record(const aji_call *c, aj_tensor *const *ins);
/* The same for a call of aji_apply_plain. in: the inputs' edges. */
aji_node *aji_node_record_plain(const aji_op *op, const void *attr, int n, const aji_edge *in, aji_value *const *x, aji_value *y);
void aji_node_drop_saved(aji_node *node);     /* the values for its vjp, which will not run again */
void aji_node_clear(aji_node *node);          /* leave only the shell */
aji_edge aji_tensor_edge(const aj_tensor *t); /* borrowed; node NULL if t is not active */
aji_node *aji_param_leaf(const aj_tensor *t); /* NULL: not a parameter */

/* apply.c */
/* Will this call be a node? A communication on floats always, a local operation if an input is active; never what is piecewise constant. */
bool aji_is_recorded(const aji_call *c, aj_tensor *const *ins);

/* elementwise.c: the usual case, floats of one shape, in which nothing is left to check or infer. */
bool aji_is_plain(const aji_op *op, int n, aj_tensor *const *xs, aji_value **x);
aj_tensor *aji_apply_plain(const aji_op *op, const void *attr, int n, aj_tensor *const *xs, aji_value *const *x);

/* sweep.c */
enum { AJI_TRANSPOSE = 1 << 16 }; /* a flag beside the public ones: see aji_sweep_transposes */
typedef struct aji_sweep_spec {
    int n_out;
    aj_tensor *const *outs, *const *seeds; /* seeds NULL, or entries NULL: ones */
    int n_in;
    aj_tensor *const *ins; /* grad_of: what to differentiate by */
    aj_tensor **grads;     /* grad_of: results of the current scope. NULL: add to the parameters */
    int64_t from;          /* visit the nodes from this number on */
    int flags;
} aji_sweep_spec;
/* This rank is in error: if the recording communicates, wait for the others or end the job. Returns the context's status. */
aj_status aji_gate_recording(aj_ctx *ctx);
/* Raises unless t is a floating tensor of this context, with the shape and dtype of `like` if that is given. what, k: "seed", its number. */
aj_status aji_check_pair(aj_ctx *ctx, const char *op, const char *what, int k, aj_tensor *t, aj_tensor *like);
/* Checks the arguments; in error it does not run, but gates. */
aj_status aji_sweep_run(aj_ctx *ctx, const char *op, const aji_sweep_spec *spec);

#endif
