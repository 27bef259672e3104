//! Which rule counts, what is refused and in which words, shares, limits of owners.

use super::*;

/// Returns a requester with a user, groups, job, programs.
fn requester(user: &str, groups: &[&str], job: &str, programs: &[&str]) -> PolicyRequester {
    let names = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    PolicyRequester::new([names(&[user]), names(groups), names(&[job]), names(programs)])
}

fn policy(text: &str) -> SitePolicy {
    read_text("site.toml", text).expect(text)
}

fn refusal(text: &str) -> String {
    let why = read_text("site.toml", text).expect_err(text);
    assert!(!why.contains('\n') && why.len() < 600, "{why}");
    why
}

const SITE: &str = "link = \"10Gb/s\"\n\
    [[rule]]\nuser = [\"root\", \"ops\"]\nclass = \"control\"\n\
    [[rule]]\ngroup = \"daq\"\nprogram = \"cast\"\nclass = \"bulk\"\nceiling = \"2Gb/s\"\ndeadline = \"30min\"\n\
    [[rule]]\njob = \"4711\"\nclass = \"low-latency\"\n\
    [[rule]]\nprogram = \"cast\"\nclass = \"scavenger\"\n";

#[test]
fn grant__the_first_rule_counts_and_less_urgent_classes_are_granted() {
    let policy = policy(SITE);
    let of_daq = requester("eve", &["users", "daq"], "", &["cast"]);
    for (requested, granted) in [
        (Class::Control, Class::Bulk),
        (Class::Bulk, Class::Bulk),
        (Class::Scavenger, Class::Scavenger),
    ] {
        let grant = policy.grant(&of_daq, requested);
        assert_eq!((grant.granted, grant.ceiling), (granted, Some(BitsPerSec::mega(2000))));
        assert!(grant.rule.contains("rule 2 of site.toml, line 5"), "{}", grant.rule);
    }
    let granted = |requester| policy.grant(&requester, Class::Control).granted;
    assert_eq!(granted(requester("ops", &["daq"], "", &["cast"])), Class::Control);
    assert_eq!(granted(requester("eve", &[], "4711", &["cast"])), Class::LowLatency);
    assert_eq!(granted(requester("eve", &[], "12", &["cast"])), Class::Scavenger);
    let others = policy.grant(&requester("eve", &[], "12", &["solver"]), Class::LowLatency);
    assert_eq!(others.granted, Class::BestEffort);
    assert!(others.sentence().ends_with("no rule of site.toml matches, which means best-effort"));
    let sentence = policy.grant(&of_daq, Class::LowLatency).sentence();
    let expected = "class low-latency was requested, bulk is granted, at most 2 Gb/s for each host, within 1800s: rule 2 of site.toml, line 5";
    assert_eq!(sentence, expected);
}

#[test]
fn read_text__the_example_is_a_policy() {
    let policy = policy(include_str!("../../../../examples/policy/site.toml"));
    assert_eq!(policy.rules.len(), 6);
    assert_eq!(policy.shares().map(LowShares::parts), Some([30, 60, 10]));
    assert_eq!(self::policy("").rules.len(), 0);
}

#[test]
fn read_text__an_unknown_key_is_answered_with_the_nearest() {
    let why = refusal("[[rule]]\nusr = \"a\"\nclass = \"bulk\"\n");
    assert_eq!(why, "site.toml: line 2: unknown key `usr` in a rule; did you mean `user`?");
    assert!(refusal("links = \"1Gb/s\"\n").contains("did you mean `link`?"));
    assert!(refusal("[rule]\nclass = \"bulk\"\n").contains("begin each with [[rule]]"));
    assert!(refusal("[[rule]]\n\"\\u001b[2J\" = 1\n").contains("`\\u{1b}[2J`"));
}

