/*
 * shmem-tail: measures how bulk traffic delays small operations, with one class for both and with a class for each.
 *
 * A seeded draw splits the PEs of each host into victims and congestors. Victims start small operations on victims of other hosts at intended times
 * and measure latency from these, so that a late operation does not hide the delay of those after it. Each pattern is measured isolated, and then
 * with each congestor. Congestors put a window of blocks to congestors of other hosts, complete it, and repeat; each kind is also measured alone for
 * 2 s, for its bandwidth without victims. The figure is congested p99 over isolated p99. On one host, congestors put to each other. Operations go
 * through a context of the class, through a queue of the class, or through a queue that the threads of a PE share.
 *
 *     oshcc -O2 -o shmem-tail shmem-tail.c && oshrun -n 8 ./shmem-tail --out tail && clearway report tail
 */
#include <dirent.h>
#include <pthread.h>
#include <shmem.h>
#include <shmemx.h>
#include <shmemx_queue.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PES_MAX = 4096, BLOCK_MAX = 1 << 20, POINTS = 100, THREADS_MAX = 16 };
/* The ratio of neighbouring points of a chart: 99 steps reach the share of 1/10,000. */
static const double STEP = 0.911163;

static const char *const VICTIMS[] = {"put", "get", "fetch-add", "put-wait"};
static const char *const CONGESTORS[] = {"incast", "alltoall", "both"};
static const char *const CLASSES[] = {"one class", "classes"};
static const char *const WAYS[] = {"context", "queue", "shared"};
enum { PUT, GET, FETCH_ADD, PUT_WAIT, VICTIM_KINDS };
enum { INCAST, ALL_TO_ALL, BOTH, CONGESTOR_KINDS };
enum { ONE_CLASS, TWO_CLASSES, CLASS_KINDS };
enum { CONTEXT, QUEUE, SHARED, WAY_KINDS };

static struct {
    int victims[VICTIM_KINDS], congestors[CONGESTOR_KINDS], classes[CLASS_KINDS], way;
    long messages, window, block, nice, threads;
    double gap_s;
    unsigned long seed;
    const char *out;
} asked = {{1, 1, 1, 1}, {1, 1, 1}, {1, 1}, CONTEXT, 200, 32, 65536, 0, 4, 0.02, 1, NULL};

/* The first `victims` entries of `order` are the victims, in pairs; `place` is the entry of this PE. A host is named by its first PE. */
static int me, pes, victims, order[PES_MAX], place, host_of[PES_MAX], is_one_host = 1;
/* Symmetric. */
static double *latencies;
static long *words, *stop, *moved;
static char *blocks;
/* What operations go through, if all have one class, for victims, and for congestors: the queue, or the context if there is no queue. */
static struct channel {
    shmem_ctx_t ctx;
    shmemx_queue_t queue;
} channels[3] = {{SHMEM_CTX_DEFAULT, NULL}, {SHMEM_CTX_DEFAULT, NULL}, {SHMEM_CTX_DEFAULT, NULL}};
enum { WORD = 0, FLAG = 8, ECHO = 16, WORDS = 24 };
/* The words of `moved`. */
enum { BYTES, NANOSECONDS, ELEMENTS, MESSAGES, MOVED };

struct summary {
    long count;
    double p50, p99, p999, p99_low, p99_high;
};

static FILE *report;
static int figures;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static void wait_until_time(double at)
{
    double left;
    while ((left = at - now()) > 0)
        if (left > 2e-4) {
            struct timespec t = {0, (long) ((left - 1e-4) * 1e9)};
            if (left > 0.5)
                t = (struct timespec){0, 400000000};
            nanosleep(&t, NULL);
        }
}

static unsigned long drawn(unsigned long *state)
{
    *state += 0x9e3779b97f4a7c15ul;
    unsigned long z = *state;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ul;
    z = (z ^ z >> 27) * 0x94d049bb133111ebul;
    return z ^ z >> 31;
}

static void refuse(const char *what, const char *works)
{
    if (me == 0)
        fprintf(stderr, "shmem-tail: %s; %s\n", what, works);
    shmem_global_exit(2);
}

