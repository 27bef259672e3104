/* What OpenSHMEM 1.6 added, by the names that C11 chooses, before and after a second begin. */
#include "expect.h"

#include <complex.h>
#include <string.h>
#include <shmemx.h>
#include <unistd.h>

static long table[1024], numbers[8], sums[8];
static double _Complex complex_source, complex_sum;
static long double long_source, long_sum;
static uint64_t flag;
static int grid[36];

static void scans(int me)
{
    for (int i = 0; i < 8; i++)
        numbers[i] = me + i;
    complex_source = 1.0 + me * I;
    long_source = 0.25L;
    EXPECT(shmem_sum_inscan(SHMEM_TEAM_WORLD, sums, numbers, 8) == 0);
    for (int i = 0; i < 8; i++)
        EXPECT(sums[i] == (long) me * (me + 1) / 2 + (me + 1L) * i);
    EXPECT(shmem_complexd_sum_exscan(SHMEM_TEAM_WORLD, &complex_sum, &complex_source, 1) == 0);
    EXPECT(creal(complex_sum) == me && cimag(complex_sum) == me * (me - 1) / 2);
    EXPECT(shmem_sum_inscan(SHMEM_TEAM_WORLD, &long_sum, &long_source, 1) == 0 && long_sum == 0.25L * (me + 1));
}

static void blocks(int me, int next)
{
    int own[12];
    for (int i = 0; i < 12; i++)
        own[i] = 100 * me + i;
    memset(grid, 0xff, sizeof grid);
    shmem_barrier_all();
    /* Three rows of four columns into a grid of six. */
    shmem_ibput(grid, own, 6, 4, 4, 3, next);
    shmem_quiet();
    int back[12] = {0};
    shmem_ibget(SHMEM_CTX_DEFAULT, back, grid, 4, 6, 4, 3, next);
    EXPECT(memcmp(own, back, sizeof own) == 0);
    shmem_barrier_all();
    EXPECT(grid[4] == -1 && grid[5] == -1 && grid[6] % 100 == 4);
}

static void signals(int me, int next, int last)
{
    shmem_signal_set(&flag, 5, next);
    shmem_ctx_pe_quiet(SHMEM_CTX_DEFAULT, &next, 1);
    shmem_barrier_all();
    shmem_signal_add(SHMEM_CTX_DEFAULT, &flag, me + 1, next);
    shmem_pe_quiet(&next, 1);
    EXPECT(shmem_signal_wait_until(&flag, SHMEM_CMP_NE, 5) == 6u + last);
    shmem_barrier_all();
    uint64_t *theirs = shmem_team_ptr(SHMEM_TEAM_WORLD, &flag, next);
    EXPECT(theirs && *theirs == 6u + me);
    shmem_barrier_all();
}

static void sessions(int me, int pes)
{
    shmem_ctx_t ctx;
    shmem_ctx_session_config_t config = {.total_ops = 4096};
    EXPECT(shmem_ctx_create(SHMEM_CTX_PRIVATE, &ctx) == 0);
    memset(table, 0, sizeof table);
    shmem_barrier_all();
    shmem_ctx_session_start(ctx, SHMEM_CTX_SESSION_BATCH | SHMEMX_CTX_SESSION_SAME_AMO, &config, SHMEM_CTX_SESSION_TOTAL_OPS);
    for (int i = 0; i < 4096; i++)
        shmem_atomic_xor(ctx, (unsigned long *) &table[i % 1024], 1ul << me, i / 1024 % pes);
    shmem_ctx_session_stop(ctx);
    shmem_ctx_quiet(ctx);
    shmem_barrier_all();
    unsigned long all = 0;
    for (int i = 0; i < 1024; i++)
        all |= (unsigned long) table[i];
    /* Each block of 1024 goes to one PE: four blocks, in turn. */
    unsigned long blocks_here = (4 + pes - 1 - me) / pes;
    EXPECT(all == (blocks_here % 2 ? (1ul << pes) - 1 : 0));
    shmem_ctx_destroy(ctx);
    shmem_barrier_all();
}

int main(int argc, char **argv)
{
    int begun = 7;
    shmem_query_initialized(&begun);
    EXPECT(!begun);
    for (int round = 0; round < 3; round++) {
        shmem_init();
        shmem_query_initialized(&begun);
        int me = shmem_my_pe(), pes = shmem_n_pes(), next = (me + 1) % pes, last = (me + pes - 1) % pes;
        EXPECT(begun);
        if (argc > 2 && round == 1) {
            if (me == pes - 1)
                shmem_global_exit(atoi(argv[2]));
            pause();
        }
        flag = 0;
        scans(me);
        blocks(me, next);
        signals(me, next, last);
        sessions(me, pes);
        shmem_finalize();
        shmem_query_initialized(&begun);
        EXPECT(!begun);
    }
    return 0;
}
