//! `clearway stage serve` and mounts of it: what one mount writes another reads, a server that is killed
//! loses nothing that was acknowledged, and who is refused reads why.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::channel;

use super::drained::status;
use super::{PROGRAM, StagingPlace, error_of, staged};
use crate::scraped::{Scraped, address};
use crate::virtual_hosts::VirtualHosts;
use crate::waiting::comes;

/// A server with its log and store, and mount points.
pub(super) struct ServedPlace {
    pub(super) place: StagingPlace,
    server: Option<Child>,
    /// Options of the server next to those of all.
    options: Vec<String>,
    /// Where the server drains to.
    store: PathBuf,
    /// Where it listens, once it was started.
    pub(super) address: String,
    /// Where its metrics are.
    metrics: String,
    /// The hosts of the server and of the mounts, if they have one each.
    hosts: Option<VirtualHosts>,
}

/// Where the server is, and the mounts `mnt` and `other`.
const SERVER_HOST: &str = "h0";
const SERVER_ADDRESS: &str = "10.77.0.1:27183";
const MOUNT_HOSTS: [(&str, &str); 2] = [("mnt", "h1"), ("other", "h2")];

impl ServedPlace {
    /// Starts a server; `None`, and says why, where nothing can be mounted.
    pub(super) fn new() -> Option<Self> {
        Self::with_options(Vec::new())
    }

    /// Does the same with more options.
    pub(super) fn with_options(options: Vec<String>) -> Option<Self> {
        let mut served = Self::without_server(options)?;
        served.start();
        Some(served)
    }

    fn without_server(options: Vec<String>) -> Option<Self> {
        let place = StagingPlace::new()?;
        fs::create_dir(place.path("other")).expect("a directory");
        for name in ["key", "wrong"] {
            let key = place.path(name);
            fs::write(&key, format!("a key of more than sixteen bytes: {name}")).expect("written");
            fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("set");
        }
        let (address, metrics) = ("127.0.0.1:0".to_owned(), String::new());
        let store = place.path("store");
        Some(Self { place, server: None, options, store, address, metrics, hosts: None })
    }

    /// Starts two servers that share a store.
    pub(super) fn pair() -> Option<[Self; 2]> {
        let shared = || vec!["--shared-store".to_owned()];
        let mut first = Self::without_server(shared())?;
        let mut second = Self::without_server(shared())?;
        second.store.clone_from(&first.store);
        first.start();
        second.start();
        Some([first, second])
    }

    /// Starts a server on a host of its own, with another host for each mount.
    pub(super) fn apart() -> Option<Self> {
        let mut served = Self::without_server(Vec::new())?;
        served.hosts = Some(VirtualHosts::new(3, &["nft", "bash"])?);
        served.address = SERVER_ADDRESS.to_owned();
        served.start();
        Some(served)
    }

    /// Returns the hosts of [`Self::apart`].
    pub(super) fn hosts(&self) -> &VirtualHosts {
        self.hosts.as_ref().expect("made apart")
    }

    /// Returns the program on a host.
    fn program(&self, host: &str) -> Command {
        match &self.hosts {
            Some(hosts) => hosts.program(host, PROGRAM),
            None => Command::new(PROGRAM),
        }
    }

