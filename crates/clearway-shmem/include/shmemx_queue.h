/* Queues of OpenSHMEM operations and data. Written by `cargo xtask header` from the table of the library; changes go there. */
#ifndef CLEARWAY_SHMEMX_QUEUE_H
#define CLEARWAY_SHMEMX_QUEUE_H

#include "shmem.h"

typedef enum {
    SHMEMX_QUEUE_COMM = 0,
    SHMEMX_QUEUE_DATA = 1,
    SHMEMX_QUEUE_QOS = 2
} shmemx_queue_type_t;

typedef enum {
    SHMEMX_QUEUE_EXCLUSIVE = 0,
    SHMEMX_QUEUE_SHARED = 1
} shmemx_queue_sharing_t;

typedef enum {
    SHMEMX_QOS_HIGH = 0,
    SHMEMX_QOS_MEDIUM = 1,
    SHMEMX_QOS_LOW = 2,
    SHMEMX_QOS_SCAVENGER = 3
} shmemx_qos_t;

typedef enum {
    SHMEMX_PE_SAME = 0,
    SHMEMX_PE_ALL = 1
} shmemx_pe_type_t;

typedef enum {
    SHMEMX_OP_PUT = 0,
    SHMEMX_OP_GET = 1,
    SHMEMX_OP_ATOMIC_ADD = 2,
    SHMEMX_OP_ATOMIC_INC = 3,
    SHMEMX_OP_ATOMIC_AND = 16,
    SHMEMX_OP_ATOMIC_OR = 17,
    SHMEMX_OP_ATOMIC_XOR = 18,
    SHMEMX_OP_ATOMIC_SET = 19,
    SHMEMX_OP_ATOMIC_FETCH = 20,
    SHMEMX_OP_ATOMIC_FETCH_ADD = 21,
    SHMEMX_OP_ATOMIC_COMPARE_SWAP = 22,
    SHMEMX_OP_ATOMIC_SWAP = 23,
    SHMEMX_OP_IPUT = 24,
    SHMEMX_OP_IGET = 25
} shmemx_op_type_t;

typedef enum {
    SHMEMX_INTEGER = 0,
    SHMEMX_FLOAT = 1,
    SHMEMX_BYTES = 2
} shmemx_elem_type_t;

typedef enum {
    SHMEMX_QUEUE_COMPLETE = 0,
    SHMEMX_QUEUE_WORKING = 1,
    SHMEMX_QUEUE_ENDGAME = 2
} shmemx_queue_state_t;

#define SHMEMX_QCFG_QOS (1)
#define SHMEMX_EAGAIN (1)
#define SHMEMX_EINVAL (-1)
#define SHMEMX_PE_ANY (-1)

/* A queue: what the library keeps of it. */
typedef struct shmemx_queue *shmemx_queue_t;
#define SHMEMX_QUEUE_INVALID ((shmemx_queue_t) 0)

/* What a queue shall be. Where two names stand for one field, the second is another source's. */
typedef struct shmem_queue_config {
    shmemx_queue_type_t qtype;
    __extension__ union {
        shmemx_queue_sharing_t sharing_model;
        shmemx_queue_sharing_t thread_model;
    };
    uint64_t max_elems;   /* communication queues: elements outstanding at most; 0: any number */
    uint64_t max_bytes;   /* data queues: bytes that wait from one PE to another; 0: 64 KiB */
    shmemx_qos_t qos_class; /* counts for QOS queues, and where mask has SHMEMX_QCFG_QOS */
    double timeout_flush; /* seconds that an element waits at most; 0: as the class has it */
    shmemx_op_type_t op_type; /* hints */
    shmemx_pe_type_t pe_type;
    __extension__ union {
        size_t elem_size; /* data queues: bytes of an element; 0: any */
        size_t data_elem_size;
    };
    __extension__ union {
        long mask;
        long config_mask;
    };
    long reserved[4];
} shmemx_queue_config_t;

/* What a queue is and did. */
typedef struct shmem_queue_attrib {
    uint64_t queue_id;
    uint64_t outstanding_elems;
    uint64_t available_elems; /* UINT64_MAX: any number */
    shmemx_qos_t granted_class;
    int granted_mark; /* the DSCP of its packets; -1: it sends none */
    uint64_t elements, messages, bytes;
    uint64_t closed_full, closed_deadline, closed_flush; /* why its messages left */
    uint64_t p50_ns, p99_ns; /* from a push until it was known to be complete; 0: not measured */
    uint64_t reserved[2];
} shmemx_queue_attr_t;

/* What became of the class that a context asked for. */
typedef struct {
    shmemx_qos_t asked;
    shmemx_qos_t granted; /* never above the one that was asked for */
    int mark;             /* the DSCP of its packets; -1: it sends none */
    int reserved[5];
} shmemx_grant_t;

