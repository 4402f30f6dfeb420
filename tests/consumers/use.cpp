// A C++14 program against the installed library: AJ_SHAPE, and the gradients through aj_allreduce and a ring, known in closed form.
#include <adjoin/adjoin.h>

#include <cmath>
#include <iostream>
#include <vector>

namespace {

bool wrong = false;

void expect(const char *what, double got, double expected) {
    if (std::abs(got - expected) <= 1e-12 * std::abs(expected))
        return;
    std::cerr << "use.cpp: " << what << " is " << got << " instead of " << expected << "\n";
    wrong = true;
}

// A (2, 3) matrix w on every rank; loss = sum of (w / (S + 1) summed over ranks)^3, so the gradient is S / (S + 1) 3 (...)^2.
void through_allreduce(aj_ctx *ctx, aj_comm *world) {
    const int size = aj_comm_size(world);
    const std::vector<double> values = {1, 2, 3, 4, 5, 6};
    aj_tensor *w = aj_param(aj_from_data(ctx, AJ_F64, AJ_SHAPE(2, 3), values.data()));
    expect("the number of rows", static_cast<double>(aj_extent(w, 0)), 2);
    expect("the number of columns", static_cast<double>(aj_extent(w, 1)), 3);
    aj_record_begin(ctx);
    aj_tensor *mean = aj_allreduce(aj_scale(w, 1.0 / (size + 1)), MPI_SUM, world);
    aj_tensor *loss = aj_sum(aj_pow_scalar(mean, 3));
    aj_backward(ctx, loss, nullptr);
    std::vector<double> gradient(values.size(), NAN);
    if (aj_read(aj_grad(w), gradient.data(), gradient.size() * sizeof(double)) == AJ_OK) {
        const double share = size / (size + 1.0);
        for (std::size_t i = 0; i < values.size(); i++)
            expect("a gradient through aj_allreduce", gradient[i], share * 3 * std::pow(share * values[i], 2));
    }
    aj_release(&w);
}

// Each rank sends a to the right; loss = a + what came from the left: the gradient is 2.
void through_ring(aj_ctx *ctx, aj_comm *world) {
    const int rank = aj_comm_rank(world), size = aj_comm_size(world);
    aj_tensor *a = aj_param(aj_full(ctx, AJ_F64, AJ_SHAPE(1), 1.0 + rank));
    aj_record_begin(ctx);
    aj_tensor *sent = aj_send(a, (rank + 1) % size, 1, world);
    aj_tensor *received = aj_recv(aj_zeros(ctx, AJ_F64, AJ_SHAPE(1)), (rank + size - 1) % size, 1, world);
    aj_tensor *loss = aj_reshape(aj_add(sent, received), AJ_SHAPE0);
    aj_backward(ctx, loss, nullptr);
    expect("the sum in the ring", aj_item(loss), 2.0 + rank + (rank + size - 1) % size);
    expect("the gradient through the ring", aj_item(aj_grad(a)), 2);
    aj_release(&a);
}

} // namespace

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    aj_ctx *ctx = nullptr;
    if (aj_ctx_create(&ctx, nullptr) != AJ_OK)
        MPI_Abort(MPI_COMM_WORLD, 1);
    aj_comm *world = aj_comm_create(ctx, MPI_COMM_WORLD);
    through_allreduce(ctx, world);
    through_ring(ctx, world);
    if (aj_ctx_status(ctx) != AJ_OK)
        std::cerr << "use.cpp: " << aj_ctx_error(ctx) << "\n";
    aj_comm_destroy(&world);
    if (aj_ctx_destroy(&ctx) != AJ_OK)
        wrong = true;
    MPI_Finalize();
    return wrong ? 1 : 0;
}
