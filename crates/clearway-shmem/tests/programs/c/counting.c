/* Atomic operations that all PEs do to one another's words at the same time, in every form. */
#include "expect.h"

enum { TIMES = 200 };

static long count, count_nbi;
static unsigned int bits32 = 0;
static uint64_t bits64, all_set;
static int slot = -1;
static float floating;
static long old_names;

static void counts(int me, int pes)
{
    long before = -1, fetched;
    for (int i = 0; i < TIMES; i++) {
        int to = (me + i) % pes;
        shmem_atomic_inc(&count, to);
        shmem_atomic_add(&count, 2, to);
        shmem_long_atomic_fetch_add(&count, 3, to);
        (void) shmem_atomic_fetch_inc(SHMEM_CTX_DEFAULT, &count, to);
        shmem_atomic_fetch_add_nbi(&fetched, &count_nbi, 1, to);
        shmem_quiet();
        EXPECT(fetched >= 0 && (pes > 1 || fetched == before + 1));
        before = fetched;
    }
    shmem_barrier_all();
    long sum = 0, sum_nbi = 0;
    for (int pe = 0; pe < pes; pe++) {
        sum += shmem_atomic_fetch(&count, pe);
        sum_nbi += shmem_g(&count_nbi, pe);
    }
    EXPECT(sum == 7L * TIMES * pes && sum_nbi == (long) TIMES * pes);
}

static void bitwise(int me, int pes)
{
    uint64_t full = pes == 64 ? ~0ull : (1ull << pes) - 1;
    shmem_atomic_or(&bits64, 1ull << me, 0);
    (void) shmem_atomic_fetch_or(&all_set, 1ull << me, 0);
    shmem_atomic_xor(&bits32, 1u << me, 0);
    shmem_barrier_all();
    EXPECT(shmem_atomic_fetch(&bits64, 0) == full && shmem_atomic_fetch(&all_set, 0) == full);
    EXPECT(shmem_g(&bits32, 0) == (unsigned int) full);
    shmem_barrier_all();
    shmem_atomic_and(&bits64, ~(1ull << me), 0);
    uint64_t was;
    shmem_uint64_atomic_fetch_xor_nbi(&was, &all_set, 1ull << me, 0);
    shmem_quiet();
    EXPECT(was & (1ull << me));
    shmem_barrier_all();
    EXPECT(shmem_atomic_fetch(&bits64, 0) == 0 && shmem_atomic_fetch(&all_set, 0) == 0);
}

/* One PE takes an empty slot, the others find it taken. */
static void swaps(int me, int pes)
{
    shmem_barrier_all();
    int found = shmem_atomic_compare_swap(&slot, -1, me, 0);
    shmem_barrier_all();
    int winner = shmem_atomic_fetch(&slot, 0);
    EXPECT(winner >= 0 && winner < pes && (found == -1) == (winner == me) && (found == -1 || found == winner));
    shmem_barrier_all();
    shmem_atomic_set(&floating, me + 0.5f, me);
    EXPECT(shmem_atomic_swap(&floating, -1.25f, me) == me + 0.5f && shmem_float_atomic_fetch(&floating, me) == -1.25f);
}

static void deprecated(int me)
{
    shmem_long_set(&old_names, 5, me);
    shmem_long_inc(&old_names, me);
    shmem_add(&old_names, 4L, me);
    EXPECT(shmem_long_finc(&old_names, me) == 10 && shmem_fadd(&old_names, 9L, me) == 11);
    EXPECT(shmem_long_cswap(&old_names, 20, 30, me) == 20 && shmem_swap(&old_names, 40L, me) == 30);
    EXPECT(shmem_long_fetch(&old_names, me) == 40);
}

int main(void)
{
    shmem_init();
    int me = shmem_my_pe(), pes = shmem_n_pes();
    counts(me, pes);
    bitwise(me, pes);
    swaps(me, pes);
    deprecated(me);
    shmem_finalize();
    return 0;
}
