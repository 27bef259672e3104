//! What an input's policy is shown: what is due to each builder, and whether it could leave now.

use crate::timeslice::membership::Deal;
use crate::timeslice::policy::Cause;

/// The turns of an input. Builders are named by place.
pub(in crate::timeslice) trait TurnView {
    /// Returns how many builders there are.
    fn builders(&self) -> usize;

    /// Returns the place of the builder of `timeslice`.
    fn builder_of(&self, timeslice: u64) -> usize;

    /// Returns the next timeslice of the builder at `place`; none when there is nothing more for
    /// it.
    fn next_of(&self, place: usize) -> Option<u64>;

    /// Returns the timeslice as of which the next one of the builder at `place` is due; none when
    /// there is nothing more for it.
    fn turn_of(&self, place: usize) -> Option<u64>;

    /// Returns the first timeslice that this input has something for.
    fn first(&self) -> u64;

    /// Returns all deals, ascending: the first one from timeslice zero on, each up to the next.
    fn deals(&self) -> &[Deal];

    /// Returns the timeslice from which the last deal holds.
    fn dealt_from(&self) -> u64;

    /// Returns the round that `timeslice` is dealt in, of all.
    fn round_of(&self, timeslice: u64) -> u64;

    /// Returns whether the builder at `place` has fewer turns than at the beginning, because it was
    /// too slow for all of them.
    fn is_relieved(&self, place: usize) -> bool;

    /// Returns how many contributions to the builder at `place` that are due before timeslice `end`
    /// were not posted.
    fn unsent_before(&self, place: usize, end: u64) -> u64;

    /// Returns how many contributions to the builder at `place` that were due before timeslice
    /// `end` were posted and are not released.
    fn unreleased_before(&self, place: usize, end: u64) -> u64;

    /// Returns whether the next contribution to the builder at `place` could be posted now.
    ///
    /// # Errors
    /// Why not.
    fn may_send(&self, place: usize) -> Result<(), Cause>;
}
