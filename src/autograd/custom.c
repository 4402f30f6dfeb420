/*
 * Custom operations: the user's callbacks behind the same operation struct as everything else.
 *
 * The struct is made per call, from a copy of the user's: it carries the attributes and the saved buffers, and goes with the node (attr_free).
 */
#include <stdio.h>
#include <string.h>

#include "autograd/autograd_private.h"

/* A custom call as a node knows it; the node's attr is a pointer to one. */
typedef struct custom {
    aji_op base, vjp_base; /* what the engine sees: the operation, and its vjp as an operation */
    aj_op op;
    int refs; /* the node of the call, and the nodes of its vjp under AJ_CREATE_GRAPH */
    void *attr;
    int n_in;
    aji_meta *in_meta, *out_meta; /* one block; set by infer */
    size_t meta_bytes;
    aji_value **saved; /* op.n_saved */
} custom;

static custom *custom_of(const aji_call *c) {
    return *(custom **)c->attr;
}

static void custom_free(aj_ctx *ctx, void *attr) {
    custom *u = *(custom **)attr;
    if (--u->refs > 0)
        return;
    for (int i = 0; u->saved && i < u->op.n_saved; i++)
        aji_value_release(u->saved[i]);
    aji_free(ctx, u->saved, (size_t)u->op.n_saved * sizeof(*u->saved));
    aji_free(ctx, u->in_meta, u->meta_bytes);
    aji_free(ctx, u->attr, u->op.attr_size);
    aji_free(ctx, u, sizeof(*u));
}

/* ---- the call that callbacks see ---- */

/* The public struct, and behind it what aj_buf_set writes to. */
typedef struct call {
    aj_call pub;      /* first */
    aji_meta *meta;   /* of each buffer in bufs */
    aji_value **held; /* keeps the data of each buffer alive; NULL: none */
    aj_buf *bufs;
    int n;
    void *block;
    size_t bytes;
} call;

static aj_status call_open(const aji_call *c, call *k) {
    const custom *u = custom_of(c);
    int n_in = u->n_in, n_out = u->op.n_out, n_saved = u->op.n_saved;
    k->n = 2 * n_in + 2 * n_out + n_saved;
    k->bytes = (size_t)k->n * (sizeof(aji_meta) + sizeof(aji_value *) + sizeof(aj_buf));
    k->block = aji_calloc(c->ctx, k->bytes);
    if (!k->block)
        return AJ_ERR_MEMORY;
    k->meta = k->block;
    k->bufs = (aj_buf *)(k->meta + k->n);
    k->held = (aji_value **)(k->bufs + k->n);
    aj_buf *in = k->bufs, *out = in + n_in, *saved = out + n_out, *g_in = saved + n_saved, *g_out = g_in + n_in;
    k->pub = (aj_call){.size = sizeof(aj_call),
                       .ctx = c->ctx,
                       .comm = c->comm,
                       .attr = u->attr,
                       .user = u->op.user,
                       .n_in = n_in,
                       .n_out = n_out,
                       .n_saved = n_saved,
                       .in = in,
                       .out = out,
                       .saved = saved,
                       .g_in = g_in,
                       .g_out = g_out};
    return AJ_OK;
}

static void call_close(call *k) {
    if (!k->block)
        return;
    for (int i = 0; i < k->n; i++)
        aji_value_release(k->held[i]);
    aji_free(k->pub.ctx, k->block, k->bytes);
}

static void describe(call *k, aj_buf *buf, const aji_meta *meta) {
    aji_meta *mine = &k->meta[buf - k->bufs];
    *mine = *meta;
    *buf = (aj_buf){.dtype = meta->dtype, .ndim = meta->ndim, .shape = mine->shape};
}

/* Describe a buffer and give it the data of v, contiguous; takes over the reference. v NULL: raised already. */
static aj_status hold(call *k, aj_buf *buf, aji_value *v) {
    if (!v)
        return aj_ctx_status(k->pub.ctx);
    describe(k, buf, &v->meta);
    k->held[buf - k->bufs] = v;
    buf->data = aji_value_data(v);
    return AJ_OK;
}

