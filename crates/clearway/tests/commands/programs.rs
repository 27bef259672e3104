//! Programs of the user's own as victims and congestors: what is said of them, and that nothing of
//! them is left.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::processes::{self, FoundProcess};
use crate::waiting::wait_until;

/// A directory of this test alone, gone at the end. Commands name it, so that their processes can
/// be found.
struct ProgramDirectory(PathBuf);

impl ProgramDirectory {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("clearway-program-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// `clearway bench` with these flags.
    fn bench(&self, flags: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_clearway"));
        command.arg("bench").args(flags).args(["--overwrite", "--out", &self.path("out")]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, flags: &[&str]) -> Output {
        self.bench(flags).output().expect("the program runs")
    }

    /// Processes of commands: those whose command lines name the directory, but for the program
    /// itself.
    fn processes(&self) -> Vec<FoundProcess> {
        let directory = self.0.display().to_string();
        processes::all()
            .filter(|it| it.line.contains(&directory) && !it.line.contains("clearway bench"))
            .collect()
    }

    fn wait_until(&self, what: &str, is_so: impl Fn(&[FoundProcess]) -> bool) -> Vec<FoundProcess> {
        processes::wait_until(what, || self.processes(), is_so)
    }

    fn expect_nothing_left(&self) {
        self.wait_until("nothing is left", <[FoundProcess]>::is_empty);
    }
}

impl Drop for ProgramDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A victim that does `this` where a file lies that a congestor puts there, and the congestor.
fn slowed(scratch: &ProgramDirectory, this: &str) -> [String; 2] {
    let [busy, met] = ["busy", "met"].map(|name| scratch.path(name));
    let victim = format!("if [ -e {busy} ]; then echo >>{met}; {this}; else echo 'took 10 us'; fi");
    [
        victim,
        format!("trap 'rm -f {busy}; exit 0' TERM; touch {busy}; while :; do sleep 0.05; done"),
    ]
}

/// Whether each of six pairs met its congestor, which a machine may be too busy to start before the
/// victim is.
fn all_met(scratch: &ProgramDirectory) -> bool {
    let met = fs::read(scratch.path("met")).unwrap_or_default().len() == 6;
    if !met {
        eprintln!("skipped: this machine is too busy to start a congestor in time");
    }
    let _ = fs::remove_file(scratch.path("met"));
    met
}

/// Whether six pairs whose victim says four times as much under a congestor have this slowdown and
/// exit code.
fn slowdown_is(figure: &str, slowdown: f64, code: i32) {
    let scratch = ProgramDirectory::new(&format!("pairs-{figure}"));
    let [victim, congestor] = slowed(&scratch, "echo 'took 40 us'");
    let flags = [
        "--victim-cmd",
        &victim,
        "--congestor-cmd",
        &congestor,
        "--victim-figure",
        figure,
        "--pairs",
        "6",
    ];
    let output = scratch.run(&flags);
    if !all_met(&scratch) {
        return;
    }
    assert_eq!(output.status.code(), Some(code), "{}", errors(&output));
    let report = fs::read(scratch.path("out/report.json")).expect("a report");
    let report: serde_json::Value = serde_json::from_slice(&report).expect("JSON");
    assert_eq!(report["place"], "here");
    let figures = report["figures"].as_array().expect("figures");
    let found =
        figures.iter().find(|figure| figure["name"] == "program_slowdown").expect("a slowdown");
    assert_eq!(
        (&found["value"], &found["low"], &found["samples"]),
        (&slowdown.into(), &slowdown.into(), &6.into())
    );
    let page = fs::read_to_string(scratch.path("out/report.html")).expect("a page");
    assert!(page.contains("The program") && page.contains("program.victim-cmd"));
    scratch.expect_nothing_left();
}

#[test]
fn commands__slowdown_is_that_of_the_pairs() {
    // Both runs wait for their congestors nearly all the time.
    std::thread::scope(|scope| {
        scope.spawn(|| slowdown_is("time", 4.0, 3));
        scope.spawn(|| slowdown_is("rate", 0.25, 0));
    });
}

#[test]
fn commands__a_failure_is_one_sentence_with_the_last_word() {
    let scratch = ProgramDirectory::new("fails");
    let nap = format!("exec sleep 1000 # {}", scratch.path(""));
    for (victim, congestor, more, sentence) in [
        (
            "echo one >&2; echo no route >&2; exit 3",
            nap.as_str(),
            &[][..],
            "the victim command ended with status 3 on this host: no route",
        ),
        (
            "kill -9 $$",
            &nap,
            &[],
            "the victim command was killed by signal 9 on this host: it said nothing",
        ),
        (
            "sleep 1",
            "echo no server >&2; exit 7",
            &[],
            "the congestor command ended with status 7 on this host: no server",
        ),
        (
            &nap,
            "true",
            &["--victim-limit", "100ms"],
            "the victim command alone takes longer than 100 ms",
        ),
        (
            "echo all done",
            &nap,
            &["--victim-figure", "rate"],
            "last line holds no number above 0: `all done`",
        ),
    ] {
        let flags = [&["-q", "--victim-cmd", victim, "--congestor-cmd", congestor], more].concat();
        let output = scratch.run(&flags);
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(sentence) && said.trim_end().lines().count() == 1, "{said}");
        scratch.expect_nothing_left();
    }
}

#[test]
fn commands__a_run_without_end_under_congestors_is_infinitely_slow() {
    let scratch = ProgramDirectory::new("endless");
    let [victim, congestor] = slowed(&scratch, "exec sleep 1000");
    let flags = [
        "--victim-cmd",
        &victim,
        "--congestor-cmd",
        &congestor,
        "--victim-limit",
        "1s",
        "--pairs",
        "6",
    ];
    let output = scratch.run(&flags);
    if errors(&output).contains("the victim command alone takes longer") {
        return eprintln!("skipped: this machine is too busy to end a shell in time");
    }
    if !all_met(&scratch) {
        return;
    }
    assert_eq!(output.status.code(), Some(3), "{}", errors(&output));
    assert!(errors(&output).contains("-> no end, inf times"), "{}", errors(&output));
    scratch.expect_nothing_left();
}

/// Starts a run whose commands have descendants in groups and sessions of their own, and waits
/// until they are there.
fn with_descendants(scratch: &ProgramDirectory) -> Child {
    let far = format!("sh -c 'sleep 1000; : {}'", scratch.path("far"));
    let congestor = format!("setsid {far} & setsid setsid {far} & trap '' TERM; wait; wait");
    let victim = format!("sleep 1000; : {}", scratch.path("victim"));
    let flags = [
        "--victim-cmd",
        &format!("[ -e {0} ] && {victim}; touch {0}", scratch.path("warm")),
        "--congestor-cmd",
        &congestor,
    ];
    // The first pair of this seed begins under load.
    let run = scratch.bench(&[&flags[..], &["--seed", "2"]].concat()).spawn().expect("the program");
    scratch.wait_until("the commands start", |found| {
        let of = |word: &str| {
            found.iter().filter(|it| it.line.starts_with("sh -c") && it.line.contains(word)).count()
        };
        of("/far") >= 3 || of("/victim") >= 1
    });
    run
}

#[test]
fn commands__whatever_ends_the_coordinator_ends_all_descendants() {
    let scratch = ProgramDirectory::new("ends");
    for (signal, code) in
        [(Signal::SIGINT, Some(130)), (Signal::SIGTERM, Some(130)), (Signal::SIGKILL, None)]
    {
        let run = with_descendants(&scratch);
        kill(Pid::from_raw(run.id().cast_signed()), signal).expect("signalled");
        let output = run.wait_with_output().expect("an end");
        assert_eq!(output.status.code(), code, "{}", errors(&output));
        scratch.expect_nothing_left();
        assert!(!scratch.0.join("out/report.json").exists(), "a report of half a run");
        fs::remove_file(scratch.path("warm")).unwrap_or_default();
    }
}

#[test]
fn commands__a_guard_that_is_killed_leaves_nothing_of_its_command() {
    let scratch = ProgramDirectory::new("guards");
    for is_watched in [false, true] {
        let run = with_descendants(&scratch);
        let guards = scratch.wait_until("the guards start", |found| {
            found.iter().filter(|it| it.line.contains(" guard --watched-by ")).count() == 2
        });
        let is_one = |it: &&FoundProcess| {
            it.line.contains(" guard ") && it.line.contains(" --watched-by ") == is_watched
        };
        for guard in guards.iter().filter(is_one) {
            // The first one's end may have ended the run, and the other with it.
            let _ = kill(guard.pid, Signal::SIGKILL);
        }
        let output = run.wait_with_output().expect("an end");
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("is gone; run again"), "{said}");
        scratch.expect_nothing_left();
        fs::remove_file(scratch.path("warm")).unwrap_or_default();
    }
}

