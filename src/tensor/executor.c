/*
 * The `run` slot of the CPU: a program of elementwise steps in one pass over memory.
 *
 * All elementwise work of the library comes through here as an aji_program: operations describe what is to be computed as steps on
 * registers, and never see a loop or an address. Whether a program holds the one step of one operation or the fused steps of thirty
 * is the caller's choice, so that deferring and fusing elementwise work changes no operation, and nothing in this file.
 *
 * The interpreter goes through the outputs in blocks of AJI_BLOCK elements. Per block every step is one call of a vectorised kernel
 * on registers that hold one block each, so intermediate results stay in the first-level cache, and the interpreter's own cost is
 * shared by all elements of a block. To save copies, a register is not always memory of its own: each value that the program reads
 * or computes has a *place*, found once per run:
 *
 *   input, contiguous     the operand's own memory; the place moves on with the blocks
 *   input, one number     a slot of the arena, filled once per run
 *   input, any strides    a slot, filled per block; where a block lies inside one contiguous row, the operand's own memory. Blocks carry on
 *                         across rows, so they are full whatever the inner extent
 *   input to overwrite    a slot, filled per block, before any output of the block is written
 *   output                the output's memory; the place moves on with the blocks
 *   intermediate          a slot, given to another value after the last step that reads it
 *
 * "To overwrite" is an input on the storage of an output: an output may be the very window of a contiguous input (updates in place).
 *
 * Registers are written more than once, values only once: the plan numbers the inputs 0 ... n_in-1 and the result of step s n_in + s, and
 * follows which value each register holds.
 */
#include <string.h>

#include "tensor/cpu.h"

#define MAX_VALUES (AJI_MAX_INPUTS + AJI_MAX_STEPS)
/* Living values never outnumber the registers, one more is being written, and filled inputs stay for the whole run. */
#define MAX_SLOTS (AJI_MAX_REGISTERS + 1 + AJI_MAX_INPUTS)
_Static_assert(MAX_SLOTS <= 64, "free slots are kept in a mask of 64 bits");
#define NEVER (-1)
#define ALWAYS (AJI_MAX_STEPS + 1) /* a last use after all steps of all blocks */

typedef enum input_kind { UNUSED, IN_PLACE, ONE_NUMBER, STRIDED } input_kind;

typedef struct input {
    input_kind kind;
    bool overwritten; /* by an output: to be copied before */
    size_t size;
    const char *data;
    aji_walk walk; /* strided: where the next block begins */
} input;

typedef struct planned_step {
    aji_kernel *kernel;
    const double *imm;
    int dst, n_src, src[3]; /* values */
} planned_step;

typedef struct plan {
    int64_t numel;
    int n_in, n_out, n_steps;
    input in[AJI_MAX_INPUTS];
    planned_step steps[AJI_MAX_STEPS];
    struct {
        char *data; /* where the next block goes */
        size_t size;
        int value;
        bool direct; /* the value's place is the output itself */
    } out[AJI_MAX_OUTPUTS];
    int last_use[MAX_VALUES]; /* the last step that reads the value, n_steps for outputs */
    int slot[MAX_VALUES];     /* NEVER: the place is an operand */
    int n_slots;
    uint64_t free_slots;
    char *place[MAX_VALUES]; /* for the block at hand */
    char *arena;
    size_t slot_bytes;
} plan;

static int take_slot(plan *p) {
    if (p->free_slots) {
        int slot = __builtin_ctzll(p->free_slots);
        p->free_slots &= p->free_slots - 1;
        return slot;
    }
    return p->n_slots++;
}

static void drop_slot(plan *p, int value, int step) {
    if (p->slot[value] != NEVER && p->last_use[value] <= step)
        p->free_slots |= (uint64_t)1 << p->slot[value];
}

