/*
 * The communication layer: communicators, waiting, the error rule across ranks, messages and their adjoint streams.
 */
#ifndef AJI_COMM_INTERNAL_H
#define AJI_COMM_INTERNAL_H

#include "adjoin/comm.h"
#include "autograd/autograd_internal.h"

typedef struct aji_checked aji_checked;
enum { AJI_MAX_CHANNELS = 5 }; /* duplicates that carry messages */

/* A communicator of the library: duplicates of the user's, cached per context and user communicator. */
struct aj_comm {
    aj_ctx *ctx;
    aj_comm *next;      /* all of a context, in order of creation */
    int handles, nodes; /* references: by the user (create, destroy), by nodes and messages */
    int rank, size;
    bool yields;                      /* ranks outnumber cores somewhere: agreed over all ranks at creation */
    bool polls;                       /* waits in nonblocking calls: yields, or there is a time limit */
    double timeout;                   /* seconds, < 0: none; agreed too */
    MPI_Comm forward, adjoint, words; /* for the user's traffic, for adjoints, for the library's own words */
    MPI_Comm reversed;                /* the same ranks in reverse order, for the adjoints of scans: made with the first scan */
    MPI_Comm halo;                    /* for halo exchanges and their adjoints: made with the first one */
    MPI_Comm user;                    /* MPI_COMM_NULL once the user has freed it */
    int64_t most;                     /* elements in one call of MPI: more go in several */
    int largest_tag;
    int64_t *sent, *received; /* messages so far, by destination and by source */
    int64_t *arrived;         /* of those sent, what the destinations say in the end */
    unsigned char *marked;    /* flush.c: by rank, the duplicates whose marker has come */
    aji_checked *checked;     /* checked mode; else NULL */
    int64_t agreed;           /* the error episode that all ranks know of, 0: none */
};

typedef struct aji_message aji_message;
typedef struct aji_user_op aji_user_op;

/* Our own MPI operators, each on records of its own. */
typedef enum aji_own {
    AJI_OWN_MAX, /* extremum.c, of floats and of integers */
    AJI_OWN_MIN,
    AJI_OWN_WHOLE_MAX,
    AJI_OWN_WHOLE_MIN,
    AJI_OWN_PRODUCT, /* product.c */
    AJI_OWN_ALL_BUT_ONE,
    AJI_OWN_COMPOSE, /* ops/affine_scan.c */
    AJI_N_OWN
} aji_own;

/* The state of a context's communication. */
typedef struct aji_mpi {
    aji_layer layer; /* first */
    aj_ctx *ctx;
    int self_key, comm_key; /* attributes: on MPI_COMM_SELF (MPI_Finalize), on the user's communicators (the cache) */
    bool finalized;
    aj_comm *comms, *last;  /* last: used most recently */
    aj_request *open;       /* not yet waited for, the newest first */
    aji_message *in_flight; /* sends that MPI has not finished with, the oldest first */
    aji_message **in_flight_end;
    MPI_Datatype record[AJI_N_OWN]; /* records.c */
    MPI_Op own[AJI_N_OWN];
    aji_user_op *user_ops; /* user_op.c: registered, and the operator on those with their operands exchanged */
    MPI_Op exchanged;
    bool cuda_aware; /* MPI can be given device memory (aware.c) */
    char text[160];  /* describes a request for the layer below */
    int64_t amended; /* the one in which its error says where the ranks are */
    int64_t told;    /* the error episode in which this rank has only what another one told */
    int64_t number;  /* of the forward message whose gradient is sent or received now, in checked mode */
    char recent[8][64];
    unsigned n_recent; /* operations so far: the last ones are in `recent` */
} aji_mpi;

/* state.c */
aji_mpi *aji_mpi_of(const aj_ctx *ctx); /* NULL: no communicator was ever made */
aj_status aji_mpi_attach(aj_ctx *ctx, const char *op);

