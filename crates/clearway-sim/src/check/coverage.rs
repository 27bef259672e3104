//! Which states were reached under which faults: a test that never gets anywhere proves nothing.
//!
//! # Source
//! The habit of asserting that a state is *sometimes* reached, over all runs, is Antithesis'.

use std::collections::BTreeMap;

/// A state worth reaching.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// A parcel left.
    Sent,
    /// A parcel was sent again.
    SentAgain,
    /// A parcel that was accepted before was ignored.
    RepeatIgnored,
    /// The very same copy of a parcel came twice.
    CopySeen,
    /// A damaged head was recognised.
    DamageSeen,
    /// A multicast arrived.
    GroupHeard,
    /// A one-sided write completed.
    Written,
    /// A one-sided write of another arrived.
    Landed,
    /// A one-sided read completed.
    Fetched,
    /// An atomic completed.
    Counted,
    /// A write outside all regions was refused.
    OutsideRefused,
    /// An operation on memory of an earlier incarnation was refused.
    StaleRefused,
    /// Something of an earlier incarnation was heard.
    StaleHeard,
    /// An operation was flushed.
    Flushed,
    /// A transmit queue was full.
    NoRoom,
    /// It had room again.
    RoomAgain,
    /// A file operation completed.
    Filed,
    /// A file operation failed.
    FileFailed,
    /// A node came back.
    Restarted,
    /// A peer noticed that a node came back.
    PeerRestarted,
    /// The fabric dropped packets.
    Dropped,
    /// A lane waited long while its port sent others.
    Starved,
    /// Everything was answered after the last fault.
    Healed,
}

impl State {
    /// All of them.
    pub const ALL: [Self; 23] = [
        Self::Sent,
        Self::SentAgain,
        Self::RepeatIgnored,
        Self::CopySeen,
        Self::DamageSeen,
        Self::GroupHeard,
        Self::Written,
        Self::Landed,
        Self::Fetched,
        Self::Counted,
        Self::OutsideRefused,
        Self::StaleRefused,
        Self::StaleHeard,
        Self::Flushed,
        Self::NoRoom,
        Self::RoomAgain,
        Self::Filed,
        Self::FileFailed,
        Self::Restarted,
        Self::PeerRestarted,
        Self::Dropped,
        Self::Starved,
        Self::Healed,
    ];
}

impl State {
    /// Returns what a rank does when it reaches this state.
    pub(super) const fn sentence(self) -> &'static str {
        match self {
            Self::Sent => "has sent a message",
            Self::SentAgain => "sends a parcel again",
            Self::RepeatIgnored => "ignores a parcel that it has",
            Self::CopySeen => "sees the same copy of a parcel twice",
            Self::DamageSeen => "sees that a head is damaged",
            Self::GroupHeard => "hears a multicast",
            Self::Written => "has written into another's memory",
            Self::Landed => "finds that another wrote into its memory",
            Self::Fetched => "has read another's memory",
            Self::Counted => "has counted in another's memory",
            Self::OutsideRefused => "is refused a write outside memory",
            Self::StaleRefused => "is refused memory of an earlier start",
            Self::StaleHeard => "hears something of an earlier start",
            Self::Flushed => "hears that an operation was flushed",
            Self::NoRoom => "finds a queue full",
            Self::RoomAgain => "hears that a queue has room again",
            Self::Filed => "is done with a file",
            Self::FileFailed => "hears that its disk failed",
            Self::Restarted => "starts again",
            Self::PeerRestarted => "notices that another started again",
            Self::Dropped => "loses packets",
            Self::Starved => "has a lane that starves",
            Self::Healed => "has everything answered",
        }
    }
}

/// Pairs of a fault and a state that it must lead to in some run, or the swarm looks the wrong way.
const SOMETIMES: [(&str, State); 34] = [
    ("loss", State::SentAgain),
    ("caught-corruption", State::Dropped),
    ("corruption", State::DamageSeen),
    ("duplication", State::CopySeen),
    ("reordering", State::Healed),
    ("wrong-lane", State::Healed),
    ("switch-slow", State::Healed),
    ("pause-storm", State::Healed),
    ("slow-receiver", State::Healed),
    ("paused", State::Healed),
    ("interruptions", State::Healed),
    ("clock-jump", State::Healed),
    ("clock-drift", State::Healed),
    ("clock-frozen", State::Healed),
    ("disk-slow", State::Healed),
    ("spurious-wake", State::Healed),
    ("late-timer", State::Healed),
    ("link-down", State::Dropped),
    ("link-flapping", State::SentAgain),
    ("link-degraded", State::Healed),
    ("lost-credit", State::Healed),
    ("stuck-lane", State::Starved),
    ("wrong-arbitration", State::Healed),
    ("switch-down", State::Dropped),
    ("interface-dead", State::SentAgain),
    ("completions", State::Flushed),
    ("crash", State::PeerRestarted),
    ("crash", State::StaleRefused),
    ("crash", State::StaleHeard),
    ("send-refused", State::RoomAgain),
    ("tight-queue", State::NoRoom),
    ("disk-fails", State::FileFailed),
    ("disk-full", State::FileFailed),
    ("disk-torn", State::FileFailed),
];

/// Runs in which a fault struck and a state was reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    counts: BTreeMap<(String, State), u64>,
    runs: BTreeMap<String, u64>,
}

impl Coverage {
    /// Adds one run: the faults that struck, and the states that were reached.
    pub fn add<'a>(&mut self, kinds: impl IntoIterator<Item = &'a str>, states: &[State]) {
        for kind in kinds {
            *self.runs.entry(kind.to_owned()).or_default() += 1;
            for state in states {
                *self.counts.entry((kind.to_owned(), *state)).or_default() += 1;
            }
        }
    }

    /// Returns what should have been reached sometimes and never was.
    pub fn never(&self) -> Vec<(&'static str, State)> {
        let reached = |kind: &str, state| {
            self.counts.get(&(kind.to_owned(), state)).is_some_and(|count| *count > 0)
        };
        SOMETIMES.iter().filter(|(kind, state)| !reached(kind, *state)).copied().collect()
    }

    /// Returns one line for each count, and one for each pair that should have been reached and
    /// never was: what programs read.
    pub fn to_lines(&self) -> String {
        let mut text = String::new();
        for (kind, runs) in &self.runs {
            text.push_str(&format!("run {kind} {runs}\n"));
        }
        for ((kind, state), count) in &self.counts {
            text.push_str(&format!("state {kind} {state:?} {count}\n"));
        }
        for (kind, state) in SOMETIMES {
            text.push_str(&format!("sometimes {kind} {state:?}\n"));
        }
        text
    }
}
