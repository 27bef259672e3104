/* Every call of queues, what each promises, and mistakes that change nothing. */
#include "expect.h"

#include <math.h>
#include <pthread.h>
#include <shmemx_queue.h>
#include <string.h>

enum { THREADS = 4, PUSHES = 5000 };

static long words[64];
static unsigned int half_words[64];
static double numbers[8];
static char bytes[64];
static uint64_t flag;
/* Whether updates for neighbours are gathered, and whether some PEs are of another host. */
static int me, pes, next, last, gathers, has_far;

static shmemx_queue_t queue_of(shmemx_queue_config_t config)
{
    shmemx_queue_t queue;
    EXPECT(shmemx_queue_create(&queue, SHMEM_TEAM_WORLD, &config) == 0 && queue != SHMEMX_QUEUE_INVALID);
    return queue;
}

static shmemx_queue_attr_t attr_of(shmemx_queue_t queue)
{
    shmemx_queue_attr_t attr;
    EXPECT(shmemx_queue_attr(queue, &attr) == 0);
    return attr;
}

static void clear(void)
{
    shmem_barrier_all();
    memset(words, 0, sizeof words);
    memset(half_words, 0, sizeof half_words);
    memset(numbers, 0, sizeof numbers);
    memset(bytes, 0, sizeof bytes);
    flag = 0;
    shmem_barrier_all();
}

/* Updates of all steps and widths; the source of a push may change behind it. */
static void updates(void)
{
    clear();
    shmemx_queue_t queue = queue_of((shmemx_queue_config_t){.qtype = SHMEMX_QUEUE_COMM});
    for (long i = 0; i < 1000; i++) {
        for (int pe = 0; pe < pes; pe++) {
            long add = i;
            unsigned int bits = 1u << me;
            EXPECT(shmemx_queue_push(queue, &words[0], &add, 1, pe, SHMEMX_OP_ATOMIC_ADD) == 0);
            EXPECT(shmemx_queue_push(queue, &words[1], (long *) NULL, 1, pe, SHMEMX_OP_ATOMIC_INC) == 0);
            EXPECT(shmemx_queue_push(queue, &half_words[2], &bits, 1, pe, SHMEMX_OP_ATOMIC_XOR) == 0);
            add = -1;
        }
    }
    long several[4] = {me, me + 1, me + 2, me + 3};
    unsigned int bits[2] = {1u << me, 3u << me};
    EXPECT(shmemx_queue_push(queue, &words[4], several, 4, next, SHMEMX_OP_ATOMIC_SET) == 0);
    EXPECT(shmemx_queue_push(queue, &half_words[8], bits, 2, 0, SHMEMX_OP_ATOMIC_OR) == 0);
    double half = me + 0.5;
    EXPECT(shmemx_queue_push(queue, &numbers[0], &half, 1, next, SHMEMX_OP_ATOMIC_SET) == 0);
    EXPECT(shmemx_queue_flush(queue) == 0 && shmemx_queue_progress(queue) == 0);
    shmem_sync_all();
    EXPECT(words[0] == 499500L * pes && words[1] == 1000L * pes && half_words[2] == 0);
    EXPECT(words[4] == last && words[7] == last + 3 && numbers[0] == last + 0.5);
    EXPECT(me != 0 || (half_words[8] == (1u << pes) - 1 && half_words[9] == (2u << pes) - 1));
    shmemx_queue_attr_t attr = attr_of(queue);
    EXPECT(attr.elements == 3000u * (unsigned) pes + 7 && attr.outstanding_elems == 0);
    EXPECT(attr.available_elems == UINT64_MAX && attr.granted_class == SHMEMX_QOS_MEDIUM && attr.granted_mark == (has_far ? 0 : -1));
    EXPECT((attr.messages > 0) == gathers);
    EXPECT(attr.messages == attr.closed_full + attr.closed_deadline + attr.closed_flush);
    EXPECT(shmemx_queue_destroy(queue) == 0);
}

