/* For programs without MPI, which include <adjoin/adjoin.h> all the same: the types that its declarations name. No function of MPI is called there. */
#ifndef PLAIN_MPI_H
#define PLAIN_MPI_H

typedef struct plain_mpi_comm *MPI_Comm;
typedef struct plain_mpi_op *MPI_Op;

#endif
