/*
 * The tensor layer as the layers above see it: values, the device table, programs of elementwise steps, memory, errors.
 * struct aj_tensor and struct aj_ctx stay private to this folder (tensor_private.h).
 */
#ifndef AJI_TENSOR_INTERNAL_H
#define AJI_TENSOR_INTERNAL_H

#include "adjoin/device.h"
#include "adjoin/tensor.h"

/* ---- memory (pool.c): every allocation of the library. The size is given again at free, so blocks carry no header. ---- */
void *aji_alloc(aj_ctx *ctx, size_t bytes);             /* contents undefined, 64-byte aligned; NULL with AJ_ERR_MEMORY raised */
void *aji_calloc(aj_ctx *ctx, size_t bytes);            /* the same, all bytes zero */
void aji_free(aj_ctx *ctx, void *memory, size_t bytes); /* NULL is fine */
/* Grow an array: *items holds *capacity elements of size bytes; after success it holds at least `wanted`. */
aj_status aji_grow(aj_ctx *ctx, void **items, int64_t *capacity, int64_t wanted, size_t size);
/* The pool's size classes, for other caches: the class of a size, and the size that its blocks have. */
#define AJI_POOL_CLASSES 225 /* up to 2^62 bytes, which aji_alloc refuses to pass */
int aji_pool_class(size_t bytes, size_t *block);

/* ---- errors (error.c) ---- */
const char *aji_shape_text(int ndim, const int64_t *shape, char text[160]); /* "(3, 4)"; returns text */
static inline bool aji_dtype_is_float(aj_dtype dtype) {
    return dtype == AJ_F64 || dtype == AJ_F32;
}
bool aji_dtype_valid(aj_dtype dtype);

/* ---- what a tensor is like ---- */
typedef struct aji_meta {
    aj_dtype dtype;
    int ndim;
    int64_t shape[AJ_MAX_NDIM];
} aji_meta;

static inline int64_t aji_meta_numel(const aji_meta *meta) {
    int64_t n = 1;
    for (int d = 0; d < meta->ndim; d++)
        n *= meta->shape[d];
    return n;
}

static inline bool aji_same_shape(const aji_meta *a, const aji_meta *b) {
    bool same = a->ndim == b->ndim;
    for (int d = 0; same && d < a->ndim; d++)
        same = a->shape[d] == b->shape[d];
    return same;
}

/* Fill in meta after checking dtype, ndim, extents and their product; raises AJ_ERR_ARG or AJ_ERR_SHAPE naming op. */
aj_status aji_meta_set(aj_ctx *ctx, const char *op, aji_meta *meta, aj_dtype dtype, int ndim, const int64_t *shape);
/* NumPy's rule: out = the shape to which all n broadcast; raises AJ_ERR_SHAPE naming op and both shapes. Does not touch out->dtype. */
aj_status aji_broadcast_shape(aj_ctx *ctx, const char *op, int n, const aji_meta *const *in, aji_meta *out);
/* Negative axes count from the end; raises AJ_ERR_ARG naming op, the axis and the range. */
aj_status aji_normalize_axis(aj_ctx *ctx, const char *op, int ndim, int *axis);

/* ---- values: counted, immutable once shared; strided windows on a counted storage, or pending expressions ---- */
typedef struct aji_storage aji_storage;
typedef struct aji_value aji_value;
/* What a pending value will be (expression.c). */
typedef struct aji_expression {
    aji_value *src[3];
    double imm[2];             /* of a step; FULL: imm[0] */
    int64_t *lo;               /* PLACED: where src[0] begins on each axis */
    unsigned char kind, n_src; /* aji_pending */
    bool in_box;               /* PLACED: src[0] is computed in its box, see evaluate.c */
    unsigned char dtype, from; /* of a step */
    short opcode;
    short steps, inputs; /* of the whole expression, counted as a tree or better: at most */
    short levels;        /* evaluations within evaluations that it takes */
} aji_expression;

