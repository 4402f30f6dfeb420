/* log, log1p, the softplus function, and pow. See maths.h. */
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

/*
 * log x as a sum, to 66 bits. With s = (m - 1) / (m + 1), log m = 2/3 s (3 + s^2 + s^4 p(s^2)). What must be exact are products of heads.
 */
AJI_MATHS aji_sum aji_log_sum(double x) {
    aji_log_argument a = aji_log_reduce(x);
    double f = a.m - 1, g = a.m + 1, g_head = aji_head(g), g_tail = a.m - (g_head - 1);
    double s = f / g, s_head = aji_head(s), s_tail = ((f - s_head * g_head) - s_head * g_tail) / g;
    double square = s_head * s_head, z = s * s;
    double p = aji_poly8(z, 0.59999999999999998, 0.42857142857144048, 0.33333333332483917, 0.27272727503069272,
                         0.23076892445907299, 0.20002206924945168, 0.17559357610891166, 0.17584735501785284);
    double rest = z * z * p + s_tail * (s_head + s); /* s^2 = square + s_tail (s_head + s) */
    double t_head = aji_head(3 + square + rest), t_tail = rest - ((t_head - 3) - square);
    aji_sum u = aji_add_smaller(s_head * t_head, s_tail * t_head + t_tail * s);
    double u_head = aji_head(u.hi), u_tail = u.lo + (u.hi - u_head);
    aji_sum y = aji_add_smaller(a.k * 0x1.62e42feep-1, 0x1.555555p-1 * u_head);
    double low = 0x1.5555555555555p-27 * u_head + 0x1.5555555555555p-1 * u_tail;
    return aji_add_smaller(y.hi, y.lo + (low + a.k * 0x1.a39ef35793c76p-33));
}

/* x = 0 and infinity as C says, a >= 0 being the size of x */
AJI_MATHS double aji_pow_at_ends(double a, double y, double power) {
    power = a == 0 ? (y < 0 ? INFINITY : 0) : power;
    return a == INFINITY ? (y < 0 ? 0 : INFINITY) : power;
}

AJI_MATHS double aji_is_integer(double size) {
    return size >= 0x1p52 || (size + 0x1p52) - 0x1p52 == size ? 1 : 0;
}

/* x^y for x < 0 and -0, from |x|^y: negative where y is odd; NaN where y is no integer, but not at the ends */
AJI_MATHS double aji_pow_signed(double x, double y, double power) {
    double size = aji_abs(y), whole = aji_is_integer(size), even = aji_is_integer(0.5 * size);
    double odd = whole > even ? -0.0 : 0.0;
    power = aji_from_bits(aji_bits(power) ^ (aji_bits(x) & aji_bits(odd)));
    return x < 0 && x != -INFINITY && whole == 0 ? NAN : power;
}

/* |x|^y = e^(y log |x|); where |y| > 2^65 that is 0, 1 or infinity. */
AJI_MATHS double aji_pow(double x, double y) {
    double size = aji_abs(x), factor = aji_clamped(y, -0x1p65, 0x1p65), factor_head = aji_head(factor);
    aji_sum l = aji_log_sum(size);
    double l_head = aji_head(l.hi), l_tail = l.lo + (l.hi - l_head);
    aji_sum w = aji_add_smaller(factor_head * l_head, (factor - factor_head) * l_head + factor * l_tail);
    double low = w.hi < -746 || w.hi > 710 ? 0 : w.lo;
    double power = aji_pow_signed(x, y, aji_pow_at_ends(size, y, aji_exp_of_sum(w.hi, low)));
    power = x != x || y != y ? x + y : power;
    return x == 1 || y == 0 ? 1 : power;
}

#endif
