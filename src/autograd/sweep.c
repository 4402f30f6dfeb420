/*
 * The reverse sweep: visits the nodes of a recording in exact reverse order of creation, and calls their vjps.
 *
 * Local nodes are visited where a gradient has arrived and something behind them wants it. Communication nodes are visited always, with zeros where
 * nothing arrived: per communicator the order is then the same on every rank, and no rank waits for one that had nothing to say.
 */
#include "autograd/autograd_private.h"

/* What has been collected for one output or leaf: a value, and what it depends on where derivatives of it are wanted. Holds references. */
typedef struct gradient {
    aji_value *value; /* NULL: zero so far */
    aji_link *link;
    int out;
} gradient;

/* A leaf that the sweep collects for. Sweeps may nest (a vjp may differentiate): the outer one's claim on the leaf is put back at the end. */
typedef struct collected {
    aji_node *leaf;
    gradient grad;
    aji_sweep *outer;
    int64_t outer_slot;
} collected;

struct aji_sweep {
    aj_ctx *ctx;
    aji_autograd *ag;
    const aji_sweep_spec *spec;
    aji_recording *recording;
    int64_t from, n;     /* visits the nodes [from, from + n) */
    bool *visit;         /* by node */
    int64_t *first;      /* by node: its outputs' place in grads; n + 1 entries */
    gradient *grads;     /* by output */
    bool *captured;      /* by output: a result of aj_grad_of */
    aj_tensor **scratch; /* arrays for the call of a vjp */
    int64_t scratch_capacity;
    collected *leaves;
    int64_t n_leaves, leaves_capacity;
    bool communicates;
    bool consumes; /* nobody will ask again: what a node saved goes as soon as it was visited */
};

int64_t aji_sweep_count(const aji_sweep *sweep) {
    return sweep->n;
}

aji_node *aji_sweep_node(const aji_sweep *sweep, int64_t i) {
    return sweep->recording->nodes[sweep->from + i];
}

bool aji_sweep_visits(const aji_sweep *sweep, int64_t i) {
    return sweep->visit[i];
}

bool aji_sweep_creates_graph(const aji_sweep *sweep) {
    return sweep->spec->flags & AJ_CREATE_GRAPH;
}

bool aji_sweep_reached_only(const aji_sweep *sweep) {
    return sweep->spec->flags & AJ_REACHED;
}

bool aji_sweep_transposes(const aji_sweep *sweep) {
    return sweep->spec->flags & AJI_TRANSPOSE;
}

static bool is_comm(const aji_node *node) {
    return node->op->flags & AJI_OP_COMM;
}

/* ---- what is wanted ---- */

static aj_status collect_for(aji_sweep *s, aji_node *leaf) {
    if (leaf->sweep == s)
        return AJ_OK;
    void *items = s->leaves;
    aj_status status = aji_grow(s->ctx, &items, &s->leaves_capacity, s->n_leaves + 1, sizeof(*s->leaves));
    if (status != AJ_OK)
        return status;
    s->leaves = items;
    s->leaves[s->n_leaves] = (collected){leaf, {0}, leaf->sweep, leaf->slot};
    aji_link_retain(&leaf->link);
    leaf->sweep = s;
    leaf->slot = s->n_leaves++;
    return AJ_OK;
}

static bool in_range(const aji_sweep *s, const aji_node *node) {
    return node->recording == s->recording && node->index >= s->from && node->index < s->from + s->n;
}

/* Does a gradient along this edge lead to anything that is wanted? */
static bool wanted(const aji_sweep *s, aji_edge e) {
    if (!e.node)
        return false;
    if (!e.node->op)
        return e.node->sweep == s;
    if (!in_range(s, e.node))
        return false;
    int64_t i = e.node->index - s->from;
    return s->visit[i] || s->captured[s->first[i] + e.out];
}

/* Where a gradient for this edge is collected; NULL: nowhere. */
static gradient *place(aji_sweep *s, aji_edge e) {
    if (!wanted(s, e))
        return NULL;
    return e.node->op ? &s->grads[s->first[e.node->index - s->from] + e.out] : &s->leaves[e.node->slot].grad;
}

