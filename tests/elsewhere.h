/* A device that is not the CPU, for test_ops.c: the test device, or the program's own (elsewhere_cuda.c). */
#ifndef ELSEWHERE_H
#define ELSEWHERE_H

#include "adjoin/device.h"

aj_device elsewhere(aj_ctx *ctx); /* the same in each call; NULL raised */

#endif
