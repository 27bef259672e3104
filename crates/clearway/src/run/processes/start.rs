//! How long ranks may take to start, and what is said where they take longer.
//!
//! # Model
//! Before a run its ranks are asked twice: where they are, and to open their wires to each other.
//! All are awaited, and timeout counts from the last answer: on a busy machine they come one after
//! another. A rank that opens its wire may wait for another one, so all that have not answered are
//! named, as far as they can be.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use clearway_proto::base::Rank;
use serde::de::IgnoredAny;

use super::{LOOK_EVERY, RankProcesses};
use crate::run::message::FromRank;

/// Ranks that a sentence names.
const NAMED_MAX: usize = 3;

/// What all ranks do before a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct StartStep {
    /// What a rank has done when it answers.
    pub(super) wanted: &'static str,
    /// How long none may answer.
    pub(super) timeout: Duration,
}

impl RankProcesses {
    /// Returns what each rank says in `step`, in order, as far as `take` keeps it.
    ///
    /// # Errors
    /// A rank is gone or refuses, or those that are missing are silent for too long.
    pub(super) fn started<T>(
        &mut self,
        step: &StartStep,
        mut take: impl FnMut(FromRank<IgnoredAny>) -> Option<T>,
    ) -> Result<Vec<T>> {
        let mut heard = Instant::now();
        let mut taken: BTreeMap<Rank, T> = BTreeMap::new();
        while taken.len() < self.members.len() {
            match self.poll(LOOK_EVERY)? {
                Some((rank, message)) => {
                    taken.extend(take(message).map(|it| (rank, it)));
                    heard = Instant::now();
                }
                None if heard.elapsed() > step.timeout => {
                    let silent = self.ranks().filter(|rank| !taken.contains_key(rank));
                    return Err(self.not_started(step, &silent.collect::<Vec<_>>()));
                }
                None => {}
            }
        }
        Ok(taken.into_values().collect())
    }

    /// Returns the error that `silent` ranks have not done what `step` wants.
    fn not_started(&self, step: &StartStep, silent: &[Rank]) -> anyhow::Error {
        let StartStep { wanted, timeout } = step;
        let mut names: Vec<String> =
            silent.iter().take(NAMED_MAX).map(|rank| self.name(*rank)).collect();
        if let Some(more @ 1..) = silent.len().checked_sub(NAMED_MAX) {
            names.push(format!("{more} more"));
        }
        let has = if silent.len() == 1 { "has" } else { "have" };
        anyhow!(
            "{} {has} not {wanted}, and no rank has answered for {timeout:?}: a machine may be too busy to start them, and one whose \
             network does not answer needs another --wire",
            names.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::SyncSender;

    use clearway_proto::base::LocalNs;

    use super::super::tests::member;
    use super::super::{Interrupt, RankLine, sync_channel};
    use super::*;

    /// Nobody is waited for any longer than it takes to look.
    const STEP: StartStep = StartStep { wanted: "opened its wire", timeout: Duration::ZERO };

    /// Returns ranks on hosts of their own of which these `answer`; others could.
    fn ranks(count: u32, answer: &[u32]) -> (RankProcesses, SyncSender<RankLine>) {
        let members = (0..count).map(|host| member(&format!("h{host}")).0).collect();
        let mut all = RankProcesses::new(members, Interrupt::listen().expect("signals"));
        let (sender, lines) = sync_channel(answer.len());
        all.lines = lines;
        for rank in answer {
            let time = FromRank::<()>::Time(LocalNs(u64::from(*rank)));
            let line = serde_json::to_vec(&time).expect("JSON");
            sender.send((Rank(*rank), 0, Some(line))).expect("room");
        }
        (all, sender)
    }

    fn time(message: FromRank<IgnoredAny>) -> Option<LocalNs> {
        match message {
            FromRank::Time(time) => Some(time),
            _ => None,
        }
    }

    #[test]
    fn started__whoever_is_silent_is_named_with_what_was_asked_and_what_may_help() {
        let (mut all, _others) = ranks(6, &[1]);
        let sentence = all.started(&STEP, time).expect_err("five are silent").to_string();
        let named = "rank 0 on host h0, rank 2 on host h2, rank 3 on host h3, 2 more have not";
        assert!(sentence.starts_with(&format!("{named} opened its wire, ")), "{sentence}");
        assert!(sentence.contains("for 0ns: a machine may be too busy"), "{sentence}");
        let (mut all, _others) = ranks(2, &[1]);
        let sentence = all.started(&STEP, time).expect_err("one is silent").to_string();
        assert!(sentence.starts_with("rank 0 on host h0 has not opened its wire"), "{sentence}");
    }

    #[test]
    fn started__answers_come_in_any_order_and_each_counts_as_a_sign_of_life() {
        let (mut all, _others) = ranks(3, &[2, 0, 1]);
        let times = all.started(&STEP, time).expect("all answer");
        assert_eq!(times, [LocalNs(0), LocalNs(1), LocalNs(2)]);
    }
}
