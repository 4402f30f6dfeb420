/* The stand-in driver's streams and events: work waits in a queue until somebody waits for it. */
#include "cuda_standin_private.h"

typedef struct work {
    struct work *next;
    void (*run)(void *data);
    void *data;
} work;

struct CUstream_st {
    CUstream next; /* of all live ones */
    int device;
    work *first, *last;
    bool running;
};

struct CUevent_st {
    CUstream stream; /* of the last record */
    int records;     /* not executed yet */
    int queries;     /* since the last record */
    bool destroyed;
};

static CUstream streams;

/* ---- streams ---- */

int standin_stream_device(CUstream stream) {
    for (CUstream s = streams; s; s = s->next)
        if (s == stream)
            return s->device;
    STANDIN_DIE("%p is no live stream", (void *)stream);
}

void standin_enqueue(CUstream stream, void (*run)(void *data), void *data) {
    (void)standin_stream_device(stream);
    if (stream->running)
        STANDIN_DIE("work in a stream enqueues more");
    work *w = malloc(sizeof(*w));
    *w = (work){NULL, run, data};
    *(stream->last ? &stream->last->next : &stream->first) = w;
    stream->last = w;
}

bool standin_is_idle(void) {
    for (CUstream s = streams; s; s = s->next)
        if (s->first)
            return false;
    return true;
}

/* In order, until *records is 0; without records, all. */
static void execute(CUstream stream, const int *records) {
    if (!stream->first || (records && *records == 0))
        return;
    stream->running = true;
    standin_memory_open(stream->device);
    while (stream->first && !(records && *records == 0)) {
        work *w = stream->first;
        w->run(w->data);
        stream->first = w->next;
        free(w->data);
        free(w);
    }
    if (!stream->first)
        stream->last = NULL;
    standin_memory_close(stream->device);
    stream->running = false;
}

static CUresult in_cuStreamCreate(CUstream *stream, unsigned flags) {
    BEGIN_IN_CONTEXT(cuStreamCreate);
    (void)flags;
    *stream = calloc(1, sizeof(**stream));
    (*stream)->device = standin_current();
    (*stream)->next = streams;
    streams = *stream;
    standin_hold(1);
    return CUDA_SUCCESS;
}

static CUresult in_cuStreamDestroy(CUstream stream) {
    BEGIN_GIVING_BACK(cuStreamDestroy);
    (void)standin_stream_device(stream);
    execute(stream, NULL);
    CUstream *at = &streams;
    while (*at != stream)
        at = &(*at)->next;
    *at = stream->next;
    free(stream);
    standin_hold(-1);
    return result;
}

static CUresult in_cuStreamSynchronize(CUstream stream) {
    BEGIN_IN_CONTEXT(cuStreamSynchronize);
    (void)standin_stream_device(stream);
    execute(stream, NULL);
    return CUDA_SUCCESS;
}

/* ---- events ---- */

static void release(CUevent event) {
    if (event->destroyed && event->records == 0)
        free(event);
}

typedef struct record {
    CUevent event;
} record;

static void run_record(void *data) {
    CUevent event = ((record *)data)->event;
    event->records--;
    release(event);
}

static CUresult in_cuEventCreate(CUevent *event, unsigned flags) {
    BEGIN_IN_CONTEXT(cuEventCreate);
    (void)flags;
    *event = calloc(1, sizeof(**event));
    standin_hold(1);
    return CUDA_SUCCESS;
}

static CUresult in_cuEventDestroy(CUevent event) {
    BEGIN_GIVING_BACK(cuEventDestroy);
    if (event->destroyed)
        STANDIN_DIE("an event is destroyed twice");
    event->destroyed = true;
    release(event);
    standin_hold(-1);
    return result;
}

static CUresult in_cuEventRecord(CUevent event, CUstream stream) {
    BEGIN_IN_CONTEXT(cuEventRecord);
    if (event->records > 0 && event->stream != stream)
        STANDIN_DIE("an event is recorded in two streams at once");
    event->stream = stream;
    event->records++;
    event->queries = 0;
    record *r = malloc(sizeof(*r));
    r->event = event;
    standin_enqueue(stream, run_record, r);
    return CUDA_SUCCESS;
}

static CUresult in_cuEventSynchronize(CUevent event) {
    BEGIN_IN_CONTEXT(cuEventSynchronize);
    if (event->records > 0)
        execute(event->stream, &event->records);
    return CUDA_SUCCESS;
}

/* Who asks again and again will see it happen. */
static CUresult in_cuEventQuery(CUevent event) {
    BEGIN_IN_CONTEXT(cuEventQuery);
    if (event->records > 0 && ++event->queries > 3)
        execute(event->stream, &event->records);
    return event->records > 0 ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

void standin_work(aji_cuda_api *api) {
    api->cuStreamCreate = in_cuStreamCreate;
    api->cuStreamDestroy = in_cuStreamDestroy;
    api->cuStreamSynchronize = in_cuStreamSynchronize;
    api->cuEventCreate = in_cuEventCreate;
    api->cuEventDestroy = in_cuEventDestroy;
    api->cuEventRecord = in_cuEventRecord;
    api->cuEventQuery = in_cuEventQuery;
    api->cuEventSynchronize = in_cuEventSynchronize;
}
