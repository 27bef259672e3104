//! A fault plan and its text: one table for each fault, times with units, targets by name.
//!
//! # Invariants
//! I1. A written plan reads back as itself.
//! I2. Whatever the text, the answer is a plan or one sentence with the file and the line.

use clearway_proto::base::Class;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::form;
use crate::fabric::{DownPolicy, FaultOdds, PacketSort};
use crate::spec::figure::picos;
use crate::spec::file::FileError;
use crate::spec::plainly;
use crate::time::Picos;
use crate::wire::Completion;

/// The only format there is.
const FORMAT: u32 = 1;

/// What goes wrong in one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    /// The faults; their places are their numbers.
    pub faults: Vec<Fault>,
    /// Where they stand, if they were read: the file, and the line of each.
    pub(super) origin: Option<(String, Vec<u32>)>,
}

/// One thing that goes wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// When it begins.
    #[serde(with = "picos")]
    pub at: Picos,
    /// When it is over.
    #[serde(with = "picos")]
    pub until: Picos,
    /// Where: a host or switch by name, `*` for all hosts, `a -> b` for a channel, `a -- b` for
    /// both channels of a cable; parallel cables count as one.
    pub target: String,
    /// What.
    pub kind: FaultKind,
}

/// Everything that can go wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "kebab-case", deny_unknown_fields)]
pub enum FaultKind {
    /// Link: packets do not arrive.
    Loss(PacketMatch),
    /// Link: packets arrive damaged and are dropped by the check of the link.
    CaughtCorruption(PacketMatch),
    /// Link: packets arrive damaged and no check of the network notices.
    Corruption(PacketMatch),
    /// Link: packets arrive twice.
    Duplication(PacketMatch),
    /// Link: packets are late by up to `by`, so that others overtake them.
    Reordering {
        /// The most.
        #[serde(with = "picos")]
        by: Picos,
        /// Which packets.
        #[serde(rename = "of")]
        struck: PacketMatch,
    },
    /// Link: carries nothing.
    LinkDown {
        /// What becomes of packets.
        packets: DownPolicy,
        /// Routing knows so much later.
        #[serde(with = "picos")]
        notice_after: Picos,
    },
    /// Link: down for `down` in every `period`.
    LinkFlapping {
        /// How long.
        #[serde(with = "picos")]
        down: Picos,
        /// How often.
        #[serde(with = "picos")]
        period: Picos,
        /// What becomes of packets.
        packets: DownPolicy,
        /// Routing knows so much later, if the link is still down then.
        #[serde(with = "picos")]
        notice_after: Picos,
    },
    /// Link: slower.
    LinkDegraded {
        /// Of its rate.
        percent: u32,
        /// Added to its delay.
        #[serde(with = "picos")]
        latency: Picos,
    },
    /// Link: the sender forgets room that the receiver has.
    LostCredit {
        /// The lane of this class.
        class: Class,
        /// How much.
        bytes: u32,
    },
    /// Link: a lane sends nothing.
    StuckLane {
        /// The lane of this class.
        class: Class,
    },
    /// Link: a class takes the wrong lane.
    WrongLane {
        /// The class.
        class: Class,
        /// The virtual lane it takes.
        lane: u8,
    },
    /// Link: one virtual lane goes first, whatever the tables say.
    WrongArbitration {
        /// Which.
        first: u8,
    },
    /// Switch: loses what it holds and what reaches it.
    SwitchDown {
        /// Routing of its neighbours knows so much later.
        #[serde(with = "picos")]
        notice_after: Picos,
    },
    /// Switch: slower.
    SwitchSlow {
        /// Of the rates of its ports.
        percent: u32,
        /// Added to its delay.
        #[serde(with = "picos")]
        latency: Picos,
    },
    /// Host: the interface loses what it should carry.
    InterfaceDead {
        /// In which direction.
        side: Side,
    },
    /// Host: the interface reports the end of operations wrongly.
    Completions {
        /// How.
        end: Completion,
    },
    /// Host: pauses the lane of a class without end.
    PauseStorm {
        /// The class.
        class: Class,
    },
    /// Host: takes in what comes more slowly than its link.
    SlowReceiver {
        /// Of the link's rate.
        percent: u32,
    },
    /// Host: everything is lost at the beginning, a fresh start at the end.
    Crash,
    /// Host: the processor stands still.
    Paused,
    /// Host: the processor is elsewhere now and then.
    Interruptions {
        /// From one to the next.
        #[serde(with = "picos")]
        every: Picos,
        /// How long: exactly, or on average where lengths have a tail.
        #[serde(with = "picos")]
        length: Picos,
        /// How lengths are drawn.
        lengths: FaultDurations,
    },
    /// Host: the clock is suddenly ahead.
    ClockJump {
        /// By so much.
        #[serde(with = "picos")]
        ahead: Picos,
    },
    /// Host: the clock runs fast (or slow: negative).
    ClockDrift {
        /// Parts per million.
        ppm: i32,
    },
    /// Host: the clock stands still.
    ClockFrozen,
    /// Host: operations of the disk take longer.
    DiskSlow {
        /// By so much.
        #[serde(with = "picos")]
        by: Picos,
    },
    /// Host: operations of the disk fail.
    DiskFails,
    /// Host: files cannot grow.
    DiskFull,
    /// Host: of each write only the beginning reaches the file.
    DiskTorn {
        /// The number of bytes of it.
        bytes: u64,
    },
    /// Host: transmit queues take nothing.
    SendRefused,
    /// Host: transmit queues hold few messages.
    TightQueue {
        /// How many.
        messages: u32,
    },
    /// Host: its driver is woken when there is nothing to do.
    SpuriousWake {
        /// How often.
        #[serde(with = "picos")]
        every: Picos,
    },
    /// Host: its driver is woken late.
    LateTimer {
        /// By so much.
        #[serde(with = "picos")]
        by: Picos,
    },
}

