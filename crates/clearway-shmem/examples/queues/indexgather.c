/*
 * Gathers random words of a table that is distributed over all PEs. Each PE sends requests through a data queue. The
 * owner of a word pops them and answers with a put through a communication queue.
 *
 *     oshcc -O2 -o indexgather indexgather.c && oshrun -n 4 ./indexgather -n 100000 -w 10000 -s 1
 *
 * A PE that has sent all its requests still answers those of others, until the data queue reports that no PE has more
 * to send and none is in flight. Every word is then compared with its owner's.
 */
#include <shmem.h>
#include <shmem_queue.h>

#include "seeded.h"

/* A request: the requesting PE, the word, and the index of the result. */
struct request {
    uint32_t pe, slot;
    uint64_t word;
};

static uint64_t value_of(int pe, uint64_t word)
{
    return ((uint64_t) pe + 1) << 40 | word;
}

/* Pops and answers the requests that have arrived. */
static int serve(shmem_queue_t requests, shmem_queue_t answers, const uint64_t *table, uint64_t *result)
{
    struct request request;
    int pe = SHMEMX_PE_ANY;
    while (shmemx_queue_data_popmem(requests, &request, sizeof request, &pe) == 0) {
        const uint64_t *source = &table[request.word];
        while (shmem_queue_comm_push(answers, &result[request.slot], source, 1, (int) request.pe, SHMEM_OP_PUT) != 0)
            if (shmem_queue_progress(answers) < 0)
                return 1;
        pe = SHMEMX_PE_ANY;
    }
    return 0;
}

static int gather(struct options options, int me, int pes, const uint64_t *table, uint64_t *result)
{
    shmem_queue_t requests, answers;
    shmem_queue_config_t data_config = {.qtype = SHMEM_QUEUE_DATA, .elem_size = sizeof(struct request)};
    shmem_queue_config_t comm_config = {.qtype = SHMEM_QUEUE_COMM};
    if (shmem_queue_data_create(&requests, &data_config, SHMEM_TEAM_WORLD) != 0 ||
        shmem_queue_comm_create(&answers, &comm_config) != 0)
        return 1;
    uint64_t state = state_of(options.seed, me);
    for (uint64_t i = 0; i < options.updates; i++) {
        int owner = (int) number_below(&state, (uint64_t) pes);
        struct request request = {(uint32_t) me, (uint32_t) i, number_below(&state, options.words)};
        /* A full queue means that others may wait for this PE's answers too. */
        int pushed;
        while ((pushed = shmemx_queue_data_pushmem(requests, &request, sizeof request, owner)) != 0)
            if (pushed != SHMEMX_EAGAIN || serve(requests, answers, table, result) != 0)
                return 1;
        if (i % 64 == 0 && serve(requests, answers, table, result) != 0)
            return 1;
    }
    int state_of_queue;
    while ((state_of_queue = shmemx_queue_data_advance(requests, 1)) > 0)
        if (serve(requests, answers, table, result) != 0)
            return 1;
    int failed = state_of_queue < 0 || shmem_queue_local_flush(answers) != 0;
    shmem_barrier_all();
    return failed || shmem_queue_comm_destroy(answers) != 0 ||
           shmem_queue_data_destroy(&requests, SHMEM_TEAM_WORLD) != 0;
}

int main(int argc, char **argv)
{
    static const char *const modes[] = {"queue", NULL};
    shmem_init();
    struct options options = options_of(argc, argv, 100000, modes);
    int me = shmem_my_pe(), pes = shmem_n_pes();
    uint64_t *table = shmem_malloc(options.words * sizeof *table);
    uint64_t *result = shmem_calloc(options.updates, sizeof *result);
    if (table == NULL || result == NULL)
        refuse("no memory for the table or the results", "-w, -n", "give smaller numbers, or more SHMEM_SYMMETRIC_SIZE");
    for (uint64_t word = 0; word < options.words; word++)
        table[word] = value_of(me, word);
    shmem_barrier_all();
    double begin = seconds();
    int failed = gather(options, me, pes, table, result);
    double rate = (double) options.updates / (seconds() - begin);
    uint64_t state = state_of(options.seed, me), wrong = 0;
    for (uint64_t i = 0; i < options.updates; i++) {
        int owner = (int) number_below(&state, (uint64_t) pes);
        wrong += result[i] != value_of(owner, number_below(&state, options.words));
    }
    if (failed != 0 || wrong != 0) {
        fprintf(stderr, "indexgather: PE %d: %s, %llu words are wrong\n", me, failed != 0 ? "a call failed" : "all calls returned 0",
                (unsigned long long) wrong);
        shmem_global_exit(1);
    }
    if (me == 0)
        printf("indexgather: %d PEs, %.1f M words/s a PE\n", pes, 1e-6 * rate);
    shmem_free(result);
    shmem_free(table);
    shmem_finalize();
    return 0;
}
