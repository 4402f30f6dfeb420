/*
 * aj_backward in its forms, aj_grad_of, aj_jvp: all are reverse sweeps.
 */
#include "autograd/autograd_private.h"

aj_status aj_backward_many(aj_ctx *ctx, int n, aj_tensor *const *roots, aj_tensor *const *seeds, int flags) {
    static const char op[] = "aj_backward";
    if (!ctx)
        return AJ_ERR_ARG;
    if (flags & ~(AJ_RETAIN_GRAPH | AJ_REACHED))
        aj_raise(ctx, AJ_ERR_ARG,
                 "%s: flags are %d; expected AJ_RETAIN_GRAPH and AJ_REACHED at most (AJ_CREATE_GRAPH: see aj_grad_of)", op,
                 flags);
    aji_sweep_spec spec = {.n_out = n, .outs = roots, .seeds = seeds, .flags = flags};
    aj_status status = aji_sweep_run(ctx, op, &spec);
    if (aji_autograd_of(ctx) && (status != AJ_OK || !(flags & AJ_RETAIN_GRAPH)))
        aji_recording_drop(ctx);
    return status;
}

aj_status aj_backward(aj_ctx *ctx, aj_tensor *root, aj_tensor *seed) {
    return aj_backward_many(ctx, 1, &root, &seed, 0);
}

aj_status aj_grad_of(aj_ctx *ctx, int n_out, aj_tensor *const *outs, aj_tensor *const *seeds, int n_in, aj_tensor *const *ins,
                     aj_tensor **grads, int flags) {
    static const char op[] = "aj_grad_of";
    if (!ctx)
        return AJ_ERR_ARG;
    if (flags & ~(AJ_CREATE_GRAPH | AJ_REACHED))
        aj_raise(ctx, AJ_ERR_ARG, "%s: flags are %d; expected AJ_CREATE_GRAPH and AJ_REACHED at most", op, flags);
    aj_tensor *none; /* n_in = 0: still a sweep that leaves the parameters alone */
    aji_sweep_spec spec = {.n_out = n_out,
                           .outs = outs,
                           .seeds = seeds,
                           .n_in = n_in,
                           .ins = ins,
                           .grads = n_in == 0 ? &none : grads,
                           .flags = flags};
    return aji_sweep_run(ctx, op, &spec);
}

/* g(u) = vjp of the recording with seed u is linear in u, so its own vjp with seed t is J t. The sweep for g is recorded after the recording's
 * nodes; the second one stays among those, and they are forgotten afterwards. */
static aj_status jvp_in_scope(aj_ctx *ctx, const char *op, aji_sweep_spec *vjp, aj_tensor *const *tangents, aj_tensor **results,
                              aj_tensor **u, aj_tensor **g) {
    for (int k = 0; k < vjp->n_out; k++) {
        if (!vjp->outs[k])
            return aj_raise(ctx, AJ_ERR_ARG, "%s: root %d is NULL; expected a tensor", op, k);
        if (!(u[k] = aj_param(aji_zeros_like(vjp->outs[k]))))
            return aj_ctx_status(ctx);
    }
    aji_recording *r = aji_autograd_of(ctx)->recording;
    int64_t before = r->n;
    vjp->seeds = u;
    vjp->grads = g;
    aj_status status = aji_sweep_run(ctx, op, vjp);
    aj_tensor *none;
    aji_sweep_spec again = {.n_out = vjp->n_in,
                            .outs = g,
                            .seeds = tangents,
                            .n_in = vjp->n_out,
                            .ins = u,
                            .grads = vjp->n_out ? results : &none,
                            .from = before,
                            .flags = (vjp->flags & AJ_REACHED) | AJI_TRANSPOSE};
    if (status == AJ_OK)
        status = aji_sweep_run(ctx, op, &again);
    aji_recording_truncate(ctx, before);
    return status;
}

/* NULL tangents are zeros. */
static aj_status fill_tangents(aj_ctx *ctx, const char *op, int n, aj_tensor *const *ins, aj_tensor *const *tangents,
                               aj_tensor **filled) {
    for (int i = 0; i < n; i++) {
        if (!ins[i])
            return aj_raise(ctx, AJ_ERR_ARG, "%s: input %d is NULL; expected a tensor", op, i);
        if (tangents[i] && aji_check_pair(ctx, op, "tangent", i, tangents[i], ins[i]) != AJ_OK)
            return aj_ctx_status(ctx);
        if (!(filled[i] = tangents[i] ? tangents[i] : aji_zeros_like(ins[i])))
            return aj_ctx_status(ctx);
    }
    return AJ_OK;
}

aj_status aj_jvp(aj_ctx *ctx, int n_out, aj_tensor *const *outs, int n_in, aj_tensor *const *ins, aj_tensor *const *tangents,
                 aj_tensor **results, int flags) {
    static const char op[] = "aj_jvp";
    if (!ctx)
        return AJ_ERR_ARG;
    for (int k = 0; results && k < n_out; k++)
        results[k] = NULL;
    if (flags & ~AJ_REACHED)
        aj_raise(ctx, AJ_ERR_ARG, "%s: flags are %d; expected 0 or AJ_REACHED", op, flags);
    if (n_out < 0 || n_in < 0 || (n_in > 0 && (!ins || !tangents)) || (n_out > 0 && (!outs || !results)))
        aj_raise(ctx, AJ_ERR_ARG,
                 "%s: %d roots and %d inputs, or an array that is NULL; expected counts >= 0 and an array for each", op, n_out,
                 n_in);
    aji_autograd *ag = aji_autograd_of(ctx);
    if (aj_ctx_status(ctx) == AJ_OK && (!ag || !ag->recording))
        aj_raise(ctx, AJ_ERR_STATE, "%s: there is no recording; expected one begun with aj_record_begin and not ended", op);
    aji_sweep_spec vjp = {.n_out = n_out, .outs = outs, .n_in = n_in, .ins = ins, .flags = AJ_CREATE_GRAPH | flags};
    if (aj_ctx_status(ctx) != AJ_OK)
        return aji_gate_recording(ctx);
    size_t bytes = (size_t)(n_out + 2 * n_in + 1) * sizeof(aj_tensor *);
    aj_tensor **block = aji_calloc(ctx, bytes);
    aj_scope *scope = block ? aj_scope_begin(ctx) : NULL;
    aj_status status = AJ_ERR_MEMORY;
    if (scope) {
        aj_tensor **u = block, **g = u + n_out, **filled = g + n_in;
        status = fill_tangents(ctx, op, n_in, ins, tangents, filled);
        if (status == AJ_OK)
            status = jvp_in_scope(ctx, op, &vjp, filled, results, u, g);
        for (int k = 0; k < n_out; k++) {
            aj_scope_return(scope, results[k]);
            aj_release(&u[k]);
        }
        aj_status ended = aj_scope_end(scope);
        status = status == AJ_OK ? ended : status;
    }
    aji_free(ctx, block, bytes);
    return status == AJ_OK ? AJ_OK : aji_gate_recording(ctx);
}
