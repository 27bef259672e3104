//! Proves what this host's UDP sockets really do: large packets, joined receipt, the kernel's
//! stamps, sizes of buffers.
//!
//! # Model
//! Nothing is taken from an option's name: two ends of the wire on loopback send to each other, and
//! what happened shows.
//! - Segmentation: a run of equal messages leaves in one call, the wire did not fall back, and all
//!   arrive singly.
//! - Joined receipt: a receiver with a tiny buffer drops runs; the kernel counts a joined run as
//!   one drop.
//! - Stamps: a message that is read late carries a stamp from before.

use std::fs;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use clearway_proto::base::{Bytes, Class, Nanos};
use clearway_proto::wire::Wire;
use clearway_runtime::clock;
use clearway_runtime::udp::{Segmentation, SocketBuffers};

use super::finding::{Finding, FindingGroup};
use super::marking::{self, MarkTest, TestedPath};
use super::pair::TestPair;

/// Messages of one run: fewer than the 64 that `UDP_SEGMENT` takes on all kernels that have it.
const RUN: usize = 32;
/// Runs that overfill [`TINY`] many times.
const RUNS: usize = 8;
/// So small that one run of [`RUN`] messages, and the kernel's overhead for each, exceeds it.
const TINY: Bytes = Bytes(4 << 10);
/// A message is left unread for so long: far more than its way takes, far less than anyone notices.
const UNREAD: Nanos = Nanos::from_millis(5);
/// One message may be lost, and the kernel begins to stamp a moment after the first socket asked
/// for it.
const ATTEMPTS: usize = 5;

/// What one proof came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProofResult {
    Works,
    Refused,
    Unclear,
}

/// Tries everything on loopback; returns the findings and the marks.
pub(super) fn examine() -> (FindingGroup, Vec<MarkTest>) {
    let title = "UDP sockets, tried on loopback";
    match TestPair::on_loopback().and_then(|mut pair| Ok((try_all(&mut pair)?, pair))) {
        Ok((mut findings, mut pair)) => {
            let marks = marking::prove(&mut pair, TestedPath::Loopback);
            findings.push(marking::judge(&marks));
            (FindingGroup { title, findings }, marks)
        }
        Err(error) => {
            let finding =
                Finding::missing("wire", format!("{error:#}"), "bring the loopback interface up");
            (FindingGroup { title, findings: vec![finding] }, Vec::new())
        }
    }
}

fn try_all(pair: &mut TestPair) -> Result<Vec<Finding>> {
    if !reaches(pair) {
        let remedy = "bring the loopback interface up, and let its UDP messages pass the firewall";
        return Ok(vec![Finding::missing("messages", "sent to 127.0.0.1 do not arrive", remedy)]);
    }
    let mut findings = vec![stamps(pair), segmentation(segmented(pair))];
    findings.push(joining(joined(&mut TestPair::with_receive_buffer(TINY)?)));
    let (asked, granted) =
        (SocketBuffers::default(), pair.receiver.granted_buffers(Class::BestEffort));
    findings.push(RECEIVE.judge(asked.receive, granted.receive, RECEIVE.limit()));
    findings.push(SEND.judge(asked.send, granted.send, SEND.limit()));
    Ok(findings)
}

/// Returns whether anything arrives; nothing else can be tried before.
fn reaches(pair: &mut TestPair) -> bool {
    (0..ATTEMPTS).any(|_| pair.send(Class::BestEffort, 1) == 1 && !pair.receive(1).is_empty())
}

fn stamps(pair: &mut TestPair) -> Finding {
    let by_kernel = (0..ATTEMPTS).any(|_| {
        pair.send(Class::BestEffort, 1);
        thread::sleep(Duration::from_nanos(UNREAD.0));
        let reading = clock::now();
        pair.receive(1)
            .first()
            .is_some_and(|arrived| reading.since(arrived.at) >= Nanos(UNREAD.0 / 2))
    });
    if by_kernel {
        let error = pair.receiver.stamp_error();
        return Finding::ok("receive stamps", format!("by the kernel on arrival, true to {error}"));
    }
    let found = "taken when a message is read: they include the time it waited for a processor";
    Finding::limited("receive stamps", found, "use a kernel that stamps packets (SO_TIMESTAMPNS)")
}

fn segmented(pair: &mut TestPair) -> ProofResult {
    let taken = pair.send(Class::Bulk, RUN);
    let arrived = pair.receive(taken).len();
    match pair.sender.segmentation() {
        Segmentation::Refused => ProofResult::Refused,
        Segmentation::Offload if taken == RUN && arrived == RUN => ProofResult::Works,
        _ => ProofResult::Unclear,
    }
}