/* Sets the entries of a list that are given, and clears the others. */
static void choose(const char *option, const char *text, const char *const *names, int *set, int count)
{
    char copy[256], *rest = copy, *name;
    snprintf(copy, sizeof copy, "%s", text);
    memset(set, 0, count * sizeof *set);
    while ((name = strsep(&rest, ",")) != NULL) {
        int at = 0;
        while (at < count && strcmp(names[at], name) != 0)
            at++;
        if (at == count) {
            char what[400], works[400] = "use";
            snprintf(what, sizeof what, "%s has `%s`", option, name);
            for (int i = 0; i < count; i++)
                snprintf(works + strlen(works), sizeof works - strlen(works), "%s %s", i ? "," : "", names[i]);
            refuse(what, works);
        }
        set[at] = 1;
    }
}

static double number(const char *option, const char *text, double least, double most)
{
    char *end, what[256], works[128];
    double value = strtod(text, &end);
    if (*text == 0 || *end != 0 || !(value >= least && value <= most)) {
        snprintf(what, sizeof what, "%s is `%s`", option, text);
        snprintf(works, sizeof works, "give a number from %g to %g", least, most);
        refuse(what, works);
    }
    return value;
}

static const char USAGE[] =
    "usage: shmem-tail [--victims put,get,fetch-add,put-wait] [--congestors incast,alltoall,both]\n"
    "                  [--classes one,split] [--through context|queue|shared] [--threads N] [--messages N]\n"
    "                  [--gap-ms T] [--window N] [--block BYTES] [--nice N] [--seed N] [--out DIR]\n"
    "Measure latencies of small operations (victims) during bulk puts (congestors); start 4 PEs or more.\n"
    "  --victims     measure these patterns (default all)\n"
    "  --congestors  measure under these; both: half of the congestors each (default all)\n"
    "  --classes     one: the same for all, medium, or SHMEM_CLASS with contexts; split: high for victims, low for congestors (default one,split)\n"
    "  --through     issue operations through a context, a queue, or a queue shared by threads (default context)\n"
    "  --threads     with --through shared: start N threads on each PE, 1 to 16 (default 4)\n"
    "  --messages    time N operations of each victim in a phase, at least 20 (default 200)\n"
    "  --gap-ms      start one operation every T ms (default 20)\n"
    "  --window      put N blocks, then wait for their completion; each thread (default 32)\n"
    "  --block       put blocks of BYTES, up to 1048576 (default 65536)\n"
    "  --nice        run congestors at this nice value; 19 where PEs share processors, so that victims wait for the network alone (default 0)\n"
    "  --seed        draw victims and congestors with seed N (default 1)\n"
    "  --out         write DIR/report.json, which `clearway report DIR` shows\n";

static void read_options(int count, char **words)
{
    static const char *const KINDS[] = {"one", "split"};
    for (int i = 1; i < count; i++) {
        const char *option = words[i], *text = i + 1 < count ? words[i + 1] : "";
        if (strcmp(option, "--help") == 0 || strcmp(option, "-h") == 0) {
            if (me == 0)
                fputs(USAGE, stdout);
            shmem_global_exit(0);
        } else if (strcmp(option, "--victims") == 0)
            choose(option, text, VICTIMS, asked.victims, VICTIM_KINDS);
        else if (strcmp(option, "--congestors") == 0)
            choose(option, text, CONGESTORS, asked.congestors, CONGESTOR_KINDS);
        else if (strcmp(option, "--classes") == 0)
            choose(option, text, KINDS, asked.classes, CLASS_KINDS);
        else if (strcmp(option, "--through") == 0) {
            int ways[WAY_KINDS];
            choose(option, text, WAYS, ways, WAY_KINDS);
            if (ways[CONTEXT] + ways[QUEUE] + ways[SHARED] != 1)
                refuse("--through has several names", "give one");
            asked.way = ways[CONTEXT] ? CONTEXT : ways[QUEUE] ? QUEUE : SHARED;
        } else if (strcmp(option, "--threads") == 0)
            asked.threads = (long) number(option, text, 1, THREADS_MAX);
        else if (strcmp(option, "--messages") == 0)
            asked.messages = (long) number(option, text, 20, 1e6);
        else if (strcmp(option, "--gap-ms") == 0)
            asked.gap_s = number(option, text, 0.01, 1e4) * 1e-3;
        else if (strcmp(option, "--window") == 0)
            asked.window = (long) number(option, text, 1, 4096);
        else if (strcmp(option, "--block") == 0)
            asked.block = (long) number(option, text, 1, BLOCK_MAX);
        else if (strcmp(option, "--nice") == 0)
            asked.nice = (long) number(option, text, 0, 19);
        else if (strcmp(option, "--seed") == 0)
            asked.seed = (unsigned long) number(option, text, 0, 9e15);
        else if (strcmp(option, "--out") == 0 && *text)
            asked.out = text;
        else {
            char what[300];
            snprintf(what, sizeof what, "%.200s is no option, or lacks its value", option);
            refuse(what, "shmem-tail --help lists them");
        }
        i++;
    }
}

