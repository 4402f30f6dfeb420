/*
 * User-defined MPI_Ops with their derivatives.
 */
#ifndef AJI_USER_OP_H
#define AJI_USER_OP_H

#include "mpi/comm_internal.h"

struct aji_user_op {
    int refs; /* the context's, and those of nodes */
    aji_user_op *next;
    MPI_Op op;
    bool commutes;
    aj_op_vjp vjp;
    void *user;
    size_t bytes;
    char name[];
};
aji_user_op *aji_user_op_find(const aj_ctx *ctx, MPI_Op op); /* borrowed; NULL: not registered */
aji_user_op *aji_user_op_retain(aji_user_op *u);
void aji_user_op_release(aj_ctx *ctx, aji_user_op *u); /* NULL is fine */
void aji_user_ops_free(aji_mpi *mpi);

/* The derivative: what it does not get, by its kind, may be given all the same. NULL with an error. */
aj_tensor *aji_user_vjp(const aji_user_op *u, aj_tensor *prefix, aj_tensor *x, aj_tensor *suffix, aj_tensor *y, aj_tensor *g);

/* inout = in op inout, n entries */
aj_status aji_user_op_apply(const aji_call *c, const aji_user_op *u, const void *in, void *inout, int64_t n, MPI_Datatype type);
/* ops/combine.c: y = a op b, on this rank. */
aj_tensor *aji_combine(aji_user_op *u, aj_tensor *a, aj_tensor *b);

/* The operation with its operands exchanged, as MPI's collectives take it: mpi->exchanged on entries of a datatype that names the operation. */
typedef struct aji_exchanged {
    MPI_Op op;
    MPI_Datatype base, type;
} aji_exchanged;
aj_status aji_exchanged_open(const aji_call *c, aji_exchanged *x, const aji_user_op *u, MPI_Datatype base);
void aji_exchanged_close(aji_exchanged *x);
extern MPI_User_function aji_exchanged_function;

#endif