#[test]
fn read_text__what_is_no_value_is_refused_with_what_works() {
    let of = |line: &str| refusal(&format!("[[rule]]\nclass = \"bulk\"\n{line}\n"));
    assert!(refusal("[[rule]]\nuser = \"a\"\n").contains("rule 1 grants no class"));
    assert!(refusal("[[rule]]\nclass = \"fast\"\n").contains("the classes are control"));
    for line in ["share = 0", "share = 256", "share = \"101%\"", "share = \"0%\"", "share = \"x\""]
    {
        assert!(of(line).contains("line 3: `share` is a weight from 1 to 255"), "{}", of(line));
    }
    assert!(of("ceiling = 3").contains("write it in quotes"));
    assert!(of("ceiling = \"0b/s\"").contains("2Gb/s is"));
    assert!(of("ceiling = \"2GB\"").contains("'2GB'"));
    assert!(of("deadline = \"0s\"").contains("30min works"));
    assert!(of("user = []").contains("a list of names"));
    for name in ["\"a b\"", "\"-x\"", "\"$(reboot)\"", "\"\"", "[\"a\", \"*\"]"] {
        assert!(of(&format!("user = {name}")).contains("cannot be the name of a user"), "{name}");
    }
    let why = of("job = \"a\\u001b[2Jb\"");
    assert!(why.contains("'a\\u{1b}[2Jb' cannot be the name of a job"), "{why}");
    assert!(refusal("[[rule]]\nclass = \"low-latency\"\nshare = 3\n").contains("has no share"));
}

#[test]
fn read_text__a_rule_behind_one_that_covers_it_is_refused() {
    let why = refusal(
        "[[rule]]\ngroup = [\"a\", \"b\"]\nclass = \"bulk\"\n[[rule]]\ngroup = \"b\"\nprogram = \"cast\"\nclass = \"control\"\n",
    );
    assert_eq!(
        why,
        "site.toml: line 4: rule 2 never counts, because rule 1 of line 1 matches all that it does; put it before rule 1, or remove it"
    );
    assert!(
        refusal("[[rule]]\nuser = \"*\"\nclass = \"bulk\"\n[[rule]]\nclass = \"bulk\"\n")
            .contains("rule 2 never counts")
    );
    policy(
        "[[rule]]\ngroup = \"b\"\nclass = \"bulk\"\n[[rule]]\ngroup = [\"a\", \"b\"]\nclass = \"bulk\"\n",
    );
}

#[test]
fn read_text__shares_and_ceilings_beyond_a_link_are_refused() {
    let rule = |who: &str, share: &str| {
        format!("[[rule]]\nuser = \"{who}\"\nclass = \"bulk\"\nshare = {share}\n")
    };
    let both = |first, second| rule("a", first) + &rule("b", second);
    policy(&both("\"60%\"", "\"40%\""));
    let why = refusal(&both("\"60%\"", "\"41%\""));
    assert!(why.contains("line 5: with rule 2 the shares of all rules are 101%"), "{why}");
    let why = refusal(&both("\"60%\"", "3"));
    assert!(why.contains("the share of rule 2 is 3 and that of rule 1 is 60%"), "{why}");
    let ceiling = "[[rule]]\nclass = \"bulk\"\nceiling = \"2Gb/s\"\n";
    policy(ceiling);
    let why = refusal(&format!("link = \"1Gb/s\"\n{ceiling}"));
    assert!(
        why.contains("line 2: the ceiling of rule 1 is 2 Gb/s, above the link of 1 Gb/s"),
        "{why}"
    );
}

#[test]
fn read_text__any_bytes_end_in_a_sentence() {
    for text in ["rule = 1", "rule = [1]", "[[rule]]\nclass = 1", "[[rule", "\u{0}", "link = []"] {
        refusal(text);
    }
    let many = "[[rule]]\nuser = \"a\"\nclass = \"bulk\"\n".repeat(501);
    assert!(refusal(&many).contains("501 rules; up to 500 work"));
    assert!(refusal(&"#".repeat(300_000)).contains("larger than 262144 bytes"));
}

#[test]
fn shares__classes_without_one_have_their_usual_part() {
    let shares = |rules: &[(&str, &str)]| {
        let rule = |(number, (class, share)): (usize, &(&str, &str))| {
            format!("[[rule]]\nuser = \"u{number}\"\nclass = \"{class}\"\nshare = {share}\n")
        };
        let text: String = rules.iter().enumerate().map(rule).collect();
        policy(&text).shares().map(LowShares::parts)
    };
    assert_eq!(shares(&[]), None);
    assert_eq!(shares(&[("bulk", "8"), ("bulk", "2")]), Some([4, 10, 1]));
    assert_eq!(shares(&[("bulk", "\"40%\"")]), Some([48, 40, 12]));
    let all = [("bulk", "\"60%\""), ("best-effort", "\"40%\"")];
    assert_eq!(shares(&all), Some([40, 60, 1]), "nobody starves");
}

