/* Queues as their proposal and its extension by classes write them: fields, names and declarations as printed. */
#include "expect.h"

#include <shmem_queue.h>
#include <stddef.h>

int shmem_queue_comm_create(shmem_queue_t *queue, shmem_queue_config_t *qconfig);
int shmem_queue_comm_destroy(shmem_queue_t queue);
#define PUSH(NAME, TYPE) \
    int shmem_queue_##NAME##_comm_push(shmem_queue_t queue, TYPE *dest, TYPE *src, size_t nelems, int pe, uint64_t op);
PUSH(float, float) PUSH(double, double) PUSH(longdouble, long double) PUSH(char, char) PUSH(schar, signed char)
PUSH(short, short) PUSH(int, int) PUSH(long, long) PUSH(longlong, long long) PUSH(uchar, unsigned char)
PUSH(ushort, unsigned short) PUSH(uint, unsigned int) PUSH(ulong, unsigned long) PUSH(ulonglong, unsigned long long)
PUSH(int8, int8_t) PUSH(int16, int16_t) PUSH(int32, int32_t) PUSH(int64, int64_t) PUSH(uint8, uint8_t)
PUSH(uint16, uint16_t) PUSH(uint32, uint32_t) PUSH(uint64, uint64_t) PUSH(size, size_t) PUSH(ptrdiff, ptrdiff_t)
int shmem_queue_progress(shmem_queue_t queue);
int shmem_queue_global_flush(shmem_queue_t queue);
int shmem_queue_local_flush(shmem_queue_t);
int shmem_query_attrib(shmem_queue_t queue, shmem_queue_attrib_t *attr);
int shmem_query_size(shmem_queue_t queue, size_t *size);
int shmem_queue_data_create(shmem_queue_t *queue, shmem_queue_config_t *qconfig, shmem_team_t team);
int shmem_query_data_size(shmem_queue_t queue, size_t *incoming, size_t *outgoing, int PE);

/* The values and the order of fields that the sources have. */
_Static_assert(SHMEM_QUEUE_COMM == 0 && SHMEM_QUEUE_DATA == 1 && SHMEM_QUEUE_QOS == 2, "types");
_Static_assert(SHMEM_QOS_HIGH_PRI == 0 && SHMEM_QOS_MEDIUM_PRI == 1 && SHMEM_QOS_LOW_PRI == 2, "classes");
_Static_assert(SHMEM_QUEUE_EXCLUSIVE == 0 && SHMEM_QUEUE_SHARED == 1, "sharing");
#define BEFORE(FIRST, SECOND)                                                                           \
    _Static_assert(offsetof(struct shmem_queue_config, FIRST) < offsetof(shmem_queue_config_t, SECOND), \
                   #FIRST " before " #SECOND)
BEFORE(qtype, sharing_model);
BEFORE(sharing_model, max_elems);
BEFORE(max_elems, max_bytes);
BEFORE(max_bytes, qos_class);
BEFORE(qos_class, timeout_flush);
BEFORE(timeout_flush, op_type);
BEFORE(op_type, pe_type);

static int counts[16];
static long elements[4];

static void communication(int pes, int next)
{
    shmem_queue_config_t config = {
        .qtype = SHMEM_QUEUE_COMM, .sharing_model = SHMEM_QUEUE_EXCLUSIVE, .max_elems = 100, .max_bytes = 0,
        .qos_class = SHMEM_QOS_MEDIUM_PRI, .timeout_flush = SHMEM_QUEUE_MAX_TIMEOUT,
        .op_type = SHMEM_OP_ATOMIC_ADD, .pe_type = SHMEM_PE_ALL,
    };
    shmem_queue_t queue;
    shmem_queue_attrib_t attr;
    size_t size;
    int one = 1;
    EXPECT(shmem_queue_comm_create(&queue, &config) == 0);
    EXPECT(shmem_queue_comm_push(queue, &counts[1], &one, 1, next, SHMEM_OP_ATOMIC_ADD) == 0);
    EXPECT(shmem_queue_comm_push(queue, &counts[1], &one, next, SHMEM_OP_ATOMIC_INC) == 0);
    EXPECT(shmem_queue_int_comm_push(queue, &counts[2], &one, 1, next, SHMEM_OP_PUT) == 0);
    EXPECT(shmem_query_attrib(queue, &attr) == 0 && shmem_query_size(queue, &size) == 0);
    EXPECT(attr.outstanding_elems + attr.available_elems == 100 && attr.queue_id != 0);
    /* A copy for a neighbour is over at once, and what is for a PE of another host at any time. */
    if (shmem_ptr(counts, next) != NULL)
        EXPECT(attr.outstanding_elems == size && size == (pes > 1 ? 2 : 0));
    else
        EXPECT(attr.outstanding_elems >= size && size <= 3);
    EXPECT(shmem_queue_local_flush(queue) == 0 && shmem_queue_progress(queue) == 0);
    EXPECT(shmem_queue_comm_destroy(queue) == 0);
    shmem_queue_config_t low = {.qtype = SHMEM_QUEUE_QOS, .thread_model = SHMEM_QUEUE_EXCLUSIVE, .qos_class = SHMEM_QOS_LOW_PRI};
    EXPECT(shmem_queue_comm_create(&queue, &low) == 0 && shmem_query_attrib(queue, &attr) == 0);
    EXPECT(attr.granted_class == SHMEM_QOS_LOW_PRI && shmem_queue_global_flush(queue) == 0);
    EXPECT(shmem_queue_comm_destroy(queue) == 0);
    shmem_barrier_all();
    EXPECT(counts[1] == 2 && counts[2] == 1);
}

static void data(int next, int last)
{
    shmem_queue_config_t config = {.qtype = SHMEM_QUEUE_DATA, .max_bytes = 1024, .data_elem_size = sizeof(long)};
    shmem_queue_t queue;
    size_t incoming, outgoing;
    long source[2] = {next, last};
    EXPECT(shmem_queue_data_create(&queue, &config, SHMEM_TEAM_WORLD) == 0);
    EXPECT(shmem_queue_data_push(queue, source, 2, next) == 0 && shmem_queue_global_flush(queue) == 0);
    EXPECT(shmem_query_data_size(queue, &incoming, &outgoing, last) == 0 && incoming == 2 * sizeof(long));
    EXPECT(shmem_queue_data_pop(queue, elements, 1, last) == 0);
    EXPECT(shmem_queue_long_data_pop(queue, &elements[1], 1, SHMEMX_PE_ANY) == 0);
    EXPECT(elements[0] == shmem_my_pe() && shmem_queue_data_progress(queue, SHMEM_TEAM_WORLD) >= 0);
    shmem_barrier_all();
    EXPECT(shmem_queue_data_destroy(&queue, SHMEM_TEAM_WORLD) == 0 && queue == SHMEM_QUEUE_INVALID);
}

int main(void)
{
    shmem_init();
    int me = shmem_my_pe(), pes = shmem_n_pes(), next = (me + 1) % pes;
    communication(pes, next);
    data(next, (me + pes - 1) % pes);
    shmem_finalize();
    return 0;
}
