//! Which team each channel of the pool is held by or promised to, at this rank.

use super::CHANNELS_MAX;

/// The pool as one rank knows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChannelPool {
    holders: [Option<u32>; CHANNELS_MAX as usize],
    /// Channels that there are.
    count: u8,
}

impl ChannelPool {
    pub(super) const fn new(count: u8) -> Self {
        let count = if count < CHANNELS_MAX { count } else { CHANNELS_MAX };
        Self { holders: [None; CHANNELS_MAX as usize], count }
    }

    /// Holds `channel` for `team` if nobody else has it; whether it is held now.
    pub(super) fn hold(&mut self, channel: u8, team: u32) -> bool {
        match self.holders.get_mut(usize::from(channel)) {
            Some(holder) if channel < self.count => *holder.get_or_insert(team) == team,
            _ => false,
        }
    }

    /// Frees what is held for `team`, but for `keep`.
    pub(super) fn free(&mut self, team: u32, keep: Option<u8>) {
        for (channel, holder) in (0..).zip(&mut self.holders) {
            if *holder == Some(team) && keep != Some(channel) {
                *holder = None;
            }
        }
    }

    /// Returns the team that has `channel`.
    pub(super) fn holder(&self, channel: u8) -> Option<u32> {
        self.holders.get(usize::from(channel)).copied().flatten()
    }

    /// Channels that are not to be had for `team`, as bits: others' and those that there are not.
    pub(super) fn busy_for(&self, team: u32) -> u8 {
        let is_busy = |channel: u8| {
            channel >= self.count || self.holder(channel).is_some_and(|holder| holder != team)
        };
        (0..CHANNELS_MAX)
            .filter(|channel| is_busy(*channel))
            .fold(0, |bits, channel| bits | 1 << channel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hold__a_channel_is_one_teams() {
        let mut pool = ChannelPool::new(2);
        assert!(pool.hold(1, 7) && pool.hold(1, 7) && !pool.hold(1, 8));
        assert!(!pool.hold(2, 8) && !pool.hold(200, 8), "there are two");
        assert_eq!((pool.busy_for(7), pool.busy_for(8)), (0b1111_1100, 0b1111_1110));
        pool.free(8, None);
        pool.free(7, Some(1));
        assert_eq!(pool.holder(1), Some(7));
        pool.free(7, None);
        assert_eq!((pool.holder(1), pool.busy_for(8)), (None, 0b1111_1100));
    }
}
