//! Why a network cannot be built, each reason as one sentence with its remedy.

use crate::routing::{DISTANCE_MAX, PLAN_MAX};
use crate::spec::{LANES_MAX, LinkRole};
use crate::topology::MEMORY_MAX;

/// A network that cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// A count is zero.
    #[error("{topology} has no {what}; give at least 1")]
    Zero {
        /// The shape.
        topology: &'static str,
        /// What there is none of.
        what: &'static str,
    },
    /// Two switches cannot share an odd number of hosts.
    #[error("a pair of switches cannot have {hosts} hosts, half each; give an even number, for example {}", hosts.saturating_add(1) & !1)]
    Odd {
        /// Hosts asked for.
        hosts: u32,
    },
    /// The vectors of a fat tree do not have one entry for each level.
    #[error(
        "a fat tree has children for {children} levels, parents for {parents} and cables for {cables}; give each one entry a level"
    )]
    Levels {
        /// Entries of `children`.
        children: usize,
        /// Entries of `parents`.
        parents: usize,
        /// Entries of `cables`.
        cables: usize,
    },
    /// Hosts of a fat tree hang on one leaf each.
    #[error(
        "hosts of a fat tree have one leaf, but parents begins with {parents}; write 1 there, and ports of a host as rails"
    )]
    Leaves {
        /// What was asked for.
        parents: u32,
    },
    /// A detour's number has 16 bits.
    #[error("{topology} has {count} {what}; at most {PLAN_MAX} can be numbered")]
    Many {
        /// The shape.
        topology: &'static str,
        /// What there are too many of.
        what: &'static str,
        /// How many.
        count: u128,
    },
    /// It would not fit into memory.
    #[error(
        "{topology} of {hosts} hosts takes {} MiB, more than the {} MiB that are allowed; {}", bytes >> 20, MEMORY_MAX >> 20, remedy(*fitting)
    )]
    Memory {
        /// The shape.
        topology: &'static str,
        /// Hosts asked for.
        hosts: u128,
        /// Memory it would take.
        bytes: u128,
        /// How many hosts of the same kind fit; `None` where not even the smallest does.
        fitting: Option<u32>,
    },
    /// No link has a role that the shape needs.
    #[error("{topology} needs a link of role {}; add one", role_name(*role))]
    NoLink {
        /// The shape.
        topology: &'static str,
        /// The role.
        role: LinkRole,
    },
    /// The routing makes no sense on the shape.
    #[error("{routing} does not work on {topology}; {works} do")]
    Routing {
        /// The shape.
        topology: &'static str,
        /// What was asked for.
        routing: &'static str,
        /// What can be asked for.
        works: &'static str,
    },
    /// Adaptive routing without a shortest candidate.
    #[error("adaptive routing has no shortest candidate; set minimal to 1 or more")]
    NoCandidate,
    /// The routing needs more lanes than a channel can have.
    #[error(
        "routing needs {steps} steps for each of {virtual_lanes} virtual lanes to be free of deadlock, {needed} lanes together, but a channel has at most {LANES_MAX}; {}",
        fewer(*fitting)
    )]
    Lanes {
        /// Virtual lanes in use.
        virtual_lanes: u32,
        /// Steps of each.
        steps: u32,
        /// The product.
        needed: u32,
        /// Virtual lanes that would do; 0 where none would.
        fitting: u32,
    },
    /// A cable ends at something that is not there.
    #[error(
        "a cable goes from {from} to {to}, but there is no device {unknown}; name it among hosts or switches"
    )]
    UnknownDevice {
        /// One end.
        from: String,
        /// The other.
        to: String,
        /// The end that is not there.
        unknown: String,
    },
    /// Two devices share a name.
    #[error("two devices are called {name}; give one another name")]
    SameName {
        /// The name.
        name: String,
    },
    /// A cable with an end that cannot be.
    #[error("a cable goes from {from} to {to}; {why}")]
    Cable {
        /// One end.
        from: String,
        /// The other.
        to: String,
        /// What would work.
        why: &'static str,
    },
    /// A host without a cable.
    #[error("host {host} has no cable; join it to a switch")]
    Loose {
        /// The host.
        host: String,
    },
    /// Parts of the network are not joined.
    #[error("there is no way from {from} to {to}; join them by a cable")]
    Apart {
        /// A switch.
        from: String,
        /// What it cannot reach.
        to: String,
    },
    /// A way is longer than the tables can tell.
    #[error("{from} and {to} are more than {DISTANCE_MAX} cables apart; add shorter ways")]
    Long {
        /// One end.
        from: String,
        /// The other.
        to: String,
    },
}

/// Returns the role as files write it.
fn role_name(role: LinkRole) -> &'static str {
    match role {
        LinkRole::Host => "host",
        LinkRole::Up => "up",
        LinkRole::Green => "green",
        LinkRole::Black => "black",
        LinkRole::Blue => "blue",
        LinkRole::Local => "local",
        LinkRole::Global => "global",
    }
}

fn remedy(fitting: Option<u32>) -> String {
    match fitting {
        Some(hosts) => format!("{hosts} hosts of the same kind would fit"),
        None => "use smaller switches, fewer parallel cables or fewer virtual lanes".to_owned(),
    }
}

fn fewer(fitting: u32) -> String {
    match fitting {
        0 => "use shorter ways".to_owned(),
        lanes => format!("use at most {lanes} virtual lanes"),
    }
}
