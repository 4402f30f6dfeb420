/*
 * The examples, as a user runs them: launched by mpiexec, judged by their output and exit status. Certified values: NIST, Statistical Reference
 * Datasets, nonlinear regression (Misra1a, Thurber, BoxBOD, MGH10, Lanczos1).
 */
#include "harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_PARAMETERS = 9, MAX_TEXT = 4096, MAX_PATH = 1024 };

/* A file in the folder of the built examples, which lies beside that of the built tests. */
static const char *example_path(char path[MAX_PATH], const char *name) {
    snprintf(path, MAX_PATH, "%s/../examples/%s", getenv("ADJOIN_TEST_DIR") ? getenv("ADJOIN_TEST_DIR") : ".", name);
    return path;
}
#define IN_EXAMPLES(name) example_path((char[MAX_PATH]){""}, name) /* valid to the end of the block */

/* mpiexec -n ranks fit args... */
static run_result run_fit(int ranks, const char *const *args) {
    return run_ranks(ranks, 120, IN_EXAMPLES("fit"), args);
}

/* A table in a file of its own, which remove_table deletes. */
static char *write_table(const char *text, size_t length) {
    char *path = strdup("/tmp/adjoin_fit_XXXXXX");
    int file = mkstemp(path);
    cr_assert(file >= 0 && write(file, text, length) == (ssize_t)length, "cannot write %s", path);
    close(file);
    return path;
}

static void remove_table(char *path) {
    unlink(path);
    free(path);
}

/* ---- what fit prints ---- */

typedef struct fitted {
    int n, iterations;
    double b[MAX_PARAMETERS], sd[MAX_PARAMETERS], rss;
} fitted;

static int count(const char *text, const char *part) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part))
        n++;
    return n;
}

/* Read the results off an output: "b1 = 1.0E+00 +- 1.0E-01" (sd NaN where undefined), "rss = ...", and the number of the last iteration. */
static fitted read_output(const char *output) {
    fitted f = {.iterations = -1, .rss = NAN};
    for (const char *line = output; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        int index, iteration;
        double value, gradient, damping, seconds;
        char sd[64];
        if (sscanf(line, "b%d = %lf +- %63s", &index, &value, sd) == 3 && index >= 1 && index <= MAX_PARAMETERS) {
            f.b[index - 1] = value;
            f.sd[index - 1] = strcmp(sd, "undefined") == 0 ? NAN : atof(sd);
            f.n++;
        } else if (strncmp(line, "rss = ", 6) == 0) {
            f.rss = atof(line + 6);
        } else if (sscanf(line, " %d %lf %lf %lf %lf", &iteration, &value, &gradient, &damping, &seconds) == 5) {
            cr_assert_eq(iteration, f.iterations + 1, "iteration %d after %d in:\n%s", iteration, f.iterations, output);
            f.iterations = iteration;
        }
    }
    return f;
}

#define assert_close(got, wanted, tolerance, what)                                                                               \
    cr_assert(fabs((got) - (wanted)) <= (tolerance)*fabs(wanted), "%s is %.10E, expected %.10E (relative tolerance %.0e)", what, \
              got, wanted, tolerance)

/* ---- certified values ---- */

typedef struct certified {
    const char *model;
    const char *start[2];
    int n;
    double b[MAX_PARAMETERS], sd[MAX_PARAMETERS], rss;
} certified;

