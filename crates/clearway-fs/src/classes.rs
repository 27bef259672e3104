//! The class of a file's traffic: its own, that of a directory above it, that of a rule, or that of the
//! mount.
//!
//! # Model
//! Everything is an extended attribute of the tree, and so as persistent as the files. A file or
//! directory has a class of its own in [`CLASS_XATTR`]; the rules of the mount are an attribute of the
//! mount point ([`RULES_XATTR`]), a line each: `PATTERN=CLASS`. In a pattern `*` stands for any part of a
//! name, `**` for any part of a path. The nearest class counts: the file's own, then the first rule
//! whose pattern is its path, then the next directory above in the same way, then the class of the
//! mount point, then best effort.

use clearway_proto::base::{Class, Nanos};
use std::collections::BTreeSet;
use std::time::Duration;

use clearway_proto::staging::{
    DrainPolicy, DrainWish, EntryName, Inode, InodeId, InodeKind, Tree, TreeChange, WallNs,
};
use clearway_runtime::launch::excerpt;
use rustix::io::Errno;

use crate::control::CONTROL_XATTR;
use crate::engine::{Core, Held};
use crate::names::NodeType;

/// The extended attribute with the class of a file or directory.
pub const CLASS_XATTR: &str = "user.clearway.class";
/// The extended attribute with the time that a file may take to the store after its last change.
pub const DEADLINE_XATTR: &str = "user.clearway.deadline";
/// The place in the drain of a file without a deadline: as if it had this one. So it is not put off
/// for ever.
const USUAL: Nanos = Nanos::from_secs(24 * 3600);
/// The extended attribute of the mount point with its rules.
pub const RULES_XATTR: &str = "user.clearway.rules";
/// The extended attribute of a directory whose files appear in the store when they are published.
pub const PUBLISH_XATTR: &str = "user.clearway.publish";
/// Its only value.
const EXPLICIT: &[u8] = b"explicit";
/// The extended attribute of a file that is left out of the store: with the version of its bytes.
pub(crate) const CANCELLED_XATTR: &str = "user.clearway.cancelled";
/// The shortest deadline: a file is drained a second after its change.
const DEADLINE_MIN: Nanos = Nanos::from_secs(1);
/// Directories that a path leads through, at most.
const DEPTH_MAX: usize = 4096;
/// Flags of `setxattr(2)`.
const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;
/// Names that begin so are Clearway's.
const OWN_NAMES: &[u8] = b"user.clearway.";

/// A rule: what matches has the class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassRule {
    pattern: String,
    class: Class,
}

impl std::str::FromStr for ClassRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (pattern, class) = text.rsplit_once('=').ok_or_else(|| {
            format!("'{}' has no '='; write PATTERN=CLASS, as in '/ckpt/**=bulk'", excerpt(text))
        })?;
        let class = class.parse().map_err(|why| format!("'{}' is {why}", excerpt(class)))?;
        let pattern = pattern.trim_start_matches('/');
        if pattern.is_empty() || pattern.contains('\n') {
            return Err(format!(
                "'{}' has no pattern of one line; write PATTERN=CLASS, as in '/ckpt/**=bulk'",
                excerpt(text)
            ));
        }
        Ok(Self { pattern: pattern.to_owned(), class })
    }
}

impl ClassRule {
    /// Returns the class of what matches.
    pub const fn class(&self) -> Class {
        self.class
    }
}

impl std::fmt::Display for ClassRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "/{}={}", self.pattern, self.class)
    }
}

/// Returns whether `path` matches `pattern`. Cost: the product of their lengths.
fn matches(pattern: &[u8], path: &[u8]) -> bool {
    // Whether the pattern so far can end before each byte of the path.
    let mut ends = vec![false; path.len() + 1];
    ends[0] = true;
    let mut rest = pattern;
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'*' {
            for at in (0..path.len()).rev() {
                ends[at + 1] = ends[at] && path[at] == *first;
            }
            ends[0] = false;
            continue;
        }
        let is_double = rest.first() == Some(&b'*');
        if is_double {
            rest = &rest[1..];
        }
        for at in 0..path.len() {
            ends[at + 1] |= ends[at] && (is_double || path[at] != b'/');
        }
    }
    ends[path.len()]
}

