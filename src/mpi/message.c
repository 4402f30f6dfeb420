/*
 * Messages: starting, finishing, and the sends that MPI has not finished with. Sends never block: a value never changes, so the library holds a share of
 * it for as long as MPI reads it.
 */
#include <stdio.h>

#include "mpi/checked.h"

aji_message *aji_message_new(aj_comm *comm, const char *op, bool is_send, int peer, int tag) {
    aji_message *m = aji_alloc(comm->ctx, sizeof(*m));
    if (!m)
        return NULL;
    *m = (aji_message){.refs = 1,
                       .ctx = comm->ctx,
                       .comm = comm,
                       .is_send = is_send,
                       .peer = peer,
                       .tag = tag,
                       .op = op,
                       .request = MPI_REQUEST_NULL,
                       .envelope_request = MPI_REQUEST_NULL};
    if (comm->size == 0)
        m->peer = MPI_PROC_NULL; /* nobody there */
    return m;
}

void aji_message_release(aji_message *m) {
    if (!m || --m->refs > 0)
        return;
    aj_release(&m->kept);
    aji_value_release(m->waiting);
    aji_value_release(m->data);
    aji_free(m->ctx, m, sizeof(*m));
}

void aji_message_attr_free(aj_ctx *ctx, void *attr) {
    (void)ctx;
    aji_message_release(((aji_message_attr *)attr)->message);
}

bool aji_is_message(const aji_op *op) {
    return op == &aji_op_send || op == &aji_op_recv || op == &aji_op_isend || op == &aji_op_irecv || op == &aji_op_wait;
}

aj_status aji_message_check(aji_call *c) {
    const aji_message *m = ((const aji_message_attr *)c->attr)->message;
    c->out_meta[0] = c->in_meta[0];
    bool any_peer = m->peer == MPI_PROC_NULL || (!m->is_send && m->peer == MPI_ANY_SOURCE);
    if (!any_peer && (m->peer < 0 || m->peer >= m->comm->size))
        return aj_raise(c->ctx, AJ_ERR_ARG, "%s: %s %d is out of range; expected 0 ... %d%s or MPI_PROC_NULL", c->op->name,
                        m->is_send ? "destination" : "source", m->peer, m->comm->size - 1, m->is_send ? "" : ", MPI_ANY_SOURCE");
    int largest = m->comm->largest_tag;
    bool any_tag = !m->is_send && m->tag == MPI_ANY_TAG;
    if (!any_tag && (m->tag < 0 || m->tag > largest))
        return aj_raise(c->ctx, AJ_ERR_ARG, "%s: tag %d is out of range; expected 0 ... %d%s", c->op->name, m->tag, largest,
                        m->is_send ? "" : " or MPI_ANY_TAG");
    return AJ_OK;
}

/* What this rank is in, for messages. */
static void note(const aji_message *m) {
    char text[160];
    if (m->comm->timeout <= 0)
        return;
    aji_request_describe(m, text);
    aji_recent_replace(aji_mpi_of(m->ctx), text);
    if (m->comm->checked)
        snprintf(m->comm->checked->where, sizeof(m->comm->checked->where), "%s%s%s", text, aji_in_sweep(m->ctx) ? ", in " : "",
                 aji_in_sweep(m->ctx) ? aji_sweep_call(m->ctx) : "");
}

/* What is allocated and evaluated is behind it; nothing of MPI yet. */
static aj_status check_told(const aji_message *m) {
    return aji_is_told(m->comm) ? aji_be_told(m->comm) : AJ_OK;
}

/* ---- checked mode: the envelope ---- */

/* Numbers wrap long after the message is gone. */
static int payload_tag(const aj_comm *comm, int64_t number) {
    return (int)(number % comm->largest_tag);
}

static int32_t is_recorded(const aj_ctx *ctx, aj_dtype dtype) {
    return aji_dtype_is_float(dtype) && (aj_is_recording(ctx) || aji_in_sweep(ctx));
}

