//! Mounts of a server by credentials of munge, with a `munged` that the test starts: who mounts is the
//! user that munge names, and no credential is worth anything on a connection that it was not made for.

use std::fs;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::served::ServedPlace;
use super::{PROGRAM, error_of, staged};
use crate::waiting::wait_until;

/// The user who mounts: nobody.
const USER: u32 = 65534;
/// A user that no host knows.
const UNKNOWN: u32 = 54_321;
/// The server's first words: magic, a code, its user, a nonce.
const HELLO: usize = 16 + 1 + 4 + 32;
static NUMBERS: AtomicU32 = AtomicU32::new(0);

/// A daemon of a cluster, which has a key of its own.
struct Munged {
    directory: PathBuf,
    daemon: Child,
}

impl Munged {
    /// Starts it; `None`, and says why, where that cannot be.
    fn start(key: u8) -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: a second user needs root");
            return None;
        }
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("clearway-munged-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir(&directory).expect("a directory");
        let own = |name: &str| directory.join(name);
        fs::write(own("key"), [key; 32]).expect("written");
        fs::set_permissions(own("key"), fs::Permissions::from_mode(0o600)).expect("set");
        let mut command = Command::new("/usr/sbin/munged");
        command.args(["--foreground", "--force"]);
        for (option, name) in [
            ("--key-file", "key"),
            ("--socket", "socket"),
            ("--pid-file", "pid"),
            ("--log-file", "log"),
            ("--seed-file", "seed"),
        ] {
            command.arg(format!("{option}={}", own(name).display()));
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(daemon) = command.spawn() else {
            eprintln!("skipped: munged is not installed");
            fs::remove_dir(&directory).unwrap_or_default();
            return None;
        };
        let mut started = Self { directory, daemon };
        wait_until("munged comes up", || {
            assert!(started.daemon.try_wait().expect("a child").is_none(), "munged has ended");
            UnixStream::connect(started.socket()).is_ok()
        });
        Some(started)
    }

    fn socket(&self) -> PathBuf {
        self.directory.join("socket")
    }

    fn option(&self) -> String {
        format!("--munge={}", self.socket().display())
    }
}

impl Drop for Munged {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A server with a `munged`, and a mount point of the user.
struct MungePlace {
    served: ServedPlace,
    munged: Munged,
    /// The program, where the user can execute it.
    program: PathBuf,
}

impl MungePlace {
    fn new() -> Option<Self> {
        let munged = Munged::start(7)?;
        let served = ServedPlace::with_options(vec![munged.option()])?;
        let mut program = PathBuf::from(PROGRAM);
        if as_user(&program, USER).arg("--version").output().is_err() {
            program = munged.directory.join("clearway");
            let copied = Command::new("cp").arg(PROGRAM).arg(&program).status();
            assert!(copied.expect("cp").success());
        }
        chown(served.place.path("other"), Some(USER), Some(USER)).expect("given");
        Some(Self { served, munged, program })
    }

    /// Mounts a server as a user, through the `munged` that `option` names.
    fn mount(&self, user: u32, server: &str, option: &str) -> Output {
        let mut command = as_user(&self.program, user);
        let directory = self.served.place.path("other");
        command.args(["mount", server]).arg(directory).arg(option).output().expect("the program")
    }

    /// Connects to the server, and hears its nonce.
    fn visit(&self, magic: &[u8]) -> (TcpStream, [u8; HELLO]) {
        let mut server = TcpStream::connect(&self.served.address).expect("a server");
        server.write_all(magic).expect("sent");
        let mut hello = [0; HELLO];
        server.read_exact(&mut hello).expect("a nonce");
        (server, hello)
    }

