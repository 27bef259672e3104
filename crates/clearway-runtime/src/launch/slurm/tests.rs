//! Steps as Slurm describes them, and whole rendezvous on this machine's loopback.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpStream;

use super::*;

fn variables(job: u32, rank: u32, size: u32) -> BTreeMap<String, String> {
    let numbers = [
        ("SLURM_JOB_ID", job),
        ("SLURM_STEP_ID", 2),
        ("SLURM_PROCID", rank),
        ("SLURM_STEP_NUM_TASKS", size),
    ];
    let mut variables: BTreeMap<String, String> =
        numbers.into_iter().map(|(name, value)| (name.to_owned(), value.to_string())).collect();
    variables.insert("SLURM_STEP_NODELIST".to_owned(), "localhost,n[2-3]".to_owned());
    variables
}

fn options(job: u32, rank: u32, size: u32) -> JoinOptions {
    let variables = Some(variables(job, rank, size));
    JoinOptions { variables, timeout: Duration::from_secs(20), ..JoinOptions::default() }
}

fn joined(job: u32, rank: u32, size: u32) -> JoinedJob {
    let options = options(job, rank, size);
    join(&Environment::new(&options), &options).unwrap()
}

/// Returns a job number that no other test, and no other run of the tests at this time, uses.
fn job(test: u32) -> u32 {
    std::process::id().wrapping_mul(16).wrapping_add(test)
}

#[test]
fn read__takes_the_first_node_of_the_step() {
    let options = options(7, 1, 4);
    let step = SlurmStep::read(&Environment::new(&options)).unwrap();
    assert_eq!(
        step,
        SlurmStep { job: 7, step: 2, rank: 1, size: 4, first: "localhost".to_owned() }
    );
}

#[test]
fn read__without_a_step_it_is_absent_and_with_half_of_one_it_fails() {
    let read = |variables| {
        let options = JoinOptions { variables: Some(variables), ..JoinOptions::default() };
        SlurmStep::read(&Environment::new(&options)).unwrap_err()
    };
    assert!(matches!(read(BTreeMap::new()), JoinFailure::Absent(_)));
    for name in ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_JOB_ID"] {
        let mut half = variables(7, 0, 2);
        half.remove(name);
        assert!(matches!(read(half), JoinFailure::Failed(_)), "{name}");
    }
    assert!(matches!(read(variables(7, 2, 2)), JoinFailure::Failed(_)));
}

#[test]
fn ports__differ_and_stay_in_their_range() {
    for job in [0, 1, 4_294_967_295] {
        let step = SlurmStep { job, step: 3, rank: 0, size: 1, first: String::new() };
        let mut ports: Vec<u16> = step.ports().collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), TRIES as usize);
        assert!(ports.iter().all(|port| (20_000..32_000).contains(port)));
    }
}

#[test]
fn join__ranks_meet_although_strangers_are_there_first() {
    let job = job(1);
    let step = SlurmStep { job, step: 2, rank: 0, size: 3, first: String::new() };
    // The hub of another step has the first port.
    let other =
        Hub::new(3, MemberKeys::Shared(MemberKey::new(b"another step")), Duration::from_secs(20));
    let first_port = HubServer::open(listen(step.ports().next().unwrap()).unwrap(), other).unwrap();
    let gave: Vec<Vec<u8>> = (0..3).map(|rank| vec![rank as u8; 10 * rank]).collect();
    thread::scope(|scope| {
        let rank_0 = scope.spawn(|| joined(job, 0, 3));
        let rank_1 = scope.spawn(|| joined(job, 1, 3));
        // A stranger sends rubbish to the hub, another says nothing.
        let port = step.ports().nth(1).unwrap();
        let stranger = || {
            (0..500)
                .find_map(|_| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok().or_else(pause))
        };
        let _silent = stranger();
        let _ = stranger().map(|mut stranger| stranger.write_all(b"GET / HTTP/1.1\r\n\r\n"));
        let rank_2 = scope.spawn(|| joined(job, 2, 3));
        let all = [rank_0, rank_1, rank_2].map(|rank| rank.join().unwrap());
        let ends: Vec<_> = all
            .into_iter()
            .zip(&gave)
            .map(|(mut one, own)| {
                scope.spawn(move || {
                    let got = one.link.exchange(own).unwrap();
                    one.link.barrier().unwrap();
                    one.link.finish().unwrap();
                    got
                })
            })
            .collect();
        for end in ends {
            assert_eq!(end.join().unwrap(), gave);
        }
    });
    drop(first_port);
}

/// Lets the hub come up; nothing is measured by it.
fn pause() -> Option<TcpStream> {
    thread::yield_now();
    None
}

#[test]
fn join__without_a_hub_it_gives_up_in_time() {
    let mut options = options(job(2), 1, 2);
    options.timeout = Duration::from_millis(50);
    let refusal = join(&Environment::new(&options), &options).err().unwrap();
    assert!(matches!(refusal, JoinFailure::Failed(why) if why.contains("no hub of this job")));
}

#[test]
fn is_own_step__a_launcher_in_a_step_of_one_process_for_each_node_has_other_ranks() {
    let is_own = |more: &[(&str, &str)]| {
        let mut variables = variables(7, 1, 4);
        variables.extend(more.iter().map(|(name, value)| ((*name).into(), (*value).into())));
        let options = JoinOptions { variables: Some(variables), ..JoinOptions::default() };
        is_own_step(&Environment::new(&options))
    };
    assert!(is_own(&[]));
    assert!(is_own(&[("PMI_RANK", "1"), ("PMI_SIZE", "4"), ("PMI_FD", "9")]));
    assert!(is_own(&[("PMIX_RANK", "1"), ("PMIX_NAMESPACE", "slurm.pmix.7.2")]));
    assert!(!is_own(&[("PMI_RANK", "3"), ("PMI_SIZE", "8"), ("PMI_FD", "9")]));
    assert!(!is_own(&[("PMI_RANK", "1"), ("PMI_SIZE", "8")]));
    assert!(!is_own(&[("PMIX_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "4")]));
    let none = JoinOptions { variables: Some(BTreeMap::new()), ..JoinOptions::default() };
    assert!(!is_own_step(&Environment::new(&none)));
}

#[test]
fn key__a_program_can_have_a_hub_other_than_that_of_the_process_around_it() {
    let step = SlurmStep { job: 7, step: 3, rank: 0, size: 1, first: String::new() };
    let [own, around] = [LauncherUse::Own, LauncherUse::Program].map(|launcher| step.key(launcher));
    assert_ne!(own.bytes(), around.bytes());
}
