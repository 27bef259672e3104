//! The names under which a report says what ranks talk over.

/// Which wire is between which ranks.
pub const WIRES: &str = "wires";
/// Why it is not another one that could be expected.
pub const UNUSED: &str = "wires not used";
/// What becomes of each class between hosts.
pub const CLASSES: &str = "classes on the wire";
/// Which library, and which of its providers on which interface.
pub const LIBRARY: &str = "libfabric";
/// What else the library offered, and why it was not taken.
pub const OFFERS: &str = "libfabric's offers";
