/*
 * The last operations of this rank, for the messages of time limits and of the checked mode.
 */
#include <stdarg.h>
#include <stdio.h>

#include "mpi/comm_internal.h"

enum { KEPT = sizeof(((aji_mpi *)0)->recent) / sizeof(((aji_mpi *)0)->recent[0]) };

void aji_recent_add(aji_mpi *mpi, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(mpi->recent[mpi->n_recent++ % KEPT], sizeof(mpi->recent[0]), format, args);
    va_end(args);
}

void aji_recent_replace(aji_mpi *mpi, const char *text) {
    mpi->n_recent -= mpi->n_recent > 0;
    aji_recent_add(mpi, "%s", text);
}

void aji_describe_recent(const aji_mpi *mpi, char *text, size_t size) {
    size_t used = 0;
    text[0] = '\0';
    for (unsigned back = 1; back <= KEPT && back <= mpi->n_recent; back++) {
        int n = snprintf(text + used, size - used, "%s%s", back > 1 ? "; before it " : "",
                         mpi->recent[(mpi->n_recent - back) % KEPT]);
        if (n < 0 || (size_t)n >= size - used)
            break;
        used += (size_t)n;
    }
    text[used] = '\0';
}