/* An operation with more than two pointers. */
typedef struct {
    uint64_t op; /* shmemx_op_type_t */
    int pe;
    shmemx_elem_type_t elem_type;
    size_t elem_size;
    void *dest;
    const void *source;
    size_t nelems;
    ptrdiff_t dst, sst; /* IPUT, IGET: elements from one to the next */
    const void *cond;   /* COMPARE_SWAP */
    void *fetch;        /* where fetched values go, at once */
    uint64_t *sig_addr; /* a signal behind everything pushed to the PE; null: none */
    uint64_t signal;
    int sig_op;
    long reserved[4];
} shmemx_qop_t;

#ifdef __cplusplus
extern "C" {
#endif

/* Current. */
int shmemx_queue_create(shmemx_queue_t *queue, shmem_team_t team, const shmemx_queue_config_t *config);
int shmemx_queue_destroy(shmemx_queue_t queue);
int shmemx_queue_int_push(shmemx_queue_t queue, int *dest, const int *source, size_t nelems, int pe, uint64_t op);
int shmemx_queue_long_push(shmemx_queue_t queue, long *dest, const long *source, size_t nelems, int pe, uint64_t op);
int shmemx_queue_longlong_push(shmemx_queue_t queue, long long *dest, const long long *source, size_t nelems, int pe, uint64_t op);
int shmemx_queue_uint_push(shmemx_queue_t queue, unsigned int *dest, const unsigned int *source, size_t nelems, int pe, uint64_t op);
int shmemx_queue_ulong_push(shmemx_queue_t queue, unsigned long *dest, const unsigned long *source, size_t nelems, int pe, uint64_t op);
int shmemx_queue_ulonglong_push(shmemx_queue_t queue, unsigned long long *dest, const unsigned long long *source, size_t nelems, int pe, uint64_t op);
int shmemx_queue_int32_push(shmemx_queue_t queue, int32_t *dest, const int32_t *source, size_t nelems, int pe, uint64_t op);
int shmemx_queue_int64_push(shmemx_queue_t queue, int64_t *dest, const int64_t *source, size_t nelems, int pe, uint64_t op);
int shmemx_queue_uint32_push(shmemx_queue_t queue, uint32_t *dest, const uint32_t *source, size_t nelems, int pe, uint64_t op);
int shmemx_queue_uint64_push(shmemx_queue_t queue, uint64_t *dest, const uint64_t *source, size_t nelems, int pe, uint64_t op);
int shmemx_queue_size_push(shmemx_queue_t queue, size_t *dest, const size_t *source, size_t nelems, int pe, uint64_t op);
int shmemx_queue_ptrdiff_push(shmemx_queue_t queue, ptrdiff_t *dest, const ptrdiff_t *source, size_t nelems, int pe, uint64_t op);
int shmemx_queue_float_push(shmemx_queue_t queue, float *dest, const float *source, size_t nelems, int pe, uint64_t op);
int shmemx_queue_double_push(shmemx_queue_t queue, double *dest, const double *source, size_t nelems, int pe, uint64_t op);
int shmemx_queue_longdouble_push(shmemx_queue_t queue, long double *dest, const long double *source, size_t nelems, int pe, uint64_t op);
int shmemx_queue_char_push(shmemx_queue_t queue, char *dest, const char *source, size_t nelems, int pe, uint64_t op);
int shmemx_queue_schar_push(shmemx_queue_t queue, signed char *dest, const signed char *source, size_t nelems, int pe, uint64_t op);
int shmemx_queue_short_push(shmemx_queue_t queue, short *dest, const short *source, size_t nelems, int pe, uint64_t op);
int shmemx_queue_uchar_push(shmemx_queue_t queue, unsigned char *dest, const unsigned char *source, size_t nelems, int pe, uint64_t op);
int shmemx_queue_ushort_push(shmemx_queue_t queue, unsigned short *dest, const unsigned short *source, size_t nelems, int pe, uint64_t op);
int shmemx_queue_int8_push(shmemx_queue_t queue, int8_t *dest, const int8_t *source, size_t nelems, int pe, uint64_t op);
int shmemx_queue_int16_push(shmemx_queue_t queue, int16_t *dest, const int16_t *source, size_t nelems, int pe, uint64_t op);
int shmemx_queue_uint8_push(shmemx_queue_t queue, uint8_t *dest, const uint8_t *source, size_t nelems, int pe, uint64_t op);
int shmemx_queue_uint16_push(shmemx_queue_t queue, uint16_t *dest, const uint16_t *source, size_t nelems, int pe, uint64_t op);
int shmemx_queue_pushmem(shmemx_queue_t queue, void *dest, const void *source, size_t nelems, int pe, uint64_t op);
int shmemx_queue_push_op(shmemx_queue_t queue, const shmemx_qop_t *operation);
int shmemx_queue_progress(shmemx_queue_t queue);
int shmemx_queue_fence(shmemx_queue_t queue);
int shmemx_queue_flush(shmemx_queue_t queue);
int shmemx_queue_flush_nbi(shmemx_queue_t queue, uint64_t *ticket);
int shmemx_queue_test(shmemx_queue_t queue, uint64_t ticket);
int shmemx_queue_int_data_push(shmemx_queue_t queue, const int *source, size_t nelems, int pe);
int shmemx_queue_long_data_push(shmemx_queue_t queue, const long *source, size_t nelems, int pe);
int shmemx_queue_longlong_data_push(shmemx_queue_t queue, const long long *source, size_t nelems, int pe);
int shmemx_queue_uint_data_push(shmemx_queue_t queue, const unsigned int *source, size_t nelems, int pe);
int shmemx_queue_ulong_data_push(shmemx_queue_t queue, const unsigned long *source, size_t nelems, int pe);
int shmemx_queue_ulonglong_data_push(shmemx_queue_t queue, const unsigned long long *source, size_t nelems, int pe);
int shmemx_queue_int32_data_push(shmemx_queue_t queue, const int32_t *source, size_t nelems, int pe);
int shmemx_queue_int64_data_push(shmemx_queue_t queue, const int64_t *source, size_t nelems, int pe);
int shmemx_queue_uint32_data_push(shmemx_queue_t queue, const uint32_t *source, size_t nelems, int pe);
int shmemx_queue_uint64_data_push(shmemx_queue_t queue, const uint64_t *source, size_t nelems, int pe);
int shmemx_queue_size_data_push(shmemx_queue_t queue, const size_t *source, size_t nelems, int pe);
int shmemx_queue_ptrdiff_data_push(shmemx_queue_t queue, const ptrdiff_t *source, size_t nelems, int pe);
int shmemx_queue_float_data_push(shmemx_queue_t queue, const float *source, size_t nelems, int pe);
int shmemx_queue_double_data_push(shmemx_queue_t queue, const double *source, size_t nelems, int pe);
int shmemx_queue_longdouble_data_push(shmemx_queue_t queue, const long double *source, size_t nelems, int pe);
int shmemx_queue_char_data_push(shmemx_queue_t queue, const char *source, size_t nelems, int pe);
int shmemx_queue_schar_data_push(shmemx_queue_t queue, const signed char *source, size_t nelems, int pe);
int shmemx_queue_short_data_push(shmemx_queue_t queue, const short *source, size_t nelems, int pe);
int shmemx_queue_uchar_data_push(shmemx_queue_t queue, const unsigned char *source, size_t nelems, int pe);
int shmemx_queue_ushort_data_push(shmemx_queue_t queue, const unsigned short *source, size_t nelems, int pe);
int shmemx_queue_int8_data_push(shmemx_queue_t queue, const int8_t *source, size_t nelems, int pe);
int shmemx_queue_int16_data_push(shmemx_queue_t queue, const int16_t *source, size_t nelems, int pe);
int shmemx_queue_uint8_data_push(shmemx_queue_t queue, const uint8_t *source, size_t nelems, int pe);
int shmemx_queue_uint16_data_push(shmemx_queue_t queue, const uint16_t *source, size_t nelems, int pe);
int shmemx_queue_data_pushmem(shmemx_queue_t queue, const void *source, size_t nelems, int pe);
int shmemx_queue_int_data_pop(shmemx_queue_t queue, int *dest, size_t nelems, int *pe);
int shmemx_queue_long_data_pop(shmemx_queue_t queue, long *dest, size_t nelems, int *pe);
int shmemx_queue_longlong_data_pop(shmemx_queue_t queue, long long *dest, size_t nelems, int *pe);
int shmemx_queue_uint_data_pop(shmemx_queue_t queue, unsigned int *dest, size_t nelems, int *pe);
int shmemx_queue_ulong_data_pop(shmemx_queue_t queue, unsigned long *dest, size_t nelems, int *pe);
int shmemx_queue_ulonglong_data_pop(shmemx_queue_t queue, unsigned long long *dest, size_t nelems, int *pe);
int shmemx_queue_int32_data_pop(shmemx_queue_t queue, int32_t *dest, size_t nelems, int *pe);
int shmemx_queue_int64_data_pop(shmemx_queue_t queue, int64_t *dest, size_t nelems, int *pe);
int shmemx_queue_uint32_data_pop(shmemx_queue_t queue, uint32_t *dest, size_t nelems, int *pe);
int shmemx_queue_uint64_data_pop(shmemx_queue_t queue, uint64_t *dest, size_t nelems, int *pe);
int shmemx_queue_size_data_pop(shmemx_queue_t queue, size_t *dest, size_t nelems, int *pe);
int shmemx_queue_ptrdiff_data_pop(shmemx_queue_t queue, ptrdiff_t *dest, size_t nelems, int *pe);
int shmemx_queue_float_data_pop(shmemx_queue_t queue, float *dest, size_t nelems, int *pe);
int shmemx_queue_double_data_pop(shmemx_queue_t queue, double *dest, size_t nelems, int *pe);
int shmemx_queue_longdouble_data_pop(shmemx_queue_t queue, long double *dest, size_t nelems, int *pe);
int shmemx_queue_char_data_pop(shmemx_queue_t queue, char *dest, size_t nelems, int *pe);
int shmemx_queue_schar_data_pop(shmemx_queue_t queue, signed char *dest, size_t nelems, int *pe);
int shmemx_queue_short_data_pop(shmemx_queue_t queue, short *dest, size_t nelems, int *pe);
int shmemx_queue_uchar_data_pop(shmemx_queue_t queue, unsigned char *dest, size_t nelems, int *pe);
int shmemx_queue_ushort_data_pop(shmemx_queue_t queue, unsigned short *dest, size_t nelems, int *pe);
int shmemx_queue_int8_data_pop(shmemx_queue_t queue, int8_t *dest, size_t nelems, int *pe);
int shmemx_queue_int16_data_pop(shmemx_queue_t queue, int16_t *dest, size_t nelems, int *pe);
int shmemx_queue_uint8_data_pop(shmemx_queue_t queue, uint8_t *dest, size_t nelems, int *pe);
int shmemx_queue_uint16_data_pop(shmemx_queue_t queue, uint16_t *dest, size_t nelems, int *pe);
int shmemx_queue_data_popmem(shmemx_queue_t queue, void *dest, size_t nelems, int *pe);
int shmemx_queue_data_advance(shmemx_queue_t queue, int done);
int shmemx_queue_data_size(shmemx_queue_t queue, size_t *incoming, size_t *outgoing, int pe);
int shmemx_queue_attr(shmemx_queue_t queue, shmemx_queue_attr_t *attr);
int shmemx_ctx_granted(shmem_ctx_t ctx, shmemx_grant_t *grant);

/* Deprecated by the standard. */

/* Current. */
int pshmemx_queue_create(shmemx_queue_t *queue, shmem_team_t team, const shmemx_queue_config_t *config);
int pshmemx_queue_destroy(shmemx_queue_t queue);
int pshmemx_queue_int_push(shmemx_queue_t queue, int *dest, const int *source, size_t nelems, int pe, uint64_t op);
int pshmemx_queue_long_push(shmemx_queue_t queue, long *dest, const long *source, size_t nelems, int pe, uint64_t op);
int pshmemx_queue_longlong_push(shmemx_queue_t queue, long long *dest, const long long *source, size_t nelems, int pe, uint64_t op);
int pshmemx_queue_uint_push(shmemx_queue_t queue, unsigned int *dest, const unsigned int *source, size_t nelems, int pe, uint64_t op);
int pshmemx_queue_ulong_push(shmemx_queue_t queue, unsigned long *dest, const unsigned long *source, size_t nelems, int pe, uint64_t op);
int pshmemx_queue_ulonglong_push(shmemx_queue_t queue, unsigned long long *dest, const unsigned long long *source, size_t nelems, int pe, uint64_t op);
int pshmemx_queue_int32_push(shmemx_queue_t queue, int32_t *dest, const int32_t *source, size_t nelems, int pe, uint64_t op);
int pshmemx_queue_int64_push(shmemx_queue_t queue, int64_t *dest, const int64_t *source, size_t nelems, int pe, uint64_t op);
int pshmemx_queue_uint32_push(shmemx_queue_t queue, uint32_t *dest, const uint32_t *source, size_t nelems, int pe, uint64_t op);
int pshmemx_queue_uint64_push(shmemx_queue_t queue, uint64_t *dest, const uint64_t *source, size_t nelems, int pe, uint64_t op);
int pshmemx_queue_size_push(shmemx_queue_t queue, size_t *dest, const size_t *source, size_t nelems, int pe, uint64_t op);
int pshmemx_queue_ptrdiff_push(shmemx_queue_t queue, ptrdiff_t *dest, const ptrdiff_t *source, size_t nelems, int pe, uint64_t op);
int pshmemx_queue_float_push(shmemx_queue_t queue, float *dest, const float *source, size_t nelems, int pe, uint64_t op);
int pshmemx_queue_double_push(shmemx_queue_t queue, double *dest, const double *source, size_t nelems, int pe, uint64_t op);
int pshmemx_queue_longdouble_push(shmemx_queue_t queue, long double *dest, const long double *source, size_t nelems, int pe, uint64_t op);
int pshmemx_queue_char_push(shmemx_queue_t queue, char *dest, const char *source, size_t nelems, int pe, uint64_t op);
int pshmemx_queue_schar_push(shmemx_queue_t queue, signed char *dest, const signed char *source, size_t nelems, int pe, uint64_t op);
int pshmemx_queue_short_push(shmemx_queue_t queue, short *dest, const short *source, size_t nelems, int pe, uint64_t op);
int pshmemx_queue_uchar_push(shmemx_queue_t queue, unsigned char *dest, const unsigned char *source, size_t nelems, int pe, uint64_t op);
int pshmemx_queue_ushort_push(shmemx_queue_t queue, unsigned short *dest, const unsigned short *source, size_t nelems, int pe, uint64_t op);
int pshmemx_queue_int8_push(shmemx_queue_t queue, int8_t *dest, const int8_t *source, size_t nelems, int pe, uint64_t op);
int pshmemx_queue_int16_push(shmemx_queue_t queue, int16_t *dest, const int16_t *source, size_t nelems, int pe, uint64_t op);
int pshmemx_queue_uint8_push(shmemx_queue_t queue, uint8_t *dest, const uint8_t *source, size_t nelems, int pe, uint64_t op);
int pshmemx_queue_uint16_push(shmemx_queue_t queue, uint16_t *dest, const uint16_t *source, size_t nelems, int pe, uint64_t op);
int pshmemx_queue_pushmem(shmemx_queue_t queue, void *dest, const void *source, size_t nelems, int pe, uint64_t op);
int pshmemx_queue_push_op(shmemx_queue_t queue, const shmemx_qop_t *operation);
int pshmemx_queue_progress(shmemx_queue_t queue);
int pshmemx_queue_fence(shmemx_queue_t queue);
int pshmemx_queue_flush(shmemx_queue_t queue);
int pshmemx_queue_flush_nbi(shmemx_queue_t queue, uint64_t *ticket);
int pshmemx_queue_test(shmemx_queue_t queue, uint64_t ticket);
int pshmemx_queue_int_data_push(shmemx_queue_t queue, const int *source, size_t nelems, int pe);
int pshmemx_queue_long_data_push(shmemx_queue_t queue, const long *source, size_t nelems, int pe);
int pshmemx_queue_longlong_data_push(shmemx_queue_t queue, const long long *source, size_t nelems, int pe);
int pshmemx_queue_uint_data_push(shmemx_queue_t queue, const unsigned int *source, size_t nelems, int pe);
int pshmemx_queue_ulong_data_push(shmemx_queue_t queue, const unsigned long *source, size_t nelems, int pe);
int pshmemx_queue_ulonglong_data_push(shmemx_queue_t queue, const unsigned long long *source, size_t nelems, int pe);
int pshmemx_queue_int32_data_push(shmemx_queue_t queue, const int32_t *source, size_t nelems, int pe);
int pshmemx_queue_int64_data_push(shmemx_queue_t queue, const int64_t *source, size_t nelems, int pe);
int pshmemx_queue_uint32_data_push(shmemx_queue_t queue, const uint32_t *source, size_t nelems, int pe);
int pshmemx_queue_uint64_data_push(shmemx_queue_t queue, const uint64_t *source, size_t nelems, int pe);
int pshmemx_queue_size_data_push(shmemx_queue_t queue, const size_t *source, size_t nelems, int pe);
int pshmemx_queue_ptrdiff_data_push(shmemx_queue_t queue, const ptrdiff_t *source, size_t nelems, int pe);
int pshmemx_queue_float_data_push(shmemx_queue_t queue, const float *source, size_t nelems, int pe);
int pshmemx_queue_double_data_push(shmemx_queue_t queue, const double *source, size_t nelems, int pe);
int pshmemx_queue_longdouble_data_push(shmemx_queue_t queue, const long double *source, size_t nelems, int pe);
int pshmemx_queue_char_data_push(shmemx_queue_t queue, const char *source, size_t nelems, int pe);
int pshmemx_queue_schar_data_push(shmemx_queue_t queue, const signed char *source, size_t nelems, int pe);
int pshmemx_queue_short_data_push(shmemx_queue_t queue, const short *source, size_t nelems, int pe);
int pshmemx_queue_uchar_data_push(shmemx_queue_t queue, const unsigned char *source, size_t nelems, int pe);
int pshmemx_queue_ushort_data_push(shmemx_queue_t queue, const unsigned short *source, size_t nelems, int pe);
int pshmemx_queue_int8_data_push(shmemx_queue_t queue, const int8_t *source, size_t nelems, int pe);
int pshmemx_queue_int16_data_push(shmemx_queue_t queue, const int16_t *source, size_t nelems, int pe);
int pshmemx_queue_uint8_data_push(shmemx_queue_t queue, const uint8_t *source, size_t nelems, int pe);
int pshmemx_queue_uint16_data_push(shmemx_queue_t queue, const uint16_t *source, size_t nelems, int pe);
int pshmemx_queue_data_pushmem(shmemx_queue_t queue, const void *source, size_t nelems, int pe);
int pshmemx_queue_int_data_pop(shmemx_queue_t queue, int *dest, size_t nelems, int *pe);
int pshmemx_queue_long_data_pop(shmemx_queue_t queue, long *dest, size_t nelems, int *pe);
int pshmemx_queue_longlong_data_pop(shmemx_queue_t queue, long long *dest, size_t nelems, int *pe);
int pshmemx_queue_uint_data_pop(shmemx_queue_t queue, unsigned int *dest, size_t nelems, int *pe);
int pshmemx_queue_ulong_data_pop(shmemx_queue_t queue, unsigned long *dest, size_t nelems, int *pe);
int pshmemx_queue_ulonglong_data_pop(shmemx_queue_t queue, unsigned long long *dest, size_t nelems, int *pe);
int pshmemx_queue_int32_data_pop(shmemx_queue_t queue, int32_t *dest, size_t nelems, int *pe);
int pshmemx_queue_int64_data_pop(shmemx_queue_t queue, int64_t *dest, size_t nelems, int *pe);
int pshmemx_queue_uint32_data_pop(shmemx_queue_t queue, uint32_t *dest, size_t nelems, int *pe);
int pshmemx_queue_uint64_data_pop(shmemx_queue_t queue, uint64_t *dest, size_t nelems, int *pe);
int pshmemx_queue_size_data_pop(shmemx_queue_t queue, size_t *dest, size_t nelems, int *pe);
int pshmemx_queue_ptrdiff_data_pop(shmemx_queue_t queue, ptrdiff_t *dest, size_t nelems, int *pe);
int pshmemx_queue_float_data_pop(shmemx_queue_t queue, float *dest, size_t nelems, int *pe);
int pshmemx_queue_double_data_pop(shmemx_queue_t queue, double *dest, size_t nelems, int *pe);
int pshmemx_queue_longdouble_data_pop(shmemx_queue_t queue, long double *dest, size_t nelems, int *pe);
int pshmemx_queue_char_data_pop(shmemx_queue_t queue, char *dest, size_t nelems, int *pe);
int pshmemx_queue_schar_data_pop(shmemx_queue_t queue, signed char *dest, size_t nelems, int *pe);
int pshmemx_queue_short_data_pop(shmemx_queue_t queue, short *dest, size_t nelems, int *pe);
int pshmemx_queue_uchar_data_pop(shmemx_queue_t queue, unsigned char *dest, size_t nelems, int *pe);
int pshmemx_queue_ushort_data_pop(shmemx_queue_t queue, unsigned short *dest, size_t nelems, int *pe);
int pshmemx_queue_int8_data_pop(shmemx_queue_t queue, int8_t *dest, size_t nelems, int *pe);
int pshmemx_queue_int16_data_pop(shmemx_queue_t queue, int16_t *dest, size_t nelems, int *pe);
int pshmemx_queue_uint8_data_pop(shmemx_queue_t queue, uint8_t *dest, size_t nelems, int *pe);
int pshmemx_queue_uint16_data_pop(shmemx_queue_t queue, uint16_t *dest, size_t nelems, int *pe);
int pshmemx_queue_data_popmem(shmemx_queue_t queue, void *dest, size_t nelems, int *pe);
int pshmemx_queue_data_advance(shmemx_queue_t queue, int done);
int pshmemx_queue_data_size(shmemx_queue_t queue, size_t *incoming, size_t *outgoing, int pe);
int pshmemx_queue_attr(shmemx_queue_t queue, shmemx_queue_attr_t *attr);
int pshmemx_ctx_granted(shmem_ctx_t ctx, shmemx_grant_t *grant);

/* Deprecated by the standard. */

#ifdef __cplusplus
} /* extern "C" */
#endif

