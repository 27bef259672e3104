//! Does what a client on the network requests.
//!
//! # Model
//! Calls of one client and class are numbered upwards. The records of a call have numbers of their
//! own in the log: [`STEPS`] for each call, of which the last record has the last. So the log says
//! after a crash how far a client is, and a call that is made again is not executed again, or
//! continues where it was. A change is answered when it is durable.
//!
//! # Invariants
//! I1. A response that says that something is changed is sent when the change is durable.
//! I2. A call that is in the log is not executed again; it is answered as done.

use std::sync::{Arc, Mutex, PoisonError};

use clearway_proto::base::xxh3;
use clearway_proto::staging::{
    AttributeSet, ClientId, EntryName, InodeId, InodeKind, NodeKind, WallNs,
};
use rustix::io::Errno;

use super::access::User;
use super::request::{
    ENTRIES_MAX, FileRequest, FileResponse, NAMES_MAX, RequestedAttributes, RequestedTime,
    RespondedEntry, RespondedOpening, RespondedSpace,
};
use super::session::SessionFiles;
use crate::arena::Loan;
use crate::classes::CLASS_XATTR;
use crate::engine::{CallStamp, ChangeSource, Core, Engine, Held};
use crate::names::{Maker, RenameMode};

/// Numbers of records that each call has.
pub(super) const STEPS: u64 = 8;
/// Bytes of the longest read and write.
const BYTES_MAX: u32 = 1 << 20;

/// Sends a response and its data.
pub(super) type Responder = Box<dyn FnOnce(FileResponse, &[u8]) + Send>;

/// Whose call it is.
#[derive(Clone)]
pub(super) struct ClientCall {
    /// The client of the log.
    pub(super) client: ClientId,
    /// The number of the call.
    pub(super) number: u64,
    pub(super) user: Arc<User>,
    pub(super) files: Arc<SessionFiles>,
}

impl ClientCall {
    /// Returns the source of the call's changes. The calls of a host's client have one sequence of
    /// numbers, so all of its users are one source.
    fn source(&self) -> ChangeSource {
        match &*self.user {
            User::Host => ChangeSource::Host(self.client.0),
            User::Person { uid, .. } => ChangeSource::User(*uid),
        }
    }
}

/// Answers with what `attempt` finds.
fn respond(respond: Responder, found: Result<FileResponse, Errno>) {
    respond(found.unwrap_or_else(FileResponse::failed), &[]);
}

fn opening_of(core: &mut Core, inode: InodeId) -> RespondedOpening {
    let version = core.tree().content(inode).map_or(0, |content| content.version());
    RespondedOpening::new(core.class_of(inode), version)
}

/// Returns the set of attributes, with times that are set to now.
fn attributes_of(core: &mut Core, inode: InodeId, set: &RequestedAttributes) -> AttributeSet {
    let now = core.now();
    let time = |time: Option<RequestedTime>| {
        time.map(|time| match time {
            RequestedTime::Now => now,
            RequestedTime::At(at) => WallNs(at),
        })
    };
    AttributeSet {
        mode: set.mode.map(|mode| mode & 0o7777),
        owner: core.owner(inode, set.uid, set.gid),
        mtime: time(set.mtime),
        atime: time(set.atime),
    }
}

impl Engine {
    /// Makes a change by `attempt`, and responds when it is durable. A change that is in the log
    /// already is answered by `repeat`.
    fn change_for(
        &self,
        caller: &ClientCall,
        respond: Responder,
        mut attempt: impl FnMut(&mut Core) -> Result<FileResponse, Held> + Send + 'static,
        mut repeat: impl FnMut(&mut Core) -> Result<FileResponse, Errno> + Send + 'static,
    ) {
        let respond = Arc::new(Mutex::new(Some(respond)));
        let failed = Arc::clone(&respond);
        let send = |respond: &Mutex<Option<Responder>>, response: FileResponse| {
            let respond = respond.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(respond) = respond {
                respond(response, &[]);
            }
        };
        let (client, first) = (caller.client, caller.number * STEPS);
        let last = first + STEPS - 1;
        let answer = Box::new(move |done: Result<(), Errno>| {
            if let Err(why) = done {
                send(&failed, FileResponse::failed(why));
            }
        });
        self.change(caller.source(), answer, move |core| {
            let highest = core.state().highest(client);
            let response = if highest >= last {
                repeat(core)?
            } else {
                core.begin_call(CallStamp::new(client, first.max(highest + 1), last));
                let made = attempt(core);
                core.end_call();
                made?
            };
            let respond = Arc::clone(&respond);
            core.wait_for_all(Box::new(move |done| {
                send(&respond, done.map_or_else(FileResponse::failed, |()| response));
            }));
            Ok(())
        });
    }