static void find_hosts(void)
{
    long *first = shmem_malloc(sizeof *first);
    if (!first)
        refuse("the symmetric heap is too small", "raise SHMEM_SYMMETRIC_SIZE");
    *first = 0;
    while (!shmem_ptr(first, (int) *first))
        ++*first;
    shmem_barrier_all();
    for (int i = 0; i < pes; i++)
        is_one_host &= (host_of[i] = (int) shmem_long_g(first, i)) == 0;
    shmem_barrier_all();
    shmem_free(first);
}

static int have_other_hosts(int place, int other)
{
    return host_of[order[place]] != host_of[order[other]];
}

static void exchange(int place, int other)
{
    int kept = order[place];
    order[place] = order[other];
    order[other] = kept;
}

static void draw_roles(void)
{
    unsigned long state = asked.seed;
    static int drawn_of[PES_MAX], pes_of[PES_MAX];
    int chosen = 0;
    for (int i = 0; i < pes; i++) {
        order[i] = i;
        pes_of[host_of[i]]++;
    }
    for (int i = pes - 1; i > 0; i--)
        exchange(i, (int) (drawn(&state) % (unsigned long) (i + 1)));
    /* Victims in pairs, and at least two congestors. At most half of a host's PEs, rounded up, are victims. */
    victims = pes / 2 / 2 * 2;
    for (int i = 0; chosen < victims; i++) {
        int host = host_of[order[i]];
        if (2 * drawn_of[host] < pes_of[host]) {
            drawn_of[host]++;
            exchange(chosen++, i);
        }
    }
    /* The halves of a pair are on different hosts, if there are several. */
    for (int i = 0; i < victims; i += 2)
        for (int other = 0; other < pes && !have_other_hosts(i, i + 1); other++) {
            int partner = other < victims ? other ^ 1 : i;
            if (other / 2 != i / 2 && have_other_hosts(i, other) && (other >= victims || have_other_hosts(i + 1, partner)))
                exchange(i + 1, other);
        }
    for (int i = 0; i < pes; i++)
        if (order[i] == me)
            place = i;
}

/* Pushes an operation of one word to a queue. */
static void push(shmemx_queue_t queue, shmemx_op_type_t kind, long *dest, const long *source, long *fetch, int peer)
{
    shmemx_qop_t operation = {.op = kind, .pe = peer, .elem_type = SHMEMX_INTEGER, .elem_size = sizeof *dest};
    operation.dest = dest, operation.source = source, operation.nelems = 1, operation.fetch = fetch;
    if (shmemx_queue_push_op(queue, &operation) != 0)
        abort();
}

/* Puts a word without a wait for its completion. */
static void put_word(const struct channel *channel, long *dest, long word, int peer)
{
    if (channel->queue)
        push(channel->queue, SHMEMX_OP_PUT, dest, &word, NULL, peer);
    else
        shmem_ctx_long_p(channel->ctx, dest, word, peer);
}

static void complete(const struct channel *channel)
{
    if (channel->queue)
        shmemx_queue_flush(channel->queue);
    else
        shmem_ctx_quiet(channel->ctx);
}

/* Runs one operation of a victim; its latency begins at the intended time. */
static void operate(int pattern, const struct channel *channel, int peer, long turn)
{
    long fetched = -1, one = 1;
    switch (pattern) {
    case PUT:
        put_word(channel, &words[WORD], turn, peer);
        complete(channel);
        break;
    case GET:
        if (channel->queue) {
            push(channel->queue, SHMEMX_OP_GET, &fetched, &words[WORD], NULL, peer);
            complete(channel);
        } else
            fetched = shmem_ctx_long_g(channel->ctx, &words[WORD], peer);
        if (fetched == -1)
            abort();
        break;
    case FETCH_ADD:
        if (channel->queue) {
            push(channel->queue, SHMEMX_OP_ATOMIC_FETCH_ADD, &words[WORD], &one, &fetched, peer);
            complete(channel);
        } else
            fetched = shmem_ctx_long_atomic_fetch_add(channel->ctx, &words[WORD], one, peer);
        if (fetched == -1)
            abort();
        break;
    default:
        put_word(channel, &words[FLAG], turn, peer);
        shmem_long_wait_until(&words[ECHO], SHMEM_CMP_GE, turn);
    }
}

