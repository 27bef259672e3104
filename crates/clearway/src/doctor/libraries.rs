//! Looks for the libraries that are loaded at run time where the loader would look, without loading
//! them.
//!
//! # Source
//! `ld.so(8)`: `LD_LIBRARY_PATH`, then the cache (as `ldconfig -p` prints it), then the default
//! directories. ELF header: class at byte 4, data at 5, machine at 18 (System V ABI).
//!
//! # Invariants
//! I1. A file of another architecture is not a find.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::finding::{Finding, FindingGroup};

/// What the loader looks into last, on distributions of all kinds.
const DEFAULT_DIRECTORIES: [&str; 4] = ["/lib64", "/usr/lib64", "/lib", "/usr/lib"];
/// Where vendors and builders put libraries that the loader does not find by itself.
const OTHER_DIRECTORIES: [&str; 6] = [
    "/usr/local/lib",
    "/usr/local/lib64",
    "/opt/amazon/efa/lib",
    "/opt/amazon/efa/lib64",
    "/opt/libfabric/lib",
    "/opt/pmix/lib",
];
/// `ldconfig` is not in the path of ordinary users.
const LDCONFIG: [&str; 3] = ["/sbin/ldconfig", "/usr/sbin/ldconfig", "ldconfig"];

/// A library that some commands load.
struct Library {
    item: &'static str,
    soname: &'static str,
    purpose: &'static str,
    remedy: &'static str,
}

const LIBRARIES: [Library; 2] = [
    Library {
        item: "libfabric",
        soname: "libfabric.so.1",
        purpose: "needed for RDMA networks only",
        remedy: "install libfabric 1.x (Debian: libfabric1, Fedora: libfabric); over UDP Clearway runs without it",
    },
    Library {
        item: "PMIx",
        soname: "libpmix.so.2",
        purpose: "needed for jobs started by PRRTE, mpirun or Slurm with PMIx only",
        remedy: "install PMIx 3 or later (Debian: libpmix2, Fedora: pmix); runs in a lab do without it",
    },
];

/// Where a library lies.
#[derive(Clone, Debug, PartialEq, Eq)]
enum LibraryLocation {
    ByLoader(PathBuf),
    Elsewhere(PathBuf),
    Nowhere,
}

/// Looks for every library.
pub(super) fn examine() -> FindingGroup {
    let path = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
    let cache = cache();
    let own = Architecture::from_file(Path::new("/proc/self/exe"));
    let fits = |file: &Path| {
        Architecture::from_file(file).is_some_and(|found| own.is_none_or(|own| own == found))
    };
    let findings =
        LIBRARIES.iter().map(|library| judge(library, find(library.soname, &path, &cache, &fits)));
    FindingGroup { title: "Libraries loaded when needed", findings: findings.collect() }
}

/// Returns the loader's cache as text; empty where there is no `ldconfig`.
fn cache() -> String {
    let print = |program: &&str| {
        Command::new(program).arg("-p").output().ok().filter(|output| output.status.success())
    };
    LDCONFIG
        .iter()
        .find_map(print)
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default()
}

fn find(soname: &str, path: &str, cache: &str, fits: &dyn Fn(&Path) -> bool) -> LibraryLocation {
    let within = |directory: &str| Path::new(directory).join(soname);
    let by_path = searched(path).map(within);
    let by_cache = cached(cache, soname);
    let by_default = DEFAULT_DIRECTORIES.into_iter().map(within);
    let first = by_path.chain(by_cache).chain(by_default).find(|file| fits(file));
    let elsewhere = || OTHER_DIRECTORIES.into_iter().map(within).find(|file| fits(file));
    first
        .map(LibraryLocation::ByLoader)
        .or_else(|| elsewhere().map(LibraryLocation::Elsewhere))
        .unwrap_or(LibraryLocation::Nowhere)
}

/// Returns the directories of an `LD_LIBRARY_PATH`; an empty entry is the working directory.
fn searched(path: &str) -> impl Iterator<Item = &str> {
    let entries = path.split([':', ';']).filter(move |_| !path.is_empty());
    entries.map(|entry| if entry.is_empty() { "." } else { entry })
}

/// Returns the files of `soname` in what `ldconfig -p` prints.
fn cached<'a>(cache: &'a str, soname: &'a str) -> impl Iterator<Item = PathBuf> + 'a {
    cache.lines().filter_map(move |line| {
        let (name, file) = line.split_once(" => ")?;
        (name.split_ascii_whitespace().next()? == soname).then(|| PathBuf::from(file.trim()))
    })
}