static aj_status hold_tensor(call *k, aj_buf *buf, aj_tensor *t, const char *user) {
    aji_value *v = aji_tensor_value(t, user);
    return v ? hold(k, buf, aji_value_contiguous(v)) : aj_ctx_status(k->pub.ctx);
}

static aj_status hold_new(call *k, aj_buf *buf, const aji_meta *meta, aj_device device) {
    return hold(k, buf, aji_value_new(k->pub.ctx, device, meta));
}

/* It is about to communicate in its own way: do all ranks call it? */
static aj_status compare(const call *k, const custom *u) {
    aj_ctx *ctx = k->pub.ctx;
    return aji_autograd_comm_hooks(ctx)->compare(&(aji_call){.ctx = ctx, .op = &u->base, .comm = k->pub.comm});
}

/* Run a callback; a failure that it has not raised is raised here. */
static aj_status callback(const call *k, const custom *u, const char *which, aj_status (*f)(const aj_call *)) {
    aj_status status = k->pub.comm ? compare(k, u) : AJ_OK;
    if (status == AJ_OK)
        status = f(&k->pub);
    if (status != AJ_OK && aj_ctx_status(k->pub.ctx) == AJ_OK)
        aj_raise(k->pub.ctx, status, "%s: its callback %s returned %s", u->op.name, which, aj_status_name(status));
    return aj_ctx_status(k->pub.ctx);
}

aj_status aj_buf_set(const aj_call *pub, aj_buf *buf, aj_dtype dtype, int ndim, const int64_t *shape) {
    const call *k = (const call *)pub;
    if (!pub || !buf)
        return pub ? aj_raise(pub->ctx, AJ_ERR_ARG, "aj_buf_set: the buffer is NULL; expected one of call->out or call->saved")
                   : AJ_ERR_ARG;
    aji_meta meta;
    aj_status status = aji_meta_set(pub->ctx, "aj_buf_set", &meta, dtype, ndim, shape);
    if (status != AJ_OK)
        return status;
    if (buf < k->bufs || buf >= k->bufs + k->n)
        return aj_raise(pub->ctx, AJ_ERR_ARG,
                        "aj_buf_set: this buffer is not one of the call; expected one of call->out or call->saved");
    k->meta[buf - k->bufs] = meta;
    *buf = (aj_buf){.dtype = dtype, .ndim = ndim, .shape = k->meta[buf - k->bufs].shape};
    return AJ_OK;
}

/* ---- the operation ---- */

/* The shapes that infer set, into meta. */
static aj_status take_shapes(call *k, const custom *u, aj_buf *bufs, int n, const char *what, aji_meta *meta) {
    char name[160];
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof(name), "%s: %s %d, set by infer", u->op.name, what, i);
        aj_status status = aji_meta_set(k->pub.ctx, name, &meta[i], bufs[i].dtype, bufs[i].ndim, bufs[i].shape);
        if (status != AJ_OK)
            return status;
    }
    return AJ_OK;
}

static aj_status allocate_saved(call *k, custom *u, aj_device device) {
    for (int i = 0; i < u->op.n_saved; i++) {
        aji_meta meta;
        aj_status status = take_shapes(k, u, &k->pub.saved[i], 1, "saved buffer", &meta);
        if (status != AJ_OK)
            return status;
        if (!(u->saved[i] = aji_value_new(k->pub.ctx, device, &meta)))
            return AJ_ERR_MEMORY;
    }
    return AJ_OK;
}

static aj_status ask_infer(aji_call *c, custom *u) {
    call k;
    aj_status status = call_open(c, &k);
    if (status != AJ_OK)
        return status;
    for (int i = 0; i < c->n_in; i++)
        describe(&k, &k.pub.in[i], &c->in_meta[i]);
    status = u->op.infer(&k.pub);
    if (status != AJ_OK && aj_ctx_status(c->ctx) == AJ_OK)
        aj_raise(c->ctx, status, "%s: its callback infer returned %s", u->op.name, aj_status_name(status));
    status = aj_ctx_status(c->ctx);
    if (status == AJ_OK)
        status = take_shapes(&k, u, k.pub.out, c->n_out, "output", c->out_meta);
    if (status == AJ_OK)
        status = allocate_saved(&k, u, c->device);
    call_close(&k);
    return status;
}

