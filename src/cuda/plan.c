/* What is known of a kernel before there is any text: places, key, arguments. */
#include "cuda/plan.h"

#include <string.h>

static void set_operand(aji_plan *p, int k, const aji_value *v, int box) {
    aji_space_set(&p->space, &p->operand[k], v, box);
    p->operand_dtype[k] = v->meta.dtype;
}

static void set_dtypes(aji_plan *p, const aji_value *const *in) {
    for (int i = 0; i < p->n_in; i++)
        p->dtype[i] = in[i]->meta.dtype;
    for (int s = 0; s < p->program->n_steps; s++) {
        const aji_step *step = &p->program->steps[s];
        bool compares = step->opcode >= AJI_STEP_EQ && step->opcode <= AJI_STEP_GE;
        p->dtype[p->n_in + s] = compares ? AJ_U8 : step->dtype;
    }
}

void aji_plan_open(aji_plan *p, aji_kernel_kind kernel, const aji_program *program, const aji_meta *shape,
                   const aji_value *const *in, const aji_value *const *out, int n_results, const aji_value *const *results) {
    p->kernel = kernel;
    p->program = program;
    p->n_in = program->n_in;
    p->n_out = program->n_out;
    p->kind = AJI_SUM;
    p->reduced = 0;
    p->accumulation = aji_cuda_accumulation(shape->dtype);
    p->folds = false;
    p->neutral = 0;
    p->partial = NULL;
    p->width = 1;
    p->layout = (aji_layout){.splits = 1};
    int n = p->n_in + p->n_out;
    aji_space_open(&p->space, shape, n + n_results, p->operand, program, p->box);
    for (int i = 0; i < p->n_in; i++)
        set_operand(p, i, in[i], program->n_boxes ? program->box[i] : AJI_EVERYWHERE);
    for (int k = 0; k < p->n_out; k++)
        set_operand(p, p->n_in + k, out[k], AJI_EVERYWHERE);
    for (int k = 0; k < n_results; k++)
        set_operand(p, n + k, results[k], AJI_EVERYWHERE);
    set_dtypes(p, in);
}

/* ---- places ---- */

static bool is_read(const aji_plan *p, int input) {
    bool read = p->kernel != AJI_KERNEL_RUN && p->reduced == input;
    for (int s = 0; s < p->program->n_steps && !read; s++)
        for (int k = 0; k < aji_step_arity(p->program->steps[s].opcode); k++)
            read = read || p->program->steps[s].src[k] == input;
    for (int k = 0; k < p->n_out && !read; k++)
        read = p->program->out[k] == input;
    return read;
}

static bool same_strides(const aji_plan *p, int a, int b) {
    return memcmp(p->operand[a].stride, p->operand[b].stride, (size_t)p->space.ndim * sizeof(int64_t)) == 0;
}

static void set_pattern(aji_plan *p, int k) {
    p->place[k] = AJI_PLACE_PATTERN;
    for (int pattern = 0; pattern < p->n_patterns; pattern++)
        if (same_strides(p, p->first_of[pattern], k)) {
            p->pattern[k] = pattern;
            return;
        }
    p->first_of[p->n_patterns] = k;
    p->pattern[k] = p->n_patterns++;
}

static void set_places(aji_plan *p) {
    static const int64_t zeros[AJ_MAX_NDIM];
    p->n_patterns = 0;
    for (int k = 0; k < p->space.n; k++) {
        const aji_operand *x = &p->operand[k];
        if (k < p->n_in && !is_read(p, k))
            p->place[k] = AJI_PLACE_UNUSED;
        else if (memcmp(x->stride, zeros, (size_t)p->space.ndim * sizeof(int64_t)) == 0)
            p->place[k] = AJI_PLACE_ONE;
        else if (aji_space_is_dense(&p->space, x))
            p->place[k] = AJI_PLACE_DENSE;
        else
            set_pattern(p, k);
    }
}

static uint64_t magnitude(int64_t x) {
    return x < 0 ? -(uint64_t)x : (uint64_t)x;
}

/* Do entries' numbers and offsets fit into 31 bits? */
static bool is_wide(const aji_plan *p) {
    const uint64_t most = INT32_MAX;
    if ((uint64_t)p->numel > most)
        return true;
    for (int k = 0; k < p->space.n; k++) {
        uint64_t reach = 0;
        for (int d = 0; d < p->space.ndim; d++) {
            uint64_t stride = magnitude(p->operand[k].stride[d]);
            reach += stride > most ? most + 1 : stride * (uint64_t)(p->space.shape[d] - 1);
            if (reach > most)
                return true;
        }
    }
    return false;
}

