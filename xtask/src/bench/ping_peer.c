/* The application of `cargo xtask bench checkpoint`: rank 0 pings rank 1 with 8 bytes about a thousand times a second,
 * for the given seconds, and says how long round trips took. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MAX = 1 << 20, WARM = 50 };

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    static double took[MAX];
    double seconds = argc > 1 ? strtod(argv[1], NULL) : 1;
    int rank, count = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank > 0) {
        for (uint64_t number = 1; number;) {
            MPI_Recv(&number, 1, MPI_UINT64_T, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(&number, 1, MPI_UINT64_T, 0, 0, MPI_COMM_WORLD);
        }
    } else {
        double begun = MPI_Wtime();
        uint32_t drawn = 1;
        for (uint64_t number = 1; number;) {
            /* Pauses of 0.5 to 1.5 ms keep pings from following the rhythm of other traffic. */
            drawn = drawn * 1664525 + 1013904223;
            struct timespec pause = {0, 500000 + (long)(drawn >> 12)};
            nanosleep(&pause, NULL);
            if (MPI_Wtime() - begun > seconds || count == MAX - 1) number = 0;
            double begin = MPI_Wtime();
            MPI_Send(&number, 1, MPI_UINT64_T, 1, 0, MPI_COMM_WORLD);
            MPI_Recv(&number, 1, MPI_UINT64_T, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (number > WARM) took[count++] = MPI_Wtime() - begin;
            if (number) number++;
        }
        qsort(took, count, sizeof *took, ascending);
        if (count > 0)
            printf("p50_us %.2f p99_us %.2f pings %d\n", took[count / 2] * 1e6, took[(long)count * 99 / 100] * 1e6, count);
        fflush(stdout);
    }
    MPI_Finalize();
    return 0;
}
