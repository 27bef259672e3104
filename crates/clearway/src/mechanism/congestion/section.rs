//! The congestion test as a scenario describes it.

use clap::ValueEnum;
use clearway_proto::base::{Bytes, Class, Nanos, RandomKey, Rank};
use clearway_proto::congestion::{
    CongestorKind, Draw, DrawRequest, Flow, LoadIntensity, LoadKind, Placement, PlanError,
    VictimKind,
};
use serde::{Deserialize, Serialize};
use toml::de::DeTable;

use super::bursts::Bursts;
use super::cast_load::CASTS_MAX;
use super::program::Programs;
use super::windows::SETTLE;
use crate::scenario::fabric::round;
use crate::scenario::{
    Fabric, Section, Time, check_queues, check_slice, check_window, distinct, is_given, slice_max,
    within,
};

/// The congestion test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct CongestionSection {
    /// Queues to compare, in order; the verdict of the run is that of the last.
    pub(crate) queues: Vec<String>,
    /// Timed patterns.
    pub(crate) victims: Vec<VictimKind>,
    /// Hosts in the victims' ring.
    pub(crate) victim_hosts: usize,
    /// The class of the victims' messages.
    pub(crate) victim_class: Class,
    /// Mean time between messages of one victim to one neighbour, or least time between iterations.
    pub(crate) victim_interval: Time,
    /// Loading patterns, one after the other.
    pub(crate) congestors: Vec<CongestorKind>,
    /// Hosts of one congestor group, its target included.
    pub(crate) congestor_hosts: usize,
    /// Whether groups have this many hosts, or grow to as many until victims suffer.
    #[serde(skip_serializing_if = "are_fixed")]
    pub(crate) groups: GroupGrowth,
    /// Groups that run the pattern at the same time.
    pub(crate) congestor_groups: usize,
    /// The class of the congestors' messages.
    pub(crate) congestor_class: Class,
    /// Offered load in hundredths of the pattern's bottleneck link.
    pub(crate) intensity_percent: Vec<u32>,
    /// When congestors send, one after the other: all the time, or in bursts at that load.
    #[serde(skip_serializing_if = "are_steady")]
    pub(crate) bursts: Vec<Bursts>,
    /// Processes that each congestor host stands for; each keeps one message under way. Without it
    /// a schedule alone decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) processes_per_host: Option<u32>,
    /// How congestors lie to victims.
    pub(crate) placement: Placement,
    /// Random assignments of hosts to roles.
    pub(crate) draws: u32,
    /// The grid of the records, and the unit of what is resampled.
    pub(crate) slice: Time,
    /// Time measured without congestors, half before and half after them.
    pub(crate) isolated: Time,
    /// Time measured with congestors.
    pub(crate) congested: Time,
    /// Whether each queue is also measured with no congestor at all.
    pub(crate) null_control: NullControl,
    /// Runs of each victim on each queue with silent congestors, each judged by itself.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) null_runs: u32,
    /// Further runs of each cell, each judged by itself.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) loaded_runs: u32,
    /// Commands of the user's that take the part of victims or congestors; flags alone name them.
    #[serde(skip)]
    pub(crate) programs: Option<Programs>,
    /// What the policy of the site says to the test, which it does not limit.
    #[serde(skip)]
    pub(crate) policy: Option<String>,
}

/// Returns whether no burst was asked for.
fn are_steady(bursts: &[Bursts]) -> bool {
    bursts == [Bursts::Steady]
}

/// Which sizes congestor groups have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum GroupGrowth {
    /// One size.
    #[default]
    Fixed,
    /// 2, 4, 8 hosts and so on, until victims suffer.
    Growing,
}

fn are_fixed(groups: &GroupGrowth) -> bool {
    *groups == GroupGrowth::Fixed
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// Whether to spend time on proving that nothing but congestors moves the figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum NullControl {
    /// One draw of each queue and victim without congestors.
    #[default]
    Run,
    /// Trust the machine.
    Skip,
}

