//! Ranks find each other under the launchers that this machine has, and a rank that dies leaves
//! nothing behind.
//!
//! The ranks are the example programs `meet` and `foreign`, which `cargo test` builds. A launcher
//! that is missing is skipped with its name.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getpgid, kill_process};

/// The longest that a launcher may take for anything here; a busy machine needs seconds.
const DEADLINE: Duration = Duration::from_secs(60);

const RANKS: usize = 4;

/// A way to start `RANKS` ranks of a program on this machine.
struct TestLauncher {
    name: &'static str,
    words: Vec<String>,
    /// Its files. Open MPI's launchers of one user share a directory, and one that ends can remove what
    /// another one has just made there.
    scratch: ScratchDirectory,
    /// The beginning of the method that the ranks must report.
    method: &'static str,
}

impl TestLauncher {
    /// Returns the command that starts `program`.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).arg(program).env("TMPDIR", &self.scratch.0);
        command
    }
}

/// Launchers that this machine has; the others are named.
fn launchers() -> Vec<TestLauncher> {
    let ranks = RANKS.to_string();
    let known: [(&'static str, &[&str], &'static str); 3] = [
        ("mpiexec.hydra", &["-n", &ranks], "PMI-1"),
        ("mpirun.openmpi", &["--oversubscribe", "-n", &ranks], "PMIx"),
        ("prterun", &["--map-by", ":OVERSUBSCRIBE", "-n", &ranks], "PMIx"),
    ];
    let mut found = Vec::new();
    for (name, arguments, method) in known {
        match in_path(name) {
            Some(program) => {
                let words = arguments.iter().map(|word| (*word).to_owned());
                let words =
                    std::iter::once(program.to_string_lossy().into_owned()).chain(words).collect();
                let scratch = ScratchDirectory::new(name);
                found.push(TestLauncher { name, words, scratch, method });
            }
            None => eprintln!("skipped: {name} is not installed"),
        }
    }
    found
}

fn in_path(name: &str) -> Option<PathBuf> {
    let paths = env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    env::split_paths(&paths).chain(system).map(|path| path.join(name)).find(|path| path.is_file())
}

/// The program that ranks run.
fn meet_program() -> Option<PathBuf> {
    example("meet")
}

fn example(name: &str) -> Option<PathBuf> {
    let tests = env::current_exe().unwrap();
    let program = tests.parent().and_then(Path::parent).unwrap().join("examples").join(name);
    if !program.exists() {
        eprintln!("skipped: the example `{name}` is not built (cargo build --examples)");
        return None;
    }
    Some(program)
}

/// A program that is running, and what it says.
struct RunningProgram {
    child: Child,
    lines: Receiver<String>,
    errors: thread::JoinHandle<String>,
}

