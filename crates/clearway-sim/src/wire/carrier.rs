//! The fabric as the carrier of the wire.

use clearway_proto::base::GroupId;
use clearway_proto::wire::OperationKind;

use super::Carrier;
use crate::fabric::{Fabric, Notice, Order};
use crate::graph::DeviceId;
use crate::time::Picos;

impl Carrier for Fabric {
    const LACKS: &'static [OperationKind] = &[OperationKind::Multicast];

    fn now(&self) -> Picos {
        self.now()
    }

    fn post(&mut self, at: Picos, order: Order) {
        self.post(at, order);
    }

    fn next(&self) -> Option<Picos> {
        self.next()
    }

    fn advance(&mut self, until: Picos, notices: &mut Vec<Notice>) -> Picos {
        self.advance(until, notices)
    }

    /// Nobody can: see [`Carrier::LACKS`].
    fn join(&mut self, _: GroupId, _: DeviceId) {}

    fn digest(&self) -> u128 {
        self.digest()
    }
}
