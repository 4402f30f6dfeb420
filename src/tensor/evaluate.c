/*
 * Evaluation: a pending expression becomes a program, which the device runs in one pass.
 *
 * An interior value that others hold too is stored on the way if it is likely to be read again and dear to compute again: another pending value
 * reads it, or a node saved it and it takes a transcendental function. Else it is computed in passing, and stored if
 * that happens a second time. One or two cheap steps are never stored. So nothing else is computed more than twice, and what is read once is
 * never written.
 */
#include <math.h>
#include <string.h>

#include "tensor/cpu.h"
#include "tensor/expression.h"

enum { SHALLOW = 2 }; /* steps: computed again as fast as read */

typedef struct builder {
    aj_ctx *ctx;
    aji_program program;
    aji_value *step[AJI_MAX_STEPS]; /* the value of each */
    int box[AJI_MAX_STEPS];         /* where it is computed */
    int uses[AJI_MAX_STEPS];        /* by steps of the program */
    int cost[AJI_MAX_STEPS];        /* steps that lead to it from what is stored; 0: it is stored itself */
    aji_value *in[AJI_MAX_INPUTS];
    int readers; /* references to the root that go with this evaluation */
    int n_stored;
    aji_value *stored[AJI_MAX_OUTPUTS]; /* pending values that get storage */
    aji_value *out[AJI_MAX_OUTPUTS];    /* on that storage */
} builder;

/* ---- preparing: what cannot be a step is evaluated ---- */

static bool is_dear(int opcode) {
    switch (opcode) {
    case AJI_STEP_EXP:
    case AJI_STEP_EXPM1:
    case AJI_STEP_LOG:
    case AJI_STEP_LOG1P:
    case AJI_STEP_SIN:
    case AJI_STEP_COS:
    case AJI_STEP_TAN:
    case AJI_STEP_ASIN:
    case AJI_STEP_ACOS:
    case AJI_STEP_ATAN:
    case AJI_STEP_SINH:
    case AJI_STEP_COSH:
    case AJI_STEP_TANH:
    case AJI_STEP_SIGMOID:
    case AJI_STEP_SOFTPLUS:
    case AJI_STEP_ERF:
    case AJI_STEP_POW:
    case AJI_STEP_ATAN2:
    case AJI_STEP_POW_SCALAR:
        return true;
    default:
        return false;
    }
}

static bool is_placed(const aji_value *v) {
    return !v->storage && v->expression.kind == AJI_PENDING_PLACED;
}

/* Is what is placed computed where it is placed, without being stored first? It is where nobody else reads it, or where that takes a step or two. */
static bool fuses_in_box(int *in_boxes, aji_value *v) {
    if (!aji_value_fuses(v, v->numel))
        return false;
    if (*in_boxes + v->expression.steps > AJI_MOST_IN_BOXES)
        aji_expression_count(v);
    if (*in_boxes + v->expression.steps > AJI_MOST_IN_BOXES)
        return false;
    bool alone = v->refs == 1 && !v->passed, cheap = v->expression.steps <= SHALLOW && !is_dear(v->expression.opcode);
    if (alone || cheap)
        *in_boxes += v->expression.steps;
    return alone || cheap;
}

static aj_status prepare(aji_value *v, int64_t numel, bool in_box, int *in_boxes, int64_t visit) {
    bool placed = is_placed(v) && v->numel == numel && !in_box;
    if (!placed && !aji_value_fuses(v, numel))
        return aji_value_evaluate(v);
    if (v->visit == visit)
        return AJ_OK;
    v->visit = visit;
    if (placed) {
        aji_value *inner = v->expression.src[0];
        v->expression.in_box = fuses_in_box(in_boxes, inner);
        return v->expression.in_box ? prepare(inner, inner->numel, true, in_boxes, visit) : aji_value_evaluate(inner);
    }
    aj_status status = AJ_OK;
    for (int k = 0; status == AJ_OK && !v->storage && k < v->expression.n_src; k++)
        status = prepare(v->expression.src[k], numel, in_box, in_boxes, visit);
    return status;
}

/* ---- building: nothing is evaluated any more ---- */

