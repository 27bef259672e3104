//! What scenarios are accepted, and with which sentence others are refused.

use clearway_proto::congestion::CongestorKind;

use super::shipped::SHIPPED;
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
    assert_eq!(
        sentence,
        "[congestion]: victims and congestors need 41 hosts, the network has 8; asked for: victim-hosts 2, congestor-groups 1 of congestor-hosts 40"
    );
    let sentence = refusal(&incast().replace("congestor-hosts = 4", "congestor-hosts = 3"));
    assert_eq!(sentence, "[congestion]: congestor-hosts is 3; incast needs a target and at least three senders");
}

#[test]
fn read__a_queue_that_outlasts_the_windows_is_refused() {
    let sentence = refusal(&incast().replace("queue-packets = 100", "queue-packets = 5000"));
    assert!(
        sentence.contains("a full queue of 5000 packets takes 606 ms to empty at 100 Mb/s; at most 100 ms"),
        "{sentence}"
    );
    let trunk = shipped("trunk").expect("it is shipped").replace("trunk = \"25Mb/s\"", "trunk = \"2Mb/s\"");
    assert!(refusal(&trunk).contains("to empty at 2 Mb/s"));
}

/// A machine with as few keys as can be.
const MACHINE: &str = "name = \"m\"\n[fabric]\npreset = \"edr\"\nnodes = 128\n[congestion]\n";

#[test]
fn read__a_machine_has_a_grid_of_its_own_and_a_laboratory_has_not() {
    let test = read_text(MACHINE).expect("defaults work").congestion.expect("one table");
    assert_eq!((test.queues.as_slice(), test.slice), (&["shared".to_owned()][..], Time::micros(20)));
    assert_eq!((test.victim_interval, test.isolated), (Time::micros(40), Time::millis(40)));
    let many = format!("{MACHINE}congestor-hosts = 101\nprocesses-per-host = 16\nplacement = \"disjoint\"\n");
    let slice = |text: &str| read_text(text).expect("it can run").congestion.expect("one table").slice;
    assert_eq!(slice(&many), Time::micros(200), "524 us of messages come out in five slices");
    let sentence = refusal(&format!("{many}slice = \"20us\"\n"));
    assert!(
        sentence.contains("takes 524 us to come out of one port") && sentence.contains("slice = \"200us\""),
        "{sentence}"
    );
    let sentence = refusal(&incast().replace("draws", "x").replace("[congestion]", "[congestion]\nslice = \"1ms\""));
    assert_eq!(sentence, "[congestion]: slice is 1ms; a laboratory is measured in slices of 100ms");
}

#[test]
fn read__keys_of_the_other_kind_of_fabric_are_refused() {
    let with = |key: &str| refusal(&MACHINE.replace("nodes = 128", &format!("nodes = 128\n{key}")));
    assert!(with("queue-packets = 10").contains("`weights` and `small-message` belong to a `topology`"));
    assert!(
        with("topology = { kind = \"star\", hosts = 8, rate = \"1Mb/s\" }").contains("both `topology` and `preset`")
    );
    assert!(refusal(&incast().replace("queue-packets = 100", "nodes = 8")).contains("belong to a `preset`"));
    assert!(refusal(&MACHINE.replace("edr", "edrr")).contains("one of the shipped fabrics: aries"));
    let sentence = refusal(&format!("{MACHINE}queues = [\"fifo\"]\n"));
    assert_eq!(sentence, "[congestion]: `fifo` is no queue of this fabric; there are shared, lanes");
}

#[test]
fn read__broadcasts_on_a_machine_have_ranks_and_those_of_a_laboratory_have_hosts() {
    let machine = |rest: &str| format!("name = \"x\"\n[fabric]\npreset = \"edr\"\n{rest}");
    let scenario = read_text(&machine("nodes = 64\n[broadcast]\nalso = [\"slingshot\"]\n")).expect("it can run");
    let test = scenario.broadcast.as_ref().expect("a broadcast");
    assert_eq!(test.machines(&scenario.fabric), [("edr", 64), ("slingshot", 64)]);
    assert!(refusal(&machine("[broadcast]\nranks = [1]\n")).contains("ranks is 1; 2 to 60000 work"));
    assert!(refusal(&machine("[broadcast]\nalso = [\"edrr\"]\n")).contains("also: "));
    assert!(refusal(&machine("node-map = \"random\"\n[broadcast]\n")).contains("`node-map = \"linear\"` works"));
    let star = "name = \"x\"\n[fabric]\ntopology = { kind = \"star\", hosts = 8, rate = \"100Mb/s\" }\n[broadcast]\n";
    assert_eq!(read_text(star).expect("it can run").broadcast.map(|test| test.queue), Some("fifo".to_owned()));
    assert!(refusal(&format!("{star}ranks = [4]\n")).contains("a `topology` has `hosts`"));
}

