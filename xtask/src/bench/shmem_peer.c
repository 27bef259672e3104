/*
 * Times the same calls of OpenSHMEM 1.4 with whatever library it was linked to; `cargo xtask bench shmem` runs it with several.
 *
 * Each measurement is a number of batches that are long enough for the clock. A line has its name, the tenth of the batches and their median
 * in ns for each operation, and how many batches counted, of how many: those in which every PE that worked had a processor for nine tenths of
 * the time, by its own clock of processor time. On a busy machine few do; more are made then, up to a bound.
 *
 * usage: shmem_peer all|crowd|far|waiting
 *
 * With `far`, the PEs are on two hosts and their launcher gave each a core. All batches count then: a PE that waits for the network may sleep.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BATCHES_MAX = 400, WORDS = 10000, INDICES = 1 << 16, BULK = 1 << 20 };

/*
 * Seconds of a batch; how many are to count, and how many are made at most for each of them. A batch of a loop over tables has 50 ms, in parts
 * of 2 ms that count or not by themselves.
 */
static const double SHORT = 2e-4, PART = 2e-3;
enum { MANY = 200, FEW = 5, PARTS = 25, TRIES = 4 };

/* Between hosts an operation takes microseconds, and a stream needs more of them than are under way at a time. */
static const double FAR_TURNS = 2e-3, FAR_STREAM = 2e-2, FAR_BULK = 5e-2;
enum { FAR_BATCHES = 40 };

/* A share of a batch without a processor that does not matter. */
static const double RAN = 0.9;

static int me, pes, next, crowd, is_far;
static long times, counted, work_words[SHMEM_REDUCE_MIN_WRKDATA_SIZE + 1];
static long sync_words[2][SHMEM_REDUCE_SYNC_SIZE];
static double ran[1];
static long shared_pid;
/* In the heap: some libraries reach variables of the program by a slower way. */
static long *table, *words;
/* Each on a line of its own. */
enum { WORD = 0, FLAG = 16, WAITED = 32, SOURCE = 48, DEST = 64, LINE = 80, WORDS_USED = 96 };
static char *bulk, *own_bulk, *own_bulk2;
static unsigned short where[INDICES], whose[INDICES];
static long turn;

static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

typedef void (*work)(long);

/* Who works: PE 0 alone, or all. */
enum who { ALONE, ALL };

/* The means of each `parts` of `count` figures, in place; how many there are. */
static long joined(double *figures, long count, int parts)
{
    for (long i = 0; i < count / parts; i++) {
        double sum = 0;
        for (int part = 0; part < parts; part++)
            sum += figures[i * parts + part];
        figures[i] = sum / parts;
    }
    return count / parts;
}

static void measure(const char *name, work does, enum who who, double seconds, int count, int parts, int each)
{
    static double batches[BATCHES_MAX];
    int made = 0, works = who == ALL || me == 0;
    times = 1;
    /* The first calls make connections and fault memory in. */
    shmem_barrier_all();
    if (works)
        does(100);
    shmem_barrier_all();
    for (int is_long = 0; !is_long;) {
        shmem_barrier_all();
        double begun = now(CLOCK_MONOTONIC);
        if (works)
            does(times);
        double took = now(CLOCK_MONOTONIC) - begun;
        shmem_barrier_all();
        if (me == 0) {
            is_long = took >= seconds;
            for (int pe = pes - 1; pe >= 0; pe--)
                shmem_long_p(&times, is_long ? -times : times * 2, pe);
        }
        shmem_barrier_all();
        if (me != 0)
            is_long = times < 0;
    }
    shmem_barrier_all();
    if (me == 0) {
        times = -times;
        for (int pe = 1; pe < pes; pe++)
            shmem_long_p(&times, times, pe);
        counted = 0;
    }
    shmem_barrier_all();
    while (shmem_long_g(&counted, 0) < count && made++ < count * TRIES) {
        shmem_barrier_all();
        double begun = now(CLOCK_MONOTONIC), used = now(CLOCK_THREAD_CPUTIME_ID);
        if (works)
            does(times);
        double took = now(CLOCK_MONOTONIC) - begun;
        ran[0] = works ? (now(CLOCK_THREAD_CPUTIME_ID) - used) / took : 1;
        shmem_barrier_all();
        if (me == 0) {
            int is_good = 1;
            for (int pe = 0; pe < pes; pe++)
                is_good &= crowd || is_far || shmem_double_g(ran, pe) >= RAN;
            if (is_good)
                batches[counted++] = took / times / each * 1e9;
        }
        shmem_barrier_all();
    }
    /* The other PEs may not have read `counted` yet. */
    long found = me == 0 ? joined(batches, counted, parts) : 0;
    if (me == 0 && found > 0) {
        qsort(batches, found, sizeof *batches, ascending);
        printf("%s %.3f %.3f %ld %d\n", name, batches[found / 10], batches[found / 2], found, made / parts);
        fflush(stdout);
    } else if (me == 0) {
        printf("%s none\n", name);
    }
}

