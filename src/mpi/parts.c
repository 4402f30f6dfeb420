/*
 * Parts of an axis: their exchange, and packing. Moving the axis to the front makes each rank's part a block, so that MPI gets contiguous memory, and
 * the result is a strided view on what came.
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
        parts->first[k + 1] = parts->first[k] + parts->length[k];
}

void aji_axis_attr_free(aj_ctx *ctx, void *attr) {
    aji_axis_attr *a = attr;
    aji_parts_release(ctx, a->parts);
    aji_value_release(a->winner);
}

/* ---- the exchange ---- */

aji_told *aji_tell(aji_call *c, int axis, int other_axis, int64_t numelem) {
    const aji_meta *m = &c->in_meta[0];
    aji_told mine = {.dtype = m->dtype, .ndim = m->ndim, .axis = axis, .other_axis = other_axis, .numelem = numelem};
    memcpy(mine.shape, m->shape, (size_t)m->ndim * sizeof(int64_t));
    /* Not on `words`, where a rank in error may be met. */
    aji_told *all = aji_alloc(c->ctx, (size_t)c->comm->size * sizeof(*all));
    if (!all)
        return NULL;
    int code = aji_mpi_allgather(c->comm, c->comm->forward, &mine, all, sizeof(mine) / sizeof(int64_t), MPI_INT64_T);
    if (aji_mpi_check(c->ctx, c->op->name, code) == AJ_OK)
        return all;
    aji_told_free(c, all);
    return NULL;
}

void aji_told_free(const aji_call *c, aji_told *told) {
    if (told)
        aji_free(c->ctx, told, (size_t)c->comm->size * sizeof(*told));
}

static aj_status mismatch(const aji_call *c, aj_status status, const char *what, int rank, const char *there, const char *here) {
    return aj_raise(c->ctx, status, "%s: rank 0 has %s %s, rank %d has %s; expected the same on all ranks", c->op->name, what,
                    here, rank, there);
}

static aj_status check_number(const aji_call *c, const char *what, int rank, int64_t there, int64_t here) {
    return there == here
               ? AJ_OK
               : aj_raise(c->ctx, AJ_ERR_ARG, "%s: rank 0 has %s %lld, rank %d has %lld; expected the same on all ranks",
                          c->op->name, what, (long long)here, rank, (long long)there);
}

aj_status aji_check_told(const aji_call *c, const aji_told *told, unsigned free_axes) {
    char a[160], b[160];
    aj_status status = AJ_OK;
    for (int k = 1; k < c->comm->size && status == AJ_OK; k++) {
        if (told[k].dtype != told[0].dtype)
            return mismatch(c, AJ_ERR_DTYPE, "dtype", k, aj_dtype_name((aj_dtype)told[k].dtype),
                            aj_dtype_name((aj_dtype)told[0].dtype));
        status = check_number(c, "axis", k, told[k].axis, told[0].axis);
        if (status == AJ_OK)
            status = check_number(c, "scatter axis", k, told[k].other_axis, told[0].other_axis);
        bool fits = told[k].ndim == told[0].ndim;
        for (int i = 0; fits && i < told[0].ndim; i++)
            fits = (free_axes & (1u << i)) || told[k].shape[i] == told[0].shape[i];
        if (status == AJ_OK && !fits)
            return aj_raise(c->ctx, AJ_ERR_SHAPE,
                            "%s: rank 0 has shape %s, rank %d has %s; expected equal ones but along the axis", c->op->name,
                            aji_shape_text((int)told[0].ndim, told[0].shape, a), k,
                            aji_shape_text((int)told[k].ndim, told[k].shape, b));
    }
    return status;
}

aj_status aji_exchange_lengths(aji_call *c) {
    aji_axis_attr *a = c->attr;
    if (a->parts)
        return AJ_OK;
    a->parts = aji_parts_new(c->ctx, c->comm->size);
    aji_told *told = a->parts ? aji_tell(c, a->axis, a->root, 0) : NULL;
    aj_status status = told ? aji_check_told(c, told, 1u << a->axis) : aj_ctx_status(c->ctx);
    for (int k = 0; k < c->comm->size && status == AJ_OK; k++)
        a->parts->length[k] = told[k].shape[a->axis];
    if (status == AJ_OK)
        aji_parts_close(a->parts);
    aji_told_free(c, told);
    return status;
}

/* ---- packing ---- */

/* v with the axes in another order: y's axis i is v's axis order[i]. */
static aji_value *permuted(aji_value *v, const int *order) {
    aji_meta meta = v->meta;
    int64_t strides[AJ_MAX_NDIM] = {0};
    for (int i = 0; i < meta.ndim; i++) {
        meta.shape[i] = v->meta.shape[order[i]];
        strides[i] = v->strides[order[i]];
    }
    return aji_value_view(v, &meta, strides, v->offset);
}

aji_value *aji_move_to_front(aji_value *v, int axis) {
    int order[AJ_MAX_NDIM] = {axis};
    for (int i = 0, at = 1; i < v->meta.ndim; i++)
        if (i != axis)
            order[at++] = i;
    return permuted(v, order);
}

aji_value *aji_move_front_to(aji_value *v, int axis) {
    int order[AJ_MAX_NDIM];
    for (int i = 0; i < v->meta.ndim; i++)
        order[i] = i < axis ? i + 1 : i == axis ? 0 : i;
    return permuted(v, order);
}

aji_value *aji_pack(aji_value *v, int axis) {
    aji_value *front = aji_move_to_front(v, axis), *packed = front ? aji_to_host(front) : NULL;
    aji_value_release(front);
    return packed;
}

aji_value *aji_new_packed(aji_call *c, int axis) {
    aji_meta meta = c->out_meta[0];
    for (int i = axis; i > 0; i--)
        meta.shape[i] = c->out_meta[0].shape[i - 1];
    meta.shape[0] = c->out_meta[0].shape[axis];
    return aji_value_new(c->ctx, aj_cpu(c->ctx), &meta);
}

int64_t aji_row(const aji_meta *meta, int axis) {
    int64_t n = 1;
    for (int i = 0; i < meta->ndim; i++)
        n *= i == axis ? 1 : meta->shape[i];
    return n;
}

static size_t counts_bytes(const aji_call *c) {
    return (size_t)c->comm->size * sizeof(int64_t);
}

static void clean_up(const aji_call *c, aji_packed *p) {
    aji_value_release(p->x);
    aji_value_release(p->y);
    aji_free(c->ctx, p->counts, counts_bytes(c));
}

aj_status aji_packed_open(aji_call *c, aji_packed *p, bool with_x) {
    const aji_axis_attr *a = c->attr;
    *p = (aji_packed){.counts = aji_alloc(c->ctx, counts_bytes(c))};
    if (p->counts && with_x)
        p->x = aji_pack(c->x[0], a->axis);
    if (p->x || (p->counts && !with_x))
        p->y = aji_new_packed(c, a->axis);
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

aj_status aji_packed_close(aji_call *c, aji_packed *p, int code) {
    const aji_axis_attr *a = c->attr;
    aj_status status = aji_mpi_check(c->ctx, c->op->name, code);
    if (status == AJ_OK)
        status = aj_ctx_status(c->ctx); /* of what else went on between open and close */
    if (status == AJ_OK)
        status = aji_from_host(c, aji_move_front_to(p->y, a->axis));
    clean_up(c, p);
    return status;
}
