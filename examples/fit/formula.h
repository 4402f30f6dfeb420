/*
 * Formulas such as b1*(1-exp(-b2*x)), parsed into tensor operations.
 *
 * Numbers, pi, the variable x, the parameters b1 ... b9, + - * / ^, unary minus and plus, parentheses, exp log sqrt sin cos tan tanh atan of
 * one argument and pow(a, b). As in mathematics: ^ binds tighter than the sign before it (-x^2 = -(x^2)) and groups to the right
 * (2^3^2 = 2^9), and the exponent may have a sign of its own (2^-3).
 */
#ifndef FIT_FORMULA_H
#define FIT_FORMULA_H

#include <adjoin/adjoin.h>

#include "message.h"

#define FORMULA_MAX_PARAMETERS 9

typedef struct formula formula;

/* Parse text. NULL, with a message, when it is not a formula. Free the result with formula_free. */
formula *formula_parse(const char *text, fit_message *message);
void formula_free(formula *f);

/* Does the formula contain b<index + 1>? */
bool formula_uses(const formula *f, int index);

/*
 * The value at x, for the parameters b[0] ... b[8] (those that the formula uses). A scalar when neither x nor a parameter occurs in it.
 * A result of the library: owned by the current scope, NULL on error, differentiable with respect to x and every b.
 */
aj_tensor *formula_value(const formula *f, aj_tensor *x, aj_tensor *const b[FORMULA_MAX_PARAMETERS]);

#endif