/* comm.c */
aj_status aji_comm_need_reversed(aj_comm *comm, const char *op); /* collective, the first time */
MPI_Comm aji_channel(const aj_comm *comm);                       /* forward, or inside a sweep adjoint */
/* Wait for what was started at the creation or end of a communicator: code is that of the start. Past the time limit the job ends. */
int aji_comm_finish(const aj_comm *comm, int code, MPI_Request *request);
int aji_comm_largest(const aj_comm *comm, int n, double *values); /* of all ranks, one by one */

/* comm_destroy.c */
void aji_comm_retain(aj_comm *comm);
void aji_comm_release(aj_comm *comm);
void aji_comm_free_duplicates(aj_comm *comm);
void aji_comm_free(aj_comm *comm); /* the duplicates and the struct, unconditionally */

/* wait.c */
typedef enum aji_waited {
    AJI_CAME,
    AJI_TOLD,
    AJI_LATE,
    AJI_FAILED
} aji_waited; /* told: of another rank's error; failed: raised */
/* Wait for a message, as long as the communicator allows; false: not done, the request is open still. */
aji_waited aji_wait_for(aj_comm *comm, const char *op, MPI_Request *request, MPI_Status *status);
/* Wait for a nonblocking operation: spins, and yields the core where ranks outnumber cores. seconds < 0: for ever. Returns MPI's code; sets
 * *done to whether it completed. */
int aji_mpi_wait(bool yields, MPI_Request *request, MPI_Status *status, double seconds, bool *done);
/* The same for several, one after the other: null ones count as done. False: the time is up. */
bool aji_mpi_wait_each(bool yields, int n, MPI_Request *requests, MPI_Status *statuses, double seconds, int *codes);
aj_status aji_mpi_check(aj_ctx *ctx, const char *op, int code); /* AJ_OK, or AJ_ERR_MPI raised with MPI's own text */

/* counts.c: datatypes, and messages with int64 counts; return MPI's code */
MPI_Datatype aji_mpi_type(aj_dtype dtype);
int aji_mpi_isend(const aj_comm *comm, MPI_Comm on, const void *data, int64_t n, MPI_Datatype type, int dest, int tag,
                  MPI_Request *request);
int aji_mpi_irecv(const aj_comm *comm, MPI_Comm on, void *data, int64_t n, MPI_Datatype type, int source, int tag,
                  MPI_Request *request);
int aji_mpi_get_count(const MPI_Status *status, MPI_Datatype type, int64_t *n); /* *n < 0: not a whole number of elements */

/* collectives.c: on the call's communicator and channel, with int64 counts, after aji_compare_call, waiting as the communicator has agreed; what goes wrong
 * is raised. Memory may be the call's device's (aji_mpi_device): its stream is finished first. All memory that the call needs is to be there before: a rank that fails between the comparison and MPI's call leaves the others in it. */
aj_status aji_mpi_allreduce(const aji_call *c, const void *in, void *out, int64_t n, MPI_Datatype type, MPI_Op op);
aj_status aji_mpi_reduce(const aji_call *c, const void *in, void *out, int64_t n, MPI_Datatype type, MPI_Op op, int root);
aj_status aji_mpi_bcast(const aji_call *c, void *data, int64_t n, MPI_Datatype type, int root);
/* n from, or for, each rank: n times as many as there are ranks are in one call. */
aj_status aji_mpi_allgather(const aji_call *c, const void *in, void *out, int64_t n, MPI_Datatype type);
aj_status aji_mpi_alltoall(const aji_call *c, const void *in, void *out, int64_t n, MPI_Datatype type);
aj_status aji_mpi_scan(const aji_call *c, bool reversed, bool exclusive, const void *in, void *out, int64_t n, MPI_Datatype type,
                       MPI_Op op);
aj_status aji_mpi_barrier(const aji_call *c);
/* A count for each rank, in rank order, known to all; blocks follow each other in memory. */
aj_status aji_mpi_gatherv(const aji_call *c, const void *in, void *out, const int64_t *ns, MPI_Datatype type, int root);
aj_status aji_mpi_scatterv(const aji_call *c, const void *in, const int64_t *ns, void *out, MPI_Datatype type, int root);
aj_status aji_mpi_allgatherv(const aji_call *c, const void *in, void *out, const int64_t *ns, MPI_Datatype type);
aj_status aji_mpi_reduce_scatter(const aji_call *c, const void *in, void *out, const int64_t *ns, MPI_Datatype type, MPI_Op op);
/* On more than one rank: of a single one, MPICH 4.0.2 gives what it sends to itself to an open receive from anyone.
 * whole: the elements that a rank sends or gets are not more than these, on any rank; the same number on all. */
