//! Runs across ranks that the program starts over ssh: one sentence for everything that can be
//! wrong, and nothing left behind.
//!
//! The server is a real one on loopback, with keys of its own. Ranks run a copy of the program in
//! the test's directory, by which they are found.

use std::fs;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::processes::{self, FoundProcess};
use crate::waiting::wait_until;

/// Five ranks: two victims and the congestors' target and senders.
const HOSTS: &str = "127.0.0.1 slots=5\n";
/// One that ends, and one that does not before somebody ends it.
const SCENARIOS: [(&str, &str); 2] = [
    ("short.toml", include_str!("../fixtures/short.toml")),
    ("long.toml", include_str!("../fixtures/long.toml")),
];

/// A directory with everything that a run over ssh needs, and the server; both gone at the end.
struct SshTestBed {
    directory: PathBuf,
    server: Option<Child>,
}

impl SshTestBed {
    /// Without a server, for runs that never reach one.
    fn bare(name: &str) -> Self {
        let directory =
            std::env::temp_dir().join(format!("clearway-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        for (name, scenario) in SCENARIOS {
            fs::write(directory.join(name), scenario).expect("a scenario");
        }
        Self { directory, server: None }
    }

    /// With a server, or nothing and the reason where it cannot be had.
    fn with_server(name: &str) -> Option<Self> {
        let mut test_bed = Self::bare(name);
        if !nix::unistd::geteuid().is_root() || !Path::new("/usr/sbin/sshd").exists() {
            eprintln!("skipped: a server of ssh needs root and /usr/sbin/sshd");
            return None;
        }
        // The server refuses to start without it.
        fs::create_dir_all("/run/sshd").expect("a directory for the server");
        for key in ["host", "user"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(test_bed.path(key));
            assert!(keygen.status().expect("ssh-keygen").success());
        }
        let port = TcpListener::bind("127.0.0.1:0")
            .expect("a port")
            .local_addr()
            .expect("its number")
            .port();
        let [host, user] = ["host", "user"].map(|key| test_bed.path(key).display().to_string());
        let config = format!(
            "ListenAddress 127.0.0.1:{port}\nListenAddress 127.0.0.2:{port}\nHostKey {host}\nAuthorizedKeysFile {user}.pub\nStrictModes no\nUsePAM no\n\
             PidFile none\nPasswordAuthentication no\nPermitRootLogin prohibit-password\n"
        );
        fs::write(test_bed.path("config"), config).expect("written");
        let log = fs::File::create(test_bed.path("log")).expect("a log");
        let mut server = Command::new("/usr/sbin/sshd");
        server.args(["-D", "-e", "-f"]).arg(test_bed.path("config")).stderr(log);
        test_bed.server = Some(server.spawn().expect("a server"));
        wait_until("the server listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        test_bed
            .wrap(&format!("-p{port} -i{user} -F/dev/null -oStrictHostKeyChecking=no -oUserKnownHostsFile=/dev/null"));
        fs::copy(env!("CARGO_BIN_EXE_clearway"), test_bed.path("clearway"))
            .expect("a copy of the program");
        Some(test_bed)
    }

    /// Puts an `ssh` into the test's directory that has these options in front.
    fn wrap(&self, options: &str) {
        let real = ["/usr/bin/ssh", "/bin/ssh", "/usr/local/bin/ssh"]
            .into_iter()
            .find(|path| Path::new(path).exists());
        let script = format!(
            "#!/bin/sh\nexec {} {options} -oLogLevel=ERROR \"$@\"\n",
            real.unwrap_or("/usr/bin/ssh")
        );
        fs::write(self.path("ssh"), script).expect("written");
        fs::set_permissions(self.path("ssh"), fs::Permissions::from_mode(0o755))
            .expect("a program");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// A short run on `hosts` where `program` is the ranks'.
    fn command(&self, hosts: &str, program: &Path) -> Command {
        self.command_for("short.toml", hosts, program)
    }

    fn command_for(&self, scenario: &str, hosts: &str, program: &Path) -> Command {
        fs::write(self.path("hosts"), hosts).expect("written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_clearway"));
        command
            .arg("run")
            .arg(self.path(scenario))
            .args(["--on", "cluster", "--hostfile"])
            .arg(self.path("hosts"));
        command
            .arg("--remote-program")
            .arg(program)
            .arg("--overwrite")
            .arg("--out")
            .arg(self.path("out"));
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.directory.display()));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// A run that is still under way when it is ended.
    fn start(&self) -> Child {
        self.command_for("long.toml", HOSTS, &self.path("clearway")).spawn().expect("the program")
    }

    /// Processes whose command lines name the test's directory, the server aside.
    fn processes(&self) -> Vec<FoundProcess> {
        let directory = self.directory.display().to_string();
        processes::all()
            .filter(|it| it.line.contains(&directory) && !it.line.contains("/config"))
            .collect()
    }

    /// Waits until five of the ranks' processes have `word` in their command lines.
    fn ranks(&self, word: &str) -> Vec<Pid> {
        let ranks = || self.ranks_of(word).collect();
        let found = processes::wait_until("five ranks start", ranks, |found| found.len() == 5);
        found.into_iter().map(|it| it.pid).collect()
    }

    /// The ranks' processes that have `word` in their command lines.
    fn ranks_of(&self, word: &str) -> impl Iterator<Item = FoundProcess> {
        let program = self.path("clearway").display().to_string();
        self.processes()
            .into_iter()
            .filter(move |it| it.line.starts_with(&program) && it.line.contains(word))
    }

    /// What ssh started for the ranks of `host`; their processes end with these.
    fn of_host(&self, host: &str) -> Vec<Pid> {
        let lines = self.processes().into_iter().map(|it| it.line);
        let is_ssh =
            |line: &String| line.starts_with("/usr/bin/ssh") && line.contains(&format!(" {host} "));
        let rank =
            |line: String| Some(line.split_once("CLEARWAY_RANK=")?.1.split(' ').next()?.to_owned());
        let ranks: Vec<String> = lines.filter(is_ssh).filter_map(rank).collect();
        let is_there = |pid: Pid| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let words = String::from_utf8_lossy(&environment).into_owned();
            ranks
                .iter()
                .any(|rank| words.split('\0').any(|word| word == format!("CLEARWAY_RANK={rank}")))
        };
        self.ranks_of("follow").map(|it| it.pid).filter(|pid| is_there(*pid)).collect()
    }

