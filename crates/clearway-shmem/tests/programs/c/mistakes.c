/* Makes the mistake that its first argument names; with SHMEM_DEBUG=1 the library has a sentence for each. */
#include "expect.h"

#include <string.h>

static long source[8], dest[32];

int main(int count, char **arguments)
{
    const char *way = count > 1 ? arguments[1] : "";
    shmem_init();
    int me = shmem_my_pe();
    if (strcmp(way, "sizes") == 0)
        shmem_malloc(me == 0 ? 1 << 20 : 12 << 20);
    if (strcmp(way, "nothing") == 0)
        shmem_malloc(me == 0 ? 0 : 64);
    if (strcmp(way, "realloc") == 0) {
        void *block = shmem_malloc(4096);
        EXPECT(block != NULL);
        shmem_realloc(block, me == 0 ? 4000 : 11 << 20);
    }
    if (strcmp(way, "twice") == 0) {
        void *block = shmem_malloc(64);
        shmem_free(block);
        shmem_free(block);
    }
    if (strcmp(way, "overlap") == 0)
        shmem_long_fcollect(SHMEM_TEAM_WORLD, dest, dest + 1, 2);
    if (strcmp(way, "reduce") == 0)
        shmem_long_sum_reduce(SHMEM_TEAM_WORLD, dest + 1, dest, 4);
    shmem_finalize();
    if (strcmp(way, "put") == 0)
        shmem_long_put(dest, source, 1, 0);
    if (strcmp(way, "barrier") == 0)
        shmem_barrier_all();
    if (strcmp(way, "wait") == 0)
        shmem_long_wait_until(dest, SHMEM_CMP_NE, 0);
    if (strcmp(way, "finalize") == 0)
        shmem_finalize();
    EXPECT(shmem_my_pe() == me);
    return 0;
}
