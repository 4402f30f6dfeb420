/*
 * How counts are passed to MPI: 64 bits where MPI has them.
 */
#ifndef AJI_COUNTS_H
#define AJI_COUNTS_H

#include <limits.h>

#include "mpi/comm_internal.h"

#if MPI_VERSION >= 4
typedef MPI_Count aji_count;
typedef MPI_Aint aji_displacement;
#define AJI_LARGE(call) call##_c
#define AJI_MOST INT64_MAX
#else
typedef int aji_count;
typedef int aji_displacement;
#define AJI_LARGE(call) call
#define AJI_MOST INT_MAX
#endif

size_t aji_mpi_size(MPI_Datatype type); /* bytes of an element */
/* The address of element n. NULL and MPI_IN_PLACE stay what they are. */
void *aji_mpi_at(const void *data, int64_t n, MPI_Datatype type);

#endif
