/*
 * Nodes: what a recording remembers of an operation. Leaves: the nodes of parameters.
 */
#include <string.h>

#include "autograd/autograd_private.h"

static void node_free(aji_link *link) {
    aji_node *node = (aji_node *)link;
    aj_ctx *ctx = node->ctx;
    aji_node_clear(node);
    aji_free(ctx, node, node->bytes);
    aji_ctx_count(ctx, AJ_STAT_NODES, -1);
}

static void count_node(aji_node *node) {
    aji_ctx_count(node->ctx, AJ_STAT_NODES, 1);
}

aji_node *aji_leaf_new(aj_ctx *ctx) {
    aji_node *leaf = aji_alloc(ctx, sizeof(*leaf));
    if (!leaf)
        return NULL;
    *leaf = (aji_node){.link = {.refs = 1, .free = node_free}, .ctx = ctx, .bytes = sizeof(*leaf), .n_out = 1};
    count_node(leaf);
    return leaf;
}

/* A node of the current recording, with room for what it remembers, and attr: all in one block, the node, attr, edges, saved values, metas. */
static aji_node *node_new(aj_ctx *ctx, aji_recording *r, const aji_op *op, const void *attr, int n_in, int n_out) {
    void *nodes = r->nodes;
    if (r->n == r->capacity && aji_grow(ctx, &nodes, &r->capacity, r->n + 1, sizeof(*r->nodes)) != AJ_OK)
        return NULL;
    r->nodes = nodes;
    size_t in = (size_t)n_in, out = (size_t)n_out, attr_bytes = (op->attr_size + 15) / 16 * 16;
    size_t bytes = sizeof(aji_node) + attr_bytes + in * sizeof(aji_edge) + (in + out) * (sizeof(aji_value *) + sizeof(aji_meta));
    aji_node *node = aji_alloc(ctx, bytes);
    if (!node)
        return NULL;
    char *block = (char *)node + sizeof(*node);
    aji_edge *edges = (aji_edge *)(block + attr_bytes);
    aji_value **saved = (aji_value **)(edges + in);
    aji_meta *metas = (aji_meta *)(saved + in + out);
    *node = (aji_node){.link = {.refs = 1, .free = node_free},
                       .ctx = ctx,
                       .bytes = bytes,
                       .op = op,
                       .recording = r,
                       .index = r->n,
                       .n_in = n_in,
                       .n_out = n_out,
                       .attr = block,
                       .in = edges,
                       .in_meta = metas,
                       .out_meta = metas + in,
                       .saved_in = saved,
                       .saved_out = saved + in};
    if (op->attr_size)
        memcpy(block, attr, op->attr_size);
    r->nodes[r->n++] = node;
    r->n_comm += (op->flags & AJI_OP_COMM) != 0;
    count_node(node);
    return node;
}

static void set_input(aji_node *node, int i, aji_edge edge, const aji_meta *meta, aji_value *x) {
    unsigned need = node->op->need;
    bool saved = i < 31 ? need & AJI_NEED_IN(i) : (need & AJI_NEED_ALL_IN) == AJI_NEED_ALL_IN;
    if (edge.node)
        aji_link_retain(&edge.node->link);
    node->in[i] = edge;
    node->in_meta[i] = *meta;
    node->saved_in[i] = saved ? aji_value_save(x) : NULL;
}

static void set_output(aji_node *node, int k, const aji_meta *meta, aji_value *y) {
    node->out_meta[k] = *meta;
    node->saved_out[k] = node->op->need & AJI_NEED_OUT ? aji_value_save(y) : NULL;
}

aji_node *aji_node_record(const aji_call *c, aj_tensor *const *ins) {
    aji_autograd *ag = aji_autograd_of(c->ctx);
    aji_node *node = node_new(c->ctx, ag->recording, c->op, c->attr, c->n_in, c->n_out);
    if (!node)
        return NULL;
    node->device = c->device;
    if (c->comm) {
        node->comm = c->comm;
        ag->comm.retain(c->comm);
    }
    for (int i = 0; i < c->n_in; i++)
        set_input(node, i, aji_tensor_edge(ins[i]), &c->in_meta[i], c->x[i]);
    for (int k = 0; k < c->n_out; k++)
        set_output(node, k, &c->out_meta[k], c->y[k]);
    return node;
}

aji_node *aji_node_record_plain(const aji_op *op, const void *attr, int n, const aji_edge *in, aji_value *const *x,
                                aji_value *y) {
    aji_node *node = node_new(y->ctx, aji_autograd_of(y->ctx)->recording, op, attr, n, 1);
    if (!node)
        return NULL;
    node->device = y->device;
    for (int i = 0; i < n; i++)
        set_input(node, i, in[i], &x[i]->meta, x[i]);
    set_output(node, 0, &y->meta, y);
    return node;
}

void aji_node_drop_saved(aji_node *node) {
    aji_value **saved = node->saved_in; /* the outputs' follow */
    for (int i = 0; i < node->n_in + node->n_out; i++)
        if (saved[i]) {
            aji_value_release(saved[i]);
            saved[i] = NULL;
        }
}

void aji_node_clear(aji_node *node) {
    aji_value_release(node->grad);
    node->grad = NULL;
    if (!node->recording)
        return;
    node->recording = NULL;
    aji_node_drop_saved(node);
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i].node)
            aji_link_release(&node->in[i].node->link);
    if (node->op->attr_free)
        node->op->attr_free(node->ctx, node->attr);
    if (node->comm)
        aji_autograd_of(node->ctx)->comm.release(node->comm);
}

aji_edge aji_tensor_edge(const aj_tensor *t) {
    int out = 0;
    aji_node *node = (aji_node *)aji_tensor_link(t, &out);
    const aji_autograd *ag = aji_autograd_of(aj_tensor_ctx(t));
    bool live = node && (!node->op || (node->recording && node->recording == ag->recording));
    return live ? (aji_edge){node, out} : (aji_edge){NULL, 0};
}

bool aji_is_active(const aj_tensor *t) {
    return aji_tensor_edge(t).node != NULL;
}

aji_node *aji_param_leaf(const aj_tensor *t) {
    aji_node *node = (aji_node *)aji_tensor_link(t, NULL);
    return node && !node->op ? node : NULL;
}

bool aji_is_param(const aj_tensor *t) {
    return aji_param_leaf(t) != NULL;
}

void *aji_node_attr(aji_node *node) {
    return node->attr;
}

aj_comm *aji_node_comm(const aji_node *node) {
    return node->comm;
}

const aji_op *aji_node_op(const aji_node *node) {
    return node->op;
}
