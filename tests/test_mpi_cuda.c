/* Drives mpi_cuda: communication of tensors on a device. */
#include "harness.h"

RANK_TESTS(mpi_cuda, mpi_cuda, 600, 1, 2, 3, 4, 5, 7)

/* As in test_mpi.c. */
RANK_TESTS_WITH("ADJOIN_MAX_COUNT", "3", mpi_cuda, mpi_cuda_in_pieces, mpi_cuda, 600, 2, 3, 5)