static aj_status infer(aji_call *c) {
    custom *u = custom_of(c);
    if (!aji_is_host(c->device))
        return aj_raise(c->ctx, AJ_ERR_DEVICE,
                        "%s: the operands are on device %s; a custom operation expects the CPU (see aj_to_device)", u->op.name,
                        aj_device_name(c->device));
    for (int i = 0; i < c->n_out && !u->op.infer; i++)
        c->out_meta[i] = c->in_meta[0];
    aj_status status = u->op.infer ? ask_infer(c, u) : AJ_OK;
    for (int i = 0; i < c->n_in; i++)
        u->in_meta[i] = c->in_meta[i];
    for (int i = 0; i < c->n_out; i++)
        u->out_meta[i] = c->out_meta[i];
    return status;
}

static aj_status forward(aji_call *c) {
    custom *u = custom_of(c);
    call k;
    aj_status status = call_open(c, &k);
    for (int i = 0; i < c->n_in && status == AJ_OK; i++)
        status = hold(&k, &k.pub.in[i], aji_value_contiguous(c->x[i]));
    for (int i = 0; i < c->n_out && status == AJ_OK; i++)
        status = hold_new(&k, &k.pub.out[i], &c->out_meta[i], c->device);
    for (int i = 0; i < u->op.n_saved && status == AJ_OK; i++)
        status = hold(&k, &k.pub.saved[i], aji_value_retain(u->saved[i]));
    if (status == AJ_OK)
        status = callback(&k, u, "forward", u->op.forward);
    for (int i = 0; i < c->n_out && status == AJ_OK; i++)
        c->y[i] = aji_value_retain(k.held[k.pub.out + i - k.bufs]);
    call_close(&k);
    return status;
}

/* Shapes everywhere, and the saved buffers: what vjp and jvp start from. */
static aj_status describe_all(call *k, const custom *u) {
    for (int i = 0; i < u->n_in; i++) {
        describe(k, &k->pub.in[i], &u->in_meta[i]);
        describe(k, &k->pub.g_in[i], &u->in_meta[i]);
    }
    for (int i = 0; i < u->op.n_out; i++) {
        describe(k, &k->pub.out[i], &u->out_meta[i]);
        describe(k, &k->pub.g_out[i], &u->out_meta[i]);
    }
    aj_status status = AJ_OK;
    for (int i = 0; i < u->op.n_saved && status == AJ_OK; i++)
        status = hold(k, &k->pub.saved[i], aji_value_retain(u->saved[i]));
    return status;
}

/* First derivatives: the user's vjp on buffers. */
static aj_status vjp_buffers(aji_call *c) {
    custom *u = custom_of(c);
    call k;
    aj_status status = call_open(c, &k);
    if (status == AJ_OK)
        status = describe_all(&k, u);
    for (int i = 0; i < c->n_in && status == AJ_OK; i++) {
        if (c->in[i])
            status = hold_tensor(&k, &k.pub.in[i], c->in[i], u->op.name);
        bool floating = aji_dtype_is_float(c->in_meta[i].dtype);
        /* A communication must run on every rank alike: it gets its buffers even if this rank does not want the numbers. */
        if (status == AJ_OK && floating && (c->want[i] || c->comm))
            status = hold_new(&k, &k.pub.g_in[i], &c->in_meta[i], c->device);
    }
    for (int i = 0; i < c->n_out && status == AJ_OK; i++) {
        if (c->out[i])
            status = hold_tensor(&k, &k.pub.out[i], c->out[i], u->op.name);
        if (status == AJ_OK && c->g_out[i])
            status = hold_tensor(&k, &k.pub.g_out[i], c->g_out[i], u->op.name);
    }
    if (status == AJ_OK)
        status = callback(&k, u, "vjp", u->op.vjp);
    for (int i = 0; i < c->n_in && status == AJ_OK; i++) {
        aji_value *g = k.held[k.pub.g_in + i - k.bufs];
        if (g && !(c->g_in[i] = aji_tensor_wrap(aji_value_retain(g), u->op.name)))
            status = AJ_ERR_MEMORY;
    }
    call_close(&k);
    return status;
}

