//! What the generator needs of a collector: on around each operation, read in between.

use stentor_measure::MeasureError;

use crate::collect::tracer::Tracer;

/// Whoever collects, as the generator sees it.
pub trait Switch {
    /// Forgets all that has been traced.
    fn clear(&mut self) -> Result<(), MeasureError>;
    fn switch(&self, on: bool) -> Result<(), MeasureError>;
    /// Makes room in the buffers, with tracing off; how many octets there were.
    fn drain(&mut self) -> Result<usize, MeasureError>;
    /// No more than this may be kept.
    fn is_full(&self) -> bool;
}

impl Switch for Tracer {
    fn clear(&mut self) -> Result<(), MeasureError> {
        Tracer::clear(self)
    }

    fn switch(&self, on: bool) -> Result<(), MeasureError> {
        Tracer::switch(self, on)
    }

    fn drain(&mut self) -> Result<usize, MeasureError> {
        Tracer::drain(self)
    }

    fn is_full(&self) -> bool {
        Tracer::is_full(self)
    }
}
