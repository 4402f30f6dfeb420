/* For test programs that run on a stand-in for CUDA, or with ADJOIN_TEST_GPU=1 on a GPU. */
#ifndef GPU_H
#define GPU_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static inline bool on_gpu(void) {
    const char *text = getenv("ADJOIN_TEST_GPU");
    return text && strcmp(text, "1") == 0;
}

#endif