static const certified misra1a = {
    "b1*(1-exp(-b2*x))",
    {"b1=500,b2=1e-4", "b1=250,b2=5e-4"},
    2,
    {2.3894212918E+02, 5.5015643181E-04},
    {2.7070075241E+00, 7.2668688436E-06},
    1.2455138894E-01,
};
static const certified thurber = {
    "(b1+b2*x+b3*x^2+b4*x^3)/(1+b5*x+b6*x^2+b7*x^3)",
    {"b1=1000,b2=1000,b3=400,b4=40,b5=0.7,b6=0.3,b7=0.03", "b1=1300,b2=1500,b3=500,b4=75,b5=1,b6=0.4,b7=0.05"},
    7,
    {1.2881396800E+03, 1.4910792535E+03, 5.8323836877E+02, 7.5416644291E+01, 9.6629502864E-01, 3.9797285797E-01,
     4.9727297349E-02},
    {4.6647963344E+00, 3.9571156086E+01, 2.8698696102E+01, 5.5675370270E+00, 3.1333340687E-02, 1.4984928198E-02,
     6.5842344623E-03},
    5.6427082397E+03,
};
static const certified boxbod = {
    "b1*(1-exp(-b2*x))",
    {"b1=1,b2=1", "b1=100,b2=0.75"},
    2,
    {2.1380940889E+02, 5.4723748542E-01},
    {1.2354515176E+01, 1.0455993237E-01},
    1.1680088766E+03,
};
static const char boxbod_table[] = "1,109\n2,149\n3,149\n5,191\n7,213\n10,224\n";
static const certified mgh10 = {
    "b1*exp(b2/(x+b3))",
    {"b1=2,b2=400000,b3=25000", "b1=0.02,b2=4000,b3=250"},
    3,
    {5.6096364710E-03, 6.1813463463E+03, 3.4522363462E+02},
    {1.5687892471E-04, 2.3309021107E+01, 7.8486103508E-01},
    8.7945855171E+01,
};
static const char mgh10_table[] =
    "50,34780\n55,28610\n60,23650\n65,19630\n70,16370\n75,13720\n80,11540\n85,9744\n90,8261\n95,7030\n"
    "100,6005\n105,5147\n110,4427\n115,3820\n120,3307\n125,2872\n";

/* Six digits of each parameter and four of each standard deviation. Returns the number of iterations. */
static int check_certified(const certified *c, const char *start, int ranks, const char *table) {
    run_result run = run_fit(ranks, (const char *const[]){"--model", c->model, "--start", start, table, NULL});
    assert_ran(run);
    fitted f = read_output(run.output);
    cr_assert_eq(f.n, c->n, "%d results on %d ranks:\n%s", f.n, ranks, run.output);
    for (int k = 0; k < c->n; k++) {
        char what[64];
        snprintf(what, sizeof what, "b%d on %d ranks", k + 1, ranks);
        assert_close(f.b[k], c->b[k], 5e-7, what);
        snprintf(what, sizeof what, "standard deviation of b%d on %d ranks", k + 1, ranks);
        assert_close(f.sd[k], c->sd[k], 5e-5, what);
    }
    assert_close(f.rss, c->rss, 1e-9, "rss");
    run_free(&run);
    return f.iterations;
}

/* The same result, after the same number of iterations, on every number of ranks. */
static void check_on_ranks(const certified *c, const char *start, const char *table) {
    static const int ranks[] = {1, 2, 3, 4, 7};
    int iterations = check_certified(c, start, ranks[0], table);
    cr_assert_gt(iterations, 0);
    for (size_t i = 1; i < sizeof ranks / sizeof ranks[0]; i++) {
        int these = check_certified(c, start, ranks[i], table);
        cr_assert_eq(these, iterations, "%d iterations on %d ranks, %d on one", these, ranks[i], iterations);
    }
}

Test(fit, misra1a_start_1) {
    check_on_ranks(&misra1a, misra1a.start[0], IN_EXAMPLES("misra1a.csv"));
}
Test(fit, misra1a_start_2) {
    check_on_ranks(&misra1a, misra1a.start[1], IN_EXAMPLES("misra1a.csv"));
}
Test(fit, thurber_start_1) {
    check_on_ranks(&thurber, thurber.start[0], IN_EXAMPLES("thurber.csv"));
}
Test(fit, thurber_start_2) {
    check_on_ranks(&thurber, thurber.start[1], IN_EXAMPLES("thurber.csv"));
}

/* From far away and along curved valleys; and with 7 ranks for the 6 rows of BoxBOD, of which one has none. */
Test(fit, boxbod) {
    char *table = write_table(boxbod_table, sizeof boxbod_table - 1);
    check_on_ranks(&boxbod, boxbod.start[0], table);
    check_on_ranks(&boxbod, boxbod.start[1], table);
    remove_table(table);
}
Test(fit, mgh10) {
    char *table = write_table(mgh10_table, sizeof mgh10_table - 1);
    check_certified(&mgh10, mgh10.start[0], 2, table);
    check_certified(&mgh10, mgh10.start[1], 2, table);
    remove_table(table);
}

