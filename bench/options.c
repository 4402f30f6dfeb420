#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 11, MAX_N = 100000000 };

bool bench_selected(const bench_case *c, const char *name) {
    size_t length = name ? strlen(name) : 0;
    return !name || (length && strncmp(c->name, name, length) == 0 && (c->name[length] == 0 || c->name[length] == '-'));
}

void bench_help(FILE *to, const bench_options *o) {
    fputs("Usage: mpiexec -n RANKS adjoin-bench [--device cuda] [--case NAME] [--n N,N,...] [--samples N] [--json]\n"
          "       mpiexec -n RANKS adjoin-bench [--device cuda] [--case NAME] [--n N,N,...] --repeat N\n"
          "\n"
          "Times the library next to the same work by hand (raw MPI, CBLAS, plain loops with their adjoints), in turns, in the\n"
          "same run. Prints medians in microseconds; the ratio is adjoin / raw: below 1 the library is the faster one.\n"
          "peak_bytes: the most memory that tensors took, on any rank.\n"
          "\n"
          "  --device D   cuda: cases on a GPU, beside copies of its memory and cuBLAS; with --help it lists them (cpu)\n"
          "  --case NAME  one case, with its variants, instead of all\n"
          "  --n N,N,...  the size, instead of each case's own\n"
          "  --samples N  how often each side is timed (11)\n"
          "  --json       one line of JSON per case\n"
          "  --repeat N   run the library's side N times and nothing else, untimed: to count its instructions\n"
          "  --help       print this\n"
          "\n"
          "Cases:\n",
          to);
    for (const bench_case *const *cases = o->cases; *cases; cases++)
        fprintf(to, "  %-24s %s (n = %d)\n", (*cases)->name, (*cases)->what, (*cases)->n);
    fputs("\nExit status: 0 well; 1 the two sides disagree, or something failed; 2 bad options; 77 there is no GPU.\n", to);
}

/* Read one number off the text; 0 if there is none in range. */
int bench_next_size(const char **text) {
    char *end;
    errno = 0;
    long n = **text >= '0' && **text <= '9' ? strtol(*text, &end, 10) : 0;
    if (errno || n < 1 || n > MAX_N || (*end != ',' && *end != 0) || (*end == ',' && end[1] == 0))
        return 0;
    *text = *end ? end + 1 : end;
    return (int)n;
}

__attribute__((format(printf, 2, 3))) static bool refuse(bench_options *o, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(o->error, sizeof o->error, format, args);
    va_end(args);
    return false;
}

static bool read_count(bench_options *o, const char *option, const char *text, int *count) {
    const char *rest = text;
    *count = bench_next_size(&rest);
    return (*count && !*rest && !strchr(text, ',')) ||
           refuse(o, "%s: '%.200s'; expected a whole number from 1 to %d", option, text, MAX_N);
}

static bool check_name(bench_options *o) {
    for (const bench_case *const *cases = o->cases; *cases; cases++)
        if (bench_selected(*cases, o->name))
            return true;
    return !o->name || !*o->cases || refuse(o, "--case: '%.200s' is not one of the cases", o->name);
}

static bool check_sizes(bench_options *o) {
    const char *text = o->sizes;
    if (!text)
        return true;
    do
        if (!bench_next_size(&text))
            return refuse(o, "--n: '%.200s'; expected whole numbers from 1 to %d, separated by commas", o->sizes, MAX_N);
    while (*text);
    return true;
}

static bool read_device(bench_options *o, const char *text) {
    o->cuda = strcmp(text, "cuda") == 0;
    return o->cuda || strcmp(text, "cpu") == 0 || refuse(o, "--device: '%.200s'; expected cpu or cuda", text);
}

static bool take(bench_options *o, int option, char **argv) {
    switch (option) {
    case 'd':
        return read_device(o, optarg);
    case 'c':
        o->name = optarg;
        return true;
    case 'n':
        o->sizes = optarg;
        return true;
    case 's':
        return read_count(o, "--samples", optarg, &o->samples);
    case 'r':
        return read_count(o, "--repeat", optarg, &o->repeat);
    case 'j':
        return o->json = true;
    case 'h':
        return o->help = true;
    case ':':
        return refuse(o, "%.200s needs a value", argv[optind - 1]);
    default:
        return refuse(o, "%.200s is not an option", argv[optind - 1]);
    }
}

bool bench_parse(bench_options *o, int argc, char **argv, const bench_case *const *cases, const bench_case *const *cuda_cases) {
    static const struct option known[] = {{"device", required_argument, NULL, 'd'}, {"case", required_argument, NULL, 'c'},
                                          {"n", required_argument, NULL, 'n'},      {"samples", required_argument, NULL, 's'},
                                          {"repeat", required_argument, NULL, 'r'}, {"json", no_argument, NULL, 'j'},
                                          {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0}};
    *o = (bench_options){.samples = SAMPLES, .cases = cases};
    opterr = 0;
    for (int option; (option = getopt_long_only(argc, argv, ":", known, NULL)) != -1;)
        if (!take(o, option, argv))
            return false;
    o->cases = o->cuda ? cuda_cases : cases;
    if (optind < argc)
        return refuse(o, "'%.200s' where an option was expected", argv[optind]);
    return check_name(o) && check_sizes(o);
}
