//! The lab as one value: made, asked, re-armed, entered, and gone when it is dropped.
//!
//! # Model
//! [`Lab::up`] draws a plan, makes a namespace per node, joins them and configures each over its
//! own netlink socket. Queues are armed before an interface comes up, because replacing them
//! afterwards costs the kernel a grace period each.
//!
//! # Invariants
//! I1. `spaces[i]` is the namespace of node `i` of the plan; host `h<i>` is node `i`.
//! I2. When `up` returns, every port has carrier and its queues: the first packet is already
//!     shaped.
//! I3. A lab that was made here ends its inhabitants when it is dropped; an attached one leaves
//!     them alone.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use clearway_proto::base::{BitsPerSec, Class, Rank};
use serde::Serialize;

use crate::link;
use crate::netlink::NetlinkRequest;
use crate::netns::{KernelSetting, Netns, WriteRequirement};
use crate::plan::{BRIDGE_INDEX, HostPath, LabPlan, Link, LinkEnd, NodeRole, PlannedHost};
use crate::processes;
use crate::queue;
use crate::{LabError, LabName, LabSpec, QueueKind};

/// The environment variable that names the lab a process lives in; [`Lab::spawn`] sets it.
pub const LAB_VARIABLE: &str = "CLEARWAY_LAB";
/// The environment variable that names the host a process lives on; [`Lab::spawn`] sets it.
pub const HOST_VARIABLE: &str = "CLEARWAY_HOST";

/// How long carrier may take; it comes within a few milliseconds of the second end.
const CARRIER_TIMEOUT: Duration = Duration::from_secs(5);
/// The loopback interface is the first of every namespace.
const LOOPBACK: u32 = 1;

/// IPv6 would fill the queues with its own chatter.
const NO_IPV6: [(WriteRequirement, KernelSetting); 2] = [
    (WriteRequirement::Wanted, ("ipv6/conf/all/disable_ipv6", "1")),
    (WriteRequirement::Wanted, ("ipv6/conf/default/disable_ipv6", "1")),
];
/// BBR would hide the queues of single flows; Reno is the one algorithm that every namespace may
/// use.
const HOST_SETTINGS: [(WriteRequirement, KernelSetting); 1] =
    [(WriteRequirement::Wanted, ("ipv4/tcp_congestion_control", "reno"))];
/// Forward, spread flows by addresses and ports, and accept what comes back another way.
const ROUTER_SETTINGS: [(WriteRequirement, KernelSetting); 4] = [
    (WriteRequirement::Required, ("ipv4/ip_forward", "1")),
    (WriteRequirement::Required, ("ipv4/fib_multipath_hash_policy", "1")),
    (WriteRequirement::Wanted, ("ipv4/conf/all/rp_filter", "0")),
    (WriteRequirement::Wanted, ("ipv4/conf/default/rp_filter", "0")),
];

/// A switch does not show its frames to the rules of IP filters, as a kernel with bridge netfilter
/// does by default: that costs a third of all work on a frame.
const BRIDGE_SETTINGS: [(WriteRequirement, KernelSetting); 3] = [
    (WriteRequirement::Wanted, ("bridge/bridge-nf-call-iptables", "0")),
    (WriteRequirement::Wanted, ("bridge/bridge-nf-call-ip6tables", "0")),
    (WriteRequirement::Wanted, ("bridge/bridge-nf-call-arptables", "0")),
];

/// One class of one port: what it carried, dropped and holds since the queues were armed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PortCounters {
    /// `<node>:<interface>`, the end that sends.
    pub port: String,
    /// None for the one queue of [`QueueKind::Fifo`].
    pub class: Option<Class>,
    /// Packets sent.
    pub packets: u64,
    /// Bytes sent, Ethernet headers included.
    pub bytes: u64,
    /// Packets dropped because the queue was full.
    pub drops: u64,
    /// Packets that wait now.
    pub backlog_packets: u64,
}

