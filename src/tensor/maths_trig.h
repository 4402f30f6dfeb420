/* sin, cos, tan, and their inverses. See maths.h. */
#ifndef AJI_MATHS_TRIG_H
#define AJI_MATHS_TRIG_H

#include "tensor/maths.h"

/* Up to here sin, cos and tan are right; greater numbers need more digits of pi. */
#define AJI_TRIG_MAX 0x1p20

typedef struct aji_angle {
    double r, low;     /* x = n pi/2 + r + low, |r| <= pi/4 */
    uint64_t quadrant; /* n, the last two bits */
} aji_angle;

/* pi/2 in three parts of 33 bits, whose products with n are exact, and the rest: 151 bits, for what is near a multiple. */
AJI_MATHS aji_angle aji_angle_of(double x) {
    double shifted = x * 0x1.45f306dc9c883p-1 + AJI_ROUNDER, n = shifted - AJI_ROUNDER;
    aji_sum a = aji_add_any(x - n * 0x1.921fb544p+0, -(n * 0x1.0b4611a6p-34));
    aji_sum b = aji_add_any(a.hi, -(n * 0x1.3198a2ep-69));
    aji_sum r = aji_add_any(b.hi, b.lo + (a.lo - n * 0x1.b839a252049c1p-104));
    return (aji_angle){r.hi, r.lo, aji_bits(shifted)};
}

/* sin(r + low) = r + lo; the series, from r^5 on interpolated */
AJI_MATHS aji_sum aji_sin_sum(aji_angle a) {
    double z = a.r * a.r, square = z * z;
    double p = aji_poly4(z, -0.16666666666666666, 0.0083333333333333315, -0.00019841269841265065, 2.7557319219339121e-06);
    p += square * square * (aji_poly2(z, -2.505210623243116e-08, 1.6058531616384064e-10) + square * -7.586696964319367e-13);
    return aji_add_smaller(a.r, a.r * z * p + a.low * (1 - 0.5 * z));
}

AJI_MATHS aji_sum aji_cos_sum(aji_angle a) {
    double z = a.r * a.r, square = z * z;
    double p = aji_poly4(z, 0.041666666666666664, -0.0013888888888887398, 2.4801587298765659e-05, -2.7557317271714906e-07);
    p += square * square * aji_poly2(z, 2.0876146265300598e-09, -1.1382632201990359e-11);
    aji_sum y = aji_add_smaller(1, -0.5 * z);
    return aji_add_smaller(y.hi, y.lo + (square * p - a.r * a.low));
}

/* The sine of an angle that is `quadrants` right angles greater */
AJI_MATHS double aji_sin_after(double x, uint64_t quadrants) {
    aji_angle a = aji_angle_of(x);
    uint64_t quadrant = a.quadrant + quadrants;
    double y = aji_choose(-(quadrant & 1), aji_cos_sum(a).hi, aji_sin_sum(a).hi);
    return aji_from_bits(aji_bits(y) ^ (quadrant & 2) << 62);
}

AJI_MATHS double aji_sin(double x) {
    double y = aji_sin_after(x, 0);
    return x == 0 ? x : y;
}

AJI_MATHS double aji_cos(double x) {
    return aji_sin_after(x, 1);
}

AJI_MATHS double aji_tan(double x) {
    aji_angle a = aji_angle_of(x);
    aji_sum s = aji_sin_sum(a), c = aji_cos_sum(a);
    uint64_t odd = -(a.quadrant & 1);
    aji_sum above = {aji_choose(odd, -c.hi, s.hi), aji_choose(odd, -c.lo, s.lo)};
    aji_sum below = {aji_choose(odd, s.hi, c.hi), aji_choose(odd, s.lo, c.lo)};
    double y = aji_quotient(above, below);
    return x == 0 ? x : y;
}

#define AJI_HALF_PI ((aji_sum){0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54})
#define AJI_PI ((aji_sum){0x1.921fb54442d18p+1, 0x1.1a62633145c07p-53})

AJI_MATHS aji_sum aji_minus(aji_sum a, aji_sum b) { /* |a| >= |b| */
    aji_sum y = aji_add_smaller(a.hi, -b.hi);
    return aji_add_smaller(y.hi, y.lo + (a.lo - b.lo));
}

/*
 * atan(above / below) for 0 <= above <= below: base + atan(t), where base is atan 0, atan 1/2 or atan 1, and t <= 7/16. The numerators are
 * exact. The series of atan, from t^3 on interpolated.
 */
