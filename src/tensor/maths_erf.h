/* The error function. See maths.h. */
#ifndef AJI_MATHS_ERF_H
#define AJI_MATHS_ERF_H

#include "tensor/maths_exp.h"

/* (erf x - x) / x for z = x^2 <= 1 */
AJI_MATHS double aji_erf_rest(double z) {
    double square = z * z, eighth = square * square * square * square;
    double p = aji_poly8(z, 0.12837916709551259, -0.37612638903183754, 0.11283791670955121, -0.02686617064512984,
                         0.0052239776254232985, -0.00085483270219348297, 0.00012055332902888736, -1.4925647567519332e-05);
    double q = aji_poly4(z, 1.6462045441468418e-06, -1.6364642158167616e-07, 1.4792401209404813e-08, -1.216456005728345e-09);
    return p + eighth * (q + square * square * aji_poly2(z, 8.7090451290531062e-11, -4.2309458242953377e-12));
}

/* e^(x^2) (1 - erf x) for 1 <= x <= 6, interpolated in (x - 3) / (x + 3) */
AJI_MATHS double aji_erfc_scaled(double x) {
    double t = (x - 3) / (x + 3), square = t * t, eighth = square * square * square * square;
    double p = aji_poly8(t, 0.17900115118138996, -0.32623356004303716, 0.24560380171233195, -0.15011593650078744,
                         0.071665837197748744, -0.024392499318273194, 0.0042691363475082563, 0.00070774644439015378);
    double q = aji_poly4(t, -0.00059706235170932842, 4.5254726354833543e-05, 6.4061820735305465e-05, -1.2848894512523529e-05);
    double r = aji_poly2(t, -8.0080213194126848e-06, 2.0236031796417568e-06) + square * 1.2801900862962666e-06;
    return p + eighth * (q + square * square * r);
}

AJI_MATHS double aji_erf(double x) {
    double size = aji_clamped(aji_abs(x), 0, 6); /* 1 to all bits from there on */
    double near = size + size * aji_erf_rest(size * size);
    double far = 1 - aji_exp(-size * size) * aji_erfc_scaled(size);
    return aji_with_sign(size < 1 ? near : far, x);
}

#endif
