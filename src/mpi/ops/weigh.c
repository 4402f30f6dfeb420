/*
 * A gradient times a factor: y = g f, and 0 where g is 0, whatever f is. Every communication's adjoint runs, with zeros where no gradient has arrived; where the forward has
 * infinities these must stay zeros.
 */
#include "mpi/reductions.h"

static void multiply(const aji_value *g, const aji_value *f, aji_value *y) {
    for (int64_t i = 0; i < aji_meta_numel(&y->meta); i++) {
        double weight = aji_number_at(g, i);
        aji_put_number(y, i, weight == 0 ? 0 : weight * aji_number_at(f, i));
    }
}

static aj_status forward(aji_call *c) {
    aji_value *g = aji_to_host(c->x[0]), *f = g ? aji_to_host(c->x[1]) : NULL, *y = f ? aji_new_on_host(c) : NULL;
    if (y)
        multiply(g, f, y);
    aji_value_release(g);
    aji_value_release(f);
    return aji_from_host(c, y, AJ_OK);
}

static aj_status vjp(aji_call *c) {
    c->g_in[0] = aji_weigh(c->g_out[0], c->in[1]);
    c->g_in[1] = aji_weigh(c->g_out[0], c->in[0]);
    return AJ_OK;
}

static const aji_op weigh = {
    .name = "aj_weigh",
    .maths = "y = g f, 0 where g is 0; gg = u f, gf = u g",
    .need = AJI_NEED_ALL_IN,
    .forward = forward,
    .vjp = vjp,
};

aj_tensor *aji_weigh(aj_tensor *g, aj_tensor *factor) {
    return g && factor ? aji_apply2(&weigh, NULL, g, factor) : NULL;
}
