/*
 * Two steps in one: a product and the sum that alone reads it. Each step of a program reads and writes blocks in the first-level cache, which takes longer
 * than the arithmetic, so that a pair done at once costs little more than one of them. Nothing is rounded differently.
 */
#include "tensor/expression.h"

typedef struct combiner {
    aji_program *program;
    int uses[AJI_MAX_STEPS]; /* of each step's value; an output counts too */
} combiner;

/* ---- signs: a change of sign goes into a later sum, difference or factor, which is exact ---- */

/* Operand k of step t changes its sign, without changing the program's results. False, and nothing has changed, where that cannot be. */
static bool flip(combiner *c, int t, int k) {
    aji_program *p = c->program;
    aji_step *step = &p->steps[t];
    switch (step->opcode) {
    case AJI_STEP_ADD: /* (-x) + y = y - x */
        if (step->src[0] == step->src[1])
            return false;
        step->opcode = AJI_STEP_SUB;
        if (k == 0) {
            int negated = step->src[0];
            step->src[0] = step->src[1];
            step->src[1] = negated;
        }
        return true;
    case AJI_STEP_SUB:
        if (k == 0 || step->src[0] == step->src[1])
            return false;
        step->opcode = AJI_STEP_ADD;
        return true;
    case AJI_STEP_SCALE:
        step->imm[0] = -step->imm[0];
        return true;
    case AJI_STEP_ADD_SCALAR:
        step->opcode = AJI_STEP_AFFINE;
        step->imm[1] = step->imm[0];
        step->imm[0] = -1;
        return true;
    case AJI_STEP_MUL: /* hand on to the one step that reads the product */
        for (int next = t + 1; step->src[0] != step->src[1] && c->uses[t] == 1 && next < p->n_steps; next++)
            for (int i = 0; i < aji_step_arity(p->steps[next].opcode); i++)
                if (p->steps[next].src[i] == p->n_in + t)
                    return flip(c, next, i);
        return false;
    default:
        return false;
    }
}

/* Whoever can reads the operand of a NEG instead. */
static void pass_by(combiner *c, int negation) {
    aji_program *p = c->program;
    const int value = p->n_in + negation, operand = p->steps[negation].src[0];
    for (int t = negation + 1; t < p->n_steps; t++)
        for (int k = 0; k < aji_step_arity(p->steps[t].opcode); k++) {
            if (p->steps[t].src[k] != value || p->steps[t].dtype != p->steps[negation].dtype || !flip(c, t, k))
                continue;
            aji_step *step = &p->steps[t];
            step->src[step->src[k] == value ? k : 1 - k] = operand;
            c->uses[negation]--;
            if (operand >= p->n_in)
                c->uses[operand - p->n_in]++;
        }
    if (c->uses[negation] == 0 && operand >= p->n_in)
        c->uses[operand - p->n_in]--;
}

/* ---- pairs ---- */

/* The step that computes a value which nobody else reads; NULL: an input, or read elsewhere too. */
static aji_step *lone_step(const combiner *c, int value, aj_dtype dtype) {
    int s = value - c->program->n_in;
    if (s < 0 || c->uses[s] != 1 || c->program->steps[s].dtype != dtype)
        return NULL;
    return &c->program->steps[s];
}

/* The value is computed inside the other step now. */
static void drop(combiner *c, int value) {
    c->uses[value - c->program->n_in] = 0;
}

static bool is_product(const aji_step *step) {
    return step && (step->opcode == AJI_STEP_MUL || step->opcode == AJI_STEP_SQUARE);
}

static bool is_scaled(const aji_step *step) {
    return step && step->opcode == AJI_STEP_SCALE;
}

/* step = with three operands: a product's two, and the other one */
static void take_product(combiner *c, aji_step *step, aji_opcode opcode, int k, const aji_step *product) {
    int other = step->src[1 - k];
    drop(c, step->src[k]);
    step->opcode = opcode;
    bool square = product->opcode == AJI_STEP_SQUARE;
    step->src[0] = product->src[0];
    step->src[1] = square ? product->src[0] : product->src[1];
    step->src[2] = other;
    if (square && step->src[0] >= c->program->n_in)
        c->uses[step->src[0] - c->program->n_in]++; /* read twice now */
}

