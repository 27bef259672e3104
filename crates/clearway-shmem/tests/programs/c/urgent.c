/*
 * A thread that floods a PE which does not answer holds up no urgent operation of another thread to another PE. Needs three far PEs of one
 * machine: PE 1 is stopped by a signal meanwhile.
 */
#include "expect.h"

#include <pthread.h>
#include <shmemx.h>
#include <shmemx_queue.h>
#include <signal.h>
#include <unistd.h>

/* More than the library keeps for a PE that takes nothing: 64 messages of at most 64 KiB. */
enum { FLOOD = 1 << 20, URGENT = 200, WAIT_S = 20 };

static long pid, word, counter;
static pid_t stopped;

/* Lets the stopped PE end as well. */
static void too_late(int number)
{
    (void) number;
    kill(stopped, SIGCONT);
    static const char text[] = "an urgent operation waits for a stopped PE\n";
    if (write(2, text, sizeof text - 1) < 0)
        _exit(2);
    _exit(1);
}

static void *flood(void *unused)
{
    (void) unused;
    for (long i = 0; i < FLOOD; i++)
        shmem_long_p(&word, i + 1, 1);
    return NULL;
}

int main(void)
{
    int provided = -1;
    EXPECT(shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided) == 0 && provided == SHMEM_THREAD_MULTIPLE);
    EXPECT(shmem_n_pes() == 3);
    pid = getpid();
    shmem_barrier_all();
    if (shmem_my_pe() == 0) {
        shmem_ctx_t urgent;
        EXPECT(shmem_ctx_create(SHMEMX_CTX_CLASS(SHMEMX_QOS_HIGH), &urgent) == 0);
        stopped = (pid_t) shmem_long_g(&pid, 1);
        signal(SIGALRM, too_late);
        alarm(WAIT_S);
        EXPECT(kill(stopped, SIGSTOP) == 0);
        pthread_t thread;
        EXPECT(pthread_create(&thread, NULL, flood, NULL) == 0);
        for (long i = 0; i < URGENT; i++)
            EXPECT(shmem_ctx_long_atomic_fetch_inc(urgent, &counter, 2) == i);
        alarm(0);
        EXPECT(kill(stopped, SIGCONT) == 0);
        EXPECT(pthread_join(thread, NULL) == 0);
        shmem_quiet();
        EXPECT(shmem_long_g(&word, 1) == FLOOD);
    }
    shmem_barrier_all();
    shmem_finalize();
    return 0;
}
