/* adjoin-bench: the library next to the same work by hand, in the same run. See bench.h. */
#include <inttypes.h>
#include <stdio.h>

#include "device.h"
#include "measure.h"
#include "options.h"

extern const bench_case oversubscribed_case, oversubscribed_recorded_case, allreduce_case, ring_case, allgather_case,
    alltoall_case, bcast_case, halo_case, halo_inplace_case, chain_case, elementwise_case, mlp_case, allen_cahn_case,
    allen_cahn_custom_case;

static const bench_case *const cases[] = {&oversubscribed_case,
                                          &oversubscribed_recorded_case,
                                          &allreduce_case,
                                          &ring_case,
                                          &allgather_case,
                                          &alltoall_case,
                                          &bcast_case,
                                          &halo_case,
                                          &halo_inplace_case,
                                          &chain_case,
                                          &elementwise_case,
                                          &mlp_case,
                                          &allen_cahn_case,
                                          &allen_cahn_custom_case,
                                          NULL};

static void print_figures(const bench_case *c, int n, const bench_figures *f, bool json) {
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank != 0)
        return;
    double ratio = f->adjoin_us / f->raw_us;
    if (json)
        printf("{\"case\": \"%s\", \"np\": %d, \"n\": %d, \"raw_us\": %.4g, \"adjoin_us\": %.4g, \"ratio\": %.4g, "
               "\"peak_bytes\": %" PRId64 "}\n",
               c->name, size, n, f->raw_us, f->adjoin_us, ratio, f->peak_bytes);
    else
        printf("%-24s %4d %10d %12.4g %12.4g %10.4g %14" PRId64 "\n", c->name, size, n, f->raw_us, f->adjoin_us, ratio,
               f->peak_bytes);
    fflush(stdout);
}

static bool run_case(const bench_case *c, int n, const bench_options *o) {
    bench_figures figures;
    if (o->repeat)
        return bench_repeat(c, n, o->repeat);
    if (!bench_measure(c, n, o->samples, &figures))
        return false;
    print_figures(c, n, &figures, o->json);
    return true;
}

static bool run_cases(const bench_options *o, int rank) {
    if (!o->json && !o->repeat && rank == 0)
        printf("%-24s %4s %10s %12s %12s %10s %14s\n", "case", "np", "n", "raw us", "adjoin us", "ratio", "peak bytes");
    for (const bench_case *const *c = o->cases; *c; c++) {
        if (!bench_selected(*c, o->name))
            continue;
        if (!o->sizes && !run_case(*c, (*c)->n, o))
            return false;
        for (const char *text = o->sizes; text && *text;)
            if (!run_case(*c, bench_next_size(&text), o))
                return false;
    }
    return true;
}

/* Exit status 77 where --device asks for what is not there. */
static int run(const bench_options *o, int rank) {
    char why[512];
    if (o->cuda && bench_cuda_missing(why, sizeof why)) {
        if (rank == 0)
            fprintf(stderr, "adjoin-bench: --device cuda: no GPU: %s\n", why);
        return 77;
    }
    return run_cases(o, rank) ? 0 : 1;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, status = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    bench_options options;
    if (!bench_parse(&options, argc, argv, cases, bench_cuda_cases)) {
        status = 2;
        if (rank == 0)
            fprintf(stderr, "adjoin-bench: %s; see adjoin-bench --help\n", options.error);
    } else if (options.help) {
        if (rank == 0)
            bench_help(stdout, &options);
    } else {
        status = run(&options, rank);
    }
    MPI_Finalize();
    return status;
}
