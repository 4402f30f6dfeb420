/* Tensors of random numbers in all layouts. With rank programs that include mpi_common.h. */
#ifndef MPI_LAYOUTS_H
#define MPI_LAYOUTS_H

#include "layouts.h"
#include "mpi_common.h"

static inline aj_tensor *base_of(aj_dtype dtype, const extents *e, int layout, uint64_t seed, int rank) {
    extents base = base_extents(e, layout);
    return random_tensor(ctx, dtype, base.ndim, base.n, seed, rank);
}

#endif
