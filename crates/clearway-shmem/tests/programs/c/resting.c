/*
 * A put behind puts that were completed one by one leaves although the program calls nothing any more. Needs two far PEs.
 */
#include "expect.h"

#include <signal.h>
#include <unistd.h>

enum { ROUNDS = 30, QUIETS = 4, WAIT_S = 20 };

static long filler, word;
static volatile long reply;

static void too_late(int number)
{
    (void) number;
    static const char text[] = "a put does not leave while its program computes\n";
    if (write(2, text, sizeof text - 1) < 0)
        _exit(2);
    _exit(1);
}

int main(void)
{
    shmem_init();
    EXPECT(shmem_n_pes() == 2);
    signal(SIGALRM, too_late);
    alarm(WAIT_S);
    shmem_barrier_all();
    for (long round = 1; round <= ROUNDS; round++) {
        if (shmem_my_pe() == 0) {
            for (long i = 0; i < QUIETS; i++) {
                shmem_long_p(&filler, QUIETS * round + i, 1);
                shmem_quiet();
            }
            shmem_long_p(&word, round, 1);
            while (reply != round)
                ;
        } else {
            shmem_long_wait_until(&word, SHMEM_CMP_EQ, round);
            EXPECT(filler == QUIETS * round + QUIETS - 1);
            shmem_long_p((long *) &reply, round, 0);
        }
    }
    shmem_barrier_all();
    shmem_finalize();
    return 0;
}
