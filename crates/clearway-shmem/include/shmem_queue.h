/* Queues under the names of the proposal. Written by `cargo xtask header` from the table of the library; changes go there. */
#ifndef CLEARWAY_SHMEM_QUEUE_H
#define CLEARWAY_SHMEM_QUEUE_H

#include <math.h>

#include "shmemx_queue.h"

typedef shmemx_queue_t shmem_queue_t;
typedef shmemx_queue_type_t shmem_queue_type_t;
typedef shmemx_queue_sharing_t shmem_queue_sharing_t;
typedef shmemx_queue_sharing_t shmem_queue_thread_t;
typedef shmemx_qos_t shmem_qos_class_t;
typedef shmemx_pe_type_t shmem_pe_type_t;
typedef shmemx_op_type_t shmem_op_type_t;
typedef shmemx_queue_config_t shmem_queue_config_t;
typedef shmemx_queue_attr_t shmem_queue_attrib_t;
typedef shmemx_queue_attr_t shmem_queue_attr_t;

#define SHMEM_QUEUE_INVALID SHMEMX_QUEUE_INVALID
#define SHMEM_QUEUE_COMM SHMEMX_QUEUE_COMM
#define SHMEM_QUEUE_DATA SHMEMX_QUEUE_DATA
#define SHMEM_QUEUE_QOS SHMEMX_QUEUE_QOS
#define SHMEM_QUEUE_EXCLUSIVE SHMEMX_QUEUE_EXCLUSIVE
#define SHMEM_QUEUE_SHARED SHMEMX_QUEUE_SHARED
#define SHMEM_QOS_HIGH_PRI SHMEMX_QOS_HIGH
#define SHMEM_QOS_MEDIUM_PRI SHMEMX_QOS_MEDIUM
#define SHMEM_QOS_LOW_PRI SHMEMX_QOS_LOW
#define SHMEM_PE_SAME SHMEMX_PE_SAME
#define SHMEM_PE_ALL SHMEMX_PE_ALL
#define SHMEM_OP_PUT SHMEMX_OP_PUT
#define SHMEM_OP_GET SHMEMX_OP_GET
#define SHMEM_OP_ATOMIC_ADD SHMEMX_OP_ATOMIC_ADD
#define SHMEM_OP_ATOMIC_INC SHMEMX_OP_ATOMIC_INC
#define SHMEM_QUEUE_MAX_TIMEOUT INFINITY

static inline int shmem_queue_comm_create(shmem_queue_t *queue, shmem_queue_config_t *qconfig)
{
    return shmemx_queue_create(queue, SHMEM_TEAM_WORLD, qconfig);
}

static inline int shmem_queue_comm_create_team(shmem_queue_t *queue, shmem_queue_config_t *qconfig, shmem_team_t team)
{
    return shmemx_queue_create(queue, team, qconfig);
}

static inline int shmem_queue_comm_destroy(shmem_queue_t queue)
{
    return shmemx_queue_destroy(queue);
}

static inline int shmem_query_attrib(shmem_queue_t queue, shmem_queue_attrib_t *attr)
{
    return shmemx_queue_attr(queue, attr);
}

static inline int shmem_queue_query_attrib(shmem_queue_t queue, shmem_queue_attrib_t *attr)
{
    return shmemx_queue_attr(queue, attr);
}

static inline int shmem_query_size(shmem_queue_t queue, size_t *size)
{
    shmemx_queue_attr_t attr;
    int answer = shmemx_queue_attr(queue, &attr);
    if (answer == 0)
        *size = (size_t) attr.outstanding_elems;
    return answer;
}

static inline int shmem_queue_query_size(shmem_queue_t queue, size_t *size)
{
    return shmem_query_size(queue, size);
}

static inline int shmem_query_data_size(shmem_queue_t queue, size_t *incoming, size_t *outgoing, int pe)
{
    return shmemx_queue_data_size(queue, incoming, outgoing, pe);
}

static inline int shmem_queue_query_data_size(shmem_queue_t queue, size_t *incoming, size_t *outgoing, int pe)
{
    return shmemx_queue_data_size(queue, incoming, outgoing, pe);
}

static inline int shmem_queue_progress(shmem_queue_t queue)
{
    return shmemx_queue_progress(queue);
}

