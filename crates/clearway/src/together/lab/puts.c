/* The OpenSHMEM program of `clearway run together --on lab`: each PE puts blocks to the PE half the job away, and adds
 * up what has arrived.
 *
 * usage: puts COUNTERS [ROUNDS]
 *
 * PE n writes the bytes that its puts have delivered into the file COUNTERS.n, as 8 bytes in the order of the processor.
 * Without ROUNDS it puts until it is ended. */
#include <fcntl.h>
#include <shmem.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Bytes of a block, and blocks under way before the PE waits for their arrival. */
enum { BLOCK = 16 << 10, WINDOW = 2 };

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: puts COUNTERS [ROUNDS]\n");
        return 2;
    }
    unsigned long rounds = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
    shmem_init();
    int me = shmem_my_pe(), pes = shmem_n_pes();
    int target = (me + pes / 2) % pes;
    char path[4096];
    snprintf(path, sizeof path, "%s.%d", argv[1], me);
    int counter = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    char *to = shmem_malloc((size_t)WINDOW * BLOCK), *from = malloc(BLOCK);
    if (counter < 0 || !to || !from) {
        fprintf(stderr, "puts: no counter %s, or no memory\n", path);
        shmem_global_exit(1);
    }
    for (int i = 0; i < BLOCK; i++) from[i] = (char)(me + i);
    shmem_barrier_all();
    uint64_t delivered = 0;
    for (unsigned long round = 0; rounds == 0 || round < rounds; round++) {
        for (int i = 0; i < WINDOW; i++) shmem_putmem_nbi(to + (size_t)i * BLOCK, from, BLOCK, target);
        shmem_quiet();
        delivered += (uint64_t)WINDOW * BLOCK;
        if (pwrite(counter, &delivered, sizeof delivered, 0) != sizeof delivered) shmem_global_exit(1);
    }
    shmem_barrier_all();
    int differs = 0;
    char sender = (char)((me + pes - pes / 2) % pes);
    for (int i = 0; i < WINDOW * BLOCK; i++) differs |= to[i] != (char)(sender + i % BLOCK);
    if (differs) fprintf(stderr, "puts: PE %d has other bytes than its sender put\n", me);
    shmem_finalize();
    return differs;
}
