//! `clearway mount` on a store that hangs: another mount, whose process is stopped, is its disk.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::drained::{assert_same, comes, status};
use super::{StagingPlace, staged};

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
fn drain__a_store_that_hangs_delays_no_write_and_the_drain_continues_after_it() {
    let Some(hung) = HungStore::new(&["--store-patience", "1"]) else { return };
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
    assert!(shown.contains(": makes no progress, "), "{shown}");
    assert_eq!(fs::read(place.on_mount("7")).expect("read"), vec![7; 100_000]);
    hung.signal(Signal::SIGCONT);
    assert_same(place);
    let said = || fs::read_to_string(place.path("log/mount.log")).expect("a log of the mount");
    assert_eq!(said().matches("the store makes no progress").count(), 1, "{}", said());
    assert!(comes(|| said().contains("the store works again")), "{}", said());
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
