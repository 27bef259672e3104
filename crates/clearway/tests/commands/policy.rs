//! The policy of a site as a whole: what `policy check` says, and which shares `qos` takes.

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use crate::virtual_hosts::{clearway, text};

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
fn qos__shares_of_the_policy_are_the_weights_of_what_is_emitted() {
    let place = PolicyPlace::new("qos");
    let site = place.write("site.toml", SITE);
    let emit = |target: &str| {
        let emitted = clearway(&["qos", "emit", "--for", target, "--policy", &site]);
        assert!(emitted.status.success(), "{}", text(&emitted.stderr));
        text(&emitted.stdout)
    };
    assert!(emit("tc").contains("strict 2 quanta 18000 63000 9000"), "{}", emit("tc"));
    assert!(emit("dcb").contains("tc-bw 0:10 1:70 2:20"), "{}", emit("dcb"));
    assert_eq!(emit("nft"), text(&clearway(&["qos", "emit", "--for", "nft"]).stdout));
    let conf = place.write("opensm.conf", emit("opensm"));
    let told = clearway(&["qos", "check", &conf]);
    assert_eq!((told.status.code(), text(&told.stdout)), (Some(0), String::new()));
    let plan = clearway(&["qos", "plan", "--policy", &site]);
    expect(&plan, 0, "70.0 %");
    let wrong = place.write("wrong.toml", "[[rule]]\nclass = \"bulk\"\nshare = 300\n");
    expect(&clearway(&["qos", "plan", "--policy", &wrong]), 1, "a weight from 1 to 255");
}
