/*
 * Maths functions in plain C without branches, so that the compiler can turn a loop of calls into vector code for whatever machine it compiles for.
 * They use additions, multiplications, divisions and square roots of doubles, each rounded by itself, and operations on bits; so an entry's
 * result is the same on every machine, whatever its neighbours are, and wherever in a vector it stands. Errors in units in the last place are given with
 * each; tests/test_maths.c measures them. Floats are computed in double.
 *
 * Polynomials are Chebyshev interpolants of the function that the comment names, which are nearly minimax. A sum of two doubles, the second of which
 * is what the first has lost, has the members hi and lo.
 */
#ifndef AJI_MATHS_H
#define AJI_MATHS_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

_Static_assert(FLT_EVAL_METHOD == 0, "sums and products must be rounded to their type: on x86 -msse2 -mfpmath=sse does it");

#define AJI_MATHS static inline __attribute__((always_inline))

typedef struct aji_sum {
    double hi, lo;
} aji_sum;

AJI_MATHS uint64_t aji_bits(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

AJI_MATHS double aji_from_bits(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

AJI_MATHS double aji_abs(double x) {
    return aji_from_bits(aji_bits(x) & INT64_MAX);
}

AJI_MATHS double aji_with_sign(double x, double sign) {
    return aji_from_bits((aji_bits(x) & INT64_MAX) | (aji_bits(sign) & (uint64_t)1 << 63));
}

/* The first 26 bits: products of two such numbers are exact. */
AJI_MATHS double aji_head(double x) {
    return aji_from_bits(aji_bits(x) & ~(((uint64_t)1 << 27) - 1));
}

/* mask: all bits or none */
AJI_MATHS double aji_choose(uint64_t mask, double yes, double no) {
    return aji_from_bits((aji_bits(yes) & mask) | (aji_bits(no) & ~mask));
}

/* Added to a number of less than 2^51, this leaves the nearest integer in the last bits. */
#define AJI_ROUNDER 0x1.8p52

AJI_MATHS double aji_rounded(double x) {
    return (x + AJI_ROUNDER) - AJI_ROUNDER;
}

/* 2^k for an integer k of -1022 ... 1023, infinity for 1024 */
AJI_MATHS double aji_power_of_two(double k) {
    return aji_from_bits(aji_bits(k + (AJI_ROUNDER + 1023)) << 52);
}

/* a + b where |a| >= |b| or a = 0 */
AJI_MATHS aji_sum aji_add_smaller(double a, double b) {
    double hi = a + b;
    return (aji_sum){hi, (a - hi) + b};
}

AJI_MATHS aji_sum aji_add_any(double a, double b) {
    double hi = a + b, part = hi - a;
    return (aji_sum){hi, (a - (hi - part)) + (b - part)};
}

/* c0 + c1 x + ..., in pairs of pairs, whose sums do not wait for each other */
AJI_MATHS double aji_poly2(double x, double c0, double c1) {
    return c0 + x * c1;
}

AJI_MATHS double aji_poly4(double x, double c0, double c1, double c2, double c3) {
    return aji_poly2(x, c0, c1) + x * x * aji_poly2(x, c2, c3);
}

AJI_MATHS double aji_poly8(double x, double c0, double c1, double c2, double c3, double c4, double c5, double c6, double c7) {
    double square = x * x;
    return aji_poly4(x, c0, c1, c2, c3) + square * square * aji_poly4(x, c4, c5, c6, c7);
}

/* Two roundings: of the quotient, and of the sum with what that and the low parts lack. */
AJI_MATHS double aji_quotient(aji_sum a, aji_sum b) {
    double q = a.hi / b.hi;
    return q + (a.lo - q * b.lo) / b.hi;
}

#endif
