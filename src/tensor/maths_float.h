/*
 * The functions for floats, computed in double, where plain formulas and short polynomials leave some 32 bits right: rounding to float is nearly all of
 * the error. See maths.h, and the functions for doubles.
 */
#ifndef AJI_MATHS_FLOAT_H
#define AJI_MATHS_FLOAT_H

#include "tensor/maths_log.h"
#include "tensor/maths_trig.h"

/* ---- exponentials: x = k ln 2 + r, power = 2^k ---- */

typedef struct aji_short_exp {
    double power, r;
} aji_short_exp;

AJI_MATHS aji_short_exp aji_short_reduce(double x) {
    double k = aji_rounded(x * 0x1.71547652b82fep+0);
    return (aji_short_exp){aji_power_of_two(k), (x - k * 0x1.62e42feep-1) - k * 0x1.a39ef35793c76p-33};
}

/* e^r - 1 */
AJI_MATHS double aji_short_rest(double r) {
    double square = r * r;
    double p = aji_poly4(r, 0.5, 0.16666666719112208, 0.041666666719095496, 0.0083332984328375447);
    double q = aji_poly2(r, 0.001388885399872006, 0.00019899316337192174) + square * 2.4859620581890567e-05;
    return r + square * (p + square * square * q);
}

AJI_MATHS double aji_short_power(double x) { /* e^x for |x| <= 700 */
    aji_short_exp e = aji_short_reduce(x);
    return e.power + e.power * aji_short_rest(e.r);
}

AJI_MATHS double aji_short_expm1(double x) {
    aji_short_exp e = aji_short_reduce(x);
    return (e.power - 1) + e.power * aji_short_rest(e.r);
}

AJI_MATHS float aji_expf(float x) {
    return (float)aji_short_power(aji_clamped(x, -110, 90));
}

AJI_MATHS float aji_expm1f(float x) {
    return (float)aji_with_sign(aji_short_expm1(aji_clamped(x, -110, 90)), x);
}

AJI_MATHS float aji_tanhf(float x) {
    double y = aji_short_expm1(2 * aji_clamped(aji_abs(x), 0, 15));
    return (float)aji_with_sign(y / (y + 2), x);
}

AJI_MATHS float aji_sigmoidf(float x) {
    double y = aji_short_power(aji_clamped(-aji_abs(x), -110, 0));
    return (float)((x < 0 ? y : 1) / (1 + y));
}

AJI_MATHS float aji_sinhf(float x) {
    aji_short_exp e = aji_short_reduce(aji_clamped(aji_abs(x), 0, 95));
    double z = e.r * e.r, a = 0.5 * e.power, b = 0.5 / e.power;
    double odd = e.r + e.r * z * (aji_poly2(z, 0.16666666681647016, 0.00833331090172597) + z * z * 0.00019891017184302029);
    double even = z * aji_poly4(z, 0.49999999999954975, 0.041666666786527869, 0.0013888839037847843, 2.4867918601290165e-05);
    return (float)aji_with_sign((a - b) + ((a - b) * even + (a + b) * odd), x);
}

AJI_MATHS float aji_coshf(float x) {
    double y = aji_short_power(aji_clamped(aji_abs(x), 0, 95));
    return (float)(0.5 * y + 0.5 / y);
}

/* ---- logarithms ---- */

/* log(1 + f) = 2 s + s^3 p(s^2) with s = f / (2 + f) */
AJI_MATHS double aji_short_log_near_1(double f) {
    double s = f / (2 + f), z = s * s;
    return 2 * s + s * z * aji_poly4(z, 0.66666666554459353, 0.40000121870673278, 0.28550817314235061, 0.23330562497236301);
}

AJI_MATHS double aji_short_log(double x) {
    aji_log_argument a = aji_log_reduce(x);
    return a.k * 0x1.62e42fefa39efp-1 + aji_short_log_near_1(a.m - 1);
}

/* 1 + x has lost what makes a small x. */
AJI_MATHS double aji_short_log1p(double x) {
    aji_log_argument a = aji_log_reduce(1 + x);
    bool small = aji_abs(x) < 0.25;
    return (small ? 0 : a.k) * 0x1.62e42fefa39efp-1 + aji_short_log_near_1(small ? x : a.m - 1);
}

AJI_MATHS float aji_logf(float x) {
    double y = x == INFINITY ? INFINITY : aji_short_log(x);
    y = x == 0 ? -INFINITY : y;
    return (float)(x < 0 ? NAN : x != x ? x : y);
}

AJI_MATHS float aji_log1pf(float x) {
    double y = x == INFINITY ? INFINITY : aji_with_sign(aji_short_log1p(x), x);
    y = x == -1 ? -INFINITY : y;
    return (float)(x < -1 ? NAN : x != x ? x : y);
}

AJI_MATHS float aji_softplusf(float x) {
    double y = aji_short_log1p(aji_short_power(aji_clamped(-aji_abs(x), -110, 0)));
    return (float)(x != x ? x : (x > 0 ? x : 0) + y);
}

/* ---- angles ---- */

typedef struct aji_short_circle {
    double sin, cos; /* of an angle up to pi/4; x is n right angles more */
    uint64_t n;
} aji_short_circle;

