/*
 * y = tanh(x W1) W2 for n rows x of this rank's own and n x n weights, which are means over the ranks of what each rank holds: W = allreduce(w) / S.
 * loss = mean of y^2. By hand the weights stay sums: the 1/S is a factor of the products.
 */
#include <cblas.h>
#include <math.h>
#include <stdlib.h>

#include "bench.h"

enum { N_WEIGHTS = 2 };

enum { X, W, SUM = W + N_WEIGHTS, GW = SUM + N_WEIGHTS, HIDDEN = GW + N_WEIGHTS, Y, G, N_ARRAYS };

typedef struct mlp {
    double *a[N_ARRAYS]; /* of X and W on: given; the others by hand */
    aj_tensor *x, *w[N_WEIGHTS];
} mlp;

static const char *setup(bench *b) {
    int64_t size = (int64_t)b->n * b->n;
    mlp *m = b->state = calloc(1, sizeof *m);
    for (int k = 0; m && k < N_ARRAYS; k++)
        if (!(m->a[k] = bench_zeros(size)))
            return bench_no_memory;
    if (!m)
        return bench_no_memory;
    for (int k = X; k < W + N_WEIGHTS; k++) /* x in [-1, 1], weights such that sums of n products are of size 1 */
        for (int64_t i = 0; i < size; i++)
            m->a[k][i] = sin(1.7 * (double)i + k + 0.3 * b->rank) / (k == X ? 1 : sqrt(b->n));
    m->x = aj_keep(aj_from_data(b->ctx, AJ_F64, AJ_SHAPE(b->n, b->n), m->a[X]));
    for (int k = 0; k < N_WEIGHTS; k++)
        m->w[k] = aj_param(aj_from_data(b->ctx, AJ_F64, AJ_SHAPE(b->n, b->n), m->a[W + k]));
    return NULL;
}

static void teardown(bench *b) {
    mlp *m = b->state;
    if (!m)
        return;
    aj_release(&m->x);
    for (int k = 0; k < N_WEIGHTS; k++)
        aj_release(&m->w[k]);
    for (int k = 0; k < N_ARRAYS; k++)
        free(m->a[k]);
    free(m);
}

/* ---- by hand ---- */

BENCH_VECTORISED static void tanh_all(double *restrict h, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        h[i] = tanh(h[i]);
}

BENCH_VECTORISED static void tanh_back(double *restrict g, const double *restrict t, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        g[i] *= 1 - t[i] * t[i];
}

/* y becomes its own gradient, 2 y / n. */
BENCH_VECTORISED static double mean_square(double *restrict y, int64_t n) {
    double sum = 0, factor = 2.0 / (double)n;
    for (int64_t i = 0; i < n; i++) {
        sum += y[i] * y[i];
        y[i] *= factor;
    }
    return sum / (double)n;
}

static void product(const bench *b, const double *left, CBLAS_TRANSPOSE t_left, const double *right, CBLAS_TRANSPOSE t_right,
                    double factor, double *out) {
    cblas_dgemm(CblasRowMajor, t_left, t_right, b->n, b->n, b->n, factor, left, b->n, right, b->n, 0, out, b->n);
}

static void raw(bench *b) {
    mlp *m = b->state;
    int size = b->n * b->n;
    double mean = 1.0 / b->size;
    for (int k = 0; k < N_WEIGHTS; k++)
        MPI_Allreduce(m->a[W + k], m->a[SUM + k], size, MPI_DOUBLE, MPI_SUM, b->mpi);
    product(b, m->a[X], CblasNoTrans, m->a[SUM], CblasNoTrans, mean, m->a[HIDDEN]);
    tanh_all(m->a[HIDDEN], size);
    product(b, m->a[HIDDEN], CblasNoTrans, m->a[SUM + 1], CblasNoTrans, mean, m->a[Y]);
    double loss = mean_square(m->a[Y], size);
    product(b, m->a[HIDDEN], CblasTrans, m->a[Y], CblasNoTrans, mean, m->a[GW + 1]);
    MPI_Allreduce(MPI_IN_PLACE, m->a[GW + 1], size, MPI_DOUBLE, MPI_SUM, b->mpi);
    product(b, m->a[Y], CblasNoTrans, m->a[SUM + 1], CblasTrans, mean, m->a[G]);
    tanh_back(m->a[G], m->a[HIDDEN], size);
    product(b, m->a[X], CblasTrans, m->a[G], CblasNoTrans, mean, m->a[GW]);
    MPI_Allreduce(MPI_IN_PLACE, m->a[GW], size, MPI_DOUBLE, MPI_SUM, b->mpi);
    bench_result(b, "loss", &loss, 1);
    for (int k = 0; k < N_WEIGHTS; k++)
        bench_result(b, "gw", m->a[GW + k], size);
}

/* ---- with the library ---- */

static void adjoin(bench *b) {
    mlp *m = b->state;
    aj_tensor *w[N_WEIGHTS];
    aj_scope *scope = aj_scope_begin(b->ctx);
    aj_record_begin(b->ctx);
    for (int k = 0; k < N_WEIGHTS; k++)
        w[k] = aj_scale(aj_allreduce(m->w[k], MPI_SUM, b->comm), 1.0 / b->size);
    aj_tensor *y = aj_matmul(aj_tanh(aj_matmul(m->x, w[0])), w[1]);
    aj_tensor *loss = aj_mean(aj_square(y));
    for (int k = 0; k < N_WEIGHTS; k++)
        aj_zero_grad(m->w[k]);
    aj_backward(b->ctx, loss, NULL);
    bench_result_tensor(b, "loss", loss);
    for (int k = 0; k < N_WEIGHTS; k++)
        bench_result_tensor(b, "gw", aj_grad(m->w[k]));
    bench_scope_end(scope);
}

const bench_case mlp_case = {
    "mlp", "two n x n layers, weights averaged over the ranks, a batch of n rows on each", 512, setup, teardown, raw, adjoin};
