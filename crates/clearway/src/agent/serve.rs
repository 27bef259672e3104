//! `clearway agent`: the loop of the agent of a node.

use std::net::SocketAddrV4;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use clap::Args;
use clearway_proto::base::{BitsPerSec, Class, LocalNs, Nanos};
use clearway_proto::flow::NodeAgent;
use clearway_runtime::launch::escaped;
use clearway_runtime::{clock, keys};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::client::SOCKET;
use super::metrics::{AgentMetrics, AgentState};
use super::probes::{PORT, ProbeSocket, resolve};
use super::scavengers::ScavengerSocket;
use crate::policy::PolicyFlags;
use crate::run::detail;
use crate::run::exit::Exit;
use crate::run::job::interface::speed;
use crate::run::metrics::{MetricsAddress, MetricsListener};

/// What the policy of a site calls agents.
const MECHANISM: &str = "agent";
/// How often figures are shown, and the wall clock is looked at.
const SHOWN_EVERY: Nanos = Nanos::from_secs(1);
/// What pauses are aligned to on the wall clock, in ns: half a second.
const ALIGNED: u64 = 500_000_000;
/// Random numbers that are drawn at a time: those of some seconds.
const NONCES: usize = 512;

/// Flags of `clearway agent`.
#[derive(Debug, Args)]
pub(crate) struct AgentArguments {
    /// Probe the agents of these hosts, each HOST or HOST:PORT, separated by commas. Choose hosts
    /// behind the ports that matter: the agent does not see others [default: none, and only answer].
    #[arg(long, value_name = "HOST,...", value_delimiter = ',')]
    peers: Vec<String>,
    /// Send and receive probes at this IPv4 address and UDP port.
    #[arg(long, value_name = "ADDR:PORT", default_value_t = SocketAddrV4::new([0, 0, 0, 0].into(), PORT))]
    listen: SocketAddrV4,
    /// Serve scavengers of all local users at this path.
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    socket: PathBuf,
    /// Set the rate of this node's link, the most for all scavengers together: at least 1Mb/s, as in
    /// 10Gb/s [default: `link` of the policy, else the speed of the fastest interface].
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    link: Option<BitsPerSec>,
    /// Serve figures for Prometheus over HTTP, at ADDR:PORT, or at a port of the loopback address.
    /// There is no authentication [default: none].
    #[arg(long, value_name = "ADDR:PORT")]
    metrics: Option<MetricsAddress>,
    #[command(flatten)]
    policy: PolicyFlags,
}

/// Watches the peers of this node until a signal ends it.
///
/// # Errors
/// One sentence: an unknown peer, an address or socket in use, a policy that grants no low latency,
/// a link whose rate nobody knows.
pub(crate) fn serve(flags: &AgentArguments) -> Result<Exit> {
    let of_policy = class_and_link(&flags.policy)?;
    let link = match flags.link.or(of_policy).or_else(fastest) {
        Some(link) if link.0 >= 1_000_000 => link,
        Some(link) => bail!("a link of {link} is too slow; 1Mb/s is the least"),
        None => bail!("no interface says how fast the link is; give --link RATE, as in 10Gb/s"),
    };
    let (ended, signals) = UnixStream::pair().context("the system has no room for a socket")?;
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let signals = signals.try_clone().context("the system has no room for a socket")?;
        signal_hook::low_level::pipe::register(signal, signals)
            .context("cannot listen for signals")?;
    }
    let metrics = MetricsListener::bind(flags.metrics)?;
    let probes = ProbeSocket::open(flags.listen, resolve(&flags.peers)?)?;
    let address = probes.address()?;
    let scavengers = ScavengerSocket::open(&flags.socket)?;
    let agent = NodeAgent::new(clock::now(), link, probes.peers());
    let socket = escaped(&flags.socket.display().to_string());
    eprintln!("clearway: probes at {address}; scavengers at {socket}; a link of {link}");
    if probes.peers() == 0 {
        eprintln!(
            "clearway: warning: without a peer nothing is measured, and scavengers are not held back; give --peers HOST,..."
        );
    }
    let mut run = AgentRun::new(agent, probes, scavengers, link);
    let shown = Arc::clone(&run.shown);
    let _served = MetricsListener::announce(metrics, "agent", shown as _)?;
    run.until(&ended)?;
    run.scavengers.close();
    Ok(Exit::Good)
}

