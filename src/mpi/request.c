/*
 * Requests: typed objects that own their buffers until they are waited for.
 */
#include <stdio.h>

#include "mpi/comm_internal.h"

#define OPEN 0x61a0051du
#define SPENT 0x61a05be7u

void aji_request_describe(const aji_message *m, char text[160]) {
    char peer[32], tag[32];
    snprintf(peer, sizeof(peer), "%d", m->peer);
    snprintf(tag, sizeof(tag), "%d", m->tag);
    snprintf(text, 160, "%s %s %s, tag %s", m->op, m->is_send ? "to" : "from",
             m->peer == MPI_PROC_NULL                   ? "MPI_PROC_NULL"
             : !m->is_send && m->peer == MPI_ANY_SOURCE ? "MPI_ANY_SOURCE"
                                                        : peer,
             !m->is_send && m->tag == MPI_ANY_TAG ? "MPI_ANY_TAG" : tag);
}

const char *aji_open_request(aj_ctx *ctx) {
    aji_mpi *mpi = aji_mpi_of(ctx);
    if (!mpi || !mpi->open)
        return NULL;
    aji_request_describe(mpi->open->message, mpi->text);
    return mpi->text;
}

static void unlink_open(aji_mpi *mpi, aj_request *r) {
    aj_request **at = &mpi->open;
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    aji_ctx_count(mpi->ctx, AJ_STAT_REQUESTS, -1);
}

/* No longer open: a receive that has not come is cancelled. Sends are the library's own affair (message.c). */
static void close_unfinished(aji_mpi *mpi, aj_request *r) {
    unlink_open(mpi, r);
    aji_comm_release(r->message->comm);
    MPI_Request *request = &r->message->request;
    if (!r->message->is_send && *request != MPI_REQUEST_NULL && !mpi->finalized) {
        MPI_Cancel(request);
        aji_mpi_wait(true, request, MPI_STATUS_IGNORE, -1, NULL);
    }
}

void aji_request_free(aj_request *r) {
    aj_ctx *ctx = r->ctx;
    if (!r->spent)
        close_unfinished(aji_mpi_of(ctx), r);
    if (r->holder)
        *r->holder = NULL;
    aj_release(&r->handle);
    aji_value_release(r->buffer);
    aji_message_release(r->message);
    r->magic = 0;
    aji_free(ctx, r, sizeof(*r));
}

void aji_request_scope_end(aj_ctx *ctx, aj_scope *scope, aj_request **spent) {
    while (*spent) {
        aj_request *r = *spent;
        *spent = r->next;
        aji_request_free(r);
    }
    for (aj_request *r = aji_mpi_of(ctx)->open; r; r = r->next)
        if (r->scope == scope)
            r->scope = NULL; /* the context owns it until it is waited for */
}

static void add_spent(aj_request *r, aj_scope *scope) {
    aj_request **list = aji_scope_mark(scope, AJI_SLOT_MPI);
    r->scope = scope;
    r->next = *list;
    *list = r;
}

aj_request *aj_scope_return_request(aj_scope *scope, aj_request *r) {
    aj_scope *parent = scope && r && r->scope == scope ? aji_scope_parent(scope) : NULL;
    if (!parent)
        return r;
    if (!r->spent) {
        r->scope = parent;
        return r;
    }
    aj_request **at = aji_scope_mark(scope, AJI_SLOT_MPI);
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    add_spent(r, parent);
    return r;
}

/* The handle and the buffer go; the struct stays until its scope ends, so that using it again is an error and not a crash. */
static void spend(aj_request *r) {
    r->spent = true;
    if (r->holder)
        *r->holder = NULL;
    r->holder = NULL;
    r->magic = SPENT;
    aj_release(&r->handle);
    aji_value_release(r->buffer);
    r->buffer = NULL;
    add_spent(r, r->scope ? r->scope : aji_ctx_scope(r->ctx));
}

void aji_request_give_up(const aj_comm *comm) {
    aji_mpi *mpi = aji_mpi_of(comm->ctx);
    for (aj_request *r = mpi->open, *next; r; r = next) {
        next = r->next;
        if (r->message->comm != comm)
            continue;
        close_unfinished(mpi, r);
        spend(r);
    }
}

/* ---- start ---- */

static aj_request *request_new(const char *name, bool is_send, int peer, int tag, aj_comm *comm) {
    aj_ctx *ctx = comm->ctx;
    aji_mpi *mpi = aji_mpi_of(ctx);
    aji_message *m = aji_message_new(comm, name, is_send, peer, tag);
    aj_request *r = m ? aji_alloc(ctx, sizeof(*r)) : NULL;
    if (!r) {
        aji_message_release(m);
        return NULL;
    }
    *r = (aj_request){.magic = OPEN, .ctx = ctx, .next = mpi->open, .message = m, .scope = aji_ctx_scope(ctx)};
    mpi->open = r;
    aji_comm_retain(comm);
    aji_ctx_count(ctx, AJ_STAT_REQUESTS, 1);
    return r;
}

