//! Broadcasts as a scenario describes them: one host casts to all others, by several ways, with and without loss.

use clearway_proto::base::Bytes;
use serde::{Deserialize, Serialize};

use super::fabric::Fabric;
use super::time::Time;
use super::{check_queues, distinct, within};
use crate::broadcast::{Mode, Plan, Share};

/// Broadcasts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Broadcast {
    /// The queue at every port.
    pub(crate) queue: String,
    /// Bytes of objects.
    pub(crate) bytes: Vec<Bytes>,
    /// Shares of what arrives that are lost, at every rank.
    pub(crate) loss: Vec<Share>,
    /// How objects reach all.
    pub(crate) modes: Vec<Mode>,
    /// Objects of each length; by their length without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) objects: Option<u32>,
    /// How long a rank may be silent.
    pub(crate) silence: Time,
}

impl Default for Broadcast {
    fn default() -> Self {
        Self {
            queue: "fifo".to_owned(),
            bytes: vec![Bytes(4), Bytes(16 << 10), Bytes(1 << 20)],
            loss: vec![Share(0)],
            modes: vec![Mode::Auto],
            objects: None,
            silence: Time::millis(2_000),
        }
    }
}

/// The longest object: the length of a span has 32 bits, and all ranks of one machine need memory for it.
const BYTES_MAX: Bytes = Bytes(2 << 30);

impl Broadcast {
    pub(super) fn check(&self, fabric: &Fabric) -> Result<(), String> {
        let Fabric::Lab(_) = fabric else {
            return Err(
                "it runs in a laboratory: [fabric] needs `topology`; clearway broadcast --on casts elsewhere".into()
            );
        };
        check_queues(fabric, std::slice::from_ref(&self.queue))?;
        distinct("bytes", &self.bytes)?;
        distinct("loss", &self.loss)?;
        distinct("modes", &self.modes)?;
        self.bytes.iter().try_for_each(|bytes| within("bytes", *bytes, Bytes(1), BYTES_MAX))?;
        within("objects", self.objects.unwrap_or(1), 1, 1_000_000)?;
        within("silence", self.silence, Time::millis(10), Time::millis(600_000))
    }

    /// What runs on `hosts` hosts of `fabric`.
    pub(crate) fn plan(&self, fabric: &Fabric, seed: u64) -> Result<Plan, String> {
        Ok(Plan {
            ranks: fabric.hosts()?,
            modes: self.modes.clone(),
            lengths: self.bytes.clone(),
            losses: self.loss.clone(),
            objects: self.objects,
            rate: Some(fabric.host_rate()?),
            silence: self.silence.0,
            kills: Vec::new(),
            stops: Vec::new(),
            seed,
        })
    }
}
