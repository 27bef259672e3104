/* Threads that use the library at the same time, each with a context of its own, and locks that all PEs want. */
#include "expect.h"

#include <pthread.h>

enum { THREADS = 3, TIMES = 100 };

static long counter, guarded, lock, posted[THREADS];

static void *work(void *number)
{
    long thread = (long) number;
    int me = shmem_my_pe(), pes = shmem_n_pes();
    shmem_ctx_t ctx;
    EXPECT(shmem_ctx_create(SHMEM_CTX_PRIVATE, &ctx) == 0);
    for (int i = 0; i < TIMES; i++)
        shmem_ctx_long_atomic_inc(ctx, &counter, (me + i) % pes);
    shmem_ctx_long_p(ctx, &posted[thread], 1 + thread, (me + 1) % pes);
    shmem_ctx_quiet(ctx);
    shmem_wait_until(&posted[thread], SHMEM_CMP_EQ, 1 + thread);
    shmem_ctx_destroy(ctx);
    return NULL;
}

static void locks(int pes)
{
    for (int i = 0; i < TIMES; i++) {
        if (i % 4 == 0)
            while (shmem_test_lock(&lock) != 0)
                ;
        else
            shmem_set_lock(&lock);
        /* Not atomic: only the lock keeps it right. */
        shmem_p(&guarded, shmem_g(&guarded, 0) + 1, 0);
        shmem_clear_lock(&lock);
    }
    shmem_barrier_all();
    EXPECT(shmem_g(&guarded, 0) == (long) TIMES * pes);
}

int main(void)
{
    int provided = -1, asked = -1;
    EXPECT(shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided) == 0 && provided == SHMEM_THREAD_MULTIPLE);
    shmem_query_thread(&asked);
    EXPECT(asked == provided);
    int pes = shmem_n_pes();
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        EXPECT(pthread_create(&threads[i], NULL, work, (void *) i) == 0);
    for (int i = 0; i < THREADS; i++)
        EXPECT(pthread_join(threads[i], NULL) == 0);
    shmem_barrier_all();
    long sum = 0;
    for (int pe = 0; pe < pes; pe++)
        sum += shmem_g(&counter, pe);
    EXPECT(sum == (long) THREADS * TIMES * pes);
    locks(pes);
    shmem_finalize();
    return 0;
}
