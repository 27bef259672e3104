// The names of C++, the library's word for itself, and a function of this program in place of one of the library's.
#include "expect.h"
#include <pshmem.h>

#include <complex>
#include <cstring>

static int counted;

extern "C" void shmem_long_put(long *dest, const long *source, size_t nelems, int pe)
{
    counted++;
    pshmem_long_put(dest, source, nelems, pe);
}

static long words[4];
static std::complex<double> numbers[2], sums[2];
static shmem_team_t team = SHMEM_TEAM_WORLD;
static shmem_ctx_t context = SHMEM_CTX_DEFAULT;

int main()
{
    shmem_init();
    int me = shmem_my_pe(), pes = shmem_n_pes(), next = (me + 1) % pes, last = (me + pes - 1) % pes;
    long own[4] = {me, me + 1L, me + 2L, me + 3L};
    shmem_put(words, own, 4, next);
    EXPECT(counted == 1);
    shmem_put(context, words, own, 2, next);
    shmem_barrier_all();
    EXPECT(words[3] == last + 3 && shmem_g(&words[0], next) == me);
    shmem_barrier_all();
    shmem_atomic_add(&words[0], 5L, next);
    shmem_barrier_all();
    EXPECT(words[0] == last + 5 && shmem_atomic_fetch(context, &words[0], me) == last + 5);
    numbers[0] = {1.0, double(me)};
    shmem_barrier_all();
    EXPECT(shmem_sum_reduce(team, sums, numbers, 2) == 0 && sums[0].real() == pes);
    EXPECT(shmem_sync(team) == 0);
    int major, minor;
    char name[SHMEM_MAX_NAME_LEN];
    shmem_info_get_version(&major, &minor);
    shmem_info_get_name(name);
    EXPECT(major == SHMEM_MAJOR_VERSION && minor == SHMEM_MINOR_VERSION && std::strcmp(name, SHMEM_VENDOR_STRING) == 0);
    shmem_pcontrol(1, "more");
    shmem_finalize();
}