/* Runs the answering half of a pair. */
static void answer(const struct channel *channel, int peer, long turn)
{
    shmem_long_wait_until(&words[FLAG], SHMEM_CMP_GE, turn);
    put_word(channel, &words[ECHO], turn, peer);
}

/* The work of one thread of a PE. */
struct work {
    const struct channel *channel;
    int pattern, congestor;
    long first, step;
    double at; /* when a victim begins, or a congestor ends; 0: when the last victim sets `stop` */
    long begun;
    double took;
};

/* Runs `work` on as many threads as share a queue, each with its own turns. Returns the sum of what they began, and the longest time. */
static struct work run_on_threads(void *(*run)(void *), struct work work, long threads)
{
    pthread_t started[THREADS_MAX];
    struct work works[THREADS_MAX];
    for (long i = 0; i < threads; i++) {
        works[i] = work, works[i].first = i, works[i].step = threads;
        if (i > 0 && pthread_create(&started[i], NULL, run, &works[i]) != 0)
            refuse("no thread can be started", "lower --threads");
    }
    run(&works[0]);
    work.begun = works[0].begun, work.took = works[0].took;
    for (long i = 1; i < threads; i++) {
        pthread_join(started[i], NULL);
        work.begun += works[i].begun;
        work.took = works[i].took > work.took ? works[i].took : work.took;
    }
    return work;
}

static long sharing_threads(void)
{
    return asked.way == SHARED ? asked.threads : 1;
}

static void *take_turns(void *given)
{
    struct work *work = given;
    int peer = order[place ^ 1], answers = work->pattern == PUT_WAIT && place % 2 == 1;
    for (long i = work->first; i < asked.messages; i += work->step) {
        if (answers) {
            answer(work->channel, peer, i + 1);
            latencies[i] = -1;
            continue;
        }
        double intended = work->at + i * asked.gap_s;
        wait_until_time(intended);
        operate(work->pattern, work->channel, peer, i + 1);
        latencies[i] = now() - intended;
    }
    return NULL;
}

static void be_victim(int pattern, const struct channel *channel)
{
    unsigned long state = asked.seed ^ (unsigned long) (me + 1) << 32;
    struct work work = {.channel = channel, .pattern = pattern};
    /* Victims begin at different times. */
    work.at = now() + asked.gap_s * (double) (drawn(&state) % 1024) / 1024;
    /* The flag and the echo of a pair are one word each, for one operation at a time. */
    run_on_threads(take_turns, work, pattern == PUT_WAIT ? 1 : sharing_threads());
}

/* Lowers the priority of all threads of this PE, those of the library among them. */
static void lower_priority(int nice)
{
    DIR *threads = opendir("/proc/self/task");
    for (struct dirent *entry; threads && (entry = readdir(threads)) != NULL;)
        if (atoi(entry->d_name) > 0)
            setpriority(PRIO_PROCESS, (id_t) atoi(entry->d_name), nice);
    if (threads)
        closedir(threads);
}

/* Finds the congestors that this one puts to. Returns their number, 0 for the target of an incast and its neighbours. */
static int find_targets(int is_incast, int *targets)
{
    int count = 0, congestors = pes - victims;
    for (int i = 1; i < congestors; i++) {
        int other = is_incast ? victims : victims + (place - victims + i) % congestors;
        if (other != place && (is_one_host || have_other_hosts(place, other)) && !(is_incast && i > 1))
            targets[count++] = order[other];
    }
    return count;
}

static int goes_on(const struct work *work)
{
    return work->at ? now() < work->at : !shmem_long_test(stop, SHMEM_CMP_NE, 0);
}

