/*
 * Fit a formula to a table of measurements whose rows are divided over the ranks: see options.c for the usage.
 *
 * Every rank runs the same program on its own rows. What they decide on has the same bits everywhere (least_squares.h), so they decide alike; rank 0
 * reads the file, and prints.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "least_squares.h"
#include "options.h"

enum { CONVERGED = 0, NOT_CONVERGED = 1, BAD_INPUT = 2, LIBRARY_ERROR = 3 };

/* What the functions below share. */
typedef struct fit {
    aj_ctx *ctx;
    aj_comm *comm;
    bool speaks; /* rank 0 */
    options options;
    least_squares squares;
    double lap; /* when the iteration began */
} fit;

static int bad_input(const fit *f, const fit_message *message) {
    if (f->speaks)
        fprintf(stderr, "fit: %s\n", message->text);
    return BAD_INPUT;
}

static int library_error(const fit *f) {
    if (f->speaks)
        fprintf(stderr, "fit: %s\n", aj_ctx_error(f->ctx));
    return LIBRARY_ERROR;
}

/* Every parameter of the formula needs a start value, and every start value a parameter. */
static bool check_starts(const options *o, const formula *model, fit_message *message) {
    bool any = false;
    for (int slot = 0; slot < FORMULA_MAX_PARAMETERS; slot++) {
        bool used = formula_uses(model, slot);
        any = any || used;
        if (used && !o->has_start[slot])
            return fit_fail(message,
                            "no start value for b%d; expected one for each parameter of the formula, as in --start b%d=1",
                            slot + 1, slot + 1);
        if (!used && o->has_start[slot])
            return fit_fail(
                message,
                "a start value for b%d, which formula '%.200s' does not contain; expected values for its parameters only",
                slot + 1, o->model);
    }
    return any ||
           fit_fail(message, "formula '%.200s' has nothing to fit; expected at least one of the parameters b1 ... b9", o->model);
}

/* Rank 0 reads and checks the table; every rank returns its number of rows, 0 when it is no good (the message is rank 0's), -1 on an error of the library. */
static int64_t read_table(const fit *f, const formula *model, table *t, fit_message *message) {
    int n = 0;
    for (int slot = 0; slot < FORMULA_MAX_PARAMETERS; slot++)
        n += formula_uses(model, slot);
    *t = (table){0, NULL, NULL};
    if (f->speaks && table_read(t, f->options.file, message) && t->rows < n) {
        fit_fail(message, "%.400s: %lld rows for %d parameters; expected at least as many rows as parameters", f->options.file,
                 (long long)t->rows, n);
        table_free(t);
    }
    aj_scope *scope = aj_scope_begin(f->ctx);
    double rows = aj_item(aj_bcast(aj_scalar(f->ctx, AJ_F64, (double)t->rows), 0, f->comm));
    return aj_scope_end(scope) == AJ_OK ? (int64_t)rows : -1;
}

/* The adjoint gradient of rss at the start against central differences, whose step balances truncation against rounding. */
static bool print_gradcheck(fit *f, const double *b) {
    least_squares *ls = &f->squares;
    double adjoint[LM_MAX_PARAMETERS], moved[LM_MAX_PARAMETERS];
    if (!least_squares_gradient(ls, b, adjoint))
        return false;
    for (int k = 0; k < ls->n; k++) {
        double h = 6e-6 * (b[k] != 0 ? fabs(b[k]) : 1), above, below;
        for (int i = 0; i < ls->n; i++)
            moved[i] = b[i];
        moved[k] = b[k] + h;
        if (!least_squares_rss(ls, moved, &above))
            return false;
        double width = moved[k];
        moved[k] = b[k] - h;
        width -= moved[k];
        if (!least_squares_rss(ls, moved, &below))
            return false;
        double differences = (above - below) / width, larger = fmax(fabs(adjoint[k]), fabs(differences));
        if (f->speaks)
            printf("gradcheck b%d: adjoint = %.10E, differences = %.10E, relative difference = %.1E\n", ls->slot[k] + 1,
                   adjoint[k], differences, larger > 0 ? fabs(adjoint[k] - differences) / larger : 0);
    }
    return true;
}

static void print_progress(void *user, const lm_progress *p) {
    fit *f = user;
    double now = MPI_Wtime();
    if (f->speaks) {
        if (p->iteration == 0)
            printf("iteration  residual sum of squares  gradient norm  damping  seconds\n");
        printf("%9d  %23.10E  %13.4E  %7.1E  %7.4f\n", p->iteration, p->rss, p->gradient, p->damping, now - f->lap);
        fflush(stdout);
    }
    f->lap = now;
}

