//! The user's wish to stop: noticed within a tenth of a second, and obeyed in order.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

use super::complete::CompletedParts;
use super::erase_line;
use super::exit::Exit;

/// The user pressed Ctrl-C, or the system asked this process to end.
#[derive(Debug, Default)]
pub(crate) struct Interrupted {
    /// Files that are not whole and could not be removed.
    pub(crate) left: Vec<String>,
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.left.is_empty() {
            return f.write_str("interrupted");
        }
        write!(f, "interrupted; {} is left behind, unfinished", self.left.join(", "))
    }
}

impl std::error::Error for Interrupted {}

/// The user's wish to stop.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens from now on.
    pub(crate) fn listen() -> Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, flag.clone())
                .context("cannot listen for signals")?;
        }
        Ok(Self(flag))
    }

    /// Returns an error when the user wants an end.
    pub(crate) fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) { Err(Interrupted::default().into()) } else { Ok(()) }
    }
}

/// Ends this process when the user wishes it to stop, whatever it is busy with, and keeps what is
/// complete: for places that hold nothing outside it, so that nothing has to be taken down.
/// Dropped, it listens no more.
pub(crate) struct EndAtOnce {
    handle: Handle,
    listener: Option<JoinHandle<()>>,
}

impl EndAtOnce {
    pub(crate) fn listen(complete: CompletedParts) -> Result<Self> {
        let mut signals =
            Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot listen for signals")?;
        let handle = signals.handle();
        let wait = move || {
            if signals.forever().next().is_some() {
                erase_line();
                if let Err(error) = complete.keep() {
                    eprintln!("clearway: {error:#}");
                }
                eprintln!("clearway: {}", Interrupted::default());
                std::process::exit(Exit::Interrupted as i32);
            }
        };
        let listener = thread::Builder::new()
            .name("signals".into())
            .spawn(wait)
            .context("cannot listen for signals")?;
        Ok(Self { handle, listener: Some(listener) })
    }
}

impl Drop for EndAtOnce {
    fn drop(&mut self) {
        self.handle.close();
        // It only waits, so it has nothing to tell.
        let _ = self.listener.take().map(JoinHandle::join);
    }
}
