//! What scenarios are accepted, and with which sentence others are refused.

use serde::Serialize;
use toml::de::DeTable;

use super::sample::{KNOCKS, SampleSection};
use super::*;

/// A mechanism without any rule.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct LenientMechanism {}

impl Section for LenientMechanism {
    const NAME: &'static str = "rest";

    fn apply_defaults(&mut self, _: &mut Fabric, _: &DeTable<'_>) -> Result<(), String> {
        Ok(())
    }

    fn check(&self, _: &Fabric) -> Result<(), String> {
        Ok(())
    }
}

fn read(text: &str) -> Result<Scenario, String> {
    read_text(text, &[SectionKind::new::<SampleSection>(), SectionKind::new::<LenientMechanism>()])
}

fn refusal(text: &str) -> String {
    read(text).expect_err("it must be refused")
}

#[test]
fn read__a_section_comes_back_as_its_type_and_keeps_what_was_given() {
    let scenario = read(KNOCKS).expect("it can run");
    let knock = SampleSection { queue: "fifo".to_owned(), times: 5, ..SampleSection::default() };
    assert_eq!(
        scenario.section::<SampleSection>(),
        Some(&knock),
        "the queue is the usual one of the fabric"
    );
    assert!(scenario.section::<LenientMechanism>().is_none());
    let given = read(&format!("{KNOCKS}queue = \"strict\"\n")).expect("it can run");
    assert_eq!(given.section::<SampleSection>().map(|knock| knock.queue.as_str()), Some("strict"));
    let seed = read(
        &format!("{KNOCKS}queue = \"strict\"\n").replace("seed = 7", "seed = 18446744073709551615"),
    );
    let seed = seed.expect("a seed has 64 bits");
    assert_eq!(
        (seed.seed, seed.section::<SampleSection>().map(|knock| knock.queue.as_str())),
        (u64::MAX, Some("strict"))
    );
}

#[test]
fn read__an_unknown_key_is_answered_with_the_nearest_and_its_line() {
    for (written, sentence) in [
        ("times = 5\ntime = 5", "line 14: unknown key `time` in [knock]; did you mean `times`?"),
        (
            "times = 5\n[elephant]",
            "line 14: unknown key `elephant` in a scenario; there are name, about, seed, fabric, knock, rest, verdict, lab",
        ),
        (
            "times = 5\n[verdict]\nfactor = 1.0",
            "line 15: unknown key `factor` in [verdict]; there are factor-max, null-low, null-high, congestor-share-min, overload-min, noise-ratio, delay-ratio, slowdown-max",
        ),
        (
            "times = 5\n[fabric.weights]\nbulky = 1",
            "line 15: unknown key `bulky` in [fabric.weights]; did you mean `bulk`?",
        ),
    ] {
        assert_eq!(refusal(&KNOCKS.replace("times = 5", written)), sentence);
    }
    let sentence = refusal(&KNOCKS.replace("hosts", "hots"));
    assert_eq!(sentence, "line 9: unknown key `hots` in [fabric.topology]; did you mean `hosts`?");
}

#[test]
fn read__a_wrong_value_is_refused_with_its_line_wherever_it_stands() {
    let with = |from: &str, to: &str| refusal(&KNOCKS.replace(from, to));
    assert_eq!(
        with("times = 5", "\ntimes = \"five\""),
        "line 14: invalid type: string \"five\", expected u64"
    );
    assert_eq!(
        with("times = 5", "each-takes = \"5\""),
        "line 13: `5` is no length of time: a number with one of ns, us, ms, s, min, h works"
    );
    assert_eq!(
        with("seed = 7", "seed = \"x\""),
        "line 2: invalid type: string \"x\", expected u64"
    );
    assert!(with("seed = 7", "seed = = 7").starts_with("line 2: "));
    assert_eq!(with("times = 5", "times = 500"), "[knock]: times is 500; 1 to 100 work");
}

#[test]
fn read__a_rate_without_unit_is_refused_with_the_units() {
    let sentence = refusal(&KNOCKS.replace("\"100Mb/s\"", "\"100\""));
    assert!(sentence.contains("`100` needs one of the units b/s, kb/s, Mb/s, Gb/s"), "{sentence}");
}