AJI_MATHS aji_short_circle aji_short_circle_of(double x) {
    double shifted = x * 0x1.45f306dc9c883p-1 + AJI_ROUNDER, n = shifted - AJI_ROUNDER;
    double r = (x - n * 0x1.921fb544p+0) - n * 0x1.0b4611a626331p-34, z = r * r, square = z * z;
    double p = aji_poly4(z, -0.16666666663855262, 0.0083333318746990938, -0.00019840086729380757, 2.7249925024537884e-06);
    double q = aji_poly4(z, -0.4999999999996389, 0.041666666637395773, -0.0013888885091370266, 2.4799862181394351e-05);
    return (aji_short_circle){r + r * z * p, 1 + z * (q + square * square * -2.7237139607171011e-07), aji_bits(shifted)};
}

AJI_MATHS double aji_short_sin_after(double x, uint64_t quadrants) {
    aji_short_circle c = aji_short_circle_of(x);
    uint64_t n = c.n + quadrants;
    return aji_from_bits(aji_bits(aji_choose(-(n & 1), c.cos, c.sin)) ^ (n & 2) << 62);
}

AJI_MATHS float aji_sinf(float x) {
    return x == 0 ? x : (float)aji_short_sin_after(x, 0);
}

AJI_MATHS float aji_cosf(float x) {
    return (float)aji_short_sin_after(x, 1);
}

AJI_MATHS float aji_tanf(float x) {
    aji_short_circle c = aji_short_circle_of(x);
    uint64_t odd = -(c.n & 1);
    return x == 0 ? x : (float)(aji_choose(odd, -c.cos, c.sin) / aji_choose(odd, c.sin, c.cos));
}

/* atan(above / below) for 0 <= above <= below */
AJI_MATHS double aji_short_atan(double above, double below) {
    double t = above / below, z = t * t, fourth = z * z * z * z;
    double p = aji_poly8(z, -0.33333333326944142, 0.19999998154086215, -0.14285624891483525, 0.11109392308322223,
                         -0.090735531189764088, 0.075866528336466704, -0.062463151941283171, 0.047294798621813336);
    double q = aji_poly4(z, -0.029913111945516959, 0.014072923344697239, -0.0042216579909296476, 0.0005930437556365382);
    return t + t * z * (p + fourth * fourth * q);
}

AJI_MATHS float aji_atanf(float x) {
    double size = aji_abs(x), y = aji_short_atan(size > 1 ? 1 : size, size > 1 ? size : 1);
    return (float)aji_with_sign(size > 1 ? AJI_HALF_PI.hi - y : y, x);
}

AJI_MATHS float aji_atan2f(float y, float x) {
    double a = aji_abs(y), b = aji_abs(x), above = a < b ? a : b, below = a < b ? b : a;
    below = below == 0 || above == INFINITY ? 1 : below;
    double angle = aji_short_atan(above == INFINITY ? 1 : above, below);
    angle = a > b ? AJI_HALF_PI.hi - angle : angle;
    angle = aji_with_sign(1, x) < 0 ? AJI_PI.hi - angle : angle;
    return x != x || y != y ? x + y : (float)aji_with_sign(angle, y);
}

/* asin |x| up to 1/2, and from there pi/2 - asin |x| */
AJI_MATHS double aji_short_asin(double size) {
    double z = size < 0.5 ? size * size : 0.5 * (1 - size), fourth = z * z * z * z;
    double p = aji_poly4(z, 0.16666666686085643, 0.074999924044018382, 0.044647663888134848, 0.030269138728589183);
    double q = aji_poly2(z, 0.023611817008891752, 0.010574415516912909) + z * z * 0.030974540371355073;
    double x = size < 0.5 ? size : 2 * sqrt(z);
    return x + x * z * (p + fourth * q);
}

AJI_MATHS float aji_asinf(float x) {
    double size = aji_abs(x), y = aji_short_asin(size);
    return (float)aji_with_sign(size < 0.5 ? y : AJI_HALF_PI.hi - y, x);
}

AJI_MATHS float aji_acosf(float x) {
    double size = aji_abs(x), y = aji_short_asin(size);
    double small = AJI_HALF_PI.hi - (x < 0 ? -y : y), large = x < 0 ? AJI_PI.hi - y : y;
    return (float)(size < 0.5 ? small : large);
}

/* ---- the error function: as for doubles, e^(x^2) (1 - erf x) being interpolated in (x - 2) / (x + 2), 1 <= x <= 4 ---- */
AJI_MATHS float aji_erff(float x) {
    double size = aji_clamped(aji_abs(x), 0, 4), z = size * size, t = (size - 2) / (size + 2);
    double p = aji_poly8(z, 0.12837916706154343, -0.37612638468028708, 0.11283782495236845, -0.026865430727670243,
                         0.0052210318078580228, -0.00084840804055351068, 0.00011265959025606609, -9.6670445714869965e-06);
    double q = aji_poly8(t, 0.25539567625190335, -0.42718584761434303, 0.24165821109072444, -0.078978523272533491,
                         0.0037321413513030097, 0.0069948554135999576, -0.00083658997364860575, -0.00094415963408727354);
    return (float)aji_with_sign(size < 1 ? size + size * p : 1 - aji_short_power(-z) * q, x);
}

#endif
