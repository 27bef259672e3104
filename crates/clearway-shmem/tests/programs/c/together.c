/* Collectives over teams and over active sets, teams themselves, and contexts of teams. */
#include "expect.h"

#include <complex.h>
#include <string.h>

enum { MANY = 2000 };

static long source[MANY], dest[MANY * 8], work[SHMEM_REDUCE_MIN_WRKDATA_SIZE + MANY];
static long sync_words[4][SHMEM_SYNC_SIZE];
static double complex numbers[4], sums[4];
static long double wide[3], widest[3];
static unsigned char small_in[5], small_out[5];

static void on_team(shmem_team_t team, size_t count)
{
    int me = shmem_team_my_pe(team), pes = shmem_team_n_pes(team);
    EXPECT(pes <= 8 && me >= 0 && me < pes);
    for (size_t i = 0; i < MANY; i++)
        source[i] = me * 100000L + (long) i;
    memset(dest, 0xff, sizeof dest);
    EXPECT(shmem_team_sync(team) == 0);
    EXPECT(shmem_broadcast(team, dest, source, count, pes - 1) == 0);
    for (size_t i = 0; i < count; i++)
        EXPECT(dest[i] == (pes - 1) * 100000L + (long) i);
    EXPECT(shmem_team_sync(team) == 0);
    EXPECT(shmem_long_fcollect(team, dest, source, count) == 0);
    for (int pe = 0; pe < pes; pe++)
        EXPECT(count == 0 || dest[pe * count + count - 1] == pe * 100000L + (long) count - 1);
    EXPECT(shmem_team_sync(team) == 0);
    /* As many of each as its number. */
    EXPECT(shmem_collect(team, dest, source, (size_t) me) == 0);
    for (int pe = 0, at = 0; pe < pes; at += pe, pe++)
        EXPECT(pe == 0 || dest[at] == pe * 100000L);
    EXPECT(shmem_team_sync(team) == 0);
    EXPECT(shmem_alltoall(team, dest, source, 7) == 0);
    for (int pe = 0; pe < pes; pe++)
        EXPECT(dest[pe * 7 + 6] == pe * 100000L + me * 7 + 6);
    EXPECT(shmem_team_sync(team) == 0);
    EXPECT(shmem_alltoalls(team, dest, source, 2, 3, 5) == 0);
    for (int pe = 0; pe < pes; pe++)
        EXPECT(dest[(pe * 5 + 4) * 2] == pe * 100000L + (me * 5 + 4) * 3);
    EXPECT(shmem_team_sync(team) == 0);
    EXPECT(shmem_sum_reduce(team, dest, source, count) == 0);
    for (size_t i = 0; i < count; i++)
        EXPECT(dest[i] == 100000L * pes * (pes - 1) / 2 + pes * (long) i);
    EXPECT(shmem_max_reduce(team, source, source, count) == 0);
    EXPECT(count == 0 || source[count - 1] == (pes - 1) * 100000L + (long) count - 1);
    EXPECT(shmem_sync(team) == 0);
}

static void types_of_reductions(int me, int pes)
{
    for (int i = 0; i < 4; i++)
        numbers[i] = i + me * I;
    for (int i = 0; i < 3; i++)
        wide[i] = me + i + 0.5L;
    memset(small_in, 1 << (me % 8), sizeof small_in);
    shmem_barrier_all();
    EXPECT(shmem_sum_reduce(SHMEM_TEAM_WORLD, sums, numbers, 4) == 0);
    EXPECT(creal(sums[3]) == 3 * pes && cimag(sums[3]) == pes * (pes - 1) / 2);
    EXPECT(shmem_longdouble_min_reduce(SHMEM_TEAM_WORLD, widest, wide, 3) == 0 && widest[2] == 2.5L);
    EXPECT(shmem_longdouble_sum_reduce(SHMEM_TEAM_WORLD, widest, wide, 3) == 0 && widest[0] == pes * (pes - 1) / 2 + pes / 2.0L);
    EXPECT(shmem_or_reduce(SHMEM_TEAM_WORLD, small_out, small_in, 5) == 0 && small_out[4] == (1 << pes) - 1);
    EXPECT(shmem_xor_reduce(SHMEM_TEAM_WORLD, small_out, small_in, 5) == 0 && small_out[0] == (1 << pes) - 1);
    EXPECT(shmem_and_reduce(SHMEM_TEAM_WORLD, small_out, small_in, 5) == 0 && small_out[0] == (pes == 1));
    EXPECT(shmem_prod_reduce(SHMEM_TEAM_WORLD, sums, numbers, 1) == 0);
    shmem_barrier_all();
}

