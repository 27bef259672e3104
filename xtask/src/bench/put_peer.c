/* The other side of `cargo xtask bench put`: half of the ranks put to the other half in turn, by MPI_Put.
 * Arguments: bytes, and 1 where one message of 16 and two of 64 bytes go along with each. Two rounds are under way at a time. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double WARM_S = 0.3, MEASURED_S = 1.5;
enum { IN_FLIGHT = 2 };
static const int SHORT[] = {16, 64, 64};

int main(int argc, char **argv) {
    int rank, ranks, mixed = argc > 2 && atoi(argv[2]);
    long bytes = argc > 1 ? atol(argv[1]) : 65536, each = bytes + (mixed ? 144 : 0);
    char *from, *ring;
    MPI_Win window;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int senders = ranks / 2, sends = rank < senders;
    from = malloc(each);
    memset(from, 1, each);
    MPI_Win_allocate(sends ? 1 : each * senders, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &ring, &window);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, window);
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime(), now = begin, rate = 0, sum = 0;
    long counted = 0;
    while (sends && (now = MPI_Wtime()) < begin + WARM_S + MEASURED_S) {
        for (int n = 0; n < IN_FLIGHT; n++)
            for (int peer = senders; peer < ranks; peer++) {
                int to = senders + (peer - senders + rank) % (ranks - senders);
                long at = each * rank;
                MPI_Put(from, bytes, MPI_BYTE, to, at, bytes, MPI_BYTE, window);
                at += bytes;
                for (int i = 0; mixed && i < 3; at += SHORT[i++])
                    MPI_Put(from, SHORT[i], MPI_BYTE, to, at, SHORT[i], MPI_BYTE, window);
            }
        MPI_Win_flush_all(window);
        if (now >= begin + WARM_S) counted += IN_FLIGHT * each * (ranks - senders);
    }
    if (sends) rate = counted / (MPI_Wtime() - begin - WARM_S);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_unlock_all(window);
    MPI_Reduce(&rate, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("rate %.0f\n", sum / senders);
    MPI_Win_free(&window);
    MPI_Finalize();
    return 0;
}
