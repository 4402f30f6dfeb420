/* adjoin-bench that was built without the toolkit's headers. */
#include <stdio.h>

#include "device.h"

const bench_case *const bench_cuda_cases[] = {NULL};

bool bench_cuda_missing(char *why, size_t room) {
    snprintf(why, room,
             "this adjoin-bench was built without CUDA: give meson -Dcuda=enabled, where the headers of the CUDA toolkit are");
    return true;
}
