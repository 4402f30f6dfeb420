/*
 * User-defined MPI_Ops: their registration, their derivatives, and their use on this rank.
 */
#include <stdio.h>
#include <string.h>

#include "mpi/counts.h"
#include "mpi/user_op.h"

/* ---- the register ---- */

aji_user_op *aji_user_op_find(const aj_ctx *ctx, MPI_Op op) {
    for (aji_user_op *u = aji_mpi_of(ctx)->user_ops; u; u = u->next)
        if (u->op == op)
            return u;
    return NULL;
}

aji_user_op *aji_user_op_retain(aji_user_op *u) {
    u->refs++;
    return u;
}

void aji_user_op_release(aj_ctx *ctx, aji_user_op *u) {
    if (u && --u->refs == 0)
        aji_free(ctx, u, u->bytes);
}

/* Out of the list; what nodes hold stays. */
static void forget(aji_mpi *mpi, MPI_Op op) {
    for (aji_user_op **at = &mpi->user_ops; *at; at = &(*at)->next)
        if ((*at)->op == op) {
            aji_user_op *u = *at;
            *at = u->next;
            aji_user_op_release(mpi->ctx, u);
            return;
        }
}

void aji_user_ops_free(aji_mpi *mpi) {
    while (mpi->user_ops)
        forget(mpi, mpi->user_ops->op);
}

static aj_status check(aj_ctx *ctx, MPI_Op op, const char *name, bool commutes, aj_op_vjp vjp) {
    if (!name || !vjp)
        return aj_raise(ctx, AJ_ERR_ARG, "aj_op_register: the %s is NULL; expected a name and a derivative",
                        name ? "derivative" : "name");
    if (aji_predefined_name(op))
        return aj_raise(ctx, AJ_ERR_ARG, "aj_op_register: %s: the operation is %s; expected one made by MPI_Op_create", name,
                        aji_predefined_name(op));
    int reorders = 0;
    aj_status status = aji_mpi_check(ctx, "aj_op_register", MPI_Op_commutative(op, &reorders));
    if (status == AJ_OK && reorders && !commutes)
        return aj_raise(ctx, AJ_ERR_ARG,
                        "aj_op_register: %s: MPI may exchange the operands of the operation, and it is said not to commute; "
                        "expected commute = 0 in its MPI_Op_create",
                        name);
    return status;
}

aj_status aj_op_register(aj_ctx *ctx, MPI_Op op, const char *name, bool commutes, aj_op_vjp vjp, void *user) {
    if (!ctx)
        return AJ_ERR_ARG;
    aj_status status = aji_mpi_attach(ctx, "aj_op_register");
    if (status == AJ_OK)
        status = check(ctx, op, name, commutes, vjp);
    if (status != AJ_OK)
        return status;
    size_t length = strlen(name) + 1, bytes = sizeof(aji_user_op) + length;
    aji_user_op *u = aji_alloc(ctx, bytes);
    if (!u)
        return AJ_ERR_MEMORY;
    *u = (aji_user_op){.refs = 1, .op = op, .commutes = commutes, .vjp = vjp, .user = user, .bytes = bytes};
    memcpy(u->name, name, length);
    aji_mpi *mpi = aji_mpi_of(ctx);
    forget(mpi, op);
    u->next = mpi->user_ops;
    mpi->user_ops = u;
    return AJ_OK;
}

/* ---- the derivative ---- */

aj_tensor *aji_user_vjp(const aji_user_op *u, aj_tensor *prefix, aj_tensor *x, aj_tensor *suffix, aj_tensor *y, aj_tensor *g) {
    if (!x || !g)
        return NULL; /* raised */
    aj_ctx *ctx = aj_tensor_ctx(x);
    aj_tensor *gx = u->commutes ? u->vjp(ctx, NULL, x, NULL, y, g, u->user) : u->vjp(ctx, prefix, x, suffix, NULL, g, u->user);
    if (aj_ctx_status(ctx) != AJ_OK)
        return NULL;
    if (!gx)
        return aj_raise(ctx, AJ_ERR_ARG, "%s: its derivative returned NULL; expected a tensor, or an error", u->name), NULL;
    const aji_meta *got = aji_tensor_meta(gx), *wanted = aji_tensor_meta(x);
    char a[160], b[160];
    if (got->dtype != wanted->dtype || !aji_same_shape(got, wanted))
        return aj_raise(ctx, AJ_ERR_SHAPE, "%s: its derivative returned %s %s; expected %s %s, as its operand", u->name,
                        aj_dtype_name(got->dtype), aji_shape_text(got->ndim, got->shape, a), aj_dtype_name(wanted->dtype),
                        aji_shape_text(wanted->ndim, wanted->shape, b)),
               NULL;
    return gx;
}

/* ---- its use on this rank ---- */

enum { MOST = 1 << 30 }; /* entries in one call of MPI */

aj_status aji_user_op_apply(const aji_call *c, const aji_user_op *u, const void *in, void *inout, int64_t n, MPI_Datatype type) {
    int code = MPI_SUCCESS;
    for (int64_t at = 0; at < n && code == MPI_SUCCESS; at += MOST) {
        code = MPI_Reduce_local(aji_mpi_at(in, at, type), aji_mpi_at(inout, at, type), (int)(n - at < MOST ? n - at : MOST), type,
                                u->op);
    }
    return aji_mpi_check(c->ctx, c->op->name, code);
}

/* ---- operands exchanged ----
 *
 * MPI hands its operators no state but the datatype; so the datatype's name is where its aji_exchanged is. */

aj_status aji_exchanged_open(const aji_call *c, aji_exchanged *x, const aji_user_op *u, MPI_Datatype base) {
    char name[MPI_MAX_OBJECT_NAME];
    *x = (aji_exchanged){.op = u->op, .base = base, .type = MPI_DATATYPE_NULL};
    int code = MPI_Type_dup(base, &x->type);
    if (code == MPI_SUCCESS) {
        snprintf(name, sizeof(name), "%p", (void *)x);
        code = MPI_Type_set_name(x->type, name);
    }
    if (code != MPI_SUCCESS)
        aji_exchanged_close(x);
    return aji_mpi_check(c->ctx, c->op->name, code);
}

void aji_exchanged_close(aji_exchanged *x) {
    if (x->type != MPI_DATATYPE_NULL)
        MPI_Type_free(&x->type);
}

/* inout = inout op in, by way of a copy of in, which is MPI's. */
void aji_exchanged_function(void *in, void *inout, int *n, MPI_Datatype *type) {
    char name[MPI_MAX_OBJECT_NAME], copy[4096];
    int length = 0;
    void *at = NULL;
    MPI_Type_get_name(*type, name, &length);
    if (sscanf(name, "%p", &at) != 1)
        return;
    const aji_exchanged *x = at;
    size_t entry = aji_mpi_size(x->base);
    int most = (int)(sizeof(copy) / entry);
    for (int first = 0; first < *n; first += most) {
        int count = *n - first < most ? *n - first : most;
        size_t offset = (size_t)first * entry, bytes = (size_t)count * entry;
        memcpy(copy, (char *)in + offset, bytes);
        MPI_Reduce_local((char *)inout + offset, copy, count, x->base, x->op);
        memcpy((char *)inout + offset, copy, bytes);
    }
}
