//! What OpenSHMEM 1.6 added: blocks, scans, signals without data, completion at some PEs, sessions,
//! and a program that begins again.

use clearway_shmem::address::Caller;
use clearway_shmem::blocks::{self, Blocks};
use clearway_shmem::collective::scan;
use clearway_shmem::constants::{CTX_SESSION_BATCH, CTX_SESSION_SAME_AMO};
use clearway_shmem::context::{self, Context};
use clearway_shmem::team::{self, Team};
use clearway_shmem::{amo, heap, job, order, session, signal};

use super::local::{at, from, get, into, put};
use super::memory::{barrier, who};

const DEFAULT: Context = Context::DEFAULT;

pub(crate) fn newer() {
    interleaved();
    scans();
    signals();
    sessions();
    begins_again();
}

fn interleaved() {
    let (me, next, _) = who();
    let base = heap::calloc(64, 4).expect("began");
    let source: Vec<u32> = (0..24).collect();
    let five_by_three = Blocks::new::<u32>(6, 4, 3, 5);
    blocks::ibput(DEFAULT, at(base, 0), from(&source), five_by_three, next as i32).expect("ibput");
    barrier();
    let expected: Vec<u32> = (0..30)
        .map(|index| if index % 6 < 3 { (index / 6 * 4 + index % 6) as u32 } else { 0 })
        .collect();
    assert_eq!(get::<u32>(at(base, 0), 30, me), expected);
    let mut back = [9u32; 9];
    let two_by_three = Blocks::new::<u32>(5, 6, 3, 2);
    blocks::ibget(DEFAULT, into(&mut back), at(base, 0), two_by_three, next as i32).expect("ibget");
    assert_eq!(back, [0, 1, 2, 9, 9, 4, 5, 6, 9]);
    let refused = |blocks| {
        blocks::ibput(DEFAULT, at(base, 0), from(&source), blocks, next as i32)
            .map_err(|fault| fault.sentence())
    };
    assert!(refused(Blocks::new::<u32>(2, 3, 3, 2)).unwrap_err().starts_with("`dst` is 2;"));
    assert!(refused(Blocks::new::<u32>(3, 2, 3, 2)).unwrap_err().starts_with("`sst` is 2;"));
    assert_eq!(refused(Blocks::new::<u32>(3, 3, 3, 0)), Ok(()), "no block");
    assert!(refused(Blocks::new::<u32>(1 << 40, 3, 3, 2)).unwrap_err().starts_with("`dest` is "));
    barrier();
}

fn scans() {
    let (me, _, pes) = who();
    let source = heap::malloc(8 * 1_000).expect("began");
    let dest = heap::malloc(8 * 1_000).expect("began");
    let of = |pe: usize, index: usize| (pe * 1_001 + index * 3) as u64;
    for count in [0, 1, 7, 8, 1_000] {
        let sums = |members: usize| -> Vec<u64> {
            (0..count).map(|index| (0..members).map(|pe| of(pe, index)).sum()).collect()
        };
        let own: Vec<u64> = (0..count).map(|index| of(me, index)).collect();
        put(at(source, 0), &own, me);
        scan::sum_inscan::<u64>(Team::WORLD, at(dest, 0), at(source, 0), count).expect("a scan");
        assert_eq!(get::<u64>(at(dest, 0), count, me), sums(me + 1));
        scan::sum_exscan::<u64>(Team::WORLD, at(dest, 0), at(source, 0), count).expect("a scan");
        assert_eq!(get::<u64>(at(dest, 0), count, me), sums(me));
        // In place.
        scan::sum_exscan::<u64>(Team::WORLD, at(source, 0), at(source, 0), count).expect("a scan");
        assert_eq!(get::<u64>(at(source, 0), count, me), sums(me));
    }
    put(at(source, 0), &[0.5f64], me);
    scan::sum_inscan::<f64>(Team::WORLD, at(dest, 0), at(source, 0), 1).expect("a scan");
    assert_eq!(get::<f64>(at(dest, 0), 1, me), [0.5 * (me + 1) as f64]);
    // A team counts its members in its own order.
    let (status, back) =
        team::split_strided(Team::WORLD, pes as i32 - 1, -1, pes as i32, 0).expect("a team");
    assert_eq!(status, 0);
    put(at(source, 0), &[1u32], me);
    scan::sum_exscan::<u32>(back, at(dest, 0), at(source, 0), 1).expect("a scan");
    assert_eq!(get::<u32>(at(dest, 0), 1, me), [(pes - 1 - me) as u32]);
    let theirs = team::ptr(back, at(source, 0), 0).expect("began");
    assert_eq!(theirs, job::ptr(at(source, 0), pes as i32 - 1).expect("began"));
    assert!(team::ptr(Team::INVALID, at(source, 0), 0).expect("began").is_null());
    assert_eq!(
        scan::sum_inscan::<u32>(Team::INVALID, at(dest, 0), at(source, 0), 1).ok(),
        Some(-1)
    );
    team::destroy(back).expect("a team");
}