aj_status aji_mpi_alltoallv(const aji_call *c, const void *in, const int64_t *n_in, void *out, const int64_t *n_out,
                            MPI_Datatype type, int64_t whole);

/* reductions.c */
const char *aji_reduction_name(const aj_ctx *ctx, MPI_Op op);
const char *aji_predefined_name(MPI_Op op); /* NULL: none of MPI's */

/* compare.c: checked mode. Before a collective the ranks compare what they call; a difference is an error on all of them, with both sides. Unchecked: AJ_OK at once. */
enum { AJI_NO_ROOT = -1 };
typedef enum aji_shapes { AJI_ANY_SHAPE, AJI_SAME_SHAPE } aji_shapes;
aj_status aji_compare_call(const aji_call *c, aji_shapes shapes, MPI_Op op, int root); /* op MPI_OP_NULL: none */
aj_status aji_compare_more(const aji_call *c, const char *more);                       /* any shape, and this text */
aj_status aji_compare_contents(const aji_call *c);                                     /* and the operand's numbers */
aj_status aji_compare_text(aj_comm *comm, const char *text);                           /* another call */
aj_status aji_compare_reached(aj_ctx *ctx, const aji_sweep *sweep); /* which nodes a sweep with AJ_REACHED visits */

/* FNV-1a, 64 bits (Fowler, Noll, Vo: RFC 9923). */
#define AJI_HASH_START 0xcbf29ce484222325u
uint64_t aji_hash(uint64_t h, const void *data, size_t bytes);

/* reports.c: checked mode */
/* Is another rank's report of an error here, or a round open that began with one? */
bool aji_is_told(aj_comm *comm);
/* The same for a rank that waits on comm: also on another communicator of the context, whose rank in error this one may be waiting for. */
bool aji_must_stop(aj_comm *comm);
/* It is: tell what this rank is in, wait for the others, raise that error. Returns the status. */
aj_status aji_be_told(aj_comm *comm);

/* errors.c: docs/errors.md */
/* This rank is in error and would communicate: if all ranks come here, return; else end the job with the message. comm NULL: the one used last. */
void aji_gate(aj_ctx *ctx, aj_comm *comm);
/* The same where this rank leaves for good. */
void aji_last_gate(aj_ctx *ctx);
/* Errors come in episodes, each until it is cleared: a number for the present one. */
int64_t aji_episode(const aj_ctx *ctx);
bool aji_only_told(const aj_ctx *ctx); /* is this rank's error one that another rank told it? */
/* The reason has been logged. */
void aji_end_job(void);
aj_status aji_raise_late(const aj_comm *comm); /* a collective has waited longer than comm->timeout */
/* That, and what it reads and writes cannot be taken back: the job ends. */
void aji_timed_out(const aj_comm *comm);
/* All ranks are here and know of the error: the communicator is sound again. */
void aji_settle(aj_comm *comm);
/* Before a call of MPI that blocks, with no limit, until all ranks make it: are they all here? */
aj_status aji_meet(aj_comm *comm, const char *op);
/* The round of aj_comm_destroy: waits for all; an error that some ranks have and others do not ends the job. */
void aji_close_round(aj_comm *comm);

/* recent.c: what this rank did last, for messages */
void aji_recent_add(aji_mpi *mpi, const char *format, ...) AJ_PRINTF(2, 3);
void aji_recent_replace(aji_mpi *mpi, const char *text); /* the last one, by a fuller text */
void aji_describe_recent(const aji_mpi *mpi, char *text, size_t size);

/* flush.c */
/* Collective: every message that is under way on comm, on all ranks, is given up. */
void aji_flush(aj_comm *comm);
/* The same in steps: begin when all ranks have given up their receives, step until it says true, end. */
void aji_flush_begin(aj_comm *comm);
bool aji_flush_step(aj_comm *comm);
void aji_flush_end(aj_comm *comm);