static void p_quiet(long n)
{
    for (long i = 0; i < n; i++) {
        shmem_long_p(&words[WORD], i, next);
        shmem_quiet();
    }
}

static void g(long n)
{
    for (long i = 0; i < n; i++)
        if (shmem_long_g(&words[WORD], next) == -1)
            abort();
}

static void fetch_add(long n)
{
    for (long i = 0; i < n; i++)
        shmem_long_atomic_fetch_add(&words[WORD], 1, next);
}

static void put_nbi(long n)
{
    long value = 1;
    for (long i = 0; i < n; i++)
        shmem_long_put_nbi(&table[i & 4095], &value, 1, next);
    shmem_quiet();
}

static void atomic_inc(long n)
{
    for (long i = 0; i < n; i++)
        shmem_long_atomic_inc(&table[i & 4095], next);
    shmem_quiet();
}

/* Between PEs 0 and 1, 2 and 3 and so on. */
static void round_trips(long n)
{
    int peer = me ^ 1;
    if (peer >= pes)
        return;
    for (long i = 0; i < n; i++) {
        turn++;
        if (me % 2 == 0)
            shmem_long_p(&words[FLAG], turn, peer);
        shmem_long_wait_until(&words[FLAG], SHMEM_CMP_GE, turn);
        if (me % 2 == 1)
            shmem_long_p(&words[FLAG], turn, peer);
    }
}

/* The same with plain loads and stores: what the machine allows. Virtual processors may change cores between two runs. */
static void lines(long n)
{
    int peer = me ^ 1;
    if (peer >= pes)
        return;
    long *there = shmem_ptr(&words[LINE], peer), *here = &words[LINE];
    for (long i = 0; i < n; i++) {
        turn++;
        if (me % 2 == 0)
            __atomic_store_n(there, turn, __ATOMIC_RELEASE);
        while (__atomic_load_n(here, __ATOMIC_ACQUIRE) < turn)
            __builtin_ia32_pause();
        if (me % 2 == 1)
            __atomic_store_n(there, turn, __ATOMIC_RELEASE);
    }
}

static void put_bulk(long n)
{
    for (long i = 0; i < n; i++)
        shmem_putmem(bulk, own_bulk, BULK, next);
    shmem_quiet();
}

static void get_bulk(long n)
{
    for (long i = 0; i < n; i++)
        shmem_getmem(own_bulk, bulk, BULK, next);
}

static void copy_bulk(long n)
{
    for (long i = 0; i < n; i++) {
        memcpy(own_bulk2, own_bulk, BULK);
        __asm__ volatile("" : : : "memory");
    }
}

static void barriers(long n)
{
    for (long i = 0; i < n; i++)
        shmem_barrier_all();
}

static void sums(long n)
{
    for (long i = 0; i < n; i++) {
        shmem_long_sum_to_all(&words[DEST], &words[SOURCE], 1, 0, 0, pes, work_words, sync_words[0]);
        shmem_barrier_all();
    }
}

static void histogram(long n)
{
    for (long i = 0; i < n; i++)
        shmem_long_atomic_inc(&table[where[i & (INDICES - 1)]], whose[i & (INDICES - 1)]);
    shmem_quiet();
}

static void gather(long n)
{
    static long taken[1024];
    for (long i = 0; i < n; i++)
        taken[i & 1023] = shmem_long_g(&table[where[i & (INDICES - 1)]], whose[i & (INDICES - 1)]);
    __asm__ volatile("" : : "r"(taken) : "memory");
}

/* Seconds of processor time that a process has used, from its line in /proc. */
static double used_by(long pid)
{
    char path[64], line[1024];
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *file = fopen(path, "r");
    unsigned long user = 0, system = 0;
    if (file && fgets(line, sizeof line, file))
        sscanf(strrchr(line, ')') + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system);
    if (file)
        fclose(file);
    return (double) (user + system) / sysconf(_SC_CLK_TCK);
}

/* What PE 1 uses in ten seconds, from one second after it began to wait. */
static void waiting(void)
{
    shared_pid = getpid();
    shmem_barrier_all();
    if (me == 1)
        shmem_long_wait_until(&words[WAITED], SHMEM_CMP_NE, 0);
    if (me == 0) {
        long pid = shmem_long_g(&shared_pid, 1);
        sleep(1);
        double before = used_by(pid);
        sleep(10);
        double share = (used_by(pid) - before) / 10 * 100;
        printf("waiting %.3f %.3f 1 1\n", share, share);
        shmem_long_p(&words[WAITED], 1, 1);
    }
    shmem_barrier_all();
}

