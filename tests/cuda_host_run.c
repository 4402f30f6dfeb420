/*
 * Running a kernel on the host. The threads of a block are fibers, which take turns: one runs up to its next barrier. Whether they go up or down
 * changes from turn to turn, so that threads that need no barrier to see each other's writes do not go unnoticed.
 */
#undef _FORTIFY_SOURCE /* it takes a jump to another stack for an error */
#include "cuda_standin_private.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { MAX_THREADS = 1024, STACK = 256 << 10, WARP = 32 };

typedef struct three {
    unsigned x, y, z;
} three;

/* As device.hpp declares them. */
typedef struct host_threads {
    three *thread, *block, *threads, *blocks;
    void (*barrier)(int line);
    void (*warp_barrier)(int line);
} host_threads;

typedef struct entry {
    size_t bytes;
    void (*call)(const void *argument);
} entry;

struct standin_kernel {
    standin_kernel *next;
    char *path, *name;
    host_threads *host;
    const entry *entry;
};

/* ---- looking up; libraries stay loaded ---- */

static standin_kernel *kernels;

standin_kernel *standin_module_kernel(const void *cubin, const char *name) {
    const char *path = cubin;
    for (standin_kernel *k = kernels; k; k = k->next)
        if (strcmp(k->path, path) == 0 && strcmp(k->name, name) == 0)
            return k;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        STANDIN_DIE("dlopen: %s", dlerror());
    char symbol[256];
    snprintf(symbol, sizeof(symbol), "standin_entry_%s", name);
    const entry *e = dlsym(library, symbol);
    if (!e)
        return NULL;
    standin_kernel *k = malloc(sizeof(*k));
    *k = (standin_kernel){kernels, strdup(path), strdup(name), dlsym(library, "standin_host"), e};
    return kernels = k;
}

size_t standin_kernel_argument(const standin_kernel *kernel) {
    return kernel->entry->bytes;
}

/* ---- fibers ---- */

typedef enum state { RUNS, WAITS_FOR_WARP, WAITS_FOR_BLOCK, DONE } state;

static struct fiber {
    jmp_buf at;
    ucontext_t start;
    void *stack; /* NULL: never started */
    bool started;
    state state;
    int line; /* of the barrier */
} fibers[MAX_THREADS];

static jmp_buf scheduler;
static unsigned current;
static const standin_kernel *running;
static const void *running_argument;
static bool backwards; /* changes from launch to launch */

static void pause_fiber(state s, int line) {
    fibers[current].state = s;
    fibers[current].line = line;
    if (!_setjmp(fibers[current].at))
        _longjmp(scheduler, 1);
}

static void barrier(int line) {
    pause_fiber(WAITS_FOR_BLOCK, line);
}

static void warp_barrier(int line) {
    pause_fiber(WAITS_FOR_WARP, line);
}

/* A fiber serves one thread after another. */
static void live(void) {
    for (;;) {
        running->entry->call(running_argument);
        pause_fiber(DONE, 0);
    }
}

static void prepare(struct fiber *f) {
    f->stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (f->stack == MAP_FAILED || getcontext(&f->start) != 0)
        STANDIN_DIE("no memory for a fiber");
    f->start.uc_stack.ss_sp = f->stack;
    f->start.uc_stack.ss_size = STACK;
    f->start.uc_link = NULL;
    makecontext(&f->start, live, 0);
}

static void resume(unsigned t) {
    struct fiber *f = &fibers[t];
    if (!f->stack)
        prepare(f);
    current = t;
    running->host->thread->x = t;
    if (_setjmp(scheduler))
        return;
    if (f->started)
        _longjmp(f->at, 1);
    f->started = true;
    setcontext(&f->start);
}

/* ---- a block ---- */

/* Threads from ... to-1 that are not done all wait with this state, at one line: they go on. */
static bool let_go(unsigned from, unsigned to, state s) {
    int line = 0;
    bool any = false;
    for (unsigned t = from; t < to; t++) {
        if (fibers[t].state == DONE)
            continue;
        if (fibers[t].state != s)
            return false;
        if (any && fibers[t].line != line)
            STANDIN_DIE("kernel %s of %s: threads wait at two barriers at once, in lines %d and %d", running->name, running->path,
                        line, fibers[t].line);
        line = fibers[t].line;
        any = true;
    }
    for (unsigned t = from; t < to; t++)
        if (fibers[t].state == s)
            fibers[t].state = RUNS;
    return any;
}

static void run_block(unsigned threads, bool upwards) {
    for (unsigned t = 0; t < threads; t++)
        fibers[t].state = RUNS;
    for (bool left = true; left; upwards = !upwards) {
        for (unsigned i = 0; i < threads; i++) {
            unsigned t = upwards ? i : threads - 1 - i;
            if (fibers[t].state == RUNS)
                resume(t);
        }
        left = false;
        for (unsigned from = 0; from < threads; from += WARP)
            left |= let_go(from, from + WARP < threads ? from + WARP : threads, WAITS_FOR_WARP);
        left |= let_go(0, threads, WAITS_FOR_BLOCK);
    }
    for (unsigned t = 0; t < threads; t++)
        if (fibers[t].state != DONE)
            STANDIN_DIE("kernel %s of %s: thread %u waits for ever, in line %d", running->name, running->path, t, fibers[t].line);
}

void standin_kernel_run(standin_kernel *kernel, unsigned blocks, unsigned threads, const void *argument) {
    host_threads *h = kernel->host;
    h->barrier = barrier;
    h->warp_barrier = warp_barrier;
    *h->threads = (three){threads, 1, 1};
    *h->blocks = (three){blocks, 1, 1};
    *h->thread = (three){0, 0, 0};
    running = kernel;
    running_argument = argument;
    backwards = !backwards;
    for (unsigned b = 0; b < blocks; b++) {
        *h->block = (three){backwards ? blocks - 1 - b : b, 0, 0};
        run_block(threads, b % 2 == 0);
    }
}
