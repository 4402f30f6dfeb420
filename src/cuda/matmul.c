/*
 * Matrix products on cuBLAS. To cuBLAS, which sees columns first, the memory of a row-major matrix is the transposed matrix: out = a b is out' = b' a' there, so
 * that the operands change places and nothing is transposed in memory. cuBLAS's default mode computes f32 in f32, not in TF32.
 */
#include "cuda/linalg.h"

enum { MAX_COUNT = 65535 }; /* matrices of one call: the least extent of a grid that any GPU has on its later axes */

/* A stack of matrices as cuBLAS takes it: element (i, j) lies at i ld + j, or, transposed, at i + j ld. */
typedef struct operand {
    aji_value *copy; /* NULL: in place */
    const char *data;
    const int64_t *strides; /* of the stack's axes */
    bool transposed;
    int64_t ld;
} operand;

/* The stack's axes, with neighbours that all three cross with one stride merged. */
typedef struct stack {
    int ndim;
    int64_t shape[AJ_MAX_NDIM], a[AJ_MAX_NDIM], b[AJ_MAX_NDIM], out[AJ_MAX_NDIM];
} stack;

typedef struct product {
    aji_cuda *d;
    aj_dtype dtype;
    int64_t m, k, n;
    operand a, b;
    char *out;
} product;

aj_status aji_cuda_cublas(aji_cuda *d) {
    if (d->cublas)
        return AJ_OK;
    aj_status status = aji_cuda_api_load(d->device.ctx, &d->api, AJI_LIB_CUBLAS);
    if (status == AJ_OK)
        status = AJI_CUBLAS(d, cublasCreate, &d->cublas);
    if (status != AJ_OK) {
        d->cublas = NULL;
        return status;
    }
    status = AJI_CUBLAS(d, cublasSetStream, d->cublas, d->stream);
    if (status != AJ_OK) {
        d->api.cublasDestroy(d->cublas);
        d->cublas = NULL;
    }
    return status;
}

/* ---- operands ---- */

static bool is_leading(int64_t stride, int64_t extent) {
    return stride >= extent && stride >= 1 && stride <= INT32_MAX;
}

/* Can cuBLAS take v's matrices where they are? */
static bool in_place(operand *x, const aji_value *v) {
    int64_t rows = aji_n_rows(v), columns = aji_n_columns(v);
    int64_t row = v->strides[v->meta.ndim - 2], column = v->strides[v->meta.ndim - 1];
    if (rows == 1) /* the stride between rows has no meaning, and any will do */
        row = column == 1 ? columns : 1;
    if (columns == 1)
        column = row == 1 ? rows : 1;
    x->transposed = !(column == 1 && is_leading(row, columns));
    x->ld = x->transposed ? column : row;
    return !x->transposed || (row == 1 && is_leading(column, rows));
}

static aji_value *packed(const aji_value *v) {
    aji_value *copy = aji_cuda_packed(v, false);
    aji_value *repeated = copy ? aji_value_broadcast(copy, &v->meta) : NULL;
    aji_value_release(copy);
    return repeated;
}

static aj_status prepare(operand *x, const aji_value *v) {
    *x = (operand){.copy = NULL};
    if (!in_place(x, v)) {
        x->copy = packed(v);
        if (!x->copy)
            return aj_ctx_status(v->ctx);
        x->transposed = false;
        x->ld = aji_n_columns(v);
        v = x->copy;
    }
    x->data = aji_value_data(v);
    x->strides = v->strides;
    return AJ_OK;
}

/* ---- stacks ---- */

static stack stack_of(const product *p, const aji_value *out) {
    stack s = {.ndim = 0};
    int64_t step = p->m * p->n;
    for (int i = out->meta.ndim - 3; i >= 0; i--) { /* the last axis comes first in s */
        int64_t extent = out->meta.shape[i], a = p->a.strides[i], b = p->b.strides[i];
        int last = s.ndim - 1;
        if (extent == 1)
            continue;
        if (last >= 0 && a == s.a[last] * s.shape[last] && b == s.b[last] * s.shape[last]) {
            s.shape[last] *= extent;
        } else {
            last = s.ndim++;
            s.shape[last] = extent;
            s.a[last] = a;
            s.b[last] = b;
            s.out[last] = step;
        }
        step *= extent;
    }
    return s;
}

/* Take the longest axis that cuBLAS can walk along out of the stack: the calls for the others are made one by one. */
static stack take_axis(stack *s) {
    int best = -1;
    for (int i = 0; i < s->ndim; i++)
        if (s->a[i] >= 0 && s->b[i] >= 0 && (best < 0 || s->shape[i] > s->shape[best]))
            best = i;
    if (best < 0)
        return (stack){.shape = {1}};
    stack axis = {.ndim = 1, .shape = {s->shape[best]}, .a = {s->a[best]}, .b = {s->b[best]}, .out = {s->out[best]}};
    s->ndim--;
    for (int i = best; i < s->ndim; i++) {
        s->shape[i] = s->shape[i + 1];
        s->a[i] = s->a[i + 1];
        s->b[i] = s->b[i + 1];
        s->out[i] = s->out[i + 1];
    }
    return axis;
}

