/*
 * MPI_MAX and MPI_MIN where it matters which rank holds the extremum: on pairs (value, rank), with an operator of our own. NaN wins (MPI's own operators may drop
 * it), ties go to the lowest rank.
 */
#ifndef AJI_EXTREMUM_H
#define AJI_EXTREMUM_H

#include "mpi/records.h"

/* Kept: the ranks, as numbers. */
extern const aji_record_kind aji_extremum_records;       /* of floating operands */
extern const aji_record_kind aji_whole_extremum_records; /* of integers */
extern const aji_operator aji_operator_max, aji_operator_min, aji_operator_whole_max, aji_operator_whole_min;

/* In a vjp: g where this rank is the winner, else zero. winner: numbers of ranks, a constant. */
aj_tensor *aji_for_winner(const aji_call *c, aj_tensor *g, aj_tensor *winner);

#endif
