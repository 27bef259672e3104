//! Reads what leaves, in the order of the manifest, and packs it into objects, ahead of the
//! network.
//!
//! # Invariants
//! I1. At most [`AHEAD`] objects wait. A feeder whose objects nobody takes any more ends.
//! I2. What cannot be read, or changed since it was listed, ends as *broken*: no receiver takes it
//!     for whole.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use anyhow::{Context, Result};
use clearway_runtime::wake_signal::WakeSignal;

use super::plan::{BLOCK, BlockHash, EntryKind, MissingBlocks, MissingOfAll, root_of};
use super::record::{OBJECT_MAX, ObjectPart};
use super::source::{CastSource, SkippedPath, SourceBlock, StreamSource};
use super::target::reason;

/// Objects that wait for the network.
const AHEAD: usize = 2;

/// What comes from the feeder.
pub(super) enum FeederOutput {
    /// The next object.
    Object(Vec<u8>),
    /// There is no more; files that could not be sent, and why.
    End(Vec<SkippedPath>),
}

/// Objects, as they become ready; `bell` rings for each.
pub(super) struct Feeder {
    pub(super) objects: std::sync::mpsc::Receiver<FeederOutput>,
}

/// The objects in the making.
struct ObjectPacker {
    object: Vec<u8>,
    to: SyncSender<FeederOutput>,
    bell: Arc<WakeSignal>,
}

/// Nobody takes objects any more.
struct ConsumerClosed;

/// Why a file ends early.
enum EarlyEnd {
    Gone,
    Broken(io::Error),
}

impl From<ConsumerClosed> for EarlyEnd {
    fn from(_: ConsumerClosed) -> Self {
        Self::Gone
    }
}

impl From<io::Error> for EarlyEnd {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

impl Feeder {
    /// Begins to read what `union` says. `known` are the hashes that receivers were announced.
    pub(super) fn start(
        source: Arc<CastSource>,
        union: MissingOfAll,
        known: BTreeMap<u32, Vec<BlockHash>>,
        bell: Arc<WakeSignal>,
    ) -> Result<Self> {
        let (to, objects) = sync_channel(AHEAD);
        let mut packer = ObjectPacker { object: Vec::new(), to, bell };
        let feed = move || {
            let mut unsent = Vec::new();
            for number in 0..source.entries.len() as u32 {
                match packer.file(&source, number, union.need(number as usize), known.get(&number))
                {
                    Ok(()) => {}
                    Err(EarlyEnd::Gone) => return,
                    Err(EarlyEnd::Broken(error)) => {
                        unsent.push((source.name(number), reason(&error)));
                        if packer.add(&ObjectPart::Broken { file: number }).is_err() {
                            return;
                        }
                    }
                }
            }
            if packer.flush().is_ok() {
                let _ = packer.to.send(FeederOutput::End(unsent));
                packer.bell.raise();
            }
        };
        thread::Builder::new()
            .name("feeder".to_owned())
            .spawn(feed)
            .context("a thread that reads")?;
        Ok(Self { objects })
    }
}

impl ObjectPacker {
    fn add(&mut self, record: &ObjectPart<'_>) -> Result<(), ConsumerClosed> {
        if self.object.len() + record.length() > OBJECT_MAX {
            self.flush()?;
        }
        record.write(&mut self.object);
        Ok(())
    }

    /// Lets go of what is there.
    fn flush(&mut self) -> Result<(), ConsumerClosed> {
        if self.object.is_empty() {
            return Ok(());
        }
        let object = std::mem::replace(&mut self.object, Vec::with_capacity(OBJECT_MAX));
        self.to.send(FeederOutput::Object(object)).map_err(|_| ConsumerClosed)?;
        self.bell.raise();
        Ok(())
    }

    fn add_block(
        &mut self,
        file: u32,
        number: u32,
        block: &SourceBlock<'_>,
    ) -> Result<(), ConsumerClosed> {
        self.add(&match *block {
            SourceBlock::Bytes(bytes) => ObjectPart::Block { file, block: number, bytes },
            SourceBlock::Zeros(length) => ObjectPart::Zeros { file, block: number, length },
        })
    }