/* Elements of 16 bytes, where all operands are one row or one number, and lie at multiples of that many elements. More would only make long programs longer. */
static int choose_width(const aji_plan *p) {
    enum { LONG = 32, MANY = 16, BYTES = 16, MOST = 4 };
    if (p->kernel != AJI_KERNEL_RUN || p->n_patterns > 0 || p->space.n_boxes > 0 || p->program->n_steps > LONG ||
        p->space.n > MANY)
        return 1;
    int64_t largest = 1;
    for (int k = 0; k < p->space.n; k++)
        if (p->place[k] == AJI_PLACE_DENSE && p->operand[k].size > largest)
            largest = p->operand[k].size;
    int width = largest * MOST > BYTES ? (int)(BYTES / largest) : MOST;
    for (int k = 0; k < p->space.n; k++)
        if (p->place[k] == AJI_PLACE_DENSE && (uintptr_t)p->operand[k].data % (uintptr_t)(p->operand[k].size * width) != 0)
            return 1;
    return p->numel >= width ? width : 1;
}

/* ---- key ---- */

static void put(aji_plan *p, int value) { /* below 65536 */
    p->key[p->n_key++] = (unsigned char)(value & 255);
    p->key[p->n_key++] = (unsigned char)(value >> 8 & 255);
}

static void put_step(aji_plan *p, const aji_step *step) {
    put(p, step->opcode);
    put(p, (int)step->dtype * 8 + (step->opcode == AJI_STEP_CAST ? (int)step->from : 0));
    for (int k = 0; k < aji_step_arity(step->opcode); k++)
        put(p, step->src[k]);
    if (step->opcode == AJI_STEP_PLACE)
        put(p, step->src[1]);
}

static void set_key(aji_plan *p) {
    p->n_key = 0;
    put(p, (int)p->kernel * 8 + (int)p->kind);
    put(p, p->wide * 8 + p->folds * 4 + (p->layout.splits > 1) * 2);
    put(p, (int)aji_layout_join(&p->layout) * 8 + (int)p->accumulation);
    put(p, p->width * 16 + p->space.ndim);
    put(p, p->reduced);
    put(p, p->n_in);
    put(p, p->n_out);
    put(p, p->space.n);
    put(p, p->space.n_boxes);
    put(p, p->program->n_steps);
    for (int s = 0; s < p->program->n_steps; s++)
        put_step(p, &p->program->steps[s]);
    for (int k = 0; k < p->n_out; k++)
        put(p, p->program->out[k]);
    for (int k = 0; k < p->space.n; k++) {
        put(p, (int)p->place[k] * 8 + (int)p->operand_dtype[k]);
        put(p, p->place[k] == AJI_PLACE_PATTERN ? p->pattern[k] : 0);
        put(p, p->operand[k].box + 1);
    }
}

_Static_assert(2 * (10 + 6 * AJI_MAX_STEPS + AJI_MAX_OUTPUTS + 3 * AJI_PLAN_OPERANDS) <= AJI_PLAN_KEY, "every program has a key");

/* ---- arguments ---- */

static void field(aji_plan *p, aji_text *text, const char *type, const char *name, int i, int j, int64_t value) {
    if (!text)
        p->word[p->n_words++] = (uint64_t)value;
    else if (j < 0)
        aji_text_add(text, "    %s %s%d;\n", type, name, i);
    else
        aji_text_add(text, "    %s %s%d_%d;\n", type, name, i, j);
}

/* floor(i / extent) = (high half of i * multiplier + i) >> shift for i < 2^31 (Granlund and Montgomery, PLDI 1994) */
static void divisor(aji_plan *p, aji_text *text, int axis) {
    uint64_t extent = (uint64_t)p->space.shape[axis];
    int shift = 0;
    while ((uint64_t)1 << shift < extent)
        shift++;
    uint64_t multiplier = p->wide ? 0 : (((uint64_t)1 << 32) * (((uint64_t)1 << shift) - extent)) / extent + 1;
    field(p, text, "long long", "extent", axis, -1, (int64_t)extent);
    field(p, text, "long long", "multiplier", axis, -1, (int64_t)multiplier);
    field(p, text, "long long", "shift", axis, -1, shift);
}

static void immediates(aji_plan *p, aji_text *text, int s) {
    const aji_step *step = &p->program->steps[s];
    const char *type = aji_dtype_is_float(step->dtype) ? "double" : "long long";
    for (int k = 0; k < 2; k++) {
        double x = step->dtype == AJ_F32 ? (float)step->imm[k] : step->imm[k];
        int64_t value = 0;
        if (step->dtype == AJ_I64)
            value = AJI_SATURATE(int64_t, x, INT64_MIN, INT64_MAX);
        else if (step->dtype == AJ_I32)
            value = AJI_SATURATE(int32_t, x, INT32_MIN, INT32_MAX);
        else if (step->dtype == AJ_U8)
            value = AJI_SATURATE(uint8_t, x, 0, UINT8_MAX);
        else
            memcpy(&value, &x, sizeof(value));
        field(p, text, type, k ? "second" : "first", s, -1, value);
    }
}

