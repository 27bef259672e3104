/*
 * A PE that puts more than the library keeps for a PE which does not answer sleeps until that one does. Needs two far PEs of one machine: a
 * timer lets PE 1, which is stopped, go on.
 */
#include "expect.h"

#include <shmem.h>
#include <signal.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 1 << 20, BLOCKS = 8, STOPPED_US = 900000 };

static long pid;
static char block[BLOCK];
static pid_t stopped;

static void let_go_on(int number)
{
    (void) number;
    kill(stopped, SIGCONT);
}

static double seconds(clockid_t clock)
{
    struct timespec t;
    EXPECT(clock_gettime(clock, &t) == 0);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

int main(void)
{
    shmem_init();
    EXPECT(shmem_n_pes() == 2);
    pid = getpid();
    shmem_barrier_all();
    if (shmem_my_pe() == 0) {
        stopped = (pid_t) shmem_long_g(&pid, 1);
        struct itimerval timer = {.it_value = {.tv_usec = STOPPED_US}};
        EXPECT(signal(SIGALRM, let_go_on) != SIG_ERR);
        double begin = seconds(CLOCK_MONOTONIC), used = seconds(CLOCK_PROCESS_CPUTIME_ID);
        EXPECT(kill(stopped, SIGSTOP) == 0 && setitimer(ITIMER_REAL, &timer, NULL) == 0);
        for (int i = 0; i < BLOCKS; i++)
            shmem_putmem_nbi(block, block, BLOCK, 1);
        used = seconds(CLOCK_PROCESS_CPUTIME_ID) - used;
        EXPECT(seconds(CLOCK_MONOTONIC) - begin > 1e-6 * STOPPED_US);
        EXPECT(used < 0.5e-6 * STOPPED_US);
        shmem_quiet();
    }
    shmem_barrier_all();
    shmem_finalize();
    return 0;
}
