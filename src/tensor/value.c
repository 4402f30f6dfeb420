/*
 * Storages and values. A value is a strided window on a counted storage; values are counted too, and never change once shared.
 */
#include <math.h>
#include <string.h>

#include "tensor/expression.h"

/* Little data, its storage and the value on all of it are one block of memory. */
enum { LITTLE = 64 };
typedef struct little {
    aji_storage storage; /* first */
    aji_value value;
    _Alignas(64) unsigned char data[LITTLE];
} little;

static void count_live(aj_ctx *ctx, int64_t bytes) {
    int64_t live = ctx->stat[AJ_STAT_LIVE_BYTES] += bytes;
    if (live > ctx->stat[AJ_STAT_PEAK_BYTES])
        ctx->stat[AJ_STAT_PEAK_BYTES] = live;
}

static void count_storage(const aji_storage *s) {
    count_live(s->ctx, (int64_t)s->bytes);
    s->ctx->stat[AJ_STAT_STORAGES]++;
}

static little *little_new(aj_ctx *ctx, aj_device device, size_t bytes) {
    little *l = aji_alloc_small(ctx, sizeof(*l));
    if (!l)
        return NULL;
    l->storage =
        (aji_storage){.refs = 1, .owner = AJI_WITHIN, .ctx = ctx, .device = device, .data = l->data, .bytes = bytes ? bytes : 1};
    count_storage(&l->storage);
    return l;
}

static bool is_little(aj_device device, size_t bytes) {
    return bytes <= LITTLE && aji_is_host(device);
}

aji_storage *aji_storage_new(aj_ctx *ctx, aj_device device, size_t bytes) {
    if (is_little(device, bytes)) {
        little *l = little_new(ctx, device, bytes);
        return l ? &l->storage : NULL;
    }
    aji_storage *s = aji_alloc_small(ctx, sizeof(*s));
    if (!s)
        return NULL;
    *s = (aji_storage){.refs = 1, .owner = AJI_OWNED, .ctx = ctx, .device = device, .bytes = bytes ? bytes : 1};
    s->data = device->table->alloc(device, s->bytes);
    if (!s->data) {
        aji_free_small(ctx, s, sizeof(*s));
        return NULL;
    }
    count_storage(s);
    return s;
}

aji_storage *aji_storage_user(aj_ctx *ctx, void *data, size_t bytes, void (*deleter)(void *data, void *user), void *user) {
    aji_storage *s = aji_alloc(ctx, sizeof(*s));
    if (!s) {
        if (deleter)
            deleter(data, user);
        return NULL;
    }
    *s = (aji_storage){.refs = 1,
                       .owner = deleter ? AJI_ADOPTED : AJI_BORROWED,
                       .ctx = ctx,
                       .device = aj_cpu(ctx),
                       .data = data,
                       .bytes = bytes,
                       .deleter = deleter,
                       .user = user};
    ctx->stat[AJ_STAT_STORAGES]++;
    return s;
}

static void free_data(aji_storage *s) {
    if (s->owner == AJI_OWNED || s->owner == AJI_WITHIN)
        s->ctx->stat[AJ_STAT_LIVE_BYTES] -= (int64_t)s->bytes;
    if (s->owner == AJI_OWNED) {
        s->device->table->free(s->device, s->data, s->bytes);
    } else if (s->owner == AJI_ADOPTED) {
        s->deleter(s->data, s->user);
    }
}

static bool is_own(const aji_storage *s) {
    return s->owner == AJI_OWNED || s->owner == AJI_WITHIN;
}

aji_storage *aji_storage_retain(aji_storage *s) {
    s->refs++;
    return s;
}

void aji_storage_release(aji_storage *s) {
    if (--s->refs > 0)
        return;
    free_data(s);
    s->ctx->stat[AJ_STAT_STORAGES]--;
    if (s->owner == AJI_WITHIN)
        aji_free_small(s->ctx, s, sizeof(little));
    else
        aji_free_small(s->ctx, s, sizeof(*s));
}

aj_status aji_storage_own(aji_storage *s) {
    size_t bytes = s->bytes ? s->bytes : 1;
    void *mine = s->device->table->alloc(s->device, bytes);
    if (!mine)
        return AJ_ERR_MEMORY;
    memcpy(mine, s->data, s->bytes);
    free_data(s);
    s->data = mine;
    s->bytes = bytes;
    s->owner = AJI_OWNED;
    count_live(s->ctx, (int64_t)bytes);
    return AJ_OK;
}

void aji_value_set_contiguous(aji_value *v) {
    int64_t stride = 1;
    for (int i = v->meta.ndim - 1; i >= 0; i--) {
        v->strides[i] = stride;
        stride *= v->meta.shape[i] > 0 ? v->meta.shape[i] : 1;
    }
}