#if !defined(__cplusplus) && defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L

#define shmemx_queue_push(...) \
    _Generic((CLEARWAY_SECOND(__VA_ARGS__)), \
        int *: shmemx_queue_int_push, \
        long *: shmemx_queue_long_push, \
        long long *: shmemx_queue_longlong_push, \
        unsigned int *: shmemx_queue_uint_push, \
        unsigned long *: shmemx_queue_ulong_push, \
        unsigned long long *: shmemx_queue_ulonglong_push, \
        float *: shmemx_queue_float_push, \
        double *: shmemx_queue_double_push, \
        long double *: shmemx_queue_longdouble_push, \
        char *: shmemx_queue_char_push, \
        signed char *: shmemx_queue_schar_push, \
        short *: shmemx_queue_short_push, \
        unsigned char *: shmemx_queue_uchar_push, \
        unsigned short *: shmemx_queue_ushort_push)(__VA_ARGS__)

#define shmemx_queue_data_push(...) \
    _Generic((CLEARWAY_SECOND(__VA_ARGS__)), \
        int *: shmemx_queue_int_data_push, \
        const int *: shmemx_queue_int_data_push, \
        long *: shmemx_queue_long_data_push, \
        const long *: shmemx_queue_long_data_push, \
        long long *: shmemx_queue_longlong_data_push, \
        const long long *: shmemx_queue_longlong_data_push, \
        unsigned int *: shmemx_queue_uint_data_push, \
        const unsigned int *: shmemx_queue_uint_data_push, \
        unsigned long *: shmemx_queue_ulong_data_push, \
        const unsigned long *: shmemx_queue_ulong_data_push, \
        unsigned long long *: shmemx_queue_ulonglong_data_push, \
        const unsigned long long *: shmemx_queue_ulonglong_data_push, \
        float *: shmemx_queue_float_data_push, \
        const float *: shmemx_queue_float_data_push, \
        double *: shmemx_queue_double_data_push, \
        const double *: shmemx_queue_double_data_push, \
        long double *: shmemx_queue_longdouble_data_push, \
        const long double *: shmemx_queue_longdouble_data_push, \
        char *: shmemx_queue_char_data_push, \
        const char *: shmemx_queue_char_data_push, \
        signed char *: shmemx_queue_schar_data_push, \
        const signed char *: shmemx_queue_schar_data_push, \
        short *: shmemx_queue_short_data_push, \
        const short *: shmemx_queue_short_data_push, \
        unsigned char *: shmemx_queue_uchar_data_push, \
        const unsigned char *: shmemx_queue_uchar_data_push, \
        unsigned short *: shmemx_queue_ushort_data_push, \
        const unsigned short *: shmemx_queue_ushort_data_push)(__VA_ARGS__)

