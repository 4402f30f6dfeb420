/* The space that a program runs over. */
#include <stdlib.h>
#include <string.h>

#include "tensor/cpu.h"
#include "tensor/space_internal.h"

void aji_space_open(aji_space *s, const aji_meta *shape, int n, aji_operand *operands, const aji_program *program,
                    aji_space_box *boxes) {
    s->ndim = shape->ndim;
    s->n = n;
    s->operand = operands;
    s->n_boxes = program->n_boxes;
    s->box = boxes;
    for (int d = 0; d < shape->ndim; d++) {
        s->shape[d] = shape->shape[d];
        s->reduced[d] = false;
    }
    for (int k = 0; k < s->n_boxes; k++) {
        const aji_box *from = &program->boxes[k];
        int shift = shape->ndim - from->ndim;
        for (int d = 0; d < shape->ndim; d++) {
            boxes[k].lo[d] = d < shift ? 0 : from->lo[d - shift];
            boxes[k].extent[d] = d < shift ? shape->shape[d] : from->extent[d - shift];
        }
    }
}

void aji_space_set(const aji_space *s, aji_operand *x, const aji_value *v, int box) {
    x->data = aji_value_data(v);
    x->size = (int64_t)aj_dtype_size(v->meta.dtype);
    x->box = box;
    int shift = s->ndim - v->meta.ndim;
    for (int d = 0; d < s->ndim; d++) {
        int64_t extent = box == AJI_EVERYWHERE ? s->shape[d] : s->box[box].extent[d];
        bool moves = d >= shift && v->meta.shape[d - shift] == extent && extent > 1;
        x->stride[d] = moves ? v->strides[d - shift] : 0;
        if (box != AJI_EVERYWHERE)
            x->data -= s->box[box].lo[d] * x->stride[d] * x->size;
    }
}

/* ---- axes ---- */

enum { FEW = 64 };

/* order: which axis comes at each place. */
static void permute(aji_space *s, const int *order) {
    aji_space old = *s;
    for (int d = 0; d < s->ndim; d++) {
        s->shape[d] = old.shape[order[d]];
        s->reduced[d] = old.reduced[order[d]];
    }
    for (int k = 0; k < s->n; k++) {
        aji_operand *x = &s->operand[k], was = *x;
        for (int d = 0; d < s->ndim; d++)
            x->stride[d] = was.stride[order[d]];
    }
    for (int k = 0; k < s->n_boxes; k++) {
        aji_space_box *b = &s->box[k], was = *b;
        for (int d = 0; d < s->ndim; d++) {
            b->lo[d] = was.lo[order[d]];
            b->extent[d] = was.extent[order[d]];
        }
    }
}

/* May axis d become part of axis `into` before it? */
static bool merges(const aji_space *s, int into, int d) {
    if (s->reduced[into] != s->reduced[d])
        return false;
    for (int k = 0; k < s->n; k++) {
        const aji_operand *x = &s->operand[k];
        if (x->stride[into] != x->stride[d] * s->shape[d])
            return false;
    }
    for (int k = 0; k < s->n_boxes; k++)
        if (s->box[k].lo[d] != 0 || s->box[k].extent[d] != s->shape[d])
            return false;
    return true;
}

/* Axis d goes to place `to`, or into the axis there. */
static void join(aji_space *s, int to, int d, bool merge) {
    for (int k = 0; k < s->n; k++)
        s->operand[k].stride[to] = s->operand[k].stride[d];
    for (int k = 0; k < s->n_boxes; k++) {
        aji_space_box *b = &s->box[k];
        b->lo[to] = merge ? b->lo[to] * s->shape[d] : b->lo[d];
        b->extent[to] = merge ? b->extent[to] * s->shape[d] : b->extent[d];
    }
    s->shape[to] = merge ? s->shape[to] * s->shape[d] : s->shape[d];
    s->reduced[to] = s->reduced[d];
}

void aji_space_merge(aji_space *s) {
    int n = 0;
    for (int d = 0; d < s->ndim; d++) {
        if (s->shape[d] == 1)
            continue;
        bool merge = n > 0 && merges(s, n - 1, d);
        n += !merge;
        join(s, n - 1, d, merge);
    }
    if (n == 0) { /* one entry */
        n = 1;
        s->shape[0] = 1;
        s->reduced[0] = false;
        for (int k = 0; k < s->n; k++)
            s->operand[k].stride[0] = 0;
        for (int k = 0; k < s->n_boxes; k++) {
            s->box[k].lo[0] = 0;
            s->box[k].extent[0] = 1;
        }
    }
    s->ndim = n;
}

/* The axis for the row: of those that are long enough, the one that the guide crosses with the smallest steps; else the longest. */
static int choose_row(const aji_space *s, const aji_operand *guide, int64_t least) {
    int row = s->ndim - 1;
    int64_t smallest = INT64_MAX;
    for (int d = 0; d < s->ndim; d++) {
        int64_t step = llabs(guide->stride[d]);
        if (s->shape[d] >= least && step > 0 && step < smallest) {
            smallest = step;
            row = d;
        }
    }
    for (int d = 0; smallest == INT64_MAX && d < s->ndim; d++)
        if (s->shape[d] > s->shape[row])
            row = d;
    return row;
}

