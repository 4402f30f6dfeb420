/*
 * The source of a kernel, from its plan. Each entry of the space is computed by one thread: it loads the entry of all operands, takes the steps, and stores
 * the outputs, all loads before all stores, so that an output may lie where an input does. What lies in a box is loaded and placed inside it only.
 *
 * Values are v0, v1, ... as the program numbers them; c0, c1, ... are an entry's indices, o0, o1, ... the offsets of the patterns.
 */
#include "cuda/plan.h"

#include <stdio.h>

static const char *result_type(const aji_plan *p, int value) {
    return aji_cuda_type(p->dtype[value]);
}

/* ---- what comes before the kernel ---- */

static void need(aji_needed *needed, const aji_step *step) {
    if (step->opcode == AJI_STEP_CAST)
        needed->cast[step->from][step->dtype] = true;
    else
        needed->step[step->opcode][step->dtype] = true;
}

aji_opcode aji_reduction_step(aji_reduction kind) {
    static const aji_opcode steps[] = {AJI_STEP_ADD, AJI_STEP_MUL, AJI_STEP_MAXIMUM, AJI_STEP_MINIMUM};
    return steps[kind];
}

static void write_formulas(const aji_plan *p, aji_text *t) {
    aji_needed needed = {0};
    for (int s = 0; s < p->program->n_steps; s++)
        need(&needed, &p->program->steps[s]);
    if (p->kernel != AJI_KERNEL_RUN && p->kernel != AJI_KERNEL_ARGUMENT) {
        needed.step[aji_reduction_step(p->kind)][p->accumulation] = true;
        needed.cast[p->accumulation][p->operand_dtype[p->space.n - 1]] = true;
        if (!p->folds)
            needed.cast[p->dtype[p->reduced]][p->accumulation] = true;
    }
    aji_write_formulas(t, &needed);
}

static void write_arguments(aji_plan *p, aji_text *t) {
    bool pointed = (size_t)p->n_words * sizeof(uint64_t) > AJI_CUDA_ARGUMENT;
    aji_text_add(t, "typedef %s index;\ntypedef %s offset;\n", p->wide ? "unsigned long long" : "unsigned int",
                 p->wide ? "long long" : "int");
    aji_text_add(t, "struct %s {\n", pointed ? "words" : "arguments");
    aji_plan_fields(p, t);
    aji_text_add(t, "};\n");
    if (pointed)
        aji_text_add(t, "struct arguments {\n    const words *at;\n};\n#define ARGUMENTS(a) const words &p = *(a).at\n");
    else
        aji_text_add(t, "typedef arguments words;\n#define ARGUMENTS(a) const words &p = a\n");
    aji_text_add(t, "extern \"C\" __global__ void run(const arguments);\n");
}

/* ---- one entry ---- */

static bool needs_indices(const aji_plan *p) {
    return p->n_patterns > 0 || p->space.n_boxes > 0;
}

static void write_indices(const aji_plan *p, aji_text *t) {
    int row = p->space.ndim - 1;
    if (!needs_indices(p))
        return;
    aji_text_add(t, "    index rest%d = i;\n", row);
    for (int d = row; d > 0; d--) {
        if (p->wide)
            aji_text_add(t, "    const index rest%d = rest%d / (index)p.extent%d;\n", d - 1, d, d);
        else
            aji_text_add(t, "    const index rest%d = (__umulhi(rest%d, (index)p.multiplier%d) + rest%d) >> (index)p.shift%d;\n",
                         d - 1, d, d, d, d);
        aji_text_add(t, "    const offset c%d = (offset)(rest%d - rest%d * (index)p.extent%d);\n", d, d, d - 1, d);
    }
    aji_text_add(t, "    const offset c0 = (offset)rest0;\n");
}