#define shmemx_queue_data_pop(...) \
    _Generic((CLEARWAY_SECOND(__VA_ARGS__)), \
        int *: shmemx_queue_int_data_pop, \
        long *: shmemx_queue_long_data_pop, \
        long long *: shmemx_queue_longlong_data_pop, \
        unsigned int *: shmemx_queue_uint_data_pop, \
        unsigned long *: shmemx_queue_ulong_data_pop, \
        unsigned long long *: shmemx_queue_ulonglong_data_pop, \
        float *: shmemx_queue_float_data_pop, \
        double *: shmemx_queue_double_data_pop, \
        long double *: shmemx_queue_longdouble_data_pop, \
        char *: shmemx_queue_char_data_pop, \
        signed char *: shmemx_queue_schar_data_pop, \
        short *: shmemx_queue_short_data_pop, \
        unsigned char *: shmemx_queue_uchar_data_pop, \
        unsigned short *: shmemx_queue_ushort_data_pop)(__VA_ARGS__)

#endif /* C11 */

#ifdef __cplusplus

#include <complex>

extern "C++" {

static inline int shmemx_queue_push(shmemx_queue_t queue, int *dest, const int *source, size_t nelems, int pe, uint64_t op) { return shmemx_queue_int_push(queue, dest, source, nelems, pe, op); }
static inline int shmemx_queue_push(shmemx_queue_t queue, long *dest, const long *source, size_t nelems, int pe, uint64_t op) { return shmemx_queue_long_push(queue, dest, source, nelems, pe, op); }
static inline int shmemx_queue_push(shmemx_queue_t queue, long long *dest, const long long *source, size_t nelems, int pe, uint64_t op) { return shmemx_queue_longlong_push(queue, dest, source, nelems, pe, op); }
static inline int shmemx_queue_push(shmemx_queue_t queue, unsigned int *dest, const unsigned int *source, size_t nelems, int pe, uint64_t op) { return shmemx_queue_uint_push(queue, dest, source, nelems, pe, op); }
static inline int shmemx_queue_push(shmemx_queue_t queue, unsigned long *dest, const unsigned long *source, size_t nelems, int pe, uint64_t op) { return shmemx_queue_ulong_push(queue, dest, source, nelems, pe, op); }
static inline int shmemx_queue_push(shmemx_queue_t queue, unsigned long long *dest, const unsigned long long *source, size_t nelems, int pe, uint64_t op) { return shmemx_queue_ulonglong_push(queue, dest, source, nelems, pe, op); }
static inline int shmemx_queue_push(shmemx_queue_t queue, float *dest, const float *source, size_t nelems, int pe, uint64_t op) { return shmemx_queue_float_push(queue, dest, source, nelems, pe, op); }
static inline int shmemx_queue_push(shmemx_queue_t queue, double *dest, const double *source, size_t nelems, int pe, uint64_t op) { return shmemx_queue_double_push(queue, dest, source, nelems, pe, op); }
static inline int shmemx_queue_push(shmemx_queue_t queue, long double *dest, const long double *source, size_t nelems, int pe, uint64_t op) { return shmemx_queue_longdouble_push(queue, dest, source, nelems, pe, op); }
static inline int shmemx_queue_push(shmemx_queue_t queue, char *dest, const char *source, size_t nelems, int pe, uint64_t op) { return shmemx_queue_char_push(queue, dest, source, nelems, pe, op); }
static inline int shmemx_queue_push(shmemx_queue_t queue, signed char *dest, const signed char *source, size_t nelems, int pe, uint64_t op) { return shmemx_queue_schar_push(queue, dest, source, nelems, pe, op); }
static inline int shmemx_queue_push(shmemx_queue_t queue, short *dest, const short *source, size_t nelems, int pe, uint64_t op) { return shmemx_queue_short_push(queue, dest, source, nelems, pe, op); }
static inline int shmemx_queue_push(shmemx_queue_t queue, unsigned char *dest, const unsigned char *source, size_t nelems, int pe, uint64_t op) { return shmemx_queue_uchar_push(queue, dest, source, nelems, pe, op); }
static inline int shmemx_queue_push(shmemx_queue_t queue, unsigned short *dest, const unsigned short *source, size_t nelems, int pe, uint64_t op) { return shmemx_queue_ushort_push(queue, dest, source, nelems, pe, op); }
static inline int shmemx_queue_data_push(shmemx_queue_t queue, const int *source, size_t nelems, int pe) { return shmemx_queue_int_data_push(queue, source, nelems, pe); }
static inline int shmemx_queue_data_push(shmemx_queue_t queue, const long *source, size_t nelems, int pe) { return shmemx_queue_long_data_push(queue, source, nelems, pe); }
static inline int shmemx_queue_data_push(shmemx_queue_t queue, const long long *source, size_t nelems, int pe) { return shmemx_queue_longlong_data_push(queue, source, nelems, pe); }
static inline int shmemx_queue_data_push(shmemx_queue_t queue, const unsigned int *source, size_t nelems, int pe) { return shmemx_queue_uint_data_push(queue, source, nelems, pe); }
static inline int shmemx_queue_data_push(shmemx_queue_t queue, const unsigned long *source, size_t nelems, int pe) { return shmemx_queue_ulong_data_push(queue, source, nelems, pe); }
static inline int shmemx_queue_data_push(shmemx_queue_t queue, const unsigned long long *source, size_t nelems, int pe) { return shmemx_queue_ulonglong_data_push(queue, source, nelems, pe); }
static inline int shmemx_queue_data_push(shmemx_queue_t queue, const float *source, size_t nelems, int pe) { return shmemx_queue_float_data_push(queue, source, nelems, pe); }
static inline int shmemx_queue_data_push(shmemx_queue_t queue, const double *source, size_t nelems, int pe) { return shmemx_queue_double_data_push(queue, source, nelems, pe); }
static inline int shmemx_queue_data_push(shmemx_queue_t queue, const long double *source, size_t nelems, int pe) { return shmemx_queue_longdouble_data_push(queue, source, nelems, pe); }
static inline int shmemx_queue_data_push(shmemx_queue_t queue, const char *source, size_t nelems, int pe) { return shmemx_queue_char_data_push(queue, source, nelems, pe); }
static inline int shmemx_queue_data_push(shmemx_queue_t queue, const signed char *source, size_t nelems, int pe) { return shmemx_queue_schar_data_push(queue, source, nelems, pe); }
static inline int shmemx_queue_data_push(shmemx_queue_t queue, const short *source, size_t nelems, int pe) { return shmemx_queue_short_data_push(queue, source, nelems, pe); }
static inline int shmemx_queue_data_push(shmemx_queue_t queue, const unsigned char *source, size_t nelems, int pe) { return shmemx_queue_uchar_data_push(queue, source, nelems, pe); }
static inline int shmemx_queue_data_push(shmemx_queue_t queue, const unsigned short *source, size_t nelems, int pe) { return shmemx_queue_ushort_data_push(queue, source, nelems, pe); }
static inline int shmemx_queue_data_pop(shmemx_queue_t queue, int *dest, size_t nelems, int *pe) { return shmemx_queue_int_data_pop(queue, dest, nelems, pe); }
static inline int shmemx_queue_data_pop(shmemx_queue_t queue, long *dest, size_t nelems, int *pe) { return shmemx_queue_long_data_pop(queue, dest, nelems, pe); }
static inline int shmemx_queue_data_pop(shmemx_queue_t queue, long long *dest, size_t nelems, int *pe) { return shmemx_queue_longlong_data_pop(queue, dest, nelems, pe); }
static inline int shmemx_queue_data_pop(shmemx_queue_t queue, unsigned int *dest, size_t nelems, int *pe) { return shmemx_queue_uint_data_pop(queue, dest, nelems, pe); }
static inline int shmemx_queue_data_pop(shmemx_queue_t queue, unsigned long *dest, size_t nelems, int *pe) { return shmemx_queue_ulong_data_pop(queue, dest, nelems, pe); }
static inline int shmemx_queue_data_pop(shmemx_queue_t queue, unsigned long long *dest, size_t nelems, int *pe) { return shmemx_queue_ulonglong_data_pop(queue, dest, nelems, pe); }
static inline int shmemx_queue_data_pop(shmemx_queue_t queue, float *dest, size_t nelems, int *pe) { return shmemx_queue_float_data_pop(queue, dest, nelems, pe); }
static inline int shmemx_queue_data_pop(shmemx_queue_t queue, double *dest, size_t nelems, int *pe) { return shmemx_queue_double_data_pop(queue, dest, nelems, pe); }
static inline int shmemx_queue_data_pop(shmemx_queue_t queue, long double *dest, size_t nelems, int *pe) { return shmemx_queue_longdouble_data_pop(queue, dest, nelems, pe); }
static inline int shmemx_queue_data_pop(shmemx_queue_t queue, char *dest, size_t nelems, int *pe) { return shmemx_queue_char_data_pop(queue, dest, nelems, pe); }
static inline int shmemx_queue_data_pop(shmemx_queue_t queue, signed char *dest, size_t nelems, int *pe) { return shmemx_queue_schar_data_pop(queue, dest, nelems, pe); }
static inline int shmemx_queue_data_pop(shmemx_queue_t queue, short *dest, size_t nelems, int *pe) { return shmemx_queue_short_data_pop(queue, dest, nelems, pe); }
static inline int shmemx_queue_data_pop(shmemx_queue_t queue, unsigned char *dest, size_t nelems, int *pe) { return shmemx_queue_uchar_data_pop(queue, dest, nelems, pe); }
static inline int shmemx_queue_data_pop(shmemx_queue_t queue, unsigned short *dest, size_t nelems, int *pe) { return shmemx_queue_ushort_data_pop(queue, dest, nelems, pe); }

} /* extern "C++" */

#endif /* __cplusplus */

#endif /* CLEARWAY_SHMEMX_QUEUE_H */
