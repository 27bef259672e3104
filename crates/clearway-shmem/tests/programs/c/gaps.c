/*
 * What the proposal of queues leaves open, one check for each of its gaps: `gaps N` runs gap N. Each runs with members
 * in each other's memory and on several hosts; where a promise differs, the check says so.
 */
#include "expect.h"

#include <math.h>
#include <pthread.h>
#include <shmem_queue.h>
#include <shmemx.h>
#include <string.h>

enum { THREADS = 4, PUSHES = 500, LONG = 2000 };

static long words[64], *table;
static int counts[64];
static double numbers[4];
static char letters[4];
static uint64_t flag;
static int me, pes, next, last, is_far;

static shmemx_queue_t queue_of(shmemx_queue_config_t config)
{
    shmemx_queue_t queue;
    EXPECT(shmemx_queue_create(&queue, SHMEM_TEAM_WORLD, &config) == 0 && queue != SHMEMX_QUEUE_INVALID);
    return queue;
}

static shmemx_queue_t comm(void)
{
    return queue_of((shmemx_queue_config_t){.qtype = SHMEMX_QUEUE_COMM});
}

static shmemx_queue_attr_t attr_of(shmemx_queue_t queue)
{
    shmemx_queue_attr_t attr;
    EXPECT(shmemx_queue_attr(queue, &attr) == 0);
    return attr;
}

static void end(shmemx_queue_t queue)
{
    EXPECT(shmemx_queue_flush(queue) == 0 && shmemx_queue_destroy(queue) == 0);
}

/* Gap 1, with MULTIPLE: any thread pushes. Both kinds, with a limit and without, and none of what they push is lost. */
static void *push_all(void *argument)
{
    shmemx_queue_t *queues = argument;
    long one = 1, value = me;
    shmemx_queue_attr_t attr;
    for (int i = 0; i < PUSHES; i++) {
        EXPECT(shmemx_queue_push(queues[0], &words[i % 8], &one, 1, (next + i) % pes, SHMEMX_OP_ATOMIC_ADD) == 0);
        int pushed;
        while ((pushed = shmemx_queue_data_push(queues[1], &value, 1, next)) == SHMEMX_EAGAIN)
            EXPECT(shmemx_queue_progress(queues[1]) >= 0);
        EXPECT(pushed == 0);
        while ((pushed = shmemx_queue_push(queues[2], &words[8 + i % 8], &one, 1, (next + i) % pes, SHMEMX_OP_ATOMIC_ADD)) ==
               SHMEMX_EAGAIN)
            EXPECT(shmemx_queue_progress(queues[2]) >= 0);
        EXPECT(pushed == 0);
        EXPECT(shmemx_queue_attr(queues[2], &attr) == 0 && attr.available_elems <= 32);
    }
    return NULL;
}

static void shared_queues(void)
{
    shmemx_queue_t queues[3] = {
        queue_of((shmemx_queue_config_t){.qtype = SHMEMX_QUEUE_COMM, .sharing_model = SHMEMX_QUEUE_SHARED}),
        queue_of((shmemx_queue_config_t){.qtype = SHMEMX_QUEUE_DATA, .sharing_model = SHMEMX_QUEUE_SHARED,
                                         .max_bytes = 1024}),
        queue_of((shmemx_queue_config_t){.qtype = SHMEMX_QUEUE_COMM, .sharing_model = SHMEMX_QUEUE_SHARED,
                                         .max_elems = 32}),
    };
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        EXPECT(pthread_create(&threads[i], NULL, push_all, queues) == 0);
    long value;
    for (int popped = 0; popped < THREADS * PUSHES;) {
        EXPECT(shmemx_queue_progress(queues[1]) >= 0);
        while (shmemx_queue_data_pop(queues[1], &value, 1, NULL) == 0 && value == last)
            popped++;
    }
    for (int i = 0; i < THREADS; i++)
        EXPECT(pthread_join(threads[i], NULL) == 0);
    end(queues[0]);
    end(queues[2]);
    shmem_barrier_all();
    for (int i = 0; i < 16; i++)
        words[32 + i / 8] += words[i];
    EXPECT(shmem_sum_reduce(SHMEM_TEAM_WORLD, &words[34], &words[32], 2) == 0);
    EXPECT(words[34] == (long) pes * THREADS * PUSHES && words[35] == words[34]);
    end(queues[1]);
}