    /// Returns what a mount of the user says that meets somebody in between: `give` gets its connection
    /// to the server and its credential, and returns the server's answer.
    fn mount_through(&self, give: impl FnOnce(&[u8], TcpStream, &[u8]) -> u8 + Send) -> String {
        let between = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = between.local_addr().expect("bound").to_string();
        std::thread::scope(|threads| {
            threads.spawn(move || {
                let (mut mount, _) = between.accept().expect("a mount");
                let mut magic = [0; 16];
                mount.read_exact(&mut magic).expect("a word");
                let (server, hello) = self.visit(&magic);
                mount.write_all(&hello).expect("passed on");
                let mut length = [0; 2];
                mount.read_exact(&mut length).expect("a length");
                let mut credential = vec![0; u16::from_le_bytes(length).into()];
                mount.read_exact(&mut credential).expect("a credential");
                let credential = [&length[..], &credential].concat();
                let answer = give(&magic, server, &credential);
                mount.write_all(&[answer]).expect("passed on");
            });
            let output = self.mount(USER, &address, &self.munged.option());
            assert!(!output.status.success());
            error_of(&output)
        })
    }
}

/// Lets a shell of the user open /dev/fuse, also where only root may, in a mount namespace of its own
/// without copies of the mounts of other tests.
const PREPARE: &str = r#"
for m in $(cut -d' ' -f5 /proc/self/mountinfo | grep clearway-staging); do umount -l "$m"; done
mknod "$1/fuse" c 10 229 && chmod 666 "$1/fuse" && mount --bind "$1/fuse" /dev/fuse || true
cd /
exec setpriv --reuid="$0" --regid="$0" --clear-groups sh -e
"#;
/// What the shell says when it has done something.
const DONE: &str = "=done=";

/// A shell of the user, which does what is written to it.
struct UserShell {
    shell: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
}

impl UserShell {
    /// Starts it, with the program and the mount point as `$clearway` and `$own`; `None`, and says why,
    /// where there is none.
    fn start(place: &MungePlace) -> Option<Self> {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-ec", PREPARE, &USER.to_string()]);
        command.arg(&place.munged.directory);
        // Sockets of mounts.
        let runtime = place.munged.directory.join("runtime");
        fs::create_dir(&runtime).expect("a directory");
        chown(&runtime, Some(USER), Some(USER)).expect("given");
        command.env("XDG_RUNTIME_DIR", runtime);
        command.env("clearway", &place.program).env("own", place.served.place.path("other"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let Ok(mut shell) = command.spawn() else {
            eprintln!("skipped: there is no unshare");
            return None;
        };
        let output = BufReader::new(shell.stdout.take().expect("piped")).lines();
        let mut started = Self { input: shell.stdin.take(), shell, output };
        if started.try_run(":").is_none() {
            eprintln!("skipped: a shell of another user in a namespace needs a privilege");
            return None;
        }
        Some(started)
    }

    /// Does what a script says; returns what that prints, unless a command fails.
    fn try_run(&mut self, script: &str) -> Option<String> {
        writeln!(self.input.as_mut()?, "{script}\necho {DONE}").ok()?;
        let mut said = String::new();
        for line in self.output.by_ref().map_while(Result::ok) {
            if line == DONE {
                return Some(said);
            }
            said += &line;
            said.push('\n');
        }
        None
    }

    fn run(&mut self, script: &str) -> String {
        self.try_run(script).unwrap_or_else(|| panic!("a command of the script failed: {script}"))
    }
}

impl Drop for UserShell {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.shell.wait();
    }
}

fn as_user(program: &Path, user: u32) -> Command {
    let mut command = Command::new(program);
    command.uid(user).gid(user).current_dir("/");
    command
}

/// Gives a server a credential; returns its answer.
fn answer_to(mut server: TcpStream, credential: &[u8]) -> u8 {
    server.write_all(credential).expect("sent");
    let mut answer = [0];
    server.read_exact(&mut answer).expect("an answer");
    answer[0]
}

#[test]
fn munge__a_mount_is_that_of_its_user_and_connects_again() {
    let Some(mut place) = MungePlace::new() else { return };
    if !place.served.mount("mnt", "") {
        return;
    }
    let served = &place.served;
    let root = served.place.path("mnt");
    for (name, user, mode) in [("mine", USER, 0o755), ("private", 0, 0o700)] {
        fs::create_dir(root.join(name)).expect("made");
        chown(root.join(name), Some(user), Some(user)).expect("given");
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).expect("set");
    }
    fs::write(root.join("private/secret"), "of root").expect("written");
    let Some(mut user) = UserShell::start(&place) else { return served.umount("mnt") };
    let (address, option) = (&served.address, place.munged.option());
    let said = user.run(&format!(
        "trap '\"$clearway\" umount \"$own\" 2> /dev/null' EXIT
        \"$clearway\" mount {address} \"$own\" '{option}' 2>&1 || echo failed"
    ));
    if said.contains("cannot mount on") {
        eprintln!("skipped: {}", said.trim());
        drop(user);
        return served.umount("mnt");
    }
    assert_eq!(said, "");
    let said = user.run(
        "cd \"$own\"; echo of the user > mine/file; cat mine/file; ls private 2>&1 && false
        (echo no > outside) 2>&1 && false; chown 0 mine/file 2>&1 && false
        rmdir private 2>&1 && false; cd /",
    );
    // The contents, and a line for each refusal.
    assert!(said.starts_with("of the user\n") && said.lines().count() == 5, "{said}");
    // The mount connects again with a credential of its own.
    place.served.kill();
    place.served.start();
    user.run(
        "echo after a restart > \"$own/mine/later\"; trap - EXIT; \"$clearway\" umount \"$own\"",
    );
    drop(user);
    let served = &place.served;
    staged(&["wait", "--until", "stored"], &[&root]);
    for tree in [root.clone(), served.place.path("store")] {
        for (name, contents) in [("file", "of the user\n"), ("later", "after a restart\n")] {
            let file = tree.join("mine").join(name);
            assert_eq!(fs::read_to_string(&file).expect("read"), contents);
            let found = fs::metadata(&file).expect("there");
            assert_eq!((found.uid(), found.gid()), (USER, USER), "{}", file.display());
        }
        assert!(!tree.join("outside").exists());
    }
    served.umount("mnt");
}

#[test]
fn munge__a_credential_is_good_for_one_connection_and_one_time() {
    let Some(place) = MungePlace::new() else { return };
    let elsewhere =
        place.mount_through(|magic, _own, credential| answer_to(place.visit(magic).0, credential));
    assert!(elsewhere.contains("made for another connection"), "{elsewhere}");
    let again = place.mount_through(|magic, own, credential| {
        assert_eq!(answer_to(own, credential), 0, "accepted");
        answer_to(place.visit(magic).0, credential)
    });
    assert!(again.contains("the credential was opened before"), "{again}");
    let unopened = place.mount_through(|_magic, own, credential| {
        assert_eq!(answer_to(own, credential), 0, "accepted");
        // A process in between continues without the secret, and the mount does not.
        0
    });
    assert!(unopened.contains("the other end"), "{unopened}");
}

#[test]
fn munge__who_is_refused_reads_why() {
    let Some(place) = MungePlace::new() else { return };
    let Some(foreign) = Munged::start(8) else { return };
    let server = place.served.address.as_str();
    let refused = |output: Output, words: &str| {
        let said = error_of(&output);
        assert!(!output.status.success() && said.contains(words), "{said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    };
    let own = place.munged.option();
    refused(place.mount(USER, server, &foreign.option()), "cannot open the credential");
    refused(place.mount(0, server, &own), "mount with a key of hosts (--key FILE)");
    refused(place.mount(UNKNOWN, server, &own), "does not know this user");
    refused(place.mount(USER, server, "--munge=/nowhere"), "no munged answers at /nowhere");
    let without = ServedPlace::new().expect("one more");
    refused(place.mount(USER, &without.address, &own), "takes no credentials of munge");
    let mut silent = Command::new(PROGRAM);
    silent.args(["stage", "serve", "--munge=/nowhere", "--data", "/nowhere", "--backing", "/"]);
    refused(silent.output().expect("the program"), "no munged answers at /nowhere");
}
