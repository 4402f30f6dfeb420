/*
 * Ghosts of width 1 around an n x n tile, periodic in both directions of a grid of ranks: out of place, y being a new field, and ten exchanges in place
 * after that. The adjoint sends the gradients of the ghosts home, where they are added, and leaves zeros.
 *
 * By hand the columns are packed and the rows are not: they are contiguous. Rows go first, columns then have the ghosts of the rows in them, so that the
 * corners arrive; the adjoint takes the columns first.
 */
#include <stdlib.h>
#include <string.h>

#include "bench.h"

enum { LOW, HIGH, EXCHANGES = 10 };

typedef struct halo {
    MPI_Comm mpi;
    aj_comm *comm;
    int neighbours[2][2]; /* by dimension and side */
} halo;

static const char *setup(bench *b) {
    int dims[2] = {0, 0}, periods[2] = {1, 1};
    halo *h = b->state = calloc(1, sizeof *h);
    if (!h)
        return bench_no_memory;
    MPI_Dims_create(b->size, 2, dims);
    MPI_Cart_create(b->mpi, 2, dims, periods, 0, &h->mpi);
    for (int d = 0; d < 2; d++)
        MPI_Cart_shift(h->mpi, d, 1, &h->neighbours[d][LOW], &h->neighbours[d][HIGH]);
    h->comm = aj_comm_create(b->ctx, h->mpi);
    int64_t side = (int64_t)b->n + 2;
    return bench_arrays(b, AJ_SHAPE(side, side), AJ_SHAPE(side, side), 4 * side);
}

static void teardown(bench *b) {
    halo *h = b->state;
    if (!h)
        return;
    aj_comm_destroy(&h->comm);
    MPI_Comm_free(&h->mpi);
    free(h);
}

/* Faces of `count` numbers to both sides along a dimension, and from both. */
static void swap(const halo *h, int dimension, int count, const double *to_low, const double *to_high, double *from_low,
                 double *from_high) {
    int low = h->neighbours[dimension][LOW], high = h->neighbours[dimension][HIGH];
    MPI_Request requests[4];
    MPI_Status statuses[4];
    MPI_Irecv(from_high, count, MPI_DOUBLE, high, LOW, h->mpi, &requests[0]);
    MPI_Irecv(from_low, count, MPI_DOUBLE, low, HIGH, h->mpi, &requests[1]);
    MPI_Isend(to_low, count, MPI_DOUBLE, low, LOW, h->mpi, &requests[2]);
    MPI_Isend(to_high, count, MPI_DOUBLE, high, HIGH, h->mpi, &requests[3]);
    MPI_Waitall(4, requests, statuses);
}

/* The ghosts of a field of side n + 2. */
static void exchange(const bench *b, double *field) {
    const halo *h = b->state;
    int n = b->n, side = n + 2;
    double *row = field + 1, *to_low = b->work, *to_high = to_low + side, *from_low = to_high + side,
           *from_high = from_low + side;
    size_t stride = (size_t)side;
    swap(h, 0, n, row + stride, row + (size_t)n * stride, row, row + (size_t)(n + 1) * stride);
    for (int i = 0; i < side; i++) {
        to_low[i] = field[(size_t)i * stride + 1];
        to_high[i] = field[(size_t)i * stride + (size_t)n];
    }
    swap(h, 1, side, to_low, to_high, from_low, from_high);
    for (int i = 0; i < side; i++) {
        field[(size_t)i * stride] = from_low[i];
        field[(size_t)i * stride + (size_t)n + 1] = from_high[i];
    }
}

static void add_row(double *restrict row, const double *restrict more, int n) {
    for (int i = 0; i < n; i++)
        row[i] += more[i];
}

/* The adjoint of exchange. */
static void send_home(const bench *b, double *g) {
    const halo *h = b->state;
    int n = b->n, side = n + 2;
    double *row = g + 1, *to_low = b->work, *to_high = to_low + side, *from_low = to_high + side, *from_high = from_low + side;
    size_t stride = (size_t)side;
    for (int i = 0; i < side; i++) {
        double *low = g + (size_t)i * stride, *high = low + n + 1;
        to_low[i] = *low;
        to_high[i] = *high;
        *low = *high = 0;
    }
    swap(h, 1, side, to_low, to_high, from_low, from_high);
    for (int i = 0; i < side; i++) {
        g[(size_t)i * stride + 1] += from_low[i];
        g[(size_t)i * stride + (size_t)n] += from_high[i];
    }
    swap(h, 0, n, row, row + (size_t)(n + 1) * stride, from_low, from_high);
    add_row(row + stride, from_low, n);
    add_row(row + (size_t)n * stride, from_high, n);
    memset(row, 0, (size_t)n * sizeof *row);
    memset(row + (size_t)(n + 1) * stride, 0, (size_t)n * sizeof *row);
}

static void raw_exchanges(bench *b, int exchanges) {
    memcpy(b->y, b->x, (size_t)b->n_x * sizeof *b->y);
    for (int k = 0; k < exchanges; k++)
        exchange(b, b->y);
    memcpy(b->gx, b->seed, (size_t)b->n_x * sizeof *b->gx);
    for (int k = 0; k < exchanges; k++)
        send_home(b, b->gx);
    bench_result(b, "y", b->y, b->n_y);
    bench_result(b, "gx", b->gx, b->n_x);
}

static void raw(bench *b) {
    raw_exchanges(b, 1);
}

static void raw_inplace(bench *b) {
    raw_exchanges(b, EXCHANGES);
}

static void adjoin_exchanges(bench *b, int exchanges) {
    const halo *h = b->state;
    const int axes[] = {0, 1};
    const int64_t width[] = {1, 1};
    aj_scope *scope = aj_scope_begin(b->ctx);
    aj_record_begin(b->ctx);
    aj_tensor *y = aj_halo(b->param, 2, axes, width, h->comm);
    for (int k = 1; k < exchanges; k++)
        y = aj_halo_inplace(y, 2, axes, width, h->comm);
    bench_backward(b, y);
    bench_scope_end(scope);
}

static void adjoin(bench *b) {
    adjoin_exchanges(b, 1);
}

static void adjoin_inplace(bench *b) {
    adjoin_exchanges(b, EXCHANGES);
}

const bench_case halo_case = {"halo", "ghosts around an n x n tile, and their gradients sent home", 1024, setup, teardown, raw,
                              adjoin};
const bench_case halo_inplace_case = {
    "halo-inplace", "the same ten times, in place but for the first", 1024, setup, teardown, raw_inplace, adjoin_inplace};
