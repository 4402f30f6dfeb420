/* The step of allen_cahn.c by hand, and its adjoint, as a custom operation: one node for each step, which exchanges its rows itself. */
#include "allen_cahn.h"

/* The neighbours and the room for their rows are the case's; the messages go over the communicator that the library has for this call. */
static allen_cahn on_call(const aj_call *call) {
    allen_cahn *const *attr = call->attr;
    allen_cahn a = **attr;
    a.mpi = aj_comm_mpi(call->comm);
    return a;
}

static aj_status forward(const aj_call *call) {
    allen_cahn a = on_call(call);
    allen_cahn_step(&a, call->in[0].data, call->out[0].data);
    return AJ_OK;
}

static aj_status vjp(const aj_call *call) {
    allen_cahn a = on_call(call);
    allen_cahn_step_back(&a, call->in[0].data, call->g_out[0].data, call->g_in[0].data);
    return AJ_OK;
}

static const aj_op step_op = {
    .size = sizeof step_op,
    .name = "allen_cahn_step",
    .maths = "y = x + k (N + S + W + E - 4 x) + dt (x - x^3); gx = g (1 - 4 k + dt - 3 dt x^2) + k (N + S + W + E of g)",
    .n_out = 1,
    .need = AJ_NEED_IN,
    .attr_size = sizeof(allen_cahn *),
    .forward = forward,
    .vjp = vjp,
};

static aj_tensor *step(bench *b, aj_tensor *u) {
    aj_tensor *next = NULL;
    aj_apply(b->ctx, &step_op, b->comm, &b->state, 1, &u, 1, &next);
    return next;
}

static void adjoin(bench *b) {
    allen_cahn_adjoin(b, step);
}

const bench_case allen_cahn_custom_case = {"allen_cahn_custom",
                                           "the same, the step and its adjoint by hand as a custom operation",
                                           512,
                                           allen_cahn_setup,
                                           allen_cahn_teardown,
                                           allen_cahn_raw,
                                           adjoin};