#[test]
fn owner_limits__what_packets_do_not_show_never_lowers_a_limit() {
    let limits = |text: &str| -> Vec<(String, Class)> {
        let who = |limit: &OwnerLimit| [limit.users.join(","), limit.groups.join(",")].join("/");
        policy(text).owner_limits().iter().map(|limit| (who(limit), limit.class)).collect()
    };
    let expected = [("a/", Class::Bulk), ("/", Class::BestEffort)];
    let expected = expected.map(|(who, class)| (who.to_owned(), class));
    assert_eq!(limits("[[rule]]\nuser = \"a\"\nclass = \"bulk\"\n"), expected);
    let hidden = "[[rule]]\nuser = \"a\"\njob = \"x\"\nclass = \"control\"\n[[rule]]\nclass = \"scavenger\"\n";
    let expected = [("a/", Class::Control), ("/", Class::Scavenger)];
    let expected = expected.map(|(who, class)| (who.to_owned(), class));
    assert_eq!(limits(hidden), expected, "a socket of a's may be the job's");
    let behind = "[[rule]]\nuser = \"a\"\njob = \"x\"\nclass = \"scavenger\"\n[[rule]]\ngroup = \"g\"\nclass = \"control\"\n";
    assert_eq!(limits(behind)[0].1, Class::Control, "a may be of the group");
    let for_all = "[[rule]]\nprogram = \"shmem\"\nclass = \"low-latency\"\n[[rule]]\nuser = \"a\"\nclass = \"bulk\"\n";
    let found = limits(for_all);
    assert!(found.iter().all(|(_, class)| *class == Class::LowLatency), "{found:?}");
}

#[test]
fn table__has_80_columns_and_every_name() {
    let names: Vec<String> = (0..30).map(|number| format!("\"user{number}\"")).collect();
    let long = "x".repeat(200);
    let text = format!(
        "link = \"10Gb/s\"\n[[rule]]\nuser = [{}]\njob = \"{long}\"\nclass = \"best-effort\"\nshare = \"100%\"\nceiling = \"2500Mb/s\"\ndeadline = \"30min\"\n",
        names.join(", ")
    );
    let table = policy(&text).table();
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    assert!(table.contains("user29") && table.matches('x').count() >= 200, "{table}");
    assert!(table.contains("all others"), "{table}");
}

#[test]
fn read_text__budgets_need_a_coordinator_and_are_for_data() {
    let policy = policy(
        "coordinator = \"mgmt\"\nkey = \"/etc/clearway/key\"\n[budget]\nbulk = \"20Gb/s\"\n\
         [[rule]]\nprogram = \"cast\"\nclass = \"bulk\"\nceiling = \"2Gb/s\"\n",
    );
    let cast = requester("eve", &[], "", &["cast"]);
    let grant = policy.grant(&cast, Class::Bulk);
    let budget = grant.budget.clone().expect("the budget of bulk");
    assert_eq!(
        (budget.to_string().as_str(), budget.place.to_string()),
        ("20 Gb/s", "mgmt:27184".into())
    );
    assert_eq!(budget.place.key, Some("/etc/clearway/key".into()));
    assert!(
        grant.sentence().contains(
            "at most 2 Gb/s for each host, within a budget of 20 Gb/s shared by all hosts:"
        ),
        "{}",
        grant.sentence()
    );
    assert_eq!(policy.grant(&cast, Class::Scavenger).budget, None);
    let table = policy.table();
    assert!(table.contains("all hosts together: bulk up to 20 Gb/s\n"), "{table}");
    assert!(table.contains("divided by the coordinator mgmt:27184\n"), "{table}");
    let of = |text: &str| refusal(&format!("{text}\n"));
    assert!(of("[budget]\nbulk = \"1Gb/s\"").contains("add coordinator = \"HOST:PORT\" above"));
    let coordinator = "coordinator = \"mgmt\"\n";
    assert!(of(&format!("{coordinator}budget = \"1Gb/s\"")).contains("write [budget]"));
    assert!(
        of(&format!("{coordinator}[budget]\ncontrol = \"1Gb/s\""))
            .contains("unknown key `control`")
    );
    assert!(of(&format!("{coordinator}[budget]\nbulk = \"0b/s\"")).contains("2Gb/s is"));
    assert!(of("key = \"/etc/key\"").contains("add coordinator ="));
    assert!(of(&format!("{coordinator}key = \"key\"")).contains("write its whole path"));
    assert!(of("coordinator = \"a:b\"").contains("HOST or HOST:PORT is one"));
}
