//! Says why a message of a simulated run was slow: hop by hop, then the ports that were in its way
//! up to the root.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use clearway_sim::Picos;
use clearway_sim::fabric::{CongestionChain, Hop, RootCause, Trace, WaitCause};
use clearway_sim::graph::Graph;

use crate::command::print;
use crate::command::registry::{self, presenters};
use crate::mechanism::congestion::{self, PhaseReplay, ReplayQuestion, micros};
use crate::report::store;
use crate::run::exit::Exit;
use crate::run::notice;
use crate::run::{CompletedParts, RunSpec};
use crate::scenario;

/// Causes that are printed of one hop; the rest is summed up.
const CAUSES_MAX: usize = 4;

/// Repeats the run whose report lies in `run` and tells of `message`, or lists the slowest
/// messages.
pub(super) fn explain(run: &Path, message: Option<&str>) -> Result<Exit> {
    let wanted = message.map_or(Ok(ReplayQuestion::Slowest), parse)?;
    let report = store::read(run, &presenters())?;
    if !report.place.split(',').any(|place| place == "sim") {
        bail!(
            "{} is a run in the {}; only simulated runs can be repeated",
            run.display(),
            report.place
        );
    }
    let text = &report.scenario.text;
    let mut scenario = scenario::read_text(text, &registry::section_kinds())
        .map_err(|why| anyhow!("the scenario in {}: {why}", run.display()))?;
    scenario.seed = report.seed;
    if report.program.version != env!("CARGO_PKG_VERSION") {
        notice!(
            "clearway: {} wrote that report; another version may do something else",
            report.program.version
        );
    }
    if let ReplayQuestion::Message(phase, ..) = wanted
        && !report.digests.is_empty()
        && !(1..=report.digests.len()).contains(&(phase as usize))
    {
        bail!(
            "there is no phase {phase} in this run, which has {}; phases count from 1",
            report.digests.len()
        );
    }
    notice!("The run is repeated.");
    let watch = congestion::replayed(
        &RunSpec {
            scenario: &scenario,
            text,
            flags: BTreeSet::new(),
            complete: CompletedParts::default(),
        },
        registry::mechanism_of(&scenario)?,
        wanted,
    )?;
    compare(&report.digests, &watch.digests).with_context(|| run.display().to_string())?;
    match (message, &watch.traced) {
        (None, _) => print(&list(&watch))?,
        (Some(message), Some((trace, graph))) => print(&story(message, trace, graph))?,
        (Some(message), None) => {
            bail!(
                "there is no message {message} in this run; without --message the slowest are listed"
            )
        }
    }
    Ok(Exit::Good)
}

/// Refuses to tell of phases that did something else than those of the report did. Reports of older
/// versions do not say what their phases did.
fn compare(then: &[String], now: &[String]) -> Result<()> {
    if then.is_empty() {
        notice!(
            "clearway: that report has no digests, so nobody can say whether this is the same run"
        );
        return Ok(());
    }
    match then.iter().zip(now).position(|(then, now)| then != now) {
        None => Ok(()),
        Some(phase) => bail!(
            "the run could not be repeated as it was, phase {} does something else; its fabric file, the seed or the scenario \
             in the report, or this program has changed since",
            phase + 1
        ),
    }
}

/// Parses a question: `p3:n12:345` is message 345 of host n12 in the third phase.
fn parse(text: &str) -> Result<ReplayQuestion> {
    let parts = || {
        let (phase, rest) = text.strip_prefix('p')?.split_once(':')?;
        let (host, number) = rest.rsplit_once(':')?;
        // A host posts fewer than 2^40 messages: the fabric's own limit.
        let number: u64 = number.parse().ok().filter(|number| *number < 1 << 40)?;
        Some(ReplayQuestion::Message(phase.parse().ok()?, host.to_owned(), number))
    };
    parts().with_context(|| {
        format!("`{text}` names no message; p3:n12:345 is number 345 of host n12 in phase 3")
    })
}

fn list(watch: &PhaseReplay) -> String {
    let mut page = format!(
        "slowest messages of the victims\n{:<20} {:>10}  {:>8}  {:>14}  {:>14}\n",
        "message", "to", "bytes", "posted", "latency"
    );
    for (phase, slow, [from, to]) in &watch.slowest {
        let id = format!("p{phase}:{from}:{}", slow.id.number);
        page += &format!(
            "{id:<20} {to:>10}  {:>8}  {:>14}  {:>14}\n",
            slow.bytes,
            micros(slow.posted),
            micros(slow.latency)
        );
    }
    page
}

fn story(name: &str, trace: &Trace, graph: &Graph) -> String {
    let Trace { bytes, packets, posted, .. } = trace;
    let mut page = format!(
        "message {name}: {bytes} bytes in {}, posted at {}\n",
        count(*packets),
        micros(*posted)
    );
    if let Some((channel, at)) = trace.lost {
        return page
            + &format!(
                "a packet that came by {} was dropped at {}\n",
                graph.label(channel),
                micros(at)
            );
    }
    let Some(delivered) = trace.delivered else {
        return page + "it was not delivered before its phase ended\n";
    };
    let whole = delivered - *posted;
    let to = trace.to.map_or("", |to| graph.name(to));
    page += &format!("delivered to {to} after {}; its last packet on its way:\n\n", micros(whole));
    let line = |what: &str, length: Picos| {
        let share = length.0 as f64 / whole.0.max(1) as f64 * 100.0;
        format!("{:>14}  {share:5.1} %  {what}\n", micros(length))
    };
    let mut at = *posted;
    for hop in &trace.hops {
        let before =
            if hop.input.is_none() { "in the host's interface" } else { "cable and switch" };
        page += &line(before, hop.arrived - at);
        let waited = hop.started - hop.arrived;
        page += &line(
            &format!("{}, lane {}: {}", graph.label(hop.channel), hop.lane, reasons(hop, graph)),
            waited,
        );
        at = hop.started;
    }
    page += &line("cable and last byte", trace.tail - at);
    page += &line("into memory and reported", delivered - trace.tail);
    page + &chains(trace, graph)
}

