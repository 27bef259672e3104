//! The part of libfabric's C interface that this crate uses, as the 1.17 headers declare it.
//!
//! # Model
//! A libfabric object is a structure that begins with [`Fid`] and holds pointers to tables of
//! functions. What headers call `fi_send` or `fi_write` are inline calls through these tables, so
//! no such symbol exists in the library. Only members in use have their type here; the others keep
//! their place as [`Unused`] or as plain pointers. Tables and structures grow at their ends only,
//! so what is declared here stays where it is in later releases.
//!
//! # Source
//! `rdma/{fabric,fi_domain,fi_endpoint,fi_eq,fi_rma,fi_atomic,fi_cm}.h` of libfabric 1.17.0 (Debian
//! 12). Written by hand. To make it anew for another release: correct the declarations, then run
//! the tests of this module where that release's headers are installed; they compile a C program
//! and compare every size and offset listed with it.
//!
//! # Invariants
//! I1. Sizes and offsets are those of the C headers (tested).

#![allow(missing_docs, reason = "the names are libfabric's own; its manual pages describe them")]

use std::ffi::{c_char, c_int, c_void};

/// A function that this crate never calls.
pub(crate) type Unused = *const c_void;

/// The interface version asked for: the oldest that has what is needed, so that every release
/// speaks it.
pub(crate) const API_VERSION: u32 = (1 << 16) | 17;

pub(crate) const FI_MSG: u64 = 1 << 1;
pub(crate) const FI_RMA: u64 = 1 << 2;
pub(crate) const FI_ATOMIC: u64 = 1 << 4;
pub(crate) const FI_READ: u64 = 1 << 8;
pub(crate) const FI_WRITE: u64 = 1 << 9;
pub(crate) const FI_RECV: u64 = 1 << 10;
pub(crate) const FI_SEND: u64 = 1 << 11;
pub(crate) const FI_REMOTE_READ: u64 = 1 << 12;
pub(crate) const FI_REMOTE_WRITE: u64 = 1 << 13;
pub(crate) const FI_MULTI_RECV: u64 = 1 << 16;
pub(crate) const FI_COMPLETION: u64 = 1 << 24;
pub(crate) const FI_DELIVERY_COMPLETE: u64 = 1 << 28;
/// The flag of `fi_getinfo` that makes node and service the source address.
pub(crate) const FI_SOURCE: u64 = 1 << 57;

pub(crate) const FI_CONTEXT: u64 = 1 << 59;
pub(crate) const FI_CONTEXT2: u64 = 1 << 52;

pub(crate) const FI_MR_LOCAL: c_int = 1 << 2;
pub(crate) const FI_MR_VIRT_ADDR: c_int = 1 << 4;
pub(crate) const FI_MR_ALLOCATED: c_int = 1 << 5;
pub(crate) const FI_MR_PROV_KEY: c_int = 1 << 6;
pub(crate) const FI_MR_ENDPOINT: c_int = 1 << 9;

pub(crate) const FI_ORDER_SAW: u64 = 1 << 7;
pub(crate) const FI_ORDER_SAS: u64 = 1 << 8;

pub(crate) const FI_AV_TABLE: c_int = 2;
pub(crate) const FI_PROGRESS_MANUAL: c_int = 2;
pub(crate) const FI_THREAD_DOMAIN: c_int = 3;
pub(crate) const FI_RM_ENABLED: c_int = 2;
pub(crate) const FI_EP_RDM: c_int = 3;
pub(crate) const FI_WAIT_NONE: c_int = 0;
pub(crate) const FI_WAIT_FD: c_int = 3;
pub(crate) const FI_CQ_FORMAT_DATA: c_int = 3;
pub(crate) const FI_GETWAIT: c_int = 5;
pub(crate) const FI_ENABLE: c_int = 6;
pub(crate) const FI_OPT_ENDPOINT: c_int = 0;
pub(crate) const FI_OPT_MIN_MULTI_RECV: c_int = 0;

pub(crate) const FI_SOCKADDR: u32 = 1;
pub(crate) const FI_SOCKADDR_IN: u32 = 2;
pub(crate) const FI_SOCKADDR_IN6: u32 = 3;

pub(crate) const FI_TC_BEST_EFFORT: u32 = 0x200;
pub(crate) const FI_TC_LOW_LATENCY: u32 = 0x201;
pub(crate) const FI_TC_BULK_DATA: u32 = 0x203;
pub(crate) const FI_TC_SCAVENGER: u32 = 0x204;
pub(crate) const FI_TC_NETWORK_CTRL: u32 = 0x205;

pub(crate) const FI_UINT64: c_int = 7;
pub(crate) const FI_SUM: c_int = 2;
pub(crate) const FI_ATOMIC_WRITE: c_int = 11;
pub(crate) const FI_CSWAP: c_int = 12;

