//! The table of commands and flags.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use clearway_lab::{LabName, QueueKind};
use clearway_proto::base::{BitsPerSec, Bytes, Class};
use clearway_proto::congestion::{CongestorKind, VictimKind};
use clearway_proto::microslice::SizeDistribution;

use super::broadcast::BroadcastFlags;
use super::cast::CastFlags;
use super::gpcnet::GpcnetArguments;
use super::mount::MountFlags;
use super::policy::PolicyCommand;
use super::qos::QosCommand;
use super::results::ReportFlags;
use super::setup_node::MarkRule;
use super::shmem::ShmemCommand;
use super::stage::StageCommand;
use super::start::StartFlags;
use super::timeslice::TimesliceCommand;
use crate::agent::AgentArguments;
use crate::mechanism::congestion::program::ProgramFlags;
use crate::mechanism::congestion::{Bursts, GroupGrowth};
use crate::mechanism::timeslice::archive::{ITEM_BYTES_MAX, Locator};
use crate::policy::PolicyFlags;
use crate::report::FigureFormat;
use crate::run::{VenueKind, Verbosity};
use crate::scenario::{Time, percent, shipped_names};
use clearway_wires::{WireName, WireRequest, WiresError};

/// Keeps a shared cluster network clear: measures congestion and shows which traffic classes remove
/// it.
#[derive(Debug, Parser)]
#[command(name = "clearway", version)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) saying: VerbosityFlags,
}

/// How much a command says on standard error.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct VerbosityFlags {
    /// Print errors and results only: no notices and no remaining time.
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    quiet: bool,
    /// Print each step of the work too.
    #[arg(long, short, global = true)]
    verbose: bool,
}

