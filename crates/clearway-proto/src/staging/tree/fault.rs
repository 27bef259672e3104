//! Why a change of the tree is refused, in one sentence each.

use core::fmt;

/// Why a change cannot be made. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TreeError {
    /// There is no such inode or name (ENOENT).
    NotFound,
    /// The name is taken (EEXIST).
    Exists,
    /// What should be a directory is none (ENOTDIR).
    NotDirectory,
    /// What should be no directory is one (EISDIR).
    IsDirectory,
    /// The directory has entries (ENOTEMPTY).
    NotEmpty,
    /// A name, target or value is too long (ENAMETOOLONG).
    NameTooLong,
    /// It makes no sense: a directory inside itself, a name with a slash (EINVAL).
    Invalid,
    /// The file would be too long (EFBIG).
    TooLarge,
    /// The inode has as many names as one can have (EMLINK).
    TooManyLinks,
    /// There is no room for another inode or attribute (ENOSPC).
    Full,
    /// The extended attribute is not set (ENODATA).
    NoAttribute,
    /// The version that was drained is not that of the file any more; drain the file again.
    Superseded,
}

impl fmt::Display for TreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotFound => "there is no such file or directory",
            Self::Exists => "the name is taken",
            Self::NotDirectory => "the parent is no directory",
            Self::IsDirectory => "it is a directory",
            Self::NotEmpty => "the directory is not empty",
            Self::NameTooLong => "the name, target or value is too long",
            Self::Invalid => "the name or the place is impossible",
            Self::TooLarge => "the file would be too long",
            Self::TooManyLinks => "the file has too many names",
            Self::Full => "the tree has no room for another inode or attribute",
            Self::NoAttribute => "the extended attribute is not set",
            Self::Superseded => "the file was changed since it was drained",
        })
    }
}

impl core::error::Error for TreeError {}