/// Nothing to read, or no room: `FI_EAGAIN`.
pub(crate) const FI_EAGAIN: i32 = libc::EAGAIN;
/// An error lies in the completion queue: `FI_EAVAIL` (`fi_errno.h`).
pub(crate) const FI_EAVAIL: i32 = 259;
/// The library knows no such provider or option: `FI_ENODATA`.
pub(crate) const FI_ENODATA: i32 = libc::ENODATA;

#[repr(C)]
pub(crate) struct Fid {
    pub(crate) fclass: usize,
    pub(crate) context: *mut c_void,
    pub(crate) ops: *const FiOps,
}

#[repr(C)]
pub(crate) struct FiOps {
    pub(crate) size: usize,
    pub(crate) close: unsafe extern "C" fn(*mut Fid) -> c_int,
    pub(crate) bind: unsafe extern "C" fn(*mut Fid, *mut Fid, u64) -> c_int,
    pub(crate) control: unsafe extern "C" fn(*mut Fid, c_int, *mut c_void) -> c_int,
}

#[repr(C)]
pub(crate) struct FiTxAttr {
    pub(crate) caps: u64,
    pub(crate) mode: u64,
    pub(crate) op_flags: u64,
    pub(crate) msg_order: u64,
    pub(crate) comp_order: u64,
    pub(crate) inject_size: usize,
    pub(crate) size: usize,
    pub(crate) iov_limit: usize,
    pub(crate) rma_iov_limit: usize,
    pub(crate) tclass: u32,
}

#[repr(C)]
pub(crate) struct FiRxAttr {
    pub(crate) caps: u64,
    pub(crate) mode: u64,
    pub(crate) op_flags: u64,
    pub(crate) msg_order: u64,
    pub(crate) comp_order: u64,
    pub(crate) total_buffered_recv: usize,
    pub(crate) size: usize,
    pub(crate) iov_limit: usize,
}

#[repr(C)]
pub(crate) struct FiEpAttr {
    pub(crate) ep_type: c_int,
    pub(crate) protocol: u32,
    pub(crate) protocol_version: u32,
    pub(crate) max_msg_size: usize,
    pub(crate) msg_prefix_size: usize,
    pub(crate) max_order_raw_size: usize,
    pub(crate) max_order_war_size: usize,
    pub(crate) max_order_waw_size: usize,
    pub(crate) mem_tag_format: u64,
    pub(crate) tx_ctx_cnt: usize,
    pub(crate) rx_ctx_cnt: usize,
    pub(crate) auth_key_size: usize,
    pub(crate) auth_key: *mut u8,
}

#[repr(C)]
pub(crate) struct FiDomainAttr {
    pub(crate) domain: *mut FidDomain,
    pub(crate) name: *mut c_char,
    pub(crate) threading: c_int,
    pub(crate) control_progress: c_int,
    pub(crate) data_progress: c_int,
    pub(crate) resource_mgmt: c_int,
    pub(crate) av_type: c_int,
    pub(crate) mr_mode: c_int,
    pub(crate) mr_key_size: usize,
    pub(crate) cq_data_size: usize,
    pub(crate) cq_cnt: usize,
    pub(crate) ep_cnt: usize,
    pub(crate) tx_ctx_cnt: usize,
    pub(crate) rx_ctx_cnt: usize,
    pub(crate) max_ep_tx_ctx: usize,
    pub(crate) max_ep_rx_ctx: usize,
    pub(crate) max_ep_stx_ctx: usize,
    pub(crate) max_ep_srx_ctx: usize,
    pub(crate) cntr_cnt: usize,
    pub(crate) mr_iov_limit: usize,
    pub(crate) caps: u64,
    pub(crate) mode: u64,
    pub(crate) auth_key: *mut u8,
    pub(crate) auth_key_size: usize,
    pub(crate) max_err_data: usize,
    pub(crate) mr_cnt: usize,
    pub(crate) tclass: u32,
}

#[repr(C)]
pub(crate) struct FiFabricAttr {
    pub(crate) fabric: *mut FidFabric,
    pub(crate) name: *mut c_char,
    pub(crate) prov_name: *mut c_char,
    pub(crate) prov_version: u32,
    pub(crate) api_version: u32,
}

#[repr(C)]
pub(crate) struct FiRecord {
    pub(crate) next: *mut FiRecord,
    pub(crate) caps: u64,
    pub(crate) mode: u64,
    pub(crate) addr_format: u32,
    pub(crate) src_addrlen: usize,
    pub(crate) dest_addrlen: usize,
    pub(crate) src_addr: *mut c_void,
    pub(crate) dest_addr: *mut c_void,
    pub(crate) handle: *mut Fid,
    pub(crate) tx_attr: *mut FiTxAttr,
    pub(crate) rx_attr: *mut FiRxAttr,
    pub(crate) ep_attr: *mut FiEpAttr,
    pub(crate) domain_attr: *mut FiDomainAttr,
    pub(crate) fabric_attr: *mut FiFabricAttr,
    pub(crate) nic: *mut c_void,
}

