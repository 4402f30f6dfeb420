/*
 * Product.
 *
 * The gradient needs, for each entry, the product of all the others: by products alone, so that zeros are exact, and in operations, so that it
 * can be differentiated. The entries are the leaves of a binary tree. On the way up each node becomes the product of its two children; on the way
 * down the product of all outside a node is that outside its parent times its sibling.
 *
 * The products are kept as m 2^e with |m| near 1, so that none over- or underflows on its way to a result that does not. The result does not depend
 * on how it is split, so the exponents are constants for further derivatives.
 */
#include <math.h>

#include "autograd/reduction.h"

#define MAX_LEVELS 64

typedef struct scaled { /* m 2^e, entry by entry */
    aj_tensor *m, *e;
} scaled;

static aj_status forward(aji_call *c) {
    return aji_forward_reduction(c, AJI_PROD);
}

/* k, kept where 2^k and 2^-k are normal numbers of the dtype. */
static aj_tensor *limited(aj_tensor *k) {
    double limit = aj_tensor_dtype(k) == AJ_F32 ? 120 : 1000;
    return aj_clamp(k, -limit, limit);
}

/* x 2^k for whole k within the limit */
static aj_tensor *times_power(aj_tensor *x, aj_tensor *k) {
    return aj_mul(x, aj_pow(aji_full_like(k, 2), k));
}

/* The same number with |m| near 1; 0, inf and NaN stay. */
static scaled normalized(scaled s) {
    aj_tensor *size = aj_detach(aj_abs(s.m)), *one = aji_full_like(size, 1);
    aj_tensor *usual = aj_mul(aj_gt(size, aji_zeros_like(size)), aj_lt(size, aji_full_like(size, INFINITY)));
    aj_tensor *k = limited(aj_floor(aj_scale(aj_log(aj_where(usual, size, one)), 1.44269504088896340736))); /* floor(log2 |m|) */
    return (scaled){times_power(s.m, aj_neg(k)), aj_add(s.e, k)};
}

/* (rows, n) as (rows, n / 2 rounded up, 2) */
static aj_tensor *pairs(aj_tensor *x, double filling) {
    int64_t n = aj_extent(x, 1);
    if (n % 2)
        x = aj_pad(x, 1, 0, 1, filling);
    return aj_reshape(x, 3, (int64_t[]){aj_extent(x, 0), (n + 1) / 2, 2});
}

static aj_tensor *one_of_pair(aj_tensor *pair, int which) {
    return aj_squeeze(aj_slice(pair, 2, which, which + 1, 1), 2);
}

/* Each parent's number for both children, in the children's order; n children. */
static aj_tensor *to_children(aj_tensor *(*with)(aj_tensor *, aj_tensor *), aj_tensor *parent, aj_tensor *pair, int64_t n) {
    aj_tensor *both = with(aj_unsqueeze(parent, 2), aj_flip(pair, 2));
    return aj_slice(aj_reshape(both, 2, (int64_t[]){aj_extent(both, 0), 2 * aj_extent(both, 1)}), 1, 0, n, 1);
}

/* For each entry of x (rows, n), n >= 1, the product of the others in its row. */
static aj_tensor *product_of_others(aj_tensor *x) {
    scaled level[MAX_LEVELS]; /* the pairs of each level */
    int64_t n[MAX_LEVELS];
    int depth = 0;
    scaled s = normalized((scaled){x, aji_zeros_like(x)});
    for (; aj_extent(s.m, 1) > 1; depth++) {
        n[depth] = aj_extent(s.m, 1);
        scaled p = level[depth] = (scaled){pairs(s.m, 1), pairs(s.e, 0)};
        s = normalized(
            (scaled){aj_mul(one_of_pair(p.m, 0), one_of_pair(p.m, 1)), aj_add(one_of_pair(p.e, 0), one_of_pair(p.e, 1))});
    }
    s = (scaled){aji_full_like(s.m, 1), aji_zeros_like(s.m)};
    while (depth-- > 0)
        s = (scaled){to_children(aj_mul, s.m, level[depth].m, n[depth]), to_children(aj_add, s.e, level[depth].e, n[depth])};
    /* In two steps: 2^e alone may overflow where m 2^e does not. What exceeds twice the limit over- or underflows in any case. */
    aj_tensor *half = aj_floor(aj_scale(s.e, 0.5));
    return times_power(times_power(s.m, limited(half)), limited(aj_sub(s.e, half)));
}

static aj_status vjp(aji_call *c) {
    aj_tensor *x = aji_to_rows(c, c->in[0]);
    if (!x || aj_numel(x) == 0)
        return AJ_OK; /* no entry, no gradient */
    c->g_in[0] = aj_mul(aji_spread(c, c->g_out[0]), aji_from_rows(c, product_of_others(x)));
    return AJ_OK;
}

static aj_tensor *of_all(aj_tensor *const *x) {
    return aj_prod(x[0]);
}

static aj_tensor *of_last(aj_tensor *const *x) {
    return aj_prod_axes(x[0], 1, (int[]){-1}, false);
}

static aj_tensor *of_outer(aj_tensor *const *x) {
    return aj_prod_axes(x[0], 2, (int[]){2, 0}, true);
}

static aj_tensor *of_none(aj_tensor *const *x) {
    return aj_prod_axes(x[0], 0, NULL, false);
}

static const aji_sample samples[] = {
    {.n_in = 1, .in = {{2, {3, 4}, -1.5, 1.5}}, .call = of_all},
    {.n_in = 1, .in = {{0, {0}, -1.5, 1.5}}, .call = of_all},
    {.n_in = 1, .in = {{1, {1}, -1.5, 1.5}}, .call = of_all},
    {.n_in = 1, .in = {{1, {5}, -1.5, 1.5}}, .call = of_last},
    {.n_in = 1, .in = {{2, {2, 3}, -1.5, 1.5}}, .call = of_last},
    {.n_in = 1, .in = {{2, {3, 1}, -1.5, 1.5}}, .call = of_last},
    {.n_in = 1, .in = {{2, {0, 3}, -1.5, 1.5}}, .call = of_last},
    {.n_in = 1, .in = {{3, {2, 3, 4}, -1.5, 1.5}}, .call = of_outer},
    {.n_in = 1, .in = {{3, {1, 3, 1}, -1.5, 1.5}}, .call = of_outer},
    {.n_in = 1, .in = {{3, {2, 0, 3}, -1.5, 1.5}}, .call = of_outer},
    {.n_in = 1, .in = {{2, {2, 3}, -1.5, 1.5}}, .call = of_none},
    {.n_in = 1, .in = {{1, {0}, -1.5, 1.5}}, .call = of_all},
    {.n_in = 1, .in = {{2, {3, 0}, -1.5, 1.5}}, .call = of_last},
    {.n_in = 1, .in = {{3, {0, 2, 3}, -1.5, 1.5}}, .call = of_outer},
    {0},
};

const aji_op aji_op_prod = {
    .name = "aj_prod",
    .maths = "y = product of x; gx_i = g product of the others",
    .flags = AJI_OP_LAZY,
    .need = AJI_NEED_IN(0),
    .attr_size = sizeof(aji_axes),
    .infer = aji_infer_accumulation,
    .forward = forward,
    .vjp = vjp,
    .samples = samples,
};

aj_tensor *aj_prod(aj_tensor *x) {
    return aji_reduce_all(&aji_op_prod, "aj_prod", x);
}

aj_tensor *aj_prod_axes(aj_tensor *x, int n, const int *axes, bool keepdims) {
    return aji_reduce_axes(&aji_op_prod, "aj_prod_axes", x, n, axes, keepdims);
}
