//! Sizes and offsets of the declarations against the C compiler, where headers of libfabric are
//! installed.

use std::mem::{offset_of, size_of};
use std::process::Command;

use super::*;

/// What a C program says about a structure, and what Rust says.
macro_rules! layout {
    ($($c:literal $rust:ty { $($c_field:ident $field:ident),* })*) => {
        vec![$(
            (format!("sizeof(struct {})", $c), size_of::<$rust>()),
            $((format!("offsetof(struct {}, {})", $c, stringify!($c_field)), offset_of!($rust, $field)),)*
        )*]
    };
}

/// Returns every structure whose whole size this crate relies on, and every member that it touches.
fn whole() -> Vec<(String, usize)> {
    layout! {
        "fid" Fid { fclass fclass, context context, ops ops }
        "fi_tx_attr" FiTxAttr { caps caps, mode mode, msg_order msg_order, inject_size inject_size, size size,
            rma_iov_limit rma_iov_limit, tclass tclass }
        "fi_rx_attr" FiRxAttr { caps caps, mode mode, msg_order msg_order, size size, iov_limit iov_limit }
        "fi_ep_attr" FiEpAttr { type ep_type, protocol protocol, protocol_version protocol_version,
            max_msg_size max_msg_size, auth_key auth_key }
        "fi_domain_attr" FiDomainAttr { name name, threading threading, control_progress control_progress,
            data_progress data_progress, resource_mgmt resource_mgmt, av_type av_type, mr_mode mr_mode,
            mr_key_size mr_key_size, cq_data_size cq_data_size, caps caps, mode mode, mr_cnt mr_cnt, tclass tclass }
        "fi_fabric_attr" FiFabricAttr { name name, prov_name prov_name, prov_version prov_version,
            api_version api_version }
        "fi_info" FiRecord { next next, caps caps, mode mode, addr_format addr_format, src_addrlen src_addrlen,
            src_addr src_addr, handle handle, tx_attr tx_attr, rx_attr rx_attr, ep_attr ep_attr,
            domain_attr domain_attr, fabric_attr fabric_attr, nic nic }
        "fid_fabric" FidFabric { fid fid, ops ops }
        "fi_av_attr" FiAvAttr { type av_type, count count, name name, flags flags }
        "fid_av" FidAv { fid fid, ops ops }
        "fid_mr" FidMr { fid fid, mem_desc mem_desc, key key }
        "fid_domain" FidDomain { fid fid, ops ops, mr mr }
        "fi_cq_attr" FiCqAttr { size size, format format, wait_obj wait_obj, wait_cond wait_cond, wait_set wait_set }
        "fi_cq_data_entry" FiCompletion { op_context op_context, flags flags, len len, buf buf, data data }
        "fid_cq" FidCq { fid fid, ops ops }
        "iovec" Iovec { iov_base base, iov_len len }
        "fi_msg" FiMsg { msg_iov msg_iov, desc desc, iov_count iov_count, addr addr, context context, data data }
        "fi_rma_iov" FiRmaIov { addr addr, len len, key key }
        "fi_msg_rma" FiMsgRma { msg_iov msg_iov, desc desc, iov_count iov_count, addr addr, rma_iov rma_iov,
            rma_iov_count rma_iov_count, context context, data data }
        "fid_ep" FidEp { fid fid, ops ops, cm cm, msg msg, rma rma, atomic atomic }
        "fi_context2" FiContext2 { internal internal }
    }
}

/// Returns tables of which only the beginning is declared, and a structure that is longer here than
/// there: members only.
fn beginnings() -> Vec<(String, usize)> {
    let all = layout! {
        "fi_ops" FiOps { close close, bind bind, control control }
        "fi_ops_fabric" FiOpsFabric { domain domain, trywait trywait }
        "fi_ops_av" FiOpsAv { insert insert }
        "fi_ops_domain" FiOpsDomain { av_open av_open, cq_open cq_open, endpoint endpoint }
        "fi_ops_mr" FiOpsMr { reg reg }
        "fi_ops_cq" FiOpsCq { read read, readerr readerr }
        "fi_ops_ep" FiOpsEp { setopt setopt }
        "fi_ops_cm" FiOpsCm { getname getname }
        "fi_ops_msg" FiOpsMsg { recvmsg recvmsg, send send, inject inject }
        "fi_ops_rma" FiOpsRma { read read, writemsg writemsg }
        "fi_ops_atomic" FiOpsAtomic { readwrite readwrite, compwrite compwrite, readwritevalid readwritevalid,
            compwritevalid compwritevalid }
        "fi_cq_err_entry" FiCqErrEntry { op_context op_context, flags flags, err err, prov_errno prov_errno,
            err_data err_data, err_data_size err_data_size }
    };
    all.into_iter().filter(|(expression, _)| expression.starts_with("offsetof")).collect()
}

