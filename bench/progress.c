#include "progress.h"

#include <stdbool.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static const double interval = 5; /* seconds */

/* The program has one stderr: the state of what stands there is one too. */
static bool shown;
static double last;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void bench_progress(const char *name, int n, int step, int steps) {
    bool terminal = isatty(STDERR_FILENO);
    if (last == 0)
        last = now();
    if (!terminal && now() - last < interval)
        return;
    fprintf(stderr, "%sadjoin-bench: %s, n = %d: %d of %d%s", terminal ? "\r" : "", name, n, step, steps,
            terminal ? "\033[K" : "\n");
    fflush(stderr);
    shown = terminal;
    last = now();
}

void bench_progress_end(void) {
    if (shown)
        fputs("\r\033[K", stderr);
    shown = false;
}
