//! Paths below a target: as many plain names as it takes, none of which leads anywhere else.
//!
//! # Invariants
//! I1. No name is empty, `.`, `..`, holds `/` or a zero byte, or is one of a file that is not
//!     whole, from any sender.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// What files begin with that are not whole yet.
pub(super) const UNFINISHED: &str = ".clearway-cast-";
/// Hexadecimal digits behind that: too many to be guessed.
pub(super) const DIGITS: usize = 32;
/// The longest name (NAME_MAX of Linux), and the longest path (PATH_MAX).
const NAME_MAX: usize = 255;
const PATH_MAX: usize = 4096;

/// A path below a target; without names it is the target itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RelativePath(Vec<PathText>);

/// Returns whether a file that is not whole could have this name.
pub(super) fn is_unfinished(name: &[u8]) -> bool {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let digits = name.strip_prefix(UNFINISHED.as_bytes());
    digits.is_some_and(|digits| digits.len() == DIGITS && digits.iter().all(is_digit))
}

/// Bytes that mostly are UTF-8. Written with what is not, and what would disturb a terminal, as
/// `%1B`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PathText(pub(super) Vec<u8>);

impl RelativePath {
    /// Creates a path of `names`; `None` when one of them is not plain, or it is too long.
    pub(super) fn from_names<'n>(names: impl IntoIterator<Item = &'n [u8]>) -> Option<Self> {
        let names: Vec<PathText> = names.into_iter().map(|name| PathText(name.to_vec())).collect();
        let length = names.iter().map(|name| name.0.len() + 1).sum::<usize>();
        (length <= PATH_MAX && names.iter().all(PathText::is_plain_name)).then_some(Self(names))
    }

    /// Reads a path as a person writes it, relative: `a/b`, `.`.
    pub(super) fn read(path: &str) -> Option<Self> {
        let names = path.split('/').filter(|name| !matches!(*name, "" | "."));
        if path.starts_with('/') { None } else { Self::from_names(names.map(str::as_bytes)) }
    }

    /// Returns this and `name` behind it.
    pub(super) fn join(&self, name: &[u8]) -> Option<Self> {
        Self::from_names(self.names().map(OsStrExt::as_bytes).chain([name]))
    }

    /// Returns whether this is `other` or below it.
    pub(super) fn is_below(&self, other: &Self) -> bool {
        self.0.starts_with(&other.0)
    }

    /// Returns its bytes, `.` for the target itself.
    pub(super) fn text(&self) -> PathText {
        let names: Vec<&[u8]> = self.0.iter().map(|name| &name.0[..]).collect();
        PathText(if names.is_empty() { b".".to_vec() } else { names.join(&b'/') })
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &OsStr> {
        self.0.iter().map(|name| OsStr::from_bytes(&name.0))
    }

    /// Returns the directory and the last name; `None` of the target itself.
    pub(super) fn split(&self) -> Option<(Self, &OsStr)> {
        let (last, before) = self.0.split_last()?;
        Some((Self(before.to_vec()), OsStr::from_bytes(&last.0)))
    }
}

impl PathText {
    fn is_plain_name(&self) -> bool {
        let name = &self.0[..];
        let plain = !matches!(name, b"" | b"." | b"..")
            && !name.iter().any(|byte| matches!(byte, b'/' | 0));
        plain && name.len() <= NAME_MAX && !is_unfinished(name)
    }

    fn read(text: &str) -> Option<Self> {
        let mut bytes = Vec::with_capacity(text.len());
        let mut parts = text.split('%');
        bytes.extend(parts.next()?.bytes());
        for part in parts {
            let digits = part
                .get(..2)
                .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            bytes.extend(part.get(2..)?.bytes());
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for PathText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for letter in chunk.valid().chars() {
                if letter.is_control() || letter == '%' {
                    letter
                        .encode_utf8(&mut [0; 4])
                        .bytes()
                        .try_for_each(|byte| write!(f, "%{byte:02X}"))?;
                } else {
                    write!(f, "{letter}")?;
                }
            }
            chunk.invalid().iter().try_for_each(|byte| write!(f, "%{byte:02X}"))?;
        }
        Ok(())
    }
}

impl fmt::Display for RelativePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.0.iter().map(PathText::to_string).collect();
        f.write_str(if names.is_empty() { "." } else { "" })?;
        f.write_str(&names.join("/"))
    }
}

impl Serialize for PathText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PathText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::read(&text).ok_or_else(|| de::Error::custom("no text"))
    }
}

impl Serialize for RelativePath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RelativePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let names = || match text.as_str() {
            "." => Self::from_names([]),
            text => {
                let names: Vec<PathText> =
                    text.split('/').map(PathText::read).collect::<Option<_>>()?;
                Self::from_names(names.iter().map(|name| &name.0[..]))
            }
        };
        names().ok_or_else(|| de::Error::custom("a path that leaves its target"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(json: &str) -> Option<RelativePath> {
        serde_json::from_str(json).ok()
    }

    #[test]
    fn below__any_bytes_travel_and_are_shown_without_harm() {
        let path = RelativePath::from_names([&b"a b"[..], b"100%\x1b[2J", b"\xff\xfe\xc3\xa9"])
            .expect("three names");
        let json = serde_json::to_string(&path).expect("text");
        assert_eq!(json, r#""a b/100%25%1B[2J/%FF%FE\u00e9""#.replace(r"\u00e9", "\u{e9}"));
        assert_eq!(parsed(&json), Some(path));
        assert_eq!(parsed("\".\""), Some(RelativePath::default()));
    }

    #[test]
    fn below__nothing_leads_out() {
        for json in [
            "..",
            "a/../b",
            "/etc/passwd",
            "a//b",
            "",
            "a/",
            "%2e%2E",
            "a%2Fb",
            "a%00",
            "%2",
            "%zz",
            "%+1",
        ] {
            assert_eq!(parsed(&format!("\"{json}\"")), None, "{json}");
        }
        assert_eq!(
            parsed(&format!("\"{UNFINISHED}{}\"", "0f".repeat(16))),
            None,
            "this program's own"
        );
        assert!(
            parsed(&format!("\"{UNFINISHED}{}\"", "0F".repeat(16))).is_some(),
            "somebody else's"
        );
        assert_eq!(parsed(&format!("\"{}\"", "n".repeat(256))), None);
        assert_eq!(parsed(&format!("\"{}\"", ["n"; 3000].join("/"))), None);
    }

    #[test]
    fn read__takes_relative_paths_as_people_write_them() {
        let shown = |path: &str| RelativePath::read(path).map(|path| path.to_string());
        assert_eq!(shown("./a//b/").as_deref(), Some("a/b"));
        assert_eq!(shown(".").as_deref(), Some("."));
        assert_eq!((shown("/a"), shown("a/../b")), (None, None));
    }
}
