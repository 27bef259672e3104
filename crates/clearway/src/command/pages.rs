//! What `--help` and man pages say of a command in addition to its flags: examples, exit statuses.
//!
//! # Invariants
//! I1. Every command that a user can give has a page, and every example is read by the table of
//!     commands and flags; tests hold both.

use clap::{Command, CommandFactory};

use super::Arguments;

/// What is said of one command.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommandPage {
    /// Its words, without `clearway`.
    pub(super) words: &'static str,
    /// What its exit statuses mean, where they mean more than [`STATUSES`].
    statuses: &'static str,
    /// Lines for a shell, and what each does.
    pub(super) examples: &'static [(&'static str, &'static str)],
}

/// What exit statuses of all commands mean.
const STATUSES: &str =
    "0 done; 1 failed; 2 wrong usage; 5 a permission is missing; 130 interrupted";
/// What those of measurements mean.
const VERDICTS: &str = "0 done, verdict CONTAINED; 1 failed; 2 wrong usage; 3 verdict CONGESTED; \
                        4 verdict INVALID; 5 a permission is missing; 130 interrupted";

/// Describes a command whose exit statuses mean what those of all mean.
const fn page(
    words: &'static str,
    examples: &'static [(&'static str, &'static str)],
) -> CommandPage {
    CommandPage { words, statuses: STATUSES, examples }
}

/// Describes a command whose exit statuses mean `statuses`.
const fn page_with(
    words: &'static str,
    statuses: &'static str,
    examples: &'static [(&'static str, &'static str)],
) -> CommandPage {
    CommandPage { words, statuses, examples }
}

