//! Proves that a lab can be made here: makes one of two hosts, arms every kind of queue, tests its
//! ports, sends every class.
//!
//! # Not here
//! How ports are tested (`clearway_lab`); what a missing permission is called
//! (`clearway_lab::permission`).

use std::io;

use clearway_lab::permission::{Permission, PermissionProbe};
use clearway_lab::{CheckOutcome, Lab, LabError, LabName, LabSpec, QueueKind, SelfTest, Topology};
use clearway_proto::base::BitsPerSec;

use super::finding::{Finding, FindingGroup};
use super::marking::{self, MarkTest, TestedPath};
use super::pair::TestPair;

/// The rate of the lab's documented examples, which every machine that runs it can carry.
const RATE: BitsPerSec = BitsPerSec::mega(100);
/// Two hosts are the fewest that can send to each other.
const HOSTS: u32 = 2;
/// What to do about ports that are not as they should be.
const RETRY: &str = "end other work and try again; if it stays, this kernel's queues cannot be trusted: use another";

/// What was found.
#[derive(Debug)]
pub(super) struct LabExamination {
    /// The findings.
    pub(super) section: FindingGroup,
    /// The marks that arrived.
    pub(super) marks: Vec<MarkTest>,
    /// Why no lab can be made, if so.
    pub(super) refusal: Option<LabError>,
}

/// Examines with `permission` as it was granted; `probe` was taken before.
pub(super) fn examine(
    permission: Result<Permission, LabError>,
    probe: &PermissionProbe,
) -> LabExamination {
    let mut findings = vec![namespaces(permission.as_ref(), probe)];
    let (mut marks, mut refusal) = (Vec::new(), None);
    match permission.and_then(|_| make()) {
        Ok(mut lab) => {
            findings.extend(QueueKind::ALL.map(|kind| queue(kind, prove(&mut lab, kind))));
            match TestPair::in_lab(&lab) {
                Ok(mut pair) => {
                    marks = marking::prove(&mut pair, TestedPath::Lab);
                    findings.push(marking::judge(&marks));
                }
                Err(error) => {
                    let found = format!("no messages between hosts: {error:#}");
                    findings.push(Finding::missing("class marks", found, RETRY));
                }
            }
        }
        Err(error) => {
            let found = "cannot be made, so its queues (tbf, htb, pfifo, u32) were not tried";
            let remedy = match &error {
                LabError::Permission(_) => "the same as for `namespaces`".to_owned(),
                other => other.to_string(),
            };
            findings.push(Finding::missing("lab", found, remedy));
            refusal = Some(error);
        }
    }
    LabExamination { section: FindingGroup { title: "Lab", findings }, marks, refusal }
}

fn make() -> Result<Lab, LabError> {
    let name: LabName = "doctor".parse()?;
    let spec = LabSpec {
        queue: QueueKind::Fifo,
        ..LabSpec::new(Topology::Star { hosts: HOSTS, rate: RATE })
    };
    Lab::up(&name, &spec)
}

fn namespaces(permission: Result<&Permission, &LabError>, probe: &PermissionProbe) -> Finding {
    let item = "namespaces";
    match permission {
        Ok(Permission::Direct) => Finding::ok(item, "by this user's own capabilities (root)"),
        Ok(Permission::UserNamespace) => {
            Finding::ok(item, "without root, in a user namespace of one's own")
        }
        Err(error) => {
            let first = error.to_string();
            let others =
                probe.missing.iter().filter(|sentence| !first.contains(sentence.as_str())).cloned();
            let found = "this user may not make network namespaces";
            let remedies = std::iter::once(first.clone()).chain(others).collect();
            Finding { remedies, ..Finding::missing(item, found, "") }
        }
    }
}

/// Arms every port with `kind` and tests it with packets.
fn prove(lab: &mut Lab, kind: QueueKind) -> Result<io::Result<SelfTest>, LabError> {
    lab.rearm(kind)?;
    Ok(lab.self_test())
}

