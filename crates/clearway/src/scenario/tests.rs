//! What scenarios are accepted, and with which sentence others are refused.

use super::*;

fn incast() -> &'static str {
    shipped("incast").expect("it is shipped")
}

fn refusal(text: &str) -> String {
    read_text(text).expect_err("it must be refused")
}

#[test]
fn shipped__every_scenario_can_run() {
    for (name, text) in SHIPPED {
        let scenario = read_text(text).unwrap_or_else(|why| panic!("{name}: {why}"));
        assert_eq!(scenario.name, name);
        assert!(!scenario.about.is_empty(), "{name} does not say what it is about");
    }
}

#[test]
fn read__an_unknown_key_is_answered_with_the_nearest() {
    let text = incast().replace("victim-hosts", "victims-hosts");
    let sentence = refusal(&text);
    assert!(
        sentence.contains("unknown key `victims-hosts` in [congestion]; did you mean `victim-hosts`?"),
        "{sentence}"
    );
    assert!(sentence.starts_with("line "), "{sentence}");
}

#[test]
fn read__a_rate_without_unit_is_refused_with_the_units() {
    let sentence = refusal(&incast().replace("\"100Mb/s\"", "\"100\""));
    assert!(sentence.contains("`100` needs one of the units b/s, kb/s, Mb/s, Gb/s"), "{sentence}");
}

#[test]
fn read__impossible_roles_are_refused_with_the_numbers() {
    let sentence = refusal(&incast().replace("congestor-hosts = 4", "congestor-hosts = 40"));
    assert_eq!(sentence, "[congestion]: victims and congestors need 41 hosts, the network has 8");
    let sentence = refusal(&incast().replace("congestor-hosts = 4", "congestor-hosts = 3"));
    assert_eq!(sentence, "[congestion]: congestor-hosts is 3; incast needs a target and at least three senders");
}

#[test]
fn read__a_scenario_without_a_mechanism_or_with_two_is_refused() {
    let fabric = "name = \"x\"\n[fabric]\ntopology = { kind = \"star\", hosts = 8, rate = \"100Mb/s\" }\n";
    assert!(refusal(fabric).starts_with("there is nothing to run"));
    assert!(refusal(&format!("{fabric}[congestion]\n[shares]\n")).starts_with("there are two mechanisms"));
}

#[test]
fn parameters__say_who_chose_each_value() {
    let scenario = read_text(incast()).expect("it is shipped");
    let flags = BTreeSet::from(["seed".to_owned()]);
    let parameters = scenario.parameters(incast(), &flags);
    let origin = |name: &str| parameters.iter().find(|p| p.name == name).map(|p| p.origin);
    assert_eq!(origin("seed"), Some(Origin::Flag));
    assert_eq!(origin("congestion.victim-hosts"), Some(Origin::Scenario));
    assert_eq!(origin("verdict.factor-max"), Some(Origin::Default));
    assert_eq!(origin("fabric.topology.rate"), Some(Origin::Scenario));
}