/* The request is open before its message starts: should anything fail after that, it is known to whoever gives up what is under way. */
static aj_request *start(const aji_op *op, aj_tensor *x, int peer, int tag, aj_comm *comm) {
    aj_request *r = comm ? request_new(op->name, op == &aji_op_isend, peer, tag, comm) : NULL;
    if (comm && !r) {
        aji_gate(comm->ctx, comm);
        return NULL;
    }
    aji_message_attr attr = {r ? r->message : NULL};
    if (r)
        attr.message->refs++; /* for the call and its node */
    aj_tensor *handle = aji_comm_apply(op, &attr, x, comm);
    if (!handle) {
        if (r && !r->spent)
            aji_request_free(r);
        return NULL;
    }
    r->handle = aj_keep(handle);
    r->recording = aji_dtype_is_float(aj_tensor_dtype(x)) ? aji_recording_id(r->ctx) : 0;
    if (!r->message->is_send)
        r->buffer = aji_value_retain(aji_tensor_value(handle, op->name));
    return r;
}

aj_request *aj_isend(aj_tensor *x, int dest, int tag, aj_comm *comm) {
    return start(&aji_op_isend, x, dest, tag, comm);
}

aj_request *aj_irecv(aj_tensor *buffer, int source, int tag, aj_comm *comm) {
    return start(&aji_op_irecv, buffer, source, tag, comm);
}

/* ---- receives of a sweep ---- */

aj_request *aji_request_receive(aj_comm *comm, int source, int tag, aj_device device, const aji_meta *meta) {
    static const char op[] = "aj_irecv";
    aj_request *r = request_new(op, false, source, tag, comm);
    if (!r)
        return NULL;
    const char *before = aji_ctx_enter(comm->ctx, op);
    aji_comm_enter(comm, op);
    aj_status status = aji_message_start_recv(r->message, device, meta);
    aji_ctx_enter(comm->ctx, before);
    if (status == AJ_OK)
        return r;
    if (!r->spent)
        aji_request_free(r);
    return NULL;
}

aj_tensor *aji_request_take(aj_request *r) {
    static const char op[] = "aj_wait";
    aji_value *y = NULL;
    aji_message *m = r->message;
    const char *before = aji_ctx_enter(r->ctx, op);
    aji_comm_enter(m->comm, op);
    aj_status status = aji_message_finish_recv(m, NULL, &y);
    aji_ctx_enter(r->ctx, before);
    if (!r->spent) /* else it was given up, and goes with its scope */
        aji_request_free(r);
    return status == AJ_OK ? aji_tensor_wrap(y, op) : NULL;
}

/* ---- wait and handles ---- */

/* A usable request, or false with AJ_ERR_STATE raised. */
static bool check_open(aj_request *r, const char *op) {
    if (!r)
        return false;
    if (r->magic == OPEN && !r->spent)
        return true;
    char text[160];
    if (r->magic == SPENT || r->magic == OPEN) {
        aji_request_describe(r->message, text);
        aj_raise(r->ctx, AJ_ERR_STATE,
                 "%s: this request was waited for before, or given up after an error: %s; expected one aj_wait for each", op,
                 text);
        aji_gate(r->ctx, NULL);
    }
    return false;
}

aj_tensor *aj_wait(aj_request *r) {
    if (!check_open(r, "aj_wait"))
        return NULL;
    aj_ctx *ctx = r->ctx;
    aji_mpi *mpi = aji_mpi_of(ctx);
    aji_message *m = r->message;
    if (aji_dtype_is_float(aj_tensor_dtype(r->handle)) && r->recording != aji_recording_id(ctx)) {
        char text[160];
        aji_request_describe(m, text);
        aj_raise(ctx, AJ_ERR_STATE,
                 "aj_wait: the message started %s recording and is waited for %s: %s; expected both inside the same, or outside",
                 r->recording ? "inside a" : "outside any", r->recording ? "outside it" : "inside one", text);
    }
    aji_wait_attr attr = {m, r->buffer};
    m->refs++;
    if (r->buffer)
        aji_value_retain(r->buffer);
    aj_tensor *y = aji_comm_apply(&aji_op_wait, &attr, r->handle, m->comm);
    if (!y)
        return NULL;
    unlink_open(mpi, r);
    aji_comm_release(m->comm);
    spend(r);
    return y;
}

aj_tensor *aj_request_dummy(aj_request *r) {
    return check_open(r, "aj_request_dummy") ? aj_join_dummies(r->handle, 0, NULL) : NULL;
}

aj_request *aj_request_join_dummies(aj_request *r, int n, aj_tensor *const *dummies) {
    if (!check_open(r, "aj_request_join_dummies"))
        return NULL;
    aj_tensor *joined = aj_join_dummies(r->handle, n, dummies);
    if (!joined)
        return NULL;
    aj_assign(&r->handle, joined);
    return r;
}