/* While steps are added, input i is written as ~i: how many there are is known at the end. */
static int add_input(builder *b, aji_value *v, int box) {
    for (int i = 0; i < b->program.n_in; i++)
        if (b->in[i] == v && b->program.box[i] == box)
            return ~i;
    int i = b->program.n_in++;
    b->in[i] = v;
    b->program.box[i] = box;
    return ~i;
}

static int add_step(builder *b, const aji_step *step, aji_value *v, int box) {
    int s = b->program.n_steps++;
    b->program.steps[s] = *step;
    b->step[s] = v;
    b->box[s] = box;
    b->uses[s] = 1;
    v->number = s + 1;
    return s;
}

static int add_value(builder *b, aji_value *v, int64_t numel, int box);

/* A factor that leaves +0 as it is. */
static bool keeps_zeros(const aji_value *v) {
    double factor = v->meta.dtype == AJ_F32 ? (float)v->expression.imm[0] : v->expression.imm[0];
    return aji_value_fuses(v, v->numel) && v->expression.opcode == AJI_STEP_SCALE && factor > 0 && isfinite(factor);
}

/* The operand and its inputs lie in a box of their own. */
static int add_placed(builder *b, aji_value *v) {
    const aji_expression *e = &v->expression;
    aji_value *inner = e->src[0];
    int box = b->program.n_boxes++;
    b->program.boxes[box] = (aji_box){v->meta.ndim, e->lo, inner->meta.shape};
    aji_step place = {.opcode = AJI_STEP_PLACE, .dtype = v->meta.dtype, .src = {0, box}};
    if (e->in_box && keeps_zeros(inner)) { /* outside the box then, where it may become one step with a sum */
        aji_step scale = {.opcode = AJI_STEP_SCALE, .dtype = v->meta.dtype, .imm = {inner->expression.imm[0]}};
        place.src[0] = add_value(b, inner->expression.src[0], inner->numel, box);
        scale.src[0] = add_step(b, &place, inner, box);
        return add_step(b, &scale, v, AJI_EVERYWHERE);
    }
    place.src[0] = e->in_box ? add_value(b, inner, inner->numel, box) : add_input(b, inner, box);
    return add_step(b, &place, v, AJI_EVERYWHERE);
}

/* The number of v in the program, with the steps that lead to it. */
static int add_value(builder *b, aji_value *v, int64_t numel, int box) {
    if (v->number && b->box[v->number - 1] == box) {
        b->uses[v->number - 1]++;
        return v->number - 1;
    }
    if (is_placed(v) && v->numel == numel && box == AJI_EVERYWHERE)
        return add_placed(b, v);
    if (!aji_value_fuses(v, numel))
        return add_input(b, v, box);
    const aji_expression *e = &v->expression;
    aji_step step = {.opcode = (aji_opcode)e->opcode, .dtype = (aj_dtype)e->dtype, .from = (aj_dtype)e->from};
    memcpy(step.imm, e->imm, sizeof(step.imm));
    for (int k = 0; k < e->n_src; k++)
        step.src[k] = add_value(b, e->src[k], numel, box);
    return add_step(b, &step, v, box);
}

static void number_sources(builder *b) {
    for (int s = 0; s < b->program.n_steps; s++) {
        aji_step *step = &b->program.steps[s];
        for (int k = 0; k < (step->opcode == AJI_STEP_PLACE ? 1 : 3); k++)
            step->src[k] = step->src[k] < 0 ? ~step->src[k] : b->program.n_in + step->src[k];
    }
}

/* The program for v, without outputs. */
static aj_status build(builder *b, aji_value *v) {
    int in_boxes = 0;
    aj_status status = prepare(v, v->numel, false, &in_boxes, ++v->ctx->visits);
    if (status != AJ_OK)
        return status;
    b->ctx = v->ctx;
    b->program.n_in = b->program.n_steps = b->program.n_out = b->program.n_boxes = 0;
    b->n_stored = b->readers = 0;
    add_value(b, v, v->numel, AJI_EVERYWHERE);
    for (int s = 0; s < b->program.n_steps; s++)
        b->step[s]->number = 0;
    number_sources(b);
    return AJ_OK;
}

/* The value that a program was built for: that of the last step, or if there is none the input. */
static int result_of(const builder *b) {
    return b->program.n_steps > 0 ? b->program.n_in + b->program.n_steps - 1 : 0;
}