/// Slices between two probes of one victim to one neighbour on a machine: in a tree of full buffers
/// a message gets its turn once in tens of microseconds, and victims that ask for more would
/// congest themselves.
const SLICES_PER_PROBE: u64 = 2;
/// Slices measured with and without congestors on a machine at least, unless a scenario says
/// otherwise.
const SLICES_USUAL: u64 = 16;
/// Messages measured with and without congestors on a machine at least: 40 of them lie beyond p99.
/// With ten, which is when a figure loses its `~`, factors near the limit of a verdict stay on both
/// sides of it (`slingshot` with 8 nodes: 1.4).
const SAMPLES_USUAL: u64 = 4000;
/// The fewest hosts of GPCNeT's test. On fewer, five groups drawn at random seldom meet on a link,
/// and a test that shows nothing says nothing.
const GPCNET_HOSTS_MIN: u32 = 32;
/// The fewest senders of an incast.
const SENDERS_MIN: usize = 3;
/// Bytes of one congestor message (GPCNeT).
const MESSAGE: u64 = 4096;
/// Most probes of one victim in a slice: 50 us in a laboratory, where one costs that much processor
/// time.
const INTERVALS_MAX: u64 = 2000;
/// Most slices between two probes; with fewer samples than one in ten slices there is nothing to
/// resample.
const SLICES_PER_INTERVAL_MAX: u64 = 10;
/// The most runs of one cell that are judged by themselves: of 1000 without a hit the true rate is below
/// half a percent.
const RUNS_MAX: u32 = 1000;
/// The fewest bursts that a window holds, as many as blocks that bound an interval.
const BURSTS_MIN: u64 = 6;
/// Ten times the bottleneck: more than any window lets through.
pub(crate) const INTENSITY_MAX: u32 = 1000;
/// More hosts than any network has; sums of them stay far below 64 bits.
const HOSTS_MAX: usize = 1_000_000;
/// More processes than any node has processors.
const PROCESSES_MAX: u32 = 1024;

impl Default for CongestionSection {
    fn default() -> Self {
        Self {
            queues: ["fifo", "strict"].map(str::to_owned).into(),
            victims: vec![VictimKind::Ping],
            victim_hosts: 2,
            victim_class: Class::LowLatency,
            // As in the shipped incast: a rate at which pings wait in a full FIFO rather than get
            // lost (docs/method.md).
            victim_interval: Time::micros(1560),
            congestors: vec![CongestorKind::Incast],
            congestor_hosts: 4,
            groups: GroupGrowth::Fixed,
            congestor_groups: 1,
            congestor_class: Class::Bulk,
            intensity_percent: vec![150],
            bursts: vec![Bursts::Steady],
            processes_per_host: None,
            placement: Placement::AtVictim,
            draws: 1,
            slice: Time::millis(100),
            isolated: Time::millis(4000),
            congested: Time::millis(4000),
            null_control: NullControl::Run,
            null_runs: 0,
            loaded_runs: 0,
            programs: None,
            policy: None,
        }
    }
}

impl CongestionSection {
    /// Returns what is usual on `fabric`, a machine: [`Self::gpcnet`]. Where switches drop, victims
    /// that share no host with congestors have nothing to suffer from: these get the laboratory's
    /// incast. So do fewer than 32 hosts, with a group that [grows](Self::grow).
    pub(crate) fn usual(fabric: &Fabric) -> Result<Self, String> {
        let hosts = fabric.hosts()?;
        let room = hosts >= GPCNET_HOSTS_MIN && fabric.holds_back()?;
        Ok(if room {
            Self::gpcnet(hosts)
        } else {
            let mut incast = Self { null_control: NullControl::Skip, ..Self::default() };
            incast.grow(hosts, |_| false);
            incast
        })
    }

    /// Returns GPCNeT's test on this many hosts: a fifth of them victims, a fifth in each of four
    /// groups that run one congestor each, as fast as 16 processes on each host can with one
    /// message under way.
    fn gpcnet(hosts: u32) -> Self {
        let congestors = hosts as usize * 4 / 5;
        Self {
            victim_hosts: hosts as usize - congestors,
            congestors: vec![CongestorKind::Gpcnet],
            congestor_hosts: congestors / 4,
            congestor_groups: 4,
            processes_per_host: Some(16),
            intensity_percent: vec![INTENSITY_MAX],
            placement: Placement::Disjoint,
            // Nothing but congestors can move the figures of a simulated network.
            null_control: NullControl::Skip,
            ..Self::default()
        }
    }