impl From<VerbosityFlags> for Verbosity {
    fn from(flags: VerbosityFlags) -> Self {
        match flags {
            VerbosityFlags { quiet: true, .. } => Self::Quiet,
            VerbosityFlags { verbose: true, .. } => Self::Detailed,
            VerbosityFlags { .. } => Self::Usual,
        }
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show congestion and its cure on a real kernel network inside this machine, then on a
    /// simulated one of 384 nodes (about a minute).
    Demo(Output),
    /// Measure victims under load, chosen by flags.
    ///
    /// The usual test needs 5 hosts. On 2 to 4, what no flag chooses becomes smaller, and the run
    /// says what it chose. Ctrl-C keeps what is complete.
    Bench(Box<BenchFlags>),
    /// Run GPCNeT's own tests and print its tables.
    ///
    /// What GPCNeT does wrong is mended unless --as-published names it; --beside compares with
    /// the output of another run.
    Gpcnet(Box<GpcnetArguments>),
    /// Run a scenario file, or a shipped scenario by its name.
    Run {
        #[arg(help = format!("Run this TOML file, or a shipped scenario: {}", shipped_names()))]
        scenario: PathBuf,
        /// Run it at this place; with two places, side by side [default: lab for a topology, sim
        /// for a preset].
        #[arg(long, value_name = "PLACE", value_enum, value_delimiter = ',')]
        on: Vec<VenueKind>,
        #[command(flatten)]
        job: JobArguments,
        #[command(flatten)]
        output: Output,
    },
    /// Make virtual clusters for programs of your own.
    #[command(subcommand)]
    Lab(LabCommand),
    /// List, explain and check fabrics that can be simulated.
    #[command(subcommand)]
    Topo(TopoCommand),
    /// Plan, print and check the settings that separate classes on the queues of a network; change
    /// none of them.
    #[command(subcommand)]
    Qos(QosCommand),
    /// Check the policy of a site: who may use which class, at which share.
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Measure low latency between this node and others all along, and slow down scavengers of this
    /// node that harm it, until a signal ends it.
    ///
    /// Scavengers are casts of that class and drains. After SIGTERM nothing is limited; after SIGKILL
    /// they keep their last rate until an agent runs at this socket again.
    Agent(Box<AgentArguments>),
    /// Mount a log of staged files: a directory that takes files at the speed of the log's disk.
    ///
    /// Bytes for which fsync or close has returned survive the end of this process, and a loss of
    /// power. The mount copies the files to the store, a directory of a slower file system.
    Mount(Box<MountFlags>),
    /// Unmount a log, and wait until everything is on its disk; the next mount continues the drain.
    Umount {
        /// End a mount whose server does not come back: return an error to requests that wait, and
        /// unmount, even if programs have files open. End any mount whose process does not answer
        /// within 5 s. Writes that the server lacks, or that are not synced, are lost.
        #[arg(long)]
        force: bool,
        /// Unmount this directory.
        directory: PathBuf,
    },
    /// Show and control files of a mounted log: safety, class, copies in the store.
    #[command(subcommand)]
    Stage(StageCommand),
    /// Make, check and copy archives of microslices (.msa) and timeslices (.tsa) of FLESnet.
    #[command(subcommand)]
    Msa(MsaCommand),
    /// Look into a simulated run by repeating it.
    #[command(subcommand)]
    Sim(SimCommand),
    /// Build timeslices, or compare schedules that build them.
    #[command(subcommand)]
    Timeslice(TimesliceCommand),
    /// Broadcast objects from one rank to all others, in a lab or across a job, and measure it.
    ///
    /// By the network's multicast where it has one, else along a chain or a tree; with repair of
    /// what is lost, and every byte compared at every receiver. Times are reported next to those of
    /// a bare datagram to all with an answer of each.
    Broadcast(Box<BroadcastFlags>),
    /// Cast files, directories or a stream to many hosts at once: only what they lack, checked,
    /// resumable.
    Cast(Box<CastFlags>),
    /// Start a program as the ranks of one job, on this host or, with --hostfile, over ssh on
    /// others.
    ///
    /// The first rank that fails ends all others, and this command with its status. Rank 0 reads
    /// the standard input.
    Start(StartFlags),
    /// Show the OpenSHMEM library, and measure it here.
    #[command(subcommand)]
    Shmem(ShmemCommand),
    /// Tell what this machine can do, what is missing, and how to get it; or with --node, whether it
    /// is set up as its site wants.
    ///
    /// Exit status of --node: 1 something is missing, 3 something is limited.
    Doctor {
        /// Examine only the policy of the site and its coordinator, marks, the agent, limits and the
        /// clock.
        #[arg(long)]
        node: bool,
        /// With --node: compare with this policy [default: /etc/clearway/policy.toml, if there is one].
        #[arg(long, value_name = "FILE", requires = "node")]
        policy: Option<PathBuf>,
        /// Write JSON instead of a list.
        #[arg(long)]
        json: bool,
    },
    /// Print a shell script with which an administrator gives classes to programs that know nothing
    /// of them
    ///
    /// Nothing is changed: read the script, then run it as root. It marks what --mark names, serves
    /// marked packets by class in this node's own queues, and says what can be done for RDMA
    /// devices.
    SetupNode {
        /// Mark these packets for a class: `port:2049=bulk`, `port:5000-5099=low-latency`,
        /// `user:backup=scavenger` or `source:10.1.0.7=bulk`. Repeat the option for more packets.
        #[arg(long, value_name = "PACKETS=CLASS")]
        mark: Vec<MarkRule>,
        /// Lower the class of packets to what the site policy in FILE grants to the owner of their
        /// socket. Members of groups are those that this host knows.
        #[arg(long, value_name = "FILE")]
        policy: Option<PathBuf>,
        /// Print the script that takes it back.
        #[arg(long, conflicts_with_all = ["mark", "policy"])]
        undo: bool,
    },
    /// Make report.html again from report.json and print its tables.
    Report {
        /// Read the runs in these directories; of numbered ones (out/NAME) the newest.
        #[arg(required = true)]
        directories: Vec<PathBuf>,
        #[command(flatten)]
        format: FigureFormat,
    },
    /// Compare two runs figure by figure, and say whether the second is worse.
    ///
    /// Absolute figures under load decide (latencies, times of programs, shares of classes); ratios
    /// to the idle network are context. Only what changed is shown.
    Diff {
        /// Compare with this run.
        a: PathBuf,
        /// Judge this run.
        b: PathBuf,
        #[command(flatten)]
        format: FigureFormat,
    },
    /// Print a completion script for a shell.
    Completions {
        /// Print the script of this shell.
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Print the man page, or write those of all commands into a directory.
    Man {
        /// Write them into this directory.
        #[arg(long)]
        dir: Option<PathBuf>,
    },
    /// One rank of a run that another host coordinates; started over ssh by the program itself.
    #[command(hide = true)]
    Follow,
    /// Holds a command of the user's; started by the program itself.
    #[command(hide = true)]
    Guard {
        /// Name the process that ends the command if this one is killed; without it this is that
        /// process.
        #[arg(long, value_name = "PID")]
        watched_by: Option<u32>,
        /// The command line.
        command: String,
    },
    /// Brings the ranks of a job together and lets them go: what that costs is measured.
    #[command(hide = true)]
    Gather,
    /// Holds a lab; started by the program itself.
    #[command(hide = true)]
    LabKeeper {
        /// The lab's name.
        name: LabName,
    },
    /// Copies files of a mount into its store; started by the mount itself.
    #[command(hide = true)]
    StoreWorker,
}

/// What a run across a cluster takes.
#[derive(Clone, Debug, Args)]
pub(crate) struct JobArguments {
    /// Start the ranks over ssh, as many on each host of this file as it has slots (`host
    /// slots=4`); this process coordinates them and measures nothing. Means --on cluster.
    #[arg(long, value_name = "FILE")]
    pub(crate) hostfile: Option<PathBuf>,
    /// With --hostfile: run this program on the hosts [default: the path of this one].
    #[arg(long, value_name = "PATH", requires = "hostfile")]
    pub(crate) remote_program: Option<PathBuf>,
    /// With --on cluster: leave messages between machines unsealed.
    #[arg(long)]
    pub(crate) insecure: bool,
    /// With --on cluster: carry messages over this wire; two words are for ranks of one host and
    /// for others, as in shm,ofi [default: auto].
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WIRE")]
    pub(crate) wire: Vec<WireFlag>,
}

impl JobArguments {
    /// Returns what `--wire` asks for.
    pub(crate) fn wire_request(&self) -> Result<WireRequest, WiresError> {
        WireRequest::from_names(&self.wire.iter().copied().map(WireName::from).collect::<Vec<_>>())
    }
}

/// A word of `--wire`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WireFlag {
    /// Shared memory within a host; between hosts libfabric if it has a fabric of its own, else
    /// sealed UDP. Timeslices in a lab take libfabric if there is one, else UDP.
    Auto,
    /// UDP between all ranks, also those of one host.
    Udp,
    /// Shared memory between ranks of one host; name udp, ofi or both as well for those of several.
    Shm,
    /// libfabric between all ranks, also those of one host; with udp, messages take either, and one
    /// goes on when the other fails.
    Ofi,
}

impl From<WireFlag> for WireName {
    fn from(flag: WireFlag) -> Self {
        match flag {
            WireFlag::Auto => Self::Auto,
            WireFlag::Udp => Self::Udp,
            WireFlag::Shm => Self::Shm,
            WireFlag::Ofi => Self::Ofi,
        }
    }
}

/// What every run takes.
#[derive(Clone, Debug, Args)]
pub(crate) struct Output {
    /// Seed every random choice, instead of with the scenario's seed.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    #[command(flatten)]
    pub(crate) report: ReportFlags,
    #[command(flatten)]
    pub(crate) format: FigureFormat,
}

/// A congestion test by flags: `clearway bench --victims ping,get --congestors incast --queues
/// fifo,strict`.
#[derive(Clone, Debug, Args)]
pub(crate) struct BenchFlags {
    /// Time these patterns of victims: ping, get, bandwidth-sync, barrier, allreduce, allgather,
    /// alltoall [default: ping].
    #[arg(long, value_name = "PATTERN", value_delimiter = ',')]
    pub(crate) victims: Vec<VictimKind>,
    /// Load the network with these patterns of congestors: alltoall, incast, put-incast,
    /// get-broadcast, permutation, burst, gpcnet, cast, cast-chain, cast-tree, staging,
    /// staging-yield, cpu-only, none [default: incast].
    #[arg(long, value_name = "PATTERN", value_delimiter = ',')]
    pub(crate) congestors: Vec<CongestorKind>,
    /// Compare these queues at every port, the judged one last: fifo, strict, weighted, vlarb
    /// [default: fifo,strict]; or policies of --fabric [default: its first].
    #[arg(long, value_name = "QUEUE", value_delimiter = ',')]
    pub(crate) queues: Vec<String>,
    /// Send the victims' messages in this class: control, low-latency, best-effort, bulk, scavenger
    /// [default: low-latency].
    #[arg(long, value_name = "CLASS")]
    pub(crate) victim_class: Option<Class>,
    /// Send the congestors' messages in this class [default: bulk].
    #[arg(long, value_name = "CLASS")]
    pub(crate) congestor_class: Option<Class>,
    /// Offer this load, in percent of the pattern's bottleneck link [default: 150].
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', value_parser = percent::<1000>)]
    pub(crate) intensity: Vec<u32>,
    /// Send the congestors' traffic in synchronized bursts, LENGTH/PAUSE, or steady; a list compares
    /// several, as in steady,10ms/90ms. Six bursts must fit into --time [default: steady].
    #[arg(long, value_name = "BURSTS", value_delimiter = ',')]
    pub(crate) bursts: Vec<Bursts>,
    /// Use N hosts in all [default: 8].
    #[arg(long, value_name = "N")]
    pub(crate) hosts: Option<u32>,
    /// Set the rate of host links, with its unit [default: 100Mb/s].
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<BitsPerSec>,
    /// Use two switches with a trunk of this rate, where victims and congestors meet; the defaults
    /// are then 16 hosts of 25Mb/s, 4 of them victims, and alltoall at 100 in 2 groups of 6.
    #[arg(long, value_name = "RATE")]
    pub(crate) trunk: Option<BitsPerSec>,
    /// Put N hosts into the victims' ring [default: 2].
    #[arg(long, value_name = "N")]
    pub(crate) victim_hosts: Option<usize>,
    /// Put N hosts into a congestor group, its target included [default: 4].
    #[arg(long, value_name = "N")]
    pub(crate) congestor_hosts: Option<usize>,
    /// Let congestor groups have one size, or grow from 2 hosts over 4 and 8 to --congestor-hosts
    /// until the verdict is CONGESTED [default: fixed; growing below 32 hosts of a job or machine].
    #[arg(long, value_enum, value_name = "SIZES")]
    pub(crate) groups: Option<GroupGrowth>,
    /// Use N congestor groups at the same time [default: 1].
    #[arg(long, value_name = "N")]
    pub(crate) congestor_groups: Option<usize>,
    /// Draw N random assignments of hosts to roles [default: 1].
    #[arg(long, value_name = "N")]
    pub(crate) draws: Option<u32>,
    /// Measure the rate of false alarms: repeat each victim with silent congestors (A/A test) N
    /// times, 0 to 1000, and judge each run by itself [default: 0].
    #[arg(long, value_name = "N")]
    pub(crate) null_runs: Option<u32>,
    /// Measure the rate of detection: repeat each victim under each load N times, 0 to 1000, and
    /// judge each run by itself [default: 0].
    #[arg(long, value_name = "N")]
    pub(crate) loaded_runs: Option<u32>,
    /// Measure this long with congestors, and as long without, with its unit [default: 4s; on a
    /// machine, until victims have exchanged 4000 messages].
    #[arg(long, value_name = "TIME")]
    pub(crate) time: Option<Time>,
    /// Run at this place; with two places, side by side [default: lab, or sim with --fabric].
    #[arg(long, value_name = "PLACE", value_enum, value_delimiter = ',')]
    pub(crate) on: Vec<VenueKind>,
    /// Simulate this machine, a name or a fabric file; the defaults are then GPCNeT's: a fifth of
    /// the nodes ping, four fifths run its four congestors at once; with fewer than 32 nodes one
    /// incast that grows, where switches drop one incast.
    #[arg(long, conflicts_with_all = ["hosts", "rate", "trunk"])]
    pub(crate) fabric: Option<String>,
    /// Use N hosts of the machine [default: all].
    #[arg(long, value_name = "N", requires = "fabric")]
    pub(crate) nodes: Option<u32>,
    #[command(flatten)]
    pub(crate) job: JobArguments,
    /// Print the scenario that these flags make, and run nothing.
    #[arg(long)]
    pub(crate) print_scenario: bool,
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) programs: ProgramFlags,
    #[command(flatten)]
    pub(crate) policy: PolicyFlags,
}

