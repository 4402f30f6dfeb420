/*
 * Recordings: begin, stop, end, no-grad, and what a scope puts back at its end.
 */
#include <string.h>

#include "autograd/autograd_private.h"

/* What a scope remembers at its begin. */
typedef struct mark {
    int64_t id; /* 0: no recording */
    int no_grad;
    bool stopped;
} mark;

static void scope_mark(aj_ctx *ctx, void *room) {
    const aji_autograd *ag = aji_autograd_of(ctx);
    mark m = {
        .id = ag->recording ? ag->recording->id : 0, .no_grad = ag->no_grad, .stopped = ag->recording && ag->recording->stopped};
    memcpy(room, &m, sizeof(m));
}

static void scope_restore(aj_ctx *ctx, const void *room, aj_scope *scope) {
    (void)scope;
    aji_autograd *ag = aji_autograd_of(ctx);
    mark m;
    memcpy(&m, room, sizeof(m));
    ag->no_grad = m.no_grad;
    if (!ag->recording)
        return;
    if (ag->recording->id == m.id)
        ag->recording->stopped = m.stopped;
    else
        aji_recording_drop(ctx);
}

static bool destroy(aj_ctx *ctx) {
    aji_recording_drop(ctx);
    aji_free(ctx, aji_autograd_of(ctx), sizeof(aji_autograd));
    aji_ctx_set_layer(ctx, AJI_SLOT_AUTOGRAD, NULL);
    return false;
}

aj_status aji_autograd_attach(aj_ctx *ctx) {
    if (aji_autograd_of(ctx))
        return AJ_OK;
    aji_autograd *ag = aji_calloc(ctx, sizeof(*ag));
    if (!ag)
        return AJ_ERR_MEMORY;
    ag->layer = (aji_layer){.scope_mark = scope_mark, .scope_restore = scope_restore, .destroy = destroy};
    aji_ctx_set_layer(ctx, AJI_SLOT_AUTOGRAD, &ag->layer);
    return AJ_OK;
}

aj_status aji_autograd_set_comm_hooks(aj_ctx *ctx, const aji_comm_hooks *hooks) {
    aj_status status = aji_autograd_attach(ctx);
    if (status != AJ_OK)
        return status;
    aji_autograd_of(ctx)->comm = *hooks;
    aji_autograd_of(ctx)->has_comm = true;
    return AJ_OK;
}

const aji_comm_hooks *aji_autograd_comm_hooks(aj_ctx *ctx) {
    aji_autograd *ag = aji_autograd_of(ctx);
    return ag && ag->has_comm ? &ag->comm : NULL;
}

aj_status aji_refuse_open_request(aj_ctx *ctx, const char *op) {
    const aji_comm_hooks *comm = aji_autograd_comm_hooks(ctx);
    const char *request = comm ? comm->open_request(ctx) : NULL;
    if (request)
        return aj_raise(ctx, AJ_ERR_STATE,
                        "%s: a request is open: %s; wait for it first (a message starts and ends inside the same recording)", op,
                        request);
    return AJ_OK;
}

aj_status aj_record_begin(aj_ctx *ctx) {
    static const char op[] = "aj_record_begin";
    if (!ctx)
        return AJ_ERR_ARG;
    aj_status status = aji_autograd_attach(ctx);
    if (status != AJ_OK)
        return status;
    aji_autograd *ag = aji_autograd_of(ctx);
    if (ag->recording)
        return aj_raise(ctx, AJ_ERR_STATE,
                        "%s: a recording is %s already; expected none: end it with aj_backward or aj_record_end first", op,
                        ag->recording->stopped ? "stopped" : "open");
    if ((status = aji_refuse_open_request(ctx, op)) != AJ_OK)
        return status;
    aji_recording *recording = aji_calloc(ctx, sizeof(*recording));
    if (!recording)
        return AJ_ERR_MEMORY;
    recording->id = ++ag->last_id;
    ag->recording = recording;
    return AJ_OK;
}

aj_status aj_record_stop(aj_ctx *ctx) {
    static const char op[] = "aj_record_stop";
    if (!ctx)
        return AJ_ERR_ARG;
    aji_autograd *ag = aji_autograd_of(ctx);
    if (!ag || !ag->recording || ag->recording->stopped)
        return aj_raise(ctx, AJ_ERR_STATE, "%s: %s; expected an open one, begun with aj_record_begin", op,
                        ag && ag->recording ? "the recording is stopped already" : "there is no recording");
    aj_status status = aji_refuse_open_request(ctx, op);
    if (status == AJ_OK)
        ag->recording->stopped = true;
    return status;
}