/* Copies in both directions, whose ends are the caller's or symmetric. */
static void copies(void)
{
    clear();
    shmemx_queue_t queue = queue_of((shmemx_queue_config_t){.qtype = SHMEMX_QUEUE_COMM});
    char own[5] = {'a', 'b', 'c', (char) ('0' + me), 0}, got[5] = "";
    EXPECT(shmemx_queue_push(queue, &bytes[3], own, 5, next, SHMEMX_OP_PUT) == 0);
    EXPECT(shmemx_queue_fence(queue) == 0);
    EXPECT(shmemx_queue_push(queue, got, &bytes[3], 5, next, SHMEMX_OP_GET) == 0);
    EXPECT(shmemx_queue_flush(queue) == 0 && strcmp(got, own) == 0);
    EXPECT(shmemx_queue_pushmem(queue, &numbers[4], &(double){1.5}, sizeof(double), next, SHMEMX_OP_PUT) == 0);
    shmem_barrier_all();
    EXPECT(numbers[4] == 1.5 && bytes[6] == '0' + last);
    EXPECT(shmemx_queue_destroy(queue) == 0);
}

/* Operations with more pointers: strided, fetching, with a signal behind all that came before. */
static void operations(void)
{
    clear();
    shmemx_queue_t queue = queue_of((shmemx_queue_config_t){.qtype = SHMEMX_QUEUE_COMM});
    long source[6] = {1, 2, 3, 4, 5, 6}, fetched[2] = {-1, -1}, expected[2] = {5, 9};
    shmemx_qop_t op = {.op = SHMEMX_OP_IPUT, .pe = next, .elem_size = sizeof(long), .dest = words, .source = source,
                       .nelems = 3, .dst = 2, .sst = 2};
    EXPECT(shmemx_queue_push_op(queue, &op) == 0 && shmemx_queue_flush(queue) == 0);
    shmem_barrier_all();
    EXPECT(words[0] == 1 && words[1] == 0 && words[2] == 3 && words[4] == 5);
    long back[3];
    op.op = SHMEMX_OP_IGET, op.dest = back, op.source = words, op.dst = 1, op.sst = 2;
    EXPECT(shmemx_queue_push_op(queue, &op) == 0 && shmemx_queue_flush(queue) == 0 && back[1] == 3 && back[2] == 5);
    op = (shmemx_qop_t){.op = SHMEMX_OP_ATOMIC_FETCH_ADD, .pe = next, .elem_size = sizeof(long), .dest = &words[10],
                        .source = source, .nelems = 2, .fetch = fetched};
    EXPECT(shmemx_queue_push_op(queue, &op) == 0 && shmemx_queue_flush(queue) == 0 && fetched[1] == 0);
    op.op = SHMEMX_OP_ATOMIC_COMPARE_SWAP, op.cond = (long[2]){1, 7}, op.source = expected;
    EXPECT(shmemx_queue_push_op(queue, &op) == 0 && shmemx_queue_flush(queue) == 0);
    EXPECT(fetched[0] == 1 && fetched[1] == 2);
    op.op = SHMEMX_OP_ATOMIC_SWAP, op.source = source;
    EXPECT(shmemx_queue_push_op(queue, &op) == 0 && shmemx_queue_flush(queue) == 0);
    EXPECT(fetched[0] == 5 && fetched[1] == 2);
    op.op = SHMEMX_OP_ATOMIC_FETCH, op.source = &words[10];
    EXPECT(shmemx_queue_push_op(queue, &op) == 0 && shmemx_queue_flush(queue) == 0 && fetched[0] == 1);
    shmem_barrier_all();
    for (int i = 0; i < 100; i++)
        EXPECT(shmemx_queue_push(queue, &words[20], &source[0], 1, next, SHMEMX_OP_ATOMIC_ADD) == 0);
    op = (shmemx_qop_t){.op = SHMEMX_OP_PUT, .pe = next, .elem_size = sizeof(long), .dest = &words[21], .source = source,
                        .nelems = 3, .sig_addr = &flag, .signal = 7, .sig_op = SHMEM_SIGNAL_ADD};
    EXPECT(shmemx_queue_push_op(queue, &op) == 0);
    EXPECT(shmem_signal_wait_until(&flag, SHMEM_CMP_NE, 0) == 7);
    EXPECT(words[20] == 100 && words[21] == 1 && words[23] == 3);
    shmem_barrier_all();
    EXPECT(shmemx_queue_destroy(queue) == 0);
}

