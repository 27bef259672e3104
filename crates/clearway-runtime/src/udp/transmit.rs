//! Decides how messages leave: which share a system call, which share one segmented packet, and
//! what a refusal means.
//!
//! # Model
//! Messages of one class wait in a plan. Neighbours with the same target and length become one
//! *run*: the kernel carries it as one large packet and cuts it late (`UDP_SEGMENT`). All runs of a
//! class leave in one system call.
//!
//! # Source
//! Refusals: some devices accept `UDP_SEGMENT` as an option and then fail the send with EIO or
//! EINVAL; the same bytes must leave unsegmented then. ENOBUFS is the queue of the device
//! (`IP_RECVERR` makes the kernel say so).
//!
//! # Invariants
//! I1. Messages of a class leave in the order planned; after one that found no room, none leaves.
//! I2. A run of one message never carries `UDP_SEGMENT`.

use std::io;
use std::net::SocketAddrV4;
use std::ops::Range;

use clearway_proto::wire::Span;

/// `UDP_MAX_SEGMENTS` of kernels since 4.18 (later ones allow 128).
pub(super) const SEGMENTS_MAX: usize = 64;
/// Bytes of one run: below the 65,507 that fit one IPv4 datagram.
pub(super) const RUN_LENGTH_MAX: usize = 65_000;
/// Runs in one system call; bounds the memory of its arguments.
const RUNS_MAX: usize = 64;
/// Attempts at one run when the kernel reports an older packet's fate in place of this one's.
/// Reports arrive between the attempts as well, so it cannot be one; more than a few mean that the
/// fault is this run's own.
const ATTEMPTS_MAX: u32 = 3;

/// Whether runs leave as one large packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segmentation {
    /// Yes: least processor time. Queues then see packets of up to 64 kB, and count them as one.
    Offload,
    /// No, as asked for: every message is a real packet from the beginning, as experiments with
    /// queues need it.
    RealPackets,
    /// No: the device refused.
    Refused,
}

/// One message of a plan.
#[derive(Clone, Debug)]
pub(super) struct PlannedMessage {
    /// Its place among the answers.
    pub(super) answer: usize,
    /// Where it goes.
    pub(super) to: SocketAddrV4,
    /// The frame's and the engine's header in the staging bytes.
    pub(super) head: Range<usize>,
    /// The body, already checked.
    pub(super) body: Span,
}

impl PlannedMessage {
    fn length(&self) -> usize {
        self.head.len() + self.body.length as usize
    }
}

/// Neighbouring messages that leave as one packet of the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentRun {
    /// Where it goes.
    pub(super) to: SocketAddrV4,
    /// The first message.
    pub(super) first: usize,
    /// How many there are.
    pub(super) count: usize,
    /// The length of each message but the last; `None` for a single one.
    pub(super) segment: Option<u16>,
}

impl SegmentRun {
    /// Returns the messages' places in the plan.
    pub(super) fn messages(&self) -> Range<usize> {
        self.first..self.first + self.count
    }
}

/// What stops a class from sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendStop {
    /// Its socket's send buffer; the kernel tells when there is room.
    Socket,
    /// The device's queue; nobody tells when there is room.
    Device,
}

/// How far a plan got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SendProgress {
    /// Messages handed to the kernel, or lost with an error; the rest found no room.
    pub(super) messages: usize,
    /// Why the rest did not leave.
    pub(super) full: Option<SendStop>,
    /// Failures counted on the way.
    pub(super) errors: u64,
}

/// Where runs leave: a socket, or a test's stand-in.
pub(super) trait RunSender {
    /// Sends runs in order; returns how many were taken, or the error of the first.
    fn send<'a>(
        &mut self,
        runs: &[SegmentRun],
        pieces_of: &dyn Fn(usize) -> [&'a [u8]; 2],
    ) -> io::Result<usize>;

    /// Forgets what older packets met; returns how many reports there were.
    fn drain_errors(&mut self) -> u64;
}

/// What to do about a refused run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RefusalRemedy {
    Again,
    Wait(SendStop),
    Unsegment,
    Drain,
}

fn remedy(error: &io::Error, run: &SegmentRun) -> RefusalRemedy {
    match error.raw_os_error() {
        Some(libc::EINTR) => RefusalRemedy::Again,
        Some(libc::EAGAIN) => RefusalRemedy::Wait(SendStop::Socket),
        Some(libc::ENOBUFS | libc::ENOMEM) => RefusalRemedy::Wait(SendStop::Device),
        Some(libc::EIO | libc::EINVAL | libc::EMSGSIZE) if run.segment.is_some() => {
            RefusalRemedy::Unsegment
        }
        _ => RefusalRemedy::Drain,
    }
}

/// Joins neighbours of `planned[from..]` to runs.
fn join(
    planned: &[PlannedMessage],
    from: usize,
    segmentation: Segmentation,
    runs: &mut Vec<SegmentRun>,
) {
    runs.clear();
    let segments_max = if segmentation == Segmentation::Offload { SEGMENTS_MAX } else { 1 };
    let mut open: Option<(SegmentRun, usize)> = None;
    for (i, message) in planned.iter().enumerate().skip(from) {
        let length = message.length();
        if let Some((run, segment)) = &mut open
            && run.to == message.to
            && run.count < segments_max
            && length <= *segment
            && (run.count + 1) * *segment <= RUN_LENGTH_MAX
        {
            run.count += 1;
            run.segment = u16::try_from(*segment).ok();
            if length == *segment {
                continue;
            }
            // A shorter message ends its run.
            runs.push(*run);
            open = None;
            continue;
        }
        let next = SegmentRun { to: message.to, first: i, count: 1, segment: None };
        runs.extend(open.replace((next, length)).map(|(run, _)| run));
    }
    runs.extend(open.map(|(run, _)| run));
}

/// Sends a plan as far as it goes. `runs` is memory to work in.
pub(super) fn send_all<'a>(
    outlet: &mut dyn RunSender,
    planned: &[PlannedMessage],
    segmentation: &mut Segmentation,
    runs: &mut Vec<SegmentRun>,
    pieces_of: &dyn Fn(usize) -> [&'a [u8]; 2],
) -> SendProgress {
    let mut sent = SendProgress { messages: planned.len(), ..SendProgress::default() };
    let mut next = 0;
    let mut attempts = 0;
    join(planned, 0, *segmentation, runs);
    while let Some(run) = runs.get(next).copied() {
        let batch = &runs[next..runs.len().min(next + RUNS_MAX)];
        let error = match outlet.send(batch, pieces_of) {
            Ok(taken) => {
                next += taken.max(1);
                attempts = 0;
                continue;
            }
            Err(error) => error,
        };
        match remedy(&error, &run) {
            RefusalRemedy::Again => {}
            RefusalRemedy::Wait(full) => {
                return SendProgress { messages: run.first, full: Some(full), ..sent };
            }
            RefusalRemedy::Unsegment => {
                *segmentation = Segmentation::Refused;
                sent.errors += 1;
                join(planned, run.first, *segmentation, runs);
                next = 0;
            }
            RefusalRemedy::Drain => {
                attempts += 1;
                sent.errors += outlet.drain_errors();
                if attempts == ATTEMPTS_MAX {
                    sent.errors += 1;
                    next += 1;
                    attempts = 0;
                }
            }
        }
    }
    sent
}

#[cfg(test)]
mod tests;
