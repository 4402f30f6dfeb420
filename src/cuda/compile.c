/*
 * From source to a launch. A source is compiled by NVRTC for the device at hand, once: the function is kept with its key, and the image on disk (cache.c).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/cache.h"
#include "cuda/text.h"

#ifndef AJI_CUDA_LIBDIR
#define AJI_CUDA_LIBDIR ""
#endif

/* ---- compiling ---- */

enum { MAX_OPTIONS = 16, OPTION = 4096 };

typedef struct options {
    int n;
    bool ptx; /* for an architecture that the compiler does not know: the driver compiles the rest of the way */
    const char *list[MAX_OPTIONS];
    char *text; /* of all */
} options;

static void add_option(options *o, const char *name, const char *value, const char *more) {
    if (o->n == MAX_OPTIONS)
        return;
    char *text = o->text + (size_t)o->n * OPTION;
    if (snprintf(text, OPTION, "%s%s%s", name, value, more) < OPTION)
        o->list[o->n++] = text;
}

/* CUB lies in the toolkit: since 13.0 in a folder of its own. */
static void add_toolkit(options *o, const char *folder, const char *up) {
    char path[OPTION];
    if (!folder || !*folder || snprintf(path, sizeof(path), "%s%s", folder, up) >= (int)sizeof(path))
        return;
    add_option(o, "--include-path=", path, "/include");
    add_option(o, "--include-path=", path, "/include/cccl");
}

/* The device's own architecture, or the newest before it that the compiler knows. */
static aj_status choose_architecture(aji_cuda *d, options *o) {
    int n = 0, own = d->major * 10 + d->minor, best = 0, known[256];
    aj_status status = AJI_NVRTC(d, nvrtcGetNumSupportedArchs, &n);
    if (status == AJ_OK && n <= 256)
        status = AJI_NVRTC(d, nvrtcGetSupportedArchs, known);
    if (status != AJ_OK)
        return status;
    for (int i = 0; i < n && n <= 256; i++)
        best = known[i] <= own && known[i] > best ? known[i] : best;
    if (best == 0)
        return aj_raise(
            d->device.ctx, AJ_ERR_UNSUPPORTED,
            "%s: NVRTC does not compile for device %s (%s), of compute capability %d.%d; expected a CUDA toolkit of the "
            "device's generation",
            aji_ctx_operation(d->device.ctx), d->device.name, d->model, d->major, d->minor);
    char text[16];
    snprintf(text, sizeof(text), "%d", best);
    o->ptx = best != own;
    add_option(o, o->ptx ? "--gpu-architecture=compute_" : "--gpu-architecture=sm_", text, "");
    return AJ_OK;
}

/* No multiply-add where the CPU rounds twice: both come to the same numbers. */
static aj_status choose_options(aji_cuda *d, options *o) {
    o->text = aji_alloc(d->device.ctx, (size_t)MAX_OPTIONS * OPTION);
    if (!o->text)
        return AJ_ERR_MEMORY;
    aj_status status = choose_architecture(d, o);
    add_option(o, "--std=", "c++17", "");
    add_option(o, "--fmad=", "false", "");
    add_option(o, "--device-", "int128", "");
    add_toolkit(o, getenv("CUDA_HOME"), "");
    add_toolkit(o, getenv("CUDA_PATH"), "");
    add_toolkit(o, AJI_CUDA_LIBDIR, AJI_CUDA_LIBDIR[0] ? "/.." : "");
    return status;
}

/* What the image depends on: the compiler, its options and the source. */
static aj_status write_key(aji_cuda *d, const options *o, const char *source, aji_text *key) {
    int major = 0, minor = 0;
    aj_status status = AJI_NVRTC(d, nvrtcVersion, &major, &minor);
    if (status != AJ_OK)
        return status;
    aji_text_add(key, "NVRTC %d.%d", major, minor);
    for (int i = 0; i < o->n; i++)
        aji_text_add(key, " %s", o->list[i]);
    aji_text_add(key, "\n%s", source);
    return key->failed ? AJ_ERR_MEMORY : AJ_OK;
}

