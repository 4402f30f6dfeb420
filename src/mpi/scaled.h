/*
 * Numbers m 2^e with an exponent of their own: products of any length, and their sums, neither over- nor underflow on the way to a result that does not.
 */
#ifndef AJI_SCALED_H
#define AJI_SCALED_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/* 1/2 <= |m| < 1; m of 0, inf and NaN is what it is, and then e makes the order of sizes that of the exponents. */
typedef struct aji_scaled {
    double m;
    int64_t e;
} aji_scaled;

static inline aji_scaled aji_scaled_of(double m, int64_t e) {
    const int64_t far = (int64_t)1 << 60;
    if (m == 0 || !isfinite(m))
        return (aji_scaled){m, m == 0 ? -far : isinf(m) ? far : far + 1};
    int shift;
    m = frexp(m, &shift);
    return (aji_scaled){m, e + shift};
}

/* 2^e for ldexp: what exceeds these bounds over- or underflows in any case. */
static inline int aji_bounded(int64_t e) {
    return e > 5000 ? 5000 : e < -5000 ? -5000 : (int)e;
}

static inline double aji_scaled_value(aji_scaled a) {
    return ldexp(a.m, aji_bounded(a.e));
}

static inline bool aji_scaled_larger(aji_scaled a, aji_scaled b) { /* in absolute value; NaN is the largest */
    return a.e != b.e ? a.e > b.e : fabs(a.m) > fabs(b.m);
}

static inline aji_scaled aji_scaled_mul(aji_scaled a, aji_scaled b) {
    return aji_scaled_of(a.m * b.m, a.e + b.e);
}

static inline aji_scaled aji_scaled_add(aji_scaled a, aji_scaled b) {
    if (aji_scaled_larger(b, a))
        return aji_scaled_add(b, a);
    return aji_scaled_of(a.m + ldexp(b.m, aji_bounded(b.e - a.e)), a.e);
}

static inline aji_scaled aji_scaled_sub(aji_scaled a, aji_scaled b) {
    return aji_scaled_add(a, (aji_scaled){-b.m, b.e});
}

#endif
