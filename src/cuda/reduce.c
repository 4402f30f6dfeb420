/*
 * The `reduce` and `argument` slots. One kernel runs the program and reduces its value; where that leaves partial results, one for each part of the reduced
 * axes, a second kernel folds those, in the same order every time: no atomic operation, and the same numbers in every run.
 */
#include <math.h>

#include "cuda/plan.h"

static const aji_program nothing = {.n_in = 0};
/* A program without steps and outputs, whose input is reduced */
static const aji_program input = {.n_in = 1, .box = {AJI_EVERYWHERE}};

/* The plan goes on to its partial results: the kept axes, and as the row the parts. */
static void become_fold(const aji_cuda *d, aji_plan *p) {
    aji_space *s = &p->space;
    aji_operand result = p->operand[s->n - 1];
    int n = 0;
    for (int axis = 0; axis < s->ndim; axis++) {
        if (s->reduced[axis])
            continue;
        s->shape[n] = s->shape[axis];
        result.stride[n] = result.stride[axis];
        s->reduced[n++] = false;
    }
    s->shape[n] = p->layout.splits; /* there is an axis less to keep */
    result.stride[n] = 0;
    s->reduced[n++] = true;
    s->ndim = n;
    p->operand_dtype[0] = p->operand_dtype[s->n - 1];
    p->operand[0] = result;
    s->n = 1;
    s->n_boxes = p->n_in = p->n_out = 0;
    p->program = &nothing;
    p->folds = true;
    aji_space_merge(s);
    aji_layout_fold(d, p);
}

static aj_status launch_all(aji_cuda *d, aji_plan *p) {
    size_t bytes = 0;
    if (p->layout.splits > 1) {
        bytes = (size_t)(p->layout.kept * p->layout.splits) * (p->kernel == AJI_KERNEL_ARGUMENT ? 2 : 1) * sizeof(double);
        p->partial = aji_cuda_alloc(d, bytes);
        if (!p->partial)
            return AJ_ERR_MEMORY;
    }
    void *partial = p->partial;
    aj_status status = aji_layout_launch(d, p);
    if (status == AJ_OK && partial) {
        become_fold(d, p);
        status = aji_layout_launch(d, p);
    }
    aji_cuda_free(d, partial, bytes);
    return status;
}

static aj_status launch_entered(aji_cuda *d, aji_plan *p) {
    aj_status status = aji_cuda_enter(d);
    return status == AJ_OK ? aji_cuda_leave(d, launch_all(d, p)) : status;
}

/* The input with the most entries: what is read of it should lie together. */
static int guide(const aji_plan *p) {
    int best = 0;
    int64_t most = -1;
    for (int k = 0; k < p->n_in; k++) {
        int64_t n = 1;
        for (int d = 0; d < p->space.ndim; d++)
            n *= p->operand[k].stride[d] != 0 ? p->space.shape[d] : 1;
        if (n > most) {
            most = n;
            best = k;
        }
    }
    return best;
}

/* -0.0 + x is x for every x; but nothing adds up to 0. */
static double neutral(aji_reduction kind, bool empty) {
    const double of[] = {[AJI_SUM] = empty ? 0.0 : -0.0, [AJI_PROD] = 1, [AJI_MAX] = -INFINITY, [AJI_MIN] = INFINITY};
    return of[kind];
}

aj_status aji_cuda_reduce(aj_ctx *ctx, aji_reduction kind, const aji_program *program, int reduced, const aji_meta *shape,
                          unsigned axes, const aji_value *const *in, const aji_value *result, const aji_value *const *out) {
    aji_cuda *d = aji_cuda_of(result->device);
    aji_plan p;
    aji_meta space = *shape;
    bool empty = aji_meta_numel(shape) == 0;
    (void)ctx;
    if (aji_meta_numel(&result->meta) == 0)
        return AJ_OK;
    for (int axis = 0; axis < shape->ndim && empty; axis++)
        space.shape[axis] = axes >> axis & 1 ? 1 : shape->shape[axis]; /* the kept entries are there, but nothing to read */
    aji_plan_open(&p, AJI_KERNEL_REDUCE, program, &space, in, out, 1, &result);
    p.kind = kind;
    p.reduced = reduced;
    p.neutral = neutral(kind, empty);
    aji_space_reduce(&p.space, axes, guide(&p), 2);
    aji_layout_reduce(d, &p);
    if (empty)
        p.layout.reduced = p.layout.chunk = 0;
    return launch_entered(d, &p);
}

aj_status aji_cuda_argument(aj_ctx *ctx, bool largest, const aji_value *x, int axis, const aji_value *out) {
    aji_cuda *d = aji_cuda_of(out->device);
    aji_plan p;
    (void)ctx;
    if (aji_meta_numel(&out->meta) == 0)
        return AJ_OK;
    aji_plan_open(&p, AJI_KERNEL_ARGUMENT, &input, &x->meta, &x, NULL, 1, &out);
    p.kind = largest ? AJI_MAX : AJI_MIN;
    p.accumulation = x->meta.dtype;
    aji_space_reduce(&p.space, 1u << axis, 0, 2);
    aji_layout_reduce(d, &p);
    return launch_entered(d, &p);
}
