/*
 * Counts and datatypes: MPI's point-to-point calls with 64-bit counts. What one call of MPI cannot say (2^31 - 1 elements before MPI-4) goes as one element of a derived datatype.
 */
#include "mpi/counts.h"

size_t aji_mpi_size(MPI_Datatype type) {
    int bytes = 0;
    MPI_Type_size(type, &bytes);
    return (size_t)bytes;
}

void *aji_mpi_at(const void *data, int64_t n, MPI_Datatype type) {
    bool is_address = n > 0 && data && data != MPI_IN_PLACE;
    return is_address ? (char *)data + (size_t)n * aji_mpi_size(type) : (void *)data;
}

MPI_Datatype aji_mpi_type(aj_dtype dtype) {
    switch (dtype) {
    case AJ_F64:
        return MPI_DOUBLE;
    case AJ_F32:
        return MPI_FLOAT;
    case AJ_I64:
        return MPI_INT64_T;
    case AJ_I32:
        return MPI_INT32_T;
    case AJ_U8:
        return MPI_UINT8_T;
    }
    return MPI_DATATYPE_NULL;
}

/* n elements as one: blocks of `most`, and what is left. To be freed. */
static int large_type(int64_t n, int64_t most, MPI_Datatype type, MPI_Datatype *made) {
    MPI_Datatype block, blocks, parts[2];
    int64_t rest = n % most;
    int code = MPI_Type_contiguous((int)most, type, &block);
    if (code != MPI_SUCCESS)
        return code;
    code = MPI_Type_contiguous((int)(n / most), block, &blocks);
    MPI_Type_free(&block);
    if (code != MPI_SUCCESS)
        return code;
    parts[0] = blocks;
    parts[1] = type;
    code = MPI_Type_create_struct(2, (const int[]){1, (int)rest},
                                  (const MPI_Aint[]){0, (MPI_Aint)((size_t)(n - rest) * aji_mpi_size(type))}, parts, made);
    MPI_Type_free(&blocks);
    return code == MPI_SUCCESS ? MPI_Type_commit(made) : code;
}

int aji_mpi_isend(const aj_comm *comm, MPI_Comm on, const void *data, int64_t n, MPI_Datatype type, int dest, int tag,
                  MPI_Request *request) {
    if (n <= comm->most)
        return AJI_LARGE(MPI_Isend)(data, (aji_count)n, type, dest, tag, on, request);
    MPI_Datatype large;
    int code = large_type(n, comm->most, type, &large);
    if (code != MPI_SUCCESS)
        return code;
    code = MPI_Isend(data, 1, large, dest, tag, on, request);
    MPI_Type_free(&large);
    return code;
}

int aji_mpi_irecv(const aj_comm *comm, MPI_Comm on, void *data, int64_t n, MPI_Datatype type, int source, int tag,
                  MPI_Request *request) {
    if (n <= comm->most)
        return AJI_LARGE(MPI_Irecv)(data, (aji_count)n, type, source, tag, on, request);
    MPI_Datatype large;
    int code = large_type(n, comm->most, type, &large);
    if (code != MPI_SUCCESS)
        return code;
    code = MPI_Irecv(data, 1, large, source, tag, on, request);
    MPI_Type_free(&large);
    return code;
}

int aji_mpi_get_count(const MPI_Status *status, MPI_Datatype type, int64_t *n) {
    MPI_Count count = 0;
#if MPI_VERSION >= 4
    int code = MPI_Get_count_c(status, type, &count);
#else
    int code = MPI_Get_elements_x(status, MPI_BYTE, &count);
    MPI_Count size = (MPI_Count)aji_mpi_size(type);
    count = count % size == 0 ? count / size : MPI_UNDEFINED;
#endif
    *n = count == MPI_UNDEFINED ? -1 : (int64_t)count;
    return code;
}
