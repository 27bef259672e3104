//! Writes into memory that another thread changes while they land.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::*;
use crate::wire::foreign_memory::{ForeignMemory, MemoryAccess, WordMemory};

/// Words of one write: a value, again and again, and behind it a flag.
const WORDS: usize = 700;
/// Where writes go: at no multiple of a fragment.
const AT: u64 = 8 * 13;
/// The word that the other thread counts in, between the writes' words and the flag of the next.
const FLAG: u64 = AT + 8 * WORDS as u64;
const COUNTER: u64 = 0;

/// What the thread at the target saw.
#[derive(Default)]
struct TargetObservation {
    flags: AtomicU64,
    torn: AtomicU64,
}

/// Takes each flag as it comes, looks whether any word is torn, and counts in a word of its own,
/// until asked to stop.
fn program(memory: &WordMemory, seen: &TargetObservation, stop: &AtomicBool) {
    let word = |at| memory.word(at).expect("inside");
    while !stop.load(Ordering::Acquire) {
        word(COUNTER).fetch_add(1, Ordering::Relaxed);
        for index in 0..WORDS as u64 {
            let bytes = word(AT + 8 * index).load(Ordering::Relaxed).to_ne_bytes();
            seen.torn.fetch_add(
                u64::from(bytes.iter().any(|byte| *byte != bytes[0])),
                Ordering::Relaxed,
            );
        }
        if word(FLAG).swap(0, Ordering::AcqRel) != 0 {
            seen.flags.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// Writes into such memory under loss; how many flags were seen, how many words were torn, and how
/// many fragments were called damaged.
fn run(check: DigestPolicy, writes: u64) -> (u64, u64, u64) {
    let fault_injection = FaultInjection { doubled: 50_000, late: 50_000, damaged: 0 };
    let config = MemoryConfig {
        loss_per_million: 100_000,
        fault_injection,
        seed: 7,
        ..MemoryConfig::lossless(2)
    };
    let mut job = ReliableJob::new(
        config,
        &StreamConfig { check, answer_soon: Nanos::from_micros(20), ..StreamConfig::new(2) },
    );
    let memory = Arc::new(WordMemory::new(FLAG as usize + 64, MemoryAccess::Peers));
    let target = job.wire(1).adopt(Arc::clone(&memory) as Arc<dyn ForeignMemory>).expect("adopted");
    let source = job.memory(0, &[0; 8 * (WORDS + 1)]);
    let (seen, stop) = (Arc::new(TargetObservation::default()), Arc::new(AtomicBool::new(false)));
    let other = {
        let (memory, seen, stop) = (Arc::clone(&memory), Arc::clone(&seen), Arc::clone(&stop));
        thread::spawn(move || program(&memory, &seen, &stop))
    };
    for number in 0..writes {
        job.wire(0).region_mut(source).expect("registered").fill(1 + number as u8);
        let from = Span { region: source, offset: 0, length: 8 * (WORDS as u32 + 1) };
        let into = RemoteSpan { region: target, offset: AT };
        let (to, path, class, token) = (Rank(1), PathId(0), Class::Bulk, Some(Token(number)));
        job.post(0, Operation::Write { to, path, class, from, into, immediate: None, token }, &[]);
        let mut is_over = false;
        while !is_over {
            job.pass(Nanos::from_micros(50));
            job.wire(0).poll(64, &mut |arrival| is_over |= matches!(arrival, Arrival::Done { .. }));
            job.wire(1).poll(64, &mut |arrival| panic!("a silent write is reported: {arrival:?}"));
        }
        // The flag of this write is taken before the next one raises it.
        while memory.word(FLAG).expect("inside").load(Ordering::Acquire) != 0 {
            thread::yield_now();
        }
    }
    stop.store(true, Ordering::Release);
    other.join().expect("the other thread");
    let damaged = job.wire(1).damaged();
    (seen.flags.load(Ordering::Acquire), seen.torn.load(Ordering::Relaxed), damaged)
}

#[test]
fn check__in_memory_that_a_thread_changes_nothing_is_torn_or_damaged_and_each_flag_rises_once() {
    const WRITES: u64 = 60;
    assert_eq!(run(DigestPolicy::Arrived, WRITES), (WRITES, 0, 0));
}
