//! Writes the headers of queues: the library's own names, and those of the proposal.

use super::{cxx, generic, guarded, prototypes};
use crate::queue::channel::{COMPLETE, ENDGAME, PE_ANY, WORKING};
use crate::queue::comm::{
    OP_ADD, OP_AND, OP_CSWAP, OP_FETCH, OP_FETCH_ADD, OP_GET, OP_IGET, OP_INC, OP_IPUT, OP_OR,
    OP_PUT, OP_SET, OP_SWAP, OP_XOR,
};
use crate::queue::{EAGAIN, EINVAL, MASK_CLASS, QueueClass};
use crate::table::Function;

/// Enumerations: the type, and its values.
fn enumerations() -> [(&'static str, Vec<(&'static str, i64)>); 7] {
    let class = |class: QueueClass| class as i64;
    let op = |op: u64| op as i64;
    [
        ("queue_type", vec![("QUEUE_COMM", 0), ("QUEUE_DATA", 1), ("QUEUE_QOS", 2)]),
        ("queue_sharing", vec![("QUEUE_EXCLUSIVE", 0), ("QUEUE_SHARED", 1)]),
        (
            "qos",
            vec![
                ("QOS_HIGH", class(QueueClass::High)),
                ("QOS_MEDIUM", class(QueueClass::Medium)),
                ("QOS_LOW", class(QueueClass::Low)),
                ("QOS_SCAVENGER", class(QueueClass::Scavenger)),
            ],
        ),
        ("pe_type", vec![("PE_SAME", 0), ("PE_ALL", 1)]),
        (
            "op_type",
            vec![
                ("OP_PUT", op(OP_PUT)),
                ("OP_GET", op(OP_GET)),
                ("OP_ATOMIC_ADD", op(OP_ADD)),
                ("OP_ATOMIC_INC", op(OP_INC)),
                ("OP_ATOMIC_AND", op(OP_AND)),
                ("OP_ATOMIC_OR", op(OP_OR)),
                ("OP_ATOMIC_XOR", op(OP_XOR)),
                ("OP_ATOMIC_SET", op(OP_SET)),
                ("OP_ATOMIC_FETCH", op(OP_FETCH)),
                ("OP_ATOMIC_FETCH_ADD", op(OP_FETCH_ADD)),
                ("OP_ATOMIC_COMPARE_SWAP", op(OP_CSWAP)),
                ("OP_ATOMIC_SWAP", op(OP_SWAP)),
                ("OP_IPUT", op(OP_IPUT)),
                ("OP_IGET", op(OP_IGET)),
            ],
        ),
        ("elem_type", vec![("INTEGER", 0), ("FLOAT", 1), ("BYTES", 2)]),
        (
            "queue_state",
            vec![
                ("QUEUE_COMPLETE", COMPLETE.into()),
                ("QUEUE_WORKING", WORKING.into()),
                ("QUEUE_ENDGAME", ENDGAME.into()),
            ],
        ),
    ]
}

/// The types that C has for queues.
const TYPES: &str = "\
/* The opaque handle of a queue. */
typedef struct shmemx_queue *shmemx_queue_t;
#define SHMEMX_QUEUE_INVALID ((shmemx_queue_t) 0)

