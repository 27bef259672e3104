/* The other side of `cargo xtask bench crowd`: the same allreduce by MPI. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { WARM = 200, COUNT = 5000 };

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    static double took[COUNT];
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    double mean = 0;
    for (int i = -WARM; i < COUNT; i++) {
        uint64_t own = (uint64_t)rank + 1, sum;
        double begin = MPI_Wtime();
        MPI_Allreduce(&own, &sum, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
        if (sum != (uint64_t)ranks * (ranks + 1) / 2) MPI_Abort(MPI_COMM_WORLD, 1);
        if (i >= 0) took[i] = MPI_Wtime() - begin, mean += took[i] / COUNT;
    }
    if (rank == 0) {
        qsort(took, COUNT, sizeof *took, ascending);
        printf("p50_ns %.0f p99_ns %.0f mean_ns %.0f\n", took[COUNT / 2] * 1e9, took[COUNT * 99 / 100] * 1e9, mean * 1e9);
    }
    MPI_Finalize();
    return 0;
}
