//! Atomic operations, signals, waits, locks, and all of them from threads.

use clearway_shmem::address::Caller;
use clearway_shmem::constants::{
    CMP_EQ, CMP_GE, CMP_GT, CMP_LE, CMP_LT, CMP_NE, SIGNAL_ADD, SIGNAL_SET,
};
use clearway_shmem::context::Context;
use clearway_shmem::{amo, context, heap, lock, order, rma, signal, wait};

use super::local::{at, from, get, into, put};
use super::memory::{barrier, who};

const DEFAULT: Context = Context::DEFAULT;

pub(crate) fn atomics() {
    let (me, next, pes) = who();
    let base = heap::calloc(64, 8).expect("began");
    for _ in 0..1_000 {
        for pe in 0..pes as i32 {
            amo::add(DEFAULT, at(base, 0), 3i64, pe).expect("add");
            amo::fetch_add(DEFAULT, at(base, 8), -1i32, pe).expect("add");
            amo::fetch_xor(DEFAULT, at(base, 16), 1u64 << me, pe).expect("xor");
        }
    }
    amo::or(DEFAULT, at(base, 24), 1u32 << me, 0).expect("or");
    barrier();
    assert_eq!(
        amo::fetch::<i64>(DEFAULT, at(base, 0), next as i32).expect("fetch"),
        3_000 * pes as i64
    );
    assert_eq!(
        amo::fetch::<i32>(DEFAULT, at(base, 8), next as i32).expect("fetch"),
        -1_000 * pes as i32
    );
    assert_eq!(amo::fetch::<u64>(DEFAULT, at(base, 16), next as i32).expect("fetch"), 0);
    assert_eq!(amo::fetch::<u32>(DEFAULT, at(base, 24), 0).expect("fetch"), (1 << pes) - 1);
    barrier();
    // Each PE changes a word of the next one alone.
    let word = at(base, 64);
    amo::set(DEFAULT, word, 5u64, next as i32).expect("set");
    assert_eq!(amo::swap(DEFAULT, word, 6u64, next as i32).expect("swap"), 5);
    assert_eq!(amo::compare_swap(DEFAULT, word, 5u64, 7, next as i32).expect("cswap"), 6);
    assert_eq!(amo::compare_swap(DEFAULT, word, 6u64, 7, next as i32).expect("cswap"), 6);
    let mut fetched = [0u64; 1];
    amo::fetch_and_nbi(DEFAULT, into(&mut fetched), word, 3u64, next as i32).expect("and");
    order::quiet(DEFAULT).expect("began");
    assert_eq!(fetched, [7]);
    amo::swap_nbi(DEFAULT, into(&mut fetched), word, 1.5f64, next as i32).expect("swap");
    order::quiet(DEFAULT).expect("began");
    assert_eq!(fetched, [3]);
    assert_eq!(amo::fetch::<f64>(DEFAULT, word, next as i32).expect("fetch"), 1.5);
    assert!(amo::fetch::<u64>(DEFAULT, at(base, 4), 0).is_err(), "words are aligned");
    barrier();
    signals(base);
}

fn signals(base: *mut u8) {
    let (me, next, pes) = who();
    let (flag, body) = (at(base, 128), at(base, 136));
    for round in 1..200u64 {
        let bytes = [round as u8 + me as u8; 100];
        signal::put(DEFAULT, body, from(&bytes), 100, flag, round, SIGNAL_SET, next as i32)
            .expect("put_signal");
        let seen = signal::wait_until(flag, CMP_GE, round).expect("wait");
        assert!(seen == round);
        let before = (me + pes - 1) % pes;
        assert_eq!(get::<u8>(body, 100, me), [round as u8 + before as u8; 100]);
        barrier();
    }
    signal::put_nbi(DEFAULT, body, Caller::NONE, 0, flag, 1, SIGNAL_ADD, next as i32)
        .expect("a signal without data");
    barrier();
    assert_eq!(signal::fetch(flag).expect("fetch"), 200);
    assert!(signal::put(DEFAULT, body, Caller::NONE, 0, flag, 1, 7, next as i32).is_err());
}

pub(crate) fn waits() {
    let (me, next, pes) = who();
    let base = heap::calloc(64, 8).expect("began");
    // Ping-pong in a ring.
    for round in 1..500i64 {
        if me == 0 {
            rma::p(DEFAULT, at(base, 0), round, next as i32).expect("p");
        }
        wait::until(at(base, 0), CMP_EQ, round).expect("wait");
        if me != 0 {
            rma::p(DEFAULT, at(base, 0), round, next as i32).expect("p");
        }
    }
    barrier();
    for (comparison, value, holds) in [
        (CMP_EQ, 499, 1),
        (CMP_NE, 499, 0),
        (CMP_GT, 498, 1),
        (CMP_GE, 499, 1),
        (CMP_LT, 499, 0),
        (CMP_LE, 500, 1),
    ] {
        assert_eq!(wait::test(at(base, 0), comparison, value as i64).expect("test"), holds);
    }
    assert!(wait::test(at(base, 0), 9, 1i64).is_err());
    several(base, me, pes);
}

