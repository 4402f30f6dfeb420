/*
 * The adjoint of scans: h_r = c_k + m_k h_k over the ranks k before r, the nearest last, from h = 0; one Exscan of the maps h -> c + m h, which compose, but do not commute:
 *     h_r = sum over k < r of c_k times the product of m_i over k < i < r.
 * The transpose is the same with the ranks in reverse order: gc_k = sum over r > k of g_r times the product of m_i over k < i < r. And what c_k and m_k h_k are
 * added up to is passed on alike: gm_k = h_k gc_k.
 */
#include "mpi/reductions.h"
#include "mpi/scaled.h"

typedef struct attr {
    bool reversed;
} attr;

typedef struct map {
    aji_scaled c, m;
} map;

/* First a, then b. What is 0 stays 0, whatever the factor is: see weigh.c. */
static map composed(map a, map b) {
    return (map){a.c.m == 0 ? b.c : aji_scaled_add(b.c, aji_scaled_mul(b.m, a.c)), aji_scaled_mul(b.m, a.m)};
}

static void compose(void *in, void *inout, int *n, MPI_Datatype *type) {
    (void)type;
    const map *a = in;
    map *b = inout;
    for (int i = 0; i < *n; i++)
        b[i] = composed(a[i], b[i]);
}

const aji_operator aji_operator_compose = {"affine maps", compose, false, sizeof(map)};

static aj_status scan(const aji_call *c, const aji_value *constant, const aji_value *factor, map *maps, aji_value *y) {
    const aji_mpi *mpi = aji_mpi_of(c->ctx);
    bool reversed = ((const attr *)c->attr)->reversed, is_first = aji_is_first(c->comm, reversed);
    int64_t n = aji_meta_numel(&y->meta);
    for (int64_t i = 0; i < n; i++)
        maps[i] = (map){aji_scaled_of(aji_number_at(constant, i), 0), aji_scaled_of(aji_number_at(factor, i), 0)};
    aj_status status =
        aji_mpi_scan(c, reversed, true, MPI_IN_PLACE, maps, n, mpi->record[AJI_OWN_COMPOSE], mpi->own[AJI_OWN_COMPOSE]);
    for (int64_t i = 0; i < n && status == AJ_OK; i++)
        aji_put_number(y, i, is_first ? 0 : aji_scaled_value(maps[i].c));
    return status;
}

static aj_status forward(aji_call *c) {
    aji_value *constant = aji_to_host(c->x[0]), *factor = constant ? aji_to_host(c->x[1]) : NULL;
    aji_value *y = factor ? aji_new_on_host(c) : NULL;
    size_t bytes = (size_t)aji_meta_numel(&c->out_meta[0]) * sizeof(map);
    map *maps = y ? aji_alloc(c->ctx, bytes) : NULL;
    aj_status status = maps ? scan(c, constant, factor, maps, y) : aj_ctx_status(c->ctx);
    if (maps)
        aji_free(c->ctx, maps, bytes);
    aji_value_release(constant);
    aji_value_release(factor);
    return aji_from_host(c, y, status);
}

static aj_status vjp(aji_call *c) {
    c->g_in[0] = aji_affine_scan(c->g_out[0], c->in[1], !((const attr *)c->attr)->reversed, c->comm);
    c->g_in[1] = aji_weigh(c->g_in[0], c->out[0]);
    return AJ_OK;
}

static const aji_op affine_scan = {
    .name = "aj_affine_scan",
    .maths = "h_{r+1} = c_r + m_r h_r; gc by the same in reverse order, gm = h gc",
    .flags = AJI_OP_COMM,
    .need = AJI_NEED_IN(1) | AJI_NEED_OUT,
    .attr_size = sizeof(attr),
    .forward = forward,
    .vjp = vjp,
};

aj_tensor *aji_affine_scan(aj_tensor *c, aj_tensor *m, bool reversed, aj_comm *comm) {
    attr a = {reversed};
    return aji_comm_apply_n(&affine_scan, &a, 2, (aj_tensor *[]){c, m}, comm);
}