/* One b for a stack of a that continue each other: the stack is one tall matrix. */
static void see_tall(product *p, stack *axis) {
    bool tall = axis->ndim && axis->b[0] == 0 && !p->a.transposed && axis->a[0] == p->m * p->a.ld && axis->out[0] == p->m * p->n;
    if (!tall || axis->shape[0] > INT32_MAX / p->m)
        return;
    p->m *= axis->shape[0];
    *axis = (stack){.shape = {1}};
}

/* ---- calls ---- */

/* out = a b for `count` matrices along an axis, from these offsets on. */
static aj_status multiply(const product *p, const stack *axis, int64_t a_offset, int64_t b_offset, int64_t out_offset,
                          int64_t count) {
    int64_t size = (int64_t)aj_dtype_size(p->dtype);
    const void *a = p->a.data + a_offset * size, *b = p->b.data + b_offset * size;
    void *out = p->out + out_offset * size;
    cublasOperation_t a_op = p->a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N, b_op = p->b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    int m = (int)p->m, k = (int)p->k, n = (int)p->n;
    if (p->dtype == AJ_F64)
        return AJI_CUBLAS(p->d, cublasDgemmStridedBatched, p->d->cublas, b_op, a_op, n, m, k, &(double){1}, b, (int)p->b.ld,
                          axis->b[0], a, (int)p->a.ld, axis->a[0], &(double){0}, out, n, axis->out[0], (int)count);
    return AJI_CUBLAS(p->d, cublasSgemmStridedBatched, p->d->cublas, b_op, a_op, n, m, k, &(float){1}, b, (int)p->b.ld,
                      axis->b[0], a, (int)p->a.ld, axis->a[0], &(float){0}, out, n, axis->out[0], (int)count);
}

static aj_status multiply_axis(const product *p, const stack *axis, int64_t a_offset, int64_t b_offset, int64_t out_offset) {
    aj_status status = AJ_OK;
    for (int64_t i = 0; i < axis->shape[0] && status == AJ_OK; i += MAX_COUNT) {
        int64_t left = axis->shape[0] - i, count = left < MAX_COUNT ? left : MAX_COUNT;
        status = multiply(p, axis, a_offset + i * axis->a[0], b_offset + i * axis->b[0], out_offset + i * axis->out[0], count);
    }
    return status;
}

static aj_status multiply_stack(product *p, const aji_value *out) {
    stack rest = stack_of(p, out), axis = take_axis(&rest);
    see_tall(p, &axis);
    int64_t n_calls = 1;
    for (int i = 0; i < rest.ndim; i++)
        n_calls *= rest.shape[i];
    aj_status status = AJ_OK;
    for (int64_t call = 0; call < n_calls && status == AJ_OK; call++) {
        int64_t a = 0, b = 0, to = 0, left = call;
        for (int i = 0; i < rest.ndim; left /= rest.shape[i++]) {
            a += left % rest.shape[i] * rest.a[i];
            b += left % rest.shape[i] * rest.b[i];
            to += left % rest.shape[i] * rest.out[i];
        }
        status = multiply_axis(p, &axis, a, b, to);
    }
    return status;
}

static aj_status check(aj_ctx *ctx, const aji_value *a, const aji_value *b) {
    long long m = aji_n_rows(a), k = aji_n_columns(a), n = aji_n_columns(b);
    if (!aji_dtype_is_float(a->meta.dtype))
        return aj_raise(ctx, AJ_ERR_UNSUPPORTED,
                        "aj_matmul: not available for %s on device %s, only for f64 and f32; use aj_cast, or move the operands "
                        "with aj_to_device, for instance to aj_cpu(ctx)",
                        aj_dtype_name(a->meta.dtype), a->device->name);
    if (m > INT32_MAX || k > INT32_MAX || n > INT32_MAX)
        return aj_raise(ctx, AJ_ERR_UNSUPPORTED, "aj_matmul: (%lld, %lld) times (%lld, %lld); cuBLAS counts no further than %d",
                        m, k, k, n, INT32_MAX);
    return AJ_OK;
}

static aj_status multiply_values(aji_cuda *d, const aji_value *a, const aji_value *b, const aji_value *out) {
    product p = {.d = d, .dtype = out->meta.dtype, .m = aji_n_rows(a), .k = aji_n_columns(a), .n = aji_n_columns(b)};
    p.out = aji_value_data(out);
    aj_status status = aji_cuda_cublas(d);
    if (status == AJ_OK)
        status = prepare(&p.a, a);
    if (status == AJ_OK)
        status = prepare(&p.b, b);
    if (status == AJ_OK)
        status = multiply_stack(&p, out);
    aji_value_release(p.a.copy); /* freed in the order of the stream: after the product */
    aji_value_release(p.b.copy);
    return status;
}

aj_status aji_cuda_matmul(aj_ctx *ctx, const aji_value *a, const aji_value *b, const aji_value *out) {
    aji_cuda *d = aji_cuda_of(out->device);
    int64_t numel = aji_meta_numel(&out->meta);
    aj_status status = check(ctx, a, b);
    if (status != AJ_OK || numel == 0)
        return status;
    status = aji_cuda_enter(d);
    if (status != AJ_OK)
        return status;
    if (aji_n_columns(a) == 0) {
        CUdeviceptr to = (CUdeviceptr)(uintptr_t)aji_value_data(out);
        status = AJI_CU(d, cuMemsetD8Async, to, 0, (size_t)numel * aj_dtype_size(out->meta.dtype), d->stream);
    } else {
        status = multiply_values(d, a, b, out);
    }
    return aji_cuda_leave(d, status);
}