/// A virtual cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Make a lab that stays until `lab down`.
    Up {
        /// Give it this name.
        #[arg(long, default_value = "lab")]
        name: LabName,
        /// Make N hosts.
        #[arg(long, value_name = "N", default_value_t = 8)]
        hosts: u32,
        /// Set the rate of host links.
        #[arg(long, value_name = "RATE", default_value = "100Mb/s")]
        rate: BitsPerSec,
        /// Make N networks side by side, each with a switch and a link to every host (eth0, eth1,
        /// ...).
        #[arg(long, value_name = "N", default_value_t = 1, conflicts_with_all = ["trunk", "leaves"])]
        rails: u32,
        /// Use two switches with a trunk of this rate.
        #[arg(long, value_name = "RATE", conflicts_with_all = ["leaves", "spines", "uplink"])]
        trunk: Option<BitsPerSec>,
        /// Make a routed leaf-spine network with N leaf routers.
        #[arg(long, value_name = "N", requires = "spines")]
        leaves: Option<u32>,
        /// Make N spine routers.
        #[arg(long, value_name = "N", requires = "leaves")]
        spines: Option<u32>,
        /// Set the rate of each link between leaf and spine [default: the host rate].
        #[arg(long, value_name = "RATE", requires = "leaves")]
        uplink: Option<BitsPerSec>,
        /// Use this queue at every port: fifo, strict, weighted, vlarb.
        #[arg(long, value_name = "QUEUE", default_value = "strict")]
        queue: QueueKind,
        /// Let each queue hold N packets.
        #[arg(long, value_name = "N", default_value_t = 100)]
        queue_packets: u32,
        /// Trust the lab without testing rate, depth and class order of its ports.
        #[arg(long)]
        skip_self_test: bool,
        /// Allow N frames in one packet, as between hosts with segmentation offload; more than 1
        /// needs fifo queues
        #[arg(long, value_name = "N", default_value_t = 1)]
        offload: u32,
    },
    /// Run a program on one host of a lab: `clearway lab exec h3 -- iperf3 -s`.
    Exec {
        /// Name the lab.
        #[arg(long, default_value = "lab")]
        name: LabName,
        /// Leave the machine's mounts to the program, so that what it mounts is seen outside; names
        /// of the lab's hosts are then not known to it.
        #[arg(long)]
        share_mounts: bool,
        /// Choose this host: h0, h1, ...
        host: String,
        /// Run this program with these arguments.
        #[arg(required = true, last = true)]
        program: Vec<String>,
    },
    /// Show hosts, addresses and port counters of a lab, or list all labs.
    Status {
        /// Name the lab; without it, all labs.
        #[arg(long)]
        name: Option<LabName>,
    },
    /// End a lab and every program in it.
    Down {
        /// Name the lab.
        #[arg(long, default_value = "lab")]
        name: LabName,
    },
}

