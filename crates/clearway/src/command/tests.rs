//! The whole command line, as its own table lists it: no flag takes a wrong value, each refusal is
//! one sentence that says what works, and nothing is begun before it.
//!
//! # Not here
//! Readers that close their end (`tests/commands/closed_output.rs`).

use std::any::TypeId;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Arg, Command};
use clap_complete::Shell;
use clearway_proto::base::{BitsPerSec, Bytes};

use super::generate::names_of;
use super::pages::PAGES;
use super::*;
use crate::run::exit::exit_of;
use crate::scenario::{RankAt, Time};

/// A file in a directory that is none, so that nobody can make it.
const NOWHERE: &str = "/dev/null/nowhere";
/// Lines of help and refusals, apart from what they quote, have no more columns.
const COLUMNS_MAX: usize = 100;

/// Words with which each command is refused because of [`NOWHERE`], after it has looked at the
/// values of all its flags. No words: every flag can be tried without them.
const REFUSED: &[(&str, &str)] = &[
    ("demo", "--out NOWHERE"),
    ("bench", "--out NOWHERE"),
    ("gpcnet", "--out NOWHERE"),
    ("run", "incast --out NOWHERE"),
    ("lab exec", "--name nowhere h0 -- true"),
    ("lab status", "--name nowhere"),
    ("lab down", "--name nowhere"),
    ("topo explain", "NOWHERE"),
    ("topo check", "NOWHERE"),
    ("topo print", "NOWHERE"),
    ("topo import", "NOWHERE"),
    ("qos plan", "--switches NOWHERE"),
    ("qos emit", "--for tc --policy NOWHERE"),
    ("qos verify", "--switches NOWHERE"),
    ("qos check", "NOWHERE"),
    ("policy check", "NOWHERE"),
    ("policy serve", "NOWHERE"),
    ("agent", "--listen 127.0.0.1:0 --link 1Gb/s --policy NOWHERE"),
    ("mount", "--local NOWHERE:NOWHERE --foreground NOWHERE"),
    ("umount", "NOWHERE"),
    ("stage serve", "--data NOWHERE --backing NOWHERE --key NOWHERE"),
    ("stage status", "NOWHERE"),
    ("stage ls", "NOWHERE"),
    ("stage stat", "NOWHERE"),
    ("stage wait", "NOWHERE"),
    ("stage drain", "NOWHERE"),
    ("stage publish", "NOWHERE"),
    ("stage cancel", "NOWHERE"),
    ("stage warm", "NOWHERE"),
    ("stage set-class", "bulk NOWHERE"),
    ("stage fsck", "NOWHERE"),
    ("msa info", "NOWHERE"),
    ("msa check", "NOWHERE"),
    ("msa copy", "NOWHERE NOWHERE"),
    ("msa make", "NOWHERE"),
    ("sim explain", "NOWHERE"),
    ("sim replay", "NOWHERE"),
    ("timeslice compare", "--out NOWHERE"),
    ("timeslice build", "--timeslices 10 --out NOWHERE"),
    ("timeslice achievable", "--fabric NOWHERE"),
    ("timeslice watch", "nowhere"),
    ("timeslice join", "nowhere"),
    ("timeslice consume", "NOWHERE"),
    ("broadcast", "--out NOWHERE"),
    ("cast", "NOWHERE --to nowhere"),
    ("cast serve", "--key NOWHERE"),
    ("start", "--hostfile NOWHERE true"),
    ("setup-node", "--policy NOWHERE"),
    ("report", "NOWHERE"),
    ("diff", "NOWHERE NOWHERE"),
    ("man", "--dir NOWHERE"),
];
/// Commands that begin whatever their flags say, or that end the process.
const BEGIN: &[&str] = &["lab up", "topo list", "stage job", "shmem info", "doctor", "completions"];

/// A command that does something.
struct Leaf {
    words: String,
    command: Command,
}

impl Leaf {
    /// Returns the flags and words that take a value.
    fn values(&self) -> impl Iterator<Item = &Arg> {
        self.command.get_arguments().filter(|argument| argument.get_action().takes_values())
    }