#[repr(C)]
pub(crate) struct FiOpsFabric {
    pub(crate) size: usize,
    pub(crate) domain: unsafe extern "C" fn(
        *mut FidFabric,
        *mut FiRecord,
        *mut *mut FidDomain,
        *mut c_void,
    ) -> c_int,
    pub(crate) passive_ep: Unused,
    pub(crate) eq_open: Unused,
    pub(crate) wait_open: Unused,
    pub(crate) trywait: Option<unsafe extern "C" fn(*mut FidFabric, *mut *mut Fid, c_int) -> c_int>,
}

#[repr(C)]
pub(crate) struct FidFabric {
    pub(crate) fid: Fid,
    pub(crate) ops: *const FiOpsFabric,
    pub(crate) api_version: u32,
}

#[repr(C)]
pub(crate) struct FiAvAttr {
    pub(crate) av_type: c_int,
    pub(crate) rx_ctx_bits: c_int,
    pub(crate) count: usize,
    pub(crate) ep_per_node: usize,
    pub(crate) name: *const c_char,
    pub(crate) map_addr: *mut c_void,
    pub(crate) flags: u64,
}

#[repr(C)]
pub(crate) struct FiOpsAv {
    pub(crate) size: usize,
    pub(crate) insert:
        unsafe extern "C" fn(*mut FidAv, *const c_void, usize, *mut u64, u64, *mut c_void) -> c_int,
}

#[repr(C)]
pub(crate) struct FidAv {
    pub(crate) fid: Fid,
    pub(crate) ops: *const FiOpsAv,
}

#[repr(C)]
pub(crate) struct FidMr {
    pub(crate) fid: Fid,
    pub(crate) mem_desc: *mut c_void,
    pub(crate) key: u64,
}

#[repr(C)]
pub(crate) struct FiOpsDomain {
    pub(crate) size: usize,
    pub(crate) av_open:
        unsafe extern "C" fn(*mut FidDomain, *mut FiAvAttr, *mut *mut FidAv, *mut c_void) -> c_int,
    pub(crate) cq_open:
        unsafe extern "C" fn(*mut FidDomain, *mut FiCqAttr, *mut *mut FidCq, *mut c_void) -> c_int,
    pub(crate) endpoint:
        unsafe extern "C" fn(*mut FidDomain, *mut FiRecord, *mut *mut FidEp, *mut c_void) -> c_int,
}

#[repr(C)]
pub(crate) struct FiOpsMr {
    pub(crate) size: usize,
    pub(crate) reg: unsafe extern "C" fn(
        *mut Fid,
        *const c_void,
        usize,
        u64,
        u64,
        u64,
        u64,
        *mut *mut FidMr,
        *mut c_void,
    ) -> c_int,
}

#[repr(C)]
pub(crate) struct FidDomain {
    pub(crate) fid: Fid,
    pub(crate) ops: *const FiOpsDomain,
    pub(crate) mr: *const FiOpsMr,
}