/// Which packets of a link are struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PacketMatch {
    /// How often.
    pub odds: FaultOdds,
    /// Only those of one class; of all that share its service level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// Only those to one host, or only copies of multicasts on this branch.
    #[serde(default)]
    pub sort: PacketSort,
}

/// How long interruptions are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultDurations {
    /// All equal.
    Equal,
    /// Exponentially distributed: a few are much longer than most.
    Exponential,
}

/// Directions of a host's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// What it sends.
    Transmit,
    /// What it receives.
    Receive,
    /// Both.
    Both,
}

impl FaultKind {
    /// Returns its name in files and tables.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Loss(_) => "loss",
            Self::CaughtCorruption(_) => "caught-corruption",
            Self::Corruption(_) => "corruption",
            Self::Duplication(_) => "duplication",
            Self::Reordering { .. } => "reordering",
            Self::LinkDown { .. } => "link-down",
            Self::LinkFlapping { .. } => "link-flapping",
            Self::LinkDegraded { .. } => "link-degraded",
            Self::LostCredit { .. } => "lost-credit",
            Self::StuckLane { .. } => "stuck-lane",
            Self::WrongLane { .. } => "wrong-lane",
            Self::WrongArbitration { .. } => "wrong-arbitration",
            Self::SwitchDown { .. } => "switch-down",
            Self::SwitchSlow { .. } => "switch-slow",
            Self::InterfaceDead { .. } => "interface-dead",
            Self::Completions { .. } => "completions",
            Self::PauseStorm { .. } => "pause-storm",
            Self::SlowReceiver { .. } => "slow-receiver",
            Self::Crash => "crash",
            Self::Paused => "paused",
            Self::Interruptions { .. } => "interruptions",
            Self::ClockJump { .. } => "clock-jump",
            Self::ClockDrift { .. } => "clock-drift",
            Self::ClockFrozen => "clock-frozen",
            Self::DiskSlow { .. } => "disk-slow",
            Self::DiskFails => "disk-fails",
            Self::DiskFull => "disk-full",
            Self::DiskTorn { .. } => "disk-torn",
            Self::SendRefused => "send-refused",
            Self::TightQueue { .. } => "tight-queue",
            Self::SpuriousWake { .. } => "spurious-wake",
            Self::LateTimer { .. } => "late-timer",
        }
    }
}

