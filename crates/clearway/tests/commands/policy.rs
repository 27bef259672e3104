//! The policy of a site as a whole: what `policy check` says, and that every mechanism asks.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use crate::scraped::{Scraped, address};
use crate::virtual_hosts::{VirtualHosts, clearway, counters, text};

const PROGRAM: &str = env!("CARGO_BIN_EXE_clearway");
/// Everybody's traffic of every mechanism, as a site could restrict it.
const SITE: &str = "link = \"10Gb/s\"\n\
    [[rule]]\nprogram = \"cast\"\nclass = \"scavenger\"\nceiling = \"1Gb/s\"\n\
    [[rule]]\nprogram = \"sh\"\nclass = \"bulk\"\nshare = \"70%\"\n\
    [[rule]]\nprogram = [\"stage\", \"timeslice\", \"bench\"]\nclass = \"scavenger\"\nshare = \"10%\"\n";

/// A directory with files of policies, gone at the end.
struct PolicyPlace(PathBuf);

impl PolicyPlace {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("clearway-policy-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        fs::write(self.0.join(name), content).expect("written");
        self.0.join(name).display().to_string()
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for PolicyPlace {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[track_caller]
fn expect(output: &Output, status: i32, words: &str) {
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.code() == Some(status) && said.contains(words), "{words}:\n{said}");
}

#[test]
fn check__tells_rules_grants_and_faults_by_status() {
    let place = PolicyPlace::new("check");
    let site = place.write("site.toml", SITE);
    let check = |words: &[&str]| clearway(&[&["policy", "check", &site], words].concat());
    let table = check(&[]);
    expect(&table, 0, "program bench,stage,timeslice");
    assert!(text(&table.stdout).lines().all(|line| line.chars().count() <= 80));
    let document: serde_json::Value =
        serde_json::from_slice(&check(&["--json"]).stdout).expect("JSON");
    assert_eq!(document["rules"][0]["ceiling"], "1 Gb/s");
    let cast = ["--user", "eve", "--program", "cast"];
    expect(&check(&cast), 0, "class scavenger, at most 1 Gb/s for each host: rule 1 of");
    let bulk = [&cast[..], &["--class", "bulk"]].concat();
    expect(&check(&bulk), 3, "class bulk was requested, scavenger is granted");
    expect(&check(&["--class", "best-effort"]), 0, "no rule of");
    let grant = check(&[&bulk[..], &["--json"]].concat());
    let grant: serde_json::Value = serde_json::from_slice(&grant.stdout).expect("JSON");
    assert_eq!((&grant["granted"], &grant["most"]), (&"scavenger".into(), &"scavenger".into()));
    let wrong = place.write("wrong.toml", "[[rule]]\nclas = \"bulk\"\n");
    expect(&clearway(&["policy", "check", &wrong]), 3, "line 2: unknown key `clas` in a rule; did");
    expect(&clearway(&["policy", "check", &place.path("none.toml")]), 1, "cannot be read");
    expect(&clearway(&["policy", "check", &place.path(".")]), 1, "no regular file");
    let no_text = place.write("bytes.toml", [0xff, 0xfe]);
    expect(&clearway(&["policy", "check", &no_text]), 1, "cannot be read as text");
    expect(&clearway(&["policy", "check", &site, "--class", "fast"]), 2, "not a traffic class");
}

#[test]
fn start__programs_of_openshmem_get_the_class_that_is_granted() {
    let place = PolicyPlace::new("start");
    let site = place.write("site.toml", SITE);
    let wrong = place.write("wrong.toml", "rule = 1\n");
    let start = |policy: &str, requested: &str| {
        let mut command = Command::new(PROGRAM);
        command.args(["start", "-n", "1", "--policy", policy, "--", "sh", "-c"]);
        command.arg("echo class $SHMEM_CLASS").env("SHMEM_CLASS", requested);
        command.stdin(Stdio::null()).output().expect("the program")
    };
    expect(&start(&site, "high"), 0, "class low\n");
    expect(&start(&site, "high"), 0, "low-latency was requested, bulk is granted: rule 2 of");
    expect(&start(&site, "scavenger"), 0, "class scavenger\n");
    expect(&start(&wrong, "high"), 0, "class medium\n");
    expect(&start(&wrong, "low"), 0, "begin each with [[rule]]; scavenger is used until");
    // The library refuses what it does not know.
    expect(&start(&site, "HIGH"), 0, "class HIGH\n");
    let word = clearway(&["policy", "shmem-class", "--policy", &site, "/bin/sh"]);
    assert_eq!((word.status.code(), text(&word.stdout)), (Some(0), "low\n".to_owned()));
}

#[test]
fn qos__shares_of_the_policy_are_the_weights_of_what_is_emitted() {
    let place = PolicyPlace::new("qos");
    let site = place.write("site.toml", SITE);
    let emit = |target: &str| {
        let emitted = clearway(&["qos", "emit", "--for", target, "--policy", &site]);
        assert!(emitted.status.success(), "{}", text(&emitted.stderr));
        text(&emitted.stdout)
    };
    // A line of a shell script goes on behind a backslash.
    let tc = emit("tc").replace('\\', "");
    let words: Vec<&str> = tc.split_whitespace().collect();
    assert!(words.join(" ").contains("strict 2 quanta 18000 63000 9000"), "{tc}");
    assert!(emit("dcb").contains("tc-bw 0:10 1:70 2:20"), "{}", emit("dcb"));
    assert_eq!(emit("nft"), text(&clearway(&["qos", "emit", "--for", "nft"]).stdout));
    let conf = place.write("opensm.conf", emit("opensm"));
    let reported = clearway(&["qos", "check", &conf]);
    assert_eq!((reported.status.code(), text(&reported.stdout)), (Some(0), String::new()));
    let plan = clearway(&["qos", "plan", "--policy", &site]);
    expect(&plan, 0, "70.0 %");
    let wrong = place.write("wrong.toml", "[[rule]]\nclass = \"bulk\"\nshare = 300\n");
    expect(&clearway(&["qos", "plan", "--policy", &wrong]), 1, "a weight from 1 to 255");
}

#[test]
fn cast__blocks_travel_in_the_granted_class_and_a_wrong_policy_stops_nothing() {
    let Some(lab) = VirtualHosts::new(2, &["nft", "bash"]) else { return };
    let place = PolicyPlace::new("cast");
    let site = place.write("site.toml", SITE);
    let wrong = place.write("wrong.toml", "rule = 1\n");
    let key = place.write("key", "a key of more than sixteen bytes");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("private");
    let content = place.write("content", vec![7; 2 << 20]);
    lab.shell(
        "h1",
        "nft -f - <<'E'\ntable ip seen {\n chain in {\n type filter hook input priority 0;\n ip protocol udp ip dscp 1 counter\n ip protocol udp \
         ip dscp cs1 counter\n }\n}\nE\n",
    );
    let mut server = lab.program("h1", PROGRAM);
    server.args(["cast", "serve", "--listen", "10.77.0.2:0", "--key", &key]);
    server.args(["--into", &place.path("into")]).env("XDG_STATE_HOME", place.path("state"));
    let mut server = server.stderr(Stdio::piped()).spawn().expect("the program");
    let mut line = String::new();
    BufReader::new(server.stderr.take().expect("a pipe")).read_line(&mut line).expect("a line");
    let listening = line.strip_prefix("listening at ").and_then(|line| line.split(',').next());
    let listening = listening.expect("an address").to_owned();
    let cast = |policy: &str| {
        let mut cast = lab.program("h0", PROGRAM);
        cast.args(["cast", &content, "--to", &listening, "--key", &key, "--policy", policy]);
        cast.arg("--json").env("XDG_STATE_HOME", place.path("state")).output().expect("the program")
    };
    let reported = cast(&site);
    let summary: serde_json::Value = serde_json::from_slice(&reported.stdout).unwrap_or_default();
    let seen = lab.shell("h1", "nft list table ip seen");
    fs::remove_file(place.path("into/content")).expect("it was cast");
    let careful = cast(&wrong);
    let _ = server.kill();
    let _ = server.wait();
    expect(&reported, 0, "complete");
    assert_eq!(summary["policy"]["granted"], "scavenger");
    let counts = counters(&seen);
    assert!(counts[0] > 100 && counts[1] == 0, "{seen}");
    expect(&careful, 0, "begin each with [[rule]]; scavenger is used until the policy is right");
}

#[test]
fn timeslice__the_report_says_what_is_requested_and_granted() {
    let place = PolicyPlace::new("timeslice");
    let site = place.write("site.toml", SITE);
    let out = place.path("out");
    let built = clearway(&[
        "timeslice",
        "build",
        "--on",
        "lab",
        "--inputs",
        "1",
        "--builders",
        "1",
        "--timeslices",
        "5",
        "--site-policy",
        &site,
        "--out",
        &out,
    ]);
    if built.status.code() == Some(5) {
        return eprintln!("skipped: no lab: {}", text(&built.stderr));
    }
    expect(&built, 0, "class bulk was requested, scavenger is granted: rule 3 of");
    let report = fs::read_to_string(place.0.join("out/report.json")).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    let parameters = report["parameters"].as_array().expect("parameters");
    let value = |name: &str| {
        let found = parameters.iter().find(|it| it["name"] == name);
        found.map(|it| it["value"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(value("class").as_deref(), Some("scavenger"));
    assert!(value("site-policy").is_some_and(|said| said.contains("rule 3 of")));
}

#[test]
fn bench__a_test_is_not_limited_and_says_so() {
    let place = PolicyPlace::new("bench");
    let site = place.write("site.toml", SITE);
    let out = place.path("out");
    let tested = clearway(&[
        "bench",
        "--victim-cmd",
        "true",
        "--congestor-cmd",
        "sleep 9",
        "--pairs",
        "6",
        "--policy",
        &site,
        "--out",
        &out,
    ]);
    let said = text(&tested.stderr);
    assert!(said.contains("scavenger is granted: rule 3 of"), "{said}");
    assert!(said.contains("a test is not limited, and uses bulk"), "{said}");
    let report = fs::read_to_string(place.0.join("out/report.json")).expect(&said);
    assert!(report.contains("\"site policy\""), "{said}");
}

/// A site whose bulk data has a budget that nobody divides.
const BUDGET: &str = "coordinator = \"127.0.0.1:9\"\n[budget]\nbulk = \"8Gb/s\"\n\
    [[rule]]\nprogram = \"cast\"\nclass = \"bulk\"\n";

#[test]
fn serve__a_faulty_policy_is_refused_and_changes_nothing() {
    let place = PolicyPlace::new("serve");
    let site = place.write("site.toml", SITE);
    let none = clearway(&["policy", "serve", &site, "--listen", "127.0.0.1:0"]);
    expect(&none, 1, "no class has a budget; add [budget]");
    let site = place.write("site.toml", BUDGET);
    let mut server = Command::new(PROGRAM);
    server.args(["policy", "serve", &site, "--listen", "127.0.0.1:0", "--metrics", "0"]);
    let mut server = server.stderr(Stdio::piped()).spawn().expect("the program");
    let mut lines = BufReader::new(server.stderr.take().expect("a pipe")).lines();
    let mut line = || lines.next().expect("a line").expect("text");
    assert!(line().starts_with("clearway: dividing the budgets of "));
    assert!(line().contains("without a key, every host that reaches 127.0.0.1:"));
    let metrics = address(&line()).expect("where metrics are");
    let scraped = Scraped::from_address(&metrics).expect("it serves");
    scraped.is_documented("policy_");
    scraped.is_accepted();
    assert_eq!(scraped.get("policy_budget_bytes_per_second{class=\"bulk\"}"), 1e9);
    let id = nix::unistd::Pid::from_raw(server.id() as i32);
    let mut read_again = |text: &str| {
        place.write("site.toml", text);
        nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGHUP).expect("it runs");
        line()
    };
    let refused = read_again("rule = 1\n");
    assert!(refused.ends_with("begin each with [[rule]]; the former policy stays"), "{refused}");
    assert_eq!(read_again(BUDGET), "clearway: the policy was read again");
    nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM).expect("it runs");
    assert_eq!(server.wait().expect("it ends").code(), Some(0));
}

#[test]
fn cast__without_the_coordinator_it_goes_on_at_the_floor_and_says_so() {
    let place = PolicyPlace::new("budget");
    let site = place.write("site.toml", BUDGET);
    let key = place.write("key", "a key of more than sixteen bytes");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("private");
    let content = place.write("content", vec![7; 1 << 16]);
    let mut server = Command::new(PROGRAM);
    server.args(["cast", "serve", "--listen", "127.0.0.1:0", "--key", &key]);
    server.args(["--into", &place.path("into")]).env("XDG_STATE_HOME", place.path("state"));
    let mut server = server.stderr(Stdio::piped()).spawn().expect("the program");
    let mut line = String::new();
    BufReader::new(server.stderr.take().expect("a pipe")).read_line(&mut line).expect("a line");
    let listening = line.strip_prefix("listening at ").and_then(|line| line.split(',').next());
    let mut cast = Command::new(PROGRAM);
    cast.args(["cast", &content, "--to", listening.expect("an address"), "--key", &key]);
    cast.args(["--policy", &site]).env("XDG_STATE_HOME", place.path("state"));
    let cast = cast.output().expect("the program");
    let _ = server.kill();
    let _ = server.wait();
    expect(&cast, 0, "complete");
    let said = text(&cast.stderr);
    let expected = "the coordinator 127.0.0.1:9 does not answer (Connection refused";
    assert!(said.contains(expected) && said.contains("at up to 8 Mb/s until it does"), "{said}");
}

#[test]
fn doctor__marks_of_a_node_are_compared_with_its_policy() {
    let Some(lab) = VirtualHosts::new(1, &["nft", "unshare", "bash"]) else { return };
    let place = PolicyPlace::new("node");
    let site = place.write("site.toml", SITE);
    let marks = || {
        let mut doctor = lab.program("h0", PROGRAM);
        let seen = doctor.args(["doctor", "--node", "--json", "--policy", &site]).output();
        let seen = seen.expect("the program");
        let document: serde_json::Value = serde_json::from_slice(&seen.stdout).expect("JSON");
        assert_eq!(document["schema"], "clearway-doctor-node/1");
        let findings = document["sections"][0]["findings"].as_array().expect("findings").clone();
        assert_eq!(findings[0]["status"], "ok", "{findings:?}");
        (findings[1]["status"].as_str().map(str::to_owned), seen.status.code())
    };
    let missing = (Some("missing".to_owned()), Some(1));
    assert_eq!(marks(), missing, "nobody has run the script");
    let script = text(&clearway(&["setup-node", "--policy", &site]).stdout);
    let rules = script.split("<<'RULES'\n").nth(1).and_then(|rest| rest.split("RULES\n").next());
    let load = format!("nft -f - <<'E'\n{}E\n", rules.expect("rules"));
    lab.shell("h0", &load);
    assert_eq!(marks().0.as_deref(), Some("ok"));
    let more = "table inet clearway {\n chain limits {\n ip dscp set 46\n }\n}\n";
    lab.shell("h0", &format!("nft -f - <<'E'\n{more}E\n"));
    assert_eq!(marks(), missing, "somebody has changed them");
}
