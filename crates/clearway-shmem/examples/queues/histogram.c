/*
 * Builds a histogram in a table that is distributed over all PEs: each update increments a word of a random PE.
 *
 *     oshcc -O2 -o histogram histogram.c && oshrun -n 4 ./histogram -n 1000000 -w 10000 -s 1 -m queue
 *
 * Modes: queue (a communication queue), session (a context in a session), plain (atomic increments). Every PE then
 * computes its part of the table by itself, and the program fails if a word differs.
 */
#include <shmem.h>
#include <shmem_queue.h>

#include "seeded.h"

/* Draws the updates of a PE: target PE in the upper half, word in the lower half. */
static uint64_t *draw(struct options options, int pe, int pes)
{
    uint64_t *updates = malloc(options.updates * sizeof *updates);
    uint64_t state = state_of(options.seed, pe);
    for (uint64_t i = 0; updates != NULL && i < options.updates; i++) {
        uint64_t target = number_below(&state, (uint64_t) pes);
        updates[i] = target << 32 | number_below(&state, options.words);
    }
    return updates;
}

static int with_queue(const uint64_t *updates, uint64_t count, long *table)
{
    shmem_queue_t queue;
    shmem_queue_config_t config = {.qtype = SHMEM_QUEUE_COMM, .sharing_model = SHMEM_QUEUE_EXCLUSIVE};
    if (shmem_queue_comm_create(&queue, &config) != 0)
        return 1;
    for (uint64_t i = 0; i < count; i++) {
        long one = 1;
        int pe = (int) (updates[i] >> 32);
        /* Progress makes room in a full queue. */
        while (shmem_queue_comm_push(queue, &table[(uint32_t) updates[i]], &one, 1, pe, SHMEM_OP_ATOMIC_ADD) != 0)
            if (shmem_queue_progress(queue) < 0)
                return 1;
    }
    return shmem_queue_local_flush(queue) != 0 || shmem_queue_comm_destroy(queue) != 0;
}

static int with_session(const uint64_t *updates, uint64_t count, long *table)
{
    shmem_ctx_t ctx;
    shmem_ctx_session_config_t config = {.total_ops = count};
    if (shmem_ctx_create(SHMEM_CTX_PRIVATE, &ctx) != 0)
        return 1;
    shmem_ctx_session_start(ctx, SHMEM_CTX_SESSION_BATCH, &config, SHMEM_CTX_SESSION_TOTAL_OPS);
    for (uint64_t i = 0; i < count; i++)
        shmem_ctx_long_atomic_inc(ctx, &table[(uint32_t) updates[i]], (int) (updates[i] >> 32));
    shmem_ctx_session_stop(ctx);
    shmem_ctx_quiet(ctx);
    shmem_ctx_destroy(ctx);
    return 0;
}

static int plain(const uint64_t *updates, uint64_t count, long *table)
{
    for (uint64_t i = 0; i < count; i++)
        shmem_long_atomic_inc(&table[(uint32_t) updates[i]], (int) (updates[i] >> 32));
    shmem_quiet();
    return 0;
}

/* Returns how many words differ from the expected sums. */
static uint64_t wrong_words(struct options options, int me, int pes, const long *table)
{
    long *expected = calloc(options.words, sizeof *expected);
    uint64_t wrong = 0;
    if (expected == NULL)
        return options.words;
    for (int pe = 0; pe < pes; pe++) {
        uint64_t *updates = draw(options, pe, pes);
        for (uint64_t i = 0; updates != NULL && i < options.updates; i++)
            if ((int) (updates[i] >> 32) == me)
                expected[(uint32_t) updates[i]]++;
        free(updates);
    }
    for (uint64_t word = 0; word < options.words; word++)
        wrong += table[word] != expected[word];
    free(expected);
    return wrong;
}

int main(int argc, char **argv)
{
    static const char *const modes[] = {"queue", "session", "plain", NULL};
    shmem_init();
    struct options options = options_of(argc, argv, 1000000, modes);
    int me = shmem_my_pe(), pes = shmem_n_pes();
    long *table = shmem_calloc(options.words, sizeof *table);
    uint64_t *updates = draw(options, me, pes);
    if (table == NULL || updates == NULL)
        refuse("no memory for the table or the updates", "-w, -n", "give smaller numbers, or more SHMEM_SYMMETRIC_SIZE");
    shmem_barrier_all();
    double begin = seconds();
    int failed = strcmp(options.mode, "session") == 0 ? with_session(updates, options.updates, table)
                 : strcmp(options.mode, "plain") == 0 ? plain(updates, options.updates, table)
                                                      : with_queue(updates, options.updates, table);
    shmem_barrier_all();
    double rate = (double) options.updates / (seconds() - begin);
    uint64_t wrong = wrong_words(options, me, pes, table);
    if (failed != 0 || wrong != 0) {
        fprintf(stderr, "histogram: PE %d: %s, %llu words are wrong\n", me, failed != 0 ? "a call failed" : "all calls returned 0",
                (unsigned long long) wrong);
        shmem_global_exit(1);
    }
    if (me == 0)
        printf("histogram %s: %d PEs, %.1f M updates/s a PE\n", options.mode, pes, 1e-6 * rate);
    free(updates);
    shmem_free(table);
    shmem_finalize();
    return 0;
}
