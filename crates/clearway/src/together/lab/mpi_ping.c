/* The MPI program of `clearway run together --on lab`: rank 0 sends 8 bytes to rank 1 about a thousand times a second,
 * and gets them back.
 *
 * usage: mpi_ping TIMES
 *
 * Rank 0 appends to the file TIMES, for each round trip, when it begins (CLOCK_MONOTONIC), and then how long it took, both
 * in ns as 8 bytes in the order of the processor, until it is ended: a last ping without an answer has no length. */
#include <fcntl.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static uint64_t now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

static int fail(const char *why) {
    fprintf(stderr, "mpi_ping: %s\n", why);
    MPI_Abort(MPI_COMM_WORLD, 1);
    return 1;
}

static void answer(void) {
    uint64_t number;
    for (;;) {
        MPI_Recv(&number, 1, MPI_UINT64_T, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(&number, 1, MPI_UINT64_T, 0, 0, MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv) {
    int rank, ranks;
    if (argc < 2) {
        fprintf(stderr, "usage: mpi_ping TIMES\n");
        return 2;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2) return fail("the launcher of another MPI library started it");
    if (rank == 1) answer();
    int file = open(argv[1], O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (file < 0) return fail("the file of times does not open");
    uint32_t drawn = 1;
    for (uint64_t number = 1;; number++) {
        /* Pauses of 0.5 to 1.55 ms keep pings from following the rhythm of other traffic. */
        drawn = drawn * 1664525 + 1013904223;
        struct timespec pause = {0, 500000 + (long)(drawn >> 12)};
        nanosleep(&pause, NULL);
        uint64_t echo = 0, begin = now();
        if (write(file, &begin, sizeof begin) != sizeof begin) return fail("the file of times cannot be written");
        MPI_Send(&number, 1, MPI_UINT64_T, 1, 0, MPI_COMM_WORLD);
        MPI_Recv(&echo, 1, MPI_UINT64_T, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (echo != number) return fail("an answer is not that of its message");
        uint64_t length = now() - begin;
        if (write(file, &length, sizeof length) != sizeof length) return fail("the file of times cannot be written");
    }
}