    fn expect_nothing_left(&self) {
        processes::wait_until("nothing is left", || self.processes(), <[FoundProcess]>::is_empty);
    }
}

impl Drop for SshTestBed {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            let _ = server.kill();
            let _ = server.wait();
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn hostfile__ranks_run_where_the_file_says_and_the_report_is_here() {
    let Some(test_bed) = SshTestBed::with_server("ssh-run") else { return };
    let output = test_bed.command(HOSTS, &test_bed.path("clearway")).output().expect("an end");
    // On a busy machine any verdict may be right; that there is one is the point.
    let code = output.status.code().expect("no signal");
    assert!([0, 3, 4].contains(&code), "{code}: {}", errors(&output));
    let report = fs::read(test_bed.path("out/report.json")).expect("a report");
    let report: serde_json::Value = serde_json::from_slice(&report).expect("JSON");
    assert_eq!(report["host"]["facts"]["launched by"], "ssh");
    assert!(
        report["host"]["facts"]["ranks"].as_str().expect("a fact").starts_with("5; "),
        "{report}"
    );
    let log = fs::read_to_string(test_bed.path("log")).expect("a log");
    assert_eq!(log.matches("Accepted publickey").count(), 1, "five ranks share: {log}");
    test_bed.expect_nothing_left();
}

#[test]
fn cast__receivers_of_one_host_share_a_connection_of_ssh() {
    let Some(test_bed) = SshTestBed::with_server("ssh-shared") else { return };
    let targets = |host: &str, numbers: std::ops::Range<u32>| {
        let target = |it| format!("{host}:{}", test_bed.path(&format!("{host}-{it}")).display());
        numbers.map(target).collect::<Vec<_>>().join(",")
    };
    let path = std::env::var("PATH").unwrap_or_default();
    let cast = |to: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_clearway"));
        command.arg("cast").arg(test_bed.path("config")).args(["--to", to, "--remote-program"]);
        command.arg(test_bed.path("clearway"));
        command.env("PATH", format!("{}:{path}", test_bed.directory.display()));
        fs::create_dir_all(test_bed.path("tmp")).expect("made");
        command.env("TMPDIR", test_bed.path("tmp"));
        let output = command.output().expect("an end");
        assert_eq!(fs::read_dir(test_bed.path("tmp")).expect("made").count(), 0, "sockets");
        output
    };
    // Nine and the master's are as many sessions as a server takes in one connection.
    let to = [targets("127.0.0.1", 0..11), targets("127.0.0.2", 0..1)].join(",");
    let output = cast(&to);
    assert!(output.status.success(), "{}", errors(&output));
    for name in ["127.0.0.1-0", "127.0.0.1-10", "127.0.0.2-0"] {
        assert!(test_bed.path(name).join("config").exists(), "{name}");
    }
    let log = fs::read_to_string(test_bed.path("log")).expect("a log");
    let connections = log.matches("Accepted publickey").count();
    assert_eq!(connections, 3, "two to the first host, one to the second: {log}");
    let output = cast(&targets("nobody@127.0.0.1", 0..2));
    let said = errors(&output) + &String::from_utf8_lossy(&output.stdout);
    assert_eq!((output.status.code(), said.matches("ssh: ").count()), (Some(1), 2), "{said}");
}