fn signals() {
    let (me, next, pes) = who();
    let flags = heap::calloc(4, 8).expect("began");
    for pe in 0..pes as i32 {
        signal::add(DEFAULT, at(flags, 0), 3, pe).expect("a signal");
    }
    signal::set(DEFAULT, at(flags, 8), me as u64 + 1, next as i32).expect("a signal");
    order::pe_quiet(DEFAULT, from(&[next as i32, me as i32]), 2).expect("these PEs");
    barrier();
    assert_eq!(signal::fetch(at(flags, 0)).expect("a signal"), 3 * pes as u64);
    assert_eq!(signal::fetch(at(flags, 8)).expect("a signal"), ((me + pes - 1) % pes) as u64 + 1);
    order::pe_quiet(DEFAULT, Caller::NONE, 0).expect("no PE");
    order::pe_quiet(Context::INVALID, from(&[99]), 1).expect("no context");
    assert!(order::pe_quiet(DEFAULT, from(&[pes as i32]), 1).is_err());
    let said = signal::set(DEFAULT, at(flags, 4), 1, 0).unwrap_err().sentence();
    assert!(said.starts_with("`sig_addr` is "), "{said}");
}

fn sessions() {
    let (me, next, pes) = who();
    let table = heap::calloc(100, 8).expect("began");
    let (_, own) = context::create(0).expect("began");
    for context in [own, DEFAULT] {
        session::start(context, CTX_SESSION_BATCH, Some(1_000)).expect("a session");
        session::start(context, CTX_SESSION_SAME_AMO, None).expect("the same session");
        for round in 0..1_000usize {
            for pe in 0..pes as i32 {
                amo::add(context, at(table, 8 * (round % 100)), 1i64, pe).expect("add");
            }
        }
        order::fence(context).expect("began");
        amo::set(context, at(table, 8 * 50), -1i64, me as i32).expect("set");
        session::stop(context).expect("a session");
        session::stop(context).expect("no session has no effect");
        order::quiet(context).expect("began");
        barrier();
        let sums = get::<i64>(at(table, 0), 100, next);
        assert_eq!(sums.iter().filter(|sum| **sum == 10 * pes as i64).count(), 99);
        barrier();
        put(at(table, 0), &[0i64; 100], me);
        barrier();
    }
    assert!(session::start(own, 1 << 20, None).is_err());
    session::start(Context::INVALID, CTX_SESSION_BATCH, None).expect("no context");
    context::destroy(own).expect("a context");
    assert!(session::start(own, CTX_SESSION_BATCH, None).is_err());
    assert!(session::stop(own).is_err());
}

/// The end of a program releases what it had, and the next begin is one of all PEs.
fn begins_again() {
    let (me, next, pes) = who();
    let first = heap::malloc(100).expect("began");
    let (_, context) = context::create(0).expect("began");
    let (_, all) = team::split_strided(Team::WORLD, 0, 1, pes as i32, 0).expect("a team");
    job::init(0).expect("counts");
    job::finalize().expect("counts");
    assert_eq!(job::is_initialized(), 1);
    job::finalize().expect("ends");
    assert_eq!(job::is_initialized(), 0);
    assert!(job::finalize().is_err());
    for level in [1, 3] {
        assert_eq!(job::init(level).expect("begins"), level);
        assert_eq!((job::is_initialized(), job::query_thread().expect("began")), (1, level));
        assert_eq!(team::n_pes(all).expect("began"), -1, "the team is gone");
        assert_eq!(context::team(context).expect("began").0, -1, "the context is gone");
        let block = heap::malloc(100).expect("began");
        assert!(block <= first, "the heap is empty");
        put(at(block, 0), &[me as u64 + 7], next);
        barrier();
        assert_eq!(get::<u64>(at(block, 0), 1, me), [((me + pes - 1) % pes) as u64 + 7]);
        let (status, again) =
            team::split_strided(Team::WORLD, 0, 1, pes as i32, 0).expect("a team");
        assert_eq!((status, team::n_pes(again).expect("began")), (0, pes as i32));
        if level == 1 {
            job::finalize().expect("ends");
        }
    }
}