    /// Returns the host of a mount.
    fn host_of(directory: &str) -> &'static str {
        MOUNT_HOSTS.iter().find(|(name, _)| *name == directory).expect("a mount").1
    }

    fn serve(&self) -> Command {
        let mut command = self.program(SERVER_HOST);
        command.args(["stage", "serve", "--size", "128MiB", "--listen", &self.address]);
        command.args(["--metrics", "127.0.0.1:0"]);
        command.arg("--data").arg(self.place.path("log"));
        command.arg("--backing").arg(&self.store);
        command.arg("--key").arg(self.place.path("key")).args(&self.options);
        command
    }

    pub(super) fn start(&mut self) {
        let mut server = self.serve().stderr(Stdio::piped()).spawn().expect("the program");
        let mut lines = BufReader::new(server.stderr.take().expect("piped")).lines();
        let serving = lines.by_ref().map_while(Result::ok).find(|line| line.contains(" at "));
        let serving = serving.expect("a server that says where it is");
        self.address = serving.rsplit(' ').next().expect("a word").to_owned();
        let metrics = lines.by_ref().map_while(Result::ok).find_map(|line| address(&line));
        self.metrics = metrics.expect("a server that says where its metrics are");
        // Its sentences must find a reader.
        std::thread::spawn(move || lines.count());
        self.server = Some(server);
    }

    pub(super) fn kill(&mut self) {
        let mut server = self.server.take().expect("a server");
        kill_on_host(server.id());
        server.wait().expect("ended");
    }

    fn try_mount(&self, directory: &str, key: &str, tree: &str) -> Output {
        self.try_mount_of(&format!("{}{tree}", self.address), directory, key)
    }

    /// Mounts what `served` names.
    pub(super) fn try_mount_of(&self, served: &str, directory: &str, key: &str) -> Output {
        let mut command = self.program(Self::host_of(directory));
        command.args(["mount", served]).arg(self.place.path(directory));
        command.arg("--key").arg(self.place.path(key)).output().expect("the program")
    }

    /// Mounts; `false`, and says why, where the kernel does not let this user.
    pub(super) fn mount(&self, directory: &str, tree: &str) -> bool {
        let output = self.try_mount(directory, "key", tree);
        let said = error_of(&output);
        if !output.status.success() && said.contains("Operation not permitted") {
            eprintln!("skipped: {}", said.trim());
            return false;
        }
        assert!(output.status.success(), "{said}");
        true
    }

    /// Returns the process of a mount.
    pub(super) fn mount_process(&self, directory: &str) -> nix::unistd::Pid {
        let status = staged(&["status", "--json"], &[&self.place.path(directory)]);
        let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
        nix::unistd::Pid::from_raw(status["process"].as_u64().expect("a number") as i32)
    }

    pub(super) fn umount(&self, directory: &str) {
        let mut command = Command::new(PROGRAM);
        let output = command.arg("umount").arg(self.place.path(directory)).output();
        let output = output.expect("the program");
        assert!(output.status.success(), "{}", error_of(&output));
    }
}

impl Drop for ServedPlace {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            kill_on_host(server.id());
            let _ = server.wait();
        }
        for directory in ["mnt", "other"] {
            let mount = self.place.path(directory);
            let _ = nix::mount::umount2(&mount, nix::mount::MntFlags::MNT_DETACH);
            let _ = Command::new("fusermount3").args(["-uzq", "--"]).arg(&mount).output();
        }
    }
}

/// Kills a program that [`ServedPlace::program`] started: on a host it is a child of the command that
/// went there.
fn kill_on_host(process: u32) {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    let children = children.unwrap_or_default();
    let programs = children.split_whitespace().filter_map(|child| child.parse().ok());
    for program in programs.chain(std::iter::once(process as i32)) {
        let program = nix::unistd::Pid::from_raw(program);
        let _ = nix::sys::signal::kill(program, nix::sys::signal::Signal::SIGKILL);
    }
}

#[test]
fn serve__what_one_mount_closes_another_sees_and_the_store_gets() {
    let Some(served) = ServedPlace::new() else { return };
    if !served.mount("mnt", "") {
        return;
    }
    let (one, other) = (served.place.path("mnt"), served.place.path("other"));
    fs::create_dir(one.join("sub")).expect("made");
    assert!(served.mount("other", ":/sub"));
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at / 11) as u8).collect();
    fs::write(one.join("sub/file"), &bytes).expect("written");
    assert!(fs::read(other.join("file")).expect("read") == bytes);
    let file = File::options().write(true).open(other.join("file")).expect("opened");
    file.write_all_at(b"from the other mount", 1_000_000).expect("written");
    drop(file);
    let again = fs::read(one.join("sub/file")).expect("read");
    assert_eq!(&again[1_000_000..1_000_020], b"from the other mount");
    fs::rename(other.join("file"), other.join("renamed")).expect("renamed");
    std::os::unix::fs::symlink("renamed", other.join("link")).expect("made");
    for number in 0..600 {
        fs::write(other.join(format!("small-{number}")), format!("{number}")).expect("written");
    }
    assert_eq!(fs::read_dir(one.join("sub")).expect("listed").count(), 602);
    let listed = staged(&["ls"], &[&other]);
    assert!(listed.contains("renamed") && !listed.contains("sub"), "{listed}");
    staged(&["wait", "--until", "stored"], &[&one]);
    assert!(fs::read(served.place.path("store/sub/renamed")).expect("in the store") == again);
    let status = staged(&["status", "--json"], &[&other]);
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    assert_eq!(status["server"], served.address);
    assert_eq!(status["mounted_on"], other.canonicalize().expect("there").to_str().expect("text"));
    let scraped = Scraped::from_address(&served.metrics).expect("a server");
    scraped.is_accepted();
    assert_eq!(scraped.get("stage_serve_clients"), 2.0);
    assert!(scraped.get("staging_drained_files_total") >= 600.0);
    served.umount("other");
    served.umount("mnt");
    assert_eq!(fs::read_dir(&one).expect("empty").count(), 0);
}

