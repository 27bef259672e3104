//! Teams: splits of splits, numbers in them, contexts, slots used again.

use clearway_shmem::constants::CTX_PRIVATE;
use clearway_shmem::context::Context;
use clearway_shmem::operand::ReduceOp;
use clearway_shmem::team::{self, Team};
use clearway_shmem::{collective, context, heap, job, order, rma};

use super::local::{at, get, put};
use super::memory::{barrier, who};

pub(crate) fn teams() {
    let (me, _, pes) = who();
    let near = at(heap::calloc(1, 8).expect("began"), 0);
    let shared = team::n_pes(Team::SHARED).expect("began");
    let index = team::my_pe(Team::SHARED).expect("began");
    assert_eq!(team::translate_pe(Team::SHARED, index, Team::WORLD).expect("began"), me as i32);
    for pe in 0..pes as i32 {
        let is_shared = team::translate_pe(Team::WORLD, pe, Team::SHARED).expect("began") >= 0;
        assert_eq!(is_shared, !job::ptr(near, pe).expect("began").is_null());
    }
    assert!((1..=pes as i32).contains(&shared));
    assert_eq!(team::n_pes(Team::INVALID).expect("began"), -1);
    assert_eq!(
        team::split_strided(Team::WORLD, 0, 1, pes as i32 + 1, 0).expect("began"),
        (-1, Team::INVALID)
    );
    assert!(team::destroy(Team::WORLD).is_err());
    let base = heap::calloc(64, 8).expect("began");
    // More than there are slots, so they are used again.
    for round in 0..300 {
        let (start, stride) = (round % 2 % pes as i32, 2 - round % 2);
        let size = (pes as i32 - start - 1) / stride + 1;
        let (status, half) =
            team::split_strided(Team::WORLD, start, stride, size, 0).expect("began");
        assert_eq!(status, 0);
        let index = (me as i32 - start) / stride;
        let is_member = me as i32 >= start && (me as i32 - start) % stride == 0;
        assert_eq!(team::my_pe(half).expect("began"), if is_member { index } else { -1 });
        if is_member {
            check_member(half, base, (start, stride, size));
            team::destroy(half).expect("a team");
        }
    }
    barrier();
    grid();
}

fn check_member(half: Team, base: *mut u8, (start, stride, size): (i32, i32, i32)) {
    let (me, _, _) = who();
    let index = team::my_pe(half).expect("began");
    let last = start + (size - 1) * stride;
    assert_eq!(team::translate_pe(half, size - 1, Team::WORLD).expect("began"), last);
    assert_eq!(team::translate_pe(half, size, Team::WORLD).expect("began"), -1);
    put(at(base, 0), &[me as i64], me);
    collective::reduce::<i64>(half, ReduceOp::Sum, at(base, 8), at(base, 0), 1).expect("sum");
    let sum: i64 = (0..size).map(|index| i64::from(start + index * stride)).sum();
    assert_eq!(get::<i64>(at(base, 8), 1, me), [sum]);
    let (status, own) = team::create_context(half, CTX_PRIVATE).expect("began");
    assert_eq!((status, context::team(own).expect("began")), (0, (0, half)));
    // Numbers of a context are those of its team.
    rma::p(own, at(base, 16), i64::from(index), (index + 1) % size).expect("p");
    assert!(rma::p(own, at(base, 16), 0i64, size).is_err());
    order::quiet(own).expect("a context");
    collective::sync(half).expect("sync");
    assert_eq!(get::<i64>(at(base, 16), 1, me), [i64::from((index + size - 1) % size)]);
    if index == 0 {
        context::destroy(own).expect("a context");
        assert!(context::destroy(own).is_err());
    }
    assert_eq!(team::config(half).expect("began"), (0, 0));
}

fn grid() {
    let (me, _, pes) = who();
    let (status, row, column) = team::split_2d(Team::WORLD, 2, 3, 4).expect("began");
    assert_eq!(status, 0);
    assert_eq!(team::my_pe(row).expect("began"), me as i32 % 2);
    assert_eq!(team::my_pe(column).expect("began"), me as i32 / 2);
    assert_eq!(
        (team::config(row).expect("began"), team::config(column).expect("began")),
        ((0, 3), (0, 4))
    );
    let rows = pes.div_ceil(2) as i32;
    let ends_short = pes % 2 == 1 && me % 2 == 1;
    assert_eq!(team::n_pes(column).expect("began"), rows - i32::from(ends_short));
    // Of my row's first, the place in my column: there only if I am the first.
    assert_eq!(team::translate_pe(row, 0, column).expect("began") >= 0, me % 2 == 0);
    let (status, inner) = team::split_strided(column, 0, 1, 1, 0).expect("began");
    assert_eq!((status, inner != Team::INVALID), (0, me / 2 == 0));
    if inner != Team::INVALID {
        team::destroy(inner).expect("a team");
    }
    for team in [row, column] {
        team::destroy(team).expect("a team");
    }
    assert_eq!(context::team(Context::DEFAULT).expect("began"), (0, Team::WORLD));
}
