/*
 * One operation, from operands to recorded results: check, infer, compute, wrap, record. Every operation, local, communication or custom, comes
 * through here.
 */
#include <string.h>

#include "autograd/autograd_private.h"

/* The arrays of a call; on the stack for the usual few operands. */
#define FEW 4
typedef struct frame {
    int n_in, n_out;
    aji_meta *in_meta, *out_meta;
    aji_value **x, **y;
    aji_meta few_meta[2 * FEW];
    aji_value *few_values[2 * FEW];
    void *block; /* when there are many */
    size_t bytes;
} frame;

static aj_status frame_open(aj_ctx *ctx, frame *f, int n_in, int n_out) {
    f->n_in = n_in;
    f->n_out = n_out;
    f->block = NULL;
    f->in_meta = f->few_meta;
    f->out_meta = f->few_meta + FEW;
    f->x = f->few_values;
    f->y = f->few_values + FEW;
    if (n_in > FEW || n_out > FEW) {
        size_t n = (size_t)n_in + (size_t)n_out;
        f->bytes = n * (sizeof(aji_meta) + sizeof(aji_value *));
        f->block = aji_alloc(ctx, f->bytes);
        if (!f->block)
            return AJ_ERR_MEMORY;
        f->in_meta = f->block;
        f->out_meta = f->in_meta + n_in;
        f->x = (aji_value **)(f->in_meta + n);
        f->y = f->x + n_in;
    }
    memset(f->x, 0, (size_t)n_in * sizeof(*f->x));
    memset(f->y, 0, (size_t)n_out * sizeof(*f->y));
    return AJ_OK;
}

static void frame_close(aj_ctx *ctx, frame *f) {
    for (int k = 0; k < f->n_out; k++)
        aji_value_release(f->y[k]);
    if (f->block)
        aji_free(ctx, f->block, f->bytes);
}

/* Operands: there, of this context, not consumed, on one device, of one dtype. */
static aj_status check_operands(aji_call *c, aj_tensor *const *ins) {
    const char *name = c->op->name;
    for (int i = 0; i < c->n_in; i++) {
        if (!ins[i])
            return aj_raise(c->ctx, AJ_ERR_ARG, "%s: operand %d is NULL; expected a tensor", name, i);
        if (aj_tensor_ctx(ins[i]) != c->ctx || aji_tensor_consumer(ins[i]))
            return aji_check_operand(c->ctx, name, ins[i]);
        const aji_meta *meta = aji_tensor_meta(ins[i]);
        if (i == 0)
            c->device = aj_tensor_device(ins[0]);
        else if (aj_tensor_device(ins[i]) != c->device && !(c->op->flags & AJI_OP_MIXED_DEVICES))
            return aj_raise(c->ctx, AJ_ERR_DEVICE,
                            "%s: operands 0 and %d are on devices %s and %s; expected one device (see aj_to_device)", name, i,
                            aj_device_name(c->device), aj_device_name(aj_tensor_device(ins[i])));
        if (meta->dtype != aji_tensor_meta(ins[0])->dtype && !(c->op->flags & AJI_OP_MIXED_DTYPES))
            return aj_raise(c->ctx, AJ_ERR_DTYPE, "%s: operands 0 and %d are %s and %s; expected one dtype (see aj_cast)", name,
                            i, aj_dtype_name(aji_tensor_meta(ins[0])->dtype), aj_dtype_name(meta->dtype));
    }
    return AJ_OK;
}

aj_ctx *aji_check_composite(const aji_op *op, int n, aj_tensor *const *ins) {
    aji_call c = {.ctx = aji_ctx_of(op->name, n, ins), .op = op, .n_in = n};
    return c.ctx && check_operands(&c, ins) == AJ_OK ? c.ctx : NULL;
}

