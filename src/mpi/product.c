/*
 * Products over the ranks, entry by entry, as records.
 */
#include "mpi/product.h"
#include "mpi/reductions.h"
#include "mpi/scaled.h"

/* The product of the numbers that are neither 0 nor infinite nor NaN, m 2^e, with the signs of all; and how many of those there are. The exponents of 2^31 / 1074
 * ranks fit. */
typedef struct factor {
    double m;
    int32_t e, zeros, infinities, nans;
} factor;

static factor factor_of(double x) {
    if (isnan(x))
        return (factor){.m = 1, .nans = 1};
    if (isinf(x) || x == 0)
        return (factor){.m = copysign(1, x), .zeros = x == 0, .infinities = x != 0};
    int e;
    double m = frexp(x, &e);
    return (factor){.m = m, .e = e};
}

static double value_of(factor f) {
    if (f.nans || (f.zeros && f.infinities))
        return NAN;
    if (f.infinities)
        return copysign(INFINITY, f.m);
    return f.zeros ? copysign(0, f.m) : ldexp(f.m, f.e);
}

static factor times(factor a, factor b) {
    int e;
    double m = frexp(a.m * b.m, &e);
    return (factor){m, a.e + b.e + e, a.zeros + b.zeros, a.infinities + b.infinities, a.nans + b.nans};
}

static factor without(factor f, factor own) {
    return (factor){f.m / own.m, f.e - own.e, f.zeros - own.zeros, f.infinities - own.infinities, f.nans - own.nans};
}

static void multiply(void *in, void *inout, int *n, MPI_Datatype *type) {
    (void)type;
    const factor *a = in;
    factor *b = inout;
    for (int i = 0; i < *n; i++)
        b[i] = times(a[i], b[i]);
}

const aji_operator aji_operator_product = {"MPI_PROD", multiply, true, sizeof(factor)};

/* ---- operands and results ---- */

enum { MOST = 4 }; /* of each sort; more are as many */

static int32_t at_most(int32_t n) {
    return n < MOST ? n : MOST;
}

static double counts_of(factor f) {
    const int base = MOST + 1;
    return at_most(f.zeros) + base * (at_most(f.infinities) + base * at_most(f.nans));
}

static factor kept_factor(aji_value *const *kept, int64_t i) {
    const int base = MOST + 1;
    int counts = (int)aji_number_at(kept[2], i);
    return (factor){aji_number_at(kept[0], i), (int32_t)aji_number_at(kept[1], i), counts % base, counts / base % base,
                    counts / base / base};
}

static void fill(void *records, int64_t n, const aji_value *x, int rank) {
    (void)rank;
    factor *factors = records;
    for (int64_t i = 0; i < n; i++)
        factors[i] = factor_of(aji_number_at(x, i));
}

static void take(const void *records, int64_t n, aji_value *y, aji_value *const *kept) {
    const factor *f = records;
    for (int64_t i = 0; i < n; i++)
        aji_put_number(y, i, value_of(f[i]));
    for (int64_t i = 0; kept[0] && i < n; i++) {
        aji_put_number(kept[0], i, f[i].m);
        aji_put_number(kept[1], i, f[i].e);
        aji_put_number(kept[2], i, counts_of(f[i]));
    }
}

const aji_record_kind aji_product_records = {sizeof(factor), 3, fill, take};

void aji_product_through(const aji_records *r, const aji_value *x, bool is_first, aji_value *y, aji_value *through) {
    const factor *f = r->data;
    for (int64_t i = 0; i < r->n; i++) {
        factor own = factor_of(aji_number_at(x, i));
        aji_put_number(y, i, is_first ? 0 : value_of(f[i]));
        aji_put_number(through, i, value_of(is_first ? own : times(f[i], own)));
    }
}

/* ---- a sum over the ranks, from which each can leave its own term out ----
 *
 * Subtracting a term from the sum of all loses what is small beside it. So the largest term travels apart: its rank takes the sum of the others as it is, and the
 * others subtract what is not larger than what stays. */

typedef struct terms {
    aji_scaled largest, rest; /* the largest term, the sum of the others */
    int64_t rank;             /* of the largest */
} terms;

static terms add(terms a, terms b) {
    bool b_first = aji_scaled_larger(b.largest, a.largest) || (!aji_scaled_larger(a.largest, b.largest) && b.rank < a.rank);
    const terms *top = b_first ? &b : &a, *other = b_first ? &a : &b;
    return (terms){top->largest, aji_scaled_add(aji_scaled_add(a.rest, b.rest), other->largest), top->rank};
}

