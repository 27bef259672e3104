//! What is asked of a fabric and what it tells.

use clearway_proto::base::{Class, GroupId};

use crate::event::EventQueueKind;
use crate::graph::DeviceId;
use crate::time::Picos;

/// Where a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// To one host.
    Host(DeviceId),
    /// To all members of a group but the sender.
    Group(GroupId),
    /// To all hosts from the first to the last but the sender: contiguous ranges are the addresses
    /// of some hardware.
    Range(DeviceId, DeviceId),
}

/// A message to carry. The fabric cuts it into packets; it does not carry bytes, only their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendRequest {
    /// The sending host.
    pub from: DeviceId,
    /// The device that gets it, or the group.
    pub to: Target,
    /// The class asked for.
    pub class: Class,
    /// Payload; zero is a message of one packet with nothing but headers.
    pub bytes: u64,
    /// Which of the sender's ports.
    pub rail: u8,
    /// What the caller wants to hear of it.
    pub reports: NoticeSet,
    /// The caller's name for it; comes back in notices.
    pub tag: u64,
}

/// Which notices a message makes. Each is an event of the simulation and costs its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeSet {
    /// [`Notice::Delivered`] or [`Notice::Lost`].
    Delivery,
    /// [`Notice::Sent`] too.
    SentAndDelivery,
    /// All of them.
    All,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Its last byte left the sender's port.
    Sent {
        /// The order's.
        tag: u64,
        /// The sender.
        from: DeviceId,
        /// When.
        at: Picos,
    },
    /// All of it is in the memory of `to`. A multicast is delivered once for each member.
    Delivered {
        /// The order's.
        tag: u64,
        /// The receiver.
        to: DeviceId,
        /// When.
        at: Picos,
        /// A packet of it met a queue that marks.
        marked: EcnMark,
        /// Whether its bytes arrived unharmed.
        payload: Payload,
    },
    /// The sender's interface knows that all of it was delivered.
    Acknowledged {
        /// The order's.
        tag: u64,
        /// The sender.
        from: DeviceId,
        /// When.
        at: Picos,
    },
    /// A fault made a second copy of it. One more [`Notice::Delivered`] or [`Notice::Lost`] with
    /// the same tag follows.
    Doubled {
        /// The order's.
        tag: u64,
        /// The device that gets it twice.
        to: DeviceId,
        /// When.
        at: Picos,
    },
    /// Some of it was dropped, so that it will never be delivered to `to`.
    Lost {
        /// The order's.
        tag: u64,
        /// The device that does not get it.
        to: DeviceId,
        /// When the first packet was dropped.
        at: Picos,
    },
}

/// Whether a packet met a queue that marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EcnMark {
    /// At least one packet did.
    Yes,
    /// None did.
    No,
}

/// Whether bytes arrived as they were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// As sent.
    Intact,
    /// A link changed some of them and no check noticed.
    Corrupt,
}

/// Ways to compute the same thing. No choice here may change a result; tests run all of them side
/// by side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FabricOptions {
    /// What orders the events.
    pub queue: EventQueueKind,
    /// Which events exist.
    pub events: EventSet,
    /// Whether undisturbed packets of one message travel as one.
    pub trains: Trains,
}

/// Which events exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventSet {
    /// Only those that somebody waits for.
    #[default]
    Lazy,
    /// All: each end of a transmission and each credit.
    Eager,
}

/// Whether undisturbed packets of one message travel as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trains {
    /// Yes, until another packet comes between.
    #[default]
    On,
    /// No.
    Off,
}
