//! How many rows a builder goes on ahead of the oldest that is not complete: as many as help.
//!
//! # Model
//! Going on while an input is away keeps the others busy, and the input catches up when it is back.
//! Where the same input is always the last one, because it has more to send or a slower way,
//! nothing is ever caught up: the rows ahead only stand there and make timeslices late. So the
//! bound shrinks while more than one row stands ahead all the time, and grows while it is reached
//! and yet caught up with in between.
//!
//! # Source
//! A standing queue distinguished from a passing one by its minimum: CoDel (Nichols, Jacobson
//! 2012), in rows.
//!
//! # Invariants
//! I1. The bound stays between [`ROWS_LEAST`] and [`ROWS_MOST`].

/// One row that is being completed, and one that is begun.
const ROWS_LEAST: u64 = 2;
/// Rows that are open at most: an input that is away for that many rotations stops its builders.
/// Eight contributions of 64 KiB in a ring of 32 MiB are 1.6 % of it, which is what our builders
/// are to keep below.
pub(super) const ROWS_MOST: u64 = 8;
/// Rows that are complete between two looks: twice the largest bound, so that what is ahead could
/// have been caught up with.
const SPAN: u64 = 2 * ROWS_MOST;

/// The bound of one builder.
#[derive(Debug)]
pub(super) struct Slack {
    bound: u64,
    /// The fewest rows that were ahead since the last look.
    least: u64,
    /// Whether the bound stopped anybody since then.
    reached: bool,
    /// The oldest row at the last look.
    since: u64,
}

impl Slack {
    /// Creates the largest bound, at the beginning of everything.
    pub(super) const fn new() -> Self {
        Self { bound: ROWS_MOST, least: u64::MAX, reached: false, since: 0 }
    }

    /// Returns whether turns of `row` may be given while row `oldest` is the first one that is not
    /// complete.
    pub(super) fn allows(&mut self, row: u64, oldest: u64) -> bool {
        let ahead = row.saturating_sub(oldest);
        self.least = self.least.min(ahead);
        let allowed = ahead < self.bound;
        self.reached |= !allowed;
        if oldest.saturating_sub(self.since) >= SPAN {
            if self.least > 1 {
                self.bound = (self.bound - (self.least - 1).min(self.bound)).max(ROWS_LEAST);
            } else if self.reached {
                self.bound = (self.bound + 1).min(ROWS_MOST);
            }
            *self = Self { bound: self.bound, least: ahead, reached: false, since: oldest };
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goes on as far as it may before each of `rows` rows is complete; every `pause`-th waits
    /// until `late` more could be begun.
    fn bound_after(slack: &mut Slack, rows: u64, ahead: impl Fn(u64) -> u64) -> u64 {
        let mut row = 0;
        for oldest in 0..rows {
            let wanted = oldest + ahead(oldest);
            while row < wanted && slack.allows(row, oldest) {
                row += 1;
            }
            row = row.max(oldest + 1);
            slack.allows(row, oldest + 1);
        }
        slack.bound
    }

    #[test]
    fn allows__rows_that_stand_ahead_for_ever_are_given_up() {
        let bound = bound_after(&mut Slack::new(), 100, |_| 100);
        assert!((ROWS_LEAST..=ROWS_LEAST + 1).contains(&bound), "{bound}");
    }

    #[test]
    fn allows__an_input_that_is_away_now_and_then_leaves_all_of_them() {
        let mut slack = Slack::new();
        bound_after(&mut slack, 100, |_| 100);
        let mut again = Slack { since: 0, ..slack };
        // Every eighth row is late, and everything is caught up with behind it.
        assert_eq!(
            bound_after(&mut again, 400, |oldest| if oldest % 8 == 0 { 100 } else { 1 }),
            ROWS_MOST
        );
    }

    #[test]
    fn allows__one_row_at_a_time_changes_nothing() {
        assert_eq!(bound_after(&mut Slack::new(), 100, |_| 1), ROWS_MOST);
    }
}
