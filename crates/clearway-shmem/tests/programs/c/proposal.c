/* Queues as their proposal and its extension by classes write them: fields, names and declarations as printed. */
#include "expect.h"

#include <shmem_queue.h>

int shmem_queue_comm_create(shmem_queue_t *queue, shmem_queue_config_t *qconfig);
int shmem_queue_comm_destroy(shmem_queue_t queue);
int shmem_queue_int_comm_push(shmem_queue_t queue, int *dest, int *src, size_t nelems, int pe, uint64_t op);
int shmem_queue_longdouble_comm_push(shmem_queue_t queue, long double *dest, long double *src, size_t nelems, int pe, uint64_t op);
int shmem_queue_progress(shmem_queue_t queue);
int shmem_queue_global_flush(shmem_queue_t queue);
int shmem_queue_local_flush(shmem_queue_t);
int shmem_query_attrib(shmem_queue_t queue, shmem_queue_attrib_t *attr);
int shmem_query_size(shmem_queue_t queue, size_t *size);
int shmem_queue_data_create(shmem_queue_t *queue, shmem_queue_config_t *qconfig, shmem_team_t team);
int shmem_query_data_size(shmem_queue_t queue, size_t *incoming, size_t *outgoing, int PE);

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