static aj_status capture(aji_sweep *s) {
    for (int i = 0; i < s->spec->n_in; i++) {
        aji_edge e = aji_tensor_edge(s->spec->ins[i]);
        aj_status status = AJ_OK;
        if (e.node && !e.node->op)
            status = collect_for(s, e.node);
        else if (e.node && in_range(s, e.node))
            s->captured[s->first[e.node->index - s->from] + e.out] = true;
        if (status != AJ_OK)
            return status;
    }
    return AJ_OK;
}

/* Which nodes lead to something wanted: communication always does. In order of creation, so inputs come first. */
static aj_status mark_wanted(aji_sweep *s) {
    for (int64_t i = 0; i < s->n; i++) {
        const aji_node *node = aji_sweep_node(s, i);
        s->visit[i] = is_comm(node);
        for (int k = 0; k < node->n_in; k++) {
            aji_edge e = node->in[k];
            if (!s->spec->grads && e.node && !e.node->op && collect_for(s, e.node) != AJ_OK)
                return AJ_ERR_MEMORY;
            s->visit[i] = s->visit[i] || wanted(s, e);
        }
    }
    return AJ_OK;
}

/* AJ_REACHED: of those, only the ancestors of the roots. */
static aj_status mark_reached(aji_sweep *s) {
    bool *reached = aji_calloc(s->ctx, (size_t)s->n);
    if (!reached)
        return AJ_ERR_MEMORY;
    for (int k = 0; k < s->spec->n_out; k++) {
        aji_edge e = aji_tensor_edge(s->spec->outs[k]);
        if (e.node && e.node->op && in_range(s, e.node))
            reached[e.node->index - s->from] = true;
    }
    for (int64_t i = s->n - 1; i >= 0; i--) {
        const aji_node *node = aji_sweep_node(s, i);
        for (int k = 0; reached[i] && k < node->n_in; k++) {
            aji_edge e = node->in[k];
            if (e.node && e.node->op && in_range(s, e.node))
                reached[e.node->index - s->from] = true;
        }
        s->visit[i] = s->visit[i] && reached[i];
    }
    aji_free(s->ctx, reached, (size_t)s->n);
    return AJ_OK;
}

/* ---- gradients ---- */

static void gradient_release(gradient *g) {
    aji_value_release(g->value);
    aji_link_release(g->link);
    *g = (gradient){0};
}

/* Takes over the value's reference. */
static void gradient_set(gradient *g, aji_value *value, aji_link *link, int out) {
    if (link)
        aji_link_retain(link);
    gradient_release(g);
    *g = (gradient){value, link, out};
}

/* A handle of the current scope; NULL raised. */
static aj_tensor *gradient_handle(const gradient *g) {
    aj_tensor *t = aji_tensor_wrap(aji_value_retain(g->value), "aj_backward");
    if (t && g->link)
        aji_tensor_set_link(t, g->link, g->out);
    return t;
}

/* The same, and the gradient is given up: the handle may be the only one to hold the value, which may be overwritten then. */
static aj_tensor *gradient_take(gradient *g) {
    aj_tensor *t = gradient_handle(g);
    gradient_release(g);
    return t;
}

static aj_status add_gradient(aji_sweep *s, gradient *sum, aj_tensor *g) {
    aji_value *value = aji_tensor_pending(g, "aj_backward");
    int out = 0;
    if (!value)
        return aj_ctx_status(s->ctx);
    if (!sum->value) {
        aji_link *link = aji_tensor_link(g, &out);
        gradient_set(sum, aji_value_retain(value), link, out);
    } else if (!aji_sweep_creates_graph(s)) {
        aji_step add = {.opcode = AJI_STEP_ADD, .dtype = value->meta.dtype};
        aji_value *both[] = {sum->value, value};
        if (!(value = aji_value_step(s->ctx, value->device, &value->meta, &add, 2, both)))
            return aj_ctx_status(s->ctx);
        gradient_set(sum, value, NULL, 0);
    } else {
        aj_tensor *before = gradient_handle(sum), *total = before ? aj_add(before, g) : NULL;
        if (!total)
            return aj_ctx_status(s->ctx);
        aji_link *link = aji_tensor_link(total, &out);
        gradient_set(sum, aji_value_retain(aji_tensor_pending(total, "aj_backward")), link, out);
    }
    return AJ_OK;
}

