//! What a kept lab does for commands that come and go.

use std::os::unix::process::CommandExt;
use std::process::{Child, ExitCode, Stdio};

use clearway_lab::{
    CheckOutcome, HOST_VARIABLE, LAB_VARIABLE, Lab, LabError, LabName, LabSpec, QueueKind, keeper,
    permission,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::Case;
use crate::traffic::{exchange, own, star};

pub(crate) const CASES: [Case; 4] = [
    (
        "keeper__a_lab_is_found_entered_and_ended_by_name",
        keeper__a_lab_is_found_entered_and_ended_by_name,
    ),
    (
        "keeper__a_killed_keeper_leaves_only_a_stale_state",
        keeper__a_killed_keeper_leaves_only_a_stale_state,
    ),
    ("keeper__a_failure_comes_back_as_its_sentence", keeper__a_failure_comes_back_as_its_sentence),
    (
        "self_test__names_every_port_that_someone_changed",
        self_test__names_every_port_that_someone_changed,
    ),
];

/// A lab that is ended when the test is, whatever happened to it.
struct EndedLab(LabName);

impl EndedLab {
    fn up(name: &str) -> Option<Self> {
        let name: LabName = format!("{name}-{}", std::process::id()).parse().unwrap();
        match start(&name, &LabSpec::new(star(2))) {
            Ok(()) => Some(Self(name)),
            Err(LabError::Keeper(reason))
                if permission::probe().road.is_none() || reason.contains("may not") =>
            {
                eprintln!("skipped: {reason}");
                None
            }
            Err(other) => panic!("{other}"),
        }
    }

    fn sleeper(&self, host: &str) -> Child {
        let mut child =
            own(&["--as-entered", self.0.as_str(), host]).stdout(Stdio::piped()).spawn().unwrap();
        // The first byte says that it lives in the host.
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0; 1]).unwrap();
        child
    }
}

impl Drop for EndedLab {
    fn drop(&mut self) {
        let _ = keeper::down(&self.0);
    }
}

fn start(name: &LabName, spec: &LabSpec) -> Result<(), LabError> {
    keeper::start(own(&["--as-keeper", name.as_str(), &serde_json::to_string(spec).unwrap()]))
}

pub(crate) fn as_keeper(name: &str, spec: &str) -> ExitCode {
    let (name, spec) = (name.parse().unwrap(), serde_json::from_str(spec).unwrap());
    let mut out = std::io::stdout();
    if let Err(reason) = permission::acquire() {
        use std::io::Write;
        writeln!(out, "{reason}").unwrap();
        return ExitCode::FAILURE;
    }
    let Err(_told) = keeper::run(&name, &spec, out);
    ExitCode::FAILURE
}

/// Enters a host, then sleeps there as another program, as `lab exec` does.
pub(crate) fn as_entered(name: &str, host: &str) -> ExitCode {
    keeper::enter(&name.parse().unwrap(), host).unwrap();
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "printf x; exec sleep 600"]).env(LAB_VARIABLE, name).env(HOST_VARIABLE, host);
    eprintln!("{}", shell.exec());
    ExitCode::FAILURE
}

fn keeper__a_lab_is_found_entered_and_ended_by_name() {
    let Some(kept) = EndedLab::up("found") else { return };
    let name = &kept.0;
    assert!(
        matches!(start(name, &LabSpec::new(star(2))), Err(LabError::Keeper(s)) if s.contains("already up"))
    );
    assert!(keeper::list().unwrap().iter().any(|status| status.up && status.state.name == *name));
    let refused = keeper::enter(name, "h2").unwrap_err().to_string();
    assert_eq!(refused, "the lab has no host `h2`; its hosts are h0 to h1");

    let mut sleeper = kept.sleeper("h1");
    let status = keeper::status(name).unwrap();
    assert_eq!(
        (status.up, status.inhabitants.as_slice()),
        (true, [sleeper.id() as i32].as_slice())
    );
    let namespace = std::fs::read_link(format!("/proc/{}/ns/net", sleeper.id())).unwrap();
    assert_eq!(namespace.to_str().unwrap(), format!("net:[{}]", status.state.spaces[1].inode));

    let down = keeper::down(name).unwrap();
    assert_eq!((down.ended, down.left), (vec![sleeper.id() as i32], vec![]));
    assert!(!status.state.keeper.lives());
    sleeper.wait().unwrap();
    assert!(matches!(keeper::down(name), Err(LabError::NotUp(_))));
    assert!(matches!(keeper::status(name), Err(LabError::NotUp(_))));
}

fn keeper__a_killed_keeper_leaves_only_a_stale_state() {
    let Some(kept) = EndedLab::up("stale") else { return };
    let status = keeper::status(&kept.0).unwrap();
    kill(Pid::from_raw(status.state.keeper.pid), Signal::SIGKILL).unwrap();
    while status.state.keeper.lives() {
        std::thread::yield_now();
    }
    let stale = keeper::status(&kept.0).unwrap();
    assert!(!stale.up && stale.inhabitants.is_empty());
    assert!(!stale.state.spaces[0].path.exists());
    assert!(matches!(keeper::enter(&kept.0, "h0"), Err(LabError::NotUp(_))));
    start(&kept.0, &LabSpec::new(star(2))).unwrap();
    assert!(keeper::status(&kept.0).unwrap().up, "the name is free again");
    keeper::down(&kept.0).unwrap();
}

fn keeper__a_failure_comes_back_as_its_sentence() {
    let name = "refused".parse().unwrap();
    let sentence = start(&name, &LabSpec::new(star(0))).unwrap_err().to_string();
    let possible = [
        &*sentence == "a lab of 0 hosts is impossible: 1 to 1000 hosts work",
        sentence.contains("may not"),
    ];
    assert!(possible.contains(&true), "{sentence}");
    assert!(matches!(keeper::status(&name), Err(LabError::NotUp(_))));
}

/// Runs last: it moves this process into the keeper's user namespace.
fn self_test__names_every_port_that_someone_changed() {
    let Some(kept) = EndedLab::up("changed") else { return };
    let mut one: Lab = keeper::attach(&kept.0).unwrap();
    let other: Lab = keeper::attach(&kept.0).unwrap();
    exchange(&other, 0, 1, b"attached");
    one.rearm(QueueKind::Fifo).unwrap();
    let test = other.self_test().unwrap();
    let wrong = |port: &&clearway_lab::PortTest| {
        port.checks.iter().any(|check| check.name == "order" && check.outcome != CheckOutcome::Pass)
    };
    assert_eq!(test.ports.iter().filter(wrong).count(), 4, "{test:#?}");
    assert_ne!(test.outcome(), CheckOutcome::Pass);
}
