//! `clearway policy serve`: divides the budgets of a policy among the processes that ask.
//!
//! # Invariants
//! I1. A faulty policy changes nothing: the former one stays, and one sentence says so.
//! I2. A peer has one name in one class; another one ends its connection.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
#[cfg(test)]
use clearway_proto::base::LocalNs;
use clearway_proto::base::{BitsPerSec, Class};
use clearway_proto::flow::{
    BudgetAnswer, BudgetCoordinator, BudgetRefusal, BudgetRequest, BudgetUse,
};
use clearway_runtime::door::{AcceptedPeer, KeyedListener, Limits, SealedSender};
use clearway_runtime::launch::escaped;
use clearway_runtime::{clock, keys};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::budget::{OPEN_SECRET, PORT, PROTOCOL};
use super::{SitePolicy, read};
use crate::run::exit::Exit;
use crate::run::job::tune;
use crate::run::key_file::key;
use crate::run::metrics::{
    MetricLabels, MetricSheet, MetricSource, MetricTitle, MetricUnit, MetricsAddress,
    MetricsListener,
};

/// How long a peer may take to show that it knows the key, and to take an answer.
const GREETING: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(1);
/// Peers at a time that have not shown it: all, and those of one address.
const STRANGERS_MAX: usize = 64;
const STRANGERS_EACH: usize = 16;
/// Members at a time: those of all budgets, and some that are refused.
const PEERS_MAX: usize = 512;
/// How often ends of leases are looked for.
const TICK: Duration = Duration::from_millis(50);

const BUDGET: MetricTitle = MetricTitle {
    name: "policy_budget",
    help: "Bytes of a class that all hosts may send in a second.",
    unit: MetricUnit::BytesPerSecond,
};
const GRANTED: MetricTitle = MetricTitle {
    name: "policy_granted",
    help: "Bytes of a class that members may send in a second.",
    unit: MetricUnit::BytesPerSecond,
};
const MEMBERS: MetricTitle = MetricTitle {
    name: "policy_members",
    help: "Processes that share the budget of a class.",
    unit: MetricUnit::Number,
};

const REQUESTS: MetricTitle =
    MetricTitle { name: "policy_requests", help: "Requests of members.", unit: MetricUnit::Number };
const REFUSALS: MetricTitle = MetricTitle {
    name: "policy_refusals",
    help: "Requests without a budget or a place, and peers without the key.",
    unit: MetricUnit::Number,
};

/// Flags of `clearway policy serve`.
#[derive(Debug, Args)]
pub(crate) struct CoordinatorFlags {
    /// Divide the budgets of this policy. SIGHUP reads it again.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Accept members at this TCP address.
    #[arg(long, value_name = "ADDR:PORT", default_value_t = SocketAddrV4::new([0, 0, 0, 0].into(), PORT))]
    listen: SocketAddrV4,
    /// Accept members with the key in this file (16 to 4096 random bytes, mode 600) [default: that
    /// of `key` in the policy; without a key, every host that reaches the address takes part].
    #[arg(long = "key", value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Serve metrics of the budgets for Prometheus over HTTP, at ADDR:PORT, or at a port of the
    /// loopback address. There is no authentication [default: none].
    #[arg(long, value_name = "ADDR:PORT")]
    metrics: Option<MetricsAddress>,
}

/// The way to a member.
type MemberLine = Arc<Mutex<Option<SealedSender>>>;

#[derive(Default)]
struct CoordinatorTable {
    budgets: BTreeMap<Class, BudgetCoordinator>,
    lines: BTreeMap<(Class, u64), MemberLine>,
    requests: u64,
    refusals: u64,
}

/// The budgets of a policy, and who shares them.
#[derive(Default)]
pub(super) struct BudgetServer(Mutex<CoordinatorTable>);