/* ---- what is stored ---- */

static bool is_stored(const builder *b, int s) {
    const aji_value *v = b->step[s];
    if (b->box[s] != AJI_EVERYWHERE)
        return false; /* an output is not in a box */
    bool root = s == b->program.n_steps - 1;
    int inside = root ? b->uses[s] - 1 + b->readers : b->uses[s]; /* the root's first use is the evaluation */
    if (v->refs == inside)
        return false; /* nobody else holds it */
    if (b->cost[s] <= SHALLOW && !is_dear(v->expression.opcode))
        return false;
    return v->users > inside || v->passed || (v->saved && is_dear(v->expression.opcode));
}

static int cost(const builder *b, int s) {
    const aji_step *step = &b->program.steps[s];
    int sum = 1;
    for (int k = 0; k < b->step[s]->expression.n_src; k++)
        if (step->src[k] >= b->program.n_in)
            sum += b->cost[step->src[k] - b->program.n_in];
    return sum < AJI_MAX_STEPS ? sum : AJI_MAX_STEPS;
}

static aj_status store(builder *b, int s) {
    aji_value *v = b->step[s];
    aji_value *out = aji_value_new(b->ctx, v->device, &v->meta);
    if (!out)
        return AJ_ERR_MEMORY;
    b->program.out[b->program.n_out++] = b->program.n_in + s;
    b->stored[b->n_stored] = v;
    b->out[b->n_stored++] = out;
    return AJ_OK;
}

/* Interior values that are to be stored. */
static aj_status store_interior(builder *b, int end) {
    for (int s = 0; s < end; s++) {
        b->cost[s] = cost(b, s);
        if (!is_stored(b, s)) {
            b->step[s]->passed = true;
            continue;
        }
        b->cost[s] = 0;
        if (store(b, s) != AJ_OK)
            return AJ_ERR_MEMORY;
    }
    return AJ_OK;
}

/* After the run: what was stored is evaluated now. */
static void settle(builder *b, aj_status status) {
    for (int k = 0; k < b->n_stored; k++) {
        if (status == AJ_OK)
            aji_expression_settle(b->stored[k], aji_storage_retain(b->out[k]->storage));
        aji_value_release(b->out[k]);
    }
}

/* ---- evaluating ---- */

static aj_status evaluate_full(aji_value *v) {
    unsigned char bytes[8];
    size_t size = aj_dtype_size(v->meta.dtype);
    aji_encode(v->meta.dtype, v->expression.imm[0], bytes);
    aji_storage *storage = aji_storage_new(v->ctx, v->device, size);
    if (!storage)
        return AJ_ERR_MEMORY;
    aj_status status = v->device->table->upload(v->device, storage->data, bytes, size);
    if (status != AJ_OK) {
        aji_storage_release(storage);
        return status;
    }
    aji_expression_settle(v, storage);
    memset(v->strides, 0, sizeof(v->strides));
    return AJ_OK;
}

/* A part of a contiguous value, without a count of its own. */
static aji_value part_of(const aji_value *v, const int64_t *lo, const int64_t *extent) {
    aji_value part = *v;
    for (int d = 0; d < v->meta.ndim; d++) {
        part.meta.shape[d] = extent[d];
        part.offset += lo[d] * v->strides[d];
    }
    return part;
}

/* y = 0 outside the box: on each axis what lies before and behind it, and on the axes before inside it. */
static aj_status clear_around(const aji_value *y, const int64_t *box_lo, const int64_t *box_extent) {
    aji_value *zero = aji_value_full(y->ctx, y->device, &(aji_meta){.dtype = y->meta.dtype}, 0);
    aj_status status = zero ? aji_value_evaluate(zero) : AJ_ERR_MEMORY;
    int64_t lo[AJ_MAX_NDIM] = {0}, extent[AJ_MAX_NDIM];
    memcpy(extent, y->meta.shape, sizeof(extent));
    for (int d = 0; d < y->meta.ndim && status == AJ_OK; d++) {
        int64_t begin[] = {0, box_lo[d] + box_extent[d]}, end[] = {box_lo[d], y->meta.shape[d]};
        for (int side = 0; side < 2 && status == AJ_OK; side++) {
            lo[d] = begin[side];
            extent[d] = end[side] - begin[side];
            aji_value part = part_of(y, lo, extent), zeros = part;
            zeros.storage = zero->storage;
            zeros.offset = 0;
            memset(zeros.strides, 0, sizeof(zeros.strides));
            if (aji_meta_numel(&part.meta) > 0)
                status = aji_do_copy("adjoin", &zeros, &part);
        }
        lo[d] = box_lo[d];
        extent[d] = box_extent[d];
    }
    aji_value_release(zero);
    return status;
}