/* Data that the model fits to the last digit or so must end the iteration, too: Lanczos1, whose certified rss is 1.4E-25. */
Test(fit, exact_data) {
    char text[MAX_TEXT];
    int length = 0;
    for (int i = 0; i < 24; i++) {
        double x = 0.05 * i, y = 0.0951 * exp(-x) + 0.8607 * exp(-3 * x) + 1.5576 * exp(-5 * x);
        length += snprintf(text + length, sizeof text - (size_t)length, "%.2f,%.12e\n", x, y);
    }
    char *table = write_table(text, (size_t)length);
    run_result run = run_fit(2, (const char *const[]){"--model", "b1*exp(-b2*x)+b3*exp(-b4*x)+b5*exp(-b6*x)", "--start",
                                                      "b1=0.5,b2=0.7,b3=3.6,b4=4.2,b5=4,b6=6.3", table, NULL});
    assert_ran(run);
    fitted f = read_output(run.output);
    static const double wanted[] = {0.0951, 1, 0.8607, 3, 1.5576, 5};
    for (int k = 0; k < 6; k++)
        assert_close(f.b[k], wanted[k], 1e-8, "parameter");
    cr_assert_lt(f.rss, 1e-23);
    run_free(&run);
    remove_table(table);
}

/* ---- tables ---- */

/* y = 1 + 2 x, but for 0.5 at the second row, in a text of any form. */
static void check_line(const char *text, size_t length, int ranks) {
    char *table = write_table(text, length);
    run_result run = run_fit(ranks, (const char *const[]){"--model=b1 + b2*x", "--start=b1=0, b2=0", table, NULL});
    assert_ran(run);
    fitted f = read_output(run.output);
    cr_assert_eq(f.n, 2);
    assert_close(f.b[0], 1.25, 1e-9, "b1");
    assert_close(f.b[1], 1.95, 1e-9, "b2");
    assert_close(f.rss, 0.175, 1e-9, "rss");
    assert_close(f.sd[0], sqrt(0.13125), 1e-9, "standard deviation of b1");
    run_free(&run);
    remove_table(table);
}

#define LINE_TEST(name, ranks, text)                                                                                             \
    Test(fit, name) {                                                                                                            \
        check_line(text, sizeof(text) - 1, ranks);                                                                               \
    }
LINE_TEST(plain_table, 2, "1,3\n2,5.5\n3,7\n4,9\n")
LINE_TEST(header_and_comments, 2, "# made up\nx,y\n# the rows\n\n1,3\n2,5.5\n  # between\n3,7\n4,9\n")
LINE_TEST(crlf, 2, "# made up\r\nx,y\r\n\r\n1,3\r\n2,5.5\r\n3,7\r\n4,9\r\n")
LINE_TEST(byte_order_mark, 1, "\xEF\xBB\xBFx,y\n1,3\n2,5.5\n3,7\n4,9\n")
LINE_TEST(no_last_newline, 1, "1,3\n2,5.5\n3,7\n4,9")
LINE_TEST(semicolons_tabs_blanks, 1, "1;3\n2\t5.5\n 3   7 \n4 , 9\n")
LINE_TEST(more_ranks_than_rows, 7, "1,3\n2,5.5\n3,7\n4,9\n")

/* ---- formulas: b1 times a constant, to be fitted to one row whose y is the constant's value ---- */

typedef struct value_case {
    const char *formula;
    double value;
} value_case;

