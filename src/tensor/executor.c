/*
 * The `run` and `reduce` slots of the CPU: a program of elementwise steps in one pass over memory, its results stored or reduced.
 *
 * All elementwise work of the library comes through here as an aji_program: operations describe what is to be computed as steps on values, and
 * never see a loop or an address.
 *
 * The interpreter goes through the outputs' space (space_internal.h) in blocks of at most AJI_BLOCK elements, which lie in one row, or where rows are
 * short and nothing is reduced, in several. (A step alone goes through rows at once.) Per block every step is one call of a vectorised kernel, so intermediate results stay in
 * the first-level cache, and the interpreter's own cost is shared by all elements of a block. Each value that the program reads or computes has
 * a *place*:
 *
 *   input, a block of it contiguous   the operand's own memory
 *   input, any strides                a slot of the arena, filled per block
 *   input, one number                 a slot, filled once per run
 *   what lies in a box, outside it    none: steps in a box are left out there
 *   PLACE                             the place of its operand, or outside the box zeros, filled once per run
 *   input to overwrite                a slot, filled per block, before any output of the block is written
 *   output                            the output's memory, where a block of it is contiguous
 *   intermediate                      a slot, given to another value after the last step that reads it
 *
 * "To overwrite" is an input on the storage of an output: an output may be the very window of a contiguous input (updates in place).
 *
 * Values are numbered: the inputs 0 ... n_in-1, the result of step s n_in + s.
 */
#include <string.h>

#include "tensor/accumulate.h"
#include "tensor/cpu.h"
#include "tensor/space_internal.h"

#define MAX_VALUES (AJI_MAX_INPUTS + AJI_MAX_STEPS)
#define MAX_OPERANDS (AJI_MAX_INPUTS + AJI_MAX_OUTPUTS + 1) /* the last one: the result of a reduction */
#define EDGE 16                                             /* elements: ghosts, say */
#define NEVER (-1)
#define MOST_AHEAD 8 /* streams */
#define LONG_ROW 8   /* elements: vectors pay */
#define SHORT_ROW 64 /* elements: blocks of several rows pay */
#define LONG_BLOCK (1 << 30)

typedef enum input_kind { UNUSED, ONE_NUMBER, DIRECT, COPIED } input_kind;

typedef struct planned_step {
    aji_kernel *kernel;
    const double *imm;
    int dst, n_src, src[3]; /* values */
    int box;                /* the step is left out outside it; of PLACE: see there; AJI_EVERYWHERE: in none */
    bool places;            /* PLACE: no kernel */
    size_t size;
} planned_step;

typedef struct plan {
    int n_in, n_out, n_steps, n_values;
    aji_space space;
    aji_operand operand[MAX_OPERANDS]; /* the inputs, then the outputs */
    aji_space_box box[AJI_MAX_BOXES];
    bool plain[AJI_MAX_BOXES]; /* nothing is computed in the box */
    input_kind kind[AJI_MAX_INPUTS];
    planned_step steps[AJI_MAX_STEPS];
    int out[AJI_MAX_OUTPUTS];     /* the value of each */
    bool direct[AJI_MAX_OUTPUTS]; /* the value's place is the output itself */
    bool stored[AJI_MAX_STEPS];   /* the step's result has its place in an output */
    bool dense[MAX_OPERANDS];
    int last_use[MAX_VALUES]; /* the last step that reads the value; n_steps: an output, or read in every block */
    int slot[MAX_VALUES];     /* NEVER: none */
    int n_slots, n_free, free_slots[MAX_VALUES];
    char *place[MAX_VALUES];        /* for the block at hand */
    int n_ahead, ahead[MOST_AHEAD]; /* operands whose next block is fetched while this one is computed */
    const char *next[MOST_AHEAD];
    int rows;                                                 /* of the block at hand; 0: it is a piece of one row */
    int64_t first_index[AJ_MAX_NDIM], first_at[MAX_OPERANDS]; /* where the first of these rows is */
    char *arena, *zeros;
    size_t slot_bytes, arena_bytes;
    /* of a reduction */
    int reduced; /* value; NEVER: none */
    aji_kernel *to_accumulation;
    aji_accumulator sum;
    char *converted;
} plan;

/* ---- planning ---- */

