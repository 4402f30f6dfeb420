#include "table.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FIELDS = 3 }; /* two, and one too many */

typedef struct reader {
    const char *path;
    int64_t line;
    bool begun; /* a line that is neither empty nor a comment has been seen */
    int64_t capacity;
    table *t;
    fit_message *message;
} reader;

static bool is_blank(char c) {
    return c == ' ' || c == '\t';
}

/* Cut blanks, and the CR of a CRLF, off both ends. */
static char *trim(char *text) {
    while (is_blank(*text))
        text++;
    char *end = text + strlen(text);
    while (end > text && (is_blank(end[-1]) || end[-1] == '\r' || end[-1] == '\n'))
        *--end = '\0';
    return text;
}

/* Split a trimmed line, in place, at its commas; without any, at its semicolons; else at its tabs and blanks. Returns the number of fields, at most MAX_FIELDS. */
static int split(char *line, char *fields[MAX_FIELDS]) {
    const char *separators = strchr(line, ',') ? "," : strchr(line, ';') ? ";" : " \t";
    int n = 0;
    while (n < MAX_FIELDS) {
        char *end = line + strcspn(line, separators);
        bool last = !*end;
        *end = '\0';
        fields[n++] = trim(line);
        if (last)
            break;
        line = end + 1;
        if (*separators == ' ')
            line += strspn(line, separators);
    }
    return n;
}

static bool is_number(const char *field, double *value) {
    char *end;
    *value = strtod(field, &end);
    return end != field && !*end;
}

static bool grow(double **values, int64_t capacity) {
    double *grown = realloc(*values, (size_t)capacity * sizeof *grown);
    if (grown)
        *values = grown;
    return grown != NULL;
}

static bool append(reader *r, const double row[2]) {
    table *t = r->t;
    if (t->rows == r->capacity) {
        int64_t capacity = r->capacity ? 2 * r->capacity : 1024;
        if (!grow(&t->x, capacity) || !grow(&t->y, capacity))
            return fit_fail(r->message, "%.400s: not enough memory for more than %lld rows", r->path, (long long)t->rows);
        r->capacity = capacity;
    }
    t->x[t->rows] = row[0];
    t->y[t->rows++] = row[1];
    return true;
}

static bool read_row(reader *r, char *line) {
    char *fields[MAX_FIELDS];
    double row[2] = {0, 0};
    bool numbers[MAX_FIELDS] = {false};
    bool first = !r->begun;
    r->begun = true;
    int n = split(line, fields), n_numbers = 0;
    for (int i = 0; i < n; i++) {
        double value;
        numbers[i] = is_number(fields[i], &value);
        n_numbers += numbers[i];
        if (i < 2)
            row[i] = value;
    }
    if (first && n_numbers == 0)
        return true; /* the header */
    if (n != 2)
        return fit_fail(r->message, "%.400s:%lld: %s; expected two numbers: x,y", r->path, (long long)r->line,
                        n < 2 ? "only one column" : "more than two columns");
    for (int i = 0; i < 2; i++) {
        if (!numbers[i])
            return fit_fail(r->message, "%.400s:%lld: '%.60s' where a number belongs; expected two numbers: x,y", r->path,
                            (long long)r->line, fields[i]);
        if (!isfinite(row[i]))
            return fit_fail(r->message, "%.400s:%lld: '%.60s' is not a finite number; expected two finite numbers: x,y", r->path,
                            (long long)r->line, fields[i]);
    }
    return append(r, row);
}

static bool read_line(reader *r, char *line, size_t length) {
    static const char byte_order_mark[] = "\xEF\xBB\xBF";
    r->line++;
    if (strlen(line) != length)
        return fit_fail(r->message, "%.400s:%lld: a zero byte; expected a text file with two numbers x,y per line", r->path,
                        (long long)r->line);
    if (r->line == 1 && strncmp(line, byte_order_mark, 3) == 0)
        line += 3;
    line = trim(line);
    return *line && *line != '#' ? read_row(r, line) : true;
}

bool table_read(table *t, const char *path, fit_message *message) {
    *t = (table){0, NULL, NULL};
    FILE *file = fopen(path, "r");
    if (!file)
        return fit_fail(message, "%.400s: %s; expected a readable file with two numbers x,y per line", path, strerror(errno));
    reader r = {.path = path, .t = t, .message = message};
    char *line = NULL;
    size_t size = 0;
    ssize_t length;
    bool good = true;
    while (good && (errno = 0, length = getline(&line, &size, file)) >= 0)
        good = read_line(&r, line, (size_t)length);
    if (good && !feof(file))
        good = fit_fail(message, "%.400s: %s; expected a readable file with two numbers x,y per line", path, strerror(errno));
    if (good && t->rows == 0)
        good = fit_fail(message, "%.400s: no rows; expected two numbers x,y per line", path);
    free(line);
    fclose(file);
    if (!good)
        table_free(t);
    return good;
}

void table_free(table *t) {
    free(t->x);
    free(t->y);
    *t = (table){0, NULL, NULL};
}
