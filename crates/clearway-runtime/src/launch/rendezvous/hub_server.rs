//! Gives a hub its sockets: one thread that listens, reads and writes for all connections, and
//! never waits for one.
//!
//! # Invariants
//! I1. The thread ends when the job is over and everybody has been notified, or when its
//!     [`HubServer`] is dropped.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::super::LaunchError;
use super::super::send::send;
use super::frame;
use super::hub::{ConnectionId, Hub, JobFailure};
use super::member::tune;
use crate::wake_signal::WakeSignal;

/// Bytes read at once from one connection before the next has its turn.
const TURN: usize = 16 * 1024;

/// The longest sleep without anything to do: a bound for surprises, nothing waits for it.
const SLEEP_MAX: Duration = Duration::from_secs(60);

/// What the hub's thread tells its owner.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::launch) enum HubEvent {
    /// This rank is known now.
    Joined(u32),
    /// The job is over and everybody has been notified.
    Over(Result<(), JobFailure>),
}

/// What the owner wants of the hub.
#[derive(Debug)]
enum HubCommand {
    /// The job is over.
    End(JobFailure),
    GoOnWithoutLost,
    /// The server is dropped.
    Close,
}

/// A hub at work.
#[derive(Debug)]
pub(in crate::launch) struct HubServer {
    address: SocketAddr,
    orders: Sender<HubCommand>,
    /// Wakes the thread for an order.
    wake_signal: Arc<WakeSignal>,
    events: Receiver<HubEvent>,
}

impl HubServer {
    /// Opens the hub to everybody who reaches `listener`.
    pub(in crate::launch) fn open(listener: TcpListener, hub: Hub) -> Result<Self, LaunchError> {
        let refused = || LaunchError::system("open the place where ranks meet");
        listener.set_nonblocking(true).map_err(refused())?;
        let address = listener.local_addr().map_err(refused())?;
        let wake_signal = Arc::new(WakeSignal::new().map_err(refused())?);
        let (orders, ordered) = channel();
        let (event, events) = channel();
        let floor = ServerThread {
            hub,
            listener,
            streams: BTreeMap::new(),
            next: 0,
            begun: Instant::now(),
        };
        let heard = Arc::clone(&wake_signal);
        let life = move || floor.serve(&heard, &ordered, &event);
        thread::Builder::new().name("rendezvous".to_owned()).spawn(life).map_err(refused())?;
        Ok(Self { address, orders, wake_signal, events })
    }

    /// Returns the address at which it listens.
    pub(in crate::launch) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends the job: all ranks are notified.
    pub(in crate::launch) fn end(&self, code: i32, sentence: String) {
        // A thread that has ended already notified everybody.
        self.order(HubCommand::End(JobFailure { code, sentence, rank: None, was_said: false }));
    }

    /// Lets the job go on without ranks that are gone, from now on.
    pub(in crate::launch) fn go_on_without_lost(&self) {
        self.order(HubCommand::GoOnWithoutLost);
    }

    fn order(&self, order: HubCommand) {
        let _ = self.orders.send(order);
        self.wake_signal.raise();
    }

    /// Returns the next event, or nothing within `timeout`.
    pub(in crate::launch) fn next(&self, timeout: Duration) -> Option<HubEvent> {
        self.events.recv_timeout(timeout).ok()
    }

    /// Waits, at most `timeout`, until everybody has been notified that the job is over.
    pub(in crate::launch) fn wait_over(&self, timeout: Duration) -> Option<Result<(), JobFailure>> {
        let until = Instant::now() + timeout;
        loop {
            match self.next(until.saturating_duration_since(Instant::now()))? {
                HubEvent::Joined(_) => {}
                HubEvent::Over(outcome) => return Some(outcome),
            }
        }
    }
}

impl Drop for HubServer {
    fn drop(&mut self) {
        self.order(HubCommand::Close);
    }
}

/// What the thread has.
struct ServerThread {
    hub: Hub,
    listener: TcpListener,
    streams: BTreeMap<ConnectionId, TcpStream>,
    next: ConnectionId,
    begun: Instant,
}

