/*
 * The pairing rule: adjoint messages pair as the forward messages did.
 *
 * MPI pairs messages by the order in which operations START, per (communicator, source, destination, tag): a stream. Programs may wait in any order, and
 * differently on the two ends. So in backward each stream's gradient receives are posted, and its gradient sends started, in the reverse order of
 * the forward starts; directions and streams do not constrain each other. See docs/deadlocks.md for why this never hangs and never swaps.
 */
#include <stdlib.h>

#include "mpi/comm_internal.h"

/* ---- the streams of a sweep ---- */

typedef struct start {
    aji_message *message;
    int64_t order;
} start;

/* The message that this node starts; NULL: none, or none that travels. */
static aji_message *started_by(aji_node *node) {
    if (aji_node_op(node)->attr_free != aji_message_attr_free)
        return NULL;
    aji_message *m = ((aji_message_attr *)aji_node_attr(node))->message;
    return m->peer == MPI_PROC_NULL ? NULL : m;
}

static int compare_streams(const aji_message *a, const aji_message *b) {
    if (a->comm != b->comm)
        return (uintptr_t)a->comm < (uintptr_t)b->comm ? -1 : 1;
    if (a->is_send != b->is_send)
        return a->is_send - b->is_send;
    if (a->peer != b->peer)
        return a->peer < b->peer ? -1 : 1;
    return a->tag == b->tag ? 0 : a->tag < b->tag ? -1 : 1;
}

static int compare_starts(const void *a, const void *b) {
    const start *x = a, *y = b;
    int stream = compare_streams(x->message, y->message);
    return stream ? stream : x->order < y->order ? -1 : x->order > y->order;
}

aj_status aji_streams_begin(aj_ctx *ctx, aji_sweep *sweep) {
    aj_status status = aji_sweep_reached_only(sweep) ? aji_compare_reached(ctx, sweep) : AJ_OK;
    if (status != AJ_OK)
        return status;
    int64_t n = 0, count = aji_sweep_count(sweep);
    for (int64_t i = 0; i < count; i++)
        n += aji_sweep_visits(sweep, i) && started_by(aji_sweep_node(sweep, i));
    if (n == 0)
        return AJ_OK;
    start *starts = aji_alloc(ctx, (size_t)n * sizeof(*starts));
    if (!starts)
        return AJ_ERR_MEMORY;
    int64_t k = 0;
    for (int64_t i = 0; i < count; i++) {
        aji_message *m = aji_sweep_visits(sweep, i) ? started_by(aji_sweep_node(sweep, i)) : NULL;
        if (!m)
            continue;
        starts[k++] = (start){m, i};
        m->later = m->earlier = NULL;
        m->adjoint_started = false;
    }
    qsort(starts, (size_t)n, sizeof(*starts), compare_starts);
    for (int64_t i = 1; i < n; i++) {
        aji_message *a = starts[i - 1].message, *b = starts[i].message;
        if (compare_streams(a, b) == 0) {
            a->later = b;
            b->earlier = a;
        }
    }
    aji_free(ctx, starts, (size_t)n * sizeof(*starts));
    return AJ_OK;
}

/* After a failure: what the sweep had under way is given up. The job is about to end, or all ranks have failed alike. */
static void give_up(aji_sweep *sweep) {
    for (int64_t i = 0; i < aji_sweep_count(sweep); i++) {
        aji_message *m = aji_sweep_visits(sweep, i) ? started_by(aji_sweep_node(sweep, i)) : NULL;
        if (!m)
            continue;
        aj_release(&m->kept);
        aji_value_release(m->waiting);
        m->waiting = NULL;
        if (m->gradient)
            aji_request_free(m->gradient);
    }
}

aj_status aji_streams_end(aj_ctx *ctx, aji_sweep *sweep, aj_status status) {
    if (status != AJ_OK) {
        give_up(sweep);
        return status;
    }
    aji_message_wait_adjoints(aji_mpi_of(ctx));
    return aj_ctx_status(ctx);
}

/* ---- gradients of sends come home ---- */

/* An operation where somebody differentiates it, and then all of them in this sweep are. */
static aj_request *start_receive(const aji_message *m) {
    if (!aj_is_recording(m->ctx))
        return aji_request_receive(m->comm, m->peer, m->tag, m->device, &m->meta);
    aj_tensor *buffer = aji_zeros_meta(m->ctx, m->device, &m->meta);
    return buffer ? aj_irecv(buffer, m->peer, m->tag, m->comm) : NULL;
}

static aj_status post(aji_message *m) {
    aji_mpi_of(m->ctx)->number = m->envelope.number;
    m->gradient = start_receive(m);
    if (!m->gradient)
        return aj_ctx_status(m->ctx);
    m->gradient->holder = &m->gradient;
    m->adjoint_started = true;
    return AJ_OK;
}

aj_status aji_post_gradient(aji_message *m) {
    if (m->peer == MPI_PROC_NULL || m->adjoint_started)
        return AJ_OK;
    aji_message *p = m;
    while (p->later && !p->later->adjoint_started)
        p = p->later;
    aj_status status = AJ_OK;
    while (status == AJ_OK && (status = post(p)) == AJ_OK && p != m)
        p = p->earlier;
    return status;
}

aj_tensor *aji_wait_gradient(aji_message *m) {
    return m->gradient && !m->gradient->handle ? aji_request_take(m->gradient) : aj_wait(m->gradient);
}

/* ---- gradients of receives go home ---- */

/* Start those whose turn has come: m, if all later starts of its stream have gone, and then the earlier ones that wait behind it. */
static aj_status send_in_turn(aji_message *m) {
    for (; m && (m->kept || m->waiting) && (!m->later || m->later->adjoint_started); m = m->earlier) {
        aji_mpi_of(m->ctx)->number = m->envelope.number;
        if (m->waiting ? aji_send_value(m->waiting, m->peer, m->tag, m->comm) != AJ_OK
                       : !aj_send(m->kept, m->peer, m->tag, m->comm))
            return aj_ctx_status(m->ctx);
        aj_release(&m->kept);
        aji_value_release(m->waiting);
        m->waiting = NULL;
        m->adjoint_started = true;
    }
    return AJ_OK;
}

aj_status aji_return_gradient(aji_message *m, aj_tensor *g, aj_tensor **left) {
    *left = g;
    if (m->peer == MPI_PROC_NULL)
        return AJ_OK;
    const aji_meta *meta = aji_tensor_meta(g);
    int64_t numel = aji_meta_numel(meta);
    if (m->count == numel && !aj_is_recording(m->ctx)) {
        *left = NULL;
        aji_value *v = aji_tensor_value(g, m->op);
        m->waiting = v ? aji_value_retain(v) : NULL;
        return v ? send_in_turn(m) : aj_ctx_status(m->ctx);
    }
    aj_tensor *flat = aj_reshape(g, 1, &numel);
    m->kept = aj_keep(aj_slice(flat, 0, 0, m->count, 1));
    if (!m->kept)
        return aj_ctx_status(m->ctx);
    if (m->count == numel)
        *left = NULL;
    else if (m->count > 0)
        *left = aj_reshape(aj_set_slice(flat, 0, 0, m->count, 1, aji_zeros_like(m->kept)), meta->ndim, meta->shape);
    return send_in_turn(m);
}
