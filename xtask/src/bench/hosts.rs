//! A lab for benches: virtual hosts on a switch, programs in them, and packets lost where they come
//! in.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::afterwards::Afterwards;

/// A lab that ends with this value.
pub(super) struct Hosts {
    program: PathBuf,
    name: String,
    /// By host.
    pub(super) addresses: Vec<String>,
    _down: Afterwards,
}

impl Hosts {
    /// Creates a lab of this many hosts with links of `rate` and queues of `queue`, whose packets may
    /// be of up to `frames` frames, by the program at this path.
    pub(super) fn up(
        program: PathBuf,
        hosts: usize,
        rate: &str,
        queue: &str,
        frames: u32,
    ) -> Result<Self> {
        let name = format!(
            "bench-{frames}-{}-{}",
            rate.to_lowercase().replace('/', ""),
            std::process::id()
        );
        // A lab that does not go down is ended with its keeper.
        let down = Afterwards::run(&program, &["lab", "down", "--name", &name])?;
        let mut lab = Self { program, name, addresses: Vec::new(), _down: down };
        let (count, frames) = (hosts.to_string(), frames.to_string());
        let up =
            ["lab", "up", "--name", &lab.name, "--hosts", &count, "--rate", rate, "--queue", queue];
        let mut command = Command::new(&lab.program);
        command.args(up).args(["--offload", &frames, "--skip-self-test"]);
        let output = command.output().context("clearway lab up")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
        for host in 0..hosts {
            let output = lab
                .on(host, "ip")
                .args(["-4", "-o", "addr", "show", "scope", "global"])
                .output()?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let address =
                text.split_ascii_whitespace().nth(3).and_then(|net| net.split('/').next());
            lab.addresses.push(address.context("a host without an address")?.to_owned());
        }
        Ok(lab)
    }

    /// `program` on a host.
    pub(super) fn on(&self, host: usize, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args([
                "lab",
                "exec",
                "--share-mounts",
                "--name",
                &self.name,
                &format!("h{host}"),
                "--",
            ])
            .arg(program);
        command
    }

    /// Lets every host lose this many thousandths of what comes in.
    pub(super) fn lose(&self, thousandths: u32) -> Result<()> {
        let rule = match thousandths {
            0 => String::new(),
            _ => format!(
                "table ip lossy {{\n chain in {{\n type filter hook input priority 0\n numgen random mod 1000 < {thousandths} drop\n }}\n}}\n"
            ),
        };
        for host in 0..self.addresses.len() {
            let mut child = self
                .on(host, "nft")
                .args(["-f", "-"])
                .stdin(Stdio::piped())
                .spawn()
                .context("nft")?;
            let mut input = child.stdin.take().context("a pipe to nft")?;
            input.write_all(format!("flush ruleset\n{rule}").as_bytes())?;
            drop(input);
            ensure!(child.wait()?.success(), "nft refuses the rule");
        }
        Ok(())
    }

    /// The network of all hosts.
    pub(super) fn network(&self) -> String {
        let prefix = self
            .addresses
            .first()
            .and_then(|address| address.rsplit_once('.'))
            .map_or("", |(prefix, _)| prefix);
        format!("{prefix}.0/24")
    }

    /// A script in `directory` that runs a command on the host with an address: what launchers take
    /// for `ssh`.
    pub(super) fn agent(&self, directory: &Path) -> Result<PathBuf> {
        use std::os::unix::fs::PermissionsExt;
        let path = directory.join(format!("agent-{}", self.name));
        let mut text =
            "#!/bin/sh\nwhile case $1 in -*) true;; *) false;; esac; do shift; done\ncase $1 in\n"
                .to_owned();
        for (host, address) in self.addresses.iter().enumerate() {
            text += &format!("{address}) host=h{host};;\n");
        }
        let program = self.program.display();
        // Launchers take hosts of one name for one host.
        text += &format!(
            "esac\nshift\nexec {program} lab exec --name {} $host -- unshare -u sh -c \"hostname $host; $*\"\n",
            self.name
        );
        std::fs::write(&path, text)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700))?;
        Ok(path)
    }
}

/// Says which of `programs` is not installed, as the reason why `what` is skipped; whether none is
/// missing.
pub(super) fn are_there(what: &str, programs: &[&str]) -> bool {
    let is_missing = |program: &&&str| {
        let which = Command::new("sh")
            .args(["-c", &format!("command -v {program}")])
            .stdout(Stdio::null())
            .status();
        !which.is_ok_and(|status| status.success())
    };
    match programs.iter().find(is_missing) {
        Some(program) => {
            eprintln!("skipped: {what} needs the program `{program}`");
            false
        }
        None => true,
    }
}