static int take_slot(plan *p) {
    return p->n_free > 0 ? p->free_slots[--p->n_free] : p->n_slots++;
}

static void drop_slot(plan *p, int value, int step) {
    if (p->slot[value] != NEVER && p->last_use[value] <= step)
        p->free_slots[p->n_free++] = p->slot[value];
}

/* Which steps lie in a box, and that the operand of PLACE is needed as long as its result, which has no place of its own. A box is plain if nothing is
 * computed in it: its input is read with the zeros around it. */
static void plan_boxes(plan *p, const aji_program *program) {
    int box[MAX_VALUES];
    for (int k = 0; k < program->n_boxes; k++)
        p->plain[k] = true;
    for (int i = 0; i < p->n_in; i++)
        box[i] = program->box[i];
    for (int s = 0; s < p->n_steps; s++) {
        planned_step *step = &p->steps[s];
        step->box = AJI_EVERYWHERE;
        for (int k = 0; k < step->n_src && step->box == AJI_EVERYWHERE; k++)
            step->box = box[step->src[k]];
        if (step->places)
            step->box = program->steps[s].src[1];
        if (step->box != AJI_EVERYWHERE && (!step->places || step->src[0] >= p->n_in))
            p->plain[step->box] = false;
        box[step->dst] = step->places ? AJI_EVERYWHERE : step->box;
    }
    for (int s = p->n_steps - 1; s >= 0; s--) {
        const planned_step *step = &p->steps[s];
        if (step->places && p->last_use[step->dst] > p->last_use[step->src[0]])
            p->last_use[step->src[0]] = p->last_use[step->dst];
    }
}

/* What each step reads, and when a value is read last. */
static aj_status plan_steps(aj_ctx *ctx, plan *p, const aji_program *program, int reduced) {
    p->n_in = program->n_in;
    p->n_out = program->n_out;
    p->n_steps = program->n_steps;
    p->n_values = p->n_in + p->n_steps;
    p->n_slots = p->n_free = 0;
    for (int v = 0; v < p->n_values; v++)
        p->last_use[v] = p->slot[v] = NEVER;
    for (int s = 0; s < p->n_steps; s++) {
        const aji_step *step = &program->steps[s];
        planned_step *planned = &p->steps[s];
        planned->kernel = aji_step_kernel(step);
        p->stored[s] = false;
        planned->places = step->opcode == AJI_STEP_PLACE;
        planned->size = aj_dtype_size(step->dtype);
        if (!planned->kernel && !planned->places)
            return aj_raise(ctx, AJ_ERR_UNSUPPORTED, "adjoin: the step %s does not exist for %s on the CPU; use aj_cast",
                            aji_step_name(step->opcode), aj_dtype_name(step->dtype));
        planned->imm = step->imm;
        planned->dst = p->n_in + s;
        planned->n_src = aji_step_arity(step->opcode);
        for (int k = 0; k < planned->n_src; k++) {
            planned->src[k] = step->src[k];
            p->last_use[step->src[k]] = s;
        }
    }
    for (int k = 0; k < p->n_out; k++) {
        p->out[k] = program->out[k];
        p->last_use[p->out[k]] = p->n_steps;
    }
    p->reduced = reduced;
    if (reduced != NEVER)
        p->last_use[reduced] = p->n_steps;
    if (program->n_boxes > 0)
        plan_boxes(p, program);
    return AJ_OK;
}

static void open_space(plan *p, const aji_program *program, const aji_meta *shape, const aji_value *const *in,
                       const aji_value *const *out) {
    aji_space_open(&p->space, shape, p->n_in + p->n_out, p->operand, program, p->box);
    for (int i = 0; i < p->n_in; i++)
        aji_space_set(&p->space, &p->operand[i], in[i], program->n_boxes ? program->box[i] : AJI_EVERYWHERE);
    for (int k = 0; k < p->n_out; k++)
        aji_space_set(&p->space, &p->operand[p->n_in + k], out[k], AJI_EVERYWHERE);
}

static bool is_one_number(const plan *p, const aji_operand *x) {
    for (int d = 0; d < p->space.ndim; d++)
        if (x->stride[d] != 0)
            return false;
    return true;
}

