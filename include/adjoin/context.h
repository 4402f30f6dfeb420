/* Contexts, scopes, errors, statistics. Nothing here needs MPI. */
#ifndef ADJOIN_CONTEXT_H
#define ADJOIN_CONTEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32) || !defined(__GNUC__)
#define AJ_API
#define AJ_PRINTF(text, args)
#define AJ_MUST_CHECK
#else
#define AJ_API __attribute__((visibility("default")))
#define AJ_PRINTF(text, args) __attribute__((format(printf, text, args)))
#define AJ_MUST_CHECK __attribute__((warn_unused_result))
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define AJ_VERSION_MAJOR 0
#define AJ_VERSION_MINOR 1
#define AJ_VERSION_PATCH 0

typedef struct aj_ctx aj_ctx;         /* owns everything; one thread at a time uses it */
typedef struct aj_scope aj_scope;     /* owns the results created while it is the innermost one */
typedef struct aj_tensor aj_tensor;   /* a handle on an immutable value */
typedef struct aj_request aj_request; /* a message under way */
typedef struct aj_comm aj_comm;       /* a communicator of the library */

/* What went wrong. The full story is aj_ctx_error(). */
typedef enum aj_status {
    AJ_OK = 0,
    AJ_ERR_ARG = 1,         /* an argument is out of its range, or NULL */
    AJ_ERR_SHAPE = 2,       /* shapes do not fit each other */
    AJ_ERR_DTYPE = 3,       /* dtypes do not fit each other or the operation */
    AJ_ERR_CONTEXT = 4,     /* objects of two contexts met in one call */
    AJ_ERR_DEVICE = 5,      /* operands live on different devices */
    AJ_ERR_STATE = 6,       /* the call is not legal now: recording, consumed tensor, spent request */
    AJ_ERR_MEMORY = 7,      /* an allocation failed */
    AJ_ERR_UNSUPPORTED = 8, /* this operation does not exist for this dtype or device */
    AJ_ERR_NUMERIC = 9,     /* a singular or indefinite matrix */
    AJ_ERR_MPI = 10,        /* MPI reported an error; its text is in the message */
    AJ_ERR_PEER = 11,       /* another rank failed (its message is in ours), calls something else, or does not come in time */
    AJ_ERR_IO = 12,         /* a file could not be read or written */
    AJ_ERR_LEAK = 13,       /* objects were still alive when the context was destroyed */
    AJ_ERR_USER = 14        /* raised by the user's own code through aj_raise */
} aj_status;

/* Options of a context. Set size to sizeof(aj_ctx_opts) and leave the rest zero for the defaults. */
typedef struct aj_ctx_opts {
    size_t size;
    void *(*alloc)(size_t bytes, size_t align, void *user); /* NULL: the C library's. Returns NULL on failure */
    void (*free)(void *memory, size_t bytes, void *user);
    void *alloc_user;
    void (*log)(const char *line, void *user); /* NULL: lines go to stderr */
    void *log_user;
    double grace;     /* seconds that a rank in error waits for the others, see docs/errors.md; 0: ADJOIN_GRACE or 4 */
    int disable_pool; /* nonzero: give memory back at once, so that a memory checker sees each block; also ADJOIN_POOL=0 */
    /* seconds that a communication waits for other ranks before it is an error (docs/errors.md); 0: ADJOIN_TIMEOUT, or no limit, or 60 if checked. The largest
     * of a communicator's ranks counts */
    double timeout;
    /* nonzero: before each communication the ranks compare what they do, and an error on one becomes an error on all (docs/checked-mode.md); 0: as
     * ADJOIN_CHECK says. A communicator is checked if one of its ranks is when it is created */
    int checked;
} aj_ctx_opts;

typedef enum aj_stat {
    AJ_STAT_LIVE_BYTES = 0,         /* bytes of tensor storage in use */
    AJ_STAT_PEAK_BYTES = 1,         /* the most that LIVE_BYTES has been */
    AJ_STAT_CACHED_BYTES = 2,       /* bytes the pool holds for reuse */
    AJ_STAT_TENSORS = 3,            /* handles alive */
    AJ_STAT_STORAGES = 4,           /* storages alive */
    AJ_STAT_NODES = 5,              /* graph nodes alive */
    AJ_STAT_REQUESTS = 6,           /* requests not yet waited for */
    AJ_STAT_SCOPES = 7,             /* scopes open, without the root scope */
    AJ_STAT_COMMS = 8,              /* communicators alive, queued ones included */
    AJ_STAT_ALLOCATIONS = 9,        /* calls of the allocator so far */
    AJ_STAT_DEVICE_LIVE_BYTES = 10, /* bytes in use of the context's CUDA devices: tensors (in LIVE_BYTES, too) and workspaces */
    AJ_STAT_DEVICE_PEAK_BYTES = 11  /* the most that DEVICE_LIVE_BYTES has been */
} aj_stat;

/*
 * Create a context: *ctx = a new, independent context with an open root scope.
 * opts: NULL for the defaults; the structure is copied.
 * Returns AJ_OK, or AJ_ERR_ARG (ctx NULL, opts->size unknown, only one of alloc and free), AJ_ERR_MEMORY; *ctx is NULL then.
 * Ownership: yours; end it with aj_ctx_destroy. Needs no MPI.
 * Collective: no. Differentiable: -. Threads: one per context. Since: 0.1.
 */
