//! Broadcasts by processes in a lab: every way, with and without loss, every byte compared; deaths;
//! what is refused.

use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// The exit status when namespaces are refused.
const NO_PERMISSION: i32 = 5;

/// `clearway broadcast` with `words`; nothing where there are no namespaces.
fn broadcast(words: &str) -> Option<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_clearway"));
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let call = format!(
        "clearway-broadcast-{}-{}",
        std::process::id(),
        CALLS.fetch_add(1, Ordering::Relaxed)
    );
    let directory = std::env::temp_dir().join(call);
    std::fs::create_dir_all(&directory).expect("a directory");
    command.arg("broadcast").args(words.split_whitespace()).current_dir(&directory);
    let output = command.output().expect("the program");
    let report = std::fs::read_to_string(directory.join("out/broadcast/1/report.json"));
    let is_of_users =
        output.status.success() && !words.contains("--faults") && !words.contains("--roots");
    assert_eq!(
        report.is_ok_and(|text| text.contains("\"name\": \"broadcast_")),
        is_of_users,
        "{words}"
    );
    std::fs::remove_dir_all(&directory).expect("removed");
    if output.status.code() == Some(NO_PERMISSION) {
        eprintln!("skipped: {}", String::from_utf8_lossy(&output.stderr).trim());
        return None;
    }
    Some(output)
}

fn figures(output: &Output) -> Vec<serde_json::Value> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    printed["figures"].as_array().expect("figures").clone()
}

/// Whether there is a figure `name` with these labels, and how many samples it has.
fn samples(figures: &[serde_json::Value], name: &str, labels: &[(&str, &str)]) -> Option<u64> {
    let is = |figure: &&serde_json::Value| {
        figure["name"] == name && labels.iter().all(|(key, value)| figure["labels"][key] == *value)
    };
    figures.iter().find(is)?["samples"].as_u64()
}

#[test]
fn job__ranks_of_one_host_cast_over_shared_memory() {
    let words = [
        "-n",
        "3",
        env!("CARGO_BIN_EXE_clearway"),
        "broadcast",
        "--on",
        "cluster",
        "--bytes",
        "4B,100kB",
    ];
    let mut command = Command::new("mpiexec.hydra");
    let directory =
        std::env::temp_dir().join(format!("clearway-broadcast-job-{}", std::process::id()));
    let Ok(output) = command
        .args(words)
        .args(["--objects", "5", "--json", "--overwrite", "--out"])
        .arg(&directory)
        .output()
    else {
        eprintln!("skipped: mpiexec.hydra cannot be started");
        return;
    };
    let reported = String::from_utf8_lossy(&output.stderr);
    assert!(reported.contains("all ranks are on one host and share memory"), "{reported}");
    assert_eq!(samples(&figures(&output), "broadcast_seconds", &[("bytes", "100000")]), Some(5));
    let report = std::fs::read(directory.join("report.json")).expect("a report");
    let report: serde_json::Value = serde_json::from_slice(&report).expect("JSON");
    assert_eq!((&report["place"], report["casting"].is_null()), (&"cluster".into(), true));
    std::fs::remove_dir_all(directory).expect("removed");
}

#[test]
fn lab__every_way_brings_every_object_with_and_without_loss() {
    let words = "--on lab --ranks 4 --bytes 4B,100kB --loss 0,0.02 --mode auto,chain,tree --objects 5 --json";
    let Some(output) = broadcast(words) else { return };
    let figures = figures(&output);
    for loss in ["0", "0.02"] {
        assert!(samples(&figures, "broadcast_bare_seconds", &[("loss", loss)]).is_some());
        for mode in ["auto", "chain", "tree"] {
            for bytes in ["4", "100000"] {
                let labels = [("loss", loss), ("mode", mode), ("bytes", bytes)];
                assert_eq!(samples(&figures, "broadcast_seconds", &labels), Some(5), "{labels:?}");
            }
        }
    }
}