static void plan_input(plan *p, int i, const aji_value *in, const aji_value *const *out, bool several_rows) {
    const aji_operand *x = &p->operand[i];
    bool overwritten = false;
    for (int k = 0; k < p->n_out; k++)
        overwritten = overwritten || out[k]->storage == in->storage;
    p->dense[i] = aji_space_is_dense(&p->space, x);
    if (p->last_use[i] == NEVER)
        p->kind[i] = UNUSED;
    else if (is_one_number(p, x) && (x->box == AJI_EVERYWHERE || !p->plain[x->box]))
        p->kind[i] = ONE_NUMBER;
    else if (!overwritten && (several_rows ? p->dense[i] : x->stride[p->space.ndim - 1] == 1))
        p->kind[i] = DIRECT;
    else
        p->kind[i] = COPIED;
    if (p->kind[i] == ONE_NUMBER)
        p->last_use[i] = p->n_steps;
    if (p->kind[i] == ONE_NUMBER || p->kind[i] == COPIED || (p->kind[i] == DIRECT && x->box != AJI_EVERYWHERE))
        p->slot[i] = take_slot(p);
}

/* An output's memory is the place of its value, unless that is an input or has its place in an earlier output. */
static void plan_output(plan *p, int k, bool several_rows) {
    const aji_operand *y = &p->operand[p->n_in + k];
    p->dense[p->n_in + k] = aji_space_is_dense(&p->space, y);
    bool direct = p->out[k] >= p->n_in && (several_rows ? p->dense[p->n_in + k] : y->stride[p->space.ndim - 1] == 1);
    for (int earlier = 0; earlier < k; earlier++)
        direct = direct && p->out[earlier] != p->out[k];
    p->direct[k] = direct;
    if (direct) {
        p->slot[p->out[k]] = -2 - k; /* for plan_slots: it needs none */
        p->stored[p->out[k] - p->n_in] = true;
    }
}

static void plan_slots(plan *p) {
    for (int s = 0; s < p->n_steps; s++) {
        planned_step *step = &p->steps[s];
        if (p->slot[step->dst] != NEVER || step->places)
            p->slot[step->dst] = NEVER;
        else
            p->slot[step->dst] = take_slot(p);
        for (int k = 0; k < step->n_src; k++)
            if (p->last_use[step->src[k]] == s) {
                drop_slot(p, step->src[k], s);
                p->last_use[step->src[k]] = p->n_steps; /* dropped once */
            }
        if (p->last_use[step->dst] == NEVER && p->slot[step->dst] != NEVER)
            drop_slot(p, step->dst, s); /* a result that nobody reads */
    }
}

/* Does another input on the same storage lead x through memory? */
static bool follows(const plan *p, const aji_value *const *in, int i) {
    for (int k = 0; k < p->n_in; k++)
        if (k != i && p->kind[k] == DIRECT && in[k]->storage == in[i]->storage && p->operand[k].data > p->operand[i].data)
            return true;
    return false;
}

static void plan_ahead(plan *p, const aji_value *const *in) {
    p->n_ahead = 0;
    for (int i = 0; i < p->n_in && p->n_ahead < MOST_AHEAD; i++)
        if (p->kind[i] == DIRECT && !follows(p, in, i))
            p->ahead[p->n_ahead++] = i;
    for (int k = 0; k < p->n_out && p->n_ahead < MOST_AHEAD; k++)
        if (p->direct[k])
            p->ahead[p->n_ahead++] = p->n_in + k;
}

static aj_status plan_arena(aj_ctx *ctx, plan *p, int64_t block, size_t more) {
    bool placed = p->space.n_boxes > 0;
    p->slot_bytes = ((size_t)block * sizeof(double) + 63) / 64 * 64;
    p->arena_bytes = (size_t)(p->n_slots + placed) * p->slot_bytes + more;
    p->arena = NULL;
    if (p->arena_bytes > 0 && !(p->arena = aji_alloc(ctx, p->arena_bytes)))
        return AJ_ERR_MEMORY;
    for (int v = 0; v < p->n_values; v++)
        if (p->slot[v] != NEVER)
            p->place[v] = p->arena + (size_t)p->slot[v] * p->slot_bytes;
    p->zeros = p->arena + (size_t)p->n_slots * p->slot_bytes;
    if (placed)
        memset(p->zeros, 0, p->slot_bytes);
    for (int i = 0; i < p->n_in; i++)
        if (p->kind[i] == ONE_NUMBER)
            aji_copy_line(p->place[i], 1, p->operand[i].data, 0, block, (size_t)p->operand[i].size);
    return AJ_OK;
}

