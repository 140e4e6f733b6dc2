//! The live messages, and extra state only for those in flight, held or failing.
//!
//! Promise: a message that only waits costs one bit, and four bytes if its flow is not its class's own. Age and sender
//! are in the store. An [`Active`] is created when a recipient goes out, fails or is reserved, and removed when that is
//! over and nothing needs to be remembered.

mod active;
mod reservations;

pub use active::{Activation, Active, PlacesIfReleased};

use stentor_queue::ids::MessageNo;
use stentor_queue::idset::IdSet;

use crate::flows::{CLASSES, FlowNo, ORDINARY};
use crate::tables::Parts;

/// Number of messages in a block of flows.
const BLOCK: usize = 256;

/// The flows of messages with neighbouring numbers; 0 is the class's own.
struct Block {
    flows: [FlowNo; BLOCK],
    used: u16,
}

#[derive(Default)]
pub(crate) struct Messages {
    /// Numbers of live messages, by class.
    live: [IdSet; CLASSES],
    flows: Parts<u32, Box<Block>>,
    /// Live messages from the null sender.
    bounces: IdSet,
    /// Messages whose notice of delay was requested, or never will be.
    warned: IdSet,
    /// Number of messages that an operator holds.
    pub held: usize,
    active: Parts<MessageNo, Active>,
}

fn block_of(no: MessageNo) -> (u32, usize) {
    (no.0 / BLOCK as u32, no.0 as usize % BLOCK)
}

impl Messages {
    /// Adds a message. Returns whether it is new. The flow numbered like the class costs nothing.
    pub fn insert(&mut self, no: MessageNo, class: usize, flow: FlowNo) -> bool {
        if self.is_live(no) || !self.live[class].insert(no.0) {
            return false;
        }
        self.set_flow(no, flow);
        true
    }

    /// Moves a message from its class's flow to its own.
    pub fn set_flow(&mut self, no: MessageNo, flow: FlowNo) {
        if flow as usize >= CLASSES {
            let (block, at) = block_of(no);
            let block = self.flows.get_or_insert_with(block, || Box::new(Block { flows: [0; BLOCK], used: 0 }));
            block.used += u16::from(block.flows[at] == 0);
            block.flows[at] = flow;
        }
    }

    /// Records that a message is from the null sender.
    pub fn note_bounce(&mut self, no: MessageNo) {
        self.bounces.insert(no.0);
    }

    /// Live messages from the null sender.
    pub fn bounces(&self) -> &IdSet {
        &self.bounces
    }

    /// Live messages of a class.
    pub fn of_class(&self, class: usize) -> &IdSet {
        &self.live[class]
    }

    /// Removes a message and returns its extra state, if any.
    pub fn remove(&mut self, no: MessageNo) -> Option<Active> {
        for live in &mut self.live {
            live.remove(no.0);
        }
        self.warned.remove(no.0);
        self.bounces.remove(no.0);
        let (at_block, at) = block_of(no);
        if let Some(block) = self.flows.get_mut(&at_block)
            && std::mem::take(&mut block.flows[at]) != 0
        {
            block.used -= 1;
            if block.used == 0 {
                self.flows.remove(&at_block);
            }
        }
        self.active.remove(&no)
    }

    pub fn is_live(&self, no: MessageNo) -> bool {
        self.class(no).is_some()
    }

    pub fn class(&self, no: MessageNo) -> Option<usize> {
        self.live.iter().position(|live| live.contains(no.0))
    }

    pub fn is_bulk(&self, no: MessageNo) -> bool {
        self.class(no).is_some_and(|class| class != ORDINARY)
    }

    pub fn class_and_flow(&self, no: MessageNo) -> Option<(usize, FlowNo)> {
        let class = self.class(no)?;
        let (block, at) = block_of(no);
        let flow = self.flows.get(&block).map_or(0, |block| block.flows[at]);
        Some((class, if flow == 0 { class as FlowNo } else { flow }))
    }

    pub fn flow(&self, no: MessageNo) -> Option<FlowNo> {
        self.class_and_flow(no).map(|(_, flow)| flow)
    }

    pub fn len(&self) -> usize {
        self.live.iter().map(IdSet::len).sum()
    }

    /// The message's extra state, if any.
    pub fn get(&self, no: MessageNo) -> Option<&Active> {
        self.active.get(&no)
    }

    pub fn get_mut(&mut self, no: MessageNo) -> Option<&mut Active> {
        self.active.get_mut(&no)
    }

    /// The message's extra state, created if needed; `None` if the message is not live.
    pub fn begin(&mut self, no: MessageNo) -> Option<&mut Active> {
        self.is_live(no).then(|| self.active.get_or_insert_with(no, Active::default))
    }

    /// Whether an operator holds the message.
    pub fn is_held(&self, no: MessageNo) -> bool {
        self.get(no).is_some_and(Active::is_held)
    }

    /// Holds a message for an operator. Returns whether it was not held before.
    pub fn hold(&mut self, no: MessageNo) -> bool {
        let Some(active) = self.begin(no) else { return false };
        let held = &mut active.extra.get_or_insert_default().held;
        let is_new = held.is_none();
        held.get_or_insert_default();
        self.held += usize::from(is_new);
        is_new
    }

    /// Holds a message that is held when it is accepted.
    pub fn hold_unseen(&mut self, no: MessageNo) {
        if let Some(active) = self.begin(no) {
            let held = PlacesIfReleased { unseen: true, ..PlacesIfReleased::default() };
            active.extra.get_or_insert_default().held = Some(Box::new(held));
            self.held += 1;
        }
    }

    /// Ends a hold and returns where the message would be.
    pub fn release(&mut self, no: MessageNo) -> Option<PlacesIfReleased> {
        let held = self.get_mut(no).and_then(|active| active.extra.as_mut()).and_then(|extra| extra.held.take())?;
        self.held -= 1;
        Some(*held)
    }

    /// Drops extra state that is no longer needed.
    pub fn rest(&mut self, no: MessageNo) {
        if self.active.get(&no).is_some_and(Active::is_idle) {
            self.active.remove(&no);
        }
    }

    /// Prevents further notices about the message's delay. Returns whether one was still due.
    pub fn warn(&mut self, no: MessageNo) -> bool {
        self.is_live(no) && self.warned.insert(no.0)
    }

    /// The lowest live number greater than `after`.
    pub fn next(&self, after: Option<u32>) -> Option<u32> {
        let first = |live: &IdSet| after.map_or_else(|| live.min(), |after| live.iter_from(after).next());
        self.live.iter().filter_map(first).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_are_kept_apart_and_forgotten() {
        let mut messages = Messages::default();
        assert!(messages.insert(MessageNo(7), 0, 0));
        assert!(messages.insert(MessageNo(8), 1, 1));
        assert!(messages.flows.is_empty(), "a class's own flow costs nothing");
        assert!(messages.insert(MessageNo(9), 1, 5));
        assert!(!messages.insert(MessageNo(9), 0, 6), "it is known");
        assert_eq!(
            [7, 8, 9, 10].map(|no| messages.class_and_flow(MessageNo(no))),
            [Some((0, 0)), Some((1, 1)), Some((1, 5)), None]
        );
        assert!(messages.warn(MessageNo(9)) && !messages.warn(MessageNo(9)) && !messages.warn(MessageNo(10)));
        messages.remove(MessageNo(9));
        assert!(messages.flows.is_empty());
        assert!(messages.insert(MessageNo(9), 0, 0), "the number is another message's");
        assert_eq!(messages.flow(MessageNo(9)), Some(0));
        assert!(messages.warn(MessageNo(9)));
    }
}
