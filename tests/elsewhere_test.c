#include "elsewhere.h"

aj_device elsewhere(aj_ctx *ctx) {
    return aj_test_device(ctx);
}
