/* The symmetric heap: what is allocated is the same everywhere, keeps its contents, and is there again when it was freed. */
#include "expect.h"

#include <string.h>

static void same_everywhere(char *block, size_t length)
{
    int me = shmem_my_pe(), next = (me + 1) % shmem_n_pes();
    EXPECT(block != NULL);
    memset(block, me, length);
    shmem_barrier_all();
    EXPECT(shmem_char_g(block, next) == next && shmem_char_g(block + length - 1, next) == next);
    shmem_barrier_all();
}

int main(void)
{
    shmem_init();
    EXPECT(shmem_malloc(0) == NULL);
    char *first = shmem_malloc(100), *second = shmem_calloc(50, 7), *third = shmem_align(4096, 10);
    for (int i = 0; i < 350; i++)
        EXPECT(second[i] == 0);
    EXPECT((uintptr_t) third % 4096 == 0);
    same_everywhere(first, 100);
    same_everywhere(second, 350);
    same_everywhere(third, 10);
    first = shmem_realloc(first, 100000);
    EXPECT(first[99] == shmem_my_pe());
    same_everywhere(first, 100000);
    uint64_t *counter = shmem_malloc_with_hints(8, SHMEM_MALLOC_ATOMICS_REMOTE | SHMEM_MALLOC_SIGNAL_REMOTE);
    *counter = 0;
    shmem_barrier_all();
    shmem_atomic_inc(counter, 0);
    shmem_barrier_all();
    EXPECT(shmem_g(counter, 0) == (uint64_t) shmem_n_pes());
    /* The heap of the test has 16 MiB; what was freed must be there again. */
    for (int i = 0; i < 100; i++) {
        char *large = shmem_malloc(6 << 20);
        EXPECT(large != NULL);
        large[i] = 1;
        shmem_free(large);
    }
    EXPECT(shmem_malloc((size_t) 1 << 40) == NULL);
    shmem_free(counter);
    shmem_free(first);
    shmem_free(second);
    shmem_free(third);
    shmem_free(NULL);
    shfree(shmalloc(10));
    shmem_finalize();
    return 0;
}
