/*
 * The stand-in as a shared library, for programs that look for NVIDIA's: it is put where they find it as libcuda.so.1, libnvrtc.so.13 and libcublas.so.13. Each
 * function that libadjoin uses is a jump to the stand-in's; what adjoin-bench calls besides is made of those here.
 */
#include "cuda_standin_private.h"

#include <string.h>

static aji_cuda_api api;

/* ---- jumps, through an address that is filled in when the library is loaded ---- */

#define TEXT_OF(name) #name /* of what the headers' macros make of it */
#if defined(__x86_64__)
#define JUMP(name, slot) ".globl " name "\n.type " name ", @function\n" name ":\n jmp *" slot "(%rip)\n"
#elif defined(__aarch64__)
#define JUMP(name, slot)                                                                                                         \
    ".globl " name "\n.type " name ", %function\n" name ":\n adrp x16, " slot "\n ldr x16, [x16, :lo12:" slot "]\n br x16\n"
#else
#error "no jump is known for this processor"
#endif
#define EXPORT(function)                                                                                                         \
    extern void *slot_##function __attribute__((visibility("hidden")));                                                          \
    void *slot_##function;                                                                                                       \
    __asm__(JUMP(TEXT_OF(function), "slot_" #function));
AJI_CUDA_DRIVER(EXPORT)
AJI_CUDA_NVRTC(EXPORT)
AJI_CUDA_CUBLAS(EXPORT)

/* ---- what has no stream of its own, and waits ---- */

enum { MAX_STREAMS = 64 };
static CUstream streams[MAX_STREAMS];
static CUstream own_stream[STANDIN_DEVICES];
static CUmemoryPool own_pool[STANDIN_DEVICES];
static CUresult (*create_stream)(CUstream *, unsigned);
static CUresult (*destroy_stream)(CUstream);

static CUresult in_create(CUstream *stream, unsigned flags) {
    CUresult code = create_stream(stream, flags);
    for (int i = 0; code == CUDA_SUCCESS; i++) {
        if (i == MAX_STREAMS)
            STANDIN_DIE("more than %d streams", MAX_STREAMS);
        if (!streams[i]) {
            streams[i] = *stream;
            break;
        }
    }
    return code;
}

static CUresult in_destroy(CUstream stream) {
    for (int i = 0; i < MAX_STREAMS; i++)
        if (streams[i] == stream)
            streams[i] = NULL;
    return destroy_stream(stream);
}

/* The current device; its stream and pool for the calls below. */
static int prepare(void) {
    int device = standin_current();
    CUmemPoolProps properties = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    if (device < 0)
        STANDIN_DIE("a call without a current context");
    if (!own_stream[device] && (create_stream(&own_stream[device], 0) != CUDA_SUCCESS ||
                                api.cuMemPoolCreate(&own_pool[device], &properties) != CUDA_SUCCESS))
        STANDIN_DIE("no stream for a call that has none");
    return device;
}

CUresult CUDAAPI cuCtxSynchronize(void) {
    int device = prepare();
    for (int i = 0; i < MAX_STREAMS; i++)
        if (streams[i] && standin_stream_device(streams[i]) == device)
            (void)api.cuStreamSynchronize(streams[i]);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAlloc(CUdeviceptr *address, size_t bytes) {
    int device = prepare();
    return api.cuMemAllocFromPoolAsync(address, bytes, own_pool[device], own_stream[device]);
}

CUresult CUDAAPI cuMemFree(CUdeviceptr address) {
    int device = prepare();
    (void)cuCtxSynchronize();
    CUresult code = api.cuMemFreeAsync(address, own_stream[device]);
    (void)api.cuStreamSynchronize(own_stream[device]);
    return code;
}

CUresult CUDAAPI cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes) {
    int device = prepare();
    CUresult code = api.cuMemcpyHtoDAsync(to, from, bytes, own_stream[device]);
    (void)api.cuStreamSynchronize(own_stream[device]);
    return code;
}

CUresult CUDAAPI cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes) {
    int device = prepare();
    CUresult code = api.cuMemcpyDtoHAsync(to, from, bytes, own_stream[device]);
    (void)api.cuStreamSynchronize(own_stream[device]);
    return code;
}

cublasStatus_t CUBLASWINAPI cublasDgemm(cublasHandle_t handle, cublasOperation_t a_op, cublasOperation_t b_op, int m, int n,
                                        int k, const double *alpha, const double *a, int lda, const double *b, int ldb,
                                        const double *beta, double *c, int ldc) {
    return api.cublasDgemmStridedBatched(handle, a_op, b_op, m, n, k, alpha, a, lda, 0, b, ldb, 0, beta, c, ldc, 0, 1);
}

/* The real NVRTC (cuda_real_nvrtc.c) is not asked here: what is found by its name is this library. */
void standin_ask_nvrtc(const char *folder, const char *source, int n, const char *const *options) {
    (void)folder, (void)source, (void)n, (void)options;
}

/* ---- loading ---- */

__attribute__((constructor)) static void fill(void) {
    api = standin_api();
    create_stream = api.cuStreamCreate;
    destroy_stream = api.cuStreamDestroy;
    api.cuStreamCreate = in_create;
    api.cuStreamDestroy = in_destroy;
#define FILL(function) memcpy(&slot_##function, &api.function, sizeof(void *));
    AJI_CUDA_DRIVER(FILL)
    AJI_CUDA_NVRTC(FILL)
    AJI_CUDA_CUBLAS(FILL)
}
