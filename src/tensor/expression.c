/*
 * Pending values: elementwise work is noted down here, and computed by evaluate.c when someone needs the numbers.
 *
 * A pending value holds references to its operands. What these are cannot change: values are immutable, and borrowed memory stays as it is until
 * aj_unborrow, which puts a copy in its place. So it does not matter when the numbers are computed.
 */
#include <string.h>

#include "tensor/cpu.h"
#include "tensor/expression.h"

bool aji_value_is_pending(const aji_value *v) {
    return !v->storage;
}

static aji_value *new_pending(aj_ctx *ctx, aj_device device, const aji_meta *meta, aji_pending kind) {
    aji_value *v = aji_alloc_small(ctx, sizeof(*v));
    if (!v)
        return NULL;
    v->refs = 1;
    v->users = v->number = 0;
    v->visit = 0;
    v->saved = v->passed = v->within = false;
    v->ctx = ctx;
    v->device = device;
    v->meta = *meta;
    v->numel = aji_meta_numel(meta);
    v->storage = NULL;
    v->expression = (aji_expression){.kind = (unsigned char)kind};
    return v;
}

static void add_source(aji_value *v, aji_value *src) {
    v->expression.src[v->expression.n_src++] = aji_value_retain(src);
    src->users++;
}

static void release_sources(aj_ctx *ctx, aji_expression *e) {
    for (int k = 0; k < e->n_src; k++) {
        e->src[k]->users--;
        aji_value_release(e->src[k]);
    }
    aji_free(ctx, e->lo, AJ_MAX_NDIM * sizeof(*e->lo));
}

void aji_expression_release(aji_value *v) {
    release_sources(v->ctx, &v->expression);
}

void aji_expression_settle(aji_value *v, aji_storage *storage) {
    aji_expression was = v->expression;
    v->storage = storage;
    v->offset = 0;
    aji_value_set_contiguous(v);
    release_sources(v->ctx, &was);
}

/* ---- constants ---- */

aji_value *aji_value_full(aj_ctx *ctx, aj_device device, const aji_meta *meta, double value) {
    aji_value *v = new_pending(ctx, device, meta, AJI_PENDING_FULL);
    if (v)
        v->expression.imm[0] = meta->dtype == AJ_F32 ? (float)value : value;
    return v;
}

bool aji_value_is_full(const aji_value *v, double *value) {
    bool full = !v->storage && v->expression.kind == AJI_PENDING_FULL;
    if (full)
        *value = v->expression.imm[0];
    return full;
}

/* A step on constants alone is a constant. Integers of 64 bits do not fit into the number of one. */
static bool fold_constants(const aji_step *step, int n, aji_value *const *src, const aji_meta *meta, double *value) {
    double operand[3];
    unsigned char bytes[3][8], result[8];
    const void *from[3] = {bytes[0], bytes[1], bytes[2]};
    for (int k = 0; k < n; k++) {
        if (src[k]->meta.dtype == AJ_I64 || !aji_value_is_full(src[k], &operand[k]))
            return false;
        aji_encode(src[k]->meta.dtype, operand[k], bytes[k]);
    }
    if (meta->dtype == AJ_I64)
        return false;
    aji_step_kernel(step)(1, result, from, step->imm);
    *value = aji_decode(meta->dtype, result);
    return true;
}

/* A constant operand becomes an immediate. Returns the operand that is left; other is the constant. */
static aji_value *fold_operand(aji_step *step, aji_value *const *src) {
    double number;
    bool commutes = step->opcode == AJI_STEP_MUL || step->opcode == AJI_STEP_ADD;
    bool is_float = aji_dtype_is_float(step->dtype);
    aji_value *left = src[0], *right = src[1];
    if (commutes && aji_value_is_full(left, &number)) {
        left = src[1];
        right = src[0];
    }
    if (step->dtype == AJ_I64 || !aji_value_is_full(right, &number))
        return NULL;
    if (step->opcode == AJI_STEP_MUL)
        step->opcode = AJI_STEP_SCALE;
    else if (step->opcode == AJI_STEP_ADD)
        step->opcode = AJI_STEP_ADD_SCALAR;
    else if (step->opcode == AJI_STEP_SUB && is_float) {
        step->opcode = AJI_STEP_ADD_SCALAR;
        number = -number;
    } else
        return NULL;
    step->imm[0] = number;
    return left;
}

/* ---- how long an expression is ---- */

static void count_value(aji_value *v, int64_t numel, int64_t visit, int *steps, int *inputs) {
    if (v->visit == visit || *steps > AJI_MOST_STEPS || *inputs > AJI_MOST_INPUTS)
        return;
    v->visit = visit;
    if (!aji_value_fuses(v, numel)) {
        ++*inputs;
        return;
    }
    ++*steps;
    for (int k = 0; k < v->expression.n_src; k++)
        count_value(v->expression.src[k], numel, visit, steps, inputs);
}

void aji_expression_count(aji_value *v) {
    int steps = 0, inputs = 0;
    count_value(v, v->numel, ++v->ctx->visits, &steps, &inputs);
    v->expression.steps = (short)steps;
    v->expression.inputs = (short)inputs;
}

