/*
 * The `cumsum` slot. Lines side by side in memory are followed by a thread each; one that lies along memory by a block, with CUB's scan from one tile of it
 * to the next. Where there are few lines, they are cut in parts: a first kernel adds up each part, and whoever follows a part begins with the sum of those before it.
 */
#include "cuda/plan.h"

enum { ITEMS = 4 }; /* that a thread has in a tile */

static const aji_program input = {.n_in = 1, .box = {AJI_EVERYWHERE}};

/* ---- text ---- */

static void write_lines(const aji_plan *p, aji_text *t) {
    aji_write_blocks(t);
    aji_text_add(t, "    if (k >= (index)p.kept)\n      continue;\n    A sum = neutral(p);\n");
    if (p->layout.splits > 1)
        aji_text_add(t, "    for (index s = 0; s < split; s++)\n"
                        "      sum = combine(sum, ((const A *)p.partial)[k * (index)p.splits + s]);\n");
    aji_text_add(t, "#pragma unroll 4\n"
                    "    for (index r = begin; r < end; r++) {\n"
                    "      sum = combine(sum, entry(p, first + r * columns, r));\n"
                    "      store(p, first + r * columns, sum);\n"
                    "    }\n  }\n}\n");
}

static void write_carry(aji_text *t) {
    aji_text_add(t,
                 "    for (index s = threadIdx.x; s < split; s += %d)\n"
                 "      carry = combine(carry, ((const A *)p.partial)[k * (index)p.splits + s]);\n"
                 "    carry = cub::BlockReduce<A, %d>(carry_room).Reduce(carry, operation());\n"
                 "    if (threadIdx.x == 0)\n      carried = carry;\n"
                 "    __syncthreads();\n    carry = carried;\n",
                 AJI_CUDA_THREADS, AJI_CUDA_THREADS);
}

static void write_tiles(aji_text *t) {
    aji_text_add(t,
                 "    for (index tile = begin; tile < end; tile += %d) {\n"
                 "      const index from = tile + threadIdx.x * %d;\n"
                 "      A own[%d], sum = neutral(p), before, total;\n"
                 "#pragma unroll\n"
                 "      for (int j = 0; j < %d; j++) {\n"
                 "        if (from + j < end)\n"
                 "          sum = combine(sum, entry(p, first + (from + j) * columns, from + j));\n"
                 "        own[j] = sum;\n      }\n",
                 AJI_CUDA_THREADS * ITEMS, ITEMS, ITEMS, ITEMS);
    aji_text_add(t,
                 "      cub::BlockScan<A, %d>(room).ExclusiveScan(sum, before, neutral(p), operation(), total);\n"
                 "      before = combine(carry, before);\n"
                 "#pragma unroll\n"
                 "      for (int j = 0; j < %d; j++)\n"
                 "        if (from + j < end)\n"
                 "          store(p, first + (from + j) * columns, combine(before, own[j]));\n"
                 "      carry = combine(carry, total);\n"
                 "      __syncthreads();\n    }\n  }\n}\n",
                 AJI_CUDA_THREADS, ITEMS);
}

static void write_scan(const aji_plan *p, aji_text *t) {
    bool cut = p->layout.splits > 1;
    aji_text_add(t, "  __shared__ typename cub::BlockScan<A, %d>::TempStorage room;\n", AJI_CUDA_THREADS);
    if (cut)
        aji_text_add(t, "  __shared__ typename cub::BlockReduce<A, %d>::TempStorage carry_room;\n  __shared__ A carried;\n",
                     AJI_CUDA_THREADS);
    aji_write_blocks(t);
    aji_text_add(t, "    A carry = neutral(p);\n");
    if (cut)
        write_carry(t);
    write_tiles(t);
}

void aji_write_scan(const aji_plan *p, aji_text *t) {
    aji_write_accumulator(p, t);
    aji_text_add(t, "extern \"C\" __global__ void run(const arguments given) {\n  ARGUMENTS(given);\n");
    if (p->kernel == AJI_KERNEL_LINES)
        write_lines(p, t);
    else
        write_scan(p, t);
}

/* ---- the slot ---- */

/* The sums of the parts. The plan is the scan's again afterwards. */
static aj_status launch_parts(aji_cuda *d, aji_plan *p) {
    aji_layout scan = p->layout;
    aji_kernel_kind kernel = p->kernel;
    p->kernel = AJI_KERNEL_REDUCE;
    aji_layout_parts(d, p);
    aj_status status = aji_layout_launch(d, p);
    p->layout = scan;
    p->kernel = kernel;
    return status;
}

static aj_status launch_all(aji_cuda *d, aji_plan *p) {
    if (p->layout.splits == 1)
        return aji_layout_launch(d, p);
    size_t bytes = (size_t)(p->layout.kept * p->layout.splits) * sizeof(double);
    p->partial = aji_cuda_alloc(d, bytes);
    if (!p->partial)
        return AJ_ERR_MEMORY;
    aj_status status = launch_parts(d, p);
    if (status == AJ_OK)
        status = aji_layout_launch(d, p);
    aji_cuda_free(d, p->partial, bytes);
    return status;
}

aj_status aji_cuda_cumsum(aj_ctx *ctx, const aji_value *x, int axis, const aji_value *out) {
    aji_cuda *d = aji_cuda_of(out->device);
    aji_plan p;
    (void)ctx;
    if (aji_meta_numel(&out->meta) == 0)
        return AJ_OK;
    aji_plan_open(&p, AJI_KERNEL_SCAN, &input, &x->meta, &x, NULL, 1, &out);
    p.neutral = -0.0; /* -0.0 + x is x for every x */
    aji_space_reduce(&p.space, 1u << axis, 0, 2);
    aji_layout_scan(d, &p);
    aj_status status = aji_cuda_enter(d);
    return status == AJ_OK ? aji_cuda_leave(d, launch_all(d, &p)) : status;
}
