//! The servers of one mount: which of them has a name, and numbers that lead back to them.
//!
//! # Model
//! Each name at the top of the mount, with everything below it, is on one server. A new name is made
//! at its *home*, the server with the highest hash of its log and the name, so that all mounts agree
//! without a question, and one more server takes over only the names that it becomes the home of
//! (rendezvous hashing: Thaler and Ravishankar, "Using Name-Based Mappings to Increase Hit Rates", 1998). A rename keeps an entry on its
//! server, and an earlier mount may have had fewer servers: so a name that its home does not have is
//! looked up on the others.
//!
//! The number of an inode has the place of its server in the highest byte. The mounted directory is
//! one inode for all servers.

use std::sync::{Arc, Mutex, PoisonError};

use clearway_proto::base::{Class, xxh3};
use clearway_proto::staging::InodeId;
use rustix::io::Errno;

use super::client::{RemoteAnswer, RemoteFiles};
use super::request::{
    FileRequest, FileResponse, RequestPlace, RespondedAttributes, RespondedSpace,
};
use crate::names::Attributes;

/// Servers of one mount, at most: their places fit into a byte.
pub(super) const SERVERS_MAX: usize = 64;
/// Where the place of a server begins in a number.
const PLACE_SHIFT: u32 = 56;
const INODE_MASK: u64 = (1 << PLACE_SHIFT) - 1;
/// The class of requests about names.
const NAMES: Class = Class::BestEffort;

/// What a server answered: the response is no error of the system.
pub(crate) type TreeResponse = Result<FileResponse, Errno>;
/// Takes the answer, and the server that gave it.
pub(crate) type TreeAnswer = Box<dyn FnOnce(&Arc<ServedTree>, TreeResponse) + Send>;
/// Takes the answers of all servers, in their order.
pub(crate) type AllAnswer = FoldAnswer<Vec<(Arc<ServedTree>, FileResponse)>>;

/// Gets what all servers together gave, or the first error.
type FoldAnswer<T> = Box<dyn FnOnce(Result<T, Errno>) + Send>;

/// The tree of one server, as the mount shows it.
pub(crate) struct ServedTree {
    /// The server, for sentences.
    pub(crate) name: String,
    pub(crate) files: Arc<RemoteFiles>,
    /// The directory that is mounted.
    pub(crate) root: InodeId,
    log: u128,
    place: usize,
    /// The attributes of the mounted directory, as the server had them last.
    root_attributes: Mutex<RespondedAttributes>,
}

impl ServedTree {
    pub(super) fn new(
        name: String,
        files: Arc<RemoteFiles>,
        root: RespondedAttributes,
        log: u128,
        place: usize,
    ) -> Arc<Self> {
        let (inode, root_attributes) = (Attributes::from(root).inode, Mutex::new(root));
        Arc::new(Self { name, files, root: inode, log, place, root_attributes })
    }

    /// Asks for the attributes of the mounted directory; answers with the last ones while the server
    /// is away, so that its absence does not delay paths to other servers.
    fn probe_root(
        self: &Arc<Self>,
        answer: Box<dyn FnOnce(Result<RespondedAttributes, Errno>) + Send>,
    ) {
        let returned: TreeAnswer = Box::new(move |tree, found| {
            let mut last = tree.root_attributes.lock().unwrap_or_else(PoisonError::into_inner);
            let found = match found {
                Ok(FileResponse::Attributes(found)) => {
                    *last = found;
                    Ok(found)
                }
                Ok(_) => Err(Errno::IO),
                Err(Errno::NOTCONN) => Ok(*last),
                Err(why) => Err(why),
            };
            drop(last);
            answer(found);
        });
        self.probe(&FileRequest::Attributes { inode: self.root.0 }, returned);
    }

    /// Returns the number by which the kernel knows an inode of this server. The numbers of the
    /// mounted directory and of the server's root change places: the kernel knows what is mounted by
    /// the number of a root.
    pub(crate) fn number(&self, inode: InodeId) -> InodeId {
        if inode == self.root {
            return InodeId::ROOT;
        }
        InodeId((self.swapped(inode).0 & INODE_MASK) | (self.place as u64) << PLACE_SHIFT)
    }

    const fn swapped(&self, inode: InodeId) -> InodeId {
        if inode.0 == self.root.0 {
            InodeId::ROOT
        } else if inode.0 == InodeId::ROOT.0 {
            self.root
        } else {
            inode
        }
    }

