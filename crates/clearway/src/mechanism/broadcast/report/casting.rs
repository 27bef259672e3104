//! What a report holds of broadcasts in a laboratory: what charts are drawn from. Their figures
//! stand with the others.

use serde::{Deserialize, Serialize};

use crate::report::model::{ExtendedReal, Labels, ReportPart};

/// Broadcasts from one root to all other hosts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct BroadcastReport {
    /// Names of the hosts, the root first.
    pub(crate) hosts: Vec<String>,
    /// Of each host's link, in Mb/s.
    pub(crate) rate_mbps: ExtendedReal,
    /// One for each mode, length and loss.
    #[serde(default)]
    pub(crate) casts: Vec<CastRun>,
}

impl ReportPart for BroadcastReport {
    const NAME: &'static str = "casting";
}

/// Objects of one length that were cast by one mode under one loss.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CastRun {
    /// Bytes, loss, mode: as in the figures.
    pub(crate) labels: Labels,
    /// Of an object.
    pub(crate) bytes: u64,
    pub(crate) objects: u32,
    /// How symbols left at first: `multicast`, `chain` or `tree`.
    pub(crate) way: String,
    pub(crate) symbols: CastSymbols,
    /// By host: bytes that left it and that reached it, headers and control included.
    #[serde(default)]
    pub(crate) links: Vec<[u64; 2]>,
    /// By host: how many symbols came from each host, repairs and doubled ones included.
    #[serde(default)]
    pub(crate) sources: Vec<Vec<u64>>,
    /// What was seen of one object in the middle; absent where objects are shorter than it takes to
    /// look.
    #[serde(default, rename = "film", skip_serializing_if = "Option::is_none")]
    pub(crate) samples: Option<CastProgressSamples>,
}

/// Symbols of all objects together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CastSymbols {
    /// That all receivers need together.
    pub(crate) needed: u64,
    /// That the run itself dropped at receivers, on purpose.
    pub(crate) lost: u64,
    /// That were not what the sender's memory held.
    pub(crate) damaged: u64,
    /// That came before it was known where they belong.
    pub(crate) early: u64,
    /// That left again, by whomever, because somebody asked for them.
    pub(crate) repairs: u64,
    /// That came to somebody who had them.
    pub(crate) doubled: u64,
}

/// One object on its way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CastProgressSamples {
    /// Its number, from 0.
    pub(crate) object: u32,
    /// By receiver: how long after the order to cast it had the object; `null` where it never did.
    #[serde(default)]
    pub(crate) whole_ms: Vec<Option<ExtendedReal>>,
    /// When another way was taken, and which.
    #[serde(default)]
    pub(crate) switches: Vec<(ExtendedReal, String)>,
    /// By receiver: milliseconds since the order, and percent of the symbols that were there.
    #[serde(default)]
    pub(crate) progress: Vec<Vec<(ExtendedReal, ExtendedReal)>>,
}