/* ---- the vjp as an operation of its own, linear in g_out: its derivative with respect to g_out is the user's jvp ----
 * Operands: in, if vjp needs it; out, if it needs that; the floating g_out. Results: the gradients of the floating inputs. */

typedef struct layout {
    int in, out, g_out, n; /* where each group begins; -1: absent */
} layout;

static int count_floats(const aji_meta *meta, int n) {
    int count = 0;
    for (int i = 0; i < n; i++)
        count += aji_dtype_is_float(meta[i].dtype);
    return count;
}

static layout operands_of(const custom *u) {
    layout l = {.in = -1, .out = -1};
    if (u->op.need & AJ_NEED_IN) {
        l.in = 0;
        l.n = u->n_in;
    }
    if (u->op.need & AJ_NEED_OUT) {
        l.out = l.n;
        l.n += u->op.n_out;
    }
    l.g_out = l.n;
    l.n += count_floats(u->out_meta, u->op.n_out);
    return l;
}

static aj_status vjp_infer(aji_call *c) {
    const custom *u = custom_of(c);
    for (int i = 0, k = 0; i < u->n_in; i++)
        if (aji_dtype_is_float(u->in_meta[i].dtype))
            c->out_meta[k++] = u->in_meta[i];
    return AJ_OK;
}

/* Give the callback what operands stand for; g_out only if asked. */
static aj_status hold_operands(call *k, const custom *u, aji_value *const *x, bool with_g_out) {
    layout l = operands_of(u);
    aj_status status = describe_all(k, u);
    for (int i = 0; l.in >= 0 && i < u->n_in && status == AJ_OK; i++)
        status = hold(k, &k->pub.in[i], aji_value_contiguous(x[l.in + i]));
    for (int i = 0; l.out >= 0 && i < u->op.n_out && status == AJ_OK; i++)
        status = hold(k, &k->pub.out[i], aji_value_contiguous(x[l.out + i]));
    for (int i = 0, at = l.g_out; with_g_out && i < u->op.n_out && status == AJ_OK; i++)
        if (aji_dtype_is_float(u->out_meta[i].dtype))
            status = hold(k, &k->pub.g_out[i], aji_value_contiguous(x[at++]));
    return status;
}

static aj_status vjp_forward(aji_call *c) {
    custom *u = custom_of(c);
    call k;
    aj_status status = call_open(c, &k);
    if (status == AJ_OK)
        status = hold_operands(&k, u, c->x, true);
    for (int i = 0; i < u->n_in && status == AJ_OK; i++)
        if (aji_dtype_is_float(u->in_meta[i].dtype))
            status = hold_new(&k, &k.pub.g_in[i], &u->in_meta[i], c->device);
    if (status == AJ_OK)
        status = callback(&k, u, "vjp", u->op.vjp);
    for (int i = 0, n = 0; i < u->n_in && status == AJ_OK; i++)
        if (k.pub.g_in[i].data)
            c->y[n++] = aji_value_retain(k.held[k.pub.g_in + i - k.bufs]);
    call_close(&k);
    return status;
}

/* Run the user's jvp: tangents are the gradients of g_in, results those of g_out. */
static aj_status run_jvp(aji_call *c, custom *u, call *k, aji_value *const *x) {
    layout l = operands_of(u);
    aj_status status = hold_operands(k, u, x, false);
    for (int i = 0, n = 0; i < u->n_in && status == AJ_OK; i++)
        if (aji_dtype_is_float(u->in_meta[i].dtype))
            status = hold_tensor(k, &k->pub.g_in[i], c->g_out[n++], u->op.name);
    for (int i = 0; i < u->op.n_out && status == AJ_OK; i++)
        if (aji_dtype_is_float(u->out_meta[i].dtype))
            status = hold_new(k, &k->pub.g_out[i], &u->out_meta[i], c->device);
    if (status == AJ_OK)
        status = callback(k, u, "jvp", u->op.jvp);
    for (int i = 0, at = l.g_out; i < u->op.n_out && status == AJ_OK; i++) {
        if (!aji_dtype_is_float(u->out_meta[i].dtype))
            continue;
        aji_value *g = aji_value_retain(k->held[k->pub.g_out + i - k->bufs]);
        if (!(c->g_in[at++] = aji_tensor_wrap(g, u->op.name)))
            status = AJ_ERR_MEMORY;
    }
    return status;
}

