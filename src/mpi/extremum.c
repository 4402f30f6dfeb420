/*
 * Pairs (value, rank) for MPI_MAX and MPI_MIN.
 */
#include "mpi/extremum.h"

typedef struct pair {
    double value; /* of f32 too: exact */
    int64_t rank;
} pair;

typedef struct whole_pair {
    int64_t value; /* of all integer dtypes */
    int64_t rank;
} whole_pair;

/* ---- the operators ---- */

/* Does a win over b? */
static bool wins(const pair *a, const pair *b, bool largest) {
    bool a_nan = a->value != a->value, b_nan = b->value != b->value;
    if (a_nan != b_nan)
        return a_nan;
    if (!a_nan && a->value != b->value)
        return largest ? a->value > b->value : a->value < b->value;
    return a->rank < b->rank;
}

static bool whole_wins(const whole_pair *a, const whole_pair *b, bool largest) {
    if (a->value != b->value)
        return largest ? a->value > b->value : a->value < b->value;
    return a->rank < b->rank;
}

#define OPERATOR(name, pair, wins, largest)                                                                                      \
    static void reduce_##name(void *in, void *inout, int *n, MPI_Datatype *type) {                                               \
        (void)type;                                                                                                              \
        const pair *a = in;                                                                                                      \
        pair *b = inout;                                                                                                         \
        for (int i = 0; i < *n; i++)                                                                                             \
            if (wins(&a[i], &b[i], largest))                                                                                     \
                b[i] = a[i];                                                                                                     \
    }                                                                                                                            \
    const aji_operator aji_operator_##name = {largest ? "MPI_MAX" : "MPI_MIN", reduce_##name, true, sizeof(pair)};

OPERATOR(max, pair, wins, true)
OPERATOR(min, pair, wins, false)
OPERATOR(whole_max, whole_pair, whole_wins, true)
OPERATOR(whole_min, whole_pair, whole_wins, false)

/* ---- operands and results ---- */

static void fill(void *records, int64_t n, const aji_value *x, int rank) {
    pair *pairs = records;
    for (int64_t i = 0; i < n; i++)
        pairs[i] = (pair){aji_number_at(x, i), rank};
}

static void take(const void *records, int64_t n, aji_value *y, aji_value *const *kept) {
    const pair *pairs = records;
    for (int64_t i = 0; i < n; i++)
        aji_put_number(y, i, pairs[i].value);
    for (int64_t i = 0; kept[0] && i < n; i++)
        aji_put_number(kept[0], i, (double)pairs[i].rank);
}

const aji_record_kind aji_extremum_records = {sizeof(pair), 1, fill, take};

static int64_t whole_at(const aji_value *x, int64_t i) {
    const void *data = aji_value_data(x);
    switch (x->meta.dtype) {
    case AJ_I64:
        return ((const int64_t *)data)[i];
    case AJ_I32:
        return ((const int32_t *)data)[i];
    default:
        return ((const uint8_t *)data)[i];
    }
}

static void put_whole(aji_value *y, int64_t i, int64_t number) {
    void *data = aji_value_data(y);
    switch (y->meta.dtype) {
    case AJ_I64:
        ((int64_t *)data)[i] = number;
        return;
    case AJ_I32:
        ((int32_t *)data)[i] = (int32_t)number;
        return;
    default:
        ((uint8_t *)data)[i] = (uint8_t)number;
    }
}

static void fill_whole(void *records, int64_t n, const aji_value *x, int rank) {
    whole_pair *pairs = records;
    for (int64_t i = 0; i < n; i++)
        pairs[i] = (whole_pair){whole_at(x, i), rank};
}

static void take_whole(const void *records, int64_t n, aji_value *y, aji_value *const *kept) {
    const whole_pair *pairs = records;
    for (int64_t i = 0; i < n; i++) {
        put_whole(y, i, pairs[i].value);
        put_whole(kept[0], i, pairs[i].rank);
    }
}

const aji_record_kind aji_whole_extremum_records = {sizeof(whole_pair), 1, fill_whole, take_whole};

/* ---- the adjoint ---- */

aj_tensor *aji_for_winner(const aji_call *c, aj_tensor *g, aj_tensor *winner) {
    aj_tensor *mine = winner ? aj_eq(winner, aji_full_like(winner, c->comm->rank)) : NULL;
    return mine && g ? aj_where(mine, g, aji_zeros_like(g)) : NULL;
}
