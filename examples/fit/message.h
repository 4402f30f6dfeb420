/* What to tell the user: one line, written where the fault is found, printed once by rank 0. */
#ifndef FIT_MESSAGE_H
#define FIT_MESSAGE_H

#include <stdbool.h>

typedef struct fit_message {
    char text[1024];
} fit_message;

/* Write the message, as printf. Returns false, so that `return fit_fail(message, ...)` reads well. */
bool fit_fail(fit_message *message, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
