/*
 * The space that a program runs over: the axes of its outputs, merged as far as all operands allow, and where each operand is in it.
 */
#ifndef AJI_SPACE_INTERNAL_H
#define AJI_SPACE_INTERNAL_H

#include "tensor/tensor_internal.h"

/* An operand of a program: an input, in a box or not, or an output. */
typedef struct aji_operand {
    char *data; /* the entry with all indices 0; of one in a box, where that would lie */
    int64_t size;
    int64_t stride[AJ_MAX_NDIM]; /* in elements, by axis of the space */
    int64_t at;                  /* where the row at hand begins, in elements */
    int box;                     /* AJI_EVERYWHERE: in none */
} aji_operand;

typedef struct aji_space_box {
    int64_t lo[AJ_MAX_NDIM], extent[AJ_MAX_NDIM];
    bool inside; /* the row at hand crosses it */
} aji_space_box;

/* The last axis is the row; the axes before it are gone through by aji_space_next. */
typedef struct aji_space {
    int ndim;
    int64_t shape[AJ_MAX_NDIM], index[AJ_MAX_NDIM];
    bool reduced[AJ_MAX_NDIM];
    int n, n_boxes;
    aji_operand *operand;
    aji_space_box *box;
} aji_space;

/* The axes of shape, for n operands and the program's boxes. */
void aji_space_open(aji_space *s, const aji_meta *shape, int n, aji_operand *operands, const aji_program *program,
                    aji_space_box *boxes);
/* An operand of the space: v broadcasts to it, or to a box. */
void aji_space_set(const aji_space *s, aji_operand *x, const aji_value *v, int box);
/* Which axes are reduced, as bits, and the order that suits: kept axes, then reduced ones, but as the row one that is at least `least` long
 * and that operand `guide` crosses with small steps. */
void aji_space_reduce(aji_space *s, unsigned axes, int guide, int64_t least);
/* Leave out extents of 1, and merge neighbours that all operands cross with one stride. At least one axis remains. */
void aji_space_merge(aji_space *s);
/* Keep these columns of the rows. If they are few, the longest axis becomes the row. */
void aji_space_narrow(aji_space *s, int64_t begin, int64_t end);
void aji_space_begin(aji_space *s);  /* go to the first row */
void aji_space_arrive(aji_space *s); /* at a row that was gone to by setting index and at */
/* Does the operand's memory follow the space without gaps? */
bool aji_space_is_dense(const aji_space *s, const aji_operand *x);
/* The next row of axes from ... to-1; false, and back at the first one, after the last. */
bool aji_space_next(aji_space *s, int from, int to);

/* How many of the row's n elements from `column` on lie in the box. */
static inline int aji_space_covers(const aji_space *s, int box, int64_t column, int n) {
    const aji_space_box *b = &s->box[box];
    int row = s->ndim - 1;
    int64_t begin = b->lo[row], end = begin + b->extent[row];
    begin = begin < column ? column : begin;
    end = end > column + n ? column + n : end;
    return b->inside && end > begin ? (int)(end - begin) : 0;
}

/* to = n elements of the row from `column` on; zeros where x does not lie. */
void aji_row_read(const aji_space *s, const aji_operand *x, int64_t column, int64_t n, char *to);
/* The same zeros in n elements that are there. */
void aji_row_clear_around(const aji_space *s, int box, int64_t column, int64_t n, char *elements, int64_t size);
void aji_row_write(const aji_space *s, const aji_operand *x, int64_t column, int64_t n, const char *from);

#endif
