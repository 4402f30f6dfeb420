/*
 * Checked mode: the ranks compare what they call before a collective. Up a binary tree, each rank holds what its children call against what it calls itself;
 * down the tree comes the word to go on. The rank that finds a difference raises it, and so becomes a rank in error, which all others are told of.
 */
#include <stdio.h>
#include <string.h>

#include "mpi/checked.h"

enum { TEXT = 256 };

/* What the ranks below call, against what this one does. */
static aji_waited gather(aj_comm *comm, const char *mine, const int children[2]) {
    char theirs[TEXT];
    double end = MPI_Wtime() + comm->timeout;
    for (int i = 0; i < 2 && children[i] < comm->size; i++) {
        aji_waited waited = aji_note_recv(comm, children[i], AJI_TAG_UP, theirs, TEXT, end);
        if (waited != AJI_CAME)
            return waited;
        if (strcmp(mine, theirs) != 0)
            return aj_raise(comm->ctx, AJ_ERR_PEER,
                            "%s: the ranks of a communicator make different calls. Rank %d: %s. Rank %d: %s. Expected the same "
                            "on all of its ranks",
                            aji_ctx_operation(comm->ctx), comm->rank, mine, children[i], theirs),
                   AJI_FAILED;
    }
    return AJI_CAME;
}

/* All have been here, but who came first may have given up by now, unless the ranks last met less than the time limit ago: a rank that has said what it
 * calls waits for longer than that, by the grace time, in which the word is to reach it. Else they say it once more, and their time begins anew. */
static aji_word decide(aj_comm *comm) {
    double now = MPI_Wtime();
    bool is_certain = now < comm->checked->met + comm->timeout;
    comm->checked->met = now;
    return is_certain ? AJI_GO_ON : AJI_AGAIN;
}

/* Up the tree, and down: the word of rank 0. */
static aji_waited exchange(aj_comm *comm, const char *mine, aji_word *word) {
    aji_checked *k = comm->checked;
    int children[2] = {2 * comm->rank + 1, 2 * comm->rank + 2}, parent = (comm->rank - 1) / 2;
    k->committed = false;
    aji_waited waited = gather(comm, mine, children);
    if (waited != AJI_CAME)
        return waited;
    if (comm->rank > 0 && aji_note_send(comm, parent, AJI_TAG_UP, mine, TEXT) != AJ_OK)
        return AJI_FAILED;
    k->committed = true;
    /* From here on the others may pass: then this rank does too, whatever it is told, and nothing may fail. */
    if (comm->rank == 0)
        *word = decide(comm);
    else
        waited = aji_word_recv(comm, parent, word);
    for (int i = 0; i < 2 && children[i] < comm->size && waited == AJI_CAME; i++)
        aji_word_send(comm, children[i], *word);
    return waited;
}

aji_waited aji_compare(aj_comm *comm, const char *text) {
    aji_checked *k = comm->checked;
    char mine[TEXT] = "";
    if (k->reporting) /* the others may leave for this rank's report, although it is here now */
        return AJI_TOLD;
    snprintf(mine, sizeof(mine), "%s", text);
    snprintf(k->where, sizeof(k->where), "%s", text);
    aji_notes_progress(comm);
    aji_word word = AJI_GO_ON;
    aji_waited waited;
    do {
        waited = exchange(comm, mine, &word);
    } while (waited == AJI_CAME && word == AJI_AGAIN);
    if (waited == AJI_CAME) {
        k->passed++;
        k->committed = false;
    }
    return waited;
}

aj_status aji_compare_text(aj_comm *comm, const char *text) {
    if (!comm->checked || comm->size <= 1)
        return AJ_OK;
    aji_waited waited = aji_compare(comm, text);
    if (waited == AJI_TOLD)
        return aji_be_told(comm);
    return waited == AJI_CAME ? AJ_OK : waited == AJI_LATE ? aji_raise_late(comm) : aj_ctx_status(comm->ctx);
}

/* ---- what a call looks like ---- */

