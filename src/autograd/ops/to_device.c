/* To device: the same numbers, elsewhere. */
#include "autograd/autograd_internal.h"

typedef struct attr {
    aj_device device;
} attr;

static aj_status forward(aji_call *c) {
    const attr *a = c->attr;
    c->y[0] = c->x[0]->device == a->device ? aji_value_retain(c->x[0]) : aji_value_on(c->x[0], a->device);
    return c->y[0] ? AJ_OK : aj_ctx_status(c->ctx);
}

static aj_status vjp(aji_call *c) {
    c->g_in[0] = aj_to_device(c->g_out[0], c->device);
    return AJ_OK;
}

static aj_tensor *sample(aj_tensor *const *x) {
    return aj_to_device(aj_square(aj_to_device(x[0], aj_test_device(aj_tensor_ctx(x[0])))), aj_tensor_device(x[0]));
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{2, {3, 2}, -1, 1}}, .call = sample},
    {.n_in = 1, .in = {{2, {3, 0}, -1, 1}}, .call = sample},
    {0},
};

const aji_op aji_op_to_device = {
    .name = "aj_to_device",
    .maths = "y = x elsewhere; gx = g here",
    .attr_size = sizeof(attr),
    .forward = forward,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_to_device(aj_tensor *x, aj_device device) {
    if (!x)
        return NULL;
    aj_ctx *ctx = aj_tensor_ctx(x);
    if (!device || device->ctx != ctx) {
        aj_raise(ctx, device ? AJ_ERR_CONTEXT : AJ_ERR_ARG, "aj_to_device: the device %s; expected one of the tensor's context",
                 device ? "belongs to another context" : "is NULL");
        return NULL;
    }
    attr a = {device};
    return aji_apply1(&aji_op_to_device, &a, x);
}