/// What must be equal for a program to load a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Architecture {
    class: u8,
    data: u8,
    machine: [u8; 2],
}

impl Architecture {
    fn from_file(file: &Path) -> Option<Self> {
        let mut header = [0; 20];
        File::open(file).ok()?.read_exact(&mut header).ok()?;
        Self::read(&header)
    }

    fn read(header: &[u8; 20]) -> Option<Self> {
        header.starts_with(b"\x7fELF").then(|| Self {
            class: header[4],
            data: header[5],
            machine: [header[18], header[19]],
        })
    }
}

fn judge(library: &Library, found: LibraryLocation) -> Finding {
    let Library { item, soname, purpose, remedy } = library;
    match found {
        LibraryLocation::ByLoader(file) => Finding::ok(item, file.display().to_string()),
        LibraryLocation::Elsewhere(file) => {
            let directory = file.parent().unwrap_or(Path::new("/")).display().to_string();
            let found = format!("{} is not where the loader looks", file.display());
            Finding::limited(item, found, format!("put {directory} into LD_LIBRARY_PATH"))
        }
        LibraryLocation::Nowhere => {
            Finding::missing(item, format!("no {soname}; {purpose}"), *remedy)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Status;
    use super::*;

    const CACHE: &str = "3 libs found in cache `/etc/ld.so.cache'\n\
        \tlibfabric.so.1 (libc6) => /lib/i386-linux-gnu/libfabric.so.1\n\
        \tlibfabric.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libfabric.so.1\n\
        \tlibfabric.so (libc6,x86-64) => /lib/x86_64-linux-gnu/libfabric.so\n\
        Cache generated by: ldconfig (GNU libc) stable release version 2.36\n";

    #[test]
    fn cached__finds_every_file_of_exactly_this_name() {
        let found: Vec<PathBuf> = cached(CACHE, "libfabric.so.1").collect();
        let expected =
            ["/lib/i386-linux-gnu/libfabric.so.1", "/lib/x86_64-linux-gnu/libfabric.so.1"];
        assert_eq!(found, expected.map(PathBuf::from));
        assert_eq!(cached(CACHE, "libfabric").count() + cached("", "libz.so.1").count(), 0);
    }

    #[test]
    fn searched__an_empty_entry_is_the_working_directory_and_no_path_has_none() {
        assert_eq!(searched("/a::/b;/c").collect::<Vec<_>>(), ["/a", ".", "/b", "/c"]);
        assert_eq!(searched("").count(), 0);
    }

    #[test]
    fn find__takes_the_loaders_order_and_skips_what_does_not_fit() {
        let name = "libfabric.so.1";
        let only = |good: &'static [&'static str]| {
            move |file: &Path| good.iter().any(|good| Path::new(good) == file)
        };
        let (mine, second) = ("/mine/libfabric.so.1", "/lib/x86_64-linux-gnu/libfabric.so.1");
        let both = only(&["/mine/libfabric.so.1", "/lib/x86_64-linux-gnu/libfabric.so.1"]);
        assert_eq!(find(name, "/mine", CACHE, &both), LibraryLocation::ByLoader(mine.into()));
        assert_eq!(find(name, "", CACHE, &both), LibraryLocation::ByLoader(second.into()));
        let efa = only(&["/opt/amazon/efa/lib/libfabric.so.1"]);
        assert_eq!(
            find(name, "/mine", CACHE, &efa),
            LibraryLocation::Elsewhere("/opt/amazon/efa/lib/libfabric.so.1".into())
        );
        assert_eq!(find(name, "/mine", CACHE, &|_| false), LibraryLocation::Nowhere);
    }

    #[test]
    fn architecture__is_reported_from_the_header_and_no_other_file_has_one() {
        let mut header = *b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0";
        let amd64 = Architecture { class: 2, data: 1, machine: [0x3e, 0] };
        assert_eq!(Architecture::read(&header), Some(amd64));
        header[0] = b'/';
        assert_eq!(Architecture::read(&header), None);
    }

    #[test]
    fn judge__a_library_that_the_loader_misses_names_its_directory() {
        let finding = judge(
            &LIBRARIES[0],
            LibraryLocation::Elsewhere("/opt/amazon/efa/lib/libfabric.so.1".into()),
        );
        assert_eq!(finding.status, Status::Limited);
        assert_eq!(finding.remedies, ["put /opt/amazon/efa/lib into LD_LIBRARY_PATH"]);
    }
}