/// All pages, in the order of the table of commands.
pub(super) const PAGES: &[CommandPage] = &[
    page_with(
        "",
        "0 done, verdict CONTAINED; 1 failed; 2 wrong usage; 3 verdict CONGESTED (or worse, for \
         diff; or an archive, tables, a policy or a log with faults, for msa check, qos check, qos \
         verify, policy check and stage fsck; or a class that is not granted; or the time of stage wait --limit is over); 4 verdict INVALID; \
         5 a permission is missing; 130 interrupted",
        &[
            ("clearway doctor", "What this machine can do"),
            ("clearway demo", "Congestion and its cure, on this machine"),
            ("clearway run incast --on sim,lab", "A shipped scenario, in two places"),
        ],
    ),
    page_with("demo", VERDICTS, &[("clearway demo", "The report goes below out/demo")]),
    page_with(
        "bench",
        VERDICTS,
        &[
            (
                "clearway bench --victims ping,get --congestors incast --queues fifo,strict",
                "Patterns under an incast, in two kinds of queue",
            ),
            ("clearway bench --congestor-cmd 'sh copy.sh'", "Pings during a program, in a lab"),
            ("clearway bench --print-scenario > mine.toml", "A scenario file from flags"),
        ],
    ),
    page(
        "gpcnet",
        &[
            ("clearway gpcnet --fabric edr --nodes 64", "On a simulated machine"),
            ("clearway gpcnet --on lab,sim --trunk 25Mb/s", "16 virtual hosts, and simulated ones"),
        ],
    ),
    page_with(
        "run",
        VERDICTS,
        &[
            ("clearway run incast --on sim,lab", "A shipped scenario, in two places"),
            ("clearway run mine.toml --seed 7", "A file, with other random choices"),
            ("clearway run trunk --on cluster --hostfile hosts", "On hosts, over ssh"),
        ],
    ),
    page("lab", &[("clearway lab up --hosts 4 --queue strict", "Four hosts behind a switch")]),
    page(
        "lab up",
        &[
            ("clearway lab up --hosts 4 --queue strict", "Four hosts behind a switch"),
            ("clearway lab up --name two --hosts 2 --rate 1Gb/s", "A second lab"),
        ],
    ),
    page_with(
        "lab exec",
        "that of the program; 1 also if it cannot be run; 2 wrong usage",
        &[("clearway lab exec h0 -- iperf3 -s -D", "A server on the first host")],
    ),
    page_with(
        "lab status",
        "0 done; 1 failed, or the lab is gone; 2 wrong usage",
        &[("clearway lab status --name lab", "Hosts, addresses and counters of a lab")],
    ),
    page("lab down", &[("clearway lab down --name two", "End a lab and its programs")]),
    page("topo", &[("clearway topo explain edr", "A page about a fabric")]),
    page("topo list", &[("clearway topo list", "The shipped fabrics")]),
    page(
        "topo explain",
        &[
            ("clearway topo explain edr", "Shape, ways, latencies, lanes, and sources"),
            ("clearway topo explain edr --hosts 648", "The same with at least this many hosts"),
        ],
    ),
    page("topo check", &[("clearway topo check mine.toml", "Right, and free of deadlock")]),
    page("topo print", &[("clearway topo print edr > mine.toml", "A shipped file, to be changed")]),
    page(
        "topo import",
        &[(
            "clearway topo import opensm.conf --switches net.txt --base hdr100 > mine.toml",
            "A fabric file of a live network",
        )],
    ),
    page("qos", &[("clearway qos plan --fabric edr", "Levels, lanes, weights and shares")]),
    page(
        "qos plan",
        &[
            ("clearway qos plan --fabric edr", "Levels, lanes, weights and shares"),
            (
                "clearway qos plan --conf opensm.conf --switches net.txt",
                "Also the present shares, and what each switch gets",
            ),
        ],
    ),
    page(
        "qos emit",
        &[
            ("clearway qos emit --for opensm > add.conf", "Lines for opensm.conf"),
            ("clearway qos emit --for tc --policy site.toml", "Shares of a site as weights"),
        ],
    ),
    page_with(
        "qos verify",
        "0 all as planned; 1 failed; 2 wrong usage; 3 there are differences",
        &[("clearway qos verify --switches net.txt", "Compare every port with the plan")],
    ),
    page_with(
        "qos check",
        "0 no faults; 1 failed; 2 wrong usage; 3 there are faults",
        &[(
            "clearway qos check opensm.conf --policy qos-policy.conf",
            "A sentence for each fault, or nothing",
        )],
    ),
    page(
        "policy",
        &[
            ("clearway policy check site.toml", "The rules of a site, or the fault"),
            ("clearway policy serve site.toml", "Divide budgets among all hosts"),
        ],
    ),
    page(
        "policy serve",
        &[(
            "clearway policy serve /etc/clearway/policy.toml --metrics 9464",
            "Divide budgets, with figures",
        )],
    ),
    page(
        "agent",
        &[("clearway agent --peers n2,n3,n7 --metrics 9464", "Watch three hosts, with figures")],
    ),
    page_with(
        "policy check",
        "0 no fault, or granted; 1 failed; 2 wrong usage; 3 a fault, or not granted",
        &[
            ("clearway policy check site.toml", "Its rules, or the fault"),
            (
                "clearway policy check site.toml --user eve --program cast --class bulk",
                "Whether this is granted",
            ),
        ],
    ),
    page(
        "mount",
        &[
            (
                "clearway mount --local /fast/log:/slow/store /mnt/ck",
                "A log and a store of this machine",
            ),
            ("clearway mount server1 /ck --key host.key", "A log that another host serves"),
            ("clearway mount server1,server2 /ck --munge", "One tree of two servers"),
        ],
    ),
    page(
        "umount",
        &[
            ("clearway umount /mnt/ck", "Returns when everything is in the log"),
            ("clearway umount --force /ck", "Returns at once: the server does not come back"),
        ],
    ),
    page("stage", &[("clearway stage status /mnt/ck", "Space, drain, memory and syncs")]),
    page(
        "stage serve",
        &[(
            "clearway stage serve --data /nvme/log --backing /lustre --key host.key",
            "A log and a store for mounts of other hosts",
        )],
    ),
    page_with(
        "stage job",
        "that of the program, or 128 plus the number of the signal that killed it; 1 also if \
         staging failed; 2 wrong usage",
        &[
            (
                "clearway stage job --data /nvme/log --backing /lustre -- ./app ARGS",
                "Behind srun, mpiexec or mpirun, or alone",
            ),
            (
                "clearway stage job --servers 2 --data /nvme/log --backing /lustre -- ./app",
                "With servers on the first two nodes",
            ),
        ],
    ),
    page("stage status", &[("clearway stage status /mnt/ck --json", "For a program")]),
    page("stage ls", &[("clearway stage ls /mnt/ck", "Safety, class and size of each entry")]),
    page("stage stat", &[("clearway stage stat --json /mnt/ck/step.7", "With the version")]),
    page_with(
        "stage wait",
        "0 all are safe; 1 failed; 2 wrong usage; 3 the time of --limit is over",
        &[
            ("clearway stage wait /mnt/ck/step.7", "Until it survives a loss of power"),
            ("clearway stage wait --until stored /mnt/ck", "Until the store has everything"),
            ("clearway stage wait --limit 10min /mnt/ck", "For at most ten minutes"),
        ],
    ),
    page("stage drain", &[("clearway stage drain /mnt/ck/step.7", "Before others of its class")]),
    page("stage publish", &[("clearway stage publish /mnt/ck/run7", "As a whole, in the store")]),
    page("stage cancel", &[("clearway stage cancel /mnt/ck/tmp", "Keep it out of the store")]),
    page(
        "stage warm",
        &[
            ("clearway stage warm /mnt/ck", "Ahead of a restart, on each node"),
            (
                "clearway stage warm --to 'n[01-16]' --into /dev/shm /mnt/ck/step.7",
                "One node reads the store and casts the files to sixteen",
            ),
        ],
    ),
    page("stage set-class", &[("clearway stage set-class bulk /mnt/ck/old", "Later traffic")]),
    page_with(
        "stage fsck",
        "0 clean; 1 no log that can be read; 2 wrong usage; 3 there are findings",
        &[("clearway stage fsck /fast/log", "All bytes of files included")],
    ),
    page("msa", &[("clearway msa info channel7.msa run.tsa", "What archives hold")]),
    page_with(
        "msa info",
        "0 no faults; 1 a file cannot be read; 2 wrong usage; 3 a fault was met",
        &[("clearway msa info channel7.msa run.tsa", "What archives hold")],
    ),
    page_with(
        "msa check",
        "0 no faults; 1 a file cannot be read; 2 wrong usage; 3 there are faults",
        &[("clearway msa check run_%n.tsa", "All of run_0000.tsa, run_0001.tsa, ...")],
    ),
    page(
        "msa copy",
        &[
            ("clearway msa copy 'file:channel7.msa?cycles=3' longer.msa --compress", "Three times"),
            ("clearway msa copy run.tsa old.tsa --flesnet-1", "For FLESnet 1.0"),
        ],
    ),
    page(
        "msa make",
        &[
            ("clearway msa make channel7.msa --channel 7 --sizes skewed", "Microslices"),
            ("clearway msa make run_%i.msa --channels 4", "run_0.msa to run_3.msa"),
        ],
    ),
    page("sim", &[("clearway sim explain out/NAME", "The slowest messages of a run")]),
    page(
        "sim explain",
        &[
            ("clearway sim explain out/NAME", "The slowest messages of the victims"),
            ("clearway sim explain out/NAME --message p3:n12:345", "What this one waited for"),
        ],
    ),
    page_with(
        "sim replay",
        "0 the failure is still there; 1 it is not, or the file cannot be read; 2 wrong usage",
        &[("clearway sim replay out/swarm/FAILURE-0.toml --until 40", "The first 40 events")],
    ),
    page("timeslice", &[("clearway timeslice build --timeslices 1000", "In a lab")]),
    page(
        "timeslice compare",
        &[
            (
                "clearway timeslice compare --inputs 32 --builders 32 --policy dfs,token",
                "Two schedules, on a simulated fabric",
            ),
            (
                "clearway timeslice compare --on lab --inputs 4 --builders 4 --policy token",
                "In a lab",
            ),
        ],
    ),
    page_with(
        "timeslice build",
        "0 each timeslice was built once; 1 failed, or one was not; 2 wrong usage; 3 contents have \
         faults; 5 a permission is missing; 130 interrupted",
        &[("clearway timeslice build --inputs 4 --builders 4 --timeslices 1000", "In a lab")],
    ),
    page(
        "timeslice achievable",
        &[(
            "clearway timeslice achievable --node-rate 28Gb/s --packet 64KiB",
            "On a simulated fabric",
        )],
    ),
    page("timeslice watch", &[("clearway timeslice watch NAME@HOST", "A run of another host")]),
    page_with(
        "timeslice join",
        "0 the run is over; 1 failed; 2 wrong usage, or the run has no such rank",
        &[("clearway timeslice join NAME@HOST --rank 5", "Take the place of rank 5")],
    ),
    page(
        "timeslice consume",
        &[("clearway timeslice consume SOCKET", "Look at what a builder passes on")],
    ),
    page(
        "broadcast",
        &[
            ("clearway broadcast --bytes 4B,1MiB --loss 0,0.01 --explain", "In a lab, with losses"),
            (
                "clearway broadcast --on sim --fabric edr --ranks 1000 --bytes 1MiB",
                "On a simulated machine",
            ),
        ],
    ),
    page_with(
        "cast",
        "0 all receivers have everything; 1 one lacks something, or something was not sent; 2 \
         wrong usage; 130 interrupted",
        &[
            ("clearway cast model.safetensors --to hosts.txt", "Over ssh; a host a line"),
            (
                "clearway cast DIR/ --to 'n[01-64]:/scratch' --progress",
                "The contents of DIR, below /scratch of each",
            ),
            (
                "clearway cast --exec 'pg_dump db' --name db.sql --to 'n[01-64]:/scratch'",
                "What a program prints",
            ),
        ],
    ),
    page(
        "cast serve",
        &[("clearway cast serve --key cast.key --into /scratch", "On each receiver")],
    ),
    page_with(
        "start",
        "that of the first rank that failed; 0 if none did; 2 also for wrong usage",
        &[("clearway start -n 4 ./app", "Four ranks on this host")],
    ),
    page("shmem", &[("clearway shmem info -n 4", "What the library sees with four PEs")]),
    page("shmem info", &[("clearway shmem info -n 4", "What the library sees with four PEs")]),
    page_with(
        "doctor",
        "0 labs work here; 1 they do not; 2 wrong usage; 5 a permission is missing for them; with \
         --node 0 all is ok; 1 something is missing; 2 wrong usage; 3 something is limited",
        &[
            ("clearway doctor --json", "For a program"),
            ("clearway doctor --node", "Whether this node is set up as its site wants"),
        ],
    ),
    page(
        "setup-node",
        &[
            ("clearway setup-node --mark port:2049=bulk > setup.sh", "Mark what NFS sends"),
            ("clearway setup-node --policy site.toml", "Limit programs of users and groups"),
        ],
    ),
    page("report", &[("clearway report out/demo", "Write the page again from the JSON")]),
    page_with(
        "diff",
        "0 no deciding figure is worse in B; 1 a file cannot be read; 2 wrong usage; 3 at least one \
         is worse",
        &[("clearway diff out/before out/after", "Judge the second run")],
    ),
    page("completions", &[("clearway completions bash > clearway.bash", "For a shell to read")]),
    page("man", &[("clearway man --dir man1", "The pages of all commands")]),
];

