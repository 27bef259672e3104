//! Reads everything in a log without mounting it.
//!
//! # Model
//! The log is opened as a mount opens it, recovery included, and closed again; nothing is drained.

use std::path::Path;
use std::sync::Arc;

use clearway_proto::base::Bytes;
use clearway_proto::staging::{EntryName, InodeId, InodeKind};
use rustix::io::Errno;

use crate::FsError;
use crate::engine::{Engine, OrphanPolicy, Reporter};
use crate::log_directory::{LogDirectory, LogSizes};
use crate::store::StoreReader;

/// Bytes of a file that are read at a time.
const PIECE: u32 = 1 << 20;
/// Memory of writes: there are none.
const MEMORY: Bytes = Bytes(16 << 20);

/// What one name in a log stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoggedContent {
    /// A directory, whose entries follow.
    Directory,
    /// A file; none when its bytes cannot be read.
    File(Option<Vec<u8>>),
    /// A symbolic link, and where it leads.
    Symlink(Vec<u8>),
    /// A pipe, a socket or a device.
    Special,
}

/// One name in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedEntry {
    /// The path below the root.
    pub path: Vec<u8>,
    /// The number of the inode: names with one number are links of one file.
    pub inode: u64,
    /// The permissions.
    pub mode: u32,
    /// What is there.
    pub content: LoggedContent,
}

/// Opens the log in `path`, and gives each of its names to `take`, a directory before what is in it.
/// Bytes that only `store` has are read there. Where there is no log, one of `sizes` is made.
/// `reporter` gets sentences for an operator.
///
/// # Errors
/// [`FsError`]: the log cannot be opened.
pub fn read_log(
    path: &Path,
    store: &Path,
    sizes: LogSizes,
    reporter: &Reporter,
    take: &mut dyn FnMut(LoggedEntry),
) -> Result<(), FsError> {
    let log = LogDirectory::open(path, sizes)?;
    let (engine, thread) =
        Engine::open(log, sizes, MEMORY.0, OrphanPolicy::Forget, Arc::clone(reporter))?;
    let _ = engine.reader.set(StoreReader::new(store, None));
    give_entries(&engine, take);
    engine.close();
    let _ = thread.join();
    Ok(())
}

fn give_entries(engine: &Engine, take: &mut dyn FnMut(LoggedEntry)) {
    let mut directories = vec![(InodeId::ROOT, Vec::new())];
    while let Some((directory, above)) = directories.pop() {
        let entries: Vec<(EntryName, InodeId)> =
            engine.look(|core| match core.tree().inode(directory).map(|inode| &inode.kind) {
                Some(InodeKind::Directory { entries, .. }) => {
                    entries.iter().map(|(name, inode)| (name.clone(), *inode)).collect()
                }
                _ => Vec::new(),
            });
        for (name, inode) in entries {
            let mut path = above.clone();
            path.extend(name.bytes());
            let Some((mode, content)) = content(engine, inode) else { continue };
            if content == LoggedContent::Directory {
                directories.push((inode, [&path, &b"/"[..]].concat()));
            }
            take(LoggedEntry { path, inode: inode.0, mode, content });
        }
    }
}

fn content(engine: &Engine, inode: InodeId) -> Option<(u32, LoggedContent)> {
    let (mode, content, size) = engine.look(|core| {
        let found = core.tree().inode(inode)?;
        let (content, size) = match &found.kind {
            InodeKind::Directory { .. } => (LoggedContent::Directory, 0),
            InodeKind::File(content) => (LoggedContent::File(None), content.size()),
            InodeKind::Symlink(target) => (LoggedContent::Symlink(target.to_vec()), 0),
            InodeKind::Special(_) => (LoggedContent::Special, 0),
        };
        Some((found.mode, content, size))
    })?;
    match content {
        LoggedContent::File(_) => {
            Some((mode, LoggedContent::File(bytes(engine, inode, size).ok())))
        }
        other => Some((mode, other)),
    }
}

fn bytes(engine: &Engine, inode: InodeId, size: u64) -> Result<Vec<u8>, Errno> {
    let mut bytes: Vec<u8> = Vec::new();
    while (bytes.len() as u64) < size {
        let length = u64::from(PIECE).min(size - bytes.len() as u64) as u32;
        let mut outcome = Err(Errno::IO);
        engine.read(inode, bytes.len() as u64, length, |part| {
            outcome = part.map(|part| {
                bytes.extend(part);
                part.len()
            });
        });
        if outcome? == 0 {
            return Err(Errno::IO);
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use clearway_proto::staging::NodeKind;

    use super::*;
    use crate::engine::ChangeSource;
    use crate::names::{Maker, NamePlace};
    use crate::testing::TestDirectory;

    #[test]
    fn read_log__gives_names_and_links_and_bytes() {
        let directory = TestDirectory::new();
        let sizes = LogSizes { total: Bytes(64 << 20), inodes: 100 };
        let reporter: Reporter = Arc::new(|_| ());
        let log = LogDirectory::open(directory.path(), sizes).expect("a log");
        let (engine, thread) =
            Engine::open(log, sizes, MEMORY.0, OrphanPolicy::Forget, Arc::clone(&reporter))
                .expect("opened");
        let place = |parent, name: &str| NamePlace::new(parent, name.as_bytes()).expect("a name");
        let maker = Maker { uid: 0, gid: 0, mode: 0o640 };
        engine.change(
            ChangeSource::Operator,
            Box::new(|made| assert!(made.is_ok())),
            move |core| {
                let below =
                    core.make(&place(InodeId::ROOT, "d"), NodeKind::Directory, maker)?.inode;
                let file = core.make(&place(below, "a"), NodeKind::File, maker)?.inode;
                core.link(file, &place(below, "b"))?;
                core.truncate(file, 5)?;
                let target = NodeKind::Symlink(b"d/a"[..].into());
                core.make(&place(InodeId::ROOT, "s"), target, maker)
            },
        );
        engine.close();
        thread.join().expect("a good end");
        drop(engine);
        let mut found = Vec::new();
        let store = directory.path();
        let mut read =
            || read_log(directory.path(), store, sizes, &reporter, &mut |entry| found.push(entry));
        // A child that another test starts may have its lock for a moment.
        let outcome = loop {
            match read() {
                Err(FsError::InUse { .. }) => std::thread::yield_now(),
                outcome => break outcome,
            }
        };
        outcome.expect("read");
        let name = |at: usize| String::from_utf8_lossy(&found[at].path).into_owned();
        assert_eq!((0..4).map(name).collect::<Vec<_>>(), ["d", "s", "d/a", "d/b"]);
        assert_eq!(found[0].content, LoggedContent::Directory);
        assert_eq!(found[1].content, LoggedContent::Symlink(b"d/a".to_vec()));
        assert_eq!(found[2].content, LoggedContent::File(Some(vec![0; 5])));
        assert_eq!((found[2].inode, found[2].mode), (found[3].inode, 0o640));
        let no_log = directory.path().join("segments");
        let why = read_log(&no_log, store, sizes, &reporter, &mut |_| ());
        assert!(why.expect_err("no log").to_string().contains("has no log"));
    }
}
