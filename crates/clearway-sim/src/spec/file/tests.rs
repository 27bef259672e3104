//! Tests of fabric files: what is taken, what is refused and in which words.

use proptest::prelude::*;

use super::*;
use crate::spec::figure::Confidence;
use crate::spec::{LossDomain, Routing, Topology};

/// Parses `text` with `format = 1` on its first line and what it extends.
fn open(text: &str) -> Result<FabricFile, String> {
    FabricFile::parse("my.toml", text, FileOptions::default()).map_err(|error| error.to_string())
}

fn sentence(text: &str) -> String {
    open(text).map(|file| file.spec.name).unwrap_err()
}

#[test]
fn parse__a_file_that_extends_another_replaces_single_keys() {
    let text = "format = 1\nextends = \"edr\"\nname = \"mine\"\n[switch]\ndelay = \"200ns\"\n";
    let mine = open(text).unwrap();
    let edr = FabricFile::open("edr", FileOptions::default()).unwrap();
    assert_eq!(mine.spec.name, "mine");
    assert_eq!(mine.spec.switch.delay.nanos().0, 200);
    assert_eq!(mine.spec.links, edr.spec.links);
    let figure = |file: &FabricFile| {
        file.figures.iter().find(|figure| figure.key == "switch.delay").cloned().unwrap()
    };
    assert_eq!((figure(&mine).source, figure(&mine).confidence), (None, None));
    assert_eq!(figure(&edr).confidence, Some(Confidence::Vendor));
}

#[test]
fn parse__another_kind_replaces_the_whole_table() {
    let mine = open("format = 1\nextends = \"slingshot\"\n[congestion-control]\nkind = \"none\"\n")
        .unwrap();
    assert_eq!(mine.spec.congestion_control, crate::spec::CongestionControl::None);
    let star =
        open("format = 1\nextends = \"edr\"\n[topology]\nkind = \"star\"\nhosts = 4\n[routing]\nkind = \"ecmp\"")
            .unwrap();
    assert_eq!(
        (star.spec.topology, star.spec.routing),
        (Topology::Star { hosts: 4 }, Routing::Ecmp)
    );
}

#[test]
fn parse__policies_are_chosen_by_name_by_the_file_or_by_order() {
    let text = "format = 1\nextends = \"edr\"\ndefault-policy = \"lanes\"\n";
    assert_eq!(open(text).unwrap().policy, "lanes");
    let wanted = FileOptions { policy: Some("shared"), hosts: None };
    assert_eq!(FabricFile::parse("f", text, wanted).unwrap().policy, "shared");
    let wanted = FileOptions { policy: Some("lane"), hosts: None };
    let sentence = FabricFile::parse("f", text, wanted).unwrap_err().to_string();
    assert!(sentence.ends_with("there is no policy `lane`; did you mean `lanes`?"), "{sentence}");
}

#[test]
fn parse__an_explicit_graph_is_taken_cable_by_cable() {
    let text = "format = 1\nextends = \"edr\"\n[routing]\nkind = \"minimal\"\n[topology]\nkind = \"explicit\"\n\
                hosts = [\"a\", \"b\"]\nswitches = [\"s\"]\ncables = [[\"a\", \"s\", \"host\"], [\"b\", \"s\", \"host\"]]\n";
    let Topology::Explicit { cables, .. } = open(text).unwrap().spec.topology else {
        panic!("explicit")
    };
    assert_eq!(cables.len(), 2);
    let wrong = text.replace("\"b\", \"s\", \"host\"", "\"b\", \"s\", \"hots\"");
    assert_eq!(
        sentence(&wrong),
        "my.toml: line 9: topology.cables: there is no [link.hots]; did you mean `host`?"
    );
}

#[test]
fn parse__loss_may_differ_by_lane() {
    let text = "format = 1\nextends = \"clos-100ge\"\ndefault-policy = \"lanes\"\n\
                [policy.lanes]\nloss = [\"drops\", \"pauses\"]\nqueue = \"100KiB\"\n";
    let loss = open(text).unwrap().spec.classes.loss;
    assert!(matches!((loss[0], loss[1]), (LossDomain::Drops { .. }, LossDomain::Pauses)));
}

