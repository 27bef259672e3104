//! The progress loop in real time: control input, deadlines, events, and the host's word to stop.

use std::io::{PipeReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::ControlFlow;
use std::os::fd::AsFd;

use clearway_proto::base::{Class, LocalNs, Nanos, Rank};
use clearway_proto::wire::{Arrival, Destination, Driver, Engine, Input, More, Out, Span, Wire};
use clearway_runtime::progress::{EngineHost, run};
use clearway_runtime::udp::{UdpConfig, UdpPort, UdpWire};
use clearway_runtime::waiting::Waiting;

/// Told by the engine.
#[derive(Debug, PartialEq, Eq)]
enum EchoEvent {
    Heard(u8),
    Ticked { at: LocalNs, due: LocalNs },
}

/// Sends each commanded byte to itself, tells what it hears, and ticks once 2 ms later.
#[derive(Default)]
struct EchoEngine {
    due: Option<LocalNs>,
}

impl Engine for EchoEngine {
    type Command = u8;
    type Event = EchoEvent;

    fn input(&mut self, now: LocalNs, input: Input<'_, u8>, out: &mut Out<EchoEvent>) -> More {
        match input {
            Input::Command(byte) => {
                out.send(Destination::One(Rank(0)), Class::Control, &[byte], Span::EMPTY, None)
            }
            Input::Arrival(Arrival::Datagram(datagram)) => {
                out.notify(EchoEvent::Heard(datagram.head[0]));
                self.due = Some(now + Nanos::from_millis(2));
            }
            Input::Tick => {
                out.notify(EchoEvent::Ticked { at: now, due: self.due.take().unwrap_or_default() })
            }
            _ => {}
        }
        More::No
    }

    fn deadline(&self) -> Option<LocalNs> {
        self.due
    }
}

struct EchoProgram {
    input: PipeReader,
    events: Vec<EchoEvent>,
}

impl EngineHost<EchoEngine> for EchoProgram {
    fn event(&mut self, event: EchoEvent) {
        self.events.push(event);
    }

    fn control(&mut self, which: usize, now: LocalNs, driver: &mut Driver<EchoEngine>) {
        assert_eq!(which, 0);
        let mut byte = [0];
        self.input.read_exact(&mut byte).expect("a byte");
        driver.command(now, byte[0]);
    }

    fn after_step(
        &mut self,
        _: LocalNs,
        _: &mut Driver<EchoEngine>,
        _: &mut dyn Wire,
    ) -> ControlFlow<(), Option<LocalNs>> {
        if self.events.len() == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(None) }
    }
}

#[test]
fn run__control_becomes_a_message_an_event_and_a_tick_when_due() {
    for waiting in [Waiting::Sleep, Waiting::Adaptive, Waiting::Spin] {
        let port = UdpPort::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let mut config =
            UdpConfig::new(Rank(0), u64::from(std::process::id()), vec![port.address()]);
        config.waiting = waiting;
        let mut wire = UdpWire::open([port], config).expect("an open wire");
        let (input, mut writer) = std::io::pipe().expect("a pipe");
        writer.write_all(b"x").expect("room in the pipe");
        let control = input.try_clone().expect("a copy");
        let mut program = EchoProgram { input, events: Vec::new() };
        let mut driver = Driver::boot(EchoEngine::default(), LocalNs(0), 0);
        run(&mut driver, &mut wire, &[control.as_fd()], &mut program);
        let [heard, EchoEvent::Ticked { at, due }] = program.events.as_slice() else {
            panic!("{:?}", program.events)
        };
        assert_eq!(heard, &EchoEvent::Heard(b'x'));
        assert!(at >= due, "{waiting:?}: ticked {at:?}, due {due:?}");
    }
}