#[test]
fn warm__what_a_client_has_read_into_memory_it_does_not_ask_the_server_for() {
    let Some(served) = ServedPlace::new() else { return };
    if !served.mount("mnt", "") {
        return;
    }
    let bytes: Vec<u8> = (0..20_000_000_u32).map(|at| (at / 11) as u8).collect();
    fs::create_dir(served.place.on_mount("sub")).expect("made");
    fs::write(served.place.on_mount("sub/file"), &bytes).expect("written");
    staged(&["wait", "--until", "stored"], &[&served.place.path("mnt")]);
    assert!(served.mount("other", ":/sub"));
    let other = served.place.path("other");
    staged(&["warm"], &[&other]);
    let read = || {
        let status = staged(&["status", "--json"], &[&other]);
        let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
        status["read_bytes"].as_u64().expect("a number")
    };
    let (before, length) = (read(), bytes.len() as u64);
    assert!(before >= length, "{before}");
    assert!(fs::read(other.join("file")).expect("read") == bytes);
    // The kernel may still read ahead some pages a second time.
    let after = read();
    assert!(after - before < length / 10, "{before} and {after}");
    // Another mount changes it: the next reader sees that.
    let file = File::options().write(true).open(served.place.on_mount("sub/file"));
    file.and_then(|file| file.write_all_at(b"changed", 5000)).expect("written");
    assert_eq!(&fs::read(other.join("file")).expect("read")[5000..5007], b"changed");
    served.umount("other");
    served.umount("mnt");
}

