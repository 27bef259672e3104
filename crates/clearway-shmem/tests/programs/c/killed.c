/*
 * PE 1 is ended by SIGKILL after 100 ms in a state: `killed push|flush|data|advance|barrier`. PE 0 is in the same state and
 * must not stay there.
 */
#include "expect.h"

#include <shmemx_queue.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static long words[64];

static void die(int signal)
{
    (void) signal;
    kill(getpid(), SIGKILL);
}

int main(int count, char **arguments)
{
    const char *state = count > 1 ? arguments[1] : "";
    shmem_init();
    int me = shmem_my_pe(), other = 1 - me;
    shmemx_queue_t comm, data;
    shmemx_queue_config_t config = {.qtype = SHMEMX_QUEUE_COMM};
    EXPECT(shmemx_queue_create(&comm, SHMEM_TEAM_WORLD, &config) == 0);
    config.qtype = SHMEMX_QUEUE_DATA;
    EXPECT(shmemx_queue_create(&data, SHMEM_TEAM_WORLD, &config) == 0);
    shmem_barrier_all();
    if (me == 1) {
        struct itimerval after = {.it_value = {.tv_usec = 100000}};
        signal(SIGALRM, die);
        setitimer(ITIMER_REAL, &after, NULL);
    }
    long one = 1, value;
    for (int i = 0;; i++) {
        if (strcmp(state, "push") == 0) {
            EXPECT(shmemx_queue_push(comm, &words[i % 64], &one, 1, other, SHMEMX_OP_ATOMIC_ADD) >= 0);
        } else if (strcmp(state, "flush") == 0) {
            EXPECT(shmemx_queue_push(comm, &words[i % 64], &one, 1, other, SHMEMX_OP_ATOMIC_ADD) >= 0);
            EXPECT(shmemx_queue_flush(comm) == 0);
        } else if (strcmp(state, "data") == 0) {
            EXPECT(shmemx_queue_data_push(data, &one, 1, other) >= 0);
            EXPECT(shmemx_queue_data_pop(data, &value, 1, NULL) >= 0);
        } else if (strcmp(state, "advance") == 0) {
            EXPECT(shmemx_queue_data_advance(data, me == 0) > 0);
        } else {
            EXPECT(strcmp(state, "barrier") == 0);
            if (me == 1)
                pause();
            shmem_barrier_all();
        }
    }
}
