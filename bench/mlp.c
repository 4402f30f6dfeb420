/*
 * y = tanh(x W1) W2 for n rows x of this rank's own and n x n weights, which are means over the ranks of what each rank holds: W = allreduce(w) / S.
 * loss = mean of y^2. By hand the weights stay sums: the 1/S is a factor of the products.
 */
#include <cblas.h>
#include <math.h>
#include <stdlib.h>

#include "bench.h"

enum { N_WEIGHTS = 2 };

typedef struct mlp {
    double *memory;
    double *x, *w[N_WEIGHTS];                                /* given */
    double *sum[N_WEIGHTS], *hidden, *y, *g, *gw[N_WEIGHTS]; /* by hand */
    aj_tensor *tx, *tw[N_WEIGHTS];                           /* given, for the library */
} mlp;

static const char *setup(bench *b) {
    size_t size = (size_t)b->n * (size_t)b->n;
    mlp *m = b->state = calloc(1, sizeof *m);
    double *next = m ? m->memory = calloc(10 * size, sizeof *next) : NULL;
    if (!next)
        return bench_no_memory;
    double **const arrays[] = {&m->x, &m->w[0], &m->w[1], &m->sum[0], &m->sum[1], &m->hidden, &m->y, &m->g, &m->gw[0], &m->gw[1]};
    for (int i = 0; i < 10; i++, next += size)
        *arrays[i] = next;
    for (int k = 0; k < 1 + N_WEIGHTS; k++) /* x in [-1, 1], weights such that sums of n products are of size 1 */
        for (size_t i = 0; i < size; i++)
            (*arrays[k])[i] = sin(1.7 * (double)i + k + 0.3 * b->rank) / (k ? sqrt(b->n) : 1);
    m->tx = aj_keep(aj_from_data(b->ctx, AJ_F64, AJ_SHAPE(b->n, b->n), m->x));
    for (int k = 0; k < N_WEIGHTS; k++)
        m->tw[k] = aj_param(aj_from_data(b->ctx, AJ_F64, AJ_SHAPE(b->n, b->n), m->w[k]));
    return NULL;
}

static void teardown(bench *b) {
    mlp *m = b->state;
    if (!m)
        return;
    aj_release(&m->tx);
    for (int k = 0; k < N_WEIGHTS; k++)
        aj_release(&m->tw[k]);
    free(m->memory);
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
        MPI_Allreduce(m->w[k], m->sum[k], size, MPI_DOUBLE, MPI_SUM, b->mpi);
    product(b, m->x, CblasNoTrans, m->sum[0], CblasNoTrans, mean, m->hidden);
    tanh_all(m->hidden, size);
    product(b, m->hidden, CblasNoTrans, m->sum[1], CblasNoTrans, mean, m->y);
    double loss = mean_square(m->y, size);
    product(b, m->hidden, CblasTrans, m->y, CblasNoTrans, mean, m->gw[1]);
    MPI_Allreduce(MPI_IN_PLACE, m->gw[1], size, MPI_DOUBLE, MPI_SUM, b->mpi);
    product(b, m->y, CblasNoTrans, m->sum[1], CblasTrans, mean, m->g);
    tanh_back(m->g, m->hidden, size);
    product(b, m->x, CblasTrans, m->g, CblasNoTrans, mean, m->gw[0]);
    MPI_Allreduce(MPI_IN_PLACE, m->gw[0], size, MPI_DOUBLE, MPI_SUM, b->mpi);
    bench_result(b, "loss", &loss, 1);
    for (int k = 0; k < N_WEIGHTS; k++)
        bench_result(b, "gw", m->gw[k], size);
}

/* ---- with the library ---- */

static void adjoin(bench *b) {
    mlp *m = b->state;
    aj_tensor *w[N_WEIGHTS];
    aj_scope *scope = aj_scope_begin(b->ctx);
    aj_record_begin(b->ctx);
    for (int k = 0; k < N_WEIGHTS; k++)
        w[k] = aj_scale(aj_allreduce(m->tw[k], MPI_SUM, b->comm), 1.0 / b->size);
    aj_tensor *y = aj_matmul(aj_tanh(aj_matmul(m->tx, w[0])), w[1]);
    aj_tensor *loss = aj_mean(aj_square(y));
    for (int k = 0; k < N_WEIGHTS; k++)
        aj_zero_grad(m->tw[k]);
    aj_backward(b->ctx, loss, NULL);
    bench_result_tensor(b, "loss", loss);
    for (int k = 0; k < N_WEIGHTS; k++)
        bench_result_tensor(b, "gw", aj_grad(m->tw[k]));
    bench_scope_end(scope);
}

const bench_case mlp_case = {
    "mlp", "two n x n layers, weights averaged over the ranks, a batch of n rows on each", 512, setup, teardown, raw, adjoin};