static aj_status plan_run(aj_ctx *ctx, plan *p, const aji_value *const *in, const aji_value *const *out, bool several_rows,
                          int64_t block, size_t more) {
    for (int i = 0; i < p->n_in; i++)
        plan_input(p, i, in[i], out, several_rows);
    for (int k = 0; k < p->n_out; k++)
        plan_output(p, k, several_rows);
    plan_slots(p);
    plan_ahead(p, in);
    p->rows = 0;
    return plan_arena(ctx, p, block, more);
}

/* ---- one block ---- */

static void run_step(plan *p, const planned_step *step, int n) {
    const void *src[3] = {NULL, NULL, NULL};
    for (int k = 0; k < step->n_src; k++)
        src[k] = p->place[step->src[k]];
    step->kernel(n, p->place[step->dst], src, step->imm);
}

static void go_to_first_row(plan *p) {
    memcpy(p->space.index, p->first_index, sizeof(p->first_index));
    for (int k = 0; k < p->space.n; k++)
        p->operand[k].at = p->first_at[k];
    aji_space_arrive(&p->space);
}

/* Zeros outside the box, in what was computed on all of the block. */
static void clear_around(plan *p, const planned_step *step, char *block, int64_t column, int n) {
    int64_t size = (int64_t)step->size, length = p->space.shape[p->space.ndim - 1];
    if (p->rows == 0)
        aji_row_clear_around(&p->space, step->box, column, n, block, size);
    else
        go_to_first_row(p);
    for (int r = 0; r < p->rows; r++) {
        aji_row_clear_around(&p->space, step->box, 0, length, block + r * length * size, size);
        aji_space_next(&p->space, 0, p->space.ndim - 1);
    }
}

/* How many of the block's elements lie in the box; of a block of several rows: some, perhaps. */
static int covered(const plan *p, int box, int64_t column, int n) {
    return p->rows > 0 ? 1 : aji_space_covers(&p->space, box, column, n);
}

/* An output that is placed has its own place; any other result of PLACE is where its operand is. */
static void place(plan *p, int s, int64_t column, int n) {
    const planned_step *step = &p->steps[s];
    int inside = p->plain[step->box] ? n : covered(p, step->box, column, n);
    char *from = inside > 0 ? p->place[step->src[0]] : p->zeros;
    if (inside > 0 && (inside < n || p->rows > 0) && !p->plain[step->box])
        clear_around(p, step, from, column, n);
    if (p->stored[s])
        memcpy(p->place[step->dst], from, (size_t)n * step->size);
    else
        p->place[step->dst] = from;
}

/* Where the next block will be: behind this one, or in the next row. */
static void look_ahead(plan *p, int64_t column, int n) {
    int row = p->space.ndim - 1;
    bool same_row = column + n < p->space.shape[row];
    for (int k = 0; k < p->n_ahead; k++) {
        const aji_operand *x = &p->operand[p->ahead[k]];
        int64_t at = same_row ? x->at + column + n : row > 0 ? x->at + x->stride[row - 1] : x->at;
        p->next[k] = x->data + at * x->size;
    }
}

/* Memory takes as long as the arithmetic: the next block comes while this one is computed, a part of it with each step. A step alone does not need it: the
 * machine sees where it goes. */
static inline __attribute__((always_inline)) void fetch_ahead(const plan *p, int s, int n) {
    enum { LINE = 64 };
    for (int k = 0; k < p->n_ahead; k++) {
        int64_t bytes = n * p->operand[p->ahead[k]].size;
        const char *line = p->next[k] + bytes * s / p->n_steps, *end = p->next[k] + bytes * (s + 1) / p->n_steps;
        for (; line < end; line += LINE) {
            if (p->ahead[k] < p->n_in)
                __builtin_prefetch(line, 0, 3);
            else
                __builtin_prefetch(line, 1, 3);
        };
    }
}