/* Puts blocks until a victim sets `stop`, or until a time. */
static void *put_blocks(void *given)
{
    struct work *work = given;
    int *targets = malloc(sizeof *targets * (size_t) pes), own = place - victims;
    int is_incast = work->congestor == INCAST || (work->congestor == BOTH && own % 2 == 1), others = find_targets(is_incast, targets);
    long turn = work->first;
    double begin = now(), end = begin;
    while (goes_on(work)) {
        /* The target of an incast puts nothing. */
        if (others == 0) {
            usleep(1000);
            continue;
        }
        for (long i = 0; i < asked.window; i++, turn += work->step) {
            int target = targets[turn % others];
            if (!work->channel->queue)
                shmem_ctx_putmem_nbi(work->channel->ctx, blocks, blocks + BLOCK_MAX, asked.block, target);
            else if (shmemx_queue_pushmem(work->channel->queue, blocks, blocks + BLOCK_MAX, asked.block, target, SHMEMX_OP_PUT) != 0)
                abort();
        }
        work->begun += asked.window;
        complete(work->channel);
        end = now();
    }
    work->took = end - begin;
    free(targets);
    return NULL;
}

static shmemx_queue_attr_t attributes(const struct channel *channel)
{
    shmemx_queue_attr_t attributes = {0};
    if (channel->queue)
        shmemx_queue_attr(channel->queue, &attributes);
    return attributes;
}