static const value_case values[] = {
    {"-2^2", -4},
    {"2^3^2", 512},
    {"2^-3", 0.125},
    {"-x^2", -9},
    {"(-x)^2", 9},
    {"2*-x", -6},
    {"--x", 3},
    {"+x", 3},
    {"8/2/2*3-1-2", 3},
    {"1.5e1+.5+2.", 17.5},
    {"pow(x,2)+pow(2,x)", 17},
    {"(x-5)^3", -8},
    {"exp(log(x))+sqrt(x+1)", 5},
    {"sin(pi/6)+cos(pi*x)", -0.5},
    {"tan(pi/4)+atan(1)*4/pi+tanh(0)", 2},
    {" ( ( x ) ) ", 3},
    {"1-(x-(2-x))", -3},
};

ParameterizedTestParameters(fit, formula_value) {
    static int indices[sizeof values / sizeof values[0]];
    size_t n = sizeof values / sizeof values[0];
    for (size_t i = 0; i < n; i++)
        indices[i] = (int)i;
    return cr_make_param_array(int, indices, n, NULL);
}

ParameterizedTest(int *index, fit, formula_value) {
    const value_case *c = &values[*index];
    char model[128], row[64];
    snprintf(model, sizeof model, "b1*(%s)", c->formula);
    int length = snprintf(row, sizeof row, "3,%.17g\n", c->value);
    char *table = write_table(row, (size_t)length);
    run_result run = run_fit(1, (const char *const[]){"--model", model, "--start", "b1=1.5", table, NULL});
    assert_ran(run);
    fitted f = read_output(run.output);
    assert_close(f.b[0], 1.0, 1e-9, c->formula);
    cr_assert(isnan(f.sd[0]), "one row and one parameter leave no standard deviation:\n%s", run.output);
    run_free(&run);
    remove_table(table);
}

/* ---- bad input ---- */

typedef struct bad_case {
    const char *table;   /* a file's content; NULL: no file is written */
    const char *args[8]; /* "TABLE" stands for its name */
    const char *message; /* part of it */
} bad_case;