#[test]
fn parse__bad_files_get_one_sentence_with_file_line_and_remedy() {
    let edr = |text: &str| sentence(&format!("format = 1\nextends = \"edr\"\n{text}"));
    for (text, expected) in [
        ("[link.host]\nrate = \"100\"", "line 4: link.host.rate: `100` needs one of the units b/s"),
        ("[link.host]\nrate = \"0Gb/s\"", "line 4: link.host.rate: a rate of zero carries nothing"),
        (
            "[link.host]\nbuffer = \"4KiB\"",
            "line 4: link.host.buffer: 4 KiB cannot hold one packet of 4122 B",
        ),
        (
            "[packet]\npayload = \"0B\"",
            "line 4: packet.payload: packets without payload carry nothing",
        ),
        (
            "[swich]\ndelay = \"1ns\"",
            "line 3: unknown key `swich` in a fabric file; did you mean `switch`?",
        ),
        (
            "[policy.lanes.host]\nhigh = \"1:256\"",
            "line 4: policy.lanes.host.high: `1:256` has no weight from 0 to 255",
        ),
        ("[policy.lanes.host]\nhigh = \"15:4\"", "names virtual lane 15; tables hold 0 to 14"),
        (
            "[policy.lanes.host]\nhigh-limit = 256",
            "policy.lanes.host.high-limit: 256; it must be a whole number from 0 to 255",
        ),
        (
            "[policy.shared.service-level]\nbulk = 16",
            "bulk: 16; it must be a whole number from 0 to 15",
        ),
        (
            "[policy.shared.service-level]\nbulk = 3",
            "line 4: policy.shared.service-level.bulk: class bulk travels at service level 3, which has no lane",
        ),
        (
            "[topology]\nchildren = [18, 1000000000]",
            "line 3: topology: a fat tree of 18000000000 hosts takes",
        ),
        (
            "[topology]\nchildren = [18, 37]",
            "line 3: topology: a switch would need 37 ports, but `switch.ports` says 36",
        ),
        ("[topology]\nkind = \"dragonfly\"", "line 3: [topology] has no `groups`"),
        ("[host]\nrails = 0", "line 4: host.rails: 0 ports; a host has 1 to 16"),
    ] {
        let said = edr(text);
        assert!(
            said.starts_with("my.toml: line ") && said.contains(expected),
            "{text}\n{said}\n{expected}"
        );
    }
}

#[test]
fn parse__tables_are_those_the_standard_allows() {
    let lanes = |text: &str| {
        sentence(&format!(
            "format = 1\nextends = \"edr\"\ndefault-policy = \"lanes\"\n[policy.lanes.host]\n{text}"
        ))
    };
    let many = vec!["1:1"; 65].join(",");
    assert!(lanes(&format!("high = \"{many}\"")).contains("65 entries; a table has at most 64"));
    assert!(lanes("high = \"2:4\"").contains("weight for lane 2, but there are 2 virtual lanes"));
    assert!(lanes("high = \"1:0\"").contains("lane 1 has no weight in either table"));
}

#[test]
fn parse__only_this_format_is_read() {
    let wrong =
        "my.toml: line 1: this is not a fabric file of format 1, the only one this program reads";
    assert_eq!(sentence("format = 2\nextends = \"edr\""), wrong);
    assert!(sentence("extends = \"edr\"").contains("begins with `format = 1`"));
    assert!(sentence("").contains("begins with `format = 1`"));
}

#[test]
fn open__a_name_that_is_neither_file_nor_fabric_lists_the_fabrics() {
    let sentence =
        FabricFile::open("no-such-fabric", FileOptions::default()).unwrap_err().to_string();
    assert!(
        sentence.starts_with("no-such-fabric: ") && sentence.contains("aries, clos-100ge"),
        "{sentence}"
    );
}

#[test]
fn open__files_that_extend_themselves_are_refused() {
    let directory =
        std::env::temp_dir().join(format!("clearway-sim-circle-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let path = directory.join("circle.toml");
    fs::write(&path, "format = 1\nextends = \"circle.toml\"\n").unwrap();
    let sentence =
        FabricFile::open(path.to_str().unwrap(), FileOptions::default()).unwrap_err().to_string();
    fs::remove_dir_all(&directory).unwrap();
    assert!(sentence.contains("perhaps in a circle"), "{sentence}");
}

proptest! {
    #[test]
    fn parse__any_text_gives_an_answer(text in ".{0,400}") {
        let _ = open(&text);
        let _ = open(&format!("format = 1\nextends = \"edr\"\n{text}"));
    }

    /// A shipped file with one piece replaced: close enough to a real one to reach every check.
    #[test]
    fn parse__a_damaged_file_gives_an_answer(at in 0usize..6_000, length in 0usize..12, junk in "[0-9a-z\\[\\]\"=:., {}\n-]{0,12}") {
        let text = presets::shipped("qdr").unwrap();
        let at = at.min(text.len());
        let end = (at + length).min(text.len());
        let damaged = format!("{}{junk}{}", &text[..at], &text[end..]);
        let _ = open(&damaged);
    }
}

#[test]
fn open__the_file_that_extends_is_blamed_and_not_what_it_extends() {
    let text = "format = 1\nextends = \"edr\"\n\n[policy.lanes]\nvirtual-lanes = 1\n";
    let sentence =
        FabricFile::parse("mine.toml", text, FileOptions { policy: Some("lanes"), hosts: None });
    let sentence = sentence.unwrap_err().to_string();
    assert!(
        sentence.starts_with("mine.toml: line 4: policy.lanes.lane-of-level: service level"),
        "{sentence}"
    );
}

#[cfg(unix)]
#[test]
fn open__a_named_pipe_is_refused_and_not_waited_for() {
    // A device is as little a regular file as a pipe, and is everywhere.
    let sentence = FabricFile::open("/dev/null", FileOptions::default()).unwrap_err().to_string();
    assert!(
        sentence.starts_with("/dev/null: is not a regular file; give a file, or one of"),
        "{sentence}"
    );
}
