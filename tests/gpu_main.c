/* The main function of Criterion programs that may be asked to run on a GPU: where there is none they are skipped as a whole, and say why. */
#include <adjoin/adjoin.h>
#include <criterion/criterion.h>
#include <stdio.h>

#include "gpu.h"

static bool has_gpu(char *why, size_t room) {
    aj_ctx *ctx;
    if (aj_ctx_create(&ctx, NULL) != AJ_OK) {
        snprintf(why, room, "no context");
        return false;
    }
    bool found = aj_cuda(ctx, 0) != NULL;
    snprintf(why, room, "%.*s", (int)strcspn(aj_ctx_error(ctx), "\n"), aj_ctx_error(ctx)); /* without the calls that led there */
    aj_ctx_clear_error(ctx);
    (void)aj_ctx_destroy(&ctx);
    return found;
}

int main(int argc, char **argv) {
    char why[1024];
    if (on_gpu() && !has_gpu(why, sizeof why)) {
        printf("skipped: no GPU (%s)\n", why);
        return 77;
    }
    struct criterion_test_set *tests = criterion_initialize();
    int status = criterion_handle_args(argc, argv, true) ? !criterion_run_all_tests(tests) : 0;
    criterion_finalize(tests);
    return status;
}
