//! The mechanisms: what each measures or carries, with its section of a scenario, its ranks, its
//! figures and its pages.

pub(crate) mod broadcast;
pub(crate) mod cast;
pub(crate) mod congestion;
#[cfg(test)]
pub(crate) mod echo;
pub(crate) mod gpcnet;
pub(crate) mod shmem;
pub(crate) mod staging;
pub(crate) mod timeslice;