static void run_steps(plan *p, int64_t column, int n) {
    bool boxes = p->space.n_boxes > 0;
    bool long_enough = n >= SHORT_ROW && p->rows == 0 && p->n_steps > 1;
    if (long_enough)
        look_ahead(p, column, n);
    for (int s = 0; s < p->n_steps; s++) {
        const planned_step *step = &p->steps[s];
        if (long_enough)
            fetch_ahead(p, s, n);
        if (step->places)
            place(p, s, column, n);
        else if (!boxes || step->box == AJI_EVERYWHERE || covered(p, step->box, column, n) > 0)
            run_step(p, step, n);
    }
}

/* An input's next n elements of the row. */
static void read_input(plan *p, int i, int64_t column, int n) {
    const aji_operand *x = &p->operand[i];
    int inside = x->box == AJI_EVERYWHERE ? n : aji_space_covers(&p->space, x->box, column, n);
    if (inside == 0)
        p->place[i] = p->zeros;
    else if (p->kind[i] == DIRECT && inside == n)
        p->place[i] = x->data + (x->at + column) * x->size;
    else
        aji_row_read(&p->space, x, column, n, p->place[i] = p->arena + (size_t)p->slot[i] * p->slot_bytes);
}

static void run_block(plan *p, int64_t column, int n) {
    for (int i = 0; i < p->n_in; i++)
        if (p->kind[i] == DIRECT || p->kind[i] == COPIED)
            read_input(p, i, column, n);
    for (int k = 0; k < p->n_out; k++) {
        const aji_operand *y = &p->operand[p->n_in + k];
        if (p->direct[k])
            p->place[p->out[k]] = y->data + (y->at + column) * y->size;
    }
    run_steps(p, column, n);
    for (int k = 0; k < p->n_out; k++)
        if (!p->direct[k])
            aji_row_write(&p->space, &p->operand[p->n_in + k], column, n, p->place[p->out[k]]);
}

/* ---- run ---- */

/* Equal blocks, of whole vectors. */
static int64_t block_end(int64_t column, int64_t length, int64_t most) {
    int64_t left = length - column, blocks = (left + most - 1) / most;
    return blocks > 1 ? column + ((left + blocks - 1) / blocks + 7) / 8 * 8 : length;
}

/* One step from memory to memory leaves nothing in the cache for another: then a block is as long as a kernel counts. */
static int64_t most_of_a_block(const plan *p) {
    return p->n_steps == 1 && p->n_slots == 0 && p->space.n_boxes == 0 ? LONG_BLOCK : AJI_BLOCK;
}

static void run_rows(plan *p) {
    int64_t length = p->space.shape[p->space.ndim - 1], most = most_of_a_block(p);
    do
        for (int64_t column = 0, end; column < length; column = end) {
            end = block_end(column, length, most);
            run_block(p, column, (int)(end - column));
        }
    while (aji_space_next(&p->space, 0, p->space.ndim - 1));
}

/* What moves through the rows of a block, one after the other, from the row at hand. */
static void each_row(plan *p, bool write) {
    int64_t length = p->space.shape[p->space.ndim - 1];
    for (int r = 0; r < p->rows; r++) {
        for (int i = 0; i < p->n_in && !write; i++)
            if (p->kind[i] == COPIED)
                aji_row_read(&p->space, &p->operand[i], 0, length, p->place[i] + r * length * p->operand[i].size);
        for (int k = 0; k < p->n_out && write; k++)
            if (!p->direct[k]) {
                const aji_operand *y = &p->operand[p->n_in + k];
                aji_row_write(&p->space, y, 0, length, p->place[p->out[k]] + r * length * y->size);
            }
        aji_space_next(&p->space, 0, p->space.ndim - 1);
    }
}

static void run_several_rows(plan *p, int64_t numel) {
    int64_t length = p->space.shape[p->space.ndim - 1], rows_left = numel / length, most = AJI_BLOCK / length;
    for (int64_t position = 0; rows_left > 0; position += p->rows * length, rows_left -= p->rows) {
        p->rows = (int)(rows_left < most ? rows_left : most);
        for (int i = 0; i < p->n_in; i++)
            if (p->kind[i] == DIRECT)
                p->place[i] = p->operand[i].data + position * p->operand[i].size;
        for (int k = 0; k < p->n_out; k++)
            if (p->direct[k])
                p->place[p->out[k]] = p->operand[p->n_in + k].data + position * p->operand[p->n_in + k].size;
        memcpy(p->first_index, p->space.index, sizeof(p->first_index));
        for (int k = 0; k < p->space.n; k++)
            p->first_at[k] = p->operand[k].at;
        each_row(p, false);
        run_steps(p, 0, (int)(p->rows * length));
        go_to_first_row(p);
        each_row(p, true);
    }
}

