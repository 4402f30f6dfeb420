/*
 * Finding NVIDIA's libraries. The driver comes with the machine, the rest with a toolkit: by the loader's own search, and in the folders of CUDA_HOME,
 * CUDA_PATH and of the toolkit that the library was built with.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/api.h"

#ifndef AJI_CUDA_LIBDIR
#define AJI_CUDA_LIBDIR ""
#endif

typedef struct library {
    const char *names[3]; /* newest first, up to a NULL */
    const char *advice;
    aj_status status; /* of its absence */
} library;

static const library libraries[AJI_N_LIBS] = {
    [AJI_LIB_DRIVER] = {{"libcuda.so.1"},
                        "no NVIDIA driver was found on this machine: install it, or stay on aj_cpu(ctx)",
                        AJ_ERR_DEVICE},
    [AJI_LIB_NVRTC] = {{"libnvrtc.so.13", "libnvrtc.so.12"},
                       "install the CUDA toolkit's NVRTC, or set CUDA_HOME or LD_LIBRARY_PATH to where it is",
                       AJ_ERR_UNSUPPORTED},
    [AJI_LIB_CUBLAS] = {{"libcublas.so.13", "libcublas.so.12"},
                        "install the CUDA toolkit's cuBLAS, or set CUDA_HOME or LD_LIBRARY_PATH to where it is",
                        AJ_ERR_UNSUPPORTED},
    [AJI_LIB_CUSOLVER] = {{"libcusolver.so.12", "libcusolver.so.11"},
                          "install the CUDA toolkit's cuSOLVER, or set CUDA_HOME or LD_LIBRARY_PATH to where it is",
                          AJ_ERR_UNSUPPORTED},
};

/* What the loader said last, for the error. */
typedef struct refusal {
    char text[512];
} refusal;

/* It stays in the process once loaded: the driver has threads of its own, and handlers for the end of the process. */
static void *load(const char *path, refusal *why) {
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    const char *text = handle ? NULL : dlerror();
    if (text && !why->text[0]) /* the first one is on the plain name: it says what is missing */
        snprintf(why->text, sizeof(why->text), "%s", text);
    return handle;
}

static void *load_from(const char *folder, const char *below, const char *name, refusal *why) {
    char path[4096];
    if (!folder || !*folder || snprintf(path, sizeof(path), "%s%s/%s", folder, below, name) >= (int)sizeof(path))
        return NULL;
    return load(path, why);
}

static void *open_library(aji_cuda_library which, refusal *why) {
    void *handle = NULL;
    for (const char *const *name = libraries[which].names; *name && !handle; name++) {
        handle = load(*name, why);
        if (which == AJI_LIB_DRIVER) /* a toolkit has only a stub of it */
            continue;
        const char *const folders[] = {getenv("CUDA_HOME"), getenv("CUDA_PATH")};
        for (int i = 0; i < 2 && !handle; i++)
            handle = load_from(folders[i], "/lib64", *name, why);
        for (int i = 0; i < 2 && !handle; i++)
            handle = load_from(folders[i], "/lib", *name, why);
        if (!handle)
            handle = load_from(AJI_CUDA_LIBDIR, "", *name, why);
    }
    return handle;
}

/* The address of each function in turn; NULL, or the name of the first one that is not there. */
#define TEXT_OF(name) #name
#define FIND(function)                                                                                                           \
    address = missing ? NULL : dlsym(handle, TEXT_OF(function));                                                                 \
    if (!missing && !address)                                                                                                    \
        missing = TEXT_OF(function);                                                                                             \
    memcpy(&api->function, &address, sizeof(address));

static const char *find_functions(aji_cuda_api *api, aji_cuda_library which, void *handle) {
    const char *missing = NULL;
    void *address;
    switch (which) {
    case AJI_LIB_DRIVER:
        AJI_CUDA_DRIVER(FIND)
        break;
    case AJI_LIB_NVRTC:
        AJI_CUDA_NVRTC(FIND)
        break;
    case AJI_LIB_CUBLAS:
        AJI_CUDA_CUBLAS(FIND)
        break;
    case AJI_LIB_CUSOLVER:
        AJI_CUDA_CUSOLVER(FIND)
        break;
    case AJI_N_LIBS:
        break;
    }
    return missing;
}

aj_status aji_cuda_api_load(aj_ctx *ctx, aji_cuda_api *api, aji_cuda_library which) {
    if (api->loaded[which])
        return AJ_OK;
    const library *l = &libraries[which];
    refusal why = {""};
    void *handle = open_library(which, &why);
    if (!handle)
        return aj_raise(ctx, l->status, "%s: %s could not be loaded (%s); %s", aji_ctx_operation(ctx), l->names[0], why.text,
                        l->advice);
    const char *missing = find_functions(api, which, handle);
    if (missing) {
        dlclose(handle);
        return aj_raise(ctx, l->status, "%s: %s has no function %s; expected that of CUDA 12.1 or later: install a newer one",
                        aji_ctx_operation(ctx), l->names[0], missing);
    }
    api->handle[which] = handle;
    api->loaded[which] = true;
    return AJ_OK;
}

void aji_cuda_api_close(aji_cuda_api *api) {
    for (int i = 0; i < AJI_N_LIBS; i++) {
        if (api->handle[i])
            dlclose(api->handle[i]);
        api->handle[i] = NULL;
        api->loaded[i] = false;
    }
}