/* The offsets of patterns that operands from ... to-1 have. */
static void write_offsets(const aji_plan *p, aji_text *t, int from, int to) {
    for (int pattern = 0; pattern < p->n_patterns; pattern++) {
        bool used = false;
        for (int k = from; k < to; k++)
            used = used || (p->place[k] == AJI_PLACE_PATTERN && p->pattern[k] == pattern);
        if (!used)
            continue;
        aji_text_add(t, "    const offset o%d = 0", pattern);
        for (int d = 0; d < p->space.ndim; d++)
            aji_text_add(t, " + c%d * (offset)p.stride%d_%d", d, pattern, d);
        aji_text_add(t, ";\n");
    }
}

static void write_boxes(const aji_plan *p, aji_text *t) {
    for (int box = 0; box < p->space.n_boxes; box++) {
        aji_text_add(t, "    const bool in%d = true", box);
        for (int d = 0; d < p->space.ndim; d++)
            aji_text_add(t, " && (index)(c%d - (offset)p.lo%d_%d) < (index)p.across%d_%d", d, box, d, box, d);
        aji_text_add(t, ";\n");
    }
}

static const char *entry_of(const aji_plan *p, int k, char text[48]) {
    if (p->place[k] == AJI_PLACE_ONE)
        snprintf(text, 48, "p.at%d[0]", k);
    else if (p->place[k] == AJI_PLACE_DENSE)
        snprintf(text, 48, "p.at%d[i]", k);
    else
        snprintf(text, 48, "p.at%d[o%d]", k, p->pattern[k]);
    return text;
}

static void write_loads(const aji_plan *p, aji_text *t) {
    char entry[48];
    for (int i = 0; i < p->n_in; i++) {
        if (p->place[i] == AJI_PLACE_UNUSED)
            continue;
        const char *type = result_type(p, i);
        if (p->operand[i].box == AJI_EVERYWHERE)
            aji_text_add(t, "    const %s v%d = %s;\n", type, i, entry_of(p, i, entry));
        else
            aji_text_add(t, "    const %s v%d = in%d ? %s : (%s)0;\n", type, i, p->operand[i].box, entry_of(p, i, entry), type);
    }
}

static void write_step(const aji_plan *p, aji_text *t, int s) {
    const aji_step *step = &p->program->steps[s];
    const int *src = step->src;
    aji_text_add(t, "    const %s v%d = ", result_type(p, p->n_in + s), p->n_in + s);
    if (step->opcode == AJI_STEP_PLACE) {
        aji_text_add(t, "in%d ? v%d : (%s)0;\n", src[1], src[0], result_type(p, p->n_in + s));
    } else if (step->opcode == AJI_STEP_WHERE) {
        aji_text_add(t, "v%d ? v%d : v%d;\n", src[0], src[1], src[2]);
    } else if (step->opcode == AJI_STEP_CAST) {
        aji_text_add(t, "CAST_%s_%s(v%d);\n", aji_cuda_tag(step->from), aji_cuda_tag(step->dtype), src[0]);
    } else {
        aji_text_add(t, "%s_%s(v%d", aji_step_name(step->opcode), aji_cuda_tag(step->dtype), src[0]);
        for (int k = 1; k < aji_step_arity(step->opcode); k++)
            aji_text_add(t, ", v%d", src[k]);
        if (aji_step_has_immediates(step->opcode))
            aji_text_add(t, ", p.first%d, p.second%d", s, s);
        aji_text_add(t, ");\n");
    }
}

static void write_steps(const aji_plan *p, aji_text *t) {
    for (int s = 0; s < p->program->n_steps; s++)
        write_step(p, t, s);
}

/* Entry i: what is loaded, computed and stored for it. */
void aji_write_entry(const aji_plan *p, aji_text *t) {
    char entry[48];
    write_indices(p, t);
    write_offsets(p, t, 0, p->n_in + p->n_out);
    write_boxes(p, t);
    write_loads(p, t);
    write_steps(p, t);
    for (int k = 0; k < p->n_out; k++)
        aji_text_add(t, "    %s = v%d;\n", entry_of(p, p->n_in + k, entry), p->program->out[k]);
}