/// Returns what `hop` waited for, the longest first.
fn reasons(hop: &Hop, graph: &Graph) -> String {
    if hop.waits.is_empty() {
        return "no wait".to_owned();
    }
    let mut words: Vec<String> = hop
        .waits
        .iter()
        .take(CAUSES_MAX)
        .map(|wait| {
            format!("{} {}", micros(wait.length), reason(wait.cause, wait.times, hop, graph))
        })
        .collect();
    let rest = hop.waits.iter().skip(CAUSES_MAX).fold(Picos::ZERO, |sum, wait| sum + wait.length);
    if rest > Picos::ZERO {
        words.push(format!("{} others", micros(rest)));
    }
    words.join("; ")
}

fn reason(cause: WaitCause, times: u32, hop: &Hop, graph: &Graph) -> String {
    match cause {
        WaitCause::Busy(id) => {
            format!("busy with a packet of {}:{}", graph.name(id.from), id.number)
        }
        WaitCause::Own => "earlier packets of the message".to_owned(),
        WaitCause::Turn(None) => format!("turn: {} of the host's other messages", count(times)),
        WaitCause::Turn(from) if from == hop.input => {
            format!("turn: {} from the same input", count(times))
        }
        WaitCause::Turn(Some(from)) => {
            format!("turn: {} from {}", count(times), graph.name(graph.channel(from).from))
        }
        WaitCause::Credit(chain) => format!("no credit [{}]", chain + 1),
        WaitCause::Pause => "paused by the receiver".to_owned(),
        WaitCause::HeldBack => "held back at the source by congestion control".to_owned(),
        WaitCause::Memory => "the interface fetched from memory".to_owned(),
        WaitCause::Input => "behind others of its input".to_owned(),
        WaitCause::Tail => "its own tail".to_owned(),
        WaitCause::Kept => "a multicast kept the port".to_owned(),
        WaitCause::Down => "a fault".to_owned(),
    }
}

fn count(packets: u32) -> String {
    if packets == 1 { "1 packet".to_owned() } else { format!("{packets} packets") }
}

/// Returns the chains that the hops name.
fn chains(trace: &Trace, graph: &Graph) -> String {
    let shown = trace.hops.iter().flat_map(|hop| hop.waits.iter().take(CAUSES_MAX));
    let shown: BTreeSet<usize> = shown
        .filter_map(
            |wait| if let WaitCause::Credit(chain) = wait.cause { Some(chain) } else { None },
        )
        .collect();
    let mut page = String::new();
    for number in shown {
        page += &format!("\n[{}] no room ahead, because\n", number + 1);
        page += &chain(&trace.chains[number], graph);
    }
    page
}

fn chain(chain: &CongestionChain, graph: &Graph) -> String {
    let mut page = String::new();
    for link in &chain.links {
        let port = graph.label(link.channel);
        page += &format!(
            "    up to {} KiB of that buffer wait for {port}, lane {}\n",
            link.bytes >> 10,
            link.lane
        );
    }
    let port =
        chain.links.last().map_or("the port itself".to_owned(), |link| graph.label(link.channel));
    let CongestionChain { queued, senders, .. } = chain;
    page + &match chain.root {
        RootCause::Busy => {
            format!(
                "    root: {port} is busy: up to {} KiB of {senders} hosts wait there\n",
                queued >> 10
            )
        }
        RootCause::SlowHost => {
            format!("    root: {port}: its host takes packets in more slowly than they come\n")
        }
        RootCause::Travelling => {
            format!("    root: {port}: nothing waits behind it, its credits are under way\n")
        }
        RootCause::Paused => format!("    root: {port} is paused by its receiver\n"),
        RootCause::Down => format!("    root: {port}: a fault\n"),
        RootCause::Circle => format!("    root: none; {port} waits for a port named before\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compare__names_the_first_phase_that_differs() {
        let phases =
            |all: &[&str]| all.iter().map(|digest| (*digest).to_owned()).collect::<Vec<_>>();
        let then = phases(&["a", "b", "c"]);
        assert!(compare(&then, &then).is_ok());
        assert!(compare(&then, &phases(&["a", "b"])).is_ok(), "a message of phase 2 needs no more");
        let why = compare(&then, &phases(&["a", "x", "y"])).unwrap_err().to_string();
        assert!(why.contains("could not be repeated as it was, phase 2"), "{why}");
    }

    #[test]
    fn parse__takes_phase_host_and_number_and_refuses_the_rest() {
        let Ok(ReplayQuestion::Message(3, host, 345)) = parse("p3:n12:345") else {
            panic!("refused")
        };
        assert_eq!(host, "n12");
        for wrong in ["n12:345", "p3:345", "p3:n12:x", "px:n12:1", "", "p3:n12:1099511627776"] {
            assert!(
                parse(wrong).expect_err("refused").to_string().contains("p3:n12:345"),
                "{wrong}"
            );
        }
    }
}