/* Both at once: the value never changes, and the receiver asks for the numbers when it knows what comes. */
static int send_checked(aji_message *m) {
    aj_comm *comm = m->comm;
    m->envelope = (aji_envelope){.number = comm->sent[m->peer],
                                 .forward = m->adjoint ? aji_mpi_of(m->ctx)->number : -1,
                                 .count = m->count,
                                 .dtype = (int32_t)m->meta.dtype,
                                 .recorded = is_recorded(m->ctx, m->meta.dtype)};
    snprintf(m->envelope.op, sizeof(m->envelope.op), "%s", m->op);
    int code =
        MPI_Isend(&m->envelope, (int)sizeof(m->envelope), MPI_BYTE, m->peer, m->tag, aji_channel(comm), &m->envelope_request);
    if (code != MPI_SUCCESS)
        return code;
    code = aji_mpi_isend(comm, comm->checked->payload, aji_value_data(m->data), m->count, aji_mpi_type(m->meta.dtype), m->peer,
                         payload_tag(comm, m->envelope.number), &m->request);
    if (code != MPI_SUCCESS)
        aji_message_let_go(m); /* the envelope is under way, and lies in it */
    return code;
}

/* The envelope has come: does it announce what this receive expects? */
static aj_status check_envelope(const aji_message *m, int source, int tag) {
    const aji_envelope *e = &m->envelope;
    aj_dtype sent = (aj_dtype)e->dtype, expected = m->meta.dtype;
    int64_t room = aji_meta_numel(&m->meta);
    char what[160];
    snprintf(what, sizeof(what), "rank %d, tag %d, sent %lld of %s by %s%s", source, tag, (long long)e->count,
             aj_dtype_name(sent), e->op, e->recorded ? ", recorded" : "");
    if (sent != expected)
        return aj_raise(m->ctx, AJ_ERR_DTYPE, "%s: %s; rank %d expected %s", m->op, what, m->comm->rank, aj_dtype_name(expected));
    if (e->count > room)
        return aj_raise(m->ctx, AJ_ERR_SHAPE, "%s: %s; rank %d has a buffer of %lld, expected one that holds the message", m->op,
                        what, m->comm->rank, (long long)room);
    if (e->recorded != is_recorded(m->ctx, expected))
        return aj_raise(m->ctx, AJ_ERR_STATE,
                        "%s: %s; rank %d receives it %s a recording; expected both ends inside one, or outside", m->op, what,
                        m->comm->rank, e->recorded ? "outside" : "inside");
    if (e->forward >= 0 && e->forward != m->answers)
        return aj_raise(m->ctx, AJ_ERR_PEER,
                        "%s: %s; it is the gradient of message %lld to that rank, expected that of message %lld: "
                        "do both ranks differentiate the same recording?",
                        m->op, what, (long long)e->forward, (long long)m->answers);
    return AJ_OK;
}

/* ---- start ---- */

aj_status aji_message_start_send(aji_message *m, aji_value *x) {
    note(m);
    m->count = aji_meta_numel(&x->meta);
    m->meta = x->meta;
    m->device = x->device;
    m->adjoint = aji_in_sweep(x->ctx);
    if (m->peer == MPI_PROC_NULL)
        return AJ_OK;
    aj_ctx *ctx = x->ctx;
    /* Borrowed memory may be given back before the message has gone. */
    bool borrowed = aji_is_host(x->device) && aji_value_is_borrowed(x);
    m->data = borrowed ? aji_value_copy(x) : aji_value_on(x, aji_mpi_device(x->device));
    if (!m->data || aji_mpi_ready(m->data->device) != AJ_OK || check_told(m) != AJ_OK)
        return aj_ctx_status(ctx);
    int code = m->comm->checked ? send_checked(m)
                                : aji_mpi_isend(m->comm, aji_channel(m->comm), aji_value_data(m->data), m->count,
                                                aji_mpi_type(x->meta.dtype), m->peer, m->tag, &m->request);
    m->comm->sent[m->peer] += code == MPI_SUCCESS;
    return aji_mpi_check(ctx, m->op, code);
}

aj_status aji_message_start_recv(aji_message *m, aj_device device, const aji_meta *meta) {
    note(m);
    m->meta = *meta;
    m->device = device;
    m->answers = aji_mpi_of(m->ctx)->number;
    if (m->peer == MPI_PROC_NULL)
        return AJ_OK;
    aj_ctx *ctx = m->ctx;
    m->data = aji_value_for_mpi(device, aji_mpi_device(device), meta);
    if (!m->data || aji_mpi_ready(m->data->device) != AJ_OK || check_told(m) != AJ_OK)
        return aj_ctx_status(ctx);
    MPI_Comm on = aji_channel(m->comm);
    return aji_mpi_check(ctx, m->op,
                         m->comm->checked
                             ? MPI_Irecv(&m->envelope, (int)sizeof(m->envelope), MPI_BYTE, m->peer, m->tag, on, &m->request)
                             : aji_mpi_irecv(m->comm, on, aji_value_data(m->data), aji_meta_numel(meta),
                                             aji_mpi_type(meta->dtype), m->peer, m->tag, &m->request));
}

