/* The other side of `cargo xtask bench shm`: the same two measurements over MPI. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { GROUP = 16, WARM = 100, GROUPS = 10000, WINDOW = 64, WINDOWS = 20000 };

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    static double took[GROUPS];
    char bytes[64] = {0}, slots[WINDOW][64], go = 0;
    MPI_Request requests[WINDOW];
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = -WARM; i < GROUPS; i++) {
        double begin = MPI_Wtime();
        for (int turn = 0; turn < GROUP; turn++) {
            if (rank == 0) {
                MPI_Send(bytes, 8, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
                MPI_Recv(bytes, 8, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            } else {
                MPI_Recv(bytes, 8, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                MPI_Send(bytes, 8, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
            }
        }
        if (i >= 0) took[i] = MPI_Wtime() - begin;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    for (int w = 0; w < WINDOWS; w++) {
        for (int i = 0; i < WINDOW; i++) {
            if (rank == 0) MPI_Isend(bytes, 64, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &requests[i]);
            else MPI_Irecv(slots[i], 64, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &requests[i]);
        }
        MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
    }
    if (rank == 0) MPI_Recv(&go, 1, MPI_BYTE, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else MPI_Send(&go, 1, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
    double seconds = MPI_Wtime() - begin;
    if (rank == 0) {
        qsort(took, GROUPS, sizeof *took, ascending);
        double half = 1e9 / (2 * GROUP);
        printf("min_ns %.1f p50_ns %.1f rate %.0f\n", took[0] * half, took[GROUPS / 2] * half,
               (double)WINDOW * WINDOWS / seconds);
    }
    MPI_Finalize();
    return 0;
}
