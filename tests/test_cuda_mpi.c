/* Drives mpi_table_cuda: every communication and its adjoint on tensors of a CUDA device, against a model in plain C. */
#include "harness.h"

RANK_TESTS(cuda_mpi, mpi_table_cuda, 1500, 2, 3)
