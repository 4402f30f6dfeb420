/*
 * The residuals r = model(x; b) - y of a table whose rows are divided over the ranks, and all that the fit needs of them: sums over the rows of
 * all ranks. Each rank computes with the library on its own rows, one aj_allreduce adds up, and one aj_bcast gives every rank the bits of
 * rank 0, on which the fit then decides.
 */
#ifndef FIT_LEAST_SQUARES_H
#define FIT_LEAST_SQUARES_H

#include "formula.h"
#include "levenberg_marquardt.h"
#include "table.h"

typedef struct least_squares {
    aj_ctx *ctx;
    aj_comm *comm;
    const formula *model;
    int n;                                /* parameters in the fit: those that the formula uses */
    int slot[FORMULA_MAX_PARAMETERS];     /* which: parameter k of the fit is b<slot[k] + 1> */
    aj_tensor *b[FORMULA_MAX_PARAMETERS]; /* by slot: scalars that collect gradients; NULL where unused */
    int64_t m;                            /* rows of all ranks */
    aj_tensor *x, *y;                     /* this rank's rows */
    double measured;                      /* |y| over all ranks */
} least_squares;

/*
 * Collective: comm. rows: the same on all ranks. t counts on rank 0 only, which sends every other rank its rows. ls must stay where it is and be ended with least_squares_end, also after an error. Every function here
 * returns false, on all ranks, when the library reports an error: its message is in the context.
 */
bool least_squares_begin(least_squares *ls, aj_comm *comm, const formula *model, int64_t rows, const table *t);
void least_squares_end(least_squares *ls);

/* |r|^2 at b. Collective. */
bool least_squares_rss(const least_squares *ls, const double *b, double *rss);
/* r and its Jacobian at b: the Jacobian by aj_jvp, one column per parameter; its triangular factor R by Cholesky QR. Collective. */
bool least_squares_linearise(const least_squares *ls, const double *b, lm_linearisation *at_b);
/* The gradient of |r|^2 at b in reverse mode: aj_backward through aj_shared. Collective. */
bool least_squares_gradient(const least_squares *ls, const double *b, double *gradient);

#endif
