//! What can go wrong when libfabric is loaded or an end of the wire is opened, each as one sentence
//! for a person.

use std::path::PathBuf;

use clearway_proto::base::Rank;
use thiserror::Error;

/// Why there is no libfabric wire.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OfiError {
    /// No library could be loaded: install one, name one, or use another wire.
    #[error(
        "no libfabric: {said}; install libfabric1, or put the library where the loader looks (LD_LIBRARY_PATH)"
    )]
    NoLibrary {
        /// What the loader said about each attempt.
        said: String,
    },
    /// The file is no libfabric, or one older than any that is supported.
    #[error("{} is no usable libfabric: it lacks {symbol} of version {version}; libfabric 1.17 or later works", path.display())]
    Symbol {
        /// The file.
        path: PathBuf,
        /// The function looked for.
        symbol: &'static str,
        /// Its version.
        version: &'static str,
    },
    /// The library has no provider that fits.
    #[error("libfabric {version} has no usable provider: {said}")]
    NoProvider {
        /// The library's version.
        version: String,
        /// Each provider looked at, with what speaks against it.
        said: String,
    },
    /// The provider refused something every wire needs.
    #[error("the libfabric provider {provider} refused to {what}: {said}")]
    Provider {
        /// Its name.
        provider: String,
        /// What was asked of it.
        what: &'static str,
        /// What it said.
        said: String,
    },
    /// The rank is not in the list of peers: correct the list.
    #[error("rank {rank} is not among the {ranks} peers; ranks are numbered from 0")]
    RankOutside {
        /// This end's rank.
        rank: Rank,
        /// Entries in the list.
        ranks: usize,
    },
    /// The bytes published for a rank are no address of this wire.
    #[error(
        "the address published for rank {rank} is none of the libfabric wire: {why}; start all ranks with one version"
    )]
    Address {
        /// Whose address.
        rank: Rank,
        /// What is wrong with it.
        why: &'static str,
    },
    /// There are not as many proofs as peers: correct the list.
    #[error("{proofs} proofs for {ranks} ranks; each rank needs one")]
    Proofs {
        /// Entries in the list of proofs.
        proofs: usize,
        /// Entries in the list of peers.
        ranks: usize,
    },
    /// A process that greets as this rank has another key, or repeats the rank's greeting: start
    /// all ranks in one run.
    #[error(
        "who greets as rank {rank} does not hold the key of this job, or repeats a greeting, so it is not heard; \
         start all ranks in one run"
    )]
    Stranger {
        /// The rank that it greets as.
        rank: Rank,
    },
    /// Two ranks chose providers that do not understand each other: name one provider for all.
    #[error(
        "rank {rank} speaks {theirs}, this rank speaks {ours}; name one provider that every host has"
    )]
    OtherProvider {
        /// The other rank.
        rank: Rank,
        /// Its provider.
        theirs: String,
        /// This rank's.
        ours: String,
    },
}