#[test]
fn umount__by_force_it_ends_programs_that_wait_for_a_server_that_is_lost() {
    let Some(mut served) = ServedPlace::new() else { return };
    if !served.mount("mnt", "") || !served.mount("other", "") {
        return;
    }
    fs::write(served.place.path("other/file"), vec![7; 100_000]).expect("written");
    served.umount("other");
    // It has the file open, and none of its pages.
    let mut reader = Command::new("sh");
    reader.args(["-c", "exec 3<\"$1\"; echo open; read go; exec cat <&3", "sh"]);
    reader.arg(served.place.on_mount("file")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut reader = reader.stderr(Stdio::null()).spawn().expect("a shell");
    let mut output = BufReader::new(reader.stdout.take().expect("piped")).lines();
    assert_eq!(output.next().and_then(Result::ok).as_deref(), Some("open"));
    served.kill();
    let mut input = reader.stdin.take().expect("piped");
    std::io::Write::write_all(&mut input, b"go\n").expect("a reader");
    let mount = served.place.path("mnt");
    let forced = Command::new(PROGRAM).args(["umount", "--force"]).arg(&mount).output();
    let forced = forced.expect("the program");
    assert!(forced.status.success(), "{}", error_of(&forced));
    assert!(!reader.wait().expect("ended").success());
    assert_eq!(output.count(), 0);
    let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
    assert!(!mounts.contains(mount.to_str().expect("text")), "{mounts}");
}

/// Where [`part__played_by_a_writer`] writes.
const WRITES: &str = "CLEARWAY_TEST_WRITES";

/// A process that writes files until it is stopped.
///
/// It is no thread of this process: a command that is started here inherits all open files, and closes
/// them before it runs. If the server of such a file is away, that waits for the server, which may be
/// just what the command would bring back.
pub(super) struct FileWriter {
    process: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl FileWriter {
    pub(super) fn start(directory: &Path) -> Self {
        let own = std::env::current_exe().expect("the path of this program");
        let mut command = Command::new(own);
        command.args(["--exact", "staging::served::part__played_by_a_writer", "--nocapture"]);
        command.env(WRITES, directory).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("this program again");
        let lines = BufReader::new(process.stdout.take().expect("piped")).lines();
        Self { process, lines }
    }

    /// Waits until it begins with another file.
    pub(super) fn wait_for_file(&mut self) {
        let mut lines = self.lines.by_ref().map_while(Result::ok);
        assert!(lines.any(|line| line.ends_with("another file")), "the writer has ended");
    }

    /// Stops it; returns how many files there are.
    pub(super) fn stop(mut self) -> u64 {
        drop(self.process.stdin.take());
        let lines = self.lines.map_while(Result::ok);
        let begun = lines.filter_map(|line| line.strip_suffix(" files")?.parse().ok()).last();
        assert!(self.process.wait().expect("ended").success(), "a write failed");
        begun.expect("a number of files")
    }
}

#[test]
fn part__played_by_a_writer() {
    let Some(directory) = std::env::var_os(WRITES) else { return };
    let directory = Path::new(&directory);
    let (stop, stopped) = channel::<()>();
    std::thread::spawn(move || {
        let _ = std::io::stdin().lines().count();
        drop(stop);
    });
    let log = File::options().create(true).append(true).open(directory.join("log")).expect("made");
    let mut number = 0;
    while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
        println!("another file");
        let name = |what: &str| directory.join(format!("{what}-{number}"));
        let bytes = vec![number as u8; 100_000];
        fs::write(name("new"), &bytes).expect("written and closed");
        fs::rename(name("new"), name("file")).expect("renamed");
        std::io::Write::write_all(&mut &log, &[number as u8; 100]).expect("appended");
        log.sync_all().expect("synced");
        number += 1;
    }
    println!("{number} files");
}

#[test]
fn create__a_name_that_another_mount_made_meanwhile_is_opened_unless_it_must_be_new() {
    let Some(served) = ServedPlace::new() else { return };
    if !served.mount("mnt", "") || !served.mount("other", "") {
        return;
    }
    for number in 0..20 {
        let name = format!("file-{number}");
        let (here, there) = (served.place.on_mount(&name), served.place.path("other").join(&name));
        // The kernel remembers that there is none.
        assert!(!here.exists());
        fs::write(&there, b"theirs").expect("made");
        if number % 2 == 0 {
            fs::write(&here, b"ours").expect("opened and cut");
            assert_eq!(fs::read(&here).expect("read"), b"ours");
        } else {
            let refused = File::create_new(&here).expect_err("it is there");
            assert_eq!(refused.kind(), std::io::ErrorKind::AlreadyExists);
        }
    }
    served.umount("mnt");
    served.umount("other");
}

/// Checks that what a [`FileWriter`] wrote is in a directory, and nothing else.
pub(super) fn check_files(directory: &Path, count: u64) {
    let log = fs::read(directory.join("log")).expect("read");
    let expected: Vec<u8> = (0..count).flat_map(|number| [number as u8; 100]).collect();
    assert!(log == expected, "{} bytes of {count} files", log.len());
    for number in 0..count {
        let bytes = fs::read(directory.join(format!("file-{number}"))).expect("read");
        assert!(bytes == vec![number as u8; 100_000], "file {number}");
    }
    assert_eq!(fs::read_dir(directory).expect("listed").count() as u64, count + 1);
}

#[test]
fn serve__a_server_that_is_killed_loses_nothing_and_its_mounts_go_on() {
    let Some(mut served) = ServedPlace::new() else { return };
    if !served.mount("mnt", "") {
        return;
    }
    let directory = served.place.path("mnt");
    let unlinked = File::create_new(directory.join("unlinked")).expect("made");
    unlinked.write_all_at(b"still here", 0).expect("written");
    fs::remove_file(directory.join("unlinked")).expect("removed");
    let mut writer = FileWriter::start(&directory);
    for round in 0..8 {
        (0..=round).for_each(|_| writer.wait_for_file());
        served.kill();
        served.start();
    }
    let count = writer.stop();
    assert!(count >= 8, "{count} files");
    let mut bytes = [0; 10];
    unlinked.read_exact_at(&mut bytes, 0).expect("a file without a name");
    assert_eq!(&bytes, b"still here");
    drop(unlinked);
    served.umount("mnt");
    served.kill();
    served.start();
    assert!(served.mount("other", ""));
    let directory = served.place.path("other");
    check_files(&directory, count);
    served.umount("other");
}

#[test]
fn serve__a_mount_that_is_killed_loses_no_more_than_what_was_not_synced() {
    let Some(served) = ServedPlace::new() else { return };
    if !served.mount("mnt", "") {
        return;
    }
    let directory = served.place.path("mnt");
    for number in 0..20_u8 {
        let path = directory.join(format!("file-{number}"));
        fs::write(&path, vec![number; 50_000]).expect("written and closed");
        fs::rename(&path, directory.join(format!("renamed-{number}"))).expect("renamed");
    }
    let open = File::create(directory.join("open")).expect("made");
    open.write_all_at(&[1; 5000], 0).expect("written");
    open.sync_all().expect("synced");
    open.write_all_at(&[2; 5000], 0).expect("written");
    let process = served.mount_process("mnt");
    nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGKILL).expect("killed");
    drop(open);
    assert!(served.mount("other", ""));
    let other = served.place.path("other");
    for number in 0..20_u8 {
        let bytes = fs::read(other.join(format!("renamed-{number}"))).expect("read");
        assert!(bytes == [number; 50_000], "file {number}");
    }
    let bytes = fs::read(other.join("open")).expect("read");
    assert!(bytes == [1; 5000] || bytes == [2; 5000], "one of both writes");
    served.umount("other");
}

