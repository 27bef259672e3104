//! A message's header while it is written: bytes of a known most, without an allocation.

/// A header of at most `LONGEST` bytes.
#[derive(Clone, Copy, Debug)]
pub struct Head<const LONGEST: usize> {
    bytes: [u8; LONGEST],
    length: usize,
}

impl<const LONGEST: usize> Head<LONGEST> {
    /// Creates a `Head` without any bytes yet.
    pub const fn new() -> Self {
        Self { bytes: [0; LONGEST], length: 0 }
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Adds `bytes`, which fit: how long its frames are its writer knows.
    pub fn put(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
        self
    }

    /// Creates a header of these bytes; `None` when they are too many.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        (bytes.len() <= LONGEST).then(|| *Self::new().put(bytes))
    }

    /// Replaces bytes that were added before.
    pub fn overwrite(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[..self.length][at..at + bytes.len()].copy_from_slice(bytes);
    }
}

impl<const LONGEST: usize> Default for Head<LONGEST> {
    fn default() -> Self {
        Self::new()
    }
}