fn constants() -> Vec<(String, usize)> {
    macro_rules! values { ($($name:ident)*) => { vec![$((stringify!($name).to_owned(), $name as usize)),*] }; }
    values! {
        FI_MSG FI_RMA FI_ATOMIC FI_READ FI_WRITE FI_RECV FI_SEND FI_REMOTE_READ FI_REMOTE_WRITE FI_MULTI_RECV
        FI_COMPLETION FI_DELIVERY_COMPLETE FI_SOURCE FI_CONTEXT FI_CONTEXT2
        FI_MR_LOCAL FI_MR_VIRT_ADDR FI_MR_ALLOCATED FI_MR_PROV_KEY FI_MR_ENDPOINT
        FI_ORDER_SAW FI_ORDER_SAS FI_AV_TABLE FI_PROGRESS_MANUAL FI_THREAD_DOMAIN
        FI_RM_ENABLED FI_EP_RDM FI_WAIT_NONE FI_WAIT_FD FI_CQ_FORMAT_DATA FI_GETWAIT FI_ENABLE FI_OPT_ENDPOINT
        FI_OPT_MIN_MULTI_RECV FI_SOCKADDR FI_SOCKADDR_IN FI_SOCKADDR_IN6 FI_TC_BEST_EFFORT FI_TC_LOW_LATENCY
        FI_TC_BULK_DATA FI_TC_SCAVENGER FI_TC_NETWORK_CTRL FI_UINT64 FI_SUM FI_ATOMIC_WRITE FI_CSWAP FI_EAGAIN
        FI_EAVAIL FI_ENODATA
    }
}

/// What the headers of 1.17.0 on x86-64 gave once; catches a slip where no headers are installed.
const SIZES_OF_1_17: [(&str, usize); 6] = [
    ("sizeof(struct fi_info)", 120),
    ("sizeof(struct fi_domain_attr)", 192),
    ("sizeof(struct fi_ep_attr)", 96),
    ("sizeof(struct fi_tx_attr)", 80),
    ("sizeof(struct fid_ep)", 80),
    ("sizeof(struct fi_msg_rma)", 64),
];

#[test]
fn layout__sizes_are_those_of_1_17() {
    let all = whole();
    for (expression, size) in SIZES_OF_1_17 {
        let ours = all.iter().find(|(name, _)| name == expression).map(|(_, size)| *size);
        assert_eq!(ours, Some(size), "{expression}");
    }
}

#[test]
fn layout__every_size_offset_and_constant_is_the_c_compilers() {
    let all = [whole(), beginnings(), constants()].concat();
    let mut source =
        String::from("#include <stddef.h>\n#include <stdio.h>\n#include <sys/uio.h>\n");
    for header in
        ["fabric", "fi_domain", "fi_endpoint", "fi_eq", "fi_rma", "fi_atomic", "fi_cm", "fi_errno"]
    {
        source += &format!("#include <rdma/{header}.h>\n");
    }
    source += "int main(void) {\n";
    for (expression, _) in &all {
        source += &format!("printf(\"%llu\\n\", (unsigned long long) ({expression}));\n");
    }
    source += "}\n";
    let directory =
        std::env::temp_dir().join(format!("clearway-ofi-layout-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory for a C program");
    let (text, program) = (directory.join("layout.c"), directory.join("layout"));
    std::fs::write(&text, source).expect("a written C program");
    let built = Command::new("cc").arg("-o").args([&program, &text]).output();
    let printed = match built {
        Ok(output) if output.status.success() => {
            Command::new(&program).output().map(|output| output.stdout).unwrap_or_default()
        }
        Ok(output) if !String::from_utf8_lossy(&output.stderr).contains("rdma/fabric.h") => {
            panic!("the C program does not compile: {}", String::from_utf8_lossy(&output.stderr))
        }
        _ => {
            eprintln!(
                "skipped: layout against C: no C compiler, or no libfabric headers (libfabric-dev)"
            );
            Vec::new()
        }
    };
    let _ = std::fs::remove_dir_all(&directory);
    if printed.is_empty() {
        return;
    }
    let printed: Vec<u64> = String::from_utf8_lossy(&printed)
        .lines()
        .filter_map(|line| line.trim().parse().ok())
        .collect();
    assert_eq!(printed.len(), all.len());
    for ((expression, ours), theirs) in all.iter().zip(printed) {
        assert_eq!(*ours as u64, theirs, "{expression}");
    }
}
