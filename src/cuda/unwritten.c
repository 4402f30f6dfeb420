/* Until there is reduce.c and scan.c. */
#include "cuda/plan.h"

__attribute__((weak)) void aji_write_reduce(const aji_plan *p, aji_text *t) {
    (void)p;
    (void)t;
}
__attribute__((weak)) void aji_write_scan(const aji_plan *p, aji_text *t) {
    (void)p;
    (void)t;
}