struct aji_value {
    int refs;
    int users;     /* pending values that read it */
    int number;    /* evaluate.c: of its step in the program that is being built, plus 1; 0: not in one */
    int64_t visit; /* the last traversal that came here */
    bool saved;    /* a node holds it for its vjp */
    bool passed;   /* it was computed on the way to another value once, and not stored */
    bool within;   /* it lies in the block of its storage, and goes with that */
    int64_t numel;
    aj_ctx *ctx;
    aj_device device;
    aji_meta meta;
    aji_storage *storage; /* NULL: pending */
    union {
        struct {
            int64_t strides[AJ_MAX_NDIM]; /* in elements; 0 on broadcast axes, negative on flipped ones */
            int64_t offset;               /* in elements, from the storage's begin to the entry with all indices 0 */
        };
        aji_expression expression;
    };
};

aji_storage *aji_storage_new(aj_ctx *ctx, aj_device device, size_t bytes); /* NULL raised */
/* User memory: adopted if there is a deleter (which runs once, also on failure), else borrowed. */
aji_storage *aji_storage_user(aj_ctx *ctx, void *data, size_t bytes, void (*deleter)(void *data, void *user), void *user);
aji_value *aji_value_new(aj_ctx *ctx, aj_device device, const aji_meta *meta); /* contiguous, contents undefined; NULL raised */
static inline aji_value *aji_value_retain(aji_value *v) {
    v->refs++;
    return v;
}
/* retain, for a vjp: worth storing where that is cheaper than computing it again */
static inline aji_value *aji_value_save(aji_value *v) {
    v->saved = true;
    return aji_value_retain(v);
}
void aji_value_release(aji_value *v); /* NULL is fine */
/* A window on v's storage with other shape, strides and offset; retains the storage. */
aji_value *aji_value_view(aji_value *v, const aji_meta *meta, const int64_t *strides, int64_t offset);
void aji_value_set_contiguous(aji_value *v);                         /* strides of v->meta */
aji_value *aji_value_broadcast(aji_value *v, const aji_meta *shape); /* a view with stride 0 where v broadcasts */
bool aji_value_is_contiguous(const aji_value *v);
aji_value *aji_value_contiguous(aji_value *v); /* v itself, retained, or a contiguous copy */
aji_value *aji_value_copy(aji_value *v);       /* always a contiguous copy of its own */
/* v with another shape of the same numel: a view where the strides allow it, else a copy. */
aji_value *aji_value_reshape(aji_value *v, const aji_meta *meta);
/* v may be overwritten: the caller holds the only reference to it and to its storage, it is contiguous, and the memory is the library's own. */
bool aji_value_exclusive(const aji_value *v);
bool aji_value_is_borrowed(const aji_value *v); /* on user memory that may be given back at any time */
/* A contiguous copy on a device, or v itself, retained, if it is there and contiguous. */
aji_value *aji_value_on(aji_value *v, aj_device device);
/* In host memory, contents undefined, for numbers that come from a device or go there (its `staging`). */
aji_value *aji_value_staged(aj_device device, const aji_meta *meta);
/* First element's address. Only for device code, and for host code when the device is the CPU (aji_is_host). */
void *aji_value_data(const aji_value *v);
bool aji_is_host(aj_device device);

/* ---- pending values (expression.c, evaluate.c) ----
 * Strides, offset and storage of a pending value mean nothing: whoever reads them evaluates first. Reshaping, broadcasting and copying
 * evaluate (or keep a constant one); the rest of what is above is for evaluated values. aji_apply evaluates the operands of every operation that does not have AJI_OP_LAZY. */
bool aji_value_is_pending(const aji_value *v);
/* Compute v if it is pending. Raises AJ_ERR_MEMORY, and what the device raises; v stays pending then. */
aj_status aji_value_evaluate(aji_value *v);
/* One number, broadcast to a shape. Evaluated: with stride 0, no memory for zeros. NULL raised. */
aji_value *aji_value_full(aj_ctx *ctx, aj_device device, const aji_meta *meta, double value);
bool aji_value_is_full(const aji_value *v, double *value); /* pending still */