#[test]
fn read__keys_of_the_other_kind_of_fabric_are_refused() {
    const MACHINE: &str = "name = \"m\"\n[fabric]\npreset = \"edr\"\nnodes = 128\n[knock]\n";
    let with = |key: &str| refusal(&MACHINE.replace("nodes = 128", &format!("nodes = 128\n{key}")));
    assert!(
        with("queue-packets = 10").contains("`weights` and `small-message` belong to a `topology`")
    );
    assert!(
        with("topology = { kind = \"star\", hosts = 8, rate = \"1Mb/s\" }")
            .contains("both `topology` and `preset`")
    );
    assert!(
        refusal(&KNOCKS.replace("queue-packets = 100", "nodes = 8"))
            .contains("belong to a `preset`")
    );
    assert!(refusal(&MACHINE.replace("edr", "edrr")).contains("one of the shipped fabrics: aries"));
    let sentence = refusal(&format!("{MACHINE}queue = \"fifo\"\n"));
    assert_eq!(sentence, "[knock]: `fifo` is no queue of this fabric; there are shared, lanes");
}

/// Returns the same on leaves and spines.
fn leaf_spine(leaves: u32) -> String {
    let topology = format!(
        "kind = \"leaf-spine\"\nleaves = {leaves}\nhosts-per-leaf = 4\nspines = 1\nuplink = \"1Gb/s\""
    );
    KNOCKS.replace("kind = \"star\"\nhosts = 8", &topology)
}

#[test]
fn read__every_kind_of_topology_can_be_named() {
    let hosts = |text: &str| read(text).expect("it can run").fabric.hosts();
    assert_eq!(hosts(&leaf_spine(3)), Ok(12));
    assert_eq!(hosts(&KNOCKS.replace("star\"", "two-switch\"\ntrunk = \"1Gb/s\"")), Ok(8));
}

#[test]
fn read__hosts_beyond_any_network_are_refused_before_anything_is_made_of_them() {
    for text in [KNOCKS.replace("hosts = 8", "hosts = 4294967295"), leaf_spine(u32::MAX)] {
        let sentence = refusal(&text);
        assert!(sentence.starts_with("[fabric]: "), "{sentence}");
    }
}

#[test]
fn read__limits_that_judge_nothing_are_refused() {
    let with = |limit: &str| refusal(&format!("{KNOCKS}[verdict]\n{limit}\n"));
    assert_eq!(
        with("factor-max = nan"),
        "[verdict]: factor-max is NaN; a finite number of at least 0 works"
    );
    assert_eq!(
        with("noise-ratio = -1.0"),
        "[verdict]: noise-ratio is -1; a finite number of at least 0 works"
    );
    assert!(
        with("congestor-share-min = inf").starts_with("[verdict]: congestor-share-min is inf;")
    );
    assert!(with("factor-max = 0.5").starts_with("[verdict]: factor-max is 0.5;"));
    assert!(with("null-low = 1.1").contains("the range must hold 1"));
}

#[test]
fn read__a_name_that_leads_out_of_its_directory_is_refused() {
    for name in ["", "../../x", "a/b", ".hidden", "<script>", "a\\u001b[31m", &"x".repeat(65)] {
        let text = KNOCKS.replace("name = \"knocks\"", &format!("name = \"{name}\""));
        assert!(refusal(&text).contains("is unusable: 1 to 64 letters"), "{name}");
    }
}

#[test]
fn read__a_scenario_without_a_mechanism_or_with_two_is_refused() {
    let fabric = KNOCKS.split("[knock]").next().expect("it has a fabric");
    assert_eq!(refusal(fabric), "there is nothing to run: add a table [knock] or [rest]");
    let two = refusal(&format!("{KNOCKS}[rest]\n"));
    assert_eq!(two, "there are two mechanisms: keep one of [knock] and [rest]");
}

#[test]
fn text__is_read_as_the_same_scenario() {
    let scenario = read(KNOCKS).expect("it can run");
    let text = scenario.text().expect("it can be written");
    let places = ["name = ", "[fabric]", "[fabric.topology]", "[knock]", "[verdict]"]
        .map(|part| text.find(part));
    assert!(places.is_sorted() && places[0] == Some(0), "{text}");
    assert_eq!(read(&text).expect(&text).text().expect("as before"), text);
}