static void add_terms(void *in, void *inout, int *n, MPI_Datatype *type) {
    (void)type;
    const terms *a = in;
    terms *b = inout;
    for (int i = 0; i < *n; i++)
        b[i] = add(a[i], b[i]);
}

const aji_operator aji_operator_all_but_one = {"sums without one term", add_terms, true, sizeof(terms)};

static aji_scaled all_but(terms t, int rank, aji_scaled own) {
    return t.rank == rank ? t.rest : aji_scaled_add(t.largest, aji_scaled_sub(t.rest, own));
}

/* ---- the product of the others, q_k, and its adjoint ----
 *
 * w_j = sum over k != j of v_k times the product of x over all ranks but k and j. With p the product of the x that are not 0 and t_k = v_k / x_k (t_k = v_k at a
 * 0), an entry has
 *     no 0:         w_j = p / x_j sum over k != j of t_k
 *     one, at z:    w_z = p sum over k != z of t_k;  w_j = p / x_j t_z
 *     two:          at both w_j = p sum over the other 0 of t_k; elsewhere 0
 *     more:         0
 * one sum over the ranks without one term each time. It is symmetric in v and w's own gradient, so its derivative by v is the same operation. */

enum { N_IN = 5 }; /* v (of the adjoint), x, and what is kept */

static void release_all(aji_value **in) {
    for (int i = 0; i < N_IN; i++)
        aji_value_release(in[i]);
}

/* Host memory of x and what is kept, from in[1] on; of v in in[0]. */
static aj_status open_all(const aji_call *c, aji_value **in) {
    for (int i = 0; i < N_IN; i++)
        in[i] = NULL;
    for (int i = 0; i < c->n_in; i++)
        if (!(in[N_IN - c->n_in + i] = aji_to_host(c->x[i]))) {
            release_all(in);
            return aj_ctx_status(c->ctx);
        }
    return AJ_OK;
}

static aj_status forward(aji_call *c) {
    aji_value *in[N_IN];
    aj_status status = open_all(c, in);
    if (status != AJ_OK)
        return status;
    aji_value *y = aji_new_on_host(c);
    for (int64_t i = 0; y && i < aji_meta_numel(&y->meta); i++)
        aji_put_number(y, i, value_of(without(kept_factor(in + 2, i), factor_of(aji_number_at(in[1], i)))));
    release_all(in);
    return aji_from_host(c, y, AJ_OK);
}

static aji_scaled term_of(double v, factor own) {
    return aji_scaled_of(v / own.m, -(int64_t)own.e);
}

static const aji_scaled zero_term = {0, -((int64_t)1 << 60)};

static terms terms_of(double v, factor own, int zeros, int rank) {
    aji_scaled t = term_of(v, own);
    bool apart = zeros == 0 || own.zeros; /* at one 0, the rank that has it is left out by all others' taking it alone */
    return (terms){apart ? t : zero_term, !apart && zeros == 1 ? t : zero_term, rank};
}

static double entry_of(terms t, double v, factor f, factor own, int rank) {
    factor others = without(f, own);
    if (f.zeros > 2 || (f.zeros == 2 && !own.zeros) || (t.largest.m == 0 && t.rest.m == 0))
        return 0;
    if (others.nans || others.infinities)
        return NAN;
    aji_scaled sum = f.zeros == 1 ? (own.zeros ? t.rest : t.largest) : all_but(t, rank, term_of(v, own));
    return aji_scaled_value(aji_scaled_mul(aji_scaled_of(others.m, others.e), sum));
}

static aj_status add_up(const aji_call *c, aji_value *const *in, terms *t, aji_value *y) {
    int64_t n = aji_meta_numel(&y->meta);
    const aji_mpi *mpi = aji_mpi_of(c->ctx);
    int rank = c->comm->rank;
    for (int64_t i = 0; i < n; i++)
        t[i] = terms_of(aji_number_at(in[0], i), factor_of(aji_number_at(in[1], i)), kept_factor(in + 2, i).zeros, rank);
    aj_status status = aji_mpi_allreduce(c, MPI_IN_PLACE, t, n, mpi->record[AJI_OWN_ALL_BUT_ONE], mpi->own[AJI_OWN_ALL_BUT_ONE]);
    for (int64_t i = 0; i < n && status == AJ_OK; i++)
        aji_put_number(y, i,
                       entry_of(t[i], aji_number_at(in[0], i), kept_factor(in + 2, i), factor_of(aji_number_at(in[1], i)), rank));
    return status;
}