aj_status aj_record_end(aj_ctx *ctx) {
    static const char op[] = "aj_record_end";
    if (!ctx)
        return AJ_ERR_ARG;
    aji_autograd *ag = aji_autograd_of(ctx);
    if (!ag || !ag->recording)
        return aj_raise(ctx, AJ_ERR_STATE, "%s: there is no recording; expected one begun with aj_record_begin", op);
    aj_status status = aji_refuse_open_request(ctx, op);
    if (status == AJ_OK)
        aji_recording_drop(ctx);
    return status;
}

bool aj_is_recording(const aj_ctx *ctx) {
    return ctx && aji_records(aji_autograd_of(ctx));
}

aj_status aj_no_grad_begin(aj_ctx *ctx) {
    if (!ctx)
        return AJ_ERR_ARG;
    aj_status status = aji_autograd_attach(ctx);
    if (status == AJ_OK)
        status = aji_refuse_open_request(ctx, "aj_no_grad_begin");
    if (status == AJ_OK)
        aji_autograd_of(ctx)->no_grad++;
    return status;
}

aj_status aj_no_grad_end(aj_ctx *ctx) {
    static const char op[] = "aj_no_grad_end";
    if (!ctx)
        return AJ_ERR_ARG;
    aji_autograd *ag = aji_autograd_of(ctx);
    if (!ag || ag->no_grad == 0)
        return aj_raise(ctx, AJ_ERR_STATE, "%s: no-grad is not on; expected an aj_no_grad_begin before", op);
    aj_status status = aji_refuse_open_request(ctx, op);
    if (status == AJ_OK)
        ag->no_grad--;
    return status;
}

void aji_recording_truncate(aj_ctx *ctx, int64_t n) {
    aji_recording *r = aji_autograd_of(ctx)->recording;
    while (r->n > n) { /* last first: whoever is released here is still held by the recording, so nothing recurses */
        aji_node *node = r->nodes[--r->n];
        r->n_comm -= (node->op->flags & AJI_OP_COMM) != 0;
        aji_node_clear(node);
        aji_link_release(&node->link);
    }
}

void aji_recording_drop(aj_ctx *ctx) {
    aji_autograd *ag = aji_autograd_of(ctx);
    aji_recording *r = ag->recording;
    if (!r)
        return;
    aji_recording_truncate(ctx, 0);
    for (int64_t i = 0; i < r->n_consumed; i++) {
        aji_tensor_unconsume(r->consumed[i].param, r->consumed[i].value);
        aj_release(&r->consumed[i].param);
    }
    aji_free(ctx, r->consumed, (size_t)r->consumed_capacity * sizeof(*r->consumed));
    aji_free(ctx, r->nodes, (size_t)r->capacity * sizeof(*r->nodes));
    aji_free(ctx, r, sizeof(*r));
    ag->recording = NULL;
}

aj_status aji_recording_remember_consumed(aj_ctx *ctx, aj_tensor *param, aji_value *value) {
    aji_recording *r = aji_autograd_of(ctx)->recording;
    void *items = r->consumed;
    aj_status status = aji_grow(ctx, &items, &r->consumed_capacity, r->n_consumed + 1, sizeof(*r->consumed));
    if (status != AJ_OK)
        return status;
    r->consumed = items;
    r->consumed[r->n_consumed++] = (aji_consumed){aj_keep(param), aji_value_retain(value)};
    return AJ_OK;
}

void aji_recording_swap(aj_ctx *ctx, aji_recording **recording, int *no_grad) {
    aji_autograd *ag = aji_autograd_of(ctx);
    aji_recording *r = ag->recording;
    int depth = ag->no_grad;
    ag->recording = *recording;
    ag->no_grad = *no_grad;
    *recording = r;
    *no_grad = depth;
}

bool aji_in_sweep(const aj_ctx *ctx) {
    const aji_autograd *ag = aji_autograd_of(ctx);
    return ag && ag->sweeps > 0;
}

const char *aji_sweep_call(const aj_ctx *ctx) {
    return aji_autograd_of(ctx)->sweep_call;
}

int64_t aji_recording_id(const aj_ctx *ctx) {
    const aji_autograd *ag = aji_autograd_of(ctx);
    return ag && ag->recording && ag->no_grad == 0 && !ag->recording->stopped ? ag->recording->id : 0;
}