/* Which value each step reads, and when it is read last. */
static aj_status plan_steps(aj_ctx *ctx, plan *p, const aji_program *program) {
    int value_in[AJI_MAX_REGISTERS];
    for (int i = 0; i < p->n_in; i++)
        value_in[i] = i;
    for (int v = 0; v < p->n_in + p->n_steps; v++)
        p->last_use[v] = p->slot[v] = NEVER;
    for (int s = 0; s < p->n_steps; s++) {
        const aji_step *step = &program->steps[s];
        planned_step *planned = &p->steps[s];
        planned->kernel = aji_step_kernel(step);
        if (!planned->kernel)
            return aj_raise(ctx, AJ_ERR_UNSUPPORTED, "adjoin: the step %s does not exist for %s on the CPU; use aj_cast",
                            aji_step_name(step->opcode), aj_dtype_name(step->dtype));
        planned->imm = step->imm;
        planned->n_src = aji_step_arity(step->opcode);
        for (int k = 0; k < planned->n_src; k++) {
            planned->src[k] = value_in[step->src[k]];
            p->last_use[planned->src[k]] = s;
        }
        planned->dst = value_in[step->dst] = p->n_in + s;
    }
    for (int k = 0; k < p->n_out; k++) {
        p->out[k].value = value_in[program->out[k]];
        p->last_use[p->out[k].value] = p->n_steps;
    }
    return AJ_OK;
}

/* How an input is to be read: over the outputs' axes, merged as far as its strides allow. */
static void plan_input(plan *p, int i, const aji_value *in, const aji_value *const *out) {
    input *x = &p->in[i];
    const aji_meta *shape = &out[0]->meta;
    x->overwritten = false;
    for (int k = 0; k < p->n_out; k++)
        x->overwritten = x->overwritten || out[k]->storage == in->storage;
    x->data = aji_value_data(in);
    x->size = aj_dtype_size(in->meta.dtype);
    x->walk = (aji_walk){.ndim = shape->ndim};
    int shift = shape->ndim - in->meta.ndim;
    for (int d = 0; d < shape->ndim; d++) {
        x->walk.shape[d] = shape->shape[d];
        x->walk.strides[0][d] = d < shift || in->meta.shape[d - shift] == 1 ? 0 : in->strides[d - shift];
    }
    aji_walk_coalesce(&x->walk);
    if (p->last_use[i] == NEVER)
        x->kind = UNUSED;
    else if (x->walk.ndim == 1 && x->walk.strides[0][0] == 0)
        x->kind = ONE_NUMBER;
    else
        x->kind = x->walk.ndim == 1 && x->walk.strides[0][0] == 1 && !x->overwritten ? IN_PLACE : STRIDED;
    if (x->kind == ONE_NUMBER)
        p->last_use[i] = ALWAYS;
    if (x->kind == ONE_NUMBER || x->kind == STRIDED)
        p->slot[i] = take_slot(p);
}

/* An output's memory is the place of its value, unless that is an input or has its place in an earlier output. */
static void plan_output(plan *p, int k, const aji_value *out) {
    p->out[k].data = aji_value_data(out);
    p->out[k].size = aj_dtype_size(out->meta.dtype);
    bool direct = p->out[k].value >= p->n_in;
    for (int earlier = 0; earlier < k; earlier++)
        direct = direct && p->out[earlier].value != p->out[k].value;
    p->out[k].direct = direct;
}

static void plan_slots(plan *p) {
    for (int s = 0; s < p->n_steps; s++) {
        planned_step *step = &p->steps[s];
        bool direct = false;
        for (int k = 0; k < p->n_out; k++)
            direct = direct || (p->out[k].direct && p->out[k].value == step->dst);
        if (!direct)
            p->slot[step->dst] = take_slot(p);
        for (int k = 0; k < step->n_src; k++)
            drop_slot(p, step->src[k], s);
        drop_slot(p, step->dst, s); /* a result that nobody reads */
    }
}