#[test]
fn on_job__a_mechanism_that_says_nothing_about_jobs_does_not_run_there() {
    let mut scenario = read(KNOCKS).expect("it can run");
    assert_eq!(scenario.on_job(4, None), Err("[knock] does not run across a job".to_owned()));
}

/// Returns what a laboratory might have measured.
fn measured() -> BTreeMap<QueueKind, SmallMessage> {
    let small = |p50, p99| SmallMessage { p50: Time(Nanos(p50)), p99: Time(Nanos(p99)) };
    [(QueueKind::Fifo, small(5_543, 33_023)), (QueueKind::Strict, small(5_000, 21_887))].into()
}

#[test]
fn calibrate__the_text_of_the_scenario_says_what_was_measured() {
    for text in [KNOCKS.to_owned(), KNOCKS.replace("[fabric]\n", "[fabric]\nsmall-message = {}\n")]
    {
        let mut scenario = read(&text).expect("it is right");
        let text = scenario.calibrate(&text, measured()).expect("it can be written");
        assert_eq!(scenario.fabric.small_message("strict"), Some(measured()[&QueueKind::Strict]));
        let again = read(&text).expect(&text);
        assert_eq!(
            again.text().expect("it can be written"),
            scenario.text().expect("it can be written")
        );
    }
}

#[test]
fn calibrate__what_the_scenario_says_stands() {
    let text =
        format!("{KNOCKS}[fabric.small-message]\nfifo = {{ p50 = \"1us\", p99 = \"2us\" }}\n");
    let mut scenario = read(&text).expect("it is right");
    scenario.calibrate(&text, measured()).expect("it can be written");
    let fifo = scenario.fabric.small_message("fifo").expect("it was given");
    assert_eq!((fifo.p50, fifo.p99), (Time::micros(1), Time::micros(2)));
}

#[test]
fn read__a_small_message_that_takes_longer_at_p50_than_at_p99_or_a_minute_is_refused() {
    for (p50, p99) in [("9us", "2us"), ("1us", "1min")] {
        let said = format!("fifo = {{ p50 = \"{p50}\", p99 = \"{p99}\" }}");
        let sentence = refusal(&format!("{KNOCKS}[fabric.small-message]\n{said}\n"));
        assert!(
            sentence.starts_with("[fabric]: small-message.fifo is p50")
                && sentence.ends_with("<= 1s works"),
            "{sentence}"
        );
    }
    let sentence = refusal(&format!("{KNOCKS}[fabric.small-message]\nfiffo = {{}}\n"));
    assert!(sentence.contains("did you mean `fifo`?"), "{sentence}");
}

#[test]
fn in_lab__its_tables_take_the_place_of_those_of_the_scenario() {
    assert!(read(KNOCKS).expect("it can run").in_lab().is_none());
    let text = format!("{KNOCKS}[lab.knock]\neach-takes = \"2ms\"\n");
    let elsewhere = read(&text).expect("it can run");
    let (there, _) = elsewhere.in_lab().expect("something differs");
    let knock = there.section::<SampleSection>().expect("its mechanism");
    assert_eq!(
        (knock.times, knock.each_takes),
        (SampleSection::default().times, Time::millis(2)),
        "the whole table"
    );
    assert_eq!(there.seed, 7);
    assert_eq!(elsewhere.section::<SampleSection>().map(|knock| knock.times), Some(5));
}

#[test]
fn in_lab__what_cannot_differ_there_or_run_is_refused_when_the_file_is_read() {
    for (lab, needle) in [
        ("[lab]\nseed = 3\n", "`seed` cannot differ"),
        ("[lab.lab.knock]\ntimes = 3\n", "`lab` cannot differ"),
        ("[lab.knock]\ntimes = 101\n", "with [lab]: "),
        ("[lab.knok]\ntimes = 3\n", "`knock`"),
    ] {
        let refusal = refusal(&format!("{KNOCKS}{lab}"));
        assert!(refusal.contains(needle), "{lab:?}: {refusal}");
    }
}