    /// Executes a request; `data` are the bytes of a write.
    pub(super) fn execute(
        self: &Arc<Self>,
        caller: &ClientCall,
        request: FileRequest,
        data: Option<Arc<Loan>>,
        responder: Responder,
    ) {
        let access = self.look(|core| caller.user.check(core, &caller.files, &request));
        if let Err(why) = access {
            return respond(responder, Err(why));
        }
        match request {
            FileRequest::Read { inode, offset, length } => {
                let answer = Box::new(move |bytes: Result<&[u8], Errno>| match bytes {
                    Ok(bytes) => responder(FileResponse::Data, bytes),
                    Err(why) => responder(FileResponse::failed(why), &[]),
                });
                self.read_for(InodeId(inode), offset, length.min(BYTES_MAX), answer);
            }
            FileRequest::Write { .. } => self.execute_write(caller, &request, data, responder),
            FileRequest::Lookup(_)
            | FileRequest::Attributes { .. }
            | FileRequest::Target { .. }
            | FileRequest::List { .. }
            | FileRequest::Space
            | FileRequest::GetXattr { .. }
            | FileRequest::ListXattr { .. }
            | FileRequest::Path { .. }
            | FileRequest::Seek { .. } => {
                let inodes_max = self.inodes_max;
                respond(responder, self.look(|core| look_up(core, &request, inodes_max)));
            }
            FileRequest::Open { inode, usage } => {
                let found = self.look(|core| {
                    let inode = InodeId(inode);
                    core.attributes(inode)?;
                    caller.files.open(core, inode, usage);
                    Ok(FileResponse::Opened(opening_of(core, inode)))
                });
                respond(responder, found);
            }
            FileRequest::Close { inode, usage } => {
                self.wait(|core| caller.files.close(core, InodeId(inode), usage));
                respond(responder, Ok(FileResponse::Done));
            }
            FileRequest::Reopen(files) => {
                self.look(|core| {
                    for (inode, usage) in files.into_iter().take(super::request::REOPENED_MAX) {
                        let open = FileRequest::Open { inode, usage };
                        if caller.user.check(core, &caller.files, &open).is_ok()
                            && core.attributes(InodeId(inode)).is_ok()
                        {
                            caller.files.open(core, InodeId(inode), usage);
                        }
                    }
                });
                respond(responder, Ok(FileResponse::Done));
            }
            FileRequest::Control(_) => respond(responder, Err(Errno::NOSYS)),
            change => self.execute_change(caller, change, responder),
        }
    }

    /// Writes the bytes of a call.
    fn execute_write(
        &self,
        caller: &ClientCall,
        request: &FileRequest,
        data: Option<Arc<Loan>>,
        responder: Responder,
    ) {
        let (&FileRequest::Write { inode, offset, digest, drops_set_id }, Some(loan)) =
            (request, data)
        else {
            return respond(responder, Err(Errno::INVAL));
        };
        if xxh3(loan.bytes()) != digest {
            return respond(responder, Err(Errno::IO));
        }
        let inode = InodeId(inode);
        let attempt = move |core: &mut Core| {
            if let Some(caller) = drops_set_id {
                core.continue_call();
                core.drop_set_id(inode, caller.caller())?;
                core.finish_call();
            }
            core.write(inode, offset, &loan, digest)?;
            Ok(FileResponse::Done)
        };
        self.change_for(caller, responder, attempt, |_| Ok(FileResponse::Done));
    }

