/* What a reduction has added up so far. */
#include <math.h>
#include <string.h>

#include "tensor/accumulate.h"

enum { LEAF = 16 }; /* blocks */

#define LANES_BYTES (AJI_BLOCK * sizeof(double))

aj_dtype aji_accumulation_dtype(aj_dtype dtype) {
    return aji_dtype_is_float(dtype) ? AJ_F64 : AJ_I64;
}

static int levels(int64_t blocks) {
    int n = 1;
    for (int64_t leaves = blocks / LEAF + 1; leaves > 0; leaves /= 2)
        n++;
    return n;
}

size_t aji_accumulator_bytes(int64_t blocks) {
    return (size_t)(levels(blocks) + 1) * LANES_BYTES + (64 * sizeof(char *));
}

static aji_opcode step_of(aji_reduction kind) {
    switch (kind) {
    case AJI_PROD:
        return AJI_STEP_MUL;
    case AJI_MAX:
        return AJI_STEP_MAXIMUM;
    case AJI_MIN:
        return AJI_STEP_MINIMUM;
    default:
        return AJI_STEP_ADD;
    }
}

void aji_accumulator_open(aji_accumulator *a, aji_reduction kind, aj_dtype accumulation, int64_t blocks, char *memory) {
    /* -0.0 + x is x for every x */
    const double of_floats[] = {[AJI_SUM] = -0.0, [AJI_PROD] = 1, [AJI_MAX] = -INFINITY, [AJI_MIN] = INFINITY};
    const int64_t of_integers[] = {[AJI_SUM] = 0, [AJI_PROD] = 1, [AJI_MAX] = INT64_MIN, [AJI_MIN] = INT64_MAX};
    a->combine = aji_step_kernel(&(aji_step){.opcode = step_of(kind), .dtype = accumulation});
    if (accumulation == AJ_F64)
        memcpy(a->start, &of_floats[kind], sizeof(double));
    else
        memcpy(a->start, &of_integers[kind], sizeof(int64_t));
    a->level = (char **)memory;
    memory += 64 * sizeof(char *);
    a->leaf = memory;
    for (int k = 0; k < levels(blocks); k++)
        a->level[k] = memory + (size_t)(k + 1) * LANES_BYTES;
}

static void start_leaf(aji_accumulator *a) {
    a->in_leaf = 0;
    for (int j = 0; j < a->lanes; j++)
        memcpy(a->leaf + (size_t)j * sizeof(double), a->start, sizeof(double));
}

void aji_accumulator_begin(aji_accumulator *a, int lanes) {
    a->lanes = lanes;
    a->leaves = 0;
    start_leaf(a);
}

/* into = into + from */
static void combine(const aji_accumulator *a, int n, char *into, const char *from) {
    a->combine(n, into, (const void *const[3]){into, from, NULL}, NULL);
}

/* Carry the leaf upwards, as in a binary counter. */
static void end_leaf(aji_accumulator *a) {
    int k = 0;
    for (; a->leaves >> k & 1; k++) {
        combine(a, a->lanes, a->level[k], a->leaf);
        char *sum = a->level[k];
        a->level[k] = a->leaf;
        a->leaf = sum;
    }
    char *free = a->level[k];
    a->level[k] = a->leaf;
    a->leaf = free;
    a->leaves++;
    start_leaf(a);
}

void aji_accumulator_add(aji_accumulator *a, const char *block, int n) {
    combine(a, n, a->leaf, block);
    if (++a->in_leaf == LEAF)
        end_leaf(a);
}

char *aji_accumulator_end(aji_accumulator *a) {
    for (int k = 0; a->leaves >> k; k++)
        if (a->leaves >> k & 1)
            combine(a, a->lanes, a->leaf, a->level[k]);
    return a->leaf;
}

char *aji_accumulator_fold(aji_accumulator *a) {
    char *sum = aji_accumulator_end(a);
    for (int n = a->lanes, half; n > 1; n = half) {
        half = (n + 1) / 2;
        combine(a, n - half, sum, sum + (size_t)half * sizeof(double));
    }
    return sum;
}
