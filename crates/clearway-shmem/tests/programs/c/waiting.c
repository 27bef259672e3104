/* Signals, waits and tests for one word, for any, all and some of several. */
#include "expect.h"

enum { WORDS = 8, TURNS = 50 };

static long flag;
static uint64_t signals[2];
static int block[256];
static long words[WORDS];
static short small;

static void turns(int me, int pes)
{
    int next = (me + 1) % pes;
    for (long turn = 1; turn <= TURNS; turn++) {
        if (me == 0)
            shmem_atomic_set(&flag, turn, next);
        shmem_wait_until(&flag, SHMEM_CMP_GE, turn);
        if (me != 0)
            shmem_atomic_set(&flag, turn, next);
    }
    EXPECT(shmem_test(&flag, SHMEM_CMP_EQ, (long) TURNS) && !shmem_test(&flag, SHMEM_CMP_LT, (long) TURNS));
    shmem_barrier_all();
}

static void signalled(int me, int pes)
{
    int next = (me + 1) % pes, last = (me + pes - 1) % pes, own[256];
    for (int i = 0; i < 256; i++)
        own[i] = me * 1000 + i;
    shmem_put_signal(block, own, 256, &signals[0], 7, SHMEM_SIGNAL_SET, next);
    EXPECT(shmem_signal_wait_until(&signals[0], SHMEM_CMP_EQ, 7) == 7);
    EXPECT(block[0] == last * 1000 && block[255] == last * 1000 + 255);
    shmem_barrier_all();
    for (int pe = 0; pe < pes; pe++)
        shmem_int_put_signal_nbi(block, own, 0, &signals[1], 1, SHMEM_SIGNAL_ADD, pe);
    shmem_quiet();
    EXPECT(shmem_signal_wait_until(&signals[1], SHMEM_CMP_GE, (uint64_t) pes) == (uint64_t) pes);
    EXPECT(shmem_signal_fetch(&signals[1]) == (uint64_t) pes);
    shmem_barrier_all();
}

/* Each PE raises every word of the next in turn, which takes them as they come. */
static void several(int me, int pes)
{
    int next = (me + 1) % pes, status[WORDS] = {0};
    size_t indices[WORDS], found = 0;
    long values[WORDS];
    EXPECT(shmem_test_any(words, WORDS, status, SHMEM_CMP_NE, 0L) == SIZE_MAX);
    EXPECT(shmem_test_some(words, WORDS, indices, status, SHMEM_CMP_NE, 0L) == 0);
    EXPECT(!shmem_test_all(words, WORDS, status, SHMEM_CMP_NE, 0L));
    shmem_barrier_all();
    for (int i = 0; i < WORDS; i++)
        shmem_atomic_set(&words[i], 100L + i, next);
    while (found < WORDS / 2) {
        size_t at = shmem_wait_until_any(words, WORDS, status, SHMEM_CMP_NE, 0L);
        EXPECT(at < WORDS && !status[at] && words[at] == 100 + (long) at);
        status[at] = 1;
        found++;
    }
    while (found < WORDS) {
        size_t count = shmem_wait_until_some(words, WORDS, indices, status, SHMEM_CMP_NE, 0L);
        EXPECT(count > 0 && count <= WORDS - found);
        for (size_t i = 0; i < count; i++) {
            EXPECT(!status[indices[i]]);
            status[indices[i]] = 1;
        }
        found += count;
    }
    EXPECT(shmem_wait_until_any(words, WORDS, status, SHMEM_CMP_NE, 0L) == SIZE_MAX);
    for (int i = 0; i < WORDS; i++)
        values[i] = 100 + i;
    shmem_wait_until_all(words, WORDS, NULL, SHMEM_CMP_GT, 99L);
    shmem_wait_until_all_vector(words, WORDS, NULL, SHMEM_CMP_EQ, values);
    EXPECT(shmem_test_all_vector(words, WORDS, NULL, SHMEM_CMP_EQ, values));
    values[3] = 0;
    EXPECT(shmem_test_any_vector(words, WORDS, NULL, SHMEM_CMP_NE, values) == 3);
    EXPECT(shmem_wait_until_some_vector(words, WORDS, indices, NULL, SHMEM_CMP_NE, values) == 1 && indices[0] == 3);
    shmem_barrier_all();
}

/* What is ready each time must not hide what is ready as well. */
static void fair(void)
{
    int seen[WORDS] = {0}, missing = WORDS;
    for (int tries = 0; missing > 0; tries++) {
        size_t at = shmem_test_any(words, WORDS, NULL, SHMEM_CMP_NE, 0L);
        EXPECT(at < WORDS && tries < 100 * WORDS);
        missing -= !seen[at];
        seen[at] = 1;
    }
}

int main(void)
{
    shmem_init();
    int me = shmem_my_pe(), pes = shmem_n_pes();
    turns(me, pes);
    signalled(me, pes);
    several(me, pes);
    fair();
    shmem_p(&small, (short) 3, (me + 1) % pes);
    shmem_wait_until(&small, SHMEM_CMP_EQ, (short) 3);
    shmem_long_wait(&flag, 0);
    shmem_finalize();
    return 0;
}