/// Asks the policy for the class of probes; returns its link.
fn class_and_link(policy: &PolicyFlags) -> Result<Option<BitsPerSec>> {
    let Some((grant, link)) = policy.read(MECHANISM, Class::LowLatency)? else { return Ok(None) };
    if grant.granted != Class::LowLatency {
        bail!(
            "the agent measures the class low-latency, and gets {}: {}; add a rule with program = \"agent\" and class = \"low-latency\"",
            grant.granted,
            escaped(&grant.rule)
        );
    }
    Ok(link)
}

/// Returns the speed of the fastest interface that has one.
fn fastest() -> Option<BitsPerSec> {
    let interfaces = nix::ifaddrs::getifaddrs().ok()?;
    interfaces.filter_map(|it| speed(&it.interface_name)).max().map(BitsPerSec::mega)
}

/// An agent at work.
struct AgentRun {
    agent: NodeAgent,
    probes: ProbeSocket,
    scavengers: ScavengerSocket,
    link: BitsPerSec,
    nonces: Vec<u64>,
    show_at: LocalNs,
    allowed: BitsPerSec,
    shown: Arc<AgentMetrics>,
}

impl AgentRun {
    fn new(
        agent: NodeAgent,
        probes: ProbeSocket,
        scavengers: ScavengerSocket,
        link: BitsPerSec,
    ) -> Self {
        let now = clock::now();
        let state = AgentState {
            figures: agent.figures(),
            link: link.0,
            probes: probes.counts,
            ended: 0,
            refused: 0,
        };
        let shown = Arc::new(AgentMetrics(Mutex::new(state)));
        let (nonces, show_at, allowed) = (Vec::new(), now, link);
        Self { agent, probes, scavengers, link, nonces, show_at, allowed, shown }
    }

    /// Works until `ended` can be read.
    fn until(&mut self, ended: &UnixStream) -> Result<()> {
        loop {
            let now = clock::now();
            self.agent.advance(now);
            self.probe(now)?;
            self.scavengers.send(now, &mut self.agent);
            self.show(now);
            let next = self.agent.deadline().min(self.show_at).since(clock::now()).0;
            let timeout = Timespec {
                tv_sec: (next / 1_000_000_000) as _,
                tv_nsec: (next % 1_000_000_000) as _,
            };
            let readable = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
            let mut waiting: Vec<PollFd<'_>> = [ended.as_fd(), self.probes.as_fd()]
                .into_iter()
                .chain(self.scavengers.descriptors())
                .map(readable)
                .collect();
            match poll(&mut waiting, Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(why) => return Err(why).context("the agent cannot wait for packets"),
            }
            let ready: Vec<bool> = waiting.iter().map(|it| !it.revents().is_empty()).collect();
            drop(waiting);
            let is_ready = |place: usize| ready.get(place).copied().unwrap_or(false);
            if is_ready(0) {
                return Ok(());
            }
            if is_ready(1) {
                self.probes.receive(&mut self.agent);
            }
            if ready.iter().skip(3).any(|ready| *ready) {
                self.scavengers.receive(clock::now(), &mut self.agent);
            }
            if is_ready(2) {
                self.scavengers.accept();
            }
        }
    }

    /// Sends the probe that is due.
    fn probe(&mut self, now: LocalNs) -> Result<()> {
        if self.nonces.is_empty() {
            let bytes: [u8; NONCES * 8] = keys::random().context("the system has no randomness")?;
            let (all, _) = bytes.as_chunks::<8>();
            self.nonces.extend(all.iter().map(|bytes| u64::from_le_bytes(*bytes)));
        }
        if let Some(nonce) = self.nonces.last()
            && let Some((peer, packet)) = self.agent.probe(now, *nonce)
        {
            self.nonces.pop();
            self.probes.send(peer, &packet);
        }
        Ok(())
    }

    /// Shows figures, and aligns pauses to the wall clock.
    fn show(&mut self, now: LocalNs) {
        if now < self.show_at {
            return;
        }
        self.show_at = now + SHOWN_EVERY;
        let wall = clock_gettime(ClockId::Realtime).tv_nsec as u64;
        self.agent.align(LocalNs(clock::now().0.saturating_sub(wall % ALIGNED)));
        let figures = self.agent.figures();
        let allowed = figures.allowed;
        if figures.demanding > 0 && allowed != self.allowed {
            let percent = allowed.0.saturating_mul(100) / self.link.0.max(1);
            detail!(
                "scavengers may send {allowed}, {percent} % of the link; probes are {} % slower while they send",
                figures.excess_permille / 10
            );
        }
        self.allowed = allowed;
        let mut state = self.shown.0.lock().unwrap_or_else(PoisonError::into_inner);
        *state = AgentState {
            figures,
            link: self.link.0,
            probes: self.probes.counts,
            ended: self.scavengers.ended,
            refused: self.scavengers.refused,
        };
    }
}