#[test]
fn hostfile__a_job_of_mounts_has_all_ranks_that_are_started() {
    let Some(test_bed) = SshTestBed::with_server("ssh-stage") else { return };
    if !Path::new("/dev/fuse").exists() {
        return eprintln!("skipped: there is no /dev/fuse");
    }
    fs::write(test_bed.path("hosts"), "127.0.0.1 slots=2\n127.0.0.2\n").expect("written");
    fs::create_dir_all(test_bed.path("store")).expect("made");
    let mut command = Command::new(env!("CARGO_BIN_EXE_clearway"));
    command.args(["start", "--hostfile"]).arg(test_bed.path("hosts")).arg("--");
    command.arg(test_bed.path("clearway")).args(["stage", "job", "--size", "64MiB", "--data"]);
    command.arg(test_bed.path("staged")).arg("--backing").arg(test_bed.path("store"));
    command.args(["--", "sh", "-c", "echo >\"$CLEARWAY_STAGE/of-$$\""]);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", test_bed.directory.display()));
    let output = command.stdin(Stdio::null()).output().expect("the program");
    assert!(output.status.success(), "{}", errors(&output));
    let names = fs::read_dir(test_bed.path("store")).expect("a store").flatten();
    let written = names.filter(|it| it.file_name().as_encoded_bytes().starts_with(b"of-"));
    assert_eq!(written.count(), 3);
    test_bed.expect_nothing_left();
}

#[test]
fn hostfile__the_rate_of_links_that_do_not_tell_it_is_measured() {
    let Some(test_bed) = SshTestBed::with_server("ssh-rate") else { return };
    fs::write(test_bed.path("hosts"), HOSTS).expect("written");
    let mut command = test_bed.command(HOSTS, &test_bed.path("clearway"));
    let path = command
        .get_envs()
        .find_map(|(name, value)| (name == "PATH").then_some(value?))
        .expect("set")
        .to_owned();
    command = Command::new(env!("CARGO_BIN_EXE_clearway"));
    command
        .args([
            "bench",
            "--victims",
            "ping",
            "--congestors",
            "incast",
            "--time",
            "1200ms",
            "--hostfile",
        ])
        .arg(test_bed.path("hosts"))
        .env("PATH", path);
    command
        .arg("--remote-program")
        .arg(test_bed.path("clearway"))
        .arg("--overwrite")
        .arg("--out")
        .arg(test_bed.path("out"));
    let output = command.output().expect("an end");
    let said = errors(&output);
    assert!(test_bed.path("out/report.json").exists(), "{said}");
    let measured = said.lines().find(|line| line.starts_with("host links: "));
    if measured.is_none() {
        // Then the machine's interfaces said it.
        return eprintln!("skipped: the interfaces of this machine tell their rate: {said}");
    }
    assert!(
        measured.expect("a line").contains("for each rank, measured between the ranks of one host"),
        "{said}"
    );
    let report = fs::read_to_string(test_bed.path("out/report.json")).expect("a report");
    assert!(report.contains("\"rate of host links\""), "{report}");
    test_bed.expect_nothing_left();
}