static aji_value *begin_value(aji_value *v, aji_storage *storage, const aji_meta *meta, bool within) {
    v->refs = 1;
    v->users = v->number = 0;
    v->visit = 0;
    v->saved = v->passed = false;
    v->within = within;
    v->ctx = storage->ctx;
    v->device = storage->device;
    v->meta = *meta;
    v->numel = aji_meta_numel(meta);
    v->storage = storage;
    v->offset = 0;
    aji_value_set_contiguous(v);
    return v;
}

static size_t value_bytes(const aji_meta *meta) {
    return (size_t)aji_meta_numel(meta) * aj_dtype_size(meta->dtype);
}

aji_value *aji_value_over(aji_storage *storage, const aji_meta *meta) {
    if (!storage)
        return NULL;
    aji_value *v = aji_alloc_small(storage->ctx, sizeof(*v));
    if (!v) {
        aji_storage_release(storage);
        return NULL;
    }
    return begin_value(v, storage, meta, false);
}

aji_value *aji_value_new(aj_ctx *ctx, aj_device device, const aji_meta *meta) {
    size_t bytes = value_bytes(meta);
    if (!is_little(device, bytes))
        return aji_value_over(aji_storage_new(ctx, device, bytes), meta);
    little *l = little_new(ctx, device, bytes);
    return l ? begin_value(&l->value, &l->storage, meta, true) : NULL;
}

void aji_value_release(aji_value *v) {
    if (!v || --v->refs > 0)
        return;
    aji_storage *storage = v->storage;
    if (!storage)
        aji_expression_release(v);
    if (!v->within)
        aji_free_small(v->ctx, v, sizeof(*v));
    if (storage)
        aji_storage_release(storage);
}

aji_value *aji_value_view(aji_value *v, const aji_meta *meta, const int64_t *strides, int64_t offset) {
    aji_value *view = aji_value_over(aji_storage_retain(v->storage), meta);
    if (!view)
        return NULL;
    if (meta->ndim > 0)
        memcpy(view->strides, strides, (size_t)meta->ndim * sizeof(int64_t));
    view->offset = offset;
    return view;
}

/* A view of a pending value: a constant stays one, and is returned; any other is evaluated. Returns false if that fails. */
static bool prepare_view(aji_value *v, const aji_meta *shape, aji_value **constant) {
    double number;
    aji_meta meta = *shape;
    meta.dtype = v->meta.dtype;
    bool full = aji_value_is_full(v, &number);
    *constant = full ? aji_value_full(v->ctx, v->device, &meta, number) : NULL;
    return full ? *constant != NULL : aji_value_evaluate(v) == AJ_OK;
}

aji_value *aji_value_broadcast(aji_value *v, const aji_meta *shape) {
    aji_value *constant;
    if (!prepare_view(v, shape, &constant) || constant)
        return constant;
    int64_t strides[AJ_MAX_NDIM] = {0};
    int shift = shape->ndim - v->meta.ndim;
    for (int i = 0; i < v->meta.ndim; i++)
        strides[shift + i] = v->meta.shape[i] == shape->shape[shift + i] ? v->strides[i] : 0;
    aji_meta meta = *shape;
    meta.dtype = v->meta.dtype;
    return aji_value_view(v, &meta, strides, v->offset);
}

bool aji_value_is_contiguous(const aji_value *v) {
    if (aji_meta_numel(&v->meta) == 0)
        return true;
    int64_t stride = 1;
    for (int i = v->meta.ndim - 1; i >= 0; i--) {
        if (v->meta.shape[i] != 1 && v->strides[i] != stride)
            return false;
        stride *= v->meta.shape[i];
    }
    return true;
}

aji_value *aji_value_copy(aji_value *v) {
    if (aji_value_evaluate(v) != AJ_OK)
        return NULL;
    aji_value *copy = aji_value_new(v->ctx, v->device, &v->meta);
    if (copy && aji_do_copy("copy", v, copy) != AJ_OK) {
        aji_value_release(copy);
        return NULL;
    }
    return copy;
}

aji_value *aji_value_contiguous(aji_value *v) {
    return aji_value_is_contiguous(v) ? aji_value_retain(v) : aji_value_copy(v);
}

/* Strides of a reshaped view, as NumPy finds them: groups of old axes and of new axes with the same product of extents; inside a group the old
 * strides must run on into each other. Returns false where a copy is needed. */
