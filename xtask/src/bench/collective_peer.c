/* The other side of `cargo xtask bench collectives`: the same operations by MPI. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM = 200, COUNT = 2000, BLOCK = 64 };

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    static const char *names[] = {"barrier", "allreduce", "allgather"};
    static double took[COUNT];
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    char own[BLOCK], *all = malloc((size_t)ranks * BLOCK);
    memset(own, rank, sizeof own);
    for (int kind = 0; kind < 3; kind++) {
        double mean = 0;
        for (int i = -WARM; i < COUNT; i++) {
            uint64_t number = (uint64_t)rank + 1, sum;
            double begin = MPI_Wtime();
            if (kind == 0) MPI_Barrier(MPI_COMM_WORLD);
            if (kind == 1) MPI_Allreduce(&number, &sum, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
            if (kind == 2) MPI_Allgather(own, BLOCK, MPI_CHAR, all, BLOCK, MPI_CHAR, MPI_COMM_WORLD);
            if (i >= 0) took[i] = MPI_Wtime() - begin, mean += took[i] / COUNT;
        }
        if (rank == 0) {
            qsort(took, COUNT, sizeof *took, ascending);
            printf("%s p50_ns %.0f p99_ns %.0f mean_ns %.0f\n", names[kind], took[COUNT / 2] * 1e9,
                   took[COUNT * 99 / 100] * 1e9, mean * 1e9);
        }
    }
    MPI_Finalize();
    return 0;
}