/* The neutral element, as a double or a long long. The extrema's are the ends of the range. */
static uint64_t neutral_word(const aji_plan *p) {
    uint64_t word;
    int64_t integer = AJI_SATURATE(int64_t, p->neutral, INT64_MIN, INT64_MAX);
    if (aji_dtype_is_float(p->accumulation))
        memcpy(&word, &p->neutral, sizeof(word));
    else
        memcpy(&word, &integer, sizeof(word));
    return word;
}

static void layout_fields(aji_plan *p, aji_text *text) {
    const aji_layout *l = &p->layout;
    const struct {
        const char *name;
        int64_t value;
    } fields[] = {{"kept", l->kept},
                  {"reduced", l->reduced},
                  {"columns", l->columns},
                  {"splits", l->splits},
                  {"chunk", l->chunk},
                  {"blocks", aji_layout_blocks(l)},
                  {"x_bits", l->x_bits},
                  {"y_bits", l->y_bits},
                  {"x_shift", l->kept_first ? 0 : l->y_bits},
                  {"y_shift", l->kept_first ? l->x_bits : 0}};
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        if (text)
            aji_text_add(text, "    long long %s;\n", fields[i].name);
        else
            p->word[p->n_words++] = (uint64_t)fields[i].value;
    if (text) {
        aji_text_add(text, "    void *partial;\n    %s neutral;\n", aji_dtype_is_float(p->accumulation) ? "double" : "long long");
        return;
    }
    p->word[p->n_words++] = (uint64_t)(uintptr_t)p->partial;
    p->word[p->n_words++] = neutral_word(p);
}

void aji_plan_fields(aji_plan *p, aji_text *text) {
    if (text)
        aji_text_add(text, "    long long n;\n");
    else
        p->word[p->n_words++] = (uint64_t)p->numel;
    for (int d = 1; d < p->space.ndim; d++)
        divisor(p, text, d);
    for (int k = 0; k < p->space.n; k++)
        if (p->place[k] != AJI_PLACE_UNUSED) {
            char type[32] = "";
            strcat(strcat(type, aji_cuda_type(p->operand_dtype[k])), " *");
            field(p, text, type, "at", k, -1, (int64_t)(intptr_t)p->operand[k].data);
        }
    for (int pattern = 0; pattern < p->n_patterns; pattern++)
        for (int d = 0; d < p->space.ndim; d++)
            field(p, text, "long long", "stride", pattern, d, p->operand[p->first_of[pattern]].stride[d]);
    for (int box = 0; box < p->space.n_boxes; box++)
        for (int d = 0; d < p->space.ndim; d++) {
            field(p, text, "long long", "lo", box, d, p->box[box].lo[d]);
            field(p, text, "long long", "across", box, d, p->box[box].extent[d]);
        }
    for (int s = 0; s < p->program->n_steps; s++)
        if (aji_step_has_immediates(p->program->steps[s].opcode))
            immediates(p, text, s);
    if (p->kernel != AJI_KERNEL_RUN)
        layout_fields(p, text);
}

void aji_plan_close(aji_plan *p) {
    p->numel = 1;
    for (int d = 0; d < p->space.ndim; d++)
        p->numel *= p->space.shape[d];
    set_places(p);
    p->wide = is_wide(p);
    p->width = choose_width(p);
    set_key(p);
    p->n_words = 0;
    aji_plan_fields(p, NULL);
}

aj_status aji_plan_launch(aji_cuda *d, aji_plan *p, int64_t blocks) {
    size_t bytes = (size_t)p->n_words * sizeof(uint64_t);
    aji_cuda_source source = {"run", p->key, (size_t)p->n_key, aji_plan_write, p};
    if (bytes <= AJI_CUDA_ARGUMENT)
        return aji_cuda_launch_made(d, &source, blocks, p->word, bytes);
    void *memory = aji_cuda_alloc(d, bytes);
    if (!memory)
        return AJ_ERR_MEMORY;
    aj_status status = aji_cuda_put(d, memory, p->word, bytes);
    if (status == AJ_OK)
        status = aji_cuda_launch_made(d, &source, blocks, &memory, sizeof(memory));
    aji_cuda_free(d, memory, bytes);
    return status;
}