static aj_status seed_roots(aji_sweep *s) {
    const aji_sweep_spec *spec = s->spec;
    for (int k = 0; k < spec->n_out; k++) {
        aji_edge e = aji_tensor_edge(spec->outs[k]);
        if (!spec->grads && e.node && !e.node->op && collect_for(s, e.node) != AJ_OK)
            return AJ_ERR_MEMORY;
        gradient *sum = place(s, e);
        if (!sum)
            continue; /* depends on nothing that is wanted */
        aj_tensor *seed = spec->seeds && spec->seeds[k] ? spec->seeds[k] : aji_full_like(spec->outs[k], 1);
        if (!seed || add_gradient(s, sum, seed) != AJ_OK)
            return aj_ctx_status(s->ctx);
    }
    return AJ_OK;
}

/* A saved value as an operand again, linked to where it came from so that derivatives of derivatives find it. */
static aj_tensor *operand(const aji_sweep *s, aji_value *v, aji_edge from, const char *by) {
    aj_tensor *t = aji_tensor_wrap(aji_value_retain(v), by);
    if (t && from.node && aji_sweep_creates_graph(s))
        aji_tensor_set_link(t, &from.node->link, from.out);
    return t;
}

/* The vjp's arrays: in, out, g_in, g_out, then want. */
static aj_status make_arrays(aji_sweep *s, int64_t i, aji_call *c) {
    aji_node *node = c->node;
    int64_t pointers = 2 * (node->n_in + node->n_out), bytes = node->n_in;
    int64_t wanted_slots = pointers + (bytes + (int64_t)sizeof(void *) - 1) / (int64_t)sizeof(void *);
    void *scratch = s->scratch;
    if (aji_grow(s->ctx, &scratch, &s->scratch_capacity, wanted_slots, sizeof(*s->scratch)) != AJ_OK)
        return AJ_ERR_MEMORY;
    s->scratch = scratch;
    aj_tensor **in = s->scratch, **out = in + node->n_in, **g_in = out + node->n_out, **g_out = g_in + node->n_in;
    bool *want = (bool *)(g_out + node->n_out);
    for (int k = 0; k < node->n_in; k++) {
        want[k] = wanted(s, node->in[k]);
        in[k] = g_in[k] = NULL;
        if (node->saved_in[k] && !(in[k] = operand(s, node->saved_in[k], node->in[k], node->op->name)))
            return AJ_ERR_MEMORY;
    }
    for (int k = 0; k < node->n_out; k++) {
        bool floating = aji_dtype_is_float(node->out_meta[k].dtype);
        gradient *g = &s->grads[s->first[i] + k];
        out[k] = g_out[k] = NULL;
        aji_edge self = {floating ? node : NULL, k};
        if (node->saved_out[k] && !(out[k] = operand(s, node->saved_out[k], self, node->op->name)))
            return AJ_ERR_MEMORY;
        if (floating && g->value)
            g_out[k] = s->captured[s->first[i] + k] ? gradient_handle(g) : gradient_take(g);
        else if (floating)
            g_out[k] = aji_zeros_meta(s->ctx, node->device, &node->out_meta[k]);
        if (floating && !g_out[k])
            return AJ_ERR_MEMORY;
    }
    c->in = in;
    c->out = out;
    c->g_in = g_in;
    c->g_out = g_out;
    c->want = want;
    return AJ_OK;
}