static bool reshaped_strides(const aji_value *v, const aji_meta *meta, int64_t *strides) {
    int64_t extent[AJ_MAX_NDIM], stride[AJ_MAX_NDIM];
    int old_ndim = 0;
    for (int i = 0; i < v->meta.ndim; i++) { /* extents of 1 have no say */
        if (v->meta.shape[i] == 1)
            continue;
        extent[old_ndim] = v->meta.shape[i];
        stride[old_ndim++] = v->strides[i];
    }
    int o = 0, n = 0;
    while (o < old_ndim && n < meta->ndim) {
        int o_end = o + 1, n_end = n + 1;
        int64_t o_product = extent[o], n_product = meta->shape[n];
        while (o_product != n_product) {
            if (o_product < n_product)
                o_product *= extent[o_end++];
            else
                n_product *= meta->shape[n_end++];
        }
        for (int i = o; i + 1 < o_end; i++)
            if (stride[i] != extent[i + 1] * stride[i + 1])
                return false;
        strides[n_end - 1] = stride[o_end - 1];
        for (int i = n_end - 1; i > n; i--)
            strides[i - 1] = strides[i] * meta->shape[i];
        o = o_end;
        n = n_end;
    }
    for (; n < meta->ndim; n++) /* trailing extents of 1 */
        strides[n] = 1;
    return true;
}

aji_value *aji_value_reshape(aji_value *v, const aji_meta *meta) {
    aji_value *constant;
    if (!prepare_view(v, meta, &constant) || constant)
        return constant;
    int64_t strides[AJ_MAX_NDIM] = {0};
    if (aji_meta_numel(meta) == 0)
        return aji_value_new(v->ctx, v->device, meta);
    if (reshaped_strides(v, meta, strides))
        return aji_value_view(v, meta, strides, v->offset);
    aji_value *copy = aji_value_copy(v);
    if (!copy)
        return NULL;
    aji_value *y = NULL;
    if (reshaped_strides(copy, meta, strides))
        y = aji_value_view(copy, meta, strides, 0);
    aji_value_release(copy);
    return y;
}

bool aji_value_exclusive(const aji_value *v) {
    return v->refs == 1 && v->storage->refs == 1 && is_own(v->storage) && aji_value_is_contiguous(v);
}

bool aji_value_is_borrowed(const aji_value *v) {
    return v->storage->owner == AJI_BORROWED;
}

void aji_encode(aj_dtype dtype, double value, unsigned char bytes[8]) {
    double f64 = value;
    float f32 = (float)value;
    int64_t i64 = value >= 9.2e18 ? INT64_MAX : value <= -9.2e18 ? INT64_MIN : value != value ? 0 : (int64_t)value;
    int32_t i32 = i64 > INT32_MAX ? INT32_MAX : i64 < INT32_MIN ? INT32_MIN : (int32_t)i64;
    uint8_t u8 = i64 > 255 ? 255 : i64 < 0 ? 0 : (uint8_t)i64;
    const void *from[] = {&f64, &f32, &i64, &i32, &u8};
    memcpy(bytes, from[dtype], aj_dtype_size(dtype));
}

double aji_decode(aj_dtype dtype, const void *data) {
    switch (dtype) {
    case AJ_F64:
        return *(const double *)data;
    case AJ_F32:
        return *(const float *)data;
    case AJ_I64:
        return (double)*(const int64_t *)data;
    case AJ_I32:
        return *(const int32_t *)data;
    case AJ_U8:
        return *(const uint8_t *)data;
    }
    return NAN;
}

aji_value *aji_value_staged(aj_device device, const aji_meta *meta) {
    if (!device->table->staging)
        return aji_value_new(device->ctx, aj_cpu(device->ctx), meta);
    return aji_value_over(device->table->staging(device, value_bytes(meta)), meta);
}

aji_value *aji_value_on(aji_value *v, aj_device device) {
    if (aji_value_evaluate(v) != AJ_OK)
        return NULL;
    aji_value *from = aji_value_contiguous(v);
    if (!from || from->device == device)
        return from;
    if (!aji_is_host(from->device) && !aji_is_host(device)) { /* between devices: through the host */
        aji_value *host = aji_value_on(from, aj_cpu(v->ctx)), *there = host ? aji_value_on(host, device) : NULL;
        aji_value_release(host);
        aji_value_release(from);
        return there;
    }
    size_t bytes = value_bytes(&v->meta);
    aji_value *to = aji_is_host(device) ? aji_value_staged(from->device, &v->meta) : aji_value_new(v->ctx, device, &v->meta);
    aj_status status = AJ_OK;
    if (to && aji_is_host(from->device))
        status = device->table->upload(device, aji_value_data(to), aji_value_data(from), bytes);
    else if (to)
        status = from->device->table->download(from->device, aji_value_data(to), aji_value_data(from), bytes);
    aji_value_release(from);
    if (to && status != AJ_OK) {
        aji_value_release(to);
        return NULL;
    }
    return to;
}

void *aji_value_data(const aji_value *v) {
    return (char *)v->storage->data + v->offset * (int64_t)aj_dtype_size(v->meta.dtype);
}

bool aji_is_host(aj_device device) {
    return device->table == &aji_cpu_table;
}

aj_device aj_cpu(aj_ctx *ctx) {
    return ctx ? &ctx->cpu : NULL;
}

aj_device aj_test_device(aj_ctx *ctx) {
    return ctx ? &ctx->test : NULL;
}

const char *aj_device_name(aj_device device) {
    return device ? device->name : "";
}
