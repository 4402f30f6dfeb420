/*
 * A recursive-descent parser that emits a program for a stack machine, whose values are tensors. Operations on constants are done while parsing, so
 * that a constant exponent is seen as one: x^2 and (b2+x)^(-2) are defined for negative bases too.
 */
#include "formula.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NESTING = 200, NAME_SHOWN = 32 };

static double number_neg(double a) {
    return -a;
}
static double number_add(double a, double b) {
    return a + b;
}
static double number_sub(double a, double b) {
    return a - b;
}
static double number_mul(double a, double b) {
    return a * b;
}
static double number_div(double a, double b) {
    return a / b;
}

/* An operation, on tensors and on constants. */
typedef struct unary {
    const char *name;
    aj_tensor *(*tensor)(aj_tensor *);
    double (*number)(double);
} unary;
typedef struct binary {
    aj_tensor *(*tensor)(aj_tensor *, aj_tensor *);
    double (*number)(double, double);
} binary;

static const unary functions[] = {{"exp", aj_exp, exp}, {"log", aj_log, log}, {"sqrt", aj_sqrt, sqrt}, {"sin", aj_sin, sin},
                                  {"cos", aj_cos, cos}, {"tan", aj_tan, tan}, {"tanh", aj_tanh, tanh}, {"atan", aj_atan, atan}};
static const unary negation = {"-", aj_neg, number_neg};
static const binary addition = {aj_add, number_add}, subtraction = {aj_sub, number_sub}, multiplication = {aj_mul, number_mul},
                    division = {aj_div, number_div}, power_of = {aj_pow, pow};

typedef enum opcode { PUSH_NUMBER, PUSH_X, PUSH_PARAMETER, UNARY, BINARY, POWER_NUMBER } opcode;

typedef struct instruction {
    opcode code;
    double number; /* PUSH_NUMBER; POWER_NUMBER: the exponent */
    int parameter; /* PUSH_PARAMETER: 0 ... 8 */
    const unary *unary;
    const binary *binary;
} instruction;

struct formula {
    instruction *program;
    size_t length;
    aj_tensor **stack; /* for formula_value: as long as the program */
    bool uses[FORMULA_MAX_PARAMETERS];
};

typedef struct parser {
    const char *text, *at;
    formula *f;
    int nesting;
    fit_message *message;
} parser;

/* ---- code ---- */

static void emit(parser *p, instruction i) {
    p->f->program[p->f->length++] = i;
}

static void emit_number(parser *p, double number) {
    emit(p, (instruction){.code = PUSH_NUMBER, .number = number});
}

/* Is the n-th last instruction a constant? The operand of an operator that ends in a constant is that constant. */
static bool is_number(const parser *p, size_t n) {
    return p->f->length >= n && p->f->program[p->f->length - n].code == PUSH_NUMBER;
}

static double pop_number(parser *p) {
    return p->f->program[--p->f->length].number;
}

static void emit_unary(parser *p, const unary *operation) {
    if (is_number(p, 1))
        emit_number(p, operation->number(pop_number(p)));
    else
        emit(p, (instruction){.code = UNARY, .unary = operation});
}

static void emit_binary(parser *p, const binary *operation) {
    if (is_number(p, 1) && is_number(p, 2)) {
        double b = pop_number(p), a = pop_number(p);
        emit_number(p, operation->number(a, b));
    } else if (operation == &power_of && is_number(p, 1)) {
        emit(p, (instruction){.code = POWER_NUMBER, .number = pop_number(p)});
    } else {
        emit(p, (instruction){.code = BINARY, .binary = operation});
    }
}

/* ---- text ---- */

static void skip_blanks(parser *p) {
    while (isspace((unsigned char)*p->at))
        p->at++;
}

static bool accept(parser *p, char c) {
    skip_blanks(p);
    if (*p->at != c)
        return false;
    p->at++;
    return true;
}

static int position(const parser *p) {
    return (int)(p->at - p->text) + 1;
}

