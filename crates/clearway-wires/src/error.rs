//! Why ranks have no wire between them, each as one sentence for a person.

use clearway_ofi::OfiError;
use clearway_proto::wire::RefusalReason;
use clearway_runtime::RuntimeError;
use thiserror::Error;

/// Why a wire was not opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WiresError {
    /// The words of a request do not go together, or the ranks cannot have what it asks for: ask
    /// for another wire.
    #[error("{0}")]
    Request(String),
    /// libfabric refused: install or name another library, or ask for another wire.
    #[error(transparent)]
    Fabric(#[from] OfiError),
    /// A port, keys or shared memory were refused.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// Ranks of one host cannot share memory: ask for UDP.
    #[error("ranks of one host cannot share memory (--wire udp does without): {0}")]
    Memory(RuntimeError),
    /// The wire below lacks what reliable messages need: ask for another one.
    #[error("reliable messages: {0}")]
    Reliable(RefusalReason),
    /// The coordinator sent a setup that does not fit what this rank said it has.
    #[error("{0}; this is a defect of the program")]
    Setup(&'static str),
}
