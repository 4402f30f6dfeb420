/* The formulas of steps.def as text: the C compiler's preprocessor quotes them, so that CPU and GPU compute from one source. */
#include "cuda/plan.h"

typedef enum form { NONE, PLAIN, COMPARE, IMMEDIATE } form;

typedef struct formula {
    form form;
    const char *text;
} formula;

#define QUOTE(...) #__VA_ARGS__
#define QUOTE_EXPANDED(...) QUOTE(__VA_ARGS__)

static const formula formulas[AJI_N_STEPS] = {
#define AJI_UNARY(name, formula) [AJI_STEP_##name] = {PLAIN, #formula},
#define AJI_FLOAT_UNARY(name, formula) [AJI_STEP_##name] = {PLAIN, #formula},
#define AJI_FLOAT_TRIG(name, function) [AJI_STEP_##name] = {PLAIN, "V(" #function ")(a)"},
#define AJI_BINARY(name, formula) [AJI_STEP_##name] = {PLAIN, #formula},
#define AJI_FLOAT_BINARY(name, formula) [AJI_STEP_##name] = {PLAIN, #formula},
#define AJI_TERNARY(name, formula) [AJI_STEP_##name] = {PLAIN, #formula},
#define AJI_COMPARE(name, formula) [AJI_STEP_##name] = {COMPARE, #formula},
#define AJI_IMMEDIATE(name, formula) [AJI_STEP_##name] = {IMMEDIATE, #formula},
#define AJI_BINARY_IMMEDIATE(name, formula) [AJI_STEP_##name] = {IMMEDIATE, #formula},
#define AJI_FLOAT_IMMEDIATE(name, formula) [AJI_STEP_##name] = {IMMEDIATE, #formula},
#include "tensor/steps.def"
};

const char *aji_cuda_type(aj_dtype dtype) {
    static const char *const types[] = {"double", "float", "long long", "int", "unsigned char"};
    return types[dtype];
}

const char *aji_cuda_tag(aj_dtype dtype) {
    static const char *const tags[] = {"f64", "f32", "i64", "i32", "u8"};
    return tags[dtype];
}

/* Integers are computed in a type that holds every result, as on the CPU: going back wraps. */
static const char *wide_type(aj_dtype dtype) {
    static const char *const types[] = {"double", "float", "__int128", "long long", "int"};
    return types[dtype];
}

static void write_step(aji_text *t, aji_opcode opcode, aj_dtype dtype) {
    static const char *const operands[] = {"", "const T x0", "const T x0, const T x1", "const T x0, const T x1, const T x2"};
    static const char *const widened[] = {"", "const W a = x0;", "const W a = x0, b = x1;", "const W a = x0, b = x1, c = x2;"};
    const formula *f = &formulas[opcode];
    int arity = aji_step_arity(opcode);
    aji_text_add(t, "INLINE %s %s_%s(%s%s) {\n    %s\n    return (%s);\n}\n", f->form == COMPARE ? "unsigned char" : "T",
                 aji_step_name(opcode), aji_cuda_tag(dtype), operands[arity],
                 f->form == IMMEDIATE ? ", const W imm0, const W imm1" : "", widened[arity], f->text);
}

static void write_cast(aji_text *t, aj_dtype from, aj_dtype to) {
    bool saturates = aji_dtype_is_float(from) && !aji_dtype_is_float(to);
    static const char *const low[] = {"", "", "(-9223372036854775807LL - 1)", "(-2147483647 - 1)", "0"};
    static const char *const high[] = {"", "", "9223372036854775807LL", "2147483647", "255"};
    aji_text_add(t, "INLINE %s CAST_%s_%s(const %s x) {\n", aji_cuda_type(to), aji_cuda_tag(from), aji_cuda_tag(to),
                 aji_cuda_type(from));
    if (saturates)
        aji_text_add(t, "    typedef %s T;\n    const T low = %s, high = %s;\n    return %s;\n}\n", aji_cuda_type(to), low[to],
                     high[to], QUOTE_EXPANDED(AJI_SATURATE(T, x, low, high)));
    else
        aji_text_add(t, "    return (%s)x;\n}\n", aji_cuda_type(to));
}

/* What CUDA has no function for */
static void write_functions(aji_text *t, const aji_needed *needed, aj_dtype dtype) {
    if (needed->step[AJI_STEP_SIGMOID][dtype])
        aji_text_add(t, "INLINE T V(sigmoid)(const T x) {\n    const T e = V(exp)(-M(fabs)(x));\n"
                        "    return (x < 0 ? e : 1) / (1 + e);\n}\n");
    if (needed->step[AJI_STEP_SOFTPLUS][dtype])
        aji_text_add(
            t,
            "INLINE T V(softplus)(const T x) {\n    return (x > 0 ? x : x != x ? x : 0) + V(log1p)(V(exp)(-M(fabs)(x)));\n}\n");
}

static void write_dtype(aji_text *t, const aji_needed *needed, aj_dtype dtype) {
    const char *suffix = dtype == AJ_F32 ? "##f" : "";
    bool any = false;
    for (int s = 0; s < AJI_N_STEPS; s++)
        any = any || (needed->step[s][dtype] && formulas[s].form != NONE);
    if (!any)
        return;
    aji_text_add(t, "#define T %s\n#define W %s\n#define M(name) name%s\n#define V(name) name%s\n", aji_cuda_type(dtype),
                 wide_type(dtype), suffix, suffix);
    write_functions(t, needed, dtype);
    for (int s = 0; s < AJI_N_STEPS; s++)
        if (needed->step[s][dtype] && formulas[s].form != NONE)
            write_step(t, (aji_opcode)s, dtype);
    aji_text_add(t, "#undef T\n#undef W\n#undef M\n#undef V\n");
}

void aji_write_formulas(aji_text *t, const aji_needed *needed) {
    aji_text_add(t, "#define INLINE static __device__ __forceinline__\n");
    for (int dtype = AJ_F64; dtype <= AJ_U8; dtype++)
        write_dtype(t, needed, (aj_dtype)dtype);
    for (int from = AJ_F64; from <= AJ_U8; from++)
        for (int to = AJ_F64; to <= AJ_U8; to++)
            if (needed->cast[from][to])
                write_cast(t, (aj_dtype)from, (aj_dtype)to);
}

bool aji_step_has_immediates(aji_opcode opcode) {
    return formulas[opcode].form == IMMEDIATE;
}
