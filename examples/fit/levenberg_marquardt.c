#include "levenberg_marquardt.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* The fraction of the predicted decrease of rss that a step must bring (Moré, algorithm 7.1). */
static const double least_gain = 1e-4;
/* The first region of trust, relative to the start (Moré suggests 0.1 to 100). */
static const double first_radius = 1;
/* How well a step's length must match the region's radius (Moré, section 5). */
static const double radius_tolerance = 0.1;
/* Relative to rss: changes smaller than this drown in the rounding of its sum. */
static const double rss_noise = 1e-11;
/* The sine of the angle between a column of J and the others, below which they count as dependent. */
static const double dependent = 1e-13;

/* Where the linear model is trusted: |scale step| <= radius, with the damping of the last step as a first guess of the next one's. */
typedef struct trust {
    double radius, damping;
    double scale[LM_MAX_PARAMETERS];
} trust;

/*
 * r and J at b. Where a column of J depends on those before it, what is left of it, and so its direction in Q, is rounding: r has no component there
 * that a step could remove.
 */
static bool linearise(const lm_problem *p, const double *b, lm_linearisation *l) {
    if (!p->linearise(p->user, b, l))
        return false;
    for (int k = 0; l->finite && k < p->n; k++)
        if (l->R[k * p->n + k] <= dependent * dense_column_norm(p->n, l->R, k))
            l->c[k] = 0;
    return true;
}

/* The gradient of rss: 2 J'r = 2 R'c. */
static double gradient_norm(int n, const lm_linearisation *l) {
    double g[LM_MAX_PARAMETERS];
    dense_apply_transposed(n, l->R, l->c, g);
    return 2 * dense_norm(n, g);
}

/*
 * Is b not determined? Either J's columns are linearly dependent to working precision (row k of R^-1 is as long as 1 / the distance of column k from
 * the span of the others), or the model does not feel a parameter: b ran off to where the data say nothing.
 */
static bool is_singular(const lm_problem *p, const double *b, const lm_linearisation *l) {
    int n = p->n;
    double inverse[LM_MAX_PARAMETERS * LM_MAX_PARAMETERS];
    dense_invert_upper(n, l->R, inverse);
    for (int k = 0; k < n; k++) {
        double length = dense_column_norm(n, l->R, k);
        bool unfelt = b[k] != 0 && length * fabs(b[k]) <= DBL_EPSILON * p->measured;
        if (unfelt || !(dense_norm(n, inverse + k * n) * length < 1 / dependent))
            return true;
    }
    return false;
}

/* How much of |c| is rounding: of the data, and of the parameters, whose last bit moves the model by eps |b_k| |J_k|. */
static double rounding_level(const lm_problem *p, const double *b, const lm_linearisation *l) {
    double size = p->measured;
    for (int k = 0; k < p->n; k++)
        size += fabs(b[k]) * dense_column_norm(p->n, l->R, k);
    return 4 * DBL_EPSILON * size;
}

static bool is_stationary(const lm_problem *p, double tolerance, const double *b, const lm_linearisation *l) {
    double in_span = dense_norm(p->n, l->c), outside = sqrt(fmax(0, l->rss - in_span * in_span));
    double freedom = (double)p->m - p->n;
    if (in_span <= rounding_level(p, b, l))
        return true;
    return freedom > 0 && in_span / sqrt(p->n) <= tolerance * outside / sqrt(freedom);
}

static double scaled_norm(int n, const double *scale, const double *v) {
    double scaled[LM_MAX_PARAMETERS];
    for (int k = 0; k < n; k++)
        scaled[k] = scale[k] * v[k];
    return dense_norm(n, scaled);
}

/* The scale of a parameter is the longest that its column of J has been (Moré, equation 6.3); a zero column must not leave it without damping. */
static void grow_scale(int n, const lm_linearisation *l, double *scale) {
    for (int k = 0; k < n; k++) {
        scale[k] = fmax(scale[k], dense_column_norm(n, l->R, k));
        if (scale[k] == 0)
            scale[k] = 1;
    }
}

