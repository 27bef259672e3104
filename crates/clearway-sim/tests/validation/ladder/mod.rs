//! The rungs, and which golden text each of them writes.

pub(crate) mod arbitration;
pub(crate) mod broadcast;
pub(crate) mod closed_forms;
pub(crate) mod credits;
pub(crate) mod fairness;
pub(crate) mod latency;
pub(crate) mod machines;
pub(crate) mod parking;
pub(crate) mod queueing;
pub(crate) mod queues;
pub(crate) mod rig;
pub(crate) mod saturation;
pub(crate) mod staging;
pub(crate) mod uniform;

/// A golden text.
pub(crate) struct Golden {
    /// Its file in `tests/golden`.
    pub(crate) file: &'static str,
    /// What makes it.
    pub(crate) text: fn() -> String,
}

/// Every golden text.
pub(crate) const GOLDEN: [Golden; 7] = [
    Golden { file: "closed-forms.txt", text: closed_forms::text },
    Golden { file: "elan3-broadcast.txt", text: broadcast::text },
    Golden { file: "machines.txt", text: machines::text },
    Golden { file: "qos-hdr100.txt", text: queues::text },
    Golden { file: "staging-qdr.txt", text: staging::text },
    Golden { file: "tree-saturation.txt", text: saturation::text },
    Golden { file: "uniform-load.txt", text: uniform::text },
];