void aji_space_reduce(aji_space *s, unsigned axes, int guide, int64_t least) {
    const aji_operand *x = &s->operand[guide];
    for (int d = 0; d < s->ndim; d++)
        s->reduced[d] = axes >> d & 1;
    aji_space_merge(s);
    int order[AJ_MAX_NDIM], n = 0, row = choose_row(s, x, least);
    for (int reduced = 0; reduced < 2; reduced++)
        for (int d = 0; d < s->ndim; d++) {
            if (s->reduced[d] != reduced || d == row)
                continue;
            int at = n++; /* large steps first, so that neighbours in memory may merge */
            for (; at > 0 && s->reduced[order[at - 1]] == reduced && llabs(x->stride[order[at - 1]]) < llabs(x->stride[d]); at--)
                order[at] = order[at - 1];
            order[at] = d;
        }
    order[n] = row;
    permute(s, order);
    aji_space_merge(s);
}

bool aji_space_is_dense(const aji_space *s, const aji_operand *x) {
    int64_t stride = 1;
    for (int d = s->ndim - 1; d >= 0; d--) {
        if (x->stride[d] != stride)
            return false;
        stride *= s->shape[d];
    }
    return x->box == AJI_EVERYWHERE;
}

/* ---- rows ---- */

void aji_space_arrive(aji_space *s) {
    for (int k = 0; k < s->n_boxes; k++) {
        aji_space_box *b = &s->box[k];
        b->inside = true;
        for (int d = 0; b->inside && d < s->ndim - 1; d++)
            b->inside = s->index[d] >= b->lo[d] && s->index[d] < b->lo[d] + b->extent[d];
    }
}

void aji_space_narrow(aji_space *s, int64_t begin, int64_t end) {
    int row = s->ndim - 1;
    s->shape[row] = end - begin;
    for (int k = 0; k < s->n; k++)
        s->operand[k].data += begin * s->operand[k].stride[row] * s->operand[k].size;
    for (int k = 0; k < s->n_boxes; k++)
        s->box[k].lo[row] -= begin;
    int longest = row, order[AJ_MAX_NDIM];
    for (int d = 0; d < row; d++)
        longest = s->shape[d] > s->shape[longest] ? d : longest;
    if (s->shape[row] >= FEW || longest == row)
        return;
    for (int d = 0, n = 0; d <= row; d++)
        if (d != longest)
            order[n++] = d;
    order[row] = longest;
    permute(s, order);
}

void aji_space_begin(aji_space *s) {
    for (int d = 0; d < s->ndim; d++)
        s->index[d] = 0;
    for (int k = 0; k < s->n; k++)
        s->operand[k].at = 0;
    aji_space_arrive(s);
}

bool aji_space_next(aji_space *s, int from, int to) {
    bool more = false;
    for (int d = to - 1; d >= from && !more; d--) {
        int64_t steps = 1;
        more = ++s->index[d] < s->shape[d];
        if (!more) {
            steps = 1 - s->shape[d];
            s->index[d] = 0;
        }
        for (int k = 0; k < s->n; k++)
            s->operand[k].at += steps * s->operand[k].stride[d];
    }
    aji_space_arrive(s);
    return more;
}

/* The part begin ... end of a piece of the row that lies in the box. */
static void clip(const aji_space *s, int box, int64_t *begin, int64_t *end) {
    const aji_space_box *b = &s->box[box];
    int64_t lo = b->lo[s->ndim - 1], hi = b->inside ? lo + b->extent[s->ndim - 1] : lo;
    *begin = *begin < lo ? lo : *begin;
    *end = *end > hi ? hi : *end;
    if (*begin >= *end)
        *begin = *end;
}

void aji_row_clear_around(const aji_space *s, int box, int64_t column, int64_t n, char *elements, int64_t size) {
    int64_t begin = column, end = column + n;
    clip(s, box, &begin, &end);
    if (begin == end)
        begin = end = column;
    memset(elements, 0, (size_t)((begin - column) * size));
    memset(elements + (end - column) * size, 0, (size_t)((column + n - end) * size));
}

void aji_row_read(const aji_space *s, const aji_operand *x, int64_t column, int64_t n, char *to) {
    int64_t begin = column, end = column + n, stride = x->stride[s->ndim - 1];
    if (x->box != AJI_EVERYWHERE) {
        aji_row_clear_around(s, x->box, column, n, to, x->size);
        clip(s, x->box, &begin, &end);
        if (begin == end)
            return;
    }
    aji_copy_line(to + (begin - column) * x->size, 1, x->data + (x->at + begin * stride) * x->size, stride, end - begin,
                  (size_t)x->size);
}

void aji_row_write(const aji_space *s, const aji_operand *x, int64_t column, int64_t n, const char *from) {
    int64_t stride = x->stride[s->ndim - 1];
    aji_copy_line(x->data + (x->at + column * stride) * x->size, stride, from, 1, n, (size_t)x->size);
}
