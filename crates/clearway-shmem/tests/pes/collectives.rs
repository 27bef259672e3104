//! Every collective, on all PEs and on active sets, back to back and with many lengths.

use clearway_shmem::address::Symmetric;
use clearway_shmem::collective;
use clearway_shmem::collective::active::{self, ActiveSet};
use clearway_shmem::heap;
use clearway_shmem::job;
use clearway_shmem::operand::{Complex, ComplexDouble, ReduceOp};
use clearway_shmem::team::Team;

use super::local::{at, get, put};
use super::memory::{barrier, who};

/// Words, below and above what travels with a step and what is shared out.
const COUNTS: [usize; 8] = [0, 1, 2, 7, 8, 100, 600, 5_000];

pub(crate) fn all() {
    let (me, _, pes) = who();
    let source = heap::malloc(8 * 5_000 * pes).expect("began");
    let dest = heap::malloc(8 * 5_000 * pes).expect("began");
    for count in COUNTS {
        put(at(source, 0), &words(me, count * pes), me);
        one_round(source, dest, count);
    }
    let product = Complex { re: 1.0, im: me as f64 };
    put(at(source, 0), &[product.re, product.im], me);
    collective::reduce::<ComplexDouble>(Team::WORLD, ReduceOp::Sum, at(dest, 0), at(source, 0), 1)
        .expect("sum");
    let sum = (pes * (pes - 1) / 2) as f64;
    assert_eq!(get::<f64>(at(dest, 0), 2, me), [pes as f64, sum]);
    put(at(source, 0), &[me as i16; 3], me);
    collective::reduce::<i16>(Team::WORLD, ReduceOp::Max, at(source, 0), at(source, 0), 3)
        .expect("max");
    assert_eq!(get::<i16>(at(source, 0), 3, me), [pes as i16 - 1; 3]);
}

/// What PE `pe` has as its source.
fn words(pe: usize, count: usize) -> Vec<u64> {
    (0..count).map(|index| (pe * 1_000_003 + index * 7) as u64).collect()
}

/// What a reduction of the sources of `pes` gives.
fn folded(
    pes: impl Iterator<Item = usize>,
    count: usize,
    apply: impl Fn(u64, u64) -> u64,
) -> Vec<u64> {
    let all = pes.map(|pe| words(pe, count));
    all.reduce(|a, b| a.into_iter().zip(b).map(|(a, b)| apply(a, b)).collect()).unwrap_or_default()
}

