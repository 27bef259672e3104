//! `cargo xtask <command>`: the chores of this repository that plain cargo does not know.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(non_snake_case))]

mod bench;
mod conformance;
mod crash;
mod dist;
mod golden;
mod header;
mod install;
mod suites;
mod swarm;
mod tidy;

use std::process::ExitCode;

/// One chore: its name, one sentence for `--help`, and what it does with the arguments after its
/// name.
struct Command {
    name: &'static str,
    sentence: &'static str,
    run: fn(&[String]) -> anyhow::Result<ExitCode>,
}

/// Every chore, in the order of `--help`.
const COMMANDS: &[Command] = &[
    Command {
        name: "tidy",
        sentence: "compare the tree with the house rules; `--update` writes what shrank into xtask/ratchet.txt",
        run: tidy::run,
    },
    Command {
        name: "bench",
        sentence: "`bench wire`: the UDP wire next to iperf3 and plain sockets; `bench shm`: the shared-memory wire next to Open MPI; `bench fabric`: the simulated fabric next to ns-3 and SimGrid; `--json` prints a record",
        run: bench::run,
    },
    Command {
        name: "conformance",
        sentence: "run every wire against every promise of the contract; print one matrix",
        run: conformance::run,
    },
    Command {
        name: "swarm",
        sentence: "run the tests that are too long for `cargo test`, and thousands of small networks under random faults; `swarm casts`: casts of files under drawn mishaps; `--seeds N --jobs N --minutes N --first SEED`",
        run: swarm::run,
    },
    Command {
        name: "crash",
        sentence: "run programs on a mounted log, and try each loss of power that its disk allows; `--seeds N --jobs N --minutes N --first SEED`",
        run: crash::run,
    },
    Command {
        name: "dist",
        sentence: "build and pack a release into one directory: an archive, a Debian package, files for Spack and containers, notes, sums; `--out DIR`; `--profile NAME`",
        run: dist::run,
    },
    Command {
        name: "dist-check",
        sentence: "unpack what `dist` made, and try it by its documented commands; the directory (default: target/dist)",
        run: dist::check::run,
    },
    Command {
        name: "forgetful-disk",
        sentence: "mount a disk in memory on a directory, and forget on command what was not synced",
        run: crash::run_disk,
    },
    Command {
        name: "golden",
        sentence: "run the simulated machines in full and compare their congestion figures; `--update` writes them; names choose",
        run: golden::run,
    },
    Command {
        name: "header",
        sentence: "write the headers of the OpenSHMEM library from its table",
        run: header::run,
    },
    Command {
        name: "install",
        sentence: "build and install the program, the OpenSHMEM library, its headers and tools: `--prefix DIR`; `--profile NAME`",
        run: install::run,
    },
    Command {
        name: "suites",
        sentence: "run test suites and programs of other people that are installed on a mounted log; names choose",
        run: suites::run,
    },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((name, rest)) = arguments.split_first() else {
        print!("{}", usage());
        return ExitCode::from(2);
    };
    if matches!(name.as_str(), "help" | "--help" | "-h") {
        print!("{}", usage());
        return ExitCode::SUCCESS;
    }
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        eprintln!("xtask: there is no command `{name}`; `cargo xtask --help` lists them");
        return ExitCode::from(2);
    };
    (command.run)(rest).unwrap_or_else(|error| {
        eprintln!("xtask {name}: {error:#}");
        ExitCode::FAILURE
    })
}

/// The text of `--help`.
fn usage() -> String {
    let mut text = String::from("usage: cargo xtask <command> [arguments]\n\n");
    for command in COMMANDS {
        text.push_str(&format!("  {:<14} {}\n", command.name, command.sentence));
    }
    text
}
