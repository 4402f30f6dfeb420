/* The shape rule of elementwise operations with scalar arguments. */
#include <math.h>

#include "autograd/ops/helpers.h"

static bool is_number_of(aj_dtype dtype, double value) {
    switch (dtype) {
    case AJ_I64:
        return value == trunc(value) && value >= -0x1p63 && value < 0x1p63;
    case AJ_I32:
        return value == trunc(value) && value >= INT32_MIN && value <= INT32_MAX;
    case AJ_U8:
        return value == trunc(value) && value >= 0 && value <= UINT8_MAX;
    default:
        return true;
    }
}

aj_status aji_infer_scalars(aji_call *c) {
    const aji_scalars *scalars = c->attr;
    aj_dtype dtype = c->in_meta[0].dtype;
    for (int i = 0; i < 2; i++)
        if (!is_number_of(dtype, scalars->imm[i]))
            return aj_raise(c->ctx, AJ_ERR_ARG,
                            "aj_%s: the scalar %g is not a number of x's dtype, %s; make x floating with aj_cast", c->op->name,
                            scalars->imm[i], aj_dtype_name(dtype));
    return aji_infer_elementwise(c);
}