static inline int shmem_queue_local_flush(shmem_queue_t queue)
{
    return shmemx_queue_flush(queue);
}

static inline int shmem_queue_flush(shmem_queue_t queue)
{
    return shmemx_queue_flush(queue);
}

static inline int shmem_queue_global_flush(shmem_queue_t queue)
{
    return shmemx_queue_flush(queue);
}

static inline int shmem_queue_data_create(shmem_queue_t *queue, shmem_queue_config_t *qconfig, shmem_team_t team)
{
    shmem_queue_config_t config = *qconfig;
    config.qtype = SHMEMX_QUEUE_DATA;
    return shmemx_queue_create(queue, team, &config);
}

static inline int shmem_queue_data_destroy(shmem_queue_t *queue, shmem_team_t team)
{
    int answer = shmemx_queue_destroy(*queue);
    (void) team;
    if (answer == 0)
        *queue = SHMEMX_QUEUE_INVALID;
    return answer;
}

static inline int shmem_queue_data_progress(shmem_queue_t queue, shmem_team_t team)
{
    (void) team;
    return shmemx_queue_progress(queue);
}

static inline int shmem_queue_int_comm_push(shmem_queue_t queue, int *dest, int *src, size_t nelems, int pe, uint64_t op)
{
    return shmemx_queue_int_push(queue, dest, src, nelems, pe, op);
}
static inline int shmem_queue_long_comm_push(shmem_queue_t queue, long *dest, long *src, size_t nelems, int pe, uint64_t op)
{
    return shmemx_queue_long_push(queue, dest, src, nelems, pe, op);
}
static inline int shmem_queue_longlong_comm_push(shmem_queue_t queue, long long *dest, long long *src, size_t nelems, int pe, uint64_t op)
{
    return shmemx_queue_longlong_push(queue, dest, src, nelems, pe, op);
}
static inline int shmem_queue_uint_comm_push(shmem_queue_t queue, unsigned int *dest, unsigned int *src, size_t nelems, int pe, uint64_t op)
{
    return shmemx_queue_uint_push(queue, dest, src, nelems, pe, op);
}
static inline int shmem_queue_ulong_comm_push(shmem_queue_t queue, unsigned long *dest, unsigned long *src, size_t nelems, int pe, uint64_t op)
{
    return shmemx_queue_ulong_push(queue, dest, src, nelems, pe, op);
}
static inline int shmem_queue_ulonglong_comm_push(shmem_queue_t queue, unsigned long long *dest, unsigned long long *src, size_t nelems, int pe, uint64_t op)
{
    return shmemx_queue_ulonglong_push(queue, dest, src, nelems, pe, op);
}
static inline int shmem_queue_int32_comm_push(shmem_queue_t queue, int32_t *dest, int32_t *src, size_t nelems, int pe, uint64_t op)
{
    return shmemx_queue_int32_push(queue, dest, src, nelems, pe, op);
}
static inline int shmem_queue_int64_comm_push(shmem_queue_t queue, int64_t *dest, int64_t *src, size_t nelems, int pe, uint64_t op)
{
    return shmemx_queue_int64_push(queue, dest, src, nelems, pe, op);
}
static inline int shmem_queue_uint32_comm_push(shmem_queue_t queue, uint32_t *dest, uint32_t *src, size_t nelems, int pe, uint64_t op)
{
    return shmemx_queue_uint32_push(queue, dest, src, nelems, pe, op);
}
static inline int shmem_queue_uint64_comm_push(shmem_queue_t queue, uint64_t *dest, uint64_t *src, size_t nelems, int pe, uint64_t op)
{
    return shmemx_queue_uint64_push(queue, dest, src, nelems, pe, op);
}
static inline int shmem_queue_size_comm_push(shmem_queue_t queue, size_t *dest, size_t *src, size_t nelems, int pe, uint64_t op)
{
    return shmemx_queue_size_push(queue, dest, src, nelems, pe, op);
}
static inline int shmem_queue_ptrdiff_comm_push(shmem_queue_t queue, ptrdiff_t *dest, ptrdiff_t *src, size_t nelems, int pe, uint64_t op)
{
    return shmemx_queue_ptrdiff_push(queue, dest, src, nelems, pe, op);
}
static inline int shmem_queue_float_comm_push(shmem_queue_t queue, float *dest, float *src, size_t nelems, int pe, uint64_t op)
{
    return shmemx_queue_float_push(queue, dest, src, nelems, pe, op);
}
static inline int shmem_queue_double_comm_push(shmem_queue_t queue, double *dest, double *src, size_t nelems, int pe, uint64_t op)
{
    return shmemx_queue_double_push(queue, dest, src, nelems, pe, op);
}
static inline int shmem_queue_longdouble_comm_push(shmem_queue_t queue, long double *dest, long double *src, size_t nelems, int pe, uint64_t op)
{
    return shmemx_queue_longdouble_push(queue, dest, src, nelems, pe, op);
}
static inline int shmem_queue_char_comm_push(shmem_queue_t queue, char *dest, char *src, size_t nelems, int pe, uint64_t op)
{
    return shmemx_queue_char_push(queue, dest, src, nelems, pe, op);
}
static inline int shmem_queue_schar_comm_push(shmem_queue_t queue, signed char *dest, signed char *src, size_t nelems, int pe, uint64_t op)
{
    return shmemx_queue_schar_push(queue, dest, src, nelems, pe, op);
}
static inline int shmem_queue_short_comm_push(shmem_queue_t queue, short *dest, short *src, size_t nelems, int pe, uint64_t op)
{
    return shmemx_queue_short_push(queue, dest, src, nelems, pe, op);
}
static inline int shmem_queue_uchar_comm_push(shmem_queue_t queue, unsigned char *dest, unsigned char *src, size_t nelems, int pe, uint64_t op)
{
    return shmemx_queue_uchar_push(queue, dest, src, nelems, pe, op);
}
static inline int shmem_queue_ushort_comm_push(shmem_queue_t queue, unsigned short *dest, unsigned short *src, size_t nelems, int pe, uint64_t op)
{
    return shmemx_queue_ushort_push(queue, dest, src, nelems, pe, op);
}
static inline int shmem_queue_int8_comm_push(shmem_queue_t queue, int8_t *dest, int8_t *src, size_t nelems, int pe, uint64_t op)
{
    return shmemx_queue_int8_push(queue, dest, src, nelems, pe, op);
}
static inline int shmem_queue_int16_comm_push(shmem_queue_t queue, int16_t *dest, int16_t *src, size_t nelems, int pe, uint64_t op)
{
    return shmemx_queue_int16_push(queue, dest, src, nelems, pe, op);
}
static inline int shmem_queue_uint8_comm_push(shmem_queue_t queue, uint8_t *dest, uint8_t *src, size_t nelems, int pe, uint64_t op)
{
    return shmemx_queue_uint8_push(queue, dest, src, nelems, pe, op);
}
static inline int shmem_queue_uint16_comm_push(shmem_queue_t queue, uint16_t *dest, uint16_t *src, size_t nelems, int pe, uint64_t op)
{
    return shmemx_queue_uint16_push(queue, dest, src, nelems, pe, op);
}
static inline int shmem_queue_comm_pushmem(shmem_queue_t queue, void *dest, void *src, size_t nelems, int pe, uint64_t op)
{
    return shmemx_queue_pushmem(queue, dest, src, nelems, pe, op);
}
static inline int shmem_queue_int_data_push(shmem_queue_t queue, int *src_buffer, size_t nelems, int pe)
{
    return shmemx_queue_int_data_push(queue, src_buffer, nelems, pe);
}
static inline int shmem_queue_long_data_push(shmem_queue_t queue, long *src_buffer, size_t nelems, int pe)
{
    return shmemx_queue_long_data_push(queue, src_buffer, nelems, pe);
}
static inline int shmem_queue_longlong_data_push(shmem_queue_t queue, long long *src_buffer, size_t nelems, int pe)
{
    return shmemx_queue_longlong_data_push(queue, src_buffer, nelems, pe);
}
static inline int shmem_queue_uint_data_push(shmem_queue_t queue, unsigned int *src_buffer, size_t nelems, int pe)
{
    return shmemx_queue_uint_data_push(queue, src_buffer, nelems, pe);
}
static inline int shmem_queue_ulong_data_push(shmem_queue_t queue, unsigned long *src_buffer, size_t nelems, int pe)
{
    return shmemx_queue_ulong_data_push(queue, src_buffer, nelems, pe);
}
static inline int shmem_queue_ulonglong_data_push(shmem_queue_t queue, unsigned long long *src_buffer, size_t nelems, int pe)
{
    return shmemx_queue_ulonglong_data_push(queue, src_buffer, nelems, pe);
}
static inline int shmem_queue_int32_data_push(shmem_queue_t queue, int32_t *src_buffer, size_t nelems, int pe)
{
    return shmemx_queue_int32_data_push(queue, src_buffer, nelems, pe);
}
static inline int shmem_queue_int64_data_push(shmem_queue_t queue, int64_t *src_buffer, size_t nelems, int pe)
{
    return shmemx_queue_int64_data_push(queue, src_buffer, nelems, pe);
}
static inline int shmem_queue_uint32_data_push(shmem_queue_t queue, uint32_t *src_buffer, size_t nelems, int pe)
{
    return shmemx_queue_uint32_data_push(queue, src_buffer, nelems, pe);
}
static inline int shmem_queue_uint64_data_push(shmem_queue_t queue, uint64_t *src_buffer, size_t nelems, int pe)
{
    return shmemx_queue_uint64_data_push(queue, src_buffer, nelems, pe);
}
static inline int shmem_queue_size_data_push(shmem_queue_t queue, size_t *src_buffer, size_t nelems, int pe)
{
    return shmemx_queue_size_data_push(queue, src_buffer, nelems, pe);
}
static inline int shmem_queue_ptrdiff_data_push(shmem_queue_t queue, ptrdiff_t *src_buffer, size_t nelems, int pe)
{
    return shmemx_queue_ptrdiff_data_push(queue, src_buffer, nelems, pe);
}
static inline int shmem_queue_float_data_push(shmem_queue_t queue, float *src_buffer, size_t nelems, int pe)
{
    return shmemx_queue_float_data_push(queue, src_buffer, nelems, pe);
}
static inline int shmem_queue_double_data_push(shmem_queue_t queue, double *src_buffer, size_t nelems, int pe)
{
    return shmemx_queue_double_data_push(queue, src_buffer, nelems, pe);
}
static inline int shmem_queue_longdouble_data_push(shmem_queue_t queue, long double *src_buffer, size_t nelems, int pe)
{
    return shmemx_queue_longdouble_data_push(queue, src_buffer, nelems, pe);
}
static inline int shmem_queue_char_data_push(shmem_queue_t queue, char *src_buffer, size_t nelems, int pe)
{
    return shmemx_queue_char_data_push(queue, src_buffer, nelems, pe);
}
static inline int shmem_queue_schar_data_push(shmem_queue_t queue, signed char *src_buffer, size_t nelems, int pe)
{
    return shmemx_queue_schar_data_push(queue, src_buffer, nelems, pe);
}
static inline int shmem_queue_short_data_push(shmem_queue_t queue, short *src_buffer, size_t nelems, int pe)
{
    return shmemx_queue_short_data_push(queue, src_buffer, nelems, pe);
}
static inline int shmem_queue_uchar_data_push(shmem_queue_t queue, unsigned char *src_buffer, size_t nelems, int pe)
{
    return shmemx_queue_uchar_data_push(queue, src_buffer, nelems, pe);
}
static inline int shmem_queue_ushort_data_push(shmem_queue_t queue, unsigned short *src_buffer, size_t nelems, int pe)
{
    return shmemx_queue_ushort_data_push(queue, src_buffer, nelems, pe);
}
static inline int shmem_queue_int8_data_push(shmem_queue_t queue, int8_t *src_buffer, size_t nelems, int pe)
{
    return shmemx_queue_int8_data_push(queue, src_buffer, nelems, pe);
}
static inline int shmem_queue_int16_data_push(shmem_queue_t queue, int16_t *src_buffer, size_t nelems, int pe)
{
    return shmemx_queue_int16_data_push(queue, src_buffer, nelems, pe);
}
static inline int shmem_queue_uint8_data_push(shmem_queue_t queue, uint8_t *src_buffer, size_t nelems, int pe)
{
    return shmemx_queue_uint8_data_push(queue, src_buffer, nelems, pe);
}
static inline int shmem_queue_uint16_data_push(shmem_queue_t queue, uint16_t *src_buffer, size_t nelems, int pe)
{
    return shmemx_queue_uint16_data_push(queue, src_buffer, nelems, pe);
}
static inline int shmem_queue_data_pushmem(shmem_queue_t queue, void *src_buffer, size_t nelems, int pe)
{
    return shmemx_queue_data_pushmem(queue, src_buffer, nelems, pe);
}
static inline int shmem_queue_int_data_pop(shmem_queue_t queue, int *dest_buffer, size_t nelems, int pe)
{
    return shmemx_queue_int_data_pop(queue, dest_buffer, nelems, &pe);
}
static inline int shmem_queue_long_data_pop(shmem_queue_t queue, long *dest_buffer, size_t nelems, int pe)
{
    return shmemx_queue_long_data_pop(queue, dest_buffer, nelems, &pe);
}
static inline int shmem_queue_longlong_data_pop(shmem_queue_t queue, long long *dest_buffer, size_t nelems, int pe)
{
    return shmemx_queue_longlong_data_pop(queue, dest_buffer, nelems, &pe);
}
static inline int shmem_queue_uint_data_pop(shmem_queue_t queue, unsigned int *dest_buffer, size_t nelems, int pe)
{
    return shmemx_queue_uint_data_pop(queue, dest_buffer, nelems, &pe);
}
static inline int shmem_queue_ulong_data_pop(shmem_queue_t queue, unsigned long *dest_buffer, size_t nelems, int pe)
{
    return shmemx_queue_ulong_data_pop(queue, dest_buffer, nelems, &pe);
}
static inline int shmem_queue_ulonglong_data_pop(shmem_queue_t queue, unsigned long long *dest_buffer, size_t nelems, int pe)
{
    return shmemx_queue_ulonglong_data_pop(queue, dest_buffer, nelems, &pe);
}
static inline int shmem_queue_int32_data_pop(shmem_queue_t queue, int32_t *dest_buffer, size_t nelems, int pe)
{
    return shmemx_queue_int32_data_pop(queue, dest_buffer, nelems, &pe);
}
static inline int shmem_queue_int64_data_pop(shmem_queue_t queue, int64_t *dest_buffer, size_t nelems, int pe)
{
    return shmemx_queue_int64_data_pop(queue, dest_buffer, nelems, &pe);
}
static inline int shmem_queue_uint32_data_pop(shmem_queue_t queue, uint32_t *dest_buffer, size_t nelems, int pe)
{
    return shmemx_queue_uint32_data_pop(queue, dest_buffer, nelems, &pe);
}
static inline int shmem_queue_uint64_data_pop(shmem_queue_t queue, uint64_t *dest_buffer, size_t nelems, int pe)
{
    return shmemx_queue_uint64_data_pop(queue, dest_buffer, nelems, &pe);
}
static inline int shmem_queue_size_data_pop(shmem_queue_t queue, size_t *dest_buffer, size_t nelems, int pe)
{
    return shmemx_queue_size_data_pop(queue, dest_buffer, nelems, &pe);
}
static inline int shmem_queue_ptrdiff_data_pop(shmem_queue_t queue, ptrdiff_t *dest_buffer, size_t nelems, int pe)
{
    return shmemx_queue_ptrdiff_data_pop(queue, dest_buffer, nelems, &pe);
}
static inline int shmem_queue_float_data_pop(shmem_queue_t queue, float *dest_buffer, size_t nelems, int pe)
{
    return shmemx_queue_float_data_pop(queue, dest_buffer, nelems, &pe);
}
static inline int shmem_queue_double_data_pop(shmem_queue_t queue, double *dest_buffer, size_t nelems, int pe)
{
    return shmemx_queue_double_data_pop(queue, dest_buffer, nelems, &pe);
}
static inline int shmem_queue_longdouble_data_pop(shmem_queue_t queue, long double *dest_buffer, size_t nelems, int pe)
{
    return shmemx_queue_longdouble_data_pop(queue, dest_buffer, nelems, &pe);
}
static inline int shmem_queue_char_data_pop(shmem_queue_t queue, char *dest_buffer, size_t nelems, int pe)
{
    return shmemx_queue_char_data_pop(queue, dest_buffer, nelems, &pe);
}
static inline int shmem_queue_schar_data_pop(shmem_queue_t queue, signed char *dest_buffer, size_t nelems, int pe)
{
    return shmemx_queue_schar_data_pop(queue, dest_buffer, nelems, &pe);
}
static inline int shmem_queue_short_data_pop(shmem_queue_t queue, short *dest_buffer, size_t nelems, int pe)
{
    return shmemx_queue_short_data_pop(queue, dest_buffer, nelems, &pe);
}
static inline int shmem_queue_uchar_data_pop(shmem_queue_t queue, unsigned char *dest_buffer, size_t nelems, int pe)
{
    return shmemx_queue_uchar_data_pop(queue, dest_buffer, nelems, &pe);
}
static inline int shmem_queue_ushort_data_pop(shmem_queue_t queue, unsigned short *dest_buffer, size_t nelems, int pe)
{
    return shmemx_queue_ushort_data_pop(queue, dest_buffer, nelems, &pe);
}
static inline int shmem_queue_int8_data_pop(shmem_queue_t queue, int8_t *dest_buffer, size_t nelems, int pe)
{
    return shmemx_queue_int8_data_pop(queue, dest_buffer, nelems, &pe);
}
static inline int shmem_queue_int16_data_pop(shmem_queue_t queue, int16_t *dest_buffer, size_t nelems, int pe)
{
    return shmemx_queue_int16_data_pop(queue, dest_buffer, nelems, &pe);
}
static inline int shmem_queue_uint8_data_pop(shmem_queue_t queue, uint8_t *dest_buffer, size_t nelems, int pe)
{
    return shmemx_queue_uint8_data_pop(queue, dest_buffer, nelems, &pe);
}
static inline int shmem_queue_uint16_data_pop(shmem_queue_t queue, uint16_t *dest_buffer, size_t nelems, int pe)
{
    return shmemx_queue_uint16_data_pop(queue, dest_buffer, nelems, &pe);
}
static inline int shmem_queue_data_popmem(shmem_queue_t queue, void *dest_buffer, size_t nelems, int pe)
{
    return shmemx_queue_data_popmem(queue, dest_buffer, nelems, &pe);
}