impl ServerThread {
    fn serve(
        mut self,
        wake_signal: &WakeSignal,
        orders: &Receiver<HubCommand>,
        events: &Sender<HubEvent>,
    ) {
        loop {
            self.hub.tick(self.begun.elapsed());
            self.flush();
            for rank in self.hub.take_joined() {
                let _ = events.send(HubEvent::Joined(rank));
            }
            if let Some(outcome) = self.hub.outcome() {
                // An owner that is gone does not want to know.
                let _ = events.send(HubEvent::Over(outcome.clone()));
                return;
            }
            self.wait(wake_signal);
            wake_signal.clear();
            while let Ok(order) = orders.try_recv() {
                match order {
                    HubCommand::End(JobFailure { code, sentence, .. }) => {
                        self.hub.end(code, sentence)
                    }
                    HubCommand::GoOnWithoutLost => self.hub.go_on_without_lost(),
                    HubCommand::Close => return self.flush(),
                }
            }
        }
    }

    /// Sends what is there to be sent, and closes what is to be closed.
    fn flush(&mut self) {
        let mut broken = Vec::new();
        for (id, stream) in &mut self.streams {
            loop {
                let bytes = self.hub.output(*id);
                if bytes.is_empty() {
                    break;
                }
                match send(&*stream, bytes) {
                    Ok(count) => self.hub.sent(*id, count),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(_) => {
                        broken.push(*id);
                        break;
                    }
                }
            }
        }
        broken.into_iter().for_each(|id| self.hub.connection_closed(id));
        for id in self.hub.take_closed() {
            self.streams.remove(&id);
        }
    }

    /// Sleeps until something happens, and takes it in.
    fn wait(&mut self, wake_signal: &WakeSignal) {
        let ids: Vec<ConnectionId> = self.streams.keys().copied().collect();
        let mut watched = vec![
            PollFd::new(&self.listener, PollFlags::IN),
            PollFd::new(wake_signal, PollFlags::IN),
        ];
        for (id, stream) in &self.streams {
            let wants = if self.hub.output(*id).is_empty() {
                PollFlags::IN
            } else {
                PollFlags::IN | PollFlags::OUT
            };
            watched.push(PollFd::new(stream, wants));
        }
        let until = self
            .hub
            .deadline()
            .map_or(SLEEP_MAX, |at| at.saturating_sub(self.begun.elapsed()).min(SLEEP_MAX));
        // A millisecond more, so that a deadline has passed when it is looked at.
        let until = Timespec::try_from(until + Duration::from_millis(1)).ok();
        // An interrupted or failed poll is the same as one without news: everything is
        // non-blocking.
        let _ = poll(&mut watched, until.as_ref());
        // It may have been a long sleep: whatever is due from now on is not due at once.
        let now = self.begun.elapsed();
        let ready: Vec<bool> = watched.iter().map(|one| !one.revents().is_empty()).collect();
        drop(watched);
        self.hub.tick(now);
        if ready.first() == Some(&true) {
            self.accept();
        }
        for (id, _) in ids.into_iter().zip(ready.iter().skip(2)).filter(|(_, is_ready)| **is_ready)
        {
            self.read(id);
        }
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            // Without random numbers nobody can be known: the stranger is let go.
            let (Ok(nonce), Ok(())) = (frame::random(), stream.set_nonblocking(true)) else {
                continue;
            };
            tune(&stream);
            let id = self.next;
            self.next += 1;
            self.streams.insert(id, stream);
            self.hub.accept(id, nonce);
            for id in self.hub.take_closed() {
                self.streams.remove(&id);
            }
        }
    }

    fn read(&mut self, id: ConnectionId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let mut bytes = [0; TURN];
        match stream.read(&mut bytes) {
            Ok(0) => self.hub.connection_closed(id),
            Ok(count) => self.hub.receive(id, &bytes[..count]),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => self.hub.connection_closed(id),
        }
    }
}
