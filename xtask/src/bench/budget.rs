//! `cargo xtask bench budget`: what hosts that join and leave send together of a class with a budget,
//! while its coordinator runs, and while it is gone for 5 s.
//!
//! # Model
//! A lab of twelve hosts on a switch: the coordinator, ten senders, and one that receives all. A
//! sender casts a stream without end. Each window of 1 s has the bytes that came in at the receiver,
//! headers of frames included, over what the budget allows in that time. The windows in which hosts
//! join or leave, and the first one after the coordinator comes back, are those in which rates change.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::hosts::Hosts;
use super::{build_program, load};

/// The budget, and the same in bit/s.
const BUDGET: &str = "100Mb/s";
const BUDGET_BITS: f64 = 100e6;
/// The rate of each host's link: the receiver takes several budgets.
const LINK: &str = "1Gb/s";
/// Places of hosts.
const COORDINATOR: usize = 0;
const SENDERS: usize = 10;
const RECEIVER: usize = SENDERS + 1;
/// A window.
const WINDOW: Duration = Duration::from_secs(1);
/// How long the coordinator waits for leases of a predecessor that it never had, and some more.
const OLD_LEASES: Duration = Duration::from_secs(3);
/// Ports of the coordinator and of the receiver.
const COORDINATOR_PORT: u16 = 7_100;
const RECEIVER_PORT: u16 = 7_200;

