/* See cblas.h. LAPACK's functions are those of Fortran: matrices by columns, everything by reference. Solvers are LU with partial pivoting, and Cholesky. */
#include "cblas.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

/* Element (i, j) is a[i * row + j * column]. */
typedef struct strides {
    ptrdiff_t row, column;
} strides;

static strides strides_of(CBLAS_ORDER order, CBLAS_TRANSPOSE trans, int ld) {
    bool by_rows = (order == CblasRowMajor) == (trans == CblasNoTrans);
    return by_rows ? (strides){ld, 1} : (strides){1, ld};
}

#define T double
#define NAME(before, after) before##d##after
#include "blas_kind.h"
#undef T
#undef NAME
#define T float
#define NAME(before, after) before##s##after
#include "blas_kind.h"
