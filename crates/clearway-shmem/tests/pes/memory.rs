//! Copies, the heap, variables of the executable, forks.

use std::sync::atomic::{AtomicU64, Ordering};

use clearway_shmem::address::{Caller, Symmetric};
use clearway_shmem::context::Context;
use clearway_shmem::{collective, heap, job, order, rma};

use super::local::{at, from, get, into, put};

/// This PE, the next one, and how many there are.
pub(crate) fn who() -> (usize, usize, usize) {
    let (me, pes) = (job::my_pe().expect("began") as usize, job::n_pes().expect("began") as usize);
    (me, (me + 1) % pes, pes)
}

pub(crate) fn barrier() {
    collective::barrier_all().expect("a barrier");
}

pub(crate) fn copies() {
    let (me, next, pes) = who();
    let base = heap::malloc(1 << 20).expect("began");
    assert!(!base.is_null());
    let sizes = [1usize, 2, 3, 7, 8, 9, 15, 16, 31, 64, 100, 4_096, 100_000];
    for (round, size) in sizes.into_iter().enumerate() {
        let bytes: Vec<u8> = (0..size).map(|index| (index * 7 + me + round) as u8).collect();
        put(at(base, 3 + round), &bytes, next);
        order::quiet(Context::DEFAULT).expect("began");
        barrier();
        let theirs: Vec<u8> =
            (0..size).map(|index| (index * 7 + (me + pes - 1) % pes + round) as u8).collect();
        assert_eq!(get::<u8>(at(base, 3 + round), size, me), theirs);
        assert_eq!(get::<u8>(at(base, 3 + round), size, next), bytes);
        barrier();
    }
    rma::p(Context::DEFAULT, at(base, 8), me as i64 - 5, next as i32).expect("p");
    rma::p(Context::DEFAULT, at(base, 17), 1.5f32, next as i32).expect("p");
    barrier();
    assert_eq!(
        rma::g::<i64>(Context::DEFAULT, at(base, 8), next as i32).expect("g"),
        me as i64 - 5
    );
    assert_eq!(rma::g::<f32>(Context::DEFAULT, at(base, 17), next as i32).expect("g"), 1.5);
    barrier();
    strided(base);
    wrong_arguments(base, pes);
}

fn strided(base: *mut u8) {
    let (_, next, _) = who();
    let source: Vec<u32> = (0..40).collect();
    put(at(base, 0), &[0u32; 60], next);
    rma::iput(Context::DEFAULT, at(base, 0), from(&source), 3, 2, 20, 4, next as i32)
        .expect("iput");
    barrier();
    let dense = get::<u32>(at(base, 0), 60, next);
    assert!(
        dense
            .iter()
            .enumerate()
            .all(|(index, value)| *value as usize == if index % 3 == 0 { index / 3 * 2 } else { 0 })
    );
    let mut back = [0u32; 10];
    rma::iget(Context::DEFAULT, into(&mut back), at(base, 0), 2, 3, 5, 4, next as i32)
        .expect("iget");
    assert_eq!(back, [0, 0, 2, 0, 4, 0, 6, 0, 8, 0]);
    barrier();
}

fn wrong_arguments(base: *mut u8, pes: usize) {
    let private = [0u8; 8];
    let put = |dest, bytes, pe| {
        rma::put(Context::DEFAULT, dest, from(&private), bytes, pe)
            .map_err(|fault| fault.sentence())
    };
    assert_eq!(put(at(base, 0), 0, 0), Ok(()));
    assert_eq!(put(Symmetric::new(private.as_ptr()), 0, 0), Ok(()), "no bytes need no memory");
    assert!(
        put(at(base, 0), 8, pes as i32)
            .unwrap_err()
            .starts_with(&format!("`pe` is {pes}; PEs of this"))
    );
    assert!(put(at(base, 0), 8, -1).unwrap_err().starts_with("`pe` is -1;"));
    assert!(
        put(Symmetric::new(private.as_ptr()), 8, 0)
            .unwrap_err()
            .contains("are not in symmetric memory (heap 0x")
    );
    assert!(put(at(base, 1 << 50), 8, 0).is_err());
    assert!(put(at(base, 0), usize::MAX, 0).is_err());
    assert!(rma::put(Context::DEFAULT, at(base, 0), Caller::NONE, 8, 0).is_err());
    assert!(rma::put(Context::INVALID, at(base, 0), from(&private), 8, 0).is_err());
    assert!(rma::iput(Context::DEFAULT, at(base, 0), from(&private), 0, 1, 2, 4, 0).is_err());
}

