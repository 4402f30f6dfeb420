/*
 * Pairs (value, rank) for MPI_MAX and MPI_MIN.
 */
#include "mpi/extremum.h"

typedef struct pair {
    double value; /* of f32 too: exact */
    int64_t rank;
} pair;

/* Does a win over b? */
static bool wins(const pair *a, const pair *b, bool largest) {
    bool a_nan = a->value != a->value, b_nan = b->value != b->value;
    if (a_nan != b_nan)
        return a_nan;
    if (!a_nan && a->value != b->value)
        return largest ? a->value > b->value : a->value < b->value;
    return a->rank < b->rank;
}

static void reduce(const void *in, void *inout, int n, bool largest) {
    const pair *a = in;
    pair *b = inout;
    for (int i = 0; i < n; i++)
        if (wins(&a[i], &b[i], largest))
            b[i] = a[i];
}

static void reduce_max(void *in, void *inout, int *n, MPI_Datatype *type) {
    (void)type;
    reduce(in, inout, *n, true);
}

static void reduce_min(void *in, void *inout, int *n, MPI_Datatype *type) {
    (void)type;
    reduce(in, inout, *n, false);
}

aj_status aji_extremum_attach(aji_mpi *mpi, const char *op) {
    int code = MPI_Type_contiguous((int)sizeof(pair), MPI_BYTE, &mpi->pair);
    if (code == MPI_SUCCESS)
        code = MPI_Type_commit(&mpi->pair);
    if (code == MPI_SUCCESS)
        code = MPI_Op_create(reduce_max, 1, &mpi->max);
    if (code == MPI_SUCCESS)
        code = MPI_Op_create(reduce_min, 1, &mpi->min);
    return aji_mpi_check(mpi->ctx, op, code);
}

void aji_extremum_detach(aji_mpi *mpi) {
    MPI_Op_free(&mpi->max);
    MPI_Op_free(&mpi->min);
    MPI_Type_free(&mpi->pair);
}

bool aji_is_extremum(const aji_call *c, MPI_Op op) {
    return (op == MPI_MAX || op == MPI_MIN) && aji_dtype_is_float(c->in_meta[0].dtype);
}

aj_status aji_pairs_open(aji_call *c, aji_pairs *p, MPI_Op op, int64_t n, const aji_value *x) {
    const aji_mpi *mpi = aji_mpi_of(c->ctx);
    *p = (aji_pairs){.data = aji_alloc(c->ctx, (size_t)n * sizeof(pair)),
                     .n = n,
                     .type = mpi->pair,
                     .op = op == MPI_MAX ? mpi->max : mpi->min};
    if (!p->data)
        return AJ_ERR_MEMORY;
    pair *pairs = p->data;
    const void *data = x ? aji_value_data(x) : NULL;
    for (int64_t i = 0; x && i < n; i++)
        pairs[i] = (pair){x->meta.dtype == AJ_F64 ? ((const double *)data)[i] : ((const float *)data)[i], c->comm->rank};
    return AJ_OK;
}

void aji_pairs_close(const aji_call *c, aji_pairs *p) {
    aji_free(c->ctx, p->data, (size_t)p->n * sizeof(pair));
}

static void put(aji_value *v, int64_t i, double number) {
    if (v->meta.dtype == AJ_F64)
        ((double *)aji_value_data(v))[i] = number;
    else
        ((float *)aji_value_data(v))[i] = (float)number;
}

aji_value *aji_pairs_split(const aji_pairs *p, aji_value *y) {
    const pair *pairs = p->data;
    aji_value *winner = aji_value_new(y->ctx, y->device, &y->meta);
    for (int64_t i = 0; winner && i < p->n; i++) {
        put(y, i, pairs[i].value);
        put(winner, i, (double)pairs[i].rank);
    }
    return winner;
}

aj_tensor *aji_constant_on(aji_value *v, aj_device device) {
    aji_value *there = aji_value_on(v, device);
    return there ? aji_tensor_wrap(there, "aj_allreduce") : NULL;
}

aj_tensor *aji_for_winner(const aji_call *c, aj_tensor *g, aj_tensor *winner) {
    aj_tensor *mine = winner ? aj_eq(winner, aji_full_like(winner, c->comm->rank)) : NULL;
    return mine && g ? aj_where(mine, g, aji_zeros_like(g)) : NULL;
}

void aji_reduction_attr_free(aj_ctx *ctx, void *attr) {
    (void)ctx;
    aji_value_release(((aji_reduction_attr *)attr)->winner);
}