    /// Returns attributes as the kernel gets them: with bytes that the server does not have yet, and
    /// the number of the mount.
    pub(crate) fn shown(&self, found: RespondedAttributes) -> Attributes {
        let mut found = self.files.overlay(found);
        found.inode = self.number(found.inode);
        found
    }

    /// Asks the server about names.
    pub(crate) fn request(self: &Arc<Self>, request: &FileRequest, answer: TreeAnswer) {
        self.files.request(NAMES, request, 0, self.returning(answer));
    }

    /// Asks without waiting for a server that is away: the answer is [`Errno::NOTCONN`] then.
    fn probe(self: &Arc<Self>, request: &FileRequest, answer: TreeAnswer) {
        self.files.probe(NAMES, request, self.returning(answer));
    }

    fn returning(self: &Arc<Self>, answer: TreeAnswer) -> RemoteAnswer {
        let tree = Arc::clone(self);
        Box::new(move |found| {
            answer(&tree, found.and_then(|(response, _)| response.outcome()));
        })
    }
}

/// The trees of all servers of a mount: at least one.
#[derive(Clone)]
pub(crate) struct ServedTrees {
    first: Arc<ServedTree>,
    others: Vec<Arc<ServedTree>>,
}

impl ServedTrees {
    /// Creates it; `first` has the place 0, and the others the places behind.
    pub(super) const fn new(first: Arc<ServedTree>, others: Vec<Arc<ServedTree>>) -> Self {
        Self { first, others }
    }

    /// Returns the server and the inode that the kernel means by a number; of the mounted directory,
    /// those of the first server.
    pub(crate) fn locate(&self, number: u64) -> (&Arc<ServedTree>, InodeId) {
        let place = (number >> PLACE_SHIFT) as usize;
        let tree = self.all().nth(place).unwrap_or(&self.first);
        (tree, tree.swapped(InodeId(number & INODE_MASK)))
    }

    /// Returns all servers in their order.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<ServedTree>> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// Fails all requests from now on, so that the mount can end; reports writes that the servers
    /// lack, which are lost.
    pub(super) fn abandon(&self) {
        self.all().for_each(|tree| tree.files.give_up());
    }

    /// Returns the servers that can have a name of the directory with a number, the one where a new
    /// name is made first.
    pub(crate) fn holders(&self, parent: u64, name: &[u8]) -> Vec<Arc<ServedTree>> {
        if parent != InodeId::ROOT.0 || self.others.is_empty() {
            return vec![Arc::clone(self.locate(parent).0)];
        }
        let mut holders: Vec<Arc<ServedTree>> = self.all().cloned().collect();
        holders.sort_by_key(|tree| std::cmp::Reverse((weight(tree.log, name), tree.log)));
        holders
    }

    /// Returns whether a number is that of the mounted directory, which several servers have.
    pub(crate) fn is_shared(&self, number: u64) -> bool {
        number == InodeId::ROOT.0 && !self.others.is_empty()
    }

    /// Asks for the attributes of the mounted directory, which the entries of all servers make; of a
    /// server that is away, the last ones count.
    pub(crate) fn root_attributes(&self, answer: FoldAnswer<Attributes>) {
        let step = |tree: &Arc<ServedTree>, so_far: Option<Attributes>, next: FoldAnswer<_>| {
            let kept = Arc::clone(tree);
            tree.probe_root(Box::new(move |found| {
                let found = found.map(|found| kept.shown(found));
                next(found.map(|it| Some(so_far.map_or(it, |all| all.joined(&it)))));
            }));
        };
        let answer: FoldAnswer<Option<Attributes>> =
            Box::new(move |found| answer(found.and_then(|found| found.ok_or(Errno::IO))));
        self.fold(None, step, answer);
    }

    /// Asks for the space of all servers that are there.
    pub(crate) fn space(&self, answer: FoldAnswer<RespondedSpace>) {
        let step = |tree: &Arc<ServedTree>, so_far: RespondedSpace, next: FoldAnswer<_>| {
            let returned: TreeAnswer = Box::new(move |_, found| {
                next(match found {
                    Ok(FileResponse::Space(space)) => Ok(so_far.plus(space)),
                    Err(Errno::NOTCONN) => Ok(so_far),
                    Ok(_) => Err(Errno::IO),
                    Err(why) => Err(why),
                });
            });
            tree.probe(&FileRequest::Space, returned);
        };
        self.fold(RespondedSpace::default(), step, answer);
    }

