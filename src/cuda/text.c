#include "cuda/text.h"

#include <stdarg.h>
#include <stdio.h>

static int print(aji_text *t, const char *format, va_list arguments) {
    return vsnprintf(t->at ? t->at + t->n : NULL, (size_t)(t->room - t->n), format, arguments);
}

void aji_text_add(aji_text *t, const char *format, ...) {
    for (int attempt = 0; attempt < 2 && !t->failed; attempt++) {
        va_list arguments;
        va_start(arguments, format);
        int64_t n = print(t, format, arguments);
        va_end(arguments);
        if (t->n + n < t->room) {
            t->n += n;
            return;
        }
        t->failed = aji_grow(t->ctx, (void **)&t->at, &t->room, t->n + n + 1, 1) != AJ_OK;
    }
}

void aji_text_free(aji_text *t) {
    aji_free(t->ctx, t->at, (size_t)t->room);
    *t = (aji_text){.ctx = t->ctx};
}