/// The rules of a mount.
#[derive(Debug, Default)]
pub(crate) struct ClassRules {
    rules: Vec<ClassRule>,
    /// The most urgent class that a file has.
    limit: Option<Class>,
}

impl ClassRules {
    fn parse(text: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(text).map_err(|_| "rules are no text".to_owned())?;
        let rules = text.lines().map(str::parse).collect::<Result<_, _>>()?;
        Ok(Self { rules, limit: None })
    }

    fn class_of(&self, path: &[u8]) -> Option<Class> {
        self.rules.iter().find(|rule| matches(rule.pattern.as_bytes(), path)).map(|rule| rule.class)
    }
}

/// Returns the value of an attribute of ours.
fn own_value<'a>(inode: &'a Inode, name: &str) -> Option<&'a [u8]> {
    let name = EntryName::new(name.as_bytes()).ok()?;
    inode.xattrs.get(&name).map(|value| &**value)
}

fn class_value(inode: &Inode) -> Option<Class> {
    std::str::from_utf8(own_value(inode, CLASS_XATTR)?).ok()?.parse().ok()
}

fn deadline_value(inode: &Inode) -> Option<Nanos> {
    std::str::from_utf8(own_value(inode, DEADLINE_XATTR)?).ok()?.parse().ok()
}

/// Returns an inode and the directories above it, by one of its names.
fn with_above(tree: &Tree, inode: InodeId) -> impl Iterator<Item = InodeId> + '_ {
    let up = move |at: &InodeId| match *at {
        InodeId::ROOT => None,
        at => tree.places(at).next().map(|place| place.directory),
    };
    std::iter::successors(Some(inode), up).take(DEPTH_MAX)
}

impl ClassRules {
    /// Returns how a file is drained; an urgent one comes before all others of its class, and of
    /// the others the one whose deadline is the first, or that was changed first.
    pub(crate) fn drain_policy(
        &self,
        tree: &Tree,
        inode: InodeId,
        urgent: &BTreeSet<InodeId>,
    ) -> DrainPolicy {
        let changed = tree.inode(inode).map_or(WallNs(0), |inode| inode.ctime);
        let after = |time: Nanos| WallNs(changed.0.saturating_add(time.0));
        let within = with_above(tree, inode).find_map(|at| deadline_value(tree.inode(at)?));
        let due = within.map(after);
        let deadline = match urgent.contains(&inode) {
            true => WallNs(0),
            false => due.unwrap_or_else(|| after(USUAL)),
        };
        DrainPolicy { class: self.class_in(tree, inode), deadline, due, wish: wish(tree, inode) }
    }

    /// Returns the rules that a tree has; why not, if they are none.
    pub(crate) fn from_tree(tree: &Tree) -> Result<Self, String> {
        let text = tree.inode(InodeId::ROOT).and_then(|root| own_value(root, RULES_XATTR));
        Self::parse(text.unwrap_or_default())
    }

    /// Returns `class`, or the limit if that is less urgent.
    pub(crate) fn limited(&self, class: Class) -> Class {
        self.limit.map_or(class, |limit| class.max(limit))
    }

    /// Returns the class of an inode by one of its names.
    pub(crate) fn class_in(&self, tree: &Tree, inode: InodeId) -> Class {
        let class_at = |at| {
            let rule = || match self.rules.is_empty() {
                true => None,
                false => self.class_of(&tree.path(at)?),
            };
            class_value(tree.inode(at)?).or_else(rule)
        };
        self.limited(with_above(tree, inode).find_map(class_at).unwrap_or(Class::BestEffort))
    }
}

