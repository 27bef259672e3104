//! How many contributions a builder lets in at a time: as many as keep its link busy whichever of
//! them is held up.
//!
//! # Model
//! The time from a grant to the arrival of its contribution has a floor, the *base*: the way there,
//! the contribution on an idle network, the way back. What it takes beyond the base is waiting, so
//! of `K` open grants `K (1 - base / wait)` wait while others move. A few that wait are what keeps
//! the link busy when one of those that move is held up elsewhere: with fewer than
//! [`WAITING_LEAST`] one more is let in, with more than [`SPACE`] beyond that one less. More of
//! them gain nothing where only the builder's own link is short, and make timeslices take longer;
//! so few inputs have fewer.
//!
//! In large networks they also wait for links that builders share, and not all of these have
//! something to carry at any time. There the window keeps up to [`WAITING_LEAST_LARGE`] waiting, if
//! they are a small part of a rotation: it makes timeslices later by that part.
//!
//! The base is the shortest wait of the last [`SPANS_KEPT`] to twice as many spans of one rotation
//! each. A builder that always has many open never sees the floor, so every as many spans the
//! window is its smallest for a moment: until all that was granted before has landed, twice.
//!
//! # Source
//! The rule is that of TCP Vegas (Brakmo, Peterson 1995), in contributions; the look at the floor
//! is BBR's. Comparing throughput of two windows instead was tried and dropped: a builder with a
//! larger window gains at the cost of others, so that all grow.
//!
//! # Invariants
//! I1. The window never leaves its bounds, and moves by one at a time.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::base::Nanos;

/// Contributions to keep waiting, in thousandths. 32 inputs and 32 builders on `aries`: windows of
/// 3, 4, 6, 8 and 16 carry 1.08, 1.11, 1.13, 1.15 and 1.14 of what unscheduled writes do, with a
/// way of less than one contribution: five in waiting are within 1 %.
const WAITING_LEAST: u64 = 4500;
/// The same where rotations are short, since more than three quarters of one make all timeslices
/// late: 4 inputs and 4 builders of a lab have theirs after 12 ms with a window of 5 and 18 ms with
/// one of 6 to 7, and carry 0.98 of raw with either, 0.96 with 3.
const WAITING_LEAST_SMALL: u64 = 3000;
/// The same where rotations are long. 170 inputs and 170 builders in three groups of a dragonfly
/// whose cables between groups are the limit: windows of 6, 8, 12, 16 and 32 carry 0.92, 0.95,
/// 0.96, 0.96 and 0.88 of what unscheduled writes do.
const WAITING_LEAST_LARGE: u64 = 10_500;
/// The part of a rotation to keep waiting, between the two values above.
const PART_OF_ROTATION: u64 = 16;
/// This much more is enough. The space between the two keeps the window at rest.
const SPACE: u64 = 1500;
/// Spans between two looks at the floor. A look costs more than its moment, since builders lose
/// step: 32 inputs and 32 builders on `aries` carry 1.14 of raw with a fixed window, 1.09 with a
/// look every 16 spans. A network that became slower is known for one after as many rotations,
/// which take parts of a second.
const SPANS_KEPT: u32 = 256;
/// The largest window: more than inputs of any machine, and no product with it overflows.
const WINDOW_MAX: u32 = 1 << 16;
/// Waits of one span at least.
const SPAN_LEAST: u64 = 16;

/// The bounds of a window, in contributions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// The smallest.
    pub least: u32,
    /// The largest.
    pub most: u32,
}

impl Window {
    /// Creates a window that is always this many.
    pub const fn fixed(contributions: u32) -> Self {
        Self { least: contributions, most: contributions }
    }
}

impl FromStr for Window {
    type Err = UnusableWindow;

    fn from_str(text: &str) -> Result<Self, UnusableWindow> {
        let (least, most) = text.split_once('-').unwrap_or((text, text));
        let number = |text: &str| text.parse::<u32>().ok().filter(|n| (1..=WINDOW_MAX).contains(n));
        match (number(least), number(most)) {
            (Some(least), Some(most)) if least <= most => Ok(Self { least, most }),
            _ => Err(UnusableWindow),
        }
    }
}

/// The text is no window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnusableWindow;

impl fmt::Display for UnusableWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no window; a number of contributions such as 4, or two such as 2-64, work, up to {WINDOW_MAX}"
        )
    }
}

impl core::error::Error for UnusableWindow {}

/// Adapts the window of one builder.
#[derive(Debug)]
pub(super) struct Pacemaker {
    bounds: Window,
    window: u32,
    rotation: u64,
    /// Waits of a span: few until the window has been found once, then those of one rotation, so
    /// that each input counts alike.
    span: u64,
    count: u64,
    sum: u64,
    shortest: u64,
    /// The shortest wait since the floor was looked for, and in the time before.
    floors: [u64; 2],
    /// Spans since then.
    spans: u32,
    /// Landings for which the window is its smallest.
    dip: u64,
}

impl Pacemaker {
    /// Creates a window within `window`, where a rotation has this many contributions.
    pub(super) fn new(window: Window, rotation: usize) -> Self {
        let least = window.least.max(1);
        let bounds = Window { least, most: window.most.max(least) };
        let (rotation, span, floors) = (rotation as u64, SPAN_LEAST, [u64::MAX; 2]);
        Self {
            bounds,
            window: least,
            rotation,
            span,
            count: 0,
            sum: 0,
            shortest: u64::MAX,
            floors,
            spans: 0,
            dip: 0,
        }
    }

