/* Puts and gets of all kinds, between all pairs, into the heap and into variables. */
#include "expect.h"

#include <string.h>

enum { LENGTH = 1000 };

static long longs[LENGTH];
static unsigned char bytes[4096];
static double one_double;
static long double one_long_double;
static char word = 'a';

/* In every form: from `next` to this PE's place there, and back. */
static void longs_of(shmem_ctx_t ctx, long *there, int me, int next)
{
    long own[LENGTH], back[LENGTH];
    for (int i = 0; i < LENGTH; i++)
        own[i] = me * 10000L + i;
    memset(there, 0, LENGTH * sizeof *there);
    shmem_barrier_all();
    shmem_ctx_long_put(ctx, there, own, LENGTH / 2, next);
    shmem_ctx_long_put_nbi(ctx, there + LENGTH / 2, own + LENGTH / 2, LENGTH / 2, next);
    shmem_ctx_quiet(ctx);
    shmem_ctx_long_get(ctx, back, there, LENGTH, next);
    EXPECT(memcmp(own, back, sizeof own) == 0);
    memset(back, 0, sizeof back);
    shmem_ctx_getmem_nbi(ctx, back, there, sizeof back, next);
    shmem_ctx_quiet(ctx);
    EXPECT(memcmp(own, back, sizeof own) == 0);
    shmem_barrier_all();
    /* Every third from every second. */
    shmem_ctx_long_iput(ctx, there, own, 3, 2, 100, next);
    shmem_ctx_fence(ctx);
    shmem_ctx_long_p(ctx, &there[1], -1, next);
    shmem_barrier_all();
    int last = (me + shmem_n_pes() - 1) % shmem_n_pes();
    for (int i = 0; i < 100; i++)
        EXPECT(there[3 * i] == last * 10000L + 2 * i);
    EXPECT(there[1] == -1 && there[2] == last * 10000L + 2);
    shmem_ctx_long_iget(ctx, back, there, 1, 3, 100, me);
    EXPECT(back[99] == last * 10000L + 198);
    shmem_barrier_all();
}

static void generic(int me, int next)
{
    int last = (me + shmem_n_pes() - 1) % shmem_n_pes();
    shmem_p(&one_double, me + 0.5, next);
    shmem_p(SHMEM_CTX_DEFAULT, &one_long_double, me + 0.25L, next);
    shmem_p(&word, (char) ('a' + me), next);
    shmem_barrier_all();
    EXPECT(one_double == last + 0.5 && one_long_double == last + 0.25L && word == 'a' + last);
    EXPECT(shmem_g(&one_long_double, next) == me + 0.25L);
    EXPECT(shmem_g(SHMEM_CTX_DEFAULT, &one_double, next) == me + 0.5);
    EXPECT(shmem_longdouble_g(&one_long_double, me) + shmem_g(&word, me) == last + 0.25L + 'a' + last);
    shmem_barrier_all();
}

/* Objects of each size at odd places, and none at all. */
static void sizes(int me, int next)
{
    unsigned char own[4096], back[4096];
    for (size_t i = 0; i < sizeof own; i++)
        own[i] = (unsigned char) (me + 7 * i);
    for (size_t at = 0; at < 9; at++) {
        for (size_t length = 0; length < 70; length++) {
            memset(bytes, 0xee, 100);
            shmem_barrier_all();
            shmem_putmem(bytes + at, own + 3, length, next);
            shmem_getmem(back, bytes + at, length, next);
            EXPECT(memcmp(back, own + 3, length) == 0);
            shmem_barrier_all();
            EXPECT(bytes[at + length] == 0xee && (at == 0 || bytes[at - 1] == 0xee));
            shmem_barrier_all();
        }
    }
    shmem_put128(bytes, own, 10, next);
    shmem_iput8(bytes + 200, own, 2, 1, 50, next);
    shmem_quiet();
    shmem_get64(back, bytes, 20, next);
    EXPECT(memcmp(back, own, 160) == 0);
    shmem_iget8(back, bytes + 200, 1, 2, 50, next);
    EXPECT(memcmp(back, own, 50) == 0);
    shmem_barrier_all();
}

/* What is reachable by a plain pointer is the same memory; that of PEs that share memory is. */
static void pointers(long *heap, int me, int next)
{
    long *there = shmem_ptr(heap, next);
    int is_near = shmem_team_translate_pe(SHMEM_TEAM_WORLD, next, SHMEM_TEAM_SHARED) >= 0;
    EXPECT((there != NULL) == is_near && (shmem_ptr(longs, next) != NULL) == is_near);
    EXPECT(shmem_ptr(&there, next) == NULL);
    EXPECT(shmem_addr_accessible(heap, next) && shmem_pe_accessible(next));
    EXPECT(!shmem_pe_accessible(shmem_n_pes()) && !shmem_pe_accessible(-1));
    shmem_barrier_all();
    if (is_near)
        there[5] = me + 1000;
    else
        shmem_p(&heap[5], me + 1000L, next);
    shmem_barrier_all();
    EXPECT(shmem_g(&heap[5], next) == me + 1000);
    shmem_barrier_all();
}

int main(void)
{
    shmem_init();
    int me = shmem_my_pe(), next = (me + 1) % shmem_n_pes();
    long *heap = shmem_malloc(LENGTH * sizeof *heap);
    EXPECT(heap != NULL);
    shmem_ctx_t ctx;
    EXPECT(shmem_ctx_create(SHMEM_CTX_PRIVATE, &ctx) == 0);
    longs_of(SHMEM_CTX_DEFAULT, longs, me, next);
    longs_of(ctx, heap, me, next);
    shmem_ctx_destroy(ctx);
    generic(me, next);
    sizes(me, next);
    pointers(heap, me, next);
    shmem_free(heap);
    shmem_finalize();
    return 0;
}
