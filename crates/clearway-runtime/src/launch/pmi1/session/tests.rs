//! Sessions against a launcher in memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use super::*;

/// A launcher in memory that refuses what a real one refuses: long lines, keys put twice, keys
/// nobody put.
#[derive(Debug)]
struct MemoryLauncher {
    values: Mutex<BTreeMap<String, String>>,
    barrier: Barrier,
}

/// One rank's end.
#[derive(Debug)]
struct RankEnd {
    launcher: Arc<MemoryLauncher>,
    answer: Vec<u8>,
}

impl LineChannel for RankEnd {
    fn lend(&mut self) -> Result<ProgramShare, LaunchError> {
        Ok(ProgramShare::default())
    }

    fn take_back(&mut self) -> Result<(), LaunchError> {
        Ok(())
    }

    fn send_line(&mut self, request: &str) -> Result<(), LaunchError> {
        assert!(request.len() < LINE_SAFE, "a line of {} characters", request.len());
        let reply = Pmi1Reply::parse(request.as_bytes()).unwrap();
        let field = |name| reply.field(name).unwrap().to_owned();
        self.answer = match field("cmd").as_str() {
            "init" => "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n".to_owned(),
            "get_maxes" => "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n".to_owned(),
            "get_my_kvsname" => "cmd=my_kvsname kvsname=kvs_1_0_42_host\n".to_owned(),
            "put" => {
                assert!(field("key").len() < 64 && field("value").len() < 1024);
                let before =
                    self.launcher.values.lock().unwrap().insert(field("key"), field("value"));
                assert_eq!(before, None, "a key put twice");
                "cmd=put_result rc=0 msg=success\n".to_owned()
            }
            "get" => match self.launcher.values.lock().unwrap().get(&field("key")) {
                Some(value) => format!("cmd=get_result rc=0 msg=success value={value}\n"),
                None => "cmd=get_result rc=-1 msg=key_not_found value=unknown\n".to_owned(),
            },
            "barrier_in" => {
                self.launcher.barrier.wait();
                "cmd=barrier_out rc=0\n".to_owned()
            }
            "finalize" => "cmd=finalize_ack rc=0\n".to_owned(),
            other => panic!("{other}"),
        }
        .into_bytes();
        Ok(())
    }

    fn next_line(&mut self, _what: &'static str) -> Result<Vec<u8>, LaunchError> {
        Ok(std::mem::take(&mut self.answer))
    }
}

/// Runs `act` as each of `size` ranks and returns what they made.
fn ranks<T: Send>(size: u32, act: impl Fn(&mut Pmi1Session<RankEnd>) -> T + Sync) -> Vec<T> {
    let barrier = Barrier::new(size as usize);
    let launcher = Arc::new(MemoryLauncher { values: Mutex::default(), barrier });
    thread::scope(|scope| {
        let started: Vec<_> = (0..size)
            .map(|rank| {
                let (launcher, act) = (Arc::clone(&launcher), &act);
                scope.spawn(move || {
                    let mut session =
                        Pmi1Session::start(RankEnd { launcher, answer: Vec::new() }, rank, size)
                            .unwrap();
                    let made = act(&mut session);
                    Box::new(session).finish().unwrap();
                    made
                })
            })
            .collect();
        started.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Returns what rank `rank` gives to exchange `round`: lengths from nothing to many pages.
fn contribution(rank: u32, round: u32) -> Vec<u8> {
    (0..rank * 700 * round).map(|i| (i + rank) as u8).collect()
}

#[test]
fn exchange__everybody_gets_everything_twice() {
    let all = ranks(5, |session| {
        let first = session.exchange(&contribution(session.rank, 1)).unwrap();
        session.barrier().unwrap();
        (first, session.exchange(&contribution(session.rank, 2)).unwrap())
    });
    for (first, second) in all {
        assert_eq!(first, (0..5).map(|rank| contribution(rank, 1)).collect::<Vec<_>>());
        assert_eq!(second, (0..5).map(|rank| contribution(rank, 2)).collect::<Vec<_>>());
    }
}

#[test]
fn exchange__the_longest_contribution_arrives() {
    let all =
        ranks(2, |session| session.exchange(&vec![session.rank as u8; EXCHANGE_MAX]).unwrap());
    assert_eq!(all[1], [vec![0; EXCHANGE_MAX], vec![1; EXCHANGE_MAX]]);
}

#[test]
fn room__a_line_stays_below_what_everybody_reads() {
    assert_eq!(room(1024, "kvs").unwrap(), 1024 - 69 - 3);
    assert_eq!(room(256, "kvs").unwrap(), 255);
    assert!(room(16, "kvs").is_err());
    assert!(room(1024, &"k".repeat(2000)).is_err());
}

#[test]
fn hand_over__a_farewell_that_a_program_has_said_already_is_no_failure() {
    /// The end of a connection that its program has closed.
    #[derive(Debug)]
    struct ClosedEnd;
    impl LineChannel for ClosedEnd {
        fn lend(&mut self) -> Result<ProgramShare, LaunchError> {
            Ok(ProgramShare::default())
        }
        fn take_back(&mut self) -> Result<(), LaunchError> {
            Ok(())
        }
        fn send_line(&mut self, _: &str) -> Result<(), LaunchError> {
            Err(text::refused("the launcher closed PMI_FD".to_owned()))
        }
        fn next_line(&mut self, _: &'static str) -> Result<Vec<u8>, LaunchError> {
            Err(text::refused("the launcher closed PMI_FD".to_owned()))
        }
    }
    let session = |is_lent| Pmi1Session {
        lines: ClosedEnd,
        rank: 0,
        size: 1,
        space: String::new(),
        room: 100,
        exchanges: 1,
        is_lent,
    };
    let mut lent = session(false);
    assert!(!lent.hand_over().unwrap().has_barriers, "the launcher's barriers are the program's");
    Box::new(lent).finish().unwrap();
    Box::new(session(false)).finish().unwrap_err();
}