static aj_status vjp_vjp(aji_call *c) {
    custom *u = custom_of(c);
    layout l = operands_of(u);
    bool second = aji_sweep_creates_graph(c->sweep);
    for (int i = 0; i < l.g_out; i++)
        second = second || c->want[i];
    if (second)
        return aj_raise(c->ctx, AJ_ERR_UNSUPPORTED,
                        "%s: a second derivative was asked for; expected a callback vjp_ops (jvp gives first derivatives only)",
                        u->op.name);
    size_t bytes = (size_t)l.n * sizeof(aji_value *);
    aji_value **x = aji_calloc(c->ctx, bytes);
    if (!x)
        return AJ_ERR_MEMORY;
    for (int i = 0; i < l.g_out; i++)
        x[i] = aji_tensor_value(c->in[i], u->op.name);
    call k;
    aj_status status = call_open(c, &k);
    if (status == AJ_OK)
        status = run_jvp(c, u, &k, x);
    call_close(&k);
    aji_free(c->ctx, x, bytes);
    return status;
}

static aj_status vjp_as_node(aji_call *c) {
    custom *u = custom_of(c);
    layout l = operands_of(u);
    int n_results = count_floats(u->in_meta, u->n_in);
    size_t bytes = (size_t)(l.n + n_results) * sizeof(aj_tensor *);
    aj_tensor **operands = aji_calloc(c->ctx, bytes), **results = operands + l.n;
    if (!operands)
        return AJ_ERR_MEMORY;
    for (int i = 0; l.in >= 0 && i < u->n_in; i++)
        operands[l.in + i] = c->in[i];
    for (int i = 0; l.out >= 0 && i < u->op.n_out; i++)
        operands[l.out + i] = c->out[i];
    for (int i = 0, at = l.g_out; i < u->op.n_out; i++)
        if (aji_dtype_is_float(u->out_meta[i].dtype))
            operands[at++] = c->g_out[i];
    u->refs++;
    aj_status status = aji_apply(&u->vjp_base, c->comm, c->ctx, &u, l.n, operands, n_results, results);
    for (int i = 0, k = 0; i < u->n_in && status == AJ_OK; i++)
        if (aji_dtype_is_float(u->in_meta[i].dtype))
            c->g_in[i] = results[k++];
    aji_free(c->ctx, operands, bytes);
    return status;
}

static aj_status vjp(aji_call *c) {
    custom *u = custom_of(c);
    if (!aji_sweep_creates_graph(c->sweep))
        return vjp_buffers(c);
    if (u->op.vjp_ops) {
        aj_status status = u->op.vjp_ops(c->ctx, u->attr, c->in, c->out, c->g_out, c->g_in);
        if (status != AJ_OK && aj_ctx_status(c->ctx) == AJ_OK)
            aj_raise(c->ctx, status, "%s: its callback vjp_ops returned %s", u->op.name, aj_status_name(status));
        return aj_ctx_status(c->ctx);
    }
    if (u->op.jvp)
        return vjp_as_node(c);
    return aj_raise(c->ctx, AJ_ERR_UNSUPPORTED,
                    "%s: a derivative of its derivative was asked for (AJ_CREATE_GRAPH, aj_jvp); expected a callback vjp_ops, or "
                    "jvp for aj_jvp",
                    u->op.name);
}

/* ---- aj_apply ---- */

static unsigned needs(const aj_op *op) {
    return (op->need & AJ_NEED_IN ? AJI_NEED_ALL_IN : 0) | (op->need & AJ_NEED_OUT ? AJI_NEED_OUT : 0);
}

