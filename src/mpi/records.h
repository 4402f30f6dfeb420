/*
 * Reductions that tell more than their result: each entry is a record of several numbers, reduced by an MPI operator of our own.
 */
#ifndef AJI_RECORDS_H
#define AJI_RECORDS_H

#include "mpi/comm_internal.h"

/* An MPI operator of our own. */
typedef struct aji_operator {
    const char *name;
    MPI_User_function *function;
    bool commutes;
    size_t bytes; /* of a record */
} aji_operator;

/* How an operand becomes records, and records a result. `kept` is what the adjoint needs besides, entry by entry: n_kept values like the result. */
enum { AJI_MAX_KEPT = 3 };
typedef struct aji_record_kind {
    size_t bytes;
    int n_kept;
    void (*fill)(void *records, int64_t n, const aji_value *x, int rank);
    void (*take)(const void *records, int64_t n, aji_value *y, aji_value *const *kept); /* kept: NULL where it is of no use */
} aji_record_kind;

typedef struct aji_records {
    const aji_record_kind *kind;
    void *data; /* n records */
    int64_t n;
    MPI_Datatype type;
    MPI_Op op;
} aji_records;
/* Memory for n records, contents undefined; x not NULL: those of its entries (contiguous, in host memory). */
aj_status aji_records_open(const aji_call *c, aji_records *r, const aji_record_kind *kind, aji_own own, int64_t n,
                           const aji_value *x);
void aji_records_close(const aji_call *c, aji_records *r);

/* The operators of a context. */
aj_status aji_operators_attach(aji_mpi *mpi, const char *op);
void aji_operators_detach(aji_mpi *mpi);
const char *aji_operator_name(const aji_mpi *mpi, MPI_Op op); /* NULL: none of ours */

/* Entry i of a contiguous value in host memory, of a floating dtype. */
static inline double aji_number_at(const aji_value *v, int64_t i) {
    const void *data = aji_value_data(v);
    return v->meta.dtype == AJ_F64 ? ((const double *)data)[i] : ((const float *)data)[i];
}

/* The same to be set; of i64 too. */
static inline void aji_put_number(aji_value *v, int64_t i, double number) {
    void *data = aji_value_data(v);
    if (v->meta.dtype == AJ_F64)
        ((double *)data)[i] = number;
    else if (v->meta.dtype == AJ_F32)
        ((float *)data)[i] = (float)number;
    else
        ((int64_t *)data)[i] = (int64_t)number;
}

#endif