/* The columns begin ... end of the space; end < 0: all. */
static aj_status run_columns(aj_ctx *ctx, plan *p, const aji_program *program, const aji_value *const *in,
                             const aji_value *const *out, int64_t begin, int64_t end) {
    aj_status status = plan_steps(ctx, p, program, NEVER);
    if (status != AJ_OK)
        return status;
    open_space(p, program, &out[0]->meta, in, out);
    aji_space_merge(&p->space);
    if (end >= 0)
        aji_space_narrow(&p->space, begin, end);
    int64_t numel = 1;
    for (int d = 0; d < p->space.ndim; d++)
        numel *= p->space.shape[d];
    bool several_rows = p->space.ndim > 1 && p->space.shape[p->space.ndim - 1] < SHORT_ROW;
    status = plan_run(ctx, p, in, out, several_rows, numel < AJI_BLOCK ? numel : AJI_BLOCK, 0);
    if (status != AJ_OK)
        return status;
    aji_space_begin(&p->space);
    if (several_rows)
        run_several_rows(p, numel);
    else
        run_rows(p);
    aji_free(ctx, p->arena, p->arena_bytes);
    return AJ_OK;
}

/* Between the columns begin and end the boxes that nearly fill the rows do fill them. */
static void find_edges(const plan *p, int64_t *begin, int64_t *end) {
    int row = p->space.ndim - 1;
    *begin = 0;
    *end = p->space.shape[row];
    for (int k = 0; k < p->space.n_boxes; k++) {
        int64_t lo = p->box[k].lo[row], hi = lo + p->box[k].extent[row];
        *begin = lo > *begin && lo <= EDGE ? lo : *begin;
        *end = hi < *end && hi >= p->space.shape[row] - EDGE ? hi : *end;
    }
    if (*end - *begin < SHORT_ROW) {
        *begin = 0;
        *end = p->space.shape[row];
    }
}

aj_status aji_cpu_run(aj_ctx *ctx, const aji_program *program, const aji_value *const *in, const aji_value *const *out) {
    plan p;
    if (aji_meta_numel(&out[0]->meta) == 0)
        return AJ_OK;
    if (program->n_boxes == 0)
        return run_columns(ctx, &p, program, in, out, 0, -1);
    p.n_in = program->n_in;
    p.n_out = program->n_out;
    open_space(&p, program, &out[0]->meta, in, out);
    aji_space_merge(&p.space);
    int64_t begin, end, length = p.space.shape[p.space.ndim - 1];
    find_edges(&p, &begin, &end);
    aj_status status = run_columns(ctx, &p, program, in, out, begin, end);
    if (status == AJ_OK && begin > 0)
        status = run_columns(ctx, &p, program, in, out, 0, begin);
    if (status == AJ_OK && end < length)
        status = run_columns(ctx, &p, program, in, out, end, length);
    return status;
}

/* ---- reduce ---- */

static void accumulate_block(plan *p, int64_t column, int n) {
    run_block(p, column, n);
    const void *block = p->place[p->reduced];
    if (p->to_accumulation) {
        p->to_accumulation(n, p->converted, (const void *const[3]){block, NULL, NULL}, NULL);
        block = p->converted;
    }
    aji_accumulator_add(&p->sum, block, n);
}

/* All blocks of the row at hand, and of the rows along the reduced axes from..., into one number. */
static char *reduce_rows(plan *p, int first_reduced) {
    int64_t length = p->space.shape[p->space.ndim - 1];
    aji_accumulator_begin(&p->sum, length < AJI_BLOCK ? (int)length : AJI_BLOCK);
    do {
        for (int64_t column = 0, end; column < length; column = end) {
            end = block_end(column, length, AJI_BLOCK);
            accumulate_block(p, column, (int)(end - column));
        }
    } while (aji_space_next(&p->space, first_reduced, p->space.ndim - 1));
    return aji_accumulator_fold(&p->sum);
}