    /// Lets the group of a pair of victims grow on fewer than 32 `hosts`; `given` are the keys that
    /// somebody chose, which stay. Says so, or nothing where nothing was to choose.
    pub(crate) fn grow(&mut self, hosts: u32, given: impl Fn(&str) -> bool) -> Option<String> {
        let keys = ["groups", "congestor-hosts", "congestor-groups", "congestors"];
        let largest = (hosts as usize).saturating_sub(self.victim_hosts) + 1;
        let has_room = hosts < GPCNET_HOSTS_MIN && largest > SENDERS_MIN;
        if !has_room || keys.into_iter().any(given) || self.placement != Placement::AtVictim {
            return None;
        }
        (self.groups, self.congestor_hosts) = (GroupGrowth::Growing, largest);
        Some(format!(
            "{hosts} hosts are few: the group of congestors grows from 2 to at most {largest} hosts until victims suffer, as with \
             --groups growing; --groups fixed has one of 4"
        ))
    }

    /// Returns the sizes of a group, one after the other.
    pub(crate) fn sizes(&self) -> Vec<usize> {
        let mut sizes = Vec::new();
        if self.groups == GroupGrowth::Growing {
            let doubled = |size: &usize| size.checked_mul(2);
            let smaller = std::iter::successors(Some(2), doubled);
            sizes.extend(smaller.take_while(|size| *size < self.congestor_hosts));
        }
        sizes.push(self.congestor_hosts);
        sizes
    }

    /// Takes less than the defaults where `hosts` have no room for them; `given` are the keys that
    /// somebody chose, which stay. Says what it chose, or nothing where nothing was to choose.
    pub(crate) fn fit(&mut self, hosts: u32, given: impl Fn(&str) -> bool) -> Option<String> {
        let before = self.clone();
        if hosts == 2 && !["congestors", "congestor-hosts"].into_iter().any(&given) {
            self.placement = Placement::OnVictims;
            (self.congestors, self.congestor_hosts) = (vec![CongestorKind::Alltoall], 2);
            return Some(
                "2 hosts have none to spare: the victims' own hosts are the congestors, alltoall (placement = \"on-victims\")"
                    .to_owned(),
            );
        }
        let hosts = hosts as usize;
        let shared = if self.placement == Placement::AtVictim { 1 } else { 0 };
        let needed = |it: &Self| {
            let members =
                it.congestor_groups.saturating_mul(it.congestor_hosts.saturating_sub(shared));
            it.victim_hosts.saturating_add(members)
        };
        if needed(self) <= hosts || given("congestor-hosts") {
            return None;
        }
        if shared == 0 && !given("victim-hosts") {
            self.victim_hosts = self.victim_hosts.min((hosts / 4).max(2));
        }
        let left = hosts.saturating_sub(self.victim_hosts);
        if left < self.congestor_groups.saturating_mul(2) && !given("congestor-groups") {
            self.congestor_groups = 1;
        }
        self.congestor_hosts = left / self.congestor_groups.max(1) + shared;
        if self.congestor_hosts < SENDERS_MIN + 1 && !given("congestors") {
            // Fewer than three senders make no incast; all to all, they load the target's link as
            // much.
            self.congestors = vec![CongestorKind::Alltoall];
        }
        let fits = self.congestor_hosts >= 2 && needed(self) <= hosts;
        if !fits {
            *self = before;
            return None;
        }
        let kinds: Vec<&str> = self.congestors.iter().map(|kind| kind.name()).collect();
        let Self { victim_hosts, congestor_groups: groups, congestor_hosts: members, .. } = self;
        Some(format!(
            "{hosts} hosts have no room for the usual test; chosen: --victim-hosts {victim_hosts} --congestors {} --congestor-hosts \
             {members} --congestor-groups {groups}",
            kinds.join(",")
        ))
    }