static aj_status infer(aji_call *c) {
    for (int k = 0; k < c->n_out && !c->op->infer; k++)
        c->out_meta[k] = c->in_meta[0];
    aj_status status = c->op->infer ? c->op->infer(c) : AJ_OK;
    for (int k = 0; k < c->n_out && status == AJ_OK; k++) { /* broadcasting can ask for more than can be addressed */
        aji_meta *m = &c->out_meta[k], checked;
        status = aji_meta_set(c->ctx, c->op->name, &checked, m->dtype, m->ndim, m->shape);
    }
    return status;
}

bool aji_is_recorded(const aji_call *c, aj_tensor *const *ins) {
    if (!aj_is_recording(c->ctx) || (c->op->flags & AJI_OP_CONSTANT))
        return false;
    bool floating = c->n_out == 0, active = false;
    for (int k = 0; k < c->n_out; k++)
        floating = floating || aji_dtype_is_float(c->out_meta[k].dtype);
    for (int i = 0; i < c->n_in && !active; i++)
        active = aji_is_active(ins[i]);
    return floating && (active || (c->op->flags & AJI_OP_COMM));
}

typedef aji_value *read_value(aj_tensor *t, const char *user);

/* What a consuming call has taken, to be given back if it fails. */
typedef struct taken_operand {
    aj_tensor *t;
    aji_value *value;
} taken_operand;

/* Take the value from a consumed operand. A parameter keeps a share, so that it can be whole again; outside a recording it is not marked at all. */
static aj_status consume(aji_call *c, aj_tensor *t, read_value *read, taken_operand *taken) {
    aji_value *v = read(t, c->op->name);
    if (!v)
        return aj_ctx_status(c->ctx);
    if (aji_is_param(t)) {
        if (!aj_is_recording(c->ctx)) {
            *taken = (taken_operand){NULL, aji_value_retain(v)};
            return AJ_OK;
        }
        aj_status status = aji_recording_remember_consumed(c->ctx, t, v);
        if (status != AJ_OK)
            return status;
    }
    *taken = (taken_operand){t, aji_tensor_consume(t, c->op->name)};
    return AJ_OK;
}

static void give_back(taken_operand *taken, aj_status status) {
    if (taken->value && taken->t && status != AJ_OK)
        aji_tensor_unconsume(taken->t, taken->value);
    else
        aji_value_release(taken->value);
}

bool aji_may_overwrite(const aji_call *c) {
    return (c->op->flags & AJI_OP_CONSUMES) && aji_value_exclusive(c->x[0]);
}

static aj_status compute(aji_call *c, aj_tensor *const *ins, aji_value **x, taken_operand *taken) {
    bool lazy = c->op->flags & (AJI_OP_LAZY | AJI_OP_ELEMENTWISE);
    read_value *read = lazy ? aji_tensor_pending : aji_tensor_value;
    for (int i = 0; i < c->n_in; i++) {
        if (i == 0 && (c->op->flags & AJI_OP_CONSUMES)) {
            aj_status status = consume(c, ins[0], read, taken);
            if (status != AJ_OK)
                return status;
            x[0] = taken->value;
        } else if (!(x[i] = read(ins[i], c->op->name))) {
            return aj_ctx_status(c->ctx);
        }
    }
    c->x = x;
    return c->op->forward(c);
}

/* Handles for the results, and the node behind them: all of it, or nothing. */
static aj_status wrap(aji_call *c, aj_tensor *const *ins, bool record, aj_tensor **outs) {
    aj_status status = AJ_OK;
    for (int k = 0; k < c->n_out && status == AJ_OK; k++) {
        outs[k] = aji_tensor_wrap(aji_value_retain(c->y[k]), c->op->name);
        status = outs[k] ? AJ_OK : AJ_ERR_MEMORY;
    }
    if (status == AJ_OK && record) {
        c->node = aji_node_record(c, ins);
        status = c->node ? AJ_OK : AJ_ERR_MEMORY;
    }
    for (int k = 0; k < c->n_out; k++) {
        if (status != AJ_OK)
            aj_release(&outs[k]);
        else if (c->node && aji_dtype_is_float(c->out_meta[k].dtype))
            aji_tensor_set_link(outs[k], (aji_link *)c->node, k);
    }
    return status;
}