    /// Returns a command line of this command.
    fn line(&self, more: &[&str]) -> Vec<OsString> {
        let words = ["clearway"].into_iter().chain(self.words.split_whitespace());
        words.chain(more.iter().copied()).map(OsString::from).collect()
    }
}

/// Returns the table with all parts that clap itself adds.
fn built() -> Command {
    let mut table = pages::table();
    table.build();
    table
}

fn leaves() -> Vec<Leaf> {
    fn below(words: &str, command: &Command, found: &mut Vec<Leaf>) {
        if !command.is_subcommand_required_set() {
            found.push(Leaf { words: words.to_owned(), command: command.clone() });
        }
        for part in command.get_subcommands().filter(|part| part.get_name() != "help") {
            below(&pages::joined(words, part.get_name()), part, found);
        }
    }
    let mut found = Vec::new();
    below("", &built(), &mut found);
    found
}

/// Returns the commands that users see.
fn shown() -> impl Iterator<Item = Leaf> {
    leaves().into_iter().filter(|leaf| !leaf.command.is_hide_set())
}

/// Returns whether every text is a value of `argument`, or a path of something that is looked for
/// later.
fn is_free(argument: &Arg) -> bool {
    let kind = argument.get_value_parser().type_id();
    let name = format!("{kind:?}");
    let is = |of: TypeId| kind == of;
    is(TypeId::of::<String>())
        || is(TypeId::of::<OsString>())
        || is(TypeId::of::<PathBuf>())
        || ["ExcludePattern", "Locator", "LabName", "TopologySource", "UserKey", "LocalPlaces"]
            .iter()
            .any(|free| name.ends_with(free))
}

/// Returns `--flag=VALUE`, or words with the value where the table wants it.
fn with_value(argument: &Arg, value: &str) -> Vec<String> {
    match (argument.get_long(), argument.get_index()) {
        (Some(long), _) => vec![format!("--{long}={value}")],
        (None, index) => {
            let before = index.unwrap_or(1) - 1;
            let words = (0..before).map(|_| "x".to_owned());
            ["--".to_owned()].into_iter().chain(words).chain([value.to_owned()]).collect()
        }
    }
}

/// Returns the columns of the longest line of `said`, apart from `value`.
fn columns(said: &str, value: &str) -> usize {
    let bare = if value.is_empty() { said.to_owned() } else { said.replace(value, "") };
    bare.lines().map(|line| line.chars().count()).max().unwrap_or(0)
}

#[test]
fn table__is_consistent() {
    pages::table().debug_assert();
}

