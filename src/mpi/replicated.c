/*
 * A loss that is one number on all ranks: seeding it on every rank would count it once per rank.
 */
#include "mpi/comm_internal.h"

aj_status aj_backward_replicated(aj_ctx *ctx, aj_tensor *root, aj_tensor *seed, aj_comm *comm) {
    if (!ctx)
        return AJ_ERR_ARG;
    if (!comm || comm->ctx != ctx)
        aj_raise(ctx, comm ? AJ_ERR_CONTEXT : AJ_ERR_ARG, "aj_backward_replicated: the communicator %s",
                 comm ? "belongs to another context; expected one of this" : "is NULL; expected one made by aj_comm_create");
    else if (comm->rank != 0 && root)
        seed = aji_zeros_like(seed ? seed : root); /* of the seed's shape, so that a wrong one is an error on every rank */
    return aj_backward(ctx, root, seed);
}
