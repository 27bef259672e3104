//! The engine over UDP on the loopback: a thread with a wire, a driver and a progress loop for each
//! rank.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use clearway_proto::base::{LocalNs, Nanos, Rank};
use clearway_proto::wire::{Driver, Wire};
use clearway_runtime::progress::{self, EngineHost};
use clearway_runtime::udp::{UdpConfig, UdpPort, UdpWire};

use crate::engine::RollCall;

/// The program around one engine.
struct RollCallHost<'a> {
    names: Vec<u8>,
    is_over: &'a AtomicBool,
}

impl EngineHost<RollCall> for RollCallHost<'_> {
    fn event(&mut self, names: Vec<u8>) {
        self.names = names;
        self.is_over.store(true, Ordering::Release);
    }

    fn control(&mut self, _: usize, _: LocalNs, _: &mut Driver<RollCall>) {}

    fn after_step(
        &mut self,
        now: LocalNs,
        _: &mut Driver<RollCall>,
        _: &mut dyn Wire,
    ) -> ControlFlow<(), Option<LocalNs>> {
        if self.is_over.load(Ordering::Acquire) {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(Some(now + Nanos::from_millis(1)))
    }
}

/// Returns the names that rank 0 collects.
pub(crate) fn run(ranks: u32) -> Vec<u8> {
    let any = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
    let ports: Vec<UdpPort> =
        (0..ranks).map(|_| UdpPort::bind(any).expect("a free port")).collect();
    let addresses: Vec<SocketAddrV4> = ports.iter().map(UdpPort::address).collect();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let threads = (0..).map(Rank).zip(ports).map(|(rank, port)| {
            // Outside a test the session is a random number that the ranks agree on.
            let config = UdpConfig::new(rank, 7, addresses.clone());
            let is_over = &is_over;
            scope.spawn(move || {
                let mut wire = UdpWire::open([port], config).expect("an open wire");
                let mut driver = Driver::boot(RollCall::new(rank, ranks), wire.now(), 0);
                let mut program = RollCallHost { names: Vec::new(), is_over };
                progress::run(&mut driver, &mut wire, &[], &mut program);
                program.names
            })
        });
        let threads: Vec<_> = threads.collect();
        let names = threads.into_iter().map(|thread| thread.join().expect("a rank that ends"));
        names.max_by_key(Vec::len).unwrap_or_default()
    })
}