#if !defined(__cplusplus) && defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define CLEARWAY_SEVENTH(a, b, c, d, e, f, g, ...) g
#define CLEARWAY_PUSH_6(queue, dest, src, nelems, pe, op) shmemx_queue_push(queue, dest, src, nelems, pe, op)
#define CLEARWAY_PUSH_5(queue, dest, src, pe, op) shmemx_queue_push(queue, dest, src, 1, pe, op)
#define shmem_queue_comm_push(...) CLEARWAY_SEVENTH(__VA_ARGS__, CLEARWAY_PUSH_6, CLEARWAY_PUSH_5, 0)(__VA_ARGS__)
#define shmem_queue_data_push(queue, src, nelems, pe) shmemx_queue_data_push(queue, src, nelems, pe)
#define shmem_queue_data_pop(queue, dest, nelems, pe) shmemx_queue_data_pop(queue, dest, nelems, (int[1]){pe})
#endif

#ifdef __cplusplus
extern "C++" {
template <class T> int shmem_queue_comm_push(shmem_queue_t queue, T *dest, const T *src, size_t nelems, int pe, uint64_t op)
{
    return shmemx_queue_push(queue, dest, src, nelems, pe, op);
}
template <class T> int shmem_queue_comm_push(shmem_queue_t queue, T *dest, const T *src, int pe, uint64_t op)
{
    return shmemx_queue_push(queue, dest, src, 1, pe, op);
}
template <class T> int shmem_queue_data_push(shmem_queue_t queue, const T *src, size_t nelems, int pe)
{
    return shmemx_queue_data_push(queue, src, nelems, pe);
}
template <class T> int shmem_queue_data_pop(shmem_queue_t queue, T *dest, size_t nelems, int pe)
{
    return shmemx_queue_data_pop(queue, dest, nelems, &pe);
}
}
#endif

#endif /* CLEARWAY_SHMEM_QUEUE_H */