/// The offloads of one end of a link as the kernel reports them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Offload {
    /// `<node>:<interface>`.
    pub port: String,
    /// Segments of the largest packet that a socket may hand to it; 1 makes every packet real.
    pub gso_segments: Option<u32>,
    /// Bytes of the largest packet that a socket may hand to it.
    pub gso_bytes: Option<u32>,
}

/// Whether a lab was made here or belongs to another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LabOrigin {
    Made,
    Attached,
}

/// One sending end of a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LabPort<'a> {
    pub(crate) near: &'a LinkEnd,
    pub(crate) far: &'a LinkEnd,
    pub(crate) rate: BitsPerSec,
}

/// A running lab.
///
/// ```no_run
/// use clearway_lab::{Lab, LabSpec, Topology};
/// use clearway_proto::base::{BitsPerSec, Rank};
/// clearway_lab::permission::acquire()?;
/// let spec = LabSpec::new(Topology::Star { hosts: 2, rate: BitsPerSec::mega(100) });
/// let lab = Lab::up(&"demo".parse()?, &spec)?;
/// let mut ping = std::process::Command::new("ping");
/// ping.args(["-c", "1", "10.77.0.2"]);
/// lab.spawn(Rank(0), ping)?.wait()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Lab {
    name: LabName,
    spec: LabSpec,
    plan: LabPlan,
    spaces: Vec<Netns>,
    origin: LabOrigin,
}

impl Lab {
    /// Makes the lab; when this returns, packets pass.
    ///
    /// # Errors
    /// [`LabError::Impossible`], [`LabError::Permission`], or [`LabError::Kernel`] with the step
    /// that failed. After an error nothing is left.
    pub fn up(name: &LabName, spec: &LabSpec) -> Result<Self, LabError> {
        spec.check()?;
        let plan = LabPlan::new(spec);
        let settings: Vec<_> = plan.nodes.iter().map(|node| settings_of(node.role)).collect();
        let spaces = Netns::create_all(&settings)?;
        let lab = Self { name: name.clone(), spec: *spec, plan, spaces, origin: LabOrigin::Made };
        lab.join()?;
        for node in 0..lab.spaces.len() {
            lab.spaces[node].route().apply(&lab.configuration(node))?;
        }
        lab.wait_for_carrier()?;
        Ok(lab)
    }

    /// Takes hold of a lab that another process keeps, given the files of its namespaces in the
    /// order of the plan.
    pub(crate) fn attach(
        name: &LabName,
        spec: &LabSpec,
        files: Vec<File>,
    ) -> Result<Self, LabError> {
        let spaces: io::Result<Vec<Netns>> = files.into_iter().map(Netns::attach).collect();
        let spaces =
            spaces.map_err(|error| LabError::kernel(format!("enter the lab {name}"), error))?;
        Ok(Self {
            name: name.clone(),
            spec: *spec,
            plan: LabPlan::new(spec),
            spaces,
            origin: LabOrigin::Attached,
        })
    }

    /// Returns the name given to [`Lab::up`].
    pub fn name(&self) -> &LabName {
        &self.name
    }

    /// Returns the specification, with the kind of queue now in force.
    pub fn spec(&self) -> &LabSpec {
        &self.spec
    }

    /// Returns the hosts, by rank.
    pub fn hosts(&self) -> &[PlannedHost] {
        &self.plan.hosts
    }

    /// Returns the host of this name (`h3`).
    ///
    /// # Errors
    /// [`LabError::NoSuchHost`] with the names that exist.
    pub fn host(&self, name: &str) -> Result<&PlannedHost, LabError> {
        find_host(&self.plan.hosts, name)
    }

    /// Returns the way from `a` to `b` with the rates of all links on it; none when a rank is not
    /// in the lab.
    pub fn path(&self, a: Rank, b: Rank) -> Option<HostPath> {
        self.plan.path(a, b)
    }

    /// Replaces the queues of every port by another kind, counters from zero, for packets of one
    /// frame. Packets that wait are lost.
    ///
    /// # Errors
    /// [`LabError::Kernel`] with the step that failed.
    pub fn rearm(&mut self, queue: QueueKind) -> Result<(), LabError> {
        self.spec.queue = queue;
        self.arm(1, |port| Some(port.rate))
    }