#[test]
fn hostfile__a_killed_rank_is_named_and_nothing_is_left() {
    let Some(test_bed) = SshTestBed::with_server("ssh-kill") else { return };
    for (word, how) in [("rank --with-parent", "was killed by signal 9"), ("follow", "is gone: ")] {
        let run = test_bed.start();
        test_bed.ranks("rank --with-parent");
        kill(test_bed.ranks(word)[3], Signal::SIGKILL).expect("killed");
        let output = run.wait_with_output().expect("an end");
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("clearway: rank ") && said.contains(how), "{said}");
        test_bed.expect_nothing_left();
    }
}

#[test]
fn hostfile__timeslices_go_on_without_a_host_that_dies_and_are_watched_from_another() {
    let Some(test_bed) = SshTestBed::with_server("ssh-timeslices") else { return };
    let like =
        test_bed.command("127.0.0.1 slots=4\n127.0.0.2 slots=2\n", &test_bed.path("clearway"));
    let path = like
        .get_envs()
        .find_map(|(name, value)| (name == "PATH").then_some(value?))
        .expect("set")
        .to_owned();
    let program = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_clearway"));
        command
            .arg("timeslice")
            .env("PATH", &path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    };
    let job = format!("far-{}", std::process::id());
    let mut command = program();
    let words = "build --inputs 3 --builders 3 --timeslices 60000 --contribution 4KiB --ring 64KiB --heartbeat 250ms --json --job";
    command.args(words.split(' ')).arg(&job).arg("--hostfile").arg(test_bed.path("hosts"));
    command.arg("--out").arg(test_bed.path("built"));
    let run = command
        .arg("--remote-program")
        .arg(test_bed.path("clearway"))
        .spawn()
        .expect("the program");
    // From another host the one that coordinates is asked to show it.
    let mut watcher = None;
    wait_until("the job is shown", || {
        let mut command = program();
        command
            .args(["watch", &format!("{job}@127.0.0.2"), "--remote-program"])
            .arg(test_bed.path("clearway"));
        let mut started = command.spawn().expect("the program");
        let mut first = [0; 5];
        if started.stdout.as_mut().expect("piped").read_exact(&mut first).is_err() {
            started.wait().expect("an end");
            return false;
        }
        assert_eq!(&first, b"token");
        watcher = Some(started);
        true
    });
    let mut watcher = watcher.expect("started");
    let all = test_bed.of_host("127.0.0.2");
    assert_eq!(all.len(), 2);
    all.into_iter().for_each(|pid| kill(pid, Signal::SIGKILL).expect("killed"));
    let output = run.wait_with_output().expect("an end");
    let said = errors(&output);
    assert!(output.status.success(), "{said}");
    let reported: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        [&reported["timeslices"], &reported["lost"], &reported["duplicated"]],
        [60_000, 0, 0],
        "{reported}"
    );
    let mut dead: Vec<_> = reported["out"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["rank"].as_u64())
        .collect();
    dead.sort_unstable();
    assert_eq!(dead, [Some(4), Some(5)], "{reported}");
    assert!(watcher.wait().expect("an end").success(), "it ends with the run");
    test_bed.expect_nothing_left();
}

#[test]
fn hostfile__an_interrupt_or_the_death_of_the_coordinator_leaves_nothing() {
    let Some(test_bed) = SshTestBed::with_server("ssh-end") else { return };
    for (signal, code) in
        [(Signal::SIGINT, Some(130)), (Signal::SIGTERM, Some(130)), (Signal::SIGKILL, None)]
    {
        let run = test_bed.start();
        test_bed.ranks("rank --with-parent");
        kill(Pid::from_raw(run.id() as i32), signal).expect("signalled");
        let output = run.wait_with_output().expect("an end");
        assert_eq!(output.status.code(), code, "{}", errors(&output));
        test_bed.expect_nothing_left();
        assert!(!test_bed.path("out/report.json").exists(), "a report of half a run");
    }
}