    /// Executes a request that changes names or attributes.
    fn execute_change(
        self: &Arc<Self>,
        caller: &ClientCall,
        request: FileRequest,
        respond: Responder,
    ) {
        let (again, files, repeated) =
            (request.clone(), Arc::clone(&caller.files), Arc::clone(&caller.files));
        let attempt = move |core: &mut Core| change(core, &request, &files);
        let repeat = move |core: &mut Core| repeat(core, &again, &repeated);
        self.change_for(caller, respond, attempt, repeat);
    }
}

/// Answers a request that changes nothing.
fn look_up(core: &mut Core, request: &FileRequest, inodes_max: u64) -> Result<FileResponse, Errno> {
    match request {
        FileRequest::Lookup(place) => {
            let place = place.parse()?;
            let found = core.tree().lookup(place.parent, &place.name);
            let inode = found.map_err(crate::engine::errno_of)?;
            Ok(FileResponse::Attributes(core.attributes(inode)?.into()))
        }
        FileRequest::Attributes { inode } => {
            Ok(FileResponse::Attributes(core.attributes(InodeId(*inode))?.into()))
        }
        FileRequest::Target { inode } => Ok(FileResponse::Bytes(core.target(InodeId(*inode))?)),
        FileRequest::List { directory, after } => list(core, InodeId(*directory), after.as_deref()),
        FileRequest::Space => {
            let space = core.space();
            let inodes = core.tree().inode_usage().total();
            let (total, free) = (space.total.0, space.free.0);
            Ok(FileResponse::Space(RespondedSpace { total, free, inodes, inodes_max }))
        }
        FileRequest::GetXattr { inode, name } => {
            let inode = InodeId(*inode);
            if name == CLASS_XATTR.as_bytes() {
                let class = core.class_of(inode).name();
                return Ok(FileResponse::Bytes(class.as_bytes().to_vec()));
            }
            let name = EntryName::new(name).map_err(|_| Errno::NODATA)?;
            let node = core.tree().inode(inode).ok_or(Errno::NOENT)?;
            let value = node.xattrs.get(&name).ok_or(Errno::NODATA)?;
            Ok(FileResponse::Bytes(value.to_vec()))
        }
        FileRequest::ListXattr { inode } => {
            let node = core.tree().inode(InodeId(*inode)).ok_or(Errno::NOENT)?;
            let names = node.xattrs.keys().flat_map(|name| [name.bytes(), b"\0"].concat());
            Ok(FileResponse::Bytes(names.collect()))
        }
        FileRequest::Path { inode } => {
            core.tree().path(InodeId(*inode)).map(FileResponse::Bytes).ok_or(Errno::NOENT)
        }
        FileRequest::Seek { inode, offset, wanted } => {
            core.seek(InodeId(*inode), *offset, *wanted).map(FileResponse::Offset)
        }
        _ => Err(Errno::NOSYS),
    }
}

fn list(core: &mut Core, directory: InodeId, after: Option<&[u8]>) -> Result<FileResponse, Errno> {
    use std::ops::Bound;
    let after = after.map(EntryName::new).transpose().map_err(|_| Errno::INVAL)?;
    let node = core.tree().inode(directory).ok_or(Errno::NOENT)?;
    let InodeKind::Directory { entries, .. } = &node.kind else { return Err(Errno::NOTDIR) };
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    let (mut found, mut bytes, mut is_last) = (Vec::new(), 0, true);
    for (name, inode) in entries.range((from, Bound::Unbounded)) {
        bytes += name.bytes().len();
        if found.len() == ENTRIES_MAX || bytes > NAMES_MAX {
            is_last = false;
            break;
        }
        found.push((name.clone(), *inode));
    }
    let parent = core.parent(directory).0;
    let mut listed = Vec::with_capacity(found.len());
    for (name, inode) in found {
        if let Ok(attributes) = core.attributes(inode) {
            listed.push(RespondedEntry {
                name: name.bytes().to_vec(),
                attributes: attributes.into(),
            });
        }
    }
    Ok(FileResponse::Entries { entries: listed, parent, is_last })
}

