/* Numbers that are drawn the same on every rank, and what tests count with. */
#ifndef NUMBERS_H
#define NUMBERS_H

#include <stdint.h>

/* SplitMix64's output function (Steele, Lea and Flood, OOPSLA 2014). */
static inline uint64_t mix(uint64_t z) {
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* A number below `below`, and the next state. */
static inline uint64_t draw_below(uint64_t *state, uint64_t below) {
    *state = mix(*state);
    return (*state >> 16) % below;
}

/* Whole eighths in -8 ... 8, never 0: sums over ranks and entries, and products of two or three, are exact in f64, small ones in f32 too, so
 * results can be compared for equality. */
static inline double number(uint64_t seed, int rank, int64_t entry) {
    uint64_t h = mix(mix(mix(seed) + (uint64_t)rank) + (uint64_t)entry);
    int eighths = (int)((h >> 20) % 64) + 1;
    return (h & 1 ? eighths : -eighths) / 8.0;
}

static inline int64_t count_of(int ndim, const int64_t *shape) {
    int64_t n = 1;
    for (int i = 0; i < ndim; i++)
        n *= shape[i];
    return n;
}

#endif