static custom *custom_new(aj_ctx *ctx, const aj_op *op, bool comm, const void *attr, int n_in) {
    custom *u = aji_calloc(ctx, sizeof(*u));
    if (!u)
        return NULL;
    u->op = (aj_op){0};
    memcpy(&u->op, op, op->size);
    u->refs = 1;
    u->n_in = n_in;
    unsigned flags = AJI_OP_MIXED_DTYPES | AJI_OP_CUSTOM | (comm ? AJI_OP_COMM : 0);
    u->base = (aji_op){.name = op->name,
                       .maths = op->maths,
                       .flags = flags,
                       .need = needs(op),
                       .attr_size = sizeof(u),
                       .attr_free = custom_free,
                       .infer = infer,
                       .forward = forward,
                       .vjp = op->vjp ? vjp : NULL};
    u->vjp_base = (aji_op){.name = op->name,
                           .maths = "gx = vjp(x, y, g)",
                           .flags = flags,
                           .need = AJI_NEED_ALL_IN,
                           .attr_size = sizeof(u),
                           .attr_free = custom_free,
                           .infer = vjp_infer,
                           .forward = vjp_forward,
                           .vjp = vjp_vjp};
    u->meta_bytes = (size_t)(n_in + op->n_out) * sizeof(aji_meta);
    u->in_meta = aji_calloc(ctx, u->meta_bytes);
    u->saved = aji_calloc(ctx, (size_t)op->n_saved * sizeof(*u->saved));
    u->attr = aji_alloc(ctx, op->attr_size);
    if (!u->in_meta || !u->saved || !u->attr) {
        custom_free(ctx, &u);
        return NULL;
    }
    u->out_meta = u->in_meta + n_in;
    if (op->attr_size)
        memcpy(u->attr, attr, op->attr_size);
    return u;
}

static aj_status check_arguments(aj_ctx *ctx, const aj_op *op, const void *attr, int n_in, aj_tensor *const *ins, int n_out,
                                 aj_tensor **outs) {
    static const char name[] = "aj_apply";
    if (!op || op->size < offsetof(aj_op, vjp) || op->size > sizeof(aj_op)) /* forward is the last member that must be there */
        return aj_raise(ctx, AJ_ERR_ARG, "%s: op %s; expected an aj_op whose size is sizeof(aj_op)", name,
                        op ? "has an unknown size" : "is NULL");
    if (!op->name || !op->forward)
        return aj_raise(ctx, AJ_ERR_ARG, "%s: op has no %s; expected a name and a forward callback", name,
                        op->name ? "forward" : "name");
    if (n_in < 0 || (n_in > 0 && !ins) || n_out != op->n_out || n_out < 0 || (n_out > 0 && !outs))
        return aj_raise(ctx, AJ_ERR_ARG,
                        "%s: %s: %d inputs and %d outputs; expected arrays of as many, and op->n_out = %d outputs", name,
                        op->name, n_in, n_out, op->n_out);
    if (op->n_saved < 0 || (!op->infer && (op->n_saved > 0 || n_in == 0)))
        return aj_raise(ctx, AJ_ERR_ARG,
                        "%s: %s: %d saved buffers and %d inputs without a callback infer; expected infer to set the shapes", name,
                        op->name, op->n_saved, n_in);
    if (op->attr_size > 0 && !attr)
        return aj_raise(ctx, AJ_ERR_ARG, "%s: %s: attr is NULL; expected %zu bytes", name, op->name, op->attr_size);
    return AJ_OK;
}

aj_status aj_apply(aj_ctx *ctx, const aj_op *op, aj_comm *comm, const void *attr, int n_in, aj_tensor *const *ins, int n_out,
                   aj_tensor **outs) {
    if (!ctx)
        return AJ_ERR_ARG;
    for (int i = 0; outs && i < n_out; i++)
        outs[i] = NULL;
    const aji_comm_hooks *hooks = comm ? aji_autograd_comm_hooks(ctx) : NULL;
    aj_status status = check_arguments(ctx, op, attr, n_in, ins, n_out, outs);
    if (status == AJ_OK && comm && (!hooks || hooks->ctx(comm) != ctx))
        status = aj_raise(ctx, AJ_ERR_CONTEXT, "aj_apply: %s: the communicator belongs to another context", op->name);
    custom *u = status == AJ_OK ? custom_new(ctx, op, comm != NULL, attr, n_in) : NULL;
    if (u)
        return aji_apply(&u->base, comm, ctx, &u, n_in, ins, n_out, outs);
    if (hooks)
        hooks->gate(ctx, comm);
    return status == AJ_OK ? AJ_ERR_MEMORY : status;
}