    /// Returns what one draw chooses, for a pattern that sends.
    pub(crate) fn request(&self) -> DrawRequest {
        self.request_of(self.congestor_hosts)
    }

    /// Returns what one draw chooses with groups of `members`.
    pub(crate) fn request_of(&self, members: usize) -> DrawRequest {
        let groups = vec![members; self.congestor_groups];
        DrawRequest { victims: self.victim_hosts, groups, placement: self.placement }
    }

    /// Returns the intensities and bursts with which `congestor` loads.
    pub(crate) fn loads(&self, congestor: CongestorKind) -> impl Iterator<Item = (u32, Bursts)> {
        let (intensities, bursts): (&[u32], &[Bursts]) = match congestor {
            CongestorKind::None | CongestorKind::Program => (&[0], &[Bursts::Steady]),
            _ => (&self.intensity_percent, &self.bursts),
        };
        intensities.iter().flat_map(move |percent| bursts.iter().map(|bursts| (*percent, *bursts)))
    }

    /// Refuses bursts that are none: too short for a message, or too rare to be measured.
    fn check_bursts(&self, fabric: &Fabric) -> Result<(), String> {
        distinct("bursts", &self.bursts)?;
        let host_rate = fabric.host_rate()?;
        let group: Vec<Rank> = (0..self.congestor_hosts.max(2) as u32).map(Rank).collect();
        for bursts in &self.bursts {
            let Some(burst) = bursts.engine() else { continue };
            if self.congested.0 < burst.period.times(BURSTS_MIN) {
                return Err(format!(
                    "bursts is {bursts} and congested (--time) is {}; at least {BURSTS_MIN} bursts must fit, so {} works",
                    self.congested,
                    Time(burst.period.times(BURSTS_MIN))
                ));
            }
            for kind in self.congestors.iter().filter(|kind| **kind != CongestorKind::None) {
                if !kind.is_scheduled() {
                    return Err(format!(
                        "bursts is {bursts}; {} has no schedule that they could interrupt, only steady works",
                        kind.name()
                    ));
                }
                for percent in &self.intensity_percent {
                    let (percent, window, burst) = (*percent, self.processes_per_host, None);
                    let pressure = LoadIntensity { percent, host_rate, window, burst };
                    let load = kind.load(0, &group, Rank(1), pressure);
                    let Some(LoadKind::Flows(flows)) = load else { continue };
                    let of_message = |flow: &Flow| flow.rate.time_for(flow.message);
                    let longest = flows.iter().map(of_message).max().unwrap_or(Nanos::ZERO);
                    if bursts.engine().is_some_and(|burst| burst.on < longest) {
                        return Err(format!(
                            "bursts is {bursts}; a sender of {} at {percent} % sends one message in {longest}, longer bursts work",
                            kind.name()
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns in how many slices the victims of a machine exchange messages enough.
    fn slices_usual(&self) -> u64 {
        let victims = self.victim_hosts.max(1) as u64;
        // Each probe is a message there and one back, to both neighbours of the ring; two hosts
        // have one neighbour each.
        let neighbours = if victims > 2 { 2 } else { 1 };
        let a_slice = victims.saturating_mul(2 * neighbours).div_ceil(SLICES_PER_PROBE);
        SAMPLES_USUAL.div_ceil(a_slice).next_multiple_of(2).max(SLICES_USUAL)
    }

    /// Returns how long what a group's senders keep under way takes to come out of one port; zero
    /// without a window.
    fn backlog(&self, fabric: &Fabric) -> Result<Nanos, String> {
        // To a member of a broadcast one other sends.
        let is_incast = self.congestors.iter().any(|kind| !kind.casts());
        let senders = if is_incast { self.congestor_hosts.saturating_sub(1) as u64 } else { 1 };
        let messages = senders.saturating_mul(u64::from(self.processes_per_host.unwrap_or(0)));
        Ok(fabric.host_rate()?.time_for(Bytes(messages.saturating_mul(MESSAGE))))
    }

    /// Refuses a backlog for which no slice is long enough.
    fn check_measurable(&self, fabric: &Fabric) -> Result<(), String> {
        let Fabric::Machine(_) = fabric else { return Ok(()) };
        let (backlog, most) = (self.backlog(fabric)?, slice_max(fabric)?.0.times(SETTLE));
        if backlog <= most {
            return Ok(());
        }
        Err(format!(
            "what {} congestors of a group keep under way takes {backlog} to come out of one port, and at most {most} can be \
             measured; use fewer congestor-hosts or nodes",
            self.congestor_hosts
        ))
    }

    /// Refuses a backlog that outlasts the time between congestors and the isolated window behind
    /// them.
    fn check_backlog(&self, fabric: &Fabric) -> Result<(), String> {
        let (backlog, settle) = (self.backlog(fabric)?, self.slice.0.times(SETTLE));
        if backlog <= settle {
            return Ok(());
        }
        let enough = Time(round(Nanos(backlog.0.div_ceil(SETTLE))));
        Err(format!(
            "what the congestors of a group keep under way takes {backlog} to come out of one port, and {SETTLE} slices of {} \
             are left for it; use slice = \"{enough}\" or fewer processes-per-host",
            self.slice
        ))
    }
}

impl Section for CongestionSection {
    const NAME: &'static str = "congestion";

    fn apply_defaults(&mut self, fabric: &mut Fabric, given: &DeTable<'_>) -> Result<(), String> {
        let Fabric::Machine(_) = fabric else { return Ok(()) };
        let missing = |key: &str| !is_given(given, Self::NAME, key);
        if missing("queues") {
            self.queues = fabric.queues()?.into_iter().take(1).collect();
        }
        if missing("slice") {
            let least = Nanos(self.backlog(fabric)?.0.div_ceil(SETTLE));
            self.slice = fabric.slice()?.max(Time(round(least)));
        }
        let slices = |count| Time(self.slice.0.times(count));
        if missing("victim-interval") {
            self.victim_interval = slices(SLICES_PER_PROBE);
        }
        let window = slices(self.slices_usual());
        self.isolated = if missing("isolated") { window } else { self.isolated };
        self.congested = if missing("congested") { window } else { self.congested };
        Ok(())
    }

    fn check(&self, fabric: &Fabric) -> Result<(), String> {
        check_queues(fabric, &self.queues)?;
        within("victim-hosts", self.victim_hosts, 0, HOSTS_MAX)?;
        within("congestor-hosts", self.congestor_hosts, 0, HOSTS_MAX)?;
        self.check_measurable(fabric)?;
        check_slice(fabric, self.slice)?;
        distinct("victims", &self.victims)?;
        distinct("congestors", &self.congestors)?;
        distinct("intensity-percent", &self.intensity_percent)?;
        for intensity in &self.intensity_percent {
            within("intensity-percent", *intensity, 1, INTENSITY_MAX)?;
        }
        fabric.check_queue_time()?;
        self.check_backlog(fabric)?;
        self.check_bursts(fabric)?;
        within("draws", self.draws, 1, 1000)?;
        within("null-runs", self.null_runs, 0, RUNS_MAX)?;
        within("loaded-runs", self.loaded_runs, 0, RUNS_MAX)?;
        let slice = self.slice.0.0;
        let (least, most) = (slice / INTERVALS_MAX, slice.saturating_mul(SLICES_PER_INTERVAL_MAX));
        within("victim-interval", self.victim_interval, Time(Nanos(least)), Time(Nanos(most)))?;
        check_window("isolated", self.isolated, self.slice)?;
        check_window("congested", self.congested, self.slice)?;
        within("congestor-groups", self.congestor_groups, 1, 100)?;
        within("processes-per-host", self.processes_per_host.unwrap_or(1), 1, PROCESSES_MAX)?;
        let incast = |kind: &&CongestorKind| {
            matches!(
                kind,
                CongestorKind::Incast
                    | CongestorKind::PutIncast
                    | CongestorKind::Burst
                    | CongestorKind::Gpcnet
            )
        };
        if let Some(kind) = self.congestors.iter().find(incast)
            && self.congestor_hosts < SENDERS_MIN + 1
        {
            let kind = kind.name();
            return Err(format!(
                "congestor-hosts is {}; {kind} needs a target and at least three senders",
                self.congestor_hosts
            ));
        }
        if self.congestors.iter().any(|kind| kind.casts()) {
            within("congestor-groups of broadcasts", self.congestor_groups, 1, CASTS_MAX)?;
        }
        let stages = |kind| matches!(kind, CongestorKind::Staging | CongestorKind::StagingYield);
        if self.congestors.iter().copied().any(stages) && self.congestor_class == Class::Control {
            return Err("congestor-class of staging is control; the other classes work".to_owned());
        }
        let key = RandomKey::new(0);
        let layout = fabric.layout(key)?;
        let draw = |members| Draw::new(&*layout, &self.request_of(members), key, 0).map(drop);
        self.sizes().into_iter().try_for_each(draw).map_err(|error| match error {
            PlanError::TooFewHosts { .. } => {
                let Self { victim_hosts, congestor_hosts, congestor_groups, .. } = self;
                format!(
                    "{error}; asked for: victim-hosts {victim_hosts}, congestor-groups {congestor_groups} of congestor-hosts \
                     {congestor_hosts}"
                )
            }
            error => error.to_string(),
        })
    }

    fn on_job(&mut self, fabric: &Fabric) -> Result<(), String> {
        self.queues = fabric.queues()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Scenario, SectionKind, read_text, shipped};

    fn read(text: &str) -> Result<Scenario, String> {
        read_text(text, &[SectionKind::new::<CongestionSection>()])
    }

    fn refusal(text: &str) -> String {
        read(text).expect_err("it must be refused")
    }

    fn test_of(text: &str) -> CongestionSection {
        read(text).expect("it can run").section::<CongestionSection>().expect("one table").clone()
    }

    fn incast() -> &'static str {
        shipped("incast").expect("it is shipped")
    }

    /// A machine with as few keys as can be.
    const MACHINE: &str = "name = \"m\"\n[fabric]\npreset = \"edr\"\nnodes = 128\n[congestion]\n";

    #[test]
    fn read__impossible_roles_are_refused_with_the_numbers() {
        let sentence = refusal(&incast().replace("congestor-hosts = 4", "congestor-hosts = 40"));
        assert_eq!(
            sentence,
            "[congestion]: victims and congestors need 41 hosts, the network has 8; asked for: victim-hosts 2, congestor-groups 1 of congestor-hosts 40"
        );
        let sentence = refusal(&incast().replace("congestor-hosts = 4", "congestor-hosts = 3"));
        assert_eq!(
            sentence,
            "[congestion]: congestor-hosts is 3; incast needs a target and at least three senders"
        );
    }

    #[test]
    fn read__a_queue_that_outlasts_the_windows_is_refused() {
        let sentence = refusal(&incast().replace("queue-packets = 100", "queue-packets = 5000"));
        assert!(
            sentence.contains(
                "a full queue of 5000 packets takes 606 ms to empty at 100 Mb/s; at most 100 ms"
            ),
            "{sentence}"
        );
        let trunk = shipped("trunk")
            .expect("it is shipped")
            .replace("trunk = \"25Mb/s\"", "trunk = \"2Mb/s\"");
        assert!(refusal(&trunk).contains("to empty at 2 Mb/s"));
    }

    #[test]
    fn read__a_machine_has_a_grid_of_its_own_and_a_laboratory_has_not() {
        let test = test_of(MACHINE);
        assert_eq!(
            (test.queues.as_slice(), test.slice),
            (&["shared".to_owned()][..], Time::micros(20))
        );
        assert_eq!((test.victim_interval, test.isolated), (Time::micros(40), Time::millis(40)));
        let many = format!(
            "{MACHINE}congestor-hosts = 101\nprocesses-per-host = 16\nplacement = \"disjoint\"\n"
        );
        let slice = |text: &str| test_of(text).slice;
        assert_eq!(slice(&many), Time::micros(200), "524 us of messages come out in five slices");
        let sentence = refusal(&format!("{many}slice = \"20us\"\n"));
        assert!(
            sentence.contains("takes 524 us to come out of one port")
                && sentence.contains("slice = \"200us\""),
            "{sentence}"
        );
        let sentence = refusal(
            &incast()
                .replace("draws", "x")
                .replace("[congestion]", "[congestion]\nslice = \"1ms\""),
        );
        assert_eq!(
            sentence,
            "[congestion]: slice is 1ms; a laboratory is measured in slices of 100ms"
        );
    }

    #[test]
    fn usual__a_machine_too_large_to_be_measured_is_blamed_on_its_hosts_and_not_on_a_slice() {
        let mut fabric = Fabric::machine("lab".to_owned(), Some(8));
        let mut test = CongestionSection {
            congestor_hosts: 600_000,
            processes_per_host: Some(16),
            ..CongestionSection::default()
        };
        test.apply_defaults(&mut fabric, &DeTable::new()).unwrap();
        let sentence = test.check(&fabric).expect_err("nobody can wait so long");
        assert!(
            sentence.contains("what 600000 congestors of a group")
                && sentence.contains("use fewer"),
            "{sentence}"
        );
    }

    #[test]
    fn usual__every_machine_with_room_for_a_test_gets_one_that_can_run() {
        for (preset, hosts, congestor, slices) in [
            ("edr", 5, "incast", 2000),
            ("edr", 8, "incast", 2000),
            ("edr", 31, "incast", 2000),
            ("edr", 32, "gpcnet", 286),
            ("edr", 144, "gpcnet", 70),
            ("aries", 7000, "gpcnet", 16),
            ("lab", 8, "incast", 2000),
            ("lab", 32, "incast", 2000),
        ] {
            let mut fabric = Fabric::machine(preset.to_owned(), Some(hosts));
            let mut test = CongestionSection::usual(&fabric).unwrap();
            test.apply_defaults(&mut fabric, &DeTable::new()).unwrap();
            assert_eq!(test.check(&fabric), Ok(()), "{hosts} hosts");
            assert_eq!(test.congestors[0].name(), congestor, "{hosts} hosts of {preset}");
            assert_eq!(test.isolated.0, test.slice.0.times(slices), "{hosts} hosts of {preset}");
        }
    }

    #[test]
    fn read__a_broadcast_has_one_sender_to_a_port_and_at_most_32_groups() {
        let text = |congestor: &str, groups: u32, hosts: u32| {
            format!(
                "name = \"casts\"\n[fabric]\npreset = \"edr\"\nnodes = 512\n[congestion]\ncongestors = [\"{congestor}\"]\n\
                 congestor-hosts = {hosts}\ncongestor-groups = {groups}\nprocesses-per-host = 64\nslice = \"50us\"\nplacement = \"disjoint\"\n"
            )
        };
        assert!(
            refusal(&text("incast", 1, 400))
                .contains("what the congestors of a group keep under way takes")
        );
        assert!(read(&text("cast-chain", 1, 400)).is_ok());
        let sentence = refusal(&text("cast", 33, 4));
        assert!(
            sentence.contains("congestor-groups of broadcasts is 33; 1 to 32 work"),
            "{sentence}"
        );
    }

    #[test]
    fn read__sizes_beyond_any_network_are_refused_before_anything_is_made_of_them() {
        for (key, of) in [
            ("congestor-hosts", "4"),
            ("victim-hosts", "2"),
            ("congestor-groups", "1"),
            ("draws", "8"),
        ] {
            for size in ["18446744073709551615", "9223372036854775807", "4611686018427387904"] {
                let text = incast().replace(&format!("\n{key} = {of}\n"), "\n");
                let sentence = refusal(
                    &text.replace("[congestion]\n", &format!("[congestion]\n{key} = {size}\n")),
                );
                assert!(sentence.contains(size), "{key}: {sentence}");
                let sentence = refusal(&format!("{MACHINE}{key} = {size}\n"));
                assert!(sentence.contains(size), "{key} of a machine: {sentence}");
            }
        }
    }

    #[test]
    fn read__bursts_that_hold_no_message_or_are_too_rare_are_refused() {
        let with =
            |keys: &str| incast().replace("[congestion]\n", &format!("[congestion]\n{keys}\n"));
        let test = test_of(&with("bursts = [\"steady\", \"10ms/90ms\"]"));
        let loads: Vec<_> = test.loads(CongestorKind::Incast).map(|it| it.1.to_string()).collect();
        assert_eq!(loads, ["steady", "10ms/90ms"]);
        assert_eq!(test.loads(CongestorKind::None).count(), 1);
        for (keys, why) in [
            ("bursts = [\"10ms\"]", "as in 10ms/90ms"),
            ("bursts = []", "bursts is empty"),
            ("bursts = [\"600us/90ms\"]", "sends one message in 655 us, longer bursts work"),
            ("bursts = [\"1s/1s\"]", "at least 6 bursts must fit, so 12s works"),
        ] {
            let said = refusal(&with(keys));
            assert!(said.contains(why), "{keys}: {said}");
        }
        let casts = with("bursts = [\"10ms/90ms\"]").replace("\"incast\"]", "\"cast\"]");
        assert!(refusal(&casts).contains("cast has no schedule"), "{}", refusal(&casts));
    }

    #[test]
    fn grow__few_hosts_get_groups_of_all_sizes_and_what_is_given_stays() {
        let mut test = CongestionSection::default();
        let said = test.grow(12, |_| false).expect("12 are few");
        assert!(said.contains("from 2 to at most 11 hosts"), "{said}");
        assert_eq!(test.sizes(), [2, 4, 8, 11]);
        assert_eq!(CongestionSection { congestor_hosts: 8, ..test.clone() }.sizes(), [2, 4, 8]);
        assert_eq!(CongestionSection::default().sizes(), [4]);
        for (hosts, given) in [(32, "draws"), (4, "draws"), (12, "congestor-hosts"), (12, "groups")]
        {
            let mut test = CongestionSection::default();
            assert_eq!(test.grow(hosts, |key| key == given), None, "{hosts} {given}");
            assert_eq!(test, CongestionSection::default());
        }
    }

    #[test]
    fn fit__defaults_have_room_on_three_hosts_and_more_and_what_is_given_stays() {
        let fitted = |hosts: u32, given: &[&str]| {
            let mut scenario = read(incast()).expect("a scenario");
            let test = scenario.section_mut::<CongestionSection>().expect("a test");
            *test = CongestionSection::default();
            let chosen = test.fit(hosts, |key| given.contains(&key));
            let checked = scenario.on_job(hosts, None);
            (
                chosen,
                checked.map(|()| scenario.section::<CongestionSection>().expect("a test").clone()),
            )
        };
        for (hosts, members, kind) in
            [(3, 2, CongestorKind::Alltoall), (4, 3, CongestorKind::Alltoall)]
        {
            let (chosen, test) = fitted(hosts, &[]);
            let test = test.expect("it has room");
            assert_eq!(
                (test.victim_hosts, test.congestor_hosts, &test.congestors[..]),
                (2, members, &[kind][..])
            );
            let said = format!(
                "--victim-hosts 2 --congestors alltoall --congestor-hosts {members} --congestor-groups 1"
            );
            assert!(chosen.is_some_and(|chosen| chosen.ends_with(&said)), "{hosts}");
        }
        let (chosen, test) = fitted(2, &[]);
        let test = test.expect("it has room");
        assert!(chosen.is_some_and(|chosen| chosen.contains("on-victims")));
        assert_eq!((test.victim_hosts, test.congestor_hosts), (2, 2));
        let (chosen, test) = fitted(5, &[]);
        assert_eq!((chosen, test.map(|test| test.congestor_hosts)), (None, Ok(4)));
        let refused = "victims and congestors need 5 hosts, the network has 4";
        for (hosts, given) in [(4, "congestor-hosts"), (1, "draws"), (2, "congestors")] {
            let (chosen, test) = fitted(hosts, &[given]);
            assert!(chosen.is_none() && test.is_err(), "{given}");
        }
        assert!(fitted(4, &["congestor-hosts"]).1.is_err_and(|why| why.contains(refused)));
        assert!(fitted(4, &["congestors"]).1.is_err_and(|why| why.contains("three senders")));
    }
}