AJ_API aj_status aj_ctx_create(aj_ctx **ctx, const aj_ctx_opts *opts) AJ_MUST_CHECK;

/*
 * Destroy a context and all that it owns; *ctx becomes NULL. NULL and *ctx == NULL are accepted.
 * Kept tensors, parameters, open requests and communicators that are still alive are reported through the log callback,
 * counted by the operation that made them, and freed.
 * Returns AJ_OK, AJ_ERR_LEAK if something was left, else the context's first error.
 * An error that not all ranks of the communicator used last have, or have been told, ends the job with its message (see aj_agree). Sends on communicators
 * left over are waited for, for the grace time.
 * Collective: no (destroy communicators first; those left over are freed here). Threads: one per context. Since: 0.1.
 */
AJ_API aj_status aj_ctx_destroy(aj_ctx **ctx);

/* The first error of the context since its creation or the last aj_ctx_clear_error; AJ_OK if none. AJ_ERR_ARG for NULL. Collective: no. Since: 0.1. */
AJ_API aj_status aj_ctx_status(const aj_ctx *ctx);

/* The full message of that error: what was wrong, what was expected, rank, open scopes, backtrace. "" if none. Borrowed; valid until
 * the next aj_ctx_clear_error or aj_ctx_destroy. Collective: no. Since: 0.1. */
AJ_API const char *aj_ctx_error(const aj_ctx *ctx);

/* Forget the error, in the context and in every open scope: the program has dealt with it. Collective: no, but an error that all ranks
 * have is cleared on all of them; checked, one that is told already and that not all know of yet comes back as AJ_ERR_PEER. Since: 0.1. */
AJ_API void aj_ctx_clear_error(aj_ctx *ctx);

/*
 * Raise an error: for callbacks and helper libraries. The first one is kept, later ones are only counted.
 * format, ...: as printf, one sentence that says what came, what was expected and what to do.
 * Returns status itself, so that `return aj_raise(...)` reads well; AJ_ERR_ARG if ctx is NULL or status is AJ_OK.
 * Every error of the library passes through here: the place for a breakpoint.
 * Collective: no. Threads: one per context. Since: 0.1.
 */
AJ_API aj_status aj_raise(aj_ctx *ctx, aj_status status, const char *format, ...) AJ_PRINTF(3, 4);

/* The short name of a status, such as "AJ_ERR_SHAPE". A constant; never NULL. Collective: no. Since: 0.1. */
AJ_API const char *aj_status_name(aj_status status);

/* A statistic of the context, -1 for an unknown one or a NULL context. Bytes or counts, see aj_stat. Collective: no. Since: 0.1. */
AJ_API int64_t aj_ctx_stat(const aj_ctx *ctx, aj_stat which);

/*
 * Open a scope: from now on it owns every result, until it ends or another scope is opened.
 * Returns the scope, owned by the context; NULL with AJ_ERR_MEMORY or a NULL context.
 * Collective: no. Threads: one per context. Since: 0.1.
 */
AJ_API aj_scope *aj_scope_begin(aj_ctx *ctx);

/*
 * End a scope: release what it owns, end the scopes inside it that were left open, and put the recording and the no-grad state
 * back to what they were at its begin (a recording begun inside and not ended is dropped).
 * Requests that were not waited for stay with the context.
 * Returns the first error raised since its begin, AJ_OK if none; AJ_ERR_ARG for NULL.
 * Collective: no. Threads: one per context. Since: 0.1.
 */
AJ_API aj_status aj_scope_end(aj_scope *scope) AJ_MUST_CHECK;

/* Name a scope, as printf: "step 512". Error messages print the stack of names. At most 63 characters are kept. Collective: no. Since: 0.1. */
AJ_API void aj_scope_name(aj_scope *scope, const char *format, ...) AJ_PRINTF(2, 3);

/* Hand a tensor to the scope outside this one, so that it survives its end. Of a tensor that the scope does not own: returns it
 * unchanged. Returns t. Collective: no. Since: 0.1. */
AJ_API aj_tensor *aj_scope_return(aj_scope *scope, aj_tensor *t);

/* The same for a request: it stays valid, also after its wait, until the outer scope ends. Returns r. Collective: no. Since: 0.1. */
AJ_API aj_request *aj_scope_return_request(aj_scope *scope, aj_request *r);

/* Take the handle out of its scope: it lives until aj_release. Counted: keep twice, release twice. Returns t. Collective: no. Since: 0.1. */
AJ_API aj_tensor *aj_keep(aj_tensor *t);

/* Drop a kept handle, or a scope's handle early; *t becomes NULL. NULL and *t == NULL are accepted. What a graph still needs of the
 * value, the graph holds itself. Collective: no. Since: 0.1. */
AJ_API void aj_release(aj_tensor **t);

/* Loop-carried state: keeps t, releases the old *var, sets *var = t. With t NULL (an error upstream) *var stays as it is.
 * Returns *var. Collective: no. Since: 0.1. */
AJ_API aj_tensor *aj_assign(aj_tensor **var, aj_tensor *t);

#ifdef __cplusplus
}
#endif
#endif