#define LINE "--model", "b1+b2*x", "--start", "b1=1,b2=1", "TABLE"
#define MODEL(text) "--model", text, "--start", "b1=1", "TABLE"
#define START(text) "--model", "b1+b2*x", "--start", text, "TABLE"
static const char good_table[] = "1,3\n2,5.5\n3,7\n4,9\n";
static const bad_case bad_cases[] = {
    {NULL, {"--model", "b1*x", "--start", "b1=1", "/nonexistent/table.csv"}, "/nonexistent/table.csv: No such file or directory"},
    {NULL, {"--model", "b1*x", "--start", "b1=1", "/tmp"}, "/tmp: Is a directory"},
    {"", {LINE}, "no rows"},
    {"# nothing\nx,y\n", {LINE}, "no rows"},
    {"x,y\n1,3\n2,abc\n", {LINE}, ":3: 'abc' where a number belongs"},
    {"1,3\nx,y\n", {LINE}, ":2: 'x' where a number belongs"},
    {"1,3\n2,5 6\n", {LINE}, ":2: '5 6' where a number belongs"},
    {"1,3\n2,\n", {LINE}, ":2: '' where a number belongs"},
    {"1,3\n2\n", {LINE}, ":2: only one column"},
    {"1,3\n2,3,4\n", {LINE}, ":2: more than two columns"},
    {"1,3\n2,nan\n", {LINE}, ":2: 'nan' is not a finite number"},
    {"1,3\ninf,1\n", {LINE}, ":2: 'inf' is not a finite number"},
    {"1,3\n1e999,1\n", {LINE}, ":2: '1e999' is not a finite number"},
    {"1,3\n", {LINE}, "1 rows for 2 parameters"},
    {good_table, {MODEL("b1*foo")}, "unknown name 'foo' at character 4"},
    {good_table, {MODEL("b1*b0")}, "unknown name 'b0'"},
    {good_table, {MODEL("b1*b10")}, "unknown name 'b10'"},
    {good_table, {MODEL("b1*(x+1")}, "it ends where the ')' for the '(' at character 4 was expected"},
    {good_table, {MODEL("b1*x)")}, "')' at character 5 where an operator or the end was expected"},
    {good_table, {MODEL("b1*")}, "it ends where a number, a name or '(' was expected"},
    {good_table, {MODEL("b1**x")}, "'*' at character 4"},
    {good_table, {MODEL("b1 x")}, "'x' at character 4"},
    {good_table, {MODEL("b1*1.2.3")}, "'.' at character 7"},
    {good_table, {MODEL("b1*1e400")}, "too large for a double"},
    {good_table, {MODEL("b1*sin x")}, "'x' at character 8 where the '(' of a function's argument was expected"},
    {good_table, {MODEL("pow(b1)")}, "the ',' before the second argument of pow"},
    {good_table, {MODEL("sin(b1,2)")}, "',' at character 7"},
    {good_table, {MODEL("")}, "it ends where a number"},
    {good_table, {"--model", "2*x", "TABLE"}, "has nothing to fit"},
    {good_table, {START("b1=1,b2=abc")}, "'abc' where a finite number for b2 was expected"},
    {good_table, {START("b1=1,b2=")}, "'' where a finite number for b2 was expected"},
    {good_table, {START("b1=1,b2=inf")}, "'inf' where a finite number for b2 was expected"},
    {good_table, {START("b1=1,b2=2x")}, "'2x' where a finite number for b2 was expected"},
    {good_table, {START("b1=1")}, "no start value for b2"},
    {good_table, {START("b1=1,b2=1,b3=1")}, "a start value for b3"},
    {good_table, {START("b1=1,b1=2")}, "two values for b1"},
    {good_table, {START("b1=1,c2=2")}, "'c2=2' where b1=VALUE"},
    {good_table, {"--model", "b1*x", "TABLE"}, "no start value for b1"},
    {good_table, {"--start", "b1=1", "TABLE"}, "no --model"},
    {good_table, {"--model", "log(b1)*x", "--start", "b1=-1", "TABLE"}, "not finite at the start values"},
    {NULL, {"--model", "b1*x", "--start", "b1=1"}, "0 files; expected one"},
    {NULL, {"--model", "b1*x", "--start", "b1=1", "a", "b"}, "2 files; expected one"},
    {good_table, {"--bogus", LINE}, "unknown option --bogus"},
    {good_table, {LINE, "--max-iterations", "0"}, "--max-iterations: '0'"},
    {good_table, {LINE, "--max-iterations", "many"}, "--max-iterations: 'many'"},
    {good_table, {LINE, "--tolerance", "-1"}, "--tolerance: '-1'"},
    {good_table, {LINE, "--tolerance"}, "option --tolerance without its value"},
};

ParameterizedTestParameters(fit, bad_input) {
    static int indices[sizeof bad_cases / sizeof bad_cases[0]];
    size_t n = sizeof bad_cases / sizeof bad_cases[0];
    for (size_t i = 0; i < n; i++)
        indices[i] = (int)i;
    return cr_make_param_array(int, indices, n, NULL);
}

/* Exit status 2 on two ranks, and one message. */
ParameterizedTest(int *index, fit, bad_input) {
    const bad_case *c = &bad_cases[*index];
    char *table = c->table ? write_table(c->table, strlen(c->table)) : NULL;
    const char *args[10] = {NULL};
    for (int i = 0; i < 8 && c->args[i]; i++)
        args[i] = table && strcmp(c->args[i], "TABLE") == 0 ? table : c->args[i];
    run_result run = run_fit(2, args);
    assert_status(run, 2);
    cr_assert(strstr(run.output, c->message), "no \"%s\" in:\n%s", c->message, run.output);
    cr_assert_eq(count(run.output, "fit: "), 1, "not one message:\n%s", run.output);
    cr_assert(strstr(run.output, "expected") || strstr(run.output, "see fit --help"), "nothing is said of what was expected:\n%s",
              run.output);
    run_free(&run);
    if (table)
        remove_table(table);
}

Test(fit, zero_byte) {
    static const char text[] = "1,3\n2,\0005\n";
    char *table = write_table(text, sizeof text - 1);
    run_result run = run_fit(2, (const char *const[]){"--model", "b1*x", "--start", "b1=1", table, NULL});
    assert_status(run, 2);
    cr_assert(strstr(run.output, ":2: a zero byte"), "%s", run.output);
    run_free(&run);
    remove_table(table);
}

