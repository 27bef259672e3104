//! What an installation holds, and where each file stands below its prefix.
//!
//! # Model
//! `bin` has the program and the tools, `lib` the library under its own name and those that build
//! systems link, `include` the headers, `share/doc/clearway` the documents with the examples that
//! they link to, and the rest of `share` what other programs look for.
//!
//! # Not here
//! Man pages and completions of the program: it writes them itself. Debian's own places: in
//! `dist/debian.rs`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The library under the name by which programs ask for it.
pub(crate) const LIBRARY: &str = "libclearway_shmem.so.1";
/// The names by which it is linked: its own, and those of other OpenSHMEM libraries.
pub(crate) const LINK_NAMES: [&str; 3] = ["libclearway_shmem.so", "libsma.so", "liboshmem.so"];
/// The compiler's other names.
pub(crate) const COMPILERS: [&str; 3] = ["oshc++", "oshcxx", "oshCC"];
/// Shells, and where each looks for completions.
pub(crate) const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/clearway"),
    ("zsh", "share/zsh/site-functions/_clearway"),
    ("fish", "share/fish/vendor_completions.d/clearway.fish"),
];
/// What is a program of this machine: `strip` shortens it.
pub(crate) const BINARIES: [&str; 3] =
    ["bin/clearway", "libexec/clearway/clearway-shmem-describe", "lib/libclearway_shmem.so.1"];

const SHMEM: &str = "crates/clearway-shmem";
/// Where documents go.
pub(crate) const DOCUMENTS: &str = "share/doc/clearway";

/// Directories whose files go, all of them, to a directory of the prefix.
const DIRECTORIES: [(&str, &str); 9] = [
    ("crates/clearway-shmem/include", "include"),
    ("crates/clearway-shmem/include/mpp", "include/mpp"),
    ("crates/clearway-shmem/examples/queues", "share/clearway/examples"),
    ("crates/clearway-shmem/examples/tail", "share/clearway/examples"),
    ("crates/clearway-shmem/python", "share/clearway/python"),
    ("docs", "share/doc/clearway/docs"),
    ("examples", "share/doc/clearway/examples"),
    ("examples/grafana", "share/clearway/grafana"),
    ("examples/policy", "share/doc/clearway/examples/policy"),
];
/// Files that name the program by its path.
const WITH_PATHS: [(&str, &str); 2] = [
    ("examples/slurm", "share/doc/clearway/examples/slurm"),
    ("examples/systemd", "lib/systemd/system"),
];
/// Paths of the program that those files have in the tree.
const PROGRAM_PATHS: [&str; 2] = ["/usr/local/bin/clearway", "/usr/bin/clearway"];

/// Where the bytes of an installed file come from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// A file of the tree.
    Tree(PathBuf),
    /// A file of the tree in which the program's path and version are set.
    Text(PathBuf),
    /// A file that cargo built.
    Built(&'static str),
    /// A symbolic link to this target.
    Link(&'static str),
}

/// A file of an installation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Installed {
    /// Where its bytes come from.
    pub(crate) origin: Origin,
    /// Its place below the prefix.
    pub(crate) place: String,
    /// Its permissions.
    pub(crate) mode: u32,
}

/// Lists the files of an installation of the tree at `root`.
pub(crate) fn contents(root: &Path) -> Result<Vec<Installed>> {
    let mut list = Vec::new();
    let mut add = |origin: Origin, place: String, mode: u32| {
        list.push(Installed { origin, place, mode });
    };
    add(Origin::Built("clearway"), "bin/clearway".to_owned(), 0o755);
    add(
        Origin::Built("clearway-shmem-describe"),
        "libexec/clearway/clearway-shmem-describe".to_owned(),
        0o755,
    );
    // A library is read, not executed, and Debian's policy wants its mode so.
    add(Origin::Built("libclearway_shmem.so"), format!("lib/{LIBRARY}"), 0o644);
    for name in LINK_NAMES {
        add(Origin::Link(LIBRARY), format!("lib/{name}"), 0o777);
    }
    let tools = Path::new(SHMEM).join("tools");
    for (tool, page) in [("oshcc", "oshcc.1"), ("oshrun", "oshrun.1")] {
        add(Origin::Tree(tools.join(tool)), format!("bin/{tool}"), 0o755);
        add(Origin::Tree(tools.join(page)), format!("share/man/man1/{page}"), 0o644);
    }
    for name in COMPILERS {
        add(Origin::Link("oshcc"), format!("bin/{name}"), 0o777);
        add(Origin::Link("oshcc.1"), format!("share/man/man1/{name}.1"), 0o777);
    }
    let description = "clearway-shmem.pc";
    add(Origin::Text(tools.join(description)), format!("lib/pkgconfig/{description}"), 0o644);
    for document in ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"] {
        add(Origin::Tree(PathBuf::from(document)), format!("{DOCUMENTS}/{document}"), 0o644);
    }
    for (from, below) in DIRECTORIES {
        for name in files(&root.join(from))? {
            let mode = mode_of(&name);
            add(Origin::Tree(Path::new(from).join(&name)), format!("{below}/{name}"), mode);
        }
    }
    for (from, below) in WITH_PATHS {
        for name in files(&root.join(from))? {
            let mode = mode_of(&name);
            add(Origin::Text(Path::new(from).join(&name)), format!("{below}/{name}"), mode);
        }
    }
    Ok(list)
}