#[repr(C)]
pub(crate) struct FiCqAttr {
    pub(crate) size: usize,
    pub(crate) flags: u64,
    pub(crate) format: c_int,
    pub(crate) wait_obj: c_int,
    pub(crate) signaling_vector: c_int,
    pub(crate) wait_cond: c_int,
    pub(crate) wait_set: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct FiCompletion {
    pub(crate) op_context: *mut c_void,
    pub(crate) flags: u64,
    pub(crate) len: usize,
    pub(crate) buf: *mut c_void,
    pub(crate) data: u64,
}

#[repr(C)]
pub(crate) struct FiCqErrEntry {
    pub(crate) op_context: *mut c_void,
    pub(crate) flags: u64,
    pub(crate) len: usize,
    pub(crate) buf: *mut c_void,
    pub(crate) data: u64,
    pub(crate) tag: u64,
    pub(crate) olen: usize,
    pub(crate) err: c_int,
    pub(crate) prov_errno: c_int,
    pub(crate) err_data: *mut c_void,
    pub(crate) err_data_size: usize,
    /// Room for what later releases append (2.x: a source address).
    pub(crate) later: [u64; 4],
}

#[repr(C)]
pub(crate) struct FiOpsCq {
    pub(crate) size: usize,
    pub(crate) read: unsafe extern "C" fn(*mut FidCq, *mut c_void, usize) -> isize,
    pub(crate) readfrom: Unused,
    pub(crate) readerr: unsafe extern "C" fn(*mut FidCq, *mut FiCqErrEntry, u64) -> isize,
}

#[repr(C)]
pub(crate) struct FidCq {
    pub(crate) fid: Fid,
    pub(crate) ops: *const FiOpsCq,
}

#[repr(C)]
pub(crate) struct FiOpsEp {
    pub(crate) size: usize,
    pub(crate) cancel: Unused,
    pub(crate) getopt: Unused,
    pub(crate) setopt: unsafe extern "C" fn(*mut Fid, c_int, c_int, *const c_void, usize) -> c_int,
}

#[repr(C)]
pub(crate) struct FiOpsCm {
    pub(crate) size: usize,
    pub(crate) setname: Unused,
    pub(crate) getname: unsafe extern "C" fn(*mut Fid, *mut c_void, *mut usize) -> c_int,
}

#[repr(C)]
pub(crate) struct Iovec {
    pub(crate) base: *mut c_void,
    pub(crate) len: usize,
}

#[repr(C)]
pub(crate) struct FiMsg {
    pub(crate) msg_iov: *const Iovec,
    pub(crate) desc: *mut *mut c_void,
    pub(crate) iov_count: usize,
    pub(crate) addr: u64,
    pub(crate) context: *mut c_void,
    pub(crate) data: u64,
}

#[repr(C)]
pub(crate) struct FiOpsMsg {
    pub(crate) size: usize,
    pub(crate) recv: Unused,
    pub(crate) recvv: Unused,
    pub(crate) recvmsg: unsafe extern "C" fn(*mut FidEp, *const FiMsg, u64) -> isize,
    pub(crate) send: unsafe extern "C" fn(
        *mut FidEp,
        *const c_void,
        usize,
        *mut c_void,
        u64,
        *mut c_void,
    ) -> isize,
    pub(crate) sendv: Unused,
    pub(crate) sendmsg: Unused,
    pub(crate) inject: unsafe extern "C" fn(*mut FidEp, *const c_void, usize, u64) -> isize,
}

#[repr(C)]
pub(crate) struct FiRmaIov {
    pub(crate) addr: u64,
    pub(crate) len: usize,
    pub(crate) key: u64,
}

#[repr(C)]
pub(crate) struct FiMsgRma {
    pub(crate) msg_iov: *const Iovec,
    pub(crate) desc: *mut *mut c_void,
    pub(crate) iov_count: usize,
    pub(crate) addr: u64,
    pub(crate) rma_iov: *const FiRmaIov,
    pub(crate) rma_iov_count: usize,
    pub(crate) context: *mut c_void,
    pub(crate) data: u64,
}

#[repr(C)]
pub(crate) struct FiOpsRma {
    pub(crate) size: usize,
    pub(crate) read: unsafe extern "C" fn(
        *mut FidEp,
        *mut c_void,
        usize,
        *mut c_void,
        u64,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub(crate) readv: Unused,
    pub(crate) readmsg: Unused,
    pub(crate) write: Unused,
    pub(crate) writev: Unused,
    pub(crate) writemsg: unsafe extern "C" fn(*mut FidEp, *const FiMsgRma, u64) -> isize,
}

pub(crate) type AtomicValid = unsafe extern "C" fn(*mut FidEp, c_int, c_int, *mut usize) -> c_int;

#[repr(C)]
pub(crate) struct FiOpsAtomic {
    pub(crate) size: usize,
    pub(crate) write: Unused,
    pub(crate) writev: Unused,
    pub(crate) writemsg: Unused,
    pub(crate) inject: Unused,
    pub(crate) readwrite: unsafe extern "C" fn(
        *mut FidEp,
        *const c_void,
        usize,
        *mut c_void,
        *mut c_void,
        *mut c_void,
        u64,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> isize,
    pub(crate) readwritev: Unused,
    pub(crate) readwritemsg: Unused,
    pub(crate) compwrite: unsafe extern "C" fn(
        *mut FidEp,
        *const c_void,
        usize,
        *mut c_void,
        *const c_void,
        *mut c_void,
        *mut c_void,
        *mut c_void,
        u64,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> isize,
    pub(crate) compwritev: Unused,
    pub(crate) compwritemsg: Unused,
    pub(crate) writevalid: Unused,
    pub(crate) readwritevalid: Option<AtomicValid>,
    pub(crate) compwritevalid: Option<AtomicValid>,
}

#[repr(C)]
pub(crate) struct FidEp {
    pub(crate) fid: Fid,
    pub(crate) ops: *const FiOpsEp,
    pub(crate) cm: *const FiOpsCm,
    pub(crate) msg: *const FiOpsMsg,
    pub(crate) rma: *const FiOpsRma,
    pub(crate) tagged: *const c_void,
    pub(crate) atomic: *const FiOpsAtomic,
    pub(crate) collective: *const c_void,
}

/// Memory that a provider may use for itself while an operation is under way: `struct fi_context2`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct FiContext2 {
    pub(crate) internal: [usize; 8],
}

#[cfg(test)]
mod tests;
