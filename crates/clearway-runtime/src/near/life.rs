//! Notices the end of a neighbour: the kernel closes its socket, whatever ended the process.

use std::os::fd::OwnedFd;
use std::thread;

use rustix::event::{PollFd, PollFlags};

/// The stack of the waiting thread, whose calls are shallow.
const STACK: usize = 256 << 10;

/// Starts a thread that calls `gone` with the place of each PE whose socket closes, in the order
/// noticed. The thread ends with the last socket.
pub(super) fn watch(
    mut lives: Vec<(usize, OwnedFd)>,
    gone: impl Fn(usize) + Send + 'static,
) -> std::io::Result<()> {
    let body = move || {
        while !lives.is_empty() {
            let mut fds: Vec<PollFd<'_>> =
                lives.iter().map(|(_, fd)| PollFd::new(fd, PollFlags::RDHUP)).collect();
            // A signal ends the wait early.
            let _ = rustix::event::poll(&mut fds, None);
            let ended: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            let mut ended = ended.into_iter();
            let mut places = Vec::new();
            lives.retain(|(place, _)| {
                let is_over = ended.next().unwrap_or(false);
                if is_over {
                    places.push(*place);
                }
                !is_over
            });
            places.into_iter().for_each(&gone);
        }
    };
    thread::Builder::new().name("clearway-near".to_owned()).stack_size(STACK).spawn(body).map(drop)
}
