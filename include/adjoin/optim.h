/* Optimisers. */
#ifndef ADJOIN_OPTIM_H
#define ADJOIN_OPTIM_H

#include "autograd.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * One step of gradient descent: param <- param - rate * aj_grad(param). The gradient itself is left alone.
 * rate: a finite number, units of param squared over units of the loss.
 * Returns AJ_OK or the error: AJ_ERR_ARG (not a parameter, rate not finite), AJ_ERR_STATE (inside a recording), AJ_ERR_MEMORY, or, with no
 * effect, the error the context is already in.
 * Collective: no. Differentiable: no. Threads: one per context. Since: 0.1.
 */
AJ_API aj_status aj_sgd_step(aj_tensor *param, double rate);

#ifdef __cplusplus
}
#endif
#endif