/* ---- finish ---- */

/* Entries from number `from` on, as a flat view of a contiguous value. */
static aji_value *tail(aji_value *v, int64_t from) {
    aji_meta flat = {.dtype = v->meta.dtype, .ndim = 1, .shape = {aji_meta_numel(&v->meta) - from}};
    return aji_value_view(v, &flat, (int64_t[]){1}, v->offset + from);
}

/* What the message did not reach keeps the buffer's numbers. */
static aj_status fill_tail(aji_value *y, aji_value *buffer, int64_t from) {
    aji_value *old = buffer ? aji_value_on(buffer, y->device) : aji_value_full(y->ctx, y->device, &y->meta, 0);
    aji_value *src = old ? tail(old, from) : NULL, *dst = src ? tail(y, from) : NULL;
    aj_status status = dst ? aji_do_copy("recv", src, dst) : aj_ctx_status(y->ctx);
    aji_value_release(dst);
    aji_value_release(src);
    aji_value_release(old);
    return status;
}

static aj_status raise_late(const aji_message *m) {
    char text[160];
    aji_request_describe(m, text);
    return aj_raise(m->ctx, AJ_ERR_PEER, "%s: waited %g s for a message (ADJOIN_TIMEOUT): %s; expected a send that matches it",
                    aji_ctx_operation(m->ctx), m->comm->timeout, text);
}

/* Until it comes, or the time is up, or another rank tells of an error: then it is cancelled, unless it has come in that moment. */
static aj_status wait_for_message(aji_message *m, MPI_Status *status) {
    int cancelled = 0;
    note(m);
    aji_waited waited = aji_wait_for(m->comm, m->op, &m->request, status);
    if (waited == AJI_CAME)
        return AJ_OK;
    if (waited == AJI_FAILED)
        return aj_ctx_status(m->ctx);
    MPI_Cancel(&m->request);
    int code = aji_mpi_wait(true, &m->request, status, -1, NULL);
    if (code == MPI_SUCCESS)
        MPI_Test_cancelled(status, &cancelled);
    if (!cancelled)
        return aji_mpi_check(m->ctx, m->op, code);
    return waited == AJI_TOLD ? aji_be_told(m->comm) : raise_late(m);
}

/* The source, the tag and the count of what has come. */
static aj_status receive(aji_message *m, MPI_Status *status) {
    aj_status result = wait_for_message(m, status);
    if (result == AJ_OK)
        result = aji_mpi_check(m->ctx, m->op, aji_mpi_get_count(status, aji_mpi_type(m->meta.dtype), &m->count));
    if (result == AJ_OK && m->count < 0)
        result = aj_raise(m->ctx, AJ_ERR_DTYPE,
                          "%s: the message from %d, tag %d, is not a whole number of %s elements; expected the sender's dtype",
                          m->op, status->MPI_SOURCE, status->MPI_TAG, aj_dtype_name(m->meta.dtype));
    return result;
}

static aj_status receive_checked(aji_message *m, MPI_Status *status) {
    MPI_Status unused;
    const aj_comm *comm = m->comm;
    aj_status result = wait_for_message(m, status);
    if (result == AJ_OK)
        result = check_envelope(m, status->MPI_SOURCE, status->MPI_TAG);
    if (result != AJ_OK)
        return result;
    m->count = m->envelope.count;
    result = aji_mpi_ready(m->data->device);
    if (result != AJ_OK)
        return result;
    result =
        aji_mpi_check(m->ctx, m->op,
                      aji_mpi_irecv(comm, comm->checked->payload, aji_value_data(m->data), m->count, aji_mpi_type(m->meta.dtype),
                                    status->MPI_SOURCE, payload_tag(comm, m->envelope.number), &m->request));
    return result == AJ_OK ? wait_for_message(m, &unused) : result;
}

aj_status aji_message_finish_recv(aji_message *m, aji_value *buffer, aji_value **y) {
    if (m->peer == MPI_PROC_NULL) { /* MPICH 4.0.2's status names rank 0 as the source here: it is not asked */
        *y = aji_value_retain(buffer);
        return AJ_OK;
    }
    MPI_Status status;
    aj_status result = m->comm->checked ? receive_checked(m, &status) : receive(m, &status);
    if (result == AJ_OK && m->count < aji_meta_numel(&m->meta))
        result = fill_tail(m->data, buffer, m->count);
    if (result != AJ_OK)
        return result;
    m->peer = status.MPI_SOURCE;
    m->tag = status.MPI_TAG;
    m->comm->received[m->peer]++;
    *y = aji_value_on(m->data, m->device);
    aji_value_release(m->data);
    m->data = NULL;
    return *y ? AJ_OK : aj_ctx_status(m->ctx);
}