/// Divides budgets until a signal ends it.
///
/// # Errors
/// One sentence: no policy, no budget in it, no key, no port.
pub(crate) fn serve(flags: &CoordinatorFlags) -> Result<Exit> {
    let policy = read_budgets(&flags.file)?;
    let of_policy = policy.coordinator.as_ref().and_then(|place| place.key.clone());
    let file = flags.key_file.clone().or(of_policy);
    let secret = file.as_deref().map_or_else(|| Ok(OPEN_SECRET.to_vec()), key)?;
    let mut signals =
        Signals::new([SIGHUP, SIGINT, SIGTERM]).context("cannot listen for signals")?;
    let metrics = MetricsListener::bind(flags.metrics)?;
    let limits = Limits {
        strangers: STRANGERS_MAX,
        each: STRANGERS_EACH,
        authenticated: PEERS_MAX,
        greeting: GREETING,
    };
    let listener = KeyedListener::open(flags.listen, limits)
        .with_context(|| format!("cannot listen at {}", flags.listen))?;
    let address = listener.address().context("the port that was bound has no address")?;
    let desk = Arc::new(BudgetServer::default());
    desk.change(&policy.budgets)?;
    let (door, ticks) = (Arc::clone(&desk), Arc::clone(&desk));
    let start = |name: &str| thread::Builder::new().name(name.to_owned());
    start("budget-door")
        .spawn(move || -> () { listener.serve(move |peer| door.receive(peer, &secret)) })
        .context("cannot start a thread")?;
    start("budget-ticks").spawn(move || ticks.tick()).context("cannot start a thread")?;
    eprintln!(
        "clearway: dividing the budgets of {} at {address}",
        escaped(&flags.file.display().to_string())
    );
    if file.is_none() {
        eprintln!(
            "clearway: warning: without a key, every host that reaches {address} can take part of the budgets; give --key"
        );
    }
    let _served = MetricsListener::announce(metrics, "policy-serve", Arc::clone(&desk) as _)?;
    for signal in signals.forever() {
        if signal != SIGHUP {
            break;
        }
        match read_budgets(&flags.file).and_then(|policy| desk.change(&policy.budgets)) {
            Ok(()) => eprintln!("clearway: the policy was read again"),
            Err(why) => {
                eprintln!("clearway: {}; the former policy stays", escaped(&format!("{why:#}")))
            }
        }
    }
    Ok(Exit::Good)
}

/// Reads a policy that has a budget.
fn read_budgets(file: &Path) -> Result<SitePolicy> {
    let policy = read(file)?;
    if policy.budgets.is_empty() {
        bail!(
            "{}: no class has a budget; add [budget], and below it bulk = \"20Gb/s\"",
            escaped(&file.display().to_string())
        );
    }
    Ok(policy)
}

impl BudgetServer {
    fn lock(&self) -> MutexGuard<'_, CoordinatorTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Divides these budgets from now on. One that changed begins anew: its members keep what they
    /// hold for a lease time.
    fn change(&self, budgets: &BTreeMap<Class, BitsPerSec>) -> Result<()> {
        let mut table = self.lock();
        let now = clock::now();
        table.budgets.retain(|class, _| budgets.contains_key(class));
        for (class, budget) in budgets {
            let is_same = |kept: &BudgetCoordinator| kept.usage(now).budget == *budget;
            if !table.budgets.get(class).is_some_and(is_same) {
                let life = keys::random().context("the system has no randomness")?;
                let new = BudgetCoordinator::new(now, u64::from_le_bytes(life), *budget);
                table.budgets.insert(*class, new);
            }
        }
        Ok(())
    }

    /// Begins a budget at `now`, in a life of this number.
    #[cfg(test)]
    pub(super) fn begin(&self, now: LocalNs, class: Class, life: u64, budget: BitsPerSec) {
        self.lock().budgets.insert(class, BudgetCoordinator::new(now, life, budget));
    }