static aj_status call_vjp(aji_sweep *s, int64_t i) {
    aji_node *node = aji_sweep_node(s, i);
    aji_call c = {.ctx = s->ctx,
                  .op = node->op,
                  .attr = node->attr,
                  .comm = node->comm,
                  .device = node->device,
                  .n_in = node->n_in,
                  .n_out = node->n_out,
                  .in_meta = node->in_meta,
                  .out_meta = node->out_meta,
                  .node = node,
                  .sweep = s};
    aj_status status = make_arrays(s, i, &c);
    if (status == AJ_OK)
        status = node->op->vjp(&c);
    if (status == AJ_OK)
        status = aj_ctx_status(s->ctx);
    for (int k = 0; k < node->n_in && status == AJ_OK; k++) {
        if (!c.want[k] || !c.g_in[k])
            continue;
        bool elementwise = node->op->flags & AJI_OP_ELEMENTWISE;
        aj_tensor *g = elementwise ? aji_sum_to(c.g_in[k], &node->in_meta[k]) : c.g_in[k];
        status = g ? add_gradient(s, place(s, node->in[k]), g) : aj_ctx_status(s->ctx);
    }
    return status;
}

/* Handles that a vjp makes are released after it. A communication that is differentiated may leave requests in its scope, and a custom operation anything. */
static aj_status call_in_scope(aji_sweep *s, int64_t i) {
    unsigned flags = aji_sweep_node(s, i)->op->flags;
    if (!(flags & AJI_OP_CUSTOM) && (!(flags & AJI_OP_COMM) || !aji_sweep_creates_graph(s))) {
        aji_handles handles = aji_handles_begin(s->ctx);
        aj_status status = call_vjp(s, i);
        aji_handles_release(handles);
        return status;
    }
    aj_scope *scope = aj_scope_begin(s->ctx);
    if (!scope)
        return AJ_ERR_MEMORY;
    aj_status status = call_vjp(s, i), ended = aj_scope_end(scope);
    return status == AJ_OK ? ended : status;
}

static aj_status visit(aji_sweep *s, int64_t i) {
    aji_node *node = aji_sweep_node(s, i);
    gradient *g_out = s->grads + s->first[i];
    bool arrived = is_comm(node);
    for (int k = 0; k < node->n_out; k++)
        arrived = arrived || g_out[k].value;
    aj_status status = s->visit[i] && arrived ? call_in_scope(s, i) : AJ_OK;
    if (s->consumes)
        aji_node_drop_saved(node);
    for (int k = 0; k < node->n_out; k++)
        if (!s->captured[s->first[i] + k])
            gradient_release(&g_out[k]);
    return status;
}

/* ---- results ---- */

/* New handles in the current scope, linked like the collected gradients. */
static aj_status hand_out(aji_sweep *s) {
    const aji_sweep_spec *spec = s->spec;
    for (int i = 0; i < spec->n_in; i++) {
        const gradient *sum = place(s, aji_tensor_edge(spec->ins[i]));
        spec->grads[i] = sum && sum->value ? gradient_handle(sum) : aji_zeros_like(spec->ins[i]);
        if (!spec->grads[i])
            return aj_ctx_status(s->ctx);
    }
    return AJ_OK;
}

/* Add to the parameters: all, or none if an addition fails. The sums are evaluated here: what they need of the recording can go then. */
static aj_status commit(aji_sweep *s) {
    for (int64_t i = 0; i < s->n_leaves; i++) {
        collected *c = &s->leaves[i];
        if (!c->grad.value)
            continue;
        aj_tensor *before = c->leaf->grad ? aji_tensor_wrap(aji_value_retain(c->leaf->grad), "aj_backward") : NULL;
        if (c->leaf->grad && (!before || add_gradient(s, &c->grad, before) != AJ_OK))
            return aj_ctx_status(s->ctx);
        aj_status status = aji_value_evaluate(c->grad.value);
        if (status != AJ_OK)
            return status;
    }
    for (int64_t i = 0; i < s->n_leaves; i++) {
        collected *c = &s->leaves[i];
        if (!c->grad.value)
            continue;
        aji_value_release(c->leaf->grad);
        c->leaf->grad = aji_value_retain(c->grad.value);
    }
    return AJ_OK;
}

/* ---- the sweep ---- */

