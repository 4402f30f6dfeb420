/* Adjoin: tensors and a reverse-mode DAG in which every MPI operation is a node. This header includes all the others. */
#ifndef ADJOIN_ADJOIN_H
#define ADJOIN_ADJOIN_H

#include "autograd.h"
#include "comm.h"
#include "context.h"
#include "custom.h"
#include "device.h"
#include "ops.h"
#include "optim.h"
#include "tensor.h"

#endif
