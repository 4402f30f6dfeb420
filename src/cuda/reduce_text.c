/*
 * The text of reductions, and what scans have in common with them. A is what accumulates: a number, or for `argument` a number with its place. Every
 * thread adds up the entries of its k and part, the threads of a block with one k join theirs, and one of them stores.
 */
#include "cuda/plan.h"

void aji_write_includes(const aji_plan *p, aji_text *t) {
    bool scan = p->kernel == AJI_KERNEL_SCAN;
    bool reduces = p->kernel == AJI_KERNEL_REDUCE || p->kernel == AJI_KERNEL_ARGUMENT;
    if ((reduces && aji_layout_join(&p->layout) == AJI_JOIN_BLOCK) || (scan && p->layout.splits > 1))
        aji_text_add(t, "#include <cub/block/block_reduce.cuh>\n");
    if (scan)
        aji_text_add(t, "#include <cub/block/block_scan.cuh>\n");
}

/* A number takes the place of the best one if it is better, or the first NaN; place -1: there is none yet. */
static void write_extremum(const aji_plan *p, aji_text *t) {
    const char *better = p->kind == AJI_MAX ? ">" : "<";
    aji_text_add(t, "struct A {\n    %s value;\n    long long place;\n};\n", aji_cuda_type(p->accumulation));
    aji_text_add(t,
                 "INLINE bool beats(const A a, const A b) {\n"
                 "    return a.value %s b.value || (a.value != a.value && b.value == b.value);\n}\n"
                 "INLINE A combine(const A a, const A b) {\n"
                 "    if (a.place < 0 || b.place < 0)\n        return a.place < 0 ? b : a;\n"
                 "    if (beats(a, b) || beats(b, a))\n        return beats(a, b) ? a : b;\n"
                 "    return a.place < b.place ? a : b;\n}\n"
                 "INLINE A neutral(const words &) {\n    return A{0, -1};\n}\n",
                 better);
}

static void write_number(const aji_plan *p, aji_text *t) {
    aji_text_add(t, "typedef %s A;\n", aji_cuda_type(p->accumulation));
    aji_text_add(t, "INLINE A combine(const A a, const A b) {\n    return %s_%s(a, b);\n}\n",
                 aji_step_name(aji_reduction_step(p->kind)), aji_cuda_tag(p->accumulation));
    aji_text_add(t, "INLINE A neutral(const words &p) {\n    return p.neutral;\n}\n");
}

/* Entry i of the space, which is number r along the reduced axes. */
static void write_entry_function(const aji_plan *p, aji_text *t) {
    aji_text_add(t, "INLINE A entry(const words &p, const index i, const index r) {\n");
    if (p->folds)
        aji_text_add(t, "    return ((const A *)p.partial)[i];\n");
    else
        aji_write_entry(p, t);
    if (!p->folds && p->kernel == AJI_KERNEL_ARGUMENT)
        aji_text_add(t, "    return A{v%d, (long long)r};\n", p->reduced);
    else if (!p->folds)
        aji_text_add(t, "    return CAST_%s_%s(v%d);\n", aji_cuda_tag(p->dtype[p->reduced]), aji_cuda_tag(p->accumulation),
                     p->reduced);
    aji_text_add(t, "}\n");
}

static void write_store_function(const aji_plan *p, aji_text *t) {
    char result[48];
    aji_text_add(t, "INLINE void store(const words &p, const index i, const A sum) {\n");
    const char *place = aji_write_result(p, t, 0, result);
    if (p->kernel == AJI_KERNEL_ARGUMENT)
        aji_text_add(t, "    %s = sum.place;\n}\n", place);
    else
        aji_text_add(t, "    %s = CAST_%s_%s(sum);\n}\n", place, aji_cuda_tag(p->accumulation),
                     aji_cuda_tag(p->operand_dtype[p->n_in + p->n_out]));
}

/* What the kernel's own text uses: A, combine, neutral, operation, entry, store. */
void aji_write_accumulator(const aji_plan *p, aji_text *t) {
    if (p->kernel == AJI_KERNEL_ARGUMENT)
        write_extremum(p, t);
    else
        write_number(p, t);
    aji_text_add(t, "struct operation {\n    __device__ __forceinline__ A operator()(const A &a, const A &b) const {\n"
                    "        return combine(a, b);\n    }\n};\n");
    write_entry_function(p, t);
    write_store_function(p, t);
}

/* Every block of threads takes one part of a group of k after another: a thread has k, if that is below p.kept, and r from `begin` to before `end`. */
void aji_write_blocks(aji_text *t) {
    aji_text_add(
        t, "  const index x = threadIdx.x >> p.x_shift & ((1u << p.x_bits) - 1);\n"
           "  for (index block = blockIdx.x; block < (index)p.blocks; block += gridDim.x) {\n"
           "    const index split = block %% (index)p.splits, k = (block / (index)p.splits << p.x_bits) + x;\n"
           "    const index begin = split * (index)p.chunk, rest = (index)p.reduced - begin;\n"
           "    const index end = begin + (rest < (index)p.chunk ? rest : (index)p.chunk);\n"
           "    const index columns = (index)p.columns, first = k / columns * (index)p.reduced * columns + k %% columns;\n");
}

static void write_join(const aji_plan *p, aji_text *t) {
    switch (aji_layout_join(&p->layout)) {
    case AJI_JOIN_ALONE:
        return;
    case AJI_JOIN_BLOCK:
        aji_text_add(t, "    sum = cub::BlockReduce<A, %d>(room).Reduce(sum, operation());\n", AJI_CUDA_THREADS);
        break;
    case AJI_JOIN_GROUP:
        aji_text_add(t, "    room[threadIdx.x] = sum;\n"
                        "    for (unsigned half = 1u << p.y_bits >> 1; half > 0; half >>= 1) {\n"
                        "      __syncthreads();\n"
                        "      if (y < half)\n"
                        "        room[threadIdx.x] = sum = combine(sum, room[threadIdx.x + (half << p.y_shift)]);\n"
                        "    }\n");
        break;
    }
    aji_text_add(t, "    __syncthreads();\n");
}

void aji_write_reduce(const aji_plan *p, aji_text *t) {
    aji_join join = aji_layout_join(&p->layout);
    aji_write_accumulator(p, t);
    aji_text_add(t, "extern \"C\" __global__ void run(const arguments given) {\n  ARGUMENTS(given);\n");
    if (join == AJI_JOIN_BLOCK)
        aji_text_add(t, "  __shared__ typename cub::BlockReduce<A, %d>::TempStorage room;\n", AJI_CUDA_THREADS);
    else if (join == AJI_JOIN_GROUP)
        aji_text_add(t, "  __shared__ A room[%d];\n", AJI_CUDA_THREADS);
    aji_text_add(t, "  const index y = threadIdx.x >> p.y_shift & ((1u << p.y_bits) - 1), step = (index)1 << p.y_bits;\n");
    aji_write_blocks(t);
    aji_text_add(t, "    A sum = neutral(p);\n"
                    "    if (k < (index)p.kept)\n"
                    "#pragma unroll 4\n"
                    "      for (index r = begin + y; r < end; r += step)\n"
                    "        sum = combine(sum, entry(p, first + r * columns, r));\n");
    write_join(p, t);
    aji_text_add(t, "    if (y == 0 && k < (index)p.kept)\n      %s;\n  }\n}\n",
                 p->layout.splits > 1 ? "((A *)p.partial)[k * (index)p.splits + split] = sum" : "store(p, first, sum)");
}