    /// Returns the window now.
    pub(super) const fn window(&self) -> u32 {
        if self.dip > 0 { self.bounds.least } else { self.window }
    }

    /// Returns the window that was found, also while it is smaller for a moment.
    pub(super) const fn found(&self) -> u32 {
        self.window
    }

    /// Records that a contribution landed `wait` after its grant.
    pub(super) fn landed(&mut self, wait: Nanos) {
        self.shortest = self.shortest.min(wait.0);
        if self.dip > 0 {
            self.dip -= 1;
            return;
        }
        self.count += 1;
        self.sum += wait.0;
        if self.count == self.span {
            self.span_over();
            (self.count, self.sum, self.shortest) = (0, 0, u64::MAX);
        }
    }

    fn span_over(&mut self) {
        self.floors[0] = self.floors[0].min(self.shortest);
        let base = self.floors[0].min(self.floors[1]);
        let wait = (self.sum / self.count).max(1);
        let waiting = u64::from(self.window) * 1000 * (wait - base.min(wait)) / wait;
        let usual = (self.rotation * 1000 / 4 * 3).clamp(WAITING_LEAST_SMALL, WAITING_LEAST);
        let least = (self.rotation * 1000 / PART_OF_ROTATION).clamp(usual, WAITING_LEAST_LARGE);
        if waiting >= least {
            self.span = self.rotation.max(SPAN_LEAST);
        }
        let window = match waiting {
            few if few < least => self.window + 1,
            many if many > least + SPACE => self.window - 1,
            _ => self.window,
        };
        self.window = window.clamp(self.bounds.least, self.bounds.most);
        self.spans += 1;
        if self.spans == SPANS_KEPT {
            (self.spans, self.dip) = (0, 2 * u64::from(self.window));
            self.floors = [u64::MAX, self.floors[0]];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a link that carries a contribution in `transfer` ns, and takes `way` ns there and
    /// back: beyond what keeps it busy, every grant waits.
    fn settled(bounds: Window, transfer: u64, way: u64) -> u32 {
        settled_in(10, bounds, transfer, way)
    }

    fn settled_in(rotation: usize, bounds: Window, transfer: u64, way: u64) -> u32 {
        let mut pacemaker = Pacemaker::new(bounds, rotation);
        for i in 0..20_000 {
            // One contribution in some finds the link idle.
            let busy = u64::from(pacemaker.window()) * transfer;
            let wait = if i % 50 == 0 { way + transfer } else { busy.max(way + transfer) };
            pacemaker.landed(Nanos(wait));
        }
        pacemaker.window()
    }

    const WIDE: Window = Window { least: 1, most: 64 };

    #[test]
    fn window__covers_the_way_and_little_more() {
        let short = settled(WIDE, 18_700, 2_500);
        assert!((6..=7).contains(&short), "{short}: one moves, five or six wait");
        let long = settled(WIDE, 1_000, 10_000);
        assert!((16..=17).contains(&long), "{long} for eleven transfers");
    }

    #[test]
    fn window__is_larger_where_that_is_little_of_a_rotation() {
        let of_rotation = |rotation| settled_in(rotation, WIDE, 18_700, 2_500);
        assert_eq!(of_rotation(64), of_rotation(6));
        assert!((4..=5).contains(&of_rotation(4)), "three wait of {}", of_rotation(4));
        assert!((9..=10).contains(&of_rotation(128)), "eight wait of {}", of_rotation(128));
        assert!((12..=13).contains(&of_rotation(512)), "eleven of {}", of_rotation(512));
    }

    #[test]
    fn window__is_found_within_two_rotations() {
        let mut pacemaker = Pacemaker::new(WIDE, 512);
        (0..1024).for_each(|_| {
            pacemaker.landed(Nanos((18_700 * u64::from(pacemaker.window())).max(21_200)))
        });
        assert!(pacemaker.window() >= 11, "{}", pacemaker.window());
    }

    #[test]
    fn window__stays_within_its_bounds() {
        assert_eq!(settled(Window { least: 1, most: 5 }, 1_000, 100_000), 5);
        assert_eq!(settled(Window { least: 8, most: 12 }, 1_000, 10), 8);
        assert_eq!(settled(Window::fixed(7), 1_000, 10), 7);
    }

    #[test]
    fn from_str__takes_one_number_or_two() {
        assert_eq!("4".parse(), Ok(Window::fixed(4)));
        assert_eq!("2-64".parse(), Ok(Window { least: 2, most: 64 }));
        for text in ["", "0", "8-2", "1-70000", "a", "-3"] {
            assert_eq!(text.parse::<Window>(), Err(UnusableWindow), "{text}");
        }
    }

    #[test]
    fn window__follows_a_network_that_became_slower() {
        let mut pacemaker = Pacemaker::new(WIDE, 10);
        (0..10_000).for_each(|_| pacemaker.landed(Nanos(2_000)));
        assert_eq!(pacemaker.window(), 64, "nothing ever waits");
        (0..100_000).for_each(|_| {
            let wait = 5_000 * u64::from(pacemaker.window());
            pacemaker.landed(Nanos(wait));
        });
        assert!(pacemaker.window() <= 12, "{}", pacemaker.window());
    }
}