/// Writes this many MiB to a new file of a user, and syncs it.
fn write_owned(path: &Path, uid: u32, mib: usize) -> std::io::Result<()> {
    let file = File::create(path)?;
    std::os::unix::fs::fchown(&file, Some(uid), None)?;
    (0..mib).try_for_each(|at| file.write_all_at(&vec![uid as u8; 1 << 20], (at as u64) << 20))?;
    file.sync_all()
}

#[test]
fn quota__a_user_waits_for_the_drain_or_is_refused_and_others_are_not() {
    let quota = ["--user-quota", "8MiB"].map(str::to_owned).to_vec();
    let Some(served) = ServedPlace::with_options(quota) else { return };
    if !nix::unistd::geteuid().is_root() || !served.mount("mnt", "") || !served.mount("other", "") {
        return;
    }
    let place = &served.place;
    let on = |name: &str| place.on_mount(name);
    let other = |name: &str| place.path("other").join(name);
    // More than the quota: the drain makes space for it.
    write_owned(&on("drained"), 1001, 40).expect("written");
    staged(&["wait", "--until", "stored"], &[&place.path("mnt")]);
    // What the drain leaves out stays in the log.
    place.hide_store();
    write_owned(&on("kept"), 1001, 8).expect("written");
    staged(&["cancel"], &[&on("kept")]);
    place.show_store();
    assert!(comes(|| status(place)["drain"] == "idle"));
    let refused = write_owned(&on("more"), 1001, 1).expect_err("beyond the quota");
    assert_eq!(refused.raw_os_error(), Some(nix::errno::Errno::EDQUOT as i32), "{refused}");
    write_owned(&other("bob"), 1002, 7).expect("written");
    let found = status(place);
    assert_eq!(found["users"][0], serde_json::json!({ "uid": 1001, "log_bytes": 8 << 20 }));
    fs::remove_file(on("kept")).expect("removed");
    write_owned(&on("more"), 1001, 7).expect("written");
    served.umount("mnt");
    served.umount("other");
}

#[test]
fn serve__who_is_refused_reads_why() {
    let Some(mut served) = ServedPlace::new() else { return };
    let refused = |output: Output, words: &str| {
        let said = error_of(&output);
        assert!(!output.status.success() && said.contains(words), "{said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    };
    refused(served.try_mount("mnt", "wrong", ""), "does not know this key");
    refused(served.try_mount("mnt", "missing", ""), "cannot be read");
    let mut sized = Command::new(PROGRAM);
    sized.args(["mount", &served.address]).arg(served.place.path("mnt"));
    sized.arg("--key").arg(served.place.path("key")).args(["--store-timeout", "5"]);
    refused(
        sized.output().expect("the program"),
        "--store-timeout is for the log, which the server has",
    );
    let tree = served.try_mount("mnt", "key", ":/nowhere");
    if !error_of(&tree).contains("Operation not permitted") {
        refused(tree, "has no directory nowhere");
    }
    let second = served.serve().arg("--listen").arg("127.0.0.1:0").output();
    assert!(second.is_ok_and(|second| !second.status.success()));
    let mut again = served.serve();
    again.args(["--key"]).arg(served.place.path("key"));
    refused(again.output().expect("the program"), "two of the keys are the same");
    let mut open = served.serve();
    open.args(["--user-key"])
        .arg(format!("nobody-at-all:{}", served.place.path("wrong").display()));
    refused(open.output().expect("the program"), "there is no user nobody-at-all");
    served.kill();
    refused(served.try_mount("mnt", "key", ""), "no server answers at 127.0.0.1:");
}
