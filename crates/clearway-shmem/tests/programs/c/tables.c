/* The loops of a histogram and of an index gather over a table that is spread over all PEs; each PE knows what must come of them. */
#include "expect.h"

enum { WORDS = 500, TIMES = 20000 };

static unsigned long draw(unsigned long *state)
{
    *state = *state * 6364136223846793005ul + 1442695040888963407ul;
    return *state >> 33;
}

/* What PE `pe` draws: the same numbers whoever asks. */
static unsigned long seed_of(int pe)
{
    return 77 + 1000003ul * pe;
}

static void histogram(long *table, int me, int pes)
{
    static long wanted[WORDS];
    unsigned long state = seed_of(me);
    for (int i = 0; i < TIMES; i++) {
        unsigned long drawn = draw(&state) % ((unsigned long) WORDS * pes);
        shmem_long_atomic_inc(&table[drawn / pes], drawn % pes);
    }
    shmem_barrier_all();
    for (int pe = 0; pe < pes; pe++) {
        state = seed_of(pe);
        for (int i = 0; i < TIMES; i++) {
            unsigned long drawn = draw(&state) % ((unsigned long) WORDS * pes);
            wanted[drawn / pes] += (int) (drawn % pes) == me;
        }
    }
    for (int i = 0; i < WORDS; i++)
        EXPECT(table[i] == wanted[i]);
    shmem_barrier_all();
}

static void gather(long *table, int me, int pes)
{
    for (int i = 0; i < WORDS; i++)
        table[i] = (long) i * pes + me;
    shmem_barrier_all();
    unsigned long state = seed_of(me);
    for (int i = 0; i < TIMES; i++) {
        unsigned long drawn = draw(&state) % ((unsigned long) WORDS * pes);
        EXPECT(shmem_long_g(&table[drawn / pes], drawn % pes) == (long) drawn);
    }
    shmem_barrier_all();
}

int main(void)
{
    static long in_statics[WORDS];
    shmem_init();
    int me = shmem_my_pe(), pes = shmem_n_pes();
    long *in_heap = shmem_calloc(WORDS, sizeof *in_heap);
    EXPECT(in_heap != NULL);
    histogram(in_heap, me, pes);
    gather(in_heap, me, pes);
    gather(in_statics, me, pes);
    shmem_finalize();
    return 0;
}
