//! Forwards what a wire adaptor, a wire made of another one, leaves as it is.

/// Implements the named methods of [`Wire`](crate::wire::Wire) by those of a field; to be called
/// inside the implementation of that trait.
///
/// What is not named the caller implements, or leaves to the trait's own default. A default knows
/// nothing of the field: name `memory`, `groups` and `deadline` where the adaptor changes nothing
/// about them. `memory` stands for all methods that concern memory, `groups` for `join` and
/// `leave`.
///
/// ```
/// use clearway_proto::wire::{Arrival, Wire, forward_wire};
///
/// /// A wire that sends and never receives.
/// struct Deaf<W>(W);
///
/// impl<W: Wire> Wire for Deaf<W> {
///     forward_wire!(0: rank, capabilities, now, memory, groups, post, deadline, counters);
///
///     fn poll(&mut self, _limit: usize, _sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
///         0
///     }
/// }
/// ```
#[macro_export]
macro_rules! forward_wire {
    (@rank $to:tt) => {
        fn rank(&self) -> $crate::base::Rank {
            self.$to.rank()
        }
    };
    (@capabilities $to:tt) => {
        fn capabilities(&self) -> &$crate::wire::Capabilities {
            self.$to.capabilities()
        }
    };
    (@now $to:tt) => {
        fn now(&self) -> $crate::base::LocalNs {
            self.$to.now()
        }
    };
    (@register $to:tt) => {
        fn register(&mut self, length: $crate::base::Bytes) -> Result<$crate::wire::RegionId, $crate::wire::RefusalReason> {
            self.$to.register(length)
        }
    };
    (@adopt $to:tt) => {
        fn adopt(
            &mut self,
            memory: $crate::wire::AdoptedMemory,
        ) -> Result<$crate::wire::RegionId, $crate::wire::RefusalReason> {
            self.$to.adopt(memory)
        }
    };
    (@region_mut $to:tt) => {
        fn region_mut(&mut self, region: $crate::wire::RegionId) -> Option<&mut [u8]> {
            self.$to.region_mut(region)
        }
    };
    (@memory $to:tt) => {
        $crate::wire::forward_wire!($to: register, adopt, region_mut);

        fn region(&self, region: $crate::wire::RegionId) -> Option<&[u8]> {
            self.$to.region(region)
        }

        fn copy_out(&self, from: $crate::wire::Span, into: &mut [u8]) -> Result<(), $crate::wire::RefusalReason> {
            self.$to.copy_out(from, into)
        }

        fn copy_in(&mut self, into: $crate::wire::Span, from: &[u8]) -> Result<(), $crate::wire::RefusalReason> {
            self.$to.copy_in(into, from)
        }

        fn hold(&self, span: $crate::wire::Span) -> Option<$crate::wire::HeldBytes> {
            self.$to.hold(span)
        }

        fn clear(&mut self, region: $crate::wire::RegionId) {
            self.$to.clear(region);
        }

        fn digest(&self, of: $crate::wire::Span) -> Result<u32, $crate::wire::RefusalReason> {
            self.$to.digest(of)
        }
    };
    (@groups $to:tt) => {
        fn join(&mut self, group: $crate::base::GroupId) -> Result<(), $crate::wire::RefusalReason> {
            self.$to.join(group)
        }

        fn leave(&mut self, group: $crate::base::GroupId) -> Result<(), $crate::wire::RefusalReason> {
            self.$to.leave(group)
        }
    };
    (@post $to:tt) => {
        fn post(
            &mut self,
            operations: &[$crate::wire::Operation],
            heads: &[u8],
            answers: &mut Vec<$crate::wire::PostOutcome>,
        ) {
            self.$to.post(operations, heads, answers)
        }
    };
    (@poll $to:tt) => {
        fn poll(&mut self, limit: usize, sink: &mut dyn FnMut($crate::wire::Arrival<'_>)) -> usize {
            self.$to.poll(limit, sink)
        }
    };
    (@deadline $to:tt) => {
        fn deadline(&self) -> Option<$crate::base::LocalNs> {
            self.$to.deadline()
        }
    };
    (@counters $to:tt) => {
        fn counters(&self) -> $crate::wire::Counters {
            self.$to.counters()
        }
    };
    ($to:tt: $($method:ident),+ $(,)?) => {
        $($crate::wire::forward_wire!(@$method $to);)+
    };
}

pub use forward_wire;