/* Gap 1, without MULTIPLE. */
static void shared_refused(void)
{
    shmemx_queue_t queue;
    for (int type = SHMEMX_QUEUE_COMM; type <= SHMEMX_QUEUE_QOS; type++) {
        shmemx_queue_config_t config = {.qtype = (shmemx_queue_type_t) type, .sharing_model = SHMEMX_QUEUE_SHARED};
        EXPECT(shmemx_queue_create(&queue, SHMEM_TEAM_WORLD, &config) == SHMEMX_EINVAL && queue == SHMEMX_QUEUE_INVALID);
    }
}

/* Gap 2: a queue with something outstanding is not destroyed; one that is destroyed takes nothing. */
static void *push_one(void *queue)
{
    long one = 1;
    EXPECT(shmemx_queue_push(*(shmemx_queue_t *) queue, words, &one, 1, me, SHMEMX_OP_ATOMIC_ADD) == SHMEMX_EINVAL);
    return NULL;
}

static void destruction(void)
{
    shmemx_queue_t queue = queue_of((shmemx_queue_config_t){.qtype = SHMEMX_QUEUE_COMM, .timeout_flush = INFINITY});
    long one = 1;
    int answer;
    for (int i = 0; i < 100; i++)
        EXPECT(shmemx_queue_push(queue, words, &one, 1, next, SHMEMX_OP_ATOMIC_ADD) == 0);
    while ((answer = shmemx_queue_destroy(queue)) == SHMEMX_EAGAIN)
        EXPECT(shmemx_queue_flush(queue) == 0);
    EXPECT(answer == 0 && shmemx_queue_destroy(queue) == SHMEMX_EINVAL);
    shmem_barrier_all();
    EXPECT(words[0] == 100);
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, push_one, &queue) == 0 && pthread_join(thread, NULL) == 0);
}

/* Gap 3: other atomics, and strides. */
static void more_operations(void)
{
    shmemx_queue_t queue = comm();
    long three = 3, two = 2, expected = 3, fetched = -1, source[4] = {1, 2, 3, 4};
    EXPECT(shmemx_queue_push(queue, &words[0], &three, 1, next, SHMEMX_OP_ATOMIC_SET) == 0);
    EXPECT(shmemx_queue_fence(queue) == 0);
    shmemx_qop_t op = {.op = SHMEMX_OP_ATOMIC_COMPARE_SWAP, .pe = next, .elem_size = sizeof(long), .dest = words,
                       .source = &two, .nelems = 1, .cond = &expected, .fetch = &fetched};
    EXPECT(shmemx_queue_push_op(queue, &op) == 0 && shmemx_queue_flush(queue) == 0 && fetched == 3);
    op.op = SHMEMX_OP_ATOMIC_SWAP, op.source = &three;
    EXPECT(shmemx_queue_push_op(queue, &op) == 0 && shmemx_queue_flush(queue) == 0 && fetched == 2);
    op.op = SHMEMX_OP_ATOMIC_FETCH_ADD, op.source = &two;
    EXPECT(shmemx_queue_push_op(queue, &op) == 0 && shmemx_queue_flush(queue) == 0 && fetched == 3);
    op.op = SHMEMX_OP_ATOMIC_FETCH, op.source = words;
    EXPECT(shmemx_queue_push_op(queue, &op) == 0 && shmemx_queue_flush(queue) == 0 && fetched == 5);
    long ones = -1, mask = 6;
    EXPECT(shmemx_queue_push(queue, &words[1], &ones, 1, next, SHMEMX_OP_ATOMIC_OR) == 0);
    EXPECT(shmemx_queue_push(queue, &words[1], &mask, 1, next, SHMEMX_OP_ATOMIC_AND) == 0);
    EXPECT(shmemx_queue_push(queue, &words[1], &two, 1, next, SHMEMX_OP_ATOMIC_XOR) == 0);
    op = (shmemx_qop_t){.op = SHMEMX_OP_IPUT, .pe = next, .elem_size = sizeof(long), .dest = &words[8], .source = source,
                        .nelems = 2, .dst = 3, .sst = 2};
    EXPECT(shmemx_queue_push_op(queue, &op) == 0 && shmemx_queue_flush(queue) == 0);
    shmem_barrier_all();
    EXPECT(words[0] == 5 && words[1] == 4 && words[8] == 1 && words[9] == 0 && words[11] == 3);
    long back[2] = {0, 0};
    op.op = SHMEMX_OP_IGET, op.dest = back, op.source = &words[8], op.dst = 1, op.sst = 3;
    EXPECT(shmemx_queue_push_op(queue, &op) == 0 && shmemx_queue_flush(queue) == 0 && back[0] == 1 && back[1] == 3);
    end(queue);
}

