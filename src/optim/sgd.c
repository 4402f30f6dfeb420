/*
 * Gradient descent.
 */
#include <math.h>

#include "adjoin/ops.h"
#include "adjoin/optim.h"
#include "autograd/autograd_internal.h"

aj_status aj_sgd_step(aj_tensor *param, double rate) {
    if (!param)
        return AJ_ERR_ARG;
    aj_ctx *ctx = aj_tensor_ctx(param);
    if (aj_ctx_status(ctx) != AJ_OK)
        return aj_ctx_status(ctx);
    if (!aji_is_param(param))
        return aj_raise(ctx, AJ_ERR_ARG, "aj_sgd_step: the tensor is not a parameter; expected one made by aj_param");
    if (aji_recording_id(ctx) != 0)
        return aj_raise(ctx, AJ_ERR_STATE,
                        "aj_sgd_step: a recording is open or stopped; expected a call after aj_backward or aj_record_end");
    if (!isfinite(rate))
        return aj_raise(ctx, AJ_ERR_ARG, "aj_sgd_step: the rate is %g; expected a finite number", rate);
    aj_scope *scope = aj_scope_begin(ctx);
    if (!scope)
        return aj_ctx_status(ctx);
    aj_tensor *value = aj_sub(aj_detach(param), aj_scale(aj_grad(param), rate));
    if (value)
        aj_param_set(param, value); /* its error is the scope's */
    return aj_scope_end(scope);
}