static aj_status forward_adjoint(aji_call *c) {
    aji_value *in[N_IN];
    aj_status status = open_all(c, in);
    if (status != AJ_OK)
        return status;
    aji_value *y = aji_new_on_host(c);
    size_t bytes = (size_t)aji_meta_numel(&c->out_meta[0]) * sizeof(terms);
    terms *t = y ? aji_alloc(c->ctx, bytes) : NULL;
    status = t ? add_up(c, in, t, y) : aj_ctx_status(c->ctx);
    if (t)
        aji_free(c->ctx, t, bytes);
    release_all(in);
    return aji_from_host(c, y, status);
}

/* The coefficients of s, t and s t in the product of x_k + s u_k + t v_k over the ranks before this one, or after it. */
typedef struct coefficients {
    aj_tensor *one, *s, *t, *st;
} coefficients;

static coefficients expand(aj_tensor *x, aj_tensor *u, aj_tensor *v, bool reversed, aj_comm *comm) {
    coefficients k;
    aj_tensor *p = aji_prefix(x, MPI_PROD, NULL, reversed, comm);
    k.one = aji_is_first(comm, reversed) ? aji_full_like(x, 1) : p;
    k.s = aji_affine_scan(aji_weigh(u, k.one), x, reversed, comm);
    k.t = aji_affine_scan(aji_weigh(v, k.one), x, reversed, comm);
    k.st = aji_affine_scan(aj_add(aji_weigh(k.s, v), aji_weigh(u, k.t)), x, reversed, comm);
    return k;
}

/* With u the gradient of w, <u, w> has by x_j the derivative: the sum over k, l != j, k != l, of u_k v_l times the product of x over all ranks but j, k and l. That
 * is the coefficient of s t in the product over k != j of x_k + s u_k + t v_k: of the ranks before j, times that of those after it. */
static aj_tensor *by_x(aj_tensor *x, aj_tensor *u, aj_tensor *v, aj_comm *comm) {
    coefficients a = expand(x, u, v, false, comm), b = expand(x, u, v, true, comm);
    return aj_add(aj_add(aji_weigh(b.st, a.one), aji_weigh(a.st, b.one)), aj_add(aji_weigh(a.s, b.t), aji_weigh(b.s, a.t)));
}

static aj_status vjp(aji_call *c);
static aj_status vjp_adjoint(aji_call *c);

static const aji_op product_of_others = {
    .name = "aj_product_of_others",
    .maths = "y_k = product of x_j over j != k; gx_k = sum over j != k of g_j times the product of x over all but j and k",
    .flags = AJI_OP_COMM,
    .need = AJI_NEED_ALL_IN,
    .forward = forward,
    .vjp = vjp,
};
static const aji_op product_of_others_adjoint = {
    .name = "aj_product_of_others_adjoint",
    .maths = "y_k = sum over j != k of v_j times the product of x over all but j and k; gv by the same, gx by scans",
    .flags = AJI_OP_COMM,
    .need = AJI_NEED_ALL_IN,
    .forward = forward_adjoint,
    .vjp = vjp_adjoint,
};

/* in: x and what is kept */
static aj_tensor *apply_adjoint(const aji_call *c, aj_tensor *v, aj_tensor *const *in) {
    aj_tensor *all[N_IN] = {v, in[0], in[1], in[2], in[3]};
    return aji_comm_apply_n(&product_of_others_adjoint, NULL, N_IN, all, c->comm);
}

static aj_status vjp(aji_call *c) {
    c->g_in[0] = apply_adjoint(c, c->g_out[0], c->in);
    return AJ_OK;
}

static aj_status vjp_adjoint(aji_call *c) {
    c->g_in[0] = apply_adjoint(c, c->g_out[0], c->in + 1);
    c->g_in[1] = by_x(c->in[1], c->g_out[0], c->in[0], c->comm);
    return AJ_OK;
}

aj_tensor *aji_product_of_others(aj_tensor *x, aj_tensor *const *kept, aj_comm *comm) {
    aj_tensor *all[N_IN - 1] = {x, kept[0], kept[1], kept[2]};
    return aji_comm_apply_n(&product_of_others, NULL, N_IN - 1, all, comm);
}
