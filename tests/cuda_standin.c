/* The stand-in driver: failures on demand, devices and their contexts, modules and launches. */
#include "cuda_standin_private.h"

#include <string.h>

/* ---- calls and failures ---- */

enum { MAX_FUNCTIONS = 128 };

static struct function {
    const char *name;
    long calls;
    int fails_in; /* calls from now; -1: not at all */
    int code;
} functions[MAX_FUNCTIONS];

static long held;

static struct function *function_of(const char *name) {
    for (int i = 0; i < MAX_FUNCTIONS; i++) {
        if (!functions[i].name)
            functions[i] = (struct function){.name = name, .fails_in = -1};
        if (strcmp(functions[i].name, name) == 0)
            return &functions[i];
    }
    STANDIN_DIE("more than %d functions", MAX_FUNCTIONS);
}

void standin_fail(const char *function, int n, int code) {
    function_of(function)->fails_in = n;
    function_of(function)->code = code;
}

int standin_failure(const char *function) {
    struct function *f = function_of(function);
    f->calls++;
    if (f->fails_in < 0)
        return 0;
    return f->fails_in-- == 0 ? f->code : 0;
}

long standin_calls(const char *function) {
    return function_of(function)->calls;
}

void standin_hold(long n) {
    held += n;
}

/* ---- devices and contexts ---- */

enum { MAX_DEPTH = 64 };

static bool initialised;
static struct CUctx_st { int retained; } contexts[STANDIN_DEVICES];
static CUcontext stack[MAX_DEPTH]; /* of current contexts */
static int depth;

long standin_left(void) {
    return held + depth + contexts[0].retained + contexts[1].retained;
}

int standin_current(void) {
    return depth > 0 && stack[depth - 1]->retained > 0 ? (int)(stack[depth - 1] - contexts) : -1;
}

