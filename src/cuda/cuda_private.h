/*
 * The CUDA device: its struct, and what the files of this folder offer each other. One stream per device of a context does all its work, in order; the
 * host waits for it only where it reads what the device wrote. The device's primary context is pushed at the begin of each call from outside, and popped at its
 * end, so that the user's own CUDA code finds what it left.
 */
#ifndef AJI_CUDA_PRIVATE_H
#define AJI_CUDA_PRIVATE_H

#include "cuda/api.h"

typedef struct aji_cuda_kernels aji_cuda_kernels; /* compile.c: compiled ones, by their source */
typedef struct aji_cuda_pinned aji_cuda_pinned;   /* pinned.c: cached blocks of pinned host memory */
typedef struct aji_cuda_staged aji_cuda_staged;

typedef struct aji_cuda {
    struct aji_device device; /* first */
    aji_cuda_api api;
    int index;         /* the driver's */
    CUdevice number;   /* and its handle */
    int major, minor;  /* compute capability */
    int processors;    /* multiprocessors */
    char model[64];    /* "NVIDIA H100" */
    CUcontext context; /* the primary one */
    CUstream stream;
    CUevent done; /* what a download waits for */
    CUmemoryPool pool;
    int64_t live, peak; /* bytes of the pool */
    aji_cuda_pinned *pinned;
    aji_cuda_staged *staged; /* memory.c: live host storages on pinned memory */
    bool lent;               /* to the thread that calls MPI: its context is current there between calls */
    aji_cuda_kernels *kernels;
    cublasHandle_t cublas;       /* matmul.c; NULL: not asked for yet */
    cusolverDnHandle_t cusolver; /* factors.c */
    cusolverDnParams_t cusolver_params;
} aji_cuda;

static inline aji_cuda *aji_cuda_of(aj_device device) {
    return (aji_cuda *)device; /* the device is its first member, and no struct aji_cuda is const */
}

/* ---- opening (device.c) ---- */

/* A device with this number of the driver's. api: what is loaded of it already is taken as it is; NULL: load all. NULL raised: AJ_ERR_DEVICE (no driver,
 * no device with this number), AJ_ERR_MEMORY. The context destroys it. */
aj_device aji_cuda_open(aj_ctx *ctx, const aji_cuda_api *api, int index);
extern const aji_device_table aji_cuda_table;
void aji_cuda_destroy(aj_device device); /* slot */

/* Around all calls of the driver: every slot begins with enter and ends with leave, which returns status, or what popping the context raised. */
aj_status aji_cuda_enter(aji_cuda *d);
aj_status aji_cuda_enter_to_release(aji_cuda *d); /* tries again: what is not given back now never is */
aj_status aji_cuda_leave(aji_cuda *d, aj_status status);

/* ---- checked calls (check.c). op: the operation that the user called. The error names it, the call, the library's name and text for the
 * code, and the device. ---- */
aj_status aji_cuda_check(aji_cuda *d, const char *call, CUresult code);
aj_status aji_cuda_check_nvrtc(aji_cuda *d, const char *call, nvrtcResult code);
aj_status aji_cuda_check_cublas(aji_cuda *d, const char *call, cublasStatus_t code);
aj_status aji_cuda_check_cusolver(aji_cuda *d, const char *call, cusolverStatus_t code);
/* status = AJI_CU(d, cuEventRecord, event, d->stream); */
#define AJI_CU(d, function, ...) aji_cuda_check((d), #function, (d)->api.function(__VA_ARGS__))
#define AJI_NVRTC(d, function, ...) aji_cuda_check_nvrtc((d), #function, (d)->api.function(__VA_ARGS__))
#define AJI_CUBLAS(d, function, ...) aji_cuda_check_cublas((d), #function, (d)->api.function(__VA_ARGS__))
#define AJI_CUSOLVER(d, function, ...) aji_cuda_check_cusolver((d), #function, (d)->api.function(__VA_ARGS__))

/* ---- memory (memory.c). Stream-ordered: what is freed may be given out again to work that comes later in the stream. Between enter and leave. ---- */
void *aji_cuda_alloc(aji_cuda *d, size_t bytes); /* NULL raised */
void aji_cuda_free(aji_cuda *d, void *memory, size_t bytes);
/* Enqueue copies. */
aj_status aji_cuda_put(aji_cuda *d, void *device_memory, const void *host,
                       size_t bytes); /* keeps the host's side, and returns at once */
