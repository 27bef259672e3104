/* What libfabric does without Clearway, for `cargo xtask bench sealed` and `ofi`: goodput of messages, one-sided
   writes, messages in turns. ofi_peer ROLE PROVIDER LOCAL PEER SECONDS SIZE WAITING; ROLE send|receive|write|target|ping|pong,
   WAITING poll|wait. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { WINDOW = 16, RENDEZVOUS = 7070, SILENCE_MS = 5000 };

struct card { uint64_t length, key, start; char name[64]; };

static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_ep *ep;
static struct fid_av *av;
static struct fid_cq *cq;
static struct fid_mr *mr;
static struct fi_context contexts[2 * WINDOW];
static int waiting;

static void check(long result, const char *what) {
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", what, fi_strerror((int)-result));
        exit(1);
    }
}

static uint64_t clock_ns(clockid_t id) {
    struct timespec at;
    clock_gettime(id, &at);
    return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

static void open_provider(const char *provider, const char *local) {
    struct fi_info *hints = fi_allocinfo(), *info;
    hints->caps = FI_MSG | FI_RMA;
    hints->mode = FI_CONTEXT;
    hints->ep_attr->type = FI_EP_RDM;
    hints->addr_format = FI_SOCKADDR_IN;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->fabric_attr->prov_name = strdup(provider);
    check(fi_getinfo(FI_VERSION(1, 17), local, NULL, FI_SOURCE, hints, &info), "fi_getinfo");
    check(fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
    check(fi_domain(fabric, info, &domain, NULL), "fi_domain");
    struct fi_cq_attr cq_attr = {.size = 4 * WINDOW, .format = FI_CQ_FORMAT_MSG};
    cq_attr.wait_obj = waiting ? FI_WAIT_FD : FI_WAIT_NONE;
    struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
    check(fi_cq_open(domain, &cq_attr, &cq, NULL), "fi_cq_open");
    check(fi_av_open(domain, &av_attr, &av, NULL), "fi_av_open");
    check(fi_endpoint(domain, info, &ep, NULL), "fi_endpoint");
    check(fi_ep_bind(ep, &av->fid, 0), "fi_ep_bind");
    check(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
    check(fi_enable(ep), "fi_enable");
}

/* Exchanges cards over a TCP connection; the far end accepts it. */
static fi_addr_t meet(int near, const char *local, const char *peer, struct card *mine, struct card *theirs) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(RENDEZVOUS)};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    size_t length = sizeof mine->name;
    fi_addr_t address;
    check(fi_getname(&ep->fid, mine->name, &length), "fi_getname");
    inet_pton(AF_INET, near ? peer : local, &at.sin_addr);
    if (near) {
        if (connect(fd, (struct sockaddr *)&at, sizeof at)) exit(1);
    } else {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, 1)) exit(1);
        printf("ready\n");
        fflush(stdout);
        fd = accept(fd, NULL, NULL);
    }
    if (write(fd, mine, sizeof *mine) != sizeof *mine) exit(1);
    if (recv(fd, theirs, sizeof *theirs, MSG_WAITALL) != sizeof *theirs) exit(1);
    check(fi_av_insert(av, theirs->name, 1, &address, 0, NULL) == 1 ? 0 : -FI_EADDRNOTAVAIL, "fi_av_insert");
    return address;
}

/* Takes up to `most` completions; waits for the first if asked to. */
static long take(struct fi_cq_msg_entry *entries, size_t most) {
    long taken = waiting ? fi_cq_sread(cq, entries, most, NULL, SILENCE_MS) : fi_cq_read(cq, entries, most);
    if (taken == -FI_EAGAIN || taken == -FI_EINTR) return 0;
    check(taken, "fi_cq_read");
    return taken;
}