    /// Hears a peer until it leaves.
    pub(super) fn receive(&self, peer: AcceptedPeer, secret: &[u8]) {
        let options =
            tune(peer.stream()).and_then(|()| peer.stream().set_write_timeout(Some(ANSWER)));
        let from = peer.from();
        let link = match peer.answer(&PROTOCOL, secret) {
            Ok(Some(link)) if options.is_ok() => link,
            Ok(_) => return,
            Err(why) => {
                let mut table = self.lock();
                table.refusals += 1;
                // Strangers must not fill the journal: the first ones and each thousandth are a hint.
                if table.refusals < 10 || table.refusals.is_multiple_of(1000) {
                    eprintln!("clearway: {}: {}", from.ip(), escaped(&why.to_string()));
                }
                return;
            }
        };
        let (sender, mut receiver, _place) = link;
        let line = Arc::new(Mutex::new(Some(sender)));
        let mut own = None;
        while let Ok(Some(bytes)) = receiver.receive()
            && let Some(request) = BudgetRequest::decode(&bytes)
            && *own.get_or_insert((request.class, request.member))
                == (request.class, request.member)
        {
            self.request(&request, &line);
            if line.lock().unwrap_or_else(PoisonError::into_inner).is_none() {
                break;
            }
        }
        let mut table = self.lock();
        if let Some(name) = own
            && table.lines.get(&name).is_some_and(|kept| Arc::ptr_eq(kept, &line))
        {
            table.lines.remove(&name);
        }
    }

    /// Takes a request, and sends what follows from it.
    fn request(&self, request: &BudgetRequest, line: &MemberLine) {
        let mut table = self.lock();
        table.requests += 1;
        let taken = match table.budgets.get_mut(&request.class) {
            Some(budget) => budget.request(clock::now(), request),
            None => Err(BudgetRefusal::NoBudget),
        };
        match taken {
            Ok(()) => drop(table.lines.insert((request.class, request.member), line.clone())),
            Err(why) => {
                table.refusals += 1;
                drop(table);
                say(line, &BudgetAnswer::Refused(why));
                return;
            }
        }
        let answers = table.answers(request.class);
        drop(table);
        answers.iter().for_each(|(line, answer)| say(line, answer));
    }

    /// Looks for ends of leases, as long as the process runs.
    fn tick(&self) -> ! {
        loop {
            thread::sleep(TICK);
            let answers: Vec<_> = {
                let mut table = self.lock();
                Class::ALL.iter().flat_map(|class| table.answers(*class)).collect()
            };
            answers.iter().for_each(|(line, answer)| say(line, answer));
        }
    }

    pub(super) fn usage(&self) -> Vec<(Class, BudgetUse)> {
        let (table, now) = (self.lock(), clock::now());
        table.budgets.iter().map(|(class, budget)| (*class, budget.usage(now))).collect()
    }
}

impl CoordinatorTable {
    /// Returns what is to be said to members of a class, in order.
    fn answers(&mut self, class: Class) -> Vec<(MemberLine, BudgetAnswer)> {
        let Some(budget) = self.budgets.get_mut(&class) else { return Vec::new() };
        let now = clock::now();
        let mut answers = Vec::new();
        while let Some((member, grant)) = budget.poll(now) {
            if let Some(line) = self.lines.get(&(class, member)) {
                answers.push((Arc::clone(line), BudgetAnswer::Granted(grant)));
            }
        }
        answers
    }
}

/// Sends an answer. A member that does not take it gets no more on this connection, so that it delays
/// others once; it calls again.
fn say(line: &MemberLine, answer: &BudgetAnswer) {
    let mut sender = line.lock().unwrap_or_else(PoisonError::into_inner);
    if sender.as_mut().is_some_and(|sender| sender.send(&answer.encode()).is_err()) {
        *sender = None;
    }
}

impl MetricSource for BudgetServer {
    fn write(&self, sheet: &mut MetricSheet<'_>) -> fmt::Result {
        let usage = self.usage();
        let of = |figure: fn(&BudgetUse) -> u64| -> Vec<(MetricLabels, u64)> {
            let rows = usage.iter();
            rows.map(|(class, used)| (vec![("class", class.name().to_owned())], figure(used)))
                .collect()
        };
        sheet.gauges(&BUDGET, of(|used| used.budget.0 / 8))?;
        sheet.gauges(&GRANTED, of(|used| used.granted.0 / 8))?;
        sheet.gauges(&MEMBERS, of(|used| used.members as u64))?;
        let (requests, refusals) = {
            let table = self.lock();
            (table.requests, table.refusals)
        };
        sheet.counter(&REQUESTS, requests)?;
        sheet.counter(&REFUSALS, refusals)
    }
}