impl CommandPage {
    /// Returns the page of the command of these words.
    pub(super) fn find(words: &str) -> Option<&'static Self> {
        PAGES.iter().find(|page| page.words == words)
    }

    /// Returns what `--help` shows behind the flags.
    fn help(&self) -> String {
        let examples: String =
            self.examples.iter().map(|(line, about)| format!("  # {about}\n  {line}\n")).collect();
        format!("Examples:\n{examples}\nExit status: {}.", self.statuses)
    }

    /// Returns the sections of a man page.
    pub(super) fn roff(&self) -> String {
        let examples: String = self
            .examples
            .iter()
            .map(|(line, about)| {
                format!(
                    ".TP\n{}:\n.nf\n\\f(CB{}\\fP\n.fi\n",
                    roff_text(about),
                    roff_text(line).replace('-', "\\-")
                )
            })
            .collect();
        format!(".SH \"EXIT STATUS\"\n{}.\n.SH EXAMPLES\n{examples}", roff_text(self.statuses))
    }
}

/// Writes what roff would take for its own as letters.
fn roff_text(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('\'', "\\(aq");
    if text.starts_with('.') { format!("\\&{text}") } else { text }
}

/// Returns the table of commands and flags, with what pages say.
pub(super) fn table() -> Command {
    with_pages(Arguments::command(), "")
}

fn with_pages(command: Command, words: &str) -> Command {
    let command = command
        .mut_subcommands(|part| {
            let words = joined(words, part.get_name());
            with_pages(part, &words)
        })
        // A negative number is refused as a value, and not taken for a flag that is not known.
        .mut_args(|flag| match flag.is_positional() || !flag.get_action().takes_values() {
            true => flag,
            false => flag.allow_negative_numbers(true),
        });
    match CommandPage::find(words) {
        Some(page) if words.is_empty() => command
            .after_help(format!("Exit status: {}.", page.statuses))
            .after_long_help(page.help()),
        Some(page) => command.after_long_help(page.help()),
        None => command,
    }
}

/// Returns the words of the command `name` below that of `words`.
pub(super) fn joined(words: &str, name: &str) -> String {
    if words.is_empty() { name.to_owned() } else { format!("{words} {name}") }
}