/// Every collective once, without a barrier in between.
fn one_round(source: *mut u8, dest: *mut u8, count: usize) {
    let (me, _, pes) = who();
    let (from, into) = (at(source, 0), at(dest, 0));
    let bytes = 8 * count;
    for root in 0..pes {
        collective::broadcast(Team::WORLD, into, from, bytes, root as i32).expect("broadcast");
        assert_eq!(get::<u64>(into, count, me), words(root, count));
    }
    collective::fcollect(Team::WORLD, into, from, bytes).expect("fcollect");
    let collected: Vec<u64> = (0..pes).flat_map(|pe| words(pe, count)).collect();
    assert_eq!(get::<u64>(into, count * pes, me), collected);
    let own = count / (me + 1);
    collective::collect(Team::WORLD, into, from, 8 * own).expect("collect");
    let collected: Vec<u64> = (0..pes).flat_map(|pe| words(pe, count / (pe + 1))).collect();
    assert_eq!(get::<u64>(into, collected.len(), me), collected);
    collective::alltoall(Team::WORLD, into, from, bytes).expect("alltoall");
    let exchanged: Vec<u64> = (0..pes)
        .flat_map(|pe| words(pe, count * pes).split_off(me * count)[..count].to_vec())
        .collect();
    assert_eq!(get::<u64>(into, count * pes, me), exchanged);
    let half = count / 2;
    collective::alltoalls(Team::WORLD, into, from, 1, 2, half, 8).expect("alltoalls");
    let strided: Vec<u64> = (0..pes)
        .flat_map(|pe| {
            words(pe, count * pes)
                .into_iter()
                .skip(2 * me * half)
                .step_by(2)
                .take(half)
                .collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(get::<u64>(into, half * pes, me), strided);
    let sums = folded(0..pes, count, |a, b| a + b);
    collective::reduce::<u64>(Team::WORLD, ReduceOp::Sum, into, from, count).expect("sum");
    assert_eq!(get::<u64>(into, count, me), sums);
    // In place, and put back.
    collective::reduce::<u64>(Team::WORLD, ReduceOp::Sum, from, from, count).expect("sum");
    assert_eq!(get::<u64>(from, count, me), sums);
    collective::sync_all().expect("sync");
    put(from, &words(me, count * pes), me);
    collective::sync(Team::WORLD).expect("sync");
}

pub(crate) fn active_sets() {
    let (me, _, pes) = who();
    let source = heap::malloc(8 * 5_000 * pes).expect("began");
    let dest = heap::malloc(8 * 5_000 * pes).expect("began");
    let sync: Symmetric = at(heap::calloc(64, 8).expect("began"), 0);
    for count in COUNTS {
        put(at(source, 0), &words(me, count), me);
        barrier();
        // Every other PE, then all but the first.
        on_set(
            ActiveSet::new(0, 1, pes.div_ceil(2) as i32),
            (0..pes).step_by(2).collect(),
            (source, dest),
            sync,
            count,
        );
        if pes > 1 {
            on_set(
                ActiveSet::new(1, 0, pes as i32 - 1),
                (1..pes).collect(),
                (source, dest),
                sync,
                count,
            );
        }
    }
    assert_eq!(get::<i64>(sync, 64, me), [0; 64], "pSync has its value again");
    let foreign = ActiveSet::new((me as i32 + 1) % 4, 0, 1);
    assert!(pes == 1 || active::barrier(foreign, sync).is_err());
}

fn on_set(
    set: ActiveSet,
    members: Vec<usize>,
    (source, dest): (*mut u8, *mut u8),
    sync: Symmetric,
    count: usize,
) {
    let (me, _, _) = who();
    if !members.contains(&me) {
        return;
    }
    let (from, into, bytes) = (at(source, 0), at(dest, 0), 8 * count);
    active::barrier(set, sync).expect("barrier");
    let kept = vec![5u64; count];
    put(into, &kept, me);
    active::broadcast(set, sync, into, from, bytes, 0).expect("broadcast");
    let expected = if me == members[0] { kept } else { words(members[0], count) };
    assert_eq!(get::<u64>(into, count, me), expected);
    active::fcollect(set, sync, into, from, bytes).expect("fcollect");
    let collected: Vec<u64> = members.iter().flat_map(|pe| words(*pe, count)).collect();
    assert_eq!(get::<u64>(into, collected.len(), me), collected);
    active::reduce::<u64>(set, sync, ReduceOp::Xor, into, from, count).expect("xor");
    let folded = folded(members.iter().copied(), count, |a, b| a ^ b);
    assert_eq!(get::<u64>(into, count, me), folded);
    active::sync(set, sync).expect("sync");
}

/// What a collective sends to the other host: only the first PE of each host says that all came,
/// and no byte crosses twice.
pub(crate) fn crossing() {
    const COUNT: usize = 5_000;
    /// Elements of a get of `COUNT` words.
    const GETS: u64 = 10;
    let (me, _, pes) = who();
    let source = heap::malloc(8 * COUNT * pes).expect("began");
    let dest = heap::malloc(8 * COUNT * pes).expect("began");
    let (from, into) = (at(source, 0), at(dest, 0));
    put(from, &words(me, COUNT), me);
    collective::barrier_all().expect("barrier");
    let Some(first) = job::far_traffic() else { return };
    let is_leader = me % 2 == 0;
    if pes != 4 {
        // Each PE is a host.
        return;
    }
    let mut before = first;
    let mut since = || {
        let now = job::far_traffic().expect("far PEs");
        let last = std::mem::replace(&mut before, now);
        (now.messages - last.messages, now.elements - last.elements)
    };
    collective::sync_all().expect("sync");
    assert_eq!(since(), (is_leader.into(), is_leader.into()), "a synchronisation");
    collective::reduce::<u64>(Team::WORLD, ReduceOp::Sum, into, from, 2).expect("sum");
    // Twice the lines of two PEs: with `SHMEM_DEBUG` PEs first compare what they called.
    let lines = if is_leader { (2, 4) } else { (0, 0) };
    assert_eq!(since(), lines, "a short reduction");
    let leads = u64::from(is_leader);
    collective::broadcast(Team::WORLD, into, from, 8 * COUNT, 1).expect("broadcast");
    let fetched = if me == 2 { GETS } else { 0 };
    assert_eq!(since().1, fetched + leads * (2 + 3), "a long broadcast");
    collective::fcollect(Team::WORLD, into, from, 8 * COUNT).expect("fcollect");
    assert_eq!(since().1, GETS + leads * (2 + 3), "a collection");
    collective::reduce::<u64>(Team::WORLD, ReduceOp::Sum, into, from, COUNT).expect("sum");
    // A quarter of the words is 10,000 bytes: 3 gets and 3 puts.
    assert_eq!(since().1, 6 + leads * (2 + 4), "a long reduction");
    assert_eq!(get::<u64>(into, COUNT, me), folded(0..pes, COUNT, |a, b| a + b));
}
