//! Hosts of a lab for tests of whole programs, and cuts of their network.

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

const PROGRAM: &str = env!("CARGO_BIN_EXE_clearway");
static NUMBERS: AtomicU32 = AtomicU32::new(0);

/// A lab, gone when dropped.
pub(crate) struct VirtualHosts(String);

pub(crate) fn clearway(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).output().expect("the program starts")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the packets of each counter of a listed table, in order.
pub(crate) fn counters(listing: &str) -> Vec<u64> {
    let counts = listing.split("counter packets ").skip(1);
    counts.filter_map(|rest| rest.split(' ').next()?.parse().ok()).collect()
}

impl VirtualHosts {
    /// Makes hosts `h0`, `h1` and so on; `None`, and says why, where this user cannot, or one of
    /// `tools` is not installed.
    pub(crate) fn new(hosts: u32, tools: &[&str]) -> Option<Self> {
        for tool in tools {
            let found = Command::new("sh").args(["-c", &format!("command -v {tool}")]).output();
            if !found.is_ok_and(|found| found.status.success()) {
                eprintln!("skipped: {tool} is not installed");
                return None;
            }
        }
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("test{}-{number}", std::process::id());
        let up = clearway(&["lab", "up", "--name", &name, "--hosts", &hosts.to_string()]);
        // 5: a permission is missing.
        if up.status.code() == Some(5) {
            eprintln!("skipped: no lab: {}", text(&up.stderr));
            return None;
        }
        assert!(up.status.success(), "{}", text(&up.stderr));
        Some(Self(name))
    }

    /// Returns what runs a program on a host.
    pub(crate) fn program(&self, host: &str, program: &str) -> Command {
        let mut command = Command::new(PROGRAM);
        // Tests look at what programs mount.
        let words = ["lab", "exec", "--share-mounts", "--name", &self.0, host, "--", program];
        command.args(words);
        command
    }

    /// Returns what `bash` prints in `host` when it reads `script`.
    pub(crate) fn shell(&self, host: &str, script: &str) -> String {
        let mut shell = self
            .program(host, "bash")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        shell.stdin.take().expect("a pipe").write_all(script.as_bytes()).expect("read");
        let output = shell.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{host}: {script}\n{}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Drops all packets from and to a host.
    pub(crate) fn cut(&self, host: &str) {
        let chain = |hook| {
            format!(" chain {hook} {{\n type filter hook {hook} priority 0\n counter drop\n }}\n")
        };
        let (input, output) = (chain("input"), chain("output"));
        self.shell(host, &format!("nft -f - <<'E'\ntable inet cut {{\n{input}{output}}}\nE\n"));
    }

    /// Lets packets pass again; returns how many were dropped.
    pub(crate) fn restore(&self, host: &str) -> u64 {
        let listed = self.shell(host, "nft list table inet cut\nnft delete table inet cut");
        counters(&listed).into_iter().sum()
    }
}

impl Drop for VirtualHosts {
    fn drop(&mut self) {
        clearway(&["lab", "down", "--name", &self.0]);
    }
}

#[test]
fn exec__programs_find_hosts_by_name_and_the_machine_does_not() {
    let machine = std::fs::read("/etc/hosts").unwrap_or_default();
    let Some(lab) = VirtualHosts::new(3, &["getent"]) else { return };
    let find = |flags: &[&str]| {
        let words = ["lab", "exec", "--name", &lab.0];
        let program = ["h0", "--", "getent", "hosts", "h2"];
        clearway(&[&words[..], flags, &program[..]].concat())
    };
    let found = find(&[]);
    assert!(found.status.success(), "{}", text(&found.stderr));
    assert_eq!(text(&found.stdout).split_whitespace().collect::<Vec<_>>(), ["10.77.0.3", "h2"]);
    assert!(!find(&["--share-mounts"]).status.success(), "the machine knows no h2");
    assert_eq!(std::fs::read("/etc/hosts").unwrap_or_default(), machine);
}