/* ---- handles (handle.c) ---- */
/* What a handle depends on: the first member of a graph node. Counted; the autograd layer fills in free. */
typedef struct aji_link {
    int refs;
    void (*free)(struct aji_link *link);
} aji_link;

/* The one accessor to the numbers: computes them if they are pending. Borrowed. NULL raised (consumed: names the consumer and user). */
aji_value *aji_tensor_value(aj_tensor *t, const char *user);
aji_value *aji_tensor_pending(aj_tensor *t, const char *user); /* the same, left pending if it is */
const aji_meta *aji_tensor_meta(const aj_tensor *t);
/* A new handle of the current scope on v; takes over the caller's reference to v, also on failure. by: the operation, a constant string. */
aj_tensor *aji_tensor_wrap(aji_value *v, const char *by);
aji_link *aji_tensor_link(const aj_tensor *t, int *out);         /* what it depends on; NULL: a constant. Borrowed */
void aji_tensor_set_link(aj_tensor *t, aji_link *link, int out); /* retains link, releases the old one */
static inline void aji_link_retain(aji_link *link) {
    link->refs++;
}
static inline void aji_link_release(aji_link *link) { /* NULL is fine */
    if (link && --link->refs == 0)
        link->free(link);
}
void aji_tensor_set_value(aj_tensor *t, aji_value *v); /* takes over the reference; for parameters */
/* Forbid t as an operand from now on. Returns its value, the handle's own reference handed to the caller; NULL raised. */
aji_value *aji_tensor_consume(aj_tensor *t, const char *consumer);
void aji_tensor_unconsume(aj_tensor *t, aji_value *v); /* whole again; takes over the reference */
const char *aji_tensor_consumer(const aj_tensor *t);   /* NULL if t may be used */
const char *aji_tensor_made_by(const aj_tensor *t);
/* Are these of one context, device, dtype and shape, and none consumed or NULL? Then x is filled in with their values, left pending. */
bool aji_are_uniform(int n, aj_tensor *const *t, aji_value **x);
/* Check an operand: raises AJ_ERR_CONTEXT (another context), AJ_ERR_STATE (consumed). t not NULL. */
aj_status aji_check_operand(aj_ctx *ctx, const char *op, aj_tensor *t);
/* The context of the first operand that is not NULL. Raises AJ_ERR_ARG there if another one is NULL (position named). NULL: do not go on. */
aj_ctx *aji_ctx_of(const char *op, int n, aj_tensor *const *t);