impl RunningProgram {
    fn start(command: &mut Command) -> Self {
        // Open MPI and PRRTE refuse root, and hydra has nothing against variables of others.
        for variable in ["OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT"] {
            command.env(variable, "1").env(format!("{variable}_CONFIRM"), "1");
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let mut said = child.stderr.take().unwrap();
        let errors = thread::spawn(move || {
            let mut text = Vec::new();
            let _ = said.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        Self { child, lines, errors }
    }

    /// The lines of all ranks, by rank.
    fn ranks(&mut self) -> BTreeMap<usize, String> {
        let until = Instant::now() + DEADLINE;
        let mut ranks = BTreeMap::new();
        while ranks.len() < RANKS {
            let rest = until.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(rest) else {
                let _ = self.child.kill();
                let errors = std::mem::replace(&mut self.errors, thread::spawn(String::new));
                let said = errors.join().unwrap();
                panic!("only {} ranks met: {ranks:?}; it said: {said}", ranks.len());
            };
            ranks.extend(rank(line));
        }
        ranks
    }

    /// Its end, and what it said on standard error.
    fn end(mut self) -> (ExitStatus, String) {
        let until = Instant::now() + DEADLINE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return (status, self.errors.join().unwrap());
            }
            if Instant::now() >= until {
                self.child.kill().unwrap();
                panic!("it did not end; it said: {}", self.errors.join().unwrap());
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The rank that said `line`, if one did.
fn rank(line: String) -> Option<(usize, String)> {
    let words: Vec<&str> = line.split(' ').collect();
    let ["rank", rank, "of", size, "by", ..] = words[..] else { return None };
    assert_eq!(size, RANKS.to_string());
    Some((rank.parse().unwrap(), line))
}

/// The process of the rank that said `line`.
fn process(line: &str) -> Pid {
    let number = line.split_once("process ").unwrap().1.split(':').next().unwrap();
    Pid::from_raw(number.parse().unwrap()).unwrap()
}

/// Whether `process` runs still; one that waits for its parent does not.
fn is_running(process: Pid) -> bool {
    let state = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
    state.is_ok_and(|state| {
        !state.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X']))
    })
}

/// Waits until none of the ranks that said these lines runs.
fn expect_nothing_left(ranks: &BTreeMap<usize, String>) {
    let until = Instant::now() + DEADLINE;
    while let Some(line) = ranks.values().find(|line| is_running(process(line))) {
        assert!(Instant::now() < until, "still running: {line}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A job starts, meets and ends well.
fn check_meeting(name: &str, method: &str, command: &mut Command) {
    let mut running = RunningProgram::start(command);
    let ranks = running.ranks();
    let (status, errors) = running.end();
    assert!(status.success(), "{name}: {status}: {errors}");
    for (rank, line) in &ranks {
        assert!(line.contains(&format!("by {method}")), "{name}, rank {rank}: {line}");
    }
    eprintln!("{name}: {}", ranks[&0]);
}

/// A job whose rank 1 is killed in the middle ends, and says so with its exit code.
fn check_killing(name: &str, command: &mut Command) -> String {
    let mut running = RunningProgram::start(command);
    let ranks = running.ranks();
    kill_process(process(&ranks[&1]), Signal::KILL).unwrap();
    let (status, errors) = running.end();
    assert!(!status.success(), "{name} takes a dead rank for a success");
    expect_nothing_left(&ranks);
    errors
}

#[test]
fn launchers__ranks_meet_and_leave() {
    let Some(meet) = meet_program() else { return };
    for launcher in launchers() {
        for arguments in [&["--length", "100"][..], &["--length", "0"], &["--length", "20000"]] {
            let mut command = launcher.command(&meet);
            check_meeting(launcher.name, launcher.method, command.args(arguments));
        }
    }
}

#[test]
fn launchers__a_killed_rank_ends_the_job() {
    let Some(meet) = meet_program() else { return };
    for launcher in launchers() {
        check_killing(launcher.name, launcher.command(&meet).arg("--hang"));
    }
}

#[test]
fn launchers__an_abort_ends_the_job() {
    let Some(meet) = meet_program() else { return };
    for launcher in launchers() {
        let running = RunningProgram::start(launcher.command(&meet).arg("--abort"));
        let until_closed = running.lines.iter().filter_map(rank);
        // A launcher that gets the order to abort may lose what ranks said just before.
        let ranks = until_closed.collect();
        let (status, errors) = running.end();
        // Under Open MPI it may be the code of a rank that waited for the one that aborted.
        assert!(!status.success(), "{}: {errors}", launcher.name);
        assert!(errors.contains("the last rank was asked to abort"), "{}: {errors}", launcher.name);
        expect_nothing_left(&ranks);
    }
}

#[test]
fn pmix__a_library_that_is_not_there_is_one_sentence_for_each_rank() {
    let (Some(meet), Some(mpirun)) = (meet_program(), in_path("mpirun.openmpi")) else {
        return eprintln!("skipped: mpirun.openmpi is not installed");
    };
    let mut command = Command::new(mpirun);
    command.args(["-n", "1"]).arg(meet).args(["--pmix-library", "/nowhere/libpmix.so.2"]);
    // With one rank there is nobody to be found, so it runs alone and says why in its notes.
    let output = command
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("MEET_NOTES", "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.contains("rank 0 of 1 by single") && said.contains("PMIx: /nowhere/libpmix.so.2"),
        "{said}"
    );
}

/// A directory that is gone at the end.
struct ScratchDirectory(PathBuf);

impl ScratchDirectory {
    fn new(name: &str) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = format!("clearway-launch-{name}-{}-{number}", std::process::id());
        let path = env::temp_dir().join(path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The coordinator, the last rank, of ranks on two hosts, through a program that does what ssh and
/// the host's shell do, here.
fn over_shell(scratch: &ScratchDirectory, meet: &Path) -> Command {
    let program = "#!/bin/sh\nwhile [ $# -gt 2 ]; do shift; done\nexec sh -c \"$2\"\n";
    over_program(scratch, meet, program)
}

/// The same through `program`.
fn over_program(scratch: &ScratchDirectory, meet: &Path, program: &str) -> Command {
    let ssh = scratch.file("ssh", program);
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
    let hosts = scratch.file("hosts", "n1 slots=2\nn2:1\n");
    let mut command = Command::new(meet);
    command.arg("--hosts").arg(hosts).arg("--ssh").arg(ssh).args(["--address", "127.0.0.1"]);
    command
}

#[test]
fn ssh__ranks_meet_and_leave() {
    let Some(meet) = meet_program() else { return };
    let scratch = ScratchDirectory::new("meet");
    check_meeting(
        "a shell for ssh",
        "ssh",
        over_shell(&scratch, &meet).args(["--length", "20000", "--", "--length", "20000"]),
    );
}

/// What ssh does with connections that are shared: `log` in its directory has each call. Without
/// the file `shares` there no master gets in.
const SHARING_SSH: &str = "\
#!/bin/sh
here=$(dirname \"$0\")
role=alone
for word; do
    case $word in
        -oControlPath=*) socket=${word#*=};;
        -oControlMaster=yes) role=master;;
        -oControlMaster=no) role=carried;;
    esac
done
while [ $# -gt 2 ]; do shift; done
echo \"$1 $role\" >>\"$here/log\"
case $role in
    master) [ -e \"$here/shares\" ] || exit 255; : >\"$socket\";;
    carried) [ -e \"$socket\" ] || exit 255;;
esac
exec sh -c \"$2\"
";

#[test]
fn ssh__ranks_of_one_host_share_a_connection() {
    let Some(meet) = meet_program() else { return };
    let scratch = ScratchDirectory::new("shared");
    let calls = |said| {
        let mut command = over_program(&scratch, &meet, SHARING_SSH);
        command.env("TMPDIR", &scratch.0);
        check_meeting(said, "ssh", &mut command);
        let log = scratch.0.join("log");
        let calls = fs::read_to_string(&log).unwrap();
        fs::remove_file(log).unwrap();
        let left = fs::read_dir(&scratch.0).unwrap().flatten();
        let is_socket = |name: &str| name.starts_with("clearway-ssh-");
        assert!(!left.into_iter().any(|it| is_socket(&it.file_name().to_string_lossy())), "left");
        let mut calls: Vec<_> = calls.lines().map(str::to_owned).collect();
        calls.sort();
        calls
    };
    // A connection that cannot be shared costs one for each rank.
    assert_eq!(calls("ssh without sharing"), ["n1 alone", "n1 alone", "n1 master", "n2 alone"]);
    scratch.file("shares", "");
    assert_eq!(calls("ssh that shares"), ["n1 carried", "n1 carried", "n1 master", "n2 alone"]);
}

#[test]
fn ssh__a_killed_rank_ends_the_job_and_is_named() {
    let Some(meet) = meet_program() else { return };
    let scratch = ScratchDirectory::new("kill");
    let errors =
        check_killing("a shell for ssh", over_shell(&scratch, &meet).args(["--", "--hang"]));
    assert!(errors.contains("rank 1 on n1 ended with signal: 9"), "{errors}");
}

/// Whether a process has as many hexadecimal digits as a secret in its command line or environment.
fn shows_secret(process: Pid) -> bool {
    ["cmdline", "environ"].into_iter().any(|name| {
        let text = fs::read(format!("/proc/{}/{name}", process.as_raw_nonzero())).unwrap();
        text.split(|byte| !byte.is_ascii_hexdigit()).any(|digits| digits.len() >= 64)
    })
}

/// Whether programs that `process` starts inherit the descriptor that had its secret.
fn passes_secret_on(process: Pid) -> bool {
    const CLOSE_ON_EXEC: u32 = 0o2_000_000;
    let of_process = |name: &str| format!("/proc/{}/{name}", process.as_raw_nonzero());
    let environment = fs::read_to_string(of_process("environ")).unwrap();
    let number = environment
        .split('\0')
        .find_map(|variable| variable.strip_prefix("CLEARWAY_SECRET_FD="))
        .unwrap();
    let descriptor = fs::read_to_string(of_process(&format!("fdinfo/{number}"))).unwrap();
    let flags = descriptor.lines().find_map(|line| line.strip_prefix("flags:")).unwrap();
    u32::from_str_radix(flags.trim(), 8).unwrap() & CLOSE_ON_EXEC == 0
}

#[test]
fn ssh__standard_input_of_a_rank_is_empty_and_no_secret() {
    let Some(meet) = meet_program() else { return };
    let scratch = ScratchDirectory::new("input");
    let mut running = RunningProgram::start(over_shell(&scratch, &meet).args(["--", "--read"]));
    let mut ranks = running.ranks();
    ranks.retain(|rank, _| *rank < RANKS - 1);
    assert!(ranks.values().all(|line| line.ends_with("standard input has \"\"")), "{ranks:?}");
    let (status, errors) = running.end();
    assert!(status.success(), "{errors}");
}

#[test]
fn ssh__ranks_end_with_their_coordinator() {
    let Some(meet) = meet_program() else { return };
    let scratch = ScratchDirectory::new("coordinator");
    let mut running = RunningProgram::start(over_shell(&scratch, &meet).args(["--", "--hang"]));
    let ranks = running.ranks();
    for line in ranks.values() {
        assert!(!shows_secret(process(line)), "a secret where everybody can read it");
    }
    for line in ranks.range(..RANKS - 1).map(|(_, line)| line) {
        assert!(!passes_secret_on(process(line)), "a secret where every program finds it");
    }
    running.child.kill().unwrap();
    running.end();
    expect_nothing_left(&ranks);
}

#[test]
fn ssh__a_host_that_does_not_answer_is_named_in_time() {
    let (Some(meet), Some(_)) = (meet_program(), in_path("ssh")) else {
        return eprintln!("skipped: ssh is not installed");
    };
    let scratch = ScratchDirectory::new("dead");
    let hosts = scratch.file("hosts", "127.0.0.1\n");
    // A listener that never says a word, as a host does whose processes hang.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = format!("-p{}", silent.local_addr().unwrap().port());
    let mut command = Command::new(meet);
    command.arg("--hosts").arg(hosts).args(["--timeout", "2", "--ssh-argument", &port, "--"]);
    let (status, errors) = RunningProgram::start(&mut command).end();
    assert_eq!(status.code(), Some(1));
    // On a busy machine ssh may not get to say it first.
    let said = [
        "host 127.0.0.1 cannot be reached over ssh",
        "rank 0 on 127.0.0.1 did not join within 2 s",
    ];
    assert!(said.into_iter().any(|said| errors.contains(said)), "{errors}");
}

/// A real server of ssh on a port of its own, with keys made for this test; nothing when it cannot
/// be had.
fn server(scratch: &ScratchDirectory) -> Option<(Child, Vec<String>)> {
    let (daemon, keygen) = (in_path("sshd")?, in_path("ssh-keygen")?);
    in_path("ssh")?;
    if !rustix::process::geteuid().is_root() || fs::create_dir_all("/run/sshd").is_err() {
        return None;
    }
    let [host, user] = ["host", "user"].map(|name| scratch.0.join(name).display().to_string());
    for key in [&host, &user] {
        let made = Command::new(&keygen)
            .args(["-q", "-t", "ed25519", "-N", "", "-f", key])
            .status()
            .ok()?;
        assert!(made.success());
    }
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let config = format!(
        "ListenAddress 127.0.0.1:{port}\nHostKey {host}\nAuthorizedKeysFile {user}.pub\nStrictModes no\nUsePAM no\n\
         PidFile none\nPasswordAuthentication no\nPermitRootLogin prohibit-password\n"
    );
    let config = scratch.file("config", &config);
    let log = Stdio::from(fs::File::create(scratch.0.join("log")).unwrap());
    let server =
        Command::new(daemon).arg("-D").arg("-e").arg("-f").arg(config).stderr(log).spawn().ok()?;
    let until = Instant::now() + DEADLINE;
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < until, "sshd does not listen");
        thread::sleep(Duration::from_millis(5));
    }
    let options = ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR"];
    let mut arguments = vec![format!("-p{port}"), format!("-i{user}"), "-F/dev/null".to_owned()];
    arguments.extend(options.map(|option| format!("-o{option}")));
    Some((server, arguments))
}

/// The ssh that has the connection of `running`, which connects to one host.
fn master_of(running: &RunningProgram) -> Pid {
    let id = running.child.id();
    let children = fs::read_dir(format!("/proc/{id}/task")).unwrap().flatten();
    let of_thread = |task: fs::DirEntry| fs::read_to_string(task.path().join("children")).unwrap();
    let children: String = children.map(of_thread).collect();
    let is_master = |pid: &i32| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.contains("ControlMaster=yes")
    };
    let master = children.split_whitespace().filter_map(|pid| pid.parse().ok()).find(is_master);
    Pid::from_raw(master.expect("a master")).unwrap()
}

#[test]
fn ssh__a_real_server_carries_meeting_killing_and_the_coordinators_end() {
    let Some(meet) = meet_program() else { return };
    let scratch = ScratchDirectory::new("server");
    let Some((mut server, arguments)) = server(&scratch) else {
        return eprintln!("skipped: a server of ssh needs root, sshd and ssh-keygen");
    };
    let hosts = scratch.file("hosts", "127.0.0.1 slots=3\n");
    let coordinator = |words: &[&str]| {
        let mut command = Command::new(&meet);
        command.arg("--hosts").arg(&hosts);
        for argument in &arguments {
            command.args(["--ssh-argument", argument]);
        }
        command.arg("--").args(words);
        command
    };
    check_meeting("ssh", "ssh", &mut coordinator(&[]));
    let log = fs::read_to_string(scratch.0.join("log")).unwrap();
    assert_eq!(log.matches("Accepted publickey").count(), 1, "three ranks share: {log}");
    let errors = check_killing("ssh", &mut coordinator(&["--hang"]));
    assert!(errors.contains("rank 1 on 127.0.0.1 ended with"), "{errors}");
    let mut running = RunningProgram::start(&mut coordinator(&["--hang"]));
    let ranks = running.ranks();
    running.child.kill().unwrap();
    running.end();
    expect_nothing_left(&ranks);
    let mut running = RunningProgram::start(&mut coordinator(&["--hang"]));
    let ranks = running.ranks();
    kill_process(master_of(&running), Signal::KILL).unwrap();
    let (status, errors) = running.end();
    assert!(!status.success() && errors.contains("on 127.0.0.1 ended with"), "{errors}");
    expect_nothing_left(&ranks);
    server.kill().unwrap();
    server.wait().unwrap();
}

/// Ranks as `srun --mpi=none` starts them: only the environment says who they are.
fn step(meet: &Path, job: u32, rank: usize, words: &[&str]) -> RunningProgram {
    RunningProgram::start(&mut step_command(meet, job, rank, words))
}

fn step_command(program: &Path, job: u32, rank: usize, words: &[&str]) -> Command {
    let mut command = Command::new(program);
    command
        .env("SLURM_JOB_ID", job.to_string())
        .env("SLURM_STEP_ID", "0")
        .env("SLURM_STEP_NODELIST", "localhost");
    command.env("SLURM_PROCID", rank.to_string()).env("SLURM_STEP_NUM_TASKS", RANKS.to_string());
    command.args(words);
    command
}

#[test]
fn slurm__a_killed_rank_ends_the_step_and_rank_0_says_who() {
    let Some(meet) = meet_program() else { return };
    for victim in [1, 0] {
        let job = std::process::id() + victim as u32;
        let ranks: Vec<RunningProgram> =
            (0..RANKS).map(|rank| step(&meet, job, rank, &["--hang"])).collect();
        let lines: BTreeMap<usize, String> =
            (0..).zip(ranks.iter().map(|one| one.lines.recv_timeout(DEADLINE).unwrap())).collect();
        assert!(lines[&0].contains("by Slurm environment"), "{}", lines[&0]);
        kill_process(process(&lines[&victim]), Signal::KILL).unwrap();
        let ends: Vec<(ExitStatus, String)> = ranks.into_iter().map(RunningProgram::end).collect();
        expect_nothing_left(&lines);
        assert!(ends.iter().all(|(status, _)| !status.success()));
        let said = if victim == 0 { &ends[1].1 } else { &ends[0].1 };
        let expected =
            if victim == 0 { "the connection to the hub of this job" } else { "rank 1 on " };
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn slurm__a_rank_that_never_comes_is_named() {
    let Some(meet) = meet_program() else { return };
    let job = std::process::id() + 100;
    let (status, errors) = step(&meet, job, 0, &["--timeout", "1"]).end();
    assert_eq!(status.code(), Some(1));
    assert!(errors.contains("rank 1, rank 2, rank 3 did not come within 1 s"), "{errors}");
}

/// The lines and the end of the ranks that are left when rank 1 of a step of `foreign` was killed.
/// Their standard error has no reader.
fn end_foreign_step(job: u32, words: &[&str]) -> Option<Vec<(ExitStatus, Vec<String>)>> {
    let foreign = example("foreign")?;
    let mut ranks: Vec<(Child, BufReader<ChildStdout>, String)> = (0..RANKS)
        .map(|rank| {
            let (_, unread) = std::io::pipe().unwrap();
            let mut command = step_command(&foreign, job, rank, words);
            let mut child =
                command.stdout(Stdio::piped()).stderr(unread).stdin(Stdio::null()).spawn().unwrap();
            let output = BufReader::new(child.stdout.take().unwrap());
            (child, output, String::new())
        })
        .collect();
    for (_, output, line) in &mut ranks {
        output.read_line(line).unwrap();
    }
    kill_process(process(&ranks[1].2), Signal::KILL).unwrap();
    let ends = ranks.into_iter().map(|(mut child, output, first)| {
        let more = output.lines().map_while(Result::ok);
        let lines = std::iter::once(first).chain(more).collect();
        (child.wait().unwrap(), lines)
    });
    let mut ends: Vec<_> = ends.collect();
    ends.remove(1);
    Some(ends)
}

#[test]
fn ending__at_once_runs_no_handler_and_unread_errors_raise_no_signal() {
    for (number, words, handlers) in [(200, &["--hang", "--at-once"][..], 0), (300, &["--hang"], 1)]
    {
        let Some(ends) = end_foreign_step(std::process::id() + number, words) else { return };
        for (status, lines) in ends {
            assert!(lines[0].contains("by Slurm environment"), "{lines:?}");
            // Signal 13 is SIGPIPE, which the sentence about the end would have raised.
            assert_eq!(status.code(), Some(1), "{status}, {lines:?}");
            assert_eq!(
                lines.iter().filter(|line| line.contains("atexit")).count(),
                handlers,
                "{lines:?}"
            );
        }
    }
}

/// Ranks of `foreign` under Hydra that take themselves for ranks of a Slurm step; `scratch` has
/// their `scancel`, which writes down its arguments. Nothing without Hydra.
fn foreign_in_step(scratch: &ScratchDirectory, words: &[&str]) -> Option<RunningProgram> {
    let (Some(foreign), Some(hydra)) = (example("foreign"), in_path("mpiexec.hydra")) else {
        eprintln!("skipped: mpiexec.hydra is not installed");
        return None;
    };
    let asked = scratch.0.join("asked");
    let scancel =
        scratch.file("scancel", &format!("#!/bin/sh\necho \"$@\" >> {}\n", asked.display()));
    fs::set_permissions(&scancel, fs::Permissions::from_mode(0o755)).unwrap();
    let path = env::join_paths(
        std::iter::once(scratch.0.clone()).chain(env::split_paths(&env::var_os("PATH")?)),
    )
    .ok()?;
    let mut command = Command::new(hydra);
    command.args([
        "-n",
        &RANKS.to_string(),
        "env",
        "SLURM_JOB_ID=7",
        "SLURM_STEP_ID=0",
        "SLURM_PROCID=1",
    ]);
    command
        .arg("SLURMD_NODENAME=n1")
        .arg(format!("PATH={}", path.display()))
        .arg(foreign)
        .args(words);
    Some(RunningProgram::start(&mut command))
}

#[test]
fn stand_in__is_no_child_of_the_rank_and_ends_with_the_job() {
    let scratch = ScratchDirectory::new("stand-in");
    let Some(mut running) = foreign_in_step(&scratch, &[]) else { return };
    let ranks = running.ranks();
    assert!(
        ranks.values().all(|line| line.contains("by PMI-1") && line.ends_with(": no child")),
        "{ranks:?}"
    );
    let (status, errors) = running.end();
    assert!(status.success(), "{errors}");
    assert!(!scratch.0.join("asked").exists() && !errors.contains("is gone"), "{errors}");
}

#[test]
fn stand_in__a_killed_rank_ends_the_step() {
    let scratch = ScratchDirectory::new("stand-in-killed");
    let Some(mut running) = foreign_in_step(&scratch, &["--hang"]) else { return };
    let ranks = running.ranks();
    kill_process(process(&ranks[&1]), Signal::KILL).unwrap();
    assert!(!running.end().0.success());
    let until = Instant::now() + DEADLINE;
    let asked = || fs::read_to_string(scratch.0.join("asked")).unwrap_or_default();
    while !asked().contains("--signal=KILL 7.0\n") {
        assert!(Instant::now() < until, "no shell asked for the end of the step");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Ranks that `meet` starts on this host.
fn here(meet: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(meet);
    command.args(["--here", &RANKS.to_string(), "--"]).args(words);
    command
}

#[test]
fn here__ranks_meet_and_leave() {
    let Some(meet) = meet_program() else { return };
    // The variables of a rank of another job do not reach the ranks that it starts, and the address
    // of its user has no part in them.
    let mut command = here(&meet, &["--length", "20000"]);
    command
        .env("SSH_CONNECTION", "192.0.2.1 51000 192.0.2.2 22")
        .env("SLURM_PROCID", "0")
        .env("PMI_FD", "0");
    check_meeting("this host", "this host", &mut command);
}

#[test]
fn here__a_killed_rank_ends_the_job_and_is_named() {
    let Some(meet) = meet_program() else { return };
    let errors = check_killing("this host", &mut here(&meet, &["--hang"]));
    assert!(errors.contains("rank 1 on ") && errors.contains("ended with signal: 9"), "{errors}");
}

#[test]
fn here__an_abort_ends_the_job_with_its_status_and_sentence() {
    let Some(meet) = meet_program() else { return };
    let (status, errors) = RunningProgram::start(&mut here(&meet, &["--abort"])).end();
    assert_eq!(status.code(), Some(3), "{errors}");
    assert!(errors.contains("meet: the last rank was asked to abort"), "{errors}");
}

#[test]
fn here__a_rank_that_does_not_join_is_not_waited_for() {
    let Some(meet) = meet_program() else { return };
    let script = format!("[ $CLEARWAY_RANK = 2 ] && exit 0; exec {} --hang", meet.display());
    let mut command = Command::new(&meet);
    command.args(["--here", &RANKS.to_string(), "--program", "/bin/sh", "--", "-c", &script]);
    let (status, errors) = RunningProgram::start(&mut command).end();
    assert_eq!(status.code(), Some(1), "{errors}");
    assert!(errors.contains("rank 2 on ") && errors.contains("before it joined"), "{errors}");
}

#[test]
fn here__ranks_have_groups_and_secrets_of_their_own_and_end_with_their_starter() {
    let Some(meet) = meet_program() else { return };
    let mut running = RunningProgram::start(&mut here(&meet, &["--hang"]));
    let ranks = running.ranks();
    let own = Pid::from_child(&running.child);
    for line in ranks.values() {
        let rank = process(line);
        assert_ne!(
            getpgid(Some(rank)).unwrap(),
            getpgid(Some(own)).unwrap(),
            "a signal of the terminal reaches it"
        );
        assert!(!shows_secret(rank) && !passes_secret_on(rank), "a secret where others find it");
    }
    running.child.kill().unwrap();
    running.end();
    expect_nothing_left(&ranks);
}

#[test]
fn here__standard_input_goes_to_rank_0_and_to_no_other() {
    let Some(meet) = meet_program() else { return };
    let scratch = ScratchDirectory::new("here-input");
    let input = fs::File::open(scratch.file("input", "a line\n")).unwrap();
    let mut command = Command::new(&meet);
    command.args(["--here", &RANKS.to_string(), "--input", "--", "--read"]);
    let output = command.stdin(input).stdout(Stdio::piped()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let ranks: BTreeMap<usize, String> =
        said.lines().filter_map(|line| rank(line.to_owned())).collect();
    assert_eq!(ranks.len(), RANKS, "{said}");
    for (rank, line) in ranks {
        let expected =
            if rank == 0 { "standard input has \"a line\\n\"" } else { "standard input has \"\"" };
        assert!(line.ends_with(expected), "{line}");
    }
}

#[test]
fn here__a_program_whose_main_is_not_rusts_has_no_children_and_runs_its_handlers() {
    let (Some(meet), Some(foreign)) = (meet_program(), example("foreign")) else { return };
    let mut command = Command::new(meet);
    command.args(["--here", &RANKS.to_string(), "--program"]).arg(foreign);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert_eq!(said.matches("by this host").count(), RANKS, "{said}");
    assert_eq!(
        (said.matches(": no child").count(), said.matches("atexit ran").count()),
        (RANKS, RANKS),
        "{said}"
    );
}
