/*
 * The real NVRTC, where it is: what the stand-in compiles, it must take, too, for the oldest and for the newest of the architectures that most machines have.
 * It needs no GPU for that. A source that it took is remembered by a file, since it takes much longer than the rest of a test.
 */
#include "cuda/cache.h"
#include "cuda_standin_private.h"

#include <inttypes.h>
#include <string.h>

enum { MAX_OPTIONS = 16 };

static aji_cuda_api real;
static char version[32];

static void say_nothing(const char *line, void *user) {
    (void)line;
    (void)user;
}

bool standin_has_nvrtc(void) {
    static bool asked;
    aj_ctx *ctx;
    aj_ctx_opts opts = {.size = sizeof(opts), .log = say_nothing};
    if (asked || aj_ctx_create(&ctx, &opts) != AJ_OK)
        return real.loaded[AJI_LIB_NVRTC];
    asked = true;
    int major = 0, minor = 0;
    if (aji_cuda_api_load(ctx, &real, AJI_LIB_NVRTC) != AJ_OK || real.nvrtcVersion(&major, &minor) != NVRTC_SUCCESS)
        real.loaded[AJI_LIB_NVRTC] = false;
    snprintf(version, sizeof(version), "nvrtc-%d.%d", major, minor);
    (void)!aj_ctx_destroy(&ctx);
    return real.loaded[AJI_LIB_NVRTC];
}

char *standin_nvrtc_log(const char *source, int n, const char *const *options, const char *architecture) {
    const char *list[MAX_OPTIONS];
    nvrtcProgram program;
    if (n > MAX_OPTIONS || real.nvrtcCreateProgram(&program, source, "adjoin.cu", 0, NULL, NULL) != NVRTC_SUCCESS)
        STANDIN_DIE("nvrtcCreateProgram failed, or %d options are too many", n);
    for (int i = 0; i < n; i++)
        list[i] = strncmp(options[i], "--gpu-architecture", 18) == 0 ? architecture : options[i];
    char *log = NULL;
    size_t bytes;
    if (real.nvrtcCompileProgram(program, n, list) != NVRTC_SUCCESS) {
        if (real.nvrtcGetProgramLogSize(program, &bytes) != NVRTC_SUCCESS || !(log = calloc(1, bytes + 1)))
            STANDIN_DIE("nvrtcGetProgramLogSize failed");
        (void)real.nvrtcGetProgramLog(program, log);
    }
    (void)real.nvrtcDestroyProgram(&program);
    return log;
}

void standin_ask_nvrtc(const char *folder, const char *source, int n, const char *const *options) {
    static const char *const architectures[] = {"--gpu-architecture=sm_80", "--gpu-architecture=sm_90"};
    if (!standin_has_nvrtc())
        return;
    uint64_t hash = aji_cuda_hash(AJI_HASH_BEGIN, source, strlen(source));
    for (int i = 0; i < n; i++)
        if (strncmp(options[i], "--gpu-architecture", 18) != 0)
            hash = aji_cuda_hash(hash, options[i], strlen(options[i]));
    char path[4096];
    snprintf(path, sizeof(path), "%s/%016" PRIx64 ".%s", folder, hash, version);
    FILE *taken = fopen(path, "r");
    for (int i = 0; i < 2 && !taken; i++) {
        char *log = standin_nvrtc_log(source, n, options, architectures[i]);
        if (log)
            STANDIN_DIE("NVRTC refuses with %s: %s\nThe source:\n%s", architectures[i], log, source);
    }
    taken = taken ? taken : fopen(path, "w");
    if (taken)
        fclose(taken);
}