#[test]
fn read__limits_that_judge_nothing_are_refused() {
    let with = |limit: &str| refusal(&format!("{}\n[verdict]\n{limit}\n", incast()));
    assert_eq!(with("factor-max = nan"), "[verdict]: factor-max is NaN; a finite number of at least 0 works");
    assert_eq!(with("noise-ratio = -1.0"), "[verdict]: noise-ratio is -1; a finite number of at least 0 works");
    assert!(with("congestor-share-min = inf").starts_with("[verdict]: congestor-share-min is inf;"));
    assert!(with("factor-max = 0.5").starts_with("[verdict]: factor-max is 0.5;"));
    assert!(with("null-low = 1.1").contains("the range must hold 1"));
}

#[test]
fn read__a_name_that_leads_out_of_its_directory_is_refused() {
    for name in ["", "../../x", "a/b", ".hidden", "<script>", "a\\u001b[31m", &"x".repeat(65)] {
        let text = incast().replace("name = \"incast\"", &format!("name = \"{name}\""));
        assert!(refusal(&text).contains("is unusable: 1 to 64 letters"), "{name}");
    }
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

#[test]
fn usual__a_machine_too_large_to_be_measured_is_blamed_on_its_hosts_and_not_on_a_slice() {
    let fabric = Fabric::machine("lab".to_owned(), Some(8));
    let mut test = Congestion { congestor_hosts: 600_000, processes_per_host: Some(16), ..Congestion::default() };
    test.settle(&fabric, &toml::Table::new()).unwrap();
    let sentence = test.check(&fabric).expect_err("nobody can wait so long");
    assert!(sentence.contains("what 600000 congestors of a group") && sentence.contains("use fewer"), "{sentence}");
}

#[test]
fn usual__every_machine_with_room_for_a_test_gets_one_that_can_run() {
    for (preset, hosts, congestor, slices) in [
        ("edr", 5, "incast", 2000),
        ("edr", 8, "incast", 2000),
        ("edr", 19, "incast", 2000),
        ("edr", 20, "gpcnet", 500),
        ("edr", 144, "gpcnet", 70),
        ("aries", 7000, "gpcnet", 16),
        ("lab", 8, "incast", 2000),
        ("lab", 32, "incast", 2000),
    ] {
        let fabric = Fabric::machine(preset.to_owned(), Some(hosts));
        let mut test = Congestion::usual(&fabric).unwrap();
        test.settle(&fabric, &toml::Table::new()).unwrap();
        assert_eq!(test.check(&fabric), Ok(()), "{hosts} hosts");
        assert_eq!(test.congestors[0].name(), congestor, "{hosts} hosts of {preset}");
        assert_eq!(test.isolated.0, test.slice.0.times(slices), "{hosts} hosts of {preset}");
    }
}

/// What a laboratory might have measured.
fn measured() -> BTreeMap<QueueKind, SmallMessage> {
    let small = |p50, p99| SmallMessage { p50: Time(Nanos(p50)), p99: Time(Nanos(p99)) };
    [(QueueKind::Fifo, small(5_543, 33_023)), (QueueKind::Strict, small(5_000, 21_887))].into()
}

#[test]
fn calibrate__the_text_of_the_scenario_says_what_was_measured() {
    for text in [incast().to_owned(), incast().replace("[fabric]\n", "[fabric]\nsmall-message = {}\n")] {
        let mut scenario = read_text(&text).expect("it is right");
        let text = scenario.calibrate(&text, measured()).expect("it can be written");
        assert_eq!(scenario.fabric.small_message("strict"), Some(measured()[&QueueKind::Strict]));
        assert_eq!(read_text(&text).expect(&text), scenario);
    }
}

#[test]
fn calibrate__what_the_scenario_says_stands() {
    let text = format!("{}\n[fabric.small-message]\nfifo = {{ p50 = \"1us\", p99 = \"2us\" }}\n", incast());
    let mut scenario = read_text(&text).expect("it is right");
    scenario.calibrate(&text, measured()).expect("it can be written");
    let fifo = scenario.fabric.small_message("fifo").expect("it was given");
    assert_eq!((fifo.p50, fifo.p99), (Time::micros(1), Time::micros(2)));
}

#[test]
fn read__a_small_message_that_takes_longer_at_p50_than_at_p99_or_a_minute_is_refused() {
    for (p50, p99) in [("9us", "2us"), ("1us", "1min")] {
        let said = format!("fifo = {{ p50 = \"{p50}\", p99 = \"{p99}\" }}");
        let sentence = refusal(&format!("{}\n[fabric.small-message]\n{said}\n", incast()));
        assert!(
            sentence.starts_with("[fabric]: small-message.fifo is p50") && sentence.ends_with("<= 1s works"),
            "{sentence}"
        );
    }
    let sentence = refusal(&format!("{}\n[fabric.small-message]\nfiffo = {{}}\n", incast()));
    assert!(sentence.contains("did you mean `fifo`?"), "{sentence}");
}

const TIMESLICES: &str = "name = \"t\"\n[fabric]\npreset = \"aries\"\nnodes = 64\n[timeslice]\n";

#[test]
fn read__timeslices_are_built_by_half_of_the_hosts_unless_it_says_otherwise() {
    let scenario = read_text(TIMESLICES).expect("defaults work");
    let test = scenario.timeslice.as_ref().expect("one table");
    let plan = test.plan(64, 7);
    assert_eq!((plan.inputs, plan.builders, plan.seeds, test.queue.as_str()), (32, 32, vec![7], "shared"));
    let told = scenario.parameters(TIMESLICES, &BTreeSet::new());
    assert!(told.iter().any(|it| it.name == "timeslice.ring" && it.value == "32 MiB"), "{told:?}");
    let plan = read_text(&format!(
        "{TIMESLICES}inputs = 60\nseeds = 3\ndrop-percent = 25\ndrop-from = \"1ms\"\ndrop-length = \"2ms\"\n"
    ));
    let plan = plan.expect("it can run").timeslice.expect("one table").plan(64, 1);
    assert_eq!(
        (plan.inputs, plan.builders, plan.seeds, plan.slowdown.map(|slow| slow.percent)),
        (60, 4, vec![1, 2, 3], Some(25))
    );
}

#[test]
fn read__impossible_timeslices_are_refused_with_what_works() {
    for (line, said) in [
        ("inputs = 64", "inputs is 64; 1 to 63 work"),
        ("ring = \"1KiB\"", "ring is 1 KiB; 64 KiB to"),
        ("window = \"9-3\"", "2-64"),
        ("policies = [\"token\", \"token\"]", "names something twice"),
        ("queue = \"fast\"", "no queue of this fabric"),
        ("drop-percent = 25", "drop-percent needs drop-from"),
        ("interruption-length = \"1ms\"", "belong together"),
        ("measured = \"0s\"", "measured is 0s"),
        ("contributon = \"1MiB\"", "did you mean `contribution`"),
    ] {
        let sentence = refusal(&format!("{TIMESLICES}{line}\n"));
        assert!(sentence.contains(said), "{line}: {sentence}");
    }
    let lab = "name = \"t\"\n[fabric]\ntopology = { kind = \"star\", hosts = 8, rate = \"100Mb/s\" }\n[timeslice]\n";
    assert!(refusal(lab).contains("[fabric] needs `preset`"));
}

#[test]
fn read__a_broadcast_has_one_sender_to_a_port_and_at_most_32_groups() {
    let text = |congestor: &str, groups: u32, hosts: u32| {
        format!(
            "name = \"casts\"\n[fabric]\npreset = \"edr\"\nnodes = 512\n[congestion]\ncongestors = [\"{congestor}\"]\n\
             congestor-hosts = {hosts}\ncongestor-groups = {groups}\nprocesses-per-host = 64\nslice = \"50us\"\nplacement = \"disjoint\"\n"
        )
    };
    assert!(refusal(&text("incast", 1, 400)).contains("what the congestors of a group keep under way takes"));
    assert!(read_text(&text("cast-chain", 1, 400)).is_ok());
    let sentence = refusal(&text("cast", 33, 4));
    assert!(sentence.contains("congestor-groups of broadcasts is 33; 1 to 32 work"), "{sentence}");
}

#[test]
fn fit__defaults_have_room_on_three_hosts_and_more_and_what_is_given_stays() {
    let fitted = |hosts: u32, given: &[&str]| {
        let mut scenario = read_text(incast()).expect("a scenario");
        scenario.congestion = Some(Congestion::default());
        let given = given.iter().map(|key| format!("congestion.{key}")).collect();
        let chosen = scenario.fit(hosts, &given);
        let checked = scenario.on_job(hosts, None).map(|()| scenario.congestion.expect("a test"));
        (chosen, checked)
    };
    for (hosts, members, kind) in [(3, 2, CongestorKind::Alltoall), (4, 3, CongestorKind::Alltoall)] {
        let (chosen, test) = fitted(hosts, &[]);
        let test = test.expect("it has room");
        assert_eq!((test.victim_hosts, test.congestor_hosts, &test.congestors[..]), (2, members, &[kind][..]));
        let said = format!("--victim-hosts 2 --congestors alltoall --congestor-hosts {members} --congestor-groups 1");
        assert!(chosen.is_some_and(|chosen| chosen.ends_with(&said)), "{hosts}");
    }
    let (chosen, test) = fitted(5, &[]);
    assert_eq!((chosen, test.map(|test| test.congestor_hosts)), (None, Ok(4)));
    let refused = "victims and congestors need 5 hosts, the network has 4";
    for (hosts, given) in [(4, "congestor-hosts"), (2, "draws")] {
        let (chosen, test) = fitted(hosts, &[given]);
        assert!(chosen.is_none() && test.is_err(), "{given}");
    }
    assert!(fitted(4, &["congestor-hosts"]).1.is_err_and(|why| why.contains(refused)));
    assert!(fitted(4, &["congestors"]).1.is_err_and(|why| why.contains("three senders")));
}
