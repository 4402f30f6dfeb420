/* Source text that is put together piece by piece. */
#ifndef AJI_CUDA_TEXT_H
#define AJI_CUDA_TEXT_H

#include "tensor/tensor_internal.h"

typedef struct aji_text aji_text;
struct aji_text {
    aj_ctx *ctx;
    char *at; /* ends with 0 */
    int64_t n, room;
    bool failed; /* out of memory, which has been raised: nothing is added any more */
};

/* Empty text; the first piece allocates. */
static inline aji_text aji_text_begin(aj_ctx *ctx) {
    return (aji_text){.ctx = ctx};
}
void aji_text_add(aji_text *t, const char *format, ...) AJ_PRINTF(2, 3);
void aji_text_free(aji_text *t);

#endif
