/*
 * Parts of tensors: what slice, window, pad, concat, take and their kin have in common.
 */
#ifndef AJI_REGION_H
#define AJI_REGION_H

#include "autograd/autograd_internal.h"

/* A run along one axis, as Python's start:stop:step. After aji_normalize_range: axis >= 0, count entries at start, start
 * + step, ..., and start:stop:step still says the same to aj_slice. */
typedef struct aji_range {
    int axis;
    int64_t start, stop, step, count;
} aji_range;

aj_status aji_normalize_range(aj_ctx *ctx, const char *op, const aji_meta *x, aji_range *range);

/* Views of parts of v. NULL in gives NULL out, so that calls can be nested. */
aji_value *aji_range_view(aji_value *v, const aji_range *range); /* a normalized range */
aji_value *aji_part_view(aji_value *v, int axis, int64_t start, int64_t count);
aji_value *aji_window_view(aji_value *v, const int64_t *lo, const int64_t *extents);

bool aji_is_zero(const aji_value *v); /* pending, and 0 everywhere */
/* part = from, pending or not, which broadcasts to it. Releases part, a view; part NULL: the error is raised already. */
aj_status aji_fill(const char *op, aji_value *part, aji_value *from);
/* The end of a forward: y becomes its result if status is AJ_OK, else it is released. y NULL: the error is raised already. */
aj_status aji_finish(aji_call *c, aji_value *y, aj_status status);

/* Copy the n numbers that a caller passed as `what`; AJ_ERR_ARG for n outside 0 ... AJ_MAX_NDIM, and for NULL. */
aj_status aji_copy_numbers(aj_ctx *ctx, const char *op, const char *what, int n, const int64_t *from, int64_t *to);
/* AJ_ERR_SHAPE unless `what`, of shape from, broadcasts to the shape `to`. */
aj_status aji_check_broadcasts(aj_ctx *ctx, const char *op, const char *what, const aji_meta *from, const aji_meta *to);

/* take and scatter_add: inputs 0 and 1 are x and the index. taken: x's shape with the index' shape in place of the axis. */
aj_status aji_infer_taken(aji_call *c, const char *op, int *axis, aji_meta *taken);
/* The same entries as the kernels want them: the index with one axis, and a value of the taken shape with that axis in
 * its place. */
aji_value *aji_flat_index(const aji_call *c);
aji_value *aji_flat_rows(const aji_call *c, int axis, aji_value *taken);
/* For samples: an i64 index on x's device. */
aj_tensor *aji_sample_index(aj_tensor *x, int ndim, const int64_t *shape, const int64_t *numbers);

#endif
