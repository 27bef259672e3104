//! The plainest network of a shape: for closed forms, comparisons and tests, where every figure is
//! chosen by the caller.

use clearway_proto::base::{BitsPerSec, Bytes, Class};

use super::read::ROLES;
use super::{
    Arbiter, Arbitration, ClassMap, CongestionControl, FabricSpec, HostSpec, Jitter, LinkRole,
    LinkSpec, LossDomain, PacketSpec, Queueing, Replication, Routing, Service, SwitchSpec,
    Switching, Topology, VIRTUAL_LANES_MAX,
};
use crate::time::Picos;

impl FabricSpec {
    /// Creates a lossless network of `topology` whose cables all have this rate, and nothing else
    /// that takes time: 5 ns of cable, 100 ns in a switch, hosts that are never the bottleneck,
    /// packets of 4096 bytes without headers, one lane for all classes with a buffer of 512 KiB,
    /// everything in turn.
    pub fn plain(topology: Topology, routing: Routing, rate: BitsPerSec) -> Self {
        let link = |(name, role): (&str, LinkRole)| LinkSpec {
            name: name.to_owned(),
            role,
            rate,
            delay: Picos::from_nanos(5),
            buffer: Bytes(512 << 10),
            burst: None,
        };
        Self {
            name: "plain".to_owned(),
            about: "All cables alike, hosts that cost nothing.".to_owned(),
            topology,
            routing,
            links: ROLES.map(link).into(),
            switch: SwitchSpec {
                delay: Picos::from_nanos(100),
                switching: Switching::CutThrough,
                queueing: Queueing::VirtualOutput,
                replication: Replication::EachBranch,
            },
            host: HostSpec {
                rails: 1,
                transmit_delay: Picos(1),
                receive_delay: Picos(1),
                receive_tail: Picos::ZERO,
                memory_rate: BitsPerSec(u64::MAX),
                input_cost: Picos::ZERO,
                effect_cost: Picos::ZERO,
                jitter: Jitter::default(),
                service: Service::ByConnection,
                clock_ppm: 0,
            },
            packet: PacketSpec { payload: Bytes(4096), header: Bytes(0) },
            classes: ClassMap {
                virtual_lanes: 1,
                service_level: [0; Class::ALL.len()],
                lane_of_level: [0; 16],
                lane_exceptions: Vec::new(),
                loss: [LossDomain::Credits; VIRTUAL_LANES_MAX],
            },
            arbitration: Arbitration {
                host: Arbiter::RoundRobin,
                switch: Arbiter::RoundRobin,
                express: 0,
            },
            congestion_control: CongestionControl::None,
        }
    }
}
