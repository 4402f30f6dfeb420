/* Between the two files of the stand-in driver. */
#ifndef CUDA_STANDIN_PRIVATE_H
#define CUDA_STANDIN_PRIVATE_H

#include <stdio.h>
#include <stdlib.h>

#include "cuda_standin.h"

enum { STANDIN_DEVICES = 2 };

/* At the begin of a function: what it is told to fail with, it returns. */
#define BEGIN(function)                                                                                                          \
    do {                                                                                                                         \
        int standin_code = standin_failure(#function);                                                                           \
        if (standin_code)                                                                                                        \
            return (CUresult)standin_code;                                                                                       \
    } while (0)
/* And for one that needs a context. */
#define BEGIN_IN_CONTEXT(function)                                                                                               \
    do {                                                                                                                         \
        int standin_code = standin_failure(#function); /* not BEGIN: the driver's header makes macros of some names */           \
        if (standin_code)                                                                                                        \
            return (CUresult)standin_code;                                                                                       \
    } while (0);                                                                                                                 \
    if (standin_current() < 0)                                                                                                   \
    return CUDA_ERROR_INVALID_CONTEXT
/* A function that gives something back does so also where it is told to fail: a driver's error may be that of earlier work. */
#define BEGIN_GIVING_BACK(function)                                                                                              \
    if (standin_current() < 0)                                                                                                   \
        return CUDA_ERROR_INVALID_CONTEXT;                                                                                       \
    const CUresult result = (CUresult)standin_failure(#function)

/* A program that does this is wrong in a way that a GPU may not notice: say so and stop. */
#define STANDIN_DIE(...)                                                                                                         \
    (fprintf(stderr, "stand-in driver: "), fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), fflush(stderr), abort())

int standin_current(void);              /* the device whose context is current; -1: none is */
int standin_stream_device(CUstream);    /* dies if it is not a live stream */
void standin_hold(long n);              /* counts what standin_left returns */
void standin_work(aji_cuda_api *api);   /* cuda_standin_work.c: streams, events */
void standin_memory(aji_cuda_api *api); /* cuda_standin_memory.c */
void standin_memory_open(int device);   /* lets everybody read and write its memory */
void standin_memory_close(int device);
/* In work of a stream: dies if these bytes do not lie in live memory of its device. */
void standin_check_device(CUstream stream, const char *function, const void *at, size_t bytes);
void standin_solver(aji_cuda_api *api); /* cuda_host_solver.c */

#endif
