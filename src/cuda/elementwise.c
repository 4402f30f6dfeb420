/* The `run` and `copy` slots: a program of elementwise steps as one kernel. */
#include "cuda/plan.h"

/* Threads go on through the space where it is larger than this grid. */
int64_t aji_cuda_blocks(const aji_cuda *d, int64_t threads) {
    int64_t blocks = (threads + AJI_CUDA_THREADS - 1) / AJI_CUDA_THREADS,
            most = (int64_t)(d->processors > 0 ? d->processors : 1) * 64;
    return blocks < most ? blocks : most;
}

aj_status aji_cuda_run(aj_ctx *ctx, const aji_program *program, const aji_value *const *in, const aji_value *const *out) {
    aji_cuda *d = aji_cuda_of(out[0]->device);
    aji_plan p;
    (void)ctx;
    if (aji_meta_numel(&out[0]->meta) == 0)
        return AJ_OK;
    aji_plan_open(&p, AJI_KERNEL_RUN, program, &out[0]->meta, in, out, 0, NULL);
    aji_space_merge(&p.space);
    aji_plan_close(&p);
    aj_status status = aji_cuda_enter(d);
    if (status != AJ_OK)
        return status;
    return aji_cuda_leave(d, aji_plan_launch(d, &p, aji_cuda_blocks(d, (p.numel + p.width - 1) / p.width)));
}

/* A program without steps: the output is the input. */
static const aji_program identity = {.n_in = 1, .n_out = 1, .box = {AJI_EVERYWHERE}};

aj_status aji_cuda_copy(aj_ctx *ctx, const aji_value *src, const aji_value *dst) {
    return aji_cuda_run(ctx, &identity, (const aji_value *const[]){src}, (const aji_value *const[]){dst});
}
