#include "options.h"

#include <ctype.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char options_usage[] =
    "Usage: mpiexec -n RANKS fit --model FORMULA --start b1=VALUE,b2=VALUE,... [OPTIONS] FILE\n"
    "\n"
    "Fit a formula to a table of measurements by the method of Levenberg and Marquardt; the rows are divided over the ranks.\n"
    "FILE has two numbers x,y per line. FORMULA is made of numbers, x, b1 ... b9, + - * / ^, parentheses, pi and\n"
    "exp log sqrt sin cos tan tanh atan pow: for example 'b1*(1-exp(-b2*x))'.\n"
    "\n"
    "  --model FORMULA      what y should be\n"
    "  --start VALUES       where to begin: a value for each parameter of the formula\n"
    "  --gradcheck          first compare the adjoint gradient with finite differences at the start\n"
    "  --max-iterations N   give up after N iterations (5000)\n"
    "  --tolerance T        converged when the distance from the minimum is below T standard deviations (1e-9)\n"
    "  --help               print this\n"
    "\n"
    "Exit status: 0 converged, 1 not converged (the best found is printed), 2 bad input, 3 an error of the library.\n";

/* One entry b<k>=<value> of --start. */
static bool parse_start_value(options *o, const char *entry, int length, fit_message *message) {
    static const char expected[] = "give a value for each parameter, as in --start b1=500,b2=1e-4";
    if (length < 3 || entry[0] != 'b' || entry[1] < '1' || entry[1] > '9' || entry[2] != '=')
        return fit_fail(message, "--start: '%.*s' where b1=VALUE ... b9=VALUE was expected; %s", length < 200 ? length : 200,
                        entry, expected);
    int slot = entry[1] - '1';
    const char *number = entry + 3;
    char *end;
    double value = strtod(number, &end);
    while (isspace((unsigned char)*end))
        end++;
    if (end == number || end != entry + length || !isfinite(value))
        return fit_fail(message, "--start: '%.*s' where a finite number for b%d was expected; %s",
                        length - 3 < 200 ? length - 3 : 200, number, slot + 1, expected);
    if (o->has_start[slot])
        return fit_fail(message, "--start: two values for b%d, expected one; %s", slot + 1, expected);
    o->start[slot] = value;
    o->has_start[slot] = true;
    return true;
}

static bool parse_start(options *o, const char *text, fit_message *message) {
    memset(o->has_start, 0, sizeof o->has_start); /* the last --start counts */
    for (;;) {
        while (isspace((unsigned char)*text))
            text++;
        int length = (int)strcspn(text, ",");
        if (!parse_start_value(o, text, length, message))
            return false;
        if (!text[length])
            return true;
        text += length + 1;
    }
}

static bool parse_max_iterations(options *o, const char *text, fit_message *message) {
    char *end;
    long value = strtol(text, &end, 10);
    if (end == text || *end || value < 1 || value > 1000000000)
        return fit_fail(message, "--max-iterations: '%.200s'; expected a whole number from 1 to 1000000000", text);
    o->max_iterations = (int)value;
    return true;
}

static bool parse_tolerance(options *o, const char *text, fit_message *message) {
    char *end;
    o->tolerance = strtod(text, &end);
    if (end == text || *end || !(o->tolerance > 0 && o->tolerance < 1))
        return fit_fail(message, "--tolerance: '%.200s'; expected a number between 0 and 1", text);
    return true;
}

static bool parse_option(options *o, int option, const char *argument, fit_message *message) {
    switch (option) {
    case 'm':
        o->model = argument;
        return true;
    case 's':
        return parse_start(o, argument, message);
    case 'i':
        return parse_max_iterations(o, argument, message);
    case 't':
        return parse_tolerance(o, argument, message);
    case 'g':
        return o->gradcheck = true;
    case 'h':
        return o->help = true;
    case ':':
        return fit_fail(message, "option %.200s without its value; see fit --help", argument);
    default:
        return fit_fail(message, "unknown option %.200s; see fit --help", argument);
    }
}

bool options_parse(options *o, int argc, char **argv, fit_message *message) {
    static const struct option known[] = {{"model", required_argument, NULL, 'm'},
                                          {"start", required_argument, NULL, 's'},
                                          {"max-iterations", required_argument, NULL, 'i'},
                                          {"tolerance", required_argument, NULL, 't'},
                                          {"gradcheck", no_argument, NULL, 'g'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    *o = (options){.max_iterations = 5000, .tolerance = 1e-9};
    opterr = 0; /* the message is ours, once */
    for (int option, at = optind; (option = getopt_long(argc, argv, ":", known, NULL)) != -1; at = optind)
        if (!parse_option(o, option, optarg ? optarg : argv[optind > at ? optind - 1 : at], message))
            return false;
    if (o->help)
        return true;
    if (!o->model)
        return fit_fail(message, "no --model; expected a formula such as --model 'b1*(1-exp(-b2*x))'; see fit --help");
    if (argc - optind != 1)
        return fit_fail(message, "%d files; expected one, with two numbers x,y per line; see fit --help", argc - optind);
    o->file = argv[optind];
    return true;
}
