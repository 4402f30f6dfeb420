/*
 * The smallest program: 100 steps of gradient descent on the sum over the ranks of sum(tanh(p)^2), where p is itself a sum over the ranks.
 * Every rank holds a part w of the variables; the gradient of the sum comes home through the adjoint of the allreduce.
 */
#include <adjoin/adjoin.h>
#include <stdio.h>

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    aj_ctx *ctx;
    if (aj_ctx_create(&ctx, NULL) != AJ_OK)
        MPI_Abort(MPI_COMM_WORLD, 1);
    aj_comm *world = aj_comm_create(ctx, MPI_COMM_WORLD);

    aj_tensor *w = aj_param(aj_uniform(ctx, AJ_F64, AJ_SHAPE(4, 4, 2), 42));
    for (int it = 0; it < 100; it++) {
        aj_scope *s = aj_scope_begin(ctx);
        aj_record_begin(ctx);
        aj_tensor *p = aj_allreduce(w, MPI_SUM, world); /* a node; its adjoint is an allreduce */
        aj_tensor *loss = aj_sum(aj_square(aj_tanh(p)));
        aj_zero_grad(w);
        aj_backward(ctx, loss, NULL); /* gradient of the SUM over ranks of loss; ends the recording */
        aj_sgd_step(w, 0.01);
        if (it % 10 == 9 && aj_comm_rank(world) == 0)
            printf("step %3d  loss %.6e\n", it + 1, aj_item(loss));
        if (aj_scope_end(s) != AJ_OK)
            break; /* frees temporaries, returns the first error */
    }
    aj_release(&w);
    aj_comm_destroy(&world);
    int status = aj_ctx_destroy(&ctx) == AJ_OK ? 0 : 1;
    MPI_Finalize();
    return status;
}
