//! The client's end: calls to one server.

use alloc::collections::{BTreeMap, VecDeque};

use super::frame::{ParcelKind, PieceFrame};
use super::inbox::ParcelInbox;
use super::outbox::{ParcelOutbox, PieceEnd};
use super::pace::PaceFrame;
use super::{CallConfig, Parcel, ReceivedParcel, frames_of};
use crate::base::{Class, LocalNs, Rank};
use crate::wire::{Arrival, Datagram, Destination, Engine, Input, More, Operation, Out, Span};

/// What the application may ask of a [`CallClient`].
#[derive(Clone, Copy, Debug)]
pub enum CallCommand {
    /// Makes a call. [`CallEvent::Returned`] and [`CallEvent::Free`] follow, or
    /// [`CallEvent::Lost`].
    Call {
        /// The request.
        request: Parcel,
        /// Bytes of the longest data of a response.
        response_max: u32,
    },
    /// Says that the application is done with a response.
    Release(u64),
}

/// What a [`CallClient`] reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallEvent {
    /// The response to a call has arrived; it stays in its frames until it is released.
    Returned(ReceivedParcel),
    /// The memory of a request is free.
    Free(u64),
    /// The server cannot be reached, or it broke a rule of the protocol: no call returns any more.
    Lost,
}

/// Frames that a call has.
#[derive(Clone, Copy, Debug)]
struct CallFrames {
    request: u32,
    response: u32,
}

/// The client's end of calls.
#[derive(Debug)]
pub struct CallClient {
    server: Rank,
    window: u32,
    inbox: ParcelInbox,
    outbox: ParcelOutbox,
    waiting: [VecDeque<(Parcel, CallFrames)>; Class::ALL.len()],
    /// Calls that are not over here: released, and returned before.
    open: BTreeMap<u64, CallFrames>,
    /// Frames of open calls at the server, until they return, and here, until they are released.
    used: CallFrames,
    is_lost: bool,
    lost_is_reported: bool,
}

impl CallClient {
    /// Creates a client of `server`.
    pub fn new(server: Rank, config: &CallConfig) -> Self {
        Self {
            server,
            window: config.window,
            inbox: ParcelInbox::new(config, 0),
            outbox: ParcelOutbox::new(ParcelKind::Request, config),
            waiting: core::array::from_fn(|_| VecDeque::new()),
            open: BTreeMap::new(),
            used: CallFrames { request: 0, response: 0 },
            is_lost: false,
            lost_is_reported: false,
        }
    }

    /// Starts calls for which there are frames, the most urgent first.
    fn start(&mut self) {
        for class in Class::ALL {
            // A quarter of the frames is for classes that somebody waits for.
            let most = if class < Class::Bulk { self.window } else { self.window / 4 * 3 };
            while let Some((parcel, frames)) = self.waiting[class.index()].front().copied() {
                if self.used.request + frames.request > most
                    || self.used.response + frames.response > most
                {
                    break;
                }
                self.waiting[class.index()].pop_front();
                self.used.request += frames.request;
                self.used.response += frames.response;
                self.open.insert(parcel.number, frames);
                self.outbox.push(self.server, parcel);
            }
        }
    }

    /// Answers a probe, or takes a pace.
    fn pace(&mut self, now: LocalNs, at: LocalNs, frame: PaceFrame, out: &mut Out<CallEvent>) {
        match frame {
            PaceFrame::Probe { class, sent_at } => {
                let echo = PaceFrame::Echo { class, sent_at, delay: now.since(at) };
                let to = Destination::One(self.server);
                out.send(to, class, echo.encode().bytes(), Span::EMPTY, None);
            }
            PaceFrame::Pace { pace, pause } => self.outbox.gate.set(now, pace, pause),
            PaceFrame::Echo { .. } => self.is_lost = true,
        }
    }

    fn datagram(&mut self, now: LocalNs, datagram: &Datagram<'_>, out: &mut Out<CallEvent>) {
        let &Datagram { from, head, body, .. } = datagram;
        if from != self.server || self.is_lost {
            return;
        }
        if let Some(frame) = PaceFrame::decode(head) {
            return self.pace(now, datagram.at.instant(), frame, out);
        }
        let Some(frame) = PieceFrame::decode(head) else { return self.is_lost = true };
        // A server answers what it was asked, once.
        let awaited = self.open.get(&frame.number).filter(|frames| {
            frame.kind == ParcelKind::Response
                && frames.request > 0
                && frames_of(frame.header, frame.data) <= frames.response
        });
        if awaited.is_none() {
            return self.is_lost = true;
        }
        match self.inbox.take(frame, body, out) {
            Ok(None) => {}
            Ok(Some(parcel)) => {
                if let Some(frames) = self.open.get_mut(&parcel.number) {
                    self.used.request -= core::mem::take(&mut frames.request);
                }
                out.notify(CallEvent::Returned(parcel));
            }
            Err(_) => self.is_lost = true,
        }
    }

    fn command(&mut self, command: CallCommand) {
        match command {
            CallCommand::Call { request, response_max } => {
                let frames = CallFrames {
                    request: frames_of(request.header.length, request.data.length),
                    response: frames_of(1, response_max),
                };
                self.waiting[request.class.index()].push_back((request, frames));
            }
            CallCommand::Release(number) => {
                if let Some(frames) = self.open.remove(&number) {
                    self.inbox.release(number);
                    self.used.request -= frames.request;
                    self.used.response -= frames.response;
                }
            }
        }
    }

    fn arrival(&mut self, now: LocalNs, arrival: Arrival<'_>, out: &mut Out<CallEvent>) {
        match arrival {
            Arrival::Datagram(datagram) => self.datagram(now, &datagram, out),
            Arrival::Done { token, status, .. } => match self.outbox.end(token, status) {
                PieceEnd::Nothing => {}
                PieceEnd::Free(_, number) => out.notify(CallEvent::Free(number)),
                PieceEnd::Lost(_) => self.is_lost = true,
            },
            Arrival::Room { queue } => {
                queue.class().into_iter().for_each(|class| self.outbox.room(class));
            }
            _ => {}
        }
    }
}

impl Engine for CallClient {
    type Command = CallCommand;
    type Event = CallEvent;

    fn input(
        &mut self,
        now: LocalNs,
        input: Input<'_, CallCommand>,
        out: &mut Out<CallEvent>,
    ) -> More {
        match input {
            Input::Boot { .. } | Input::Tick => {}
            Input::Arrival(arrival) => self.arrival(now, arrival, out),
            Input::Command(command) => self.command(command),
        }
        if self.is_lost {
            if !self.lost_is_reported {
                self.lost_is_reported = true;
                self.outbox.drop_peer(self.server);
                out.operate(Operation::Abandon { peer: self.server });
                out.notify(CallEvent::Lost);
            }
            return More::No;
        }
        self.start();
        if self.outbox.flush(now, out) { More::Yes } else { More::No }
    }

    fn deadline(&self) -> Option<LocalNs> {
        self.outbox.gate.waits_until
    }
}