AJI_MATHS aji_sum aji_atan_sum(double above, double below) {
    double sixteen = 16 * above;
    double t_above = sixteen < 7 * below ? above : sixteen < 11 * below ? 2 * above - below : above - below;
    double t_below = sixteen < 7 * below ? below : sixteen < 11 * below ? 2 * below + above : below + above;
    double base = sixteen < 7 * below ? 0 : sixteen < 11 * below ? 0x1.dac670561bb4fp-2 : 0x1.921fb54442d18p-1;
    double base_low = sixteen < 7 * below ? 0 : sixteen < 11 * below ? 0x1.a2b7f222f65e2p-56 : 0x1.1a62633145c07p-55;
    double t = t_above / t_below, z = t * t, square = z * z, eighth = square * square * square * square;
    double p = aji_poly8(z, -0.33333333333333331, 0.19999999999999971, -0.14285714285705997, 0.11111111110153817,
                         -0.090909090333201631, 0.076923056244233207, -0.066666188205532342, 0.058816071066377221);
    p += eighth * (aji_poly4(z, -0.052551356356953488, 0.047018866908246811, -0.040376123543043478, 0.029171888953402055) +
                   square * square * -0.012516386518778618);
    aji_sum y = aji_add_smaller(base, t);
    return aji_add_smaller(y.hi, y.lo + (t * z * p + base_low));
}

AJI_MATHS double aji_atan(double x) {
    double size = aji_abs(x);
    aji_sum y = aji_atan_sum(size > 1 ? 1 : size, size > 1 ? size : 1), other = aji_minus(AJI_HALF_PI, y);
    return aji_with_sign(size > 1 ? other.hi : y.hi, x);
}

/* Both sides are brought near 1 where sums of them would overflow or quotients lose bits. */
AJI_MATHS double aji_atan2(double y, double x) {
    double a = aji_abs(y), b = aji_abs(x), above = a < b ? a : b, below = a < b ? b : a;
    double factor = below > 0x1p1000 ? 0x1p-100 : below < 0x1p-900 ? 0x1p100 : 1;
    above = above == INFINITY ? 1 : above * factor;
    below = a == INFINITY && b == INFINITY ? 1 : below == 0 ? 1 : below * factor;
    aji_sum t = aji_atan_sum(above, below), other = aji_minus(AJI_HALF_PI, t);
    t.hi = a > b ? other.hi : t.hi;
    t.lo = a > b ? other.lo : t.lo;
    other = aji_minus(AJI_PI, t);
    double angle = aji_with_sign(1, x) < 0 ? other.hi : t.hi;
    return x != x || y != y ? x + y : aji_with_sign(angle, y);
}

/* (asin x - x) / x, for z = x^2 <= 1/4: the series, interpolated */
AJI_MATHS double aji_asin_rest(double z) {
    double square = z * z, eighth = square * square * square * square;
    double p = aji_poly8(z, 0.16666666666666666, 0.075000000000001177, 0.044642857142551895, 0.03038194447553234,
                         0.022372157443507221, 0.017352816540325496, 0.01396378001220357, 0.011566459612121669);
    p += eighth * (aji_poly4(z, 0.0096218429701002816, 0.0093195607947674456, 0.0030448799094556773, 0.019554513336123378) +
                   square * square * aji_poly2(z, -0.019241671746743041, 0.029612011264955121));
    return z * p;
}

/* asin |x| up to 1/2, and from there 2 asin(sqrt((1 - |x|) / 2)) = pi/2 - asin |x| */
AJI_MATHS aji_sum aji_asin_sum(double size) {
    double z = size < 0.5 ? size * size : 0.5 * (1 - size), root = sqrt(z);
    double head = aji_head(root), tail = (z - head * head) / (root + head + DBL_MIN), rest = aji_asin_rest(z);
    aji_sum y = {size < 0.5 ? size : 2 * head, size < 0.5 ? size * rest : 2 * (tail + root * rest)};
    return aji_add_smaller(y.hi, y.lo);
}

AJI_MATHS double aji_asin(double x) {
    double size = aji_abs(x);
    aji_sum y = aji_asin_sum(size), other = aji_minus(AJI_HALF_PI, y);
    return aji_with_sign(size < 0.5 ? y.hi : other.hi, x);
}

AJI_MATHS double aji_acos(double x) {
    double size = aji_abs(x);
    aji_sum y = aji_asin_sum(size), from_pi = aji_minus(AJI_PI, y);
    aji_sum small = aji_minus(AJI_HALF_PI, (aji_sum){x < 0 ? -y.hi : y.hi, x < 0 ? -y.lo : y.lo});
    return size < 0.5 ? small.hi : x < 0 ? from_pi.hi : y.hi;
}

#endif