/// The permissions of a text: only scripts of shells are executed.
fn mode_of(name: &str) -> u32 {
    if name.ends_with(".sh") { 0o755 } else { 0o644 }
}

/// Sets the path of the program for a prefix that stands at `home`, and the version.
pub(crate) fn with_prefix(text: &str, home: &Path) -> String {
    let program = home.join("bin/clearway").to_string_lossy().into_owned();
    let [first, second] = PROGRAM_PATHS;
    // In one pass: the new path may hold an old one.
    let parts: Vec<String> = text.split(first).map(|part| part.replace(second, &program)).collect();
    parts.join(&program).replace("@VERSION@", env!("CARGO_PKG_VERSION"))
}

/// The names of the files of a directory, without those below it, sorted.
fn files(directory: &Path) -> Result<Vec<String>> {
    let said = || format!("{} cannot be read", directory.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).with_context(said)? {
        let entry = entry.with_context(said)?;
        if entry.path().is_file() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the root of the tree")
    }

    /// The files below `directory` of the tree, by their paths from the root.
    fn files_below(directory: &Path) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for entry in fs::read_dir(root().join(directory)).expect("a directory") {
            let entry = entry.expect("an entry");
            let path = directory.join(entry.file_name());
            if entry.path().is_dir() {
                found.extend(files_below(&path));
            } else {
                found.push(path);
            }
        }
        found
    }

    #[test]
    fn contents__has_every_file_that_users_get() {
        let listed: BTreeSet<PathBuf> = contents(root())
            .expect("a list")
            .into_iter()
            .filter_map(|file| match file.origin {
                Origin::Tree(path) | Origin::Text(path) => Some(path),
                Origin::Built(_) | Origin::Link(_) => None,
            })
            .collect();
        let shmem = Path::new(SHMEM);
        let mut missing = Vec::new();
        for directory in [
            PathBuf::from("docs"),
            PathBuf::from("examples"),
            shmem.join("include"),
            shmem.join("python"),
            shmem.join("tools"),
            shmem.join("examples"),
        ] {
            missing.extend(files_below(&directory).into_iter().filter(|path| {
                // Of Rust, there are only examples for this tree itself.
                !listed.contains(path) && path.extension().is_none_or(|ending| ending != "rs")
            }));
        }
        let made: Vec<&PathBuf> =
            missing.iter().filter(|path| !path.iter().any(|part| part == "__pycache__")).collect();
        assert!(made.is_empty(), "not installed: {made:?}");
    }

    #[test]
    fn contents__no_place_is_taken_twice() {
        let mut places = BTreeSet::new();
        for file in contents(root()).expect("a list") {
            assert!(places.insert(file.place.clone()), "{} is there twice", file.place);
        }
        assert!(BINARIES.iter().all(|place| places.contains(*place)));
    }

    #[test]
    fn contents__links_lead_to_files_of_the_list() {
        let list = contents(root()).expect("a list");
        for file in &list {
            if let Origin::Link(target) = &file.origin {
                let aim = Path::new(&file.place).with_file_name(target);
                assert!(list.iter().any(|other| Path::new(&other.place) == aim), "{file:?}");
            }
        }
    }

    #[test]
    fn with_prefix__sets_the_path_once() {
        let text =
            "ExecStart=/usr/bin/clearway x\nlocal C = \"/usr/local/bin/clearway\"\n@VERSION@";
        let at = |home: &str| with_prefix(text, Path::new(home));
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(
            at("/a/usr"),
            format!(
                "ExecStart=/a/usr/bin/clearway x\nlocal C = \"/a/usr/bin/clearway\"\n{version}"
            )
        );
        assert!(at("/usr").contains("\"/usr/bin/clearway\""));
        assert!(at("/usr/local").contains("=/usr/local/bin/clearway x"));
    }
}
