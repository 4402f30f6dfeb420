/*
 * MPI_MAX and MPI_MIN on floating dtypes: exact gradients need to know which rank holds the extremum. So the reduction runs on pairs (value, rank), with an operator
 * of our own: NaN wins (MPI's own operators may drop it), ties go to the lowest rank.
 */
#ifndef AJI_EXTREMUM_H
#define AJI_EXTREMUM_H

#include "mpi/comm_internal.h"

bool aji_is_extremum(const aji_call *c, MPI_Op op); /* MPI_MAX or MPI_MIN on a floating operand */

typedef struct aji_pairs {
    void *data; /* n pairs */
    int64_t n;
    MPI_Datatype type;
    MPI_Op op;
} aji_pairs;
/* n pairs, contents undefined; x not NULL: of its values (contiguous, in host memory) with this rank. */
aj_status aji_pairs_open(aji_call *c, aji_pairs *p, MPI_Op op, int64_t n, const aji_value *x);
void aji_pairs_close(const aji_call *c, aji_pairs *p);
/* The values into y (contiguous, in host memory), and the ranks as numbers of y's dtype into a value like y. NULL raised. */
aji_value *aji_pairs_split(const aji_pairs *p, aji_value *y);

/* In a vjp: a saved value as a constant on a device. */
aj_tensor *aji_constant_on(aji_value *v, aj_device device);
/* In a vjp: g where this rank is the winner, else zero. winner: numbers of ranks, a constant. */
aj_tensor *aji_for_winner(const aji_call *c, aj_tensor *g, aj_tensor *winner);

/* The attr of reductions. */
typedef struct aji_reduction_attr {
    MPI_Op op;
    int root;
    aji_value *winner; /* of an extremum: which rank holds it, entry by entry, where the result is */
} aji_reduction_attr;
void aji_reduction_attr_free(aj_ctx *ctx, void *attr);

/* The operators of a context. */
aj_status aji_extremum_attach(aji_mpi *mpi, const char *op);
void aji_extremum_detach(aji_mpi *mpi);

#endif