    /// Gives the link of `host` another rate, at both of its ends, until the queues are replaced.
    /// Packets that wait are lost.
    ///
    /// # Errors
    /// [`LabError::Kernel`] with the step that failed.
    pub fn slow(&mut self, host: Rank, rate: BitsPerSec) -> Result<(), LabError> {
        let Some(own) = self.hosts().get(host.index()).map(|host| &host.name) else {
            return Ok(());
        };
        let is_of =
            |end: &LinkEnd| self.plan.nodes.get(end.node).is_some_and(|node| node.name == *own);
        self.arm(1, |port| (is_of(port.near) || is_of(port.far)).then_some(rate))
    }

    /// Lets packets of up to `frames` frames (1 to 43) pass whole, as between hosts whose
    /// interfaces have segmentation offload, until the queues are replaced. After a rest, this many
    /// frames leave a port back to back. Packets that wait are lost.
    ///
    /// # Errors
    /// [`LabError::Impossible`] for other numbers, and where queues count packets;
    /// [`LabError::Kernel`] with the step that failed.
    pub fn offload(&mut self, frames: u32) -> Result<(), LabError> {
        self.spec.check_offload(frames)?;
        self.arm(frames, |port| Some(port.rate))
    }

    /// Keeps multicast on the switch where it was sent, as where routers between switches do not
    /// carry it; unicast goes everywhere.
    ///
    /// # Errors
    /// [`LabError::Kernel`] with the step that failed.
    pub fn confine_multicast(&self) -> Result<(), LabError> {
        let is_host = |node: usize| node < self.plan.hosts.len();
        self.keep_multicast(|port| !is_host(port.near.node) && !is_host(port.far.node))
    }

    /// Sends multicast to the hosts in `receives` only, as switches with IGMP snooping do.
    ///
    /// # Errors
    /// [`LabError::Kernel`] with the step that failed.
    pub fn multicast_only_to(&self, receives: &[Rank]) -> Result<(), LabError> {
        let is_left_out = |node: usize| {
            let host = self.plan.hosts.get(node);
            host.is_some_and(|host| !receives.contains(&host.rank))
        };
        self.keep_multicast(|port| {
            port.near.node >= self.plan.hosts.len() && is_left_out(port.far.node)
        })
    }

