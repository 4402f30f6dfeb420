/* Layouts: ways to come by a tensor of a given shape, so that what an operation gets is not always contiguous. */
#ifndef LAYOUTS_H
#define LAYOUTS_H

#include <adjoin/adjoin.h>

#include "numbers.h"

enum { PLAIN, TRANSPOSED, STRIDED, FLIPPED, BROADCAST, OFFSET, EXPRESSION, N_LAYOUTS };

typedef struct extents {
    int ndim;
    int64_t n[4];
} extents;

static inline int64_t entries(const extents *e) {
    return count_of(e->ndim, e->n);
}

/* A layout that exists for this shape. */
static inline int layout_for(const extents *e, int turn) {
    int layout = turn % N_LAYOUTS;
    bool needs_axis = layout != PLAIN && layout != EXPRESSION;
    return e->ndim < (layout == TRANSPOSED ? 2 : needs_axis ? 1 : 0) ? PLAIN : layout;
}

/* The shape that arrange() starts from. */
static inline extents base_extents(const extents *e, int layout) {
    extents base = *e;
    int last = e->ndim - 1;
    if (layout == TRANSPOSED) {
        base.n[0] = e->n[last];
        base.n[last] = e->n[0];
    } else if (layout == STRIDED) {
        base.n[0] = 2 * e->n[0] + 1;
    } else if (layout == BROADCAST) {
        base.n[0] = 1;
    } else if (layout == OFFSET) {
        base.n[last] = e->n[last] + 3;
    }
    return base;
}

static inline aj_tensor *arrange(aj_tensor *base, const extents *e, int layout) {
    switch (layout) {
    case TRANSPOSED:
        return aj_transpose(base, 0, -1);
    case STRIDED:
        return aj_slice(base, 0, 1, 2 * e->n[0] + 1, 2);
    case FLIPPED:
        return aj_flip(base, -1);
    case BROADCAST:
        return aj_broadcast_to(base, e->ndim, e->n);
    case OFFSET:
        return aj_slice(base, -1, 2, e->n[e->ndim - 1] + 2, 1);
    case EXPRESSION:
        return aj_scale(base, 2);
    default:
        return base;
    }
}

#endif
