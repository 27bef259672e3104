//! The engine with one planted fault, for trials that must find it.

use clearway_proto::base::LocalNs;
use clearway_proto::queue::{QueueCommand, QueueEvent, QueueNode};
use clearway_proto::wire::{Effect, Engine, HeadRef, Input, More, Operation, Out, TimedOperation};

/// The kind of a message, in its second byte: an answer.
const ANSWER: u8 = 2;
/// The bit of the fourth byte that asks for counts.
const ASKS: u8 = 1;
/// Where the count of applied batches stands.
const APPLIED: usize = 12;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlantedFault {
    /// Some records are applied twice.
    AppliesTwice,
    /// Records of one round are applied in reverse.
    AppliesBackwards,
    /// Some records are not applied, and nobody hears of it.
    SkipsApply,
    /// Counts name one batch more than was applied, where there is one more.
    CountsEarly,
    /// Fences are not obeyed.
    IgnoresFences,
    /// The signal of a put leaves before it.
    SignalsFirst,
    /// Some answers do not leave.
    ForgetsAnswers,
    /// A buffer is free as soon as it is closed.
    FreesEarly,
    /// Flushes are not obeyed, and silent peers not asked.
    NeverAsks,
}

impl PlantedFault {
    pub(super) const ALL: [Self; 9] = [
        Self::AppliesTwice,
        Self::AppliesBackwards,
        Self::SkipsApply,
        Self::CountsEarly,
        Self::IgnoresFences,
        Self::SignalsFirst,
        Self::ForgetsAnswers,
        Self::FreesEarly,
        Self::NeverAsks,
    ];
}

/// The engine, and what is wrong with it.
#[derive(Debug)]
pub(super) struct FaultyQueue {
    node: QueueNode,
    fault: Option<PlantedFault>,
    out: Out<QueueEvent>,
    count: u64,
}

impl FaultyQueue {
    pub(super) fn new(node: QueueNode, fault: Option<PlantedFault>) -> Self {
        Self { node, fault, out: Out::with_limit(1024), count: 0 }
    }

    /// Returns whether the fault strikes now: every seventh time.
    fn strikes(&mut self) -> bool {
        self.count += 1;
        self.count.is_multiple_of(7)
    }

    /// Changes a command; what is given in its place.
    fn command(&mut self, command: QueueCommand, out: &mut Out<QueueEvent>) -> Vec<QueueCommand> {
        match (self.fault, command) {
            (Some(PlantedFault::IgnoresFences), QueueCommand::Fence { .. })
            | (Some(PlantedFault::NeverAsks), QueueCommand::Flush { .. }) => Vec::new(),
            (
                Some(PlantedFault::SignalsFirst),
                QueueCommand::Put { peer, class, context, from, into, signal: Some(batch) },
            ) => {
                let put = QueueCommand::Put { peer, class, context, from, into, signal: None };
                [QueueCommand::Close { peer, class, context, batch }, put].to_vec()
            }
            (Some(PlantedFault::FreesEarly), QueueCommand::Close { batch, .. }) => {
                out.notify(QueueEvent::Free { buffer: batch.buffer });
                [command].to_vec()
            }
            _ => [command].to_vec(),
        }
    }

    /// Passes an effect on, or what is done in its place.
    fn pass(
        &mut self,
        effect: Effect<QueueEvent>,
        head: &dyn Fn(HeadRef) -> Vec<u8>,
        out: &mut Out<QueueEvent>,
    ) {
        let Effect::Operate(TimedOperation { mut operation, .. }) = effect else {
            if let Effect::Notify(event) = effect
                && !(self.fault == Some(PlantedFault::FreesEarly)
                    && matches!(event, QueueEvent::Free { .. }))
            {
                out.notify(event);
            }
            return;
        };
        match &mut operation {
            Operation::Apply { of, answer, .. } if answer.length == 0 && self.strikes() => {
                match self.fault {
                    Some(PlantedFault::AppliesTwice) => out.operate(operation),
                    Some(PlantedFault::SkipsApply) => of.length = 0,
                    _ => {}
                }
            }
            Operation::Send { head: written, .. } => {
                let mut bytes = head(*written);
                let fault = self.fault;
                match fault {
                    Some(PlantedFault::ForgetsAnswers) if bytes[1] == ANSWER && self.strikes() => {
                        return;
                    }
                    Some(PlantedFault::CountsEarly) => {
                        bytes[APPLIED] = bytes[APPLIED].wrapping_add(1)
                    }
                    Some(PlantedFault::NeverAsks) => bytes[3] &= !ASKS,
                    _ => {}
                }
                *written = out.head(&bytes);
            }
            _ => {}
        }
        out.operate(operation);
    }
}

impl Engine for FaultyQueue {
    type Command = QueueCommand;
    type Event = QueueEvent;

    fn input(
        &mut self,
        now: LocalNs,
        input: Input<'_, QueueCommand>,
        out: &mut Out<QueueEvent>,
    ) -> More {
        if self.fault.is_none() {
            return self.node.input(now, input, out);
        }
        let mut inner = std::mem::replace(&mut self.out, Out::with_limit(0));
        let more = match input {
            Input::Command(command) => {
                for command in self.command(command, out) {
                    let _ = self.node.input(now, Input::Command(command), &mut inner);
                }
                More::Yes
            }
            input => self.node.input(now, input, &mut inner),
        };
        let (effects, heads) = inner.split();
        let mut effects: Vec<_> = effects.collect();
        if self.fault == Some(PlantedFault::AppliesBackwards) {
            effects.reverse();
        }
        let head = |head: HeadRef| head.bytes_in(heads).unwrap_or_default().to_vec();
        effects.into_iter().for_each(|effect| self.pass(effect, &head, out));
        inner.clear();
        self.out = inner;
        more
    }

    fn deadline(&self) -> Option<LocalNs> {
        self.node.deadline()
    }
}
