//! Functions of queues that take structures, or return through pointers.

use super::setup::write;
use crate::address::{Caller, Symmetric};
use crate::context::{self, Context};
use crate::fault::Fault;
use crate::queue::channel::{self, PE_ANY};
use crate::queue::comm::{self, ElementClass, Elements, QueueEnds, QueueOperation};
use crate::queue::{self, ClassGrant, QueueAttributes, QueueConfig};
use crate::team::Team;

/// `shmemx_queue_config_t`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct QueueShape {
    qtype: i32,
    sharing_model: i32,
    max_elems: u64,
    max_bytes: u64,
    qos_class: i32,
    timeout_flush: f64,
    op_type: i32,
    pe_type: i32,
    elem_size: usize,
    mask: i64,
    reserved: [i64; 4],
}

/// `shmemx_qop_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct QueueCall {
    op: u64,
    pe: i32,
    elem_type: i32,
    elem_size: usize,
    dest: *mut u8,
    source: *const u8,
    nelems: usize,
    dst: isize,
    sst: isize,
    cond: *const u8,
    fetch: *mut u8,
    sig_addr: *mut u64,
    signal: u64,
    sig_op: i32,
    reserved: [i64; 4],
}

/// # Safety
/// `queue` may be written, and the configuration is null or may be read.
pub(super) unsafe fn create(
    queue: *mut usize,
    team: usize,
    config: *const QueueShape,
) -> Result<i32, Fault> {
    // SAFETY: the caller promises it.
    let shape = if config.is_null() { QueueShape::default() } else { unsafe { *config } };
    let config = QueueConfig {
        kind: shape.qtype,
        sharing: shape.sharing_model,
        elements_max: shape.max_elems,
        bytes_max: shape.max_bytes,
        class: shape.qos_class,
        has_class: shape.mask & queue::MASK_CLASS != 0,
        timeout_s: shape.timeout_flush,
        element_size: shape.elem_size,
    };
    let (answer, handle) = queue::create(Team::from_raw(team), &config)?;
    // SAFETY: the caller promises it.
    unsafe { write(queue, handle) };
    Ok(answer)
}

/// The pointers of a call.
///
/// # Safety
/// The one that is the caller's memory is as [`Caller::new`] says.
pub(super) unsafe fn ends<T>(dest: *mut T, source: *const T) -> QueueEnds {
    // SAFETY: the caller promises it for those that the operation does not look up.
    unsafe {
        QueueEnds {
            dest: Caller::new(dest.cast_const().cast()),
            source: Caller::new(source.cast()),
        }
    }
}

/// # Safety
/// `call` is null or may be read, and its pointers are as [`Caller::new`] says where the operation
/// uses them.
pub(super) unsafe fn push_operation(queue: usize, call: *const QueueCall) -> Result<i32, Fault> {
    if call.is_null() {
        return Ok(queue::EINVAL);
    }
    // SAFETY: the caller promises it.
    let call = unsafe { *call };
    let class = match call.elem_type {
        0 => ElementClass::Integer,
        1 => ElementClass::Float,
        _ => ElementClass::Plain,
    };
    // SAFETY: as above.
    let operation = unsafe {
        QueueOperation {
            op: call.op,
            pe: call.pe,
            elements: Elements::new(call.elem_size.max(1), class, call.nelems),
            ends: ends(call.dest, call.source),
            strides: (call.dst, call.sst),
            expected: Caller::new(call.cond.cast()),
            fetch: Caller::new(call.fetch.cast_const().cast()),
            signal: Symmetric::new(call.sig_addr),
            signal_value: call.signal,
            signal_op: call.sig_op,
        }
    };
    comm::push_operation(queue, &operation)
}

/// # Safety
/// `ticket` is null or may be written.
pub(super) unsafe fn flush_nbi(queue: usize, ticket: *mut u64) -> Result<i32, Fault> {
    let (answer, given) = queue::flush_nbi(queue)?;
    // SAFETY: the caller promises it.
    unsafe { write(ticket, given) };
    Ok(answer)
}

/// # Safety
/// `pe` is null, which asks for any PE, or may be read and written.
pub(super) unsafe fn data_pop(
    queue: usize,
    dest: Caller,
    elements: Elements,
    pe: *mut i32,
) -> Result<i32, Fault> {
    // SAFETY: the caller promises it.
    let asked = if pe.is_null() { PE_ANY } else { unsafe { *pe } };
    let (answer, source) = channel::pop(queue, dest, elements, asked)?;
    if answer == 0 {
        // SAFETY: as above.
        unsafe { write(pe, source) };
    }
    Ok(answer)
}

/// # Safety
/// Both are null or may be written.
pub(super) unsafe fn data_size(
    queue: usize,
    incoming: *mut usize,
    outgoing: *mut usize,
    pe: i32,
) -> Result<i32, Fault> {
    let (answer, sizes) = channel::sizes(queue, pe)?;
    if answer == 0 {
        // SAFETY: the caller promises it.
        unsafe {
            write(incoming, sizes[0] as usize);
            write(outgoing, sizes[1] as usize);
        }
    }
    Ok(answer)
}

/// # Safety
/// `grant` is null or may be written.
pub(super) unsafe fn granted(ctx: usize, grant: *mut ClassGrant) -> Result<i32, Fault> {
    let Some(found) = context::granted(Context::from_raw(ctx))? else { return Ok(queue::EINVAL) };
    // SAFETY: the caller promises it.
    unsafe { write(grant, found) };
    Ok(0)
}

/// # Safety
/// `attributes` is null or may be written.
pub(super) unsafe fn attributes(
    queue: usize,
    attributes: *mut QueueAttributes,
) -> Result<i32, Fault> {
    let (answer, read) = queue::attributes(queue)?;
    if answer == 0 {
        // SAFETY: the caller promises it.
        unsafe { write(attributes, read) };
    }
    Ok(answer)
}