/// Returns what of a file goes to the store.
pub(crate) fn wish(tree: &Tree, inode: InodeId) -> DrainWish {
    let is_cancelled = || {
        let version = own_value(tree.inode(inode)?, CANCELLED_XATTR)?;
        let version: u64 = std::str::from_utf8(version).ok()?.parse().ok()?;
        Some(version == tree.content(inode)?.version())
    };
    let is_explicit = |at| tree.inode(at).is_some_and(|at| own_value(at, PUBLISH_XATTR).is_some());
    if is_cancelled() == Some(true) {
        DrainWish::Nothing
    } else if with_above(tree, inode).any(is_explicit) {
        DrainWish::Unseen
    } else {
        DrainWish::All
    }
}

/// Returns the name of an attribute of ours.
fn own(name: &str) -> Result<EntryName, Errno> {
    EntryName::new(name.as_bytes()).map_err(|_| Errno::INVAL)
}

impl Core {
    /// Returns the class of an inode's traffic.
    pub(crate) fn class_of(&mut self, inode: InodeId) -> Class {
        if let Some(class) = self.lives.node(inode).class {
            return class;
        }
        let class = self.find_class_of_tree(inode);
        let class = self.classes.limited(class);
        self.lives.node(inode).class = Some(class);
        class
    }

    /// Returns the class of an inode that lies in a directory under a name.
    pub(crate) fn class_at(&mut self, inode: InodeId, home: (InodeId, EntryName)) -> Class {
        let is_known = self.lives.is_known(inode);
        let node = self.lives.node(inode);
        if node.home.is_none() {
            (node.home, node.class) = (Some(home), None);
        }
        let class = self.class_of(inode);
        if !is_known {
            self.lives.remove(inode);
        }
        class
    }

    /// Returns the class that attributes and rules give an inode.
    fn find_class_of_tree(&mut self, inode: InodeId) -> Class {
        let (mut at, mut steps) = (inode, 0);
        while steps < 4096 {
            steps += 1;
            if let Some(class) = self.own_class(at) {
                return class;
            }
            if !self.classes.rules.is_empty()
                && let Some(path) = self.path_of(at)
                && let Some(class) = self.classes.class_of(&path)
            {
                return class;
            }
            let Some(up) = self.directory_of(at) else { break };
            at = up;
        }
        Class::BestEffort
    }

    /// Returns the class that an inode has of its own.
    pub(crate) fn own_class(&mut self, inode: InodeId) -> Option<Class> {
        class_value(self.tree().inode(inode)?)
    }

    /// Returns the directory that an inode was found in.
    fn directory_of(&mut self, inode: InodeId) -> Option<InodeId> {
        if inode == InodeId::ROOT {
            return None;
        }
        match self.tree().inode(inode).map(|inode| &inode.kind) {
            Some(InodeKind::Directory { parent, .. }) => Some(*parent),
            // Also what is about to be made.
            _ => self.lives.home(inode).map(|(parent, _)| *parent),
        }
    }

    /// Returns the path by which an inode was found, without a slash before it.
    pub(crate) fn path_of(&mut self, inode: InodeId) -> Option<Vec<u8>> {
        let (mut names, mut at) = (Vec::new(), inode);
        while at != InodeId::ROOT && names.len() < 4096 {
            let up = self.directory_of(at)?;
            let known = self.lives.home(at).filter(|(parent, _)| *parent == up);
            let name = match known {
                Some((_, name)) => name.clone(),
                // Nobody asked for this directory by name since the mount.
                None => match &self.tree().inode(up)?.kind {
                    InodeKind::Directory { entries, .. } => {
                        entries.iter().find(|(_, entry)| **entry == at)?.0.clone()
                    }
                    _ => return None,
                },
            };
            names.push(name);
            at = up;
        }
        names.reverse();
        let names: Vec<&[u8]> = names.iter().map(EntryName::bytes).collect();
        Some(names.join(&b'/'))
    }

    /// Reads the rules that the tree has.
    pub(crate) fn load_rules(&mut self) {
        match ClassRules::from_tree(self.tree()) {
            Ok(rules) => self.classes = ClassRules { limit: self.classes.limit, ..rules },
            Err(why) => self.say_of_program(format!("the mount ignores its rules: {why}")),
        }
    }

    /// Limits the class of all files.
    pub(crate) fn limit_class(&mut self, limit: Option<Class>) {
        self.classes.limit = limit;
        self.lives.forget_classes();
    }