static void print_result(const fit *f, const lm_problem *problem, const lm_linearisation *at_b, const double *b, bool has_sd) {
    double sd[LM_MAX_PARAMETERS];
    has_sd = has_sd && problem->m > problem->n;
    if (has_sd)
        lm_standard_deviations(problem, at_b, sd);
    for (int k = 0; k < problem->n; k++)
        if (has_sd)
            printf("b%d = %.10E +- %.10E\n", f->squares.slot[k] + 1, b[k], sd[k]);
        else
            printf("b%d = %.10E +- undefined\n", f->squares.slot[k] + 1, b[k]);
    printf("rss = %.10E\n", at_b->rss);
    fflush(stdout);
}

/* The functions of the problem. */
static bool rss(void *user, const double *b, double *value) {
    return least_squares_rss(&((fit *)user)->squares, b, value);
}
static bool linearise(void *user, const double *b, lm_linearisation *at_b) {
    return least_squares_linearise(&((fit *)user)->squares, b, at_b);
}

static int minimise(fit *f) {
    static const char *const reasons[] = {
        [LM_MAX_ITERATIONS] = "the iterations were used up; --max-iterations allows more",
        [LM_STALLED] = "no step makes the residual sum of squares smaller; try other start values or a larger --tolerance",
        [LM_SINGULAR] = "the data do not determine all parameters; the formula has too many, or the start is too far off"};
    least_squares *ls = &f->squares;
    double b[LM_MAX_PARAMETERS];
    for (int k = 0; k < ls->n; k++)
        b[k] = f->options.start[ls->slot[k]];
    if (f->options.gradcheck && !print_gradcheck(f, b))
        return library_error(f);
    lm_problem problem = {.n = ls->n,
                          .m = ls->m,
                          .measured = ls->measured,
                          .user = f,
                          .rss = rss,
                          .linearise = linearise,
                          .report = print_progress};
    lm_result result;
    f->lap = MPI_Wtime();
    lm_outcome outcome = lm_minimise(&problem, &(lm_options){f->options.max_iterations, f->options.tolerance}, b, &result);
    if (outcome == LM_FAILED)
        return library_error(f);
    if (outcome == LM_NOT_FINITE) {
        fit_message message;
        fit_fail(&message,
                 "the formula or its derivative is not finite at the start values, in some row; expected a start where it is");
        return bad_input(f, &message);
    }
    if (f->speaks) {
        print_result(f, &problem, &result.at_b, b, outcome != LM_SINGULAR);
        if (outcome != LM_CONVERGED)
            fprintf(stderr, "fit: not converged after %d iterations: %s\n", result.iterations, reasons[outcome]);
    }
    return outcome == LM_CONVERGED ? CONVERGED : NOT_CONVERGED;
}

static int fit_table(fit *f, const formula *model) {
    fit_message message = {""};
    table t;
    int64_t rows = read_table(f, model, &t, &message);
    if (rows == 0)
        return bad_input(f, &message);
    int status = rows > 0 && least_squares_begin(&f->squares, f->comm, model, rows, &t) ? minimise(f) : library_error(f);
    table_free(&t);
    least_squares_end(&f->squares);
    return status;
}

static int fit_formula(fit *f) {
    fit_message message;
    formula *model = formula_parse(f->options.model, &message);
    bool good = model && check_starts(&f->options, model, &message);
    int status = good ? fit_table(f, model) : bad_input(f, &message);
    formula_free(model);
    return status;
}

static int run(fit *f, int argc, char **argv) {
    fit_message message;
    if (!options_parse(&f->options, argc, argv, &message))
        return bad_input(f, &message);
    if (f->options.help) {
        if (f->speaks)
            fputs(options_usage, stdout);
        return CONVERGED;
    }
    return fit_formula(f);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    fit f = {NULL};
    if (aj_ctx_create(&f.ctx, NULL) != AJ_OK) {
        fprintf(stderr, "fit: not enough memory to begin\n");
        MPI_Abort(MPI_COMM_WORLD, LIBRARY_ERROR);
    }
    f.comm = aj_comm_create(f.ctx, MPI_COMM_WORLD);
    f.speaks = aj_comm_rank(f.comm) == 0;
    int status = run(&f, argc, argv);
    aj_comm_destroy(&f.comm);
    if (aj_ctx_destroy(&f.ctx) != AJ_OK && status == CONVERGED)
        status = LIBRARY_ERROR;
    MPI_Finalize();
    return status;
}
