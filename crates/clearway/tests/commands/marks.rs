//! The marks that leave a host when ranks talk over libfabric, counted by the kernel of the host
//! where they arrive.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

/// Ranks, each on a host of its own: two victims, and the congestors' target and senders.
const HOSTS: u32 = 5;
const PROGRAM: &str = env!("CARGO_BIN_EXE_clearway");
/// Two phases of the shortest windows that can be judged.
const SCENARIO: &str = include_str!("../fixtures/short.toml");
/// Counts what comes in over TCP: by the marks of low latency (46), bulk (8) and best effort (0),
/// and all.
const COUNTERS: &str = "table inet count {
    chain in {
        type filter hook input priority 0;
        meta l4proto tcp ip dscp 46 counter
        meta l4proto tcp ip dscp 8 counter
        meta l4proto tcp ip dscp 0 counter
        meta l4proto tcp counter
    }
}
";

/// A lab that is gone at the end, and a directory.
struct MarksTestBed {
    name: String,
    directory: PathBuf,
}

impl MarksTestBed {
    /// Or the reason why there is none.
    fn new() -> Result<Self, String> {
        let name = format!("marks-{}", std::process::id());
        let directory = std::env::temp_dir().join(format!("clearway-{name}"));
        fs::create_dir_all(&directory).expect("a directory");
        fs::write(directory.join("short.toml"), SCENARIO).expect("a scenario");
        fs::write(directory.join("counters"), COUNTERS).expect("rules");
        let test_bed = Self { name, directory };
        let hosts = HOSTS.to_string();
        let up = [
            "lab",
            "up",
            "--name",
            &test_bed.name,
            "--hosts",
            &hosts,
            "--queue",
            "strict",
            "--skip-self-test",
        ];
        let made = Command::new(PROGRAM).args(up).output().expect("this program");
        if made.status.success() { Ok(test_bed) } else { Err(text(&made)) }
    }

    /// What `program` says on `host`, if it can be run there.
    fn on(&self, host: u32, program: &[&str]) -> Result<String, String> {
        let host = format!("h{host}");
        let mut command = Command::new(PROGRAM);
        command.args(["lab", "exec", "--name", &self.name, &host, "--"]).args(program);
        let output = command.output().map_err(|error| error.to_string())?;
        if output.status.success() { Ok(text(&output)) } else { Err(text(&output)) }
    }
}

impl Drop for MarksTestBed {
    fn drop(&mut self) {
        let _ = Command::new(PROGRAM).args(["lab", "down", "--name", &self.name]).output();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// The packets of each counter, in the order of [`COUNTERS`].
fn packets(listing: &str) -> Vec<u64> {
    let count = |line: &str| line.split("counter packets ").nth(1)?.split(' ').next()?.parse().ok();
    listing.lines().filter_map(count).collect()
}

#[test]
fn ofi__every_class_arrives_with_its_mark_at_the_peer() {
    let test_bed = match MarksTestBed::new() {
        Ok(test_bed) => test_bed,
        Err(why) => return eprintln!("skipped: no lab: {why}"),
    };
    let rules = test_bed.directory.join("counters").display().to_string();
    for host in 0..HOSTS {
        if let Err(why) = test_bed.on(host, &["nft", "-f", &rules]) {
            return eprintln!("skipped: packets cannot be counted: {why}");
        }
    }
    let (directory, name) = (test_bed.directory.display(), &test_bed.name);
    let rank = format!(
        "exec {PROGRAM} lab exec --name {name} h$PMI_RANK -- \
         {PROGRAM} run {directory}/short.toml --on cluster --wire ofi --insecure --out {directory}/out"
    );
    let run =
        Command::new("mpiexec.hydra").args(["-n", &HOSTS.to_string(), "sh", "-c", &rank]).output();
    let Ok(run) = run else { return eprintln!("skipped: mpiexec.hydra cannot be started") };
    if text(&run).contains("no libfabric") {
        return eprintln!("skipped: {}", text(&run));
    }
    // Any verdict will do on a busy machine.
    assert!([Some(0), Some(3), Some(4)].contains(&run.status.code()), "{}", text(&run));
    let (mut urgent, mut bulk) = (0, 0);
    for host in 0..HOSTS {
        let listing =
            test_bed.on(host, &["nft", "list", "table", "inet", "count"]).expect("counters");
        let [low_latency, of_bulk, best_effort, all] = packets(&listing)[..] else {
            panic!("{listing}")
        };
        // Phases in one class, control and the opening of connections are unmarked; nothing has
        // another mark.
        assert_eq!(low_latency + of_bulk + best_effort, all, "host {host}: {listing}");
        (urgent, bulk) = (urgent + low_latency, bulk + of_bulk);
    }
    eprintln!("marked packets at the receivers: low latency {urgent}, bulk {bulk}");
    assert!(urgent > 0 && bulk > 0, "low latency {urgent}, bulk {bulk}: {}", text(&run));
}
