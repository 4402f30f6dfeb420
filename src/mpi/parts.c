/*
 * Parts of an axis: their exchange, and packing. MPI gets a block of contiguous memory for each rank. Nothing is copied where the axis is the outermost, and
 * otherwise once, in runs as long as a part and all axes behind it.
 */
#include <string.h>

#include "mpi/parts.h"

/* ---- parts ---- */

static size_t parts_bytes(int size) {
    return sizeof(aji_parts) + (2 * (size_t)size + 1) * sizeof(int64_t);
}

aji_parts *aji_parts_new(aj_ctx *ctx, int size) {
    aji_parts *parts = aji_calloc(ctx, parts_bytes(size));
    if (!parts)
        return NULL;
    parts->refs = 1;
    parts->size = size;
    parts->length = (int64_t *)(parts + 1);
    parts->first = parts->length + size;
    return parts;
}

aji_parts *aji_parts_retain(aji_parts *parts) {
    parts->refs++;
    return parts;
}

void aji_parts_release(aj_ctx *ctx, aji_parts *parts) {
    if (parts && --parts->refs == 0)
        aji_free(ctx, parts, parts_bytes(parts->size));
}

void aji_parts_close(aji_parts *parts) {
    for (int k = 0; k < parts->size; k++)
        if (__builtin_add_overflow(parts->first[k], parts->length[k], &parts->first[k + 1]))
            parts->first[k + 1] = INT64_MAX; /* more than any tensor has */
}

void aji_axis_attr_free(aj_ctx *ctx, void *attr) {
    aji_axis_attr *a = attr;
    aji_parts_release(ctx, a->parts);
    aji_reduction_release(ctx, &a->reduction);
}

/* ---- the exchange ---- */

/* Of an operation: its name, as a number. */
static int64_t call_number(const aji_op *op) {
    uint64_t number = AJI_HASH_START;
    number = aji_hash(number, op->name, strlen(op->name));
    return (int64_t)(number >> 1);
}

/* Unchecked, the ranks may be in different calls: what came may be anything then. */
static aj_status check_call(const aji_call *c, const aji_told *told, int64_t call) {
    for (int k = 0; k < c->comm->size; k++) {
        bool sane = told[k].call == call && told[k].dtype >= 0 && told[k].dtype <= AJ_U8 && told[k].ndim >= 0 &&
                    told[k].ndim <= AJ_MAX_NDIM;
        if (!sane)
            return aj_raise(c->ctx, AJ_ERR_PEER, "%s: rank %d is in another call; expected the same on all ranks", c->op->name,
                            k);
    }
    return AJ_OK;
}

aji_told *aji_tell(aji_call *c, const aji_told *arguments) {
    const aji_meta *m = &c->in_meta[0];
    aji_told mine = *arguments;
    mine.call = call_number(c->op);
    mine.dtype = m->dtype;
    mine.ndim = m->ndim;
    memcpy(mine.shape, m->shape, (size_t)m->ndim * sizeof(int64_t));
    aji_told *all = aji_alloc(c->ctx, (size_t)c->comm->size * sizeof(*all));
    if (!all)
        return NULL;
    if (c->comm->size == 1) {
        *all = mine;
        return all;
    }
    aji_call on_host = *c; /* what goes through MPI here is no device's, which need not be waited for */
    on_host.device = aj_cpu(c->ctx);
    if (aji_mpi_allgather(&on_host, &mine, all, sizeof(mine) / sizeof(int64_t), MPI_INT64_T) == AJ_OK &&
        check_call(c, all, mine.call) == AJ_OK)
        return all;
    aji_told_free(c, all);
    return NULL;
}

void aji_told_free(const aji_call *c, aji_told *told) {
    if (told)
        aji_free(c->ctx, told, (size_t)c->comm->size * sizeof(*told));
}

/* ---- what was told ---- */

static aj_status differ(const aji_call *c, const char *what, int rank, int64_t there, int64_t here) {
    return aj_raise(c->ctx, AJ_ERR_ARG, "%s: rank 0 has %s %lld, rank %d has %lld; expected the same on all ranks", c->op->name,
                    what, (long long)here, rank, (long long)there);
}

aj_status aji_check_told_root(const aji_call *c, const aji_told *told) {
    for (int k = 1; k < c->comm->size; k++)
        if (told[k].root != told[0].root)
            return differ(c, "root", k, told[k].root, told[0].root);
    for (int k = 1; k < c->comm->size; k++)
        if (told[k].dtype != told[0].dtype)
            return aj_raise(c->ctx, AJ_ERR_DTYPE, "%s: rank 0 has %s, rank %d has %s; expected one dtype on all ranks",
                            c->op->name, aj_dtype_name((aj_dtype)told[0].dtype), k, aj_dtype_name((aj_dtype)told[k].dtype));
    return AJ_OK;
}