static void prepare(void)
{
    me = shmem_my_pe();
    pes = shmem_n_pes();
    next = (me + 1) % pes;
    table = shmem_malloc(WORDS * sizeof *table);
    words = shmem_malloc(WORDS_USED * sizeof *words);
    memset(words, 0, WORDS_USED * sizeof *words);
    bulk = shmem_malloc(BULK);
    own_bulk = malloc(BULK);
    own_bulk2 = malloc(BULK);
    memset(table, 0, WORDS * sizeof *table);
    memset(bulk, 1, BULK);
    memset(own_bulk, 2, BULK);
    memset(own_bulk2, 3, BULK);
    unsigned long seed = 12345 + me;
    for (int i = 0; i < INDICES; i++) {
        seed = seed * 6364136223846793005ul + 1442695040888963407ul;
        unsigned long drawn = (seed >> 33) % ((unsigned long) WORDS * pes);
        where[i] = drawn / pes;
        whose[i] = drawn % pes;
    }
    for (int i = 0; i < SHMEM_REDUCE_SYNC_SIZE; i++)
        sync_words[0][i] = SHMEM_SYNC_VALUE;
    if (!crowd && !is_far) {
        cpu_set_t allowed, own;
        sched_getaffinity(0, sizeof allowed, &allowed);
        CPU_ZERO(&own);
        for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; cpu++)
            if (CPU_ISSET(cpu, &allowed) && seen++ == me)
                CPU_SET(cpu, &own);
        if (CPU_COUNT(&own) == 1)
            sched_setaffinity(0, sizeof own, &own);
    }
    shmem_barrier_all();
}

int main(int count, char **arguments)
{
    const char *what = count > 1 ? arguments[1] : "all";
    crowd = strcmp(what, "crowd") == 0;
    is_far = strcmp(what, "far") == 0;
    shmem_init();
    prepare();
    if (strcmp(what, "waiting") == 0) {
        waiting();
    } else if (is_far) {
        measure("p_quiet", p_quiet, ALONE, FAR_TURNS, MANY, 1, 1);
        measure("g", g, ALONE, FAR_TURNS, MANY, 1, 1);
        measure("fetch_add", fetch_add, ALONE, FAR_TURNS, MANY, 1, 1);
        measure("half_round_trip", round_trips, ALL, FAR_TURNS, MANY, 1, 2);
        measure("put_nbi", put_nbi, ALONE, FAR_STREAM, FAR_BATCHES, 1, 1);
        measure("atomic_inc", atomic_inc, ALONE, FAR_STREAM, FAR_BATCHES, 1, 1);
        measure("barrier_all", barriers, ALL, FAR_TURNS, MANY, 1, 1);
        measure("put_bulk", put_bulk, ALONE, FAR_BULK, FAR_BATCHES, 1, 1);
        measure("get_bulk", get_bulk, ALONE, FAR_BULK, FAR_BATCHES, 1, 1);
        measure("histogram", histogram, ALL, FAR_STREAM, FAR_BATCHES, 1, 1);
        measure("index_gather", gather, ALL, FAR_STREAM, FAR_BATCHES, 1, 1);
    } else if (crowd) {
        measure("half_round_trip", round_trips, ALL, SHORT * 20, MANY / 5, 1, 2);
        measure("fetch_add", fetch_add, ALL, SHORT * 20, MANY / 5, 1, 1);
        measure("barrier_all", barriers, ALL, SHORT * 20, MANY / 5, 1, 1);
        measure("sum_to_all", sums, ALL, SHORT * 20, MANY / 5, 1, 1);
    } else {
        measure("p_quiet", p_quiet, ALONE, SHORT, MANY, 1, 1);
        measure("g", g, ALONE, SHORT, MANY, 1, 1);
        measure("fetch_add", fetch_add, ALONE, SHORT, MANY, 1, 1);
        if (shmem_ptr(words, next))
            measure("line", lines, ALL, SHORT, MANY, 1, 2);
        measure("half_round_trip", round_trips, ALL, SHORT, MANY, 1, 2);
        measure("put_nbi", put_nbi, ALONE, SHORT, MANY, 1, 1);
        measure("atomic_inc", atomic_inc, ALONE, SHORT, MANY, 1, 1);
        measure("put_bulk", put_bulk, ALONE, SHORT, MANY, 1, 1);
        measure("get_bulk", get_bulk, ALONE, SHORT, MANY, 1, 1);
        measure("memcpy", copy_bulk, ALONE, SHORT, MANY, 1, 1);
        measure("barrier_all", barriers, ALL, SHORT, MANY, 1, 1);
        measure("sum_to_all", sums, ALL, SHORT, MANY, 1, 1);
        measure("histogram", histogram, ALL, PART, FEW * PARTS, PARTS, 1);
        measure("index_gather", gather, ALL, PART, FEW * PARTS, PARTS, 1);
    }
    if (me == 0) {
        printf("done\n");
        fflush(stdout);
    }
    shmem_barrier_all();
    shmem_finalize();
    return 0;
}
