/*
 * Reductions: MPI's by name, our own operators in the place of some, registered ones.
 */
#include "mpi/reductions.h"
#include "mpi/extremum.h"
#include "mpi/product.h"

/* ---- which there are ---- */

/* MPI's own, and the dtypes that have them here. */
typedef struct predefined {
    MPI_Op op;
    const char *name;
    bool integers, floats;
} predefined;
static const predefined reductions[] = {{MPI_SUM, "MPI_SUM", true, true},           {MPI_MAX, "MPI_MAX", true, true},
                                        {MPI_MIN, "MPI_MIN", true, true},           {MPI_PROD, "MPI_PROD", true, true},
                                        {MPI_LAND, "MPI_LAND", true, false},        {MPI_LOR, "MPI_LOR", true, false},
                                        {MPI_LXOR, "MPI_LXOR", true, false},        {MPI_BAND, "MPI_BAND", true, false},
                                        {MPI_BOR, "MPI_BOR", true, false},          {MPI_BXOR, "MPI_BXOR", true, false},
                                        {MPI_MAXLOC, "MPI_MAXLOC", false, false},   {MPI_MINLOC, "MPI_MINLOC", false, false},
                                        {MPI_REPLACE, "MPI_REPLACE", false, false}, {MPI_NO_OP, "MPI_NO_OP", false, false},
                                        {MPI_OP_NULL, "MPI_OP_NULL", false, false}};

static const predefined *predefined_of(MPI_Op op) {
    for (size_t i = 0; i < sizeof(reductions) / sizeof(*reductions); i++)
        if (reductions[i].op == op)
            return &reductions[i];
    return NULL;
}

const char *aji_predefined_name(MPI_Op op) {
    const predefined *p = predefined_of(op);
    return p ? p->name : NULL;
}

const char *aji_reduction_name(const aj_ctx *ctx, MPI_Op op) {
    const char *name = aji_predefined_name(op);
    if (!name)
        name = aji_operator_name(aji_mpi_of(ctx), op);
    const aji_user_op *u = name ? NULL : aji_user_op_find(ctx, op);
    return name ? name : u ? u->name : "an MPI_Op";
}

static bool is_floating(const aji_call *c) {
    return aji_dtype_is_float(c->in_meta[0].dtype);
}

aj_status aji_check_reduction(aji_call *c, aji_rank_reduction *r) {
    c->out_meta[0] = c->in_meta[0];
    bool floating = is_floating(c);
    const predefined *p = predefined_of(r->op);
    if (p && !(floating ? p->floats : p->integers))
        return aj_raise(c->ctx, AJ_ERR_UNSUPPORTED, "%s: the reduction %s is not there for %s; expected %s", c->op->name, p->name,
                        aj_dtype_name(c->in_meta[0].dtype),
                        floating ? "MPI_SUM, MPI_PROD, MPI_MAX, MPI_MIN or an operation of your own"
                                 : "one of MPI's for integers, or an operation of your own");
    if (p || r->user || !floating)
        return AJ_OK;
    aji_user_op *u = aji_user_op_find(c->ctx, r->op);
    if (!u && aj_is_recording(c->ctx))
        return aj_raise(
            c->ctx, AJ_ERR_UNSUPPORTED,
            "%s: the MPI_Op has no derivative; expected one inside a recording (see aj_op_register, aj_no_grad_begin)",
            c->op->name);
    r->user = u ? aji_user_op_retain(u) : NULL;
    return AJ_OK;
}

void aji_reduction_release(aj_ctx *ctx, aji_rank_reduction *r) {
    aji_user_op_release(ctx, r->user);
    for (int i = 0; i < AJI_MAX_KEPT; i++)
        aji_value_release(r->kept[i]);
}

void aji_reduction_attr_free(aj_ctx *ctx, void *attr) {
    aji_reduction_release(ctx, &((aji_reduction_attr *)attr)->reduction);
}

bool aji_reduction_needs_operand(MPI_Op op) {
    return op != MPI_SUM && op != MPI_MAX && op != MPI_MIN;
}

/* ---- on records ---- */

/* NULL: not on records. */
static const aji_record_kind *kind_of(const aji_call *c, MPI_Op op) {
    if (!is_floating(c))
        return NULL;
    return op == MPI_MAX || op == MPI_MIN ? &aji_extremum_records : op == MPI_PROD ? &aji_product_records : NULL;
}

bool aji_by_records(const aji_call *c, const aji_rank_reduction *r) {
    return kind_of(c, r->op) != NULL;
}

aj_device aji_reduction_device(const aji_call *c, const aji_rank_reduction *r) {
    return aji_by_records(c, r) || !predefined_of(r->op) ? aj_cpu(c->ctx) : aji_mpi_device(c->device);
}

aj_status aji_reduction_open(const aji_call *c, const aji_rank_reduction *r, aji_records *records, int64_t n,
                             const aji_value *x) {
    aji_own own = r->op == MPI_MAX ? AJI_OWN_MAX : r->op == MPI_MIN ? AJI_OWN_MIN : AJI_OWN_PRODUCT;
    return aji_records_open(c, records, kind_of(c, r->op), own, n, x);
}

aj_status aji_reduction_keep(const aji_call *c, aji_rank_reduction *r, const aji_value *y) {
    for (int i = 0; i < kind_of(c, r->op)->n_kept && aj_is_recording(c->ctx); i++)
        if (!(r->kept[i] = aji_value_new(c->ctx, y->device, &y->meta)))
            return AJ_ERR_MEMORY;
    return AJ_OK;
}

void aji_reduction_take(const aji_rank_reduction *r, const aji_records *records, aji_value *y) {
    records->kind->take(records->data, records->n, y, r->kept);
}

/* ---- adjoints ---- */

static aj_tensor *constant_on(aji_value *v, aj_device device, const char *op) {
    aji_value *there = aji_value_on(v, device);
    return there ? aji_tensor_wrap(there, op) : NULL;
}

int aji_companions(const aji_call *c, const aji_rank_reduction *r, aj_tensor **with) {
    if (r->user && r->user->commutes)
        return with[0] = c->out[0], 1;
    const aji_record_kind *kind = kind_of(c, r->op);
    int n = kind && c->comm->size > 1 ? kind->n_kept : 0;
    for (int i = 0; i < n; i++)
        with[i] = r->kept[i] ? constant_on(r->kept[i], c->device, c->op->name) : aji_zeros_like(c->g_out[0]);
    return n;
}

static aj_tensor *user_share(const aji_call *c, const aji_rank_reduction *r, aj_tensor *g, aj_tensor *const *with) {
    aj_tensor *x = c->in[0];
    if (r->user->commutes)
        return aji_user_vjp(r->user, NULL, x, NULL, with[0], g);
    aj_tensor *prefix = aji_prefix(x, r->op, r->user, false, c->comm), *suffix = aji_prefix(x, r->op, r->user, true, c->comm);
    return aji_user_vjp(r->user, aji_is_first(c->comm, false) ? NULL : prefix, x, aji_is_first(c->comm, true) ? NULL : suffix,
                        NULL, g);
}

aj_tensor *aji_share(const aji_call *c, const aji_rank_reduction *r, aj_tensor *g, aj_tensor *const *with) {
    if (c->comm->size == 0)
        return g;
    if (r->user)
        return user_share(c, r, g, with);
    if (c->comm->size == 1)
        return g;
    if (r->op == MPI_MAX || r->op == MPI_MIN)
        return aji_for_winner(c, g, with[0]);
    return r->op == MPI_PROD ? aji_weigh(g, aji_product_of_others(c->in[0], with, c->comm)) : g;
}