    fn file(
        &mut self,
        source: &CastSource,
        number: u32,
        need: &MissingBlocks,
        known: Option<&Vec<BlockHash>>,
    ) -> Result<(), EarlyEnd> {
        let entry = &source.entries[number as usize];
        let size = match (&entry.kind, need) {
            (_, MissingBlocks::Nothing) => return Ok(()),
            (EntryKind::Stream, _) => return self.stream(number, &source.stream),
            (EntryKind::File { size, .. }, _) => *size,
            _ => return Ok(()),
        };
        let mut contents = source.open(number)?;
        let mut buffer = vec![0; BLOCK as usize];
        let mut hashes = Vec::new();
        for at in 0..entry.blocks().unwrap_or_default() {
            let announced = known.and_then(|known| known.get(at as usize));
            let leaves = match need {
                MissingBlocks::Blocks(lacking) => {
                    lacking.get(at as usize).is_some_and(|lacks| *lacks)
                }
                _ => true,
            };
            if let (Some(announced), false) = (announced, leaves) {
                hashes.push(*announced);
                continue;
            }
            let block = contents.block(at, &mut buffer)?;
            let hash = block.hash();
            if announced.is_some_and(|announced| *announced != hash) {
                return Err(EarlyEnd::Broken(io::Error::other("it changed while it was sent")));
            }
            hashes.push(hash);
            self.add_block(number, at, &block)?;
        }
        contents.check()?;
        self.add(&ObjectPart::End { file: number, size, root: root_of(size, hashes) })?;
        Ok(())
    }

    /// Packs a stream, to its end.
    fn stream(&mut self, number: u32, stream: &StreamSource) -> Result<(), EarlyEnd> {
        let (size, root) = match &stream.program {
            None => self.blocks(number, &mut io::stdin().lock())?,
            Some(line) => self.output_of(number, line)?,
        };
        match stream.bytes {
            Some(bytes) if bytes != size => {
                return Err(EarlyEnd::Broken(io::Error::other(format!(
                    "{size} bytes came, and {bytes} were expected"
                ))));
            }
            None if size == 0 => {
                let why = "nothing came; an empty file is cast with --expect-bytes 0";
                return Err(EarlyEnd::Broken(io::Error::other(why)));
            }
            _ => {}
        }
        self.add(&ObjectPart::End { file: number, size, root })?;
        Ok(())
    }

    /// Packs what the shell's `line` prints. It must succeed.
    fn output_of(&mut self, number: u32, line: &str) -> Result<(u64, BlockHash), EarlyEnd> {
        let mut shell = Command::new("sh");
        let mut program =
            shell.args(["-c", line]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut output =
            program.stdout.take().ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe))?;
        let read = self.blocks(number, &mut output);
        drop(output);
        if read.is_err() {
            // Nobody takes what it would print. This fails when it has ended.
            let _ = program.kill();
        }
        let status = program.wait()?;
        let read = read?;
        match status.success() {
            true => Ok(read),
            false => {
                Err(EarlyEnd::Broken(io::Error::other(format!("the program failed: {status}"))))
            }
        }
    }

    /// Blocks of `input`; how long it was, and its hash. What has come leaves at once: nobody knows
    /// when there is more.
    fn blocks(&mut self, number: u32, input: &mut dyn Read) -> Result<(u64, BlockHash), EarlyEnd> {
        let mut buffer = Vec::with_capacity(BLOCK as usize);
        let (mut hashes, mut size) = (Vec::new(), 0);
        loop {
            buffer.clear();
            (&mut *input).take(BLOCK).read_to_end(&mut buffer)?;
            if !buffer.is_empty() {
                let block = SourceBlock::from_bytes(&buffer);
                let at = u32::try_from(hashes.len()).map_err(io::Error::other)?;
                hashes.push(block.hash());
                size += buffer.len() as u64;
                self.add_block(number, at, &block)?;
                self.flush()?;
            }
            if buffer.len() < BLOCK as usize {
                return Ok((size, root_of(size, hashes)));
            }
        }
    }
}
