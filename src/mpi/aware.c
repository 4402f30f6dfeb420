/*
 * MPI and the memory of devices. Direct: an MPI library that says that it is CUDA-aware gets a value's address on its device. Staged: the numbers go through host
 * memory, where the device's copies are fast. What this library computes on the host, or MPI does by way of a function of ours or the user's, is always staged.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "mpi/comm_internal.h"

/* ---- what the MPI library says: by functions that are in no standard, so they are looked for at run time ---- */

typedef int query_gpu(int type, int *is_supported); /* MPICH and its kin: also whether it is switched on (MPIR_CVAR_ENABLE_GPU) */
typedef int query_cuda(void);                       /* Open MPI, MVAPICH2 */

enum { MPICH_CUDA = 0 }; /* MPIX_GPU_SUPPORT_CUDA */

static bool library_is_aware(void) {
    void *found = dlsym(RTLD_DEFAULT, "MPIX_GPU_query_support");
    query_gpu *gpu;
    query_cuda *cuda;
    if (found) {
        int yes = 0;
        memcpy(&gpu, &found, sizeof(gpu));
        return gpu(MPICH_CUDA, &yes) == MPI_SUCCESS && yes;
    }
    found = dlsym(RTLD_DEFAULT, "MPIX_Query_cuda_support");
    memcpy(&cuda, &found, sizeof(cuda));
    return found && cuda() == 1;
}

bool aji_mpi_is_aware(void) {
    const char *text = getenv("ADJOIN_CUDA_AWARE");
    if (text && (strcmp(text, "0") == 0 || strcmp(text, "1") == 0))
        return *text == '1';
    return library_is_aware();
}

/* ---- what MPI is given ---- */

aj_device aji_mpi_device(aj_device device) {
    aj_ctx *ctx = device->ctx;
    bool direct = device->table->ready_for_mpi && aji_mpi_of(ctx)->cuda_aware && !aji_ctx_stages_mpi(ctx);
    return direct ? device : aj_cpu(ctx);
}

aj_status aji_mpi_ready(aj_device device) {
    if (!device || !device->table->ready_for_mpi || aji_mpi_device(device) != device)
        return AJ_OK;
    return device->table->ready_for_mpi(device);
}

aji_value *aji_value_for_mpi(aj_device device, aj_device where, const aji_meta *meta) {
    return aji_is_host(where) ? aji_value_staged(device, meta) : aji_value_new(where->ctx, where, meta);
}

aji_value *aji_new_for_mpi(const aji_call *c, aj_device where) {
    return aji_value_for_mpi(c->device, where, &c->out_meta[0]);
}