/// What happens at the beginning of a window.
enum BudgetEvent {
    Join(&'static [usize]),
    Leave(&'static [usize]),
    Kill,
    Begin,
    End,
}

/// By window.
const EVENTS: [(usize, BudgetEvent); 12] = [
    (0, BudgetEvent::Join(&[1, 2, 3, 4])),
    (5, BudgetEvent::Join(&[5, 6])),
    (9, BudgetEvent::Leave(&[2])),
    (13, BudgetEvent::Join(&[7, 8])),
    (17, BudgetEvent::Leave(&[1, 3])),
    (21, BudgetEvent::Join(&[1, 2, 3])),
    (26, BudgetEvent::Leave(&[5])),
    (30, BudgetEvent::Kill),
    (31, BudgetEvent::Join(&[9])),
    (33, BudgetEvent::Join(&[10])),
    (35, BudgetEvent::Begin),
    (45, BudgetEvent::End),
];

/// What runs, and ends with this value.
struct BudgetRun {
    lab: Hosts,
    program: PathBuf,
    directory: PathBuf,
    coordinator: Option<Child>,
    receiver: Option<Child>,
    /// By host.
    senders: Vec<Option<Child>>,
    counter: BytesIn,
}

/// A shell on the receiver that prints the bytes that came in, once a line is written to it.
struct BytesIn {
    shell: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl BytesIn {
    fn new(mut command: Command) -> Result<Self> {
        let script = "while read -r line; do cat /proc/self/net/dev; echo; done";
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = command.spawn().context("a shell that counts")?;
        let ask = shell.stdin.take().context("a pipe to the shell")?;
        let answers = BufReader::new(shell.stdout.take().context("a pipe from the shell")?);
        Ok(Self { shell, ask, answers })
    }

    /// Returns the bytes of all interfaces but the loopback, and when that was.
    fn now(&mut self) -> Result<(f64, Instant)> {
        writeln!(self.ask)?;
        let mut sum = 0.0;
        loop {
            let mut line = String::new();
            ensure!(self.answers.read_line(&mut line)? > 0, "the shell that counts has ended");
            match line.trim() {
                "" => return Ok((sum, Instant::now())),
                line => sum += received(line).unwrap_or_default(),
            }
        }
    }
}

/// Returns the bytes that an interface received, from its line of `/proc/net/dev`.
pub(super) fn received(line: &str) -> Option<f64> {
    let (name, figures) = line.split_once(':')?;
    let bytes = figures.split_ascii_whitespace().next()?.parse().ok()?;
    (name.trim() != "lo").then_some(bytes)
}

/// Asks a child of this program to end, and waits for that.
fn end(mut child: Child, signal: &str) {
    let _ = Command::new("kill").args([signal, &child.id().to_string()]).status();
    let _ = child.wait();
}

impl Drop for BudgetRun {
    fn drop(&mut self) {
        let children =
            self.senders.drain(..).chain([self.receiver.take(), self.coordinator.take()]);
        children.flatten().for_each(|child| end(child, "-TERM"));
        let _ = self.counter.shell.kill();
        let _ = self.counter.shell.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Runs the bench.
pub(super) fn run(arguments: &[String]) -> Result<ExitCode> {
    let program = match arguments {
        [] => build_program()?,
        [flag, path] if flag == "--program" => PathBuf::from(path).canonicalize()?,
        _ => bail!("usage: cargo xtask bench budget [--program PATH]"),
    };
    let loaded = load();
    let mut run = BudgetRun::up(program)?;
    run.begin()?;
    thread::sleep(OLD_LEASES);
    println!("budget {BUDGET}, load {loaded}; window: sum over the budget, senders, what happens");
    let mut before = run.counter.now()?;
    for window in 0.. {
        let mut words = Vec::new();
        for (_, event) in EVENTS.iter().filter(|(at, _)| *at == window) {
            match run.happen(event)? {
                Some(word) => words.push(word),
                None => {
                    println!("load {}", load());
                    return Ok(ExitCode::SUCCESS);
                }
            }
        }
        thread::sleep(WINDOW.saturating_sub(before.1.elapsed()));
        let after = run.counter.now()?;
        let allowed = BUDGET_BITS / 8.0 * after.1.duration_since(before.1).as_secs_f64();
        let senders = run.senders.iter().flatten().count();
        println!(
            "{window:>3}  {:.3}  {senders:>2}  {}",
            (after.0 - before.0) / allowed,
            words.join(", ")
        );
        before = after;
    }
    Ok(ExitCode::SUCCESS)
}

impl BudgetRun {
    fn up(program: PathBuf) -> Result<Self> {
        let directory =
            std::env::temp_dir().join(format!("clearway-budget-{}", std::process::id()));
        std::fs::create_dir_all(directory.join("into"))?;
        let lab = Hosts::up(program.clone(), RECEIVER + 1, LINK, "fifo", 1)?;
        let policy = format!(
            "coordinator = \"{}:{COORDINATOR_PORT}\"\nkey = \"{}\"\n[budget]\nbulk = \"{BUDGET}\"\n\
             [[rule]]\nprogram = \"cast\"\nclass = \"bulk\"\n",
            lab.addresses[COORDINATOR],
            directory.join("key").display(),
        );
        std::fs::write(directory.join("site.toml"), policy)?;
        private(&directory.join("key"))?;
        let counter = BytesIn::new(lab.on(RECEIVER, "sh"))?;
        let senders = (0..=SENDERS).map(|_| None).collect();
        let mut run =
            Self { lab, program, directory, coordinator: None, receiver: None, senders, counter };
        let listen = format!("{}:{RECEIVER_PORT}", run.lab.addresses[RECEIVER]);
        let into = run.directory.join("into");
        let mut receiver = run.lab.on(RECEIVER, &run.program);
        receiver
            .args(["cast", "serve", "--listen", &listen, "--key"])
            .arg(run.directory.join("key"));
        receiver.arg("--into").arg(into).stderr(Stdio::null());
        run.receiver = Some(receiver.spawn().context("a receiver")?);
        Ok(run)
    }

    /// Begins the coordinator.
    fn begin(&mut self) -> Result<()> {
        let listen = format!("{}:{COORDINATOR_PORT}", self.lab.addresses[COORDINATOR]);
        let mut coordinator = self.lab.on(COORDINATOR, &self.program);
        coordinator.args(["policy", "serve", "--listen", &listen]);
        coordinator.arg(self.directory.join("site.toml"));
        self.coordinator = Some(coordinator.spawn().context("a coordinator")?);
        Ok(())
    }

    fn join(&mut self, host: usize) -> Result<()> {
        let to = format!("{}:{RECEIVER_PORT}", self.lab.addresses[RECEIVER]);
        let mut cast = self.lab.on(host, &self.program);
        cast.args([
            "cast",
            "--exec",
            "cat /dev/urandom",
            "--name",
            &format!("s{host}"),
            "--to",
            &to,
        ]);
        cast.arg("--key").arg(self.directory.join("key"));
        cast.arg("--policy").arg(self.directory.join("site.toml"));
        // Casts of one user on one host share a rate; these are on hosts of their own.
        cast.env("XDG_STATE_HOME", self.directory.join(format!("state{host}")));
        let errors = std::fs::File::create(self.directory.join(format!("errors{host}")))?;
        cast.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
        self.senders[host] = Some(cast.spawn().context("a sender")?);
        Ok(())
    }

    /// Lets an event happen; returns its name, or nothing at the end.
    fn happen(&mut self, event: &BudgetEvent) -> Result<Option<String>> {
        Ok(Some(match event {
            BudgetEvent::Join(hosts) => {
                hosts.iter().try_for_each(|host| self.join(*host))?;
                format!("{} join", hosts.len())
            }
            BudgetEvent::Leave(hosts) => {
                for host in *hosts {
                    self.senders[*host].take().into_iter().for_each(|child| end(child, "-INT"));
                }
                format!("{} leave", hosts.len())
            }
            BudgetEvent::Kill => {
                self.coordinator.take().into_iter().for_each(|child| end(child, "-KILL"));
                "coordinator killed".to_owned()
            }
            BudgetEvent::Begin => {
                self.begin()?;
                "coordinator begins again".to_owned()
            }
            BudgetEvent::End => return Ok(None),
        }))
    }
}

/// Writes a key that only this user reads.
pub(super) fn private(path: &Path) -> Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(path)?;
    Ok(file.write_all(b"a key of more than sixteen bytes")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn received__headings_and_the_loopback_have_no_bytes() {
        assert_eq!(received("  eth0: 1234 5 0 0 0 0 0 0 99 1"), Some(1234.0));
        for line in ["    lo: 77 1", "face |bytes packets", " Inter-| Receive | Transmit", "x: y"] {
            assert_eq!(received(line), None, "{line}");
        }
    }
}