aj_status aji_check_told_axis(const aji_call *c, const aji_told *told, int ndim, bool other, int *axis) {
    for (int k = 0; k < c->comm->size; k++) {
        int its = (int)(other ? told[k].other_axis : told[k].axis);
        aj_status status = aji_normalize_axis(c->ctx, c->op->name, ndim, &its);
        if (status != AJ_OK)
            return status;
        if (k > 0 && its != *axis)
            return differ(c, other ? "scatter axis" : "axis", k, its, *axis);
        *axis = its;
    }
    return AJ_OK;
}

static aj_status shapes_differ(const aji_call *c, const aji_told *told, int k) {
    char a[160], b[160];
    return aj_raise(c->ctx, AJ_ERR_SHAPE,
                    "%s: rank 0 has shape %s, rank %d has %s; expected equal ones, up to the lengths along the axis", c->op->name,
                    aji_shape_text((int)told[0].ndim, told[0].shape, a), k, aji_shape_text((int)told[k].ndim, told[k].shape, b));
}

static aj_status check_ndim(const aji_call *c, const aji_told *told) {
    for (int k = 1; k < c->comm->size; k++)
        if (told[k].ndim != told[0].ndim)
            return shapes_differ(c, told, k);
    return AJ_OK;
}

static aj_status check_extents(const aji_call *c, const aji_told *told, int free_axis) {
    for (int k = 1; k < c->comm->size; k++)
        for (int i = 0; i < told[0].ndim; i++)
            if (i != free_axis && told[k].shape[i] != told[0].shape[i])
                return shapes_differ(c, told, k);
    return AJ_OK;
}

aj_status aji_check_told(const aji_call *c, const aji_told *told, bool lengths_alike, int *axis, int *other_axis) {
    int ndim = (int)told[0].ndim;
    aj_status status = aji_check_told_root(c, told);
    if (status == AJ_OK)
        status = check_ndim(c, told);
    if (status == AJ_OK)
        status = aji_check_told_axis(c, told, ndim, false, axis);
    if (status == AJ_OK && other_axis)
        status = aji_check_told_axis(c, told, ndim, true, other_axis);
    return status == AJ_OK ? check_extents(c, told, lengths_alike ? -1 : *axis) : status;
}

aj_status aji_parts_from_numelems(const aji_call *c, const aji_told *told, aji_parts *parts, int axis, int64_t whole) {
    for (int k = 0; k < c->comm->size; k++) {
        if (told[k].numelem < 0)
            return aj_raise(c->ctx, AJ_ERR_ARG, "%s: rank %d asks for numelem %lld; expected >= 0", c->op->name, k,
                            (long long)told[k].numelem);
        parts->length[k] = told[k].numelem;
    }
    aji_parts_close(parts);
    int64_t wanted = parts->first[parts->size];
    if (wanted != whole)
        return aj_raise(
            c->ctx, AJ_ERR_SHAPE,
            "%s: the ranks ask for %lld entries along axis %d, there are %lld; expected the numelems to sum up to that",
            c->op->name, (long long)wanted, axis, (long long)whole);
    return AJ_OK;
}

aj_status aji_check_result(const aji_call *c, const aji_meta *meta) {
    aji_meta checked;
    return aji_meta_set(c->ctx, c->op->name, &checked, meta->dtype, meta->ndim, meta->shape);
}

static aj_status lengths_told(aji_call *c, const aji_told *told) {
    aji_axis_attr *a = c->attr;
    aj_status status = aji_check_told(c, told, false, &a->axis, NULL);
    for (int k = 0; k < c->comm->size && status == AJ_OK; k++)
        a->parts->length[k] = told[k].shape[a->axis];
    if (status == AJ_OK)
        aji_parts_close(a->parts);
    return status;
}

aj_status aji_exchange_lengths(aji_call *c) {
    aji_axis_attr *a = c->attr;
    aj_status status = AJ_OK;
    if (!a->parts) {
        a->parts = aji_parts_new(c->ctx, c->comm->size);
        aji_told *told = a->parts ? aji_tell(c, &(aji_told){.axis = a->axis, .root = a->root}) : NULL;
        status = told ? lengths_told(c, told) : aj_ctx_status(c->ctx);
        aji_told_free(c, told);
    }
    aji_meta *y = &c->out_meta[0]; /* the whole: what the root of a gather gets counts on all ranks */
    *y = c->in_meta[0];
    if (status != AJ_OK)
        return status;
    y->shape[a->axis] = a->parts->first[a->parts->size];
    return aji_check_result(c, y);
}

/* ---- blocks ---- */

/* Parts of the axis follow each other in memory as blocks do: nothing to copy. */
static bool is_outermost(const aji_meta *meta, int axis) {
    for (int i = 0; i < axis; i++)
        if (meta->shape[i] != 1)
            return false;
    return true;
}

