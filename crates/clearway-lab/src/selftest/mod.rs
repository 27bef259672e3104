//! Proves with real packets that every port of a running lab has its rate, its depth and its class
//! order.
//!
//! # Model
//! Each sending end is tested alone, from the namespace it is in to the namespace at the other end
//! of its link, so that a wrong port is the one that is named. Links are tested side by side as far
//! as the processors carry it. A check that does not pass is repeated, and a port that fails is
//! tested again when no other port is: noise does not repeat itself, a wrong queue does.
//!
//! # Not here
//! What a figure means: `judge`. How a burst is sent: `burst`.

mod burst;
mod judge;

use std::io;
use std::num::NonZero;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use clearway_proto::base::{BitsPerSec, Class, Nanos};
use serde::Serialize;

pub use judge::{CheckOutcome, PortCheck};

use crate::lab::{Lab, LabPort};
use judge::{ExpectedPort, FloodResult};

/// A check that fails in this many rounds fails for good: with six busy loops on two processors, each
/// of 150 ports of up to 100 Mb/s passed in fewer (measured).
const ROUNDS: u32 = 6;
/// How often a port that fails is tested again.
const REPEATS: u32 = 2;
/// What one processor carries in test packets with per-packet wake-ups without disturbing the
/// timers (25 to 50 us a packet, measured).
const RATE_PER_CPU: BitsPerSec = BitsPerSec::mega(100);
/// More threads than this gain nothing: the tests of slow links mostly wait.
const AT_ONCE_MAX: u64 = 32;

/// The checks of one port.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PortTest {
    /// `<node>:<interface>`, the end that sends.
    pub port: String,
    /// Rate, depth, order.
    pub checks: Vec<PortCheck>,
    /// Fail if a check failed, else inconclusive if one was, else pass.
    pub outcome: CheckOutcome,
    /// How often the checks were repeated until all passed, or in vain.
    pub rounds: u32,
}

/// The checks of all ports.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SelfTest {
    /// One entry per sending end.
    pub ports: Vec<PortTest>,
    /// How long it all took.
    pub took: Nanos,
}

impl SelfTest {
    /// Returns fail if a port failed, else inconclusive if one was, else pass.
    pub fn outcome(&self) -> CheckOutcome {
        worst(self.ports.iter().map(|port| port.outcome))
    }

    /// Returns the ports that are not as they should be.
    pub fn failed(&self) -> impl Iterator<Item = &PortTest> {
        self.ports.iter().filter(|port| port.outcome == CheckOutcome::Fail)
    }
}

fn worst(outcomes: impl Iterator<Item = CheckOutcome>) -> CheckOutcome {
    let severity = |outcome: &CheckOutcome| match outcome {
        CheckOutcome::Pass => 0,
        CheckOutcome::Inconclusive => 1,
        CheckOutcome::Fail => 2,
    };
    outcomes.max_by_key(severity).unwrap_or(CheckOutcome::Pass)
}

impl Lab {
    /// Tests every port with a few hundred packets each. Nothing else should send meanwhile.
    ///
    /// # Errors
    /// A namespace could not be entered, or a socket could not be made or used: nothing is known
    /// about the ports then.
    /// # Cost
    /// About 50 ms of link time per port at 100 Mb/s, several ports at a time; 8 hosts take less
    /// than a second.
    pub fn self_test(&self) -> io::Result<SelfTest> {
        let begun = Instant::now();
        let ports: Vec<LabPort<'_>> = self.ports().collect();
        let next = Mutex::new(ports.iter().enumerate());
        let results: Mutex<Vec<(usize, io::Result<PortTest>)>> = Mutex::new(Vec::new());
        let lock = PoisonError::into_inner;
        thread::scope(|scope| {
            for _ in 0..at_once(&ports) {
                scope.spawn(|| {
                    loop {
                        let Some((i, port)) = next.lock().unwrap_or_else(lock).next() else {
                            return;
                        };
                        let result = self.test_port(*port);
                        results.lock().unwrap_or_else(PoisonError::into_inner).push((i, result));
                    }
                });
            }
        });
        let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        results.sort_by_key(|(i, _)| *i);
        for (i, result) in &mut results {
            for _ in 0..REPEATS {
                if result.as_ref().is_ok_and(|test| test.outcome == CheckOutcome::Fail) {
                    *result = self.test_port(ports[*i]);
                }
            }
        }
        let ports: io::Result<Vec<PortTest>> =
            results.into_iter().map(|(_, result)| result).collect();
        Ok(SelfTest { ports: ports?, took: Nanos(begun.elapsed().as_nanos() as u64) })
    }

    fn test_port(&self, port: LabPort<'_>) -> io::Result<PortTest> {
        let link = burst::TestLink {
            near: &self.spaces()[port.near.node],
            far: &self.spaces()[port.far.node],
            far_address: self.plan().address_of(port.far),
            rate: port.rate,
        };
        let expected = ExpectedPort { rate: port.rate, spec: self.spec() };
        let (mut floods, mut orders) = (Vec::new(), Vec::new());
        let mut round = 0;
        loop {
            round += 1;
            floods.push(self.flood(port, &link, round)?);
            orders.push(link.run(&expected.order_burst(), ROUNDS + round)?);
            let checks =
                vec![expected.rate(&floods), expected.depth(&floods), expected.order(&orders)];
            let outcome = worst(checks.iter().map(|check| check.outcome));
            if outcome == CheckOutcome::Pass || round == ROUNDS {
                return Ok(PortTest {
                    port: self.port_name(port.near),
                    checks,
                    outcome,
                    rounds: round,
                });
            }
        }
    }

    /// Sends half as much again as the queue holds, and asks the kernel how much of it passed.
    fn flood(
        &self,
        port: LabPort<'_>,
        link: &burst::TestLink<'_>,
        round: u32,
    ) -> io::Result<FloodResult> {
        let depth = self.spec().queue_packets as usize;
        let passed = || -> io::Result<u64> {
            let all = self.class_counters(port.near)?;
            let flooded =
                all.iter().find(|c| c.class.is_none() || c.class == Some(Class::BestEffort));
            Ok(flooded.map_or(0, |c| c.packets))
        };
        let before = passed()?;
        let seen = link.run(&vec![Class::BestEffort; depth + depth / 2 + burst::TAIL], round)?;
        Ok(FloodResult { seen, passed: passed()?.saturating_sub(before) })
    }
}

/// Returns how many ports to test side by side: slow links cost little, fast ones a processor each.
fn at_once(ports: &[LabPort<'_>]) -> u64 {
    let cpus = thread::available_parallelism().map_or(1, NonZero::get) as u64;
    let fastest = ports.iter().map(|port| port.rate.0).max().unwrap_or(1).max(1);
    (cpus * RATE_PER_CPU.0 / fastest).clamp(cpus, AT_ONCE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worst__one_failure_outweighs_all_else() {
        let all = [CheckOutcome::Pass, CheckOutcome::Fail, CheckOutcome::Inconclusive];
        assert_eq!(worst(all.into_iter()), CheckOutcome::Fail);
        assert_eq!(
            worst([CheckOutcome::Inconclusive, CheckOutcome::Pass].into_iter()),
            CheckOutcome::Inconclusive
        );
        assert_eq!(worst([].into_iter()), CheckOutcome::Pass);
    }
}