/* Say what stands here, where something else was expected. */
static bool fail_expected(parser *p, const char *expected) {
    skip_blanks(p);
    if (!*p->at)
        return fit_fail(p->message, "formula '%.200s': it ends where %s was expected", p->text, expected);
    int bytes = 1; /* of the character: a letter beyond ASCII has several */
    while ((p->at[bytes] & 0xC0) == 0x80)
        bytes++;
    return fit_fail(p->message, "formula '%.200s': '%.*s' at character %d where %s was expected", p->text, bytes, p->at,
                    position(p), expected);
}

static bool expect_closing(parser *p, int opened_at) {
    if (accept(p, ')'))
        return true;
    char expected[64];
    snprintf(expected, sizeof expected, "the ')' for the '(' at character %d", opened_at);
    return fail_expected(p, expected);
}

/* Digits with at most one point and an exponent: what strtod takes, without its "inf", "nan" and hexadecimal numbers. */
static bool parse_number(parser *p) {
    const char *end = p->at;
    int digits = 0;
    for (; isdigit((unsigned char)*end); end++)
        digits++;
    if (*end == '.')
        for (end++; isdigit((unsigned char)*end); end++)
            digits++;
    if (digits == 0)
        return fail_expected(p, "a number");
    if (*end == 'e' || *end == 'E') {
        const char *exponent = end + 1;
        exponent += *exponent == '+' || *exponent == '-';
        if (isdigit((unsigned char)*exponent))
            for (end = exponent; isdigit((unsigned char)*end); end++)
                continue;
    }
    double value = strtod(p->at, NULL);
    if (!isfinite(value))
        return fit_fail(p->message,
                        "formula '%.200s': the number at character %d is too large for a double; expected at most 1.79e308",
                        p->text, position(p));
    p->at = end;
    emit_number(p, value);
    return true;
}

static bool parse_sum(parser *p);
static bool parse_signed(parser *p);

static bool parse_arguments(parser *p, const unary *function) {
    skip_blanks(p);
    int opened_at = position(p);
    if (!accept(p, '('))
        return fail_expected(p, "the '(' of a function's argument");
    if (!parse_sum(p))
        return false;
    if (!function) {
        if (!accept(p, ','))
            return fail_expected(p, "the ',' before the second argument of pow");
        if (!parse_sum(p))
            return false;
        emit_binary(p, &power_of);
    } else {
        emit_unary(p, function);
    }
    return expect_closing(p, opened_at);
}

static bool parse_name(parser *p) {
    const char *name = p->at, *end = name;
    while (isalnum((unsigned char)*end) || *end == '_')
        end++;
    size_t length = (size_t)(end - name);
    int shown = length < NAME_SHOWN ? (int)length : NAME_SHOWN, at = position(p);
    p->at = end;
    if (length == 1 && *name == 'x') {
        emit(p, (instruction){.code = PUSH_X});
        return true;
    }
    if (length == 2 && memcmp(name, "pi", 2) == 0) {
        emit_number(p, acos(-1.0));
        return true;
    }
    if (length == 2 && name[0] == 'b' && name[1] >= '1' && name[1] <= '9') {
        emit(p, (instruction){.code = PUSH_PARAMETER, .parameter = name[1] - '1'});
        p->f->uses[name[1] - '1'] = true;
        return true;
    }
    if (length == 3 && memcmp(name, "pow", 3) == 0)
        return parse_arguments(p, NULL);
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
        if (strlen(functions[i].name) == length && memcmp(name, functions[i].name, length) == 0)
            return parse_arguments(p, &functions[i]);
    return fit_fail(p->message,
                    "formula '%.200s': unknown name '%.*s' at character %d; expected x, b1 ... b9, pi, or one of the functions "
                    "exp log sqrt sin cos tan tanh atan pow",
                    p->text, shown, name, at);
}

/* primary = number | name | function '(' sum ')' | 'pow' '(' sum ',' sum ')' | '(' sum ')' */
static bool parse_primary(parser *p) {
    skip_blanks(p);
    int opened_at = position(p);
    if (accept(p, '('))
        return parse_sum(p) && expect_closing(p, opened_at);
    if (isdigit((unsigned char)*p->at) || *p->at == '.')
        return parse_number(p);
    if (isalpha((unsigned char)*p->at) || *p->at == '_')
        return parse_name(p);
    return fail_expected(p, "a number, a name or '('");
}