/// Waits for and tests of several words, all of this PE.
fn several(base: *mut u8, me: usize, pes: usize) {
    let words = at(base, 64);
    let status = [0, 0, 1, 0i32];
    let (none, skip) = (Caller::NONE, from(&status));
    assert_eq!(wait::test_any(words, 4, none, CMP_GT, 0i32).expect("test"), usize::MAX);
    assert_eq!(wait::until_any(words, 0, none, CMP_GT, 0i32).expect("wait"), usize::MAX);
    assert_eq!(wait::test_all(words, 4, skip, CMP_EQ, 0i32).expect("test"), 1);
    put(words, &[1i32, 0, 1, 1], me);
    let mut counts = [0; 4];
    for _ in 0..20 {
        counts[wait::until_any(words, 4, skip, CMP_GT, 0i32).expect("wait")] += 1;
    }
    assert_eq!(counts, [10, 0, 0, 10], "each that is satisfied has its turn");
    let mut indices = [9usize; 4];
    assert_eq!(
        wait::until_some(words, 4, into(&mut indices), skip, CMP_GT, 0i32).expect("wait"),
        2
    );
    indices[..2].sort_unstable();
    assert_eq!(indices, [0, 3, 9, 9]);
    let values = from(&[1i32, 0, 5, 1]);
    assert_eq!(wait::test_all_vector::<i32>(words, 4, skip, CMP_EQ, values).expect("test"), 1);
    assert_eq!(wait::test_all_vector::<i32>(words, 4, none, CMP_EQ, values).expect("test"), 0);
    wait::until_all_vector::<i32>(words, 4, skip, CMP_EQ, values).expect("wait");
    assert_ne!(wait::until_any_vector::<i32>(words, 4, none, CMP_EQ, values).expect("wait"), 2);
    assert_eq!(
        wait::test_some_vector::<i32>(words, 4, into(&mut indices), none, CMP_EQ, values)
            .expect("test"),
        3
    );
    barrier();
    // Everybody satisfies one word of everybody.
    let flags = at(base, 256);
    for pe in 0..pes {
        amo::set(DEFAULT, at(base, 256 + 8 * me), 1u64, pe as i32).expect("set");
    }
    wait::until_all(flags, pes, none, CMP_EQ, 1u64).expect("wait");
    barrier();
}

pub(crate) fn locks() {
    let (me, _, pes) = who();
    let base = heap::calloc(64, 8).expect("began");
    let (key, count) = (at(base, 8), at(base, 64));
    for _ in 0..300 {
        lock::set(key).expect("a lock");
        let value: i64 = rma::g(DEFAULT, count, 0).expect("g");
        rma::p(DEFAULT, count, value + 1, 0).expect("p");
        lock::clear(key).expect("a lock");
    }
    barrier();
    assert_eq!(rma::g::<i64>(DEFAULT, count, 0).expect("g"), 300 * pes as i64);
    barrier();
    if me == 0 {
        assert_eq!(lock::test(key).expect("a lock"), 0);
        assert_eq!(lock::test(key).expect("a lock"), 1);
    }
    barrier();
    assert!(me == 0 || lock::test(key).expect("a lock") == 1);
    barrier();
    if me == 0 {
        lock::clear(key).expect("a lock");
    }
}

pub(crate) fn threads() {
    let (me, next, pes) = who();
    let base = heap::calloc(64, 8).expect("began");
    std::thread::scope(|scope| {
        for thread in 0..4usize {
            let (sum, flag) = (at(base, 0), at(base, 64 + 8 * thread));
            scope.spawn(move || {
                let (status, own) = context::create(0).expect("began");
                assert_eq!(status, 0);
                for round in 1..500u64 {
                    amo::add(own, sum, 1u64, next as i32).expect("add");
                    rma::p(own, flag, round, next as i32).expect("p");
                    order::fence(own).expect("began");
                }
                wait::until(flag, CMP_EQ, 499u64).expect("wait");
                context::destroy(own).expect("a context");
            });
        }
    });
    barrier();
    assert_eq!(amo::fetch::<u64>(DEFAULT, at(base, 0), me as i32).expect("fetch"), 4 * 499);
    assert!(pes == 2);
}