typedef struct line {
    char text[TEXT];
    size_t used;
} line;

static void append(line *l, const char *format, ...) AJ_PRINTF(2, 3);
static void append(line *l, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(l->text + l->used, TEXT - l->used, format, args);
    va_end(args);
    l->used = n > 0 && (size_t)n < TEXT - l->used ? l->used + (size_t)n : l->used;
}

static void describe(line *l, const aji_call *c, aji_shapes shapes, MPI_Op op, int root, const char *more) {
    char shape[160];
    bool has_operand = c->n_in > 0 && shapes == AJI_SAME_SHAPE;
    append(l, "%s", c->op->name);
    if (has_operand)
        append(l, " of %s %s", aj_dtype_name(c->in_meta[0].dtype),
               aji_shape_text(c->in_meta[0].ndim, c->in_meta[0].shape, shape));
    if (op != MPI_OP_NULL)
        append(l, ", %s", aji_reduction_name(c->ctx, op));
    if (root != AJI_NO_ROOT)
        append(l, ", root %d", root);
    append(l, "%s", more);
    if (aji_in_sweep(c->ctx))
        append(l, ", in %s", aji_sweep_call(c->ctx));
    else if (aj_is_recording(c->ctx))
        append(l, ", recorded");
}

static bool is_needed(const aji_call *c) {
    return c->comm->checked && c->comm->size > 1;
}

static aj_status compare(const aji_call *c, aji_shapes shapes, MPI_Op op, int root, const char *more) {
    line l = {.used = 0};
    describe(&l, c, shapes, op, root, more);
    return aji_compare_text(c->comm, l.text);
}

aj_status aji_compare_call(const aji_call *c, aji_shapes shapes, MPI_Op op, int root) {
    return is_needed(c) ? compare(c, shapes, op, root, "") : AJ_OK;
}

aj_status aji_compare_more(const aji_call *c, const char *more) {
    return is_needed(c) ? compare(c, AJI_ANY_SHAPE, MPI_OP_NULL, AJI_NO_ROOT, more) : AJ_OK;
}

uint64_t aji_hash(uint64_t h, const void *data, size_t bytes) {
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++)
        h = (h ^ at[i]) * 0x100000001b3u;
    return h;
}

aj_status aji_compare_contents(const aji_call *c) {
    if (!is_needed(c))
        return AJ_OK;
    aji_value *x = aji_to_host(c->x[0]);
    if (!x)
        return aj_ctx_status(c->ctx);
    uint64_t h = aji_hash(AJI_HASH_START, aji_value_data(x), (size_t)aji_meta_numel(&x->meta) * aj_dtype_size(x->meta.dtype));
    aji_value_release(x);
    char more[40];
    snprintf(more, sizeof(more), ", contents %016llx", (unsigned long long)h);
    return compare(c, AJI_SAME_SHAPE, MPI_OP_NULL, AJI_NO_ROOT, more);
}

/* ---- AJ_REACHED: do all ranks visit the same nodes? ---- */

aj_status aji_compare_reached(aj_ctx *ctx, const aji_sweep *sweep) {
    aj_status status = AJ_OK;
    for (aj_comm *comm = aji_mpi_of(ctx)->comms; comm && status == AJ_OK; comm = comm->next) {
        int64_t calls = 0, visited = 0;
        uint64_t which = AJI_HASH_START;
        for (int64_t i = 0; i < aji_sweep_count(sweep); i++) {
            aji_node *node = aji_sweep_node(sweep, i);
            if (aji_node_comm(node) != comm || aji_is_message(aji_node_op(node)))
                continue;
            if (aji_sweep_visits(sweep, i)) {
                which = aji_hash(which, &calls, sizeof(calls));
                visited++;
            }
            calls++;
        }
        line l = {.used = 0};
        append(&l, "a sweep with AJ_REACHED that visits %lld of %lld calls on this communicator (%016llx)", (long long)visited,
               (long long)calls, (unsigned long long)which);
        if (calls > 0)
            status = aji_compare_text(comm, l.text);
    }
    return status;
}
