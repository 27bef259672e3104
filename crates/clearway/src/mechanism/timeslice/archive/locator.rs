//! Which files a user means: a path, or FLESnet's `file:` form with a query, either with `%n` for a
//! sequence of files.
//!
//! # Model
//! `%n` stands for the number of a file, with at least four digits, from `0000` on; the sequence
//! ends before the first file that is not there. `tcp://HOST:PORT` is what comes from there.
//! `cycles` plays everything this many times. `file:PATH`, `file://PATH` and `PATH` are the same,
//! but only the first two have a query, because a path may contain a question mark.

use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Stands for the number of a file.
const NUMBER: &str = "%n";

/// What a port begins with at which somebody listens and sends an archive.
pub(super) const TCP: &str = "tcp://";

/// Stands for the number of an input, each of which has files of its own.
pub(crate) const INPUT: &str = "%i";

/// Returns `template` with `number` wherever `mark` stands.
pub(crate) fn filled(template: &str, mark: &str, number: u64) -> PathBuf {
    template.replace(mark, &number.to_string()).into()
}

/// Files in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Locator {
    template: String,
    /// How often everything is played.
    pub(crate) cycles: u64,
}

impl Locator {
    /// Creates the one file at `path`.
    pub(crate) fn from_path(path: &Path) -> Self {
        Self { template: path.to_string_lossy().into_owned(), cycles: 1 }
    }

    /// Returns file `number` of the sequence; a path without a number is a sequence of one.
    pub(crate) fn path(&self, number: u64) -> Option<PathBuf> {
        match number {
            _ if self.template.contains(NUMBER) => {
                Some(self.template.replace(NUMBER, &format!("{number:04}")).into())
            }
            0 => Some(PathBuf::from(&self.template)),
            _ => None,
        }
    }

    /// Returns all files that are there, and the first one whether it is there or not.
    pub(crate) fn paths(&self) -> impl Iterator<Item = PathBuf> {
        (0..).map_while(|number| self.path(number).filter(|path| number == 0 || exists(path)))
    }
}

/// Returns whether a later file of a sequence is there. A link that leads nowhere is there, and
/// opening it will say what is wrong.
pub(crate) fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

impl FromStr for Locator {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let Some(rest) = text.strip_prefix("file:") else {
            return match text.split_once("://") {
                Some((scheme, _)) if !text.starts_with(TCP) => Err(format!(
                    "`{scheme}:` is not read here; a path, `file:PATH` or `tcp://HOST:PORT` is"
                )),
                None if text.is_empty() => Err("an empty path names no file".to_owned()),
                _ => Ok(Self { template: text.to_owned(), cycles: 1 }),
            };
        };
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let path = path.strip_prefix("//").unwrap_or(path);
        if path.is_empty() {
            return Err(format!("`{text}` names no file; `file:PATH` does"));
        }
        let mut cycles = 1;
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let number = part
                .strip_prefix("cycles=")
                .and_then(|number| number.parse().ok())
                .filter(|number| *number > 0);
            cycles = number.ok_or_else(|| {
                format!("`{part}` in `{text}` is not understood; `cycles=3` would be")
            })?;
        }
        Ok(Self { template: path.to_owned(), cycles })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_str__every_form_of_a_path() {
        for text in ["/a/b_%n.tsa", "file:/a/b_%n.tsa", "file:///a/b_%n.tsa"] {
            let locator: Locator = text.parse().unwrap();
            assert_eq!(locator.path(12), Some("/a/b_0012.tsa".into()), "{text}");
            assert_eq!(locator.cycles, 1);
        }
        let locator: Locator = "file://a.msa?cycles=3".parse().unwrap();
        assert_eq!(
            (locator.path(0), locator.path(1), locator.cycles),
            (Some("a.msa".into()), None, 3)
        );
        assert_eq!("what?.msa".parse::<Locator>().unwrap().path(0), Some("what?.msa".into()));
    }

    #[test]
    fn from_str__what_is_not_understood_is_named() {
        let sentence = |text: &str| text.parse::<Locator>().unwrap_err();
        assert_eq!(
            sentence("http://h:1"),
            "`http:` is not read here; a path, `file:PATH` or `tcp://HOST:PORT` is"
        );
        assert_eq!("tcp://h:1".parse::<Locator>().unwrap().path(0), Some("tcp://h:1".into()));
        assert_eq!(
            sentence("file:a?cycles=0"),
            "`cycles=0` in `file:a?cycles=0` is not understood; `cycles=3` would be"
        );
        assert_eq!(sentence("file:?x"), "`file:?x` names no file; `file:PATH` does");
        assert_eq!(sentence(""), "an empty path names no file");
    }
}