fn queue(kind: QueueKind, tested: Result<io::Result<SelfTest>, LabError>) -> Finding {
    let item = format!("{kind} queue");
    let (parts, order) = match kind {
        QueueKind::Fifo => ("tbf, htb, pfifo", "classes share it"),
        QueueKind::Strict => ("tbf, htb, pfifo, u32", "the more urgent class overtakes"),
        QueueKind::Weighted | QueueKind::VlArb => {
            ("tbf, htb, pfifo, u32", "classes get their shares")
        }
    };
    match tested {
        Err(error) => {
            Finding::missing(&item, format!("cannot be armed ({parts})"), error.to_string())
        }
        Ok(Err(error)) => Finding::limited(
            &item,
            format!("armed ({parts}), but cannot be tested: {error}"),
            RETRY,
        ),
        Ok(Ok(test)) => test_finding(&item, parts, order, &test),
    }
}

fn test_finding(item: &str, parts: &str, order: &str, test: &SelfTest) -> Finding {
    let ports = test.ports.len();
    match test.outcome() {
        CheckOutcome::Pass => Finding::ok(
            item,
            format!("{parts}; rate, depth, order proven on {ports} ports: {order}"),
        ),
        CheckOutcome::Inconclusive => {
            let found =
                format!("{parts}; armed, but the machine is too busy to prove all {ports} ports");
            Finding::limited(item, found, "end other work and try again")
        }
        CheckOutcome::Fail => {
            Finding::limited(item, format!("{parts}; armed, but {}", faults(test)), RETRY)
        }
    }
}

/// Returns the failed checks of the first failed port.
fn faults(test: &SelfTest) -> String {
    let Some(port) = test.failed().next() else { return "no port is known to be wrong".into() };
    let wrong =
        port.checks.iter().filter(|check| check.outcome == CheckOutcome::Fail).map(|check| {
            let measured =
                check.measured.map_or("nothing".into(), |measured| format!("{measured:.1}"));
            format!("{} is {measured} instead of {:.1} {}", check.name, check.expected, check.unit)
        });
    format!("at port {} {}", port.port, wrong.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::finding::Status;
    use super::*;
    use clearway_lab::{PortCheck, PortTest};
    use clearway_proto::base::Nanos;

    fn test_of(outcome: CheckOutcome) -> SelfTest {
        let check = PortCheck {
            name: "depth",
            unit: "packets",
            expected: 100.0,
            measured: Some(12.25),
            tolerance: 4.0,
            outcome,
        };
        let port = PortTest { port: "h0:eth0".into(), checks: vec![check], outcome, rounds: 1 };
        SelfTest { ports: vec![port], took: Nanos(1) }
    }

    #[test]
    fn namespaces__names_every_obstacle_once() {
        let probe = PermissionProbe { road: None, missing: vec!["set a".into(), "set b".into()] };
        let error = LabError::Permission("this process may not: set a".into());
        let finding = namespaces(Err(&error), &probe);
        assert_eq!(finding.status, Status::Missing);
        assert_eq!(finding.remedies, ["this process may not: set a", "set b"]);
        assert_eq!(namespaces(Ok(&Permission::UserNamespace), &probe).status, Status::Ok);
    }

    #[test]
    fn queue__only_proven_ports_are_ok() {
        let status = |tested| queue(QueueKind::Strict, tested).status;
        assert_eq!(status(Ok(Ok(test_of(CheckOutcome::Pass)))), Status::Ok);
        assert_eq!(status(Ok(Ok(test_of(CheckOutcome::Inconclusive)))), Status::Limited);
        assert_eq!(status(Ok(Ok(test_of(CheckOutcome::Fail)))), Status::Limited);
        assert_eq!(status(Ok(Err(io::ErrorKind::NotFound.into()))), Status::Limited);
        assert_eq!(status(Err(LabError::Impossible("load sch_htb".into()))), Status::Missing);
    }

    #[test]
    fn queue__a_wrong_port_is_named_with_its_figures() {
        let finding = queue(QueueKind::Fifo, Ok(Ok(test_of(CheckOutcome::Fail))));
        assert!(
            finding.found.ends_with("at port h0:eth0 depth is 12.2 instead of 100.0 packets"),
            "{}",
            finding.found
        );
    }
}
