//! `clearway cast` between real processes on the loopback: what appears, what does not, and what is
//! said.

mod delete;
mod dry_run;
mod files;
mod metrics;
mod networks;
mod selection;
mod served;
mod strangers;
mod users;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::waiting::wait_until;

/// Slow enough that something can happen in the middle of a few MiB.
const SLOW: &str = "100Mb/s";
const MIB: usize = 1 << 20;
const PROGRAM: &str = env!("CARGO_BIN_EXE_clearway");

/// A directory with a key, a place for what is sent and one for each receiver; gone at the end,
/// with all that was started.
pub(crate) struct Ground {
    pub(crate) root: PathBuf,
    receivers: Vec<Receiver>,
}

struct Receiver {
    child: Child,
    address: String,
    directory: PathBuf,
}

impl Ground {
    pub(crate) fn new(name: &str, receivers: usize) -> Self {
        let root =
            std::env::temp_dir().join(format!("clearway-cast-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(root.join("from")).expect("a directory");
        fs::write(root.join("key"), [name.as_bytes(), b" has sixteen bytes"].concat())
            .expect("a key");
        fs::set_permissions(root.join("key"), fs::Permissions::from_mode(0o600)).expect("private");
        let mut ground = Self { root, receivers: Vec::new() };
        (0..receivers).for_each(|number| ground.receive_in(&format!("to{number}")));
        ground
    }

    /// One more receiver, that writes into `directory`.
    fn receive_in(&mut self, directory: &str) {
        let directory = self.root.join(directory);
        let receiver = Receiver::start(
            Command::new(PROGRAM),
            &self.root.join("key"),
            directory,
            "127.0.0.1:0",
        );
        self.receivers.push(receiver);
    }

    /// Starts receiver `number` again, at its port.
    fn again(&mut self, number: usize) {
        let Receiver { address, directory, .. } = &self.receivers[number];
        let (address, directory) = (address.clone(), directory.clone());
        self.receivers[number] =
            Receiver::start(Command::new(PROGRAM), &self.root.join("key"), directory, &address);
    }

    fn from(&self, name: &str) -> PathBuf {
        self.root.join("from").join(name)
    }

    /// The path of `name` at receiver `number`.
    pub(crate) fn at(&self, number: usize, name: &str) -> PathBuf {
        self.receivers[number].directory.join(name)
    }

    pub(crate) fn to(&self) -> String {
        let addresses: Vec<&str> =
            self.receivers.iter().map(|receiver| &receiver.address[..]).collect();
        addresses.join(",")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .arg("cast")
            .args(arguments)
            .args(["--to", &self.to(), "--key"])
            .arg(self.root.join("key"));
        command.env("XDG_STATE_HOME", self.root.join("state"));
        command.current_dir(self.root.join("from"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Bytes that the receivers say they have written.
    fn written(&self, arguments: &[&str]) -> Vec<u64> {
        let reported = self.cast(&[arguments, &["--json"]].concat());
        let summary: serde_json::Value =
            serde_json::from_str(&reported.text).expect(&reported.errors);
        let rows = summary["receivers"].as_array().expect("rows").iter();
        rows.map(|row| row["written"].as_u64().expect("a number")).collect()
    }

    /// A slow cast of `name`, once its first bytes are on the disk of receiver 0.
    fn begin(&self, name: &str) -> Child {
        let cast = self.command(&[name, "--rate", SLOW]).spawn().expect("the program");
        wait_until("the first bytes come", || {
            unfinished(&self.receivers[0].directory).is_some_and(|file| has_begun(&file))
        });
        cast
    }

    fn cast(&self, arguments: &[&str]) -> CastOutput {
        CastOutput::from_output(self.command(arguments).output().expect("the program"))
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        for receiver in &mut self.receivers {
            receiver.kill();
        }
        let _ = fs::remove_dir_all(&self.root);
    }
}

impl Receiver {
    fn start(mut command: Command, key: &Path, directory: PathBuf, listen: &str) -> Self {
        Self::prepare(&mut command, key, &directory, listen);
        Self::from_child(command.spawn().expect("the program"), directory)
    }

    fn prepare(command: &mut Command, key: &Path, directory: &Path, listen: &str) {
        command
            .args(["cast", "serve", "--listen", listen, "--key"])
            .arg(key)
            .arg("--into")
            .arg(directory);
        command.env("XDG_STATE_HOME", key.with_file_name("state")).stderr(Stdio::piped());
    }

    /// That of a process which has just been started.
    fn from_child(mut child: Child, directory: PathBuf) -> Self {
        let mut errors = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut line = String::new();
        errors.read_line(&mut line).expect("a line");
        let address = line
            .strip_prefix("listening at ")
            .and_then(|line| line.split(',').next())
            .expect(&line)
            .to_owned();
        std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
        Self { child, address, directory }
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a cast said.
struct CastOutput {
    status: i32,
    text: String,
    errors: String,
}

impl CastOutput {
    fn from_output(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let status = output.status.code().unwrap_or(-1);
        Self { status, text: text(output.stdout), errors: text(output.stderr) }
    }

    #[track_caller]
    fn expect(&self, status: i32, words: &str) {
        let said = format!("{}{}", self.text, self.errors);
        assert!(
            self.status == status && said.contains(words),
            "status {}, looking for `{words}` in:\n{said}",
            self.status
        );
    }
}

/// Bytes that repeat nowhere near.
fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut bytes: Vec<u8> = (0..length.div_ceil(8)).flat_map(|_| next()).collect();
    bytes.truncate(length);
    bytes
}

/// The file in a directory that is not whole.
fn unfinished(directory: &Path) -> Option<PathBuf> {
    let mut entries = fs::read_dir(directory).ok()?.filter_map(Result::ok);
    entries
        .find(|entry| entry.file_name().to_string_lossy().starts_with(".clearway-cast-"))
        .map(|entry| entry.path())
}

/// Whether its third block is there.
fn has_begun(file: &Path) -> bool {
    let mut byte = [0; 64];
    fs::File::open(file)
        .is_ok_and(|file| file.read_exact_at(&mut byte, 3 * MIB as u64 - 64).is_ok())
        && byte != [0; 64]
}

/// Names in a directory.
fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[track_caller]
fn assert_same(a: &Path, b: &Path) {
    let [a, b] = [a, b]
        .map(|path| fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())));
    assert!(a == b, "{} and {} bytes differ", a.len(), b.len());
}

#[test]
fn cast__a_file_is_everywhere_once_and_a_second_cast_sends_nothing() {
    let ground = Ground::new("file", 3);
    fs::write(ground.from("model"), noise(5 * MIB + 77, 1)).expect("written");
    fs::set_permissions(ground.from("model"), fs::Permissions::from_mode(0o640)).expect("set");
    ground.cast(&["model"]).expect(0, "3 of 3 have everything");
    for number in 0..3 {
        assert_same(&ground.from("model"), &ground.at(number, "model"));
        let [sent, there] = [ground.from("model"), ground.at(number, "model")]
            .map(|path| path.metadata().expect("there"));
        assert_eq!(
            (sent.mode(), sent.mtime(), sent.mtime_nsec()),
            (there.mode(), there.mtime(), there.mtime_nsec())
        );
        assert_eq!(names(&ground.receivers[number].directory), ["model"], "nothing else");
    }
    ground.cast(&["model"]).expect(0, "0 B cast");
    ground.cast(&["model", "--checksum"]).expect(0, "0 B cast");
}

#[test]
fn cast__a_tree_is_what_it_was() {
    let ground = Ground::new("tree", 2);
    let tree = ground.from("tree");
    fs::create_dir_all(tree.join("a/b")).expect("made");
    fs::create_dir_all(tree.join("empty")).expect("made");
    fs::write(tree.join("a/long"), noise(2 * MIB + 1, 2)).expect("written");
    fs::write(tree.join("a/b/\u{1b}[31m %41"), b"odd").expect("written");
    fs::write(tree.join("nothing"), b"").expect("written");
    for number in 0..300 {
        fs::write(tree.join(format!("empty/../a/b/{number}")), noise(number * 13, number as u64))
            .expect("written");
    }
    symlink("a/long", tree.join("link")).expect("a link");
    symlink("/nowhere/at/all", tree.join("dangling")).expect("a link");
    let sparse = fs::File::create(tree.join("sparse")).expect("made");
    sparse.set_len(40 * MIB as u64).expect("long");
    sparse.write_all_at(b"in the middle", 20 * MIB as u64 + 5).expect("written");
    fs::set_permissions(tree.join("a"), fs::Permissions::from_mode(0o750)).expect("set");
    ground.cast(&["tree"]).expect(0, "2 of 2 have everything");
    let diff = Command::new("diff")
        .arg("-r")
        .arg("--no-dereference")
        .arg(&tree)
        .arg(ground.at(1, "tree"))
        .output();
    let diff = diff.expect("diff");
    assert!(diff.status.success(), "{}", String::from_utf8_lossy(&diff.stdout));
    for name in ["tree", "tree/a", "tree/empty", "tree/nothing", "tree/sparse"] {
        let [sent, there] =
            [ground.from(name), ground.at(0, name)].map(|path| path.metadata().expect("there"));
        assert_eq!(
            (sent.mode(), sent.mtime(), sent.mtime_nsec()),
            (there.mode(), there.mtime(), there.mtime_nsec()),
            "{name}"
        );
    }
    let sparse = ground.at(0, "tree/sparse").metadata().expect("there");
    assert!(sparse.blocks() * 512 < MIB as u64, "{} sectors", sparse.blocks());
    assert_eq!(ground.written(&["tree"]), [0, 0]);
    ground.cast(&["tree/", "--into", "inside/of"]).expect(0, "2 of 2 have everything");
    assert_same(&tree.join("a/long"), &ground.at(1, "inside/of/a/long"));
}

#[test]
fn cast__only_blocks_that_differ_are_sent() {
    let ground = Ground::new("differs", 2);
    let mut bytes = noise(6 * MIB + 10, 3);
    fs::write(ground.from("model"), &bytes).expect("written");
    ground.cast(&["model"]).expect(0, "2 of 2");
    bytes[2 * MIB + 7] ^= 1;
    bytes.extend(noise(100, 4));
    fs::write(ground.from("model"), &bytes).expect("written");
    fs::write(ground.at(1, "model"), b"somebody changed it").expect("written");
    assert_eq!(ground.written(&["model"]), [MIB as u64 + 110, bytes.len() as u64]);
    (0..2).for_each(|number| assert_same(&ground.from("model"), &ground.at(number, "model")));
    let before = ground.at(0, "model").metadata().expect("there").ino();
    fs::File::open(ground.from("model"))
        .and_then(|file| file.set_modified(std::time::UNIX_EPOCH))
        .expect("set");
    assert_eq!(ground.written(&["model"]), [0, 0]);
    let there = ground.at(0, "model").metadata().expect("there");
    assert_eq!((there.mtime(), there.ino()), (0, before), "only its time changed");
}

#[test]
fn cast__a_stream_of_unknown_length() {
    let ground = Ground::new("stream", 2);
    for bytes in [noise(3 * MIB + 5, 5), noise(2 * MIB, 6), b"short".to_vec(), Vec::new()] {
        let length = bytes.len().to_string();
        let mut cast = ground
            .command(&["-", "--name", "s", "--expect-bytes", &length])
            .stdin(Stdio::piped())
            .spawn()
            .expect("the program");
        cast.stdin.take().expect("a pipe").write_all(&bytes).expect("taken");
        CastOutput::from_output(cast.wait_with_output().expect("it ends"))
            .expect(0, "2 of 2 have everything");
        (0..2)
            .for_each(|number| assert!(fs::read(ground.at(number, "s")).expect("there") == bytes));
    }
}

#[test]
fn cast__goes_on_where_a_killed_sender_ended() {
    let ground = Ground::new("sender", 2);
    let bytes = noise(24 * MIB, 7);
    fs::write(ground.from("model"), &bytes).expect("written");
    let mut cast = ground.begin("model");
    cast.kill().expect("killed");
    cast.wait().expect("ended");
    (0..2).for_each(|number| assert!(!ground.at(number, "model").exists()));
    let written = ground.written(&["model"]);
    assert!(written[0] > 0 && written[0] <= 21 * MIB as u64, "{written:?}");
    (0..2).for_each(|number| assert_same(&ground.from("model"), &ground.at(number, "model")));
    assert_eq!(names(&ground.receivers[1].directory), ["model"]);
}

#[test]
fn cast__others_go_on_without_a_killed_receiver_and_it_catches_up() {
    let mut ground = Ground::new("receiver", 3);
    fs::write(ground.from("model"), noise(24 * MIB, 8)).expect("written");
    let cast = ground.begin("model");
    ground.receivers[0].kill();
    let reported = CastOutput::from_output(cast.wait_with_output().expect("it ends"));
    reported.expect(1, "2 of 3 have everything");
    reported.expect(1, "lost");
    (1..3).for_each(|number| assert_same(&ground.from("model"), &ground.at(number, "model")));
    assert!(
        !ground.at(0, "model").exists() && unfinished(&ground.receivers[0].directory).is_some()
    );
    ground.again(0);
    let written = ground.written(&["model"]);
    assert!(written[0] <= 21 * MIB as u64 && written[1..] == [0, 0], "{written:?}");
    assert_same(&ground.from("model"), &ground.at(0, "model"));
}

#[test]
fn cast__a_file_that_changes_while_it_is_sent_appears_nowhere() {
    let ground = Ground::new("changes", 2);
    // More than is read ahead.
    fs::write(ground.from("model"), noise(48 * MIB, 9)).expect("written");
    let cast = ground.begin("model");
    fs::File::options()
        .append(true)
        .open(ground.from("model"))
        .and_then(|mut file| file.write_all(b"more"))
        .expect("longer");
    let reported = CastOutput::from_output(cast.wait_with_output().expect("it ends"));
    reported.expect(1, "not sent: model: it changed while it was sent");
    reported.expect(1, "2 of 2 have everything but what was not sent");
    (0..2).for_each(|number| assert!(!ground.at(number, "model").exists()));
}

/// The sender without the right to read what it has no permission for, which root has.
fn without_rights(cast: &Command) -> Option<Command> {
    if !nix::unistd::geteuid().is_root() {
        let mut same = Command::new(cast.get_program());
        same.args(cast.get_args()).current_dir(cast.get_current_dir()?);
        return Some(same);
    }
    let dropped = [
        "--bounding-set",
        "-dac_override,-dac_read_search",
        "--inh-caps",
        "-dac_override,-dac_read_search",
    ];
    if !Command::new("setpriv")
        .args(dropped)
        .arg("true")
        .status()
        .is_ok_and(|status| status.success())
    {
        eprintln!(
            "skipped: root reads everything, and there is no `setpriv` that takes this right away"
        );
        return None;
    }
    let mut command = Command::new("setpriv");
    command
        .args(dropped)
        .arg(cast.get_program())
        .args(cast.get_args())
        .current_dir(cast.get_current_dir()?);
    Some(command)
}

#[test]
fn cast__what_cannot_be_read_is_named_and_the_rest_is_sent() {
    let ground = Ground::new("unreadable", 2);
    let tree = ground.from("tree");
    for directory in ["closed", "open"] {
        fs::create_dir_all(tree.join(directory)).expect("made");
        fs::write(tree.join(directory).join("file"), directory).expect("written");
    }
    fs::write(tree.join("private\x1b[2J"), b"nobody's").expect("written");
    fs::write(tree.join("older"), noise(MIB, 20)).expect("written");
    ground.cast(&["tree/older", "--into", "tree"]).expect(0, "2 of 2 have everything");
    fs::write(tree.join("older"), noise(MIB, 21)).expect("written");
    let close = |mode| {
        for name in ["closed", "private\x1b[2J", "older"] {
            fs::set_permissions(tree.join(name), fs::Permissions::from_mode(mode)).expect("set");
        }
    };
    close(0o000);
    let cast = |arguments: &[&str]| {
        without_rights(&ground.command(arguments))
            .map(|mut command| CastOutput::from_output(command.output().expect("the program")))
    };
    let Some(reported) = cast(&["tree"]) else { return close(0o755) };
    let alone = cast(&["tree/closed/"]);
    let some = cast(&["tree/closed/file", "tree/open/file"]);
    let json = cast(&["tree", "--json", "--into", "other"]);
    close(0o755);
    for (number, into) in [(0, ""), (1, ""), (0, "other"), (1, "other")] {
        let closed = ground.at(number, into).join("tree/closed");
        fs::set_permissions(closed, fs::Permissions::from_mode(0o755)).expect("to be removed");
    }
    for line in [
        "not sent: tree/closed: Permission denied",
        "not sent: tree/private%1B[2J: Permission denied",
        "not sent: tree/older: Permission denied",
        "2 of 2 have everything but the 3 that were not sent",
    ] {
        reported.expect(1, line);
    }
    (0..2).for_each(|number| {
        assert_same(&tree.join("open/file"), &ground.at(number, "tree/open/file"))
    });
    (0..2).for_each(|number| {
        assert_eq!(names(&ground.at(number, "tree")), ["closed", "older", "open"])
    });
    assert!(
        fs::read(ground.at(1, "tree/older")).expect("there") == noise(MIB, 20),
        "what was there stays"
    );
    alone.expect("as before").expect(1, "tree/closed/ cannot be read: Permission denied");
    some.expect("as before").expect(1, "not sent: tree/closed/file: Permission denied");
    assert_same(&tree.join("open/file"), &ground.at(0, "file"));
    let json: serde_json::Value =
        serde_json::from_str(&json.expect("as before").text).expect("a document");
    assert_eq!(json["unsent"][0], serde_json::json!(["tree/closed", "Permission denied"]));
    assert_eq!(json["receivers"][0]["state"], "complete");
}

#[test]
fn cast__a_file_that_goes_away_before_its_turn_is_named_and_the_rest_is_sent() {
    let ground = Ground::new("vanishes", 2);
    // More than is read ahead.
    fs::write(ground.from("a"), noise(48 * MIB, 22)).expect("written");
    ["b", "c"].iter().for_each(|name| fs::write(ground.from(name), name).expect("written"));
    let cast = ground.begin("./");
    fs::remove_file(ground.from("b")).expect("removed");
    let reported = CastOutput::from_output(cast.wait_with_output().expect("it ends"));
    reported.expect(1, "not sent: ./b: No such file or directory");
    reported.expect(1, "2 of 2 have everything but what was not sent");
    for number in 0..2 {
        assert_eq!(names(&ground.receivers[number].directory), ["a", "c"]);
        assert_same(&ground.from("a"), &ground.at(number, "a"));
    }
}

#[test]
fn cast__what_is_wrong_is_said_in_one_sentence() {
    let ground = Ground::new("wrong", 1);
    fs::write(ground.from("model"), b"bytes").expect("written");
    ground.cast(&["nothing"]).expect(1, "nothing is not there");
    ground.cast(&["model", "nothing"]).expect(1, "nothing is not there");
    ground.cast(&["model", "-"]).expect(2, "standard input (-) is cast alone");
    ground.cast(&["model", "./model"]).expect(1, "model would be there twice");
    ground.cast(&["model", "--to", &ground.to()]).expect(2, "is named twice");
    ground.cast(&["model", "--name", "m"]).expect(2, "--name is for what comes on standard input");
    ground.cast(&["model", "--into", "a-%z"]).expect(2, "`%z` in the directory `a-%z` is unknown");
    ground.cast(&["model", "--into", "../up"]).expect(1, "refused");
    ground.cast(&["model", "--into", "../up"]).expect(1, "is not below the directory");
    ground.cast(&["model", "--into", "/tmp"]).expect(1, "is not below the directory");
    let _socket = std::os::unix::net::UnixListener::bind(ground.from("socket")).expect("a socket");
    ground.cast(&["socket"]).expect(1, "socket is no file or directory");
    fs::write(ground.at(0, "taken"), b"a file").expect("written");
    ground
        .cast(&["model", "--into", "taken"])
        .expect(1, "a file or a symbolic link is where a directory must be");
    fs::create_dir(ground.at(0, "model")).expect("made");
    ground.cast(&["model"]).expect(1, "model: a directory is where a file must be");
    ground
        .cast(&["model", "--to", "127.0.0.1:1"])
        .expect(1, "does `clearway cast serve` run there?");
    let other = ground.root.join("other");
    fs::write(&other, b"another key of some length").expect("written");
    fs::set_permissions(&other, fs::Permissions::from_mode(0o644)).expect("set");
    let with = |key: &Path| {
        let mut command = Command::new(PROGRAM);
        command
            .arg("cast")
            .arg(ground.from("model"))
            .args(["--to", &ground.to(), "--key"])
            .arg(key);
        CastOutput::from_output(command.output().expect("the program"))
    };
    with(&other).expect(1, "can be read by others: chmod 600");
    fs::set_permissions(&other, fs::Permissions::from_mode(0o600)).expect("set");
    with(&other).expect(1, "the other end has another key");
}

#[test]
fn cast__names_of_any_bytes_arrive_and_paths_without_end_are_left_out() {
    use std::os::unix::ffi::OsStrExt;
    let ground = Ground::new("names", 1);
    let tree = ground.from("tree");
    fs::create_dir(&tree).expect("made");
    for name in [
        &b"new\nline"[..],
        b"\xff\xfe\x80",
        "\u{e9} \u{1f980}".as_bytes(),
        b"-rf",
        b"\\",
        b"%41%",
        b" ",
    ] {
        fs::write(tree.join(std::ffi::OsStr::from_bytes(name)), name).expect("written");
    }
    symlink("../../../../etc/passwd", tree.join("up")).expect("a link");
    symlink("loop", tree.join("loop")).expect("a link");
    ground.cast(&["tree"]).expect(0, "1 of 1 have everything");
    let diff = Command::new("diff")
        .arg("-r")
        .arg("--no-dereference")
        .arg(&tree)
        .arg(ground.at(0, "tree"))
        .output();
    assert!(diff.expect("diff").status.success());
    fs::create_dir(ground.from("deep")).expect("made");
    fs::write(ground.from("deep/top"), b"top").expect("written");
    let mut at = fs::File::open(ground.from("deep")).expect("opened");
    for _ in 0..20 {
        let name = "d".repeat(250);
        nix::sys::stat::mkdirat(&at, &name[..], nix::sys::stat::Mode::S_IRWXU).expect("made");
        let flags = nix::fcntl::OFlag::O_DIRECTORY;
        at = nix::fcntl::openat(&at, &name[..], flags, nix::sys::stat::Mode::empty())
            .expect("opened")
            .into();
    }
    ground.cast(&["deep"]).expect(1, "...: its path is too long\n1 of 1 have everything but");
    assert_same(&ground.from("deep/top"), &ground.at(0, "deep/top"));
}

#[test]
fn cast__links_in_the_target_lead_nowhere() {
    let ground = Ground::new("links", 1);
    fs::create_dir_all(ground.from("tree/inner")).expect("made");
    fs::write(ground.from("tree/inner/file"), b"sent").expect("written");
    fs::write(ground.from("plain"), b"sent").expect("written");
    let elsewhere = ground.root.join("elsewhere");
    fs::create_dir(&elsewhere).expect("made");
    fs::write(elsewhere.join("plain"), b"kept").expect("written");
    fs::create_dir(ground.at(0, "tree")).expect("made");
    symlink(&elsewhere, ground.at(0, "tree/inner")).expect("a link");
    symlink(elsewhere.join("plain"), ground.at(0, "plain")).expect("a link");
    ground.cast(&["tree"]).expect(1, "a file or a symbolic link is where a directory must be");
    ground.cast(&["plain"]).expect(0, "1 of 1");
    assert_eq!(names(&elsewhere), ["plain"]);
    assert_eq!(fs::read(elsewhere.join("plain")).expect("there"), b"kept");
    assert!(ground.at(0, "plain").symlink_metadata().expect("there").is_file());
}

#[test]
fn cast__strangers_change_nothing() {
    let ground = Ground::new("strangers", 1);
    fs::write(ground.from("model"), noise(MIB, 10)).expect("written");
    let strangers: Vec<TcpStream> = (0..20)
        .map(|number| {
            let mut stranger = TcpStream::connect(&ground.receivers[0].address).expect("let in");
            let hello = [&b"clearway cast 5\n"[..], &noise(57, number)].concat();
            let any = noise(500, number);
            let rubbish = [&b"GET / HTTP/1.1\r\n\r\n"[..], b"", &any, &hello][number as usize % 4];
            stranger.write_all(rubbish).expect("sent");
            stranger
        })
        .collect();
    ground.cast(&["model"]).expect(0, "1 of 1");
    assert_same(&ground.from("model"), &ground.at(0, "model"));
    drop(strangers);
}

#[test]
fn cast__a_full_disk_is_one_receivers_failure() {
    let mut ground = Ground::new("full", 1);
    let small = ground.root.join("small");
    fs::create_dir(&small).expect("made");
    let script =
        format!("mount -t tmpfs -o size=3m none {} && exec {PROGRAM} \"$@\"", small.display());
    if !Command::new("unshare").args(["-rm", "true"]).status().is_ok_and(|status| status.success())
    {
        eprintln!("skipped: a small file system needs `unshare` and user namespaces");
        return;
    }
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", &script, "sh"]);
    ground.receivers.push(Receiver::start(command, &ground.root.join("key"), small, "127.0.0.1:0"));
    fs::write(ground.from("large"), noise(8 * MIB, 11)).expect("written");
    fs::write(ground.from("little"), noise(1000, 12)).expect("written");
    let reported = ground.cast(&["large", "little"]);
    reported.expect(1, "large: No space left on device");
    reported.expect(1, "1 of 2 have everything");
    assert_same(&ground.from("large"), &ground.at(0, "large"));
    assert_eq!(ground.written(&["little"]), [0, 0], "the others files came");
}

#[test]
fn cast__over_ssh_as_one_program_says_it() {
    let ground = Ground::new("ssh", 0);
    let script = "#!/bin/sh\nwhile [ \"${1#-}\" != \"$1\" ]; do shift; done\nhost=$1; shift\ncase $host in\n\
                  bad) echo \"connect to host bad port 22: No route to host\" >&2; exit 255;;\n\
                  rude) printf 'all is \\033]0;well\\007\\n' >&2; exit 1;;\nesac\nexec sh -c \"$*\"\n";
    fs::write(ground.root.join("ssh"), script).expect("written");
    fs::set_permissions(ground.root.join("ssh"), fs::Permissions::from_mode(0o755)).expect("set");
    fs::write(ground.from("model"), noise(3 * MIB, 13)).expect("written");
    fs::write(ground.root.join("hosts"), "n[1-2]\nbad # down\n").expect("written");
    let path = std::env::var("PATH").unwrap_or_default();
    let cast = |more: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command
            .arg("cast")
            .arg(ground.from("model"))
            .arg("--into")
            .arg(ground.root.join("at-%r"))
            .args(more);
        command.env("PATH", format!("{}:{path}", ground.root.display()));
        CastOutput::from_output(command.output().expect("the program"))
    };
    let hosts = ground.root.join("hosts").display().to_string();
    let reported = cast(&["--to", &hosts]);
    reported.expect(1, "2 of 3 have everything");
    reported.expect(1, "ssh: connect to host bad port 22: No route to host");
    for number in 0..2 {
        assert_same(&ground.from("model"), &ground.root.join(format!("at-{number}/model")));
    }
    let [a, b] = ["a", "b"].map(|name| ground.root.join(name));
    cast(&["--to", &format!("n1:{},n2:{}", a.display(), b.display())])
        .expect(0, "2 of 2 have everything");
    [&a, &b].iter().for_each(|directory| assert_eq!(names(directory), ["model"]));
    let inner = format!("n1:{},n2:{}", a.display(), a.join("inner").display());
    cast(&["--to", &inner])
        .expect(1, "its directory lies in that of n1, which this cast fills too");
    // A dry run says the same of directories that a cast would make.
    let absent = ground.root.join("absent");
    let inner = format!("n1:{},n2:{}", absent.display(), absent.join("x/inner").display());
    cast(&["-n", "--to", &inner])
        .expect(1, "its directory lies in that of n1, which this cast fills too");
    let twice = format!("n1:{},n2:{}", absent.display(), absent.join(".").display());
    cast(&["-n", "--to", &twice]).expect(1, "its directory is that of n1 too");
    let apart = format!("n1:{},n2:{}", absent.join("a").display(), absent.join("b").display());
    cast(&["-n", "--to", &apart]).expect(0, "would be sent: model: 3.0 MiB, to 2 of 2");
    assert!(!absent.exists());
    let rude = cast(&["--to", "rude"]);
    rude.expect(1, "all is \\u{1b}]0;well\\u{7}");
    assert!(!rude.text.contains('\u{1b}') && !rude.errors.contains('\u{1b}'));
    cast(&["--to", "n1", "--remote-program", "/no/such/program"])
        .expect(1, "there is no program /no/such/program");
}
