/* The device of a rank: the GPU that is its turn, and ranks share those there are; or the stand-in's first. */
#include <mpi.h>

#include "cuda_standin.h"
#include "elsewhere.h"
#include "gpu.h"

static aj_device gpu_of_rank(aj_ctx *ctx) {
    static int number = -1;
    if (number < 0) {
        int rank, n = 1;
        aj_device first = aj_cuda(ctx, 0);
        if (!first)
            return NULL;
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        if (aji_cuda_of(first)->api.cuDeviceGetCount(&n) != CUDA_SUCCESS || n < 1)
            n = 1;
        number = rank % n;
    }
    return aj_cuda(ctx, number);
}

aj_device elsewhere(aj_ctx *ctx) {
    if (on_gpu())
        return gpu_of_rank(ctx);
    aj_device device = aji_ctx_device(ctx, "cuda:0");
    if (device)
        return device;
    aji_cuda_api api = standin_api();
    return aji_cuda_open(ctx, &api, 0);
}