/// A plan in a file of its own.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FaultPlanFile {
    format: Spanned<u32>,
    #[serde(default)]
    fault: Vec<Spanned<Fault>>,
}

#[derive(Serialize)]
struct SerializedFaultPlan<'a> {
    format: u32,
    #[serde(skip_serializing_if = "<[Fault]>::is_empty")]
    fault: &'a [Fault],
}

impl FaultPlan {
    /// Creates a plan of these faults.
    pub const fn new(faults: Vec<Fault>) -> Self {
        Self { faults, origin: None }
    }

    /// Reads `text`, which is the file `file` for messages.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse(file: &str, text: &str) -> Result<Self, FileError> {
        let read: FaultPlanFile =
            toml::from_str(text).map_err(|error| wrong(file, text, &error))?;
        if *read.format.get_ref() != FORMAT {
            let why = format!(
                "format {} is not known; this program reads {FORMAT}",
                read.format.get_ref()
            );
            return Err(FileError::Wrong {
                file: file.to_owned(),
                line: line_of(text, read.format.span().start),
                why,
            });
        }
        Ok(Self::placed(file, text, read.fault))
    }

    /// Creates the faults that stand in `text`.
    pub(crate) fn placed(file: &str, text: &str, faults: Vec<Spanned<Fault>>) -> Self {
        let lines = faults.iter().map(|fault| line_of(text, fault.span().start)).collect();
        let faults = faults.into_iter().map(Spanned::into_inner).collect();
        Self { faults, origin: Some((file.to_owned(), lines)) }
    }

    /// Writes it as a file of its own.
    pub fn to_text(&self) -> String {
        toml::to_string(&SerializedFaultPlan { format: FORMAT, fault: &self.faults })
            .unwrap_or_default()
    }

    /// Returns when the last fault is over.
    pub fn healed_at(&self) -> Picos {
        self.faults.iter().map(|fault| fault.until).max().unwrap_or_default()
    }

    /// Refuses the fault with this number.
    pub(super) fn refuse(&self, number: usize, why: &str) -> FileError {
        let (file, line) = match &self.origin {
            Some((file, lines)) => (file.clone(), lines.get(number).copied().unwrap_or(1)),
            None => ("fault plan".to_owned(), number as u32 + 1),
        };
        let kind = self.faults.get(number).map_or("", |fault| fault.kind.name());
        FileError::Wrong { file, line, why: format!("{kind}: {why}") }
    }
}

/// Returns the line, from 1, in which byte `offset` of `text` stands.
pub(crate) fn line_of(text: &str, offset: usize) -> u32 {
    let before = text.bytes().take(offset);
    before.filter(|byte| *byte == b'\n').count() as u32 + 1
}

/// Returns what is wrong with a file that is no TOML or not the TOML that it should be.
pub(crate) fn wrong(file: &str, text: &str, error: &toml::de::Error) -> FileError {
    let line = error.span().map_or(1, |span| line_of(text, span.start));
    let written = text.lines().nth(line as usize - 1).unwrap_or_default();
    let message = plainly(text, error);
    let known = form::of_line(written).filter(|_| !message.starts_with("unknown variant"));
    let why = match known {
        Some((name, form)) => {
            format!("this is not how `{name}` is written ({message}); `kind = {form}` works")
        }
        None => message,
    };
    FileError::Wrong { file: file.to_owned(), line, why }
}
