/* One step of a scan by an operation of the user's: y = a op b, on this rank. */
#include "mpi/reductions.h"

typedef struct attr {
    aji_user_op *user;
} attr;

static void attr_free(aj_ctx *ctx, void *a) {
    aji_user_op_release(ctx, ((attr *)a)->user);
}

static aj_status forward(aji_call *c) {
    const aji_user_op *u = ((attr *)c->attr)->user;
    aji_value *a = aji_to_host(c->x[0]), *y = a ? aji_value_on(c->x[1], aj_cpu(c->ctx)) : NULL, *mine = NULL;
    if (y)
        mine = aji_value_copy(y);
    aj_status status = mine ? aji_user_op_apply(c, u, aji_value_data(a), aji_value_data(mine), aji_meta_numel(&a->meta),
                                                aji_mpi_type(a->meta.dtype))
                            : aj_ctx_status(c->ctx);
    aji_value_release(a);
    aji_value_release(y);
    return aji_from_host(c, mine, status);
}

static aj_status vjp(aji_call *c) {
    const aji_user_op *u = ((attr *)c->attr)->user;
    aj_tensor *a = c->in[0], *b = c->in[1], *y = c->out[0], *g = c->g_out[0];
    c->g_in[0] = aji_user_vjp(u, NULL, a, b, y, g);
    c->g_in[1] = aji_user_vjp(u, a, b, NULL, y, g);
    return AJ_OK;
}

static const aji_op combine = {
    .name = "aj_scan",
    .maths = "y = a op b; ga and gb by op's derivative",
    .need = AJI_NEED_ALL_IN | AJI_NEED_OUT,
    .attr_size = sizeof(attr),
    .attr_free = attr_free,
    .forward = forward,
    .vjp = vjp,
};

aj_tensor *aji_combine(aji_user_op *u, aj_tensor *a, aj_tensor *b) {
    if (!a || !b)
        return NULL;
    attr at = {aji_user_op_retain(u)};
    return aji_apply2(&combine, &at, a, b);
}
