//! Token buckets that hold more than one packet: what has left and is not yet paid for at the rate.
//!
//! # Model
//! A packet leaves at once and is paid for at the rate. The next may start while as much is owed as
//! the burst leaves over when the longest packet is taken out of it: a bucket is asked before it is
//! known how long that packet is.

use crate::spec::LinkSpec;
use crate::time::Pace;

/// The token buckets of a port whose burst is longer than a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buckets {
    /// How much of its time a port may owe when a packet starts, however long that is.
    lead: u64,
    /// When all that was sent will have been paid for at the rate.
    paid: u64,
    /// The same of what may overtake others.
    express_paid: u64,
}

impl Buckets {
    /// Creates the `Buckets` of a channel of `link` where packets have up to `longest` bytes;
    /// `None` where the next has to wait in any case.
    pub(crate) fn new(link: &LinkSpec, longest: u32) -> Option<Self> {
        let lead =
            Pace::from_rate(link.rate).time((link.burst?.0 as u32).saturating_sub(longest)).0;
        (lead > 0).then_some(Self { lead, paid: 0, express_paid: 0 })
    }

    /// Returns when the next packet can start after one that starts at `start` and takes `serial`
    /// at the rate.
    pub(crate) fn spend(&mut self, start: u64, serial: u64) -> u64 {
        Self::next(&mut self.paid, self.lead, start, serial)
    }

    /// Does the same for the next that may overtake, after one that may.
    pub(crate) fn spend_express(&mut self, start: u64, serial: u64) -> u64 {
        Self::next(&mut self.express_paid, self.lead, start, serial)
    }

    /// Returns when the next can start: an instant later at least, so that none feeds itself.
    fn next(paid: &mut u64, lead: u64, start: u64, serial: u64) -> u64 {
        *paid = start.max(*paid) + serial;
        paid.saturating_sub(lead).max(start + 1)
    }
}