/* ---- what the layers above hang on a context (context.c) ---- */
typedef enum aji_slot { AJI_SLOT_AUTOGRAD = 0, AJI_SLOT_MPI = 1, AJI_N_SLOTS = 2 } aji_slot;
typedef struct aji_layer {                       /* first member of a layer's state */
    void (*scope_mark)(aj_ctx *ctx, void *mark); /* called at scope begin with 32 bytes of room; may be NULL */
    void (*scope_restore)(aj_ctx *ctx, const void *mark, aj_scope *scope); /* at scope end, before the handles go; may be NULL */
    bool (*destroy)(aj_ctx *ctx); /* at context destroy; upper layers first. Returns true if something leaked */
} aji_layer;
aji_layer *aji_ctx_layer(const aj_ctx *ctx, aji_slot slot); /* NULL: not attached yet */
void aji_ctx_set_layer(aj_ctx *ctx, aji_slot slot, aji_layer *layer);
void aji_ctx_count(aj_ctx *ctx, aj_stat which, int64_t delta);   /* NODES, REQUESTS, COMMS */
void aji_ctx_set_rank(aj_ctx *ctx, int rank);                    /* for error messages */
void aji_ctx_add_device(aj_ctx *ctx, struct aji_device *device); /* the context's from now on: it calls destroy */
aj_device aji_ctx_device(const aj_ctx *ctx, const char *name);   /* one that was added; NULL: there is none */
double aji_ctx_grace(const aj_ctx *ctx);
double aji_ctx_timeout(const aj_ctx *ctx);                              /* 0: none */
const char *aji_ctx_operation(const aj_ctx *ctx);                       /* the one that runs; never NULL */
void aji_ctx_log(aj_ctx *ctx, const char *format, ...) AJ_PRINTF(2, 3); /* one line to the log callback */
/* Name the operation that runs, for errors found deep inside it. Returns the one before, to be put back. */
const char *aji_ctx_enter(aj_ctx *ctx, const char *operation);
/* Another error in the place of the context's: what the ranks have agreed on. */
void aji_ctx_replace_error(aj_ctx *ctx, aj_status status, const char *format, ...) AJ_PRINTF(3, 4);
/* More to say of the context's error: a text behind its first line. */
void aji_ctx_amend_error(aj_ctx *ctx, const char *more);
bool aji_ctx_checked(const aj_ctx *ctx);
bool aji_ctx_stages_mpi(const aj_ctx *ctx);     /* aj_cuda_deactivate_aware_mpi */
int64_t aji_ctx_error_epoch(const aj_ctx *ctx); /* counts clear_error calls: tells one error episode from the next */
aj_scope *aji_ctx_scope(const aj_ctx *ctx);     /* the innermost open scope */
aj_scope *aji_scope_parent(const aj_scope *scope);
/* A scope inside the current one for handles alone: what is made from here on is released by aji_handles_release. */
typedef struct aji_handles {
    aj_scope *scope;
    void *last;
} aji_handles;
aji_handles aji_handles_begin(aj_ctx *ctx);
void aji_handles_release(aji_handles h);
void *aji_scope_mark(aj_scope *scope, aji_slot slot); /* the room that scope_mark was given */

/* ---- elementwise programs: run by the one executor ---- */
/* A program computes values of one shape, entry by entry. Values are numbered: the inputs 0 ... n_in-1, the result of step s n_in + s. Types are
 * per step: all operands of a step have type `dtype`; comparisons write u8; CAST reads `from`. WHERE reads u8, dtype, dtype. PLACE: its operand in box number src[1], which also holds the inputs
 * that its operand is made of, and zeros around it. */
typedef enum aji_opcode {
#define AJI_UNARY(name, ...) AJI_STEP_##name,
#define AJI_FLOAT_UNARY(name, ...) AJI_STEP_##name,
#define AJI_FLOAT_TRIG(name, ...) AJI_STEP_##name,
#define AJI_BINARY(name, ...) AJI_STEP_##name,
#define AJI_FLOAT_BINARY(name, ...) AJI_STEP_##name,
#define AJI_TERNARY(name, ...) AJI_STEP_##name,
#define AJI_COMPARE(name, ...) AJI_STEP_##name,
#define AJI_IMMEDIATE(name, ...) AJI_STEP_##name,
#define AJI_BINARY_IMMEDIATE(name, ...) AJI_STEP_##name,
#define AJI_FLOAT_IMMEDIATE(name, ...) AJI_STEP_##name,
#define AJI_SPECIAL(name) AJI_STEP_##name,
#include "tensor/steps.def"
    AJI_N_STEPS
} aji_opcode;

#define AJI_MAX_STEPS 96
#define AJI_MAX_INPUTS 160
#define AJI_MAX_BOXES 16
#define AJI_EVERYWHERE (-1)
#define AJI_MAX_OUTPUTS (AJI_MAX_STEPS + 1)

typedef struct aji_step {
    aji_opcode opcode;
    aj_dtype dtype, from;
    int src[3];    /* values */
    double imm[2]; /* scalar operands: CLAMP: imm[0] <= y <= imm[1]; AFFINE: imm[0] a + imm[1]; others: imm[0] */
} aji_step;

/* A box in the program's space: inside it lie what is read or computed in it, around it are zeros. */
typedef struct aji_box {
    int ndim; /* the space's last axes; on those before, whose extent is 1, it is all there is */
    const int64_t *lo, *extent;
} aji_box;

