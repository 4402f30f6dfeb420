/*
 * A CUDA-aware MPI for the stand-in of CUDA, by way of MPI's profiling interface: a call of MPI may read and write device memory while it runs, and so may every
 * call as long as a nonblocking one that was given device memory is not done. At all other times the memory stays unreadable. A call with device memory dies if
 * there is work in a stream, if no context is current, or if it reduces by a function of the program's.
 */
#ifndef CUDA_AWARE_MPI_H
#define CUDA_AWARE_MPI_H

/* What the library says when it is asked whether it is CUDA-aware; 0 at the begin. */
extern int aware_mpi_says;
/* Calls so far that were given device memory, and that were given nothing but pinned memory. */
extern long aware_mpi_calls, aware_mpi_pinned_calls;
/* Nonblocking calls with device memory that are not done. */
int aware_mpi_pending(void);

#endif
