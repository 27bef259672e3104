//! `clearway mount` on a store that hangs: another mount, whose process is stopped, is its disk.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, symlink};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::drained::{assert_same, count, explicit, status};
use super::{PROGRAM, StagingPlace, staged};
use crate::waiting::comes;

/// Files of a set that is published.
const FILES: u8 = 8;
/// Sets that are published while the mount is killed.
const ROUNDS: u8 = 6;

/// A mount whose store lies on another one; dropped in this order.
struct HungStore {
    place: StagingPlace,
    disk: StagingPlace,
}

impl HungStore {
    /// Mounts both; none where nothing can be mounted.
    fn new(more: &[&str]) -> Option<Self> {
        let mut disk = StagingPlace::new()?;
        if !disk.mount(&[]) {
            return None;
        }
        let mut place = StagingPlace::new()?;
        fs::create_dir(disk.on_mount("store")).expect("made");
        fs::remove_dir(place.path("store")).expect("empty");
        symlink(disk.on_mount("store"), place.path("store")).expect("made");
        assert!(place.mount(more));
        fs::write(place.on_mount("first"), "one").expect("written");
        staged(&["wait", "--until", "stored"], &[&place.path("mnt")]);
        Some(Self { place, disk })
    }

    /// Stops the disk, or lets it go on.
    fn signal(&self, signal: Signal) {
        let process = self.disk.process.expect("a mount");
        kill(Pid::from_raw(process as i32), signal).expect("sent");
    }

    fn umount(mut self) {
        self.place.umount();
        self.disk.umount();
    }
}

