//! Proves which class marks survive a way: sends a message of each class and reads its mark where
//! it arrives.
//!
//! # Not here
//! Whether queues obey the mark: the lab's self-test proves that, port by port.

use clearway_proto::base::Class;
use serde::Serialize;

use super::finding::Finding;
use super::pair::TestPair;

/// A message may be lost once on a busy machine, hardly three times on an idle way.
const ATTEMPTS: usize = 3;

/// The way that was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum TestedPath {
    /// From one host of a lab to another.
    Lab,
    /// Within this host.
    Loopback,
}

impl TestedPath {
    /// Returns the word for a person, as in JSON.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Lab => "lab",
            Self::Loopback => "loopback",
        }
    }
}

/// What the receiver read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub(super) enum ReceivedMark {
    /// The mark of a class.
    Mark {
        /// As a number.
        dscp: u8,
        /// As standards name it.
        name: &'static str,
    },
    /// A mark that belongs to no class.
    Foreign,
    /// Nothing arrived.
    Lost,
}

/// One class on one way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct MarkTest {
    /// The way.
    pub(super) place: TestedPath,
    /// The class asked for.
    pub(super) class: Class,
    /// Its mark.
    pub(super) asked_dscp: u8,
    /// Its mark's name.
    pub(super) asked_name: &'static str,
    /// What arrived.
    pub(super) seen: ReceivedMark,
    /// Whether both are the same.
    pub(super) granted: bool,
}

impl MarkTest {
    /// Judges a message of `class` that arrived with the mark of `seen` (of no class:
    /// `Some(None)`), or did not arrive.
    pub(super) fn new(place: TestedPath, class: Class, seen: Option<Option<Class>>) -> Self {
        let mark =
            |class: Class| ReceivedMark::Mark { dscp: class.dscp().0, name: dscp_name(class) };
        Self {
            place,
            class,
            asked_dscp: class.dscp().0,
            asked_name: dscp_name(class),
            seen: seen.map_or(ReceivedMark::Lost, |seen| seen.map_or(ReceivedMark::Foreign, mark)),
            granted: seen == Some(Some(class)),
        }
    }
}

/// Returns the name of the code point of `class` (RFC 2474, RFC 3246, RFC 8622).
const fn dscp_name(class: Class) -> &'static str {
    match class {
        Class::Control => "CS6",
        Class::LowLatency => "EF",
        Class::BestEffort => "CS0",
        Class::Bulk => "CS1",
        Class::Scavenger => "LE",
    }
}

/// Sends a message of every class through `pair` and judges what arrives.
pub(super) fn prove(pair: &mut TestPair, place: TestedPath) -> Vec<MarkTest> {
    Class::ALL
        .map(|class| {
            MarkTest::new(place, class, (0..ATTEMPTS).find_map(|_| received_mark(pair, class)))
        })
        .to_vec()
}

/// Sums `marks` up.
pub(super) fn judge(marks: &[MarkTest]) -> Finding {
    let refused: Vec<&str> =
        marks.iter().filter(|mark| !mark.granted).map(|mark| mark.class.name()).collect();
    if refused.is_empty() {
        return Finding::ok("class marks", "arrive as they were sent, for all five classes");
    }
    let found = format!("do not arrive as they were sent: {} (table below)", refused.join(", "));
    Finding::limited(
        "class marks",
        found,
        "find the rule that changes or drops them: `nft list ruleset`, `tc filter show`",
    )
}

fn received_mark(pair: &mut TestPair, class: Class) -> Option<Option<Class>> {
    pair.send(class, 1);
    pair.receive(1).first().map(|arrived| arrived.class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn judge__names_the_classes_whose_mark_did_not_arrive() {
        let mark = |class, seen| MarkTest::new(TestedPath::Lab, class, seen);
        let good = mark(Class::Control, Some(Some(Class::Control)));
        assert!(judge(std::slice::from_ref(&good)).remedies.is_empty());
        let marks =
            [good, mark(Class::Bulk, Some(Some(Class::BestEffort))), mark(Class::Scavenger, None)];
        assert_eq!(
            judge(&marks).found,
            "do not arrive as they were sent: bulk, scavenger (table below)"
        );
    }

    #[test]
    fn prove__loopback_keeps_every_mark() {
        let mut pair = TestPair::on_loopback().expect("loopback sockets");
        let marks = prove(&mut pair, TestedPath::Loopback);
        assert_eq!(marks.iter().map(|mark| mark.asked_dscp).collect::<Vec<_>>(), [48, 46, 0, 8, 1]);
        assert!(marks.iter().all(|mark| mark.granted), "{marks:?}");
    }
}