/* power = primary ['^' signed] */
static bool parse_power(parser *p) {
    if (!parse_primary(p))
        return false;
    if (!accept(p, '^'))
        return true;
    if (!parse_signed(p))
        return false;
    emit_binary(p, &power_of);
    return true;
}

/* signed = ['-' | '+'] signed | power. Every level of nesting passes through here: the place to limit it. */
static bool parse_signed(parser *p) {
    if (++p->nesting > MAX_NESTING)
        return fit_fail(p->message,
                        "formula '%.200s': nested more than %d levels deep at character %d; expected a simpler formula", p->text,
                        MAX_NESTING, position(p));
    bool parsed;
    if (accept(p, '-')) {
        parsed = parse_signed(p);
        if (parsed)
            emit_unary(p, &negation);
    } else if (accept(p, '+')) {
        parsed = parse_signed(p);
    } else {
        parsed = parse_power(p);
    }
    p->nesting--;
    return parsed;
}

/* product = signed {('*' | '/') signed} */
static bool parse_product(parser *p) {
    if (!parse_signed(p))
        return false;
    for (;;) {
        const binary *operation = accept(p, '*') ? &multiplication : accept(p, '/') ? &division : NULL;
        if (!operation)
            return true;
        if (!parse_signed(p))
            return false;
        emit_binary(p, operation);
    }
}

/* sum = product {('+' | '-') product} */
static bool parse_sum(parser *p) {
    if (!parse_product(p))
        return false;
    for (;;) {
        const binary *operation = accept(p, '+') ? &addition : accept(p, '-') ? &subtraction : NULL;
        if (!operation)
            return true;
        if (!parse_product(p))
            return false;
        emit_binary(p, operation);
    }
}

static bool parse_all(parser *p) {
    if (!parse_sum(p))
        return false;
    skip_blanks(p);
    return *p->at ? fail_expected(p, "an operator or the end") : true;
}

formula *formula_parse(const char *text, fit_message *message) {
    formula *f = calloc(1, sizeof *f);
    size_t most = strlen(text) + 1; /* every instruction comes from a character of its own */
    if (f) {
        f->program = calloc(most, sizeof *f->program);
        f->stack = calloc(most, sizeof(aj_tensor *));
    }
    if (!f || !f->program || !f->stack) {
        fit_fail(message, "formula of %zu characters: not enough memory", most - 1);
        formula_free(f);
        return NULL;
    }
    parser p = {.text = text, .at = text, .f = f, .message = message};
    if (!parse_all(&p)) {
        formula_free(f);
        return NULL;
    }
    return f;
}

void formula_free(formula *f) {
    if (!f)
        return;
    free(f->program);
    free(f->stack);
    free(f);
}

bool formula_uses(const formula *f, int index) {
    return f->uses[index];
}

aj_tensor *formula_value(const formula *f, aj_tensor *x, aj_tensor *const b[FORMULA_MAX_PARAMETERS]) {
    aj_ctx *ctx = aj_tensor_ctx(x);
    aj_tensor **top = f->stack; /* one past the uppermost value */
    for (size_t i = 0; i < f->length; i++) {
        const instruction *op = &f->program[i];
        switch (op->code) {
        case PUSH_NUMBER:
            *top++ = aj_scalar(ctx, AJ_F64, op->number);
            break;
        case PUSH_X:
            *top++ = x;
            break;
        case PUSH_PARAMETER:
            *top++ = b[op->parameter];
            break;
        case UNARY:
            top[-1] = op->unary->tensor(top[-1]);
            break;
        case POWER_NUMBER:
            top[-1] = aj_pow_scalar(top[-1], op->number);
            break;
        case BINARY:
            top--;
            top[-1] = op->binary->tensor(top[-1], top[0]);
            break;
        }
    }
    return top[-1];
}
