/*
 * How the threads of a grid share out a space with kept and reduced axes. Neighbouring threads take neighbours in memory: along the reduced axes where the row
 * is one of them, else along the kept ones. Where kept entries are too few to occupy the device, the reduced axes are cut in parts.
 */
#include "cuda/plan.h"

enum {
    BITS = 8,         /* of a block's threads */
    WARP_BITS = 5,    /* of threads that read memory together */
    OCCUPIED = 2,     /* blocks for each multiprocessor: with fewer, cutting pays */
    FULL = 8,         /* and so many are aimed at */
    LEAST_ROUNDS = 16 /* of a thread along its part */
};
_Static_assert(1 << BITS == AJI_CUDA_THREADS, "the threads of a block");

static int bits_of(int64_t n, int most) {
    int bits = 0;
    while (bits < most && (int64_t)1 << bits < n)
        bits++;
    return bits;
}

static int64_t parts_of(int64_t n, int64_t part) {
    return n / part + (n % part != 0);
}

static int64_t groups_of(const aji_layout *l) {
    return parts_of(l->kept, (int64_t)1 << l->x_bits);
}

int64_t aji_layout_blocks(const aji_layout *l) {
    return groups_of(l) * l->splits;
}

aj_status aji_layout_launch(aji_cuda *d, aji_plan *p) {
    aji_plan_close(p);
    return aji_plan_launch(d, p, aji_cuda_blocks(d, aji_layout_blocks(&p->layout) * AJI_CUDA_THREADS));
}

static int64_t processors(const aji_cuda *d) {
    return d->processors > 0 ? d->processors : 1;
}

static aji_layout measure(const aji_space *s) {
    int row = s->ndim - 1;
    aji_layout l = {.kept = 1, .reduced = 1, .columns = s->reduced[row] ? 1 : s->shape[row], .splits = 1};
    for (int d = 0; d < s->ndim; d++)
        *(s->reduced[d] ? &l.reduced : &l.kept) *= s->shape[d];
    l.chunk = l.reduced;
    l.kept_first = !s->reduced[row];
    return l;
}

/* A block's threads, of which each goes along `length` reduced entries in steps of 2^y_bits. */
static void arrange(const aji_cuda *d, aji_layout *l, int64_t length) {
    enum { SHORT = 8, MIDDLE = 512 };
    if (length <= SHORT)
        l->y_bits = 0;
    else if (!l->kept_first)
        l->y_bits = length <= MIDDLE ? WARP_BITS : BITS;
    else if (l->columns >= AJI_CUDA_THREADS && l->kept / AJI_CUDA_THREADS >= OCCUPIED * processors(d))
        l->y_bits = 0;
    else
        l->y_bits = bits_of(length, BITS - bits_of(l->columns, WARP_BITS));
    l->x_bits = BITS - l->y_bits;
}

/* Cut the reduced axes, in parts of at least `least`, where kept entries do not occupy the device. */
static void cut(const aji_cuda *d, aji_layout *l, int64_t least) {
    int64_t groups = groups_of(l);
    if (groups >= OCCUPIED * processors(d) || l->reduced < 2 * least)
        return;
    int64_t wanted = parts_of(FULL * processors(d), groups), most = l->reduced / least;
    int64_t chunk = parts_of(l->reduced, wanted < most ? wanted : most), step = (int64_t)1 << l->y_bits;
    l->chunk = parts_of(chunk, step) * step;
    l->splits = parts_of(l->reduced, l->chunk);
}

void aji_layout_reduce(const aji_cuda *d, aji_plan *p) {
    aji_layout *l = &p->layout;
    *l = measure(&p->space);
    arrange(d, l, l->reduced);
    cut(d, l, (int64_t)LEAST_ROUNDS << l->y_bits);
}

/* Not cut again. */
void aji_layout_fold(const aji_cuda *d, aji_plan *p) {
    p->layout = measure(&p->space);
    arrange(d, &p->layout, p->layout.reduced);
}

/* Threads follow lines side by side where that is along memory, else a block follows one line. */
void aji_layout_scan(const aji_cuda *d, aji_plan *p) {
    enum { SHORT = 32, COLUMNS = 8, LEAST_LINE = 64, LEAST_SCAN = 4096 };
    aji_layout *l = &p->layout;
    *l = measure(&p->space);
    bool side_by_side = l->reduced <= SHORT || l->columns >= COLUMNS;
    p->kernel = side_by_side ? AJI_KERNEL_LINES : AJI_KERNEL_SCAN;
    l->x_bits = side_by_side ? BITS : 0;
    l->y_bits = 0;
    l->kept_first = true;
    cut(d, l, side_by_side ? LEAST_LINE : LEAST_SCAN);
}

void aji_layout_parts(const aji_cuda *d, aji_plan *p) {
    aji_layout scan = p->layout, *l = &p->layout;
    *l = measure(&p->space);
    arrange(d, l, scan.chunk);
    l->splits = scan.splits;
    l->chunk = scan.chunk;
}
