/* exp and what is made of it: expm1, sinh, cosh, tanh, and the logistic function. See maths.h. */
#ifndef AJI_MATHS_EXP_H
#define AJI_MATHS_EXP_H

#include "tensor/maths.h"

/* x = k ln 2 + r + low, |r| <= ln 2 / 2 */
typedef struct aji_exp_argument {
    double k, r, low;
} aji_exp_argument;

/* |x| < 1500, whence the product of k and the first 32 bits of ln 2 is exact. Near multiples of ln 2 the first difference may be the smaller one:
 * what that loses is below 2^-75, and e^r is near 1. */
AJI_MATHS aji_exp_argument aji_exp_reduce(double x) {
    double k = aji_rounded(x * 0x1.71547652b82fep+0);
    aji_sum r = aji_add_smaller(x - k * 0x1.62e42feep-1, -(k * 0x1.a39ef35793c76p-33));
    return (aji_exp_argument){k, r.hi, r.lo};
}

/* e^(r + low) - 1 - r: the series of e^r, from r^3 on interpolated */
AJI_MATHS double aji_exp_rest(double r, double low) {
    double square = r * r, fourth = square * square;
    double p = aji_poly8(r, 0.16666666666666669, 0.041666666666666664, 0.0083333333333300546, 0.0013888888888886548,
                         0.00019841269863088255, 2.4801587317169235e-05, 2.7557268406190795e-06, 2.7557282931125736e-07);
    p += fourth * fourth * aji_poly2(r, 2.51004110820149e-08, 2.0911254902088771e-09);
    return square * (0.5 + r * p) + (low + low * r);
}

AJI_MATHS double aji_clamped(double x, double lo, double hi) {
    return x < lo ? lo : x > hi ? hi : x; /* NaN stays */
}

/* x 2^k, rounded once, in two factors since 2^k may be out of range where the result is not */
AJI_MATHS double aji_scaled(double x, double k) {
    double half = aji_rounded(k * 0.5);
    return x * aji_power_of_two(half) * aji_power_of_two(k - half);
}

AJI_MATHS double aji_exp(double x) {
    aji_exp_argument a = aji_exp_reduce(aji_clamped(x, -746, 710));
    aji_sum y = aji_add_smaller(1, a.r);
    return aji_scaled(y.hi + (y.lo + aji_exp_rest(a.r, a.low)), a.k);
}

/* e^x 2^-k as a sum, for -746 <= x <= 710 */
AJI_MATHS aji_sum aji_exp_mantissa(double x, double *k) {
    aji_exp_argument a = aji_exp_reduce(x);
    aji_sum y = aji_add_smaller(1, a.r);
    *k = a.k;
    return aji_add_smaller(y.hi, y.lo + aji_exp_rest(a.r, a.low));
}

/* power e^r + one, power a power of two. power + one is 0 or greater than power r */
AJI_MATHS aji_sum aji_exp_plus(double one, double power, aji_exp_argument a, double rest) {
    aji_sum t = aji_add_any(power, one), y = aji_add_smaller(t.hi, power * a.r);
    return aji_add_smaller(y.hi, y.lo + (t.lo + power * rest));
}

/* Half of it is computed, since 2^k may be out of range. */
AJI_MATHS double aji_expm1(double x) {
    aji_exp_argument a = aji_exp_reduce(aji_clamped(x, -60, 710));
    double y = 2 * aji_exp_plus(-0.5, aji_power_of_two(a.k - 1), a, aji_exp_rest(a.r, a.low)).hi;
    return aji_abs(x) < 0x1p-54 ? x : y;
}

/* tanh |x| = (e^2|x| - 1) / (e^2|x| + 1), 1 to all bits from 20 on */
AJI_MATHS double aji_tanh(double x) {
    double size = aji_clamped(aji_abs(x), 0, 20);
    aji_exp_argument a = aji_exp_reduce(2 * size);
    double power = aji_power_of_two(a.k), rest = aji_exp_rest(a.r, a.low);
    double y = aji_quotient(aji_exp_plus(-1, power, a, rest), aji_exp_plus(1, power, a, rest));
    return aji_with_sign(size < 0x1p-30 ? size : y, x);
}

/* 1 / (1 + e^-x), where only exponentials of negative numbers are taken: for negative x it is e^x / (1 + e^x) */
AJI_MATHS double aji_sigmoid(double x) {
    double k, size = aji_abs(x);
    aji_sum e = aji_exp_mantissa(aji_clamped(-size, -746, 0), &k);
    double power = aji_power_of_two(k < -1000 ? -1000 : k); /* beside 1 these are nothing */
    aji_sum below = aji_add_smaller(1, e.hi * power);
    below.lo += e.lo * power;
    aji_sum above = {x < 0 ? e.hi : 1, x < 0 ? e.lo : 0};
    return aji_scaled(aji_quotient(above, below), x < 0 ? k : 0);
}

/*
 * sinh and cosh: (2^k e^r -+ 2^-k e^-r) / 2 = (a -+ b) cosh r + (a +- b) sinh r with a = 2^(k-1), b = 2^(-k-1). The sums of a and b are rounded where k is
 * large, so their errors are carried along. sinh r = r + odd and cosh r = 1 + even, the series, from r^3 and r^4 on interpolated. Again half of it is computed.
 */
typedef struct aji_hyperbolic {
    double a, b; /* halved */
    aji_sum difference, sum;
    double r, odd, even;
} aji_hyperbolic;

AJI_MATHS aji_hyperbolic aji_hyperbolic_parts(double size) {
    aji_exp_argument x = aji_exp_reduce(aji_clamped(size, 0, 710.5));
    double z = x.r * x.r, square = z * z;
    double p = aji_poly4(z, 0.16666666666666666, 0.0083333333333333332, 0.00019841269841263285, 2.7557319247255671e-06);
    p += square * square * aji_poly2(z, 2.5052071054770111e-08, 1.6086642574672407e-10);
    double q = aji_poly4(z, 0.041666666666666664, 0.0013888888888886548, 2.4801587317169235e-05, 2.7557282931125736e-07);
    q += square * square * 2.0911254902088771e-09;
    double a = aji_power_of_two(x.k - 2), b = aji_power_of_two(x.k > 1000 ? -1000 : -x.k - 2);
    return (aji_hyperbolic){
        a, b, aji_add_smaller(a, -b), aji_add_smaller(a, b), x.r, x.r * z * p + x.low, z * (0.5 + z * q) + x.r * x.low};
}

AJI_MATHS double aji_sinh(double x) {
    double size = aji_abs(x);
    aji_hyperbolic h = aji_hyperbolic_parts(size);
    /* (a + b) r = a r + b r: exact products */
    aji_sum y = aji_add_smaller(h.difference.hi, h.a * h.r);
    double rest = h.difference.lo + (h.difference.hi * h.even + h.sum.hi * h.odd);
    y.hi += y.lo + (h.b * h.r + rest);
    return aji_with_sign(size < 0x1p-30 ? size : 2 * y.hi, x);
}

AJI_MATHS double aji_cosh(double x) {
    aji_hyperbolic h = aji_hyperbolic_parts(aji_abs(x));
    return 2 * (h.sum.hi + (h.difference.hi * h.r + (h.sum.lo + (h.sum.hi * h.even + h.difference.hi * h.odd))));
}

#endif
