/*
 * Allen-Cahn: u(i,j) = sin(0.01 (3 i + j)) on an n x n periodic grid, i counted from 1 and j from 0, in blocks of rows;
 * u <- u + k (N + S + W + E - 4 u) + dt (u - u^3) for T steps; J = 1/2 sum of u_T^2, and its gradient with respect to the first u.
 */
#ifndef BENCH_ALLEN_CAHN_H
#define BENCH_ALLEN_CAHN_H

#include "bench.h"

/* One rank's part. */
typedef struct allen_cahn {
    int rows, n;
    MPI_Comm mpi;
    int above, below;         /* the ranks that have the rows before and after these */
    double *states;           /* one for each time */
    double *ghosts;           /* the row above and the row below, of what is at hand */
    double *gradient, *spare; /* two states for the way back */
    aj_tensor *start;         /* a parameter */
    MPI_Comm mpi_grid;        /* ranks x 1, periodic */
    aj_comm *grid;
} allen_cahn;

const char *allen_cahn_setup(bench *b);
void allen_cahn_teardown(bench *b);

/* Everything by hand. */
void allen_cahn_raw(bench *b);

/* One step and its adjoint by hand, with their exchange of rows: from u to next, from the gradient of next to that of u. */
void allen_cahn_step(const allen_cahn *a, const double *u, double *next);
void allen_cahn_step_back(const allen_cahn *a, const double *u, const double *g_next, double *g);

/* With the library: all steps, J, backward. */
void allen_cahn_adjoin(bench *b, aj_tensor *(*step)(bench *b, aj_tensor *u));

#endif
