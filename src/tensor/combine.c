/*
 * Two steps in one: a product and the sum that alone reads it. Each step of a program reads and writes blocks in the first-level cache, which takes longer
 * than the arithmetic, so that a pair done at once costs little more than one of them. Nothing is rounded differently.
 */
#include "tensor/expression.h"

typedef struct combiner {
    aji_program *program;
    int uses[AJI_MAX_STEPS]; /* of each step's value; an output counts too */
} combiner;

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
    for (int k = 0; k < 2; k++)
        if (operand[k] && operand[k]->opcode == AJI_STEP_NEG) { /* b + (-a) = b - a */
            int negated = step->src[k], other = step->src[1 - k];
            step->opcode = AJI_STEP_SUB;
            step->src[0] = other;
            step->src[1] = operand[k]->src[0];
            drop(c, negated);
            return;
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

/* A sign goes into a factor, as does one of a factor; integers wrap otherwise. */
static void combine_sign(combiner *c, aji_step *step, const aji_step *operand) {
    bool scales = step->opcode == AJI_STEP_SCALE && operand && operand->opcode == AJI_STEP_NEG;
    bool negates = step->opcode == AJI_STEP_NEG && is_scaled(operand);
    if (!aji_dtype_is_float(step->dtype) || (!scales && !negates))
        return;
    drop(c, step->src[0]);
    step->imm[0] = scales ? -step->imm[0] : -operand->imm[0];
    step->opcode = AJI_STEP_SCALE;
    step->src[0] = operand->src[0];
}

/* -a b + c = c - a b, whoever else reads -a */
static void combine_negated_product(combiner *c, aji_step *step) {
    for (int k = 0; k < 2 && step->opcode == AJI_STEP_MUL_ADD && aji_dtype_is_float(step->dtype); k++) {
        int s = step->src[k] - c->program->n_in;
        if (s < 0 || c->program->steps[s].opcode != AJI_STEP_NEG)
            continue;
        c->uses[s]--;
        step->opcode = AJI_STEP_SUB_MUL;
        step->src[k] = c->program->steps[s].src[0];
        if (step->src[k] >= c->program->n_in)
            c->uses[step->src[k] - c->program->n_in]++;
    }
}

static void combine_step(combiner *c, aji_step *step) {
    const aji_step *operand[2] = {lone_step(c, step->src[0], step->dtype), NULL};
    combine_sign(c, step, operand[0]);
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
    if (step->opcode == AJI_STEP_ADD) {
        combine_sum(c, step, operand);
        combine_negated_product(c, step);
    } else
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
        if (c.uses[s] > 0)
            combine_step(&c, &p->steps[s]);
    return compact(&c, result);
}