fn segmentation(proof: ProofResult) -> Finding {
    let item = "segmentation";
    let remedy = "use Linux 4.18 or later, with UDP_SEGMENT";
    match proof {
        ProofResult::Works => Finding::ok(
            item,
            format!("{RUN} messages left as one packet (UDP_SEGMENT, GSO) and all arrived"),
        ),
        ProofResult::Refused => Finding::limited(
            item,
            "refused: every message is sent by itself, at more processor time",
            remedy,
        ),
        ProofResult::Unclear => {
            Finding::limited(item, "messages sent as one packet did not all arrive", remedy)
        }
    }
}

fn joined(pair: &mut TestPair) -> ProofResult {
    let taken: usize = (0..RUNS).map(|_| pair.send(Class::Bulk, RUN)).sum();
    let lost = taken.saturating_sub(pair.receive(taken).len()) as u64;
    joined_if(lost, pair.receiver.counters().receive_overflow)
}

/// Returns the result of fewer drops than lost messages: the kernel dropped several at once, as one
/// packet.
fn joined_if(lost: u64, drops: u64) -> ProofResult {
    match (lost, drops) {
        (0, _) | (_, 0) => ProofResult::Unclear,
        _ if drops < lost => ProofResult::Works,
        _ => ProofResult::Refused,
    }
}

fn joining(proof: ProofResult) -> Finding {
    let item = "joined receipt";
    let remedy = "use Linux 5.0 or later, with UDP_GRO";
    match proof {
        ProofResult::Works => Finding::ok(item, "one read brings many messages of a run (UDP_GRO)"),
        ProofResult::Refused => Finding::limited(
            item,
            "every message is received by itself, at more processor time",
            remedy,
        ),
        ProofResult::Unclear => {
            Finding::limited(item, "not known: nothing was dropped on purpose", remedy)
        }
    }
}

/// A kind of socket buffer.
struct BufferKind {
    item: &'static str,
    /// The kernel's limit, below `net.core`.
    sysctl: &'static str,
    /// What a smaller one means.
    beyond: &'static str,
}

const RECEIVE: BufferKind = BufferKind {
    item: "receive buffers",
    sysctl: "rmem_max",
    beyond: "longer bursts of a class are lost",
};
const SEND: BufferKind =
    BufferKind { item: "send buffers", sysctl: "wmem_max", beyond: "senders wait more often" };

/// Judges what sockets of a class would get, by the kernel's limits alone.
pub(super) fn buffer_limits() -> [Finding; 2] {
    let asked = SocketBuffers::default();
    [(RECEIVE, asked.receive), (SEND, asked.send)].map(|(kind, asked)| {
        let limit = kind.limit();
        let granted = limit.map_or(asked, |limit| limit.min(asked));
        kind.judge(asked, Bytes(2 * granted.0), limit)
    })
}

impl BufferKind {
    fn limit(&self) -> Option<Bytes> {
        let text = fs::read_to_string(format!("/proc/sys/net/core/{}", self.sysctl)).ok()?;
        text.trim().parse().ok().map(Bytes)
    }

    /// Judges a buffer; `granted` is what the kernel reports: twice the effective size.
    fn judge(&self, asked: Bytes, granted: Bytes, limit: Option<Bytes>) -> Finding {
        let Self { item, sysctl, beyond } = self;
        let effective = Bytes(granted.0 / 2);
        let limit = limit.map_or("unknown".to_owned(), |limit| limit.to_string());
        let found = format!("{effective} of {asked} granted (net.core.{sysctl} {limit})");
        if effective >= asked {
            return Finding::ok(item, found);
        }
        let remedy = format!("`sysctl -w net.core.{sysctl}={}` as root", asked.0);
        Finding::limited(item, format!("{found}: {beyond}"), remedy)
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Status;
    use super::*;

    #[test]
    fn joined_if__several_lost_for_one_drop() {
        assert_eq!(joined_if(224, 7), ProofResult::Works);
        assert_eq!(joined_if(224, 224), ProofResult::Refused);
        assert_eq!(
            (joined_if(0, 0), joined_if(5, 0)),
            (ProofResult::Unclear, ProofResult::Unclear)
        );
    }

    #[test]
    fn buffer__the_kernels_double_is_halved_and_a_cut_names_the_setting() {
        let asked = Bytes(4 << 20);
        let whole = RECEIVE.judge(asked, Bytes(8 << 20), Some(Bytes(212_992)));
        assert_eq!(
            whole,
            Finding::ok("receive buffers", "4 MiB of 4 MiB granted (net.core.rmem_max 208 KiB)")
        );
        let cut = RECEIVE.judge(asked, Bytes(425_984), Some(Bytes(212_992)));
        assert_eq!(cut.status, Status::Limited);
        assert_eq!(cut.remedies, ["`sysctl -w net.core.rmem_max=4194304` as root"]);
        assert!(cut.found.starts_with("208 KiB of 4 MiB granted"), "{}", cut.found);
    }
}