/* When what was pushed is complete, and when not. */
static void completion(void)
{
    clear();
    shmemx_queue_t queue = queue_of((shmemx_queue_config_t){.qtype = SHMEMX_QUEUE_COMM, .timeout_flush = INFINITY});
    int waits = gathers && !has_far;
    long one = 1;
    EXPECT(shmemx_queue_push(queue, &words[0], &one, 1, next, SHMEMX_OP_ATOMIC_ADD) == 0);
    shmem_quiet();
    if (has_far) {
        EXPECT(shmemx_queue_flush(queue) == 0 && shmemx_queue_destroy(queue) == 0);
        return;
    }
    EXPECT(shmemx_queue_progress(queue) == waits && (int) attr_of(queue).outstanding_elems == waits);
    EXPECT((shmemx_queue_destroy(queue) != 0) == waits);
    if (!waits)
        return;
    shmem_barrier_all();
    EXPECT(words[0] == 1 && shmemx_queue_progress(queue) == 0 && attr_of(queue).closed_flush == 1);
    shmem_sync_all();
    uint64_t early, late;
    EXPECT(shmemx_queue_push(queue, &words[0], &one, 1, next, SHMEMX_OP_ATOMIC_ADD) == 0);
    EXPECT(shmemx_queue_flush_nbi(queue, &early) == 0);
    EXPECT(shmemx_queue_push(queue, &words[0], &one, 1, next, SHMEMX_OP_ATOMIC_ADD) == 0);
    int done;
    while ((done = shmemx_queue_test(queue, early)) == 0)
        ;
    EXPECT(done == 1 && attr_of(queue).outstanding_elems == 1);
    EXPECT(shmemx_queue_flush_nbi(queue, &late) == 0 && late > early);
    while ((done = shmemx_queue_test(queue, late)) == 0)
        ;
    EXPECT(done == 1 && shmemx_queue_destroy(queue) == 0);
    shmem_barrier_all();
    EXPECT(words[0] == 3);
    /* A wait completes what it may depend on. */
    queue = queue_of((shmemx_queue_config_t){.qtype = SHMEMX_QUEUE_COMM, .timeout_flush = INFINITY});
    EXPECT(shmemx_queue_push(queue, &words[9], &one, 1, next, SHMEMX_OP_ATOMIC_ADD) == 0);
    shmem_long_wait_until(&words[9], SHMEM_CMP_EQ, 1);
    EXPECT(shmemx_queue_flush(queue) == 0 && shmemx_queue_destroy(queue) == 0);
    /* An old element leaves with some progress. */
    queue = queue_of((shmemx_queue_config_t){.qtype = SHMEMX_QUEUE_COMM, .timeout_flush = 1e-9});
    EXPECT(shmemx_queue_push(queue, &words[10], &one, 1, next, SHMEMX_OP_ATOMIC_ADD) == 0);
    EXPECT(shmemx_queue_progress(queue) >= 0 && attr_of(queue).closed_deadline == 1);
    EXPECT(shmemx_queue_flush(queue) == 0 && shmemx_queue_destroy(queue) == 0);
}

/* Classes: asked for, or not. */
static void classes(void)
{
    clear();
    shmemx_queue_config_t config = {.qtype = SHMEMX_QUEUE_COMM, .qos_class = SHMEMX_QOS_HIGH};
    shmemx_queue_t queue = queue_of(config);
    EXPECT(attr_of(queue).granted_class == SHMEMX_QOS_MEDIUM && shmemx_queue_destroy(queue) == 0);
    config.mask = SHMEMX_QCFG_QOS;
    queue = queue_of(config);
    EXPECT(attr_of(queue).granted_class == SHMEMX_QOS_HIGH && shmemx_queue_destroy(queue) == 0);
    config = (shmemx_queue_config_t){.qtype = SHMEMX_QUEUE_QOS, .qos_class = SHMEMX_QOS_LOW};
    queue = queue_of(config);
    long one = 1;
    EXPECT(shmemx_queue_push(queue, &words[0], &one, 1, next, SHMEMX_OP_ATOMIC_ADD) == 0);
    EXPECT(attr_of(queue).outstanding_elems <= (unsigned) has_far && attr_of(queue).granted_class == SHMEMX_QOS_LOW);
    EXPECT(attr_of(queue).elements == 1 && attr_of(queue).messages == 0);
    EXPECT(shmemx_queue_flush(queue) == 0 && shmemx_queue_destroy(queue) == 0);
    EXPECT(shmemx_queue_create(&queue, SHMEM_TEAM_WORLD, NULL) == 0 && shmemx_queue_destroy(queue) == 0);
}