/* Gap 4: a flush that does not wait, and a signal as the last element of a batch. */
static void flush_later(void)
{
    shmemx_queue_t queue = comm();
    uint64_t ticket = 0;
    long one = 1;
    for (int i = 0; i < 50; i++)
        EXPECT(shmemx_queue_push(queue, words, &one, 1, next, SHMEMX_OP_ATOMIC_ADD) == 0);
    EXPECT(shmemx_queue_flush_nbi(queue, &ticket) == 0);
    int done;
    while ((done = shmemx_queue_test(queue, ticket)) == 0)
        ;
    EXPECT(done == 1 && attr_of(queue).outstanding_elems == 0 && shmem_long_g(words, next) == 50);
    for (int i = 0; i < 50; i++)
        EXPECT(shmemx_queue_push(queue, &words[1], &one, 1, next, SHMEMX_OP_ATOMIC_ADD) == 0);
    shmemx_qop_t op = {.op = SHMEMX_OP_PUT, .pe = next, .elem_size = sizeof(long), .dest = &words[2], .source = &one,
                       .nelems = 1, .sig_addr = &flag, .signal = 9, .sig_op = SHMEM_SIGNAL_SET};
    EXPECT(shmemx_queue_push_op(queue, &op) == 0);
    EXPECT(shmem_signal_wait_until(&flag, SHMEM_CMP_EQ, 9) == 9 && words[1] == 50 && words[2] == 1);
    shmem_barrier_all();
    end(queue);
}

/* Gap 5: which types have which operations. What cannot be is an answer, and writes nothing. */
static void types(void)
{
    shmemx_queue_t queue = comm();
    double half = 0.5;
    char letter = 'x';
    float quarter = 0.25f;
    int one = 1;
    EXPECT(shmemx_queue_push(queue, &numbers[0], &half, 1, next, SHMEMX_OP_ATOMIC_ADD) == SHMEMX_EINVAL);
    EXPECT(shmemx_queue_push(queue, &numbers[0], &half, 1, next, SHMEMX_OP_ATOMIC_XOR) == SHMEMX_EINVAL);
    EXPECT(shmemx_queue_push(queue, &letters[0], &letter, 1, next, SHMEMX_OP_ATOMIC_INC) == SHMEMX_EINVAL);
    EXPECT(shmemx_queue_push(queue, &letters[0], &letter, 1, next, SHMEMX_OP_ATOMIC_SET) == SHMEMX_EINVAL);
    EXPECT(shmemx_queue_flush(queue) == 0);
    shmem_barrier_all();
    EXPECT(numbers[0] == 0 && letters[0] == 0);
    shmem_barrier_all();
    EXPECT(shmemx_queue_push(queue, &numbers[0], &half, 1, next, SHMEMX_OP_ATOMIC_SET) == 0);
    EXPECT(shmemx_queue_push(queue, (float *) (void *) &numbers[1], &quarter, 1, next, SHMEMX_OP_ATOMIC_SET) == 0);
    EXPECT(shmemx_queue_push(queue, &letters[1], &letter, 1, next, SHMEMX_OP_PUT) == 0);
    EXPECT(shmemx_queue_push(queue, &counts[0], &one, 1, next, SHMEMX_OP_ATOMIC_ADD) == 0);
    EXPECT(shmemx_queue_flush(queue) == 0);
    shmem_barrier_all();
    EXPECT(numbers[0] == 0.5 && *(float *) (void *) &numbers[1] == 0.25f && letters[1] == 'x' && counts[0] == 1);
    end(queue);
}