/* The step for a damping: it minimises |R step + c|^2 + damping |scale step|^2. Returns its scaled length; s: the damped triangle. */
static double damped_step(int n, const lm_linearisation *l, double damping, const double *scale, double *step, double *s) {
    double d[LM_MAX_PARAMETERS];
    dense_damp(n, l->R, l->c, damping, scale, s, d);
    dense_solve_upper(n, s, d, step);
    for (int k = 0; k < n; k++)
        step[k] = -step[k];
    return scaled_norm(n, scale, step);
}

/* By how much to change the damping for a step of the length `radius`: Newton's method on 1 / length - 1 / radius (Moré, equation 5.8). */
static double newton_correction(int n, const double *s, const double *scale, const double *step, double length, double radius) {
    double v[LM_MAX_PARAMETERS];
    for (int k = 0; k < n; k++)
        v[k] = scale[k] * scale[k] * step[k] / length;
    dense_solve_upper_transposed(n, s, v, v);
    double slope = dense_norm(n, v);
    return (length - radius) / (radius * slope * slope);
}

/*
 * The step within the region of trust: undamped if that is short enough, else with the damping that makes it as long as the radius, kept between
 * bounds that enclose the solution (Moré, algorithm 5.5). Returns its scaled length.
 */
static double trusted_step(int n, const lm_linearisation *l, trust *t, double *step) {
    enum { MAX_CORRECTIONS = 10 };
    double s[LM_MAX_PARAMETERS * LM_MAX_PARAMETERS], gradient[LM_MAX_PARAMETERS];
    double length = damped_step(n, l, 0, t->scale, step, s);
    if (length <= (1 + radius_tolerance) * t->radius) {
        t->damping = 0;
        return length;
    }
    dense_apply_transposed(n, l->R, l->c, gradient);
    for (int k = 0; k < n; k++)
        gradient[k] /= t->scale[k];
    double steepest = dense_norm(n, gradient), lowest = 0, highest = steepest / t->radius;
    double correction = newton_correction(n, s, t->scale, step, length, t->radius);
    if (isfinite(correction))
        lowest = correction;
    if (t->damping == 0)
        t->damping = isfinite(length) ? steepest / length : highest;
    t->damping = fmin(fmax(t->damping, lowest), highest);
    for (int i = 0; i < MAX_CORRECTIONS; i++) {
        length = damped_step(n, l, t->damping, t->scale, step, s);
        if (fabs(length - t->radius) <= radius_tolerance * t->radius)
            break;
        if (length > t->radius)
            lowest = fmax(lowest, t->damping);
        else
            highest = fmin(highest, t->damping);
        correction = newton_correction(n, s, t->scale, step, length, t->radius);
        t->damping = fmin(fmax(t->damping + correction, lowest), highest);
    }
    return length;
}

/* What a step promises and what it brings. */
typedef struct decrease {
    double slope;     /* of rss / 2 along the step, at its begin: negative */
    double predicted; /* by the linear model: |R step|^2 + 2 damping |scale step|^2 (Moré, equation 4.4) */
    double actual;    /* -inf where r is not finite */
    double gain;      /* actual / predicted */
} decrease;

static decrease predict(int n, const lm_linearisation *l, const trust *t, const double *step, double length) {
    double moved[LM_MAX_PARAMETERS];
    dense_apply(n, l->R, step, moved);
    double linear = dense_norm(n, moved), damped = t->damping * length * length;
    return (decrease){.slope = -(linear * linear + damped), .predicted = linear * linear + 2 * damped};
}

/* Compare with what came. Below the rounding of rss every step is as good as promised, if it does no visible harm. */
static void judge(decrease *d, const lm_problem *p, const double *b, const lm_linearisation *l, double rss) {
    double noise = rss_noise * l->rss + 2 * sqrt(l->rss) * rounding_level(p, b, l);
    d->actual = isfinite(rss) ? l->rss - rss : -INFINITY;
    d->gain = d->predicted <= noise && d->actual >= -noise ? 1 : d->actual / d->predicted;
}

