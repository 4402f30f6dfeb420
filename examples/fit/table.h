/*
 * Tables of measurements: one row x,y per line, separated by a comma, a semicolon, a tab or blanks. Empty lines and lines that begin with # are
 * skipped; the first other line may be a header (no number in it); lines may end in CRLF, and the file may begin with a byte-order mark.
 */
#ifndef FIT_TABLE_H
#define FIT_TABLE_H

#include <stdint.h>

#include "message.h"

typedef struct table {
    int64_t rows;
    double *x, *y;
} table;

/* Read a file. False, with a message that names file and line, when it is missing or not such a table; *t is empty then. */
bool table_read(table *t, const char *path, fit_message *message);
void table_free(table *t);

#endif
