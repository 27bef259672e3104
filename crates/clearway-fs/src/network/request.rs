//! Requests of a mount to its server, and responses.
//!
//! # Model
//! The header of a call is one of these, in the form of `postcard`; the bytes of a write or a read
//! are the data of the call.
//!
//! # Invariants
//! I1. Any bytes are a request or none. What is read is no longer than the bytes it is read from.

use clearway_proto::base::Class;
use clearway_proto::staging::{InodeId, NodeKind, SpecialKind, SpecialNode, WallNs};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::bytes::SeekTarget;
use crate::handles::OpenUsage;
use crate::names::{Attributes, Caller, Maker, NamePlace, NodeType};

/// Entries of a directory that one response lists, at most, and bytes of their names: with
/// attributes it fits into the header of a call.
pub(super) const ENTRIES_MAX: usize = 256;
pub(super) const NAMES_MAX: usize = 24 << 10;
/// Files that one request opens again, at most.
pub(super) const REOPENED_MAX: usize = 4096;

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RequestPlace {
    pub(crate) parent: u64,
    pub(crate) name: Vec<u8>,
}

impl RequestPlace {
    pub(crate) fn new(parent: InodeId, name: &[u8]) -> Self {
        Self { parent: parent.0, name: name.to_vec() }
    }

    pub(super) fn parse(&self) -> Result<NamePlace, Errno> {
        NamePlace::new(InodeId(self.parent), &self.name)
    }
}

/// What an entry is made as.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RequestNode {
    File,
    Directory,
    Symlink(Vec<u8>),
    Pipe,
    Socket,
    Block(u32),
    Character(u32),
}

impl RequestNode {
    pub(crate) fn from_kind(kind: &NodeKind) -> Self {
        match kind {
            NodeKind::File => Self::File,
            NodeKind::Directory => Self::Directory,
            NodeKind::Symlink(target) => Self::Symlink(target.to_vec()),
            NodeKind::Special(SpecialNode { kind, device }) => match kind {
                SpecialKind::Pipe => Self::Pipe,
                SpecialKind::Socket => Self::Socket,
                SpecialKind::Block => Self::Block(*device),
                SpecialKind::Character => Self::Character(*device),
            },
        }
    }

    pub(super) fn kind(&self) -> NodeKind {
        let special = |kind, device| NodeKind::Special(SpecialNode { kind, device });
        match self {
            Self::File => NodeKind::File,
            Self::Directory => NodeKind::Directory,
            Self::Symlink(target) => NodeKind::Symlink(target.as_slice().into()),
            Self::Pipe => special(SpecialKind::Pipe, 0),
            Self::Socket => special(SpecialKind::Socket, 0),
            Self::Block(device) => special(SpecialKind::Block, *device),
            Self::Character(device) => special(SpecialKind::Character, *device),
        }
    }
}

/// The user whose program makes a change, for what is left of set-user-ID and set-group-ID.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RequestCaller {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl RequestCaller {
    pub(super) const fn caller(self) -> Caller {
        // Only the client's host knows more groups: without them the bit goes.
        Caller { uid: self.uid, gid: self.gid, process: 0 }
    }
}

/// Attributes that are set; a time is in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RequestedAttributes {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) atime: Option<RequestedTime>,
    pub(crate) mtime: Option<RequestedTime>,
    pub(crate) caller: RequestCaller,
}

/// A time that is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RequestedTime {
    /// The server's time of day.
    Now,
    At(u64),
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FileRequest {
    Lookup(RequestPlace),
    Attributes {
        inode: u64,
    },
    Set {
        inode: u64,
        set: RequestedAttributes,
    },
    Target {
        inode: u64,
    },
    Make {
        place: RequestPlace,
        node: RequestNode,
        maker: Maker,
    },
    Create {
        place: RequestPlace,
        maker: Maker,
        usage: OpenUsage,
    },
    Unlink(RequestPlace),
    RemoveDirectory(RequestPlace),
    Rename {
        from: RequestPlace,
        to: RequestPlace,
        keeps_other: bool,
    },
    Link {
        inode: u64,
        place: RequestPlace,
    },
    Open {
        inode: u64,
        usage: OpenUsage,
    },
    Close {
        inode: u64,
        usage: OpenUsage,
    },
    /// Opens files again that the client had open before its connection was lost.
    Reopen(Vec<(u64, OpenUsage)>),
    List {
        directory: u64,
        after: Option<Vec<u8>>,
    },
    Space,
    GetXattr {
        inode: u64,
        name: Vec<u8>,
    },
    SetXattr {
        inode: u64,
        name: Vec<u8>,
        value: Vec<u8>,
        flags: i32,
    },
    ListXattr {
        inode: u64,
    },
    RemoveXattr {
        inode: u64,
        name: Vec<u8>,
    },
    Allocate {
        inode: u64,
        end: u64,
        length: u64,
    },
    Seek {
        inode: u64,
        offset: u64,
        wanted: SeekTarget,
    },
    Read {
        inode: u64,
        offset: u64,
        length: u32,
    },
    Write {
        inode: u64,
        offset: u64,
        digest: u64,
        drops_set_id: Option<RequestCaller>,
    },
    /// A line for the control socket.
    Control(String),
    /// The path of an inode from the root of the tree.
    Path {
        inode: u64,
    },
}