#[test]
fn parse__no_flag_takes_a_value_of_another_kind() {
    let mut faults = Vec::new();
    for leaf in leaves() {
        for argument in leaf.values().filter(|argument| !is_free(argument)) {
            let kind = argument.get_value_parser().type_id();
            let has_unit = kind == TypeId::of::<Time>() || kind == TypeId::of::<BitsPerSec>();
            let numbers = if has_unit { &["5", "5parsec", "-5s", "1e3s"][..] } else { &[] };
            let words = ["no such word", "", "-1", "999999999999999999999999999999", "\u{7}x"];
            for value in words.iter().chain(numbers) {
                let words = with_value(argument, value);
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                let Err(refusal) = parse(&leaf.line(&words)) else {
                    faults.push(format!("{} {words:?} ({kind:?}) is taken", leaf.words));
                    continue;
                };
                let said = refusal.to_string();
                let is_of_value =
                    matches!(refusal.kind(), ErrorKind::ValueValidation | ErrorKind::InvalidValue)
                        || kind == TypeId::of::<f64>()
                            && refusal.kind() == ErrorKind::MissingRequiredArgument;
                let is_shown = said.contains(&argument.to_string()) && !said.contains('\u{7}');
                let is_bare = ["digit found", "empty string", "float literal", "target type"]
                    .iter()
                    .any(|words| said.contains(words));
                if !is_of_value || !is_shown || is_bare || columns(&said, value) > COLUMNS_MAX {
                    faults.push(format!("{} {words:?} ({kind:?}): {said}", leaf.words));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn parse__a_negative_number_behind_a_flag_is_its_value() {
    let line = ["clearway", "bench", "--hosts", "-1"].map(OsString::from);
    let said = parse(&line).expect_err("refused").to_string();
    assert!(said.contains("'-1' for '--hosts <N>': -1 is not in 0..=4294967295"), "{said}");
}

#[test]
fn folded__breaks_between_words_only() {
    assert_eq!(folded("one two three four", 9, "|"), "one two|three|four");
    assert_eq!(folded("a-word-that-is-too-long x", 9, "|"), "a-word-that-is-too-long|x");
    assert_eq!(folded("", 9, "|"), "");
}

/// Returns the exit status and the sentence of a command line that is refused.
fn refusal(words: &[OsString]) -> (u8, String) {
    match parse(words) {
        Err(refusal) => (refusal.exit_code() as u8, refusal.to_string()),
        Ok(arguments) => match dispatch(arguments.command) {
            Ok(exit) => (exit as u8, String::new()),
            Err(error) => (exit_of(&error) as u8, format!("{error:#}")),
        },
    }
}

/// Returns values that most flags of the kind of `argument` must not take, though they can be read.
fn extremes(argument: &Arg) -> &'static [&'static str] {
    let kind = argument.get_value_parser().type_id();
    let kinds: [(TypeId, &[&str]); 9] = [
        (TypeId::of::<u16>(), &["0", "65535"]),
        (TypeId::of::<u32>(), &["0", "4294967295"]),
        (TypeId::of::<u64>(), &["0", "18446744073709551615"]),
        (TypeId::of::<usize>(), &["0", "18446744073709551615"]),
        (TypeId::of::<f64>(), &["0", "-1.5", "nan", "1e308"]),
        (TypeId::of::<Time>(), &["0s", "1ns", "200000d"]),
        (TypeId::of::<BitsPerSec>(), &["0b/s", "1b/s", "18000000Tb/s"]),
        (TypeId::of::<Bytes>(), &["0B", "1B", "15EiB"]),
        (TypeId::of::<RankAt>(), &["0@0s", "4294967295@1s", "1@200000d"]),
    ];
    kinds.into_iter().find(|(of, _)| kind == *of).map_or(&[], |(_, values)| values)
}

#[test]
fn dispatch__what_cannot_be_is_refused_with_status_2_before_anything_begins() {
    let mut faults = Vec::new();
    for leaf in shown() {
        if BEGIN.contains(&leaf.words.as_str()) {
            continue;
        }
        let refused = REFUSED.iter().find(|(words, _)| *words == leaf.words);
        let Some((_, words)) = refused else {
            faults.push(format!("`{}` has no words in REFUSED", leaf.words));
            continue;
        };
        let words = words.replace("NOWHERE", NOWHERE);
        let base: Vec<&str> = words.split_whitespace().collect();
        let (status, said) = refusal(&leaf.line(&base));
        if status != 1 || !said.to_lowercase().contains("nowhere") || said.lines().count() > 1 {
            faults.push(format!("{} {words}: {status}: {said}", leaf.words));
            continue;
        }
        for argument in leaf.values().filter(|argument| argument.get_long().is_some()) {
            let paths: &[&str] = match is_free(argument) {
                true if !["name", "job"].contains(&argument.get_id().as_str()) => {
                    &["/dev/null/missing", "/"]
                }
                _ => &[],
            };
            for value in extremes(argument).iter().chain(paths) {
                let flag = with_value(argument, value).remove(0);
                let line: Vec<&str> = [flag.as_str()].into_iter().chain(base.clone()).collect();
                let (status, said) = refusal(&leaf.line(&line));
                let name = format!("--{}", argument.get_long().unwrap_or_default());
                let is_named = said.contains(&name) || said.contains(value);
                let is_base = said.to_lowercase().contains("nowhere");
                let is_path = !paths.is_empty();
                let is_right = match status {
                    2 => is_named || said.contains("--"),
                    1 => is_base || is_path && is_named,
                    _ => false,
                };
                // A list of names is as long as it is; a terminal gets it in lines.
                let is_one = status == 2 && said.contains("\n\n") || said.lines().count() == 1;
                if !is_right || !is_one {
                    faults.push(format!("{} {flag}: {status}: {said}", leaf.words));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn pages__every_command_has_one_and_every_example_can_be_read() {
    let table = built();
    let mut words: Vec<String> = shown().map(|leaf| leaf.words).collect();
    words.extend(
        table
            .get_subcommands()
            .filter(|part| part.is_subcommand_required_set())
            .map(|part| part.get_name().to_owned()),
    );
    words.push(String::new());
    for words in &words {
        assert!(PAGES.iter().any(|page| page.words == words), "`{words}` has no page");
    }
    for page in PAGES {
        assert!(words.iter().any(|words| page.words == words), "`{}` is no command", page.words);
        assert!(!page.examples.is_empty(), "{}", page.words);
        for (line, _) in page.examples {
            let line = line.split(" > ").next().unwrap_or_default();
            assert!(line.starts_with(&format!("clearway {}", page.words)), "{line}");
            assert!(line.chars().count() <= 78, "{line}");
            if let Err(why) = parse(&shell_words(line)) {
                panic!("{line}: {why}");
            }
        }
    }
}

/// Splits `line` as a shell does that knows single quotes only.
fn shell_words(line: &str) -> Vec<OsString> {
    let mut words = vec![String::new()];
    let mut is_quoted = false;
    for letter in line.chars() {
        match (letter, words.last_mut()) {
            ('\'', _) => is_quoted = !is_quoted,
            (' ', _) if !is_quoted => words.push(String::new()),
            (letter, Some(word)) => word.push(letter),
            (_, None) => {}
        }
    }
    words.into_iter().map(OsString::from).collect()
}

#[test]
fn names_of__are_values_that_the_command_line_takes() {
    for leaf in leaves() {
        for argument in leaf.values() {
            for name in names_of(argument) {
                let words = with_value(argument, &name);
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                let said = parse(&leaf.line(&words)).map_err(|why| (why.kind(), why.to_string()));
                if let Err((ErrorKind::ValueValidation | ErrorKind::InvalidValue, why)) = said {
                    panic!("{} {words:?}: {why}", leaf.words);
                }
            }
        }
    }
}

#[test]
fn help__of_each_command_fits_a_terminal_and_ends_with_examples() {
    for leaf in shown() {
        let help = leaf.command.clone().term_width(80).render_long_help().to_string();
        assert!(help.contains("\nExamples:\n") && help.contains("\nExit status: "), "{help}");
        for line in help.lines().filter(|line| !line.contains("possible values")) {
            assert!(line.chars().count() <= 80, "{}: {line}", leaf.words);
        }
    }
}

#[test]
fn man_page__of_each_command_has_examples_and_exit_statuses_and_nothing_hidden() {
    for leaf in shown() {
        let page = generate::man_page(&leaf.command, &leaf.words).expect("a page");
        let page = String::from_utf8(page).expect("text").replace("\\-", "-");
        for section in ["\n.SH \"EXIT STATUS\"\n", "\n.SH EXAMPLES\n"] {
            assert_eq!(page.matches(section).count(), 1, "{}: {section}", leaf.words);
        }
        let hidden = leaf.command.get_arguments().filter(|argument| argument.is_hide_set());
        for long in hidden.filter_map(Arg::get_long) {
            assert!(!page.contains(&format!("--{long}\\")), "{} shows --{long}", leaf.words);
        }
    }
}

#[test]
fn dispatch__hosts_that_cannot_be_placed_are_refused_before_a_lab_begins() {
    let lines: [(&[&str], &str); 6] = [
        (&["--hosts", "0"], "1 to 1000 hosts work"),
        (&["--hosts", "4294967295"], "1 to 1000 hosts work"),
        (&["--rate", "1b/s"], "1 Mb/s to 32 Gb/s work"),
        (&["--rails", "0"], "1 works, and up to 4"),
        (&["--leaves", "0", "--spines", "1"], "a multiple of hosts work"),
        (&["--offload", "0"], "1 to 43 work"),
    ];
    for (flags, works) in lines {
        let line = [&["clearway", "lab", "up"][..], flags].concat();
        let line: Vec<OsString> = line.into_iter().map(OsString::from).collect();
        let (status, said) = refusal(&line);
        assert!(status == 2 && said.contains(works), "{flags:?}: {status}: {said}");
    }
}

/// Returns whether a completion script offers the command `name`, by the forms of its shells.
fn is_offered(script: &str, name: &str) -> bool {
    let forms = [
        format!("__{}", name.replace('-', "__subcmd__")),
        format!("'{name}:"),
        format!("-a \"{name}\""),
    ];
    forms.iter().any(|form| {
        script.match_indices(form.as_str()).any(|(at, _)| {
            let behind = script[at + form.len()..].chars().next();
            !behind.is_some_and(|letter| letter.is_alphanumeric() || letter == '_')
        })
    })
}

#[test]
fn script__offers_nothing_that_is_hidden() {
    fn hidden(command: &Command, found: &mut Vec<String>) {
        let flags = command.get_arguments().filter(|argument| argument.is_hide_set());
        found.extend(flags.filter_map(|flag| flag.get_long()).map(|long| format!("--{long}")));
        for part in command.get_subcommands() {
            if part.is_hide_set() {
                found.push(part.get_name().to_owned());
            } else {
                hidden(part, found);
            }
        }
    }
    let table = built();
    let mut names = Vec::new();
    hidden(&table, &mut names);
    assert!(names.contains(&"lab-keeper".to_owned()) && names.contains(&"--background".to_owned()));
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let script = generate::script(shell);
        let is_word = |letter: char| letter.is_alphanumeric() || letter == '-';
        let words: BTreeSet<&str> = script.split(|letter| !is_word(letter)).collect();
        for name in &names {
            let is_named = match name.strip_prefix("--") {
                Some(long) if shell == Shell::Fish => script.contains(&format!(" -l {long} ")),
                Some(_) => words.contains(name.as_str()),
                None => is_offered(&script, name),
            };
            assert!(!is_named, "{shell} offers {name}");
        }
        for name in ["incast", "edr", "low-latency"] {
            assert!(script.contains(name), "{shell} offers no {name}");
        }
    }
}

/// First words of help that are no verb in the imperative.
const NO_VERBS: [&str; 31] = [
    "A", "All", "An", "At", "Bytes", "By", "Class", "Classes", "File", "Files", "Hosts", "How",
    "In", "Inputs", "It", "Its", "Length", "Name", "Number", "Of", "Offered", "Packets", "Paths",
    "Queue", "Ranks", "Rate", "Seed", "Seeds", "That", "The", "What",
];

/// Finds help of `command` and what is below it that does not begin with a verb.
fn without_verb(command: &Command, found: &mut Vec<String>) {
    let path = command.get_name().to_owned();
    let texts =
        command.get_arguments().filter(|argument| !argument.is_hide_set()).map(|argument| {
            let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
            (format!("{path} {}", argument.get_id()), help)
        });
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    for (what, help) in texts.chain([(path.clone(), about)]) {
        // "With --on lab: set the rate."
        let condition = ["With ", "In ", "By "].iter().any(|word| help.starts_with(word));
        let rest = help.split_once(": ").filter(|_| condition).map_or(&*help, |(_, rest)| rest);
        let first = rest.split([' ', ',']).next().unwrap_or_default();
        if NO_VERBS.iter().any(|word| word.eq_ignore_ascii_case(first)) && !is_verb(rest) {
            found.push(format!("{what}: {help}"));
        }
    }
    command.get_subcommands().filter(|it| !it.is_hide_set()).for_each(|it| without_verb(it, found));
}

/// Returns whether a word that may be either is a verb here.
fn is_verb(help: &str) -> bool {
    let lower = help.to_lowercase();
    ["name the ", "name what ", "name this ", "seed "].iter().any(|words| lower.starts_with(words))
}

#[test]
fn help__begins_with_a_verb_in_the_imperative() {
    let mut found = Vec::new();
    without_verb(&pages::table(), &mut found);
    assert!(found.is_empty(), "{}", found.join("\n"));
}
