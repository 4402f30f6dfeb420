/* A C program against the installed library: the gradients through aj_allreduce and through a ring, with values known in closed form. */
#include <adjoin/adjoin.h>
#include <math.h>
#include <stdio.h>

static int wrong;

static void expect(const char *what, double got, double expected) {
    if (fabs(got - expected) <= 1e-12 * fabs(expected))
        return;
    fprintf(stderr, "use.c: %s is %.17g instead of %.17g\n", what, got, expected);
    wrong = 1;
}

/* y = the sum over ranks of x, loss = |y|^2: every rank's loss counts, so the gradient is 2 S y. */
static void through_allreduce(aj_ctx *ctx, aj_comm *world) {
    int rank = aj_comm_rank(world), size = aj_comm_size(world);
    const double values[3] = {1.0 + rank, 2.0, -0.5 * rank};
    aj_tensor *x = aj_param(aj_from_data(ctx, AJ_F64, AJ_SHAPE(3), values));
    aj_record_begin(ctx);
    aj_tensor *loss = aj_sum(aj_square(aj_allreduce(x, MPI_SUM, world)));
    aj_backward(ctx, loss, NULL);
    double gradient[3] = {NAN, NAN, NAN};
    if (aj_read(aj_grad(x), gradient, sizeof gradient) == AJ_OK) {
        int pairs = size * (size - 1) / 2;
        expect("gradient 0 through aj_allreduce", gradient[0], 2.0 * size * (size + pairs));
        expect("gradient 1 through aj_allreduce", gradient[1], 2.0 * size * 2 * size);
        expect("gradient 2 through aj_allreduce", gradient[2], 2.0 * size * -0.5 * pairs);
    }
    aj_release(&x);
}

/* Each rank sends a to the right and multiplies it with what came from the left: the gradient is the sum of both neighbours' values. */
static void through_ring(aj_ctx *ctx, aj_comm *world) {
    int rank = aj_comm_rank(world), size = aj_comm_size(world);
    int left = (rank + size - 1) % size, right = (rank + 1) % size;
    aj_tensor *a = aj_param(aj_scalar(ctx, AJ_F64, 1.0 + rank));
    aj_record_begin(ctx);
    aj_request *receive = aj_irecv(aj_scalar(ctx, AJ_F64, 0), left, 1, world);
    aj_request *send = aj_isend(a, right, 1, world);
    aj_tensor *b = aj_wait(receive);
    aj_tensor *loss = aj_mul(aj_wait(send), b);
    aj_backward(ctx, loss, NULL);
    expect("the product in the ring", aj_item(loss), (1.0 + rank) * (1.0 + left));
    expect("the gradient through the ring", aj_item(aj_grad(a)), 2.0 + left + right);
    aj_release(&a);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    aj_ctx *ctx;
    if (aj_ctx_create(&ctx, NULL) != AJ_OK)
        MPI_Abort(MPI_COMM_WORLD, 1);
    aj_comm *world = aj_comm_create(ctx, MPI_COMM_WORLD);
    through_allreduce(ctx, world);
    through_ring(ctx, world);
    if (aj_ctx_status(ctx) != AJ_OK)
        fprintf(stderr, "use.c: %s\n", aj_ctx_error(ctx));
    aj_comm_destroy(&world);
    if (aj_ctx_destroy(&ctx) != AJ_OK)
        wrong = 1;
    MPI_Finalize();
    return wrong;
}
