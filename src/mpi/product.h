/*
 * MPI_PROD on floating dtypes. Each entry travels as (mantissa, exponent, number of zeros, of infinities, of NaNs): the result over- or underflows only where the
 * true product does, and each rank can leave its own factor out again, with no division by zero.
 */
#ifndef AJI_PRODUCT_H
#define AJI_PRODUCT_H

#include "mpi/records.h"

/* Kept: mantissa, exponent, and the three numbers in one. */
extern const aji_record_kind aji_product_records;
extern const aji_operator aji_operator_product, aji_operator_all_but_one;

/* Records of the ranks before this one: *y = their product, *through = that times x, which may be in range where *y is not. is_first: there are none, *y = 0. */
void aji_product_through(const aji_records *r, const aji_value *x, bool is_first, aji_value *y, aji_value *through);

/* Entry by entry, the product of x over the other ranks of comm. kept: those three, of the product over all ranks; constants. A communication: nothing travels
 * forward, its adjoint is one allreduce. */
aj_tensor *aji_product_of_others(aj_tensor *x, aj_tensor *const *kept, aj_comm *comm);

#endif