static void teams(int me, int pes)
{
    shmem_team_t odd, columns, rows;
    shmem_team_config_t config = {.num_contexts = 1};
    /* Every second PE, backwards. */
    int size = (pes + 1) / 2, status = shmem_team_split_strided(SHMEM_TEAM_WORLD, 2 * (size - 1), size > 1 ? -2 : 1, size,
                                                                &config, SHMEM_TEAM_NUM_CONTEXTS, &odd);
    EXPECT((me % 2 == 0) == (odd != SHMEM_TEAM_INVALID) && (me % 2 == 1 || status == 0));
    if (odd != SHMEM_TEAM_INVALID) {
        EXPECT(shmem_team_my_pe(odd) == size - 1 - me / 2);
        EXPECT(shmem_team_translate_pe(odd, 0, SHMEM_TEAM_WORLD) == 2 * (size - 1));
        on_team(odd, 100);
        shmem_ctx_t ctx;
        shmem_team_t of;
        EXPECT(shmem_team_create_ctx(odd, 0, &ctx) == 0 && shmem_ctx_get_team(ctx, &of) == 0 && of == odd);
        shmem_ctx_long_p(ctx, &dest[0], 77, size - 1);
        shmem_ctx_quiet(ctx);
        shmem_team_sync(odd);
        EXPECT(me != 0 || dest[0] == 77);
        shmem_ctx_destroy(ctx);
        config.num_contexts = 0;
        EXPECT(shmem_team_get_config(odd, SHMEM_TEAM_NUM_CONTEXTS, &config) == 0 && config.num_contexts == 1);
        shmem_team_destroy(odd);
    }
    EXPECT(shmem_team_split_2d(SHMEM_TEAM_WORLD, 2, NULL, 0, &rows, NULL, 0, &columns) == 0);
    EXPECT(shmem_team_my_pe(rows) == me % 2 && shmem_team_my_pe(columns) == me / 2);
    on_team(rows, 3);
    on_team(columns, 3);
    shmem_team_destroy(rows);
    shmem_team_destroy(columns);
    static long reached;
    int near = 0;
    for (int pe = 0; pe < pes; pe++)
        near += shmem_ptr(&reached, pe) != NULL;
    EXPECT(shmem_team_my_pe(SHMEM_TEAM_INVALID) == -1 && shmem_team_n_pes(SHMEM_TEAM_SHARED) == near);
    shmem_barrier_all();
}

static void active_sets(int me, int pes)
{
    for (int i = 0; i < MANY; i++)
        source[i] = me + i;
    memset(dest, 0xff, sizeof dest);
    shmem_barrier_all();
    shmem_broadcast64(dest, source, 20, 0, 0, 0, pes, sync_words[0]);
    EXPECT(me == 0 ? dest[0] == -1 : dest[19] == 19);
    shmem_barrier(0, 0, pes, sync_words[1]);
    shmem_long_sum_to_all(dest, source, 50, 0, 0, pes, work, sync_words[2]);
    EXPECT(dest[49] == pes * (pes - 1) / 2 + 49L * pes);
    shmem_sync(0, 0, pes, sync_words[1]);
    shmem_fcollect64(dest, source, 4, 0, 0, pes, sync_words[3]);
    EXPECT(dest[4 * (pes - 1)] == pes - 1);
    shmem_barrier_all();
    shmem_alltoall64(dest, source, 2, 0, 0, pes, sync_words[0]);
    EXPECT(dest[2 * (pes - 1)] == pes - 1 + 2 * me);
    shmem_barrier_all();
    /* Every second PE only. */
    if (me % 2 == 0) {
        shmem_long_max_to_all(dest, source, 1, 0, 1, (pes + 1) / 2, work, sync_words[2]);
        EXPECT(dest[0] == (pes - 1) / 2 * 2);
    }
    shmem_barrier_all();
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < SHMEM_SYNC_SIZE; j++)
            EXPECT(sync_words[i][j] == SHMEM_SYNC_VALUE);
}

int main(void)
{
    shmem_init();
    int me = shmem_my_pe(), pes = shmem_n_pes();
    for (int again = 0; again < 20; again++)
        on_team(SHMEM_TEAM_WORLD, 3);
    on_team(SHMEM_TEAM_WORLD, 0);
    on_team(SHMEM_TEAM_WORLD, 1);
    on_team(SHMEM_TEAM_WORLD, MANY);
    types_of_reductions(me, pes);
    teams(me, pes);
    active_sets(me, pes);
    shmem_finalize();
    return 0;
}