/* One block of the row, and of the rows along the reduced axes: one number for each column. */
static char *reduce_columns(plan *p, int first_reduced, int64_t column, int n) {
    aji_accumulator_begin(&p->sum, n);
    do
        accumulate_block(p, column, n);
    while (aji_space_next(&p->space, first_reduced, p->space.ndim - 1));
    return aji_accumulator_end(&p->sum);
}

/* The result as the last operand of the space, on which no reduced axis moves. */
typedef struct target {
    const aji_operand *y;
    aji_kernel *convert; /* NULL: it has the accumulation's dtype */
} target;

static void store(plan *p, const target *r, int64_t column, int n, const char *numbers) {
    if (r->convert) {
        r->convert(n, p->converted, (const void *const[3]){numbers, NULL, NULL}, NULL);
        numbers = p->converted;
    }
    aji_row_write(&p->space, r->y, column, n, numbers);
}

static void reduce_all(plan *p, const target *r) {
    int row = p->space.ndim - 1, first_reduced = 0;
    while (first_reduced < row && !p->space.reduced[first_reduced])
        first_reduced++;
    do {
        if (p->space.reduced[row]) {
            store(p, r, 0, 1, reduce_rows(p, first_reduced));
            continue;
        }
        for (int64_t column = 0, end; column < p->space.shape[row]; column = end) {
            end = block_end(column, p->space.shape[row], AJI_BLOCK);
            store(p, r, column, (int)(end - column), reduce_columns(p, first_reduced, column, (int)(end - column)));
        }
    } while (aji_space_next(&p->space, 0, first_reduced));
}

static aji_kernel *conversion(aj_dtype from, aj_dtype to) {
    return from == to ? NULL : aji_step_kernel(&(aji_step){.opcode = AJI_STEP_CAST, .dtype = to, .from = from});
}

/* Nothing is reduced: the result is the neutral element. */
static void fill_neutral(aji_reduction kind, const aji_value *result) {
    const double neutral[] = {[AJI_SUM] = 0, [AJI_PROD] = 1};
    int64_t n = aji_meta_numel(&result->meta), size = (int64_t)aj_dtype_size(result->meta.dtype);
    aji_kernel *convert = aji_step_kernel(&(aji_step){.opcode = AJI_STEP_CAST, .dtype = result->meta.dtype, .from = AJ_F64});
    char *y = aji_value_data(result);
    for (int64_t i = 0; i < n; i++)
        convert(1, y + i * size, (const void *const[3]){&neutral[kind], NULL, NULL}, NULL);
}

aj_status aji_cpu_reduce(aj_ctx *ctx, aji_reduction kind, const aji_program *program, int reduced, const aji_meta *shape,
                         unsigned axes, const aji_value *const *in, const aji_value *result, const aji_value *const *out) {
    plan p;
    int64_t numel = aji_meta_numel(shape), kept = aji_meta_numel(&result->meta);
    aj_status status = plan_steps(ctx, &p, program, reduced);
    if (status != AJ_OK || kept == 0)
        return status;
    if (numel == 0) {
        fill_neutral(kind, result);
        return AJ_OK;
    }
    open_space(&p, program, shape, in, out);
    aji_operand *y = &p.operand[p.space.n++];
    aji_space_set(&p.space, y, result, AJI_EVERYWHERE);
    aji_space_reduce(&p.space, axes, 0, LONG_ROW);
    aj_dtype accumulation = aji_accumulation_dtype(shape->dtype);
    size_t converted = AJI_BLOCK * sizeof(double), more = aji_accumulator_bytes(numel / kept) + converted;
    status = plan_run(ctx, &p, in, out, false, AJI_BLOCK, more);
    if (status != AJ_OK)
        return status;
    p.converted = p.arena + p.arena_bytes - more;
    aji_accumulator_open(&p.sum, kind, accumulation, numel / kept, p.converted + converted);
    p.to_accumulation = conversion(shape->dtype, accumulation);
    aji_space_begin(&p.space);
    reduce_all(&p, &(target){y, conversion(accumulation, result->meta.dtype)});
    aji_free(ctx, p.arena, p.arena_bytes);
    return AJ_OK;
}