#[test]
fn umount__force_ends_a_mount_whose_process_is_stopped() {
    let Some(mut place) = StagingPlace::new() else { return };
    if !place.mount(&[]) {
        return;
    }
    fs::create_dir(place.on_mount("directory")).expect("made");
    fs::write(place.on_mount("kept"), "kept").expect("written");
    let umount = |path: &std::path::Path, user: Option<u32>| {
        let mut command = Command::new(PROGRAM);
        command.args(["umount", "--force"]).arg(path).current_dir("/");
        if let Some(user) = user {
            std::os::unix::process::CommandExt::uid(&mut command, user);
        }
        let output = command.output().expect("the program");
        (output.status.code(), super::error_of(&output))
    };
    let process = Pid::from_raw(place.process.expect("a mount") as i32);
    let point = place.path("mnt").display().to_string();
    let (status, said) = umount(&place.on_mount("directory"), None);
    assert_eq!((status, said.trim_end().lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains(&format!("`clearway umount --force {point}`")), "{said}");
    kill(process, Signal::SIGSTOP).expect("sent");
    let mut asking = Command::new(PROGRAM);
    asking.args(["stage", "status"]).arg(place.path("mnt")).stderr(Stdio::piped());
    let mut asking = asking.spawn().expect("the program");
    let mut waiting = Command::new("stat").arg(place.on_mount("other")).spawn().expect("stat");
    if nix::unistd::geteuid().is_root() {
        let (status, said) = umount(&place.path("mnt"), Some(65534));
        assert_eq!((status, said.trim_end().lines().count()), (Some(1), 1), "{said}");
        let words = ["only root and the user of the mount", "repeat the command as root"];
        assert!(words.iter().any(|words| said.contains(words)), "{said}");
    }
    let mut hint = String::new();
    let output = asking.stderr.take().expect("piped");
    BufReader::new(output).read_line(&mut hint).expect("a line");
    assert!(hint.contains("does not answer yet; `clearway umount --force`"), "{hint}");
    // Through a link, which is no reason to ask the process.
    symlink(place.path("mnt"), place.path("link")).expect("a link");
    let (status, said) = umount(&place.path("link"), None);
    if said.contains("the kernel shows no connection") {
        kill(process, Signal::SIGCONT).expect("sent");
        waiting.wait().expect("an end");
        asking.wait().expect("an end");
        place.umount();
        return eprintln!("skipped: {}", said.trim());
    }
    assert_eq!((status, said.trim_end().lines().count()), (Some(0), 1), "{said}");
    assert!(!waiting.wait().expect("an end").success(), "who waits gets an error");
    assert!(!asking.wait().expect("an end").success());
    assert_eq!(fs::read_dir(place.path("mnt")).expect("there").count(), 0, "unmounted");
    kill(process, Signal::SIGCONT).expect("sent");
    place.wait_until_closed();
    assert!(place.mount(&[]));
    assert_eq!(fs::read_to_string(place.on_mount("kept")).expect("kept"), "kept");
    place.umount();
}

#[test]
fn drain__a_store_that_hangs_delays_no_write_and_the_drain_continues_after_it() {
    let Some(hung) = HungStore::new(&["--store-timeout", "1"]) else { return };
    let place = &hung.place;
    hung.signal(Signal::SIGSTOP);
    // Each of these ends while the disk of the store does nothing.
    for file in 0..20 {
        fs::write(place.on_mount(&format!("{file}")), vec![file; 100_000]).expect("written");
    }
    fs::create_dir(place.on_mount("directory")).expect("made");
    fs::rename(place.on_mount("0"), place.on_mount("directory/zero")).expect("renamed");
    staged(&["wait"], &[&place.path("mnt")]);
    assert!(comes(|| status(place)["drain"] == "parked"));
    let shown = staged(&["status"], &[&place.path("mnt")]);
    assert!(shown.contains("drain    makes no progress, "), "{shown}");
    assert_eq!(fs::read(place.on_mount("7")).expect("read"), vec![7; 100_000]);
    hung.signal(Signal::SIGCONT);
    assert_same(place);
    let said = || fs::read_to_string(place.path("log/mount.log")).expect("a log of the mount");
    assert!(comes(|| said().contains("the store works again")), "{}", said());
    // A busy machine can seem to hang again; each time is said once.
    let said = said();
    let hangs = said.lines().filter_map(|line| {
        let is_begin = line.contains("the store makes no progress");
        (is_begin || line.contains("the store works again")).then_some(is_begin)
    });
    assert!(hangs.enumerate().all(|(at, is_begin)| is_begin == (at % 2 == 0)), "{said}");
    hung.umount();
}

#[test]
fn drain__files_that_are_asked_for_come_before_others() {
    let Some(hung) = HungStore::new(&[]) else { return };
    let place = &hung.place;
    hung.signal(Signal::SIGSTOP);
    for file in 0..40 {
        fs::write(place.on_mount(&format!("{file:02}")), vec![file; 10_000]).expect("written");
    }
    staged(&["drain"], &[&place.on_mount("38"), &place.on_mount("39")]);
    hung.signal(Signal::SIGCONT);
    assert_same(place);
    // The disk of the store numbers its files in the order in which they were made.
    let number = |file: u32| {
        let object = fs::metadata(place.path("store").join(format!("{file:02}")));
        (object.expect("there").ino(), file)
    };
    let mut order: Vec<(u64, u32)> = (0..40).map(number).collect();
    order.sort_unstable();
    let order: Vec<u32> = order.into_iter().map(|(_, file)| file).collect();
    let place_of = |file| order.iter().position(|other| *other == file).expect("there");
    // Four copies were under way when they were asked for.
    assert!(place_of(38) < 8 && place_of(39) < 8, "{order:?}");
    hung.umount();
}

/// Starts `stage publish` of a set of files of which the store has none yet.
fn publish(hung: &HungStore, name: &str) -> Child {
    let set = explicit(&hung.place, name);
    for file in 0..FILES {
        fs::write(set.join(file.to_string()), vec![file; 30_000]).expect("written");
    }
    let mut command = Command::new(PROGRAM);
    command.args(["stage", "publish"]).arg(&set).stderr(Stdio::piped());
    command.spawn().expect("the program")
}

#[test]
fn publish__while_the_store_hangs_it_waits_and_then_the_set_is_whole() {
    let Some(hung) = HungStore::new(&["--store-timeout", "1"]) else { return };
    hung.signal(Signal::SIGSTOP);
    let mut publisher = publish(&hung, "set");
    let mut said = String::new();
    let error = publisher.stderr.as_mut().expect("piped");
    BufReader::new(error).read_line(&mut said).expect("read");
    assert!(said.contains("the store makes no progress"), "{said}");
    assert!(publisher.try_wait().expect("asked").is_none());
    hung.signal(Signal::SIGCONT);
    assert!(publisher.wait().expect("an end").success());
    assert_eq!(count(&hung.place.path("store/set")), usize::from(FILES));
    assert_same(&hung.place);
    hung.umount();
}

#[test]
fn publish__a_mount_that_is_killed_while_the_store_hangs_leaves_all_of_a_set_or_nothing() {
    let Some(mut hung) = HungStore::new(&["--store-timeout", "1"]) else { return };
    for round in 0..ROUNDS {
        let name = format!("set-{round}");
        let stored = hung.place.path("store").join(&name);
        let mut publisher = publish(&hung, &name);
        // The store hangs before the set is there, when some names of it are, or behind it.
        let names = usize::from(round) * 2;
        comes(|| count(&stored) >= names.min(usize::from(FILES)));
        hung.signal(Signal::SIGSTOP);
        hung.place.kill();
        let is_acknowledged = publisher.wait().expect("an end").success();
        hung.signal(Signal::SIGCONT);
        let seen = count(&stored);
        assert!(hung.place.mount(&["--store-timeout", "1"]));
        fs::write(hung.place.on_mount("after"), [round]).expect("written");
        staged(&["wait", "--until", "stored"], &[&hung.place.on_mount("after")]);
        let files = usize::from(FILES);
        assert!(comes(|| [0, files].contains(&count(&stored))), "round {round}: {seen}");
        if seen > 0 || is_acknowledged {
            assert!(comes(|| count(&stored) == files), "round {round}: {seen} were there");
        }
        staged(&["publish"], &[&hung.place.on_mount(&name)]);
        assert_eq!(count(&stored), files, "round {round}");
        assert_same(&hung.place);
    }
    hung.umount();
}

#[test]
fn warm__a_file_that_was_read_into_memory_is_there_while_the_store_hangs() {
    let Some(mut hung) = HungStore::new(&[]) else { return };
    let bytes: Vec<u8> = (0..20_000_000_u32).map(|at| (at % 251) as u8).collect();
    let place = &hung.place;
    fs::create_dir_all(place.on_mount("set/below")).expect("made");
    fs::write(place.on_mount("set/large"), &bytes).expect("written");
    fs::write(place.on_mount("set/below/small"), &bytes[..30_000]).expect("written");
    fs::write(place.on_mount("other"), &bytes[..3_000_000]).expect("written");
    symlink("set", place.on_mount("latest")).expect("made");
    assert_same(place);
    // The pages of another mount are gone with it.
    hung.place.umount();
    assert!(hung.place.mount(&[]));
    let place = &hung.place;
    let said = staged(&["warm"], &[&place.on_mount("latest"), &place.on_mount("set/large")]);
    assert!(said.starts_with("read     20030000 B of 2 files in "), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    hung.signal(Signal::SIGSTOP);
    assert!(fs::read(place.on_mount("set/large")).expect("read") == bytes);
    assert!(fs::read(place.on_mount("set/below/small")).expect("read") == bytes[..30_000]);
    // Files that lie in the log are fast.
    fs::write(place.on_mount("new"), &bytes[..5000]).expect("written");
    hung.signal(Signal::SIGCONT);
    let said = staged(&["warm", "--limit", "1MiB"], &[&place.path("mnt")]);
    assert!(said.contains("\nleft out "), "{said}");
    hung.umount();
}
