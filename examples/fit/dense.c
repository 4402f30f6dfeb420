#include "dense.h"

#include <math.h>
#include <string.h>

double dense_norm(int n, const double *v) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += v[i] * v[i];
    return sqrt(sum);
}

double dense_column_norm(int n, const double *a, int j) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += a[i * n + j] * a[i * n + j];
    return sqrt(sum);
}

static bool cholesky(int n, const double *a, double shift, double *r) {
    memset(r, 0, (size_t)(n * n) * sizeof *r);
    for (int k = 0; k < n; k++) {
        double diagonal = a[k * n + k] > 0 ? a[k * n + k] : 1, pivot = a[k * n + k] + shift * diagonal;
        for (int i = 0; i < k; i++)
            pivot -= r[i * n + k] * r[i * n + k];
        if (!(pivot > 0))
            return false;
        r[k * n + k] = sqrt(pivot);
        for (int j = k + 1; j < n; j++) {
            double sum = a[k * n + j];
            for (int i = 0; i < k; i++)
                sum -= r[i * n + k] * r[i * n + j];
            r[k * n + j] = sum / r[k * n + k];
        }
    }
    return true;
}

void dense_cholesky(int n, const double *a, double *r) {
    if (cholesky(n, a, 0, r))
        return;
    double shift = n * 1e-15;
    while (!cholesky(n, a, shift, r) && shift < 1e3)
        shift *= 10;
}

void dense_invert_upper(int n, const double *r, double *inverse) {
    memset(inverse, 0, (size_t)(n * n) * sizeof *inverse);
    for (int j = 0; j < n; j++) {
        inverse[j * n + j] = 1 / r[j * n + j];
        for (int i = j - 1; i >= 0; i--) {
            double sum = 0;
            for (int k = i + 1; k <= j; k++)
                sum += r[i * n + k] * inverse[k * n + j];
            inverse[i * n + j] = -sum / r[i * n + i];
        }
    }
}

void dense_multiply_upper(int n, const double *a, const double *b, double *product) {
    memset(product, 0, (size_t)(n * n) * sizeof *product);
    for (int i = 0; i < n; i++)
        for (int k = i; k < n; k++)
            for (int j = k; j < n; j++)
                product[i * n + j] += a[i * n + k] * b[k * n + j];
}

void dense_apply(int n, const double *a, const double *x, double *y) {
    for (int i = 0; i < n; i++) {
        y[i] = 0;
        for (int j = 0; j < n; j++)
            y[i] += a[i * n + j] * x[j];
    }
}

void dense_apply_transposed(int n, const double *a, const double *x, double *y) {
    for (int j = 0; j < n; j++) {
        y[j] = 0;
        for (int i = 0; i < n; i++)
            y[j] += a[i * n + j] * x[i];
    }
}

void dense_solve_upper(int n, const double *r, const double *y, double *x) {
    for (int i = n - 1; i >= 0; i--) {
        double sum = y[i];
        for (int j = i + 1; j < n; j++)
            sum -= r[i * n + j] * x[j];
        x[i] = sum / r[i * n + i];
    }
}

void dense_solve_upper_transposed(int n, const double *r, const double *y, double *x) {
    for (int j = 0; j < n; j++) {
        double sum = y[j];
        for (int i = 0; i < j; i++)
            sum -= r[i * n + j] * x[i];
        x[j] = sum / r[j * n + j];
    }
}

/* Rotate (row, rhs), whose entries before k are zero, into the triangle (s, d) from row k on. */
static void rotate_in(int n, double *s, double *d, double *row, double rhs, int k) {
    for (; k < n; k++) {
        double length = hypot(s[k * n + k], row[k]);
        if (length == 0)
            continue;
        double cosine = s[k * n + k] / length, sine = row[k] / length;
        for (int j = k; j < n; j++) {
            double upper = s[k * n + j];
            s[k * n + j] = cosine * upper + sine * row[j];
            row[j] = cosine * row[j] - sine * upper;
        }
        double upper = d[k];
        d[k] = cosine * upper + sine * rhs;
        rhs = cosine * rhs - sine * upper;
    }
}

void dense_damp(int n, const double *r, const double *c, double damping, const double *scale, double *s, double *d) {
    memcpy(s, r, (size_t)(n * n) * sizeof *s);
    memcpy(d, c, (size_t)n * sizeof *d);
    for (int k = 0; k < n; k++) {
        double row[DENSE_MAX] = {0};
        row[k] = sqrt(damping) * scale[k];
        rotate_in(n, s, d, row, 0, k);
    }
}