/* A bound on elements: what has no room is refused whole, and there is room again after progress. */
static void bounds(void)
{
    clear();
    shmemx_queue_t queue = queue_of((shmemx_queue_config_t){.qtype = SHMEMX_QUEUE_COMM, .max_elems = 10});
    long ones[11] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    for (int i = 0; i < 1000; i++) {
        int pushed;
        while ((pushed = shmemx_queue_push(queue, words, ones, 7, next, SHMEMX_OP_ATOMIC_ADD)) == SHMEMX_EAGAIN)
            EXPECT(shmemx_queue_progress(queue) >= 0);
        EXPECT(pushed == 0 && attr_of(queue).outstanding_elems <= 10);
    }
    int too_many = shmemx_queue_push(queue, words, ones, 11, next, SHMEMX_OP_ATOMIC_ADD);
    EXPECT(too_many == (gathers || shmem_ptr(words, next) == NULL ? SHMEMX_EINVAL : 0));
    EXPECT(shmemx_queue_flush(queue) == 0 && shmemx_queue_destroy(queue) == 0);
    shmem_barrier_all();
    EXPECT(words[6] >= 1000 && words[6] <= 1001 && words[7] == words[6] - 1000);
}

/* Mistakes: one answer, and nothing is written. */
static void mistakes(void)
{
    clear();
    shmemx_queue_t queue = queue_of((shmemx_queue_config_t){.qtype = SHMEMX_QUEUE_COMM}), none;
    long one = 1;
    double half = 0.5;
    char letter = 'x';
    EXPECT(shmemx_queue_push(queue, &numbers[0], &half, 1, next, SHMEMX_OP_ATOMIC_ADD) == SHMEMX_EINVAL);
    EXPECT(shmemx_queue_push(queue, &bytes[0], &letter, 1, next, SHMEMX_OP_ATOMIC_SET) == SHMEMX_EINVAL);
    EXPECT(shmemx_queue_push(queue, &words[0], &one, 1, next, SHMEMX_OP_ATOMIC_FETCH_ADD) == SHMEMX_EINVAL);
    EXPECT(shmemx_queue_push(queue, &words[0], &one, 1, next, 99) == SHMEMX_EINVAL);
    EXPECT(shmemx_queue_push(queue, &words[0], &one, 1, pes, SHMEMX_OP_ATOMIC_ADD) == SHMEMX_EINVAL);
    EXPECT(shmemx_queue_push(queue, &words[0], &one, 1, -1, SHMEMX_OP_PUT) == SHMEMX_EINVAL);
    EXPECT(shmemx_queue_push(queue, &one, &one, 1, next, SHMEMX_OP_ATOMIC_ADD) == SHMEMX_EINVAL);
    EXPECT(shmemx_queue_push(queue, &one, &one, 1, next, SHMEMX_OP_PUT) == SHMEMX_EINVAL);
    EXPECT(shmemx_queue_push(queue, &words[0], (long *) NULL, 1, next, SHMEMX_OP_ATOMIC_ADD) == SHMEMX_EINVAL);
    EXPECT(shmemx_queue_push(queue, (long *) (void *) ((char *) words + 4), &one, 1, next, SHMEMX_OP_ATOMIC_ADD) == SHMEMX_EINVAL);
    EXPECT(shmemx_queue_data_push(queue, &one, 1, next) == SHMEMX_EINVAL);
    EXPECT(shmemx_queue_data_advance(queue, 1) == SHMEMX_EINVAL);
    EXPECT(shmemx_queue_push_op(queue, NULL) == SHMEMX_EINVAL);
    shmemx_qop_t op = {.op = SHMEMX_OP_PUT, .pe = next, .elem_size = 8, .dest = words, .source = &one, .nelems = 1,
                       .sig_addr = (uint64_t *) (void *) &one, .sig_op = SHMEM_SIGNAL_SET};
    EXPECT(shmemx_queue_push_op(queue, &op) == SHMEMX_EINVAL);
    op.sig_addr = &flag, op.sig_op = 9;
    EXPECT(shmemx_queue_push_op(queue, &op) == SHMEMX_EINVAL);
    op = (shmemx_qop_t){.op = SHMEMX_OP_ATOMIC_SWAP, .pe = next, .elem_size = 8, .dest = words, .source = &one, .nelems = 1};
    EXPECT(shmemx_queue_push_op(queue, &op) == SHMEMX_EINVAL);
    EXPECT(shmemx_queue_push(queue, &words[0], &one, 0, next, SHMEMX_OP_ATOMIC_ADD) == 0);
    EXPECT(shmemx_queue_destroy(queue) == 0);
    EXPECT(shmemx_queue_push(queue, &words[0], &one, 1, next, SHMEMX_OP_ATOMIC_ADD) == SHMEMX_EINVAL);
    EXPECT(shmemx_queue_progress(queue) == SHMEMX_EINVAL && shmemx_queue_destroy(queue) == SHMEMX_EINVAL);
    EXPECT(shmemx_queue_flush(SHMEMX_QUEUE_INVALID) == SHMEMX_EINVAL);
    shmemx_queue_t newer = queue_of((shmemx_queue_config_t){.qtype = SHMEMX_QUEUE_COMM});
    EXPECT(newer != queue && shmemx_queue_fence(queue) == SHMEMX_EINVAL && shmemx_queue_destroy(newer) == 0);
    shmemx_queue_config_t wrong = {.qtype = (shmemx_queue_type_t) 7};
    EXPECT(shmemx_queue_create(&none, SHMEM_TEAM_WORLD, &wrong) != 0 && none == SHMEMX_QUEUE_INVALID);
    EXPECT(shmemx_queue_create(&none, SHMEM_TEAM_INVALID, NULL) != 0);
    shmem_barrier_all();
    for (int i = 0; i < 64; i++)
        EXPECT(words[i] == 0 && bytes[i] == 0 && flag == 0);
    EXPECT(numbers[0] == 0);
}

