//! Does the same random operations on a mount and in a directory of another file system, and compares
//! every answer and everything that is there.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use clearway_proto::base::{RandomKey, RandomStream};

use super::drained::assert_same;
use super::{StagingPlace, staged};

/// Operations of a seed.
const STEPS: u64 = 600;

/// One operation, drawn once and done on both sides.
#[derive(Clone, Debug)]
enum TreeStep {
    Write { path: PathBuf, offset: u64, bytes: Vec<u8> },
    Append { path: PathBuf, bytes: Vec<u8> },
    Cut { path: PathBuf, size: u64 },
    Read { path: PathBuf, offset: u64, length: usize },
    MakeDirectory(PathBuf),
    RemoveFile(PathBuf),
    RemoveDirectory(PathBuf),
    Rename(PathBuf, PathBuf),
    Link(PathBuf, PathBuf),
    Symlink(PathBuf, PathBuf),
    Mode(PathBuf, u32),
    Allocate { path: PathBuf, offset: u64, length: u64 },
    List(PathBuf),
}

fn draw_path(stream: &mut RandomStream) -> PathBuf {
    let depth = 1 + stream.below(3);
    let names =
        (0..depth).map(|level| format!("{}{}", ["a", "b", "c"][level as usize], stream.below(3)));
    names.collect()
}

fn draw(stream: &mut RandomStream) -> TreeStep {
    let path = draw_path(stream);
    let bytes = |stream: &mut RandomStream| {
        let (length, fill) = (stream.below(20_000) as usize, stream.below(256) as u8);
        vec![fill; length]
    };
    match stream.below(16) {
        0..3 => TreeStep::Write { path, offset: stream.below(50_000), bytes: bytes(stream) },
        3 => TreeStep::Append { path, bytes: bytes(stream) },
        4 => TreeStep::Cut { path, size: stream.below(60_000) },
        5 => {
            let (offset, length) = (stream.below(60_000), stream.below(30_000) as usize);
            TreeStep::Read { path, offset, length }
        }
        6 | 7 => TreeStep::MakeDirectory(path),
        8 => TreeStep::RemoveFile(path),
        9 => TreeStep::RemoveDirectory(path),
        10 => TreeStep::Rename(path, draw_path(stream)),
        11 => TreeStep::Link(path, draw_path(stream)),
        12 => TreeStep::Symlink(path, draw_path(stream)),
        13 => TreeStep::Mode(path, stream.below(0o1000) as u32 | 0o600),
        14 => {
            let (offset, length) = (stream.below(50_000), 1 + stream.below(20_000));
            TreeStep::Allocate { path, offset, length }
        }
        _ => TreeStep::List(path),
    }
}

/// Does a step below `root`; what it answers.
fn run(root: &Path, step: &TreeStep) -> io::Result<Vec<u8>> {
    let at = |path: &PathBuf| root.join(path);
    let write =
        |path: &PathBuf| OpenOptions::new().write(true).create(true).truncate(false).open(at(path));
    match step {
        TreeStep::Write { path, offset, bytes } => write(path)?.write_all_at(bytes, *offset)?,
        TreeStep::Append { path, bytes } => {
            OpenOptions::new().append(true).create(true).open(at(path))?.write_all(bytes)?;
        }
        TreeStep::Cut { path, size } => write(path)?.set_len(*size)?,
        TreeStep::Read { path, offset, length } => {
            let mut bytes = vec![0; *length];
            let count = File::open(at(path))?.read_at(&mut bytes, *offset)?;
            bytes.truncate(count);
            return Ok(bytes);
        }
        TreeStep::MakeDirectory(path) => fs::create_dir(at(path))?,
        TreeStep::RemoveFile(path) => fs::remove_file(at(path))?,
        TreeStep::RemoveDirectory(path) => fs::remove_dir(at(path))?,
        TreeStep::Rename(from, to) => fs::rename(at(from), at(to))?,
        TreeStep::Link(from, to) => fs::hard_link(at(from), at(to))?,
        TreeStep::Symlink(target, path) => symlink(target, at(path))?,
        TreeStep::Mode(path, mode) => {
            fs::set_permissions(at(path), fs::Permissions::from_mode(*mode))?
        }
        TreeStep::Allocate { path, offset, length } => {
            let flags = rustix::fs::FallocateFlags::empty();
            rustix::fs::fallocate(write(path)?, flags, *offset, *length)?;
        }
        TreeStep::List(path) => {
            let mut names: Vec<String> = fs::read_dir(at(path))?
                .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
                .collect::<io::Result<_>>()?;
            names.sort();
            return Ok(names.join(" ").into_bytes());
        }
    }
    Ok(Vec::new())
}

/// Returns everything below `root`: what it is, its mode, its names, its bytes.
fn everything(root: &Path) -> BTreeMap<PathBuf, (u32, u64, Vec<u8>)> {
    let (mut found, mut left) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            let metadata = fs::symlink_metadata(&path).expect("there");
            let bytes = if metadata.is_dir() {
                left.push(path.clone());
                Vec::new()
            } else if metadata.is_symlink() {
                fs::read_link(&path).expect("a link").into_os_string().into_encoded_bytes()
            } else {
                assert_eq!(fs::read(&path).expect("read").len() as u64, metadata.len());
                fs::read(&path).expect("read")
            };
            let inside = path.strip_prefix(root).expect("inside").to_owned();
            found.insert(inside, (metadata.mode(), metadata.nlink(), bytes));
        }
    }
    found
}

fn compare(mounted: &Path, other: &Path, when: &str) {
    let (found, expected) = (everything(mounted), everything(other));
    let names = |all: &BTreeMap<PathBuf, _>| all.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&found), names(&expected), "{when}");
    for (path, node) in &found {
        assert!(*node == expected[path], "{when}: {}", path.display());
    }
}

#[test]
fn mount__random_operations_have_the_answers_of_another_file_system() {
    let Some(mut place) = StagingPlace::new() else { return };
    let shared = Path::new("/dev/shm");
    let base = if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() };
    let other = base.join(format!("clearway-differential-{}", std::process::id()));
    for seed in 0..3 {
        let _ = fs::remove_dir_all(&other);
        fs::create_dir_all(&other).expect("a directory");
        let _ = fs::remove_dir_all(place.path("log"));
        fs::remove_dir_all(place.path("store")).expect("removed");
        fs::create_dir(place.path("store")).expect("a directory");
        if !place.mount(&[]) {
            break;
        }
        let mounted = place.path("mnt");
        let mut stream = RandomKey::new(seed).purpose("operations on two file systems").stream();
        for number in 0..STEPS {
            let step = draw(&mut stream);
            let (found, expected) = (run(&mounted, &step), run(&other, &step));
            let [found, expected] =
                [found, expected].map(|outcome| outcome.map_err(|why| why.raw_os_error()));
            assert!(
                found == expected,
                "seed {seed}, step {number}: {step:?}: {:?} {:?}",
                found.err(),
                expected.err()
            );
            if number == STEPS / 2 {
                staged(&["wait"], &[&mounted]);
                place.kill();
                assert!(place.mount(&[]));
            }
            if number % 100 == 99 {
                compare(&mounted, &other, &format!("seed {seed}, step {number}"));
            }
        }
        assert_same(&place);
        place.umount();
    }
    let _ = fs::remove_dir_all(&other);
}