    /// Makes a request of all servers, one after the other; the first error ends it.
    pub(crate) fn request_all(
        &self,
        request: impl Fn(&ServedTree) -> FileRequest + Send + Sync + 'static,
        answer: AllAnswer,
    ) {
        let step = move |tree: &Arc<ServedTree>, mut so_far: Vec<_>, next: AllAnswer| {
            let returned: TreeAnswer = Box::new(move |tree, found| {
                next(found.map(|response| {
                    so_far.push((Arc::clone(tree), response));
                    so_far
                }));
            });
            tree.request(&request(tree), returned);
        };
        self.fold(Vec::new(), step, answer);
    }

    /// Does `step` with one server after the other, each with what those before gave; the first
    /// error ends it.
    fn fold<T: Send + 'static>(
        &self,
        begin: T,
        step: impl Fn(&Arc<ServedTree>, T, FoldAnswer<T>) + Send + Sync + 'static,
        answer: FoldAnswer<T>,
    ) {
        let trees: Vec<_> = self.all().cloned().collect();
        fold_rest(trees.into_iter(), Ok(begin), Arc::new(step), answer);
    }
}

fn fold_rest<T: Send + 'static>(
    mut trees: std::vec::IntoIter<Arc<ServedTree>>,
    so_far: Result<T, Errno>,
    step: Arc<impl Fn(&Arc<ServedTree>, T, FoldAnswer<T>) + Send + Sync + 'static>,
    answer: FoldAnswer<T>,
) {
    match (trees.next(), so_far) {
        (Some(tree), Ok(so_far)) => {
            let again = Arc::clone(&step);
            step(&tree, so_far, Box::new(move |found| fold_rest(trees, found, again, answer)));
        }
        (_, found) => answer(found),
    }
}

/// Returns how much a server is wanted as the home of a name.
fn weight(log: u128, name: &[u8]) -> u64 {
    xxh3(&[&log.to_le_bytes(), name].concat())
}

/// Makes a request of one server after the other, until one does not answer that it has no such name.
pub(crate) fn request_first(
    trees: Vec<Arc<ServedTree>>,
    request: impl Fn(&ServedTree) -> FileRequest + Send + 'static,
    answer: TreeAnswer,
) {
    ask_first(trees.into_iter(), request, answer);
}

fn ask_first(
    mut trees: std::vec::IntoIter<Arc<ServedTree>>,
    request: impl Fn(&ServedTree) -> FileRequest + Send + 'static,
    answer: TreeAnswer,
) {
    let Some(tree) = trees.next() else { return };
    let first = request(&tree);
    let returned: TreeAnswer = Box::new(move |tree, found| match found {
        Err(Errno::NOENT) if !trees.as_slice().is_empty() => ask_first(trees, request, answer),
        found => answer(tree, found),
    });
    tree.request(&first, returned);
}

/// The directory, by its number, and the name of an entry.
type TreePlace = (u64, Vec<u8>);

/// Checks that a name can be made on a server: its directory is there, and no other server has the
/// name. Fails with [`Errno::XDEV`]; another mount may make the name elsewhere at the same moment.
pub(crate) fn check_free(
    trees: &ServedTrees,
    tree: &Arc<ServedTree>,
    (parent, name): TreePlace,
    answer: Box<dyn FnOnce(Result<(), Errno>) + Send>,
) {
    if !trees.is_shared(parent) {
        let is_here = Arc::ptr_eq(trees.locate(parent).0, tree);
        return answer(if is_here { Ok(()) } else { Err(Errno::XDEV) });
    }
    let others = trees.all().filter(|other| !Arc::ptr_eq(other, tree)).cloned().collect();
    let request =
        move |other: &ServedTree| FileRequest::Lookup(RequestPlace::new(other.root, &name));
    let found: TreeAnswer = Box::new(move |_, found| match found {
        Err(Errno::NOENT) => answer(Ok(())),
        Err(why) => answer(Err(why)),
        Ok(_) => answer(Err(Errno::XDEV)),
    });
    request_first(others, request, found);
}

/// A rename, which stays on one server.
pub(crate) struct TreeRename {
    pub(crate) trees: ServedTrees,
    pub(crate) from: TreePlace,
    pub(crate) to: TreePlace,
    pub(crate) keeps_other: bool,
}