static aj_status open_sweep(aji_sweep *s) {
    s->first = aji_alloc(s->ctx, (size_t)(s->n + 1) * sizeof(*s->first));
    if (!s->first)
        return AJ_ERR_MEMORY;
    s->first[0] = 0;
    for (int64_t i = 0; i < s->n; i++) {
        s->first[i + 1] = s->first[i] + aji_sweep_node(s, i)->n_out;
        s->communicates = s->communicates || is_comm(aji_sweep_node(s, i));
    }
    size_t outputs = (size_t)s->first[s->n];
    s->visit = aji_calloc(s->ctx, (size_t)s->n);
    s->grads = aji_calloc(s->ctx, outputs * sizeof(*s->grads));
    s->captured = aji_calloc(s->ctx, outputs);
    return s->visit && s->grads && s->captured ? AJ_OK : AJ_ERR_MEMORY;
}

static void close_sweep(aji_sweep *s) {
    for (int64_t i = 0; s->grads && i < s->first[s->n]; i++)
        gradient_release(&s->grads[i]);
    for (int64_t i = s->n_leaves - 1; i >= 0; i--) {
        collected *c = &s->leaves[i];
        gradient_release(&c->grad);
        c->leaf->sweep = c->outer;
        c->leaf->slot = c->outer_slot;
        aji_link_release(&c->leaf->link);
    }
    size_t outputs = s->first ? (size_t)s->first[s->n] : 0;
    aji_free(s->ctx, s->scratch, (size_t)s->scratch_capacity * sizeof(*s->scratch));
    aji_free(s->ctx, s->leaves, (size_t)s->leaves_capacity * sizeof(*s->leaves));
    aji_free(s->ctx, s->captured, outputs);
    aji_free(s->ctx, s->grads, outputs * sizeof(*s->grads));
    aji_free(s->ctx, s->visit, (size_t)s->n);
    aji_free(s->ctx, s->first, (size_t)(s->n + 1) * sizeof(*s->first));
}

static aj_status visit_all(aji_sweep *s) {
    aj_status status = capture(s);
    if (status == AJ_OK)
        status = mark_wanted(s);
    if (status == AJ_OK && (s->spec->flags & AJ_REACHED))
        status = mark_reached(s);
    if (status == AJ_OK)
        status = seed_roots(s);
    if (status != AJ_OK)
        return status;
    const aji_comm_hooks *comm = s->communicates ? &s->ag->comm : NULL;
    if (comm && (status = comm->sweep_begin(s->ctx, s)) != AJ_OK)
        return status;
    for (int64_t i = s->n - 1; i >= 0 && status == AJ_OK; i--)
        status = visit(s, i);
    return comm ? comm->sweep_end(s->ctx, s, status) : status;
}

static aj_status run_in_scope(aji_sweep *s) {
    aj_scope *scope = aj_scope_begin(s->ctx);
    if (!scope)
        return AJ_ERR_MEMORY;
    aj_status status = open_sweep(s);
    if (status == AJ_OK)
        status = visit_all(s);
    if (status == AJ_OK)
        status = s->spec->grads ? hand_out(s) : commit(s);
    for (int i = 0; s->spec->grads && i < s->spec->n_in; i++)
        if (status == AJ_OK)
            aj_scope_return(scope, s->spec->grads[i]);
        else
            s->spec->grads[i] = NULL; /* the scope frees it */
    close_sweep(s);
    aj_status ended = aj_scope_end(scope);
    return status == AJ_OK ? ended : status;
}

aj_status aji_check_pair(aj_ctx *ctx, const char *op, const char *what, int k, aj_tensor *t, aj_tensor *like) {
    char a[160], b[160];
    if (!t)
        return aj_raise(ctx, AJ_ERR_ARG, "%s: %s %d is NULL; expected a tensor", op, what, k);
    aj_status status = aj_tensor_ctx(t) != ctx ? AJ_ERR_CONTEXT : AJ_OK;
    if (status != AJ_OK)
        return aj_raise(ctx, status, "%s: %s %d belongs to another context", op, what, k);
    if (!aji_dtype_is_float(aj_tensor_dtype(t)))
        return aj_raise(ctx, AJ_ERR_DTYPE, "%s: %s %d is %s; expected f64 or f32", op, what, k,
                        aj_dtype_name(aj_tensor_dtype(t)));
    if (!like)
        return AJ_OK;
    const aji_meta *m = aji_tensor_meta(t), *l = aji_tensor_meta(like);
    if (!aji_same_shape(m, l))
        return aj_raise(ctx, AJ_ERR_SHAPE, "%s: %s %d has shape %s; expected %s", op, what, k,
                        aji_shape_text(m->ndim, m->shape, a), aji_shape_text(l->ndim, l->shape, b));
    if (m->dtype != l->dtype)
        return aj_raise(ctx, AJ_ERR_DTYPE, "%s: %s %d is %s; expected %s", op, what, k, aj_dtype_name(m->dtype),
                        aj_dtype_name(l->dtype));
    return AJ_OK;
}