    /// Sets or removes the class of an inode.
    pub(crate) fn set_class(&mut self, inode: InodeId, class: Option<Class>) -> Result<(), Held> {
        let name = own(CLASS_XATTR)?;
        match class {
            Some(class) => self.set_xattr(inode, name, class.name().as_bytes()),
            None => match self.unset_xattr(inode, name) {
                Err(Held::Errno(Errno::NODATA)) => Ok(()),
                other => other,
            },
        }
    }

    /// Sets how long files may take to the store that have no deadline of their own.
    pub(crate) fn set_deadline(&mut self, within: Duration) -> Result<(), Held> {
        let seconds = format!("{}s", within.as_secs().max(1));
        self.set_xattr(InodeId::ROOT, own(DEADLINE_XATTR)?, seconds.as_bytes())
    }

    /// Sets the rules of the mount.
    pub(crate) fn set_rules(&mut self, rules: &[ClassRule]) -> Result<(), Held> {
        let lines: Vec<String> = rules.iter().map(ToString::to_string).collect();
        self.set_xattr(InodeId::ROOT, own(RULES_XATTR)?, lines.join("\n").as_bytes())
    }

    /// Sets an extended attribute as `flags` of `setxattr(2)` allow.
    pub(crate) fn set_xattr_by(
        &mut self,
        inode: InodeId,
        name: EntryName,
        value: &[u8],
        flags: i32,
    ) -> Result<(), Held> {
        let node = self.tree().inode(inode).ok_or(Errno::NOENT)?;
        match node.xattrs.contains_key(&name) {
            true if flags & XATTR_CREATE != 0 => Err(Held::Errno(Errno::EXIST)),
            false if flags & XATTR_REPLACE != 0 => Err(Held::Errno(Errno::NODATA)),
            _ => self.set_xattr(inode, name, value),
        }
    }

    /// Sets an extended attribute; one of Clearway's is checked.
    pub(crate) fn set_xattr(
        &mut self,
        inode: InodeId,
        name: EntryName,
        value: &[u8],
    ) -> Result<(), Held> {
        let is_own = name.bytes().starts_with(OWN_NAMES);
        if is_own && let Err(why) = self.check_own(inode, &name, value) {
            self.say_of_program(why);
            return Err(Held::Errno(Errno::INVAL));
        }
        let set = TreeChange::SetXattr { inode, name, value: value.into() };
        match self.append(set, &[inode]) {
            Err(Held::Errno(Errno::NAMETOOLONG)) => return Err(Held::Errno(Errno::TOOBIG)),
            other => other?,
        }
        if is_own {
            self.class_changed(inode);
        }
        Ok(())
    }

    /// Removes an extended attribute.
    pub(crate) fn unset_xattr(&mut self, inode: InodeId, name: EntryName) -> Result<(), Held> {
        let is_own = name.bytes().starts_with(OWN_NAMES);
        self.append(TreeChange::UnsetXattr { inode, name }, &[inode])?;
        if is_own {
            self.class_changed(inode);
        }
        Ok(())
    }

    fn class_changed(&mut self, inode: InodeId) {
        self.load_rules();
        self.lives.forget_classes();
        self.update_drain(|drain, tree| match tree.content(inode) {
            Some(_) => drain.policy_changed(inode),
            None => drain.policies_changed(),
        });
    }

    /// Leaves the bytes that a file has now out of the store.
    pub(crate) fn cancel(&mut self, inode: InodeId) -> Result<(), Held> {
        let version = self.tree().content(inode).ok_or(Errno::INVAL)?.version();
        let (name, value) = (own(CANCELLED_XATTR)?, version.to_string().into_bytes().into());
        self.append(TreeChange::SetXattr { inode, name, value }, &[inode])?;
        self.update_drain(|drain, _| drain.policy_changed(inode));
        Ok(())
    }