/* The place of entry i of result k, as an expression behind the declarations that it needs. */
const char *aji_write_result(const aji_plan *p, aji_text *t, int k, char text[48]) {
    int operand = p->n_in + p->n_out + k;
    if (p->place[operand] == AJI_PLACE_PATTERN) {
        write_indices(p, t);
        write_offsets(p, t, operand, operand + 1);
    }
    return entry_of(p, operand, text);
}

/* ---- run ---- */

/* Several entries of one row at once. */
static void write_vectors(const aji_plan *p, aji_text *t) {
    int n = p->n_in + p->n_out;
    aji_text_add(t, "  const index vectors = (index)p.n / %d;\n  for (index j = first; j < vectors; j += threads) {\n", p->width);
    for (int k = 0; k < n; k++)
        if (p->place[k] == AJI_PLACE_DENSE) {
            const char *type = aji_cuda_type(p->operand_dtype[k]);
            aji_text_add(t, "    vector<%s, %d> u%d", type, p->width, k);
            if (k < p->n_in)
                aji_text_add(t, " = ((const vector<%s, %d> *)p.at%d)[j]", type, p->width, k);
            aji_text_add(t, ";\n");
        }
    for (int i = 0; i < p->n_in; i++)
        if (p->place[i] == AJI_PLACE_ONE)
            aji_text_add(t, "    const %s v%d = p.at%d[0];\n", result_type(p, i), i, i);
    aji_text_add(t, "#pragma unroll\n    for (int e = 0; e < %d; e++) {\n", p->width);
    for (int i = 0; i < p->n_in; i++)
        if (p->place[i] == AJI_PLACE_DENSE)
            aji_text_add(t, "    const %s v%d = u%d.v[e];\n", result_type(p, i), i, i);
    write_steps(p, t);
    for (int k = 0; k < p->n_out; k++)
        if (p->place[p->n_in + k] == AJI_PLACE_DENSE)
            aji_text_add(t, "    u%d.v[e] = v%d;\n", p->n_in + k, p->program->out[k]);
        else
            aji_text_add(t, "    p.at%d[0] = v%d;\n", p->n_in + k, p->program->out[k]);
    aji_text_add(t, "    }\n");
    for (int k = p->n_in; k < n; k++)
        if (p->place[k] == AJI_PLACE_DENSE)
            aji_text_add(t, "    ((vector<%s, %d> *)p.at%d)[j] = u%d;\n", aji_cuda_type(p->operand_dtype[k]), p->width, k, k);
    aji_text_add(t, "  }\n");
}

static void write_run(const aji_plan *p, aji_text *t) {
    if (p->width > 1)
        aji_text_add(t, "template <typename T, int n> struct alignas(sizeof(T) * n) vector {\n    T v[n];\n};\n");
    aji_text_add(
        t, "extern \"C\" __global__ void run(const arguments given) {\n  ARGUMENTS(given);\n"
           "  const index threads = gridDim.x * (index)blockDim.x, first = blockIdx.x * (index)blockDim.x + threadIdx.x;\n");
    if (p->width > 1)
        write_vectors(p, t);
    if (p->width > 1)
        aji_text_add(t, "  for (index i = vectors * %d + first; i < (index)p.n; i += threads) {\n", p->width);
    else
        aji_text_add(t, "  for (index i = first; i < (index)p.n; i += threads) {\n");
    aji_write_entry(p, t);
    aji_text_add(t, "  }\n}\n");
}

aj_status aji_plan_write(aj_ctx *ctx, const void *what, aji_text *t) {
    aji_plan *p = (aji_plan *)what; /* aji_plan_fields does not change it where it writes text */
    (void)ctx;
    if (p->kernel != AJI_KERNEL_RUN)
        aji_write_includes(p, t);
    write_formulas(p, t);
    write_arguments(p, t);
    if (p->kernel == AJI_KERNEL_RUN)
        write_run(p, t);
    else if (p->kernel == AJI_KERNEL_REDUCE || p->kernel == AJI_KERNEL_ARGUMENT)
        aji_write_reduce(p, t);
    else
        aji_write_scan(p, t);
    return t->failed ? AJ_ERR_MEMORY : AJ_OK;
}