#[test]
fn commands__a_nice_command_ends_at_the_priority_of_its_guard() {
    if !nix::unistd::geteuid().is_root() {
        return eprintln!("skipped: only root can raise a priority");
    }
    let scratch = ProgramDirectory::new("nice");
    // Field 19 of the line is the niceness: proc_pid_stat(5).
    let script = "note() { read -r stat </proc/$$/stat; set -- $stat; echo ${19}; }\n\
                  trap 'note; exit 0' TERM\nnote >&2\nwhile :; do sleep 0.05; done\n";
    fs::write(scratch.path("script"), script).expect("a script");
    let own = script.replace("while", "exit 0; while");
    let own = Command::new("sh").args(["-c", &own]).output().expect("a shell");
    let line = format!("exec nice -n 7 sh {} 2>{}", scratch.path("script"), scratch.path("begun"));
    let mut guard = Command::new(env!("CARGO_BIN_EXE_clearway"))
        .args(["guard", &line])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a guard");
    let mut orders = guard.stdin.take().expect("a pipe");
    orders.write_all(b"go\n").expect("an order");
    let mut begun = String::new();
    wait_until("the command begins", || {
        begun = fs::read_to_string(scratch.path("begun")).unwrap_or_default();
        begun.ends_with('\n')
    });
    orders.write_all(b"stop\n").expect("an order");
    drop(orders);
    let answer = guard.wait_with_output().expect("ended").stdout;
    let answer: serde_json::Value = serde_json::from_slice(&answer).expect("JSON");
    assert_ne!(begun.as_bytes(), own.stderr);
    assert_eq!(answer["last_line"], errors(&own).trim());
}

