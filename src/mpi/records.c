/*
 * Our own MPI operators, and memory for their records.
 */
#include "mpi/extremum.h"
#include "mpi/product.h"
#include "mpi/reductions.h"

static const aji_operator *const operators[AJI_N_OWN] = {
    [AJI_OWN_MAX] = &aji_operator_max,
    [AJI_OWN_MIN] = &aji_operator_min,
    [AJI_OWN_WHOLE_MAX] = &aji_operator_whole_max,
    [AJI_OWN_WHOLE_MIN] = &aji_operator_whole_min,
    [AJI_OWN_PRODUCT] = &aji_operator_product,
    [AJI_OWN_ALL_BUT_ONE] = &aji_operator_all_but_one,
    [AJI_OWN_COMPOSE] = &aji_operator_compose,
};

aj_status aji_operators_attach(aji_mpi *mpi, const char *op) {
    int code = MPI_SUCCESS;
    mpi->exchanged = MPI_OP_NULL;
    for (int i = 0; i < AJI_N_OWN; i++) {
        mpi->own[i] = MPI_OP_NULL;
        mpi->record[i] = MPI_DATATYPE_NULL;
    }
    for (int i = 0; i < AJI_N_OWN && code == MPI_SUCCESS; i++) {
        code = MPI_Op_create(operators[i]->function, operators[i]->commutes, &mpi->own[i]);
        if (code == MPI_SUCCESS)
            code = MPI_Type_contiguous((int)operators[i]->bytes, MPI_BYTE, &mpi->record[i]);
        if (code == MPI_SUCCESS)
            code = MPI_Type_commit(&mpi->record[i]);
    }
    if (code == MPI_SUCCESS)
        code = MPI_Op_create(aji_exchanged_function, 0, &mpi->exchanged);
    if (code != MPI_SUCCESS)
        aji_operators_detach(mpi);
    return aji_mpi_check(mpi->ctx, op, code);
}

void aji_operators_detach(aji_mpi *mpi) {
    if (mpi->exchanged != MPI_OP_NULL)
        MPI_Op_free(&mpi->exchanged);
    for (int i = 0; i < AJI_N_OWN; i++) {
        if (mpi->own[i] != MPI_OP_NULL)
            MPI_Op_free(&mpi->own[i]);
        if (mpi->record[i] != MPI_DATATYPE_NULL)
            MPI_Type_free(&mpi->record[i]);
    }
}

const char *aji_operator_name(const aji_mpi *mpi, MPI_Op op) {
    for (int i = 0; i < AJI_N_OWN; i++)
        if (mpi->own[i] == op)
            return operators[i]->name;
    return op == mpi->exchanged ? "an MPI_Op with its operands exchanged" : NULL;
}

aj_status aji_records_open(const aji_call *c, aji_records *r, const aji_record_kind *kind, aji_own own, int64_t n,
                           const aji_value *x) {
    const aji_mpi *mpi = aji_mpi_of(c->ctx);
    *r = (aji_records){
        .kind = kind, .data = aji_alloc(c->ctx, (size_t)n * kind->bytes), .n = n, .type = mpi->record[own], .op = mpi->own[own]};
    if (!r->data)
        return AJ_ERR_MEMORY;
    if (x)
        kind->fill(r->data, n, x, c->comm->rank);
    return AJ_OK;
}

void aji_records_close(const aji_call *c, aji_records *r) {
    if (r->data)
        aji_free(c->ctx, r->data, (size_t)r->n * r->kind->bytes);
}