/* The configuration of a queue. Zeros are the defaults. Where a field has two names, the second is that of the extension by service classes. */
typedef struct shmem_queue_config {
    shmemx_queue_type_t qtype;
    __extension__ union {
        shmemx_queue_sharing_t sharing_model;
        shmemx_queue_sharing_t thread_model;
    };
    uint64_t max_elems;   /* communication queues: limit of outstanding elements; 0: none */
    uint64_t max_bytes;   /* data queues: limit of bytes buffered from one PE to another; 0: 64 KiB */
    shmemx_qos_t qos_class; /* used by QOS queues, and where mask has SHMEMX_QCFG_QOS */
    double timeout_flush; /* longest wait of an element, in seconds; 0: the default of the class */
    shmemx_op_type_t op_type; /* a hint, which this library does not use; so is pe_type */
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

/* The attributes and statistics of a queue. */
typedef struct shmem_queue_attrib {
    uint64_t queue_id;
    uint64_t outstanding_elems;
    uint64_t available_elems; /* UINT64_MAX: no limit */
    shmemx_qos_t granted_class;
    int granted_mark; /* the DSCP of its packets; -1: no packets */
    uint64_t elements, messages, bytes;
    uint64_t closed_full, closed_deadline, closed_flush; /* messages by the reason why they were sent */
    uint64_t p50_ns, p99_ns; /* time from a push to its known completion; 0: not measured */
    uint64_t far_messages, far_bytes; /* of all queues and contexts of the class to other hosts since this one was created */
} shmemx_queue_attr_t;

/* The requested and the granted class of a context. */
typedef struct {
    shmemx_qos_t asked;   /* the requested class */
    shmemx_qos_t granted; /* never above the requested class */
    int mark;             /* the DSCP of its packets; -1: no packets */
    int reserved[5];
} shmemx_grant_t;

/* An operation for shmemx_queue_push_op. */
typedef struct {
    uint64_t op; /* shmemx_op_type_t */
    int pe;
    shmemx_elem_type_t elem_type;
    size_t elem_size;
    void *dest;
    const void *source;
    size_t nelems;
    ptrdiff_t dst, sst; /* IPUT, IGET: strides in elements */
    const void *cond;   /* COMPARE_SWAP: the value to compare with */
    void *fetch;        /* destination of fetched values, valid after a flush of the queue */
    uint64_t *sig_addr; /* signal sent after all operations pushed to the PE; null: none */
    uint64_t signal;
    int sig_op; /* SHMEM_SIGNAL_SET or SHMEM_SIGNAL_ADD */
    long reserved[4];
} shmemx_qop_t;

";

/// What the functions do, in front of their prototypes.
const CALLS: &str = "\
/*
 * Functions return 0; SHMEMX_EAGAIN if a queue is full or empty, and nothing was done; SHMEMX_EINVAL if an argument is
 * wrong, and nothing was done: with SHMEM_DEBUG=1 the library then prints why. Exceptions are named below. The source of a
 * push may be reused at once.
 *
 *   create         creates a communication queue or QOS queue (local), or a data queue (collective over the team)
 *   destroy        destroys a queue without outstanding elements; collective for a data queue
 *   push           pushes a put, get or atomic operation (shmemx_op_type_t)
 *   push_op        pushes any operation, and a signal behind it
 *   fence          orders pushes before it and after it to the same PE
 *   flush          completes all pushes; collective for a data queue
 *   flush_nbi      starts a flush, and writes its ticket
 *   test           returns 1 if the flush of the ticket is complete, else 0
 *   progress       sends old elements, applies arrived ones; returns the number of outstanding elements
 *   data_push      pushes elements to a PE, all or none
 *   data_pop       pops elements of the PE *pe, or of any with SHMEMX_PE_ANY: then *pe becomes their PE
 *   data_advance   tells whether this PE is done (has no more to push); returns a shmemx_queue_state_t
 *   data_size      writes the bytes that wait here from a PE, and those pushed to it that it has not popped
 *   attr           writes attributes and statistics
 *   ctx_granted    writes the requested and the granted class of a context
 */
";

/// `shmemx_queue.h`.
pub(super) fn own(all: &[Function]) -> String {
    let mut body = String::from("#include \"shmem.h\"\n\n");
    for (name, values) in enumerations() {
        let values: Vec<String> =
            values.iter().map(|(name, value)| format!("    SHMEMX_{name} = {value}")).collect();
        body.push_str(&format!("typedef enum {{\n{}\n}} shmemx_{name}_t;\n\n", values.join(",\n")));
    }
    for (name, value) in [
        ("QCFG_QOS", MASK_CLASS),
        ("EAGAIN", EAGAIN.into()),
        ("EINVAL", EINVAL.into()),
        ("PE_ANY", PE_ANY.into()),
    ] {
        body.push_str(&format!("#define SHMEMX_{name} ({value})\n"));
    }
    body.push('\n');
    body.push_str(TYPES);
    body.push_str(CALLS);
    body.push_str("#ifdef __cplusplus\nextern \"C\" {\n#endif\n");
    body.push_str(&prototypes(all, |function| function.name.clone()));
    body.push_str(&prototypes(all, Function::profiling_name));
    body.push_str("\n#ifdef __cplusplus\n} /* extern \"C\" */\n#endif\n\n");
    body.push_str(&format!("{}{}{}", generic::BEGIN, generic::macros(all), generic::END));
    body.push_str(&format!("{}{}{}", cxx::BEGIN, cxx::overloads(all), cxx::END));
    guarded("CLEARWAY_SHMEMX_QUEUE_H", "Queues of OpenSHMEM operations and data.", &body)
}

/// Names of the proposal, and of its extension by classes, for the library's.
const OTHER_NAMES: &str = "\
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

";

/// Functions of the proposal that are not one for each type.
const OTHER_FUNCTIONS: &str = "\
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

";

/// Names that choose by the type of an argument. A push without a number of elements pushes one.
const OTHER_GENERICS: &str = "\
#if !defined(__cplusplus) && defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define CLEARWAY_SEVENTH(a, b, c, d, e, f, g, ...) g
#define CLEARWAY_PUSH_6(queue, dest, src, nelems, pe, op) shmemx_queue_push(queue, dest, src, nelems, pe, op)
#define CLEARWAY_PUSH_5(queue, dest, src, pe, op) shmemx_queue_push(queue, dest, src, 1, pe, op)
#define shmem_queue_comm_push(...) CLEARWAY_SEVENTH(__VA_ARGS__, CLEARWAY_PUSH_6, CLEARWAY_PUSH_5, 0)(__VA_ARGS__)
#define shmem_queue_data_push(queue, src, nelems, pe) shmemx_queue_data_push(queue, src, nelems, pe)
#define shmem_queue_data_pop(queue, dest, nelems, pe) shmemx_queue_data_pop(queue, dest, nelems, (int[1]){pe})
#endif

#ifdef __cplusplus
extern \"C++\" {
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
";

/// `shmem_queue.h`.
pub(super) fn of_the_proposal(all: &[Function]) -> String {
    let mut body = String::from("#include <math.h>\n\n#include \"shmemx_queue.h\"\n\n");
    body.push_str(OTHER_NAMES);
    body.push_str(OTHER_FUNCTIONS);
    let of_type = |function: &&Function| function.of.is_some() || function.name.ends_with("mem");
    for function in all.iter().filter(of_type) {
        body.push_str(&typed(function));
    }
    body.push('\n');
    body.push_str(OTHER_GENERICS);
    guarded("CLEARWAY_SHMEM_QUEUE_H", "Queues under the names of the proposal.", &body)
}

/// The function of the proposal that is `function` of the library.
fn typed(function: &Function) -> String {
    let c = function.of.map_or("void", |of| of.c);
    let word = function.of.map_or("", |of| of.name);
    let (start, end) =
        if word.is_empty() { (String::new(), "mem") } else { (format!("{word}_"), "") };
    let name = &function.name;
    let (proposed, parameters, arguments) = if name.contains("data_push") {
        ("data_push", format!("{c} *src_buffer, size_t nelems, int pe"), "src_buffer, nelems, pe")
    } else if name.contains("data_pop") {
        ("data_pop", format!("{c} *dest_buffer, size_t nelems, int pe"), "dest_buffer, nelems, &pe")
    } else {
        (
            "comm_push",
            format!("{c} *dest, {c} *src, size_t nelems, int pe, uint64_t op"),
            "dest, src, nelems, pe, op",
        )
    };
    format!(
        "static inline int shmem_queue_{start}{proposed}{end}(shmem_queue_t queue, {parameters})\n\
         {{\n    return {name}(queue, {arguments});\n}}\n"
    )
}