/* Gap 6: all members return the same of a flush of a data queue, also where something cannot be popped yet. */
static void global_flush(void)
{
    shmemx_queue_t queue =
        queue_of((shmemx_queue_config_t){.qtype = SHMEMX_QUEUE_DATA, .max_bytes = 64, .elem_size = sizeof(long)});
    long value = me;
    size_t incoming, outgoing;
    if (me == 0)
        for (int i = 0; i < 8; i++)
            EXPECT(shmemx_queue_data_push(queue, &value, 1, next) == 0);
    words[0] = shmemx_queue_flush(queue);
    EXPECT(shmem_max_reduce(SHMEM_TEAM_WORLD, &words[1], &words[0], 1) == 0 && words[1] == 0);
    EXPECT(shmemx_queue_data_size(queue, &incoming, &outgoing, last) == 0);
    EXPECT(incoming == (last == 0 ? 64 : 0) && shmemx_queue_destroy(queue) == SHMEMX_EAGAIN);
    for (int i = 0; last == 0 && i < 8; i++)
        EXPECT(shmemx_queue_data_pop(queue, &value, 1, NULL) == 0 && value == 0);
    EXPECT(shmemx_queue_flush(queue) == 0);
    EXPECT(shmemx_queue_data_size(queue, &incoming, &outgoing, next) == 0 && outgoing == 0);
    EXPECT(shmemx_queue_destroy(queue) == 0);
}

/* Gap 7: progress of one PE. The others do not call the library. */
static void progress_alone(void)
{
    shmemx_queue_t queue = comm();
    long one = 1;
    shmem_barrier_all();
    if (me == 0) {
        for (int i = 0; i < 100; i++)
            EXPECT(shmemx_queue_push(queue, words, &one, 1, next, SHMEMX_OP_ATOMIC_ADD) == 0);
        int left;
        while ((left = shmemx_queue_progress(queue)) > 0)
            ;
        EXPECT(left == 0);
        shmem_long_atomic_set(&words[1], 1, next);
    } else if (last == 0) {
        while (*(volatile long *) &words[1] == 0)
            ;
        EXPECT(words[0] == 100);
    }
    shmem_barrier_all();
    end(queue);
}

/* Gap 8: the source of a push may change behind it, whatever its length. */
static void source_lifetime(void)
{
    static long copy[LONG];
    shmemx_queue_t queue = comm();
    for (long i = 0; i < LONG; i++)
        copy[i] = i + me;
    EXPECT(shmemx_queue_push(queue, table, copy, LONG, next, SHMEMX_OP_PUT) == 0);
    memset(copy, 0, sizeof copy);
    for (long i = 0; i < 16; i++) {
        long local = i;
        EXPECT(shmemx_queue_push(queue, &words[i], &local, 1, next, SHMEMX_OP_ATOMIC_ADD) == 0);
        local = -1;
    }
    shmemx_queue_t data = queue_of((shmemx_queue_config_t){.qtype = SHMEMX_QUEUE_DATA});
    for (long i = 0; i < 16; i++) {
        long local = i;
        EXPECT(shmemx_queue_data_push(data, &local, 1, next) == 0);
        local = -1;
    }
    EXPECT(shmemx_queue_flush(queue) == 0 && shmemx_queue_flush(data) == 0);
    shmem_barrier_all();
    for (long i = 0; i < LONG; i++)
        EXPECT(table[i] == i + last);
    for (long i = 0, value; i < 16; i++)
        EXPECT(words[i] == i && shmemx_queue_data_pop(data, &value, 1, NULL) == 0 && value == i);
    end(queue);
    end(data);
}

/* Gap 9: a fence orders what is for one PE; data come out in the order of pushes, for each pair. */
static void order(void)
{
    shmemx_queue_t queue = comm();
    for (long i = 1; i <= 200; i++) {
        EXPECT(shmemx_queue_push(queue, &words[0], &i, 1, next, SHMEMX_OP_ATOMIC_SET) == 0);
        EXPECT(shmemx_queue_fence(queue) == 0);
        EXPECT(shmemx_queue_push(queue, &words[1], &i, 1, next, SHMEMX_OP_PUT) == 0);
        EXPECT(shmemx_queue_fence(queue) == 0);
        long second = *(volatile long *) &words[1];
        EXPECT(*(volatile long *) &words[0] >= second);
    }
    end(queue);
    queue = queue_of((shmemx_queue_config_t){.qtype = SHMEMX_QUEUE_DATA, .max_bytes = 100});
    long pushed[2] = {0, 0}, popped[2] = {0, 0}, value;
    while (pushed[0] + pushed[1] + popped[0] + popped[1] < 2000) {
        for (int way = 0; way < 2; way++) {
            value = pushed[way] << 1 | way;
            if (pushed[way] < 500 && shmemx_queue_data_push(queue, &value, 1, way == 0 ? next : last) == 0)
                pushed[way]++;
        }
        EXPECT(shmemx_queue_progress(queue) >= 0);
        if (shmemx_queue_data_pop(queue, &value, 1, NULL) == 0)
            EXPECT(value >> 1 == popped[value & 1]++);
    }
    end(queue);
}