typedef struct aji_program {
    int n_in, n_out, n_steps, n_boxes;
    aji_step steps[AJI_MAX_STEPS];
    int out[AJI_MAX_OUTPUTS]; /* the value of each output */
    int box[AJI_MAX_INPUTS];  /* the input lies in this box, or broadcasts to it; AJI_EVERYWHERE: it broadcasts to the space */
    aji_box boxes[AJI_MAX_BOXES];
} aji_program;

/* A pending value: one step on other values, which broadcast to its shape. `step` is of the device's set (see aji_step_supports). Constants are folded,
 * and long expressions cut: some of src may be evaluated. NULL raised. */
aji_value *aji_value_step(aj_ctx *ctx, aj_device device, const aji_meta *meta, const aji_step *step, int n,
                          aji_value *const *src);
/* Zeros of a shape, but v in the box that begins at lo. Pending. */
aji_value *aji_value_placed(aji_value *v, const aji_meta *meta, const int64_t *lo);
/* window = v, pending or not, which broadcasts to it. */
aj_status aji_value_evaluate_into(const char *op, aji_value *v, const aji_value *window);

/* rows[j] = index[j] in 0 ... extent-1, of an index in host memory (cpu_index.c). Raises AJ_ERR_DTYPE, AJ_ERR_ARG naming op, the index and its position.
 * The caller frees rows, numel(index) numbers. */
aj_status aji_index_rows(aj_ctx *ctx, const char *op, const aji_value *index, int axis, int64_t extent, int64_t **rows);

/* Does this step exist for this dtype? */
bool aji_step_supports(aji_opcode opcode, aj_dtype dtype);
int aji_step_arity(aji_opcode opcode); /* values it reads: 1 to 3 */
const char *aji_step_name(aji_opcode opcode);

/* A float as integer type T: truncated, saturated at the ends of the range, 0 for NaN. */
#define AJI_SATURATE(T, x, low, high) ((x) != (x) ? 0 : (x) <= (low) ? (low) : (x) >= (high) + 1.0 ? (high) : (T)(x))

/* ---- the device table. Inputs may be strided and broadcast; outputs are allocated by the caller. All raise their own errors.
 * An empty slot is AJ_ERR_UNSUPPORTED naming operation, dtype and device, raised by the aji_do_* functions below. ---- */
typedef enum aji_reduction { AJI_SUM, AJI_PROD, AJI_MAX, AJI_MIN } aji_reduction;