/* ---- sends in flight ---- */

void aji_message_let_go(aji_message *m) {
    if (m->peer == MPI_PROC_NULL)
        return;
    aji_mpi *mpi = aji_mpi_of(m->ctx);
    m->refs++;
    aji_comm_retain(m->comm);
    m->next = NULL;
    *mpi->in_flight_end = m;
    mpi->in_flight_end = &m->next;
}

/* Take the message at *at off the list, done or given up. */
static void remove_at(aji_mpi *mpi, aji_message **at) {
    aji_message *m = *at;
    *at = m->next;
    if (mpi->in_flight_end == &m->next)
        mpi->in_flight_end = at;
    aji_value_release(m->data);
    m->data = NULL;
    aji_comm_release(m->comm);
    aji_message_release(m);
}

static bool is_done(aji_message *m) {
    MPI_Request *const requests[2] = {&m->envelope_request, &m->request};
    for (int i = 0; i < 2; i++) {
        int flag = 0;
        if (*requests[i] == MPI_REQUEST_NULL)
            continue;
        if (MPI_Test(requests[i], &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS && !flag)
            return false;
    }
    return true;
}

void aji_message_progress(aji_mpi *mpi) {
    enum { AT_ONCE = 8 }; /* a bounded look: the oldest go first */
    aji_message **at = &mpi->in_flight;
    for (int i = 0; *at && i < AT_ONCE; i++) {
        if (is_done(*at))
            remove_at(mpi, at);
        else
            at = &(*at)->next;
    }
}

bool aji_message_drain(aji_mpi *mpi, const aj_comm *comm, double seconds) {
    double end = MPI_Wtime() + seconds;
    for (;;) {
        bool some = false;
        for (aji_message **at = &mpi->in_flight; *at;) {
            bool mine = !comm || (*at)->comm == comm;
            if (mine && is_done(*at)) {
                remove_at(mpi, at);
                continue;
            }
            some = some || mine;
            at = &(*at)->next;
        }
        if (!some || MPI_Wtime() > end)
            return !some;
    }
}

/* Where the pointer to the first gradient in flight is, or to this one. */
static aji_message **find_adjoint(aji_mpi *mpi, const aji_message *this) {
    aji_message **at = &mpi->in_flight;
    while (*at && (this ? *at != this : !(*at)->adjoint))
        at = &(*at)->next;
    return at;
}

void aji_message_wait_adjoints(aji_mpi *mpi) {
    for (aji_message *m; (m = *find_adjoint(mpi, NULL));) {
        aji_waited waited = aji_wait_for(m->comm, "aj_backward", &m->envelope_request, MPI_STATUS_IGNORE);
        if (waited == AJI_CAME)
            waited = aji_wait_for(m->comm, "aj_backward", &m->request, MPI_STATUS_IGNORE);
        if (waited == AJI_TOLD)
            aji_be_told(m->comm);
        if (waited == AJI_LATE)
            aj_raise(mpi->ctx, AJ_ERR_PEER, "%s: waited %g s for rank %d to receive a gradient, tag %d (ADJOIN_TIMEOUT)",
                     aji_ctx_operation(mpi->ctx), m->comm->timeout, m->peer, m->tag);
        if (waited != AJI_CAME)
            return;                           /* the message is abandoned with the communicator */
        remove_at(mpi, find_adjoint(mpi, m)); /* meanwhile those of other communicators may have gone from the list */
    }
}

static void give_up(const aji_mpi *mpi, MPI_Request *request) {
    if (mpi->finalized || *request == MPI_REQUEST_NULL)
        return;
    MPI_Cancel(request);
    MPI_Request_free(request);
}

void aji_message_abandon(aji_mpi *mpi, const aj_comm *comm) {
    for (aji_message **at = &mpi->in_flight; *at;) {
        if (comm && (*at)->comm != comm) {
            at = &(*at)->next;
            continue;
        }
        give_up(mpi, &(*at)->envelope_request);
        give_up(mpi, &(*at)->request);
        remove_at(mpi, at);
    }
}