static aj_status run(aji_call *c, frame *f, aj_tensor *const *ins, aj_tensor **outs) {
    if ((c->op->flags & AJI_OP_COMM) && aj_ctx_status(c->ctx) != AJ_OK)
        return aj_ctx_status(c->ctx); /* a rank in error does not communicate */
    aj_status status = check_operands(c, ins);
    if (status != AJ_OK)
        return status;
    for (int i = 0; i < c->n_in; i++)
        f->in_meta[i] = *aji_tensor_meta(ins[i]);
    if ((status = infer(c)) != AJ_OK)
        return status;
    bool record = aji_is_recorded(c, ins);
    if (record && !c->op->vjp)
        return aj_raise(c->ctx, AJ_ERR_UNSUPPORTED,
                        "%s: it has no derivative; expected one inside a recording (see aj_detach, aj_no_grad_begin)",
                        c->op->name);
    taken_operand taken = {NULL, NULL};
    status = compute(c, ins, f->x, &taken);
    if (status == AJ_OK)
        status = wrap(c, ins, record, outs);
    give_back(&taken, status);
    return status;
}

aj_status aji_apply(const aji_op *op, aj_comm *comm, aj_ctx *ctx, const void *attr, int n_in, aj_tensor *const *ins, int n_out,
                    aj_tensor **outs) {
    for (int k = 0; k < n_out; k++)
        outs[k] = NULL;
    if (!ctx)
        return AJ_ERR_ARG;
    _Alignas(16) unsigned char attr_copy[AJI_MAX_ATTR];
    if (op->attr_size)
        memcpy(attr_copy, attr, op->attr_size);
    const char *before = aji_ctx_enter(ctx, op->name);
    frame f;
    aj_status status = frame_open(ctx, &f, n_in, n_out);
    aji_call c = {.ctx = ctx, .op = op, .attr = attr_copy, .comm = comm, .device = aj_cpu(ctx), .n_in = n_in, .n_out = n_out};
    if (status == AJ_OK) {
        c.in_meta = f.in_meta;
        c.out_meta = f.out_meta;
        c.y = f.y;
        status = run(&c, &f, ins, outs);
        frame_close(ctx, &f);
    }
    bool communicates = op->flags & AJI_OP_COMM;
    if (op->attr_free && !c.node)
        op->attr_free(ctx, attr_copy); /* op itself may go with it */
    aji_ctx_enter(ctx, before);
    if (status != AJ_OK && communicates)
        aji_autograd_comm_hooks(ctx)->gate(ctx, comm);
    return status;
}

static aj_tensor *apply(const aji_op *op, const void *attr, int n, aj_tensor *const *xs) {
    aji_value *x[FEW];
    if ((op->flags & AJI_OP_ELEMENTWISE) && aji_is_plain(op, n, xs, x))
        return aji_apply_plain(op, attr, n, xs, x);
    aj_ctx *ctx = aji_ctx_of(op->name, n, xs);
    aj_tensor *y = NULL;
    if (!ctx || aji_apply(op, NULL, ctx, attr, n, xs, 1, &y) != AJ_OK)
        return NULL;
    return y;
}

aj_tensor *aji_apply1(const aji_op *op, const void *attr, aj_tensor *x) {
    return apply(op, attr, 1, &x);
}

aj_tensor *aji_apply2(const aji_op *op, const void *attr, aj_tensor *a, aj_tensor *b) {
    return apply(op, attr, 2, (aj_tensor *[]){a, b});
}

aj_tensor *aji_apply3(const aji_op *op, const void *attr, aj_tensor *a, aj_tensor *b, aj_tensor *c) {
    return apply(op, attr, 3, (aj_tensor *[]){a, b, c});
}

aj_tensor *aji_apply_n(const aji_op *op, const void *attr, int n, aj_tensor *const *xs) {
    return apply(op, attr, n, xs);
}
