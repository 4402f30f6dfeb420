/*
 * What a reduction has added up so far: lanes, to which blocks are added, pairwise.
 *
 * The blocks of a leaf are added one after the other, leaves in pairs, those sums in pairs again: this bounds the rounding error by the leaf's
 * length + log2 of the number of leaves, instead of the number of blocks (Higham, "The accuracy of floating point summation", SIAM J. Sci.
 * Comput. 14 (1993)). Floats accumulate in f64, integers in i64, which wraps.
 */
#ifndef AJI_ACCUMULATE_H
#define AJI_ACCUMULATE_H

#include "tensor/cpu.h"

typedef struct aji_accumulator {
    aji_kernel *combine;
    unsigned char start[8]; /* the neutral element, as the bits of a double or an int64_t */
    int lanes;
    int in_leaf; /* blocks in the leaf at hand */
    int64_t leaves;
    char *leaf, **level; /* level[k]: the sum of 2^k leaves, where bit k of `leaves` is set */
} aji_accumulator;

/* The dtype that a reduction of dtype accumulates in. */
aj_dtype aji_accumulation_dtype(aj_dtype dtype);
/* Memory for at most `blocks` blocks in one result: its size, and its use. */
size_t aji_accumulator_bytes(int64_t blocks);
void aji_accumulator_open(aji_accumulator *a, aji_reduction kind, aj_dtype accumulation, int64_t blocks, char *memory);

void aji_accumulator_begin(aji_accumulator *a, int lanes);
void aji_accumulator_add(aji_accumulator *a, const char *block, int n); /* n <= lanes */
/* The lanes' sums; valid until the next begin. */
char *aji_accumulator_end(aji_accumulator *a);
/* The same, the lanes added up too: one number. */
char *aji_accumulator_fold(aji_accumulator *a);

#endif