/* Gap 10: a quiet does not complete queues; a barrier does, whatever their class. */
static void quiet_and_barrier(void)
{
    shmemx_queue_t queues[4];
    long one = 1;
    for (int class = 0; class < 4; class++) {
        queues[class] = queue_of((shmemx_queue_config_t){.qtype = SHMEMX_QUEUE_COMM, .timeout_flush = INFINITY,
                                                         .qos_class = (shmemx_qos_t) class, .mask = SHMEMX_QCFG_QOS});
        for (int i = 0; i < 100; i++)
            EXPECT(shmemx_queue_push(queues[class], &words[class], &one, 1, next, SHMEMX_OP_ATOMIC_ADD) == 0);
    }
    shmem_quiet();
    if (!is_far && pes > 1)
        EXPECT(attr_of(queues[0]).outstanding_elems == 100);
    shmem_barrier_all();
    for (int class = 0; class < 4; class++) {
        EXPECT(words[class] == 100 && attr_of(queues[class]).outstanding_elems == 0);
        EXPECT(shmemx_queue_destroy(queues[class]) == 0);
    }
    shmemx_queue_t data = queue_of((shmemx_queue_config_t){.qtype = SHMEMX_QUEUE_DATA});
    EXPECT(shmemx_queue_data_push(data, &one, 1, next) == 0);
    shmem_barrier_all();
    EXPECT(shmemx_queue_data_pop(data, &one, 1, NULL) == 0);
    end(data);
}

/* Gap 11: a full queue answers so and has not changed; there is room again after progress. */
static void full(void)
{
    shmemx_queue_t queue = queue_of((shmemx_queue_config_t){.qtype = SHMEMX_QUEUE_COMM, .max_elems = 10});
    long ones[11] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    for (int i = 0; i < 300; i++) {
        int pushed;
        while ((pushed = shmemx_queue_push(queue, words, ones, 7, next, SHMEMX_OP_ATOMIC_ADD)) == SHMEMX_EAGAIN)
            EXPECT(shmemx_queue_progress(queue) >= 0);
        shmemx_queue_attr_t attr = attr_of(queue);
        EXPECT(pushed == 0 && attr.outstanding_elems <= 10 && attr.available_elems <= 10);
    }
    EXPECT(shmemx_queue_push(queue, words, ones, 11, next, SHMEMX_OP_ATOMIC_ADD) == SHMEMX_EINVAL);
    end(queue);
    shmem_barrier_all();
    EXPECT(words[6] == 300 && words[7] == 0);
    queue = queue_of((shmemx_queue_config_t){.qtype = SHMEMX_QUEUE_DATA, .max_bytes = 80, .elem_size = sizeof(long)});
    EXPECT(shmemx_queue_data_push(queue, ones, 10, next) == 0);
    EXPECT(shmemx_queue_data_push(queue, ones, 1, next) == SHMEMX_EAGAIN && attr_of(queue).elements == 10);
    EXPECT(shmemx_queue_data_push(queue, ones, 11, next) == SHMEMX_EINVAL && shmemx_queue_flush(queue) == 0);
    size_t incoming, outgoing;
    EXPECT(shmemx_queue_data_size(queue, &incoming, &outgoing, last) == 0 && incoming == 80);
    EXPECT(shmemx_queue_data_pop(queue, ones, 4, NULL) == 0);
    shmem_barrier_all();
    EXPECT(shmemx_queue_data_push(queue, ones, 5, next) == SHMEMX_EAGAIN);
    EXPECT(shmemx_queue_data_push(queue, ones, 4, next) == 0 && shmemx_queue_flush(queue) == 0);
    EXPECT(shmemx_queue_data_pop(queue, ones, 10, NULL) == 0 && shmemx_queue_flush(queue) == 0);
    EXPECT(shmemx_queue_destroy(queue) == 0);
}