/// Returns a maker without bits that are no permissions.
fn permitted(maker: Maker) -> Maker {
    Maker { mode: maker.mode & 0o7777, ..maker }
}

/// Makes a change.
fn change(
    core: &mut Core,
    request: &FileRequest,
    files: &SessionFiles,
) -> Result<FileResponse, Held> {
    match request {
        FileRequest::Set { inode, set } => {
            let inode = InodeId(*inode);
            core.attributes(inode)?;
            let attributes = attributes_of(core, inode, set);
            // The kernel leaves it to its server what a new owner or size takes away.
            core.continue_call();
            let caller = set.caller.caller();
            let is_cut = set.size.is_some() && !caller.keeps_set_id();
            if set.mode.is_none() && (attributes.owner.is_some() || is_cut) {
                core.drop_set_id(inode, caller)?;
            }
            if let Some(size) = set.size {
                if attributes == AttributeSet::default() {
                    core.finish_call();
                }
                core.truncate(inode, size)?;
            }
            core.finish_call();
            Ok(FileResponse::Attributes(core.set(inode, None, attributes)?.into()))
        }
        FileRequest::Make { place, node, maker } => {
            let place = place.parse()?;
            let made = core.make(&place, node.kind(), permitted(*maker))?;
            core.forget(made.inode, 1);
            Ok(FileResponse::Attributes(made.into()))
        }
        FileRequest::Create { place, maker, usage } => {
            let place = place.parse()?;
            let made = core.make(&place, NodeKind::File, permitted(*maker))?;
            files.open(core, made.inode, *usage);
            core.forget(made.inode, 1);
            Ok(FileResponse::Created(made.into(), opening_of(core, made.inode)))
        }
        FileRequest::Unlink(place) => core.unlink(&place.parse()?).map(|()| FileResponse::Done),
        FileRequest::RemoveDirectory(place) => {
            core.remove_directory(&place.parse()?).map(|()| FileResponse::Done)
        }
        FileRequest::Rename { from, to, keeps_other } => {
            let mode = if *keeps_other { RenameMode::KeepOther } else { RenameMode::Replace };
            core.rename(&from.parse()?, &to.parse()?, mode).map(|()| FileResponse::Done)
        }
        FileRequest::Link { inode, place } => {
            let linked = core.link(InodeId(*inode), &place.parse()?)?;
            core.forget(linked.inode, 1);
            Ok(FileResponse::Attributes(linked.into()))
        }
        FileRequest::SetXattr { inode, name, value, flags } => {
            let inode = InodeId(*inode);
            let name = EntryName::new(name).map_err(|_| Errno::RANGE)?;
            core.set_xattr_by(inode, name, value, *flags).map(|()| FileResponse::Done)
        }
        FileRequest::RemoveXattr { inode, name } => {
            let name = EntryName::new(name).map_err(|_| Errno::NODATA)?;
            core.unset_xattr(InodeId(*inode), name).map(|()| FileResponse::Done)
        }
        FileRequest::Allocate { inode, end, length } => {
            core.allocate(InodeId(*inode), *end, *length).map(|()| FileResponse::Done)
        }
        _ => Err(Held::Errno(Errno::NOSYS)),
    }
}

/// Answers a change that is in the log.
fn repeat(
    core: &mut Core,
    request: &FileRequest,
    files: &SessionFiles,
) -> Result<FileResponse, Errno> {
    match request {
        FileRequest::Set { inode, .. } => {
            Ok(FileResponse::Attributes(core.attributes(InodeId(*inode))?.into()))
        }
        FileRequest::Make { place, .. } | FileRequest::Link { place, .. } => {
            look_up(core, &FileRequest::Lookup(place.clone()), 0)
        }
        FileRequest::Create { place, usage, .. } => {
            let place = place.parse()?;
            let found = core.tree().lookup(place.parent, &place.name);
            let inode = found.map_err(crate::engine::errno_of)?;
            files.open(core, inode, *usage);
            let attributes = core.attributes(inode)?.into();
            Ok(FileResponse::Created(attributes, opening_of(core, inode)))
        }
        _ => Ok(FileResponse::Done),
    }
}
