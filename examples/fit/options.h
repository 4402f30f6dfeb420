/* The command line. */
#ifndef FIT_OPTIONS_H
#define FIT_OPTIONS_H

#include "formula.h"
#include "message.h"

typedef struct options {
    const char *model, *file;
    double start[FORMULA_MAX_PARAMETERS]; /* b1 ... b9 */
    bool has_start[FORMULA_MAX_PARAMETERS];
    int max_iterations;
    double tolerance;
    bool gradcheck, help;
} options;

extern const char options_usage[];

/* Read the command line. False, with a message, when it makes no sense. */
bool options_parse(options *o, int argc, char **argv, fit_message *message);

#endif
