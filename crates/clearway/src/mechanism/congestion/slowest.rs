//! Finds out what the slowest messages of a phase waited for, by repeating the phase and following
//! them.
//!
//! # Model
//! A repeat can follow one message at a time, and as many one after the other as do not overlap.
//! Messages are dealt to repeats, the slowest to the first. What repeats may cost is counted in
//! events, not in seconds, so that every machine writes the same report.
//!
//! # Invariants
//! I1. A repeat is the phase: following changes no result.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use clearway_sim::Picos;
use clearway_sim::fabric::{Hop, RankedMessage, RootCause, Trace, WaitCause};
use clearway_sim::graph::{ChannelId, Graph};

use crate::report::model::LongestWait;

/// Messages of a phase that a report tells of: what fits a screen.
pub(crate) const KEPT: usize = 5;
/// Events that all repeats together may cost: about four seconds (2.3 million a second, 384 nodes of
/// `edr` under GPCNeT's congestors).
pub(crate) const EVENTS_MAX: u64 = 10_000_000;

/// Deals `messages`, the slowest first, to repeats; in each they are in order of time, with `gap`
/// between them.
pub(crate) fn repeats(messages: &[RankedMessage], gap: Picos) -> Vec<Vec<RankedMessage>> {
    let span = |slow: &RankedMessage| (slow.posted.0, (slow.posted + slow.latency + gap).0);
    let apart =
        |a: &RankedMessage, b: &RankedMessage| span(a).1 <= span(b).0 || span(b).1 <= span(a).0;
    let mut repeats: Vec<Vec<RankedMessage>> = Vec::new();
    for slow in messages {
        match repeats.iter_mut().find(|repeat| repeat.iter().all(|other| apart(slow, other))) {
            Some(repeat) => repeat.push(*slow),
            None => repeats.push(vec![*slow]),
        }
    }
    repeats.iter_mut().for_each(|repeat| repeat.sort_by_key(|slow| slow.posted));
    repeats
}

/// Returns what `trace` waited for most; `None` when it never waited.
pub(crate) fn longest_wait(trace: &Trace, graph: &Graph) -> Option<LongestWait> {
    let mut sums: BTreeMap<(usize, &str), Picos> = BTreeMap::new();
    for (place, hop) in trace.hops.iter().enumerate() {
        for wait in &hop.waits {
            let sum = sums.entry((place, kind(wait.cause))).or_insert(Picos::ZERO);
            *sum += wait.length;
        }
    }
    // Of equal waits the first on the way.
    let ((place, cause), length) =
        sums.into_iter().max_by_key(|((place, _), length)| (*length, Reverse(*place)))?;
    if length == Picos::ZERO {
        return None;
    }
    let hop = &trace.hops[place];
    let (root, because) = root(trace, hop, cause, graph);
    Some(LongestWait {
        cause: cause.to_owned(),
        port: graph.label(hop.channel),
        us: in_us(length),
        root: graph.label(root),
        because,
    })
}

/// Returns the name of a cause. Causes that a hurried reader need not tell apart have one name.
const fn kind(cause: WaitCause) -> &'static str {
    match cause {
        WaitCause::Busy(_) | WaitCause::Turn(_) => "packets of others ahead of it",
        WaitCause::Own => "its own earlier packets",
        WaitCause::Credit(_) => "room in the next buffer",
        WaitCause::Pause => "a pause of the receiver",
        WaitCause::HeldBack => "congestion control at its source",
        WaitCause::Memory => "the memory of its host",
        WaitCause::Input => "others of its input",
        WaitCause::Tail => "its own tail",
        WaitCause::Kept => "a multicast at the port",
        WaitCause::Down => "a fault",
    }
}

/// Returns the port that was the reason for the waits of `cause` at `hop`, and why.
fn root(trace: &Trace, hop: &Hop, cause: &str, graph: &Graph) -> (ChannelId, String) {
    let mut of_kind = hop.waits.iter().filter(|wait| kind(wait.cause) == cause);
    let chain = of_kind.find_map(|wait| match wait.cause {
        WaitCause::Credit(chain) => trace.chains.get(chain),
        _ => None,
    });
    let Some(chain) = chain else { return (hop.channel, "the port itself".to_owned()) };
    let port = chain.links.last().map_or(hop.channel, |link| link.channel);
    let because = match chain.root {
        RootCause::Busy => match chain.senders {
            1 => "busy with packets of 1 host".to_owned(),
            senders => format!("busy with packets of {senders} hosts"),
        },
        RootCause::SlowHost => {
            format!(
                "{} takes packets in more slowly than they come",
                graph.name(graph.channel(port).to)
            )
        }
        RootCause::Travelling => "its credits are under way".to_owned(),
        RootCause::Paused => "paused by its receiver".to_owned(),
        RootCause::Down => "a fault".to_owned(),
        RootCause::Circle => "ports wait for each other in a circle".to_owned(),
    };
    (port, because)
}

/// Returns microseconds.
pub(crate) fn in_us(time: Picos) -> f64 {
    time.0 as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use clearway_sim::fabric::MessageId;
    use clearway_sim::graph::DeviceId;

    use super::*;

    fn slow(number: u64, posted: u64, latency: u64) -> RankedMessage {
        let (from, to) = (DeviceId(0), DeviceId(1));
        RankedMessage {
            id: MessageId { from, number },
            to,
            bytes: 8,
            posted: Picos(posted),
            latency: Picos(latency),
        }
    }

    #[test]
    fn repeats__overlapping_messages_are_followed_in_repeats_of_their_own() {
        let messages =
            [slow(0, 1_000, 500), slow(1, 100, 450), slow(2, 1_400, 400), slow(3, 1_550, 100)];
        let dealt: Vec<Vec<u64>> = repeats(&messages, Picos(50))
            .into_iter()
            .map(|repeat| repeat.iter().map(|slow| slow.id.number).collect())
            .collect();
        assert_eq!(dealt, [vec![1, 0, 3], vec![2]]);
        // A gap of one more leaves no room between the first and the last.
        assert_eq!(repeats(&messages, Picos(51)).len(), 3);
    }
}