static aj_status check_spec(aj_ctx *ctx, const char *op, const aji_sweep_spec *spec) {
    aji_autograd *ag = aji_autograd_of(ctx);
    if (!ag || !ag->recording)
        return aj_raise(ctx, AJ_ERR_STATE, "%s: there is no recording; expected one begun with aj_record_begin and not ended",
                        op);
    aj_status status = aji_refuse_open_request(ctx, op);
    if (status == AJ_OK && (spec->n_out < 0 || spec->n_in < 0))
        status = aj_raise(ctx, AJ_ERR_ARG, "%s: %d roots and %d inputs; expected counts >= 0", op, spec->n_out, spec->n_in);
    if (status == AJ_OK && ((spec->n_out > 0 && !spec->outs) || (spec->n_in > 0 && (!spec->ins || !spec->grads))))
        status = aj_raise(ctx, AJ_ERR_ARG, "%s: an array is NULL; expected one for %d roots and %d inputs", op, spec->n_out,
                          spec->n_in);
    for (int k = 0; k < spec->n_out && status == AJ_OK; k++) {
        status = aji_check_pair(ctx, op, "root", k, spec->outs[k], NULL);
        if (status == AJ_OK && spec->seeds && spec->seeds[k])
            status = aji_check_pair(ctx, op, "seed", k, spec->seeds[k], spec->outs[k]);
        if (status == AJ_OK && spec->seeds && spec->seeds[k] && aji_tensor_consumer(spec->seeds[k]))
            status = aji_check_operand(ctx, "aj_backward", spec->seeds[k]);
    }
    for (int i = 0; i < spec->n_in && status == AJ_OK; i++)
        status = aji_check_pair(ctx, op, "input", i, spec->ins[i], NULL);
    return status;
}

aj_status aji_gate_recording(aj_ctx *ctx) {
    const aji_autograd *ag = aji_autograd_of(ctx);
    if (aj_ctx_status(ctx) != AJ_OK && ag && ag->recording && ag->recording->n_comm > 0)
        ag->comm.gate(ctx, NULL);
    return aj_ctx_status(ctx);
}

aj_status aji_sweep_run(aj_ctx *ctx, const char *op, const aji_sweep_spec *spec) {
    for (int i = 0; spec->grads && i < spec->n_in; i++)
        spec->grads[i] = NULL;
    aj_status status = aj_ctx_status(ctx);
    if (status == AJ_OK)
        status = check_spec(ctx, op, spec);
    aji_autograd *ag = aji_autograd_of(ctx);
    aji_recording *r = ag ? ag->recording : NULL;
    if (status == AJ_OK) {
        aji_sweep s = {.ctx = ctx, .ag = ag, .spec = spec, .recording = r, .from = spec->from, .n = r->n - spec->from};
        s.consumes = !spec->grads && !(spec->flags & AJ_RETAIN_GRAPH);
        bool stopped = r->stopped;
        int no_grad = ag->no_grad;
        int64_t before = r->n;
        ag->no_grad = aji_sweep_creates_graph(&s) ? 0 : 1;
        r->stopped = false;
        const char *before_op = aji_ctx_enter(ctx, op);
        const char *outer_call = ag->sweep_call;
        ag->sweep_call = op;
        ag->sweeps++;
        status = run_in_scope(&s);
        ag->sweeps--;
        ag->sweep_call = outer_call;
        aji_ctx_enter(ctx, before_op);
        r->stopped = stopped;
        ag->no_grad = no_grad;
        if (status != AJ_OK)
            aji_recording_truncate(ctx, before);
    }
    return status == AJ_OK ? AJ_OK : aji_gate_recording(ctx);
}