/* The compiler's own words, and the source that they are about. */
static aj_status refuse_source(aji_cuda *d, nvrtcProgram program, nvrtcResult code, const char *source) {
    aj_ctx *ctx = d->device.ctx;
    size_t bytes = 0;
    if (d->api.nvrtcGetProgramLogSize(program, &bytes) != NVRTC_SUCCESS)
        bytes = 0;
    char *log = bytes ? aji_calloc(ctx, bytes + 1) : NULL;
    if (log)
        (void)d->api.nvrtcGetProgramLog(program, log);
    aj_status status = aj_raise(ctx, AJ_ERR_DEVICE,
                                "%s: nvrtcCompileProgram failed for device %s (%s): %s, code %d: %s\nof this source:\n%.2000s",
                                aji_ctx_operation(ctx), d->device.name, d->model, d->api.nvrtcGetErrorString(code), (int)code,
                                log ? log : "it says nothing more", source);
    aji_free(ctx, log, bytes + 1);
    return status;
}

static aj_status take_image(aji_cuda *d, nvrtcProgram program, bool ptx, char **image, size_t *bytes) {
    aj_status status = ptx ? AJI_NVRTC(d, nvrtcGetPTXSize, program, bytes) : AJI_NVRTC(d, nvrtcGetCUBINSize, program, bytes);
    if (status != AJ_OK)
        return status;
    *image = aji_alloc(d->device.ctx, *bytes);
    if (!*image)
        return AJ_ERR_MEMORY;
    status = ptx ? AJI_NVRTC(d, nvrtcGetPTX, program, *image) : AJI_NVRTC(d, nvrtcGetCUBIN, program, *image);
    if (status != AJ_OK) {
        aji_free(d->device.ctx, *image, *bytes);
        *image = NULL;
    }
    return status;
}

static aj_status compile(aji_cuda *d, const options *o, const char *source, char **image, size_t *bytes) {
    nvrtcProgram program = NULL;
    aj_status status = AJI_NVRTC(d, nvrtcCreateProgram, &program, source, "adjoin.cu", 0, NULL, NULL);
    if (status != AJ_OK)
        return status;
    nvrtcResult code = d->api.nvrtcCompileProgram(program, o->n, o->list);
    status = code == NVRTC_SUCCESS ? take_image(d, program, o->ptx, image, bytes) : refuse_source(d, program, code, source);
    (void)d->api.nvrtcDestroyProgram(&program);
    return status;
}

static aj_status compile_or_read(aji_cuda *d, const options *o, const char *source, char **image, size_t *bytes) {
    aji_text key = aji_text_begin(d->device.ctx);
    aj_status status = write_key(d, o, source, &key);
    if (status == AJ_OK)
        *image = aji_cuda_cache_read(d->device.ctx, key.at, (size_t)key.n, bytes);
    if (status == AJ_OK && !*image) {
        status = compile(d, o, source, image, bytes);
        if (status == AJ_OK)
            aji_cuda_cache_write(key.at, (size_t)key.n, *image, *bytes);
    }
    aji_text_free(&key);
    return status;
}

aj_status aji_cuda_compile(aji_cuda *d, const char *source, char **image, size_t *bytes) {
    options o = {.n = 0};
    *image = NULL;
    aj_status status = aji_cuda_api_load(d->device.ctx, &d->api, AJI_LIB_NVRTC);
    if (status == AJ_OK)
        status = choose_options(d, &o);
    if (status == AJ_OK)
        status = compile_or_read(d, &o, source, image, bytes);
    aji_free(d->device.ctx, o.text, (size_t)MAX_OPTIONS * OPTION);
    return status;
}

/* ---- functions by key ---- */

typedef struct kernel {
    struct kernel *next;
    uint64_t hash;
    size_t key_bytes;
    CUmodule module;
    CUfunction function;
    char key[]; /* the function's name, with its 0, and then the key it was asked for with */
} kernel;

enum { BUCKETS = 1024 }; /* some hundred kernels are many */

struct aji_cuda_kernels {
    kernel *bucket[BUCKETS];
};

static size_t kernel_bytes(size_t key_bytes) {
    return sizeof(kernel) + key_bytes;
}

static uint64_t hash_of(const aji_cuda_source *s) {
    return aji_cuda_hash(aji_cuda_hash(AJI_HASH_BEGIN, s->kernel, strlen(s->kernel) + 1), s->key, s->key_bytes);
}