static void take_scaled(combiner *c, aji_step *step, aji_opcode opcode, int k, const aji_step *scaled) {
    int other = step->src[1 - k];
    drop(c, step->src[k]);
    step->opcode = opcode;
    step->imm[0] = scaled->imm[0];
    step->src[0] = scaled->src[0];
    step->src[1] = other;
}

static void combine_sum(combiner *c, aji_step *step, const aji_step *operand[2]) {
    for (int k = 1; k >= 0; k--) {
        if (is_product(operand[k])) {
            take_product(c, step, AJI_STEP_MUL_ADD, k, operand[k]);
            return;
        }
        if (is_scaled(operand[k])) {
            take_scaled(c, step, AJI_STEP_SCALE_ADD, k, operand[k]);
            return;
        }
    }
}

static void combine_difference(combiner *c, aji_step *step, const aji_step *operand[2]) {
    if (is_product(operand[1]))
        take_product(c, step, AJI_STEP_SUB_MUL, 1, operand[1]);
    else if (is_scaled(operand[1]))
        take_scaled(c, step, AJI_STEP_SCALE_SUB, 1, operand[1]);
    else if (is_product(operand[0]))
        take_product(c, step, AJI_STEP_MUL_SUB, 0, operand[0]);
}

static void combine_step(combiner *c, aji_step *step) {
    const aji_step *operand[2] = {lone_step(c, step->src[0], step->dtype), NULL};
    if (step->opcode == AJI_STEP_ADD_SCALAR && is_scaled(operand[0])) {
        drop(c, step->src[0]);
        step->opcode = AJI_STEP_AFFINE;
        step->imm[1] = step->imm[0];
        step->imm[0] = operand[0]->imm[0];
        step->src[0] = operand[0]->src[0];
    }
    if (step->opcode != AJI_STEP_ADD && step->opcode != AJI_STEP_SUB)
        return;
    operand[1] = lone_step(c, step->src[1], step->dtype);
    if (step->opcode == AJI_STEP_ADD)
        combine_sum(c, step, operand);
    else
        combine_difference(c, step, operand);
}

/* Leave out the steps that nobody reads any more. Returns the new number of a value. */
static int compact(combiner *c, int value) {
    aji_program *p = c->program;
    int number[AJI_MAX_STEPS], n = 0;
    for (int s = 0; s < p->n_steps; s++) {
        if (c->uses[s] == 0)
            continue;
        aji_step step = p->steps[s];
        for (int k = 0; k < aji_step_arity(step.opcode); k++)
            if (step.src[k] >= p->n_in)
                step.src[k] = p->n_in + number[step.src[k] - p->n_in];
        number[s] = n;
        p->steps[n++] = step;
    }
    p->n_steps = n;
    for (int k = 0; k < p->n_out; k++)
        if (p->out[k] >= p->n_in)
            p->out[k] = p->n_in + number[p->out[k] - p->n_in];
    return value >= p->n_in ? p->n_in + number[value - p->n_in] : value;
}

int aji_program_combine(aji_program *p, int result) {
    combiner c = {.program = p};
    for (int s = 0; s < p->n_steps; s++)
        for (int k = 0; k < aji_step_arity(p->steps[s].opcode); k++)
            if (p->steps[s].src[k] >= p->n_in)
                c.uses[p->steps[s].src[k] - p->n_in]++;
    for (int k = 0; k < p->n_out; k++)
        if (p->out[k] >= p->n_in)
            c.uses[p->out[k] - p->n_in] += 2; /* stays */
    if (result >= p->n_in)
        c.uses[result - p->n_in] += 2;
    for (int s = 0; s < p->n_steps; s++)
        if (p->steps[s].opcode == AJI_STEP_NEG && aji_dtype_is_float(p->steps[s].dtype))
            pass_by(&c, s);
    for (int s = 0; s < p->n_steps; s++)
        if (c.uses[s] > 0)
            combine_step(&c, &p->steps[s]);
    return compact(&c, result);
}