/// What an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum RespondedNode {
    File,
    Directory,
    Symlink,
    Pipe,
    Socket,
    Block(u32),
    Character(u32),
}

/// Attributes of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RespondedAttributes {
    inode: u64,
    node: RespondedNode,
    size: u64,
    stored: u64,
    mode: u32,
    links: u32,
    uid: u32,
    gid: u32,
    atime: u64,
    mtime: u64,
    ctime: u64,
}

impl From<Attributes> for RespondedAttributes {
    fn from(from: Attributes) -> Self {
        let node = match from.node {
            NodeType::File => RespondedNode::File,
            NodeType::Directory => RespondedNode::Directory,
            NodeType::Symlink => RespondedNode::Symlink,
            NodeType::Special(SpecialNode { kind, device }) => match kind {
                SpecialKind::Pipe => RespondedNode::Pipe,
                SpecialKind::Socket => RespondedNode::Socket,
                SpecialKind::Block => RespondedNode::Block(device),
                SpecialKind::Character => RespondedNode::Character(device),
            },
        };
        let Attributes { inode, size, stored, mode, links, uid, gid, .. } = from;
        let (atime, mtime, ctime) = (from.atime.0, from.mtime.0, from.ctime.0);
        Self { inode: inode.0, node, size, stored, mode, links, uid, gid, atime, mtime, ctime }
    }
}

impl From<RespondedAttributes> for Attributes {
    fn from(from: RespondedAttributes) -> Self {
        let special = |kind, device| NodeType::Special(SpecialNode { kind, device });
        let node = match from.node {
            RespondedNode::File => NodeType::File,
            RespondedNode::Directory => NodeType::Directory,
            RespondedNode::Symlink => NodeType::Symlink,
            RespondedNode::Pipe => special(SpecialKind::Pipe, 0),
            RespondedNode::Socket => special(SpecialKind::Socket, 0),
            RespondedNode::Block(device) => special(SpecialKind::Block, device),
            RespondedNode::Character(device) => special(SpecialKind::Character, device),
        };
        let RespondedAttributes { inode, size, stored, mode, links, uid, gid, .. } = from;
        let (atime, mtime, ctime) = (WallNs(from.atime), WallNs(from.mtime), WallNs(from.ctime));
        let inode = InodeId(inode);
        Self { inode, node, size, stored, mode, links, uid, gid, atime, mtime, ctime }
    }
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RespondedEntry {
    pub(crate) name: Vec<u8>,
    pub(crate) attributes: RespondedAttributes,
}

/// The space of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RespondedSpace {
    pub(crate) total: u64,
    pub(crate) free: u64,
    pub(crate) inodes: u64,
    pub(crate) inodes_max: u64,
}

impl RespondedSpace {
    /// Returns the sums.
    pub(super) const fn plus(self, other: Self) -> Self {
        Self {
            total: self.total.saturating_add(other.total),
            free: self.free.saturating_add(other.free),
            inodes: self.inodes.saturating_add(other.inodes),
            inodes_max: self.inodes_max.saturating_add(other.inodes_max),
        }
    }
}

/// What is known of a file that was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RespondedOpening {
    class: u8,
    /// Counts changes of its bytes: pages of another version are stale.
    pub(crate) version: u64,
}

impl RespondedOpening {
    pub(super) const fn new(class: Class, version: u64) -> Self {
        Self { class: class.index() as u8, version }
    }

    pub(super) fn class(self) -> Class {
        Class::ALL.get(usize::from(self.class)).copied().unwrap_or(Class::BestEffort)
    }
}

/// A response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FileResponse {
    Done,
    /// An error of the system, by its number.
    Failed(i32),
    Attributes(RespondedAttributes),
    Opened(RespondedOpening),
    Created(RespondedAttributes, RespondedOpening),
    Bytes(Vec<u8>),
    Entries {
        entries: Vec<RespondedEntry>,
        parent: u64,
        is_last: bool,
    },
    Space(RespondedSpace),
    Offset(u64),
    /// The bytes of a read are the data of the response.
    Data,
    /// Lines of the control socket are the data of the response.
    Control,
}

impl FileResponse {
    pub(super) const fn failed(errno: Errno) -> Self {
        Self::Failed(errno.raw_os_error())
    }

    /// Returns the error of a response that is one.
    pub(crate) fn outcome(self) -> Result<Self, Errno> {
        match self {
            Self::Failed(errno) => Err(Errno::from_raw_os_error(errno)),
            other => Ok(other),
        }
    }
}

/// Returns a request or a response as bytes.
pub(super) fn encode(message: &impl Serialize) -> Vec<u8> {
    // Into a vector, everything that these types hold can be written.
    postcard::to_stdvec(message).unwrap_or_default()
}

/// Reads a request or a response; `None` when `bytes` are none.
pub(super) fn decode<'a, M: Deserialize<'a>>(bytes: &'a [u8]) -> Option<M> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Some(message),
        _ => None,
    }
}
