//! `cargo xtask bench start`: how long ranks under Hydra take until all can send, compared with
//! the smallest program that Hydra can start.
//!
//! # Model
//! Two contestants, as many ranks each: `clearway gather`, which does all that a run does before
//! its first message and then ends, and a shell that says to the launcher what any program of a job
//! must (greeting, one barrier, farewell). What the former takes more is Clearway's own. Each round
//! runs both, forwards and then backwards. Processor time of all processes together decides, since
//! many ranks share few processors here; a site has at least one for each rank.
//!
//! # Not here
//! The first message itself: some 10 us on any wire.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::contestant::value;
use super::hosts::are_there;
use super::mpi::MPICH;
use super::{BenchArguments, build_program, load, spread};

/// The launcher.
const LAUNCHER: &str = MPICH.launcher;
/// Ranks of a run.
const RANKS: usize = 16;
/// Longest run in s; one that hangs is ended.
const DEADLINE_S: &str = "60";
/// The least that a rank must say in PMI-1.
const LEAST: &str = r#"for words in 'init pmi_version=1 pmi_subversion=1' barrier_in finalize; do
    echo "cmd=$words" >&"$PMI_FD"; read -r answer <&"$PMI_FD"; done"#;
/// Runs its arguments and says what they took, in s; the shell's own measure has three digits
/// behind the point.
const TIMED: &str =
    r#"TIMEFORMAT="user %U system %S wall %R"; { time "$@" >/dev/null 2>&3; } 3>&2"#;

/// What one contestant took in each round, in ms.
#[derive(Default)]
struct StartTimes {
    processor: Vec<f64>,
    wall: Vec<f64>,
}

/// Runs the bench.
pub(super) fn run(options: &BenchArguments) -> Result<ExitCode> {
    if !are_there("bench start", &[LAUNCHER]) {
        return Ok(ExitCode::SUCCESS);
    }
    let program = build_program()?;
    let own: Vec<&str> = vec![program.to_str().context("the program's path is no text")?, "gather"];
    let contests = [own, vec!["bash", "-c", LEAST]];
    let mut taken = [StartTimes::default(), StartTimes::default()];
    let loaded = load();
    for round in 0..options.rounds {
        for turn in 0..contests.len() {
            let at = if round % 2 == 0 { turn } else { contests.len() - 1 - turn };
            time(&contests[at], &mut taken[at])?;
        }
    }
    let [own, least] = &taken;
    if options.json {
        println!("{}", record(options, loaded, own, least));
    } else {
        print!("{}", text(options, loaded, own, least));
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `rank` once on every rank.
fn time(rank: &[&str], taken: &mut StartTimes) -> Result<()> {
    let mut command = Command::new("timeout");
    command
        .args([DEADLINE_S, "bash", "-c", TIMED, "bash", LAUNCHER, "-n", &RANKS.to_string()])
        .args(rank);
    let output = command.output().context("timeout")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{LAUNCHER}: {}", said.trim());
    let last = said.lines().last().context("the shell did not say what was taken")?;
    taken.processor.push(1e3 * (value(last, "user")? + value(last, "system")?));
    taken.wall.push(1e3 * value(last, "wall")?);
    Ok(())
}

/// What medians differ by: processor time of all ranks, of one, and time by the clock.
fn own_share(own: &StartTimes, least: &StartTimes) -> Option<[f64; 3]> {
    let processor = spread(&own.processor)?.0 - spread(&least.processor)?.0;
    let wall = spread(&own.wall)?.0 - spread(&least.wall)?.0;
    Some([processor, processor / RANKS as f64, wall])
}

fn text(options: &BenchArguments, loaded: f64, own: &StartTimes, least: &StartTimes) -> String {
    let mut text = format!(
        "{RANKS} ranks under {LAUNCHER}, {} rounds, load {loaded} before and {} after\nmedian (least to greatest), ms\n\n",
        options.rounds,
        load()
    );
    for (name, taken) in [("clearway gather", own), ("least program", least)] {
        for (what, values) in
            [("processor time, all ranks", &taken.processor), ("by the clock", &taken.wall)]
        {
            if let Some((median, least, greatest)) = spread(values) {
                text.push_str(&format!(
                    "  {name:<18} {what:<28} {median:>9.1} ({least:.1} to {greatest:.1})\n"
                ));
            }
        }
    }
    if let Some([all, each, wall]) = own_share(own, least) {
        text.push_str(&format!(
            "\n  own processor time {all:.1}, {each:.1} a rank; own time by the clock {wall:.1}\n"
        ));
    }
    text
}

fn record(
    options: &BenchArguments,
    loaded: f64,
    own: &StartTimes,
    least: &StartTimes,
) -> serde_json::Value {
    let each = |taken: &StartTimes| json!({"processor_ms": taken.processor, "wall_ms": taken.wall});
    json!({
        "bench": "start",
        "rounds": options.rounds,
        "ranks": RANKS,
        "load": [loaded, load()],
        "figures": {"clearway gather": each(own), "least program": each(least)},
        "own_ms": own_share(own, least),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_share__is_what_medians_differ_by() {
        let own = StartTimes { processor: vec![900.0, 340.0, 330.0], wall: vec![60.0] };
        let least = StartTimes { processor: vec![20.0], wall: vec![10.0] };
        assert_eq!(own_share(&own, &least), Some([320.0, 20.0, 50.0]));
        assert_eq!(own_share(&own, &StartTimes::default()), None);
    }

    #[test]
    fn time__reads_what_the_shell_measured() {
        assert_eq!(value("user 0.010 system 0.002 wall 0.100", "system").ok(), Some(0.002));
    }
}
