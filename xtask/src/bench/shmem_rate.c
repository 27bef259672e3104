/*
 * Message rates of queues: puts of 8 to 1,024 bytes that PE 0 pushes to PE 1, and additions of 8 bytes. The launcher chooses by
 * SHMEMX_QUEUE_THRESHOLD how much is gathered; with 0 nothing is.
 *
 * A line has the name of a measurement, the tenth of its batches and their median in ns for each element, how many batches there were, and how
 * many elements the interface sent in a packet by its own count; 0 where the PEs share memory. A packet of the interface is what the system
 * hands to it: several segments of a network's size may be in it.
 *
 * usage: shmem_rate [interface...], of which one is there
 */
#include <shmem.h>
#include <shmemx_queue.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCHES = 8, LONGEST = 1024, PLACES = 1024 };
/* Seconds of a batch at least. */
static const double BATCH = 0.05;

static char **interfaces;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

/* Packets that the interface sent. */
static double packets(void)
{
    for (char **interface = interfaces; *interface; interface++) {
        char path[128];
        double count = 0;
        snprintf(path, sizeof path, "/sys/class/net/%s/statistics/tx_packets", *interface);
        FILE *file = fopen(path, "r");
        if (file == NULL)
            continue;
        int is_read = fscanf(file, "%lf", &count) == 1;
        fclose(file);
        if (is_read)
            return count;
    }
    return 0;
}

/* Seconds that `n` elements take until the other PE has them. */
static double push(shmemx_queue_t queue, char *dest, const char *source, long bytes, long n)
{
    double begun = now();
    for (long i = 0; i < n; i++) {
        int refused;
        do {
            long one = 1;
            refused = bytes == 0 ? shmemx_queue_long_push(queue, (long *) dest + i % PLACES, &one, 1, 1, SHMEMX_OP_ATOMIC_ADD)
                                 : shmemx_queue_pushmem(queue, dest + i % PLACES * LONGEST, source, bytes, 1, SHMEMX_OP_PUT);
            if (refused == SHMEMX_EAGAIN)
                shmemx_queue_progress(queue);
            else if (refused)
                shmem_global_exit(3);
        } while (refused);
    }
    if (shmemx_queue_flush(queue) != 0)
        shmem_global_exit(3);
    return now() - begun;
}

/* Of no bytes: additions. */
static void measure(shmemx_queue_t queue, char *dest, const char *source, long bytes)
{
    double figures[BATCHES];
    long n = 64;
    while (push(queue, dest, source, bytes, n) < BATCH)
        n *= 2;
    double before = packets();
    for (int batch = 0; batch < BATCHES; batch++)
        figures[batch] = push(queue, dest, source, bytes, n) / n * 1e9;
    double sent = packets() - before;
    qsort(figures, BATCHES, sizeof *figures, ascending);
    printf(bytes ? "put_%ld" : "add_8", bytes);
    printf(" %.3f %.3f %d %.1f\n", figures[BATCHES / 10], figures[BATCHES / 2], BATCHES, sent > 0 ? (double) n * BATCHES / sent : 0);
    fflush(stdout);
}

int main(int count, char **arguments)
{
    interfaces = arguments + (count > 0);
    shmem_init();
    char *dest = shmem_calloc(PLACES, LONGEST);
    static char source[LONGEST] = {1};
    shmemx_queue_config_t config = {.qtype = SHMEMX_QUEUE_COMM};
    shmemx_queue_t queue;
    if (dest == NULL || shmem_n_pes() < 2 || shmemx_queue_create(&queue, SHMEM_TEAM_WORLD, &config) != 0)
        shmem_global_exit(2);
    shmem_barrier_all();
    if (shmem_my_pe() == 0) {
        measure(queue, dest, source, 0);
        for (long bytes = 8; bytes <= LONGEST; bytes *= 2)
            measure(queue, dest, source, bytes);
        printf("done\n");
        fflush(stdout);
    }
    shmem_barrier_all();
    shmemx_queue_destroy(queue);
    shmem_finalize();
    return 0;
}
