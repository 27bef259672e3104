//! Which names of a source are not cast: patterns as in `.gitignore`.
//!
//! # Model
//! A pattern without `/` matches a name at any depth; one with a leading or inner `/` the path
//! below the directory that is cast. `*` and `?` match within a name, `**` any number of names; a
//! trailing `/` matches directories only. A directory that is excluded is not walked, so what is in
//! it is excluded too.

use std::ffi::OsStr;
use std::path::Path;
use std::str::FromStr;

use globset::{GlobBuilder, GlobMatcher};

/// Patterns of one cast, and their bytes: a receiver compiles what a sender says.
const PATTERNS_MAX: usize = 1000;
const PATTERN_BYTES_MAX: usize = 64 << 10;

/// One pattern of names that are not cast.
#[derive(Clone, Debug)]
pub(crate) struct ExcludePattern {
    /// As people write it.
    text: String,
    matcher: GlobMatcher,
    /// It holds for a name at any depth.
    is_name: bool,
    is_for_directories: bool,
}

/// Whether a name is that of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameKind {
    Directory,
    Other,
}

impl NameKind {
    /// Returns the kind of a name that is a directory's if `is_directory`.
    pub(super) const fn from_directory(is_directory: bool) -> Self {
        if is_directory { Self::Directory } else { Self::Other }
    }
}

impl FromStr for ExcludePattern {
    type Err = String;

    fn from_str(pattern: &str) -> Result<Self, String> {
        if pattern.starts_with('!') {
            return Err(format!(
                "a pattern only excludes; for names that begin with `!` write `\\{pattern}`"
            ));
        }
        let (path, is_for_directories) = match pattern.strip_suffix('/') {
            Some(path) => (path, true),
            None => (pattern, false),
        };
        let is_name = !path.contains('/');
        let path = path.strip_prefix('/').unwrap_or(path);
        if path.split('/').any(|name| matches!(name, "" | "." | "..")) {
            return Err("it has a name that is empty, `.` or `..`; write `name`, `/path/name` or \
                        `name/`"
                .to_owned());
        }
        let glob = GlobBuilder::new(path).literal_separator(true).backslash_escape(true).build();
        let matcher = glob.map_err(|error| error.kind().to_string())?.compile_matcher();
        Ok(Self { text: pattern.to_owned(), matcher, is_name, is_for_directories })
    }
}

impl ExcludePattern {
    /// Returns it as people write it.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    fn matches(&self, path: &Path, kind: NameKind) -> bool {
        let of = if self.is_name { path.file_name().map(Path::new) } else { Some(path) };
        (kind == NameKind::Directory || !self.is_for_directories)
            && of.is_some_and(|of| self.matcher.is_match(of))
    }
}

/// Checks that `patterns` are not more than a receiver takes.
///
/// # Errors
/// One sentence.
pub(super) fn check_size<'p>(patterns: impl Iterator<Item = &'p str>) -> Result<(), String> {
    let (count, bytes) =
        patterns.fold((0, 0), |(count, bytes), one| (count + 1, bytes + one.len()));
    if count > PATTERNS_MAX || bytes > PATTERN_BYTES_MAX {
        return Err(format!(
            "--exclude: {count} patterns of {bytes} bytes are too many; a cast takes {PATTERNS_MAX} of \
             {PATTERN_BYTES_MAX} bytes"
        ));
    }
    Ok(())
}

/// Reads the patterns that a sender says.
///
/// # Errors
/// One sentence: too many, or one that is none.
pub(super) fn parse_all(patterns: &[String]) -> Result<Vec<ExcludePattern>, String> {
    check_size(patterns.iter().map(String::as_str))?;
    patterns.iter().map(|pattern| pattern.parse()).collect()
}

/// Returns whether one of `patterns` matches `path`, which is below the directory that is cast.
pub(super) fn is_excluded(patterns: &[ExcludePattern], path: &Path, kind: NameKind) -> bool {
    patterns.iter().any(|pattern| pattern.matches(path, kind))
}