aj_status aji_cuda_get(aji_cuda *d, void *host, const void *device_memory, size_t bytes); /* waits */
/* Slots */
void *aji_cuda_alloc_slot(aj_device device, size_t bytes);
void aji_cuda_free_slot(aj_device device, void *memory, size_t bytes);
aj_status aji_cuda_upload(aj_device device, void *device_memory, const void *host, size_t bytes);
aj_status aji_cuda_download(aj_device device, void *host, const void *device_memory, size_t bytes);
aji_storage *aji_cuda_staging(aj_device device, size_t bytes);
aj_status aji_cuda_wait(aj_device device);
aj_status aji_cuda_ready_for_mpi(aj_device device);
void aji_cuda_take_from_mpi(aji_cuda *d); /* before the device goes */

/* ---- pinned host memory (pinned.c), which the device reads and writes by itself: back in the cache once the stream has passed what was
 * enqueued before the release. Between enter and leave. ---- */
void *aji_cuda_pinned_take(aji_cuda *d, size_t bytes); /* NULL raised */
void aji_cuda_pinned_give(aji_cuda *d, void *memory, size_t bytes);
void aji_cuda_pinned_flush(aji_cuda *d);   /* give what is cached back to the driver; waits */
void aji_cuda_pinned_destroy(aji_cuda *d); /* after the stream's last work */

/* ---- kernels (compile.c) ---- */

enum { AJI_CUDA_THREADS = 256, AJI_CUDA_ARGUMENT = 4096 }; /* of a block; bytes of arguments that every driver takes */

/* Compile `source`, unless it was before (in memory, or on disk), and enqueue its function `kernel`, extern "C" with one struct by value as its argument,
 * on a grid of blocks of AJI_CUDA_THREADS. */
aj_status aji_cuda_launch(aji_cuda *d, const char *kernel, const char *source, int64_t blocks, const void *argument,
                          size_t bytes);
/* The same for a source that is written only where no kernel with its key is there yet. */
typedef struct aji_text aji_text;
typedef struct aji_cuda_source {
    const char *kernel;
    const void *key;
    size_t key_bytes;
    aj_status (*write)(aj_ctx *ctx, const void *what, aji_text *text);
    const void *what;
} aji_cuda_source;
aj_status aji_cuda_launch_made(aji_cuda *d, const aji_cuda_source *source, int64_t blocks, const void *argument, size_t bytes);
/* The image of a source for the device: cubin, or PTX where the compiler does not know it. The caller frees it. */
aj_status aji_cuda_compile(aji_cuda *d, const char *source, char **image, size_t *bytes);
void aji_cuda_kernels_destroy(aji_cuda *d);
int64_t aji_cuda_blocks(const aji_cuda *d, int64_t threads); /* for so many threads, or fewer that go on (elementwise.c) */

/* ---- slots ---- */
aj_status aji_cuda_copy(aj_ctx *ctx, const aji_value *src, const aji_value *dst); /* elementwise.c */
aj_status aji_cuda_run(aj_ctx *ctx, const aji_program *program, const aji_value *const *in, const aji_value *const *out);
aj_status aji_cuda_reduce(aj_ctx *ctx, aji_reduction kind, const aji_program *program, int reduced,
                          const aji_meta *shape, /* reduce.c */
                          unsigned axes, const aji_value *const *in, const aji_value *result, const aji_value *const *out);
aj_status aji_cuda_argument(aj_ctx *ctx, bool largest, const aji_value *x, int axis, const aji_value *out);
aj_status aji_cuda_cumsum(aj_ctx *ctx, const aji_value *x, int axis, const aji_value *out);
aj_status aji_cuda_take(aj_ctx *ctx, const char *op, const aji_value *x, int axis, const aji_value *index, /* index.c */
                        const aji_value *out);
aj_status aji_cuda_scatter_add(aj_ctx *ctx, const char *op, const aji_value *value, int axis, const aji_value *index,
                               const aji_value *out);
aj_status aji_cuda_matmul(aj_ctx *ctx, const aji_value *a, const aji_value *b, const aji_value *out); /* matmul.c */
aj_status aji_cuda_solve(aj_ctx *ctx, const aji_value *a, const aji_value *b, const aji_value *out);  /* factorise.c */
aj_status aji_cuda_cholesky(aj_ctx *ctx, const aji_value *a, const aji_value *out);
aj_status aji_cuda_logdet(aj_ctx *ctx, const aji_value *a, const aji_value *out);
aj_status aji_cuda_cublas(aji_cuda *d);    /* the handle, made on first use */
void aji_cuda_linalg_destroy(aji_cuda *d); /* the handles (factors.c) */

#endif