Test(fit, deep_nesting) {
    char model[MAX_TEXT] = "";
    memset(model, '(', 1000);
    strcpy(model + 1000, "b1");
    run_result run = run_fit(2, (const char *const[]){"--model", model, "--start", "b1=1", IN_EXAMPLES("misra1a.csv"), NULL});
    assert_status(run, 2);
    cr_assert(strstr(run.output, "levels deep"), "%s", run.output);
    run_free(&run);
}

/* ---- no convergence: exit status 1, with the best found ---- */

Test(fit, too_few_iterations) {
    run_result run = run_fit(2, (const char *const[]){"--model", misra1a.model, "--start", misra1a.start[0], "--max-iterations",
                                                      "3", IN_EXAMPLES("misra1a.csv"), NULL});
    assert_status(run, 1);
    fitted f = read_output(run.output);
    cr_assert_eq(f.iterations, 3);
    cr_assert(f.n == 2 && f.rss > misra1a.rss && f.rss < 1e4, "%s", run.output);
    cr_assert_eq(count(run.output, "not converged after 3 iterations"), 1, "%s", run.output);
    run_free(&run);
}

/* Only the product of the two parameters matters: the smallest rss is found, and that there is not one solution is said. */
Test(fit, undetermined_parameters) {
    char *table = write_table(good_table, sizeof good_table - 1);
    run_result run = run_fit(2, (const char *const[]){"--model", "b1*b2*x", "--start", "b1=1,b2=1", table, NULL});
    assert_status(run, 1);
    fitted f = read_output(run.output);
    assert_close(f.b[0] * f.b[1], 71.0 / 30, 1e-8, "b1 b2");
    cr_assert(isnan(f.sd[0]) && isnan(f.sd[1]), "%s", run.output);
    cr_assert_eq(count(run.output, "do not determine all parameters"), 1, "%s", run.output);
    run_free(&run);
    remove_table(table);
}

/* ---- options ---- */

/* The adjoint agrees with the differences for every parameter, and the fit follows. */
Test(fit, gradcheck) {
    run_result run = run_fit(3, (const char *const[]){"--gradcheck", "--model", thurber.model, "--start", thurber.start[0],
                                                      IN_EXAMPLES("thurber.csv"), NULL});
    assert_ran(run);
    int found = 0;
    const char *at = run.output;
    while ((at = strstr(at, "gradcheck b"))) {
        int index;
        double adjoint, differences, relative;
        cr_assert_eq(sscanf(at, "gradcheck b%d: adjoint = %lf, differences = %lf, relative difference = %lf", &index, &adjoint,
                            &differences, &relative),
                     4, "%s", run.output);
        cr_assert_eq(index, ++found);
        assert_close(adjoint, differences, 1e-7, "adjoint");
        cr_assert(adjoint != 0 && relative < 1e-7, "%s", run.output);
        at++;
    }
    cr_assert_eq(found, thurber.n, "%s", run.output);
    assert_close(read_output(run.output).rss, thurber.rss, 1e-9, "rss");
    run_free(&run);
}

Test(fit, help) {
    run_result run = run_fit(2, (const char *const[]){"--help", NULL});
    assert_ran(run);
    cr_assert_eq(count(run.output, "Usage:"), 1, "%s", run.output);
    run_free(&run);
}

/* ---- quickstart ---- */

static double last_loss(int ranks) {
    run_result run = run_ranks(ranks, 60, IN_EXAMPLES("quickstart"), NULL);
    assert_ran(run);
    const char *line = strstr(run.output, "step 100  loss ");
    cr_assert(line && count(run.output, "loss") == 10, "%s", run.output);
    double loss = atof(line + strlen("step 100  loss "));
    run_free(&run);
    return loss;
}

/* On two ranks p is twice w and so is its gradient: descent begins higher up, and is faster. */
Test(quickstart, loss) {
    double one = last_loss(1), two = last_loss(2);
    cr_assert(one > 0 && one < 10 && two > 0 && two < one, "losses %g on one rank, %g on two", one, two);
}