/* The tree's numbers: a value that is read twice counts twice. */
static void add_up(aji_value *v) {
    int64_t numel = v->numel;
    int steps = 1, inputs = 0;
    for (int k = 0; k < v->expression.n_src; k++) {
        const aji_value *src = v->expression.src[k];
        bool fuses = aji_value_fuses(src, numel);
        steps += fuses ? src->expression.steps : 0;
        inputs += fuses ? src->expression.inputs : 1;
    }
    v->expression.steps = (short)steps;
    v->expression.inputs = (short)inputs;
}

/* Operands that are evaluated by themselves, in an evaluation of v: no deeper than the stack has room for. */
static aj_status limit_levels(aji_value *v) {
    int most = 0;
    for (int k = 0; k < v->expression.n_src; k++) {
        aji_value *src = v->expression.src[k];
        if (src->storage)
            continue;
        int levels = src->expression.levels + !aji_value_fuses(src, v->numel);
        if (levels > AJI_MOST_LEVELS) {
            aj_status status = aji_value_evaluate(src);
            if (status != AJ_OK)
                return status;
            levels = 0;
        }
        most = levels > most ? levels : most;
    }
    v->expression.levels = (short)most;
    return AJ_OK;
}

static bool fits(const aji_value *v) {
    return v->expression.steps <= AJI_MOST_STEPS && v->expression.inputs <= AJI_MOST_INPUTS;
}

/* Evaluate the longest operand, until the rest fits. In the tree, what is read twice counted twice. */
static aj_status cut(aji_value *v) {
    add_up(v);
    while (!fits(v)) {
        aji_expression_count(v);
        if (fits(v))
            return AJ_OK;
        aji_value *longest = NULL;
        for (int k = 0; k < v->expression.n_src; k++) {
            aji_value *src = v->expression.src[k];
            if (aji_value_fuses(src, v->numel) && (!longest || src->expression.steps > longest->expression.steps))
                longest = src;
        }
        aj_status status = aji_value_evaluate(longest);
        if (status != AJ_OK)
            return status;
        add_up(v);
    }
    return AJ_OK;
}

/* ---- little ones ---- */

/* Entries from which on it pays to wait: fewer are computed faster than a program of them is planned. */
enum { LITTLE = 64 };

/* Is the step little work on contiguous operands in host memory? */
static bool is_little(aj_device device, const aji_meta *meta, int n, aji_value *const *src) {
    for (int k = 0; k < n; k++)
        if (src[k]->numel > LITTLE || !src[k]->storage || !aji_same_shape(&src[k]->meta, meta) ||
            !aji_value_is_contiguous(src[k]))
            return false;
    return aji_is_host(device);
}

static aji_value *compute_now(aj_ctx *ctx, aj_device device, const aji_meta *meta, const aji_step *step, int n,
                              aji_value *const *src) {
    const void *from[3] = {NULL, NULL, NULL};
    for (int k = 0; k < n; k++)
        from[k] = aji_value_data(src[k]);
    aji_value *y = aji_value_new(ctx, device, meta);
    if (y)
        aji_step_kernel(step)((int)y->numel, y->storage->data, from, step->imm);
    return y;
}

/* ---- making ---- */

aji_value *aji_value_placed(aji_value *v, const aji_meta *meta, const int64_t *lo) {
    if (v->numel == 0)
        return aji_value_full(v->ctx, v->device, meta, 0);
    if (aji_same_shape(&v->meta, meta))
        return aji_value_retain(v);
    aji_value *placed = new_pending(v->ctx, v->device, meta, AJI_PENDING_PLACED);
    int64_t *copy = placed ? aji_alloc(v->ctx, AJ_MAX_NDIM * sizeof(*copy)) : NULL;
    if (!copy) {
        aji_value_release(placed);
        return NULL;
    }
    memcpy(copy, lo, (size_t)meta->ndim * sizeof(*lo));
    placed->expression.lo = copy;
    add_source(placed, v);
    if (limit_levels(placed) == AJ_OK)
        return placed;
    aji_value_release(placed);
    return NULL;
}

aji_value *aji_value_step(aj_ctx *ctx, aj_device device, const aji_meta *meta, const aji_step *step, int n,
                          aji_value *const *src) {
    if (is_little(device, meta, n, src)) /* none of them a constant then, which would be pending */
        return compute_now(ctx, device, meta, step, n, src);
    aji_step folded = *step;
    double number;
    if (fold_constants(step, n, src, meta, &number))
        return aji_value_full(ctx, device, meta, number);
    aji_value *left = n == 2 ? fold_operand(&folded, src) : NULL;
    if (left && folded.opcode == AJI_STEP_SCALE && folded.imm[0] == 1 && aji_same_shape(&left->meta, meta))
        return aji_value_retain(left);
    if (left) {
        src = &left;
        n = 1;
    }
    if (is_little(device, meta, n, src))
        return compute_now(ctx, device, meta, &folded, n, src);
    aji_value *v = new_pending(ctx, device, meta, AJI_PENDING_STEP);
    if (!v)
        return NULL;
    aji_expression *e = &v->expression;
    e->opcode = (short)folded.opcode;
    e->dtype = (unsigned char)folded.dtype;
    e->from = (unsigned char)folded.from;
    e->imm[0] = folded.imm[0];
    e->imm[1] = folded.imm[1];
    for (int k = 0; k < n; k++)
        add_source(v, src[k]);
    aj_status status = limit_levels(v);
    if (status == AJ_OK)
        status = cut(v);
    if (status == AJ_OK && !ctx->fuse)
        status = aji_value_evaluate(v);
    if (status == AJ_OK)
        return v;
    aji_value_release(v);
    return NULL;
}
