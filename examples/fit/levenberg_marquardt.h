/*
 * The method of Levenberg and Marquardt: minimise rss(b) = |r(b)|^2, r having m entries, over n parameters b.
 *
 * It knows the problem through two functions, which may work on many processes: one sums the squares, the other gives r and its Jacobian J
 * in the coordinates of an orthonormal basis Q of J's columns. Every number that comes from them must have the same bits on every process: then so
 * has every decision made here, and the processes stay together.
 *
 * K. Levenberg, Quart. Appl. Math. 2 (1944) 164; D. W. Marquardt, SIAM J. Appl. Math. 11 (1963) 431. The damping is chosen so that a step stays within a
 * region of trust, as in MINPACK: J. J. Moré, "The Levenberg-Marquardt algorithm: implementation and theory", Lecture Notes in Mathematics 630 (1978)
 * 105; its sections and equations are cited below as "Moré".
 */
#ifndef FIT_LEVENBERG_MARQUARDT_H
#define FIT_LEVENBERG_MARQUARDT_H

#include <stdbool.h>
#include <stdint.h>

#include "dense.h"

#define LM_MAX_PARAMETERS DENSE_MAX

/* The problem near a point: |r + J d|^2 = rss - |c|^2 + |R d + c|^2. */
typedef struct lm_linearisation {
    bool finite; /* false: a number was infinite or NaN, and nothing else here means anything */
    double rss;  /* |r|^2 */
    double R[LM_MAX_PARAMETERS * LM_MAX_PARAMETERS]; /* n x n, upper triangular, J = Q R */
    double c[LM_MAX_PARAMETERS];                     /* Q'r */
} lm_linearisation;

/* What an iteration tells. */
typedef struct lm_progress {
    int iteration;
    double rss, gradient,
        damping; /* gradient: the norm of d rss / d b; damping: of the step that led here, 0 for an undamped one */
} lm_progress;

typedef struct lm_problem {
    int n;
    int64_t m;
    double measured; /* the size |y| of the numbers that r is a difference of: says where rounding begins */
    void *user;
    /* Both return false when they could not do it; the method then stops with LM_FAILED. */
    bool (*rss)(void *user, const double *b, double *rss);
    bool (*linearise)(void *user, const double *b, lm_linearisation *at_b);
    void (*report)(void *user, const lm_progress *progress);
} lm_problem;

typedef struct lm_options {
    int max_iterations;
    double tolerance; /* of the relative offset, see lm_minimise */
} lm_options;

typedef enum lm_outcome {
    LM_CONVERGED,
    LM_MAX_ITERATIONS, /* not converged after max_iterations steps */
    LM_STALLED,        /* no step makes rss smaller, yet the point is not stationary */
    LM_SINGULAR,       /* stationary, but the columns of J are linearly dependent: rss does not determine b */
    LM_NOT_FINITE,     /* r or J is not finite at the start */
    LM_FAILED          /* a function of the problem failed */
} lm_outcome;

typedef struct lm_result {
    int iterations;
    lm_linearisation at_b;
} lm_result;

/*
 * From b, which is overwritten with the best point found.
 *
 * Converged is what has a small relative offset (D. M. Bates and D. G. Watts, Technometrics 23 (1981) 179): the part of r in the span of J's columns
 * against the part outside, each over the root of its number of degrees of freedom, (|c| / sqrt n) / (sqrt(rss - |c|^2) / sqrt(m - n)) <= tolerance.
 * It measures how far b is from the minimum in units of its own statistical uncertainty, whatever the scale of b and of the data. Data that
 * the model fits exactly have no uncertainty: there, |c| at the level of rounding is enough.
 */
lm_outcome lm_minimise(const lm_problem *problem, const lm_options *options, double *b, lm_result *result);

/* sd_k = sqrt(rss / (m - n) [(J'J)^-1]_kk), J'J = R'R. Needs m > n and an R that is not singular. */
void lm_standard_deviations(const lm_problem *problem, const lm_linearisation *at_b, double *sd);

#endif