static aj_status plan_arena(aj_ctx *ctx, plan *p) {
    size_t block = (size_t)(p->numel < AJI_BLOCK ? p->numel : AJI_BLOCK);
    p->slot_bytes = (block * sizeof(double) + 63) / 64 * 64;
    p->arena = NULL;
    if (p->n_slots > 0 && !(p->arena = aji_alloc(ctx, (size_t)p->n_slots * p->slot_bytes)))
        return AJ_ERR_MEMORY;
    for (int v = 0; v < p->n_in + p->n_steps; v++)
        if (p->slot[v] != NEVER)
            p->place[v] = p->arena + (size_t)p->slot[v] * p->slot_bytes;
    for (int i = 0; i < p->n_in; i++)
        if (p->in[i].kind == ONE_NUMBER)
            aji_copy_line(p->place[i], 1, p->in[i].data, 0, (int64_t)block, p->in[i].size);
    return AJ_OK;
}

/* The place of a strided input's next n elements: the operand if they are contiguous, else its slot with a copy of them. */
static void read_strided(plan *p, int i, int n) {
    input *x = &p->in[i];
    aji_walk *walk = &x->walk;
    int64_t stride = walk->strides[0][walk->ndim - 1], size = (int64_t)x->size;
    if (stride == 1 && aji_walk_room(walk) >= n && !x->overwritten) {
        /* Kernels take sources that they do not write through the same type of pointer as slots. */
        p->place[i] = (char *)x->data + walk->offset[0] * size;
        aji_walk_advance(walk, n);
        return;
    }
    char *to = p->place[i] = p->arena + (size_t)p->slot[i] * p->slot_bytes;
    while (n > 0) {
        int64_t m = aji_walk_room(walk) < n ? aji_walk_room(walk) : n;
        aji_copy_line(to, 1, x->data + walk->offset[0] * size, stride, m, x->size);
        aji_walk_advance(walk, m);
        to += m * size;
        n -= (int)m;
    }
}

static void run_block(plan *p, int64_t position, int n) {
    for (int i = 0; i < p->n_in; i++) {
        if (p->in[i].kind == STRIDED)
            read_strided(p, i, n);
        else if (p->in[i].kind == IN_PLACE)
            p->place[i] = (char *)p->in[i].data + position * (int64_t)p->in[i].size;
    }
    for (int k = 0; k < p->n_out; k++)
        if (p->out[k].direct)
            p->place[p->out[k].value] = p->out[k].data;
    for (int s = 0; s < p->n_steps; s++) {
        const planned_step *step = &p->steps[s];
        const void *src[3] = {NULL, NULL, NULL};
        for (int k = 0; k < step->n_src; k++)
            src[k] = p->place[step->src[k]];
        step->kernel(n, p->place[step->dst], src, step->imm);
    }
    for (int k = 0; k < p->n_out; k++) {
        if (!p->out[k].direct)
            memcpy(p->out[k].data, p->place[p->out[k].value], (size_t)n * p->out[k].size);
        p->out[k].data += (size_t)n * p->out[k].size;
    }
}

aj_status aji_cpu_run(aj_ctx *ctx, const aji_program *program, const aji_value *const *in, const aji_value *const *out) {
    plan p;
    p.numel = aji_meta_numel(&out[0]->meta);
    p.n_in = program->n_in;
    p.n_out = program->n_out;
    p.n_steps = program->n_steps;
    p.n_slots = 0;
    p.free_slots = 0;
    aj_status status = plan_steps(ctx, &p, program);
    if (status != AJ_OK || p.numel == 0)
        return status;
    for (int i = 0; i < p.n_in; i++)
        plan_input(&p, i, in[i], out);
    for (int k = 0; k < p.n_out; k++)
        plan_output(&p, k, out[k]);
    plan_slots(&p);
    status = plan_arena(ctx, &p);
    if (status != AJ_OK)
        return status;
    for (int64_t position = 0; position < p.numel; position += AJI_BLOCK)
        run_block(&p, position, p.numel - position < AJI_BLOCK ? (int)(p.numel - position) : AJI_BLOCK);
    aji_free(ctx, p.arena, (size_t)p.n_slots * p.slot_bytes);
    return AJ_OK;
}