/* Data queues: in order, from each and from any, full and empty, until all is popped. */
static void data(void)
{
    clear();
    shmemx_queue_t queue = queue_of((shmemx_queue_config_t){
        .qtype = SHMEMX_QUEUE_DATA, .max_bytes = 20 * sizeof(long), .elem_size = sizeof(long)});
    long value = 0, pair[2];
    int pe = SHMEMX_PE_ANY, pushed = 0;
    EXPECT(shmemx_queue_data_pop(queue, &value, 1, &pe) == SHMEMX_EAGAIN && pe == SHMEMX_PE_ANY);
    shmem_barrier_all();
    while (value = 100 * me + pushed, shmemx_queue_data_push(queue, &value, 1, next) == 0)
        pushed++;
    EXPECT(pushed == 20 && shmemx_queue_progress(queue) == 20);
    size_t incoming, outgoing;
    EXPECT(shmemx_queue_data_size(queue, &incoming, &outgoing, next) == 0 && outgoing == 20 * sizeof(long));
    EXPECT(shmemx_queue_flush(queue) == 0);
    EXPECT(shmemx_queue_data_size(queue, &incoming, &outgoing, last) == 0 && incoming == 20 * sizeof(long));
    shmem_barrier_all();
    EXPECT(shmemx_queue_destroy(queue) == SHMEMX_EAGAIN);
    pe = last;
    EXPECT(shmemx_queue_data_pop(queue, pair, 2, &pe) == 0 && pair[0] == 100 * last && pair[1] == pair[0] + 1);
    for (int i = 2; i < 20; i++) {
        pe = SHMEMX_PE_ANY;
        EXPECT(shmemx_queue_data_pop(queue, &value, 1, &pe) == 0 && pe == last && value == 100 * last + i);
    }
    EXPECT(shmemx_queue_data_pop(queue, &value, 1, NULL) == SHMEMX_EAGAIN);
    int small = 1;
    EXPECT(shmemx_queue_int_data_push(queue, &small, 1, next) == SHMEMX_EINVAL);
    EXPECT(shmemx_queue_data_pushmem(queue, &value, 3, next) == SHMEMX_EINVAL);
    long too_many[21] = {0};
    EXPECT(shmemx_queue_data_push(queue, too_many, 21, next) == SHMEMX_EINVAL);
    EXPECT(shmemx_queue_push(queue, words, &value, 1, next, SHMEMX_OP_PUT) == SHMEMX_EINVAL);
    pe = pes;
    EXPECT(shmemx_queue_data_pop(queue, &value, 1, &pe) == SHMEMX_EINVAL);
    shmem_barrier_all();
    EXPECT(shmemx_queue_destroy(queue) == 0);
}

