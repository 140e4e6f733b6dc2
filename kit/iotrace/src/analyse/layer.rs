//! Layers between a program and its device, and the steps within each.

use std::collections::HashMap;

/// Where time is spent, from the program down; the last three are not on the way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Layer {
    /// The program's own code, and what it waits for that is no storage.
    Application,
    /// System call and VFS, as far as no lower layer has said that it is at work.
    Call,
    /// Page cache and write-back.
    PageCache,
    FileSystem,
    /// jbd2, the log of XFS, the tree log and transactions of btrfs.
    Journal,
    /// From the bio to the driver, and from the interrupt back.
    Block,
    /// From the issue of a request to its completion.
    Device,
    /// Could run and did not.
    Scheduler,
    /// Interrupts that came while it ran.
    Interrupt,
    /// No event says what it was.
    Unattributed,
}

impl Layer {
    pub const COUNT: usize = 10;
    pub const EVERY: [Layer; Layer::COUNT] = [
        Layer::Application,
        Layer::Call,
        Layer::PageCache,
        Layer::FileSystem,
        Layer::Journal,
        Layer::Block,
        Layer::Device,
        Layer::Scheduler,
        Layer::Interrupt,
        Layer::Unattributed,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Layer::Application => "application",
            Layer::Call => "system call",
            Layer::PageCache => "page cache",
            Layer::FileSystem => "file system",
            Layer::Journal => "journal",
            Layer::Block => "block layer",
            Layer::Device => "device",
            Layer::Scheduler => "scheduler",
            Layer::Interrupt => "interrupt",
            Layer::Unattributed => "unattributed",
        }
    }

    /// Its place in [`Layer::EVERY`].
    pub fn index(self) -> usize {
        self as usize
    }
}

/// Something that a layer does.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Step {
    pub layer: Layer,
    pub name: Box<str>,
}

/// Number of a step in its [`Steps`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StepId(pub u16);

/// All steps of an analysis, numbered.
#[derive(Clone, Default, Debug)]
pub struct Steps {
    all: Vec<Step>,
    numbers: HashMap<Step, StepId>,
}

impl Steps {
    /// Beyond this many (an input that makes names up) all others are one.
    const COUNT_MAX: usize = 4096;

    pub fn id(&mut self, layer: Layer, name: &str) -> StepId {
        let mut step = Step { layer, name: name.into() };
        if let Some(id) = self.numbers.get(&step) {
            return *id;
        }
        if self.all.len() >= Steps::COUNT_MAX {
            step = Step { layer: Layer::Unattributed, name: "too many different steps".into() };
            if let Some(id) = self.numbers.get(&step) {
                return *id;
            }
        }
        let id = StepId(self.all.len() as u16);
        self.all.push(step.clone());
        self.numbers.insert(step, id);
        id
    }

    pub fn get(&self, id: StepId) -> &Step {
        &self.all[usize::from(id.0)]
    }

    pub fn layer(&self, id: StepId) -> Layer {
        self.get(id).layer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_numbered_once_and_boundedly() {
        let mut steps = Steps::default();
        let a = steps.id(Layer::Block, "a");
        assert_eq!((steps.id(Layer::Block, "a"), steps.layer(a)), (a, Layer::Block));
        assert_ne!(steps.id(Layer::Device, "a"), a);
        for number in 0..10_000 {
            steps.id(Layer::Call, &number.to_string());
        }
        assert!(steps.all.len() <= Steps::COUNT_MAX + 1);
        for (at, layer) in Layer::EVERY.iter().enumerate() {
            assert_eq!(layer.index(), at);
        }
    }
}
