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

static aji_node *node_new(aj_ctx *ctx, size_t bytes) {
    aji_node *node = aji_calloc(ctx, bytes);
    if (!node)
        return NULL;
    node->link = (aji_link){.refs = 1, .free = node_free};
    node->ctx = ctx;
    node->bytes = bytes;
    aji_ctx_count(ctx, AJ_STAT_NODES, 1);
    return node;
}

aji_node *aji_leaf_new(aj_ctx *ctx) {
    aji_node *leaf = node_new(ctx, sizeof(*leaf));
    if (leaf)
        leaf->n_out = 1;
    return leaf;
}

/* The parts of a node's block, each aligned to 16 bytes. */
static size_t reserve(size_t *bytes, size_t count, size_t size) {
    size_t at = *bytes;
    *bytes += (count * size + 15) / 16 * 16;
    return at;
}

static void save_inputs(aji_node *node, const aji_call *c, aj_tensor *const *ins) {
    for (int i = 0; i < c->n_in; i++) {
        node->in[i] = aji_tensor_edge(ins[i]);
        if (node->in[i].node)
            aji_link_retain(&node->in[i].node->link);
        node->in_meta[i] = c->in_meta[i];
        if (i < 31 ? c->op->need & AJI_NEED_IN(i) : (c->op->need & AJI_NEED_ALL_IN) == AJI_NEED_ALL_IN)
            node->saved_in[i] = aji_value_save(c->x[i]);
    }
}

static void save_outputs(aji_node *node, const aji_call *c) {
    for (int k = 0; k < c->n_out; k++) {
        node->out_meta[k] = c->out_meta[k];
        if (c->op->need & AJI_NEED_OUT)
            node->saved_out[k] = aji_value_save(c->y[k]);
    }
}

aji_node *aji_node_record(const aji_call *c, aj_tensor *const *ins) {
    aji_autograd *ag = aji_autograd_of(c->ctx);
    aji_recording *r = ag->recording;
    void *nodes = r->nodes;
    if (aji_grow(c->ctx, &nodes, &r->capacity, r->n + 1, sizeof(*r->nodes)) != AJ_OK)
        return NULL;
    r->nodes = nodes;
    size_t n_in = (size_t)c->n_in, n_out = (size_t)c->n_out, bytes = 0;
    reserve(&bytes, 1, sizeof(aji_node));
    size_t edges = reserve(&bytes, n_in, sizeof(aji_edge)), in_meta = reserve(&bytes, n_in, sizeof(aji_meta));
    size_t out_meta = reserve(&bytes, n_out, sizeof(aji_meta)), saved_in = reserve(&bytes, n_in, sizeof(aji_value *));
    size_t saved_out = reserve(&bytes, n_out, sizeof(aji_value *)), attr = reserve(&bytes, 1, c->op->attr_size);
    aji_node *node = node_new(c->ctx, bytes);
    if (!node)
        return NULL;
    char *block = (char *)node;
    node->op = c->op;
    node->recording = r;
    node->index = r->n;
    node->n_in = c->n_in;
    node->n_out = c->n_out;
    node->device = c->device;
    node->in = (aji_edge *)(block + edges);
    node->in_meta = (aji_meta *)(block + in_meta);
    node->out_meta = (aji_meta *)(block + out_meta);
    node->saved_in = (aji_value **)(block + saved_in);
    node->saved_out = (aji_value **)(block + saved_out);
    node->attr = block + attr;
    if (c->op->attr_size)
        memcpy(node->attr, c->attr, c->op->attr_size);
    if (c->comm) {
        node->comm = c->comm;
        ag->comm.retain(c->comm);
    }
    save_inputs(node, c, ins);
    save_outputs(node, c);
    r->nodes[r->n++] = node;
    r->n_comm += (c->op->flags & AJI_OP_COMM) != 0;
    return node;
}

void aji_node_drop_saved(aji_node *node) {
    for (int i = 0; i < node->n_in; i++) {
        aji_value_release(node->saved_in[i]);
        node->saved_in[i] = NULL;
    }
    for (int k = 0; k < node->n_out; k++) {
        aji_value_release(node->saved_out[k]);
        node->saved_out[k] = NULL;
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