/* A token goes around: a PE pushes because of what it pops, though it has said that it is done. */
static void termination(void)
{
    clear();
    shmemx_queue_t queue = queue_of((shmemx_queue_config_t){.qtype = SHMEMX_QUEUE_DATA});
    long hops = 50L * pes, seen = 0;
    if (me == 0)
        EXPECT(shmemx_queue_data_push(queue, &hops, 1, next) == 0);
    EXPECT(shmemx_queue_data_advance(queue, 0) == SHMEMX_QUEUE_WORKING);
    int state;
    while ((state = shmemx_queue_data_advance(queue, 1)) != SHMEMX_QUEUE_COMPLETE) {
        EXPECT(state == SHMEMX_QUEUE_WORKING || state == SHMEMX_QUEUE_ENDGAME);
        if (shmemx_queue_data_pop(queue, &hops, 1, NULL) == 0) {
            seen++;
            if (--hops > 0)
                EXPECT(shmemx_queue_data_push(queue, &hops, 1, next) == 0);
        }
    }
    EXPECT(seen == 50 && shmemx_queue_data_push(queue, &hops, 1, next) == SHMEMX_EINVAL);
    EXPECT(shmemx_queue_destroy(queue) == 0);
}

/* Each element that is popped has two of the next generation pushed, to any PEs. The end is found behind the last. */
static void cascade(void)
{
    enum { GENERATIONS = 6, ROUNDS = 10 };
    static long pending[2 << GENERATIONS];
    uint64_t state = 7 + (uint64_t) me;
    for (int round = 0; round < ROUNDS; round++) {
        clear();
        shmemx_queue_t queue = queue_of((shmemx_queue_config_t){.qtype = SHMEMX_QUEUE_DATA, .max_bytes = 4 * sizeof(long)});
        long generation, popped = 0;
        int waiting = 0, end = SHMEMX_QUEUE_WORKING;
        pending[waiting++] = GENERATIONS;
        while (end != SHMEMX_QUEUE_COMPLETE) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            int pe = (int) (state >> 33) % pes;
            if (waiting > 0 && shmemx_queue_data_push(queue, &pending[waiting - 1], 1, pe) == 0)
                waiting--;
            /* What could not be pushed yet counts as more to push. */
            if (waiting == 0 || state >> 62 == 0)
                end = shmemx_queue_data_advance(queue, waiting == 0);
            if (waiting + 2 <= (int) (sizeof pending / sizeof *pending) &&
                shmemx_queue_data_pop(queue, &generation, 1, NULL) == 0) {
                popped++;
                for (int child = 0; generation > 0 && child < 2; child++)
                    pending[waiting++] = generation - 1;
            }
        }
        words[0] = popped;
        EXPECT(shmem_sum_reduce(SHMEM_TEAM_WORLD, &words[1], &words[0], 1) == 0);
        EXPECT(words[1] == pes * ((2L << GENERATIONS) - 1));
        EXPECT(shmemx_queue_destroy(queue) == 0);
    }
}

/* A queue of a team counts its members. */
static void teams(void)
{
    clear();
    shmem_team_t back;
    EXPECT(shmem_team_split_strided(SHMEM_TEAM_WORLD, pes - 1, -1, pes, NULL, 0, &back) == 0);
    shmemx_queue_t comm, data;
    shmemx_queue_config_t config = {.qtype = SHMEMX_QUEUE_COMM};
    EXPECT(shmemx_queue_create(&comm, back, &config) == 0);
    config.qtype = SHMEMX_QUEUE_DATA;
    EXPECT(shmemx_queue_create(&data, back, &config) == 0);
    long value = me + 1;
    EXPECT(shmemx_queue_push(comm, &words[0], &value, 1, 0, SHMEMX_OP_ATOMIC_ADD) == 0 && shmemx_queue_flush(comm) == 0);
    EXPECT(shmemx_queue_data_push(data, &value, 1, me) == 0 && shmemx_queue_flush(data) == 0);
    int pe = SHMEMX_PE_ANY;
    EXPECT(shmemx_queue_data_pop(data, &value, 1, &pe) == 0 && value == pes - me && pe == me);
    shmem_barrier_all();
    EXPECT(words[0] == (me == pes - 1 ? pes * (pes + 1L) / 2 : 0));
    EXPECT(shmemx_queue_destroy(data) == 0 && shmemx_queue_destroy(comm) == 0);
    shmem_team_destroy(back);
}