/* Between v and blocks, a flat value on the same device: this span of v along the axis, and the block that begins at *at. */
static aj_status copy_block(const aji_call *c, aji_value *v, int axis, aji_span s, aji_value *blocks, int64_t *at,
                            bool into_blocks) {
    aji_meta meta = v->meta;
    meta.shape[axis] = s.length;
    int64_t strides[AJ_MAX_NDIM], n = 1;
    for (int i = meta.ndim - 1; i >= 0; i--) {
        strides[i] = n;
        n *= meta.shape[i];
    }
    if (n == 0)
        return AJ_OK;
    aji_value *block = aji_value_view(blocks, &meta, strides, blocks->offset + *at);
    aji_value *part = block ? aji_value_view(v, &meta, v->strides, v->offset + s.at * v->strides[axis]) : NULL;
    aj_status status =
        part ? aji_do_copy(c->op->name, into_blocks ? part : block, into_blocks ? block : part) : aj_ctx_status(c->ctx);
    aji_value_release(block);
    aji_value_release(part);
    *at += n;
    return status;
}

aji_value *aji_pack_blocks(const aji_call *c, int axis, aji_span_of *span, aj_device where) {
    aji_value *x = c->x[0];
    if (is_outermost(&x->meta, axis))
        return aji_value_on(x, where);
    aji_meta flat = {.dtype = x->meta.dtype, .ndim = 1, .shape = {aji_meta_numel(&x->meta)}};
    aji_value *blocks = aji_value_new(c->ctx, x->device, &flat), *there = NULL;
    aj_status status = blocks ? AJ_OK : AJ_ERR_MEMORY;
    int64_t at = 0;
    for (int k = 0; k < c->comm->size && status == AJ_OK; k++)
        status = copy_block(c, x, axis, span(c, k), blocks, &at, true);
    if (status == AJ_OK)
        there = aji_value_on(blocks, where);
    aji_value_release(blocks);
    return there;
}

aj_status aji_unpack_blocks(aji_call *c, aji_value *blocks, int axis, aji_span_of *span) {
    bool is_empty = aji_meta_numel(&c->out_meta[0]) == 0; /* not the root of a gather, perhaps: the blocks are not its own */
    if (is_empty || is_outermost(&c->out_meta[0], axis))
        return aji_from_host(c, aji_value_retain(blocks), AJ_OK);
    aji_value *near = aji_value_on(blocks, c->device), *y = near ? aji_value_new(c->ctx, c->device, &c->out_meta[0]) : NULL;
    aj_status status = y ? AJ_OK : aj_ctx_status(c->ctx);
    int64_t at = 0;
    for (int k = 0; k < c->comm->size && status == AJ_OK; k++)
        status = copy_block(c, y, axis, span(c, k), near, &at, false);
    aji_value_release(near);
    if (status == AJ_OK)
        c->y[0] = y;
    else
        aji_value_release(y);
    return status;
}

int64_t aji_row(const aji_meta *meta, int axis) {
    int64_t n = 1;
    for (int i = 0; i < meta->ndim; i++)
        n *= i == axis ? 1 : meta->shape[i];
    return n;
}

/* ---- the operations ---- */

static aji_span part(const aji_call *c, int k) {
    const aji_parts *parts = ((const aji_axis_attr *)c->attr)->parts;
    return (aji_span){parts->first[k], parts->length[k]};
}

static size_t counts_bytes(const aji_call *c) {
    return (size_t)c->comm->size * sizeof(int64_t);
}

static void clean_up(const aji_call *c, aji_packed *p) {
    aji_value_release(p->x);
    aji_value_release(p->y);
    aji_free(c->ctx, p->counts, counts_bytes(c));
}

static aj_status packed_open(aji_call *c, aji_packed *p, bool divides, bool with_x, aj_device where) {
    const aji_axis_attr *a = c->attr;
    *p = (aji_packed){.counts = aji_alloc(c->ctx, counts_bytes(c))};
    if (p->counts && with_x)
        p->x = divides ? aji_pack_blocks(c, a->axis, part, where) : aji_value_on(c->x[0], where);
    if (p->x || (p->counts && !with_x))
        p->y = aji_new_for_mpi(c, where);
    if (!p->y) {
        clean_up(c, p);
        return aj_ctx_status(c->ctx);
    }
    int64_t row = aji_row(&c->out_meta[0], a->axis);
    for (int k = 0; k < c->comm->size; k++)
        p->counts[k] = a->parts->length[k] * row;
    p->in = p->x ? aji_value_data(p->x) : NULL;
    p->out = aji_value_data(p->y);
    return AJ_OK;
}

static aj_status run(aji_call *c, bool divides, bool with_x, aj_device where, aji_collective *collective) {
    const aji_axis_attr *a = c->attr;
    if (c->comm->size <= 1)
        return aji_return_operand(c);
    aji_packed p;
    aj_status status = packed_open(c, &p, divides, with_x, where);
    if (status != AJ_OK)
        return status;
    status = collective(c, &p);
    if (status == AJ_OK)
        status = divides ? aji_from_host(c, aji_value_retain(p.y), AJ_OK) : aji_unpack_blocks(c, p.y, a->axis, part);
    clean_up(c, &p);
    return status;
}

aj_status aji_join_run(aji_call *c, aji_collective *collective) {
    return run(c, false, true, aji_mpi_device(c->device), collective);
}

aj_status aji_divide_run(aji_call *c, bool with_x, aj_device where, aji_collective *collective) {
    return run(c, true, with_x, where, collective);
}