/// Returns whether one of `patterns` that holds at any depth matches `name`, which was named
/// itself.
pub(super) fn is_name_excluded(patterns: &[ExcludePattern], name: &OsStr, kind: NameKind) -> bool {
    let mut names = patterns.iter().filter(|pattern| pattern.is_name);
    names.any(|pattern| pattern.matches(Path::new(name), kind))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    fn excluded(pattern: &str, path: &str, kind: NameKind) -> bool {
        let pattern = pattern.parse().unwrap_or_else(|why| panic!("{pattern}: {why}"));
        is_excluded(&[pattern], Path::new(path), kind)
    }

    #[test]
    fn is_excluded__matches_as_ignore_files_do() {
        for (pattern, path, is_out) in [
            ("a.o", "a.o", true),
            ("a.o", "b/c/a.o", true),
            ("a.o", "a.o/b", false),
            ("*.o", "b/c/x.o", true),
            ("*.o", "b/c/.o", true),
            ("*.o", "x.od", false),
            ("?.o", "b/x.o", true),
            ("?.o", "b/xy.o", false),
            ("a?b", "a/b", false),
            ("[a-c]1", "b1", true),
            ("[!a-c]1", "b1", false),
            ("{one,two}.txt", "d/two.txt", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("\\!x", "!x", true),
            ("/a", "a", true),
            ("/a", "b/a", false),
            ("b/a", "b/a", true),
            ("b/a", "c/b/a", false),
            ("b/*", "b/a", true),
            ("b/*", "b/a/c", false),
            ("**/a", "a", true),
            ("**/a", "x/y/a", true),
            ("b/**", "b", false),
            ("b/**", "b/a/c", true),
            ("b/**/a", "b/a", true),
            ("b/**/a", "b/x/y/a", true),
            ("b/**/a", "c/b/a", false),
            ("A", "a", false),
        ] {
            assert_eq!(excluded(pattern, path, NameKind::Other), is_out, "{pattern} {path}");
        }
    }

    #[test]
    fn is_excluded__a_trailing_slash_is_for_directories() {
        for pattern in ["b/", "/a/b/", "a/*/", "**/b/"] {
            assert!(excluded(pattern, "a/b", NameKind::Directory), "{pattern}");
            assert!(!excluded(pattern, "a/b", NameKind::Other), "{pattern}");
        }
        assert!(excluded("b", "a/b", NameKind::Directory));
    }

    #[test]
    fn is_excluded__names_of_any_bytes_are_matched() {
        let name = Path::new(OsStr::from_bytes(b"\xff\xfe.o"));
        assert!(is_excluded(&["*.o".parse().expect("a pattern")], name, NameKind::Other));
    }

    #[test]
    fn is_name_excluded__what_was_named_is_matched_by_names_alone() {
        let all = |pattern: &str| [pattern.parse().expect("a pattern")];
        let name = OsStr::new("target");
        assert!(is_name_excluded(&all("target/"), name, NameKind::Directory));
        assert!(is_name_excluded(&all("t*"), name, NameKind::Other));
        for pattern in ["/target", "**/target", "target/"] {
            assert!(!is_name_excluded(&all(pattern), name, NameKind::Other), "{pattern}");
        }
    }

    #[test]
    fn parse_all__more_than_a_receiver_takes_is_refused() {
        let all = |count: usize, length: usize| parse_all(&vec!["a".repeat(length); count]);
        assert_eq!(all(PATTERNS_MAX, 1).map(|all| all.len()), Ok(PATTERNS_MAX));
        assert!(all(PATTERNS_MAX + 1, 1).is_err() && all(65, 1024).is_err());
    }

    #[test]
    fn from_str__what_is_no_pattern_is_refused() {
        for pattern in
            ["", "/", "//", "a//b", "a/../b", "..", "./a", "[a", "{a", "a\\", "!a", "[z-a]"]
        {
            assert!(pattern.parse::<ExcludePattern>().is_err(), "{pattern}");
        }
    }
}