static kernel *find(const aji_cuda_kernels *all, const aji_cuda_source *s, uint64_t hash) {
    size_t name = strlen(s->kernel) + 1;
    for (kernel *k = all->bucket[hash % BUCKETS]; k; k = k->next)
        if (k->hash == hash && k->key_bytes == name + s->key_bytes && memcmp(k->key, s->kernel, name) == 0 &&
            memcmp(k->key + name, s->key, s->key_bytes) == 0)
            return k;
    return NULL;
}

static aj_status load(aji_cuda *d, kernel *k, const char *source, const char *name) {
    char *image;
    size_t bytes;
    aj_status status = aji_cuda_compile(d, source, &image, &bytes);
    if (status != AJ_OK)
        return status;
    status = AJI_CU(d, cuModuleLoadData, &k->module, image);
    if (status == AJ_OK) {
        status = AJI_CU(d, cuModuleGetFunction, &k->function, k->module, name);
        if (status != AJ_OK)
            (void)AJI_CU(d, cuModuleUnload, k->module);
    }
    aji_free(d->device.ctx, image, bytes);
    return status;
}

/* Compile it and keep it. NULL raised. */
static kernel *add(aji_cuda *d, const aji_cuda_source *s, uint64_t hash) {
    aj_ctx *ctx = d->device.ctx;
    size_t name = strlen(s->kernel) + 1, key_bytes = name + s->key_bytes;
    kernel *k = aji_calloc(ctx, kernel_bytes(key_bytes));
    if (!k)
        return NULL;
    k->hash = hash;
    k->key_bytes = key_bytes;
    memcpy(k->key, s->kernel, name);
    memcpy(k->key + name, s->key, s->key_bytes);
    aji_text text = aji_text_begin(ctx);
    aj_status status = s->write(ctx, s->what, &text);
    if (status == AJ_OK)
        status = load(d, k, text.at, s->kernel);
    aji_text_free(&text);
    if (status != AJ_OK) {
        aji_free(ctx, k, kernel_bytes(key_bytes));
        return NULL;
    }
    k->next = d->kernels->bucket[hash % BUCKETS];
    return d->kernels->bucket[hash % BUCKETS] = k;
}

void aji_cuda_kernels_destroy(aji_cuda *d) {
    for (int i = 0; i < BUCKETS && d->kernels; i++)
        for (kernel *k = d->kernels->bucket[i], *next; k; k = next) {
            next = k->next;
            (void)AJI_CU(d, cuModuleUnload, k->module);
            aji_free(d->device.ctx, k, kernel_bytes(k->key_bytes));
        }
    aji_free(d->device.ctx, d->kernels, sizeof(*d->kernels));
    d->kernels = NULL;
}

/* ---- launching ---- */

aj_status aji_cuda_launch_made(aji_cuda *d, const aji_cuda_source *source, int64_t blocks, const void *argument, size_t bytes) {
    if (!d->kernels)
        d->kernels = aji_calloc(d->device.ctx, sizeof(*d->kernels));
    if (!d->kernels)
        return AJ_ERR_MEMORY;
    if (blocks <= 0 || blocks > INT32_MAX || bytes > AJI_CUDA_ARGUMENT)
        return aj_raise(d->device.ctx, AJ_ERR_UNSUPPORTED,
                        "%s: a kernel of %lld blocks with %zu bytes of arguments; CUDA takes %d and %d",
                        aji_ctx_operation(d->device.ctx), (long long)blocks, bytes, INT32_MAX, AJI_CUDA_ARGUMENT);
    uint64_t hash = hash_of(source);
    kernel *k = find(d->kernels, source, hash);
    if (!k && !(k = add(d, source, hash)))
        return aj_ctx_status(d->device.ctx);
    void *arguments[] = {(void *)(uintptr_t)argument}; /* the driver copies what it points to */
    return AJI_CU(d, cuLaunchKernel, k->function, (unsigned)blocks, 1, 1, AJI_CUDA_THREADS, 1, 1, 0, d->stream, arguments, NULL);
}

static aj_status write_given(aj_ctx *ctx, const void *source, aji_text *text) {
    (void)ctx;
    aji_text_add(text, "%s", (const char *)source);
    return text->failed ? AJ_ERR_MEMORY : AJ_OK;
}

aj_status aji_cuda_launch(aji_cuda *d, const char *name, const char *source, int64_t blocks, const void *argument, size_t bytes) {
    return aji_cuda_launch_made(d, &(aji_cuda_source){name, source, strlen(source), write_given, source}, blocks, argument,
                                bytes);
}