/* apply.c: entry of the communication operations */
/* One operand, one result. NULL with an error; the rank has been through the gate then. */
aj_tensor *aji_comm_apply(const aji_op *op, const void *attr, aj_tensor *x, aj_comm *comm);
/* Of two results the first. */
aj_tensor *aji_comm_apply_first(const aji_op *op, const void *attr, aj_tensor *x, aj_comm *comm);
/* Two results; either pointer may be NULL. */
aj_status aji_comm_apply_two(const aji_op *op, aj_tensor *x, aj_comm *comm, aj_tensor **first, aj_tensor **second);
void aji_comm_enter(aj_comm *comm, const char *op); /* a call on the communicator begins */
aj_status aji_check_root(aji_call *c, int root);
/* Several operands, of one context; one result. */
aj_tensor *aji_comm_apply_n(const aji_op *op, const void *attr, int n, aj_tensor *const *x, aj_comm *comm);
/* Contiguous host memory of an operand: a reference of its own, to be released. NULL raised. */
aji_value *aji_to_host(aji_value *v);
/* The end of a forward that makes its result in host memory, or where MPI was given it: takes over v; if all went well so far, moves it to the call's device and
 * sets c->y[0]. v NULL: raised already. */
aj_status aji_from_host(aji_call *c, aji_value *v, aj_status status);
aji_value *aji_new_on_host(const aji_call *c); /* like the result, contents undefined */
aj_status aji_return_operand(aji_call *c);     /* y = x */

/* aware.c: what MPI is given of values on a device: their own memory (direct), or host memory that they are copied to and from (staged). */
bool aji_mpi_is_aware(void); /* of CUDA: by the environment, or as the MPI library says */
/* Where MPI reads and writes the values of a device: there, or on the CPU. The operand goes there with aji_value_on. */
aj_device aji_mpi_device(aj_device device);
/* Before MPI is given memory of the device: what is under way on it has finished. NULL, or a device that MPI is not given: AJ_OK. */
aj_status aji_mpi_ready(aj_device device);
/* For MPI to write: like the result, or any, of a device, at aji_mpi_device or on the CPU. Contents undefined; NULL raised. */
aji_value *aji_new_for_mpi(const aji_call *c, aj_device where);
aji_value *aji_value_for_mpi(aj_device device, aj_device where, const aji_meta *meta);

aj_status aji_forward_allreduce(aji_call *c); /* ops/allreduce.c: y_r = sum_k x_k */