#[test]
fn hostfile__an_interrupt_while_hosts_do_not_answer_ends_the_start() {
    let test_bed = SshTestBed::bare("ssh-silent");
    if !Path::new("/usr/bin/ssh").exists() {
        return eprintln!("skipped: ssh is not installed");
    }
    // A listener that never says a word, as a host does whose processes hang.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    test_bed.wrap(&format!("-F/dev/null -p{}", silent.local_addr().expect("its number").port()));
    let run = test_bed.command(HOSTS, Path::new("/nowhere")).spawn().expect("the program");
    let held = silent.accept().expect("an ssh");
    kill(Pid::from_raw(run.id() as i32), Signal::SIGINT).expect("signalled");
    let output = run.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(130), "{}", errors(&output));
    test_bed.expect_nothing_left();
    drop(held);
}

#[test]
fn hostfile__what_is_wrong_is_one_sentence() {
    let Some(test_bed) = SshTestBed::with_server("ssh-wrong") else { return };
    let program = test_bed.path("clearway");
    let nowhere = PathBuf::from("/nowhere/clearway");
    for (hosts, program, sentence) in [
        (HOSTS, &nowhere, "host 127.0.0.1 has no program /nowhere/clearway; put the same there"),
        (HOSTS, &PathBuf::from("/bin/true"), "ended with exit status: 0 before it joined"),
        (
            "no.such.host.invalid slots=5",
            &program,
            "host no.such.host.invalid cannot be reached over ssh (ssh: Could not resolve",
        ),
        (
            "127.0.0.1 slot=5",
            &program,
            "hosts, line 1: `slot=5` is unknown; write `host`, `host slots=4` or `host:4`",
        ),
        ("127.0.0.1 slots=2", &program, "need 5 hosts, the network has 2"),
        ("127.0.0.1", &program, "a job of one rank has no network"),
        ("", &program, "hosts, line 1: the file names no host"),
        ("n[1-65536]:1000", &program, "asks for more than 1048576 ranks"),
    ] {
        let output = test_bed.command(hosts, program).output().expect("an end");
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.starts_with("clearway: ") && said.contains(sentence), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        test_bed.expect_nothing_left();
    }
    test_bed.wrap("-p1 -F/dev/null");
    let said = errors(&test_bed.command(HOSTS, &program).output().expect("an end"));
    assert!(
        said.contains(
            "cannot be reached over ssh (ssh: connect to host 127.0.0.1 port 1: Connection refused)"
        ),
        "{said}"
    );
}

#[test]
fn hostfile__an_unknown_host_key_is_refused_by_name() {
    let Some(test_bed) = SshTestBed::with_server("ssh-key") else { return };
    let config = fs::read_to_string(test_bed.path("config")).expect("read");
    let port = config.split(':').nth(1).and_then(|rest| rest.lines().next()).expect("a port");
    test_bed.wrap(&format!(
        "-p{port} -F/dev/null -oStrictHostKeyChecking=yes -oUserKnownHostsFile=/dev/null"
    ));
    let output = test_bed.command(HOSTS, &test_bed.path("clearway")).output().expect("an end");
    let said = errors(&output);
    assert!(
        said.contains("host 127.0.0.1 cannot be reached over ssh (Host key verification failed.)"),
        "{said}"
    );
}

#[test]
fn hostfile__belongs_to_a_cluster() {
    let test_bed = SshTestBed::bare("ssh-lab");
    for place in ["lab", "sim", "lab,cluster"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_clearway"));
        let output = command
            .args(["run", "demo", "--on", place, "--hostfile"])
            .arg(test_bed.path("hosts"))
            .output();
        let output = output.expect("an end");
        assert!(
            errors(&output).contains("--hostfile starts ranks on other machines"),
            "{}",
            errors(&output)
        );
    }
}
