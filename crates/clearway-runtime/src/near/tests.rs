//! PEs of one process meet: two mappings of one memory.

use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::thread;

use super::*;

fn meet(places: usize) -> Vec<Near> {
    let entrances: Vec<Entrance> = (0..places).map(|_| Entrance::open().expect("room")).collect();
    let leader = entrances[0].name();
    thread::scope(|scope| {
        let open = |(place, entrance): (usize, Entrance)| {
            scope.spawn(move || {
                let statics = StaticsFile::new(4_096 * (place + 1)).expect("memory");
                let timeout = Duration::from_secs(20);
                let (owners, heap, statics) = (places + 1, 8 << 20, Some(statics));
                let config = NearConfig { place, places, owners, heap, statics, timeout };
                Near::open(entrance, leader, &config).expect("met")
            })
        };
        let all: Vec<_> = entrances.into_iter().enumerate().map(open).collect();
        all.into_iter().map(|one| one.join().expect("no panic")).collect()
    })
}

#[test]
fn open__all_have_the_same_lines_and_everybodys_statics() {
    let all = meet(5);
    all[4].line(5, 2, 0).payload[0].store(9, Ordering::Release);
    assert_eq!(all[1].line(5, 2, 0).payload[0].load(Ordering::Acquire), 9, "of another host");
    for (place, near) in all.iter().enumerate() {
        near.line(place, 3, 1).payload[6].store(place as u64 + 1, Ordering::Release);
        near.commit(0, 4_096).expect("memory");
    }
    for (me, near) in all.iter().enumerate() {
        assert_eq!(near.places(), 5);
        for place in 0..5 {
            assert_eq!(near.line(place, 3, 1).payload[6].load(Ordering::Acquire), place as u64 + 1);
            let length = near.statics(place).map(|part| part.length);
            assert_eq!(length, (place != me).then_some(4_096 * (place + 1)));
            assert_eq!(near.heap(place).length, 8 << 20);
        }
    }
}

#[test]
fn ring__is_the_same_memory_at_both_ends_and_no_other() {
    let all = meet(3);
    let parts = |near: &Near| {
        let rings = (0..9).map(|at| near.ring(at / 3, at % 3).start);
        let starts: Vec<usize> = rings.chain((0..3).map(|place| near.pool(place).start)).collect();
        starts
    };
    for near in &all {
        let starts = parts(near);
        let end = near.heap(2).start + near.heap(2).length;
        assert!(starts[0] >= end && starts.windows(2).all(|two| two[0] + RING_LENGTH <= two[1]));
        assert_eq!(starts[0] - near.heap(0).start, parts(&all[0])[0] - all[0].heap(0).start);
        near.commit_ring(1).expect("memory");
        near.commit_pool(4_096, 8_192).expect("memory");
    }
}

#[test]
fn watch__the_leader_hears_of_all_and_all_hear_of_the_leader() {
    let mut all = meet(3);
    let (tell, reported) = channel();
    for (me, near) in all.iter().enumerate().filter(|(me, _)| *me != 1) {
        let tell = tell.clone();
        near.watch(move |gone| tell.send((me, gone)).expect("heard")).expect("a thread");
    }
    drop(all.remove(1));
    assert_eq!(reported.recv(), Ok((0, 1)), "only the leader has a connection to it");
    drop(all);
}

#[test]
fn open__too_many_places_and_too_long_heaps_are_refused() {
    let open = |places, heap| {
        let entrance = Entrance::open().expect("room");
        let (place, owners, timeout) = (0, places, Duration::ZERO);
        let config = NearConfig { place, places, owners, heap, statics: None, timeout };
        Near::open(entrance, 0, &config).map(drop).unwrap_err().to_string()
    };
    assert_eq!(
        open(257, 4_096),
        "257 PEs were started on one host; at most 256 can share its memory"
    );
    assert!(open(2, usize::MAX).contains("ask for smaller ones"));
    assert!(open(2, 4_096).starts_with("PE 1 of this host did not come"));
}
