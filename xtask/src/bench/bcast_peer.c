/* The other side of `cargo xtask bench peers`: MPI_Bcast from rank 0, every byte compared at every rank.
 * Arguments: bytes, iterations. One iteration ends when the last rank has it, by the one clock of this machine. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static uint64_t word(uint64_t i, int n) { return (i + 1) * 0x9e3779b97f4a7c15u ^ (uint64_t)n * 0xd1b54a32d192ed03u; }

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    int rank, iterations = argc > 2 ? atoi(argv[2]) : 1, wrong = 0, all = 0;
    size_t bytes = argc > 1 ? strtoull(argv[1], 0, 10) : 4, words = (bytes + 7) / 8;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    uint64_t *buffer = malloc(words * 8);
    double *times = malloc(sizeof(double) * iterations);
    for (int n = -1; n < iterations; n++) { /* the first one opens connections */
        for (size_t i = 0; i < words; i++) buffer[i] = rank ? 0 : word(i, n);
        MPI_Barrier(MPI_COMM_WORLD);
        usleep(1000); /* what the barrier left comes to rest */
        double mine[2] = {rank ? -1e300 : -now(), 0}, last[2];
        MPI_Bcast(buffer, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
        mine[1] = now();
        for (size_t i = 0; i < bytes / 8; i++) wrong += buffer[i] != word(i, n);
        for (size_t i = bytes / 8 * 8; i < bytes; i++) {
            uint64_t w = word(i / 8, n);
            wrong += ((unsigned char *)buffer)[i] != ((unsigned char *)&w)[i % 8];
        }
        MPI_Reduce(mine, last, 2, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (n >= 0) times[n] = last[1] + last[0];
    }
    MPI_Reduce(&wrong, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        qsort(times, iterations, sizeof *times, by_size);
        printf("seconds %.9f p99 %.9f least %.9f wrong %d\n", times[iterations / 2], times[iterations * 99 / 100], times[0], all);
    }
    MPI_Finalize();
    return 0;
}