static CUresult in_cuInit(unsigned flags) {
    BEGIN(cuInit);
    initialised = true;
    return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult in_cuDriverGetVersion(int *version) {
    BEGIN(cuDriverGetVersion);
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

static CUresult in_cuGetErrorName(CUresult code, const char **text) {
    BEGIN(cuGetErrorName);
    *text = code == CUDA_ERROR_OUT_OF_MEMORY     ? "CUDA_ERROR_OUT_OF_MEMORY"
            : code == CUDA_ERROR_INVALID_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT"
            : code == CUDA_ERROR_UNKNOWN         ? "CUDA_ERROR_UNKNOWN"
                                                 : "CUDA_ERROR_OF_THE_STAND_IN";
    return CUDA_SUCCESS;
}

static CUresult in_cuGetErrorString(CUresult code, const char **text) {
    BEGIN(cuGetErrorString);
    *text = code == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "an error of the stand-in";
    return CUDA_SUCCESS;
}

static CUresult in_cuDeviceGetCount(int *n) {
    BEGIN(cuDeviceGetCount);
    *n = STANDIN_DEVICES;
    return initialised ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

static bool is_device(int number) {
    return initialised && number >= 0 && number < STANDIN_DEVICES;
}

static CUresult in_cuDeviceGet(CUdevice *device, int index) {
    BEGIN(cuDeviceGet);
    *device = index;
    return is_device(index) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult in_cuDeviceGetName(char *name, int room, CUdevice device) {
    BEGIN(cuDeviceGetName);
    snprintf(name, (size_t)room, "stand-in");
    return is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult in_cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    BEGIN(cuDeviceGetAttribute);
    if (!is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *value = 9;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *value = 0;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *value = 4;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
        *value = 1;
        return CUDA_SUCCESS;
    default:
        STANDIN_DIE("attribute %d was asked for, which it does not know", (int)attribute);
    }
}

static CUresult in_cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    BEGIN(cuDevicePrimaryCtxRetain);
    if (!is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    contexts[device].retained++;
    *context = &contexts[device];
    return CUDA_SUCCESS;
}

static CUresult in_cuDevicePrimaryCtxRelease(CUdevice device) {
    if (!is_device(device) || contexts[device].retained == 0)
        return CUDA_ERROR_INVALID_DEVICE;
    contexts[device].retained--;
    return (CUresult)standin_failure("cuDevicePrimaryCtxRelease");
}

static CUresult in_cuCtxPushCurrent(CUcontext context) {
    BEGIN(cuCtxPushCurrent);
    if (context < contexts || context >= contexts + STANDIN_DEVICES || context->retained == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (depth == MAX_DEPTH)
        STANDIN_DIE("%d contexts were pushed and not popped", depth);
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

static CUresult in_cuCtxPopCurrent(CUcontext *context) {
    if (depth == 0)
        STANDIN_DIE("a context is popped where none was pushed");
    *context = stack[--depth];
    return (CUresult)standin_failure("cuCtxPopCurrent");
}

static CUresult in_cuCtxGetCurrent(CUcontext *context) {
    BEGIN(cuCtxGetCurrent);
    *context = depth > 0 ? stack[depth - 1] : NULL;
    return CUDA_SUCCESS;
}

static CUresult in_cuCtxSetCurrent(CUcontext context) {
    BEGIN(cuCtxSetCurrent);
    if (context && context->retained == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    depth -= depth > 0;
    if (context)
        stack[depth++] = context;
    return CUDA_SUCCESS;
}

/* ---- modules ---- */

struct CUfunc_st {
    CUmodule module;
    standin_kernel *kernel;
    CUfunction next;
};

struct CUmod_st {
    int device;
    char *image; /* the stand-in compiler's images are text */
    CUfunction functions;
    int launches; /* under way */
};

static CUresult in_cuModuleLoadData(CUmodule *module, const void *image) {
    BEGIN_IN_CONTEXT(cuModuleLoadData);
    *module = calloc(1, sizeof(**module));
    (*module)->device = standin_current();
    (*module)->image = strdup(image);
    standin_hold(1);
    return CUDA_SUCCESS;
}

static CUresult in_cuModuleUnload(CUmodule module) {
    BEGIN_GIVING_BACK(cuModuleUnload);
    if (module->launches > 0)
        STANDIN_DIE("a module is unloaded under a launch of its kernel");
    for (CUfunction f = module->functions, next; f; f = next) {
        next = f->next;
        free(f);
    }
    free(module->image);
    free(module);
    standin_hold(-1);
    return result;
}

static CUresult in_cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    BEGIN_IN_CONTEXT(cuModuleGetFunction);
    standin_kernel *kernel = standin_module_kernel(module->image, name);
    if (!kernel)
        return CUDA_ERROR_NOT_FOUND;
    *function = malloc(sizeof(**function));
    **function = (struct CUfunc_st){module, kernel, module->functions};
    module->functions = *function;
    return CUDA_SUCCESS;
}

/* ---- launches ---- */

typedef struct launch {
    CUfunction function;
    unsigned blocks, threads;
    _Alignas(16) unsigned char argument[];
} launch;

static void run_launch(void *data) {
    launch *l = data;
    standin_kernel_run(l->function->kernel, l->blocks, l->threads, l->argument);
    l->function->module->launches--;
}

static CUresult in_cuLaunchKernel(CUfunction function, unsigned blocks, unsigned blocks_y, unsigned blocks_z, unsigned threads,
                                  unsigned threads_y, unsigned threads_z, unsigned shared, CUstream stream, void **arguments,
                                  void **extra) {
    BEGIN_IN_CONTEXT(cuLaunchKernel);
    if (blocks == 0 || blocks > 0x7fffffff || threads == 0 || threads > 1024 || extra)
        return CUDA_ERROR_INVALID_VALUE;
    if (blocks_y != 1 || blocks_z != 1 || threads_y != 1 || threads_z != 1 || shared != 0)
        STANDIN_DIE("a launch with more than one axis, or with shared memory of its own");
    if (function->module->device != standin_stream_device(stream) || function->module->device != standin_current())
        STANDIN_DIE("a kernel of device %d is launched in a stream of device %d", function->module->device,
                    standin_stream_device(stream));
    size_t bytes = standin_kernel_argument(function->kernel);
    if (bytes > 4096)
        return CUDA_ERROR_INVALID_VALUE;
    launch *l = malloc(sizeof(*l) + bytes);
    l->function = function;
    l->blocks = blocks;
    l->threads = threads;
    memcpy(l->argument, arguments[0], bytes);
    function->module->launches++;
    standin_enqueue(stream, run_launch, l);
    return CUDA_SUCCESS;
}

/* ---- all of it ---- */

void standin_driver(aji_cuda_api *api) {
    api->cuInit = in_cuInit;
    api->cuGetErrorName = in_cuGetErrorName;
    api->cuGetErrorString = in_cuGetErrorString;
    api->cuDriverGetVersion = in_cuDriverGetVersion;
    api->cuDeviceGetCount = in_cuDeviceGetCount;
    api->cuDeviceGet = in_cuDeviceGet;
    api->cuDeviceGetName = in_cuDeviceGetName;
    api->cuDeviceGetAttribute = in_cuDeviceGetAttribute;
    api->cuDevicePrimaryCtxRetain = in_cuDevicePrimaryCtxRetain;
    api->cuDevicePrimaryCtxRelease = in_cuDevicePrimaryCtxRelease;
    api->cuCtxPushCurrent = in_cuCtxPushCurrent;
    api->cuCtxPopCurrent = in_cuCtxPopCurrent;
    api->cuCtxGetCurrent = in_cuCtxGetCurrent;
    api->cuCtxSetCurrent = in_cuCtxSetCurrent;
    api->cuModuleLoadData = in_cuModuleLoadData;
    api->cuModuleUnload = in_cuModuleUnload;
    api->cuModuleGetFunction = in_cuModuleGetFunction;
    api->cuLaunchKernel = in_cuLaunchKernel;
    standin_work(api);
    standin_memory(api);
    api->loaded[AJI_LIB_DRIVER] = true;
}

/* Images are paths of files in a folder of the tests: the cache on disk would outlive them. */
aji_cuda_api standin_api(void) {
    aji_cuda_api api = {0};
    setenv("ADJOIN_CUDA_CACHE", "", 0);
    standin_driver(&api);
    standin_compiler(&api);
    standin_libraries(&api);
    return api;
}