impl TreeRename {
    /// Finds the server of the entry, and renames it there. Fails with [`Errno::XDEV`] when the new
    /// directory is on another server, or another server has the new name.
    pub(crate) fn begin(self, answer: TreeAnswer) {
        let holders = self.trees.holders(self.from.0, &self.from.1);
        if let [only] = holders.as_slice()
            && !only.files.is_dirty()
        {
            let only = Arc::clone(only);
            return self.on(&only, answer);
        }
        let (at, from) = (self.trees.locate(self.from.0).1, self.from.clone());
        let request = move |tree: &ServedTree| {
            let parent = if from.0 == InodeId::ROOT.0 { tree.root } else { at };
            FileRequest::Lookup(RequestPlace::new(parent, &from.1))
        };
        let found: TreeAnswer = Box::new(move |tree, found| {
            let renamed = match found {
                Ok(FileResponse::Attributes(found)) => Attributes::from(found).inode,
                Ok(_) => return answer(tree, Err(Errno::IO)),
                Err(why) => return answer(tree, Err(why)),
            };
            // The new name must not show the file without what was written before.
            let kept = Arc::clone(tree);
            tree.files.after_writes(renamed, move |_| self.on(&kept, answer));
        });
        request_first(holders, request, found);
    }

    /// Renames the entry on its server.
    fn on(self, tree: &Arc<ServedTree>, answer: TreeAnswer) {
        let place = |(parent, name): &TreePlace| {
            let inode = match *parent == InodeId::ROOT.0 {
                true => tree.root,
                false => self.trees.locate(*parent).1,
            };
            RequestPlace::new(inode, name)
        };
        let (from, to, keeps_other) = (place(&self.from), place(&self.to), self.keeps_other);
        let (kept, is_shared) = (Arc::clone(tree), self.trees.is_shared(self.to.0));
        let checked = Box::new(move |outcome| match outcome {
            Ok(()) => kept.request(&FileRequest::Rename { from, to, keeps_other }, answer),
            Err(Errno::XDEV) if keeps_other && is_shared => answer(&kept, Err(Errno::EXIST)),
            Err(why) => answer(&kept, Err(why)),
        });
        check_free(&self.trees, tree, self.to, checked);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGS: [u128; 4] = [1 << 100, 7, 0xfeed_beef, 3 << 64];

    /// Returns the trees of servers with these logs, whose mounted directory has the number 9.
    fn trees(logs: &[u128]) -> ServedTrees {
        let tree = |(place, log): (usize, &u128)| {
            let files = RemoteFiles::new(1 << 20, Arc::new(|_: &str| ())).expect("made");
            let root = Attributes::of_directory(InodeId(9)).into();
            ServedTree::new(format!("server{place}"), files, root, *log, place)
        };
        let mut trees = logs.iter().enumerate().map(tree);
        let first = trees.next().expect("a server");
        ServedTrees::new(first, trees.collect())
    }

    fn home(trees: &ServedTrees, name: &str) -> u128 {
        trees.holders(InodeId::ROOT.0, name.as_bytes())[0].log
    }

    #[test]
    fn locate__numbers_lead_back_to_their_server_and_the_root_is_one() {
        let trees = trees(&LOGS);
        for tree in trees.all() {
            for inode in [1, 2, 9, 10, INODE_MASK] {
                let number = tree.number(InodeId(inode));
                if inode == 9 {
                    assert_eq!(number, InodeId::ROOT);
                    continue;
                }
                let (found, back) = trees.locate(number.0);
                assert_eq!((found.place, back), (tree.place, InodeId(inode)));
            }
        }
        assert_eq!(trees.locate(InodeId::ROOT.0).1, InodeId(9));
        // No server has this place.
        assert_eq!(trees.locate(u64::MAX).0.place, 0);
    }

    #[test]
    fn holders__mounts_agree_on_homes_and_another_server_takes_only_its_own_share() {
        let (all, fewer) = (trees(&LOGS), trees(&LOGS[..3]));
        let reversed: Vec<u128> = LOGS.iter().rev().copied().collect();
        let reversed = trees(&reversed);
        let mut counts = [0; LOGS.len()];
        for number in 0..4000 {
            let name = format!("step.{number}");
            let at = home(&all, &name);
            assert_eq!(at, home(&reversed, &name));
            let without = home(&fewer, &name);
            assert!(without == at || at == LOGS[3], "{name} moved between servers that stay");
            counts[LOGS.iter().position(|log| *log == at).expect("one of them")] += 1;
        }
        // 1000 each; 150 are more than five standard deviations.
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }

    #[test]
    fn holders__below_the_top_a_name_is_where_its_directory_is() {
        let trees = trees(&LOGS);
        let directory = trees.all().nth(2).expect("a server").number(InodeId(33));
        let holders = trees.holders(directory.0, b"name");
        assert_eq!(holders.iter().map(|tree| tree.place).collect::<Vec<_>>(), [2]);
    }
}