/// A simulated run.
#[derive(Debug, Subcommand)]
pub(crate) enum SimCommand {
    /// Tell why a message was slow, up to the port that was the reason; without a message, list the
    /// slowest.
    Explain {
        /// Read the run in this directory, with its report.json.
        run: PathBuf,
        /// Explain this message: p3:n12:345 is number 345 of host n12 in phase 3.
        #[arg(long)]
        message: Option<String>,
    },
    /// Run a failure that the swarm found again, tell what happens, and say whether it is still
    /// there (exit 0) or not (exit 1).
    Replay {
        /// Read this file, which the swarm wrote.
        failure: PathBuf,
        /// Print events up to this number only.
        #[arg(long, value_name = "EVENT")]
        until: Option<u64>,
    },
}

/// A fabric.
#[derive(Debug, Subcommand)]
pub(crate) enum TopoCommand {
    /// List the fabrics that are shipped.
    List,
    /// Show what a fabric is made of and where each figure comes from.
    Explain {
        /// Explain this shipped fabric, or fabric file.
        fabric: String,
        /// Use this one of its policies [default: the file's own choice].
        #[arg(long)]
        policy: Option<String>,
        /// Resize it to at least this many hosts.
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
        hosts: Option<u32>,
    },
    /// Tell whether a fabric file is right, under each of its policies, and free of deadlock.
    Check {
        /// Check this fabric file, or shipped fabric.
        fabric: String,
    },
    /// Print the file of a shipped fabric, to be changed.
    Print {
        /// Print the file of this shipped fabric.
        fabric: String,
    },
    /// Make a fabric file of a live InfiniBand network: `clearway topo import opensm.conf
    /// --switches net.txt > mine.toml`.
    Import {
        /// Read the options of OpenSM from this file.
        conf: PathBuf,
        /// Read the switches from this output of ibnetdiscover; without it, keep the shape of the
        /// base.
        #[arg(long)]
        switches: Option<PathBuf>,
        /// Take what the tables do not say from this fabric: delays, buffers, hosts.
        #[arg(long, default_value = "edr")]
        base: String,
    },
}