static aj_status evaluate_into(const char *op, aji_value *v, int readers, const aji_value *window);

static aj_status evaluate_placed(aji_value *v) {
    const aji_expression *e = &v->expression;
    const int64_t *extent = e->src[0]->meta.shape;
    aji_value *y = aji_value_new(v->ctx, v->device, &v->meta);
    aj_status status = y ? clear_around(y, e->lo, extent) : AJ_ERR_MEMORY;
    if (status == AJ_OK) {
        aji_value part = part_of(y, e->lo, extent);
        status = evaluate_into("adjoin", e->src[0], 1, &part);
    }
    if (status == AJ_OK)
        aji_expression_settle(v, aji_storage_retain(y->storage));
    aji_value_release(y);
    return status;
}

/* The program with its outputs. */
static aj_status run(builder *b, const char *op, const aji_value *const *out) {
    aji_program_combine(&b->program, b->program.out[0]);
    return aji_do_run(op, &b->program, (const aji_value *const *)b->in, out);
}

static aj_status evaluate_steps(aji_value *v) {
    builder b;
    aj_status status = build(&b, v);
    if (status != AJ_OK)
        return status;
    status = store_interior(&b, b.program.n_steps - 1);
    if (status == AJ_OK)
        status = store(&b, b.program.n_steps - 1);
    if (status == AJ_OK)
        status = run(&b, "adjoin", (const aji_value *const *)b.out);
    settle(&b, status);
    return status;
}

aj_status aji_value_evaluate(aji_value *v) {
    if (v->storage)
        return AJ_OK;
    switch ((aji_pending)v->expression.kind) {
    case AJI_PENDING_FULL:
        return evaluate_full(v);
    case AJI_PENDING_PLACED:
        return evaluate_placed(v);
    default:
        return evaluate_steps(v);
    }
}

/* window = v. readers: references to v that end with this. */
static aj_status evaluate_into(const char *op, aji_value *v, int readers, const aji_value *window) {
    builder b;
    bool fuses = aji_value_fuses(v, aji_meta_numel(&window->meta));
    aj_status status = fuses ? build(&b, v) : aji_value_evaluate(v);
    if (status != AJ_OK)
        return status;
    if (!fuses) {
        aji_value *source = aji_value_broadcast(v, &window->meta);
        status = source ? aji_do_copy(op, source, window) : AJ_ERR_MEMORY;
        aji_value_release(source);
        return status;
    }
    b.readers = readers;
    status = store_interior(&b, b.program.n_steps);
    const aji_value *out[AJI_MAX_OUTPUTS];
    for (int k = 0; k < b.n_stored; k++)
        out[k] = b.out[k];
    out[b.program.n_out] = window;
    b.program.out[b.program.n_out++] = result_of(&b);
    if (status == AJ_OK)
        status = run(&b, op, out);
    settle(&b, status);
    return status;
}

aj_status aji_value_evaluate_into(const char *op, aji_value *v, const aji_value *window) {
    return evaluate_into(op, v, 0, window);
}

aj_status aji_value_reduce(const char *op, aji_reduction kind, aji_value *x, unsigned axes, const aji_value *result) {
    builder b;
    aj_status status = build(&b, x);
    if (status != AJ_OK)
        return status;
    status = store_interior(&b, b.program.n_steps);
    int reduced = aji_program_combine(&b.program, result_of(&b));
    if (status == AJ_OK)
        status = aji_do_reduce(op, kind, &b.program, reduced, &x->meta, axes, (const aji_value *const *)b.in, result,
                               (const aji_value *const *)b.out);
    settle(&b, status);
    return status;
}