static void *push_all(void *queue)
{
    long one = 1, data = me;
    shmemx_queue_t *queues = queue;
    for (int i = 0; i < PUSHES; i++) {
        EXPECT(shmemx_queue_long_push(queues[0], &words[i % 64], &one, 1, (next + i) % pes, SHMEMX_OP_ATOMIC_ADD) == 0);
        while (shmemx_queue_long_data_push(queues[1], &data, 1, next) == SHMEMX_EAGAIN)
            EXPECT(shmemx_queue_progress(queues[1]) >= 0);
        if (i % 1000 == 0)
            EXPECT(shmemx_queue_progress(queues[0]) >= 0 && shmemx_queue_fence(queues[0]) == 0);
    }
    EXPECT(shmemx_queue_flush(queues[0]) == 0);
    return NULL;
}

/* Shared queues take pushes of all threads. */
static void threads(void)
{
    clear();
    shmemx_queue_t queues[2] = {
        queue_of((shmemx_queue_config_t){.qtype = SHMEMX_QUEUE_COMM, .sharing_model = SHMEMX_QUEUE_SHARED}),
        queue_of((shmemx_queue_config_t){.qtype = SHMEMX_QUEUE_DATA, .sharing_model = SHMEMX_QUEUE_SHARED}),
    };
    pthread_t all[THREADS];
    for (int i = 0; i < THREADS; i++)
        EXPECT(pthread_create(&all[i], NULL, push_all, queues) == 0);
    long popped = 0, value;
    while (popped < (long) THREADS * PUSHES) {
        EXPECT(shmemx_queue_progress(queues[1]) >= 0);
        while (shmemx_queue_long_data_pop(queues[1], &value, 1, NULL) == 0)
            popped += value == last;
    }
    for (int i = 0; i < THREADS; i++)
        EXPECT(pthread_join(all[i], NULL) == 0);
    EXPECT(shmemx_queue_destroy(queues[0]) == 0);
    shmem_barrier_all();
    long sum = 0;
    for (int i = 0; i < 64; i++)
        sum += words[i];
    words[0] = sum;
    EXPECT(shmem_sum_reduce(SHMEM_TEAM_WORLD, &words[0], &words[0], 1) == 0);
    EXPECT(words[0] == (long) pes * THREADS * PUSHES);
    EXPECT(shmemx_queue_destroy(queues[1]) == 0);
}

int main(void)
{
    const char *threshold = getenv("SHMEMX_QUEUE_THRESHOLD");
    gathers = threshold == NULL || strcmp(threshold, "0") != 0;
    int level;
    shmemx_queue_config_t shared = {.qtype = SHMEMX_QUEUE_COMM, .sharing_model = SHMEMX_QUEUE_SHARED};
    shmem_init();
    shmemx_queue_t none;
    EXPECT(shmemx_queue_create(&none, SHMEM_TEAM_WORLD, &shared) != 0 && none == SHMEMX_QUEUE_INVALID);
    shmem_finalize();
    shmem_init_thread(SHMEM_THREAD_MULTIPLE, &level);
    me = shmem_my_pe(), pes = shmem_n_pes(), next = (me + 1) % pes, last = (me + pes - 1) % pes;
    int near = shmem_team_n_pes(SHMEM_TEAM_SHARED);
    gathers &= near > 1, has_far = near < pes;
    updates();
    copies();
    operations();
    completion();
    classes();
    bounds();
    mistakes();
    data();
    termination();
    cascade();
    teams();
    threads();
    shmem_finalize();
    return 0;
}