/* Gap 12: a time-out counts seconds from the oldest element on, as far as there is progress. */
static void timeouts(void)
{
    long one = 1;
    double seconds[] = {1e-9, 0, -1, 1e-4};
    for (int i = 0; i < 4; i++) {
        shmemx_queue_t queue = queue_of((shmemx_queue_config_t){.qtype = SHMEMX_QUEUE_COMM, .timeout_flush = seconds[i]});
        EXPECT(shmemx_queue_push(queue, &words[i], &one, 1, next, SHMEMX_OP_ATOMIC_ADD) == 0);
        while (shmemx_queue_progress(queue) > 0)
            ;
        EXPECT(attr_of(queue).outstanding_elems == 0 && attr_of(queue).closed_flush == 0);
        EXPECT(attr_of(queue).closed_deadline == (shmem_ptr(words, next) != NULL));
        EXPECT(shmemx_queue_destroy(queue) == 0);
    }
    shmemx_queue_t queue = queue_of((shmemx_queue_config_t){.qtype = SHMEMX_QUEUE_COMM,
                                                            .timeout_flush = SHMEM_QUEUE_MAX_TIMEOUT});
    EXPECT(shmemx_queue_push(queue, &words[4], &one, 1, next, SHMEMX_OP_ATOMIC_ADD) == 0);
    for (int i = 0; i < 1000; i++)
        EXPECT(shmemx_queue_progress(queue) == 1 || is_far || pes == 1);
    end(queue);
    shmem_barrier_all();
    for (int i = 0; i < 5; i++)
        EXPECT(words[i] == 1);
}

/* Gap 13: a QOS queue gathers nothing. */
static void qos_queues(void)
{
    shmemx_queue_t queue = queue_of((shmemx_queue_config_t){.qtype = SHMEMX_QUEUE_QOS, .qos_class = SHMEMX_QOS_HIGH,
                                                            .timeout_flush = SHMEM_QUEUE_MAX_TIMEOUT});
    long one = 1;
    EXPECT(shmemx_queue_push(queue, &words[0], &one, 1, next, SHMEMX_OP_ATOMIC_ADD) == 0);
    while (*(volatile long *) &words[0] == 0)
        ;
    EXPECT(attr_of(queue).messages == 0 && attr_of(queue).elements == 1);
    end(queue);
}

/* Gap 14: a configuration of zeros asks for no class and no single PE. */
static void zeros(void)
{
    shmemx_queue_config_t config;
    memset(&config, 0, sizeof config);
    shmemx_queue_t queue = queue_of(config);
    long one = 1;
    EXPECT(attr_of(queue).granted_class == SHMEMX_QOS_MEDIUM && attr_of(queue).available_elems == UINT64_MAX);
    for (int pe = 0; pe < pes; pe++)
        EXPECT(shmemx_queue_push(queue, words, &one, 1, pe, SHMEMX_OP_ATOMIC_ADD) == 0);
    end(queue);
    config.qtype = SHMEMX_QUEUE_DATA;
    queue = queue_of(config);
    EXPECT(attr_of(queue).granted_class == SHMEMX_QOS_MEDIUM);
    end(queue);
    config.qtype = SHMEMX_QUEUE_QOS;
    queue = queue_of(config);
    EXPECT(attr_of(queue).granted_class == SHMEMX_QOS_HIGH);
    end(queue);
    shmem_barrier_all();
    EXPECT(words[0] == pes);
}

/* Gap 15: a get has the caller's memory as its destination, which is there after a flush. */
static void gets(void)
{
    for (long i = 0; i < LONG; i++)
        table[i] = i * 3 + me;
    shmem_barrier_all();
    shmemx_queue_t queue = comm();
    static long copy[LONG];
    long local = -1;
    EXPECT(shmemx_queue_push(queue, copy, table, LONG, next, SHMEMX_OP_GET) == 0);
    EXPECT(shmemx_queue_push(queue, &local, &table[7], 1, next, SHMEMX_OP_GET) == 0);
    EXPECT(shmemx_queue_push(queue, &local, &local, 1, next, SHMEMX_OP_GET) == SHMEMX_EINVAL);
    EXPECT(shmemx_queue_flush(queue) == 0 && local == 21 + next);
    for (long i = 0; i < LONG; i++)
        EXPECT(copy[i] == i * 3 + next);
    end(queue);
}

