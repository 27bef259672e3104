//! The rows of the functions of queues, which are beyond the standard and stand in a header of
//! their own.
//!
//! # Source
//! OpenSHMEM queues, proposal 0.1 of 2021, with what it leaves open (docs/shmem.md).

use super::Over::{Bytes, Once, Types};
use super::types::{AMO, QUEUE_FLOATS, QUEUE_OTHERS};
use super::{Row, row};

/// All of them.
pub(super) const ROWS: &[Row] = &[
    row(
        Once,
        "int shmemx_queue_create(shmemx_queue_t *queue, shmem_team_t team, const shmemx_queue_config_t *config)",
        "queues::create(queue, team, config)",
    ),
    row(Once, "int shmemx_queue_destroy(shmemx_queue_t queue)", "queue::destroy(queue)"),
    row(Types(AMO), PUSH, PUSH_INTEGERS),
    row(Types(QUEUE_FLOATS), PUSH, PUSH_FLOATS),
    row(Types(QUEUE_OTHERS), PUSH, PUSH_PLAIN),
    row(
        Bytes,
        "int shmemx_queue_push{}(shmemx_queue_t queue, void *dest, const void *source, size_t nelems, int pe, uint64_t op)",
        PUSH_PLAIN,
    ),
    row(
        Once,
        "int shmemx_queue_push_op(shmemx_queue_t queue, const shmemx_qop_t *operation)",
        "queues::push_operation(queue, operation)",
    ),
    row(Once, "int shmemx_queue_progress(shmemx_queue_t queue)", "queue::progress(queue)"),
    row(Once, "int shmemx_queue_fence(shmemx_queue_t queue)", "queue::fence(queue)"),
    row(Once, "int shmemx_queue_flush(shmemx_queue_t queue)", "queue::flush(queue)"),
    row(
        Once,
        "int shmemx_queue_flush_nbi(shmemx_queue_t queue, uint64_t *ticket)",
        "queues::flush_nbi(queue, ticket)",
    ),
    row(
        Once,
        "int shmemx_queue_test(shmemx_queue_t queue, uint64_t ticket)",
        "queue::test(queue, ticket)",
    ),
    row(Types(AMO), DATA_PUSH, DATA_PUSHES),
    row(Types(QUEUE_FLOATS), DATA_PUSH, DATA_PUSHES),
    row(Types(QUEUE_OTHERS), DATA_PUSH, DATA_PUSHES),
    row(
        Bytes,
        "int shmemx_queue_data_push{}(shmemx_queue_t queue, const void *source, size_t nelems, int pe)",
        DATA_PUSHES,
    ),
    row(Types(AMO), DATA_POP, DATA_POPS),
    row(Types(QUEUE_FLOATS), DATA_POP, DATA_POPS),
    row(Types(QUEUE_OTHERS), DATA_POP, DATA_POPS),
    row(
        Bytes,
        "int shmemx_queue_data_pop{}(shmemx_queue_t queue, void *dest, size_t nelems, int *pe)",
        DATA_POPS,
    ),
    row(
        Once,
        "int shmemx_queue_data_advance(shmemx_queue_t queue, int done)",
        "channel::advance(queue, Pushing::from_done(done))",
    ),
    row(
        Once,
        "int shmemx_queue_data_size(shmemx_queue_t queue, size_t *incoming, size_t *outgoing, int pe)",
        "queues::data_size(queue, incoming, outgoing, pe)",
    ),
    row(
        Once,
        "int shmemx_queue_attr(shmemx_queue_t queue, shmemx_queue_attr_t *attr)",
        "queues::attributes(queue, attr)",
    ),
    row(
        Once,
        "int shmemx_ctx_granted(shmem_ctx_t ctx, shmemx_grant_t *grant)",
        "queues::granted(ctx, grant)",
    ),
];

const PUSH: &str = "int shmemx_queue_{}_push(shmemx_queue_t queue, TYPE *dest, const TYPE *source, size_t nelems, int pe, uint64_t op)";
const PUSH_INTEGERS: &str = "comm::push(queue, queues::ends(dest, source), Elements::new(size_of::<{T}>(), ElementClass::Integer, nelems), pe, op)";
const PUSH_FLOATS: &str = "comm::push(queue, queues::ends(dest, source), Elements::new(size_of::<{T}>(), ElementClass::Float, nelems), pe, op)";
const PUSH_PLAIN: &str = "comm::push(queue, queues::ends(dest, source), Elements::new(size_of::<{T}>(), ElementClass::Plain, nelems), pe, op)";
const DATA_PUSH: &str = "int shmemx_queue_{}_data_push(shmemx_queue_t queue, const TYPE *source, size_t nelems, int pe)";
const DATA_PUSHES: &str = "channel::push(queue, own(source), Elements::new(size_of::<{T}>(), ElementClass::Plain, nelems), pe)";
const DATA_POP: &str =
    "int shmemx_queue_{}_data_pop(shmemx_queue_t queue, TYPE *dest, size_t nelems, int *pe)";
const DATA_POPS: &str = "queues::data_pop(queue, own(dest), Elements::new(size_of::<{T}>(), ElementClass::Plain, nelems), pe)";