#[test]
fn lab__a_dead_receiver_holds_nobody_up_and_a_dead_root_ends_it_for_all() {
    let words = "--on lab --ranks 4 --bytes 4MiB --objects 3 --json --silence 500ms --kill";
    let Some(output) = broadcast(&format!("{words} 2@1ms")) else { return };
    assert_eq!(samples(&figures(&output), "broadcast_seconds", &[]), Some(3));
    let Some(output) = broadcast(&format!("{words} 0@30ms")) else { return };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn lab__several_roots_cast_at_the_same_time_each_on_a_channel_and_the_ninth_shares_one() {
    let words = "--on lab --ranks 10 --bytes 4B,30kB --loss 0.01 --objects 3 --roots";
    let Some(output) = broadcast(&format!("{words} 10")) else { return };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    let rows: Vec<&str> = table.lines().filter(|line| line.contains(" auto ")).collect();
    // A machine that is so busy that a rank is silent for two seconds has more that share.
    let shared: Vec<usize> = rows.iter().map(|row| row.matches("shared").count()).collect();
    let [_, short, _, long] = shared[..] else { panic!("{table}") };
    assert!(short >= 2 && long >= 2, "{table}");
    let Some(output) = broadcast(&format!("{words} 3 --json")) else { return };
    let figures = figures(&output);
    for labels in [[("bytes", "4"), ("roots", "1")], [("bytes", "30000"), ("roots", "3")]] {
        assert_eq!(samples(&figures, "broadcast_roots_seconds", &labels), Some(3), "{labels:?}");
    }
}

/// What the report of `scenario` holds; nothing where there are no namespaces.
fn report(name: &str, scenario: &str) -> Option<serde_json::Value> {
    let directory =
        std::env::temp_dir().join(format!("clearway-broadcast-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let file = directory.join("scenario.toml");
    std::fs::write(&file, scenario).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_clearway"));
    let output =
        command.arg("run").arg(&file).arg("--out").arg(&directory).output().expect("the program");
    if output.status.code() == Some(NO_PERMISSION) {
        eprintln!("skipped: {}", String::from_utf8_lossy(&output.stderr).trim());
        return None;
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("every byte compared"));
    let report = std::fs::read(directory.join("report.json")).expect("a report");
    let _ = std::fs::remove_dir_all(&directory);
    Some(serde_json::from_slice(&report).expect("JSON"))
}

#[test]
fn run__a_report_has_what_its_pages_are_drawn_from() {
    let scenario = "name = \"t\"\n[fabric]\ntopology = { kind = \"star\", hosts = 4, rate = \"200Mb/s\" }\n\
                    [broadcast]\nbytes = [\"4B\", \"1MiB\"]\nloss = [0.01]\nmodes = [\"auto\", \"chain\"]\nobjects = 3\n";
    let Some(report) = report("pages", scenario) else { return };
    // These two are found by name and exactly these labels.
    for (name, labels) in [
        (
            "broadcast_seconds",
            serde_json::json!({ "bytes": "1048576", "loss": "0.01", "mode": "auto" }),
        ),
        ("broadcast_sender_cpu_seconds", serde_json::json!({ "bytes": "1048576", "loss": "0.01" })),
    ] {
        let figures = report["figures"].as_array().expect("figures");
        let found =
            figures.iter().filter(|figure| figure["name"] == name && figure["labels"] == labels);
        assert_eq!(found.count(), 1, "{name}");
    }
    let casts = report["casting"]["casts"].as_array().expect("casts");
    assert_eq!((casts.len(), &report["casting"]["hosts"][3]), (4, &serde_json::json!("h3")));
    for cast in casts.iter().filter(|cast| cast["bytes"] == 1 << 20) {
        let count = |value: &serde_json::Value| value.as_u64().unwrap_or(0);
        assert!(
            count(&cast["symbols"]["lost"]) > 0 && count(&cast["symbols"]["repairs"]) > 0,
            "{cast}"
        );
        for host in 1..4 {
            assert!(
                count(&cast["links"][host][1]) > 3 << 20,
                "every receiver got all objects: {}",
                cast["links"]
            );
            // A machine that is too busy to look has no film.
            assert!(
                cast["film"].is_null()
                    || cast["film"]["whole_ms"].as_array().map(Vec::len) == Some(3)
            );
        }
        // Whom most came from: the root by its group, and the one before along a chain.
        let most = |host: usize| {
            let sources = cast["sources"][host].as_array().expect("counts");
            (0..sources.len()).max_by_key(|from| count(&sources[*from]))
        };
        let elder = if cast["labels"]["mode"] == "auto" { 0 } else { 2 };
        assert_eq!(most(3), Some(elder), "{}", cast["sources"]);
    }
}

#[test]
fn lab__a_group_that_is_filtered_in_the_middle_is_left_and_every_byte_comes() {
    let words = "--on lab --ranks 4 --bytes 4MiB --objects 1 --mode multicast --filter 50ms --json";
    let Some(output) = broadcast(words) else { return };
    let figures = figures(&output);
    assert_eq!(samples(&figures, "broadcast_seconds", &[]), Some(1));
    assert_eq!(samples(&figures, "broadcast_stall_seconds", &[("mode", "multicast")]), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("the way changes to "));
}

#[test]
fn lab__where_multicast_stays_on_a_switch_each_switch_has_its_own_segment() {
    let words = "--on lab --leaves 2 --ranks 6 --bytes 4MiB --objects 2 --json --mode";
    let Some(output) = broadcast(&format!("{words} auto")) else { return };
    assert_eq!(samples(&figures(&output), "broadcast_seconds", &[]), Some(2));
    let reported = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(reported.contains("the way changes to segments"), "{reported}");
    let Some(output) = broadcast(&format!("{words} segments")) else { return };
    assert_eq!(samples(&figures(&output), "broadcast_seconds", &[("mode", "segments")]), Some(2));
}

#[test]
fn flags__what_cannot_be_is_refused_in_one_sentence() {
    for (words, what) in [
        ("--ranks 1", "a broadcast has a root and receivers: 1 is too few, 2 ranks and more work"),
        ("--bytes 0B", "--bytes is 0 B; 1B to "),
        ("--bytes 3GiB", "--bytes is 3 GiB; 1B to 2 GiB work"),
        ("--loss 0.9", "`0.9` is no share"),
        ("--leaves 2 --ranks 7", "7 ranks do not split evenly over 2 switches: use 8"),
        ("--on sim --leaves 2", "--leaves is for --on lab"),
        ("--kill 8@1s", "--kill is rank 8 at "),
        ("--silence 1ms", "--silence is 1ms; "),
        ("--on cluster --ranks 4", "--ranks is for --on lab"),
        ("--ranks 4 --roots 5", "--roots is 5; 1 to 4 work with 4 ranks"),
        ("--on sim --roots 2", "--roots is for --on lab"),
    ] {
        let Some(output) = broadcast(words) else { return };
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(what), "{words}: {said}");
    }
}

#[test]
fn bench__broadcasts_load_the_links_of_a_lab() {
    let directory =
        std::env::temp_dir().join(format!("clearway-broadcast-bench-{}", std::process::id()));
    let mut command = Command::new(env!("CARGO_BIN_EXE_clearway"));
    command.args(
        "bench --on lab --victims ping --congestors cast,cast-chain,cast-tree --queues fifo --time 1200ms".split(' '),
    );
    let output = command.arg("--out").arg(&directory).output().expect("the program");
    if output.status.code() == Some(NO_PERMISSION) {
        eprintln!("skipped: {}", String::from_utf8_lossy(&output.stderr).trim());
        return;
    }
    let report = std::fs::read(directory.join("report.json"));
    let report: serde_json::Value =
        serde_json::from_slice(&report.unwrap_or_else(|_| panic!("{output:?}"))).expect("JSON");
    std::fs::remove_dir_all(&directory).expect("removed");
    for way in ["cast", "cast-chain", "cast-tree"] {
        let of = |figure: &&serde_json::Value| {
            figure["name"] == "congestor_goodput_share" && figure["labels"]["congestor"] == way
        };
        let share =
            report["figures"].as_array().and_then(|all| all.iter().find(of)).expect("a share");
        // How much of it a busy machine lets through is not what is asked.
        assert!(share["value"].as_f64().is_some_and(|share| share > 1.0), "{way}: {share}");
    }
}