/// Archives.
#[derive(Debug, Subcommand)]
pub(crate) enum MsaCommand {
    /// Show what archives hold, where it is from, and how it is stored.
    Info(MsaFiles),
    /// Check archives: CRCs, the ramp of pattern generators, order, sizes, and whether they end
    /// where they should.
    Check(MsaFiles),
    /// Copy an archive, or a sequence of them, into a new one: compressed, in other versions,
    /// shorter or longer.
    Copy {
        /// Read this path, with %n for a sequence of files, or `file:PATH?cycles=3` to play it
        /// three times.
        source: Locator,
        /// Write the new archive here.
        to: PathBuf,
        /// Stop after this many items.
        #[arg(long, value_name = "COUNT")]
        items: Option<u64>,
        #[command(flatten)]
        form: MsaFormat,
        #[command(flatten)]
        limits: MsaLimits,
    },
    /// Make an archive of made-up data: microslices that hold a ramp, or with --channels timeslices
    /// of them.
    Make {
        /// Write the new archive here; with %i in its name, an archive of microslices for each of
        /// --channels.
        to: String,
        /// Make microslices, or timeslices.
        #[arg(long, value_name = "COUNT", default_value_t = 1000)]
        items: u64,
        /// Make timeslices with a component for each of this many channels, or with %i in the name
        /// as many archives.
        #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..))]
        channels: Option<u16>,
        /// Give each component N microslices.
        #[arg(long, value_name = "N", default_value_t = 100, requires = "channels", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        core: u32,
        /// Add N microslices of the next timeslice to each component.
        #[arg(long, value_name = "N", default_value_t = 1, requires = "channels", value_parser = clap::value_parser!(u32).range(..=1_000_000))]
        overlap: u32,
        /// Make the ramp of this channel, or begin with it.
        #[arg(long, value_name = "NUMBER", default_value_t = 0)]
        channel: u16,
        /// Set the mean length of a content.
        #[arg(long, value_name = "BYTES", default_value = "64KiB")]
        mean: Bytes,
        /// Draw the lengths by this law: constant, poisson, skewed.
        #[arg(long, value_name = "LAW", default_value = "constant")]
        sizes: SizeDistribution,
        /// Set the experiment time from one microslice to the next.
        #[arg(long, default_value = "100us")]
        period: Time,
        /// Seed the lengths.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Write the checksum that the pattern check of FLESnet asks for instead of CRC-32C.
        #[arg(long)]
        flesnet_checksum: bool,
        #[command(flatten)]
        form: MsaFormat,
    },
}

/// Archives to be looked at.
#[derive(Debug, Args)]
pub(crate) struct MsaFiles {
    /// Read these paths, with %n for a sequence of files, or `file:PATH`.
    #[arg(required = true)]
    pub(crate) files: Vec<Locator>,
    /// Write JSON instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) limits: MsaLimits,
}

/// How much of an archive is accepted.
#[derive(Debug, Args)]
pub(crate) struct MsaLimits {
    /// Refuse longer items; memory grows up to twice of it.
    #[arg(long, value_name = "BYTES", default_value_t = Bytes(ITEM_BYTES_MAX))]
    pub(crate) item_max: Bytes,
}

/// How a new archive is written.
#[derive(Debug, Args)]
pub(crate) struct MsaFormat {
    /// Compress the items with zstd.
    #[arg(long)]
    pub(crate) compress: bool,
    /// Write the versions of FLESnet 1.0, which reads no newer ones: times and flags of timeslices
    /// are left out.
    #[arg(long)]
    pub(crate) flesnet_1: bool,
}
