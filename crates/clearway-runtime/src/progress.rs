//! Runs one engine over one wire in real time: step, wait, step, until its host says stop.
//!
//! # Model
//! The [`EngineHost`] is the program around the engine: it hears the engine's events, reads control
//! input when a descriptor of its own is ready, and decides after every step whether to go on.
//!
//! # Invariants
//! I1. The engine is stepped no later than its deadline, up to the system's delay in scheduling
//!     this thread.

use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;

use clearway_proto::base::LocalNs;
use clearway_proto::wire::{Driver, Engine, Wire};

use crate::waiting::Waitable;

/// The program around an engine.
pub trait EngineHost<E: Engine> {
    /// Hears an event of the engine.
    fn event(&mut self, event: E::Event);

    /// Reads the `which`-th control descriptor, which can be read or was closed; commands go to the
    /// driver.
    fn control(&mut self, which: usize, now: LocalNs, driver: &mut Driver<E>);

    /// Decides after a step: break to stop, or continue and be asked again by the given instant.
    /// Memory of `wire` can be read and filled meanwhile.
    fn after_step(
        &mut self,
        now: LocalNs,
        driver: &mut Driver<E>,
        wire: &mut dyn Wire,
    ) -> ControlFlow<(), Option<LocalNs>>;
}

/// Runs `driver` over `wire` until `host` breaks. `control` are descriptors (at most 64) that
/// `host` reads.
pub fn run<E: Engine>(
    driver: &mut Driver<E>,
    wire: &mut dyn Waitable,
    control: &[BorrowedFd<'_>],
    host: &mut dyn EngineHost<E>,
) {
    loop {
        let now = wire.now();
        let progress = driver.step(wire, &mut |event| host.event(event));
        let ControlFlow::Continue(wake) = host.after_step(now, driver, wire) else { return };
        let until = [progress.next, wake].into_iter().flatten().min();
        let woken = wire.wait(until, control);
        if woken.any_extra() {
            let now = wire.now();
            for which in (0..control.len()).filter(|which| woken.extra(*which)) {
                host.control(which, now, driver);
            }
        }
    }
}