typedef struct aji_device_table {
    void *(*alloc)(aj_device device, size_t bytes); /* NULL raised */
    void (*free)(aj_device device, void *memory, size_t bytes);
    /* Host memory may be freed or changed once these return (what `staging` made and upload reads: freed, but changed only after `wait`); it is what all earlier work
     * on device_memory left, or was given. */
    aj_status (*upload)(aj_device device, void *device_memory, const void *host, size_t bytes);
    aj_status (*download)(aj_device device, void *host, const void *device_memory, size_t bytes);
    /* A storage in host memory that upload and download are fast with; NULL raised. Empty: any host memory will do. */
    aji_storage *(*staging)(aj_device device, size_t bytes);
    /* dst = src, same shape and dtype, any strides on both (dst without overlaps) */
    aj_status (*copy)(aj_ctx *ctx, const aji_value *src, const aji_value *dst);
    /* out[k] = program(in...), at least one: inputs broadcast to the outputs' common shape, or lie in it; outputs have any strides */
    aj_status (*run)(aj_ctx *ctx, const aji_program *program, const aji_value *const *in, const aji_value *const *out);
    /* result = reduction of value number `reduced` of the program over the axes whose bit is set; it has extent 1 on those axes. shape: the program's,
     * with the dtype of the reduced value. Outputs are stored on the way. MAX, MIN: NaN wins. f32 accumulates in f64, integers in i64. MAX, MIN over
     * nothing: the caller has checked. */
    aj_status (*reduce)(aj_ctx *ctx, aji_reduction kind, const aji_program *program, int reduced, const aji_meta *shape,
                        unsigned axes, const aji_value *const *in, const aji_value *result, const aji_value *const *out);
    /* out = index of the first largest (smallest) entry along axis, i64, extent 1 there; NaN wins. */
    aj_status (*argument)(aj_ctx *ctx, bool largest, const aji_value *x, int axis, const aji_value *out);
    aj_status (*cumsum)(aj_ctx *ctx, const aji_value *x, int axis, const aji_value *out); /* out like x, contiguous */
    /* out[a, j, b] = x[a, index[j], b]: x seen as (before, extent, after) around axis; index i64 or i32, flat; negative counts from the end; raises
     * AJ_ERR_ARG naming op and the bad index */
    aj_status (*take)(aj_ctx *ctx, const char *op, const aji_value *x, int axis, const aji_value *index, const aji_value *out);
    /* out[a, index[j], b] += value[a, j, b], in order of j; out is contiguous and already holds x */
    aj_status (*scatter_add)(aj_ctx *ctx, const char *op, const aji_value *value, int axis, const aji_value *index,
                             const aji_value *out);
    /* out[..., m, n] = a[..., m, k] b[..., k, n]; batch extents are equal (broadcast by strides). Any strides. out contiguous */
    aj_status (*matmul)(aj_ctx *ctx, const aji_value *a, const aji_value *b, const aji_value *out);
    /* out[..., n, k] = a[..., n, n]^-1 b[..., n, k]; AJ_ERR_NUMERIC if singular */
    aj_status (*solve)(aj_ctx *ctx, const aji_value *a, const aji_value *b, const aji_value *out);
    aj_status (*cholesky)(aj_ctx *ctx, const aji_value *a,
                          const aji_value *out); /* lower; reads the lower triangle; AJ_ERR_NUMERIC if not positive definite */
    aj_status (*logdet)(aj_ctx *ctx, const aji_value *a,
                        const aji_value *out); /* log |det a|, out[...] without the last two axes */
    aj_status (*wait)(aj_device device);       /* all earlier work has finished */
    /* The same, and an MPI library that knows such devices can be given its addresses until the device is destroyed. Empty: it cannot. */
    aj_status (*ready_for_mpi)(aj_device device);
    void (*destroy)(aj_device device); /* of a device that aji_ctx_add_device was given: with its context */
} aji_device_table;

#define AJI_DEVICE_NAME 16
struct aji_device {
    const aji_device_table *table;
    aj_ctx *ctx;
    char name[AJI_DEVICE_NAME];
    const struct aji_device *next;
};
extern const aji_device_table aji_cpu_table, aji_test_table;

/* Call a slot of v's device (device.c): op names the caller's operation for the error of an empty slot. */
aj_status aji_do_copy(const char *op, const aji_value *src, const aji_value *dst);
aj_status aji_do_run(const char *op, const aji_program *program, const aji_value *const *in, const aji_value *const *out);
/* result = reduction of x, pending or not. */
aj_status aji_value_reduce(const char *op, aji_reduction kind, aji_value *x, unsigned axes, const aji_value *result);
aj_status aji_do_reduce(const char *op, aji_reduction kind, const aji_program *program, int reduced, const aji_meta *shape,
                        unsigned axes, const aji_value *const *in, const aji_value *result, const aji_value *const *out);
aj_status aji_do_argument(const char *op, bool largest, const aji_value *x, int axis, const aji_value *out);
aj_status aji_do_cumsum(const char *op, const aji_value *x, int axis, const aji_value *out);
aj_status aji_do_take(const char *op, const aji_value *x, int axis, const aji_value *index, const aji_value *out);
aj_status aji_do_scatter_add(const char *op, const aji_value *value, int axis, const aji_value *index, const aji_value *out);
aj_status aji_do_matmul(const char *op, const aji_value *a, const aji_value *b, const aji_value *out);
aj_status aji_do_solve(const char *op, const aji_value *a, const aji_value *b, const aji_value *out);
aj_status aji_do_cholesky(const char *op, const aji_value *a, const aji_value *out);
aj_status aji_do_logdet(const char *op, const aji_value *a, const aji_value *out);

#endif
