//! The fabric as the carrier of the wire.

use clearway_proto::base::GroupId;

use super::Carrier;
use crate::fabric::{Fabric, Notice, SendRequest};
use crate::graph::DeviceId;
use crate::time::Picos;

impl Carrier for Fabric {
    fn now(&self) -> Picos {
        self.now()
    }

    fn post(&mut self, at: Picos, order: SendRequest) {
        self.post(at, order);
    }

    fn next(&self) -> Option<Picos> {
        self.next()
    }

    fn advance(&mut self, until: Picos, notices: &mut Vec<Notice>) -> Picos {
        self.advance(until, notices)
    }

    fn join(&mut self, group: GroupId, host: DeviceId) {
        self.join(group, host);
    }

    fn digest(&self) -> u128 {
        self.digest()
    }
}
