//! A heap whose every byte is known: parts of programs, and blocks that flags speak of.

use super::*;

/// The class of each context.
pub(super) const CONTEXTS: [Class; 3] = [Class::LowLatency, Class::BestEffort, Class::Bulk];
/// Bytes of a part: words, flags of blocks, blocks.
pub(super) const WORDS: u64 = 64;
pub(super) const FLAGS: u64 = WORDS;
pub(super) const BLOCKS: u64 = 128;
pub(super) const BLOCK: u64 = 1024;
pub(super) const PART: u64 = BLOCKS + 2 * BLOCK;
/// Long puts whose bytes a program keeps until it waits.
pub(super) const SOURCES: u64 = 4;

/// A request that waits, and what it will answer.
pub(super) struct AwaitedAnswer {
    pub(super) peer: Rank,
    pub(super) bytes: Vec<u8>,
}

/// The application's side of one rank: its heap, and what it waits for.
pub(super) struct ModelHeap {
    pub(super) rank: u32,
    pub(super) memory: Arc<WordMemory>,
    pub(super) expected: BTreeMap<u32, AwaitedAnswer>,
    /// Elements of data by source and queue.
    pub(super) data: BTreeMap<(Rank, u32), u64>,
}

/// Returns the bytes that a block has whose flag is `stamp`.
pub(super) fn pattern(stamp: u64) -> Vec<u8> {
    let mut stream = RandomKey::new(stamp).stream();
    (0..BLOCK / 8).flat_map(|_| stream.next_u64().to_le_bytes()).collect()
}

/// Returns where a part of each heap begins.
pub(super) fn part(source: u32, context: usize) -> u64 {
    (u64::from(source) * CONTEXTS.len() as u64 + context as u64) * PART
}

impl ModelHeap {
    fn place(&self, at: Place, length: u64) -> Result<u64, Fault> {
        let end = at.offset.checked_add(length).ok_or(Fault::Malformed)?;
        let is_inside = at.segment == 0 && end <= self.memory.length();
        is_inside.then_some(at.offset).ok_or(Fault::Malformed)
    }

    pub(super) fn bytes(&self, at: u64, length: u64) -> Vec<u8> {
        let mut bytes = vec![0; length as usize];
        self.memory.read(at, &mut bytes).expect("inside");
        bytes
    }

    /// Checks that a block is there when its flag says so.
    pub(super) fn check_flag(&self, at: u64, stamp: u64) {
        let inner = at % PART;
        if (FLAGS..FLAGS + 32).contains(&inner) {
            let block = (inner - FLAGS) / 16;
            let found = self.bytes(at - inner + BLOCKS + block * BLOCK, BLOCK);
            assert!(found == pattern(stamp), "{}: a flag before its block, at {at}", self.rank);
        }
    }
}

impl HeapAccess for ModelHeap {
    fn put(&mut self, at: Place, bytes: &[u8]) -> Result<(), Fault> {
        let at = self.place(at, bytes.len() as u64)?;
        self.memory.write(at, bytes).map_err(|_| Fault::Malformed)?;
        if let Ok(word) = bytes.try_into() {
            self.check_flag(at, u64::from_le_bytes(word));
        }
        Ok(())
    }

    fn get(&mut self, at: Place, into: &mut [u8]) -> Result<(), Fault> {
        let at = self.place(at, into.len() as u64)?;
        self.memory.read(at, into).map_err(|_| Fault::Malformed)
    }

    fn atomic(&mut self, at: Place, change: WordChange) -> Result<u64, Fault> {
        let mut word = [0; 8];
        let bytes = &mut word[..change.width.bytes()];
        self.get(at, bytes)?;
        let old = u64::from_le_bytes(word);
        let new = change.next(old);
        self.put(at, &new.to_le_bytes()[..change.width.bytes()])?;
        Ok(old)
    }

    fn data(&mut self, from: Rank, queue: u32, bytes: &[u8]) -> Result<(), Fault> {
        let count = self.data.entry((from, queue)).or_default();
        let number = bytes.get(..8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
        assert_eq!(number, Some(*count), "{}: data of {from:?} out of order", self.rank);
        *count += 1;
        Ok(())
    }

    fn fetched(&mut self, from: Rank, ticket: Ticket, bytes: &[u8]) -> Result<(), Fault> {
        let expected = self.expected.remove(&ticket.0).expect("a ticket is answered once");
        assert_eq!((expected.peer, expected.bytes.as_slice()), (from, bytes), "{}", self.rank);
        Ok(())
    }
}

impl Applier for ModelHeap {
    fn apply(&mut self, from: Rank, records: &[u8], answer: &mut [u8]) -> Result<usize, Fault> {
        apply(self, from, records, answer)
    }
}
