/* log, log1p, and the softplus function. See maths.h. */
#ifndef AJI_MATHS_LOG_H
#define AJI_MATHS_LOG_H

#include "tensor/maths_exp.h"

/* x = 2^k m, sqrt(1/2) <= m < sqrt(2) */
typedef struct aji_log_argument {
    double k, m;
} aji_log_argument;

/* x is positive and finite; subnormals are scaled up first. */
AJI_MATHS aji_log_argument aji_log_reduce(double x) {
    double subnormal = x < DBL_MIN ? 54 : 0;
    uint64_t bits = aji_bits(x < DBL_MIN ? x * 0x1p54 : x);
    uint64_t above = bits - 0x3fe6a09e667f3bcd; /* than sqrt(1/2) */
    uint64_t exponent = (above + ((uint64_t)1023 << 52)) >> 52;
    double k = aji_from_bits(exponent | aji_bits(0x1p52)) - (0x1p52 + 1023);
    return (aji_log_argument){k - subnormal, aji_from_bits(bits - (above & (uint64_t)0xfff << 52))};
}

/*
 * log x + low, for positive and finite x. With f = m - 1 and s = f / (2 + f), log m = log(1 + s) - log(1 - s) = 2 s + s p(s^2) = f - (f^2/2 - s (f^2/2 + p)).
 */
AJI_MATHS double aji_log_and(double x, double low) {
    aji_log_argument a = aji_log_reduce(x);
    double f = a.m - 1, s = f / (2 + f), z = s * s, half = 0.5 * f * f;
    double p = aji_poly8(z, 0.66666666666666663, 0.40000000000000879, 0.28571428570803292, 0.22222222391785801,
                         0.18181795632452163, 0.15386240120567021, 0.13268761951330021, 0.13086743139119072);
    aji_sum y = aji_add_smaller(a.k * 0x1.62e42feep-1, f);
    return y.hi + (y.lo - (half - (s * (half + z * p) + (a.k * 0x1.a39ef35793c76p-33 + low))));
}

AJI_MATHS double aji_log(double x) {
    double y = aji_log_and(x, 0);
    y = x == INFINITY ? x : y;
    y = x == 0 ? -INFINITY : y;
    return x < 0 ? NAN : x != x ? x : y;
}

/* log(1 + x + low) for x >= 0 or so, and low much less */
AJI_MATHS double aji_log1p_of_sum(double x, double low) {
    aji_sum u = aji_add_any(1, x);
    return aji_log_and(u.hi, (u.lo + low) / u.hi);
}

AJI_MATHS double aji_log1p(double x) {
    double y = aji_log1p_of_sum(x, 0);
    y = x == INFINITY || x == 0 ? x : y;
    y = x == -1 ? -INFINITY : y;
    return x < -1 ? NAN : x != x ? x : y;
}

/* log(1 + e^x), where only exponentials of negative numbers are taken: for positive x it is x + log(1 + e^-x) */
AJI_MATHS double aji_softplus(double x) {
    double k;
    aji_sum e = aji_exp_mantissa(aji_clamped(-aji_abs(x), -746, 0), &k);
    double y = aji_log1p_of_sum(aji_scaled(e.hi, k), aji_scaled(e.lo, k));
    return x > 0 ? x + y : y;
}

#endif