/* message.c: point-to-point */
/* In checked mode it takes the user's tag, and MPI matches it; the numbers follow on a duplicate of their own, under their number. */
typedef struct aji_envelope {
    int64_t number;  /* of the messages from this source to this destination */
    int64_t forward; /* of a gradient: the number of the message that it answers */
    int64_t count;
    int32_t dtype, recorded;
    char op[24];
} aji_envelope;
/* What the two ends of a stream must remember of a message; shared by its request, its nodes, and the list of sends in flight. */
struct aji_message {
    int refs;
    aj_ctx *ctx;
    aj_comm *comm; /* held by the node, the open request, the list of sends in flight; not to be used after those */
    bool is_send;
    int peer, tag;  /* as given; of a receive, as resolved when it has completed */
    int64_t count;  /* elements transferred */
    const char *op; /* "aj_isend" */
    MPI_Request request;
    /* checked mode: what goes ahead of the numbers; on a receive `request` is the envelope's until it has come */
    MPI_Request envelope_request;
    aji_envelope envelope;
    int64_t answers; /* of a receive in a sweep: the number of the message whose gradient it expects */
    aji_value *data; /* send: what MPI reads; receive: what MPI writes. NULL when done, or for MPI_PROC_NULL */
    aji_meta meta;   /* of a send: what its gradient will be like, and where; of a receive: its buffer */
    aj_device device;
    bool adjoint;      /* sent by a sweep */
    aji_message *next; /* in flight */
    /* during a sweep: the neighbours in its stream, in order of the forward starts, and how far its adjoint is */
    aji_message *later, *earlier;
    bool adjoint_started; /* gradient receive posted, or gradient send started */
    aj_request *gradient; /* of a send: the gradient on its way home */
    aj_tensor *kept;      /* of a receive: a gradient that waits for its turn; the value alone where nobody differentiates it */
    aji_value *waiting;
};
typedef struct aji_message_attr {
    aji_message *message;
} aji_message_attr;
typedef struct aji_wait_attr {
    aji_message *message;
    aji_value *buffer; /* of a receive: for the entries that the message does not reach */
} aji_wait_attr;
aji_message *aji_message_new(aj_comm *comm, const char *op, bool is_send, int peer, int tag);
void aji_message_release(aji_message *m);
void aji_message_attr_free(aj_ctx *ctx, void *attr);
bool aji_is_message(const aji_op *op);    /* starts or ends one */
aj_status aji_message_check(aji_call *c); /* infer: peer and tag in range; result like the operand */
aj_status aji_message_start_send(aji_message *m, aji_value *x);
aj_status aji_message_start_recv(aji_message *m, aj_device device, const aji_meta *meta);
/* Wait for a receive; y: the first entries from the message, the others from the buffer. buffer NULL: zeros. */
aj_status aji_message_finish_recv(aji_message *m, aji_value *buffer, aji_value **y);
void aji_message_let_go(aji_message *m); /* a started send: MPI may finish with it when it likes */
void aji_message_progress(aji_mpi *mpi); /* forget sends that are done */
bool aji_message_drain(aji_mpi *mpi, const aj_comm *comm,
                       double seconds);                      /* wait for the sends of comm (NULL: all); false: some remain */
void aji_message_wait_adjoints(aji_mpi *mpi);                /* wait for the gradients that sweeps have sent */
void aji_message_abandon(aji_mpi *mpi, const aj_comm *comm); /* cancel what is in flight on comm (NULL: all) */

aj_status aji_send_value(aji_value *x, int dest, int tag, aj_comm *comm); /* ops/send.c: aj_send that is no operation */

/* stream.c: the pairing rule for adjoint messages */
aj_status aji_streams_begin(aj_ctx *ctx, aji_sweep *sweep);
aj_status aji_streams_end(aj_ctx *ctx, aji_sweep *sweep, aj_status status);
aj_status aji_post_gradient(aji_message *m);  /* of a send: post the receive for its gradient, after those of later starts */
aj_tensor *aji_wait_gradient(aji_message *m); /* what came home */
/* Send the gradient of what was received, g, home in its turn, and give what is left for the buffer: NULL for zero. */
aj_status aji_return_gradient(aji_message *m, aj_tensor *g, aj_tensor **left);

/* request.c */
struct aj_request {
    unsigned magic;
    aj_ctx *ctx;
    aj_request *next;
    aji_message *message;
    aj_tensor *handle;   /* its tensor: linked to the start's node; kept. NULL when spent */
    aji_value *buffer;   /* of a receive */
    int64_t recording;   /* the one it started in */
    aj_scope *scope;     /* valid until it ends; NULL: that has ended while the request was open */
    aj_request **holder; /* a pointer to it that is cleared when it is no longer open; may be NULL */
    bool spent;
};
const char *aji_open_request(aj_ctx *ctx);
void aji_request_scope_end(aj_ctx *ctx, aj_scope *scope, aj_request **spent);
void aji_request_free(aj_request *r);
/* A receive that is no operation and has no handle, for a sweep whose results are not differentiated. NULL raised. */
aj_request *aji_request_receive(aj_comm *comm, int source, int tag, aj_device device, const aji_meta *meta);
aj_tensor *aji_request_take(aj_request *r);    /* wait for that; the request has gone */
void aji_request_give_up(const aj_comm *comm); /* all open ones of comm: they count as waited for */
void aji_request_describe(const aji_message *m, char text[160]);

#define AJI_OP(name) extern const aji_op aji_op_##name;
#include "mpi/ops.def"
#undef AJI_OP

#endif