/* The next region of trust (Moré, algorithm 7.1): smaller after a bad step, by where a parabola through what is known has its minimum, larger after a good one. */
static void adapt(trust *t, const decrease *d, double length) {
    if (d->gain <= 0.25) {
        double factor = d->actual >= 0 ? 0.5 : d->slope / (2 * d->slope + d->actual);
        factor = fmax(factor, 0.1);
        t->radius = factor * fmin(t->radius, 10 * length);
        t->damping /= factor;
    } else if (t->damping == 0 || d->gain >= 0.75) {
        t->radius = 2 * length;
        t->damping /= 2;
    }
}

static bool is_negligible(int n, const double *b, const double *step) {
    for (int k = 0; k < n; k++)
        if (fabs(step[k]) > DBL_EPSILON * fabs(b[k]))
            return false;
    return true;
}

/* One iteration: shrink the region until its step is good, then take it. LM_CONVERGED stands for "taken". */
static lm_outcome take_step(const lm_problem *p, trust *t, double *b, lm_linearisation *l, double *damping) {
    int n = p->n;
    for (;;) {
        double step[LM_MAX_PARAMETERS], trial[LM_MAX_PARAMETERS], rss;
        double length = trusted_step(n, l, t, step);
        *damping = t->damping;
        if (is_negligible(n, b, step) || !(length > 0 && t->radius > 0))
            return LM_STALLED;
        for (int k = 0; k < n; k++)
            trial[k] = b[k] + step[k];
        if (!p->rss(p->user, trial, &rss))
            return LM_FAILED;
        decrease d = predict(n, l, t, step, length);
        judge(&d, p, b, l, rss);
        lm_linearisation at_trial = {.finite = false};
        if (d.gain >= least_gain && !linearise(p, trial, &at_trial))
            return LM_FAILED;
        if (!at_trial.finite)
            d.gain = fmin(d.gain, 0);
        adapt(t, &d, length);
        if (at_trial.finite) {
            memcpy(b, trial, (size_t)n * sizeof *b);
            *l = at_trial;
            return LM_CONVERGED;
        }
    }
}

lm_outcome lm_minimise(const lm_problem *problem, const lm_options *options, double *b, lm_result *result) {
    int n = problem->n;
    lm_linearisation *l = &result->at_b;
    trust t = {.damping = 0};
    double damping = 0;
    result->iterations = 0;
    if (!linearise(problem, b, l))
        return LM_FAILED;
    if (!l->finite)
        return LM_NOT_FINITE;
    for (;; result->iterations++) {
        problem->report(problem->user, &(lm_progress){result->iterations, l->rss, gradient_norm(n, l), damping});
        if (is_stationary(problem, options->tolerance, b, l))
            return is_singular(problem, b, l) ? LM_SINGULAR : LM_CONVERGED;
        if (result->iterations == options->max_iterations)
            return LM_MAX_ITERATIONS;
        grow_scale(n, l, t.scale);
        if (result->iterations == 0) {
            double size = scaled_norm(n, t.scale, b);
            t.radius = first_radius * (size > 0 ? size : 1);
        }
        lm_outcome outcome = take_step(problem, &t, b, l, &damping);
        if (outcome != LM_CONVERGED)
            return outcome;
    }
}

void lm_standard_deviations(const lm_problem *problem, const lm_linearisation *at_b, double *sd) {
    int n = problem->n;
    double inverse[LM_MAX_PARAMETERS * LM_MAX_PARAMETERS];
    dense_invert_upper(n, at_b->R, inverse);
    for (int k = 0; k < n; k++)
        sd[k] = dense_norm(n, inverse + k * n) * sqrt(at_b->rss / ((double)problem->m - n));
}
