//! A transfer over a reliable wire, from either end: writes of 64 KiB into the peer's memory.

use std::error::Error;
use std::io::{self, Write};

use clearway_proto::base::{Bytes, Class, LocalNs, Nanos, Rank};
use clearway_proto::reliable::ReliableWire;
use clearway_proto::wire::{
    Arrival, Operation, PathId, PostOutcome, RemoteSpan, Span, Status, Token, Wire,
};
use clearway_runtime::clock;
use clearway_runtime::waiting::Waitable;

/// Bytes of one write.
pub(super) const MESSAGE: u32 = 64 << 10;
/// Writes that wait or are under way: 4 MiB, more than a stream's window.
const WINDOW: u64 = 64;

pub(super) type TransferResult = Result<(), Box<dyn Error>>;

/// Says what came of a transfer that began at `begin` and took `used` processor time.
pub(super) fn summarize(begin: LocalNs, used: Nanos, sent: u64, gap: Nanos) -> TransferResult {
    let [seconds, used, gap] = [clock::now().since(begin), used, gap].map(Nanos::as_secs_f64);
    Ok(writeln!(io::stdout(), "seconds {seconds} processor {used} datagrams {sent} gap {gap}")?)
}

/// Writes `count` messages into the peer's memory.
pub(super) fn send<W: Waitable>(
    wire: &mut ReliableWire<W>,
    class: Class,
    count: u64,
) -> TransferResult {
    let region = wire.register(Bytes(u64::from(MESSAGE))).map_err(|missing| missing.to_string())?;
    let bytes = wire.region_mut(region).ok_or("registered")?;
    bytes.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i ^ i >> 9) as u8);
    let from = Span { region, offset: 0, length: MESSAGE };
    let (begin, used) = (clock::now(), clock::processor());
    let (mut posted, mut done) = (0, 0);
    while done < count {
        while posted < count && posted - done < WINDOW {
            let into = RemoteSpan { region, offset: 0 };
            let (path, token) = (PathId(0), Some(Token(posted)));
            let write = Operation::Write {
                to: Rank(1),
                path,
                class,
                from,
                into,
                immediate: Some(posted),
                token,
            };
            let mut answers = Vec::new();
            wire.post(&[write], &[], &mut answers);
            if answers != [PostOutcome::Posted] {
                break;
            }
            posted += 1;
        }
        wire.wait(None, &[]);
        let mut failed = None;
        wire.poll(64, &mut |arrival| match arrival {
            Arrival::Done { status: Status::Complete, .. } => done += 1,
            Arrival::Done { status, .. } => failed = Some(status),
            _ => {}
        });
        if let Some(status) = failed {
            return Err(format!("a write ended as {status:?}").into());
        }
    }
    summarize(begin, clock::processor() - used, wire.counters().sent, Nanos::ZERO)
}

/// Takes `count` writes, from when it said that it is `ready`; stays until the sender knows of the
/// last.
pub(super) fn receive<W: Waitable>(
    wire: &mut ReliableWire<W>,
    count: u64,
    ready: impl FnOnce() -> io::Result<()>,
) -> TransferResult {
    wire.register(Bytes(u64::from(MESSAGE))).map_err(|missing| missing.to_string())?;
    ready()?;
    let (begin, used) = (clock::now(), clock::processor());
    let (mut landed, mut last, mut gap) = (0, None, Nanos::ZERO);
    while landed < count {
        wire.wait(None, &[]);
        let before = landed;
        wire.poll(64, &mut |arrival| {
            landed += u64::from(matches!(arrival, Arrival::Landed { .. }))
        });
        if landed > before {
            let now = clock::now();
            gap = last.map_or(gap, |last| gap.max(now.since(last)));
            last = Some(now);
        }
    }
    summarize(begin, clock::processor() - used, wire.counters().sent, gap)?;
    // Its last answer may be lost: it answers until nothing comes any more.
    let mut heard = clock::now();
    while clock::now().since(heard).as_secs_f64() < 0.3 {
        let before = wire.counters().received;
        wire.wait(Some(clock::now() + Nanos::from_millis(50)), &[]);
        wire.poll(64, &mut |_| {});
        if wire.counters().received > before {
            heard = clock::now();
        }
    }
    Ok(())
}