#[test]
fn commands__places_and_flags_that_do_not_fit_are_refused() {
    let scratch = ProgramDirectory::new("flags");
    for (flags, code, sentence) in [
        (&["--victim-cmd", "true", "--on", "sim"][..], 2, "runs in a lab or on a cluster"),
        (
            &["--victim-cmd", "true", "--congestor-cmd", "true", "--on", "cluster"],
            2,
            "two commands need no ranks",
        ),
        (&["--victim-cmd", "true", "--victims", "ping"], 2, "cannot be used with"),
        (&["--congestor-cmd", "true", "--fabric", "edr"], 2, "cannot be used with"),
        (&["--congestor-cmd", "true", "--pairs", "7"], 2, "--victim-cmd"),
        (&["--victim-cmd", "true", "--pairs", "5"], 2, "6..=1000"),
        (
            &["--victim-cmd", "true", "--slowdown-max", "0.9"],
            2,
            "below 1 no program could ever be unharmed",
        ),
        (&["--victim-cmd", "true", "--slowdown-max", "NaN"], 2, "a finite number"),
        (&["--congestors", "program"], 2, "is a command of yours; --congestor-cmd names it"),
    ] {
        let output = scratch.run(flags);
        assert_eq!(output.status.code(), Some(code), "{flags:?}: {}", errors(&output));
        assert!(errors(&output).contains(sentence), "{flags:?}: {}", errors(&output));
    }
}

#[test]
fn commands__in_a_lab_run_on_the_hosts_of_their_part() {
    let scratch = ProgramDirectory::new("lab");
    // On the first of its two hosts a command sees an address of the lab, and its own name.
    let seen = scratch.path("seen");
    let victim =
        format!("echo $CLEARWAY_HOST $CLEARWAY_PLACE $CLEARWAY_ADDRESSES >> {seen}; echo 1");
    let output = scratch.run(&[
        "--on",
        "lab",
        "--queues",
        "strict",
        "--victim-cmd",
        &victim,
        "--victim-figure",
        "time",
        "--pairs",
        "6",
    ]);
    if output.status.code() == Some(5) {
        return eprintln!("skipped: {}", errors(&output));
    }
    let seen =
        fs::read_to_string(scratch.path("seen")).unwrap_or_else(|_| panic!("{}", errors(&output)));
    let mut lines: Vec<Vec<&str>> = seen.lines().map(|line| line.split(' ').collect()).collect();
    assert_eq!(lines.len(), 2 * (1 + 12), "{}", errors(&output));
    lines.sort_unstable_by_key(|line| line[1]);
    lines.dedup();
    let [first, second] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((first[1], second[1], first[2]), ("0", "1", second[2]));
    assert!(first[0] != second[0] && first[2].split(',').count() == 2, "{lines:?}");
    let report = fs::read(scratch.path("out/report.json")).expect("a report");
    let report: serde_json::Value = serde_json::from_slice(&report).expect("JSON");
    let kept = report["host"]["facts"]["processors kept awake"].is_string();
    assert!(kept || report["warnings"].to_string().contains("idle processors sleep"), "{report}");
}