pub(crate) fn heap() {
    let (me, next, _) = who();
    assert!(heap::malloc(0).expect("began").is_null());
    assert!(heap::malloc(1 << 50).expect("began").is_null());
    assert!(heap::align(3, 8).expect("began").is_null());
    let first = heap::malloc(100).expect("began");
    let aligned = heap::align(1 << 16, 100).expect("began");
    assert_eq!((first.addr() % 64, aligned.addr() % (1 << 16)), (0, 0));
    let zeroed = heap::calloc(1_000, 8).expect("began");
    assert!(get::<u64>(at(zeroed, 0), 1_000, next) == [0; 1_000]);
    barrier();
    put(at(zeroed, 0), &vec![me as u64; 1_000], me);
    let longer = heap::realloc(at(zeroed, 0), 4 << 20).expect("began");
    assert!(get::<u64>(at(longer, 0), 1_000, next) == [next as u64; 1_000]);
    let shorter = heap::realloc(at(longer, 0), 8).expect("began");
    assert_eq!(get::<u64>(at(shorter, 0), 1, next), [next as u64]);
    assert_eq!(job::ptr(at(shorter, 8), me as i32).expect("began"), shorter.wrapping_add(8));
    barrier();
    for block in [first, aligned, shorter] {
        heap::free(at(block, 0)).expect("a block");
    }
    assert!(heap::free(at(first, 0)).is_err());
    assert!(heap::realloc(at(first, 0), 0).is_err());
    heap::free(Symmetric::new(std::ptr::null::<u8>())).expect("nothing");
    assert_eq!(heap::malloc(100).expect("began"), first, "the heap is empty again");
}

/// Initialised and not: both parts of the executable's variables.
static FILLED: AtomicU64 = AtomicU64::new(42);
static EMPTY: [AtomicU64; 1_024] = [const { AtomicU64::new(0) }; 1_024];

pub(crate) fn statics() {
    let (me, next, pes) = who();
    assert_eq!(FILLED.load(Ordering::Relaxed), 42);
    let filled = Symmetric::new(&raw const FILLED);
    let empty = Symmetric::new(&raw const EMPTY[700]);
    assert_eq!(job::addr_accessible(filled, next as i32).expect("began"), 1, "{}", job::report());
    barrier();
    rma::p(Context::DEFAULT, filled, me as u64, next as i32).expect("p");
    rma::p(Context::DEFAULT, empty, 10 + me as u64, next as i32).expect("p");
    barrier();
    let before = ((me + pes - 1) % pes) as u64;
    assert_eq!(
        (FILLED.load(Ordering::Relaxed), EMPTY[700].load(Ordering::Relaxed)),
        (before, 10 + before)
    );
    let on_stack = 0u64;
    assert_eq!(job::addr_accessible(Symmetric::new(&raw const on_stack), 0).expect("began"), 0);
}

pub(crate) fn forks() {
    let (me, next, _) = who();
    FILLED.store(7, Ordering::Relaxed);
    let block = at(heap::malloc(16).expect("began"), 0);
    put(block, &[5u64, 6], me);
    super::local::in_a_fork(|| {
        assert_eq!(FILLED.load(Ordering::Relaxed), 7);
        FILLED.store(99, Ordering::Relaxed);
        EMPTY[100].store(98, Ordering::Relaxed);
        put(block, &[50u64, 60], me);
        if !job::ptr(block, next as i32).expect("began").is_null() {
            put(block, &[51u64, 61], next);
        }
        super::local::in_a_fork(|| {
            assert_eq!(FILLED.load(Ordering::Relaxed), 99);
            assert_eq!(EMPTY[100].load(Ordering::Relaxed), 98);
            assert_eq!(
                get::<u64>(block, 2, me),
                [50, 60],
                "a child of the child has what that wrote"
            );
            put(block, &[70u64, 80], me);
        });
        assert_eq!(get::<u64>(block, 2, me), [50, 60]);
    });
    barrier();
    assert_eq!(get::<u64>(block, 2, me), [5, 6], "children changed the heap");
    assert_eq!(EMPTY[100].load(Ordering::Relaxed), 0);
    let status = std::process::Command::new("sh").args(["-c", "exit 3"]).status().expect("a shell");
    assert_eq!(status.code(), Some(3));
    assert_eq!(FILLED.load(Ordering::Relaxed), 7, "the child changed its own");
    barrier();
    rma::p(Context::DEFAULT, Symmetric::new(&raw const FILLED), 20 + me as u64, next as i32)
        .expect("p");
    barrier();
    assert_eq!(FILLED.load(Ordering::Relaxed), 20 + 1 - me as u64, "still symmetric");
}