/* Gap 16: what is granted is said, is never above what was asked for, and how long pushes took as well. */
static void grants(void)
{
    static const int marks[4] = {46, 0, 8, 1};
    long one = 1;
    for (int class = 0; class < 4; class++) {
        shmemx_queue_t queue = queue_of((shmemx_queue_config_t){.qtype = SHMEMX_QUEUE_COMM, .mask = SHMEMX_QCFG_QOS,
                                                                .qos_class = (shmemx_qos_t) class});
        for (int i = 0; i < 100; i++)
            EXPECT(shmemx_queue_push(queue, &words[class], &one, 1, next, SHMEMX_OP_ATOMIC_ADD) == 0);
        EXPECT(shmemx_queue_flush(queue) == 0);
        shmemx_queue_attr_t attr = attr_of(queue);
        EXPECT((int) attr.granted_class >= class && (attr.granted_mark == -1) == !is_far);
        EXPECT(attr.granted_mark <= 0 || attr.granted_mark == marks[class]);
        EXPECT(attr.p99_ns >= attr.p50_ns && (attr.p50_ns > 0) == (pes > 1));
        EXPECT(shmemx_queue_destroy(queue) == 0);
        shmem_ctx_t ctx;
        shmemx_grant_t grant;
        EXPECT(shmem_ctx_create(SHMEMX_CTX_CLASS(class), &ctx) == 0 && shmemx_ctx_granted(ctx, &grant) == 0);
        EXPECT((int) grant.asked == class && grant.granted == attr.granted_class && grant.mark == attr.granted_mark);
        shmem_ctx_destroy(ctx);
        EXPECT(shmemx_ctx_granted(ctx, &grant) == SHMEMX_EINVAL);
    }
    shmemx_grant_t grant;
    EXPECT(shmemx_ctx_granted(SHMEM_CTX_DEFAULT, &grant) == 0 && grant.asked == SHMEMX_QOS_MEDIUM);
    EXPECT(shmemx_ctx_granted(SHMEM_CTX_INVALID, &grant) == SHMEMX_EINVAL);
    shmemx_queue_t data = queue_of((shmemx_queue_config_t){.qtype = SHMEMX_QUEUE_DATA, .mask = SHMEMX_QCFG_QOS,
                                                           .qos_class = SHMEMX_QOS_LOW});
    EXPECT(shmemx_queue_data_push(data, &one, 1, next) == 0 && shmemx_queue_flush(data) == 0);
    EXPECT(shmemx_queue_data_pop(data, &one, 1, NULL) == 0 && shmemx_queue_flush(data) == 0);
    EXPECT(shmemx_queue_progress(data) == 0);
    shmemx_queue_attr_t attr = attr_of(data);
    EXPECT(attr.granted_class == SHMEMX_QOS_LOW && attr.p50_ns > 0 && attr.p99_ns >= attr.p50_ns);
    end(data);
}

int main(int argc, char **argv)
{
    static void (*const checks[])(void) = {
        shared_queues, destruction, more_operations, flush_later, types, global_flush, progress_alone, source_lifetime,
        order, quiet_and_barrier, full, timeouts, qos_queues, zeros, gets, grants,
    };
    int level, gap = argc > 1 ? atoi(argv[1]) : 0;
    if (gap < 1 || gap > (int) (sizeof checks / sizeof *checks))
        return 2;
    if (gap == 1) {
        shmem_init_thread(SHMEM_THREAD_SERIALIZED, &level);
        shared_refused();
        shmem_finalize();
    }
    shmem_init_thread(SHMEM_THREAD_MULTIPLE, &level);
    me = shmem_my_pe(), pes = shmem_n_pes(), next = (me + 1) % pes, last = (me + pes - 1) % pes;
    is_far = shmem_team_n_pes(SHMEM_TEAM_SHARED) < pes;
    table = shmem_calloc(LONG, sizeof *table);
    EXPECT(table != NULL);
    shmem_barrier_all();
    checks[gap - 1]();
    shmem_barrier_all();
    shmem_free(table);
    shmem_finalize();
    return 0;
}