static int ascending(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Waits for one message; its receive is posted again. Sends complete meanwhile. Returns its length. */
static size_t await_message(char *memory, size_t size, void *desc) {
    struct fi_cq_msg_entry entry;
    for (;;) {
        if (!take(&entry, 1) || !(entry.flags & FI_RECV)) continue;
        long slot = (struct fi_context *)entry.op_context - contexts;
        check(fi_recv(ep, memory + slot * size, size, desc, FI_ADDR_UNSPEC, &contexts[slot]), "fi_recv");
        return entry.len;
    }
}

static void say(char *memory, size_t length, void *desc, fi_addr_t peer, uint64_t number) {
    long result;
    while ((result = fi_send(ep, memory, length, desc, peer, &contexts[WINDOW + number % WINDOW])) == -FI_EAGAIN)
        fi_cq_read(cq, NULL, 0);
    check(result, "fi_send");
}

static int take_turns(int first, char *memory, size_t size, void *desc, fi_addr_t peer, uint64_t length_ns) {
    enum { WARM = 200, MOST = 4000000 };
    uint64_t *half = malloc(MOST * sizeof *half), begin = 0, sum = 0, turns = 0;
    for (uint64_t turn = 0; !first; turn++) {
        if (await_message(memory, size, desc) == 1) return 0;
        say(memory, size, desc, peer, turn);
    }
    for (uint64_t turn = 0; turns < MOST; turn++) {
        uint64_t sent = clock_ns(CLOCK_MONOTONIC), now;
        if (turn == WARM) begin = sent;
        say(memory, size, desc, peer, turn);
        await_message(memory, size, desc);
        now = clock_ns(CLOCK_MONOTONIC);
        if (turn >= WARM) half[turns++] = (now - sent) / 2, sum += (now - sent) / 2;
        if (turn >= WARM && now - begin >= length_ns) break;
    }
    say(memory, 1, desc, peer, 0);
    for (uint64_t until = clock_ns(CLOCK_MONOTONIC) + 200000000u; clock_ns(CLOCK_MONOTONIC) < until;) fi_cq_read(cq, NULL, 0);
    qsort(half, turns, sizeof *half, ascending);
    printf("round_trips %lu min_ns %lu p50_ns %lu mean_ns %lu\n", turns, half[0], half[turns / 2], sum / turns);
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 8) return 2;
    const char *role = argv[1];
    int turns = !strcmp(role, "ping") || !strcmp(role, "pong");
    int near = !strcmp(role, "send") || !strcmp(role, "write") || !strcmp(role, "ping"), one_sided = !strcmp(role, "write") || !strcmp(role, "target");
    size_t size = strtoul(argv[6], NULL, 10);
    uint64_t length_ns = (uint64_t)(atof(argv[5]) * 1e9), bytes = 0, messages = 0, begin = 0, used = 0, last = 0;
    waiting = !strcmp(argv[7], "wait");
    open_provider(argv[2], argv[3]);
    char *memory = malloc(WINDOW * size);
    /* Written once, like an application's: pages that nobody wrote are all one page of zeros, which stays in the cache. */
    memset(memory, 0x5a, WINDOW * size);
    struct card mine = {.start = 0}, theirs;
    check(fi_mr_reg(domain, memory, WINDOW * size, FI_SEND | FI_RECV | FI_WRITE | FI_REMOTE_WRITE, 0, 1, 0, &mr, NULL), "fi_mr_reg");
    mine.key = fi_mr_key(mr);
    fi_addr_t peer = meet(near, argv[3], argv[4], &mine, &theirs);
    struct fi_cq_msg_entry entries[WINDOW];
    void *desc = fi_mr_desc(mr);
    if (turns) {
        for (int i = 0; i < WINDOW; i++) check(fi_recv(ep, memory + i * size, size, desc, FI_ADDR_UNSPEC, &contexts[i]), "fi_recv");
        return take_turns(near, memory, size, desc, peer, length_ns);
    }
    if (!near) {
        for (int i = 0; i < WINDOW; i++) check(fi_recv(ep, memory + i * size, size, desc, FI_ADDR_UNSPEC, &contexts[i]), "fi_recv");
        for (int ended = 0; !ended;) {
            long taken = take(entries, WINDOW);
            for (long i = 0; i < taken; i++) {
                if (!(entries[i].flags & FI_RECV)) continue;
                if (!used) begin = clock_ns(CLOCK_MONOTONIC), used = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
                if (entries[i].len == 1) { ended = 1; break; }
                bytes += entries[i].len, messages++;
                long slot = (struct fi_context *)entries[i].op_context - contexts;
                check(fi_recv(ep, memory + slot * size, size, desc, FI_ADDR_UNSPEC, &contexts[slot]), "fi_recv");
            }
        }
        last = clock_ns(CLOCK_MONOTONIC);
        if (one_sided) return 0;
        printf("messages %lu bytes %lu wall_ns %lu cpu_ns %lu\n", messages, bytes, last - begin,
               clock_ns(CLOCK_PROCESS_CPUTIME_ID) - used);
        return 0;
    }
    uint64_t under_way = 0, end = 0;
    for (int warm = 1;; ) {
        uint64_t now = clock_ns(CLOCK_MONOTONIC);
        if (!end) end = now + 200000000u;
        if (warm && now >= end) warm = 0, bytes = messages = 0, begin = now, used = clock_ns(CLOCK_PROCESS_CPUTIME_ID), end = now + length_ns;
        if (!warm && now >= end) break;
        while (under_way < WINDOW) {
            long slot = (long)((messages + under_way) % WINDOW);
            long result = one_sided ? fi_write(ep, memory + slot * size, size, desc, peer, (uint64_t)slot * size, theirs.key, &contexts[WINDOW + slot])
                                    : fi_send(ep, memory + slot * size, size, desc, peer, &contexts[WINDOW + slot]);
            if (result == -FI_EAGAIN) break;
            check(result, "fi_send");
            under_way++;
        }
        long taken = take(entries, WINDOW);
        under_way -= (uint64_t)taken, messages += (uint64_t)taken, bytes += (uint64_t)taken * size;
    }
    uint64_t wall = clock_ns(CLOCK_MONOTONIC) - begin;
    used = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - used;
    while (under_way) under_way -= (uint64_t)take(entries, WINDOW);
    while (fi_send(ep, memory, 1, desc, peer, &contexts[WINDOW]) == -FI_EAGAIN) fi_cq_read(cq, entries, WINDOW);
    for (uint64_t until = clock_ns(CLOCK_MONOTONIC) + 200000000u; clock_ns(CLOCK_MONOTONIC) < until;) fi_cq_read(cq, entries, WINDOW);
    printf("messages %lu bytes %lu wall_ns %lu cpu_ns %lu\n", messages, bytes, wall, used);
    return 0;
}