static void be_congestor(int congestor, const struct channel *channel, double until)
{
    struct work work = {.channel = channel, .congestor = congestor, .at = until};
    shmemx_queue_attr_t before = attributes(channel);
    work = run_on_threads(put_blocks, work, sharing_threads());
    shmemx_queue_attr_t after = attributes(channel);
    moved[BYTES] = work.begun * asked.block;
    moved[NANOSECONDS] = 1 + (long) (work.took * 1e9);
    moved[ELEMENTS] = (long) (after.elements - before.elements);
    moved[MESSAGES] = (long) (after.messages - before.messages + after.far_messages - before.far_messages);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

static double at_rank(const double *sorted, long count, double rank)
{
    long at = (long) rank;
    return sorted[at < 0 ? 0 : at >= count ? count - 1 : at];
}

/* Sorts the latencies of all victims, in us; returns quantiles, and the interval of the 99th percentile (order statistics, 95 %). */
static struct summary summarise(double **sorted)
{
    double *all = malloc(sizeof *all * (size_t) asked.messages * (size_t) victims);
    long count = 0;
    for (int i = 0; i < victims; i++) {
        shmem_getmem(all + count, latencies, sizeof *all * (size_t) asked.messages, order[i]);
        if (all[count] >= 0)
            count += asked.messages;
    }
    for (long i = 0; i < count; i++)
        all[i] *= 1e6;
    qsort(all, (size_t) count, sizeof *all, ascending);
    /* Ranks of the interval: 1.96 standard deviations of a binomial, with the root by Newton's method. */
    double variance = count * 0.99 * 0.01, root = 1 + variance;
    for (int i = 0; i < 60; i++)
        root = (root + variance / root) / 2;
    double half = 1.96 * root;
    struct summary s = {count, at_rank(all, count, count * 0.5), at_rank(all, count, count * 0.99), at_rank(all, count, count * 0.999),
                        at_rank(all, count, count * 0.99 - half), at_rank(all, count, count * 0.99 + half)};
    *sorted = all;
    return s;
}

static void labels(FILE *file, int class, const char *pattern, const char *congestor, const char *phase, const char *quantile)
{
    fprintf(file, "{\"class\":\"%s\",\"pattern\":\"%s\"", CLASSES[class], pattern);
    if (congestor)
        fprintf(file, ",\"congestor\":\"%s\"", congestor);
    if (phase)
        fprintf(file, ",\"phase\":\"%s\"", phase);
    if (quantile)
        fprintf(file, ",\"quantile\":\"%s\"", quantile);
    fprintf(file, "}");
}

static void figure(const char *name, int class, const char *pattern, const char *congestor, const char *phase, const char *quantile, double value,
                   const char *unit, double low, double high, long samples)
{
    if (!report)
        return;
    fprintf(report, "%s\n{\"name\":\"%s\",\"labels\":", figures++ ? "," : "", name);
    labels(report, class, pattern, congestor, phase, quantile);
    fprintf(report, ",\"value\":%.6g,\"unit\":\"%s\",\"low\":", value, unit);
    if (low >= 0)
        fprintf(report, "%.6g,\"high\":%.6g", low, high);
    else
        fprintf(report, "null,\"high\":null");
    fprintf(report, ",\"samples\":%ld,\"source\":\"measured by shmem-tail, from the intended time of each operation\"}", samples);
}

/* Writes a curve of the chart: the share of operations that took longer. */
static char *survival;
static size_t survival_length;
static FILE *survival_file;

static void curve(int class, const char *pattern, const char *congestor, const char *phase, const double *sorted, long count)
{
    if (!report)
        return;
    fprintf(survival_file, "%s\n{\"labels\":", ftell(survival_file) ? "," : "");
    labels(survival_file, class, pattern, congestor, phase, NULL);
    fprintf(survival_file, ",\"points\":[");
    long last = -1;
    double share = 1;
    for (int i = 0; i < POINTS; i++, share *= STEP) {
        /* The same number of points in each decade of the tail. */
        long at = count - 1 - (long) ((count - 1) * share);
        if (at == last)
            continue;
        fprintf(survival_file, "%s[%.6g,%.6g]", last < 0 ? "" : ",", sorted[at], (double) (count - 1 - at) / count);
        last = at;
    }
    fprintf(survival_file, "]}");
}

/* The bulk of all congestors in a phase; elements and messages of queues. */
struct bulk {
    double rate, elements, messages;
};

static struct bulk all_bulk(void)
{
    struct bulk bulk = {0};
    for (int i = victims; i < pes; i++) {
        long seen[MOVED];
        shmem_getmem(seen, moved, sizeof seen, order[i]);
        bulk.rate += seen[BYTES] / (seen[NANOSECONDS] * 1e-9);
        bulk.elements += seen[ELEMENTS];
        bulk.messages += seen[MESSAGES];
    }
    return bulk;
}

static void forget_bulk(void)
{
    memset(moved, 0, MOVED * sizeof *moved);
    moved[NANOSECONDS] = 1;
}

/* Runs a phase. PE 0 gets the latencies of the victims and the rate of the congestors. */
static struct summary phase(int pattern, int class, int congestor, double **sorted, double *rate)
{
    int is_victim = place < victims;
    const struct channel *channel = class == TWO_CLASSES ? &channels[is_victim ? 1 : 2] : &channels[0];
    memset(words, 0, WORDS * sizeof *words);
    *stop = 0;
    forget_bulk();
    shmem_barrier_all();
    if (is_victim) {
        if (congestor >= 0)
            wait_until_time(now() + 0.2);
        be_victim(pattern, channel);
        complete(channel);
        /* The last victim to end stops all congestors. */
        long done = shmem_long_atomic_fetch_add(&words[WORDS - 1], 1, order[0]) + 1;
        if (done == victims)
            for (int i = victims; i < pes; i++)
                shmem_long_atomic_set(stop, 1, order[i]);
        shmem_quiet();
    } else if (congestor >= 0) {
        be_congestor(congestor, channel, 0);
    }
    shmem_barrier_all();
    struct summary s = {0};
    if (me == 0) {
        s = summarise(sorted);
        *rate = all_bulk().rate;
    }
    shmem_barrier_all();
    return s;
}

/* Measures congestors without victims. PE 0 gets the rate. */
static double alone(int class, int congestor)
{
    const struct channel *channel = class == TWO_CLASSES ? &channels[2] : &channels[0];
    forget_bulk();
    shmem_barrier_all();
    if (place >= victims)
        be_congestor(congestor, channel, now() + 2);
    shmem_barrier_all();
    struct bulk bulk = {0};
    if (me == 0) {
        bulk = all_bulk();
        figure("shmem_message_rate", class, "bulk", CONGESTORS[congestor], "isolated", NULL, bulk.rate / asked.block, "1/s", -1, -1, 1);
        if (bulk.messages > 0)
            figure("shmem_aggregation_factor", class, "bulk", CONGESTORS[congestor], "isolated", NULL, bulk.elements / bulk.messages, "1", -1, -1,
                   1);
    }
    shmem_barrier_all();
    return bulk.rate;
}

static void measure(int class)
{
    double bulk[CONGESTOR_KINDS] = {0};
    for (int congestor = 0; congestor < CONGESTOR_KINDS; congestor++)
        if (asked.congestors[congestor])
            bulk[congestor] = alone(class, congestor);
    for (int pattern = 0; pattern < VICTIM_KINDS; pattern++) {
        if (!asked.victims[pattern])
            continue;
        for (int congestor = 0; congestor < CONGESTOR_KINDS; congestor++) {
            if (!asked.congestors[congestor])
                continue;
            double *calm = NULL, *busy = NULL, rate = 0;
            struct summary i = phase(pattern, class, -1, &calm, &rate), c = phase(pattern, class, congestor, &busy, &rate);
            if (me == 0) {
                const char *victim = VICTIMS[pattern], *load = CONGESTORS[congestor];
                double share = bulk[congestor] > 0 ? rate / bulk[congestor] : 0;
                printf("%-10s %-10s %-9s %10.1f %10.1f %10.1f %10.1f %8.1f %7.2f\n", CLASSES[class], victim, load, i.p50, i.p99, c.p50, c.p99,
                       c.p99 / i.p99, share);
                fflush(stdout);
                const struct summary *both[] = {&i, &c};
                for (int at = 0; at < 2; at++) {
                    const char *when = at ? "congested" : "isolated";
                    figure("shmem_p99_us", class, victim, load, when, NULL, both[at]->p99, "us", both[at]->p99_low, both[at]->p99_high,
                           both[at]->count);
                    figure("shmem_latency_us", class, victim, load, when, "p50", both[at]->p50, "us", -1, -1, both[at]->count);
                    figure("shmem_latency_us", class, victim, load, when, "p99.9", both[at]->p999, "us", -1, -1, both[at]->count);
                    curve(class, victim, load, when, at ? busy : calm, both[at]->count);
                }
                figure("shmem_congestion_impact", class, victim, load, NULL, NULL, c.p99 / i.p99, "x", c.p99_low / i.p99_high,
                       c.p99_high / i.p99_low, c.count);
                figure("shmem_bulk_share", class, victim, load, NULL, NULL, share, "1", -1, -1, 1);
            }
            free(calm);
            free(busy);
        }
    }
}

static void text(FILE *file, const char *words)
{
    fputc('"', file);
    for (; *words; words++)
        if (*words == '"' || *words == '\\')
            fprintf(file, "\\%c", *words);
        else
            fputc((unsigned char) *words < ' ' ? ' ' : *words, file);
    fputc('"', file);
}

static void open_report(char **name, int count, char **words_of_command)
{
    if (!asked.out || me != 0)
        return;
    static char path[4096];
    mkdir(asked.out, 0777);
    snprintf(path, sizeof path, "%s/report.json.part", asked.out);
    *name = path;
    report = fopen(path, "w");
    survival_file = open_memstream(&survival, &survival_length);
    if (!report || !survival_file) {
        perror(path);
        shmem_global_exit(1);
    }
    fprintf(report, "{\"schema\":\"clearway-report/1\",\"program\":{\"name\":\"shmem-tail\",\"version\":\"0.2.0\"},\"command\":[");
    for (int i = 0; i < count; i++) {
        if (i)
            fputc(',', report);
        text(report, words_of_command[i]);
    }
    char host[256] = "?";
    gethostname(host, sizeof host - 1);
    fprintf(report, "],\"place\":\"job\",\"scenario\":{\"name\":\"shmem-tail\",\"text\":\"\"},\"seed\":%lu,\"verdict\":null,\n", asked.seed);
    fprintf(report,
            "\"parameters\":[{\"name\":\"pes\",\"value\":\"%d\",\"unit\":\"\",\"origin\":\"flag\"},"
            "{\"name\":\"victims\",\"value\":\"%d\",\"unit\":\"\",\"origin\":\"default\"},"
            "{\"name\":\"messages\",\"value\":\"%ld\",\"unit\":\"\",\"origin\":\"flag\"},"
            "{\"name\":\"gap\",\"value\":\"%g\",\"unit\":\"ms\",\"origin\":\"flag\"},"
            "{\"name\":\"window\",\"value\":\"%ld\",\"unit\":\"\",\"origin\":\"flag\"},"
            "{\"name\":\"through\",\"value\":\"%s\",\"unit\":\"\",\"origin\":\"flag\"},"
            "{\"name\":\"threads\",\"value\":\"%ld\",\"unit\":\"\",\"origin\":\"flag\"},"
            "{\"name\":\"block\",\"value\":\"%ld\",\"unit\":\"B\",\"origin\":\"flag\"},"
            "{\"name\":\"nice\",\"value\":\"%ld\",\"unit\":\"\",\"origin\":\"flag\"}],\n",
            pes, victims, asked.messages, asked.gap_s * 1e3, asked.window, WAYS[asked.way], sharing_threads(), asked.block,
            asked.nice);
    fprintf(report, "\"figures\":[");
}

static void close_report(const char *part)
{
    if (!report)
        return;
    char path[4096], created[64];
    time_t seconds = time(NULL);
    strftime(created, sizeof created, "%Y-%m-%dT%H:%M:%SZ", gmtime(&seconds));
    fclose(survival_file);
    fprintf(report, "],\n\"survival\":[%s],\n\"created\":\"%s\"}\n", survival, created);
    free(survival);
    snprintf(path, sizeof path, "%s/report.json", asked.out);
    if (fflush(report) != 0 || fsync(fileno(report)) != 0 || fclose(report) != 0 || rename(part, path) != 0) {
        perror(path);
        shmem_global_exit(1);
    }
    printf("%s\n", path);
}

/* Opens what operations go through, in the class of each role. */
static void open_channels(void)
{
    static const shmemx_qos_t OF_ROLE[] = {SHMEMX_QOS_HIGH, SHMEMX_QOS_HIGH, SHMEMX_QOS_LOW};
    for (int i = 0; i < 3; i++) {
        shmemx_queue_config_t config = {.qtype = SHMEMX_QUEUE_COMM};
        config.sharing_model = asked.way == SHARED ? SHMEMX_QUEUE_SHARED : SHMEMX_QUEUE_EXCLUSIVE;
        /* The first one has no class of its own. */
        if (i > 0)
            config.qos_class = OF_ROLE[i], config.mask = SHMEMX_QCFG_QOS;
        if (asked.way != CONTEXT && shmemx_queue_create(&channels[i].queue, SHMEM_TEAM_WORLD, &config) != 0)
            refuse("no queue with a class", "raise SHMEM_SYMMETRIC_SIZE");
        if (asked.way == CONTEXT && i > 0 && shmem_ctx_create(SHMEMX_CTX_CLASS(OF_ROLE[i]), &channels[i].ctx) != 0)
            refuse("no context with a class", "free contexts");
    }
}

static void close_channels(void)
{
    for (int i = 0; i < 3; i++)
        if (channels[i].queue)
            shmemx_queue_destroy(channels[i].queue);
        else if (i > 0)
            shmem_ctx_destroy(channels[i].ctx);
}

/* Returns whether threads will call the library. The other options are read after shmem_init, which `refuse` needs. */
static int want_threads(int count, char **words)
{
    for (int i = 1; i + 1 < count; i++)
        if (strcmp(words[i], "--through") == 0 && strcmp(words[i + 1], "shared") == 0)
            return 1;
    return 0;
}

int main(int count, char **arguments)
{
    char *part = NULL;
    int level;
    shmem_init_thread(want_threads(count, arguments) ? SHMEM_THREAD_MULTIPLE : SHMEM_THREAD_SINGLE, &level);
    me = shmem_my_pe();
    pes = shmem_n_pes();
    read_options(count, arguments);
    if (pes < 4 || pes > PES_MAX)
        refuse("too few or too many PEs", "start 4 to 4096");
    find_hosts();
    draw_roles();
    if (place >= victims && asked.nice > 0)
        lower_priority((int) asked.nice);
    latencies = shmem_malloc(sizeof *latencies * (size_t) asked.messages);
    words = shmem_calloc(WORDS, sizeof *words);
    stop = shmem_calloc(1, sizeof *stop);
    moved = shmem_calloc(MOVED, sizeof *moved);
    blocks = shmem_malloc(2 * BLOCK_MAX);
    if (!latencies || !words || !stop || !moved || !blocks)
        refuse("the symmetric heap is too small", "raise SHMEM_SYMMETRIC_SIZE");
    memset(blocks, 1, 2 * BLOCK_MAX);
    open_channels();
    open_report(&part, count, arguments);
    if (me == 0)
        printf("%d PEs, %d victims; latencies in us from the intended time\n%-10s %-10s %-9s %10s %10s %10s %10s %8s %7s\n", pes, victims, "classes",
               "victim", "congestor", "p50 calm", "p99 calm", "p50 busy", "p99 busy", "p99/p99", "bulk");
    for (int class = 0; class < CLASS_KINDS; class++)
        if (asked.classes[class])
            measure(class);
    close_report(part);
    close_channels();
    shmem_finalize();
    return 0;
}