    /// Stops multicast at the ports that `is_closed` selects.
    fn keep_multicast(&self, is_closed: impl Fn(&LabPort<'_>) -> bool) -> Result<(), LabError> {
        for (node, space) in self.spaces.iter().enumerate() {
            let ports = self.ports().filter(|port| port.near.node == node && is_closed(port));
            let requests: Vec<NetlinkRequest> =
                ports.map(|port| link::keep_multicast_from(port.near.index)).collect();
            space.route().apply(&requests)?;
        }
        Ok(())
    }

    /// Replaces the queues of the ports that get a rate.
    fn arm(
        &self,
        frames: u32,
        rate_of: impl Fn(&LabPort<'_>) -> Option<BitsPerSec>,
    ) -> Result<(), LabError> {
        for (node, space) in self.spaces.iter().enumerate() {
            let ports = self.ports().filter(|port| port.near.node == node);
            let requests: Vec<NetlinkRequest> = ports
                .filter_map(|port| Some((port.near.index, rate_of(&port)?)))
                .flat_map(|(index, rate)| {
                    let before = [queue::disarm(index), link::offload(index, frames)];
                    before.into_iter().chain(queue::arm(index, rate, &self.spec, frames))
                })
                .collect();
            space.route().apply(&requests)?;
        }
        Ok(())
    }

    /// Starts `command` on a host, marked with [`LAB_VARIABLE`] and [`HOST_VARIABLE`].
    ///
    /// The child's parent is a thread that ends at once: a parent-death signal would kill it.
    ///
    /// # Errors
    /// As [`Command::spawn`]; `NotFound` when the lab has no such rank.
    pub fn spawn(&self, host: Rank, mut command: Command) -> io::Result<Child> {
        let space = self.space(host)?;
        command
            .env(LAB_VARIABLE, self.name.as_str())
            .env(HOST_VARIABLE, &self.plan.hosts[host.index()].name);
        space.run(|| command.spawn())?
    }

    /// Runs `work` on a thread inside a host and waits for it. Sockets that it opens stay in that
    /// host.
    ///
    /// # Errors
    /// `NotFound` when the lab has no such rank, otherwise the kernel's refusal to let a thread in.
    pub fn in_host<T: Send>(&self, host: Rank, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        self.space(host)?.run(work)
    }

    /// Returns what every class of every port has done since the queues were armed.
    ///
    /// # Errors
    /// The kernel's answer could not be read.
    /// # Cost
    /// One netlink dump per port, about 50 us each.
    pub fn port_counters(&self) -> io::Result<Vec<PortCounters>> {
        let mut all = Vec::new();
        for port in self.ports() {
            let name = self.port_name(port.near);
            all.extend(self.class_counters(port.near)?.into_iter().map(|c| PortCounters {
                port: name.clone(),
                class: c.class,
                packets: c.packets,
                bytes: c.bytes,
                drops: c.drops,
                backlog_packets: c.backlog_packets,
            }));
        }
        Ok(all)
    }

    /// Returns the offloads in force, for the report: a lab whose packets are not real proves
    /// nothing.
    ///
    /// # Errors
    /// The kernel's answer could not be read.
    pub fn offloads(&self) -> io::Result<Vec<Offload>> {
        let mut all = Vec::new();
        for (node, space) in self.spaces.iter().enumerate() {
            let mut states = Vec::new();
            space.route().dump(&link::all(), |body| states.extend(link::state(body)))?;
            for port in self.ports().filter(|port| port.near.node == node) {
                let state = states.iter().find(|state| state.index == port.near.index);
                all.extend(state.map(|state| Offload {
                    port: self.port_name(port.near),
                    gso_segments: state.gso_segments,
                    gso_bytes: state.gso_bytes,
                }));
            }
        }
        Ok(all)
    }

    /// Returns the kernel settings that the lab wanted and could not write (a container's
    /// `/proc/sys` may be read-only), for the report: without IPv6 switched off there is its
    /// chatter, without Reno single TCP flows may build no queue.
    pub fn refused_settings(&self) -> BTreeSet<&str> {
        self.spaces.iter().flat_map(Netns::refused).map(String::as_str).collect()
    }

    /// Returns every sending end, both of each link.
    pub(crate) fn ports(&self) -> impl Iterator<Item = LabPort<'_>> {
        self.plan.links.iter().flat_map(|Link { a, b, rate }| {
            [LabPort { near: a, far: b, rate: *rate }, LabPort { near: b, far: a, rate: *rate }]
        })
    }

    /// Returns the port's name, `<node>:<interface>`.
    pub(crate) fn port_name(&self, end: &LinkEnd) -> String {
        format!("{}:{}", self.plan.nodes[end.node].name, end.interface)
    }

    pub(crate) fn plan(&self) -> &LabPlan {
        &self.plan
    }

    pub(crate) fn spaces(&self) -> &[Netns] {
        &self.spaces
    }

    /// Returns the counters of one port, by class.
    pub(crate) fn class_counters(&self, end: &LinkEnd) -> io::Result<Vec<queue::ClassCounters>> {
        let mut all = Vec::new();
        let ask = queue::request_counters(end.index);
        self.spaces[end.node].route().dump(&ask, |body| all.extend(queue::counters(body)))?;
        all.sort_by_key(|counters| counters.class);
        Ok(all)
    }

    fn space(&self, host: Rank) -> io::Result<&Netns> {
        let known = self.plan.hosts.get(host.index()).and_then(|_| self.spaces.get(host.index()));
        known.ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, format!("the lab has no rank {host}"))
        })
    }

    /// Makes the bridges, then every link from the namespace of its `b` end.
    fn join(&self) -> Result<(), LabError> {
        for (node, space) in self.plan.nodes.iter().zip(&self.spaces) {
            if let Some((_, mac)) = node.bridge {
                space.route().apply(&[link::bridge("br0", BRIDGE_INDEX, mac)])?;
            }
        }
        for (node, space) in self.spaces.iter().enumerate() {
            let links = self.plan.links.iter().filter(|link| link.b.node == node);
            let requests: Vec<_> = links
                .map(|link| link::veth(&link.b, &link.a, self.spaces[link.a.node].fd()))
                .collect();
            space.route().apply(&requests)?;
        }
        Ok(())
    }

    /// Returns everything one namespace needs once its links exist, in the order the kernel
    /// accepts.
    fn configuration(&self, node: usize) -> Vec<NetlinkRequest> {
        let this = &self.plan.nodes[node];
        let mut requests = vec![link::up(LOOPBACK)];
        if let Some((address, _)) = this.bridge {
            requests.extend([link::address(BRIDGE_INDEX, address, 16), link::up(BRIDGE_INDEX)]);
        }
        for port in self.ports().filter(|port| port.near.node == node) {
            let index = port.near.index;
            requests.extend(queue::arm(index, port.rate, &self.spec, 1));
            requests.extend(
                port.near.address.map(|(address, prefix)| link::address(index, address, prefix)),
            );
            requests.extend(
                (this.role == NodeRole::Bridge).then(|| link::enslave(index, BRIDGE_INDEX)),
            );
            requests.push(link::up(index));
        }
        requests.extend(this.neighbours.iter().map(link::neighbour));
        requests.extend(this.behind.iter().map(|&(port, mac)| link::behind(port, mac)));
        requests.extend(this.routes.iter().map(link::route));
        requests
    }

    fn wait_for_carrier(&self) -> Result<(), LabError> {
        let deadline = Instant::now() + CARRIER_TIMEOUT;
        for (node, space) in self.spaces.iter().enumerate() {
            let ports: BTreeSet<u32> = self
                .ports()
                .filter(|port| port.near.node == node)
                .map(|port| port.near.index)
                .collect();
            loop {
                let mut running = BTreeSet::new();
                space
                    .route()
                    .dump(&link::all(), |body| {
                        running.extend(
                            link::state(body)
                                .filter(|state| state.running)
                                .map(|state| state.index),
                        );
                    })
                    .map_err(|error| LabError::kernel("tell the state of a link", error))?;
                if ports.is_subset(&running) {
                    break;
                }
                if Instant::now() >= deadline {
                    let name = &self.plan.nodes[node].name;
                    let late = io::Error::from(io::ErrorKind::TimedOut);
                    return Err(LabError::kernel(format!("bring up the links of {name}"), late));
                }
                thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if self.origin == LabOrigin::Made {
            let inodes = self.spaces.iter().map(Netns::inode).collect();
            processes::end_all(&inodes, &format!("{LAB_VARIABLE}={}", self.name));
        }
    }
}

fn settings_of(role: NodeRole) -> Vec<(WriteRequirement, KernelSetting)> {
    let own: &[_] = match role {
        NodeRole::Host => &HOST_SETTINGS,
        NodeRole::Bridge => &BRIDGE_SETTINGS,
        NodeRole::Router => &ROUTER_SETTINGS,
    };
    NO_IPV6.iter().chain(own).copied().collect()
}

/// Returns the host of this name in `hosts`.
pub(crate) fn find_host<'a>(
    hosts: &'a [PlannedHost],
    name: &str,
) -> Result<&'a PlannedHost, LabError> {
    hosts.iter().find(|host| host.name == name).ok_or_else(|| LabError::NoSuchHost {
        given: name.to_owned(),
        first: hosts.first().map(|host| host.name.clone()).unwrap_or_default(),
        last: hosts.last().map(|host| host.name.clone()).unwrap_or_default(),
    })
}
