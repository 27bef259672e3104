//! An input's puts: short ones travel with their message, long ones are announced and fetched.

use super::InputNode;
use crate::base::Rank;
use crate::timeslice::context::TimesliceContext;
use crate::timeslice::frame::TimesliceFrame;
use crate::wire::{Destination, RemoteSpan, Span, Token};

/// The longest put that travels with its message: every wire carries such a body. MPIs draw the
/// line at one to some tens of kilobytes; between the short messages of the published benchmark (64
/// bytes) and its long ones (64 KiB) it makes no difference.
const EAGER_MAX: u32 = 1_024;

/// Puts `from` to place `into` of the ring that `peer` keeps for this input.
pub(super) fn send(cx: &mut TimesliceContext<'_>, peer: Rank, from: Span, into: u64, token: Token) {
    let lies_at = RemoteSpan { region: from.region, offset: from.offset };
    let mut head = TimesliceFrame::Put { into, from: lies_at, length: from.length }.encode();
    head.put(&cx.config.run.to_le_bytes());
    let (class, body) = if from.length <= EAGER_MAX {
        (cx.config.class, from)
    } else {
        (cx.config.control, Span::EMPTY)
    };
    cx.out.send(Destination::One(peer), class, head.bytes(), body, Some(token));
}

impl InputNode {
    /// Records how many puts the builder at `place` has taken in, since the beginning and modulo
    /// 2^32.
    pub(super) fn taken_in(&mut self, place: usize, count: u32) {
        let connection = &mut self.connections.all[place];
        let newly = count.wrapping_sub(connection.granted);
        if newly > connection.writes {
            // The count names puts that never left: it must not grant room for others.
            self.record.strangers += 1;
            return;
        }
        connection.granted = count;
        connection.writes -= newly;
        self.writes -= newly;
        if self.connections.all[place].is_drained() {
            self.try_to_end();
        }
    }
}
