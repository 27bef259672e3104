//! Tests of opensm.conf: the study's file, the fall-backs, and text that is none.

use proptest::prelude::*;

use super::*;

/// The options of the data-staging study, as its slide shows them.
pub(super) const STUDY: &str = "qos TRUE\nqos_ca_high_limit 255\n\
    qos_ca_vlarb_high 0:40, 1:0, 2:0, 3:0, 4:0, 5:0, 6:0, 7:0, 8:0, 9:0, 10:0, 11:0, 12:0, 13:0, 14:0\n\
    qos_ca_vlarb_low 0:0, 1:2, 2:4, 3:8, 4:16, 5:32, 6:64, 7:128\n\
    qos_ca_sl2vl 0,1,2,3,4,5,6,7,15,15,15,15,15,15,15,15\n";

#[test]
fn parse__the_study_set_adapters_and_left_switches_to_the_defaults() {
    let conf = parse(STUDY).unwrap();
    assert_eq!((conf.adapters.lanes, conf.adapters.high_limit), (8, 255));
    assert_eq!(conf.adapters.high[0], (0, 40));
    assert_eq!(conf.adapters.low[7], (7, 128));
    assert_eq!(conf.adapters.lane_of_level[8], NO_LANE);
    assert_eq!(
        (conf.switches.high_limit, conf.switches.high[0], conf.switches.low[7]),
        (0, (0, 4), (7, 4))
    );
    // Level 15 is on lane 7, level 8 on lane 8 modulo 8.
    assert_eq!((conf.switches.lane_of_level[15], conf.switches.lane_of_level[8]), (7, 0));
    assert!(
        conf.remarks.iter().any(|remark| remark.contains("switches keep OpenSM's defaults")),
        "{:?}",
        conf.remarks
    );
}

#[test]
fn parse__ports_fall_back_on_all_ports_and_then_on_the_defaults() {
    let conf = parse(
        "qos TRUE\nqos_high_limit 3\nqos_swe_high_limit 5\nqos_ca_high_limit -1\nqos_max_vls 0\n",
    )
    .unwrap();
    assert_eq!((conf.adapters.high_limit, conf.switches.high_limit), (3, 5));
    assert_eq!(conf.adapters.lanes, 8);
    assert_eq!(
        parse("qos_ca_max_vls 3\nqos_ca_vlarb_low 3:7\n").unwrap().adapters.low,
        vec![(1, 7)]
    );
}

#[test]
fn parse__what_opensm_would_bend_is_refused_with_its_line() {
    for (text, line, expected) in [
        ("qos_vlarb_low 0:300", 1, "no weight from 0 to 255"),
        ("\nqos_vlarb_low 1:-4", 2, "no weight from 0 to 255"),
        ("qos_vlarb_low foo", 1, "LANE:WEIGHT"),
        ("qos_high_limit 256", 1, "goes from 0 to 255"),
        ("qos_ca_max_vls 16", 1, "goes from 0 to 15"),
        ("qos_sl2vl 0,16", 1, "no virtual lane"),
        ("qos_ca_vlarb_hihg 0:4", 1, "did you mean `qos_ca_vlarb_high`?"),
    ] {
        let (at, why) = parse(text).unwrap_err();
        assert!(at == line && why.contains(expected), "{text}: {at}: {why}");
    }
}

#[test]
fn parse__dropped_levels_and_switched_off_tables_are_remarked() {
    let conf = parse("qos FALSE\nqos_sl2vl 0,15,2,3,4").unwrap();
    assert_eq!(conf.levels, [0, 2, 0, 3, 4]);
    assert_eq!(conf.remarks.iter().filter(|remark| remark.contains("-Q")).count(), 1);
    let owner = parse("qos TRUE\nrouting_engine torus-2QoS,no_fallback").unwrap();
    assert!(owner.remarks.iter().any(|remark| remark.starts_with("line 2: routing engine")));
}

proptest! {
    #[test]
    fn parse__any_text_gives_an_answer(text in ".{0,200}", field in 0usize..5, port in 0usize..6, value in "[0-9:, -]{0,80}") {
        let _ = parse(&text);
        let _ = parse(&format!("qos_{}{} {value}", PORTS[port], FIELDS[field]));
    }
}

#[test]
fn parse__somebody_elses_file_is_refused_and_an_empty_one_is_the_defaults() {
    for text in ["root:x:0:0:root:/root:/bin/bash\n", "\u{0}\u{1}\n\u{2}", "format = 1\n"] {
        let (line, why) = parse(text).unwrap_err();
        assert_eq!(line, 1);
        assert!(why.contains("no option of OpenSM"), "{why}");
    }
    assert_eq!(parse("# comments\n\n").unwrap().adapters, parse("lmc 0\n").unwrap().adapters);
}