    /// Takes back what [`Core::cancel`] did.
    pub(crate) fn resume(&mut self, inode: InodeId) -> Result<(), Held> {
        match self.unset_xattr(inode, own(CANCELLED_XATTR)?) {
            Err(Held::Errno(Errno::NODATA)) => Ok(()),
            other => other,
        }
    }

    /// Says that a class is more urgent than files may have.
    fn say_of_limit(&mut self, place: &str, class: Class) {
        let limited = self.classes.limited(class);
        if limited != class {
            self.say_of_program(format!("{place}: {class} was requested, {limited} is granted"));
        }
    }

    /// Checks an attribute of Clearway's; why it is refused.
    fn check_own(&mut self, inode: InodeId, name: &EntryName, value: &[u8]) -> Result<(), String> {
        let text = String::from_utf8_lossy(value);
        let path = self.path_of(inode).unwrap_or_default();
        let place = format!(
            "{} of /{}",
            excerpt(&String::from_utf8_lossy(name.bytes())),
            String::from_utf8_lossy(&path)
        );
        if name.bytes() == CLASS_XATTR.as_bytes() {
            let class: Result<Class, _> = text.parse();
            return class
                .map(|class| self.say_of_limit(&place, class))
                .map_err(|why| format!("{place}: '{}' is {why}", excerpt(&text)));
        }
        if name.bytes() == DEADLINE_XATTR.as_bytes() {
            let within = text.parse::<Nanos>().ok().filter(|within| *within >= DEADLINE_MIN);
            return within.map(drop).ok_or_else(|| {
                format!(
                    "{place}: '{}' is no time of a second or more; 10min is one",
                    excerpt(&text)
                )
            });
        }
        if name.bytes() == RULES_XATTR.as_bytes() && inode == InodeId::ROOT {
            return ClassRules::parse(value).map(drop).map_err(|why| format!("{place}: {why}"));
        }
        if name.bytes() == PUBLISH_XATTR.as_bytes() {
            let is_directory = self.node_type(inode) == Some(NodeType::Directory);
            return match (is_directory, value) {
                (true, EXPLICIT) => Ok(()),
                (true, _) => {
                    Err(format!("{place}: '{}' is not 'explicit', its only value", excerpt(&text)))
                }
                (false, _) => Err(format!("{place}: only a directory can have this attribute")),
            };
        }
        let fixed = [CONTROL_XATTR, CANCELLED_XATTR];
        let why = if fixed.iter().any(|fixed| name.bytes() == fixed.as_bytes()) {
            "cannot be set by programs"
        } else {
            "is not an attribute that Clearway has for this file; user.clearway.class is"
        };
        Err(format!("{place} {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches__one_star_stays_in_a_name_and_two_do_not() {
        let cases = [
            ("ckpt/**", "ckpt/a/b", true),
            ("ckpt/**", "ckpt", false),
            ("ckpt/*", "ckpt/a", true),
            ("ckpt/*", "ckpt/a/b", false),
            ("*.tmp", "x.tmp", true),
            ("*.tmp", "a/x.tmp", false),
            ("**.tmp", "a/x.tmp", true),
            ("**/x*y", "a/b/xzzy", true),
            ("", "", true),
            ("a", "", false),
        ];
        for (pattern, path, expected) in cases {
            assert_eq!(matches(pattern.as_bytes(), path.as_bytes()), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn from_str__a_rule_has_a_pattern_and_a_class() {
        let rule: ClassRule = "/ckpt/**=bulk".parse().expect("a rule");
        assert_eq!(rule.to_string(), "/ckpt/**=bulk");
        for text in ["bulk", "=bulk", "/a=fast", "/a=", "/=bulk"] {
            assert!(text.parse::<ClassRule>().is_err(), "{text}");
        }
        let why = "/a=fast".parse::<ClassRule>().expect_err("no class");
        assert!(why.contains("'fast' is not a traffic class; the classes are control"), "{why}");
        for text in ["x".repeat(60_000), format!("/a={}", "x".repeat(60_000)), "=\n".repeat(30_000)]
        {
            let why = text.parse::<ClassRule>().expect_err("no rule");
            assert!(why.len() < 250, "{why}");
        }
    }
}
